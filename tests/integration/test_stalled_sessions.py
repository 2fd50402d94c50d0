"""Executors in ZooKeeper that are stopped before any change until their session has ended.

Changes of tables as in `tests/simulation/test_stalls.py`, but their operations are in a real
ensemble.  A session is ended by a second client that takes it over and closes it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from omidpy.fate.store import FateStore
from omidpy.fate.zookeeper.store import ZooKeeperFateStore
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from tests.machines.hbase import HBase
from tests.machines.stalls.lives import Life, moments_of
from tests.machines.stalls.tables import BEGINNINGS, Beginning, Scene

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

CHANGES = ("change", "create", "make")
WITH_OPERATIONS = [
    one
    for one in BEGINNINGS
    if one.verb in ("create", "drop", "truncate", "run", "sweep")
    and all(verb != "compact" for verb, _ in one.earlier)
]
OTHERS = (("run", "put"), ("drop", "create", "put"), ("truncate", "put", "sweep"))


class Ensemble:
    """Stores of operations at one path, a session for each actor that may be stopped."""

    def __init__(self, hosts: str) -> None:
        """Begin with nothing."""
        self._hosts = hosts
        self.counted: Life | None = None
        """One that is let be, and whose changes are counted."""
        self._opened: list[ZooKeeperFateStore] = []
        self._by_life: dict[int, ZooKeeperFateStore] = {}
        self._watcher: ZooKeeperFateStore | None = None
        self.begin_anew()

    def begin_anew(self) -> None:
        """Use a path that nobody has used."""
        self.close()
        self._path = f"/omidpy-test/{uuid.uuid4().hex}/fate"

    def fates(self, store: Store, life: Life) -> FateStore:
        """Return the operations as an actor has them; those who are let be share a session."""
        del store
        if life.moment is None and life is not self.counted:
            if self._watcher is None:
                self._watcher = self._open()
            return self._watcher
        if id(life) not in self._by_life:
            made = self._by_life[id(life)] = self._open()
            for name in CHANGES:
                setattr(made._session, name, _lived(getattr(made._session, name), life))
        return self._by_life[id(life)]

    def expire(self, life: Life) -> None:
        """End the session of an actor."""
        from kazoo.client import KazooClient

        if (found := self._by_life.get(id(life))) is not None:
            client_id = found._session._client.client_id
            twin = KazooClient(hosts=self._hosts, client_id=client_id)
            twin.start()
            twin.stop()
            twin.close()

    def close(self) -> None:
        """End every session."""
        for one in self._opened:
            one.close()
        self._opened, self._by_life, self._watcher = [], {}, None

    def _open(self) -> ZooKeeperFateStore:
        self._opened.append(ZooKeeperFateStore(self._hosts, self._path))
        return self._opened[-1]


def _lived(work: Callable[..., Any], life: Life) -> Callable[..., Any]:
    def call(*args: Any, **more: Any) -> Any:
        return life.change(partial(work, *args, **more))

    return call


@pytest.fixture
def ensemble(hbase: HBase) -> Iterator[Ensemble]:
    """Use the ensemble of HBase."""
    found = Ensemble(hbase.zookeeper)
    yield found
    found.close()


@pytest.mark.parametrize("beginning", WITH_OPERATIONS, ids=str)
def test_whoever_loses_his_session_loses_nothing_and_brings_nothing_back(
    beginning: Beginning, ensemble: Ensemble
) -> None:
    """Stopped before each change, of the store and of ZooKeeper, and dead before and after it."""

    def scene() -> Scene:
        ensemble.begin_anew()
        return Scene.after(beginning, MemoryStore, ensemble.fates, ensemble.expire)

    spared = scene()
    life = ensemble.counted = Life()
    spared.play_life(beginning.verb, life, ())
    spared.judge()
    moments = moments_of(life, is_every=False)
    assert any("zookeeper" in place.path for made in life.made for place in made)
    for number, moment in enumerate(moments):
        others = OTHERS[number % len(OTHERS)]
        played = scene()
        try:
            played.play(beginning.verb, moment, others)
            played.judge()
        except AssertionError as error:
            raise AssertionError(f"{beginning}: {moment}, then {others}\n{error}") from error
