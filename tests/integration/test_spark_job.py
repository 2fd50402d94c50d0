"""The real Spark job: `spark-submit compactor/compactor.py`, as the README says to run it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from compactor.shell.job import cause, check_master, is_local, parser, worker_url
from compactor.shell.job import main as job_main
from omidpy.base.cells import shadow_qualifier
from omidpy.errors import ConfigError
from omidpy.facts.watermarks import Watermarks
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import World
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import one_region_store
from tests.machines.spark_cluster import packed_environment, spark_cluster
from tests.machines.yarn import spark_home, yarn_cluster

ROAD_BY_DAY: Final = Road.DIRECT
ROOT: Final = Path(__file__).parents[2]
JOB: Final = ROOT / "compactor" / "compactor.py"
SUBMIT: Final = Path(sys.executable).parent / "spark-submit"
QUIET: Final = f"-Dlog4j2.configurationFile={JOB.with_name('log4j2.properties')}"
# Options of a driver are instead of those in `tests/machines/spark_conf`.
QUICK: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
DEADLINE_S: Final = 300


def submitted(
    *words: str, cwd: Path, submit: Sequence[str] = (), settings: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the job under spark-submit, from a directory that is not the checkout."""
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment.pop("PYTHONPATH", None)
    environment.update(settings or {})
    return subprocess.run(
        [str(SUBMIT), "--driver-java-options", f"{QUIET} {QUICK}", *submit, str(JOB), *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


needs_spark = pytest.mark.skipif(
    not SUBMIT.exists() or shutil.which("java") is None,
    reason="spark-submit (pip install 'omidpy[spark]') or a Java runtime is missing",
)


@pytest.mark.nightly
@pytest.mark.spark
@needs_spark
def test_job_heals_drops_prunes_and_prints_one_document(tmp_path: Path) -> None:
    """One task a region, a relative address, and nothing but the report on stdout."""
    world = World(SqliteStore(str(tmp_path / "s.db")))
    leave_work(world)
    world.store.close()
    check_work("sqlite:///s.db", tmp_path)
    check_claims(World(SqliteStore(str(tmp_path / "s.db"))))


@pytest.mark.spark
@needs_spark
def test_job_passes_over_the_regions_of_hbase(hbase: HBase, tmp_path: Path) -> None:
    """Each task opens the store itself, in a process of Spark's."""
    with one_region_store(hbase) as store:
        world = World(store)
        leave_work(world)
        check_work(hbase.url, tmp_path)
        check_claims(world)


@pytest.mark.nightly
@pytest.mark.spark
@needs_spark
def test_a_cluster_runs_the_job_from_an_archive(hbase: HBase, tmp_path: Path) -> None:
    """Its workers see neither the checkout nor its environment, as those of other machines."""
    archive = packed_environment(tmp_path)
    with spark_cluster(tmp_path / "work") as master, one_region_store(hbase) as store:
        world = World(store)
        leave_work(world)
        submit = ["--master", master, "--archives", f"{archive}#environment"]
        for setting in (
            "spark.pyspark.python=./environment/bin/python",
            f"spark.pyspark.driver.python={sys.executable}",
            "spark.executorEnv.PYTHONPATH=",
            "spark.driver.host=127.0.0.1",
            "spark.driver.bindAddress=127.0.0.1",
        ):
            submit += ["--conf", setting]
        check_work(hbase.url, tmp_path, submit=submit)
        check_claims(world)


@pytest.mark.nightly
@pytest.mark.spark
@needs_spark
@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_yarn_runs_the_job_from_an_archive(mode: str, hbase: HBase, tmp_path: Path) -> None:
    """As the guide says it; in cluster mode the driver sees no checkout either."""
    archive = packed_environment(tmp_path)
    with yarn_cluster(tmp_path / "yarn") as found, one_region_store(hbase) as store:
        world = World(store)
        leave_work(world)
        submit = ["--master", "yarn", "--deploy-mode", mode]
        submit += ["--archives", f"{archive}#environment", "--num-executors", "1"]
        submit += ["--driver-memory", "512m", "--executor-memory", "512m"]
        confs = [
            "spark.executorEnv.PYTHONPATH=",
            f"spark.yarn.jars=local:{spark_home()}/jars/*",
            f"spark.yarn.stagingDir={(tmp_path / 'staging').as_uri()}",
        ]
        settings = {
            "HADOOP_CONF_DIR": str(found),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": "./environment/bin/python",
        }
        if mode == "cluster":
            confs += [
                f"spark.yarn.appMasterEnv.{name}=./environment/bin/python"
                for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
            ]
        for conf in confs:
            submit += ["--conf", conf]
        if mode == "client":
            check_work(hbase.url, tmp_path, submit=submit, settings=settings)
        else:
            report = tmp_path / "r.json"
            words = ("--store", hbase.url, "--grace", "0s", "--report", str(report))
            ran = submitted(*words, cwd=tmp_path, submit=submit, settings=settings)
            assert ran.returncode == 0, ran.stderr
            check_report(json.loads(report.read_bytes()))
            world.set_low_watermark(2000)
            ran = submitted(
                *words, "--exclude", "t", cwd=tmp_path, submit=submit, settings=settings
            )
            assert ran.returncode == 1, "YARN knows done and failed; the report says more"
            assert [one["table"] for one in json.loads(report.read_bytes())["laggards"]] == ["t"]
        check_claims(world)


def leave_work(world: World) -> None:
    """Write what clients leave that die, in two tables of four regions."""
    world.table(splits=[b"h", b"p"])
    world.table("empty")
    for row, start_ts in ((b"a", 100), (b"k", 200), (b"z", 300)):
        world.put(row, start_ts)
        world.enter(start_ts, start_ts + 50)
    world.put(b"k", 400)


def check_report(report: Mapping[str, Any]) -> None:
    """Check what a run says that has met what `leave_work` left."""
    assert (report["rows_read"], report["cells_healed"]) == (3, 3)
    assert (report["transactions_invalidated"], report["cells_dropped"]) == (1, 1)
    assert (report["entries_pruned"], report["laggards"]) == (3, [])


def check_work(
    url: str,
    folder: Path,
    *,
    submit: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> None:
    """Run the job, and check its report."""
    words = ("--store", url, "--grace", "0s", "--json", "--report", "r.json")
    ran = submitted(*words, cwd=folder, submit=submit, settings=settings)
    assert ran.returncode == 0, ran.stderr
    check_report(json.loads(ran.stdout))
    assert "4 of 4 ranges, 3 rows, 4 cells, " in ran.stderr
    assert "t: 3 ranges, 3 rows, 4 cells and " in ran.stderr
    said = [line for line in ran.stderr.splitlines() if not line.startswith("compaction: ")]
    assert not [line for line in said if "Spark" in line or " WARN " in line], "nothing of its own"
    assert (folder / "r.json").read_text() == ran.stdout


def check_claims(world: World) -> None:
    """Check that every region was healed, and claimed."""
    assert world.shadows() == {(b"a", 100): 150, (b"k", 200): 250, (b"z", 300): 350}
    claims = {claim.key_range for claim in Watermarks(world.control).claims()}
    assert claims == {(b"", b"h"), (b"h", b"p"), (b"p", b""), (b"", b"")}


@pytest.mark.nightly  # by day in a session: tests/integration/spark/test_spark_progress.py
@pytest.mark.spark
@needs_spark
def test_what_a_worker_cannot_read_is_a_laggard(tmp_path: Path) -> None:
    """The other ranges are claimed, and the exit code says that something is left to do."""
    world = World(SqliteStore(str(tmp_path / "s.db")))
    world.table(splits=[b"m"])
    cell = world.put(b"a", 100)
    world.put(b"a", 100, b"short", qualifier=shadow_qualifier(cell.qualifier))
    before = world.cells()
    world.store.close()
    snapshot = tmp_path / "hbase" / ".hbase-snapshot" / "damaged"
    snapshot.mkdir(parents=True)
    (tmp_path / "hbase" / "hbase.version").write_bytes(b"8")
    (snapshot / ".snapshotinfo").write_bytes(b"\x0b")
    root = f"file://{tmp_path}/hbase"
    words = ("--store", f"sqlite:///{tmp_path}/s.db", "--hbase-root", root, "--json")
    ran = submitted(*words, cwd=tmp_path)
    assert ran.returncode == 3, ran.stderr
    laggard, unlisted = json.loads(ran.stdout)["laggards"]
    assert "damaged are none that HBase 2 writes" in unlisted["reason"], "read by Hadoop"
    assert (laggard["table"], laggard["end"]) == ("t", b"m".hex())
    assert b"short".hex() in laggard["reason"]
    after = World(SqliteStore(str(tmp_path / "s.db")))
    assert after.cells() == before
    (claim,) = Watermarks(after.control).claims()
    assert claim.start == b"m"


# -- what needs no Spark ---------------------------------------------------------------------------


def test_a_failure_is_a_document_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As of `omidpy compact`: who reads JSON read nothing."""
    code = job_main(["--store", f"sqlite:///{tmp_path}/s.db", "--report", str(tmp_path), "--json"])
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert (code, document["code"]) == (2, 2)
    assert told.err == f"error: {document['error']}\n"


def test_file_is_refused_to_a_cluster() -> None:
    """Workers elsewhere would open other files of that name, or none."""
    check_master("sqlite:///s.db", "local[*]")
    check_master("hbase+thrift2://gw:9090", "yarn")
    for master in ("yarn", "spark://host:7077", "local-cluster[2,1,1024]", ""):
        with pytest.raises(ConfigError, match="one file"):
            check_master("sqlite:///s.db", master)
    assert is_local("local")
    assert not is_local("localhost")


def test_workers_get_an_absolute_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their directory is Spark's choice."""
    monkeypatch.chdir(tmp_path)
    assert worker_url("sqlite:///s.db") == f"sqlite:///{tmp_path}/s.db"
    assert worker_url("sqlite:////x/s.db") == "sqlite:////x/s.db"
    assert worker_url("hbase+thrift2://gw:9090") == "hbase+thrift2://gw:9090"


def test_cause_of_a_failed_task_is_our_own_error() -> None:
    """Out of a page of Java and Python frames."""
    text = "An error occurred\n  File x\nomidpy.errors.CorruptCell: the cell\n\n\tat java.lang"
    assert cause(RuntimeError(text)) == "CorruptCell: the cell"
    assert cause(RuntimeError("lost\nmore")) == "lost"
    assert cause(RuntimeError()) == ""


def test_cause_of_a_failed_task_is_that_its_process_was_killed() -> None:
    """Spark's first line names a method of its own."""
    text = (
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 "
        "failed 1 times, most recent failure: org.apache.spark.SparkException: Python worker "
        "exited unexpectedly (crashed).\n\tat java.lang"
    )
    assert "killed, or ran out of memory" in cause(RuntimeError(text))


def test_store_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with every verb of the command line."""
    monkeypatch.setenv("OMIDPY_STORE", "sqlite:///s.db")
    assert parser().parse_args([]).store == "sqlite:///s.db"
    monkeypatch.delenv("OMIDPY_STORE")
    with pytest.raises(SystemExit) as exit_info:
        parser().parse_args([])
    assert exit_info.value.code == 2
