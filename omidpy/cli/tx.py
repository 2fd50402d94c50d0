"""`omidpy tx inspect|outcome`: what became of one transaction?"""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from omidpy.base.clock import SystemClock
from omidpy.base.commit_facts import INVALID
from omidpy.cli.common import (
    AsJson,
    StoreUrl,
    UnaskedTso,
    age_s,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.commit.outcome import recorded_outcome, why_never_issued
from omidpy.errors import UsageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.inspection import Inspection, inspect
from omidpy.model import MAX_VERSION, Committed, Forgotten, Timestamp, Undecided

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
    as_json: AsJson = False,
) -> None:
    """Show its cells, the commit entry, the shadow cells and what follows.  Reads whole tables."""
    del tso
    names = None if tables is None else [name for name in tables.split(",") if name]
    with opened(store, only_looks=True) as open_store:
        found = inspect(open_store, start_ts, tables=names)
    document = as_document(found, now_ms=SystemClock().wall_ms())
    if as_json:
        print_json(document)
        return
    cells, malformed = document.pop("cells"), document.pop("malformed", ())
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
    if not 0 < start_ts < MAX_VERSION:
        raise UsageError(f"{start_ts} is no start_ts; give the one of a transaction")
    with opened(store, only_looks=True) as open_store:
        found = recorded_outcome(open_store, CommitTable(open_store), Timestamp(start_ts))
        never = None
        if isinstance(found, Forgotten | Undecided):
            never = why_never_issued(open_store, Timestamp(start_ts))
    name = type(found).__name__.lower() if never is None else "never-issued"
    commit_ts = found.commit_ts if isinstance(found, Committed) else None
    if as_json:
        print_json({"start_ts": start_ts, "outcome": name, "commit_ts": commit_ts})
    else:
        detail = f": {never}" if never else "" if commit_ts is None else f" at {commit_ts}"
        say(name + detail)


def as_document(found: Inspection, *, now_ms: int) -> dict[str, Any]:
    """Return an inspection as JSON values, bytes as hex."""
    entry: int | str | None = "invalidated" if found.entry is INVALID else None
    if isinstance(found.entry, int):
        entry = found.entry
    return {
        "start_ts": found.start_ts,
        "state": str(found.state),
        "commit_ts": found.commit_ts,
        "commit_entry": entry,
        "age_s": age_s(found.start_ts, now_ms=now_ms),
        "commit_age_s": None if found.commit_ts is None else age_s(found.commit_ts, now_ms=now_ms),
        "low_watermark": found.low_watermark,
        "cell_count": found.cell_count,
        "unhealed_count": found.unhealed_count,
        "orphan_shadow_count": found.orphan_shadow_count,
        **({"malformed": list(found.malformed)} if found.malformed else {}),
        "cells": [
            {
                "table": one.table,
                "row": one.cell.row.hex(),
                "family": one.cell.family.hex(),
                "qualifier": one.cell.qualifier.hex(),
                "version": one.cell.version,
                "kind": one.kind,
                "bytes": len(one.cell.value),
                "commit_ts": one.commit_ts,
            }
            for one in found.cells
        ],
    }
