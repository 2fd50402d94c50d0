"""The recorded runs of a store as one picture: what each healed, dropped and pruned."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from compactor.report import RunRecord
from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError, UsageError


def plot_runs(runs: Sequence[RunRecord], path: Path) -> None:
    """Draw the runs that ended with a report, oldest first, into a file.

    Raises:
        ConfigError: matplotlib is not installed.
        UsageError: there is nothing to draw, or the file's name has no known ending.
    """
    if not path.suffix:  # matplotlib would write a file of another name
        raise UsageError(f"--output {path}: its ending says what it is; write .png, .svg or .pdf")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"matplotlib is not installed; run {install_hint('demo')}") from error
    drawn = [(run, run.report) for run in runs if run.report is not None]
    if not drawn:
        raise UsageError("no finished run is recorded yet; run `omidpy compact` first")
    labels = [
        datetime.fromtimestamp(run.started_ms / 1000, UTC).strftime("%m-%d %H:%M")
        for run, _ in drawn
    ]
    figure = Figure(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    series = {
        "cells healed": [report.cells_healed for _, report in drawn],
        "cells dropped": [report.cells_dropped for _, report in drawn],
        "entries pruned": [report.entries_pruned for _, report in drawn],
    }
    width = 0.8 / len(series)
    for number, (label, values) in enumerate(series.items()):
        places = [index + (number - 1) * width for index in range(len(drawn))]
        axes.bar(places, values, width, label=label)
    axes.set_xticks(range(len(drawn)), labels, rotation=60)
    axes.set_ylabel("count")
    axes.set_title("compaction runs (UTC)")
    axes.legend()
    try:
        figure.savefig(path)
    except ValueError as error:
        raise UsageError(f"--output {path}: {error}") from error
