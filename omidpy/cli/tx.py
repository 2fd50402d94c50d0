"""`omidpy tx inspect|outcome`: what became of one transaction?"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from omidpy.base.timing.clock import SystemClock
from omidpy.cli.common import (
    AsJson,
    Metrics,
    StoreUrl,
    UnaskedTso,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.facts.inspection import inspect
from omidpy.reports.servers import parts_of
from omidpy.reports.transactions import (
    as_document,
    began_by,
    began_text,
    check_start_ts,
    outcome_document,
)

app: Final = typer.Typer(help="Single transactions.", no_args_is_help=True)

CELLS_SHOWN: Final = 20
"""Cells that a person is shown unless all are asked for."""

StartTs = Annotated[int, typer.Argument(metavar="START_TS", help="The transaction's start_ts.")]


@app.callback()
def tx() -> None:
    """Look at single transactions."""


@app.command("inspect")
def inspect_transaction(
    start_ts: StartTs,
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    tables: Annotated[
        str | None, typer.Option(metavar="A,B", help="Look for cells in these tables alone.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help=f"List every cell, not only the first {CELLS_SHOWN}.")
    ] = False,
    metrics: Metrics = None,
    as_json: AsJson = False,
) -> None:
    """Show its cells, the commit entry, the shadow cells and what follows.  Reads whole tables.

    With --metrics the oracle is asked who began it.
    """
    del tso
    for address in metrics or ():
        parts_of(address)
    names = None if tables is None else [name for name in tables.split(",") if name]
    with opened(store, only_looks=True) as open_store:
        found = inspect(open_store, start_ts, tables=names)
        began = began_by(open_store, start_ts, metrics) if metrics else None
    document = as_document(found, now_ms=SystemClock().wall_ms())
    if began is not None:
        document["began_by"] = began if as_json else began_text(began)
    if as_json:
        print_json(document)
        return
    cells, malformed = document.pop("cells"), document.pop("malformed", ())
    unseen = document.pop("unseen", ())
    print_facts(
        {name.replace("_", " "): "none" if v is None else v for name, v in document.items()}
    )
    shown = found.cells if show_all else found.cells[:CELLS_SHOWN]
    if cells:
        say("")
        print_columns(
            ("table", "row", "column", "version", "kind", "shadow cell"),
            [
                (
                    cell.table,
                    repr(cell.cell.row),
                    repr(cell.cell.family + b":" + cell.cell.qualifier),
                    cell.cell.version,
                    cell.kind,
                    "none" if cell.commit_ts is None else cell.commit_ts,
                )
                for cell in shown
            ],
        )
        if found.cell_count > len(shown):
            more = "" if show_all else "; --all lists them"
            say(f"and {found.cell_count - len(shown):,} more cells{more}")
    for table in unseen:
        say(f"not looked at: {table}, which this user may not see, and where cells of it may be")
    for complaint in malformed if show_all else malformed[:CELLS_SHOWN]:
        say(f"malformed: {complaint}")
    if len(malformed) > CELLS_SHOWN and not show_all:
        say(f"and {len(malformed) - CELLS_SHOWN:,} more are malformed; --all lists them")


@app.command()
def outcome(
    start_ts: StartTs, *, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False
) -> None:
    """Say what the commit table alone knows: committed, aborted, undecided or forgotten.

    Of a number at which no transaction began, so far as that is known, it says never-issued.
    """
    del tso
    check_start_ts(start_ts)
    with opened(store, only_looks=True) as open_store:
        found, never = outcome_document(open_store, start_ts)
    if as_json:
        print_json(found)
    else:
        commit_ts = found["commit_ts"]
        detail = f": {never}" if never else "" if commit_ts is None else f" at {commit_ts}"
        say(found["outcome"] + detail)
