"""Znodes for operations: reads behind a sync, transactions that check versions, signs of life.

One session for each process: after a fork the child opens its own, and leaves its parent's alone.
Where kazoo has given up the next call opens another, too.
What a request without an answer has done is not known, and it may still be done: kazoo keeps what
it could not send.

Lacks everything of operations; `store.py` has that.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from omidpy.base.ensemble import end, is_over
from omidpy.base.within import within
from omidpy.errors import StorageUnavailable
from omidpy.oracle.zookeeper import (
    Znode,
    ZooKeeperAddress,
    begun_anew,
    in_our_words,
    require_kazoo,
    start_client,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient

T = TypeVar("T")

MAX_PIPELINED: Final = 200
"""Requests that are under way at once for one caller."""


class Create(NamedTuple):
    """Create a znode that is not there."""

    path: str
    data: bytes


class Write(NamedTuple):
    """Write a znode that still has a version."""

    path: str
    data: bytes
    version: int = -1


class Delete(NamedTuple):
    """Delete a znode that still has a version."""

    path: str
    version: int = -1


class Check(NamedTuple):
    """Change nothing, and need a znode to have a version still."""

    path: str
    version: int


Change = Create | Write | Delete | Check


class ZooKeeperSession:
    """A session with an ensemble.  Safe to share among threads, and after a fork."""

    def __init__(self, address: ZooKeeperAddress) -> None:
        """Connect.

        Raises:
            ConfigError: kazoo is not installed, or TLS or SASL is not set up as asked.
            StorageUnavailable: no server answers within the timeout.
        """
        require_kazoo()
        self.address = address
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._is_closed = False
        # Callers that may not have two requests under way take turns.
        self._turns: dict[int, AbstractContextManager[Any]] = {}
        self._starts: dict[int, AbstractContextManager[Any]] = {}
        self._client, self._failures = start_client(address)

    @property
    def timeout_s(self) -> float:
        """How long an answer is waited for, and what was asked for as the session's timeout."""
        return self.address.timeout_s

    @property
    def limit_s(self) -> float:
        """How long the ensemble waits for a sign of life before it ends the session.

        It decides: what was asked for it cuts to its `maxSessionTimeout`.
        """
        limit_s: float = self._client.session_limit_s
        return min(limit_s, self.timeout_s)

    @property
    def session_id(self) -> int | None:
        """The session that goes on; None while it is not known whether it does."""
        known = self._client.client_id  # looked at once: another thread sees the connection break
        return None if known is None else known[0]

    # -- reads ---------------------------------------------------------------------------------

    def sync(self) -> None:
        """Let the server that we ask know what was written before now."""
        self._call(lambda client: client.sync_async("/").get(timeout=self.timeout_s))

    def read(self, path: str) -> Znode | None:
        """Return a znode as it is now; None if there is none."""
        self.sync()
        return self.read_each([path])[0]

    def read_each(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return znodes as the server knows them, each for itself."""
        return self._call(partial(self._read_each, paths))

    def _read_each(self, paths: Sequence[str], client: KazooClient) -> list[Znode | None]:
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - an extra

        found: list[Znode | None] = []
        step = MAX_PIPELINED if self.address.is_pipelined else 1
        for first in range(0, len(paths), step):
            asked = [client.get_async(path) for path in paths[first : first + step]]
            for answer in asked:
                try:
                    data, stat = answer.get(timeout=self.timeout_s)
                    found.append(Znode(data, stat.version))
                except NoNodeError:
                    found.append(None)
        return found

    def children(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        """Return the names below a znode; none if it is not there.

        Args:
            path: The znode.
            watch: Called once when they change.
        """
        self.sync()
        return self._call(partial(self._children, path, watch))

    def _children(
        self, path: str, watch: Callable[[object], None] | None, client: KazooClient
    ) -> list[str]:
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - an extra

        try:
            answer = client.get_children_async(path, watch=watch)
            found: list[str] = answer.get(timeout=self.timeout_s)
        except NoNodeError:
            return []
        return found

    # -- changes -------------------------------------------------------------------------------

    def change(self, changes: Sequence[Change]) -> bool:
        """Do all of it, or nothing; False if a znode is not as it must be.

        Raises:
            StorageUnavailable: it may be done, and may still be.
            ConfigError: we may not; nothing is done.
        """
        from kazoo.exceptions import (  # noqa: PLC0415 - an extra
            BadVersionError,
            NoAuthError,
            NodeExistsError,
            NoNodeError,
            RolledBackError,
            RuntimeInconsistency,
        )

        results = self._call(partial(self._change, changes))
        errors = [result for result in results if isinstance(result, Exception)]
        for error in errors:
            if isinstance(error, BadVersionError | NodeExistsError | NoNodeError):
                return False
        for error in errors:
            if isinstance(error, NoAuthError):
                raise in_our_words(error, where=self._where()) from error
            if not isinstance(error, RolledBackError | RuntimeInconsistency):
                raise StorageUnavailable(f"{self._where()} refused a change: {error!r}") from error
        return not errors

    def _change(self, changes: Sequence[Change], client: KazooClient) -> list[object]:
        transaction = client.transaction()
        for change in changes:
            match change:
                case Create():
                    transaction.create(change.path, change.data)
                case Write():
                    transaction.set_data(change.path, change.data, change.version)
                case Delete():
                    transaction.delete(change.path, change.version)
                case Check():
                    transaction.check(change.path, change.version)
        results: list[object] = transaction.commit_async().get(timeout=self.timeout_s)
        return results

    def make(self, path: str) -> None:
        """Create an empty znode and its parents; those that exist are left alone."""
        self._call(lambda client: client.ensure_path_async(path).get(timeout=self.timeout_s))

    def create(self, path: str, data: bytes, *, is_ephemeral: bool = False) -> bool:
        """Create a znode; False if it is there."""
        return self._call(partial(self._create, path, data, is_ephemeral))

    def _create(
        self,
        path: str,
        data: bytes,
        is_ephemeral: bool,  # noqa: FBT001 - of `create`, by place
        client: KazooClient,
    ) -> bool:
        from kazoo.exceptions import NodeExistsError  # noqa: PLC0415 - an extra

        try:
            client.create_async(path, data, ephemeral=is_ephemeral).get(timeout=self.timeout_s)
        except NodeExistsError:
            return False
        return True

    def owner_of(self, path: str) -> int | None:
        """Return the session that an ephemeral znode ends with; None if it is not there.

        The ensemble's word: while a session begins anew the client does not know its own.
        """
        self.sync()
        stat = self._call(lambda client: client.exists_async(path).get(timeout=self.timeout_s))
        return None if stat is None else int(stat.owner_session_id or 0)

    # -- life ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the session; a second call does nothing."""
        within(self._mutex, self._close)

    def _close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._pid == os.getpid():
            end(self._client)

    def _call(self, work: Callable[[KazooClient], T]) -> T:
        """Do some work with the client, and say in our words what fails.

        Raises:
            StorageUnavailable: there was no answer.
        """
        # On one line, in which a ^C finds no place to leave the turn taken (`base/within.py`).
        return within(self._turn(), self._lent, work)

    def _lent(self, work: Callable[[KazooClient], T]) -> T:
        client = self._current()
        try:
            return work(client)
        except self._failures as error:
            raise in_our_words(error, where=self._where()) from error

    def _turn(self) -> AbstractContextManager[Any]:
        """Return what gives one caller of this process at a time his turn, where that is needed."""
        if self.address.is_pipelined:
            return contextlib.nullcontext()
        # By process: one that a thread of the parent had at the fork is never given back here.
        return self._turns.setdefault(os.getpid(), threading.RLock())

    def _current(self) -> KazooClient:
        if self._is_closed:
            raise StorageUnavailable(f"the session with {self._where()} is closed; open it again")
        if self._pid != (pid := os.getpid()) or is_over(self._client):
            # By process, as turns are.
            within(self._starts.setdefault(pid, threading.Lock()), self._start_here, pid)
        return self._client

    def _start_here(self, pid: int) -> None:
        """Begin a session once, in a child or where kazoo has given up.

        A second one would own what is made in it.
        """
        if self._pid != pid:
            # The threads that keep a session are the parent's; so is its socket.
            self._mutex = threading.Lock()
            self._client, self._failures = start_client(self.address)
            self._pid = pid
        elif is_over(self._client) and not self._is_closed:
            self._client, self._failures = begun_anew(self.address, self._client)
            if self._is_closed:  # meanwhile
                end(self._client)

    def _where(self) -> str:
        return f"ZooKeeper at {self.address.hosts}"
