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
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from thriftpy2.thrift import TException

from omidpy.base.clock import Clock, SystemClock
from omidpy.errors import StorageUnavailable
from omidpy.storage import forking
from omidpy.storage.hbase.address import Gateway, HBaseAddress
from omidpy.storage.hbase.rpc.attempts import CallAttempts, NoGateway, is_argument
from omidpy.storage.hbase.rpc.cluster import OneCluster
from omidpy.storage.hbase.rpc.gateway import CallNotSent, Client, Unanswered, open_client
from omidpy.storage.hbase.rpc.places import Places, may_be_misled
from omidpy.storage.hbase.rpc.translate import is_declared

LOOK_AFTER_S: Final = 1.0
"""A connection idle for longer is looked at before use."""

COOL_DOWN_S: Final = 5.0
"""A gateway that failed is asked for new connections last for so long."""


class _Connection:
    """A client with what the pool remembers of it."""

    __slots__ = ("client", "fork_count", "gateway", "used_s")

    def __init__(self, client: Client, gateway: Gateway, fork_count: int) -> None:
        self.client = client
        self.gateway = gateway
        self.fork_count = fork_count
        self.used_s = 0.0


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
        self._changed = threading.Condition(threading.Lock())
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._taken_count = 0
        self._fork_count = 0
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
            connection: _Connection | None = None
            try:
                connection = self._borrow(is_looked_at=not is_idempotent)
                look_up = partial(self._places.look_up, connection.gateway, table)
                answer = connection.client.call(
                    method, *args, while_silent=look_up, patience_s=patience_s
                )
            except Unanswered:
                # The gateway is well, and so may be everything behind it.
                assert connection is not None, "the call was made"
                self._discard(connection)
                raise
            except Exception as error:  # noqa: BLE001 - sorted below; none is swallowed
                if connection is not None:
                    self._after_failure(connection, error)
                attempts = attempts or self._attempts(
                    what or method, table, is_idempotent=is_idempotent
                )
                attempts.pause_or_raise(connection.gateway if connection else None, error)
                self._after_misleading(connection, table, error)
            except BaseException:
                if connection is not None:
                    self._discard(connection)
                raise
            else:
                self._give_back(connection)
                return answer

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
        while True:
            try:
                connection = self._borrow(is_looked_at=True)
                break
            except NoGateway as error:
                if not is_patient:
                    attempts.give_up(None, error)
                attempts.pause_or_raise(None, error)
        try:
            yield connection.client
        except (TException, CallNotSent, OSError, EOFError) as error:
            self._after_failure(connection, error, is_kept=False)
            if is_idempotent:
                self._after_misleading(connection, table, error)
            attempts.give_up(connection.gateway, error)
        except BaseException:
            self._discard(connection)
            raise
        self._give_back(connection)

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
        with self._changed:
            self._is_closed = True
            idle = list(self._idle)
            self._idle.clear()
            self._taken_count -= len(idle)
            self._open.difference_update(idle)
            self._changed.notify_all()
        for connection in idle:
            connection.client.close()

    # -- borrowing ---------------------------------------------------------------------------------

    def _borrow(self, *, is_looked_at: bool) -> _Connection:
        """Return a connection that nobody else uses.

        Raises:
            NoGateway: none could be connected to.
            StorageUnavailable: the pool is closed, or all its connections stay in use.
        """
        while True:
            with self._changed:
                if self._is_closed:
                    raise StorageUnavailable(
                        f"the store {self.address.url} is closed; open it again"
                    )
                if self._idle:
                    connection = self._idle.pop()
                elif self._taken_count < self.address.pool_size:
                    self._taken_count += 1
                    fork_count = self._fork_count
                    break
                else:
                    self._wait_for_connection()
                    continue
            idle_s = self._now_s() - connection.used_s
            if idle_s <= self.address.max_idle_s and not (
                (is_looked_at or idle_s > LOOK_AFTER_S) and connection.client.is_dead()
            ):
                return connection
            self._discard(connection)
        try:
            connection = self._connected(fork_count)
        except BaseException:
            with self._changed:
                if fork_count == self._fork_count:
                    self._taken_count -= 1
                    self._changed.notify()
            raise
        return connection

    def _wait_for_connection(self) -> None:
        """Wait, with the lock held, until something changed."""
        if not self._changed.wait(self.address.timeout_s):
            raise StorageUnavailable(
                f"all {self.address.pool_size} connections to {self.address.url} have been in use "
                f"for {self.address.timeout_s:g} s; raise pool_size in the address, or use fewer "
                "threads",
                retryable=True,
            )

    def _connected(self, fork_count: int) -> _Connection:
        """Connect to one of the gateways, those that failed lately last."""
        now_s = self._now_s()
        gateways = self.address.gateways
        with self._changed:
            first = self._next_gateway
            self._next_gateway = (first + 1) % len(gateways)
            ordered = sorted(
                (gateways[(first + step) % len(gateways)] for step in range(len(gateways))),
                key=lambda gateway: self._down_until_s.get(gateway, 0.0) > now_s,
            )
        for gateway in ordered:
            try:
                client = self._open_client(*gateway)
            except (TException, OSError, EOFError) as error:
                self._mark_down(gateway)
                if gateway is ordered[-1]:
                    raise NoGateway from error
                continue
            connection = _Connection(client, gateway, fork_count)
            with self._changed:
                self._open.add(connection)
            return connection
        raise AssertionError("an address names at least one gateway")

    def _open_as_addressed(self, host: str, port: int) -> Client:
        client = open_client(self.address, host, port)
        try:
            self._cluster.check(client, (host, port))
        except BaseException:
            client.close()
            raise
        return client

    def _give_back(self, connection: _Connection) -> None:
        connection.used_s = now_s = self._now_s()
        if connection.gateway not in self._answered:
            self._answered.add(connection.gateway)
        aged = None
        with self._changed:
            if connection.fork_count != self._fork_count:
                return
            if not self._is_closed:
                self._idle.append(connection)
                # The one that was not needed for longest: the gateway is about to close it.
                if now_s - self._idle[0].used_s > self.address.max_idle_s:
                    aged = self._idle.popleft()
                self._changed.notify()
            else:
                aged = connection
        if aged is not None:
            self._discard(aged)

    def _discard(self, connection: _Connection) -> None:
        with self._changed:
            if connection.fork_count != self._fork_count:
                return
            self._open.discard(connection)
            self._taken_count -= 1
            self._changed.notify()
        connection.client.close()

    def _after_failure(
        self, connection: _Connection, error: Exception, *, is_kept: bool = True
    ) -> None:
        """Give back a connection that answered with an error; discard any other."""
        if is_declared(error):
            self._answered.add(connection.gateway)
            (self._give_back if is_kept else self._discard)(connection)
            return
        self._discard(connection)
        if is_argument(error):
            return
        self._mark_down(connection.gateway)
        # What broke this connection most likely broke its idle neighbours too.
        with self._changed:
            others = [one for one in self._idle if one.gateway == connection.gateway]
            for one in others:
                self._idle.remove(one)
        for one in others:
            self._discard(one)

    def _after_misleading(
        self, connection: _Connection | None, table: str | None, error: Exception
    ) -> None:
        """Help a gateway that may have looked in the wrong place, before it is asked again."""
        if connection is not None and may_be_misled(error):
            self._places.look_up(connection.gateway, table)

    def _mark_down(self, gateway: Gateway) -> None:
        self._down_until_s[gateway] = self._now_s() + COOL_DOWN_S

    def has_answered(self, gateway: Gateway | None = None) -> bool:
        """Say whether a gateway (None: any) has ever answered a call."""
        return bool(self._answered) if gateway is None else gateway in self._answered

    # -- fork --------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Keep other threads from changing the lists; calls in flight go on."""
        self._changed.acquire()

    def after_fork_in_parent(self) -> None:
        """Let other threads in again."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Begin with no connection; those of the parent stay the parent's."""
        self._changed = threading.Condition(threading.Lock())
        self._cluster.after_fork_in_child()
        for connection in self._open:
            connection.client.forget()
        self._open.clear()
        self._idle.clear()
        self._taken_count = 0
        self._fork_count += 1
        # Children of one parent would otherwise draw the same pauses and the same gateways.
        self._rng.seed()
        self._next_gateway = self._rng.randrange(len(self.address.gateways))
