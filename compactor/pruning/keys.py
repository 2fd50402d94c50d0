"""Which idempotency keys have been kept for as long as they are promised to be?

A key is a row of `OMIDPY_KEYS`, which the transaction that used it wrote (`omidpy/tx/keys.py`).
It goes, its cell and its shadow cell in one mutation, once

    it is healed      its row has its shadow cell; a pass of this run or of a later one sees to it
    commit < K        the oracle counted the time for which keys are kept since its commit
    commit < L        no transaction commits any more whose snapshot lacks it: one that has not
                      seen the key, and is about to use it, either begins above it or is refused
                      by the oracle (I4)
    commit < H        no snapshot below the commit is read any more

A stream of Spark has one row, however many batches it has written, and that stays.

K is judged by the oracle's samples, so that no clock that is set forward forgets a key.  Where they
do not reach back that far nothing goes.

Only exact versions go, and what they say of a row stays true for ever: a transaction that uses the
key again writes another version, and a run that was stopped between its look and its delete does no
harm when it goes on.
"""

from __future__ import annotations

from collections.abc import Iterator

from omidpy.base.tables import KEYS_TABLE
from omidpy.errors import NoSuchTable
from omidpy.facts.watermarks import Watermarks
from omidpy.model import Cell, Timestamp
from omidpy.reading.visibility import shadow_column, sort_row
from omidpy.storage.base import DeleteVersion, RowMutation, Store
from omidpy.tx.keys import STREAM_MARK


def keys_horizon(watermarks: Watermarks, low_watermark: Timestamp, *, keep_s: float) -> Timestamp:
    """Return below which commit timestamp keys may go; 0 keeps them all."""
    horizon, _ = watermarks.read_horizons()
    return min(low_watermark, horizon, watermarks.issued_before(age_s=keep_s))


def forget_keys(store: Store, horizon: Timestamp) -> int:
    """Remove the keys whose commits are below a horizon; return how many.

    Cost: 1 RPC a page of old keys, 1 write where there are any.
    """
    count = 0
    try:
        for page in store.scan(KEYS_TABLE, max_version=horizon):
            mutations = [one for cells in page for one in _removal(cells, horizon)]
            if mutations:
                store.write({KEYS_TABLE: mutations})
                count += len(mutations)
    except NoSuchTable:
        return count
    return count


def _removal(cells: list[Cell], horizon: Timestamp) -> Iterator[RowMutation]:
    """Yield what removes a row, if everything that was read of it may go."""
    row = sort_row(cells)
    if any(cell.value.startswith(STREAM_MARK) for cell in row.data):
        return
    commits = [row.shadows.get(cell[1:4]) for cell in row.data]
    # One that stays may be visible only as long as what lies above it does not go.
    if not commits or any(commit is None or commit >= horizon for commit in commits):
        return
    deletes = [
        delete
        for cell in row.data
        for delete in (
            DeleteVersion(cell.family, cell.qualifier, cell.version),
            DeleteVersion(*shadow_column(cell), cell.version),
        )
    ]
    yield RowMutation(cells[0].row, deletes=deletes)
