"""The nightly job: wait until nothing that was loaded is in doubt, then run the real Spark job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from bench.processes import ROOT
from omidpy.base.installation import install_hint
from omidpy.manager import TransactionManager

GRACE: Final = "2s"
"""Hours in production; see the reference of the job's options."""

WATERMARK_TIMEOUT_S: Final = 90.0
JOB_TIMEOUT_S: Final = 600.0
_POLL_S: Final = 0.1


class Laggard(msgspec.Struct):
    """A key range that holds the horizon back."""

    table: str
    reason: str


class Report(msgspec.Struct):
    """The part of the job's report that the summary shows."""

    rows_read: int
    cells_read: int
    cells_healed: int
    transactions_invalidated: int
    cells_dropped: int
    entries_pruned: int
    invalidations_pruned: int
    low_watermark: int
    horizon: int
    laggards: list[Laggard]
    seconds: float


def await_watermark(tm: TransactionManager, look_on: Callable[[], None]) -> int:
    """Wait until no transaction begun so far can commit any more; return a newer start timestamp.

    Raises:
        RuntimeError: the low watermark does not move.
    """
    newer = tm.begin(read_only=True)
    newer.rollback()
    deadline_s = time.monotonic() + WATERMARK_TIMEOUT_S
    while tm.low_watermark() < newer.start_ts:
        if time.monotonic() > deadline_s:
            raise RuntimeError(
                f"the low watermark stands at {tm.low_watermark()}, below {newer.start_ts}, after "
                f"{WATERMARK_TIMEOUT_S} s"
            )
        look_on()
        time.sleep(_POLL_S)
    return newer.start_ts


def compact(*, store: str, tso: str, directory: Path, look_on: Callable[[], None]) -> Report:
    """Run the Spark job with graces of seconds.

    Args:
        store: Address of the store, absolute: the job runs in `directory`.
        tso: Address of the oracle.
        directory: Where the job's report, its log and Spark's own leftovers go.
        look_on: Called while the job runs.

    Raises:
        RuntimeError: the job failed or took too long; the message ends with what it said last.
    """
    report_path = directory / "compaction.json"
    report_path.unlink(missing_ok=True)
    log = directory / "compaction.log"
    command = [
        str(_spark_submit()),
        str(ROOT / "compactor" / "compactor.py"),
        *("--store", store, "--tso", tso),
        *("--grace", GRACE, "--invalidation-grace", GRACE, "--retention", "0s", "--wait"),
        *("--report", str(report_path)),
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            deadline_s = time.monotonic() + JOB_TIMEOUT_S
            while process.poll() is None and time.monotonic() < deadline_s:
                look_on()
                time.sleep(_POLL_S)
        finally:
            process.kill()
            status = process.wait()
    if status != 0 or not report_path.exists():
        raise RuntimeError(f"the compaction ended with {status}:\n{log.read_text()[-4000:]}")
    return msgspec.json.decode(report_path.read_bytes(), type=Report)


def _spark_submit() -> Path:
    beside = Path(sys.executable).parent / "spark-submit"
    found = beside if beside.exists() else shutil.which("spark-submit")
    if found is None:
        raise RuntimeError(f"spark-submit is missing: {install_hint('spark')}, or make demo")
    return Path(found)
