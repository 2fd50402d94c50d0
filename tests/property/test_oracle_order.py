"""The oracle's machine under any interleaving of requests, flushes, time, crashes and restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omidpy.clock import ManualClock
from omidpy.model import TableId, Timestamp
from omidpy.wire.messages import (
    FenceRequest,
    InvalidateRequest,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.oracle_checks import check_all
from tests.machines.oracle_driver import Driver, History, commit_request
from tso.settings import Settings

CELLS = st.lists(st.integers(0, 5), max_size=3)
WHO = st.integers(0, 100)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.booleans()),
        st.tuples(st.just("commit"), st.tuples(WHO, CELLS, st.booleans())),
        st.tuples(st.just("invalidate"), WHO),
        st.tuples(st.just("fence"), st.integers(0, 1)),
        st.tuples(st.just("land"), st.none()),
        st.tuples(st.just("tick"), st.sampled_from([0.001, 0.3, 2.0, 40.0])),
        st.tuples(st.just("step clock"), st.sampled_from([-3_600_000, -5, 5_000, 10**10])),
        st.tuples(st.just("complete"), WHO),
        st.tuples(st.just("crash"), st.booleans()),
        st.tuples(st.just("stop"), st.none()),
    ),
    max_size=60,
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
        case "commit", (int() as who, list() as cells, bool() as is_retry) if starts:
            start_ts = starts[-1 - who % len(starts)]
            # A transaction has one write set, however often it asks.
            wanted = driver.history.write_sets.get(start_ts, tuple(cells))
            driver.ask(commit_request(start_ts, wanted, tables=[0], is_retry=is_retry))
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
            # Its client wrote all shadow cells and removed the entry.
            start_ts = starts[-1 - who % len(starts)]
            answered = [a for _, a in driver.sent if getattr(a, "commit_ts", None)]
            if any(getattr(answer, "start_ts", 0) == start_ts for answer in answered):
                driver.disk.entries.pop(start_ts, None)
        case "crash", bool() as was_written:
            if driver.flight is not None and was_written:
                driver.persist()
            return _restarted(driver, settings)
        case "stop", _:
            driver.stop()
            while not driver.is_stopped:
                driver.land()
            return _restarted(driver, settings)
        case _:
            pass
    return driver


def _restarted(driver: Driver, settings: Settings) -> Driver:
    return Driver(
        settings,
        disk=driver.disk,
        clock=driver.clock,
        history=driver.history,
        flushes_at_once=False,
    )
