"""`omidpy export-snapshot TABLE... s3://BUCKET/FOLDER`: tables of one moment, as Parquet.

Threads of this process read and write; with `--spark MASTER` tasks of Spark do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from omidpy import codec
from omidpy.base.installation import install_hint
from omidpy.base.words.arguments import parse_column
from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import AsJson, StoreUrl, TsoAddress, print_json, say
from omidpy.cli.files.objects import with_objects
from omidpy.cli.progress import progress_bar
from omidpy.cli.queues.common import managed, moment
from omidpy.codec import Codec
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import is_object_store
from omidpy.committers.snapshots import HOLD_S, Run
from omidpy.committers.snapshots import export_snapshot as write_snapshot
from omidpy.errors import ConfigError, UsageError

CODECS: Final[dict[str, Codec[Any]]] = {
    one.name.lower(): one
    for one in (codec.BYTES, codec.TEXT, codec.INT64, codec.FLOAT64, codec.JSON)
}


@with_objects
def export_snapshot(
    objects: ObjectStore,
    words: Annotated[
        list[str],
        typer.Argument(metavar="TABLE... PATH", help="Tables, and s3://BUCKET/FOLDER behind them."),
    ],
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="As it was then: a date, a timestamp, 1h ago."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="F:Q=TYPE,...",
            help=f"A typed column for each, and a row for each row; TYPE is {', '.join(CODECS)}. "
            "Default: a row for each cell.",
        ),
    ] = None,
    conflict: Annotated[
        str, typer.Option(help="What becomes of files that are there: fail, append or replace.")
    ] = "fail",
    hold: Annotated[
        str,
        typer.Option(metavar="TIME", help="Keep versions so long should this process be killed."),
    ] = f"{HOLD_S / 3600:.0f}h",
    spark: Annotated[
        str | None,
        typer.Option(metavar="MASTER", help="Let tasks of Spark do it, such as local[4] or yarn."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write tables as they were at one moment to S3, as Parquet; all of it appears, or nothing."""
    *tables, path = words
    if not tables or not is_object_store(path):
        raise UsageError(
            f"{' '.join(words)!r} are no tables with an address behind them; write "
            "`omidpy export-snapshot TABLE... s3://BUCKET/FOLDER`"
        )
    codecs = None if columns is None else _codecs(columns)
    hold_s = seconds_in(hold, name="--hold")
    moment_of = None if at is None else moment("--at", at)
    with (
        managed(store, tso) as tm,
        _runner(spark, store, tso) as run,
        progress_bar("exporting regions") as report,
    ):
        done = write_snapshot(
            tm,
            tables,
            path,
            at=moment_of,
            codecs=codecs,
            hold_s=hold_s,
            conflict=conflict,
            run=run,
            progress=report,
            **asdict(objects.options),
        )
    if as_json:
        print_json(
            {
                "destination": done.manifest.destination,
                "snapshot_ts": done.snapshot_ts,
                "tables": dict(done.rows),
                "files": len(done.manifest.files),
                "bytes": done.manifest.bytes_written,
                "job": done.manifest.job_id,
                "seconds": round(done.manifest.seconds, 3),
            }
        )
        return
    for table, rows in done.rows.items():
        say(f"{table}: {rows:,} {'cells' if codecs is None else 'rows'}")
    say(
        f"{done.manifest.destination}: {len(done.manifest.files)} files, "
        f"{done.manifest.bytes_written:,} bytes, as of {done.snapshot_ts}"
    )


def _codecs(text: str) -> dict[bytes, Codec[Any]]:
    found: dict[bytes, Codec[Any]] = {}
    for one in text.split(","):
        column, _, name = one.strip().rpartition("=")
        if name.lower() not in CODECS or not column:
            raise UsageError(
                f"--columns: {one!r} is no column with its type; write for instance "
                f"cf:balance=int64, with one of {', '.join(CODECS)}"
            )
        parse_column(column.encode())
        found[column.encode()] = CODECS[name.lower()]
    return found


@contextmanager
def _runner(master: str | None, store: str, tso: str | None) -> Iterator[Run | None]:
    """Give what runs the tasks; None: this process."""
    if master is None:
        yield None
        return
    if tso is None:
        raise UsageError(
            "--spark needs --tso: tasks of Spark are processes of their own, and share an oracle"
        )
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"--spark needs pyspark: {install_hint('spark', 's3')}") from error
    from omidpy.spark.snapshot_export import run_on  # noqa: PLC0415 - an extra

    if master.startswith("local"):
        # Tasks are processes of this machine, and need what this one has.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master(master).appName("omidpy export-snapshot").getOrCreate()
    try:
        yield run_on(session, store=store, tso=tso)
    finally:
        session.stop()
