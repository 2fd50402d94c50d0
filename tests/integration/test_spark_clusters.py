"""DataFrames on Spark's own cluster and on YARN: executors have what the job brings along alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.machines.frames_cluster import ROWS
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import ROOT, tso_server
from tests.machines.spark_cluster import packed_environment, spark_cluster
from tests.machines.yarn import spark_home, yarn_cluster

ROAD_BY_DAY: Final = Road.DIRECT
JOB: Final = ROOT / "tests" / "machines" / "frames_cluster.py"
SUBMIT: Final = Path(sys.executable).parent / "spark-submit"
PYTHON: Final = "./environment/bin/python"
DEADLINE_S: Final = 600

Cluster = Callable[[Path], AbstractContextManager[tuple[list[str], dict[str, str]]]]

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.nightly]


@contextmanager
def standalone(folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Run Spark's own cluster; give what `spark-submit` is told, and its environment."""
    with spark_cluster(folder / "work") as master:
        words = ["--master", master]
        for setting in ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1"):
            words += ["--conf", setting]
        yield words, {}


@contextmanager
def yarn(folder: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Run a YARN; give what `spark-submit` is told, and its environment."""
    with yarn_cluster(folder / "yarn") as settings:
        words = ["--master", "yarn", "--num-executors", "1"]
        words += ["--driver-memory", "512m", "--executor-memory", "512m"]
        for setting in (
            f"spark.yarn.jars=local:{spark_home()}/jars/*",
            f"spark.yarn.stagingDir={(folder / 'staging').as_uri()}",
        ):
            words += ["--conf", setting]
        yield (
            words,
            {
                "HADOOP_CONF_DIR": str(settings),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": PYTHON,
            },
        )


@pytest.mark.parametrize("cluster", [standalone, yarn])
def test_frames_and_streams_run_on_a_cluster(
    hbase: HBase, cluster: Cluster, tmp_path: Path
) -> None:
    """What was written is read, and followed into another table, each change once."""
    archive = packed_environment(tmp_path, beside=("pandas", "pyarrow"))
    beside = tmp_path / "submitted"
    subprocess.run(
        ["tar", "-xzf", archive, f"--one-top-level={beside / 'environment'}"], check=True
    )
    with (
        empty_hbase(hbase) as url,
        tso_server(url) as server,
        cluster(tmp_path) as (words, settings),
    ):
        command = [str(SUBMIT), *words, "--archives", f"{archive}#environment"]
        command += ["--conf", "spark.sql.shuffle.partitions=1", str(JOB), url, server.address]
        environment = {**os.environ, "SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": PYTHON}
        environment.update(settings)
        environment.pop("PYTHONPATH", None)
        environment.pop("PYSPARK_DRIVER_PYTHON", None)
        ended = subprocess.run(
            [*command, (tmp_path / "checkpoint").as_uri()],
            cwd=beside,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr[-4000:]
    lines = ended.stdout.splitlines()
    tasks = [line for line in lines if line.startswith("omidpy of a task")]
    assert tasks
    assert all("/environment/" in line and str(ROOT) not in line for line in tasks)
    assert f"rows and sum of t: {ROWS} {(ROWS - 1) * ROWS}" in lines
    assert f"rows and sum of copy: {2 * ROWS} {2 * ROWS}" in lines
