"""What puts and deletes leave behind, and what is refused before anything is written."""

from __future__ import annotations

import pytest

from omidpy.errors import UsageError
from omidpy.model import MAX_VERSION, Cell, Column, FamilySchema, TableSchema
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store
from omidpy.testing.chapters.basics import (
    CF,
    COLUMN,
    TABLE,
    Chapter,
    Q,
    delete,
    keys_of,
    put,
    rows_of,
    scan,
)


class Writes(Chapter):
    """Puts and deletes do what they name, and a bad batch does nothing."""

    def test_two_puts_at_one_version_the_later_wins(self, things: Store) -> None:
        """In one mutation, in one batch, and in two calls."""
        twice = RowMutation(b"a", [Put(CF, Q, 1, b"first"), Put(CF, Q, 1, b"second")])
        things.write({TABLE: [twice, put(b"b", 1, b"first"), put(b"b", 1, b"second")]})
        things.write({TABLE: [put(b"c", 1, b"first")]})
        things.write({TABLE: [put(b"c", 1, b"second")]})
        values = [row[0].value for row in things.get(TABLE, [b"a", b"b", b"c"])]
        assert values == [b"second"] * 3
        assert [len(row) for row in things.get(TABLE, [b"a", b"b", b"c"])] == [1, 1, 1]

    def test_an_empty_value_is_a_cell(self, things: Store) -> None:
        """It is how this format writes a delete, so it must not vanish."""
        things.write({TABLE: [put(b"r", 2, b""), put(b"r", 1, b"v")]})
        assert [cell.value for cell in things.get(TABLE, [b"r"])[0]] == [b"", b"v"]

    def test_values_are_bytes_of_any_kind(self, things: Store) -> None:
        """No encoding, no terminator."""
        value = bytes(range(256)) * 3
        cell = Cell(b"\x00\xff\x00", CF, b"\x00\xc2\x80\x00\xff\xc2\x80", 1, value)
        things.write({TABLE: [RowMutation(cell.row, [Put(*cell[1:])])]})
        assert things.get(TABLE, [cell.row], columns=[cell[1:3]]) == [[cell]]

    def test_a_delete_removes_exactly_one_version(self, things: Store) -> None:
        """Older versions become visible again: a rollback must not destroy committed history."""
        if not things.capabilities.exact_delete:
            with pytest.raises(UsageError, match="version"):
                things.write({TABLE: [delete(b"r", 20)]})
            return
        things.write({TABLE: [put(b"r", version) for version in (10, 20, 30)]})
        things.write({TABLE: [put(b"r", 20, qualifier=b"q2"), put(b"s", 20)]})
        things.write({TABLE: [delete(b"r", 20)]})
        r, s = things.get(TABLE, [b"r", b"s"])
        assert [(cell.qualifier, cell.version) for cell in r] == [(Q, 30), (Q, 10), (b"q2", 20)]
        assert [cell.version for cell in s] == [20]
        things.write({TABLE: [delete(b"r", 30)]})
        assert things.get(TABLE, [b"r"], columns=[COLUMN], max_versions=1)[0][0].version == 10
        things.write({TABLE: [delete(b"r", 10)]})
        assert things.get(TABLE, [b"r"], columns=[COLUMN]) == [[]]

    def test_deleting_what_is_not_there_does_nothing(self, things: Store) -> None:
        """A repeated rollback is harmless."""
        if not things.capabilities.exact_delete:
            return  # its refusal is tested above
        things.write({TABLE: [put(b"r", 10)]})
        things.write({TABLE: [delete(b"r", 11), delete(b"absent", 1)]})
        assert rows_of(scan(things, TABLE)) == [[Cell(b"r", CF, Q, 10, b"v")]]

    def test_puts_and_deletes_of_a_mutation_go_together(self, things: Store) -> None:
        """A cell and its shadow cell are healed or dropped in one row mutation."""
        if not things.capabilities.exact_delete:
            return
        things.write({TABLE: [put(b"r", 1), put(b"r", 2, qualifier=b"x")]})
        mutation = RowMutation(b"r", [Put(CF, b"y", 3, b"new")], [DeleteVersion(CF, Q, 1)])
        things.write({TABLE: [mutation]})
        (row,) = things.get(TABLE, [b"r"])
        assert [(cell.qualifier, cell.version) for cell in row] == [(b"x", 2), (b"y", 3)]

    def test_the_mutations_of_a_row_apply_in_their_order(self, things: Store) -> None:
        """A delete after a put in one batch removes what was put."""
        if not things.capabilities.exact_delete:
            return
        batch = [put(b"r", 1), put(b"r", 2), delete(b"r", 2), put(b"s", 2)]
        things.write({TABLE: batch})
        assert [cell.version for cell in things.get(TABLE, [b"r"])[0]] == [1]
        assert [cell.version for cell in things.get(TABLE, [b"s"])[0]] == [2]

    def test_a_mutation_that_puts_and_deletes_one_cell_is_refused(self, things: Store) -> None:
        """HBase would hide the put; a meaning that depends on the backend is none."""
        mutation = RowMutation(b"r", [Put(CF, Q, 1, b"v")], [DeleteVersion(CF, Q, 1)])
        with pytest.raises(UsageError):
            things.write({TABLE: [mutation]})

    def test_a_batch_writes_many_rows_of_many_tables(self, things: Store) -> None:
        """One call, whatever it spans; an empty batch and an empty mutation do nothing."""
        things.create_table(TableSchema("second", [FamilySchema(CF)]))
        rows = [b"%04d" % number for number in range(300)]
        things.write(
            {TABLE: [put(row, 1) for row in rows], "second": [put(b"r", 2), RowMutation(b"s")]},
            durable=True,
        )
        assert keys_of(scan(things, TABLE)) == rows
        assert rows_of(scan(things, "second")) == [[Cell(b"r", CF, Q, 2, b"v")]]
        things.write({})
        things.write({TABLE: []}, durable=True)
        assert keys_of(scan(things, TABLE)) == rows

    @pytest.mark.parametrize(
        ("mutation", "named"),
        [
            (put(b"", 1), "empty"),
            (put(b"r" * 32768, 1), "32768"),
            (put(b"r", -1), "-1"),
            (put(b"r", MAX_VERSION), str(MAX_VERSION)),
            (put(b"r", 1, bytes(10 * 1024 * 1024 - 99)), "10485661"),
            (delete(b"r", -1), "-1"),
            (delete(b"", 1), "empty"),
        ],
        ids=["empty-row", "long-row", "negative", "latest", "large", "delete", "delete-empty-row"],
    )
    def test_what_no_store_can_hold_is_refused(
        self, things: Store, mutation: RowMutation, named: str
    ) -> None:
        """HBase's limits hold everywhere; the message names what is wrong."""
        condition = Column(CF, Q)
        with pytest.raises(UsageError, match=named):
            things.write({TABLE: [mutation]})
        with pytest.raises(UsageError, match=named):
            things.check_and_mutate(TABLE, mutation.row, condition, None, mutation)
        assert rows_of(scan(things, TABLE)) == []

    def test_the_longest_row_and_a_large_value_are_held(self, things: Store) -> None:
        """The limits themselves are legal.

        HBase looks a row's region up by a key of 32767 bytes at most, with the table's name and 16
        bytes more in it.
        """
        row = b"r" * (32767 - 16 - len(TABLE))
        things.write({TABLE: [put(row, 1), put(b"s", 1, bytes(10 * 1024 * 1024 - 100))]})
        assert [len(row[0].value) for row in rows_of(scan(things, TABLE))] == [1, 10485660]
