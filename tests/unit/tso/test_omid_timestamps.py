"""A store that holds transactions and no ceiling: refused, until somebody knows where to go on."""

from __future__ import annotations

import pytest

from omidpy.base.cells import (
    LOW_WATERMARK_ROW,
    commit_row,
    encode_commit,
    encode_long,
    shadow_qualifier,
)
from omidpy.base.tables import OMID_ENABLED
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError
from omidpy.facts.commit_table import (
    COMMIT_TABLE,
    FIRST_TIMESTAMP_FACT,
    LOW_WATERMARK,
    LOW_WATERMARK_FACT,
    create_system_tables,
)
from omidpy.facts.control import ControlTable
from omidpy.model import FamilySchema, TableSchema, Timestamp
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from tests.unit.tso.test_persistence import PlainStore
from tso.core.events import Now
from tso.core.settings import AGE_BESIDE_OMID_MS, Inherited, Settings
from tso.durable.ceiling import StoredCeiling
from tso.durable.lease import Lease
from tso.durable.persist import StorePersistence

INCREMENTAL = Settings(timestamps="incremental")
WORLD = Settings(timestamps="world")


@pytest.fixture(params=[MemoryStore, PlainStore])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    """Return a store with the system tables, as `omidpy init` leaves it."""
    found: MemoryStore = request.param()
    create_system_tables(found)
    return found


def start(
    store: MemoryStore,
    chosen: int | None = None,
    *,
    settings: Settings = INCREMENTAL,
    omid_ceiling: int | None = None,
    accept_clock: bool = False,
) -> Inherited:
    """Start an oracle, and let it give the lease up again."""
    clock = ManualClock()
    lease = Lease(store, holder="me", clock=clock)
    assert lease.try_acquire() is None
    persistence = StorePersistence(
        store,
        lease,
        initial_timestamp=chosen,
        omid_ceiling=lambda: None if omid_ceiling is None else Timestamp(omid_ceiling),
    )
    try:
        now = Now(clock.wall_ms(), clock.monotonic_s())
        return persistence.start(settings, now, accept_clock=accept_clock)
    finally:
        lease.release()


def leave_entry(store: MemoryStore, start_ts: int, commit_ts: int) -> None:
    """Leave what a client of Omid leaves that was killed."""
    put = Put(b"F", b"C", start_ts, encode_commit(start_ts, commit_ts))
    store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), [put])]})


def leave_cell(
    store: MemoryStore, version: int, *, shadow: int | None = None, is_marked: bool = True
) -> None:
    """Leave a cell in a table of Omid's users."""
    attributes = {OMID_ENABLED: "true"} if is_marked else {}
    store.create_table(TableSchema("t", (FamilySchema(b"cf", attributes),)))
    puts = [Put(b"cf", b"q", version, b"v")]
    if shadow is not None:
        puts.append(Put(b"cf", shadow_qualifier(b"q"), version, encode_long(shadow)))
    store.write({"t": [RowMutation(b"r", puts)]})


def test_a_fresh_store_needs_nothing(store: MemoryStore) -> None:
    """Neither does one of ours whose first oracle died before its first ceiling."""
    ControlTable(store).write(FIRST_TIMESTAMP_FACT, encode_long(50))
    inherited = start(store)
    assert (inherited.epoch, inherited.follows_omid) == (0, False)


@pytest.mark.parametrize("trace", ["entry", "watermark", "cell"])
def test_a_store_with_any_trace_and_no_ceiling_is_refused(store: MemoryStore, trace: str) -> None:
    """Omid's default keeps timestamps in memory: they might be issued a second time (I1)."""
    if trace == "entry":
        leave_entry(store, 1000, 1050)
        leave_entry(store, 4000, 4050)
        found = "the newest entry of OMID_COMMIT_TABLE began at 4000"
    elif trace == "watermark":
        put = Put(*LOW_WATERMARK, 7, encode_long(0))
        store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
        found = "holds its low watermark"
    else:
        leave_cell(store, 1000)
        found = "the transactional table t has cells"
    with pytest.raises(ConfigError, match=found) as caught:
        start(store)
    assert "--initial-timestamp N" in str(caught.value)
    assert "1700000000000000000" in str(caught.value), "the present time, which is Omid's default"
    assert ControlTable(store).read(FIRST_TIMESTAMP_FACT) is None, "nothing was written"


@pytest.mark.parametrize(
    ("start_ts", "commit_ts", "chosen", "is_refused"),
    [(1000, 2000, 2000, True), (1000, 2000, 2001, False), (1000, 2000, 1050, True)],
)
def test_the_timestamp_must_be_above_every_commit(
    store: MemoryStore, start_ts: int, commit_ts: int, chosen: int, *, is_refused: bool
) -> None:
    """Commits count as well as starts; equality would issue one twice."""
    leave_entry(store, start_ts, commit_ts)
    leave_entry(store, 50, 100)
    if is_refused:
        with pytest.raises(ConfigError, match="OMID_COMMIT_TABLE holds 2000"):
            start(store, chosen)
        return
    inherited = start(store, chosen)
    assert inherited.epoch == 2050, "a multiple of 50, and above 2000"
    assert ControlTable(store).read_number(LOW_WATERMARK_FACT) == 2050


@pytest.mark.parametrize("is_marked", [True, False])
@pytest.mark.parametrize(("version", "shadow"), [(3000, 3050), (1000, 3050), (3050, 1000)])
def test_the_timestamp_must_be_above_every_cell(
    store: MemoryStore, version: int, shadow: int, *, is_marked: bool
) -> None:
    """Entries are gone once transactions are complete; Omid needs no mark on its tables."""
    leave_entry(store, 50, 100)
    leave_cell(store, version, shadow=shadow, is_marked=is_marked)
    with pytest.raises(ConfigError, match="the table t holds 3050"):
        start(store, 3050)
    assert start(store, 3051).epoch == 3100


def test_the_timestamp_must_be_above_omids_low_watermark(store: MemoryStore) -> None:
    """It was issued, whatever else is left of that time, and readers go by it."""
    put = Put(*LOW_WATERMARK, 7, encode_long(3000))
    store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
    with pytest.raises(ConfigError, match="low watermark's row in OMID_COMMIT_TABLE holds 3000"):
        start(store, 3000)
    assert start(store, 3001).epoch == 3050


def test_tables_without_transactions_do_not_count(store: MemoryStore) -> None:
    """Plain HBase tables have milliseconds for versions, far above incremental timestamps."""
    leave_entry(store, 50, 100)
    leave_cell(store, 1_700_000_000_000, is_marked=False)
    assert start(store, 1000).epoch == 1000


def test_an_adopted_store_starts_again_without_the_flag(store: MemoryStore) -> None:
    """The ceiling is durable from now on; its transactions keep the longer age."""
    leave_entry(store, 1000, 1050)
    first = start(store, 5000)
    assert first.follows_omid
    assert first.transaction_age_ms(None) == AGE_BESIDE_OMID_MS
    second = start(store)
    assert second.epoch == first.ceiling
    assert second.follows_omid
    assert start(store, 4000).epoch == second.ceiling, "a flag that was left behind does nothing"
    assert ControlTable(store).read_number(FIRST_TIMESTAMP_FACT) == 50, "no cell is foreign"


def test_a_timestamp_far_ahead_of_the_clock_needs_a_second_word(store: MemoryStore) -> None:
    """One digit too many, and no timestamp could be read as a time any more."""
    leave_entry(store, 1000, 1050)
    chosen = 1_700_000_000 * 10**9 + 31 * 24 * 3600 * 10**9
    with pytest.raises(ConfigError, match="31 days ahead of the clock"):
        start(store, chosen, settings=WORLD)
    assert start(store, chosen, settings=WORLD, accept_clock=True).epoch == chosen


def test_lost_timestamps_of_ours_can_be_set_right(store: MemoryStore) -> None:
    """The timestamp table is gone; the low watermark tells that it was there."""
    ControlTable(store).raise_number(LOW_WATERMARK_FACT, 10_000)
    ControlTable(store).write(FIRST_TIMESTAMP_FACT, encode_long(50))
    with pytest.raises(ConfigError, match="was lost or restored from an old copy"):
        start(store)
    with pytest.raises(ConfigError, match="was lost or restored from an old copy"):
        start(store, 9950)
    inherited = start(store, 20_000)
    assert inherited.epoch == 20_000
    assert inherited.ceiling > 20_050


# -- Omid's ceiling in ZooKeeper -------------------------------------------------------------------


def test_a_ceiling_that_omid_kept_in_zookeeper_is_taken_over(store: MemoryStore) -> None:
    """It is durable, so that no flag is needed; ours is in the store from then on."""
    leave_entry(store, 1000, 1050)
    inherited = start(store, omid_ceiling=500_000_000)
    assert inherited.epoch == 500_000_000
    assert inherited.follows_omid
    assert start(store).epoch == inherited.ceiling


def test_the_higher_of_two_ceilings_counts(store: MemoryStore) -> None:
    """Omid's storage was moved once, or its oracle ran once more after ours."""
    first = start(store, omid_ceiling=5000)
    second = start(store, omid_ceiling=5000)
    assert second.epoch == first.ceiling
    assert start(store, omid_ceiling=10**12).epoch == 10**12


def test_whoever_kept_timestamps_in_zookeeper_is_told_that_there_is_no_way_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Omid's standby would go on from there, and issue timestamps twice (I1)."""
    store = MemoryStore()
    create_system_tables(store)
    start(store, omid_ceiling=5000)
    assert "Omid's must not take over any more" in caplog.text
    assert "where they end at 5000" in caplog.text
    caplog.clear()
    start(store)
    assert not caplog.text


@pytest.mark.parametrize("place", ["zookeeper", "store"])
@pytest.mark.parametrize("trace", ["entry", "watermark"])
def test_a_ceiling_below_what_was_issued_is_of_another_time_or_store(
    store: MemoryStore, trace: str, place: str
) -> None:
    """Omid came to keep it elsewhere, or the ensemble was restored: all above is issued (I1)."""
    if trace == "entry":
        leave_entry(store, 9000, 9050)
    else:
        put = Put(*LOW_WATERMARK, 7, encode_long(9000))
        store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
    leave_cell(store, 9500)
    told = 5000 if place == "zookeeper" else None
    if told is None:
        StoredCeiling(store).raise_to(5000)
    with pytest.raises(ConfigError, match=r"ceiling 5000 .* is below 9000: .*Correct the name"):
        start(store, omid_ceiling=told)
    with pytest.raises(ConfigError, match="the table t holds 9500"):
        start(store, 9400, omid_ceiling=told)
    inherited = start(store, 9600, omid_ceiling=told)
    assert inherited.epoch == 9600
    assert start(store, omid_ceiling=told).epoch == inherited.ceiling


def test_what_omid_issued_since_we_served_the_store_is_not_issued_again(store: MemoryStore) -> None:
    """It took over, from what it kept elsewhere, and its low watermark is all that tells of it."""
    above = start(store).ceiling + 1_000_000
    put = Put(*LOW_WATERMARK, 7, encode_long(above))
    store.write({COMMIT_TABLE: [RowMutation(LOW_WATERMARK_ROW, [put])]})
    with pytest.raises(ConfigError, match=f"is below {above}: the low watermark's row"):
        start(store)
    assert start(store, above + 1000).epoch >= above + 1000
