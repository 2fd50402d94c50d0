"""`omidpy compact`: the nightly job in this process, and what its runs have done.

`omidpy compact OPTIONS` is short for `omidpy compact run OPTIONS`; the options are those of the
Spark job.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from omidpy.base.schema.compaction_choices import COMPACTION
from omidpy.base.telemetry.events import JSON, TEXT, check_format, configure
from omidpy.cli.common import (
    AsJson,
    LogFormat,
    StoreUrl,
    TsoAddress,
    UnaskedTso,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.cli.options import as_parameters, taking
from omidpy.cli.saying import print_failure
from omidpy.errors import OmidError, UsageError
from omidpy.reports import runs as reports
from omidpy.reports.texts import moment

if TYPE_CHECKING:
    from compactor.options import Options

app: Final = typer.Typer(
    help="Heal, drop and prune.  `omidpy compact OPTIONS` is short for `compact run OPTIONS`.",
    no_args_is_help=True,
)


@app.callback()
def compact() -> None:
    """Heal, drop and prune; or look at the runs that did."""


def _with_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Hand what a run is asked to a verb as its first argument."""
    return taking(verb, as_parameters(COMPACTION), _options)


def _options(**words: Any) -> Options:
    from compactor.options import options_from_words  # noqa: PLC0415 - application

    return options_from_words(**words)


@app.command()
@_with_options
def run(
    options: Options,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the report there as JSON.")
    ] = None,
    log_format: LogFormat = TEXT,
    as_json: AsJson = False,
) -> None:
    """Compact a store once, in this process: for stores that one process reads in minutes.

    An exit code of 3 says that it was done, and that commits are kept because of the laggards that
    the report names; 4 that one of them is older than --max-lag.
    """
    from compactor.run.local import executors_here  # noqa: PLC0415 - application
    from compactor.shell.command import (  # noqa: PLC0415 - application
        check_targets,
        compact_address,
        exit_code,
        show,
    )

    if check_format(log_format) == JSON:
        configure(JSON)
    check_targets(report, options)
    try:
        done = compact_address(store, tso, options, executors_here, log_format=log_format)
    except OmidError as error:
        if log_format == TEXT:
            raise  # who runs every verb says so
        code = exit_code(error, log_format)
        if as_json:
            print_failure(str(error), code)
        raise typer.Exit(code) from None
    code = show(done, options, report_path=report, as_json=as_json, log_format=log_format)
    raise typer.Exit(code)


@app.command()
def history(*, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False) -> None:
    """List the recorded runs, oldest first."""
    del tso
    runs = recorded(store)
    if as_json:
        print_json([msgspec.to_builtins(one) for one in runs])
        return
    print_columns(
        ("run", "started (UTC)", "state", "healed", "dropped", "pruned", "error"),
        [
            (
                one.run_id,
                moment(one.started_ms),
                one.state(),
                *(
                    (one.report.cells_healed, one.report.cells_dropped, one.report.entries_pruned)
                    if one.report is not None
                    else ("", "", "")
                ),
                one.error or "",
            )
            for one in runs
        ],
    )


@app.command()
def show(
    run_id: Annotated[
        str | None,
        typer.Argument(metavar="RUN", help="Its id, or a part of it; the newest without one."),
    ] = None,
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    as_json: AsJson = False,
) -> None:
    """Show one recorded run, the newest unless another is named."""
    del tso
    runs = recorded(store)
    found = runs[-1:] if run_id is None else [one for one in runs if run_id in one.run_id]
    if not runs:
        raise UsageError(
            f"no compaction of {store} is on record that can be read; `omidpy compact` runs one"
        )
    if len(found) != 1:
        problem = "no run" if not found else f"{len(found)} runs"
        raise UsageError(
            f"{problem} with an id like {run_id!r}; `omidpy compact history` lists them"
        )
    (one,) = found
    if as_json:
        print_json(msgspec.to_builtins(one))
        return
    from compactor.shell.display import details, summary  # noqa: PLC0415 - application

    facts = {
        "run": one.run_id,
        "started": f"{moment(one.started_ms)} UTC",
        "ended": "" if one.ended_ms is None else f"{moment(one.ended_ms)} UTC",
        "process": f"{one.pid} on {one.host}",
        "operation": one.operation,
        "resumed": f"{one.resumed_count} times" if one.resumed_count else "",
        "state": one.state(),
        "superseded by": one.superseded_by,
        "error": one.error,
    }
    print_facts({name: fact for name, fact in facts.items() if fact})
    for note in one.notes:
        say(f"note: {note}")
    if one.report is not None:
        say("")
        say(summary(one.report))
        for line in details(one.report):
            say(line)


@app.command()
def plot(
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    output: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the picture goes; .png, .svg or .pdf.")
    ] = Path("compaction.png"),
    as_json: AsJson = False,
) -> None:
    """Draw the recorded runs."""
    del tso
    from compactor.shell.plot import plot_runs  # noqa: PLC0415 - application

    plot_runs(recorded(store), output)
    if as_json:
        print_json({"output": str(output)})
    else:
        say(f"wrote {output}")


def recorded(store_url: str) -> list[Any]:
    """Return the runs that a store remembers; say of which it does that cannot be read."""
    with opened(store_url, only_looks=True) as store:
        runs, unreadable = reports.recorded(store)
    for run_id in unreadable:
        say(f"the record of run {run_id} cannot be read, and is left out", err=True)
    return runs
