"""`omidpy fate run`: an executor as a daemon.

SIGTERM and ^C let the steps that run now end, give their operations back and exit 0; a second one
exits at once, and others take over when the lease is over.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from types import FrameType
from typing import Annotated, Any, Self

import typer

from omidpy.admin import TableTools
from omidpy.base.telemetry.events import TEXT, check_format, configure, log_event
from omidpy.base.timing.pauses import Seldom
from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import LogFormat, MetricsAddress, say, serve_metrics
from omidpy.cli.ending import EXIT_INTERRUPTED
from omidpy.cli.operations.common import FateStoreUrl, opened_fates
from omidpy.committers.publishing import operation as _publishing_steps  # noqa: F401 - registers them
from omidpy.connect import connect
from omidpy.errors import OmidError, UsageError
from omidpy.fate.client import Fate
from omidpy.fate.locks import Locks
from omidpy.fate.running.executor import DEFAULT_POOLS
from omidpy.fate.store import FateStore
from omidpy.opening import open_oracle, open_store
from omidpy.oracle.zookeeper import SCHEME
from omidpy.recipes.export_queue.upkeep.rebucketing import RebucketTools

log = logging.getLogger(__name__)


class Environment:
    """What steps get where no `--env` makes something of its own.

    Attributes:
        store: The operations.
        locks: Their locks.
    """

    def __init__(self, store: FateStore, url: str, tso: str | None) -> None:
        """Open nothing yet but the operations, so that these go on while the oracle is down."""
        self.store = store
        self.locks = Locks(store)
        self._url = url
        self._tso = tso
        self._mutex = threading.Lock()
        self._seldom = Seldom(log)
        self._tables: TableTools | None = None
        self._queues: RebucketTools | None = None

    @property
    def tables(self) -> TableTools | None:
        """What changes of tables need; None: there is no oracle, or it does not answer now."""
        with self._mutex:
            if self._tables is None and self._tso and not self._url.startswith(SCHEME):
                try:
                    self._tables = self._opened(self._tso)
                except OmidError as error:
                    self._seldom.say("changes of tables wait: %s", error)
            return self._tables

    @property
    def queues(self) -> RebucketTools | None:
        """What operations of export queues need; None: there is no oracle, or it does not answer.

        Their tables are those of a manager that prefixes none.
        """
        with self._mutex:
            if self._queues is None and self._tso and not self._url.startswith(SCHEME):
                try:
                    self._queues = RebucketTools(connect(self._url, self._tso))
                except OmidError as error:
                    self._seldom.say("operations of export queues wait: %s", error)
            return self._queues

    def _opened(self, tso: str) -> TableTools:
        with ExitStack() as stack:
            cells = stack.enter_context(closing(open_store(self._url, must_exist=True)))
            tools = TableTools(cells, open_oracle(cells, tso), self.locks)
            stack.pop_all()
        return tools

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._queues is not None:
            self._queues.tm.close()
        if self._tables is not None:
            self._tables.oracle.close()
            self._tables.store.close()


def run(
    *,
    store: FateStoreUrl,
    tso: Annotated[
        str | None,
        typer.Option(
            "--tso",
            envvar="OMIDPY_TSO",
            metavar="ADDR",
            help="The oracle of the store: HOST:PORT, store: or zk://HOSTS/NS.  Without it changes "
            "of tables are left to others.",
        ),
    ] = None,
    module: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Import a module that defines steps; repeated."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Called with the store of operations; what it returns is what every step gets.  A "
            "context manager is entered.",
        ),
    ] = None,
    pool: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAMES=N",
            help="N threads for these kinds of operations, with commas; `general` is the rest.  "
            "Repeated.  Default: general=4.",
        ),
    ] = None,
    lease: Annotated[
        str, typer.Option(metavar="TIME", help="Others take over after so long without a sign.")
    ] = "10s",
    poll: Annotated[
        str, typer.Option(metavar="TIME", help="How often to look for operations of others.")
    ] = "1s",
    metrics: MetricsAddress = None,
    log_format: LogFormat = TEXT,
) -> None:
    """Run operations until SIGTERM: those of others, and those that the dead have left."""
    configure(check_format(log_format))
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - as `python -m` has it
    for name in module or ():
        imported(name)
    pools = _pools(pool) if pool else DEFAULT_POOLS
    lease_s, poll_s = seconds_in(lease, name="--lease"), seconds_in(poll, name="--poll")
    with ExitStack() as stack:
        fates = stack.enter_context(opened_fates(store))
        made = _environment(env, fates, stack) if env else Environment(fates, store, tso)
        if isinstance(made, Environment):
            stack.enter_context(made)
        executor = Fate(made, fates, pools, lease_s=lease_s, poll_s=poll_s)
        if metrics is not None:
            from prometheus_client import REGISTRY  # noqa: PLC0415 - only where asked for

            from omidpy.prometheus import register_fate  # noqa: PLC0415 - the same

            stack.callback(REGISTRY.unregister, register_fate(fates))
            serve_metrics(metrics)
        stopped = stack.enter_context(told_to_stop())
        executor.start()
        if log_format == TEXT:
            say(f"running operations of {fates.url}", err=True)
        else:
            log_event(log, logging.INFO, "running-operations", store=fates.url)
        stopped.wait()
        executor.close()
        log_event(log, logging.INFO, "stopped", store=fates.url)


def imported(name: str) -> Any:
    """Import a module that a command line names."""
    if not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{name!r} is no name of a module; write it as an import does: a.b")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise UsageError(
            f"there is no module {name!r}; start in the folder where it is, or set PYTHONPATH"
        ) from error


def _environment(env: str, fates: FateStore, stack: ExitStack) -> Any:
    name, _, function = env.partition(":")
    make = getattr(imported(name), function, None) if function else None
    if not callable(make):
        raise UsageError(f"--env {env!r} names no function; write MODULE:FUNCTION")
    made = make(fates)
    return stack.enter_context(made) if hasattr(made, "__enter__") else made


def _pools(options: Sequence[str]) -> dict[str, int]:
    pools = {}
    for option in options:
        names, _, count = option.rpartition("=")
        if not names or not (count.isascii() and count.isdigit() and len(count) < 10):
            raise UsageError(f"--pool {option!r} is none; write for instance PRUNE,HEAL=1")
        pools[names] = int(count)
    return pools


@contextmanager
def told_to_stop() -> Iterator[threading.Event]:
    """Yield what is set by the first signal; the second one ends the process."""
    stopped = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stopped.is_set():
            os._exit(EXIT_INTERRUPTED)
        stopped.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
