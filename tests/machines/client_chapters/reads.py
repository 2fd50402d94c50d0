"""What does a transaction read: its own writes over what was committed, in gets and in scans?"""

from __future__ import annotations

from collections.abc import Callable

from omidpy.manager import TransactionManager
from omidpy.tx.transaction import Transaction
from tests.machines.client_chapters.basics import COLUMN, Chapter, put


class Reads(Chapter):
    """Happybase's reads, with what the transaction wrote laid over them."""

    # -- own writes ----------------------------------------------------------------------------

    def test_own_writes_are_read(
        self, tm: TransactionManager, filled: str, settle: Callable[[Transaction], None]
    ) -> None:
        """A put, an overwrite, a new column, a deleted column."""
        with tm.begin() as tx:
            table = tx.table(filled)
            table.put(b"new", {COLUMN: b"1"})
            table.put(b"a", {COLUMN: b"changed", b"cf:more": b"2"})
            table.delete(b"b", [COLUMN])
            settle(tx)
            assert table.row(b"new") == {COLUMN: b"1"}
            assert table.row(b"a") == {b"cf:more": b"2", COLUMN: b"changed", b"other:": b"a"}
            assert table.row(b"b") == {b"other:": b"b"}
            table.put(b"a", {COLUMN: b"again"})
            settle(tx)
            assert table.row(b"a", [COLUMN]) == {COLUMN: b"again"}
            table.put(b"b", {COLUMN: b"back"})
            assert table.row(b"b", [b"cf"]) == {COLUMN: b"back"}
        assert self._rows(tm, filled, row_prefix=b"a") == [
            (b"a", {b"cf:more": b"2", COLUMN: b"again", b"other:": b"a"})
        ]

    def test_own_writes_are_scanned(
        self, tm: TransactionManager, filled: str, settle: Callable[[Transaction], None]
    ) -> None:
        """Between, before and behind what is there; deleted rows are left out."""
        with tm.begin() as tx:
            table = tx.table(filled)
            for key in (b"0", b"bb", b"z"):
                table.put(key, {COLUMN: b"own"})
            table.delete(b"c")
            table.put(b"d", {COLUMN: b"own"})
            settle(tx)
            expected = [b"0", b"a", b"b", b"bb", b"d", b"e", b"f", b"g", b"h", b"z"]
            for batch_size in (1, 2, 1000):
                assert [key for key, _ in table.scan(batch_size=batch_size)] == expected
                backwards = table.scan(batch_size=batch_size, reverse=True)
                assert [key for key, _ in backwards] == expected[::-1]
            assert dict(table.scan())[b"d"] == {COLUMN: b"own", b"other:": b"d"}
            assert [key for key, _ in table.scan(limit=3)] == expected[:3]
            assert [key for key, _ in table.scan(limit=3, reverse=True)] == expected[:-4:-1]
            assert [key for key, _ in table.scan(row_prefix=b"b")] == [b"b", b"bb"]
            assert [key for key, _ in table.scan(b"b", b"e")] == [b"b", b"bb", b"d"]
            assert [key for key, _ in table.scan(b"e", b"b", reverse=True)] == [b"e", b"d", b"bb"]
            tx.rollback()
        assert [key for key, _ in self._rows(tm, filled)] == [bytes((x,)) for x in b"abcdefgh"]

    def test_a_row_written_and_deleted_is_gone(
        self, tm: TransactionManager, name: str, settle: Callable[[Transaction], None]
    ) -> None:
        """Own puts are among the columns that a row delete finds."""
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {COLUMN: b"v", b"other:x": b"w"})
            settle(tx)
            table.delete(b"r")
            assert table.row(b"r") == {}
            assert list(table.scan()) == []
        assert self._rows(tm, name) == []

    def test_include_timestamp_tells_commit_and_own_start(
        self, tm: TransactionManager, name: str, settle: Callable[[Transaction], None]
    ) -> None:
        """Committed cells have their commit_ts; own ones the start_ts, flushed or not."""
        writer = put(tm, name, {b"r": {b"cf:theirs": b"v"}})
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {b"cf:mine": b"w"})
            settle(tx)
            expected = {b"cf:mine": (b"w", tx.start_ts), b"cf:theirs": (b"v", writer.commit_ts)}
            assert table.row(b"r", include_timestamp=True) == expected
            assert table.rows([b"r"], include_timestamp=True) == [(b"r", expected)]
            assert list(table.scan(include_timestamp=True)) == [(b"r", expected)]

    # -- reading -------------------------------------------------------------------------------

    def test_an_absent_row_is_empty(self, tm: TransactionManager, filled: str) -> None:
        """As in happybase; `rows` leaves it out."""
        with tm.begin() as tx:
            table = tx.table(filled)
            assert table.row(b"none") == {}
            assert [key for key, _ in table.rows([b"h", b"none", b"a"])] == [b"h", b"a"]

    def test_columns_are_selected(self, tm: TransactionManager, name: str) -> None:
        """By name, by family, the empty qualifier among them, in gets and scans alike."""
        data = {b"cf:": b"0", b"cf:a": b"1", b"cf:b": b"2", b"other:a": b"3"}
        put(tm, name, {b"r": data, b"s": {b"other:a": b"4"}})
        cases: list[tuple[list[bytes] | None, list[bytes]]] = [
            (None, [b"cf:", b"cf:a", b"cf:b", b"other:a"]),
            ([b"cf"], [b"cf:", b"cf:a", b"cf:b"]),
            ([b"cf:"], [b"cf:"]),
            ([b"cf:b", b"other:a"], [b"cf:b", b"other:a"]),
            ([b"cf:b", b"cf"], [b"cf:", b"cf:a", b"cf:b"]),
            ([b"cf:none"], []),
        ]
        with tm.begin() as tx:
            table = tx.table(name)
            for columns, expected in cases:
                assert list(table.row(b"r", columns)) == expected
                scanned = dict(table.scan(columns=columns))
                assert list(scanned.get(b"r", {})) == expected
                assert (b"s" in scanned) == (columns is None or b"other:a" in columns)

    def test_columns_come_in_order(self, tm: TransactionManager, name: str) -> None:
        """Also where own writes are laid over."""
        put(tm, name, {b"r": {b"cf:b": b"1", b"other:a": b"2"}})
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {b"other:": b"3", b"cf:a": b"4", b"cf:c": b"5"})
            names = [b"cf:a", b"cf:b", b"cf:c", b"other:", b"other:a"]
            assert list(table.row(b"r")) == names

    def test_ranges_cross_regions(self, tm: TransactionManager, filled: str) -> None:
        """The table has three; a scan does not care."""
        assert [key for key, _ in self._rows(tm, filled, row_start=b"c", row_stop=b"g")] == [
            *(b"c", b"d", b"e", b"f")
        ]
        backwards = self._rows(tm, filled, row_start=b"g", row_stop=b"c", reverse=True)
        assert [key for key, _ in backwards] == [b"g", b"f", b"e", b"d"]
        assert self._rows(tm, filled, row_start=b"g", row_stop=b"c") == []
        assert self._rows(tm, filled, row_prefix=b"\xff") == []

    def test_binary_keys_and_values_survive(self, tm: TransactionManager, name: str) -> None:
        """Every byte, zero and FF at the ends, a colon in the qualifier."""
        keys = [b"\x00", b"\x00\xff", b"\x80", b"\x81", b"\xff", b"\xff\xff"]
        value = bytes(range(256))
        put(tm, name, {key: {b"cf:a:b\x00": value} for key in keys})
        assert self._rows(tm, name) == [(key, {b"cf:a:b\x00": value}) for key in keys]
        assert [key for key, _ in self._rows(tm, name, row_prefix=b"\xff")] == [*keys[-2:]]

    # -- what a column has held --------------------------------------------------------------

    def test_the_values_of_a_column_come_newest_first(
        self, tm: TransactionManager, name: str
    ) -> None:
        """As far as this snapshot and those before it saw them; what was rolled back is none."""
        commits = [put(tm, name, {b"r": {COLUMN: b"%d" % number}}) for number in range(5)]
        reader = tm.begin(read_only=True)
        put(tm, name, {b"r": {COLUMN: b"later"}})
        tx = tm.begin()
        tx.table(name).put(b"r", {COLUMN: b"never"})
        tx.flush()
        tx.rollback()
        table = reader.table(name)
        assert table.cells(b"r", COLUMN) == [b"4", b"3", b"2", b"1", b"0"]
        assert table.cells(b"r", COLUMN, versions=2) == [b"4", b"3"]
        assert table.cells(b"r", COLUMN, 2, include_timestamp=True) == [
            (b"4", commits[4].commit_ts),
            (b"3", commits[3].commit_ts),
        ]
        assert table.cells(b"none", COLUMN) == table.cells(b"r", b"cf:none") == []

    def test_the_values_of_a_column_end_at_a_delete(
        self, tm: TransactionManager, name: str
    ) -> None:
        """Nobody saw what was before it, after it."""
        put(tm, name, {b"r": {COLUMN: b"old"}})
        with tm.begin() as tx:
            tx.table(name).delete(b"r")
            assert tx.table(name).cells(b"r", COLUMN) == []
        assert self._cells(tm, name) == []
        put(tm, name, {b"r": {COLUMN: b"new"}})
        assert self._cells(tm, name) == [b"new"]

    def test_the_values_of_a_column_begin_with_the_own_one(
        self, tm: TransactionManager, name: str, settle: Callable[[Transaction], None]
    ) -> None:
        """One, however often the transaction has written and flushed it."""
        before = put(tm, name, {b"r": {COLUMN: b"before"}})
        with tm.begin() as tx:
            table = tx.table(name)
            table.put(b"r", {COLUMN: b"first"})
            settle(tx)
            table.put(b"r", {COLUMN: b"second"})
            settle(tx)
            expected = [(b"second", tx.start_ts), (b"before", before.commit_ts)]
            assert table.cells(b"r", COLUMN, include_timestamp=True) == expected
            assert table.cells(b"r", COLUMN, versions=1) == [b"second"]
            table.delete(b"r", [COLUMN])
            settle(tx)
            assert table.cells(b"r", COLUMN) == []

    def _cells(self, tm: TransactionManager, name: str) -> list[bytes]:
        with tm.begin() as tx:
            return self._table(tx, name).cells(b"r", COLUMN)

    # -- what a table is -----------------------------------------------------------------------

    def test_families_are_told_with_their_settings(self, tm: TransactionManager, name: str) -> None:
        """In happybase's shape; every version is kept, for ever."""
        with tm.begin() as tx:
            found = tx.table(name).families()
        assert sorted(found) == [b"cf", b"other"]
        assert found[b"cf"]["name"] == b"cf:"
        assert found[b"cf"]["max_versions"] == found[b"cf"]["time_to_live"] == 2**31 - 1

    def test_regions_are_told_with_their_ends(self, tm: TransactionManager, name: str) -> None:
        """For whoever reads a table by several processes."""
        with tm.begin() as tx:
            regions = tx.table(name).regions()
        ends = [(region["start_key"], region["end_key"]) for region in regions]
        assert ends == [(b"", b"d"), (b"d", b"m"), (b"m", b"")]
