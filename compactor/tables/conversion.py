"""How does a table of plain data become transactional?  Its cells get shadow cells of their own.

A shadow cell whose value is its cell's own version says: committed at that moment, and speaks for
that cell alone.  Every snapshot then sees the cell, since its version lies below every timestamp
that an oracle issues here.  That is the condition, too
(`omidpy/facts/tables/plain_versions.py`): a cell whose version could be a transaction's may be what
an aborted one left, and that must never be committed afterwards (I9).

Empty values and Omid's older tombstone would be read as deletes, so a table that holds one is
refused.  Programs that still write to the table without transactions must stop before: what comes
later has no shadow cell, and no snapshot sees it until the table is adopted once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Final

from compactor.rows.pieces import scan_pieces
from omidpy.base.cells import encode_long, is_tombstone
from omidpy.errors import UsageError
from omidpy.facts.tables.plain_versions import PlainVersions
from omidpy.model import Timestamp
from omidpy.reading.visibility import shadow_column, sort_row
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.options import Wanted

PAGE_ROWS: Final = 500
MOST_PASSES: Final = 4
"""Each pass finds what was written during the one before it; one that finds nothing is the last."""


def convert(
    store: Store,
    table: str,
    families: Collection[bytes],
    versions: PlainVersions,
    *,
    check: Callable[[], object],
) -> Counter[bytes]:
    """Give every plain cell of some families its shadow cell; return by family how many had none.

    What an interrupted run has done already is left as it is, and so are cells of other versions.

    Args:
        store: Where the table is.
        table: Its name.
        families: Which of its families.
        versions: Which versions are certainly no transaction's.
        check: Called before each write; raises where the table is another one by now, to which
            these shadow cells would be another's data.

    Raises:
        UsageError: a program writes cells all the time, or one that cannot be converted.

    Cost: reads those families at least twice, and writes a cell for each of theirs;
        what `check` takes for each page of 500 rows.
    """
    converted: Counter[bytes] = Counter()
    for _ in range(MOST_PASSES):
        found = _pass_over(store, table, families, versions, check)
        if not found:
            return converted
        converted += found
    raise UsageError(
        f"somebody still writes to {table} without transactions; stop that, and adopt it again"
    )


def _pass_over(
    store: Store,
    table: str,
    families: Collection[bytes],
    versions: PlainVersions,
    check: Callable[[], object],
) -> Counter[bytes]:
    converted: Counter[bytes] = Counter()
    wanted = Wanted(tuple(sorted(families)))
    for page in scan_pieces(store, table, wanted, page_rows=PAGE_ROWS, commits_of=_no_commits):
        mutations = []
        for piece in page:
            row = sort_row(piece.cells)
            puts = []
            for cell in row.data:
                if cell[1:4] in row.shadows or not versions.contains(cell.version):
                    continue
                if is_tombstone(cell.value):
                    raise UsageError(
                        f"{table}: cell {cell[:4]!r} came during the adoption, and its value "
                        f"{cell.value!r} is how this format writes a delete"
                    )
                puts.append(Put(*shadow_column(cell), cell.version, encode_long(cell.version)))
                converted[cell.family] += 1
            if puts:
                mutations.append(RowMutation(piece.cells[0].row, puts=puts))
        # Right before each write: a table that took the place of this one would get proofs of cells
        # that it has not, or whose transactions never committed (I9).
        if mutations:
            check()
            store.write({table: mutations}, durable=True)
    return converted


def _no_commits(_: object) -> Mapping[Timestamp, Timestamp]:
    """Say nothing: a cell that has no shadow cell of its own gets one, whatever others say."""
    return {}
