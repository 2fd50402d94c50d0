"""Pages of metrics of real oracles that are well, and of such as have one trouble."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import ssl
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from prometheus_client import generate_latest

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import StorageUnavailable
from omidpy.model import Timestamp
from omidpy.oracle.tcp import TcpOracle
from omidpy.wire.messages import PeerCapabilities
from tests.machines.processes import ServerProcess
from tso.core.events import Batch, FlushResult
from tso.core.settings import Settings
from tso.durable.persist import NoPersistence
from tso.instance import begin
from tso.serving.flushing import FlushThread
from tso.serving.http import PrometheusMetrics
from tso.serving.server import OracleServer

LONGEST_S: Final = 30.0


class SlowStore(NoPersistence):
    """Persists nothing, and takes its time or fails."""

    is_instant = False

    def __init__(self) -> None:
        self.pause_s = 0.0
        self.failures = 0

    def flush(self, batch: Batch[Any]) -> FlushResult:
        """Wait, and fail or not."""
        time.sleep(self.pause_s)
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("away")
        return super().flush(batch)


class Watched:
    """An oracle's server in this process, whose numbers are read."""

    def __init__(
        self,
        server: OracleServer,
        store: SlowStore,
        clock: ManualClock,
        metrics: PrometheusMetrics,
        address: str,
    ) -> None:
        self.server = server
        self.store = store
        self.clock = clock
        self.address = address
        self._metrics = metrics

    def page(self) -> str:
        """Return its page, as it is at its next tick; in the thread of its loop."""
        self.server._tick()
        return page_of(self._metrics)

    def page_from_elsewhere(self) -> str:
        """Return the same in another thread."""

        async def page() -> str:
            return self.page()

        return asyncio.run_coroutine_threadsafe(page(), self.server.loop).result(LONGEST_S)


def page_of(metrics: PrometheusMetrics) -> str:
    """Return the page of numbers."""
    page: bytes = generate_latest(metrics.registry)
    return page.decode()


def watch(
    settings: Settings,
    story: Callable[[Watched, TcpOracle], None],
    *,
    places: int = 16,
) -> list[str]:
    """Run a server, let a client do something to it; return its pages before and behind that."""

    async def main() -> list[str]:
        store, clock, metrics = SlowStore(), ManualClock(), PrometheusMetrics()
        begun = begin(
            settings,
            store,
            clock,
            max_transaction_age_ms=settings.max_transaction_age_ms,
            metrics=metrics,
        )
        with ThreadPoolExecutor(1) as executor:
            server = OracleServer(
                begun.machine,
                store,
                lease=None,
                capabilities=PeerCapabilities(epoch=Timestamp(0)),
                clock=clock,
                metrics=metrics,
                worker=FlushThread(asyncio.get_running_loop(), executor),
                connection_count=places,
            )
            bound = socket.create_server(("127.0.0.1", 0))
            await server.listen(bound)
            address = f"127.0.0.1:{bound.getsockname()[1]}"
            watched = Watched(server, store, clock, metrics, address)
            try:
                before = watched.page()
                with contextlib.closing(TcpOracle(address)) as oracle:
                    await asyncio.to_thread(story, watched, oracle)
                    return [before, watched.page()]
            finally:
                store.pause_s = 0.0
                server.stop()
                await asyncio.wait_for(server.ended(), LONGEST_S)
                await server.close()

    return asyncio.run(main())


def address_of_metrics(server: ServerProcess) -> str:
    """Return where a process serves its metrics."""
    found = re.search(r"address=(\S+)", server.wait_for("^metrics "))
    assert found is not None
    return found[1]


def asked(server: ServerProcess, path: str = "/metrics") -> tuple[int, str]:
    """Return what a process answers, with the status."""
    return asked_at(f"http://{address_of_metrics(server)}{path}")


def asked_at(url: str, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    """Return what is answered at an address, with the status."""
    try:
        with urllib.request.urlopen(url, timeout=LONGEST_S, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
