"""A store with something of everything, a console over it, and a browser that looks at it."""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from compactor.report import Laggard, Report, RunLog, RunRecord, TableReport
from compactor.tables.ownership import survey
from omidpy.base.cells import commit_row, encode_commit
from omidpy.console import serving
from omidpy.console.app import Console
from omidpy.console.settings import Settings
from omidpy.console.sources import Addresses, Sources
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, CommitTable
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Claim, Watermarks
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Failure, Status
from omidpy.fate.step import Answer, Done, Step, StepContext, encode_step, step
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.model import TIMESTAMP_STEP, KeyRange, Timestamp
from omidpy.recipes.export_queue import Batch, Exporter, ExportQueue, Poison
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.testing.fate.basics import an_operation

HOSTILE: Final = b"<script>alert(1)</script>\"'\xff\x1b[2J"
"""A row key that is markup, and moves a cursor."""

REGIONS: Final = 1000
HOUR_NS: Final = 3_600_000_000_000


class Strict(Exporter):
    """Takes nothing that begins with `bad`."""

    def export(self, batch: Batch) -> None:
        """Take a batch."""
        for entry in batch:
            if entry.key.startswith(b"bad"):
                raise Poison(entry, "the receiver says: 422, no such customer")


def fill(tm: TransactionManager, *, regions: int = REGIONS) -> dict[str, Any]:
    """Put something of everything into a store; return what tests look for."""
    tm.create_table("accounts", families=["cf"])
    tm.create_table("orders", families=["cf", "lines"])
    for number in range(30):
        with tm.begin() as tx:
            tx.table("accounts").put(b"customer-%04d" % number, {b"cf:balance": b"100"})
    with tm.begin() as tx:
        tx.table("accounts").put(HOSTILE, {b"cf:balance": b"1"})
        start_ts = tx.start_ts
    store = tm.store
    now = _now(tm)
    claim_regions(store, "accounts", regions, now=now)
    claim_regions(store, "orders", max(regions // 100, 2), now=now - 40 * HOUR_NS)
    record_runs(store, now=now)
    leave_entries(store, now=now)
    operations = add_operations(store, now=now)
    queue = ExportQueue.create(tm, "invoices", buckets=4)
    for number in range(40):
        with tm.begin() as tx:
            key = b"bad-%02d" % number if number % 10 == 3 else b"customer-%02d" % number
            queue.add(tx, key, {"amount": number})
    queue.runner(Strict()).run_once(wait_s=0)
    for number in range(7):
        with tm.begin() as tx:
            queue.add(tx, b"late-%02d" % number, {"amount": number})
    return {"start_ts": start_ts, "operations": operations}


def _now(tm: TransactionManager) -> int:
    with tm.begin() as tx:
        return int(tx.start_ts)


def claim_regions(store: Store, table: str, count: int, *, now: int) -> None:
    """Say that the rows of a table are healed, each range up to another moment."""
    facts = Watermarks(ControlTable(store))
    (ours,) = (one for one in survey(store, COMMIT_TABLE) if one.name == table)
    edges = [b"", *(b"customer-%04d" % number for number in range(1, count)), b""]
    for number in range(count):
        hours = 60 if number % 97 == 50 else number % 20
        facts.record_claim(
            Claim(
                table,
                edges[number],
                edges[number + 1],
                max(now - hours * HOUR_NS, 0),
                now // 1_000_000,
                families=tuple(sorted(ours.families)),
                incarnation=ours.incarnation,
            )
        )


def leave_entries(store: Store, *, now: int) -> None:
    """Leave entries as clients do that die between their commit and the rest, and invalidations."""
    facts = CommitTable(store)
    for hours, count in ((0, 12), (2, 31), (9, 45), (30, 20), (24 * 5, 8)):
        for number in range(count):
            start_ts = Timestamp(now - hours * HOUR_NS - (number + 1) * 1_000_000_000)
            start_ts = Timestamp(start_ts - start_ts % TIMESTAMP_STEP)
            if number % 9 == 8:
                facts.invalidate(start_ts)
                continue
            put = Put(*COMMIT, start_ts, encode_commit(start_ts, start_ts + TIMESTAMP_STEP))
            store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (put,))]})


def record_runs(store: Store, *, now: int, count: int = 14) -> None:
    """Put the nightly runs of two weeks on record, one of which has failed."""
    log = RunLog(ControlTable(store))
    for number in range(count):
        started_ms = (now - (count - number) * 24 * HOUR_NS) // 1_000_000
        horizon = now - ((count - number) * 24 + 2 + 3 * (number % 4)) * HOUR_NS
        report = Report(
            cells_healed=120 + 37 * (number % 5),
            cells_dropped=400 + 90 * (number % 3),
            entries_pruned=900 + 55 * number,
            horizon=horizon,
            horizon_age_s=3600.0 * (2 + 3 * (number % 4)),
            tables=(
                TableReport("accounts", cells_healed=120, cells_dropped=410, bytes_dropped=91_000),
            ),
            laggards=(
                (Laggard.of("orders", KeyRange(), watermark=0, reason="not scanned since"),)
                if number % 4 == 2
                else ()
            ),
        )
        log.write(
            RunRecord(
                f"{started_ms:020d}-{number:032x}",
                started_ms,
                "worker-1",
                4711,
                ended_ms=started_ms + 90_000,
                error="the cluster was restarted" if number == 9 else None,
                report=None if number == 9 else report,
            )
        )


@step(version=1, namespace="example")
class PlanRanges(Step):
    """Divides a table."""

    table: str = ""
    ranges: int = 0

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Be the end."""
        del tx, env
        return Done()


@step(version=1, namespace="example")
class HealRanges(Step):
    """Heals what was divided."""

    table: str = ""
    done: int = 0

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Be the end."""
        del tx, env
        return Done()


def add_operations(store: Store, *, now: int) -> dict[str, str]:
    """Add operations in different states; return their ids."""
    fates = TableFateStore(store)
    now_ms = now // 1_000_000 - 95_000
    going = an_operation(
        status=Status.IN_PROGRESS,
        name="COMPACT",
        created_ms=now_ms,
        stack=(
            encode_step(PlanRanges("orders", 1000)),
            encode_step(HealRanges("<b>orders</b>", 412)),
        ),
        progress="412 of 1,000 ranges",
    )
    waiting = an_operation(
        status=Status.SUBMITTED,
        name="DROP_TABLE",
        stack=(encode_step(PlanRanges("invoices", 4)),),
        created_ms=now_ms + 80_000,
    )
    failed = an_operation(
        status=Status.FAILED,
        name="CREATE_TABLE",
        created_ms=now_ms - 300_000,
        finished_ms=now_ms - 240_000,
        stack=(),
        exception=Failure("the table is there already", "TableExists", "make", "call"),
    )
    for one in (going, waiting, failed):
        assert fates.insert(one)
    Locks(fates).write("orders", going.id)
    return {"going": going.id, "waiting": waiting.id, "failed": failed.id}


@contextmanager
def running(console: Console, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """Serve a console on a free port of this machine, in a thread; give its address."""
    settings = Settings(Addresses("memory:"), "127.0.0.1", 0)
    listening = serving.bound(settings)
    server = serving.server_of(console, context)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"{'http' if context is None else 'https'}://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


class Answered(NamedTuple):
    """What a console answers."""

    status: int
    headers: dict[str, str]
    text: str


def ask(
    console: Console,
    path: str,
    *,
    form: Mapping[str, str] | None = None,
    host: str = "127.0.0.1:8080",
    origin: str | None = "http://127.0.0.1:8080",
    cookie: str = "",
    peer: str | None = None,
) -> Answered:
    """Ask a console for a page, or send it a form, without a socket."""
    return asyncio.run(_ask(console, path, form, host, origin, cookie, peer))


async def _ask(
    console: Console,
    path: str,
    form: Mapping[str, str] | None,
    host: str,
    origin: str | None,
    cookie: str,
    peer: str | None,
) -> Answered:
    place, _, query = path.partition("?")
    body = b"" if form is None else urlencode(form).encode()
    headers = [(b"host", host.encode())]
    if form is not None and origin is not None:
        headers.append((b"origin", origin.encode()))
    if cookie:
        headers.append((b"cookie", cookie.encode()))
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET" if form is None else "POST",
        "scheme": "http",
        "path": place,
        "raw_path": place.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
        "state": {"peer": peer},
    }
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await console.app()(scope, receive, send)
    found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    text = b"".join(one.get("body", b"") for one in sent[1:]).decode()
    return Answered(sent[0]["status"], found, text)


def over(tm: TransactionManager, **options: Any) -> Console:
    """Return a console over a store of this process."""
    addresses = options.pop("addresses", Addresses("memory:"))
    sources = Sources(
        addresses,
        open_cells=options.pop("open_cells", lambda: tm.store),
        open_manager=options.pop("open_manager", lambda: tm),
    )
    return Console(sources, **options)


def signed_in(console: Console, token: str) -> str:
    """Type a token in; return the cookie that one gets."""
    answered = ask(console, "/sign-in", form={"token": token})
    assert answered.status == 303, answered.text
    return answered.headers["set-cookie"].partition(";")[0]


def proof_in(text: str) -> str:
    """Return what the forms of a page prove."""
    found = re.search(r'name="proof" value="([0-9a-f]{64})"', text)
    assert found is not None, "there is a form on the page"
    return found[1]
