"""Tells a person what happened: progress while it happens, a summary, and a picture."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table

from bench.demo.check import Finding, LooseEnds
from bench.demo.compaction import Report
from bench.demo.load import Totals

_LINE_EVERY_S: Final = 5.0
_CONTRADICTIONS_SHOWN: Final = 5


class Sample(NamedTuple):
    """The size of the commit table at a moment of the monotonic clock."""

    at_s: float
    entries: int


class Summary(msgspec.Struct):
    """All numbers of a run; what the table shows and the JSON document holds."""

    flights: int
    seed: int
    transactions_per_second: float
    load: Totals
    loose_ends: LooseEnds
    entries_before: int
    entries_after: int
    compaction: Report
    checks: list[Finding]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)


class Display(AbstractContextManager["Display"]):
    """Shows progress: a live bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(finished_text="✓"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
            TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True)),
            console=console,
            disable=not console.is_terminal,
        )
        self._total = 1
        self._task: TaskID | None = None
        self._line_due_s = 0.0

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def phase(self, name: str, total: int = 1) -> None:
        """Begin the next part of the run."""
        self._total = total
        self._line_due_s = time.monotonic() + _LINE_EVERY_S
        self._task = self._progress.add_task(name, total=total, note="")
        if not self._console.is_terminal:
            self._console.print(name)

    def show(self, done: int, note: str) -> None:
        """Say how far the part is."""
        note = f"{done:,}/{self._total:,}  {note}"
        self._update(done, note)
        now_s = time.monotonic()
        if not self._console.is_terminal and now_s >= self._line_due_s:
            self._line_due_s = now_s + _LINE_EVERY_S
            self._console.print(f"  {note}")

    def finish(self, note: str) -> None:
        """End the part; its last line stays on the screen."""
        self._update(self._total, note)
        if not self._console.is_terminal:
            self._console.print(f"  {note}")

    def _update(self, done: int, note: str) -> None:
        assert self._task is not None, "a part has begun"
        self._progress.update(self._task, completed=done, note=note)


def print_summary(console: Console, summary: Summary) -> None:
    """Print the numbers, then each check."""
    load, job = summary.load, summary.compaction
    table = Table(title=f"{summary.flights:,} flights, one transaction each", show_header=False)
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    rate = f"{summary.transactions_per_second:,.0f} a second, {load.seconds:.0f} s"
    for name, value, remark in (
        ("transactions", load.loaded + load.found_loaded, rate),
        ("conflicts", load.conflicts, "another loader had counted first"),
        ("retries", load.retries, "run again from the start"),
        ("kills", len(load.kills_s), "kill -9 of a loader, replaced at once"),
        ("committed unreported", load.found_loaded, "by killed loaders; not loaded twice"),
        ("orphans found", summary.loose_ends.orphans, "cells of transactions that a kill cut off"),
        ("healed", job.cells_healed, "shadow cells that dead loaders owed"),
        ("dropped", job.cells_dropped, "orphans, and versions nobody reads"),
        ("commit table before", summary.entries_before, "entries when the last loader ended"),
        ("commit table after", summary.entries_after, f"compaction took {job.seconds:.0f} s"),
        (
            "checks passed",
            f"{sum(check.passed for check in summary.checks)} of {len(summary.checks)}",
            "recomputed from the input",
        ),
    ):
        shown = f"{value:,}" if isinstance(value, int) else value
        table.add_row(name, shown, remark)
    console.print(table)
    for check in summary.checks:
        console.print(f" {'[green]ok[/]  ' if check.passed else '[red]FAIL[/]'} {check.claim}")
        for contradiction in check.contradictions[:_CONTRADICTIONS_SHOWN]:
            console.print(f"        {contradiction}", markup=False)
        hidden = len(check.contradictions) - _CONTRADICTIONS_SHOWN
        if hidden > 0:
            console.print(f"        and {hidden:,} more")


def draw(
    path: Path,
    *,
    samples: Sequence[Sample],
    kills_s: Sequence[float],
    compaction: tuple[float, float],
) -> None:
    """Draw the size of the commit table over time, kills and compaction marked.

    Args:
        path: The PNG to write.
        samples: Sizes over time; the first one is time zero.
        kills_s: When loaders were killed.
        compaction: When the job began and ended.
    """
    import matplotlib as mpl  # noqa: PLC0415 - the loaders must not wait for it

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - after the backend was chosen
    from matplotlib.ticker import StrMethodFormatter  # noqa: PLC0415 - see above

    zero_s = samples[0].at_s
    times = [sample.at_s - zero_s for sample in samples]
    entries = [sample.entries for sample in samples]
    begin_s, end_s = (moment - zero_s for moment in compaction)
    ink, accent, calm = "#1f2933", "#c8503c", "#2f6f8f"
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 10, "text.color": ink}):
        figure, axes = plt.subplots(figsize=(9, 4), dpi=150, layout="constrained")
        axes.axvspan(begin_s, end_s, color=calm, alpha=0.14, linewidth=0)
        axes.step(times, entries, where="post", color=calm, linewidth=1.8)
        axes.fill_between(times, entries, step="post", color=calm, alpha=0.18, linewidth=0)
        top = max(1, *entries) * 1.18
        axes.plot(
            [moment - zero_s for moment in kills_s],
            [0.025] * len(kills_s),  # of the height
            transform=axes.get_xaxis_transform(),
            linestyle="none",
            marker="|",
            markersize=11,
            markeredgewidth=1.6,
            color=accent,
            label="a loader is killed (kill -9)",
        )
        axes.annotate(
            "compaction",
            ((begin_s + end_s) / 2, top),
            xytext=(0, -6),
            textcoords="offset points",
            ha="center",
            va="top",
            color=calm,
            fontweight="bold",
        )
        left = entries[times.index(max(moment for moment in times if moment <= begin_s))]
        axes.annotate(
            f"{left:,} left",
            (begin_s, left),
            xytext=(-6, -6),
            textcoords="offset points",
            ha="right",
            va="top",
        )
        axes.annotate(
            f"{entries[-1]:,} left",
            (end_s, entries[-1]),
            xytext=(6, 6),
            textcoords="offset points",
        )
        axes.set(xlim=(0, max(times) * 1.07), ylim=(0, top))
        axes.set_xlabel("seconds since the first loader started")
        axes.set_ylabel("entries in the commit table")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="upper left")
        figure.savefig(path)
        plt.close(figure)
