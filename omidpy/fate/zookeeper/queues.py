"""Queues for locks in ZooKeeper: a znode each, which goes with the last one in it.

    locks            its version counts the queues that went
    locks/<table>    JSON; see `locks.py`

The versions of a znode that is made anew begin anew, and a request that got no answer may be done
long after.  So every change checks that no queue went since its own was read; who is refused for
another table's sake reads once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote

from omidpy.fate.zookeeper.session import Change, Check, Create, Delete, Write, ZooKeeperSession


class _Seen(NamedTuple):
    """A queue as it was seen."""

    data: bytes | None
    """None: it is not there."""
    version: int
    gone: int
    """The version of `locks` then."""


class ZooKeeperQueues:
    """The queues below one path.  Safe to share among threads."""

    def __init__(self, session: ZooKeeperSession, path: str) -> None:
        self._session = session
        self._path = path
        # What was seen last.  Threads share it without a lock: each use is one step of a dict.
        self._seen: dict[str, _Seen] = {}

    def read(self, table: str) -> bytes | None:
        """Return a table's queue; None if there is none."""
        self._session.sync()
        # In this order: what goes in between makes the version old with which it is changed.
        gone, found = self._session.read_each([self._path, self._node(table)])
        if gone is None:
            self._seen.pop(table, None)
            return None
        data, version = (None, -1) if found is None else (found.data, found.version)
        self._seen[table] = _Seen(data, version, gone.version)
        return data

    def swap(self, table: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace a table's queue if it still is `old`; None: absent.  Cost: 1 transaction."""
        seen = self._seen.get(table)
        if seen is None or seen.data != old:
            self.read(table)
            seen = self._seen.get(table)
            if seen is None or seen.data != old:
                return False
        path, is_same = self._node(table), Check(self._path, seen.gone)
        changes: list[Change]
        if new is None:
            changes = [Delete(path, seen.version), Write(self._path, b"", seen.gone)]
        elif old is None:
            changes = [is_same, Create(path, new)]
        else:
            changes = [is_same, Write(path, new, seen.version)]
        is_done = self._session.change(changes)
        if new is None or not is_done:  # there may be a new name with each operation
            self._seen.pop(table, None)
        return is_done

    def all(self) -> Iterator[tuple[str, bytes]]:
        """Yield every queue by its table."""
        names = self._session.children(self._path)
        nodes = self._session.read_each([f"{self._path}/{name}" for name in names])
        for name, found in zip(names, nodes, strict=True):
            if found is not None:
                yield unquote(name), found.data

    def _node(self, table: str) -> str:
        return f"{self._path}/{quote(table, safe='')}"
