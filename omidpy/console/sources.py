"""What the console asks: a store, its oracle and servers, folders of jobs; each opened when asked.

What could not be opened is tried again by whoever asks next.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from omidpy.connect import connect
from omidpy.errors import UsageError
from omidpy.manager import TransactionManager
from omidpy.opening import open_store
from omidpy.reports.opened import as_set_up, missing_tables
from omidpy.reports.servers import Look, look_at
from omidpy.storage.base import Store

if TYPE_CHECKING:
    from compactor.pruning.unvisited import Surveyed
    from omidpy.committers.objects.store import ObjectStore

T = TypeVar("T")

LOOK_EVERY_S: Final = 5.0
LOOKS_KEPT: Final = 120
"""Looks at each server: those of ten minutes."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where the console looks: the store, the oracle and the rest."""

    store: str
    tso: str = "store:"
    """Where the oracle is."""
    metrics: Sequence[str] = ()
    """Where each `tso-server` shows its metrics."""
    folders: Sequence[str] = ()
    """`s3://BUCKET/FOLDER` of jobs."""


class Opened(Generic[T]):
    """What the first who asks opens, and all others use; what failed is tried again."""

    def __init__(self, open_it: Callable[[], T]) -> None:
        self._open = open_it
        self._lock = threading.Lock()
        self.found: T | None = None

    def __call__(self) -> T:
        """Return it; others wait while it is opened."""
        with self._lock:
            if self.found is None:
                self.found = self._open()
            return self.found


class Sources:
    """What pages are made of."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        open_cells: Callable[[], Store] | None = None,
        open_manager: Callable[[], TransactionManager] | None = None,
        open_objects: Callable[[], ObjectStore] | None = None,
    ) -> None:
        """Open nothing yet.

        Args:
            addresses: Where everything is.
            open_cells: Opens the store; None: by its address, and it must exist.
            open_manager: Opens the store with its oracle; None: by their addresses.
            open_objects: Opens the store of objects; None: as boto3 finds it.
        """
        self.addresses = addresses
        self._cells = Opened(open_cells or (lambda: open_store(addresses.store, must_exist=True)))
        self.manager = Opened(open_manager or (lambda: connect(addresses.store, tso=addresses.tso)))
        """Returns a manager over the store and its oracle."""
        self.objects = Opened(open_objects or _open_objects)
        """Returns the store of objects."""
        self._looks: dict[str, deque[Look]] = {
            one: deque(maxlen=LOOKS_KEPT) for one in addresses.metrics
        }
        self._is_over = threading.Event()

    def cells(self) -> Store:
        """Return the store as it is now; tables that are missing read as empty.

        Raises:
            ConfigError: a newer omidpy has changed its form.

        Cost: its tables are listed, and 1 get.
        """
        store = self._cells()
        return as_set_up(store, missing_tables(store))

    def folder_of(self, address: str) -> str:
        """Return the folder of ours that a job is in.

        Raises:
            UsageError: it is in none: nobody names others to us than who has started us.
        """
        for folder in self.addresses.folders:
            if address.startswith(folder.rstrip("/") + "/"):
                return folder
        raise UsageError(f"{address!r} is in no folder that the console was started with")

    def looks(self, address: str) -> list[Look]:
        """Return the looks at a server, oldest first; there is one at least."""
        if not self._looks[address]:
            self.look(address)
        return list(self._looks[address])

    def look(self, address: str) -> None:
        """Look at a server now."""
        self._looks[address].append(look_at(address))

    def watch(self) -> None:
        """Look at every server now and then, in threads of their own, until `close`."""
        for address in self.addresses.metrics:
            threading.Thread(
                target=self._watch, args=(address,), name=f"console {address}", daemon=True
            ).start()

    def _watch(self, address: str) -> None:
        while not self._is_over.is_set():
            self.look(address)
            self._is_over.wait(LOOK_EVERY_S)

    def close(self) -> None:
        """Close what was opened."""
        self._is_over.set()
        for opened in (self.manager.found, self._cells.found):
            if opened is not None:
                with contextlib.suppress(Exception):  # it is gone, or will be
                    opened.close()


class Visit:
    """What one page is made of: its parts look at the store's tables and format once, together."""

    def __init__(self, sources: Sources, query: Mapping[str, str]) -> None:
        """Ask for nothing yet.

        Args:
            sources: What is shown.
            query: What stands behind the page's address.
        """
        self.sources = sources
        self.addresses = sources.addresses
        self.query = query
        self.cells = Opened(sources.cells)
        """Returns the store as the first part that asked has found it."""
        self.surveyed = Opened(lambda: _surveyed(self.cells()))
        """Returns whose its tables are, and what holds the horizon back."""


def _surveyed(store: Store) -> Surveyed:
    from compactor.pruning.unvisited import Surveyed  # noqa: PLC0415 - application

    return Surveyed.of(store)


def _open_objects() -> ObjectStore:
    from omidpy.committers.objects.store import ObjectStore  # noqa: PLC0415 - of an extra

    return ObjectStore()
