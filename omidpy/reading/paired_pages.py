"""Pages of a scan whose rows come as cells beside their shadow cells, or as values alone.

Stores that pair cells (`PairsCells`) hand out the newest version of each column with what its
shadow cell says; stores that shape rows (`ShapesRows`) decide the simple ones by themselves.  So a
row that needs nothing but its newest versions costs no second look.  What is not simple is read
again, whole, as the snapshot reads any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from omidpy.base.cells import FAMILY_MARKER_QUALIFIER, encode_long, is_shadow_qualifier
from omidpy.base.commit_facts import CommitEntry
from omidpy.base.rows.simple import simple_row, simple_values
from omidpy.model import ColumnSpec, KeyRange, PairedCell, RowValues, Timestamp, base
from omidpy.reading.row_facts import RowFacts
from omidpy.reading.visibility import SeenRow, healed, is_nothing, unhealed
from omidpy.storage.options import PairsCells, ShapesRows

if TYPE_CHECKING:
    from omidpy.reading.one_table import OneTable

MAX_REREAD_SHARE: Final = 0.25
"""Rows of a page that may be read twice, before a scan goes on in the plain way."""

Page: TypeAlias = Iterable[tuple[bytes, SeenRow]]
PairsOrValues: TypeAlias = list[PairedCell] | RowValues
PageOfValues: TypeAlias = Iterable[tuple[bytes, SeenRow | RowValues]]
"""Some rows come as what they hold alone."""


class ReadsRows(Protocol):
    """What a scan needs of its snapshot."""

    start_ts: Timestamp
    max_version: int
    before: bytes

    def facts(self, table: str) -> RowFacts:
        """Return what finds out about cells."""

    def check_horizon(self, table: str | None = None, *, sees_nothing: bool = False) -> None:
        """Raise `SnapshotTooOld` if versions of the snapshot may be gone."""

    def read_with(
        self,
        table: str,
        rows: Sequence[bytes],
        columns: Sequence[ColumnSpec] | None,
        entries: Mapping[Timestamp, CommitEntry],
    ) -> list[SeenRow]:
        """Read rows with as many versions as they need."""

    def pages(
        self,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        one_table: OneTable,
        *,
        reverse: bool,
        page_rows: int,
    ) -> Iterator[Page]:
        """Scan as in any store."""


class PairedPages:
    """One scan of a snapshot over a store that pairs cells."""

    def __init__(
        self,
        snapshot: ReadsRows,
        one_table: OneTable,
        table: str,
        key_range: KeyRange,
        columns: Sequence[ColumnSpec] | None,
        *,
        reverse: bool,
        page_rows: int,
    ) -> None:
        """Prepare to read a range."""
        self._snapshot = snapshot
        self._one_table = one_table
        self._table = table
        self._key_range = key_range
        self._columns = columns
        self._reverse = reverse
        self._page_rows = page_rows

    def read(
        self, pairing: PairsCells, shaping: ShapesRows | None, *, values_do: bool
    ) -> Iterator[PageOfValues]:
        """Decide simple rows as they come, and read the others again, whole.

        Where many are not simple the rest of the range is read as in any other store.

        Args:
            pairing: The store.
            shaping: The same store, if it makes these values.
            values_do: Whether rows may come as their values by column.
        """
        snapshot = self._snapshot
        decided = simple_values if values_do else simple_row
        for page, keys, found in self._found(pairing, shaping):
            if page is not None:
                # I10: values are given out only once the horizon was looked at behind them.
                snapshot.check_horizon(self._table)
                self._one_table.note(values for _, values in page)
                yield page
                continue
            before = snapshot.before
            rows: list[SeenRow | RowValues | None] = [
                decided(row, before) if isinstance(row, list) else row for row in found
            ]
            others: list[int] = []
            if None in rows:
                others = [index for index, row in enumerate(rows) if row is None]
                facts = snapshot.facts(self._table)
                others = self._simple_if_healed(facts, found, others, rows)
                facts.heal(is_scan=True)
            if others:
                again = snapshot.read_with(
                    self._table, [keys[index] for index in others], self._columns, facts.entries
                )
                for index, row in zip(others, again, strict=True):
                    rows[index] = row
                if any(is_nothing(row) for row in again):
                    # It had cells a moment ago, and the table may be another one by now.
                    self._one_table.read_again()
            else:
                snapshot.check_horizon(self._table)
            decided_rows = cast("list[SeenRow | RowValues]", rows)
            self._one_table.note(decided_rows)
            yield zip(keys, decided_rows, strict=True)
            if len(others) > len(keys) * MAX_REREAD_SHARE:
                yield from self._rest(keys[-1])
                return

    def _rest(self, last: bytes) -> Iterator[PageOfValues]:
        """Read what is behind a row as in any other store."""
        rest = (
            KeyRange(self._key_range.start, last)
            if self._reverse
            else KeyRange(last + b"\x00", self._key_range.end)
        )
        if not rest.is_empty():
            yield from self._snapshot.pages(
                self._table,
                rest,
                self._columns,
                self._one_table,
                reverse=self._reverse,
                page_rows=self._page_rows,
            )

    def _found(
        self, pairing: PairsCells, shaping: ShapesRows | None
    ) -> Iterator[tuple[PageOfValues | None, Sequence[bytes], Sequence[PairsOrValues]]]:
        """Yield pages of rows, each as what there is to give out, or else as keys and rows.

        Values come only where these do and the store has them, and then nearly always all at once.
        """
        wanted = _with_markers(self._columns)
        if shaping is None:
            paired = pairing.scan_pairs(
                self._table,
                self._key_range,
                columns=wanted,
                max_version=self._snapshot.max_version,
                page_rows=self._page_rows,
                reverse=self._reverse,
            )
            for pairs in self._one_table.over(paired):
                yield None, [row[0][0] for row in pairs], pairs
            return
        shaped = shaping.scan_values(
            self._table,
            self._key_range,
            columns=wanted,
            max_version=self._snapshot.max_version,
            before=self._snapshot.before,
            page_rows=self._page_rows,
            reverse=self._reverse,
        )
        for page in self._one_table.over(shaped):
            if any(isinstance(row, list) for _, row in page):
                yield None, [key for key, _ in page], [row for _, row in page]
            else:
                yield cast("PageOfValues", page), (), ()

    def _simple_if_healed(
        self,
        facts: RowFacts,
        page: Sequence[PairsOrValues],
        others: Sequence[int],
        rows: list[SeenRow | RowValues | None],
    ) -> list[int]:
        """Decide rows that lack nothing but shadow cells; return the indexes of the others.

        One get tells of all the transactions that wrote them.  What it does not tell to have
        committed is looked at again, and with more care, where its row is read again.
        """
        cells = {index: cast("list[PairedCell]", page[index]) for index in others}
        lacking = {index: unhealed(row) for index, row in cells.items()}
        writers = {base(cell[3]) for row in lacking.values() for cell in row}
        writers = {start_ts for start_ts in writers if start_ts < self._snapshot.start_ts}
        if not writers:
            return list(others)
        facts.read_entries(writers)
        shadows = {at: encode_long(commit_ts) for at, commit_ts in facts.commits.items()}
        left: list[int] = []
        for index in others:
            if is_shadow_qualifier(cells[index][0][2]):
                # A row of shadow cells alone comes as the first of them, which is no one's data,
                # and whose transaction may well have committed (I8).
                left.append(index)
                continue
            row = simple_row(healed(cells[index], shadows), self._snapshot.before)
            if row is None:
                left.append(index)
            else:
                rows[index] = row
                facts.seen_unhealed(lacking[index])
        return left


def _with_markers(columns: Sequence[ColumnSpec] | None) -> list[ColumnSpec] | None:
    """Return the data that must be read to see `columns`: a family marker may hide them."""
    if columns is None:
        return None
    markers = {(family, FAMILY_MARKER_QUALIFIER) for family, name in columns if name is not None}
    return [*columns, *sorted(markers)]
