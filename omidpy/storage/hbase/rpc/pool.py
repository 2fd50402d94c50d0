"""Connections to HBase's gateways, shared by threads; which calls are made again, and where.

A call borrows a connection, has it for itself, and gives it back.  Kept here:

* a connection that failed in any way but a declared answer is discarded, because what arrives next
  on it may be the answer to the call that was given up
* a call that is not idempotent is made again only if it was certainly not sent: no gateway could be
  reached, the connection was found dead before, or the call could not be written whole.  Otherwise
  `StorageUnavailable` says that the outcome is not known
* retries are bounded in number and time, with full jitter in between, and go to another gateway
  where there is one; a pool that no gateway ever answered tries each once, so that a wrong address
  is reported at once
* a gateway that may look for a region in the wrong place is made to look it up (`places.py`): while
  a call waits, and before one that failed is made again

Gateways close a connection that was idle for a minute.  One that was idle for a second is looked at
before use, one that was idle for `max_idle_s` is replaced.

A thread that an exception takes out of a call, at whatever line, leaves no connection in use (I11).

After a fork the child starts with no connection.  It closes its descriptors without a shutdown, so
that the parent's connections live on.

Lacks order among waiting threads, and any state of a call beyond its answer.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, Final

from thriftpy2.thrift import TException

from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.within import within
from omidpy.errors import StorageUnavailable
from omidpy.storage import forking
from omidpy.storage.hbase.addresses.gateways import Gateway, HBaseAddress
from omidpy.storage.hbase.rpc.attempts import CallAttempts, NoGateway, is_argument
from omidpy.storage.hbase.rpc.cluster import OneCluster
from omidpy.storage.hbase.rpc.gateway import CallNotSent, Client, Unanswered, open_client
from omidpy.storage.hbase.rpc.places import Places, may_be_misled
from omidpy.storage.hbase.rpc.translate import is_declared

LOOK_AFTER_S: Final = 1.0
"""A connection idle for longer is looked at before use."""

_LOOK_S: Final = 1.0
"""How often one who waits for a connection looks by himself."""

COOL_DOWN_S: Final = 5.0
"""A gateway that failed is asked for new connections last for so long."""


class _Connection:
    """A client with what the pool remembers of it."""

    __slots__ = ("client", "gateway", "used_s")

    def __init__(self, gateway: Gateway) -> None:
        self.client: Client | None = None
        """None until it is opened."""
        self.gateway = gateway
        self.used_s = 0.0


class _Slot:
    """A thread's place among the connections in use; it exists before anything is in it."""

    __slots__ = ("connection",)

    def __init__(self) -> None:
        self.connection: _Connection | None = None

    @property
    def gateway(self) -> Gateway | None:
        """Whose it is; None as long as none is open."""
        if self.connection is None or self.connection.client is None:
            return None
        return self.connection.gateway


class GatewayPool:
    """Calls to the gateways of one address.  Thread-safe, fork-safe, and lazy: opens on use."""

    def __init__(
        self,
        address: HBaseAddress,
        open_client: Callable[[str, int], Client] | None = None,
        *,
        clock: Clock | None = None,
        places: Places | None = None,
        pause: Callable[[float], object] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.address = address
        self._open_client = open_client or self._open_as_addressed
        self._clock = clock or SystemClock()
        self._now_s = self._clock.monotonic_s
        self._pause = pause
        self._rng = rng or random.Random()
        self._lock = threading.Lock()
        self._idle: deque[_Connection] = deque()
        self._used: set[_Slot] = set()
        self._waiting: deque[SimpleQueue[None]] = deque()
        self._is_closed = False
        # Clients that start together would otherwise all begin with the first gateway.
        self._next_gateway = self._rng.randrange(len(address.gateways))
        self._down_until_s: dict[Gateway, float] = {}
        self._answered: set[Gateway] = set()
        self._cluster = OneCluster(address)
        self._places = places or Places(address, open_client, self._now_s)
        forking.register(self)

    # -- calls -------------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        *args: Any,
        is_idempotent: bool,
        table: str | None = None,
        what: str = "",
        patience_s: float | None = None,
    ) -> Any:
        """Call a method of a gateway and return its answer.

        Args:
            method: Its name in the interface.
            *args: Its arguments, in the interface's order.
            is_idempotent: Making the call twice has the effect of making it once.
            table: The table that the call is about, for errors, and to look up its regions.
            what: The call in words, for errors; its name by default.
            patience_s: How long to wait for an answer that can be had in smaller parts; None is
                `timeout_s` of the address.

        Raises:
            NoSuchTable, NoSuchFamily, TableExists, UsageError: HBase refused; nothing was done.
            StorageUnavailable: no gateway, or HBase behind it, could do it.  Unless the message
                says that it is not known, a call that is not idempotent was not applied.
            Unanswered: it took longer than `patience_s`, goes on, and is not made again.

        Cost: 1 RPC; more only after failures.
        """
        attempts: CallAttempts | None = None
        while True:
            slot = _Slot()
            try:
                client, gateway = self._borrow(slot, is_looked_at=not is_idempotent)
                look_up = partial(self._places.look_up, gateway, table)
                answer = client.call(method, *args, while_silent=look_up, patience_s=patience_s)
                self._give_back(slot)
                return answer
            except Unanswered:
                # The gateway is well, and so may be everything behind it.
                self._discard(slot)
                raise
            except Exception as error:  # noqa: BLE001 - sorted below; none is swallowed
                used = slot.gateway
                self._after_failure(slot, error)
                attempts = attempts or self._attempts(
                    what or method, table, is_idempotent=is_idempotent
                )
                attempts.pause_or_raise(used, error)
                self._after_misleading(used, table, error)
            except BaseException:
                self._discard(slot)
                raise

    @contextmanager
    def owned(
        self,
        *,
        table: str | None = None,
        what: str = "a call",
        is_idempotent: bool = False,
        is_patient: bool = True,
    ) -> Iterator[Client]:
        """Lend one connection until the block ends, for calls that belong to one gateway.

        Calls in the block are made once.  Any error that leaves it discards the connection, and one
        of Thrift or of the connection becomes one of ours.  A thread that owns a connection and
        makes other calls needs a second one: `pool_size` bounds both.

        With `is_idempotent` the whole block may be entered again, and an error says so.  Without
        `is_patient`, a gateway that cannot be connected to is not waited for.
        """
        attempts = self._attempts(what, table, is_idempotent=is_idempotent)
        slot = _Slot()
        try:
            yield self._borrow_again(slot, attempts, is_patient=is_patient)
            self._give_back(slot)
        except (TException, CallNotSent, OSError, EOFError) as error:
            gateway = slot.gateway
            self._after_failure(slot, error, is_kept=False)
            if is_idempotent:
                self._after_misleading(gateway, table, error)
            attempts.give_up(gateway, error)
        except BaseException:
            self._discard(slot)
            raise

    def _borrow_again(self, slot: _Slot, attempts: CallAttempts, *, is_patient: bool) -> Client:
        """Borrow, again and again while no gateway can be connected to."""
        while True:
            try:
                return self._borrow(slot, is_looked_at=True)[0]
            except NoGateway as error:
                self._discard(slot)
                if not is_patient:
                    attempts.give_up(None, error)
                attempts.pause_or_raise(None, error)

    def _attempts(self, what: str, table: str | None, *, is_idempotent: bool) -> CallAttempts:
        return CallAttempts(
            self.address,
            what,
            table,
            is_idempotent=is_idempotent,
            has_answered=self.has_answered,
            now_s=self._now_s,
            pause=self._pause,
            rng=self._rng,
        )

    def close(self) -> None:
        """Close every connection: idle ones now, others when they come back."""
        self._is_closed = True
        within(self._lock, self._wake, len(self._waiting))
        while self._idle:
            within(self._lock, self._close_idle)

    def _close_idle(self) -> None:
        if self._idle:
            _close(self._idle[-1])
            self._idle.pop()

    # -- borrowing ---------------------------------------------------------------------------------

    def _borrow(self, slot: _Slot, *, is_looked_at: bool) -> tuple[Client, Gateway]:
        """Put a connection that no other thread uses into a slot; return its client and gateway.

        Raises:
            NoGateway: none could be connected to.
            StorageUnavailable: the pool is closed, or all its connections stay in use.
        """
        give_up_s = time.monotonic() + self.address.timeout_s
        call: SimpleQueue[None] = SimpleQueue()
        while not within(self._lock, self._take, slot, call):
            self._wait(call, give_up_s)
        while slot.connection is not None:
            client, idle_s = slot.connection.client, self._now_s() - slot.connection.used_s
            assert client is not None, "what is idle was opened"
            if idle_s <= self.address.max_idle_s and not (
                (is_looked_at or idle_s > LOOK_AFTER_S) and client.is_dead()
            ):
                return client, slot.connection.gateway
            within(self._lock, self._replace, slot)
        return self._connect(slot)

    def _take(self, slot: _Slot, call: SimpleQueue[None]) -> bool:
        """Count a slot as used, with an idle connection if there is one; False: wait for a call."""
        if self._is_closed:
            raise StorageUnavailable(f"the store {self.address.url} is closed; open it again")
        if self._idle or len(self._used) < self.address.pool_size:
            self._used.add(slot)
            self._fill(slot)
            if call in self._waiting:
                self._waiting.remove(call)
            return True
        if call not in self._waiting:
            self._waiting.append(call)
        return False

    def _fill(self, slot: _Slot) -> None:
        """Move an idle connection, if there is one, into a slot.  Holds `_lock`."""
        if self._idle:
            slot.connection = self._idle[-1]
            self._idle.pop()

    def _replace(self, slot: _Slot) -> None:
        """Close the connection in a slot and put another idle one there, if there is one."""
        assert slot.connection is not None, "it is replaced"
        _close(slot.connection)
        slot.connection = None
        self._fill(slot)

    def _wait(self, call: SimpleQueue[None], give_up_s: float) -> None:
        """Wait until something changed."""
        left_s = give_up_s - time.monotonic()
        if left_s <= 0:
            raise StorageUnavailable(
                f"all {self.address.pool_size} connections to {self.address.url} have been in use "
                f"for {self.address.timeout_s:g} s; raise pool_size in the address, or use fewer "
                "threads",
                retryable=True,
            )
        with suppress(Empty):  # one who was called may have gone without calling the next
            call.get(timeout=min(left_s, _LOOK_S))

    def _wake(self, count: int) -> None:
        """Let so many of those who wait look again.  Holds `_lock`."""
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft().put(None)

    def _connect(self, slot: _Slot) -> tuple[Client, Gateway]:
        """Connect to one of the gateways, those that failed lately last."""
        ordered = within(self._lock, self._gateways_in_turn)
        for gateway in ordered:
            slot.connection = connection = _Connection(gateway)
            try:
                connection.client = client = self._open_client(*gateway)
                return client, gateway
            except (TException, OSError, EOFError) as error:
                self._mark_down(gateway)
                if gateway is ordered[-1]:
                    slot.connection = None
                    raise NoGateway from error
        raise AssertionError("an address names at least one gateway")

    def _gateways_in_turn(self) -> list[Gateway]:
        now_s = self._now_s()
        gateways = self.address.gateways
        first = self._next_gateway
        self._next_gateway = (first + 1) % len(gateways)
        return sorted(
            (gateways[(first + step) % len(gateways)] for step in range(len(gateways))),
            key=lambda gateway: self._down_until_s.get(gateway, 0.0) > now_s,
        )

    def _open_as_addressed(self, host: str, port: int) -> Client:
        client: Client | None = None
        try:
            client = open_client(self.address, host, port)
            self._cluster.check(client, (host, port))
            return client
        except BaseException:
            if client is not None:
                client.close()
            raise

    def _give_back(self, slot: _Slot) -> None:
        assert slot.connection is not None, "it was borrowed"
        slot.connection.used_s = now_s = self._now_s()
        if slot.connection.gateway not in self._answered:
            self._answered.add(slot.connection.gateway)
        within(self._lock, self._make_idle, slot, slot.connection, now_s)

    def _make_idle(self, slot: _Slot, connection: _Connection, now_s: float) -> None:
        if slot not in self._used:
            return  # it is the parent's, after a fork
        if self._is_closed:
            self._empty(slot)
            return
        self._idle.append(connection)
        self._used.discard(slot)
        self._wake(1)
        # The one that was not needed for longest: the gateway is about to close it.
        if now_s - self._idle[0].used_s > self.address.max_idle_s:
            _close(self._idle[0])
            self._idle.popleft()

    def _discard(self, slot: _Slot) -> None:
        """Empty a slot, and close what was in it."""
        within(self._lock, self._empty, slot)

    def _empty(self, slot: _Slot) -> None:
        connection = slot.connection
        if connection is not None and (slot in self._used or connection in self._idle):
            if connection in self._idle:  # an exception came between two lines
                self._idle.remove(connection)
            _close(connection)
        slot.connection = None
        self._used.discard(slot)
        self._wake(1)

    def _after_failure(self, slot: _Slot, error: Exception, *, is_kept: bool = True) -> None:
        """Give back a connection that answered with an error; discard any other."""
        gateway = slot.gateway
        if gateway is not None and is_declared(error):
            self._answered.add(gateway)
            (self._give_back if is_kept else self._discard)(slot)
            return
        self._discard(slot)
        if gateway is None or is_argument(error):
            return
        self._mark_down(gateway)
        # What broke this connection most likely broke its idle neighbours too.
        within(self._lock, self._close_idle_of, gateway)

    def _close_idle_of(self, gateway: Gateway) -> None:
        for one in [one for one in self._idle if one.gateway == gateway]:
            _close(one)
            self._idle.remove(one)

    def _after_misleading(
        self, gateway: Gateway | None, table: str | None, error: Exception
    ) -> None:
        """Help a gateway that may have looked in the wrong place, before it is asked again."""
        if gateway is not None and may_be_misled(error):
            self._places.look_up(gateway, table)

    def _mark_down(self, gateway: Gateway) -> None:
        self._down_until_s[gateway] = self._now_s() + COOL_DOWN_S

    def has_answered(self, gateway: Gateway | None = None) -> bool:
        """Say whether a gateway (None: any) has ever answered a call."""
        return bool(self._answered) if gateway is None else gateway in self._answered

    # -- fork --------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keep other threads from changing the lists; calls in flight go on."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Let other threads in again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Begin with no connection; those of the parent stay the parent's."""
        self._lock = threading.Lock()
        self._cluster.after_fork_in_child()
        used = [slot.connection for slot in self._used if slot.connection is not None]
        for connection in (*self._idle, *used):
            if connection.client is not None:
                connection.client.forget()
        self._idle.clear()
        self._used.clear()
        self._waiting.clear()
        # Children of one parent would otherwise draw the same pauses and the same gateways.
        self._rng.seed()
        self._next_gateway = self._rng.randrange(len(self.address.gateways))


def _close(connection: _Connection) -> None:
    """Close a connection, as far as it was opened; a second time does nothing."""
    if connection.client is not None:
        connection.client.close()
