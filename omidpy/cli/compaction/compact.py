"""`omidpy compact`: the nightly job in this process, and what its runs have done.

`omidpy compact OPTIONS` is short for `omidpy compact run OPTIONS`; the options are those of the
Spark job.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from omidpy.cli.common import (
    AsJson,
    StoreUrl,
    TsoAddress,
    UnaskedTso,
    moment,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.errors import UsageError
from omidpy.facts.control import ControlTable

app: Final = typer.Typer(
    help="Heal, drop and prune.  `omidpy compact OPTIONS` is short for `compact run OPTIONS`.",
    no_args_is_help=True,
)


@app.callback()
def compact() -> None:
    """Heal, drop and prune; or look at the runs that did."""


@app.command()
def run(
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    tables: Annotated[
        str | None, typer.Option(metavar="A,B", help="Scan these tables alone.")
    ] = None,
    exclude: Annotated[
        str | None, typer.Option(metavar="A,B", help="Scan every table but these.")
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Age of a claim before entries below it go. "
            "Default: 1h, 24h where Omid's oracle served the store before.",
        ),
    ] = None,
    invalidation_grace: Annotated[
        str, typer.Option(metavar="TIME", help="The same for invalidations; `never` keeps them.")
    ] = "24h",
    retention: Annotated[
        str, typer.Option(metavar="TIME", help="How far back snapshots stay readable.")
    ] = "24h",
    wait: Annotated[
        bool, typer.Option("--wait", help="Sleep until this run's claims count.")
    ] = False,
    collect: Annotated[
        bool,
        typer.Option(
            "--collect", help="Read every version, not only those behind the last claims."
        ),
    ] = False,
    collect_foreign: Annotated[
        bool,
        typer.Option(
            "--collect-foreign",
            help="The same, and judge cells from before the oracle by their shadow cells.",
        ),
    ] = False,
    collect_every: Annotated[
        int,
        typer.Option(
            metavar="N", help="Each how many-th pass over a range does so by itself; 0 for none."
        ),
    ] = 7,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and write nothing.")] = False,
    max_lag: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Exit with 4 if rows are behind for longer than this."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Write the run's numbers there for Prometheus: a text file, or a Pushgateway.",
        ),
    ] = None,
    max_rows_per_s: Annotated[
        int | None,
        typer.Option(metavar="N", help="Rows and entries read a second, at most."),
    ] = None,
    max_bytes_per_s: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="The same in bytes, as in 50MB or 1GiB."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin nothing after so long, as in 4h, or after that time of day, as in 06:00 or "
            "06:00Z.",
        ),
    ] = None,
    ranges_per_region: Annotated[
        str,
        typer.Option(
            metavar="N|auto",
            help="Cut regions into so many ranges, at sampled keys; auto goes by the rows that the "
            "last runs read.",
        ),
    ] = "auto",
    table_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE:NAME=VALUE,...",
            help="priority, retention, every, max-rows-per-s, max-bytes-per-s, until of one table "
            "in this run; may be given again.",
        ),
    ] = None,
    hbase_root: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            envvar="OMIDPY_HBASE_ROOT",
            help="HBase's root folder, as this machine has it: keep what its snapshots would need. "
            "Default: the one that an earlier run was told of; `none` to look no more.",
        ),
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the report there as JSON.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the run that was killed, from where it was; without one, a new run.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compact a store once, in this process: for stores that one process reads in minutes.

    An exit code of 3 says that it was done, and that commits are kept because of the laggards that
    the report names; 4 that one of them is older than --max-lag.
    """
    from compactor.options import options_from_words  # noqa: PLC0415 - application
    from compactor.run.local import executors_here  # noqa: PLC0415 - application
    from compactor.shell.command import (  # noqa: PLC0415 - application
        check_targets,
        compact_address,
        show,
    )

    options = options_from_words(
        tables=tables,
        exclude=exclude,
        grace=grace,
        invalidation_grace=invalidation_grace,
        retention=retention,
        should_wait=wait,
        is_dry_run=dry_run,
        max_lag=max_lag,
        metrics=metrics,
        max_rows_per_s=max_rows_per_s,
        max_bytes_per_s=max_bytes_per_s,
        until=until,
        ranges_per_region=ranges_per_region,
        table_options=table_option or (),
        should_collect=collect,
        should_collect_foreign=collect_foreign,
        collect_every=collect_every,
        hbase_root=hbase_root,
        should_resume=resume,
    )
    check_targets(report, options)
    done = compact_address(store, tso, options, executors_here)
    raise typer.Exit(show(done, options, report_path=report, as_json=as_json))


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
        raise UsageError(f"no compaction of {store} is on record; `omidpy compact` runs one")
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
    """Return the runs that a store remembers."""
    from compactor.report import RunLog  # noqa: PLC0415 - application

    with opened(store_url, only_looks=True) as store:
        return RunLog(ControlTable(store)).runs()
