"""Random histories of a table: a scan of all versions says of each column what `cells` says."""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.errors import ConfigError, SnapshotTooOld
from omidpy.facts.watermarks import COLLECTION_HORIZON
from omidpy.manager import TransactionManager
from omidpy.model import Cell, KeyRange, Timestamp
from omidpy.reading.histories import values_held
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.tx.frames.histories import open_histories
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle

ROWS: Final = (b"a", b"b")
COLUMNS: Final = (b"f:", b"f:q", b"g:q")
MARKER: Final = b"marker"

writes = st.tuples(
    st.sampled_from(ROWS),
    st.sampled_from(COLUMNS),
    st.sampled_from([b"1", b"2", None, MARKER]),
)
transactions = st.tuples(
    st.lists(writes, min_size=1, max_size=4),
    st.sampled_from(["healed", "bare", "rolled back", "open"]),
    st.booleans(),
)


def write(tm: TransactionManager, some: list[Any], end: str, *, is_free: bool) -> None:
    """Write in a transaction that comes to some end."""
    tx = tm.begin()
    table = tx.table("t", conflict_free=is_free)
    for row, column, value in some:
        if value is None:
            table.delete(row, [column])
        elif value is MARKER:
            # As one of Omid's clients in Java deletes a family.
            mutation = RowMutation(row, (Put(b"f", b"", tx.start_ts, b""),))
            tm.store.write({"t": [mutation]})
            table.put(row, {b"g:m": b"beside"})
        else:
            table.put(row, {column: value})
    if end in ("healed", "bare"):
        tx.commit()
    elif end == "rolled back":
        tx.rollback()
    else:
        tx.flush()


@given(st.lists(transactions, max_size=12), st.integers(0, 12))
def test_a_scan_of_all_versions_is_what_cells_says(history: list[Any], moment: int) -> None:
    """Of every column, whoever wrote it and however that ended, now and at an earlier moment."""
    store = MemoryStore()
    oracle = NaiveOracle(store)
    healing = TransactionManager(store, oracle, post_commit="sync")
    bare = TransactionManager(store, oracle, post_commit="none")
    healing.create_table("t", ["f", "g"], splits=[b"b"])
    moments = [healing.begin().start_ts]
    for some, end, is_free in history:
        write(bare if end == "bare" else healing, some, end, is_free=is_free)
        moments.append(healing.begin().start_ts)
    at = moments[min(moment, len(moments) - 1)]
    reader = open_histories(healing.session, at)
    table = healing.snapshot(at).table("t")
    specs = [(b"f", None), (b"g", None)]
    for found in (
        dict(reader.scan("t", KeyRange(), specs)),
        dict(reader.rows("t", list(ROWS), specs)),
    ):
        for row in ROWS:
            for column in (*COLUMNS, b"g:m"):
                held = [
                    (one.cell.value, one.commit_ts)
                    for one in found.get(row, [])
                    if one.cell.family + b":" + one.cell.qualifier == column
                ]
                assert held == table.cells(row, column, include_timestamp=True)
    named = dict(reader.scan("t", KeyRange(), [(b"f", b"q")]))
    assert {(one.cell.family, one.cell.qualifier) for held in named.values() for one in held} <= {
        (b"f", b"q")
    }


def test_what_was_committed_behind_a_younger_start_is_not_held_twice() -> None:
    """Without conflict detection versions and commits may have another order."""

    def cell(version: int) -> Cell:
        return Cell(b"r", b"f", b"q", Timestamp(version), b"%d" % version)

    late = {cell(300): Timestamp(310), cell(200): Timestamp(400), cell(100): Timestamp(110)}
    assert [one.commit_ts for one in values_held(late, 500)] == [310, 110]
    assert [one.commit_ts for one in values_held(late, 310)] == [110]


def test_a_history_below_the_horizon_is_refused() -> None:
    """Versions may be missing, and nothing would tell."""
    store = MemoryStore()
    tm = TransactionManager(store, NaiveOracle(store), post_commit="sync")
    tm.create_table("t", ["f"])
    at = tm.begin().start_ts
    reader = open_histories(tm.session, at)
    tm.session.control.raise_number(COLLECTION_HORIZON, tm.begin().start_ts)
    with pytest.raises(SnapshotTooOld):
        open_histories(tm.session, at)
    with pytest.raises(SnapshotTooOld):
        list(reader.scan("t", KeyRange(), None))
    with pytest.raises(SnapshotTooOld):
        reader.rows("t", [b"a"], None)


def test_a_gateway_that_shows_one_version_is_refused() -> None:
    """The others would be missing, and nothing would tell."""
    shared = MemoryStore()
    TransactionManager(shared, oracle := NaiveOracle(shared)).create_table("t", ["f"])
    tm = TransactionManager(LikeThrift1(shared), oracle)
    with pytest.raises(ConfigError, match="newest version of a cell alone"):
        open_histories(tm.session, tm.begin().start_ts)
