"""An ensemble in this process: znodes with versions, and answers that get lost.

It means what the real one means; `tests/contract/test_zookeeper.py` asks both the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omidpy.errors import StorageUnavailable
from omidpy.oracle.zookeeper import Znode


@dataclass
class FakeEnsemble:
    """What all sessions share."""

    nodes: dict[str, Znode] = field(default_factory=dict)

    def write(self, path: str, data: bytes) -> None:
        """Write as somebody else does, whatever the version."""
        old = self.nodes.get(path)
        self.nodes[path] = Znode(data, 0 if old is None else old.version + 1)


class FakeZooKeeper:
    """A session with it."""

    def __init__(self, ensemble: FakeEnsemble) -> None:
        """Connect."""
        self.ensemble = ensemble
        self.calls: list[str] = []
        self.is_cut = False
        """Whether nothing arrives."""
        self.loses_answers = False
        """Whether writes arrive and their answers do not."""
        self.is_closed = False

    def read(self, path: str) -> Znode | None:
        """Return a znode."""
        return self.read_later(path)()

    def read_later(self, path: str) -> Callable[[], Znode | None]:
        """Promise a znode; what the ensemble holds when the answer is waited for."""
        self._call(f"read {path}")
        return lambda: self.ensemble.nodes.get(path)

    def create(self, path: str) -> None:
        """Create it and its parents."""
        self._call(f"create {path}")
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            self.ensemble.nodes.setdefault("/" + "/".join(parts[:count]), Znode(b"", 0))

    def replace(self, path: str, data: bytes, *, version: int) -> int | None:
        """Write it if it has that version."""
        self._call(f"replace {path}")
        node = self.ensemble.nodes.get(path)
        if node is None or node.version != version:
            return None
        self.ensemble.nodes[path] = Znode(data, version + 1)
        if self.loses_answers:
            raise StorageUnavailable("the answer was lost")
        return version + 1

    def close(self) -> None:
        """Note that the session ended."""
        self.is_closed = True

    def _call(self, call: str) -> None:
        self.calls.append(call)
        if self.is_cut or self.is_closed:
            raise StorageUnavailable("ZooKeeper does not answer")
