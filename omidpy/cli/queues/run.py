"""`omidpy export run` and `once`: deliver the entries of a queue, for ever or once.

SIGTERM and ^C let the batches under way end, give the buckets back and exit 0; a second one exits
at once, and others take over when the lease is over.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, TypeAlias

import typer

from omidpy.base.telemetry.events import TEXT, check_format, configure, log_event
from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import (
    AsJson,
    LogFormat,
    MetricsAddress,
    StoreUrl,
    TsoAddress,
    print_json,
    say,
    serve_metrics,
)
from omidpy.cli.operations.run import imported, told_to_stop
from omidpy.cli.queues.common import QueueId, managed
from omidpy.errors import OmidError, UsageError
from omidpy.recipes.export_queue import Exporter, ExportQueue, Runner
from omidpy.recipes.export_queue.delivery.patience import MAX_ATTEMPTS
from omidpy.recipes.export_queue.delivery.terms import BUFFER_BYTES
from omidpy.recipes.export_queue.exporter import as_exporter, promise_of

log = logging.getLogger(__name__)

To: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="WHERE",
        help="sqlite:FILE, jsonl:FOLDER, parquet:FOLDER, table:NAME (of the same store, exactly "
        "once), the http(s):// URL of a webhook, postgresql://USER@HOST/DATABASE#TABLE, or "
        "kafka://HOST:PORT/TOPIC.",
    ),
]
Append: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--append", help="Tables of SQL get a row for every entry, not the newest of each key."
    ),
]
AtLeastOnce: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--at-least-once",
        help="Into Kafka without transactions: what was under way when an exporter died is there "
        "twice.",
    ),
]
Taken: TypeAlias = Annotated[
    list[int] | None,
    typer.Option(
        "--taken",
        metavar="409|412",
        help="So a webhook answers of an entry that it has already; repeated.",
    ),
]
ExporterName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--exporter",
        metavar="MODULE:NAME",
        help="An exporter of yours: an object, a class, or a function of batches.",
    ),
]
Buffer: TypeAlias = Annotated[
    int, typer.Option(metavar="BYTES", help="The most that one batch holds.")
]
Policy: TypeAlias = Annotated[
    str,
    typer.Option(
        metavar="park-key|skip|stop", help="What becomes of an entry that cannot be delivered."
    ),
]
Attempts: TypeAlias = Annotated[
    int, typer.Option("--max-attempts", metavar="N", help="So often it may fail alone.")
]
Lease: TypeAlias = Annotated[
    str, typer.Option(metavar="TIME", help="Others take over after so long without a sign.")
]


def run(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    to: To = None,
    append: Append = False,
    at_least_once: AtLeastOnce = False,
    taken: Taken = None,
    exporter: ExporterName = None,
    workers: Annotated[int, typer.Option(metavar="N", help="How many threads.")] = 1,
    buffer: Buffer = BUFFER_BYTES,
    poison: Policy = "park-key",
    max_attempts: Attempts = MAX_ATTEMPTS,
    poll: Annotated[
        str, typer.Option(metavar="TIME", help="How long an idle bucket rests at most.")
    ] = "1s",
    lease: Lease = "10s",
    metrics: MetricsAddress = None,
    log_format: LogFormat = TEXT,
) -> None:
    """Deliver entries until SIGTERM, and share the buckets with others who do."""
    configure(check_format(log_format))
    chosen = _chosen(to, exporter, append=append, at_least_once=at_least_once, taken=taken or ())
    with ExitStack() as stack:
        tm = stack.enter_context(managed(store, tso))
        opened = ExportQueue.open(tm, queue)
        runner = opened.runner(
            chosen,
            workers=workers,
            buffer_bytes=buffer,
            max_poll_s=seconds_in(poll, name="--poll"),
            poison=poison,
            max_attempts=max_attempts,
            lease_s=seconds_in(lease, name="--lease"),
        )
        if metrics is not None:
            from prometheus_client import REGISTRY  # noqa: PLC0415 - only where asked for

            from omidpy.prometheus import register_export  # noqa: PLC0415 - the same

            stack.callback(REGISTRY.unregister, register_export(opened, runner))
            serve_metrics(metrics)
        stopped = stack.enter_context(told_to_stop())
        # The signal handler sets an event, and this thread is the one that runs.
        Thread(target=_stop_after, args=(stopped, runner), daemon=True).start()
        promise = promise_of(chosen)
        if log_format == TEXT:
            say(f"exporting {queue} of {tm.store.url}, {promise}", err=True)
        else:
            log_event(
                log, logging.INFO, "exporting", queue=queue, store=tm.store.url, promise=promise
            )
        runner.run()
        tallies = runner.tally.read().values()
        log_event(
            log,
            logging.INFO,
            "stopped",
            queue=queue,
            omidpy_export_exported_total=sum(one.exported for one in tallies),
            omidpy_export_failures_total=sum(one.failures for one in tallies),
        )


def once(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    to: To = None,
    append: Append = False,
    at_least_once: AtLeastOnce = False,
    taken: Taken = None,
    exporter: ExporterName = None,
    buffer: Buffer = BUFFER_BYTES,
    poison: Policy = "park-key",
    max_attempts: Attempts = MAX_ATTEMPTS,
    lease: Lease = "10s",
    as_json: AsJson = False,
) -> None:
    """Deliver what is in the queue now."""
    chosen = _chosen(to, exporter, append=append, at_least_once=at_least_once, taken=taken or ())
    with managed(store, tso) as tm:
        opened = ExportQueue.open(tm, queue)
        runner = opened.runner(
            chosen,
            buffer_bytes=buffer,
            poison=poison,
            max_attempts=max_attempts,
            lease_s=seconds_in(lease, name="--lease"),
        )
        count, dead = runner.run_once(), None
        with suppress(OmidError):  # what was delivered is said in any case
            dead = opened.counted().dead_letters
    if as_json:
        print_json({"queue": queue, "exported": count, "dead_letters": dead})
    else:
        left = f"; {dead} are set aside: `omidpy export dlq list {queue}`" if dead else ""
        say(f"delivered {count} entries of {queue}{left}")


def _stop_after(stopped: Any, runner: Runner) -> None:
    stopped.wait()
    runner.stop()


def _chosen(
    to: str | None,
    exporter: str | None,
    *,
    append: bool,
    at_least_once: bool,
    taken: Collection[int],
) -> Exporter:
    """Return the exporter that a command line names.

    Raises:
        UsageError: it names none, or two.
    """
    if (to is None) == (exporter is None):
        raise UsageError("give --to WHERE or --exporter MODULE:NAME, and one of them alone")
    if exporter is not None:
        for option, is_given in (
            ("--append", append),
            ("--at-least-once", at_least_once),
            ("--taken", taken),
        ):
            if is_given:
                raise UsageError(f"{option} is for --to: an exporter of yours decides that itself")
        return _of_user(exporter)
    from omidpy.recipes.export_queue.sinks.address import (  # noqa: PLC0415 - HTTP and TLS
        sink_at,
    )

    return sink_at(to or "", append=append, at_least_once=at_least_once, taken=taken)


def _of_user(name: str) -> Exporter:
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))  # as `python -m` has it
    found = getattr(imported(module), attribute, None) if attribute else None
    if found is None:
        raise UsageError(f"--exporter {name!r} names nothing; write MODULE:NAME")
    return as_exporter(found() if isinstance(found, type) else found)
