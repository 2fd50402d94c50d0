"""`omidpy commit-table stats`: how many outcomes the commit table remembers."""

from __future__ import annotations

from typing import Final

import typer

from omidpy.base.commit_facts import INVALID
from omidpy.cli.common import AsJson, StoreUrl, UnaskedTso, opened, print_facts, print_json
from omidpy.facts.commit_table import CommitTable
from omidpy.storage.base import Store

app: Final = typer.Typer(help="The table of outcomes.", no_args_is_help=True)


@app.callback()
def commit_table() -> None:
    """Look into the table of outcomes."""


@app.command()
def stats(*, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False) -> None:
    """Count commits and invalidations.  Reads the whole commit table."""
    del tso
    with opened(store, only_looks=True) as open_store:
        counted = count_entries(open_store)
    if as_json:
        print_json(counted)
    else:
        oldest = counted["oldest_start_ts"]
        print_facts({**counted, "oldest_start_ts": "none" if oldest is None else oldest})


def count_entries(store: Store) -> dict[str, int | None]:
    """Count commits without an invalidation, and invalidations; name the oldest row.

    Malformed rows are counted by themselves, where there are some.
    """
    entries = invalidations = malformed = 0
    oldest: int | None = None
    for page in CommitTable(store).scan():
        for row in page:
            if row.entry is INVALID:
                invalidations += 1
            elif row.entry is not None:
                entries += 1
            malformed += bool(row.complaint)
            oldest = row.start_ts if oldest is None else min(oldest, row.start_ts)
    counted = {"entries": entries, "invalidations": invalidations, "oldest_start_ts": oldest}
    return {**counted, "malformed": malformed} if malformed else counted
