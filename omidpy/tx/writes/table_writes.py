"""What a table writes into its transaction: checked first, and then applied whole.

A write has two halves.  The first looks at every argument and touches nothing; the second puts what
was checked into the buffer, which cannot fail.  Between them lies the one thing that can: deleting
a row or a family reads which columns it has.  So of many writes handed over together either all are
in the transaction or none is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from omidpy.base.cells import (
    LEGACY_TOMBSTONE,
    MAX_QUALIFIER_BYTES,
    SHADOW_SUFFIX,
    TOMBSTONE,
    check_writable,
    is_tombstone,
    tombstone_for,
)
from omidpy.base.words.arguments import (
    MAX_ROW_BYTES,
    MAX_VALUE_BYTES,
    check_bytes,
    check_row,
    check_value_size,
    parse_columns,
)
from omidpy.errors import UsageError
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import ColumnSpec
from omidpy.reading.visibility import SeenRow, cells_of

if TYPE_CHECKING:
    from omidpy.reading.snapshot import Snapshot
    from omidpy.tx.writes.buffer import WriteBuffer
    from omidpy.tx.writes.layers import Layer


CheckedCells: TypeAlias = Sequence[tuple[bytes, bytes, bytes]]
"""(family, qualifier, value)."""


class CheckedPut(NamedTuple):
    """Columns of a row with their values."""

    row: bytes
    cells: CheckedCells


class CheckedDelete(NamedTuple):
    """Columns of a row, and families of it whose columns must be read."""

    row: bytes
    columns: Sequence[tuple[bytes, bytes]]
    families: tuple[bytes, ...]


CheckedWrite: TypeAlias = CheckedPut | CheckedDelete

SeenRows: TypeAlias = Mapping[tuple[bytes, tuple[bytes, ...]], SeenRow]
"""(row, families) -> what the snapshot sees of them."""


FEW_CELLS: Final = 4096
"""Of many rows that are handed over at once, what is handed over before a look at the limit."""


def _are_ordinary(
    layout: TableLayout,
    rows: Sequence[bytes],
    columns: Sequence[tuple[bytes, bytes]],
    values: Sequence[Sequence[bytes | None]],
) -> bool:
    """Say whether `TableWrites.checked_cells` would certainly take all of them."""
    if not set(map(type, rows)) <= {bytes} or not all(rows):
        return False
    if max(map(len, rows), default=0) > MAX_ROW_BYTES:
        return False
    for family, qualifier in columns:
        if not family or family not in layout.families or qualifier.endswith(SHADOW_SUFFIX):
            return False
        if len(qualifier) > MAX_QUALIFIER_BYTES:
            return False
    for column in values:
        if not set(map(type, column)) <= {bytes, type(None)}:
            return False
        if not _TOMBSTONES.isdisjoint(column):
            return False
        if max(map(len, filter(None, column)), default=0) > MAX_VALUE_BYTES:
            return False
    return True


_TOMBSTONES: Final = frozenset((TOMBSTONE, LEGACY_TOMBSTONE))


class Host(Protocol):
    """The transaction, as what writes into it sees it."""

    def check_writable(self) -> None:
        """Raise unless the transaction is running and may write."""
        ...

    def check_unindexed(self, layout: TableLayout) -> None:
        """Raise if Phoenix keeps indexes of a table, which a write here would leave as they are."""
        ...

    def wrote(self) -> None:
        """Note a buffered write; may flush."""
        ...


def are_indexes_minded(phoenix_indexes: str | None) -> bool:
    """Return whether the caller says that Phoenix's indexes of a table are his to write.

    Raises:
        UsageError: he says something else.
    """
    if phoenix_indexes not in (None, "mine"):
        raise UsageError(
            f"phoenix_indexes={phoenix_indexes!r} is not 'mine', which says that you write the "
            "rows of the indexes yourself"
        )
    return phoenix_indexes is not None


class TableWrites:
    """The writing half of one table in one transaction."""

    def __init__(
        self,
        host: Host,
        snapshot: Snapshot,
        buffer: WriteBuffer,
        layout: TableLayout,
        *,
        conflict_free: bool,
        minds_indexes: bool = False,
    ) -> None:
        """Write nothing yet.

        Args:
            host: The transaction.
            snapshot: What it reads.
            buffer: What it has written.
            layout: The table.
            conflict_free: Whether the oracle is shown none of the cells.
            minds_indexes: Whether the caller writes the rows of Phoenix's indexes, too.
        """
        self._host = host
        self._snapshot = snapshot
        self._buffer = buffer
        self._acquire, self._release = buffer.writing.acquire, buffer.writing.release
        self._layout = layout
        self.name = layout.name
        self._flaw: Final = (
            f"writing to table {layout.name!r} was interrupted, or failed with what it wrote in "
            "the transaction"
        )
        self._half: Final = (
            f"a batch of table {layout.name!r} has not ended, or was interrupted, and a part of it "
            "had reached the transaction; leave its block before the commit"
        )
        self._is_conflict_free = conflict_free
        self._is_unindexed = minds_indexes or not layout.is_phoenixs

    # -- checking ------------------------------------------------------------------------------

    def checked_cells(self, row: bytes, data: Mapping[bytes, bytes]) -> CheckedCells:
        """Return what a put would write.

        Raises:
            UsageError, NoSuchFamily, TypeError: something of it cannot be written.
            ConfigError: Phoenix keeps indexes of the table.
        """
        self._check_writable()
        check_row(row)
        if type(data) is not dict and not isinstance(data, Mapping):
            raise TypeError(f"data must be a dict of columns and values, not {data!r:.80}")
        known = self._layout.columns
        cells = []
        for column, value in data.items():
            # What is ordinary is seen without a call: programs put millions of cells.
            name = known.get(column) if type(column) is bytes else None
            if name is None:
                name = self._layout.writable_column(column)
            is_ordinary = type(value) is bytes and 0 < len(value) <= MAX_VALUE_BYTES
            if not is_ordinary or value == LEGACY_TOMBSTONE:
                check_bytes(f"the value of column {column!r}", value)
                check_writable(name[1], value)
                check_value_size(column, value)
            cells.append((*name, value))
        if type(data) is not dict:
            self._host.check_writable()  # a mapping of others may have ended the transaction
        return cells

    def checked_delete(self, row: bytes, columns: Iterable[bytes] | None) -> CheckedDelete:
        """Return what a delete would remove; None is the row.

        Raises:
            UsageError, NoSuchFamily, TypeError: something of it cannot be deleted.
            ConfigError: Phoenix keeps indexes of the table.
        """
        self._check_writable()
        check_row(row)
        specs = parse_columns(columns)
        if specs is None:
            # Families that are not ours are left alone: their cells have no transaction.
            return CheckedDelete(row, (), tuple(sorted(self._layout.families)))
        single = []
        for family, qualifier in specs:
            self._layout.check_family(family)
            if qualifier is not None:
                check_writable(qualifier, b"-")
                single.append((family, qualifier))
        whole = (family for family, qualifier in specs if qualifier is None)
        return CheckedDelete(row, single, tuple(sorted(whole)))

    def _check_writable(self) -> None:
        self._host.check_writable()
        if not self._is_unindexed:
            self._host.check_unindexed(self._layout)
            # An index that is made from here on comes with a fence, which aborts the transaction.
            self._is_unindexed = True

    # -- applying ------------------------------------------------------------------------------

    def put(self, row: bytes, cells: CheckedCells) -> None:
        """Hand one put to the transaction.

        Raises:
            UsageError: another thread writes in it.
        """
        # As `alone`, without its price: programs put millions of cells.
        if not self._acquire(False):
            self._buffer.refuse_beside()
        try:
            top, was = self._begin()
            self._put(row, cells)
            top.flaw = was
        finally:
            self._release()
        self._host.wrote()

    def put_once(self, row: bytes, data: Mapping[bytes, bytes]) -> None:
        """Put columns of a row, where to do so again would do something else.

        Its caller may be told of a failure, of a flush or by an interrupt, that comes behind what
        it wrote, and then calls again: what was added would be there twice.  So the transaction, or
        the savepoint that is open, can only be rolled back then.

        Raises:
            UsageError, NoSuchFamily, TypeError, ConfigError: as `checked_cells`; nothing was
                written.
            UsageError: another thread writes in it.
            StorageError: a flush failed.
        """
        cells = self.checked_cells(row, data)
        with self.alone():
            top, was = self._begin()
            self._put(row, cells)
        self._host.wrote()
        top.flaw = was

    def put_rows(
        self,
        rows: Sequence[bytes],
        columns: Sequence[bytes],
        values: Sequence[Sequence[bytes | None]],
    ) -> bool:
        """Hand rows that put the same columns to the transaction, where all of them are ordinary.

        Args:
            rows: Their keys.
            columns: `b"family:qualifier"`.
            values: Of each column, in the order of the rows; None is none.

        Returns:
            False: a look at each of them may find something to refuse, or writes of this table are
                not checked for conflicts; nothing was handed over.

        Raises:
            ConfigError: Phoenix keeps indexes of the table.
        """
        self._check_writable()
        names = [(family, name) for family, _, name in (one.partition(b":") for one in columns)]
        if not all(b":" in column for column in columns) or self._is_conflict_free:
            return False
        if not _are_ordinary(self._layout, rows, names, values):
            return False
        step = max(1, FEW_CELLS // max(len(names), 1))
        for at in range(0, len(rows), step):
            some = [column[at : at + step] for column in values]
            with self.alone():
                top, was = self._begin()
                self._buffer.put_rows(self.name, rows[at : at + step], names, some)
                top.flaw = was
            self._host.wrote()
        return True

    def delete(self, checked: CheckedDelete) -> None:
        """Hand one delete to the transaction.  Cost: 1 get if it takes a family along."""
        self.apply((checked,), self.read_for((checked,)))

    def read_for(self, writes: Sequence[CheckedWrite]) -> SeenRows:
        """Read what the deletes among some writes take along; the transaction is not changed.

        Cost: 1 get, and 1 more for each other choice of families; none if none is deleted.
        """
        self._host.check_writable()
        rows_by_families: dict[tuple[bytes, ...], dict[bytes, None]] = {}
        for write in writes:
            if isinstance(write, CheckedDelete) and write.families:
                rows_by_families.setdefault(write.families, {})[write.row] = None
        found: dict[tuple[bytes, tuple[bytes, ...]], SeenRow] = {}
        for families, rows in rows_by_families.items():
            specs: list[ColumnSpec] = [(family, None) for family in families]
            seen = self._snapshot.read(self.name, list(rows), specs)
            found.update(zip(((row, families) for row in rows), seen, strict=True))
        return found

    def apply(self, writes: Sequence[CheckedWrite], found: SeenRows) -> None:
        """Hand writes to the transaction, in their order.

        Args:
            writes: What is written.
            found: What `read_for` returned for them, in the same state of the transaction.

        Raises:
            StorageError: the buffer is past its limit, and a flush failed; all of the writes are in
                the transaction.
            UsageError: another thread writes in it.
        """
        with self.alone():
            top, was = self._begin()
            for write in writes:
                if isinstance(write, CheckedPut):
                    self._put(*write)
                else:
                    self._delete(write, found.get((write.row, write.families)))
            top.flaw = was
        self._host.wrote()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other thread write in the transaction, from what is read on to what is written.

        Raises:
            UsageError: one does.
        """
        if not self._acquire(False):
            self._buffer.refuse_beside()
        try:
            yield
        finally:
            self._release()

    def spoil(self, reason: str) -> None:
        """Let the transaction, or the savepoint that is open, end in a rollback alone."""
        self._buffer.spoil(reason)

    def begin_half(self, of: object, reason: str = "") -> None:
        """Let nothing of what is handed over now be committed before all of something is there.

        Args:
            of: What that is.
            reason: Why; empty: it is a batch.
        """
        self._buffer.begin_half(of, reason or self._half)

    def end_half(self, of: object) -> None:
        """Note that all of something was handed over."""
        self._buffer.end_half(of)

    def _begin(self) -> tuple[Layer, str | None]:
        """Let a program that catches an interrupt commit no half of what belongs together.

        Its flaw is there before the first cell is, and who has handed over the last one takes it
        away: nobody has to do anything when an exception comes, at whatever line, or another one
        behind that.

        Returns:
            What is written to, and what flaw it has without.
        """
        top = self._buffer.top
        was = top.flaw
        top.flaw = was or self._flaw
        return top, was

    def _put(self, row: bytes, cells: CheckedCells) -> None:
        self._buffer.put_cells(self.name, row, cells, conflict_free=self._is_conflict_free)

    def _delete(self, delete: CheckedDelete, found: SeenRow | None) -> None:
        doomed: set[tuple[bytes, bytes]] = set()
        if found is not None:
            doomed.update((cell.family, cell.qualifier) for cell, _ in cells_of(found))
            for column, value in self._buffer.row(self.name, delete.row).items():
                if is_tombstone(value):
                    doomed.discard(column)
                elif column[0] in delete.families:
                    doomed.add(column)
        doomed.update(delete.columns)
        tombstones = [(*column, tombstone_for(column[1])) for column in sorted(doomed)]
        self._put(delete.row, tombstones)
