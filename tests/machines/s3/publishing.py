"""Publishers that die: at any request to the object store, and at any call of the store of cells.

    world = World(s3, bucket)
    with pytest.raises(Died):
        world.publish(Mortal(at=17))
    world.seen()        # what a new process sees, cells and files

A call has two moments, before it is carried out and behind it; both are counted, in one row with
the requests.  What is dead calls nobody any more.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any, Final

import pyarrow as pa
import pytest

from omidpy.committers import choice, sweeping, transactional
from omidpy.committers.choice import object_store
from omidpy.committers.places import Folder
from omidpy.committers.sweeping import Swept
from omidpy.connect import make_publisher
from omidpy.manager import TransactionManager
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.s3.crashing import Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

TABLE: Final = "orders"
ROW: Final = b"first"

_folders = itertools.count()


class Mortal:
    """Dies at moment number `at`, from 0; None lives, and counts."""

    def __init__(self, at: int | None = None) -> None:
        """Live."""
        self.at = at
        self.moments = 0
        self.is_dead = False
        self._lock = threading.Lock()

    def reach(self, *_: object, **__: object) -> None:
        """Come to a moment."""
        with self._lock:
            self.is_dead = self.is_dead or self.moments == self.at
            if self.is_dead:
                raise Died
            self.moments += 1


class World:
    """A store, its oracle, and a destination; processes come and go."""

    def __init__(self, s3: S3Server, bucket: Bucket) -> None:
        """Make a table, and a destination that nobody has used."""
        self.endpoint = s3.endpoint
        self.bucket = bucket
        self.folder = Folder(bucket.name, f"lake{next(_folders)}/")
        self.store = MemoryStore()
        self.oracle = NaiveOracle(self.store)
        self.tm = self.manager()
        self.tm.create_table(TABLE, ["cf"])

    @property
    def address(self) -> str:
        """The destination."""
        return self.folder.url

    def manager(self, store: Store | None = None) -> TransactionManager:
        """Be a new process."""
        return TransactionManager(
            store or self.store, self.oracle, post_commit="sync", make_publisher=make_publisher
        )

    def publish(self, mortal: Mortal, value: bytes = b"1", **options: Any) -> None:
        """Write a cell and publish two files with it, one of them by an upload, until death."""
        patch = pytest.MonkeyPatch()
        made = choice.committer

        def watched(*arguments: Any, **given: Any) -> Any:
            one: Any = made(*arguments, **given)
            one.store.before_request = mortal.reach
            one.store.client.meta.events.register("after-call.s3", mortal.reach)
            return one

        patch.setattr(transactional, "committer", watched)
        try:
            with self.manager(FaultyStore(self.store, mortal.reach)).begin() as tx:
                tx.table(TABLE).put(ROW, {b"cf:value": value})
                tx.publish(
                    [pa.table({"v": [int(value)]}), pa.table({"v": [int(value)] * 100_000})],
                    self.address,
                    endpoint_url=self.endpoint,
                    inline_bytes=1000,
                    threads=1,
                    **options,
                )
        finally:
            patch.undo()

    def seen(self, at: int | None = None) -> tuple[bytes | None, list[int]]:
        """Return the cell, and how many rows each file has, for a new snapshot or an older one."""
        tx = self.manager().snapshot(at=at)
        found = tx.published(self.address, endpoint_url=self.endpoint)
        for one in found.files:
            found.read(one)  # which compares its length
        value = tx.table(TABLE).row(ROW).get(b"cf:value")
        return value, sorted(one.rows or 0 for one in found.files)

    def sweep(self) -> Swept:
        """Remove what nobody will see."""
        store = object_store(self.address, {"endpoint_url": self.endpoint})
        return sweeping.sweep(self.manager(), store, self.folder)

    def left(self) -> list[str]:
        """Return the keys of all data and manifests of publications, and of all uploads."""
        place = f"{self.folder.prefix}_omidpy/"
        uploads = [key for key in self.bucket.uploads() if key.startswith(place)]
        return self.bucket.keys(place) + uploads
