"""The oracle's machine under any interleaving of requests, flushes, time, crashes and restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omidpy.base.timing.clock import ManualClock
from omidpy.model import TableId, Timestamp
from omidpy.wire.messages import (
    CommitResponse,
    FenceRequest,
    InvalidateRequest,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.oracle_checks import check_all
from tests.machines.oracle_driver import Driver, History, commit_request
from tso.core.settings import Settings

CELLS = st.lists(st.integers(0, 3), max_size=2)
WHO = st.integers(0, 6)
BEGIN = st.tuples(st.just("begin"), st.booleans())
COMMIT = st.tuples(st.just("commit"), st.tuples(WHO, CELLS))
LAND = st.tuples(st.just("land"), st.none())
STEPS = st.lists(
    st.one_of(
        BEGIN,
        COMMIT,
        LAND,
        st.tuples(st.just("retry"), WHO),
        st.tuples(st.just("invalidate"), WHO),
        BEGIN,
        COMMIT,
        LAND,
        st.tuples(st.just("complete"), WHO),
        st.tuples(st.just("fence"), st.integers(0, 1)),
        BEGIN,
        COMMIT,
        LAND,
        st.tuples(st.just("tick"), st.sampled_from([0.001, 0.3, 2.0, 40.0])),
        st.tuples(st.just("step clock"), st.sampled_from([-3_600_000, -5, 5_000, 10**10])),
        st.tuples(st.just("restart"), st.sampled_from(["unwritten", "written", "clean"])),
    ),
    max_size=70,
)


@given(
    steps=STEPS,
    mode=st.sampled_from(["world", "incremental"]),
    capacity=st.integers(1, 8),
    memory=st.integers(1, 8),
)
def test_every_history_is_consistent(
    steps: list[tuple[str, object]], mode: str, capacity: int, memory: int
) -> None:
    """I1, I2, I3, I4, I8 and I9, with tiny memories so that everything is forgotten in time."""
    assert mode in ("world", "incremental")
    settings = Settings(
        timestamps="world" if mode == "world" else "incremental",
        conflict_map_size=capacity,
        decision_memory=memory,
        max_transaction_age_ms=60_000,
    )
    history, clock = History(), ManualClock()
    driver = Driver(settings, clock=clock, history=history, flushes_at_once=False)
    for kind, argument in steps:
        starts = [a.start_ts for _, a in history.said if isinstance(a, TimestampResponse)]
        driver = _step(driver, settings, kind, argument, starts)
    while driver.flight is not None:
        driver.land()
    check_all(history)


def _step(
    driver: Driver, settings: Settings, kind: str, argument: object, starts: list[Timestamp]
) -> Driver:
    """Do one thing; return the driver of the instance that is alive afterwards."""
    match kind, argument:
        case "begin", bool():
            driver.ask(TimestampRequest(30_000 if argument else None))
        case "commit", (int() as who, list() as cells) if starts:
            # Clients send a first request only once, but a test may well send it again.
            start_ts = starts[-1 - who % len(starts)]
            wanted = driver.history.write_sets.get(start_ts, tuple(cells))
            if start_ts not in driver.history.completed:
                driver.ask(commit_request(start_ts, wanted, tables=[0]))
        case "retry", int() as who if starts:
            start_ts = starts[-1 - who % len(starts)]
            wanted = driver.history.write_sets.get(start_ts, ())
            driver.ask(commit_request(start_ts, wanted, tables=[0], is_retry=True))
        case "invalidate", int() as who if starts:
            driver.ask(InvalidateRequest(starts[-1 - who % len(starts)]))
        case "fence", int() as table:
            driver.ask(FenceRequest(TableId(table)))
        case "land", _ if driver.flight is not None:
            driver.land()
        case "tick", float() as seconds:
            driver.tick(seconds=seconds)
        case "step clock", int() as milliseconds:
            driver.clock.step_wall(milliseconds=milliseconds)
        case "complete", int() as who if starts:
            _complete(driver, starts[-1 - who % len(starts)])
        case "restart", "clean":
            driver.stop()
            while not driver.is_stopped:
                driver.land()
            return _restarted(driver, settings)
        case "restart", str() as how:
            if driver.flight is not None and how == "written":
                driver.persist()
            return _restarted(driver, settings)
        case _:
            pass
    return driver


def _complete(driver: Driver, start_ts: Timestamp) -> None:
    """Remove the entry of a transaction, as its client does once all shadow cells are there.

    A client has no request under way then, and asks no more about the transaction.
    """
    said = [answer for _, answer in driver.history.said]
    told = {a.start_ts for a in said if isinstance(a, CommitResponse) and a.commit_ts is not None}
    if start_ts in told and not driver.machine.queue_length:
        driver.disk.entries.pop(start_ts, None)
        driver.history.completed.add(start_ts)


def _restarted(driver: Driver, settings: Settings) -> Driver:
    return Driver(
        settings,
        disk=driver.disk,
        clock=driver.clock,
        history=driver.history,
        flushes_at_once=False,
    )
