"""The Spark job: arguments, session, and one task for each key range or slice.

The plan runs in the driver (`run/plan.py`); only passes over ranges and slices of the commit table
travel.  A task opens the store by its address, passes and claims, or prunes, and returns its
counts.  Spark may run it twice, at once or again: a pass is idempotent, a claim is true whichever
made it, and what a slice may forget was settled before it was sent.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote

import compactor
from compactor.options import options_from_words
from compactor.pruning.hadoop import folder_of_spark
from compactor.pruning.prune import PruneResult, PruneTask, SlicePruner
from compactor.ranges.advances import LOOK_EVERY_S, TELL_EVERY_S, Advances, ByTask, Teller
from compactor.ranges.progress import OnProgress, Passed
from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.run.environment import ExecuteRanges, Executors
from compactor.shell.command import (
    check_targets,
    compact_address,
    exit_code,
    show,
)
from omidpy.base.installation import install_hint
from omidpy.base.schema.compaction_choices import COMPACTION
from omidpy.base.telemetry.events import FORMS, JSON, TEXT, check_format, configure, failure_line
from omidpy.base.telemetry.stages import described
from omidpy.base.telemetry.streams import tell
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.words.choices import add_choices
from omidpy.errors import ConfigError, OmidError, StorageError
from omidpy.facts.control import ControlTable
from omidpy.opening import open_store
from omidpy.storage.base import Store
from omidpy.storage.handed import HandedStore, handed
from omidpy.storage.sqlite.queries.reads import url_of

if TYPE_CHECKING:
    from pyspark import Accumulator, SparkConf, SparkContext

T = TypeVar("T")

PROGRESS_EVERY_S: Final = 0.2
LOOPBACK: Final = "127.0.0.1"
WORKER_DIED: Final = "Python worker exited unexpectedly"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; return its exit code."""
    keep_stdout_clean()
    # Spark says so whenever pandas is installed, and nothing here uses that.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    words = parser().parse_args(arguments)
    try:
        if check_format(words.log_format) == JSON:
            configure(JSON)
        asked = vars(words)
        options = options_from_words(**{one.key: asked[one.key] for one in COMPACTION})
        check_targets(words.report, options)
        check_store(words.store)
        context = spark_context()
        try:
            check_master(words.store, context.master or "")
            report = compact_address(
                words.store,
                words.tso,
                options,
                partial(executors_on_spark, context),
                log_format=words.log_format,
            )
        finally:
            context.stop()
        return show(
            report,
            options,
            report_path=words.report,
            as_json=words.json,
            is_detailed=True,
            log_format=words.log_format,
        )
    except OmidError as error:
        code = exit_code(error, words.log_format)
        if words.json:
            tell(failure_line(str(error), code), sys.stdout)
        return code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's arguments."""
    made = argparse.ArgumentParser(
        prog="compactor.py",
        description="Heal, drop and prune: the nightly job of an omidpy store.",
        epilog="Durations are written 500ms, 90s, 15m, 24h or 7d.",
    )
    environment = os.environ.get
    store = environment("OMIDPY_STORE")
    made.add_argument(
        "--store",
        metavar="URL",
        default=store,
        required=store is None,
        help="The store to compact.",
    )
    made.add_argument(
        "--tso",
        metavar="ADDR",
        default=environment("OMIDPY_TSO"),
        help="Its oracle, to be checked.",
    )
    add_choices(made, COMPACTION)
    made.add_argument(
        "--log-format",
        metavar="|".join(FORMS),
        default=environment("OMIDPY_LOG_FORMAT") or TEXT,
        help=f"How progress and end are written on stderr, one event a line.  Default: {TEXT}.",
    )
    made.add_argument("--report", metavar="FILE", help="Write the report there as JSON.")
    made.add_argument("--json", action="store_true", help="Print the report as JSON.")
    return made


class _StderrOfSpark(io.TextIOBase):
    """The stderr of the Java process that spark-submit became."""

    def __init__(self, java_stream: Any) -> None:
        self._java_stream = java_stream

    def write(self, text: str) -> int:
        """Write at once; Java's stream is not buffered."""
        self._java_stream.print(text)
        return len(text)


def keep_stdout_clean() -> None:
    """Send stderr past spark-submit, which would mix it into stdout and so into `--json`."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return
    from pyspark import SparkContext  # noqa: PLC0415 - an extra, here for certain

    SparkContext._ensure_initialized()  # noqa: SLF001 - the way to Java without a context
    java: Any = SparkContext._jvm  # noqa: SLF001 - see above
    sys.stderr = _StderrOfSpark(java.System.err)


# -- the session -----------------------------------------------------------------------------------


def spark_context() -> SparkContext:
    """Return a quiet Spark context; what the user configured is kept."""
    try:
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"pyspark is not installed; run {install_hint('spark')}, or compact a small store with "
            "`omidpy compact`"
        ) from error
    conf = SparkConf()
    for key, value in defaults(conf).items():
        conf.setIfMissing(key, value)
    return SparkContext.getOrCreate(conf)


def defaults(conf: SparkConf) -> dict[str, str]:
    """Return the settings that apply where the user set nothing."""
    made = {
        "spark.master": "local[*]",
        "spark.app.name": "omidpy compaction",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        # A checkout that is not installed: workers find the packages where this process did.
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            [
                str(Path(compactor.__file__).parents[1]),
                *os.environ.get("PYTHONPATH", "").split(os.pathsep),
            ]
        ).rstrip(os.pathsep),
    }
    if is_local(conf.get("spark.master", "local[*]") or ""):
        # A job on one machine listens on loopback alone.
        made["spark.driver.host"] = LOOPBACK
        made["spark.driver.bindAddress"] = LOOPBACK
    return made


def is_local(master: str) -> bool:
    """Say whether every task runs on this machine."""
    return master == "local" or master.startswith("local[")


def check_store(store_url: str) -> None:
    """Refuse a store that no Spark worker can open."""
    if store_url == "memory:":
        raise ConfigError(
            "--store memory: lives in one process and is empty in every other; use sqlite:/// or "
            "a cluster"
        )


def check_master(store_url: str, master: str) -> None:
    """Refuse to send a store that is one file to workers on other machines."""
    if store_url.startswith("sqlite:") and not is_local(master):
        raise ConfigError(
            f"--store {store_url} is one file on this machine, and the Spark master is {master}, "
            "whose workers run elsewhere; use --master 'local[*]', or `omidpy compact`"
        )


def worker_url(store_url: str) -> str:
    """Return the address under which a worker finds the store, whatever directory it runs in."""
    prefix = "sqlite:///"
    if store_url.startswith(prefix):
        return url_of(str(Path(unquote(store_url.removeprefix(prefix))).absolute()))
    return store_url


# -- the tasks -------------------------------------------------------------------------------------


def executors_on_spark(context: SparkContext, store: Store, clock: Clock) -> Executors:
    """Return what carries out each task as one of Spark's.

    Args:
        context: Carries them out.
        store: Where the driver sees how far they are.
        clock: The driver's; a worker reads its own.
    """
    return Executors(
        ranges_on_spark(context, store, clock),
        SlicesOnSpark(context, store),
        partial(folder_of_spark, context),
    )


def ranges_on_spark(
    context: SparkContext,
    store: Store,
    clock: Clock,
    *,
    tell_every_s: float = TELL_EVERY_S,
    look_every_s: float = LOOK_EVERY_S,
) -> ExecuteRanges:
    """Return what passes over ranges with one Spark task each.

    Args:
        context: Carries the tasks out.
        store: What they read.
        clock: The driver's.
        tell_every_s: How often a worker says at most how far it is.
        look_every_s: How often the driver looks at most.
    """

    def execute(tasks: Sequence[RangeTask], on_progress: OnProgress) -> list[RangeResult]:
        sent_store = handed(store, worker_url(store.url)).of(store)
        at_once = min(len(tasks), context.defaultParallelism)
        advances = Advances(
            ControlTable(store),
            tasks[0].run,
            clock,
            is_told=not any(task.is_dry_run for task in tasks),
            look_every_s=look_every_s,
        )
        sent = [
            (number, replace(task, pacing=task.pacing.shared_by(at_once)), advances.of_task(number))
            for number, task in enumerate(tasks)
        ]
        # Spark hands it over as each task ends.
        by_task: Any = ByTask()
        ended: Accumulator[dict[int, Passed]] = context.accumulator({}, by_task)

        def pass_and_count(one: tuple[int, RangeTask, bytes | None]) -> RangeResult:
            number, task, told_as = one
            result = pass_on_worker(sent_store, task, told_as, tell_every_s)
            ended.add({number: Passed().with_result(result)})
            return result

        run_id = tasks[0].run
        what = f"omidpy: pass over {len(sent)} ranges of {store.url}"
        ranges = context.parallelize(sent, len(sent)).map(pass_and_count)
        try:
            with ThreadPoolExecutor(1) as thread:
                job = thread.submit(_named, context, what, run_id, ranges.collect)
                while not wait_for([job], PROGRESS_EVERY_S).done:
                    # As it is now: Spark's thread goes on adding.
                    ended_now = dict(ended.value)
                    on_progress(len(ended_now), advances.so_far(ended_now))
                results = result_of(job.result)
        finally:
            advances.end()
        on_progress(len(tasks), Passed.by(results))
        return results

    return execute


def pass_on_worker(
    sent: HandedStore,
    task: RangeTask,
    told_as: bytes | None = None,
    tell_every_s: float = TELL_EVERY_S,
) -> RangeResult:
    """Pass over one range in a Spark worker.

    Args:
        sent: The store, from anywhere.
        task: The range.
        told_as: Under which row to tell how far it is; None for not at all.
        tell_every_s: How often at most.
    """
    try:
        store = opened_on_worker(sent)
    except (StorageError, ConfigError) as error:
        return RangeResult(task, obstacle=f"a worker could not open the store: {error}")
    clock = SystemClock()
    try:
        range_pass = RangePass(store, task, clock=clock)
        if told_as is None:
            return range_pass.run()
        teller = Teller(ControlTable(store), told_as, clock, tell_every_s)
        range_pass.on_read = teller.tell
        try:
            return range_pass.run()
        finally:
            teller.end()
    finally:
        store.close()


def opened_on_worker(sent: HandedStore) -> Store:
    """Open the store in a Spark worker: it, and no other one that has its address there.

    Raises:
        StorageError, ConfigError: it cannot be, or is another one.
    """
    return sent.opened(partial(open_store, must_exist=True), lambda store: store)


class SlicesOnSpark:
    """Prunes slices of the commit table with one Spark task each."""

    def __init__(self, context: SparkContext, store: Store) -> None:
        self._context = context
        self._store = store
        # One file has one writer at a time.
        is_file = not store.capabilities.remote
        self.workers: int = 1 if is_file else context.defaultParallelism

    def run(self, tasks: Sequence[PruneTask]) -> list[PruneResult]:
        """Carry out every task."""
        at_once = min(len(tasks), self._context.defaultParallelism)
        tasks = [replace(task, pacing=task.pacing.shared_by(at_once)) for task in tasks]
        sent = handed(self._store, worker_url(self._store.url)).of(self._store)
        pruned = self._context.parallelize(tasks, len(tasks)).map(partial(prune_on_worker, sent))
        what = f"omidpy: prune {len(tasks)} slices of the commit table of {self._store.url}"
        return result_of(partial(_named, self._context, what, None, pruned.collect))


def prune_on_worker(sent: HandedStore, task: PruneTask) -> PruneResult:
    """Prune a slice in a Spark worker."""
    try:
        store = opened_on_worker(sent)
    except (StorageError, ConfigError) as error:
        why = f"a worker could not open the store: {error}"
        return PruneResult(task, kept=task.rows, obstacle=why)
    try:
        return SlicePruner(store, task).run()
    finally:
        store.close()


def _named(
    context: SparkContext, what: str, run_id: str | None, collect: Callable[[], list[T]]
) -> list[T]:
    """Run Spark's tasks under a name, in the thread that asks for them: names are a thread's."""
    with described(context, what, group=run_id):
        return collect()


def result_of(collect: Callable[[], list[T]]) -> list[T]:
    """Return what Spark's tasks came to.

    Raises:
        StorageError: one of them failed as often as Spark tries it.
    """
    try:
        return collect()
    except Exception as error:
        raise StorageError(f"a Spark task failed: {cause(error)}") from error


def cause(error: Exception) -> str:
    """Return the line of a worker's traceback that says what happened."""
    lines = [line.strip() for line in str(error).splitlines()]
    if any(WORKER_DIED in line for line in lines):
        return (
            "a worker process ended without a word, so it was killed, or ran out of memory; run "
            "again, on one machine with --master 'local[*,4]' to have its task tried again"
        )
    of_errors = [line for line in lines if line.startswith("omidpy.errors.")]
    return of_errors[-1].removeprefix("omidpy.errors.") if of_errors else lines[0] if lines else ""
