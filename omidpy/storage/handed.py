"""A store as tasks in other processes open it: its address, and what proves who they are.

Whoever sends tasks makes a `HandedStore` of its own store, which travels with them, pickled; each
task lets its process `accept` it before it opens the address.  Where a store needs no proof, or
every process has its own, that does nothing.

What it carries may be secret, and is not shown.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from omidpy.errors import ConfigError
from omidpy.storage.base import Store

if TYPE_CHECKING:
    from omidpy.storage.hbase.native.security.tokens import Token


class Closes(Protocol):
    """Whatever has opened a store."""

    def close(self) -> None:
        """Let go of it."""
        ...


C = TypeVar("C", bound=Closes)


@runtime_checkable
class HandsOn(Protocol):
    """A store whose users prove who they are by something that other processes lack."""

    def token_to_hand_on(self) -> Token | None:
        """Return what proves it elsewhere, for as long as possible; None: nothing is needed.

        Raises:
            StorageUnavailable: it could not be fetched.
            ConfigError: the store gives none out.

        Cost: 1 RPC, unless the last one is good for long.
        """
        ...


@dataclass(frozen=True, slots=True)
class HandedStore:
    """An address, and what opens it."""

    url: str
    token: Token | None = field(default=None, repr=False)
    store_id: str = ""
    """Of the store that it is; empty: nobody looks."""

    def of(self, store: Store) -> HandedStore:
        """Return it as that of a store: a task that comes to another one by its address is refused.

        Cost: 1 get, once for each store that is open.
        """
        return replace(self, store_id=store.store_id)

    def check(self, store: Store) -> None:
        """Refuse another store, which has the address where a task runs.

        Raises:
            ConfigError: it is one.

        Cost: 1 get.
        """
        if self.store_id and store.store_id != self.store_id:
            raise ConfigError(
                f"{self.url} is the store {store.store_id} on {socket.gethostname()}, and "
                f"{self.store_id} where the job was planned; give an address that is the same "
                "store everywhere"
            )

    def opened(
        self, open_one: Callable[[str], C], store_of: Callable[[C], Store] = attrgetter("store")
    ) -> C:
        """Return what opens the address, once it was looked which store that is.

        Args:
            open_one: Opens an address.
            store_of: Returns the store that was opened; by default that of a manager.

        Raises:
            ConfigError: as `check`.
        """
        made = open_one(self.accept())
        try:
            self.check(store_of(made))
        except BaseException:
            made.close()
            raise
        return made

    def accept(self) -> str:
        """Let this process use it; return the address, to be opened."""
        if self.token is not None:
            from omidpy.storage.hbase.native.security.tokens import hold  # noqa: PLC0415 - only where used

            hold(self.url, self.token)
        return self.url


def handed(store: Store, url: str | None = None) -> HandedStore:
    """Return a store as other processes open it.

    Args:
        store: The store, opened here.
        url: How they address it; None: as this process does.

    Raises:
        OmidError: as `HandsOn.token_to_hand_on`.
    """
    token = store.token_to_hand_on() if isinstance(store, HandsOn) else None
    return HandedStore(store.url if url is None else url, token)
