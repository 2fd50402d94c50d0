"""`python -m bench.demo`: load, kill, compact, check, and say how it went.

Exit status 0 if every check passed, 1 if one failed or a part of the run did, 2 for bad arguments.
`DEMO_ROWS` says how many flights (`all` for every one), `DEMO_SEED` repeats the choice of kills.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import msgspec
from rich.console import Console

import omidpy
from bench.demo import check, compaction, flights
from bench.demo.flights import Flight
from bench.demo.load import LOADERS, Load, Loader, Totals
from bench.demo.report import Display, Sample, Summary, draw, print_summary
from bench.processes import tso_server
from omidpy.errors import OmidError
from omidpy.manager import TransactionManager
from omidpy.opening import open_store
from omidpy.storage.base import Store

DEFAULT_ROWS: Final = 6_000
"""Enough for a dozen kills; all are 336,776, which take half an hour."""
MAX_TRANSACTION_AGE: Final = "10s"
REGIONS: Final = 4
SAMPLE_EVERY_S: Final = 0.5


class Sampler:
    """Watches the size of the commit table through a connection of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._due_s = 0.0
        self.samples: list[Sample] = []

    @property
    def newest(self) -> int:
        """The size when it was last looked at."""
        return self.samples[-1].entries

    def look(self) -> int:
        """Sample the size now."""
        self.samples.append(Sample(time.monotonic(), check.commit_entries(self._store)))
        self._due_s = time.monotonic() + SAMPLE_EVERY_S
        return self.newest

    def look_if_due(self) -> None:
        """Sample the size if the last time was long enough ago."""
        if time.monotonic() >= self._due_s:
            self.look()


def create_tables(tm: TransactionManager, expected: dict[str, flights.Rows]) -> None:
    """Create the four tables, each with several regions, so that the job has several tasks."""
    for table, rows in expected.items():
        tm.create_table(table, families=["f"], splits=flights.quantiles(rows, REGIONS))


def run(chosen: Sequence[Flight], *, directory: Path, seed: int, console: Console) -> bool:
    """Do the whole demonstration in `directory`; say whether every check passed."""
    store_url = _fresh_store(directory)
    expected = flights.expected_tables(chosen)
    with (
        tso_server(
            store_url,
            log=directory / "tso-server.log",
            options=("--max-transaction-age", MAX_TRANSACTION_AGE),
        ) as tso,
        omidpy.connect(store_url, tso=tso) as tm,
        (directory / "loaders.log").open("wb") as log,
        Display(console) as display,
    ):
        create_tables(tm, expected)
        store = open_store(store_url, must_exist=True)
        sampler = Sampler(store)
        sampler.look()

        totals = _load(chosen, store_url, tso, log, seed, sampler, display)
        entries_before = sampler.look()

        display.phase("settling")
        newest = compaction.await_watermark(tm, sampler.look_if_due)
        display.finish("the low watermark passed every transaction")
        loose_ends = check.loose_ends(store, up_to=tm.low_watermark())
        sampler.look()

        display.phase("compacting")
        began_s = time.monotonic()
        report = compaction.compact(
            store=store_url, tso=tso, directory=directory, look_on=sampler.look_if_due
        )
        ended_s = time.monotonic()
        entries_after = sampler.look()
        display.finish(
            f"spark-submit: {report.cells_healed:,} healed, {report.cells_dropped:,} dropped"
        )

        display.phase("checking")
        checks = check.check_tables(tm, expected)
        checks += check.check_compaction(store, report, newest=newest)
        sampler.look()
        display.finish(f"{sum(found.passed for found in checks)} of {len(checks)} passed")
        store.close()
    summary = Summary(
        flights=len(chosen),
        seed=seed,
        transactions_per_second=totals.done / totals.seconds,
        load=totals,
        loose_ends=loose_ends,
        entries_before=entries_before,
        entries_after=entries_after,
        compaction=report,
        checks=checks,
    )
    (directory / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(summary)))
    picture = directory / "demo.png"
    draw(
        picture,
        samples=sampler.samples,
        kills_s=totals.kills_s,
        compaction=(began_s, ended_s),
    )
    print_summary(console, summary)
    console.print(f" the commit table over time: {picture}")
    return summary.passed


def _load(
    chosen: Sequence[Flight],
    store_url: str,
    tso: str,
    log: IO[bytes],
    seed: int,
    sampler: Sampler,
    display: Display,
) -> Totals:
    began_s = time.monotonic()

    def look_on(totals: Totals) -> None:
        sampler.look_if_due()
        rate = totals.done / max(time.monotonic() - began_s, 0.001)
        display.show(
            totals.done,
            f"{rate:,.0f}/s  {totals.conflicts:,} conflicts  {len(totals.kills_s)} kills  "
            f"commit table {sampler.newest:,}",
        )

    display.phase("loading", len(chosen))
    new_loader = partial(Loader, store=store_url, tso=tso, log=log)
    totals = Load(chosen, seed=seed, new_loader=new_loader, look_on=look_on).run()
    display.finish(
        f"{totals.done:,} flights by {LOADERS} processes, {len(totals.kills_s)} kills (seed {seed})"
    )
    return totals


def _fresh_store(directory: Path) -> str:
    """Remove what an earlier run left, and return the address of a new store."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "demo.db"
    for old in directory.glob("demo.db*"):
        old.unlink()
    return f"sqlite:///{quote(str(path))}"


def _rows(text: str) -> int | None:
    """Read DEMO_ROWS: None means all."""
    if text == "all":
        return None
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a count of flights nor 'all'")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo", description=__doc__)
    parser.add_argument(
        "--rows", type=_rows, default=os.environ.get("DEMO_ROWS") or str(DEFAULT_ROWS)
    )
    parser.add_argument("--seed", type=int, default=os.environ.get("DEMO_SEED") or "1")
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    try:
        chosen = flights.read_flights(flights.find_input(), options.rows)
        # The Spark job runs elsewhere, so that its leftovers do not end up in the checkout.
        directory = options.output.resolve()
        passed = run(chosen, directory=directory, seed=options.seed, console=console)
    except (RuntimeError, OmidError, TimeoutError) as error:
        console.print(f"error: {error}", markup=False, style="red")
        return 1
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
