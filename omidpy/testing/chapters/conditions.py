"""What a store changes only if a cell is as expected: one row, or a guarded batch of many.

The commit protocol stands on these, so many threads run them at once here.
"""

from __future__ import annotations

import random
import threading

import pytest

from omidpy.errors import NoSuchFamily, NoSuchTable, UsageError
from omidpy.model import Cell, Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import (
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    Put,
    RowMutation,
    Store,
    singly,
)
from omidpy.testing.chapters.basics import (
    CF,
    COLUMN,
    OTHER,
    TABLE,
    Chapter,
    Q,
    delete,
    in_threads,
    keys_of,
    put,
    rows_of,
    scan,
)


class Conditions(Chapter):
    """The check and the change are one, for a row and for a batch."""

    # -- conditions -------------------------------------------------------------------------------

    def test_a_check_for_absence_applies_once(self, things: Store) -> None:
        """How a commit entry loses against an invalidation."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        assert things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"r", 1, b"a"))
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"r", 2, b"b"))
        assert things.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"a")]]

    def test_a_check_compares_the_newest_version(self, things: Store) -> None:
        """An old version that has the value does not count."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        things.write({TABLE: [put(b"r", 1, b"old"), put(b"r", 5, b"new")]})
        x = RowMutation(b"r", [Put(CF, b"x", 1, b"applied")])
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, b"old", x)
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, None, x)
        assert not things.check_and_mutate(TABLE, b"r", Column(CF, b"absent"), b"old", x)
        assert things.get(TABLE, [b"r"], columns=[(CF, b"x")]) == [[]]
        assert things.check_and_mutate(TABLE, b"r", COLUMN, b"new", x, durable=True)
        assert len(things.get(TABLE, [b"r"], columns=[(CF, b"x")])[0]) == 1

    def test_a_check_looks_at_its_own_column_and_row(self, things: Store) -> None:
        """A neighbour's value is not this column's."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested below
        things.write({TABLE: [put(b"r", 1, qualifier=b"q2"), put(b"r", 1, family=OTHER)]})
        things.write({TABLE: [put(b"rr", 1)]})
        assert things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"r", 1, b"mine"))

    def test_a_checked_mutation_may_delete(self, things: Store) -> None:
        """A false invalidation is undone by a conditional delete of its column alone."""
        if not things.capabilities.exact_delete:
            return
        things.write({TABLE: [put(b"r", 1, b"IT"), put(b"r", 1, qualifier=b"keep")]})
        assert not things.check_and_mutate(TABLE, b"r", COLUMN, b"other", delete(b"r", 1))
        assert things.check_and_mutate(TABLE, b"r", COLUMN, b"IT", delete(b"r", 1))
        assert [cell.qualifier for cell in things.get(TABLE, [b"r"])[0]] == [b"keep"]

    def test_a_change_that_cannot_be_checked_is_refused(self, things: Store) -> None:
        """What must be atomic has no body that merely looks atomic."""
        if things.capabilities.checked_changes:
            assert things.check_and_mutate(TABLE, b"r", COLUMN, None, RowMutation(b"r"))
            return
        things.write({TABLE: [put(b"r", 1, b"old")]})
        changes: list[tuple[bytes | None, RowMutation]] = [
            (None, put(b"r", 2, qualifier=b"x")),
            (b"old", put(b"r", 2)),
            (b"old", delete(b"r", 1)),
        ]
        for expected, change in changes:
            with pytest.raises(UsageError, match="check"):
                things.check_and_mutate(TABLE, b"r", COLUMN, expected, change)
        assert things.get(TABLE, [b"r"]) == [[Cell(b"r", CF, Q, 1, b"old")]]

    def test_a_check_of_one_row_cannot_change_another(self, things: Store) -> None:
        """Only a row is atomic."""
        with pytest.raises(UsageError, match="other"):
            things.check_and_mutate(TABLE, b"r", COLUMN, None, put(b"other", 1))

    def test_an_empty_expected_value_is_refused(self, things: Store) -> None:
        """HBase reads it as absence."""
        with pytest.raises(UsageError, match="empty"):
            things.check_and_mutate(TABLE, b"r", COLUMN, b"", put(b"r", 1))

    def test_of_many_threads_one_wins_a_check(self, things: Store) -> None:
        """The check and the change are one."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested above
        for number in range(10):
            row = b"%d" % number
            won: list[int] = []

            def compete(name: int, row: bytes = row, won: list[int] = won) -> None:
                mutation = put(row, 1 + name, b"%d" % name)
                if things.check_and_mutate(TABLE, row, COLUMN, None, mutation):
                    won.append(name)

            in_threads([lambda name=name: compete(name) for name in range(6)])  # type: ignore[misc]  # a bound default
            (cells,) = things.get(TABLE, [row])
            assert [int(cell.value) for cell in cells] == won
            assert len(won) == 1

    def test_counters_lose_no_increment_among_threads(self, things: Store) -> None:
        """Compare-and-set loops of many threads add up."""
        if not things.capabilities.checked_changes:
            return  # its refusal is tested above
        things.write({TABLE: [put(b"counter", 1, b"0")]})

        def increment() -> None:
            done = 0
            while done < 25:
                ((cell,),) = things.get(TABLE, [b"counter"], max_versions=1)
                value = b"%d" % (int(cell.value) + 1)
                mutation = put(b"counter", cell.version + 1, value)
                done += things.check_and_mutate(TABLE, b"counter", COLUMN, cell.value, mutation)

        in_threads([increment] * 4)
        ((cell,),) = things.get(TABLE, [b"counter"], max_versions=1)
        assert (cell.value, cell.version) == (b"100", 101)

    def test_a_row_is_seen_whole(self, things: Store) -> None:
        """All cells of a row mutation or none, by gets and by scans, while a writer runs."""
        qualifiers = [b"%d" % number for number in range(8)]
        columns: list[tuple[bytes, bytes | None]] = [(CF, qualifier) for qualifier in qualifiers]
        done = threading.Event()

        def write() -> None:
            try:
                for version in range(1, 121):
                    puts = [Put(CF, qualifier, version, b"v") for qualifier in qualifiers]
                    things.write({TABLE: [RowMutation(row, puts) for row in (b"a", b"b")]})
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                rows = things.get(TABLE, [b"a", b"b"], max_versions=1)
                rows += things.get(TABLE, [b"a", b"b"], columns=columns, max_versions=1)
                rows += rows_of(things.scan(TABLE, max_versions=1, page_rows=1))
                rows += rows_of(things.scan(TABLE, max_versions=1, reverse=True))
                for row in rows:
                    assert len({cell.version for cell in row}) <= 1
                    assert len(row) in (0, len(qualifiers))

        in_threads([write, read, read])

    # -- guarded batches --------------------------------------------------------------------------

    def test_a_guarded_batch_is_refused_where_it_would_not_be_atomic(self, things: Store) -> None:
        """What must be atomic has no body that merely looks atomic."""
        if things.capabilities.guarded_batches:
            assert things.write_guarded([]) == []
        else:
            with pytest.raises(UsageError, match="guarded"):
                things.write_guarded([])

    def test_a_guarded_batch_skips_what_its_condition_forbids(self, things: Store) -> None:
        """The oracle writes each commit entry only where no invalidation is."""
        if not things.capabilities.guarded_batches:
            return
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        things.write({TABLE: [put(b"b", 1, b"IT")]})
        mutations = [
            GuardedMutation(TABLE, put(row, 2), Condition(TABLE, row, COLUMN, None))
            for row in (b"a", b"b", b"c")
        ]
        other_row = Condition(TABLE, b"b", COLUMN, b"IT")
        mutations.append(GuardedMutation("second", put(b"d", 2), other_row))
        mutations.append(GuardedMutation("second", put(b"e", 2)))
        assert things.write_guarded(mutations, durable=True) == [True, False, True, True, True]
        assert keys_of(scan(things, TABLE)) == [b"a", b"b", b"c"]
        assert things.get(TABLE, [b"b"])[0][0].value == b"IT"
        assert keys_of(scan(things, "second")) == [b"d", b"e"]

    def test_a_failed_guard_applies_nothing(self, things: Store) -> None:
        """The lease is checked in the transaction that writes the entries."""
        if not things.capabilities.guarded_batches:
            return
        things.write({TABLE: [put(b"lease", 1, b"mine")]})
        batch = [GuardedMutation(TABLE, put(b"a", 1)), GuardedMutation(TABLE, put(b"b", 1))]
        mine = Condition(TABLE, b"lease", COLUMN, b"mine")
        assert things.write_guarded(batch, guard=mine._replace(expected=b"theirs")) is None
        assert things.write_guarded(batch, guard=mine._replace(expected=None)) is None
        assert keys_of(scan(things, TABLE)) == [b"lease"]
        assert things.write_guarded(batch, guard=mine) == [True, True]
        assert keys_of(scan(things, TABLE)) == [b"a", b"b", b"lease"]

    def test_a_condition_sees_the_mutations_before_it(self, things: Store) -> None:
        """A duplicate in one batch loses against its first."""
        if not things.capabilities.guarded_batches:
            return
        absent = Condition(TABLE, b"r", COLUMN, None)
        first = GuardedMutation(TABLE, put(b"r", 1, b"first"), absent)
        second = GuardedMutation(TABLE, put(b"r", 2, b"second"), absent)
        third = GuardedMutation(TABLE, put(b"s", 1), absent._replace(expected=b"first"))
        deleted = GuardedMutation(TABLE, delete(b"r", 1))
        fourth = GuardedMutation(TABLE, put(b"t", 1), absent)
        batch = [first, second, third, deleted, fourth]
        assert things.write_guarded(batch) == [True, False, True, True, True]
        assert keys_of(scan(things, TABLE)) == [b"s", b"t"]

    def test_a_long_guarded_batch_means_the_same_one_by_one(self, things: Store) -> None:
        """Conditions of a batch may be looked at together, and what comes before still counts."""
        if not things.capabilities.guarded_batches:
            return
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        dice = random.Random(7)
        columns = COLUMN, Column(CF, b"x")
        for version in range(1, 6):
            batch: list[tuple[RowMutation, Condition | None]] = []
            for _ in range(200):
                row, checked = (b"%03d" % dice.randrange(150) for _ in range(2))
                is_gone = dice.random() < 0.2
                change = delete(row, version) if is_gone else put(row, version, b"v")
                expected = dice.choice((None, None, None, b"v"))
                condition = Condition(TABLE, checked, dice.choice(columns), expected)
                batch.append((change, dice.choice((condition, condition, None))))
            together = [GuardedMutation(TABLE, change, check) for change, check in batch]
            one_by_one = [
                GuardedMutation("second", change, check and check._replace(table="second"))
                for change, check in batch
            ]
            applied = things.write_guarded(together)
            assert applied == [things.write_guarded([one]) == [True] for one in one_by_one]
            assert rows_of(scan(things, TABLE)) == rows_of(scan(things, "second"))
            assert applied is not None
            assert {True, False} == set(applied)

    def test_entries_are_put_where_their_rows_lack_the_other_column(self, things: Store) -> None:
        """An oracle writes thousands of them at a time, and means what it means one by one."""
        if not things.capabilities.guarded_batches:
            return
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        other = Column(CF, b"x")
        rows = [b"%03d" % number for number in range(300)]
        before = [
            GuardedMutation(TABLE, RowMutation(row, puts=(Put(*other, 1, b"v"),)))
            for row in rows[::7]
        ]
        entries = Entries(TABLE, COLUMN, other, [(row, 2, b"e" + row) for row in rows])
        unless = Condition(TABLE, rows[1], COLUMN, None)
        behind = GuardedMutation(TABLE, put(b"never", 3), unless)
        batch: list[GuardedMutation | Entries] = [*before, entries, behind]
        applied = things.write_guarded(batch, durable=True)
        expected = [place % 7 != 0 for place in range(len(rows))]
        assert applied == [True] * len(before) + expected + [False]
        for _, mutation, condition in singly(batch):
            check = condition and condition._replace(table="second")
            things.write_guarded([GuardedMutation("second", mutation, check)])
        assert rows_of(scan(things, TABLE)) == rows_of(scan(things, "second"))
        assert things.write_guarded([entries._replace(cells=[])]) == []

    def test_entries_that_no_store_can_hold_are_refused(self, things: Store) -> None:
        """One transaction: all or none."""
        if not things.capabilities.guarded_batches:
            return
        good = Entries(TABLE, COLUMN, Column(CF, b"x"), [(b"a", 1, b"v")])
        nowhere = Column(b"nope", b"q")
        for bad, error in (
            (good._replace(cells=[*good.cells, (b"", 1, b"v")]), UsageError),
            (good._replace(cells=[(b"b", -1, b"v")]), UsageError),
            (good._replace(cells=[(b"b", 1, bytes(2**24))]), UsageError),
            (good._replace(absent=COLUMN), UsageError),
            (good._replace(column=nowhere), NoSuchFamily),
            (good._replace(absent=nowhere), NoSuchFamily),
            (good._replace(table="absent"), NoSuchTable),
        ):
            with pytest.raises(error):
                things.write_guarded([good, bad])
        assert rows_of(scan(things, TABLE)) == []

    def test_a_group_of_cells_is_put_whole_or_not_at_all(self, things: Store) -> None:
        """An oracle writes what it commits: rows of many tables, on one condition."""
        if not things.capabilities.guarded_batches:
            return
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        things.write({TABLE: [put(b"forbidden", 1)]})
        cells = {
            TABLE: [(b"a", CF, b"q", 1, b"v"), (b"b", CF, b"q", 1, b"v")],
            "second": [(b"c", CF, b"q", 1, b"v"), (b"c", CF, b"r", 2, b"")],
        }
        allowed = CellGroup(cells, Condition(TABLE, b"allowed", COLUMN, None))
        refused = CellGroup(cells, Condition(TABLE, b"forbidden", COLUMN, None))
        alone = GuardedMutation("second", put(b"d", 1))
        assert things.write_guarded([refused, alone, refused]) == [False, True, False]
        assert keys_of(scan(things, TABLE)) == [b"forbidden"]
        assert things.write_guarded([refused, allowed, alone], durable=True) == [False, True, True]
        assert keys_of(scan(things, TABLE)) == [b"a", b"b", b"forbidden"]
        (found,) = things.get("second", [b"c"])
        assert [(cell.qualifier, cell.version, cell.value) for cell in found] == [
            (b"q", 1, b"v"),
            (b"r", 2, b""),
        ]
        # Again, as whoever lost the answer does; and what the batch says counts in its order.
        assert things.write_guarded([allowed], durable=True) == [True]
        later = CellGroup({TABLE: [(b"a", CF, b"q", 1, b"w")]}, allowed.condition)
        forbid = GuardedMutation(TABLE, put(b"allowed", 1))
        assert things.write_guarded([later, forbid, allowed]) == [True, True, False]
        assert things.get(TABLE, [b"a"])[0][0].value == b"w"

    def test_a_group_of_cells_of_what_is_gone_is_not_put(self, things: Store) -> None:
        """A table may be dropped while its cells wait; the others of the call are not its fault."""
        if not things.capabilities.guarded_batches:
            return
        unless = Condition(TABLE, b"forbidden", COLUMN, None)
        here = (b"a", CF, b"q", 1, b"v")
        good = CellGroup({TABLE: [here]}, unless)
        no_table = CellGroup({TABLE: [(b"b", *here[1:])], "absent": [here]}, unless)
        no_family = CellGroup({TABLE: [(b"c", *here[1:]), (b"c", b"nope", *here[2:])]}, unless)
        behind = GuardedMutation(TABLE, put(b"d", 1))
        batch: list[CellGroup | GuardedMutation] = [no_table, good, no_family, behind]
        assert things.write_guarded(batch, durable=True) == [False, True, False, True]
        assert keys_of(scan(things, TABLE)) == [b"a", b"d"]
        for bad in ((b"", *here[1:]), (*here[:3], -1, b"v"), (*here[:4], bytes(2**24))):
            with pytest.raises(UsageError):
                things.write_guarded([behind, CellGroup({TABLE: [here, bad]}, unless)])

    def test_a_group_of_cells_fails_with_the_guard(self, things: Store) -> None:
        """A deposed oracle writes no cell either."""
        if not things.capabilities.guarded_batches:
            return
        unless = Condition(TABLE, b"forbidden", COLUMN, None)
        group = CellGroup({TABLE: [(b"a", CF, b"q", 1, b"v")]}, unless)
        theirs = Condition(TABLE, b"lease", COLUMN, b"theirs")
        assert things.write_guarded([group], guard=theirs) is None
        assert rows_of(scan(things, TABLE)) == []

    def test_many_groups_mean_the_same_one_by_one(self, things: Store) -> None:
        """Their conditions may be looked at together, and what comes before still counts."""
        if not things.capabilities.guarded_batches:
            return
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        things.create_table(TableSchema("third", [FamilySchema(CF)]))
        dice = random.Random(11)

        def alone(one: CellGroup | GuardedMutation) -> bool:
            batch: list[CellGroup | GuardedMutation] = [one]
            return things.write_guarded(batch) == [True]

        for version in range(1, 6):
            together: list[CellGroup | GuardedMutation] = []
            one_by_one: list[CellGroup | GuardedMutation] = []
            for _ in range(60):
                row, checked = (b"%02d" % dice.randrange(60) for _ in range(2))
                records = [(row, CF, b"q", version, b"v"), (b"x" + row, CF, b"q", version, b"v")]
                is_single = dice.random() < 0.3
                for table, batch in (("second", together), ("third", one_by_one)):
                    unless = Condition(table, checked, COLUMN, None)
                    if is_single:
                        batch.append(GuardedMutation(table, put(row, version), unless))
                    else:
                        batch.append(CellGroup({table: records}, unless))
            applied = things.write_guarded(together)
            assert applied == [alone(one) for one in one_by_one]
            assert rows_of(scan(things, "second")) == rows_of(scan(things, "third"))
            assert applied is not None
            assert True in applied

    def test_a_guarded_batch_with_a_bad_mutation_applies_nothing(self, things: Store) -> None:
        """One transaction: all or none."""
        if not things.capabilities.guarded_batches:
            return
        good = GuardedMutation(TABLE, put(b"a", 1))
        for bad, error in (
            (GuardedMutation(TABLE, put(b"", 1)), UsageError),
            (GuardedMutation(TABLE, put(b"b", 1, family=b"nope")), NoSuchFamily),
            (GuardedMutation("absent", put(b"b", 1)), NoSuchTable),
        ):
            with pytest.raises(error):
                things.write_guarded([good, bad])
        assert rows_of(scan(things, TABLE)) == []

    def test_a_guarded_batch_is_seen_whole(self, things: Store) -> None:
        """Of two batches guarded by one counter, each either happens before the other or fails."""
        if not things.capabilities.guarded_batches:
            return
        things.write({TABLE: [put(b"n", 1, b"0")]})

        def work(name: bytes) -> None:
            done = 0
            while done < 15:
                ((cell,),) = things.get(TABLE, [b"n"], max_versions=1)
                number = int(cell.value) + 1
                batch = [
                    GuardedMutation(TABLE, put(b"n", cell.version + 1, b"%d" % number)),
                    GuardedMutation(TABLE, put(b"log%04d" % number, 1, name)),
                ]
                guard = Condition(TABLE, b"n", COLUMN, cell.value)
                done += things.write_guarded(batch, guard=guard) is not None

        in_threads([lambda: work(b"a"), lambda: work(b"b"), lambda: work(b"c")])
        log = keys_of(scan(things, TABLE, KeyRange(b"log", b"m")))
        assert log == [b"log%04d" % number for number in range(1, 46)]
