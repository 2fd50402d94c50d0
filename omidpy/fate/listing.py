"""Operations as Accumulo's `admin fate` shows them: `list`, `summary` and `dump`.  Pure.

Lines and names are those of Accumulo 2.1, which scripts and people read already; where its main
branch has other names in JSON, both are there.

Source: Apache Accumulo, AdminUtil, FateSummaryReport and FateTxnDetails: their texts, no code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from omidpy.errors import CorruptCell
from omidpy.fate.locks import LockState
from omidpy.fate.operation import FINISHED
from omidpy.fate.step import stored_step
from omidpy.fate.view import UNKNOWN, Filter, Snapshot, View, named, operation_document

# -- list ------------------------------------------------------------------------------------------


def list_lines(found: Snapshot, wanted: Filter, *, has_details: bool) -> list[str]:
    """Return the lines of `omidpy fate list`."""
    lines = []
    chosen = found.chosen(wanted)
    for view in chosen:
        operation = view.operation
        ranges = _ranges((*view.held, *view.waiting))
        lines.append(
            f"{operation.name:<15} txid: {operation.id}  status: {operation.status:<18} "
            f"locked: {_short(view.held):<15} locking: {_short(view.waiting):<15} "
            f"op: {view.step:<15} created: {iso(operation.created_ms)}"
            + (f" lock range: {ranges}" if ranges else "")
        )
        if has_details:
            details = msgspec.json.encode(operation_document(view, found)).decode()
            lines.append(f"\t Transaction details: {details}")
    lines += [f"{UNKNOWN:<15} txid: {one.id}  {one.reason}" for one in found.unreadable]
    lines += queue_lines(found)
    lines.append(f" {len(chosen)} transactions")
    if found.dangling:
        lines.append("The following locks did not have an associated FATE operation")
        for operation_id, states in found.dangling.items():
            kinds = (("locked", False), ("locking", True))
            for name, waits in kinds:
                of_kind = [state for state in states if bool(state.waits_for) is waits]
                if of_kind:
                    lines.append(f"txid: {operation_id}  {name}: {_short(of_kind)}")
    return lines


def queue_lines(found: Snapshot) -> list[str]:
    """Return a line for each queue for locks that cannot be read."""
    return [
        f"{UNKNOWN:<15} locks on {one.table}: {one.reason}; see `omidpy fate repair`"
        for one in found.unreadable_queues
    ]


def iso(milliseconds: int) -> str:
    """Return wall time as text, in UTC; ERROR if it is none."""
    try:
        moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return "ERROR"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _short(states: Sequence[LockState]) -> str:
    names = ", ".join(f"{state.entry.mode[0]}:{state.table}" for state in states)
    return f"[{names}]"


def _ranges(states: Sequence[LockState]) -> str:
    return ", ".join(
        f"{state.table} [{_key(state.entry.start, '-inf')}, {_key(state.entry.end, '+inf')})"
        for state in states
        if state.entry.start or state.entry.end
    )


def _key(key: bytes, empty: str) -> str:
    return repr(key)[1:] if key else empty


# -- summary ---------------------------------------------------------------------------------------

_HEADER: Final = (
    "Running\ttxn_id\t\t\t\tStatus\t\tCommand\t\tStep (top)\t\tlocks held:(table id, name)\t"
    "locks waiting:(table id, name)"
)


def summary_lines(found: Snapshot, wanted: Filter) -> list[str]:
    """Return the lines of `omidpy fate summary`: all is counted, and what was asked for shown."""
    statuses, kinds, steps = _counts(found)
    lines = [f"Report Time: {iso(found.now_ms)[:-5]}Z"]
    for title, counts in (("Status", statuses), ("Command", kinds), ("Step", steps)):
        lines.append(f"{title} counts:")
        lines += [f"  {name}: {count}" for name, count in sorted(counts.items())]
    lines += [
        "",
        "Fate transactions (oldest first):",
        f"Status Filters: [{_listed(wanted.states)}]",
        f"Fate ID Filters: [{_listed(wanted.ids)}]",
        "",
        _HEADER,
    ]
    for view in found.chosen(wanted):
        operation = view.operation
        lines.append(
            f"{clock(view.running_ms(found.now_ms))}\t{operation.id}\t{operation.status}\t"
            f"{operation.name or UNKNOWN}\t{view.step or UNKNOWN}\t"
            f"held:{_long(view.held)}\twaiting:{_long(view.waiting)}"
        )
    lines += [f"{UNKNOWN}\t{one.id}\t{one.reason}" for one in found.unreadable]
    return lines + queue_lines(found)


def summary_document(found: Snapshot, wanted: Filter) -> dict[str, Any]:
    """Return the same as JSON values."""
    statuses, kinds, steps = _counts(found)
    return {
        "statusCounts": dict(sorted(statuses.items())),
        "cmdCounts": dict(sorted(kinds.items())),
        "stepCounts": dict(sorted(steps.items())),
        "fateDetails": [_detail(view, found) for view in found.chosen(wanted)],
        "unreadable": [{"txnId": one.id, "reason": one.reason} for one in found.unreadable],
        **_unreadable_locks(found),
        "reportTime": found.now_ms,
        "fateIdFilter": sorted(wanted.ids),
        "statusFilterNames": sorted(wanted.states),
        "commandFilterNames": sorted(wanted.kinds),
    }


def _unreadable_locks(found: Snapshot) -> dict[str, Any]:
    """Return what Accumulo has no name for, where there is any."""
    locks = [{"table": one.table, "reason": one.reason} for one in found.unreadable_queues]
    return {"unreadableLocks": locks} if locks else {}


def _detail(view: View, found: Snapshot) -> dict[str, Any]:
    operation = view.operation
    return {
        "running": view.running_ms(found.now_ms),
        "status": operation.status,
        "fateOp": operation.name,
        "txName": operation.name,
        "step": view.step or UNKNOWN,
        "fateId": operation.id,
        "txnId": operation.id,
        "locksHeld": [named(state) for state in view.held],
        "locksWaiting": [named(state) for state in view.waiting],
    }


def _counts(found: Snapshot) -> tuple[Counter[str], Counter[str], Counter[str]]:
    operations = [view.operation for view in found.views]
    return (
        Counter(str(one.status) for one in operations),
        Counter(one.name for one in operations),
        Counter(view.step for view in found.views if view.step),
    )


def counted(found: Snapshot) -> dict[tuple[str, str], int]:
    """Return how many operations there are of each kind and status, as a summary counts them."""
    operations = [view.operation for view in found.views]
    return dict(Counter((one.name or UNKNOWN, str(one.status)) for one in operations))


def oldest_s(found: Snapshot) -> dict[str, float]:
    """Return for how many seconds the oldest operation of each kind has been under way."""
    oldest: dict[str, float] = {}
    for view in found.views:
        if view.operation.status not in FINISHED:
            kind = view.operation.name or UNKNOWN
            oldest[kind] = max(oldest.get(kind, 0.0), view.running_ms(found.now_ms) / 1000)
    return oldest


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "NONE"


def clock(milliseconds: int) -> str:
    """Return a duration as H:MM:SS."""
    seconds = milliseconds // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _long(states: Sequence[LockState]) -> str:
    return f"[{', '.join(map(named, states))}]"


# -- dump ------------------------------------------------------------------------------------------


def dump_document(found: Snapshot, wanted: Filter) -> list[dict[str, Any]]:
    """Return the stacks of operations as JSON values, the top first."""
    return [
        {
            "txIdString": view.operation.id,
            "stack": [_dumped(raw) for raw in reversed(view.operation.stack)],
        }
        for view in found.chosen(wanted)
    ]


def _dumped(raw: bytes) -> dict[str, Any]:
    try:
        stored = stored_step(raw, where="it")
    except CorruptCell as error:
        return {UNKNOWN: str(error)}
    return {stored.step: stored.fields, "version": stored.version}
