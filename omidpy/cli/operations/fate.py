"""`omidpy fate`: operations of several steps, and what an administrator does to them.

Exit codes: 0 done, 1 failed or refused, 2 usage or configuration, 3 an executor had the operation
all the time, 4 the operation that was waited for has failed, 130 interrupted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Final, TypeAlias

import typer

from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import Apply, AsJson, UnaskedTso, print_json, say
from omidpy.cli.operations.common import (
    EXIT_FAILED,
    EXIT_RESERVED,
    LEFT_ALONE,
    PERHAPS_DONE,
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
from omidpy.cli.operations.run import run
from omidpy.cli.operations.watch import status, wait
from omidpy.errors import FateError
from omidpy.fate.admin import Admin, Outcome, Told, repair_text
from omidpy.fate.listing import dump_document, list_lines, summary_document, summary_lines
from omidpy.fate.locks import UnreadableQueue
from omidpy.fate.operation import FateId, Unreadable
from omidpy.fate.view import operation_document
from omidpy.reports.operations import administrator, read

app: Final = typer.Typer(help="Operations of several steps.", no_args_is_help=True)

WaitTime: TypeAlias = Annotated[
    str, typer.Option("--for", metavar="TIME", help="How long to wait for one that is reserved.")
]


@app.callback()
def fate() -> None:
    """Operations of several steps that survive the death of their executor."""


@app.command("list")
def list_operations(
    ids: Ids = None,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    state: States = None,
    kind: Kinds = None,
    info: Annotated[bool, typer.Option("--info", "-i", help="Show all that is known.")] = False,
    as_json: AsJson = False,
) -> None:
    """List operations with the locks that they hold and want; Accumulo's flags are taken too."""
    del tso
    asked = wanted(ids, state, kind)
    with opened_fates(store) as fates:
        found = read(fates)
    if as_json:
        print_json([operation_document(view, found) for view in found.chosen(asked)])
    else:
        say("\n".join(list_lines(found, asked, has_details=info)))
    check_known(found, asked)


app.command("print", hidden=True)(list_operations)


@app.command()
def summary(
    ids: Ids = None,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    state: States = None,
    kind: Kinds = None,
    as_json: AsJson = False,
) -> None:
    """Count operations by status, kind and step, and show since when each is there."""
    del tso
    asked = wanted(ids, state, kind)
    with opened_fates(store) as fates:
        found = read(fates)
    if as_json:
        say(json.dumps(summary_document(found, asked), indent=2))
    else:
        say("\n".join(summary_lines(found, asked)))
    check_known(found, asked)


@app.command()
def dump(
    ids: Ids = None,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    state: States = None,
    kind: Kinds = None,
    as_json: AsJson = False,
) -> None:
    """Print the stacks of operations as JSON, the top first."""
    del tso, as_json
    asked = wanted(ids, state, kind)
    with opened_fates(store) as fates:
        found = read(fates)
    say(json.dumps(dump_document(found, asked), indent=2))
    check_known(found, asked)


@app.command()
def cancel(
    ids: SomeIds, *, store: FateStoreUrl, tso: UnaskedTso = None, as_json: AsJson = False
) -> None:
    """Roll back operations of which no step was called yet."""
    del tso
    _change(store, ids, lambda admin: admin.cancel, verb="cancel", wait_s=0, as_json=as_json)


@app.command()
def fail(
    ids: SomeIds,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    wait_for: WaitTime = "60s",
    as_json: AsJson = False,
) -> None:
    """Roll back operations that are under way; each must be free while that is noted."""
    del tso
    wait_s = seconds_in(wait_for, name="--for")
    _change(store, ids, lambda admin: admin.fail, verb="fail", wait_s=wait_s, as_json=as_json)


@app.command()
def delete(
    ids: SomeIds,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    wait_for: WaitTime = "60s",
    past_pivot: Annotated[
        bool,
        typer.Option(
            "--past-pivot",
            help="Also those past their pivot: what they have begun stays half-done for ever.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove operations and their locks; what their steps have done stays as it is."""
    del tso
    wait_s = seconds_in(wait_for, name="--for")

    def change(admin: Admin) -> Callable[[FateId], Told]:
        return partial(admin.delete, is_past_pivot_too=past_pivot)

    _change(store, ids, change, verb="delete", wait_s=wait_s, as_json=as_json)


@app.command()
def repair(
    which: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID|TABLE]...",
            help="Only these operations, and these tables' locks; by default all that is damaged.",
        ),
    ] = None,
    *,
    store: FateStoreUrl,
    tso: UnaskedTso = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Remove what cannot be read: operations with their keys, and locks; without --apply, show it.

    Of a table's locks those stay that can be read.
    """
    del tso
    with opened_fates(store, interrupted=PERHAPS_DONE if apply else LEFT_ALONE) as fates:
        found = read(fates)
        damaged: dict[str, Unreadable | UnreadableQueue] = {
            **{one.table: one for one in found.unreadable_queues},
            **{one.id: one for one in found.unreadable},
        }
        if missing := sorted(set(which or ()) - set(damaged)):
            raise FateError(f"nothing of {', '.join(missing)} is damaged; `omidpy fate list` shows")
        chosen = [damaged[one] for one in which or damaged]
        admin = Admin(fates)
        told = [
            admin.repair(one) if apply else Told(Outcome.DONE, f"would: {repair_text(one)}")
            for one in chosen
        ]
    if as_json:
        print_json(
            [
                {"what": what, "applied": apply, "outcome": one.outcome.value, "text": one.text}
                for what, one in zip(which or damaged, told, strict=True)
            ]
        )
    else:
        lines = [one.text for one in told] or ["nothing is damaged"]
        if told and not apply:
            lines.append("nothing was changed; add --apply")
        say("\n".join(lines))
    if any(one.outcome is Outcome.REFUSED for one in told):
        raise typer.Exit(EXIT_FAILED)


app.command("status")(status)
app.command("wait")(wait)
app.command("run")(run)


def _change(
    store: str,
    ids: Sequence[str],
    change: Callable[[Admin], Callable[[FateId], Told]],
    *,
    verb: str,
    wait_s: float,
    as_json: bool,
) -> None:
    """Change operations one by one, and say what became of each."""
    operation_ids = parsed(ids)
    answers: list[tuple[FateId, Told]] = []
    try:
        with opened_fates(store, interrupted=PERHAPS_DONE) as fates:
            admin = administrator(fates, wait_s=wait_s)
            for operation_id in operation_ids:
                told = change(admin)(operation_id)
                answers.append((operation_id, told))
                if not as_json:
                    say(told.text)
    finally:
        # Also of those before one that could not be changed, or not be told.
        if as_json and answers:
            print_json(
                [
                    {"id": operation_id, "outcome": told.outcome.value, "text": told.text}
                    for operation_id, told in answers
                ]
            )
    for operation_id, told in answers:
        if told.outcome is Outcome.RESERVED:
            say(f"Could not {verb} transaction: {operation_id}", err=True)
    outcomes = {told.outcome for _, told in answers}
    if Outcome.RESERVED in outcomes:
        raise typer.Exit(EXIT_RESERVED)
    if Outcome.REFUSED in outcomes:
        raise typer.Exit(EXIT_FAILED)
