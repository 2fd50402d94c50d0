"""Calls to the server that has a region, and to the master, made again until they are answered.

It ties connections, registry and places together, and corrects what is known of places by what
servers say.  What may be made twice is said by the caller.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Final, NamedTuple, TypeVar

from omidpy.errors import ConfigError, NoSuchTable, OmidError, StorageUnavailable
from omidpy.model import Cell
from omidpy.storage.hbase.native import scan_messages
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.calling.attempts import Attempts
from omidpy.storage.hbase.native.calling.locations import Locations, NoRegion
from omidpy.storage.hbase.native.calling.recognition import Recognition
from omidpy.storage.hbase.native.calling.registry import (
    MOST_TOLD_BYTES,
    Registry,
    RpcRegistry,
    ZooKeeperRegistry,
)
from omidpy.storage.hbase.native.connections import connection as connections_module
from omidpy.storage.hbase.native.connections.connection import SLOW_S, Connection, Waiting
from omidpy.storage.hbase.native.connections.pool import (
    MASTER,
    REGIONS,
    REGISTRY,
    SERVER,
    Connections,
    until,
)
from omidpy.storage.hbase.native.faults import (
    CallFailed,
    Fault,
    Garbled,
    Kind,
    Lost,
    NotSent,
    Unanswered,
)
from omidpy.storage.hbase.native.security import tokens
from omidpy.storage.hbase.native.security.settings import security_of
from omidpy.storage.hbase.native.security.tokens import Token
from omidpy.storage.hbase.native.values import META, Region, Scan, ServerName
from omidpy.storage.hbase.native.wire import frames, schema
from omidpy.storage.hbase.native.wire.answers import Answer

T = TypeVar("T")

_HIGH: Final = 200
"""Priority of calls about the catalogue, so that a busy server answers them all the same."""

_SOON_S: Final = 0.5
_LONGEST_LOOK_S: Final = 3 * connections_module.DOUBT_S
"""How long a look at the catalogue may take, whose own server may stand still."""
_ASK_AGAIN_S: Final = 60.0
"""Between two looks whether the catalogue is elsewhere, of which the first had no answer."""
_CHECK_AFTER: Final = 3
"""Failures to find a region, after which the master is asked whether the table is there at all."""


class Sent(NamedTuple):
    """A call in flight."""

    connection: Connection
    waiting: Waiting
    region: Region


class Calls:
    """Makes calls of one HBase.  Safe to share among threads, and after a fork."""

    def __init__(
        self,
        address: NativeAddress,
        *,
        connections: Connections | None = None,
        registry: Registry | None = None,
        pause: Callable[[float], object] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
        by_ticket: bool = False,
    ) -> None:
        """Call no server yet.

        Args:
            address: Where HBase is.
            connections: Opens connections; None as the address says.
            registry: Where HBase's parts are; None as the address says.
            pause: Waits for some seconds.
            now_s: Elapsed time, as far as repetitions go.
            by_ticket: Show a ticket, also where this process was handed a token.

        Raises:
            ConfigError: a package is missing, or a file of certificates cannot be read.
        """
        self.address = address
        self._is_by_ticket = by_ticket
        self._security = security_of(address, by_ticket=by_ticket)
        self.connections = connections or Connections(self._open)
        if registry is None:
            if address.registry == "rpc":
                registry = RpcRegistry(address, self.connections)
            else:
                registry = ZooKeeperRegistry(address)
        self.registry: Registry = registry
        self.locations = Locations(
            self._told_of_meta, self.read_catalogue, partial(self._is_told, REGIONS)
        )
        self._master: ServerName | None = None
        self._untold_s = -inf
        """When the registry last failed to tell who has the catalogue."""
        self._used: dict[str, Connection] = {}
        """By service, the first connection that was used to the catalogue's server, or to the
        master, since the registry told of it."""
        self._pause = pause
        self._now_s = now_s

    def _open(self, host: str, port: int, service: str) -> Connection:
        return connections_module.connect(
            host,
            port,
            service,
            user=self.address.user or connections_module.own_user(),
            timeout_s=self.address.connect_timeout_s,
            max_frame_bytes=MOST_TOLD_BYTES if service == REGISTRY else frames.MAX_FRAME_BYTES,
            security=self._security,
            is_first=not self.connections.has_answered,
        )

    def close(self) -> None:
        """Close every connection; a second call does nothing."""
        self.connections.close()

    def attempts(self, what: str, table: str | None, *, is_repeatable: bool) -> Attempts:
        """Return the attempts of a call, none so far."""
        return Attempts(
            self.address,
            what,
            table,
            is_repeatable=is_repeatable,
            has_answered=lambda: self.connections.has_answered,
            now_s=self._now_s,
            pause=self._pause,
        )

    # -- regions -----------------------------------------------------------------------------------

    def at_row(
        self,
        table: str,
        row: bytes,
        make: Callable[[Region], tuple[str, bytes, bytes]],
        read: Callable[[Answer], T],
        *,
        what: str,
        is_repeatable: bool,
        recognition: Recognition | None = None,
    ) -> T:
        """Make a call where a row is, again and again, and return what `read` makes of its answer.

        Args:
            table: The table.
            row: The row.
            make: Returns method, parameter and cells for the region that has the row.
            read: Reads the answer.
            what: The call in words.
            is_repeatable: Making it twice has the effect of making it once.
            recognition: Whether HBase knows a repeated one by its numbers, where that is why.

        Raises:
            OmidError: what its failure means.
        """
        attempts: Attempts | None = None
        while True:
            region: Region | None = None
            try:
                until_s = until(self.address.timeout_s)
                region = self.locate(table, row, until_s=until_s)
                if recognition is not None:
                    recognition.begin(region.server)
                answer = self.wait(self.send(region, *make(region), until_s=until_s), until_s)
                return read(answer)
            except (CallFailed, OmidError) as error:
                attempts = attempts or self.attempts(what, table, is_repeatable=is_repeatable)
                with _doubted(recognition, error):
                    self.after_failure(attempts, table, region, error)

    def locate(self, table: str, row: bytes, *, until_s: float) -> Region:
        """Return the region that a row is in, for a call that is to be sent there.

        Raises:
            CallFailed: it was not found; that call was certainly not executed.
            OmidError: the same.
        """
        try:
            return self.locations.locate(table, row, until_s=until_s)
        except CallFailed as error:
            if error.is_certain or isinstance(error, Garbled):
                raise
            raise NotSent(f"its region could not be looked up: {error}") from error

    def send(
        self, region: Region, method: str, body: bytes, cells: bytes = b"", *, until_s: float
    ) -> Sent:
        """Send a call to the server that has a region."""
        connection = self.connections.get(region.server.host, region.server.port, REGIONS)
        priority = 0
        if region.table == META:
            self._used.setdefault(REGIONS, connection)
            priority = _HIGH
        waiting = connection.send(method, body, cells, until_s=until_s, priority=priority)
        return Sent(connection, waiting, region)

    def wait(self, sent: Sent, until_s: float, *, is_patient: bool = True) -> Answer:
        """Return the answer to a call that was sent.

        A server that says nothing for as long as a patient call waits is taken for gone, and its
        connection ended; and sooner, when the catalogue has the region elsewhere.
        """
        try:
            answer = sent.connection.wait(
                sent.waiting, until_s=until_s, is_replaced=lambda: self._has_moved(sent.region)
            )
        except Fault:
            self.connections.note_answer()
            raise
        except Unanswered:
            if is_patient:
                sent.connection.doubt(sent.waiting)
            raise
        self.connections.note_answer()
        self._doubt(sent, until_s)
        return answer

    def _doubt(self, sent: Sent, until_s: float) -> None:
        """Refuse the answer of a server that stood still and is no longer the one to ask.

        Until it notices that its lease is over it answers readers from its memory, and what others
        have written since, elsewhere, is not there (I8).

        Raises:
            Lost: its region is with another one.
        """
        connection, waiting, region = sent
        if region.table == META:
            return  # the servers to which it leads are doubted themselves
        is_late = waiting.came_s - waiting.sent_s > SLOW_S
        if not is_late and not connection.came_behind_silence(waiting):
            return
        if self._has_lost_catalogue(region.server, until_s) or self._has_moved(region, until_s):
            raise Lost("the server answered late, and another one is in its place")
        connection.believe()

    def _has_lost_catalogue(self, server: ServerName, until_s: float) -> bool:
        """Say whether a server had the catalogue, which it cannot be asked about itself then.

        HBase serves on while nobody tells where it is, so that no call is held up by that for long.
        """
        now_s = time.monotonic()
        has_time = until_s - now_s > self.address.connect_timeout_s
        if not has_time or now_s - self._untold_s < _ASK_AGAIN_S:
            return False
        try:
            meta = self.locations.meta()
        except OmidError:
            return False
        if meta.server != server or not self._has_moved(meta):
            return False
        self.locations.forget(meta)
        return True

    def _has_moved(self, region: Region, until_s: float = inf) -> bool:
        """Ask whether a region is no longer with a server that says nothing, or said so late.

        A server that stands still keeps its connections.  HBase gives its regions to others once
        its lease in ZooKeeper is over, which none of its callers would notice.
        """
        try:
            if region.table == META:
                return self.registry.meta_server() != region.server
            limit_s = min(until_s, until(_LONGEST_LOOK_S))
            found = self.locations.look_anew(region, until_s=limit_s)
        except (CallFailed, OmidError):
            if region.table == META:
                self._untold_s = time.monotonic()
            return False
        return found is not None and found.server != region.server

    def after_failure(
        self, attempts: Attempts, table: str, region: Region | None, error: Exception
    ) -> None:
        """Correct what is known of places, and wait before the next attempt or raise."""
        where = None if region is None else str(region.server)
        if region is not None:
            self.correct(region, error)
        attempts.pause_or_raise(error, where)
        is_lost = isinstance(error, NoRegion) or (
            isinstance(error, Fault) and error.kind is Kind.MISPLACED
        )
        is_absent = isinstance(error, NoRegion) and attempts.count == 1
        if is_absent or (is_lost and attempts.count % _CHECK_AFTER == 0):
            self.check_table(table)

    def correct(self, region: Region, error: Exception) -> None:
        """Draw the conclusion from a failure where a region was looked for."""
        if not isinstance(error, Fault):
            self.locations.forget(region)
            return
        moved_to = error.moved_to
        if moved_to is not None:
            self.locations.move(region, ServerName(*moved_to))
        elif error.is_elsewhere:
            self.locations.forget(region)

    def check_table(self, table: str) -> None:
        """Raise if a table whose regions cannot be found is not there, or disabled.

        Raises:
            NoSuchTable: it is not there.
            StorageUnavailable: it is disabled.
        """
        if table == META:
            return
        try:
            state = self.table_state_once(table)
        except Fault as error:
            if error.class_name != "TableNotFoundException":
                return
            self.locations.forget_table(table)
            raise NoSuchTable(
                f"there is no table {table!r} at {self.address.url}; create it, or check the name"
            ) from error
        except (CallFailed, OmidError):
            # No master says anything now; the region may be found all the same.
            self._master = None
            return
        if state in ("disabled", "disabling"):
            raise StorageUnavailable(
                f"table {table!r} at {self.address.url}: it is {state}; enable it (`enable` in the "
                "`hbase shell`)"
            )

    def read_catalogue(self, scan: Scan, rows: int, *, until_s: float) -> list[list[Cell]]:
        """Return the first rows of a scan of the catalogue; it is tried again once or twice."""
        failed = 0
        while True:
            region = self.locations.meta()
            try:
                found: list[list[Cell]] = []
                part = scan
                while len(found) < rows:
                    request = scan_messages.scan_request(
                        region.name, part, rows=rows - len(found), keeps_open=False
                    )
                    limit_s = min(until_s, until(self.address.timeout_s))
                    sent = self.send(region, "Scan", request, until_s=limit_s)
                    answer = scan_messages.read_scan(self.wait(sent, limit_s), rows - len(found))
                    whole = answer.rows[:-1] if answer.is_last_partial else answer.rows
                    found += whole
                    if not (answer.more and answer.more_in_region):
                        break
                    # It ended before its time: because of the bytes, or of how long it took.
                    if whole:
                        part = scan._replace(start=whole[-1][0].row, includes_start=False)
                    elif answer.cursor is not None:
                        part = scan._replace(start=answer.cursor, includes_start=True)
                    elif answer.is_heartbeat:
                        raise Unanswered("its time was over before it came to a cell")
                    else:
                        raise Garbled("a scan of the catalogue brings neither rows nor a reason")
                return found
            except CallFailed as error:
                self.correct(region, error)
                failed += 1
                if failed > 1:
                    raise

    # -- the master and other servers --------------------------------------------------------------

    def at_master(
        self,
        method: str,
        body: bytes | Callable[[], bytes],
        read: Callable[[bytes], T],
        *,
        what: str,
        table: str | None,
        is_repeatable: bool,
        recognition: Recognition | None = None,
    ) -> T:
        """Make a call to the active master, again and again; as `at_row`.

        Where `body` is a function, it makes the request of each attempt.
        """
        attempts: Attempts | None = None
        while True:
            master: ServerName | None = None
            try:
                request = body if isinstance(body, bytes) else body()
                master = self._active_master()
                if recognition is not None:
                    recognition.begin(None)
                return read(
                    self._once(
                        master, MASTER, method, request, is_replaced=partial(self._has_left, master)
                    )
                )
            except (CallFailed, OmidError) as error:
                if not isinstance(error, Fault) or error.kind is not Kind.PERMANENT:
                    self._master = None
                attempts = attempts or self.attempts(what, table, is_repeatable=is_repeatable)
                with _doubted(recognition, error):
                    attempts.pause_or_raise(error, None if master is None else str(master))

    def table_state_once(self, table: str) -> str:
        """Ask the master for the state of a table, once."""
        body = self._once(
            self._active_master(), MASTER, "GetTableState", schema.state_request(table)
        )
        return schema.read_state(body)

    def at_server(self, region: Region, method: str, body: bytes) -> bytes:
        """Make an administrator's call, once, to the server that has a region."""
        return self._once(region.server, SERVER, method, body)

    def fetch_token(self) -> Token:
        """Return what proves to HBase who calls, also from elsewhere.

        Cost: 1 RPC; where this process was handed a token, by a connection of its own, to which a
        ticket is shown.

        Raises:
            ConfigError: HBase gives none out.
            StorageUnavailable: it does not answer, or there is no ticket.
        """
        if not self._is_by_ticket and tokens.held(self.address.url) is not None:
            with contextlib.closing(Calls(self.address, by_ticket=True)) as calls:
                return calls.fetch_token()
        try:
            return self.at_row(
                META,
                b"",
                lambda _: ("ExecService", tokens.token_request(), b""),
                lambda answer: tokens.read_token(answer.body),
                what="fetch a token",
                is_repeatable=True,
            )
        except OmidError as error:
            if isinstance(fault := error.__cause__, Fault) and fault.is_about_tokens:
                raise ConfigError(
                    f"{error}; HBase gives tokens out where hbase.coprocessor.region.classes has "
                    "org.apache.hadoop.hbase.security.token.TokenProvider"
                ) from error
            raise

    def _has_left(self, master: ServerName) -> bool:
        """Ask whether a master that says nothing is no longer the active one."""
        try:
            return self.registry.master() != master
        except (CallFailed, OmidError):
            return False

    def _once(
        self,
        server: ServerName,
        service: str,
        method: str,
        body: bytes,
        *,
        is_replaced: Callable[[], bool] | None = None,
    ) -> bytes:
        until_s = until(self.address.timeout_s)
        connection = self.connections.get(server.host, server.port, service)
        if service == MASTER:
            self._used.setdefault(MASTER, connection)
        try:
            answer = connection.call(method, body, until_s=until_s, is_replaced=is_replaced)
        except Fault:
            self.connections.note_answer()
            raise
        self.connections.note_answer()
        return answer.body

    def _active_master(self) -> ServerName:
        master = self._master
        if master is None or not self._is_told(MASTER):
            master = self.registry.master()
            self._used.pop(MASTER, None)
            self._master = master
        return master

    def _told_of_meta(self) -> ServerName:
        server = self.registry.meta_server()
        self._used.pop(REGIONS, None)
        return server

    def _is_told(self, service: str) -> bool:
        """Whether what the registry told of a server holds for the process that answers there.

        Behind the end of a connection another one may answer at the same place, even of another
        HBase, whose catalogue has the same name.  The registry tells of which HBase it is.
        """
        connection = self._used.get(service)
        return connection is None or not connection.has_ended

    def end_scanner(self, region: Region, scanner_id: int) -> None:
        """Let a server forget a scanner; its answer is not waited for."""
        with contextlib.suppress(CallFailed):
            sent = self.send(
                region, "Scan", scan_messages.close_request(scanner_id), until_s=until(_SOON_S)
            )
            sent.connection.forget(sent.waiting)


@contextlib.contextmanager
def _doubted(recognition: Recognition | None, error: Exception) -> Iterator[None]:
    """Say of what is raised for a failure that an attempt of the call may have been executed."""
    if recognition is not None:
        recognition.note(error)
    try:
        yield
    except OmidError as told:
        if recognition is None or (doubted := recognition.told(told)) is told:
            raise
        raise doubted from error


def forget(sent: list[Sent]) -> None:
    """Expect no answer to calls any more."""
    for one in sent:
        one.connection.forget(one.waiting)
