"""`omidpy commit-table stats`: how many outcomes the commit table remembers."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from omidpy.base.timing.clock import SystemClock
from omidpy.cli.common import (
    AsJson,
    StoreUrl,
    UnaskedTso,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.reports.commit_table import count_by_age, span_text

app: Final = typer.Typer(help="The table of outcomes.", no_args_is_help=True)


@app.callback()
def commit_table() -> None:
    """Look into the table of outcomes."""


@app.command()
def stats(
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    by_age: Annotated[
        bool, typer.Option("--by-age", help="Count them by how long ago they began, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Count commits and invalidations.  Reads the whole commit table."""
    del tso
    with opened(store, only_looks=True) as open_store:
        counted = count_by_age(open_store, now_ms=SystemClock().wall_ms())
    ages = counted["by_age"]
    if not by_age:
        del counted["by_age"]
    if as_json:
        print_json(counted)
        return
    counted.pop("by_age", None)
    oldest = counted["oldest_start_ts"]
    print_facts({**counted, "oldest_start_ts": "none" if oldest is None else oldest})
    if by_age:
        say("")
        print_columns(
            ("began", "entries", "invalidations"),
            [(span_text(one), one["entries"], one["invalidations"]) for one in ages],
        )
