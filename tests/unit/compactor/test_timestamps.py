"""Whose oracle records its timestamps?  Where nobody's does, a compaction writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, Final

import pytest

from compactor.pruning.timestamps import NOBODY, Asked
from compactor.ranges.progress import NoProgress
from compactor.report import Report
from compactor.run.environment import Environment
from compactor.run.local import ranges_here
from compactor.run.plan import Compaction, run
from compactor.shell.command import ask_oracle
from omidpy.base.cells import LOW_WATERMARK_ROW, commit_row, encode_commit, encode_long
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, OMID_ENABLED
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    LOW_WATERMARK,
    LOW_WATERMARK_FACT,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    create_system_tables,
)
from omidpy.facts.control import ControlTable
from omidpy.model import Cell, FamilySchema, TableSchema
from omidpy.oracle import zookeeper
from omidpy.oracle.zookeeper import Znode
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.fake_zookeeper import FakeEnsemble, FakeZooKeeper
from tests.machines.naive_oracle import NaiveOracle

L: Final = 1000
CEILING: Final = 5000


@pytest.fixture
def store() -> MemoryStore:
    """Return a store of Omid's with an adopted table, in which a dead client left a cell."""
    store = MemoryStore()
    create_system_tables(store)
    marked = FamilySchema(b"cf", {OMID_ENABLED: "true"})
    store.create_table(TableSchema("t", (marked,), {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE}))
    store.write({"t": [RowMutation(b"a", (Put(b"cf", b"q", 100, b"v"),))]})
    return store


def omids_low_watermark(store: MemoryStore, value: int) -> None:
    """Write what Omid's oracle writes when it starts, and when its conflict map overflows."""
    put = Put(*LOW_WATERMARK, 1, encode_long(value))
    store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, (put,))]})


def enter(store: MemoryStore, start_ts: int, value: bytes | None = None) -> None:
    """Leave a commit entry."""
    put = Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + 50) if value is None else value)
    store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (put,))]})


def record_ceiling(store: MemoryStore, value: int = CEILING) -> None:
    """Record a ceiling of timestamps, as ours does, and Omid's if it is told to."""
    put = Put(*TIMESTAMP_CEILING, 1, encode_long(value))
    store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, (put,))]})


def compact(store: MemoryStore, asked: Asked = NOBODY) -> Report:
    """Compact the store, whose oracle may have been asked."""
    clock = ManualClock()
    executor = ranges_here(store, clock)
    environment = Environment(clock, executor, clock.advance, NoProgress(), asked=asked)
    return run(store, ALL_AT_ONCE, environment)


def image(store: MemoryStore) -> list[Cell]:
    """Return every cell of every table."""
    return [
        cell
        for schema in store.tables()
        for page in store.scan(schema.name)
        for row in page
        for cell in row
    ]


def refused(store: MemoryStore, asked: Asked = NOBODY) -> str:
    """Return why a compaction refuses a store, and see that it has written nothing."""
    before = image(store)
    with pytest.raises(ConfigError, match="does not keep its timestamps there") as caught:
        compact(store, asked)
    assert image(store) == before
    return str(caught.value)


@pytest.mark.parametrize("trace", ["its start", "its low watermark", "an entry"])
def test_an_oracle_that_keeps_its_timestamps_in_memory_is_refused(
    store: MemoryStore, trace: str
) -> None:
    """After its restart it would commit what was dropped as dead: Omid's default."""
    if trace == "an entry":
        enter(store, 100)
    else:
        omids_low_watermark(store, 0 if trace == "its start" else L)
    message = refused(store)
    assert "no ceiling of timestamps is recorded" in message
    assert "tso-server --store memory:" in message
    assert "--tso zk://HOSTS/NAMESPACE" in message


def test_a_store_that_no_oracle_ever_served_is_not_refused(store: MemoryStore) -> None:
    """As `omidpy init` leaves it; there is nothing to do."""
    report = compact(store)
    assert (report.low_watermark, report.transactions_invalidated) == (0, 0)


def test_an_oracle_that_begins_under_a_run_is_not_taken_for_omids(store: MemoryStore) -> None:
    """Its first entry comes behind its ceiling, which the run has not found."""
    get = store.get

    def begin_behind(table: str, rows: Sequence[bytes], **options: Any) -> Any:
        found = get(table, rows, **options)
        if table == TIMESTAMP_TABLE:
            store.get = get  # type: ignore[method-assign]  # once
            record_ceiling(store)
            ControlTable(store).write(LOW_WATERMARK_FACT, encode_long(L))
            enter(store, CEILING - 50)
        return found

    store.get = begin_behind  # type: ignore[method-assign]  # the oracle is faster than the run
    assert compact(store).low_watermark == 0


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("low_watermark", [L, CEILING])
def test_a_recorded_ceiling_is_enough(
    store: MemoryStore, low_watermark: int, *, is_ours: bool
) -> None:
    """Ours has always recorded it, and Omid's if it keeps its timestamps in HBase."""
    record_ceiling(store)
    if is_ours:
        ControlTable(store).write(LOW_WATERMARK_FACT, encode_long(low_watermark))
    else:
        omids_low_watermark(store, low_watermark)
    enter(store, CEILING)
    assert compact(store, Asked(CEILING)).transactions_invalidated == 1


@pytest.mark.parametrize("evidence", ["low watermark", "entry", "issued"])
@pytest.mark.parametrize("elsewhere", [0, 10 * CEILING])
def test_an_oracle_of_omids_that_took_over_from_ours_and_records_nothing_is_refused(
    store: MemoryStore, evidence: str, elsewhere: int
) -> None:
    """It knows nothing of what ours has issued, wherever it keeps its own."""
    record_ceiling(store)
    ControlTable(store).write(LOW_WATERMARK_FACT, encode_long(L))
    above = CEILING + 50
    if evidence == "low watermark":
        omids_low_watermark(store, above)
    elif evidence == "entry":
        enter(store, above)
    drawn_ts = above if evidence == "issued" else 0
    message = refused(store, Asked(drawn_ts, lambda: elsewhere))
    assert f"above the recorded ceiling {CEILING}" in message
    assert str(above) in message


def test_a_malformed_entry_is_no_evidence(store: MemoryStore) -> None:
    """One bad cell must not stop every run."""
    record_ceiling(store)
    omids_low_watermark(store, L)
    enter(store, CEILING + 50, b"\xff")
    assert compact(store).transactions_invalidated == 1


@pytest.mark.parametrize("stale_ceiling", [0, 500])
def test_timestamps_in_zookeeper_are_recorded_too(store: MemoryStore, stale_ceiling: int) -> None:
    """Where the run was told to look there; Omid may have kept them in HBase before."""
    if stale_ceiling:
        record_ceiling(store, stale_ceiling)
    omids_low_watermark(store, L)
    assert "ceiling" in refused(store)
    assert "ceiling" in refused(store, Asked(CEILING + 50, lambda: CEILING))
    assert compact(store, Asked(CEILING, lambda: CEILING)).transactions_invalidated == 1


def test_a_ceiling_in_zookeeper_that_rises_under_a_run_is_no_sign_of_a_lost_one(
    store: MemoryStore,
) -> None:
    """Omid raises it every ten seconds, and to begin a job of Spark takes longer."""
    in_zookeeper = [CEILING]
    asked = Asked(CEILING, lambda: in_zookeeper[0])
    clock = ManualClock()
    executor = ranges_here(store, clock)
    environment = Environment(clock, executor, clock.advance, NoProgress(), asked=asked)
    compaction = Compaction(store, ALL_AT_ONCE, environment)
    in_zookeeper[0] = CEILING + 500  # before anything above the old one is issued
    omids_low_watermark(store, CEILING + 100)
    enter(store, CEILING + 450)
    assert compaction.begin() == CEILING + 100
    in_zookeeper[0] = CEILING + 1000
    # By the ceiling of before, what a restore has brought back would be in no doubt.
    assert compaction.newest_now() >= CEILING + 1000


def test_an_oracle_is_asked_for_a_timestamp_and_zookeeper_for_omids_ceiling(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has just been issued is the surest sign of where timestamps are."""
    oracle = NaiveOracle(store)
    oracle._last = 700
    ensemble = FakeEnsemble()
    monkeypatch.setattr("compactor.shell.command.open_oracle", lambda _store, _tso: oracle)
    monkeypatch.setattr(zookeeper, "connected", lambda _: nullcontext(FakeZooKeeper(ensemble)))
    assert ask_oracle(store, "127.0.0.1:24758").drawn_ts == 750
    asked = ask_oracle(store, "zk://h/ns")
    assert (asked.drawn_ts, asked.ceiling_elsewhere()) == (800, 0)
    ensemble.nodes["/ns/omid/timestamp"] = Znode(encode_long(CEILING), 0)
    assert asked.ceiling_elsewhere() == CEILING
