"""Sessions with an ensemble in this process, for stores of operations.

It means what `omidpy.fate.zookeeper.session.ZooKeeperSession` means; the contract of stores asks
both.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from omidpy.errors import StorageUnavailable
from omidpy.fate.zookeeper.session import Change, Check, Create, Delete, Write
from omidpy.oracle.zookeeper import Znode, ZooKeeperAddress

_ids: Final = count(1)


@dataclass
class Node:
    """One znode."""

    data: bytes
    version: int = 0
    owner: int = 0
    """The session that it ends with; 0: it is not ephemeral."""


@dataclass
class Ensemble:
    """What all sessions with it share."""

    nodes: dict[str, Node] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)

    def end(self, session_id: int) -> None:
        """End a session, with what is ephemeral of it."""
        for path in [path for path, node in self.nodes.items() if node.owner == session_id]:
            del self.nodes[path]


ensembles: Final[dict[str, Ensemble]] = defaultdict(Ensemble)
"""By their hosts."""


class FakeSession:
    """A session with one of them."""

    def __init__(self, address: ZooKeeperAddress) -> None:
        self.address = address
        self.ensemble = ensembles[address.hosts]
        self.real_id = next(_ids)
        self.is_known = True
        """Whether it is known here which session goes on."""
        self.calls: Counter[str] = Counter()
        self.read_paths: list[str] = []

    @property
    def timeout_s(self) -> float:
        """See `ZooKeeperSession`."""
        return self.address.timeout_s

    @property
    def limit_s(self) -> float:
        """How long the ensemble waits before it ends the session."""
        return self.timeout_s

    @property
    def session_id(self) -> int | None:
        """See `ZooKeeperSession`."""
        return self.real_id if self.is_known else None

    def sync(self) -> None:
        """See `ZooKeeperSession`."""

    def read(self, path: str) -> Znode | None:
        """See `ZooKeeperSession`."""
        return self.read_each([path])[0]

    def read_each(self, paths: Sequence[str]) -> list[Znode | None]:
        """See `ZooKeeperSession`."""
        self.calls["read"] += len(paths)
        self.read_paths += paths
        with self.ensemble.mutex:
            nodes = [self.ensemble.nodes.get(path) for path in paths]
            return [None if node is None else Znode(node.data, node.version) for node in nodes]

    def children(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        """See `ZooKeeperSession`; it never calls `watch`."""
        del watch
        with self.ensemble.mutex:
            below = [one for one in self.ensemble.nodes if one.startswith(f"{path}/")]
        found = sorted({one.removeprefix(f"{path}/").partition("/")[0] for one in below})
        self.calls["child"] += len(found)
        return found

    def change(self, changes: Sequence[Change]) -> bool:
        """See `ZooKeeperSession`."""
        self.calls["change"] += 1
        with self.ensemble.mutex:
            nodes = {path: Node(**vars(node)) for path, node in self.ensemble.nodes.items()}
            for change in changes:
                node = nodes.get(change.path)
                if isinstance(change, Create):
                    if node is not None:
                        return False
                    if not self._has_parent(nodes, change.path):
                        return False
                    nodes[change.path] = Node(change.data)
                    continue
                if node is None or change.version not in (-1, node.version):
                    return False
                if isinstance(change, Write):
                    node.data = change.data
                    node.version += 1
                elif isinstance(change, Delete):
                    if any(one.startswith(f"{change.path}/") for one in nodes):
                        raise StorageUnavailable(f"{change.path} is not empty")
                    del nodes[change.path]
                else:
                    assert isinstance(change, Check)
            self.ensemble.nodes = nodes
        return True

    def make(self, path: str) -> None:
        """See `ZooKeeperSession`."""
        parts = path.strip("/").split("/")
        with self.ensemble.mutex:
            for number in range(1, len(parts) + 1):
                self.ensemble.nodes.setdefault("/" + "/".join(parts[:number]), Node(b""))

    def create(self, path: str, data: bytes, *, is_ephemeral: bool = False) -> bool:
        """See `ZooKeeperSession`."""
        with self.ensemble.mutex:
            if path in self.ensemble.nodes:
                return False
            if not self._has_parent(self.ensemble.nodes, path):
                raise StorageUnavailable(f"{path} has no parent")
            self.ensemble.nodes[path] = Node(data, owner=self.real_id if is_ephemeral else 0)
        return True

    def owner_of(self, path: str) -> int | None:
        """See `ZooKeeperSession`."""
        node = self.ensemble.nodes.get(path)
        return None if node is None else node.owner

    def close(self) -> None:
        """See `ZooKeeperSession`."""
        with self.ensemble.mutex:
            self.ensemble.end(self.real_id)

    @staticmethod
    def _has_parent(nodes: dict[str, Node], path: str) -> bool:
        return path.rpartition("/")[0] in nodes
