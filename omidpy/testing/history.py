"""What did each of many clients do, and what did it see?  The record that checkers judge.

A client writes one event a line, as JSON, and each line before it goes on: a process that is killed
leaves everything it had done.  Read back, the events of a transaction become one `Recorded`.  It
lacks any judgement (`checkers.py`) and knows no table (`workloads.py`).

    an outcome is never guessed    a transaction whose client died or heard nothing after it had
                                   asked for the commit is `UNKNOWN`; before that it is `ABORTED`
    a record is bounded            a recorder says when it is full, and reading refuses more

Moments are of one clock that all clients share: they tell which transaction began after which
commit had been acknowledged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, Self, TypeAlias

import msgspec

from omidpy.base.documents import prepared
from omidpy.errors import UsageError

Value: TypeAlias = int | tuple[int, ...] | None
"""What a key holds: a number, a list of numbers, or nothing."""

MAX_EVENTS_PER_CLIENT: Final = 200_000
MAX_EVENTS: Final = 4_000_000


class Kind(StrEnum):
    """What kind of event happened to a transaction."""

    BEGIN = "begin"
    READ = "read"
    WRITE = "write"
    APPEND = "append"
    UNDO = "undo"
    """A savepoint was undone that had written this value: nobody may ever see it."""
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a record."""

    kind: Kind
    transaction: str
    at_ns: int
    workload: str = ""
    start_ts: int = 0
    key: str = ""
    value: Value = None
    seen_ts: int | None = None
    commit_ts: int | None = None
    reason: str = ""
    is_historical: bool = False


class Operation(msgspec.Struct, frozen=True):
    """One read or write of one key.  A write of None is a delete."""

    kind: Kind
    key: str
    value: Value = None
    seen_ts: int | None = None
    """Of a read: when the value was committed, or the reader's own start_ts; None if not known."""


class Told(StrEnum):
    """What a client was told of its commit; one that died before it asked for it is an abort."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Recorded(msgspec.Struct, frozen=True):
    """One transaction, with everything it did, in order."""

    name: str
    start_ts: int
    operations: tuple[Operation, ...] = ()
    told: Told = Told.COMMITTED
    commit_ts: int | None = None
    """None if it did not commit, wrote nothing, or nobody knows."""
    began_ns: int = 0
    """Before the oracle was asked for a snapshot."""
    ended_ns: int | None = None
    """After the answer to the commit; None if none came."""
    workload: str = ""
    reason: str = ""
    """Why it was aborted."""
    is_historical: bool = False
    """It read at an earlier moment, on purpose."""

    def writes(self) -> dict[str, Value]:
        """Return the last value written to each key; appends and undone writes left out."""
        return {one.key: one.value for one in self.operations if one.kind is Kind.WRITE}

    def written_keys(self) -> set[str]:
        """Return the keys that a commit would change."""
        changes = (Kind.WRITE, Kind.APPEND)
        return {one.key for one in self.operations if one.kind in changes}


Sink: TypeAlias = Callable[[Event], None]
"""Where events go."""


class Recorder:
    """Records the transactions of one client, which does one at a time."""

    def __init__(
        self,
        client: str,
        sink: Sink,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
        max_events: int = MAX_EVENTS_PER_CLIENT,
    ) -> None:
        """Begin an empty record.

        Args:
            client: Unique among all clients of the history.
            sink: Where events go.
            now_ns: The clock that all clients of the history share.
            max_events: After so many the record is full.
        """
        self._client = client
        self._sink = sink
        self._now_ns = now_ns
        self._max_events = max_events
        self.event_count = 0
        """Events so far."""
        self._transaction_count = 0

    @property
    def is_full(self) -> bool:
        """Whether no further transaction should be begun."""
        return self.event_count >= self._max_events

    def now_ns(self) -> int:
        """Return the present moment."""
        return self._now_ns()

    def begin(
        self, workload: str, *, start_ts: int, began_ns: int, is_historical: bool = False
    ) -> TransactionRecord:
        """Record that a transaction has begun; `began_ns` was taken before the oracle was asked."""
        self._transaction_count += 1
        record = TransactionRecord(self, f"{self._client}/{self._transaction_count}")
        self.note(
            Event(
                Kind.BEGIN,
                record.name,
                began_ns,
                workload=workload,
                start_ts=start_ts,
                is_historical=is_historical,
            )
        )
        return record

    def note(self, event: Event) -> None:
        """Give an event to the sink, and count it."""
        self.event_count += 1
        self._sink(event)


class TransactionRecord:
    """Records the events of one transaction, in their order."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.name = name
        self._recorder = recorder

    def _note(
        self,
        kind: Kind,
        *,
        key: str = "",
        value: Value = None,
        seen_ts: int | None = None,
        commit_ts: int | None = None,
        reason: str = "",
    ) -> None:
        self._recorder.note(
            Event(
                kind,
                self.name,
                self._recorder.now_ns(),
                key=key,
                value=value,
                seen_ts=seen_ts,
                commit_ts=commit_ts,
                reason=reason,
            )
        )

    def read(self, key: str, value: Value, seen_ts: int | None = None) -> None:
        """Record what was read, and the commit timestamp that came with it."""
        self._note(Kind.READ, key=key, value=value, seen_ts=seen_ts)

    def write(self, key: str, value: int | None) -> None:
        """Record a write, None for a delete; before it is made."""
        self._note(Kind.WRITE, key=key, value=value)

    def append(self, key: str, value: int) -> None:
        """Record an append; before it is made."""
        self._note(Kind.APPEND, key=key, value=value)

    def undo(self, key: str, value: int) -> None:
        """Record a write in a savepoint that will be undone; before it is made."""
        self._note(Kind.UNDO, key=key, value=value)

    def committing(self) -> None:
        """Record that the commit is about to be asked for: from here on the outcome is open."""
        self._note(Kind.COMMITTING)

    def committed(self, commit_ts: int | None) -> None:
        """Record an acknowledged commit; None where nothing was written."""
        self._note(Kind.COMMITTED, commit_ts=commit_ts)

    def aborted(self, reason: str) -> None:
        """Record a certain abort."""
        self._note(Kind.ABORTED, reason=reason)

    def unknown(self) -> None:
        """Record that no answer came."""
        self._note(Kind.UNKNOWN)


class EventFile:
    """A sink that survives the death of its process: each event is one write to the file."""

    def __init__(self, path: Path) -> None:
        """Append to `path`."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, event: Event) -> None:
        """Write an event as one line of JSON."""
        os.write(self._descriptor, msgspec.json.encode(event) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_events(paths: Iterable[Path], *, max_events: int = MAX_EVENTS) -> Iterator[Event]:
    """Yield the events of several files, each in its order.

    A last line without its end is that of a process that was killed in the middle, and left out.

    Raises:
        UsageError: there are more than `max_events`, or a line is none of ours.
    """
    count = 0
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                count += 1
                if count > max_events:
                    raise UsageError(
                        f"the history has more than {max_events} events; record a shorter run"
                    )
                try:
                    yield msgspec.json.decode(line, type=prepared(Event))
                except msgspec.DecodeError as error:
                    raise UsageError(f"{path} is no history: {line[:80]!r}: {error}") from error


def transactions(events: Iterable[Event]) -> list[Recorded]:
    """Return the transactions that some events tell of, in the order in which they began."""
    by_name: dict[str, list[Event]] = {}
    for event in events:
        by_name.setdefault(event.transaction, []).append(event)
    found = [_transaction(name, group) for name, group in by_name.items()]
    return sorted(found, key=lambda one: (one.began_ns, one.start_ts, one.name))


def _transaction(name: str, events: Sequence[Event]) -> Recorded:
    first, last = events[0], events[-1]
    if first.kind is not Kind.BEGIN:
        raise UsageError(f"the history of transaction {name} does not start with its begin")
    told, reason = Told.ABORTED, last.reason
    commit_ts: int | None = None
    ended_ns: int | None = None
    match last.kind:
        case Kind.COMMITTED:
            told, commit_ts, ended_ns = Told.COMMITTED, last.commit_ts, last.at_ns
        case Kind.ABORTED:
            ended_ns = last.at_ns
        case Kind.COMMITTING | Kind.UNKNOWN:
            told = Told.UNKNOWN
        case _:
            reason = "client died"
    kinds = (Kind.READ, Kind.WRITE, Kind.APPEND, Kind.UNDO)
    return Recorded(
        name=name,
        start_ts=first.start_ts,
        operations=tuple(
            Operation(event.kind, event.key, event.value, event.seen_ts)
            for event in events
            if event.kind in kinds
        ),
        told=told,
        commit_ts=commit_ts,
        began_ns=first.at_ns,
        ended_ns=ended_ns,
        workload=first.workload,
        reason=reason,
        is_historical=first.is_historical,
    )
