"""From addresses and options to a run and its report: what the Spark job and the CLI share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from compactor.lag import is_late
from compactor.options import Options
from compactor.pruning.timestamps import NOBODY, Asked
from compactor.report import Report
from compactor.run.environment import Environment, Executors
from compactor.run.plan import run
from compactor.shell.display import details, shown_progress, summary
from compactor.shell.files import check_file, put_file
from compactor.shell.metrics import JOB, check_target, export, values_of
from omidpy.base.telemetry.events import JSON, TEXT, event_line
from omidpy.base.telemetry.streams import tell
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.errors import ConfigError, OmidError, UsageError
from omidpy.opening import open_oracle, open_store
from omidpy.storage.base import Store

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_HELD_BACK: Final = 3
"""Done, but something holds the horizon back, so that commits are kept; the report names it."""
EXIT_LATE: Final = 4
"""The same, and something is behind for longer than `--max-lag`."""

LONG_RUN_S: Final = 10.0
"""Of a run that took so long, it is told where the time went."""

MakeExecutors: TypeAlias = Callable[[Store, Clock], Executors]


def compact_address(
    store_url: str,
    tso: str | None,
    options: Options,
    make_executors: MakeExecutors,
    *,
    log_format: str = TEXT,
) -> Report:
    """Open a store, make sure that `tso` serves it, and compact it once.

    Args:
        store_url: Address of the store; an embedded one must exist.
        tso: Address of its oracle, which must answer and serve the same store; None asks none: the
            low watermark is read from the store in any case.
        options: What to do.
        make_executors: Makes what carries out the tasks.
        log_format: How its progress is written, see `omidpy/base/telemetry/events.py`.
    """
    clock = SystemClock()
    store = open_store(store_url, must_exist=True)
    try:
        if not (store.capabilities.exact_delete and store.capabilities.multi_version_scan):
            raise ConfigError(
                f"{store.url} cannot delete single versions or scan all of them, which compaction "
                "needs; open the store through Thrift2"
            )
        asked = NOBODY if tso is None else ask_oracle(store, tso)
        executors = make_executors(store, clock)
        with shown_progress(clock, log_format) as progress:
            environment = Environment(
                clock=clock,
                execute_ranges=executors.ranges,
                execute_slices=executors.slices,
                sleep=time.sleep,
                progress=progress,
                asked=asked,
                open_folder=executors.open_folder,
            )
            return run(store, options, environment)
    except KeyboardInterrupt:
        tell(interrupted(store_url, options))
        raise
    finally:
        store.close()


def interrupted(store_url: str, options: Options) -> str:
    """Return what is said to a person who has interrupted a run."""
    if options.is_dry_run:
        return "compaction: interrupted; nothing was written"
    return (
        "compaction: interrupted; what it has done is done, and ranges that it has claimed need "
        f"not be read again: `omidpy compact --store {store_url} --resume` goes on with it within "
        "a day, and without --resume a new run begins (the Spark job takes the same option)"
    )


def ask_oracle(store: Store, tso: str) -> Asked:
    """Make sure that an oracle answers and serves a store; return what it says of timestamps."""
    from omidpy.oracle import zookeeper  # noqa: PLC0415 - only for its address

    with contextlib.closing(open_oracle(store, tso)) as oracle:
        drawn_ts = oracle.begin().start_ts
    if not tso.startswith("zk:"):
        return Asked(drawn_ts)
    address = zookeeper.parse_zookeeper(tso)

    def read_ceiling() -> int:
        with zookeeper.connected(address) as session:
            return zookeeper.read_omid_ceiling(session, address) or 0

    read_ceiling()  # an ensemble that cannot be reached is told before anything is begun
    return Asked(drawn_ts, read_ceiling)


def show(
    report: Report,
    options: Options,
    *,
    report_path: str | None,
    as_json: bool,
    is_detailed: bool = False,
    log_format: str = TEXT,
) -> int:
    """Write the report to its file, and to stdout as JSON or for a person; return the exit code.

    What was done to each table goes to stderr, if it is asked for or the run was long.  A file that
    cannot be written is named there, and makes the exit code 1: whoever reads it finds none, or the
    old one.  So does stdout.
    """
    code = exit_code_of(report, options)
    if options.metrics is not None and not report.dry_run:
        export(options.metrics, report, exit_code=code, now_s=time.time())
    if report_path is not None:
        try:
            put_file(report_path, f"{report.json()}\n".encode())
        except OSError as error:
            code = EXIT_FAILED
            tell(f"compaction: done, and no report in {report_path}: {error}")
    if log_format == JSON:
        say_end(report, exit_code=code)
    elif is_detailed or report.seconds >= LONG_RUN_S:
        for line in details(report):
            tell(f"compaction: {line}")
    try:
        print(report.json() if as_json else summary(report), flush=True)
    except OSError as error:
        code = EXIT_FAILED
        tell(f"compaction: done, and its report cannot be written to stdout: {error.strerror}")
    return code


def say_end(report: Report, *, exit_code: int) -> None:
    """Write how a run has ended as an event, by the names of its metrics."""
    now_s = time.time()
    values = values_of(report, exit_code=exit_code, now_s=now_s)
    known = {f"{JOB}_{name}": value for name, value in values.items() if value is not None}
    line = event_line(JSON, "compaction-done", now_s, "info", dry_run=report.dry_run, **known)
    tell(line)


def check_targets(report_path: str | None, options: Options) -> None:
    """Refuse files that could not be written, before an hour of work."""
    check_target(options.metrics)
    if report_path is not None:
        check_file("--report", report_path)


def exit_code_of(report: Report, options: Options) -> int:
    """Return the exit code of a run that came to its end."""
    if is_late(report.laggards, max_lag_s=options.max_lag_s):
        return EXIT_LATE
    return EXIT_HELD_BACK if report.laggards else EXIT_DONE


def exit_code(error: OmidError, log_format: str = TEXT) -> int:
    """Say on stderr, in one line, what went wrong; return the exit code for it."""
    line = f"error: {error}"
    if log_format == JSON:
        line = event_line(JSON, "compaction-failed", time.time(), "error", error=error)
    tell(line)
    return EXIT_USAGE if isinstance(error, UsageError | ConfigError) else EXIT_FAILED
