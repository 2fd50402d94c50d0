"""The `tso-server` command: settings, standby, service, drain, and an exit code.

0   stopped on request, everything answered
1   the store could not be opened, or did not take the last batch
2   configuration
3   the lease was lost: another instance answers now
70  a broken invariant
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import resource
import secrets
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from omidpy.base.telemetry.metrics import NO_METRICS, Metrics
from omidpy.base.telemetry.streams import fill_closed_streams, tell
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.errors import ConfigError, LeaseLost, OmidError, StorageUnavailable
from omidpy.facts.commit_table import create_system_tables
from omidpy.model import Timestamp
from omidpy.opening import open_store
from omidpy.oracle.address import address_text
from omidpy.oracle.zookeeper import SCHEME, KazooZooKeeper, parse_zookeeper, read_omid_ceiling
from omidpy.storage.base import Store
from tso.config import NULL_STORE, Address, Config, load_config
from tso.core.engine import is_compiled, map_bytes
from tso.core.settings import Settings
from tso.durable.lease import DEFAULT_PERIOD_S, AnyLease, Lease
from tso.durable.persist import NoPersistence, Persistence, StorePersistence
from tso.durable.zk_lease import ZooKeeperLease
from tso.instance import Instance, begin
from tso.serving.connection import Connection
from tso.serving.flushing import FlushThread
from tso.serving.http import HttpEndpoint, PrometheusMetrics
from tso.serving.log import announce, configure_logging, flush_logging, log_event
from tso.serving.server import (
    MAX_BUFFERED_BYTES,
    MAX_CONNECTION_COUNT,
    MAX_UNSENT_BYTES_IN_ALL,
    OracleServer,
)
from tso.serving.tls import ServerTls

logger = logging.getLogger("tso.cli")  # __main__ under python -m

EXIT_STORE: Final = 1
EXIT_CONFIG: Final = 2
EXIT_LEASE_LOST: Final = 3
EXIT_INVARIANT: Final = 70

RESERVED_DESCRIPTOR_COUNT: Final = 160
"""Files and sockets that are no client's: the store, the lease, metrics, those just refused."""

_TIMESTAMP_BYTES: Final = 8

STANDBY_LOOK_S: Final = 0.1
BIND_S: Final = 2.0
"""How long a new instance waits for its predecessor's socket to go."""
FAREWELL_S: Final = 5.0
"""How long giving up the lease may take."""
STOP_S: Final = 30.0
"""How long a drain may take; then the store is to blame."""

SWITCH_S: Final = 0.0005
"""How long one thread may keep the interpreter from the other: each commit changes threads twice.

Where a client floods the loop's thread, the store's would wait ten times as long by default.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a `tso-server` until it is stopped; return its exit code."""
    fill_closed_streams()
    if not __debug__:
        tell(
            "tso-server: does not run under python -O: its invariants are assertions, and without "
            "them a fault would go on deciding"
        )
        return EXIT_CONFIG
    try:
        config = load_config(sys.argv[1:] if arguments is None else arguments, os.environ)
        tls = None if config.tls is None else ServerTls(config.tls)
    except ConfigError as error:
        tell(f"tso-server: {error}")
        return EXIT_CONFIG
    if config.check_config:
        print(config.as_toml())
        return 0
    configure_logging(config.log_format)
    connection_count = allowed_connection_count()
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        code = runner.run(_Service(config, tls, connection_count).run())
    flush_logging()
    if code not in (0, EXIT_CONFIG):
        # A thread may hang in a store that does not answer; nothing is left to wait for.
        os._exit(code)
    return code


def allowed_connection_count() -> int:
    """Use as many file descriptors as we may, and say for how many clients they are enough.

    The default of many systems is 1,024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = (
        min(2 * MAX_CONNECTION_COUNT, hard)
        if hard != resource.RLIM_INFINITY
        else (2 * MAX_CONNECTION_COUNT)
    )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY:
        return MAX_CONNECTION_COUNT
    return max(1, min(MAX_CONNECTION_COUNT, soft - RESERVED_DESCRIPTOR_COUNT))


def _loop_factory() -> type[asyncio.AbstractEventLoop]:
    """Use the faster event loop where it is installed (extra `fast`)."""
    try:
        import uvloop  # noqa: PLC0415 - an extra
    except ImportError:
        return asyncio.SelectorEventLoop
    loop_factory: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop_factory


def _bounds(settings: Settings) -> dict[str, int]:
    """Say what may take how many MiB at most; the interpreter and the store come on top."""
    found = {
        "conflict_map_mib": map_bytes(settings.conflict_map_size),
        "begins_mib": map_bytes(settings.begin_memory),
        "old_begins_mib": _TIMESTAMP_BYTES * settings.old_begin_memory,
        "decisions_mib": map_bytes(settings.decision_memory),
        "requests_mib": MAX_BUFFERED_BYTES,
        "unread_answers_mib": MAX_UNSENT_BYTES_IN_ALL,
    }
    return {name: -(-size // 2**20) for name, size in found.items()}


class _Service:
    """One run of the daemon."""

    def __init__(
        self,
        config: Config,
        tls: ServerTls | None = None,
        connection_count: int = MAX_CONNECTION_COUNT,
    ) -> None:
        self._config = config
        self._tls = tls
        self._connection_count = connection_count
        self._clock: Clock = SystemClock()
        self._metrics: Metrics = NO_METRICS
        self._stop = asyncio.Event()
        self._server: OracleServer | None = None
        self._is_standing_by = False
        """Whether another oracle leads, as the store said when it was last asked."""
        # The one thread that touches store and lease; SQLite and the lease want no more.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tso-store")

    async def run(self) -> int:
        """Serve until the end; return the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        endpoint = None
        try:
            loop.add_signal_handler(signal.SIGHUP, self._reload)
            endpoint = await self._start_http()
            return await self._run()
        except ConfigError as error:
            log_event(logger, logging.ERROR, "configuration", error=error)
            return EXIT_CONFIG
        except LeaseLost as error:
            log_event(logger, logging.ERROR, "lease-lost", error=error)
            return EXIT_LEASE_LOST
        except OmidError as error:
            log_event(logger, logging.ERROR, "store-failed", error=error)
            return EXIT_STORE
        except Exception:
            # An assertion, or a fault that was not foreseen: either way nothing more is decided.
            logger.exception("invariant broken")
            return EXIT_INVARIANT
        finally:
            if endpoint is not None:
                endpoint.close()

    def _reload(self) -> None:
        """Read the files of TLS again: certificates end, and others come in their place."""
        if self._tls is None:
            log_event(logger, logging.INFO, "nothing-to-reload", tls="off")
            return
        try:
            trusts_others = self._tls.reload()
        except (ConfigError, OSError) as error:
            log_event(logger, logging.ERROR, "tls-not-reloaded", error=error)
            return
        log_event(logger, logging.INFO, "tls-reloaded")
        if self._server is not None:
            self._server.recheck(trusts_others=trusts_others)

    def _signalled(self, number: int) -> None:
        if self._stop.is_set():
            log_event(logger, logging.WARNING, "killed", signal=signal.Signals(number).name)
            flush_logging()
            os._exit(128 + number)
        log_event(logger, logging.INFO, "stopping", signal=signal.Signals(number).name)
        self._stop.set()

    async def _run(self) -> int:
        loop = asyncio.get_running_loop()
        if self._config.store == NULL_STORE:
            log_event(logger, logging.WARNING, "nothing-is-persisted", store=NULL_STORE)
            return await self._serve(NoPersistence(), None, None)
        store = await loop.run_in_executor(self._executor, self._open_store)
        farewells: list[Callable[[], None]] = [store.close]
        try:
            lease, omid_ceiling = await loop.run_in_executor(
                self._executor, lambda: self._claim(store)
            )
            farewells.insert(0, lease.release)
            if not await self._acquire(lease):
                return 0
            persistence = StorePersistence(
                store,
                lease,
                initial_timestamp=self._config.initial_timestamp,
                omid_ceiling=omid_ceiling,
            )
            return await self._serve(persistence, store, lease)
        finally:
            for farewell in farewells:
                # The thread may hang in a store that does not answer; we do not wait for it.
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(
                        loop.run_in_executor(self._executor, farewell), FAREWELL_S
                    )

    def _open_store(self) -> Store:
        store = open_store(self._config.store)
        create_system_tables(store)
        return store

    def _claim(self, store: Store) -> tuple[AnyLease, Callable[[], Timestamp | None]]:
        """Return the claim to the lease, not yet taken, and what finds Omid's own ceiling.

        Only a ceiling in ZooKeeper has to be asked for; one in the store is found there.
        """
        address = None
        if self._config.lease.startswith(SCHEME):
            address = parse_zookeeper(self._config.lease)
        own = Lease(
            store,
            holder=uuid.uuid4().hex,
            clock=self._clock,
            period_s=DEFAULT_PERIOD_S if address is None else address.period_s,
            purpose=f"tso-server, to listen on {address_text(self._config.listen)}",
        )
        if address is None:
            return own, lambda: None
        zookeeper = KazooZooKeeper(address)
        lease = ZooKeeperLease(
            own,
            zookeeper,
            address,
            holder_address=address_text(self._config.advertise or _reachable(self._config.listen)),
            clock=self._clock,
        )
        return lease, lambda: read_omid_ceiling(zookeeper, address)

    async def _acquire(self, lease: AnyLease) -> bool:
        """Stand by until the lease is ours; False if we were told to stop first.

        A store that fails at the first look is a mistake in the settings, or a matter for whoever
        starts us again; later a standby outlasts it, as it is there for bad times.
        """
        loop = asyncio.get_running_loop()
        told = None
        while not self._stop.is_set():
            try:
                holder = await loop.run_in_executor(self._executor, lease.try_acquire)
                self._is_standing_by = holder is not None
                found = holder
            except StorageUnavailable as error:
                self._is_standing_by = False
                if told is None:
                    raise
                # The same with each try, in words that may differ.
                holder, found = f"nobody knows: {error}", type(error).__name__
            if holder is None:
                return True
            if found != told:
                log_event(logger, logging.INFO, "standby", holder=holder)
                told = found
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), STANDBY_LOOK_S)
        return False

    async def _start_http(self) -> HttpEndpoint | None:
        if self._config.metrics is None:
            return None
        self._metrics = metrics = PrometheusMetrics()
        tls = self._tls if self._config.has_secure_metrics else None
        endpoint = HttpEndpoint(
            metrics,
            self._is_answering,
            tls,
            is_ready=self._is_ready,
            company=lambda: self._server,
        )
        try:
            address = await endpoint.start(*self._config.metrics)
        except OSError as error:
            raise ConfigError(
                f"--metrics {address_text(self._config.metrics)}: {error.strerror}"
            ) from error
        log_event(
            logger, logging.INFO, "metrics", address=address_text(address), tls=_shown_tls(tls)
        )
        return endpoint

    def _is_answering(self) -> bool:
        return self._server is not None and self._server.is_answering

    def _is_ready(self) -> bool:
        return not self._stop.is_set() and (self._is_standing_by or self._is_answering())

    async def _serve(
        self, persistence: Persistence, store: Store | None, lease: AnyLease | None
    ) -> int:
        # The address is taken before anything is written; it is free again if that fails.
        with contextlib.closing(await self._bind()) as listening:
            return await self._serve_at(listening, persistence, store, lease)

    async def _serve_at(
        self,
        listening: socket.socket,
        persistence: Persistence,
        store: Store | None,
        lease: AnyLease | None,
    ) -> int:
        loop = asyncio.get_running_loop()
        address: Address = listening.getsockname()[:2]
        settings = Settings(
            timestamps=self._config.timestamps,
            conflict_map_size=self._config.conflict_map_size,
            cells_per_s=self._config.cells_per_s,
            begins_per_s=self._config.begins_per_s,
            commits_per_s=self._config.commits_per_s,
            hash_seed=secrets.randbits(62),
            is_reserved=True,
        )
        begun: Instance[Connection] = await loop.run_in_executor(
            self._executor,
            lambda: begin(
                settings,
                persistence,
                self._clock,
                max_transaction_age_ms=self._config.max_transaction_age_ms,
                accept_clock=self._config.accept_clock,
                metrics=self._metrics,
            ),
        )
        self._server = OracleServer(
            begun.machine,
            persistence,
            lease=lease,
            capabilities=begun.capabilities(None if store is None else store.store_id),
            clock=self._clock,
            metrics=self._metrics,
            worker=FlushThread(loop, self._executor),
            connection_count=self._connection_count,
            tls=self._tls,
        )
        if lease is not None:
            shown = address_text(self._config.advertise or _reachable(address))
            await loop.run_in_executor(
                self._executor, lambda: lease.publish(address=shown, epoch=begun.epoch)
            )
        try:
            await self._server.listen(listening)
            log_event(
                logger,
                logging.INFO,
                "answering",
                store=self._config.store,
                epoch=begun.epoch,
                timestamps=settings.timestamps,
                max_transaction_age_ms=begun.settings.max_transaction_age_ms,
                engine="compiled" if is_compiled() else "interpreted",
                tls=_shown_tls(self._tls),
            )
            log_event(logger, logging.INFO, "memory", **_bounds(settings))
            shown = address_text(address)
            announce(f"listening on {shown}", "listening", address=shown)
            return await self._until_the_end(self._server)
        finally:
            await self._server.close()

    async def _until_the_end(self, server: OracleServer) -> int:
        stopped = asyncio.ensure_future(self._stop.wait())
        ended = asyncio.ensure_future(server.ended())
        await asyncio.wait({stopped, ended}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ended.done():
            server.stop()
        try:
            await asyncio.wait_for(ended, STOP_S)
        except TimeoutError:
            raise StorageUnavailable(
                f"the store did not take the last batch within {STOP_S:g} s; what was not answered "
                "is in the commit table or never happened"
            ) from None
        if isinstance(self._metrics, PrometheusMetrics):
            log_event(logger, logging.INFO, "numbers", **self._metrics.counted())
        log_event(logger, logging.INFO, "stopped")
        return 0

    async def _bind(self) -> socket.socket:
        """Bind the address to listen on; a predecessor's socket may take a moment to go."""
        host, port = self._config.listen
        give_up_s = asyncio.get_running_loop().time() + BIND_S
        while True:
            try:
                return _bound_socket(host, port)
            except OSError as error:
                is_over = asyncio.get_running_loop().time() >= give_up_s or self._stop.is_set()
                if error.errno != errno.EADDRINUSE or is_over:
                    raise ConfigError(
                        f"cannot listen on {address_text(self._config.listen)}: {error}; choose "
                        "another --listen, or end the process that uses it"
                    ) from error
            await asyncio.sleep(0.05)


def _shown_tls(tls: ServerTls | None) -> str:
    if tls is None:
        return "off"
    return "client-certificates" if tls.asks_for_certificates else "on"


def _bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that has the address and refuses connections until it listens."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    bound = socket.socket(found[0], found[1])
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(found[4])
    except OSError:
        bound.close()
        raise
    return bound


def _reachable(address: Address) -> Address:
    """Return what clients can connect to, where we listen on every interface."""
    host, port = address
    return (socket.gethostname(), port) if host in ("0.0.0.0", "::") else (host, port)  # noqa: S104


if __name__ == "__main__":
    sys.exit(main())
