"""Snapshots of the past: which moment is which timestamp, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from omidpy.base.cells import encode_long
from omidpy.base.timing.ages import Sample
from omidpy.errors import SnapshotTooOld, UsageError
from omidpy.facts.commit_table import FIRST_TIMESTAMP_FACT
from omidpy.facts.control import encode_document
from omidpy.facts.watermarks import HORIZON_FREE_AGE_S, Watermarks, sample_row
from omidpy.model import Timestamp
from omidpy.reading.time_travel import FUTURE_TOLERANCE_NS, may_be_counted, read_timestamp
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
NOON_TS = Timestamp(1_714_564_800_000_000_000)
WORLD = Timestamp(1_600_000_000_000_000_000)
COUNTED = Timestamp(50)

SAMPLES = [
    Sample(elapsed_ms=0, wall_ms=1_714_564_800_000, last_issued_ts=1000),
    Sample(elapsed_ms=60_000, wall_ms=1_714_564_860_000, last_issued_ts=2000),
    Sample(elapsed_ms=120_000, wall_ms=1_714_564_920_000, last_issued_ts=3000),
]


def world(at: Any, *, fresh_ts: int = NOON_TS) -> int:
    """Return where a store with world timestamps reads."""
    return read_timestamp(at, fresh_ts=Timestamp(fresh_ts), first_ts=WORLD, samples=[], now_ms=0)


def counted(at: Any, *, samples: list[Sample] = SAMPLES, now_ms: int = 1_714_564_920_000) -> int:
    """Return where a store with counted timestamps reads."""
    return read_timestamp(
        at, fresh_ts=Timestamp(3500), first_ts=COUNTED, samples=samples, now_ms=now_ms
    )


# -- moments and timestamps, pure ------------------------------------------------------------------


def test_a_date_is_a_world_timestamp() -> None:
    """Nanoseconds since 1970, whatever zone the date is written in."""
    an_hour_ago = NOON - timedelta(hours=1)
    assert world(an_hour_ago) == NOON_TS - 3600 * 10**9
    assert world(an_hour_ago.astimezone(timezone(timedelta(hours=5)))) == NOON_TS - 3600 * 10**9


def test_an_age_counts_from_the_oracles_present() -> None:
    """Not from the client's clock, which may differ."""
    assert world(timedelta(seconds=2)) == NOON_TS - 2 * 10**9
    assert world(timedelta(0)) == NOON_TS


def test_a_number_is_taken_as_it_is() -> None:
    """It sees what was committed below it; it need not be a transaction's."""
    assert world(NOON_TS - 1) == NOON_TS - 1
    assert counted(1234) == 1234
    assert world(0) == 0


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (datetime(2024, 5, 1, 12), "time zone"),  # noqa: DTZ001 - what is refused
        (timedelta(microseconds=-1), "how long ago"),
        (NOON + timedelta(seconds=5, microseconds=1), "future"),
        (NOON_TS + FUTURE_TOLERANCE_NS + 1, "future"),
        (-1, "before every timestamp"),
        (datetime(1950, 1, 1, tzinfo=UTC), "before every timestamp"),
        (timedelta(days=40_000), "before every timestamp"),
    ],
)
def test_moments_that_cannot_be_read_are_refused(at: Any, message: str) -> None:
    """The message says what is wrong with the moment."""
    with pytest.raises(UsageError, match=message):
        world(at)


@pytest.mark.parametrize("at", [True, "yesterday", 1.5, None])
def test_what_is_no_moment_is_a_type_error(at: Any) -> None:
    """True would be timestamp 1."""
    with pytest.raises(TypeError, match="must be a start_ts"):
        world(at)


def test_a_little_ahead_reads_the_present() -> None:
    """The client's clock may run ahead of the oracle's, by 5 s and no more."""
    assert world(NOON + timedelta(seconds=5)) == NOON_TS
    assert world(NOON_TS + FUTURE_TOLERANCE_NS) == NOON_TS


def test_counted_timestamps_have_no_tolerance() -> None:
    """A number ahead of the counter is somebody else's."""
    assert counted(3500) == 3500
    with pytest.raises(UsageError, match="future"):
        counted(3501)


def test_counted_timestamps_are_found_through_samples() -> None:
    """The newest sample at or before the moment; its timestamp is seen, so one more is read at."""
    second = datetime.fromtimestamp(1_714_564_860, tz=UTC)
    assert counted(second) == 2001
    assert counted(second - timedelta(milliseconds=1)) == 1001
    assert counted(second + timedelta(seconds=59)) == 2001
    assert counted(timedelta(seconds=60)) == 2001
    assert counted(timedelta(seconds=61)) == 1001


def test_a_date_that_lies_ahead_is_refused_where_timestamps_are_counted() -> None:
    """It would show what was there a minute ago for what will be there then."""
    newest = datetime.fromtimestamp(1_714_564_920, tz=UTC)
    for now_ms in (
        0,
        1_714_564_920_000,
    ):  # a clock that is behind the oracle's, and one that is not
        assert counted(newest + timedelta(seconds=5), now_ms=now_ms) == 3001
        with pytest.raises(UsageError, match="future"):
            counted(newest + timedelta(seconds=5, milliseconds=1), now_ms=now_ms)
    assert counted(newest + timedelta(seconds=65), now_ms=1_714_564_980_000) == 3001
    with pytest.raises(UsageError, match="future"):
        counted(datetime.max.replace(tzinfo=UTC))


def test_a_moment_before_the_first_sample_is_refused() -> None:
    """Nothing tells which timestamps were issued by then; trying again would not help."""
    for at in (timedelta(seconds=121), NOON - timedelta(minutes=1)):
        with pytest.raises(SnapshotTooOld, match="do not reach back") as caught:
            counted(at)
        assert not caught.value.retryable


def test_without_samples_only_numbers_are_read_at() -> None:
    """The oracle has run for less than a minute."""
    assert counted(1234, samples=[]) == 1234
    with pytest.raises(SnapshotTooOld, match="no time sample"):
        counted(timedelta(seconds=1), samples=[])
    with pytest.raises(SnapshotTooOld, match="do not reach back"):
        counted(NOON, samples=[])


# -- dates that were set ---------------------------------------------------------------------------

NOON_MS = int(NOON_TS) // 1_000_000
MINUTE_MS = 60_000
YEAR_MS = 365 * 86_400_000


def recorded(*leads_ms: int, first: int = 0) -> list[Sample]:
    """Return a sample a minute, the last at noon; each date is ahead of the true one by so much."""
    count = len(leads_ms)
    return [
        Sample(
            minute * MINUTE_MS,
            NOON_MS + (minute - count + 1) * MINUTE_MS + lead_ms,
            first + 100 * (minute + 1),
        )
        for minute, lead_ms in enumerate(leads_ms)
    ]


@pytest.mark.parametrize("lead_ms", [-YEAR_MS, -3_600_000, 3_600_000, YEAR_MS])
def test_a_date_that_was_wrong_for_minutes_moves_no_other_moment(lead_ms: int) -> None:
    """Set back a year for two minutes, it was the newest sample of all dates of that year."""
    samples = recorded(0, 0, 0, lead_ms, lead_ms, 0, 0)
    for now in (samples, samples[:5]):
        at = datetime.fromtimestamp(samples[1].wall_ms / 1000, UTC) + timedelta(seconds=30)
        assert counted(at, samples=now, now_ms=NOON_MS) == samples[1].last_issued_ts + 1
    assert counted(NOON, samples=samples, now_ms=NOON_MS) == samples[-1].last_issued_ts + 1


def test_a_date_that_was_ahead_once_lets_nobody_read_the_future() -> None:
    """For a year, what was asked of tomorrow was answered as of the last minute."""
    with pytest.raises(UsageError, match="future"):
        counted(NOON + timedelta(days=1), samples=recorded(0, YEAR_MS, 0), now_ms=NOON_MS)


def ahead(at: Any, samples: list[Sample], *, fresh_ts: int) -> int:
    """Return where a store reads whose timestamps are ahead of the date."""
    return read_timestamp(
        at, fresh_ts=Timestamp(fresh_ts), first_ts=WORLD, samples=samples, now_ms=NOON_MS
    )


def test_timestamps_that_are_ahead_of_the_date_are_found_through_samples() -> None:
    """The oracle's date was set back by an hour: they stood still, and so did what was read."""
    first = int(NOON_TS) + 3600 * 10**9
    samples = recorded(0, 0, 0, 0, first=first)
    fresh_ts = samples[-1].last_issued_ts + 50
    for at in (timedelta(minutes=2), NOON - timedelta(minutes=2)):
        assert may_be_counted(WORLD, fresh_ts, now_ms=NOON_MS)
        assert ahead(at, samples, fresh_ts=fresh_ts) == samples[1].last_issued_ts + 1
    with pytest.raises(UsageError, match="future"):
        ahead(NOON + timedelta(minutes=1), samples, fresh_ts=fresh_ts)
    # From before the samples, a date is what it says.
    early = NOON - timedelta(hours=1)
    assert ahead(early, samples, fresh_ts=fresh_ts) == NOON_TS - 3600 * 10**9


def test_timestamps_that_tell_the_time_ask_for_no_samples() -> None:
    """Nor are these believed if they were read, and the oracle's date is as its timestamps are."""
    assert not may_be_counted(WORLD, NOON_TS, now_ms=NOON_MS)
    samples = recorded(0, 0, 0, first=int(NOON_TS) - 1000)
    assert ahead(timedelta(minutes=2), samples, fresh_ts=NOON_TS) == NOON_TS - 120 * 10**9


@pytest.mark.parametrize("at", [20240501, 1_714_564_800, 1_714_564_800_000, 1_714_564_800_000_000])
def test_numbers_of_another_unit_are_no_timestamps(at: int) -> None:
    """They read, and exported, an empty store."""
    with pytest.raises(UsageError, match="nanoseconds since 1970"):
        world(at)
    assert world(1) == 1
    assert world(WORLD - 50) == WORLD - 50


# -- snapshots -------------------------------------------------------------------------------------


@pytest.fixture
def client() -> Client:
    """Return a manager over memory, whose oracle counts."""
    return Client()


def history(client: Client) -> list[int]:
    """Write one cell three times; return a moment after each."""
    moments = []
    for value in (b"1", b"2", b"3"):
        client.write(b"a", value)
        moments.append(int(client.tm.begin().start_ts))
    return moments


def test_a_snapshot_of_the_past_sees_what_was_committed_then(client: Client) -> None:
    """And goes on seeing it."""
    assert [
        dict(client.tm.snapshot(at=moment).table(TABLE).scan())[b"a"][b"cf:q"]
        for moment in history(client)
    ] == [b"1", b"2", b"3"]


def test_a_commit_at_the_very_moment_is_not_seen(client: Client) -> None:
    """Visible is what was committed below the timestamp; equality is already outside."""
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
    assert tx.commit_ts is not None
    assert client.tm.snapshot(at=tx.commit_ts).table(TABLE).row(b"a") == {}
    assert client.tm.snapshot(at=tx.commit_ts + 1).table(TABLE).row(b"a") == {b"cf:q": b"1"}


def test_a_snapshot_at_a_start_ts_does_not_see_that_transactions_cells(client: Client) -> None:
    """They have versions from there on, but they are not the reader's own."""
    with client.tm.begin() as tx:
        tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        tx.flush()
        past = client.tm.snapshot(at=tx.start_ts)
        assert past.table(TABLE).row(b"a") == {}
    assert past.table(TABLE).row(b"a") == {}


def test_deletes_are_undone_by_going_back(client: Client) -> None:
    """A tombstone has a commit timestamp too."""
    client.write(b"a", b"1")
    before = client.tm.begin().start_ts
    with client.tm.begin() as tx:
        tx.table(TABLE).delete(b"a")
    assert client.tm.snapshot(at=before).table(TABLE).row(b"a") == {b"cf:q": b"1"}
    assert client.tm.snapshot().table(TABLE).row(b"a") == {}


def test_a_snapshot_refuses_writes_and_asks_nobody_at_its_end(client: Client) -> None:
    """It has nothing to decide."""
    for at in (None, client.tm.begin().start_ts):
        with client.tm.snapshot(at=at) as tx:
            asked = len(client.oracle.asked)
            with pytest.raises(UsageError, match="read-only"):
                tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
        assert tx.status == "committed"
        assert tx.commit_ts is None
        assert len(client.oracle.asked) == asked


def test_a_snapshot_of_a_datetime_asks_for_the_oracles_samples(client: Client) -> None:
    """The naive oracle counts, so that only samples tell."""
    client.write(b"a", b"1")
    with pytest.raises(SnapshotTooOld, match="no time sample"):
        client.tm.snapshot(at=timedelta(0))


def test_a_snapshot_goes_back_though_timestamps_stand_still(client: Client) -> None:
    """The oracle's date was set back by an hour, and a minute ago was the hour before that."""
    client.naive._last = client.clock.wall_ms() * 1_000_000 + 3600 * 10**9
    control = client.tm.session.control
    control.replace(FIRST_TIMESTAMP_FACT, None, encode_long(WORLD))
    for minute in range(3):
        client.write(b"a", b"%d" % minute)
        client.tm.begin().rollback()
        wall_ms = client.clock.wall_ms() - (2 - minute) * MINUTE_MS
        sample = Sample(minute * MINUTE_MS, wall_ms, client.naive._last)
        control.write(sample_row(sample.elapsed_ms), encode_document(sample))
    now = datetime.fromtimestamp(client.clock.wall_ms() / 1000, UTC)
    for at in (timedelta(minutes=1), now - timedelta(minutes=1)):
        assert client.tm.snapshot(at=at).table(TABLE).row(b"a") == {b"cf:q": b"1"}


# -- the horizon -----------------------------------------------------------------------------------


def publish(client: Client, horizon: int) -> Watermarks:
    """Publish a collection horizon, as the compactor does."""
    watermarks = client.tm.session.watermarks
    watermarks.publish_collection_horizon(Timestamp(horizon), client.clock)
    return watermarks


def test_a_snapshot_below_the_horizon_is_refused_at_once(client: Client) -> None:
    """Versions it needs may be gone; a newer moment, or longer retention, would help."""
    first, second, _ = history(client)
    publish(client, second)
    with pytest.raises(
        SnapshotTooOld, match=rf"{first} is below .* {second}.*--retention"
    ) as caught:
        client.tm.snapshot(at=first)
    assert not caught.value.retryable, "the same moment is below it for ever"
    assert client.tm.snapshot(at=second).table(TABLE).row(b"a") == {b"cf:q": b"2"}


def test_a_snapshot_that_falls_below_the_horizon_stops_reading(client: Client) -> None:
    """The horizon is read after each batch arrived, so that no wrong answer is released."""
    first, second, _ = history(client)
    past = client.tm.snapshot(at=first)
    scan = past.table(TABLE).scan()
    publish(client, second)
    with pytest.raises(SnapshotTooOld):
        past.table(TABLE).row(b"a")
    with pytest.raises(SnapshotTooOld):
        next(scan)


def test_a_young_transaction_does_not_look_at_the_horizon(client: Client) -> None:
    """What could pass it has not been public for long enough to be acted upon."""
    client.write(b"a", b"1")
    tx = client.tm.begin()
    publish(client, tx.start_ts + 50)
    assert tx.table(TABLE).row(b"a") == {b"cf:q": b"1"}
    client.clock.advance(HORIZON_FREE_AGE_S)  # type: ignore[attr-defined]
    with pytest.raises(SnapshotTooOld) as caught:
        tx.table(TABLE).row(b"a")
    assert caught.value.retryable, "begun again it reads a younger snapshot"


# -- holds -----------------------------------------------------------------------------------------


def holds(client: Client) -> list[int]:
    """Return the snapshots that a compactor finds held."""
    watermarks = client.tm.session.watermarks
    return [hold.start_ts for hold in watermarks.holds(watermarks.ages(client.clock))]


def test_a_hold_is_seen_by_the_compactor_until_it_ends(client: Client) -> None:
    """By its time, or by its release."""
    past = client.tm.snapshot(at=client.tm.begin().start_ts)
    held = client.tm.hold(past, for_s=60)
    assert holds(client) == [past.start_ts]
    held.release()
    held.release()
    assert holds(client) == []
    with client.tm.hold(int(past.start_ts), for_s=60):
        assert len(holds(client)) == 1
    assert holds(client) == []
    client.tm.hold(past, for_s=60)
    client.clock.advance(59.999)  # type: ignore[attr-defined]
    assert holds(client) == [past.start_ts]
    client.clock.advance(0.001)  # type: ignore[attr-defined]
    assert holds(client) == []


def test_a_hold_does_not_end_because_somebody_sets_the_clock(client: Client) -> None:
    """Granted means kept for so long, whatever the date is by then."""
    past = client.tm.snapshot(at=client.tm.begin().start_ts)
    client.tm.hold(past, for_s=60)
    client.clock.step_wall(milliseconds=3_600_000)  # type: ignore[attr-defined]
    assert holds(client) == [past.start_ts]
    client.clock.step_wall(milliseconds=-7_200_000)  # type: ignore[attr-defined]
    client.clock.advance(60)  # type: ignore[attr-defined]
    assert holds(client) == []


def test_a_hold_below_the_horizon_is_refused_and_leaves_nothing(client: Client) -> None:
    """It came too late to keep anything."""
    first, second, _ = history(client)
    publish(client, second)
    with pytest.raises(SnapshotTooOld, match="hold a younger one"):
        client.tm.hold(first, for_s=60)
    assert holds(client) == []
    client.tm.hold(second, for_s=60)


def test_a_hold_is_written_before_the_horizon_is_read(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compactor announces, then reads the holds: either it sees the hold, or we its intent."""
    (first, *_) = history(client)
    floor = Watermarks.hold_floor
    seen: list[int] = []

    def look(watermarks: Watermarks) -> Timestamp:
        seen.append(len(holds(client)))
        return floor(watermarks)

    monkeypatch.setattr(Watermarks, "hold_floor", look)
    client.tm.hold(first, for_s=60)
    assert seen == [1]


@pytest.mark.parametrize(
    "snapshot", [1.5, True, None, "1700000000000000000", b"1", -1, 2**63, 2**70]
)
def test_a_hold_of_what_is_no_snapshot_leaves_nothing(client: Client, snapshot: object) -> None:
    """Written down it could not be read again, and so would keep every version for ever."""
    with pytest.raises((TypeError, UsageError), match="start_ts"):
        client.tm.hold(snapshot, for_s=60)  # type: ignore[arg-type]  # what is tested
    assert holds(client) == []


@pytest.mark.parametrize("for_s", [0, -1, 31 * 24 * 3600, float("nan")])
def test_a_hold_has_a_bound(client: Client, for_s: float) -> None:
    """A forgotten one would keep every version for ever."""
    with pytest.raises(UsageError, match="for_s"):
        client.tm.hold(client.tm.begin(), for_s=for_s)


# -- old transactions ------------------------------------------------------------------------------


def aged_client(max_age_s: float | None) -> Client:
    """Return a client whose oracle tells an age limit."""
    client = Client()
    client.naive.max_transaction_age_s = max_age_s
    return client


def test_past_half_of_the_age_limit_one_warning_names_the_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever sees the abort later has been told why, and only once."""
    client = aged_client(900.0)
    tx = client.tm.begin()
    client.clock.advance(449)  # type: ignore[attr-defined]
    tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
    assert "max-transaction-age" not in caplog.text
    client.clock.advance(1)  # type: ignore[attr-defined]
    tx.table(TABLE).put(b"b", {b"cf:q": b"1"})
    tx.table(TABLE).put(b"c", {b"cf:q": b"1"})
    tx.commit()
    warnings = [
        record.message for record in caplog.records if "max-transaction-age" in record.message
    ]
    assert len(warnings) == 1
    assert str(tx.start_ts) in warnings[0]
    assert "450 s" in warnings[0]


USES: dict[str, Callable[[Transaction, TransactionalTable], object]] = {
    "table": lambda tx, _: tx.table(TABLE),
    "row": lambda _, table: table.row(b"a"),
    "rows": lambda _, table: table.rows([b"a"]),
    "scan": lambda _, table: list(table.scan()),
    "put": lambda _, table: table.put(b"a", {b"cf:q": b"1"}),
    "delete": lambda _, table: table.delete(b"a"),
    "savepoint": lambda tx, _: tx.savepoint(),
    "flush": lambda tx, _: tx.flush(),
    "token": lambda tx, _: tx.token(),
    "commit": lambda tx, _: tx.commit(),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_any_use_of_an_old_transaction_warns(
    caplog: pytest.LogCaptureFixture, use: Callable[[Transaction, TransactionalTable], object]
) -> None:
    """One that only reads for long, or only waits and then commits, is warned of like the rest."""
    client = aged_client(900.0)
    tx = client.tm.begin()
    table = tx.table(TABLE)
    client.clock.advance(450)  # type: ignore[attr-defined]
    assert "max-transaction-age" not in caplog.text
    use(tx, table)
    assert "max-transaction-age" in caplog.text


def test_a_scan_that_lasts_warns_at_its_next_page(caplog: pytest.LogCaptureFixture) -> None:
    """It may be all that the transaction does until it commits."""
    client = aged_client(900.0)
    for row in (b"a", b"b", b"c"):
        client.write(row)
    tx = client.tm.begin()
    rows = tx.table(TABLE).scan(batch_size=2)
    next(rows)
    client.clock.advance(450)  # type: ignore[attr-defined]
    next(rows)
    assert "max-transaction-age" not in caplog.text
    next(rows)
    assert "max-transaction-age" in caplog.text


@pytest.mark.parametrize(
    ("max_age_s", "hold_s", "read_only"),
    [(None, None, False), (900.0, 5000.0, False), (900.0, None, True)],
)
def test_no_warning_where_age_does_no_harm(
    caplog: pytest.LogCaptureFixture,
    max_age_s: float | None,
    hold_s: float | None,
    *,
    read_only: bool,
) -> None:
    """The oracle does not tell, the transaction is held, or it has nothing to commit."""
    client = aged_client(max_age_s)
    with client.tm.begin(hold_s=hold_s, read_only=read_only) as tx:
        client.clock.advance(1000)  # type: ignore[attr-defined]
        tx.table(TABLE).row(b"a")
    assert "max-transaction-age" not in caplog.text


def test_both_oracles_tell_their_age_limit() -> None:
    """The one in this process by itself; the one behind a socket in its handshake."""
    from omidpy.oracle.tcp import TcpOracle
    from omidpy.storage.memory import MemoryStore
    from tests.machines.scripted_oracle import ScriptedOracle, obliging
    from tso.embedded import EmbeddedOracle

    embedded = EmbeddedOracle(MemoryStore(), max_transaction_age_s=7.0)
    assert embedded.max_transaction_age_s == 7.0
    embedded.close()
    with ScriptedOracle(obliging()) as scripted:
        oracle = TcpOracle(scripted.address)
        assert oracle.max_transaction_age_s is None
        oracle.begin()
        assert oracle.max_transaction_age_s == 900.0
        oracle.close()
