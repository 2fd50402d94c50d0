"""How long does Spark take to save a frame to S3, through our committers and through Hadoop's?

Every save is of the same frame, to a folder of its own, through one proxy, which adds a delay to
each request and notes when it came.  A save has three phases:

    tasks     from the call of `save` to the first request of the job's commit
    visible   from there until the last file is completed
    end       from there until `save` returns
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession

from omidpy.committers.spark import register
from tests.machines.hadoop import jars, settings
from tests.machines.s3.looking import Bucket
from tests.machines.s3.proxy import S3Proxy, operation

HADOOP_MAGIC: Final = "Hadoop magic"
HADOOP_DIRECTORY: Final = "Hadoop directory"
INLINE: Final = "omidpy"
UPLOADS: Final = "omidpy, uploads"
MAGIC: Final = "omidpy magic"
HADOOP_FILE: Final = "Hadoop file {}"
"""Of a version, to S3: what the paper compares with."""
LOCAL: Final = "omidpy file {}, local"
HADOOP_LOCAL: Final = "Hadoop file {}, local"
VERSIONS: Final = (1, 2)
CORES: Final = 2

_VERSION: Final = "mapreduce.fileoutputcommitter.algorithm.version"
_CLOUD: Final = "org.apache.spark.internal.io.cloud"


class Saved(msgspec.Struct, frozen=True):
    """One save."""

    seconds: float
    tasks_s: float
    visible_s: float
    end_s: float
    requests: dict[str, int]
    bytes: int
    """Of the files that readers see."""


class Watch(S3Proxy):
    """A proxy that notes when each request came."""

    def __init__(self, port: int, *, delay_s: float) -> None:
        """Lead to a server of the loopback; add a delay to each request."""
        self.came: list[tuple[float, str, str]] = []
        """Monotonic time, operation, path."""
        super().__init__(port, delay_s=delay_s)

    def serve(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        kind = operation(handler.command, handler.path)
        self.came.append((time.monotonic(), kind, handler.path.partition("?")[0]))
        super().serve(handler)


@contextmanager
def session(watch: Watch, directory: Path) -> Iterator[SparkSession]:
    """Run a Spark with Hadoop's committers and ours; its Python finds credentials around it."""
    builder = SparkSession.builder.master(f"local[{CORES}]").config("spark.ui.enabled", "false")
    options = {
        "spark.driver.extraClassPath": ":".join(map(str, jars())),
        "spark.sql.sources.commitProtocolClass": f"{_CLOUD}.PathOutputCommitProtocol",
        "spark.sql.parquet.output.committer.class": f"{_CLOUD}.BindingParquetOutputCommitter",
        "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"file://{directory}/staging",
        "spark.hadoop.fs.s3a.buffer.dir": f"{directory}/buffer",
        **{f"spark.hadoop.{name}": value for name, value in settings(watch.endpoint).items()},
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    try:
        started.sparkContext.setLogLevel("ERROR")
        register(started)
        yield started
    finally:
        started.stop()


def frame(spark: SparkSession, files: int, rows: int) -> DataFrame:
    """Return a frame of so many partitions: numbers in order, few values, and texts."""
    columns = ("id", "id % 7 as kind", "sha1(cast(id as string)) as text")
    return spark.range(rows, numPartitions=files).selectExpr(*columns)


def renamers() -> dict[str, Callable[[DataFrame, str], None]]:
    """Return Hadoop's file output committer, which renames: on S3 it copies."""

    def hadoop(version: int) -> Callable[[DataFrame, str], None]:
        def save(given: DataFrame, path: str) -> None:
            writer = given.write.mode("append").option("fs.s3a.committer.name", "file")
            writer = writer.option(_VERSION, version)
            writer.parquet(f"s3a://{path}")

        return save

    return {HADOOP_FILE.format(one): hadoop(one) for one in VERSIONS}


def local_savers() -> dict[str, Callable[[DataFrame, str], None]]:
    """Return what saves to a folder of the local disk, by renames."""

    def hadoop(version: int) -> Callable[[DataFrame, str], None]:
        def save(given: DataFrame, path: str) -> None:
            given.write.mode("append").option(_VERSION, version).parquet(f"file://{path}")

        return save

    def ours(version: int) -> Callable[[DataFrame, str], None]:
        def save(given: DataFrame, path: str) -> None:
            writer = given.write.format("omidpy-parquet").mode("append")
            writer.options(committer="file", algorithmVersion=version).save(f"file://{path}")

        return save

    return {
        **{LOCAL.format(one): ours(one) for one in VERSIONS},
        **{HADOOP_LOCAL.format(one): hadoop(one) for one in VERSIONS},
    }


def saved_locally(folder: Path, save: Callable[[DataFrame, str], None], given: DataFrame) -> Saved:
    """Save a frame to a folder of the local disk and say what it took; phases are not told."""
    began = time.monotonic()
    save(given, str(folder))
    seconds = time.monotonic() - began
    files = [one for one in folder.rglob("*.parquet") if not one.name.startswith((".", "_"))]
    return Saved(round(seconds, 3), 0, 0, 0, {}, sum(one.stat().st_size for one in files))


def savers() -> dict[str, Callable[[DataFrame, str], None]]:
    """Return what is compared; each saves a frame to a folder of a bucket, `bucket/folder`."""

    def hadoop(name: str) -> Callable[[DataFrame, str], None]:
        def save(given: DataFrame, path: str) -> None:
            writer = given.write.mode("append").option("fs.s3a.committer.name", name)
            writer.parquet(f"s3a://{path}")

        return save

    def ours(**options: str) -> Callable[[DataFrame, str], None]:
        def save(given: DataFrame, path: str) -> None:
            writer = given.write.format("omidpy-parquet").mode("append").options(**options)
            writer.save(f"s3://{path}")

        return save

    return {
        HADOOP_MAGIC: hadoop("magic"),
        HADOOP_DIRECTORY: hadoop("directory"),
        INLINE: ours(),
        UPLOADS: ours(inlineBytes="0"),
        MAGIC: ours(committer="magic"),
    }


def saved(
    watch: Watch,
    bucket: Bucket,
    folder: str,
    save: Callable[[DataFrame, str], None],
    given: DataFrame,
) -> Saved:
    """Save a frame and say what it took."""
    watch.came.clear()
    began = time.monotonic()
    save(given, f"{bucket.name}/{folder}")
    ended = time.monotonic()
    came = list(watch.came)
    plan = [at for at, kind, path in came if kind == "Put" and path.endswith("/plan.json")]
    completed = [at for at, kind, _ in came if kind == "Complete"]
    # Hadoop's commit begins with what it lists; its first completion is a moment later.  One that
    # copies completes nothing: its end is all that is told.
    commit = min([*plan, *completed], default=ended)
    files = [
        at
        for at, kind, path in came
        if kind == "Complete" or (kind == "Put" and path.endswith(".parquet") and plan)
    ]
    visible = max((at for at in files if at >= commit), default=ended)
    requests: dict[str, int] = {}
    for _, kind, _ in came:
        requests[kind] = requests.get(kind, 0) + 1
    sizes = bucket.client.list_objects_v2(Bucket=bucket.name, Prefix=f"{folder}/")
    return Saved(
        round(ended - began, 3),
        round(commit - began, 3),
        round(visible - commit, 3),
        round(ended - visible, 3),
        dict(sorted(requests.items())),
        sum(one["Size"] for one in sizes["Contents"] if one["Key"].endswith(".parquet")),
    )
