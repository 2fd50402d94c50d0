"""Hadoop's own committers and files about files, called from Python in a JVM of their own.

    with Hadoop(server) as hadoop:
        hadoop.fs(bucket)                       # org.apache.hadoop.fs.s3a.S3AFileSystem
        hadoop.files.PendingSet.load(...)       # org.apache.hadoop.fs.s3a.commit.files

Hadoop itself is among the jars of PySpark, and so is the gateway; `pom.xml` has what is missing.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self

from tests.machines import maven
from tests.machines.s3.server import ACCESS, REGION, SECRET, S3Server

_COMMITTERS: Final = "org.apache.hadoop.fs.s3a.commit"
# Spark has newer ones of its own.
_NOT_NEEDED: Final = ("netty-", "slf4j-")
_NEEDED: Final = "netty-nio-client"
_JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")

_runs = itertools.count(1)


def jars() -> list[Path]:
    """Return what a Spark needs beside its own jars."""
    found = sorted((maven.build(Path(__file__).parent) / "lib").glob("*.jar"))
    return [
        one for one in found if one.name.startswith(_NEEDED) or not one.name.startswith(_NOT_NEEDED)
    ]


def settings(endpoint: str) -> dict[str, str]:
    """Return what Hadoop has to know of a server."""
    return {
        "fs.s3a.access.key": ACCESS,
        "fs.s3a.secret.key": SECRET,
        "fs.s3a.endpoint": endpoint,
        "fs.s3a.endpoint.region": REGION,
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.bucket.probe": "0",
        "fs.s3a.attempts.maximum": "2",
    }


class Hadoop:
    """A JVM with Hadoop's classes."""

    def __init__(self, server: S3Server) -> None:
        """Start it."""
        from py4j.java_gateway import JavaGateway

        spark = find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        own = Path(spark.origin).parent / "jars"
        path = [*map(str, jars()), str(own / "*")]
        self._gateway = JavaGateway.launch_gateway(
            jarpath=str(next(own.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(path),
            java_path=maven.java_tool("java"),
            javaopts=list(_JVM),
            die_on_exit=True,
        )
        self.jvm: Any = self._gateway.jvm
        self.files: Any = self.jvm.org.apache.hadoop.fs.s3a.commit.files
        self.configuration: Any = self.jvm.org.apache.hadoop.conf.Configuration()
        for name, value in settings(server.endpoint).items():
            self.configuration.set(name, value)

    def path(self, address: str) -> Any:
        """Return a path of Hadoop's."""
        return self.jvm.org.apache.hadoop.fs.Path(address.replace("s3://", "s3a://", 1))

    def fs(self, bucket: str) -> Any:
        """Return the file system of a bucket."""
        return self.path(f"s3a://{bucket}/").getFileSystem(self.configuration)

    def job(self, destination: str, job_id: str) -> HadoopJob:
        """Return a job that writes below a destination with Hadoop's magic committer."""
        return HadoopJob(self, destination, job_id)

    def close(self) -> None:
        """End it."""
        process = self._gateway.java_process
        self._gateway.shutdown()
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()


class HadoopJob:
    """A job of Hadoop's magic committer, step by step; it is dead as soon as nobody goes on."""

    def __init__(self, hadoop: Hadoop, destination: str, job_id: str) -> None:
        """Make it; nothing is sent."""
        self._hadoop = hadoop
        self._path = hadoop.path(destination)
        configuration = hadoop.jvm.org.apache.hadoop.conf.Configuration(hadoop.configuration)
        configuration.set("fs.s3a.committer.uuid", job_id)
        configuration.set("mapreduce.job.id", "job_202611220000_0001")
        self._configuration = configuration
        self._ids = hadoop.jvm.org.apache.hadoop.mapreduce
        self._tracker = f"2026112200{next(_runs):02}"

    def _context(self, task: int, attempt: int) -> Any:
        job = self._ids.JobID(self._tracker, 1)
        kind = self._hadoop.jvm.org.apache.hadoop.mapreduce.TaskType.MAP
        attempt_id = self._ids.TaskAttemptID(self._ids.TaskID(job, kind, task), attempt)
        return self._ids.task.TaskAttemptContextImpl(self._configuration, attempt_id)

    def committer(self, task: int = 0, attempt: int = 0) -> tuple[Any, Any]:
        """Return the committer of an attempt, and its context."""
        context = self._context(task, attempt)
        kind = self._hadoop.jvm.org.apache.hadoop.fs.s3a.commit.magic.MagicS3GuardCommitter
        return kind(self._path, context), context

    def setup(self) -> None:
        """Begin the job."""
        committer, context = self.committer()
        committer.setupJob(context)

    def task(self, number: int, files: dict[str, bytes], *, attempt: int = 0) -> Callable[[], None]:
        """Write files in an attempt at a task; return what commits it."""
        committer, context = self.committer(number, attempt)
        committer.setupTask(context)
        for name, data in files.items():
            path = self._hadoop.jvm.org.apache.hadoop.fs.Path(committer.getWorkPath(), name)
            file = path.getFileSystem(self._configuration).create(path)
            file.write(data)
            file.close()
        return lambda: committer.commitTask(context)

    def commit(self) -> None:
        """Commit the job: what its tasks have left, and no matter who they were."""
        committer, context = self.committer()
        committer.commitJob(context)
