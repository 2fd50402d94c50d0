"""`omidpy export`: queues of what leaves for other systems, their lag, and their dead letters."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import (
    Apply,
    AsJson,
    StoreUrl,
    TsoAddress,
    print_columns,
    print_json,
    say,
)
from omidpy.cli.ending import EXIT_INTERRUPTED
from omidpy.cli.queues.common import (
    OptionalQueueId,
    QueueId,
    key_text,
    managed,
    moment,
    opened_queue,
)
from omidpy.cli.queues.run import once, run
from omidpy.errors import NoSuchQueue, StorageError, UsageError
from omidpy.recipes.export_queue import ExportQueue, Lag
from omidpy.recipes.export_queue.queue import DEFAULT_BUCKETS
from omidpy.reports.queues import counted, entry_document, lag_document, letter_document

app = typer.Typer(help="Queues of what leaves for other systems.", no_args_is_help=True)
dlq = typer.Typer(help="Entries that were set aside.", no_args_is_help=True)

LOOK_EVERY_S = 1.0


@app.callback()
def export() -> None:
    """Queues of what leaves for other systems."""


@dlq.callback()
def dead_letters() -> None:
    """Entries that were set aside."""


@app.command()
def create(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    buckets: Annotated[
        int, typer.Option(metavar="N", help="Parts that are exported independently.")
    ] = DEFAULT_BUCKETS,
    codec: Annotated[
        str, typer.Option(metavar="json|msgpack|bytes", help="How values are written.")
    ] = "json",
    layout: Annotated[
        str, typer.Option(metavar="log|fluo", help="In what order entries stand: of time, or keys.")
    ] = "log",
    keep: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Keep what was delivered for so long, for a replay."),
    ] = None,
    max_entries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Refuse more while so many wait."),
    ] = None,
    max_lag: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Refuse more while one has waited for longer."),
    ] = None,
    restate: Annotated[
        bool,
        typer.Option("--restate", help="Of one whose definition cannot be read: it was like this."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a queue; one that has the same settings is left as it is."""
    with managed(store, tso) as tm:
        made = (ExportQueue.restate if restate else ExportQueue.create)(
            tm,
            queue,
            buckets=buckets,
            codec=codec,
            layout=layout,
            keep_s=None if keep is None else seconds_in(keep, name="--keep"),
            max_entries=max_entries,
            max_lag_s=None if max_lag is None else seconds_in(max_lag, name="--max-lag"),
        )
        if as_json:
            print_json({"queue": made.id, "buckets": made.buckets, "codec": made.codec})
        else:
            say(f"the queue {made.id} has {made.buckets} buckets, {made.codec}")


@app.command()
def status(
    queue: OptionalQueueId = None,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    as_json: AsJson = False,
) -> None:
    """Show queues: how much waits in each, and for how long, as their exporters have counted."""
    problems: dict[str, str] = {}
    with managed(store, tso) as tm:
        if queue is None:
            seen = list(counted(tm))
            found = [(name, lag) for name, lag in seen if isinstance(lag, Lag)]
            problems = {name: str(why) for name, why in seen if not isinstance(why, Lag)}
            problems |= ExportQueue.malformed(tm)
        else:
            found = [(queue, ExportQueue.open(tm, queue).counted())]
    if as_json:
        known = [lag_document(name, lag) for name, lag in found]
        print_json([*known, *({"queue": one, "problem": why} for one, why in problems.items())])
        return
    print_columns(
        ("queue", "waiting", "oldest", "dead", "delivered", "stopped", "buckets"),
        [
            (
                name,
                lag.entries,
                _age(lag),
                lag.dead_letters,
                sum(one.exported for one in lag.buckets),
                ", ".join(str(one.bucket) for one in lag.buckets if one.stopped),
                _bucket_count(lag),
            )
            for name, lag in found
        ],
    )
    for name, lag in found:
        _say_what_holds(name, lag)
    for name, why in problems.items():
        say(f"{name} cannot be read, by exporters neither: {why}")


@app.command()
def lag(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    live: Annotated[bool, typer.Option("--live", help="Look again and again, until ^C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far each bucket of a queue is behind."""
    with opened_queue(store, tso, queue) as opened:
        if live and not as_json:
            _show_live(opened)
            return
        found = opened.lag()
    if as_json:
        print_json(lag_document(queue, found))
    else:
        print_columns(*_bucket_table(found))
        say(f"{found.entries} entries wait, the oldest since {_age(found)}")
        _say_what_holds(queue, found)


@app.command()
def peek(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    count: Annotated[int, typer.Option(metavar="N", help="How many.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show the next entries, and take nothing."""
    with opened_queue(store, tso, queue) as opened:
        found = opened.peek(count)
    if as_json:
        print_json([entry_document(entry) for entry in found])
        return
    print_columns(
        ("commit_ts", "ordinal", "key", "value"),
        [(one.commit_ts, one.ordinal, key_text(one.key), f"{one.value!r:.80}") for one in found],
    )


@app.command()
def replay(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    since: Annotated[
        str,
        typer.Option(metavar="WHEN", help="How long ago, a date with time zone, or a timestamp."),
    ],
    as_json: AsJson = False,
) -> None:
    """Deliver again what was committed since a moment, and is kept."""
    when = moment("--since", since)
    with opened_queue(store, tso, queue) as opened:
        opened.replay(when)
        waiting = opened.lag().entries
    _answer(
        {"queue": queue, "entries": waiting},
        f"{waiting} entries of {queue} are to be delivered",
        as_json=as_json,
    )


@app.command()
def rebucket(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    buckets: Annotated[int, typer.Option(metavar="N", help="How many it is to have.")],
    wait: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Wait so long for exporters; without it, for ever."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Give a queue another number of buckets; exporters must run, and each key keeps its order."""
    with opened_queue(store, tso, queue) as opened:
        try:
            wait_s = None if wait is None else seconds_in(wait, name="--wait")
            opened.rebucket(buckets, wait_s=wait_s)
        except KeyboardInterrupt:
            say(
                "interrupted; what has begun goes on with any exporter of this store, or with "
                f"`omidpy fate run`: see `omidpy export status {queue}`",
                err=True,
            )
            raise typer.Exit(EXIT_INTERRUPTED) from None
        found = opened.buckets
    _answer(
        {"queue": queue, "buckets": found},
        f"the queue {queue} has {found} buckets",
        as_json=as_json,
    )


@app.command()
def pause(
    queue: QueueId, *, store: StoreUrl, tso: TsoAddress = None, as_json: AsJson = False
) -> None:
    """Let exporters of a queue stop within some seconds, and begin no more until `resume`."""
    with opened_queue(store, tso, queue) as opened:
        opened.pause()
    _answer({"queue": queue, "paused": True}, f"the queue {queue} is paused", as_json=as_json)


@app.command()
def resume(
    queue: QueueId, *, store: StoreUrl, tso: TsoAddress = None, as_json: AsJson = False
) -> None:
    """Let exporters of a queue go on."""
    with opened_queue(store, tso, queue) as opened:
        opened.resume()
    _answer({"queue": queue, "paused": False}, f"the queue {queue} is exported", as_json=as_json)


@app.command()
def repair(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Let buckets be exported again whose state cannot be read: all that is in them is delivered.

    Where their last entries were under way, or are kept, they are delivered once more.
    """
    with opened_queue(store, tso, queue) as opened:
        found = opened.repair() if apply else sorted(opened.unreadable())
    done = "repaired" if apply else "would repair"
    _answer(
        {"queue": queue, "applied": apply, "buckets": found},
        f"{done} {len(found)} buckets of {queue}",
        as_json=as_json,
    )


@app.command()
def ack(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    commit_ts: Annotated[
        int, typer.Option(metavar="TS", help="Of the transaction, as `peek` shows it.")
    ],
    ordinal: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of one of its entries; without it, all of them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count entries as delivered that somebody has brought there by hand."""
    with opened_queue(store, tso, queue) as opened:
        count = opened.acknowledge(commit_ts, ordinal)
    _answer(
        {"queue": queue, "acknowledged": count},
        f"{count} entries of {queue} count as delivered",
        as_json=as_json,
    )


@app.command()
def drop(
    queue: QueueId,
    *,
    only: Annotated[
        str | None,
        typer.Option(
            "--incarnation",
            metavar="ID",
            help="Which one of its id, as it is shown without --apply: another one is left as it "
            "is, so that the command can be given again where nobody knows how it has ended.",
        ),
    ] = None,
    store: StoreUrl,
    tso: TsoAddress = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Remove a queue with everything in it, or what an interrupted drop has left of one."""
    waiting: int | None = 0
    with managed(store, tso) as tm:
        opened = ExportQueue.open_to_drop(tm, queue, only=only)
        with contextlib.suppress(NoSuchQueue):  # of one that is half gone nobody counts
            try:
                waiting = opened.lag().entries
            except StorageError:
                waiting = None  # nor of one whose table is disabled, or was restored in part
        if apply:
            opened.drop()
    done = "dropped" if apply else "would drop"
    which = f" ({opened.incarnation})" if opened.incarnation and not apply else ""
    _answer(
        {
            "queue": queue,
            "applied": apply,
            "entries": waiting,
            "incarnation": opened.incarnation or None,
        },
        f"{done} {queue}{which}, and {'nobody can say how many' if waiting is None else waiting} "
        "entries that wait",
        as_json=as_json,
    )


Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Of this key alone.")]
KeyHex = Annotated[
    str | None, typer.Option("--key-hex", metavar="HEX", help="The same, in hexadecimal.")
]


AsOf = Annotated[
    int | None,
    typer.Option(
        "--as-of",
        metavar="TS",
        help="Those alone that were so by then, as `list` and `drop` without --apply say it: what "
        "came since is left, also where the command is given again.",
    ),
]


@dlq.command("list")
def list_letters(
    queue: QueueId, *, store: StoreUrl, tso: TsoAddress = None, as_json: AsJson = False
) -> None:
    """Show what was set aside, and why."""
    with opened_queue(store, tso, queue) as opened:
        found = list(opened.dead_letters())
    if as_json:
        print_json([letter_document(one) for one in found])
        return
    print_columns(
        ("bucket", "commit_ts", "state", "key", "reason"),
        [(one.bucket, one.seq[0], one.state, key_text(one.key), one.reason) for one in found],
    )
    if found:
        say(f"as of {max(one.changed_ts for one in found)}")


@dlq.command()
def retry(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    key: Key = None,
    key_hex: KeyHex = None,
    as_of: AsOf = None,
    as_json: AsJson = False,
) -> None:
    """Let exporters try again: poison, and what waits behind it, in the old order."""
    chosen = _key(key, key_hex)
    with opened_queue(store, tso, queue) as opened:
        count = opened.dead_letters().retry(chosen, as_of=as_of)
    _answer(
        {"queue": queue, "retried": count},
        f"{count} dead letters of {queue} are tried again",
        as_json=as_json,
    )


@dlq.command("drop")
def drop_letters(
    queue: QueueId,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    key: Key = None,
    key_hex: KeyHex = None,
    as_of: AsOf = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Give poison up for ever; what waits behind it is delivered."""
    chosen = _key(key, key_hex)
    with opened_queue(store, tso, queue) as opened:
        letters = opened.dead_letters()
        if apply:
            count = letters.drop(chosen, as_of=as_of)
        else:
            found = [
                one.changed_ts
                for one in letters
                if one.state == "poison"
                and (chosen is None or one.key == chosen)
                and (as_of is None or one.changed_ts <= as_of)
            ]
            count, as_of = len(found), max(found, default=as_of)
    done = "gave up" if apply else "would give up"
    which = f", as of {as_of}" if count and not apply else ""
    _answer(
        {"queue": queue, "applied": apply, "dropped": count, "as_of": as_of},
        f"{done} {count} dead letters of {queue}{which}",
        as_json=as_json,
    )


app.command()(run)
app.command()(once)
app.add_typer(dlq, name="dlq")


def _answer(document: dict[str, Any], text: str, *, as_json: bool) -> None:
    """Say what was done, or would be."""
    if as_json:
        print_json(document)
        return
    say(text)
    if not document.get("applied", True):
        say("nothing was changed; add --apply")


def _key(text: str | None, hexadecimal: str | None) -> bytes | None:
    if text is not None and hexadecimal is not None:
        raise UsageError("--key and --key-hex were both given; give one of them")
    if hexadecimal is None:
        return None if text is None else text.encode()
    try:
        return bytes.fromhex(hexadecimal)
    except ValueError:
        raise UsageError(f"--key-hex {hexadecimal!r} is not hexadecimal") from None


def _age(lag: Lag) -> str:
    if lag.oldest_commit_ts is None:
        return "-"
    return f"{lag.oldest_age_s:.0f}s" if lag.oldest_age_s is not None else f"{lag.oldest_commit_ts}"


def _say_what_holds(name: str, lag: Lag) -> None:
    if lag.is_paused:
        say(f"{name} is paused: omidpy export resume {name}")
    if lag.next_buckets is not None:
        say(_while_it_gets_others(name, lag))


def _bucket_count(lag: Lag) -> str:
    has = str(len(lag.buckets))
    return has if lag.next_buckets is None else f"{has}, getting {lag.next_buckets}"


def _while_it_gets_others(name: str, lag: Lag) -> str:
    """Say what stands still while a queue gets other buckets, and who ends that."""
    by = f" by operation {lag.operation}" if lag.operation else ""
    still = (
        f"{lag.in_new_buckets} entries wait in the new ones until the old ones are empty"
        if lag.takes_entries
        else "nothing can be added to it for some seconds"
    )
    return (
        f"{name} is getting {lag.next_buckets} buckets{by}: {still}; any exporter of this store "
        "goes on with that, and so does `omidpy fate run`"
    )


def _bucket_table(lag: Lag) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    return (
        ("bucket", "waiting", "oldest commit", "dead", "delivered", "epoch", "owner"),
        [
            (
                one.bucket,
                one.entries,
                one.oldest_commit_ts or "-",
                one.dead_letters,
                one.exported,
                one.epoch,
                f"stopped: {one.stopped}" if one.stopped else (one.owner or "-"),
            )
            for one in lag.buckets
        ],
    )


def _show_live(queue: ExportQueue) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where somebody looks
    from rich.live import Live  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415 - see above

    def shown(heads: Iterable[str], rows: Iterable[tuple[object, ...]]) -> Table:
        table = Table(*heads, title=f"{queue.id}, {time.strftime('%H:%M:%S')}")
        for row in rows:
            table.add_row(*map(str, row))
        return table

    try:
        with Live(console=Console(), auto_refresh=False) as live:
            while True:
                live.update(shown(*_bucket_table(queue.lag())), refresh=True)
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        return
