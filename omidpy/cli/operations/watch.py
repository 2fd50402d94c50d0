"""`omidpy fate status|wait`: what is an operation waiting for now, and how did it end?"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import AsJson, UnaskedTso, print_json, say
from omidpy.cli.operations.common import (
    EXIT_FAILED,
    EXIT_OPERATION_FAILED,
    FateStoreUrl,
    Ids,
    Kinds,
    SomeIds,
    States,
    check_known,
    opened_fates,
    parsed,
    wanted,
)
from omidpy.errors import FateError
from omidpy.fate.client import Fate
from omidpy.fate.listing import clock, queue_lines
from omidpy.fate.operation import FateId, Operation, Status
from omidpy.fate.store import FateStore
from omidpy.fate.view import Filter, Snapshot, View, named, operation_document, waiting_for
from omidpy.reports.operations import read

LOOK_EVERY_S = 0.5


def status(
    ids: Ids = None,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    state: States = None,
    kind: Kinds = None,
    live: Annotated[bool, typer.Option("--live", help="Look again and again, until ^C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what each operation that is not finished is waiting for now."""
    del tso
    asked = wanted(ids, state, kind)
    with opened_fates(store) as fates:
        if live and not as_json:
            _show_live(fates, asked)
            return
        found = read(fates)
    chosen = _interesting(found, asked)
    if as_json:
        print_json([operation_document(view, found) for view in chosen])
    else:
        say("\n".join(status_lines(found, asked)))
    check_known(found, asked)


def status_lines(found: Snapshot, asked: Filter) -> list[str]:
    """Return what `status` prints: a few lines for each operation."""
    lines: list[str] = []
    for view in _interesting(found, asked):
        operation = view.operation
        lines.append(
            f"{operation.id}  {operation.name}  {operation.status}  "
            f"{clock(view.running_ms(found.now_ms))}  {view.step}".rstrip()
        )
        facts: list[tuple[str, object]] = [
            ("waits for", waiting_for(view, found)),
            ("progress", operation.progress),
            ("failed", operation.exception or ""),
            *(("not undone", error) for error in operation.undo_errors),
            ("result", "" if operation.result is None else operation.result),
            ("holds", ", ".join(named(one) for one in view.held)),
            ("pivot", "passed: it only rolls forward" if operation.is_past_pivot else ""),
        ]
        lines += [f"  {name:<10} {fact}" for name, fact in facts if fact != ""]
    lines += [f"{one.id}  cannot be read: {one.reason}" for one in found.unreadable]
    lines += queue_lines(found)
    return lines or ["nothing is under way"]


def wait(
    ids: SomeIds,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Give up after so long; the operation goes on."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until operations are finished.  Exit code 4 if one of them failed."""
    del tso
    operation_ids = parsed(ids)
    timeout_s = None if timeout is None else seconds_in(timeout, name="--timeout")
    with opened_fates(store) as fates:
        ended = _wait_for_all(fates, operation_ids, timeout_s)
    if as_json:
        print_json([_end_document(one) for one in ended])
    else:
        for one in ended:
            say(_end_line(one))
    statuses = {one.status for one in ended}
    if Status.FAILED in statuses:
        raise typer.Exit(EXIT_OPERATION_FAILED)
    if statuses != {Status.SUCCESSFUL}:
        raise typer.Exit(EXIT_FAILED)


def _interesting(found: Snapshot, asked: Filter) -> list[View]:
    """Return what was asked for; without that, what is not finished."""
    chosen = found.chosen(asked)
    if asked.ids or asked.states:
        return chosen
    return [view for view in chosen if not view.operation.is_finished]


def _show_live(fates: FateStore, asked: Filter) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where somebody looks
    from rich.live import Live  # noqa: PLC0415 - see above
    from rich.text import Text  # noqa: PLC0415 - see above

    with Live(console=Console(), auto_refresh=False) as live:
        while True:
            live.update(Text("\n".join(status_lines(read(fates), asked))), refresh=True)
            time.sleep(LOOK_EVERY_S)


def _wait_for_all(
    fates: FateStore, operation_ids: list[FateId], timeout_s: float | None
) -> list[Operation]:
    """Wait for each; return them as they were last read."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    client = Fate(None, fates, {})
    ended = []
    with _shown() as show:
        for operation_id in operation_ids:
            found = fates.existing(operation_id)
            while not found.is_finished:
                show(found)
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                pause_s = LOOK_EVERY_S if left_s is None else min(LOOK_EVERY_S, left_s)
                read_now = client.wait_for(operation_id, pause_s)
                if read_now is None:
                    raise FateError(
                        f"operation {operation_id} is gone, and its outcome with it: somebody "
                        "deleted it, or it ended while nobody looked, and was not kept so long"
                    )
                found = read_now
            ended.append(found)
    return ended


@contextmanager
def _shown() -> Iterator[Any]:
    """Show a bar on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # noqa: PLC0415 - only where somebody waits
    from rich.progress import (  # noqa: PLC0415 - see above
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("waiting", total=None, what="")

        def show(found: Operation) -> None:
            what = found.progress or found.waiting or str(found.status)
            bar.update(task, description=f"{found.name} {found.id}", what=what)

        yield show


def _end_line(found: Operation) -> str:
    if found.status is Status.SUCCESSFUL:
        result = "" if found.result is None else f" {found.result}"
        return f"{found.id} {found.status}{result}"
    if found.status is Status.FAILED:
        left = "".join(f"; not undone: {error}" for error in found.undo_errors)
        return f"{found.id} {found.status} {found.exception}{left}"
    return f"{found.id} {found.status}, still waiting for {found.waiting or 'an executor'}"


def _end_document(found: Operation) -> dict[str, Any]:
    return {
        "id": found.id,
        "name": found.name,
        "status": found.status,
        "result": found.result,
        "exception": None if found.exception is None else str(found.exception),
        "undo_errors": [str(error) for error in found.undo_errors],
    }
