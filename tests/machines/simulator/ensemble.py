"""An ensemble of ZooKeeper: znodes with versions, transactions, sessions that end by themselves.

Whatever is done is durable, and everybody sees one order of it.  A client shows life in the
background for as long as its process runs and nothing is between the two; one that stands still, or
is cut off, for longer than its timeout has lost its session, and all that ends with it, before it
knows.  It is told with the next call, which fails, and begins another session behind that.

A call takes time and may get lost on either way, as one to the store; one that got no answer may be
carried out later, as long as its session lasts.

    I8  nothing is answered by an oracle of ours that was asked since one of Omid's has the lease

Lacks watches, which may get lost anyway, and servers that lag behind the others: what the product
reads, it reads behind a sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from omidpy.errors import StorageUnavailable
from omidpy.fate.zookeeper.session import Change, Check, Create, Delete, Write
from omidpy.oracle.zookeeper import Znode, ZooKeeperAddress
from tests.machines.simulator.store import PATIENCE_S, SharedStore

if TYPE_CHECKING:
    from tests.machines.simulator.network import Weather
    from tests.machines.simulator.world import Process, World

T = TypeVar("T")

ENSEMBLE: Final = "zookeeper"
"""Its name in partitions."""
HOSTS: Final = "zookeeper:2181"
BEATS_PER_TIMEOUT: Final = 3


@dataclass(slots=True)
class _Node:
    data: bytes
    version: int = 0
    owner: int = 0
    """The session that it ends with; 0: none."""


@dataclass(slots=True)
class _Session:
    number: int
    process: Process
    timeout_s: float
    heard_s: float
    is_over: bool = False


class Ensemble:
    """What all processes share."""

    def __init__(self, world: World, weather: Weather, store: SharedStore) -> None:
        """Begin without a znode; calls go wrong as those to `store` do."""
        self.world = world
        self.weather = weather
        self.store = store
        self.nodes: dict[str, _Node] = {}
        self._numbers = count(1)

    def client(self, timeout_s: float) -> SimZooKeeper:
        """Return what the process that runs now speaks to it with."""
        return SimZooKeeper(self, self.world.program.process, timeout_s)

    def session(self, address: ZooKeeperAddress) -> SimZooKeeper:
        """Return the same, in place of a session of an address."""
        return self.client(address.timeout_s)

    # -- sessions ----------------------------------------------------------------------------------

    def begin(self, process: Process, timeout_s: float) -> _Session:
        """Begin a session, which lasts while its process shows life."""
        session = _Session(next(self._numbers), process, timeout_s, self.world.now_s)
        self._watch(session)
        return session

    def end(self, session: _Session) -> None:
        """End a session, and the znodes that end with it."""
        session.is_over = True
        for path in [path for path, one in self.nodes.items() if one.owner == session.number]:
            del self.nodes[path]

    def _watch(self, session: _Session) -> None:
        """Hear whether it is alive, now and then; end it when that was too long ago."""
        world, process = self.world, session.process
        if session.is_over:
            return
        is_running = not process.is_dead and process.paused_until_s <= world.now_s
        if is_running and not self.weather.held_up_s(process.name, ENSEMBLE):
            session.heard_s = world.now_s
        elif world.now_s - session.heard_s >= session.timeout_s:
            world.note(f"the session {session.number} of {process.name} ends")
            world.counts["sessions that ended"] += 1
            self.end(session)
            return
        world.at(session.timeout_s / BEATS_PER_TIMEOUT, None, lambda: self._watch(session))

    # -- what it is asked to do ----------------------------------------------------------------

    def read(self, path: str) -> Znode | None:
        """Return a znode."""
        node = self.nodes.get(path)
        return None if node is None else Znode(node.data, node.version)

    def children(self, path: str) -> list[str]:
        """Return the names right below a path."""
        below = (one.removeprefix(f"{path}/") for one in self.nodes if one.startswith(f"{path}/"))
        return sorted(name for name in below if "/" not in name)

    def make(self, path: str) -> None:
        """Create a znode and its parents."""
        for parent in _with_parents(path):
            self.nodes.setdefault(parent, _Node(b""))

    def create(self, path: str, data: bytes, owner: int = 0) -> bool:
        """Create a znode below one that is there; False: it is there already."""
        if path in self.nodes or not self._has_parent(path):
            return False
        self.nodes[path] = _Node(data, owner=owner)
        return True

    def change(self, changes: Sequence[Change]) -> bool:
        """Do all of it, or nothing."""
        before = {path: _Node(one.data, one.version, one.owner) for path, one in self.nodes.items()}
        if all(self._do(change) for change in changes):
            return True
        self.nodes = before
        return False

    def _do(self, change: Change) -> bool:
        if isinstance(change, Create):
            return self.create(change.path, change.data)
        node = self.nodes.get(change.path)
        if node is None or change.version not in (-1, node.version):
            return False
        match change:
            case Write():
                node.data, node.version = change.data, node.version + 1
            case Delete():
                if self.children(change.path):
                    return False
                del self.nodes[change.path]
            case Check():
                pass
        return True

    def _has_parent(self, path: str) -> bool:
        parent = path.rpartition("/")[0]
        return not parent or parent in self.nodes


class SimZooKeeper:
    """The ensemble as one process reaches it: all that the oracle asks, and that operations do."""

    def __init__(self, ensemble: Ensemble, process: Process, timeout_s: float) -> None:
        self.address = ZooKeeperAddress(HOSTS, timeout_s=timeout_s)
        self._ensemble = ensemble
        self._process = process
        self._session: _Session | None = ensemble.begin(process, timeout_s)

    @property
    def timeout_s(self) -> float:
        """After how long without a sign of life its session ends."""
        return self.address.timeout_s

    @property
    def limit_s(self) -> float:
        """How long the ensemble waits before it ends the session."""
        return self.timeout_s

    @property
    def session_id(self) -> int | None:
        """The session that it believes in."""
        return None if self._session is None else self._session.number

    def close(self) -> None:
        """End the session."""
        if self._session is not None and not self._process.is_dead:
            self._ensemble.end(self._session)

    # -- as the oracle asks --------------------------------------------------------------------

    def read_later(self, path: str) -> Callable[[], Znode | None]:
        """Read at once or when the answer is wanted: it may be either, in the product."""
        if self._process.dice("reads at once").random() < 0.5:
            return lambda: self.read(path)
        try:
            found = self.read(path)
        except StorageUnavailable as error:
            return _raising(error)
        return lambda: found

    def replace(self, path: str, data: bytes, *, version: int) -> int | None:
        """Write a znode that has a version still; return the next one."""
        if self.change([Write(path, data, version)]):
            return version + 1
        return None

    # -- as operations do ----------------------------------------------------------------------

    def sync(self) -> None:
        """Wait for what was written before."""
        self._ask("sync", lambda: None)

    def read(self, path: str) -> Znode | None:
        """Return a znode; None: there is none."""
        return self._ask(f"read {path}", lambda: self._ensemble.read(path))

    def read_each(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return znodes, each for itself."""
        return [self.read(path) for path in paths]

    def children(self, path: str, watch: Callable[[object], None] | None = None) -> list[str]:
        """Return the names below a znode."""
        del watch
        return self._ask(f"children {path}", lambda: self._ensemble.children(path))

    def change(self, changes: Sequence[Change]) -> bool:
        """Do all of it, or nothing; see `ZooKeeperSession.change`."""
        title = " ".join(f"{type(one).__name__} {one.path}" for one in changes)
        return self._ask(title, lambda: self._ensemble.change(changes), is_write=True)

    def make(self, path: str) -> None:
        """Create a znode and its parents."""
        self._ask(f"make {path}", lambda: self._ensemble.make(path), is_write=True)

    def create(self, path: str, data: bytes | None = None, *, is_ephemeral: bool = False) -> bool:
        """Create a znode; where nothing is said of its data with its parents, as oracles do."""
        if data is None:
            self.make(path)
            return True
        owner = self._current().number if is_ephemeral else 0
        return self._ask(
            f"create {path}", lambda: self._ensemble.create(path, data, owner), is_write=True
        )

    def owner_of(self, path: str) -> int | None:
        """Return the session that a znode ends with; None: it is not there."""

        def owner() -> int | None:
            node = self._ensemble.nodes.get(path)
            return None if node is None else node.owner

        return self._ask(f"owner of {path}", owner)

    # -- calls ---------------------------------------------------------------------------------

    def _current(self) -> _Session:
        if self._session is None:
            self._session = self._ensemble.begin(self._process, self.timeout_s)
        return self._session

    def _ask(self, name: str, work: Callable[[], T], *, is_write: bool = False) -> T:
        """Carry out a call as the weather permits, within a session."""
        ensemble, process = self._ensemble, self._process
        world, weather, store = ensemble.world, ensemble.weather, ensemble.store
        session, program, chances = self._current(), world.program, store.chances
        store.perhaps_stand_still(process, f"{ENSEMBLE} {name}", program)
        world.note(f"{process.name} {ENSEMBLE} {name}")
        world.counts["calls of zookeeper"] += 1
        if weather.held_up_s(process.name, ENSEMBLE):
            raise self._unanswered("a partition")
        if process.dice("lost calls of zookeeper").random() < chances.lost:
            raise self._unanswered("a call was lost")
        outcome: list[T] = []

        def arrive() -> None:
            if not session.is_over:
                outcome.append(work())

        late = process.dice("late calls of zookeeper")
        if is_write and late.random() < chances.late:
            world.counts["calls of zookeeper late"] += 1
            later_s = PATIENCE_S + late.uniform(0, session.timeout_s)
            world.at(later_s, None, arrive)
            raise self._unanswered("a call is late")
        ways = process.dice("ways to zookeeper")
        there_s = weather.delay_s(ways)
        world.at(there_s, None, arrive)
        program.sleep(there_s + weather.delay_s(ways))
        unheard = process.dice("lost answers of zookeeper")
        if weather.held_up_s(ENSEMBLE, process.name) or unheard.random() < chances.unheard:
            raise self._unanswered("an answer was lost")
        if not outcome:
            self._session = None
            raise StorageUnavailable(f"the session of {process.name} has ended")
        return outcome[0]

    def _unanswered(self, why: str) -> StorageUnavailable:
        self._ensemble.world.program.sleep(PATIENCE_S)
        return StorageUnavailable(f"{why}, for {self._process.name}")


class OmidsOracle:
    """One of Omid's, of which there is no more than its lease: it answers nobody.

    It takes the lease as Omid does, over a version that has stood still for a whole period, renews
    it for a while, and then is gone.
    """

    def __init__(self, ensemble: Ensemble, address: ZooKeeperAddress) -> None:
        self._ensemble = ensemble
        self._path = address.lease_path
        self._period_s = address.period_s
        self.has_lease = False
        self._since_s = 0.0

    @property
    def leads_since_s(self) -> float | None:
        """Since when it has the lease; None: it has not."""
        return self._since_s if self.has_lease else None

    def stand_by(self, until_s: float, kept_s: Callable[[], float]) -> None:
        """Look four times a period, until it is late; `kept_s` says how long it keeps the lease."""
        world = self._ensemble.world
        seen_version, seen_s, gone_s = -1, world.now_s, 0.0

        def look() -> None:
            nonlocal seen_version, seen_s, gone_s
            node = self._ensemble.nodes.get(self._path)
            if self.has_lease and (world.now_s >= gone_s or world.now_s >= until_s):
                self.has_lease = False
                world.note("the oracle of Omid's is gone")
            if world.now_s >= until_s:
                return
            if self.has_lease and node is not None:
                node.version += 1
            elif node is None or node.version != seen_version:
                seen_version, seen_s = -1 if node is None else node.version, world.now_s
            elif world.now_s - seen_s > self._period_s:
                node.data, node.version = b"omid:54758", node.version + 1
                self.has_lease, gone_s = True, world.now_s + kept_s()
                self._since_s = world.now_s
                world.counts["leases of Omid's"] += 1
                world.note("an oracle of Omid's has the lease")
            world.at(self._period_s / 4, None, look)

        look()


def _with_parents(path: str) -> Iterator[str]:
    parts = path.strip("/").split("/")
    for number in range(1, len(parts) + 1):
        yield "/" + "/".join(parts[:number])


def _raising(error: Exception) -> Callable[[], Any]:
    def raise_it() -> Any:
        raise error

    return raise_it
