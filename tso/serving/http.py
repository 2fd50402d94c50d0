"""Answer /metrics and /healthz, for those who watch an oracle.  Off unless asked for.

Just enough HTTP for a scraper: one request a connection, bounded in size, time and number.  Whoever
comes takes the place of the one that has said nothing for longest, so that nobody can keep those
out who ask whether the oracle is well; and /healthz waits for no /metrics, whose pages are long.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

MAX_REQUEST_BYTES: Final = 8192
MAX_SILENT_COUNT: Final = 32
"""Connections that have not said yet what they want."""

MAX_PAGE_COUNT: Final = 16
"""Pages of metrics that are on their way."""

REQUEST_TIMEOUT_S: Final = 5.0

_BUCKETS: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 100, 1000, 10_000)


class PrometheusMetrics:
    """A `Metrics` whose numbers a scraper can read.  `tso.commits` becomes `tso_commits_total`."""

    def __init__(self) -> None:
        """Start with no metric; each appears when it is first reported."""
        self.registry = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, name: str, amount: int = 1) -> None:
        """Add `amount` to the counter `name`."""
        if name not in self._counters:
            self._counters[name] = Counter(_plain(name), name, registry=self.registry)
        self._counters[name].inc(amount)

    def observe(self, name: str, value: float) -> None:
        """Record one value of the distribution `name`."""
        if name not in self._histograms:
            self._histograms[name] = Histogram(
                _plain(name), name, buckets=_BUCKETS, registry=self.registry
            )
        self._histograms[name].observe(value)

    def gauge(self, name: str, value: float) -> None:
        """Set the gauge `name`."""
        if name not in self._gauges:
            self._gauges[name] = Gauge(_plain(name), name, registry=self.registry)
        self._gauges[name].set(value)


class HttpEndpoint:
    """Serves the two pages."""

    def __init__(self, metrics: PrometheusMetrics, is_healthy: Callable[[], bool]) -> None:
        """Serve these numbers, and 200 or 503 for health."""
        self._metrics = metrics
        self._is_healthy = is_healthy
        self._silent: dict[asyncio.StreamWriter, None] = {}
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
        """Stop listening."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._silent[writer] = None
        if len(self._silent) > MAX_SILENT_COUNT:
            oldest = next(iter(self._silent))
            del self._silent[oldest]
            oldest.transport.abort()
        is_page = False
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                self._silent.pop(writer, None)
                is_page = self._page_count < MAX_PAGE_COUNT and head.startswith(b"GET /metrics ")
                self._page_count += is_page
                writer.write(self._response(head, may_be_page=is_page))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that does not speak HTTP, or went away, gets nothing
        finally:
            self._silent.pop(writer, None)
            self._page_count -= is_page
            writer.close()

    def _response(self, head: bytes, *, may_be_page: bool) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        status, kind, body = HTTPStatus.NOT_FOUND, "text/plain", b"/metrics or /healthz\n"
        if words[0] != b"GET" or len(words) != 3:
            status, body = HTTPStatus.METHOD_NOT_ALLOWED, b"GET only\n"
        elif words[1] == b"/metrics" and not may_be_page:
            status, body = HTTPStatus.SERVICE_UNAVAILABLE, b"too many ask for the metrics\n"
        elif words[1] == b"/metrics":
            status, kind, body = HTTPStatus.OK, CONTENT_TYPE_LATEST, self._page()
        elif words[1] == b"/healthz":
            if self._is_healthy():
                status, body = HTTPStatus.OK, b"ok\n"
            else:
                status, body = HTTPStatus.SERVICE_UNAVAILABLE, b"this oracle does not answer\n"
        lines = (
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Connection: close",
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    def _page(self) -> bytes:
        page: bytes = generate_latest(self._metrics.registry)
        return page


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()
