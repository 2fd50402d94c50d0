"""What the console asks: a store, its oracle and servers, folders of jobs; each opened when asked.

What could not be opened is tried again by whoever asks next.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omidpy.connect import connect
from omidpy.errors import UsageError
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.opening import open_store
from omidpy.reports.opened import as_set_up, missing_tables
from omidpy.reports.servers import Look, look_at
from omidpy.storage.base import Store

if TYPE_CHECKING:
    from omidpy.committers.objects.store import ObjectStore

LOOK_EVERY_S: Final = 5.0
LOOKS_KEPT: Final = 120
"""Looks at each server: those of ten minutes."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where everything is."""

    store: str
    tso: str = "store:"
    """Where the oracle is."""
    metrics: Sequence[str] = ()
    """Where each `tso-server` shows its metrics."""
    folders: Sequence[str] = ()
    """`s3://BUCKET/FOLDER` of jobs."""


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
        self._open_cells = open_cells or (lambda: open_store(addresses.store, must_exist=True))
        self._open_manager = open_manager or (lambda: connect(addresses.store, tso=addresses.tso))
        self._open_objects = open_objects or _open_objects
        self._cells_lock, self._manager_lock = threading.Lock(), threading.Lock()
        self._cells: Store | None = None
        self._manager: TransactionManager | None = None
        self._objects: ObjectStore | None = None
        self._looks: dict[str, deque[Look]] = {
            one: deque(maxlen=LOOKS_KEPT) for one in addresses.metrics
        }
        self._is_over = threading.Event()

    def cells(self) -> Store:
        """Return the store; tables that are missing read as empty."""
        with self._cells_lock:
            if self._cells is None:
                self._cells = self._open_cells()
            store = self._cells
        return as_set_up(store, missing_tables(store))

    def manager(self) -> TransactionManager:
        """Return a manager over the store and its oracle."""
        with self._manager_lock:
            if self._manager is None:
                self._manager = self._open_manager()
            return self._manager

    def fates(self) -> TableFateStore:
        """Return the operations of the store."""
        return TableFateStore(self.cells())

    def objects(self) -> ObjectStore:
        """Return the store of objects."""
        if self._objects is None:
            self._objects = self._open_objects()
        return self._objects

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
        for opened in (self._manager, self._cells):
            if opened is not None:
                with contextlib.suppress(Exception):  # it is gone, or will be
                    opened.close()


def _open_objects() -> ObjectStore:
    from omidpy.committers.objects.store import ObjectStore  # noqa: PLC0415 - of an extra

    return ObjectStore()
