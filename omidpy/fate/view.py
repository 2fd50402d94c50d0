"""What is going on?  Operations, their locks, and what each of them waits for now.  Pure.

A snapshot is put together from several reads, so that it may be of no one moment: whatever vanished
in between is left out, or shown with `?`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from omidpy.errors import CorruptCell
from omidpy.fate.locks import LockState, UnreadableQueue
from omidpy.fate.operation import FINISHED, Operation, Status, Unreadable
from omidpy.fate.step import stored_step

UNKNOWN: Final = "?"
"""What a summary prints where nothing is known."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which operations to show; what is empty lets everything pass."""

    ids: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()

    def passes(self, operation: Operation) -> bool:
        """Say whether to show an operation."""
        return (
            (not self.ids or operation.id in self.ids)
            and (not self.states or operation.status in self.states)
            and (not self.kinds or operation.name in self.kinds)
        )


@dataclass(frozen=True, slots=True)
class View:
    """One operation, and its locks."""

    operation: Operation
    held: tuple[LockState, ...]
    waiting: tuple[LockState, ...]

    def running_ms(self, now_ms: int) -> int:
        """Return how long it has been there, up to its end."""
        return max((self.operation.finished_ms or now_ms) - self.operation.created_ms, 0)

    @property
    def step(self) -> str:
        """Name of the top step; empty if there is none, `?` if it cannot be read."""
        stack = self.operation.stack
        if not stack:
            return ""
        try:
            return stored_step(stack[-1], where=self.operation.id).step
        except CorruptCell:
            return UNKNOWN


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that there is, as of about one moment."""

    views: tuple[View, ...]
    """Oldest first."""
    unreadable: tuple[Unreadable, ...]
    dangling: Mapping[str, tuple[LockState, ...]]
    """Locks by operations that are not there."""
    workers: Mapping[str, str]
    """Where each worker runs."""
    now_ms: int
    unreadable_queues: tuple[UnreadableQueue, ...] = ()

    def chosen(self, wanted: Filter) -> list[View]:
        """Return what a filter lets pass."""
        return [view for view in self.views if wanted.passes(view.operation)]


def snapshot(
    operations: Collection[Operation | Unreadable],
    locks: Sequence[LockState],
    workers: Mapping[str, str],
    *,
    now_ms: int,
    unreadable_queues: Collection[UnreadableQueue] = (),
) -> Snapshot:
    """Put together what was read, locks first: an operation is there before its locks."""
    by_operation: dict[str, list[LockState]] = {}
    for state in locks:
        by_operation.setdefault(state.entry.operation, []).append(state)
    readable = [one for one in operations if isinstance(one, Operation)]
    views = []
    for operation in sorted(readable, key=lambda one: (one.created_ms, one.id)):
        states = by_operation.pop(operation.id, [])
        views.append(
            View(
                operation,
                tuple(state for state in states if not state.waits_for),
                tuple(state for state in states if state.waits_for),
            )
        )
    unreadable = tuple(one for one in operations if isinstance(one, Unreadable))
    for one in unreadable:
        by_operation.pop(one.id, None)
    dangling = {one: tuple(states) for one, states in by_operation.items()}
    queues = tuple(unreadable_queues)
    return Snapshot(tuple(views), unreadable, dangling, workers, now_ms, queues)


# -- what it waits for now -------------------------------------------------------------------------


def waiting_for(view: View, found: Snapshot) -> str:
    """Say what an operation waits for now."""
    operation = view.operation
    if operation.status in FINISHED:
        return ""
    if operation.status is Status.NEW:
        return "its submission"
    kinds = {one.operation.id: one.operation.name for one in found.views}
    for state in view.waiting:
        first = state.waits_for[0]
        who = f"{first.operation} ({kinds.get(first.operation, UNKNOWN)})"
        more = f" and {len(state.waits_for) - 1} more" if len(state.waits_for) > 1 else ""
        mode = f"{first.mode} is held or wanted before"
        return f"a {state.entry.mode} lock on {state.table}: {mode} by {who}{more}"
    if operation.reservation is not None:
        where = found.workers.get(operation.reservation.worker)
        if where is None:
            return "another executor: the one that ran it is gone"
        verb = "undone" if operation.status is Status.FAILED_IN_PROGRESS else "run"
        return f"{view.step or 'its step'}, {verb} by {where}"
    return operation.waiting or "an executor"


def named(state: LockState) -> str:
    """Return a lock's mode, and its table's id and name."""
    # Accumulo prints a table's id and its name; on HBase the name is the id.
    return f"{state.entry.mode[0]}:({state.table},t:{state.table})"


def operation_document(view: View, found: Snapshot) -> dict[str, Any]:
    """Return everything about an operation as JSON values."""
    operation = view.operation
    return {
        "id": operation.id,
        "name": operation.name,
        "status": operation.status,
        "step": view.step,
        "waiting_for": waiting_for(view, found),
        "progress": operation.progress,
        "running_s": view.running_ms(found.now_ms) / 1000,
        "created_ms": operation.created_ms,
        "finished_ms": operation.finished_ms,
        "key": None if operation.key is None else msgspec.json.decode(operation.key),
        "auto_clean": operation.auto_clean,
        "is_past_pivot": operation.is_past_pivot,
        "failures": operation.failures,
        "result": operation.result,
        "exception": None if operation.exception is None else str(operation.exception),
        "undo_errors": [str(error) for error in operation.undo_errors],
        "locks_held": [named(state) for state in view.held],
        "locks_waiting": [named(state) for state in view.waiting],
        "stack_depth": len(operation.stack),
    }
