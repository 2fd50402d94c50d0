"""What is known of an operation, and which changes are right?  Pure.

An operation is a stack of steps, whose top is running or next, and a status:

    NEW --> SUBMITTED --> IN_PROGRESS --> SUCCESSFUL
     |          |              |
     +----------+--------------+--> FAILED_IN_PROGRESS --> FAILED

A change is a function from the record to the next one.  A store writes the difference if nothing
was written since the record was read (`Operation.version`), so that what is checked here holds
where it is written.  There is no other guard: an executor whose reservation was broken has an old
version in its hand, and its next write fails.

The end is one change: status, result and the empty stack together (F2).  Steps are pushed only
while an operation goes forward, and taken away only while it is undone or as it ends.

Source: Accumulo's statuses, and which of them may follow which.  Unlike it a step that failed to be
undone is listed (`undo_errors`), and behind a pivot nothing is undone.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final, NewType

import msgspec
from msgspec.structs import replace

from omidpy.base.documents import Natural
from omidpy.base.words.arguments import check_storable
from omidpy.base.words.printable import storable
from omidpy.errors import FateError, UsageError

FateId = NewType("FateId", str)
"""16 hex digits, chosen at random and never used again."""

MAX_STACK: Final = 100
"""Steps on one stack; what loops uses `Step.again`."""

MAX_TEXT: Final = 4000
"""Characters that are kept of a message: a listing shows them all."""

MAX_TEXT_BYTES: Final = 6000
"""The same as JSON: what a hundred steps say that cannot be undone must fit into one znode."""

CANCELLED: Final = "cancelled by user"

_ID: Final = re.compile(r"(?:tx_|FATE\[)?([0-9a-f]{16})\]?")


class Status(StrEnum):
    """Where an operation is in its life."""

    NEW = "NEW"
    """It has an id and a first step, and no executor runs it yet."""
    SUBMITTED = "SUBMITTED"
    """It may be run; no step was called yet, so that it can be cancelled."""
    IN_PROGRESS = "IN_PROGRESS"
    FAILED_IN_PROGRESS = "FAILED_IN_PROGRESS"
    """Its steps are being undone, from the top down."""
    FAILED = "FAILED"
    SUCCESSFUL = "SUCCESSFUL"
    UNKNOWN = "UNKNOWN"
    """There is no such operation, or not any more."""


FINISHED: Final = frozenset({Status.FAILED, Status.SUCCESSFUL})
RUNNABLE: Final = frozenset({Status.SUBMITTED, Status.IN_PROGRESS, Status.FAILED_IN_PROGRESS})
CANCELLABLE: Final = frozenset({Status.NEW, Status.SUBMITTED})


class Failure(msgspec.Struct, frozen=True):
    """What went wrong, in words that a person can use."""

    message: str
    type: str = ""
    """Name of the exception's class."""
    step: str = ""
    phase: str = ""
    """`ready`, `call` or `undo`."""
    at: str = ""
    """File, line and function where it was raised."""

    def __str__(self) -> str:
        kind = f"{self.type}: " if self.type else ""
        where = f"{self.step}.{self.phase}: " if self.step else ""
        at = f" (at {self.at})" if self.at else ""
        return f"{where}{kind}{self.message}{at}"


class Reservation(msgspec.Struct, frozen=True):
    """The right of one worker to run an operation, until it is given up or broken."""

    worker: str
    attempt: str
    """Chosen for this reservation alone."""


class Rest(msgspec.Struct, frozen=True):
    """How long the top step rests since it has failed; see `running/pacing.py`."""

    pause_ms: Natural
    boot: str = ""
    """Whose clock says when it is over (`Clock.boot`)."""
    due_ms: Natural = 0
    """When: elapsed time of that boot."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is kept of an operation."""

    id: FateId
    name: str
    """What kind of operation it is; chooses the pool that runs it."""
    status: Status = Status.NEW
    version: int = 1
    """Grows by one with each write: what every write is checked against."""
    write_id: str = ""
    """Names the last write, so that a writer whose answer was lost recognises its own."""
    created_ms: int = 0
    key: str | None = None
    """JSON of the key that it was submitted under."""
    auto_clean: bool = False
    is_past_pivot: bool = False
    reservation: Reservation | None = None
    stack: tuple[bytes, ...] = ()
    """Stored steps, the seeded one first."""
    result: Any = None
    exception: Failure | None = None
    """Why it is rolled back, or was."""
    undo_errors: tuple[Failure, ...] = ()
    progress: str = ""
    waiting: str = ""
    """What it was waiting for when it was last looked at."""
    failures: int = 0
    """How often the top step has failed, forward or in being undone."""
    rest: Rest | None = None
    """Before it is tried again; None: it has not failed, or an earlier version has noted it."""
    finished_ms: int | None = None
    """Wall time of its end."""

    @property
    def is_finished(self) -> bool:
        """Whether its outcome is final."""
        return self.status in FINISHED


class Unreadable(msgspec.Struct, frozen=True):
    """An operation whose record cannot be read here, and why; it is left alone."""

    id: FateId
    reason: str


# -- names -----------------------------------------------------------------------------------------


def new_id() -> FateId:
    """Return an id that no operation ever had."""
    return FateId(secrets.token_hex(8))


def is_id(text: str) -> bool:
    """Say whether a text is an id as it is kept."""
    found = _ID.fullmatch(text)
    return found is not None and found[1] == text


def parse_id(text: str) -> FateId:
    """Read an id as we or Accumulo's tools print it.

    Raises:
        UsageError: it is none.
    """
    found = _ID.fullmatch(text)
    if found is None:
        raise UsageError(
            f"Invalid transaction ID: {text!r}; an id has 16 hex digits, as in 0c143900c230c1df"
        )
    return FateId(found[1])


def key_text(key: object) -> str:
    """Return a submission's key as canonical JSON.

    Raises:
        UsageError: it is no text, number, or tuple of those, or too long.
    """
    parts = key if isinstance(key, tuple | list) else (key,)
    if not parts or not all(type(part) in (str, int, bool) for part in parts):
        raise UsageError(
            f"key={key!r} cannot name an operation; use text, a number, or a tuple of those, "
            'such as ("prune", "accounts")'
        )
    for part in parts:
        check_storable("a part of the key", str(part))
    text = msgspec.json.encode(list(parts)).decode()
    if len(text) > MAX_TEXT:
        raise UsageError(
            f"key={text[:40]}... has {len(text)} characters as JSON, and {MAX_TEXT} is the limit; "
            "use a digest of it"
        )
    return text


def shortened(text: str) -> str:
    """Cut a text that a listing could not show, and let it be one that can be kept."""
    text = storable(text)
    kept = text[:MAX_TEXT]
    while len(msgspec.json.encode(kept)) > MAX_TEXT_BYTES:
        kept = kept[: len(kept) * 3 // 4]
    return text if len(kept) == len(text) else kept[:-3] + "..."


def failure_of(error: BaseException, *, step: str = "", phase: str = "") -> Failure:
    """Describe an exception as it is stored with an operation: its type, and what it says."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    at = ""
    if frame is not None:
        code = frame.tb_frame.f_code
        at = storable(f"{code.co_filename}:{frame.tb_lineno} in {code.co_name}")
    return Failure(shortened(_said(error)), type(error).__name__, step, phase, at)


def _said(error: BaseException) -> str:
    """Return what an exception says; its class may be the step's own, and fail at that."""
    try:
        return str(error)
    except Exception as failure:  # noqa: BLE001 - of any kind
        return f"(it cannot say what: {type(failure).__name__})"


# -- changes ---------------------------------------------------------------------------------------


def _require(
    operation: Operation, action: str, allowed: Sequence[Status] | frozenset[Status]
) -> None:
    if operation.status not in allowed:
        names = ", ".join(sorted(allowed))
        raise FateError(
            f"operation {operation.id} is {operation.status}, so it cannot be {action}, which "
            f"needs {names}"
        )


def seeded(operation: Operation) -> Operation:
    """Let it be run."""
    _require(operation, "submitted", (Status.NEW,))
    return replace(operation, status=Status.SUBMITTED)


def reserved(operation: Operation, reservation: Reservation) -> Operation:
    """Give one worker the right to run it."""
    _require(operation, "reserved", frozenset(Status) - {Status.UNKNOWN})
    if operation.reservation is not None:
        raise FateError(f"operation {operation.id} is reserved by {operation.reservation.worker}")
    return replace(operation, reservation=reservation)


def released(operation: Operation, *, waiting: str | None = None) -> Operation:
    """Give the right up; or break it, if its worker is dead."""
    return replace(
        operation,
        reservation=None,
        waiting=operation.waiting if waiting is None else shortened(waiting),
    )


def started(operation: Operation, *, is_pivot: bool) -> Operation:
    """Note, before the top step is called, what can no longer be taken back."""
    _require(operation, "started", (Status.SUBMITTED, Status.IN_PROGRESS))
    return replace(
        operation,
        status=Status.IN_PROGRESS,
        is_past_pivot=operation.is_past_pivot or is_pivot,
        waiting="",
    )


def pushed(operation: Operation, step: bytes, *, max_stack: int = MAX_STACK) -> Operation:
    """Note that the top step is done and which one follows."""
    _require(operation, "carried on", (Status.IN_PROGRESS,))
    if len(operation.stack) >= max_stack:
        raise FateError(
            f"operation {operation.id} has {len(operation.stack)} steps on its stack, and "
            f"{max_stack} is the limit; a step that loops goes on with self.again(...)"
        )
    return replace(
        operation,
        stack=(*operation.stack, step),
        failures=0,
        rest=None,
        waiting="",
        progress="",
    )


def replaced(operation: Operation, step: bytes) -> Operation:
    """Let the top step go on with other fields."""
    _require(operation, "carried on", (Status.IN_PROGRESS,))
    return replace(
        operation, stack=(*operation.stack[:-1], step), failures=0, rest=None, waiting=""
    )


def succeeded(operation: Operation, result: Any, *, now_ms: int) -> Operation:
    """End it well: status, result, empty stack and the reservation's end are one change."""
    _require(operation, "finished", (Status.IN_PROGRESS,))
    return replace(
        operation,
        status=Status.SUCCESSFUL,
        result=result,
        stack=(),
        reservation=None,
        waiting="",
        failures=0,
        rest=None,
        finished_ms=now_ms,
    )


def tried(operation: Operation, *, waiting: str, rest: Rest | None = None) -> Operation:
    """Note that the top step failed and is tried again, behind a rest."""
    _require(
        operation,
        "tried again",
        (Status.SUBMITTED, Status.IN_PROGRESS, Status.FAILED_IN_PROGRESS),
    )
    return replace(
        operation, failures=operation.failures + 1, rest=rest, waiting=shortened(waiting)
    )


def failed(operation: Operation, failure: Failure) -> Operation:
    """Turn round: the steps are undone from now on, and this is why.  One change.

    Raises:
        FateError: it is finished, or past its pivot.
    """
    _require(operation, "failed", (Status.NEW, Status.SUBMITTED, Status.IN_PROGRESS))
    if operation.is_past_pivot:
        raise FateError(
            f"operation {operation.id} is past its pivot and only rolls forward; mend what "
            f"it is waiting for ({operation.waiting or 'its next step'})"
        )
    return replace(
        operation,
        status=Status.FAILED_IN_PROGRESS,
        exception=failure,
        failures=0,
        rest=None,
        waiting="",
    )


def given_up(operation: Operation, failure: Failure, *, now_ms: int) -> Operation:
    """End it in failure at once: for steps of which none has anything to undo.  One change.

    Raises:
        FateError: it is finished, or past its pivot.
    """
    turned = failed(operation, failure)
    return replace(turned, status=Status.FAILED, stack=(), reservation=None, finished_ms=now_ms)


def cancelled(operation: Operation) -> Operation:
    """Turn round before any step was called; no reservation stands in the way.

    Raises:
        FateError: a step was called, or may have been.
    """
    _require(operation, "cancelled", CANCELLABLE)
    return replace(failed(operation, Failure(CANCELLED)), reservation=None)


def undone(operation: Operation, *, error: Failure | None, now_ms: int) -> Operation:
    """Take the top step away; the last one with the status FAILED and the reservation's end.

    Args:
        operation: Which.
        error: Why it could not be undone, which is listed for ever (F8); None: it was.
        now_ms: Wall time.
    """
    _require(operation, "undone", (Status.FAILED_IN_PROGRESS,))
    errors = operation.undo_errors if error is None else (*operation.undo_errors, error)
    popped = replace(
        operation,
        stack=operation.stack[:-1],
        undo_errors=errors,
        failures=0,
        rest=None,
        waiting="",
    )
    if popped.stack:
        return popped
    return replace(popped, status=Status.FAILED, reservation=None, finished_ms=now_ms)
