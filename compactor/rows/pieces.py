"""How is a row read that fits into no memory?  In pieces that tell as much as the whole.

For callers that judge cells without dropping versions: a check, a census, a conversion.  A row
comes as one piece, unless it is too long to be held: then it is copied into a spool on this
machine's disk, once, and comes part by part.  Each cell has its shadow cells in its piece, and the
piece knows what the rest of the row tells of its transactions.

Only passes drop old versions, which takes more care (`long_rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple, TypeAlias

from compactor.rows.spool import Spool
from omidpy.base.cells import is_shadow_qualifier
from omidpy.model import Cell, Timestamp, base
from omidpy.storage.base import WHOLE_TABLE, Row, Store
from omidpy.storage.options import CutsRows, LongRow, Portion, Wanted

PORTION: Final = Portion(cells=20_000, size_bytes=8 << 20)
"""What is in memory at a time, about."""

CommitsOf: TypeAlias = Callable[[Row], Mapping[Timestamp, Timestamp]]
"""Tells when transactions were committed, by what the shadow cells among some cells say."""

_NOTHING: Final[Mapping[Timestamp, Timestamp]] = {}


class Piece(NamedTuple):
    """A row, or a part of one."""

    cells: Row
    """Never none; each with its shadow cells."""
    commits: Mapping[Timestamp, Timestamp] = _NOTHING
    """What the rest of the row tells of their transactions."""
    is_first: bool = True
    """Whether no piece of this row came before."""


def scan_pieces(
    store: Store, table: str, wanted: Wanted, *, page_rows: int, commits_of: CommitsOf
) -> Iterator[Sequence[Piece]]:
    """Yield the rows of a table: pages of them, and each long one by itself, piece by piece.

    Args:
        store: Where the table is.
        table: Its name.
        wanted: Which cells.
        page_rows: How many rows a page has at most.
        commits_of: What the cells of a long row are asked for.
    """
    if not isinstance(store, CutsRows):
        for page in store.scan(
            table,
            columns=wanted.columns(),
            min_version=wanted.min_version,
            max_version=wanted.max_version,
            page_rows=page_rows,
        ):
            yield [Piece(cells) for cells in page]
        return
    for found in store.scan_portions(table, WHOLE_TABLE, wanted, page_rows=page_rows, most=PORTION):
        if isinstance(found, LongRow):
            parts = store.row_parts(table, found.key, wanted, most=PORTION)
            yield from ([piece] for piece in _pieces_of(found.key, parts, commits_of))
        else:
            yield [Piece(list(cells)) for cells in found]


def get_pieces(
    store: Store, table: str, rows: Sequence[bytes], wanted: Wanted, *, commits_of: CommitsOf
) -> Iterator[Sequence[Piece]]:
    """Yield some rows as `scan_pieces` does; those that are not there are left out."""
    if not isinstance(store, CutsRows):
        whole = store.get(
            table,
            rows,
            columns=wanted.columns(),
            min_version=wanted.min_version,
            max_version=wanted.max_version,
        )
        yield [Piece(cells) for cells in whole if cells]
        return
    while rows:
        found = store.get_portion(table, rows, wanted, most=PORTION)
        rows = rows[len(found) :]
        yield [Piece(cells) for cells in found if cells and not isinstance(cells, LongRow)]
        for one in found:
            if isinstance(one, LongRow):
                parts = store.row_parts(table, one.key, wanted, most=PORTION)
                yield from ([piece] for piece in _pieces_of(one.key, parts, commits_of))


def _pieces_of(row: bytes, parts: Iterable[Row], commits_of: CommitsOf) -> Iterator[Piece]:
    """Copy a row aside, and yield it with what belongs together side by side."""
    with closing(Spool(row, PORTION)) as spool:
        for cells in parts:
            spool.add(cells)
        for part in spool.parts():
            spool.add_commits(commits_of(part.cells))
        is_first = True
        for part in spool.parts():
            yield Piece(part.cells, spool.commits(_transactions(part.cells)), is_first)
            is_first = False


def _transactions(cells: Iterable[Cell]) -> set[Timestamp]:
    return {
        Timestamp(base(cell.version)) for cell in cells if not is_shadow_qualifier(cell.qualifier)
    }
