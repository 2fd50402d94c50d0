"""The record of what clients did: written as they go, read back after some of them were killed."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from omidpy.errors import UsageError
from omidpy.testing.history import (
    Event,
    EventFile,
    Kind,
    Operation,
    Recorded,
    Recorder,
    Told,
    read_events,
    transactions,
)


def recorder(events: list[Event], *, max_events: int = 1000) -> Recorder:
    """Return a recorder whose clock ticks once a look."""
    ticks = count(1)
    return Recorder("c", events.append, now_ns=lambda: next(ticks), max_events=max_events)


def test_a_transaction_is_read_back_as_it_was_recorded(tmp_path: Path) -> None:
    """Through the file and back, in the order of the operations."""
    path = tmp_path / "c.jsonl"
    ticks = count(1)
    with EventFile(path) as sink:
        record = Recorder("c", sink, now_ns=lambda: next(ticks)).begin(
            "registers", start_ts=100, began_ns=0
        )
        record.read("x", (1, 2), 50)
        record.undo("x", 8)
        record.write("x", None)
        record.append("l", 3)
        record.committing()
        record.committed(150)
    (found,) = transactions(read_events([path]))
    assert found == Recorded(
        name="c/1",
        start_ts=100,
        operations=(
            Operation(Kind.READ, "x", (1, 2), 50),
            Operation(Kind.UNDO, "x", 8),
            Operation(Kind.WRITE, "x"),
            Operation(Kind.APPEND, "l", 3),
        ),
        commit_ts=150,
        began_ns=0,
        ended_ns=6,
        workload="registers",
    )
    assert found.written_keys() == {"x", "l"}
    assert found.writes() == {"x": None}


@pytest.mark.parametrize(
    ("last", "told", "reason"),
    [
        ("write", Told.ABORTED, "client died"),
        ("committing", Told.UNKNOWN, ""),
        ("unknown", Told.UNKNOWN, ""),
        ("aborted", Told.ABORTED, "WriteConflict"),
    ],
)
def test_a_client_that_died_leaves_the_outcome_open_only_after_it_asked(
    last: str, told: Told, reason: str
) -> None:
    """Before the question nothing can have committed; after it nobody knows."""
    events: list[Event] = []
    record = recorder(events).begin("w", start_ts=100, began_ns=0)
    record.write("x", 1)
    if last != "write":
        record.committing()
    if last == "unknown":
        record.unknown()
    if last == "aborted":
        record.aborted("WriteConflict")
    (found,) = transactions(events)
    assert (found.told, found.reason, found.commit_ts) == (told, reason, None)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    """A process was killed in the middle of a write."""
    path = tmp_path / "c.jsonl"
    with EventFile(path) as sink:
        Recorder("c", sink).begin("w", start_ts=100, began_ns=0).write("x", 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    assert [event.kind for event in read_events([path])] == [Kind.BEGIN]


def test_a_history_is_bounded_on_both_sides(tmp_path: Path) -> None:
    """A recorder says when it is full; a reader refuses more than it can hold."""
    events: list[Event] = []
    full = recorder(events, max_events=2)
    record = full.begin("w", start_ts=100, began_ns=0)
    assert not full.is_full
    record.write("x", 1)
    assert full.is_full
    path = tmp_path / "c.jsonl"
    with EventFile(path) as sink:
        for event in events:
            sink(event)
    with pytest.raises(UsageError, match="more than 1 events; record a shorter run"):
        list(read_events([path], max_events=1))


def test_a_file_that_is_no_history_is_refused(tmp_path: Path) -> None:
    """The message names the file and the line."""
    path = tmp_path / "c.jsonl"
    path.write_text('{"kind": "dance"}\n')
    with pytest.raises(UsageError, match=r"c\.jsonl is no history.*dance"):
        list(read_events([path]))


def test_a_history_without_its_beginning_is_refused() -> None:
    """Half a transaction would be judged wrongly."""
    events: list[Event] = []
    recorder(events).begin("w", start_ts=100, began_ns=0).write("x", 1)
    with pytest.raises(UsageError, match="does not start with its begin"):
        transactions(events[1:])
