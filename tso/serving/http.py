"""Answer /metrics, /healthz, /livez and /readyz, for those who watch an oracle.  Off unless asked.

    /healthz   200 while this instance leads and its store takes what it decides
    /readyz    the same, or it stands by and the store says who leads: it may take over
    /livez     200 while anything is answered here at all: to end the process would mend nothing

Two more pages name people, as JSON: /clients says how many connections each client has, and
/transactions/START_TS which of those connected began one.

Just enough HTTP for a scraper: one request a connection, bounded in size, time and number.  Who
comes takes the place of the one that has said nothing for longest, at the address that has the most
of those, so that no host can keep out the probes that ask whether the oracle is well; and the short
pages wait for no /metrics, which is long.

With TLS it is that of the clients' port, see `tls.py`: where clients show a certificate, whoever
watches shows one that the same authority signed, whatever its role.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from omidpy.model import MAX_VERSION
from omidpy.wire.tls import TlsStream
from tso.serving.admission import Places
from tso.serving.conversation import share_of_address
from tso.serving.log import log_event
from tso.serving.numbers import COUNTERS, DISTRIBUTIONS, MEANINGS
from tso.serving.tls import TLS_BYTE, ServerTls

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES: Final = 8192
MAX_SILENT_COUNT: Final = 32
"""Connections that have not said yet what they want."""

MAX_PAGE_COUNT: Final = 16
"""Pages of metrics that are on their way."""

REQUEST_TIMEOUT_S: Final = 5.0
"""How long a connection lasts at most, the handshake of TLS and the reading of a page included."""

MAX_NAMED_CLIENTS: Final = 100
"""Clients that /clients names, those with the most connections; more are only counted."""

_TRANSACTION: Final = re.compile(rb"/transactions/([0-9]{1,19})")
_PAGES: Final = b"/metrics, /healthz, /readyz or /livez\n"
_HEAD_END: Final = b"\r\n\r\n"
_READ_BYTES: Final = 4096

_BUCKETS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 100, 1000, 10_000)


class PrometheusMetrics:
    """A `Metrics` whose numbers a scraper can read.  `tso.commits` becomes `tso_commits_total`."""

    def __init__(self) -> None:
        """Start with what is counted at 0, and no gauge; each appears when it is first reported."""
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for name in COUNTERS:
            self.count(name, 0)
        for name in DISTRIBUTIONS:
            self._histogram(name)

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the counter `name`."""
        if name not in self._counters:
            self._counters[name] = Counter(_plain(name), _meaning(name), registry=self.registry)
        self._counters[name].inc(amount)

    def observe(self, name: str, value: float) -> None:
        """Record one value of the distribution `name`."""
        self._histogram(name).observe(value)

    def counted(self) -> dict[str, int]:
        """Return what was counted, by its names on the page."""
        return {
            sample.name: int(sample.value)
            for family in self.registry.collect()
            if family.type == "counter"
            for sample in family.samples
            if sample.name.endswith("_total")
        }

    def _histogram(self, name: str) -> Histogram:
        if name not in self._histograms:
            self._histograms[name] = Histogram(
                _plain(name), _meaning(name), buckets=_BUCKETS, registry=self.registry
            )
        return self._histograms[name]

    def gauge(self, name: str, value: float) -> None:
        """Set the gauge `name`."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(_plain(name), _meaning(name), registry=self.registry)
        self._gauges[name].set(value)


class Company(Protocol):
    """Who is connected; an `OracleServer`."""

    def connected(self) -> dict[str, int]:
        """Return how many connections each client has, by its name."""
        ...

    def who_began(self, start_ts: int) -> list[str] | None:
        """Return which of those connected began a transaction; None if that is not remembered."""
        ...


class _NotHttp(Exception):
    """A client says something else than it should; the message tells it what, if it reads."""


class _Talk:
    """What is said on one connection, without TLS or within."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        tls: ServerTls | None,
        turns: asyncio.Lock,
    ) -> None:
        host, port = writer.get_extra_info("peername", ("?", 0))[:2]
        self.peer = f"{host}:{port}"
        self.share = share_of_address(str(host))
        self._reader = reader
        self._writer = writer
        self._tls = None if tls is None else TlsStream(tls.context, server_side=True)
        self._turns = turns

    async def head(self) -> bytes:
        """Return what is asked.

        Raises:
            _NotHttp: nothing is, or nothing that is short, or not in the way it is spoken here.
            ssl.SSLError: the TLS handshake failed; the client was told.
        """
        head = b""
        is_first = True
        while _HEAD_END not in head:
            data = await self._reader.read(_READ_BYTES)
            if not data or len(head) > MAX_REQUEST_BYTES:
                raise _NotHttp
            if is_first:
                self._check_first(data[0])
            is_first = False
            if self._tls is None or self._tls.is_open:
                head += self._opened(data)
                continue
            async with self._turns:
                # A turn of the loop signs for one, as on the clients' port, see `admission.py`.
                head += self._opened(data)
                await asyncio.sleep(0)
        return head

    async def say(self, answer: bytes) -> None:
        """Send an answer, and wait until most of it has left."""
        if self._tls is not None:
            self._tls.seal(answer)
            answer = self._tls.to_send()
        self._writer.write(answer)
        await self._writer.drain()

    def say_plainly(self, answer: bytes) -> None:
        """Send what a client that got the scheme wrong can read; most name it in their error."""
        self._writer.write(answer)

    def _check_first(self, byte: int) -> None:
        if self._tls is None and byte == TLS_BYTE:
            raise _NotHttp("this address is served without TLS: ask http://")
        if self._tls is not None and byte != TLS_BYTE:
            raise _NotHttp("this address is served with TLS alone: ask https://")

    def _opened(self, data: bytes) -> bytes:
        if self._tls is None:
            return data
        try:
            return self._tls.receive(data)
        finally:
            self._writer.write(self._tls.to_send())


class HttpEndpoint:
    """Serves metrics, health and readiness over HTTP, in the server's loop."""

    def __init__(
        self,
        metrics: PrometheusMetrics,
        is_healthy: Callable[[], bool],
        tls: ServerTls | None = None,
        *,
        is_ready: Callable[[], bool] | None = None,
        company: Callable[[], Company | None] = lambda: None,
    ) -> None:
        """Serve these numbers, and 200 or 503 for health.

        Args:
            metrics: The numbers.
            is_healthy: Whether the oracle answers.
            tls: How connections are made secure, looked at for each; None leaves them open.
            is_ready: Whether it answers, or could take over; None: whether it answers.
            company: Who is connected, while anybody can be.
        """
        self._metrics = metrics
        self._is_healthy = is_healthy
        self._is_ready = is_ready or is_healthy
        self._company = company
        self._tls = tls
        self._places: Places[asyncio.StreamWriter] = Places.of_silent(MAX_SILENT_COUNT)
        self._handshakes = asyncio.Lock()
        self._page_count = 0
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the address, with the port that was picked."""
        self._server = await asyncio.start_server(
            self._serve, host, port, limit=MAX_REQUEST_BYTES, reuse_address=True
        )
        name: tuple[str, int] = self._server.sockets[0].getsockname()[:2]
        return name

    def close(self) -> None:
        """Stop listening; connections that are open stay so."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talk = _Talk(reader, writer, self._tls, self._handshakes)
        dropped = self._places.come(writer, talk.share)
        if dropped is not None:
            dropped.transport.abort()
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._answer(talk, writer)
        except ssl.SSLError as error:
            self._log(talk, f"TLS failed: {error.reason or error}")
        except _NotHttp as error:
            if text := str(error):
                talk.say_plainly(
                    _framed(HTTPStatus.BAD_REQUEST, "text/plain", f"{text}\n".encode())
                )
                self._log(talk, text)
        except (TimeoutError, OSError):
            pass  # a client that says nothing, or went away, gets nothing
        except asyncio.CancelledError:
            pass  # the loop ends; what looks after this task would call that an error of ours
        finally:
            self._places.leave(writer)
            writer.close()

    async def _answer(self, talk: _Talk, writer: asyncio.StreamWriter) -> None:
        head = await talk.head()
        self._places.leave(writer)
        is_page = self._page_count < MAX_PAGE_COUNT and head.startswith(b"GET /metrics ")
        self._page_count += is_page
        try:
            await talk.say(self._response(head, may_be_page=is_page))
        finally:
            self._page_count -= is_page

    @staticmethod
    def _log(talk: _Talk, reason: str) -> None:
        log_event(
            logger,
            logging.WARNING,
            "metrics-refused",
            about=talk.share,
            peer=talk.peer,
            reason=reason,
        )

    def _response(self, head: bytes, *, may_be_page: bool) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", _PAGES
        if words[0] != b"GET" or len(words) != 3:
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n"
        elif words[1] == b"/metrics" and not may_be_page:
            status, body = HTTPStatus.SERVICE_UNAVAILABLE, b"too many ask for the metrics\n"
        elif words[1] == b"/metrics":
            status, kind, body = HTTPStatus.OK, CONTENT_TYPE_LATEST, self._page()
        elif words[1] == b"/clients" or _TRANSACTION.fullmatch(words[1]):
            status, kind, body = self._of_company(words[1])
        elif (problem := self._problem(words[1])) is not None:
            is_well = not problem
            status = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
            body = b"ok\n" if is_well else problem
        return _framed(status, kind, body)

    def _of_company(self, path: bytes) -> tuple[HTTPStatus, str, bytes]:
        company = self._company()
        if company is None:
            return HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"this oracle does not answer\n"
        found: dict[str, object]
        if (asked := _TRANSACTION.fullmatch(path)) is not None:
            start_ts = int(asked[1])
            known = company.who_began(start_ts) if start_ts < MAX_VERSION else None
            found = {"start_ts": start_ts, "connected": known}
        else:
            counts = company.connected()
            most = sorted(counts, key=lambda name: (-counts[name], name))[:MAX_NAMED_CLIENTS]
            found = {
                "count": len(counts),
                "clients": [{"name": name, "connections": counts[name]} for name in most],
            }
        return HTTPStatus.OK, "application/json", json.dumps(found).encode() + b"\n"

    def _problem(self, page: bytes) -> bytes | None:
        """Return what is wrong, by a page about that: empty if nothing is, None: no such page."""
        if page == b"/healthz":
            return b"" if self._is_healthy() else b"this oracle does not answer\n"
        if page == b"/readyz":
            return b"" if self._is_ready() else b"this oracle neither answers nor stands by\n"
        return b"" if page == b"/livez" else None

    def _page(self) -> bytes:
        self._metrics.gauge("tso.answering", self._is_healthy())
        page: bytes = generate_latest(self._metrics.registry)
        return page


def _framed(status: HTTPStatus, kind: str, body: bytes) -> bytes:
    lines = (
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
    )
    return "\r\n".join(lines).encode() + _HEAD_END + body


def _meaning(name: str) -> str:
    return MEANINGS.get(name, name)


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()
