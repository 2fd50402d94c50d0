"""Stores to interrupt: in memory, in a file, and beside a `tso-server`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import omidpy
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore
from tests.machines.interrupts.sweep import DEADLINE_S, World
from tests.machines.memory_folder import memory_folder
from tests.machines.processes import tso_server

MEMORY: Final = World(lambda: omidpy.connect("memory:"))


@contextmanager
def a_file(*, deadline_s: float = DEADLINE_S) -> Iterator[World]:
    """Return a store in a file with the oracle in the process; another process writes it too."""
    with memory_folder() as path, _another_writer(path / "store.db") as write:
        url = f"sqlite:///{path}/store.db"
        yield World(lambda: omidpy.connect(url), write, deadline_s)


@contextmanager
def _another_writer(path: Path) -> Iterator[Callable[[], None]]:
    """Return what writes to the file as another process does, durably every other time."""
    store = SqliteStore(path, lock_timeout_s=5)
    store.create_table(TableSchema("plain", [FamilySchema(b"f")]))
    versions = itertools.count(1)

    def write() -> None:
        version = next(versions)
        put = Put(b"f", b"q", version, b"v")
        store.write({"plain": [RowMutation(b"r", puts=(put,))]}, durable=version % 2 == 0)

    yield write
    store.close()


@contextmanager
def a_server() -> Iterator[World]:
    """Return a store in a file with a `tso-server`."""
    with memory_folder() as path, beside_a_server(f"sqlite:///{path}/store.db") as world:
        yield world


@contextmanager
def beside_a_server(url: str, *, deadline_s: float = DEADLINE_S) -> Iterator[World]:
    """Return a store with a `tso-server`; another client commits to it too."""
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as other:
        other.create_table("others", families=["f"])
        numbers = itertools.count()

        def commit() -> None:
            with other.begin() as tx:
                tx.table("others").put(b"%d" % next(numbers), {b"f:q": b"v"})

        yield World(lambda: omidpy.connect(url, tso=server.address), commit, deadline_s)
