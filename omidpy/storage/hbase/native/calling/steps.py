"""Things that are done one after another, where the calls of a connection have no order.

Calls of one connection run at the same time, so the order is kept in two ways.  Steps that one
server can do go in one Multi, whose parts it does one after another.  Else each answer is waited
for before the next step is sent.  Within one part HBase reads before it writes, so that no part
has both.

Source: docs/decisions/0060.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from omidpy.storage.hbase.native.calling.calls import Calls, Sent, forget
from omidpy.storage.hbase.native.connections.pool import until
from omidpy.storage.hbase.native.faults import CallFailed, Garbled
from omidpy.storage.hbase.native.values import (
    Action,
    Check,
    Region,
    RegionAction,
    ServerName,
)
from omidpy.storage.hbase.native.wire import messages
from omidpy.storage.hbase.native.wire.answers import PartAnswer, read_multi


class Step(NamedTuple):
    """What is done before the next step begins, in no order of its own."""

    table: str
    actions: Sequence[Action]
    check: Check | None = None
    """Only if it holds the one change, of the same row, is made."""


def in_order(
    calls: Calls, steps: Sequence[Step], *, patience_s: float, durability: int
) -> list[list[PartAnswer]]:
    """Do steps one after another, each begun after the one before has ended; once.

    Args:
        calls: Calls HBase.
        steps: What to do.
        patience_s: How long to wait for all of it.
        durability: Of the changes.

    Returns:
        What became of each step, in each region that it is about.

    Raises:
        CallFailed, OmidError: any of it may have been done.

    Cost: 1 RPC for each run of steps that one server can do, 1 for each server of others.
    """
    until_s = until(patience_s)
    placed = [_parts_of(calls, step, until_s) for step in steps]
    answers: list[list[PartAnswer]] = []
    for run in _runs(placed):
        flat = [part for parts in run for part in parts]
        found = iter(_all_at_once(calls, flat, durability, until_s))
        answers += [[next(found) for _ in parts] for parts in run]
    return answers


def _parts_of(calls: Calls, step: Step, until_s: float) -> list[RegionAction]:
    """Return a step's actions by region."""
    regions: dict[bytes, tuple[Region, list[Action]]] = {}
    for action in step.actions:
        region = calls.locations.locate(step.table, action.row, until_s=until_s)
        regions.setdefault(region.name, (region, []))[1].append(action)
    return [RegionAction(region, actions, step.check) for region, actions in regions.values()]


def _runs(steps: Sequence[list[RegionAction]]) -> Iterator[list[list[RegionAction]]]:
    """Yield steps that follow each other and are of one server; others singly."""
    run: list[list[RegionAction]] = []
    server: ServerName | None = None
    for parts in steps:
        servers = {part.region.server for part in parts}
        alone = servers.pop() if len(servers) == 1 else None
        if run and (alone is None or alone != server):
            yield run
            run = []
        run.append(parts)
        server = alone
    if run:
        yield run


def _all_at_once(
    calls: Calls, parts: Sequence[RegionAction], durability: int, until_s: float
) -> list[PartAnswer]:
    """Do parts by one Multi for each server, those of a server in their order.

    Raises:
        CallFailed: one of them was not done.
    """
    servers: dict[ServerName, list[int]] = {}
    for index, part in enumerate(parts):
        servers.setdefault(part.region.server, []).append(index)
    answers: dict[int, PartAnswer] = {}
    sent: list[tuple[Sent, list[int]]] = []
    try:
        for indexes in servers.values():
            body, cells = messages.multi_request([parts[one] for one in indexes], durability)
            region = parts[indexes[0]].region
            sent.append((calls.send(region, "Multi", body, cells, until_s=until_s), indexes))
        for one, indexes in sent:
            answer = calls.wait(one, until_s, is_patient=False)
            count = sum(len(parts[one].actions) for one in indexes)
            answers.update(zip(indexes, read_multi(answer, len(indexes), count), strict=True))
    except CallFailed as error:
        for part in parts:
            calls.correct(part.region, error)
        raise
    finally:
        forget([one for one, _ in sent])
    for index, part in enumerate(parts):
        if (fault := answers[index].first_fault) is not None:
            calls.correct(part.region, fault)
            raise fault
        _check_whole(part, answers[index])
    return [answers[index] for index in range(len(parts))]


def _check_whole(part: RegionAction, answer: PartAnswer) -> None:
    """Refuse an answer that says nothing of some action: it may not have been done.

    Of a change on a condition only `processed` tells.
    """
    if part.check is not None:
        was_processed(answer)
    elif any(number not in answer.results for number in range(len(part.actions))):
        raise Garbled("an answer lacks a part")


def was_processed(answer: PartAnswer) -> bool:
    """Say whether the condition held, on which the actions of a part are done.

    HBase before 2.4 knows no condition on a part, and does them whether it holds or not.

    Raises:
        Garbled: the answer does not say.
    """
    if answer.processed is None:
        raise Garbled("the answer to a change on a condition does not say whether that held")
    return answer.processed
