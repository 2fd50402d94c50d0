"""Operations in ZooKeeper, where Accumulo keeps its own: below `/omid/fate` by default.

    tx_<16 hex>                    JSON: status, reservation and all that is not a step
    tx_<16 hex>/debug              JSON: what kind of operation it is, for people
    tx_<16 hex>/repo_0000000000    JSON: a step; the highest number is the top
    keys/<sha256>                  the operation that was last submitted under a key
    done/tx_<16 hex>               JSON: an operation that is finished; the search does not read it
    workers/<id>                   ephemeral: a worker lives as long as its session
    locks/<table>                  JSON: who holds and wants locks on it (`queues.py`)

Each change is one transaction that writes the operation's znode over the version that was seen,
and its steps with it; so the version of that znode is the guard (F1), and one more than it ours.

A key's znode goes in the transaction that removes its operation, and moves to another operation in
one that writes the znode of the old one too.  So an executor that has seen an old owner finds
another version there, however often the key was made anew; and one that has seen a key, and its
operation gone, looks at the key again.

An operation that ends moves in that transaction.

A worker's lease is the session's timeout: `timeout_s` of the store, or what the ensemble made of
it, and not `lease_s`.

Lacks a bound but ZooKeeper's own: a request of more than 1 MiB (`jute.maxbuffer`) is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec
from msgspec.structs import replace

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.base.timing.clock import Clock
from omidpy.errors import ConfigError, CorruptCell, FateError, StorageUnavailable
from omidpy.fate.operation import (
    FateId,
    Operation,
    Status,
    Unreadable,
    seeded,
)
from omidpy.fate.store import FORMAT, FateStore, inserting, is_live
from omidpy.fate.zookeeper.members import EphemeralJudge, EphemeralMember
from omidpy.fate.zookeeper.queues import ZooKeeperQueues
from omidpy.fate.zookeeper.records import (
    Debug,
    Format,
    Record,
    decode,
    encode,
    operation_of,
)
from omidpy.fate.zookeeper.session import Change, Check, Create, Delete, Write, ZooKeeperSession
from omidpy.life.base import Judge
from omidpy.oracle.zookeeper import SCHEME, Znode, parse_zookeeper

DEFAULT_PATH: Final = "/omid/fate"
OPERATION_PREFIX: Final = "tx_"
MAX_STEP_BYTES: Final = 512 * 1024
"""Half of what ZooKeeper takes in one request, by default."""

MAX_ATTEMPTS: Final = 100
"""How often a submission under a key that changes all the time is tried."""


class ZooKeeperFateStore(FateStore):
    """Keeps operations in an ensemble."""

    max_step_bytes = MAX_STEP_BYTES

    def __init__(
        self, hosts: str, path: str = DEFAULT_PATH, *, timeout_s: float | None = None
    ) -> None:
        """Connect.

        Args:
            hosts: `zk1:2181,zk2:2181`, or an address `zk://zk1:2181,zk2:2181/?tls=true` with the
                options of `tso-server --lease`.
            path: The znode below which everything is; made when it is needed.
            timeout_s: The session's timeout, after which a dead executor's operations are others'.

        Raises:
            ConfigError: an address or the path does not fit, kazoo is not installed, or a newer
                omidpy has written there.
            StorageUnavailable: no server answers.
        """
        super().__init__()
        address = parse_zookeeper(hosts if hosts.startswith(SCHEME) else SCHEME + hosts)
        if not path.startswith("/") or path.endswith("/") or "//" in path:
            raise ConfigError(f"path={path!r} is no znode; write for instance {DEFAULT_PATH}")
        if timeout_s is not None:
            address = address.with_timeout(timeout_s)
        self._path = path
        self._session = ZooKeeperSession(address)
        # What was seen last.  Threads share it without a lock: each use is one step of a dict.
        self._cache: dict[FateId, Operation] = {}
        self._queues = ZooKeeperQueues(self._session, f"{path}/locks")
        self._callbacks: list[Callable[[], None]] = []
        self._root: Znode | None = None
        self._exists = False
        try:
            self._exists = self._check_format()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """The ensemble and the path."""
        return f"{SCHEME}{self._session.address.hosts}{self._path}"

    # -- operations ----------------------------------------------------------------------------

    def insert(self, operation: Operation) -> bool:
        """Write a new record; see `FateStore`.  Cost: 1 transaction."""
        return self._change(self._insertion(operation))

    def swap(self, old: Operation, new: Operation) -> bool:
        """Write what differs; see `FateStore`.  Cost: 1 transaction."""
        if old.is_finished and (done := self._session.read(self._done(old.id))) is not None:
            change = self._rewriting(old, new, done)
            return change is not None and self._session.change([change])
        if new.is_finished and not new.stack and not old.is_finished:
            return self._move(old, new)
        node = self._node(old.id)
        changes: list[Change] = [Write(node, encode(new), _znode_version(old))]
        for position, raw in enumerate(new.stack):
            if position >= len(old.stack):
                changes.append(Create(_step_path(node, position), raw))
            elif old.stack[position] != raw:
                changes.append(Write(_step_path(node, position), raw))
        changes += [
            Delete(_step_path(node, position)) for position in range(len(new.stack), len(old.stack))
        ]
        return self._session.change(changes)

    def remove(self, operation: Operation) -> bool:
        """Remove the record and its key's znode; see `FateStore`."""
        changes = self._removal(operation)
        if operation.is_finished:
            path = self._done(operation.id)
            if (done := self._session.read(path)) is not None:
                if self._done_version(operation.id, done) != operation.version:
                    return False
                changes = [Delete(path, done.version)]
        if operation.key is not None:
            path = self._key_path(operation.key)
            found = self._session.read(path)
            if found is not None and _owner_id(found) == operation.id:
                changes.append(Delete(path, found.version))
        if not self._session.change(changes):
            return False
        self._cache.pop(operation.id, None)
        return True

    def remove_unreadable(self, operation_id: FateId) -> bool:
        """Remove a record that cannot be read, and its key's znode; see `FateStore`."""
        try:
            if self.read(operation_id) is not None:
                return False
        except CorruptCell:
            pass
        paths = [self._node(operation_id), self._done(operation_id)]
        found = self._session.read_each(paths)
        changes: list[Change] = []
        for path, node in zip(paths, found, strict=True):
            if node is not None:
                below = self._session.children(path)
                changes += [Delete(f"{path}/{name}") for name in below]
                changes.append(Delete(path, node.version))
        if not changes:
            return False
        keys = [
            f"{self._path}/keys/{name}" for name in self._session.children(f"{self._path}/keys")
        ]
        for key, node in zip(keys, self._session.read_each(keys), strict=True):
            if node is not None and _owner_id(node) == operation_id:
                changes.append(Delete(key, node.version))
        return self._session.change(changes)

    def read(self, operation_id: FateId) -> Operation | None:
        """Return an operation; see `FateStore`.  Cost: 3 round trips; 2 if it is finished."""
        self._session.sync()
        found = self._read_each([operation_id])[operation_id]
        assert not isinstance(found, Unreadable), "what cannot be read has raised"
        if found is not None:
            return found
        # Behind the look at the first place: it goes there in the transaction that writes here.
        done = self._session.read(self._done(operation_id))
        return None if done is None else self._finished(operation_id, done)

    def scan_finished(self) -> Iterator[Operation | Unreadable]:
        """Yield what is finished; see `FateStore`.  Cost: 1 request for each."""
        names = self._session.children(f"{self._path}/done")
        nodes = self._session.read_each([f"{self._path}/done/{name}" for name in names])
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                one = FateId(name.removeprefix(OPERATION_PREFIX))
                try:
                    yield self._finished(one, node)
                except CorruptCell as error:
                    yield Unreadable(one, str(error))

    def archive(self, operation: Operation) -> bool:
        """Move what is finished; see `FateStore`."""
        return self._move(operation, operation)

    def _move(self, old: Operation, new: Operation) -> bool:
        """Write `new` where what is finished is, and remove `old` where it was: 1 transaction."""
        self._make_path()
        there = Create(self._done(new.id), encode(new, base=new.version - 1))
        return self._session.change([*self._removal(old), there])

    def _finished(self, operation_id: FateId, done: Znode) -> Operation:
        record = decode(done.data, where=self._done(operation_id))
        return operation_of(operation_id, record, done.version, [])

    def _done_version(self, operation_id: FateId, done: Znode) -> int:
        return self._finished(operation_id, done).version

    def _rewriting(self, old: Operation, new: Operation, done: Znode) -> Write | None:
        """Return what makes `new` of a moved operation; None: it is `old` no more."""
        if self._done_version(old.id, done) != old.version:
            return None
        base = old.version - 1 - done.version
        return Write(self._done(old.id), encode(new, base=base), done.version)

    def scan_live(self, *, but: Collection[FateId] = ()) -> Iterator[Operation | Unreadable]:
        """Yield what is not finished; see `FateStore`.

        Cost: 1 request for each, and for each that has changed since the last scan 1 for each step.
        """
        watch = self._tell if self._callbacks else None
        names = self._session.children(self._path, watch=watch)
        ids = {
            FateId(name.removeprefix(OPERATION_PREFIX))
            for name in names
            if name.startswith(OPERATION_PREFIX)
        }
        found = self._read_each([one for one in ids if one not in but], is_tolerant=True)
        cache = dict(self._cache)  # one step: others remove from it
        kept = {one: known for one, known in cache.items() if one in ids and one in but}
        read = {one: known for one, known in found.items() if isinstance(known, Operation)}
        self._cache = kept | read
        yield from (operation for operation in found.values() if operation is not None)

    # -- keys ----------------------------------------------------------------------------------

    def submit(self, operation: Operation) -> Operation:
        """Keep an operation and let it be run, with a key too in one transaction."""
        if operation.key is None:
            return super().submit(operation)
        made = self.create(seeded(operation))
        return self.seed(made.id) if made.status is Status.NEW else made

    def claim_key(self, operation: Operation) -> Operation:
        """Insert a record under its key; see `FateStore`.  Cost: 1 transaction and some reads."""
        assert operation.key is not None, "only what has a key claims one"
        path = self._key_path(operation.key)
        failures, patience = 0, inserting()
        for _ in range(MAX_ATTEMPTS):
            try:
                found = self._session.read(path)
                owner = None if found is None else self.read(_owner_id(found))
                if owner is not None and (owner.id == operation.id or is_live(owner)):
                    return owner
                if owner is None and found is not None and self._session.read(path) != found:
                    # It went with the key.  Another may have made that anew since, and the version
                    # would be as it was seen: only a key that outlives what it names is anybody's.
                    continue
                # The record and its key in one: its key names each operation that is live (F5).
                changes = self._insertion(operation)
                if found is None:
                    changes.append(Create(path, operation.id.encode()))
                else:
                    changes.append(Write(path, operation.id.encode(), found.version))
                if owner is not None:
                    # So that no other executor that has seen it as we did takes the key from it
                    # once more.
                    changes.append(self._touch(owner))
                if self._change(changes):
                    return operation
            except StorageUnavailable:
                failures += 1
                if not patience(failures):
                    raise
        raise FateError(
            f"operation {operation.id} could not be entered under its key {operation.key}, because "
            f"{path} changes all the time; submit it again"
        )

    def _touch(self, owner: Operation) -> Change:
        """Return what changes an operation's version, if it is still as it was read."""
        touched = replace(owner, write_id=uuid.uuid4().hex)
        if owner.is_finished and (done := self._session.read(self._done(owner.id))) is not None:
            change = self._rewriting(owner, touched, done)
            return change or Check(self._done(owner.id), -2)  # which no znode has
        return Write(self._node(owner.id), encode(touched), _znode_version(owner))

    # -- locks ---------------------------------------------------------------------------------

    def read_lock_queue(self, table: str) -> bytes | None:
        """Return a table's queue; see `FateStore`."""
        return self._queues.read(table)

    def swap_lock_queue(self, table: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace a table's queue; see `FateStore`.  Cost: 1 transaction."""
        self._make_path()
        is_done = self._queues.swap(table, old, new)
        if not is_done:
            self._notice_removal()
        return is_done

    def lock_queues(self) -> Iterator[tuple[str, bytes]]:
        """Yield every queue; see `FateStore`."""
        return self._queues.all()

    # -- workers -------------------------------------------------------------------------------

    def new_worker(self, *, lease_s: float, clock: Clock) -> EphemeralMember:
        """Register a worker; see `FateStore`.  Its lease is the session's timeout."""
        del lease_s
        self._notice_removal()
        self._make_path()
        return EphemeralMember(self._session, f"{self._path}/workers", clock)

    def new_judge(self, clock: Clock) -> EphemeralJudge:
        """Return a judge; see `FateStore`."""
        del clock
        return EphemeralJudge(self._session, f"{self._path}/workers")

    def worker_names(self) -> dict[str, str]:
        """Say where each worker runs; see `FateStore`."""
        names = self._session.children(f"{self._path}/workers")
        nodes = self._session.read_each([f"{self._path}/workers/{name}" for name in names])
        return {
            name: found.data.decode(errors="replace")
            for name, found in zip(names, nodes, strict=True)
            if found is not None
        }

    def sweep(self, judge: Judge) -> None:
        """Do nothing: keys go with their operations, and workers with their sessions."""

    def on_news(self, callback: Callable[[], None]) -> None:
        """Call `callback` when an operation comes or goes; see `FateStore`."""
        self._callbacks.append(callback)

    def off_news(self, callback: Callable[[], None]) -> None:
        """Call `callback` no more; see `FateStore`."""
        with contextlib.suppress(ValueError):  # it was not, or no more
            self._callbacks.remove(callback)

    def close(self) -> None:
        """End the session, and with it its ephemeral znodes."""
        self._session.close()

    # -- znodes --------------------------------------------------------------------------------

    def _check_format(self) -> bool:
        found = self._root = self._session.read(self._path)
        if found is None or not found.data:
            return False
        try:
            version = msgspec.json.decode(found.data, type=prepared(Format)).format
        except UNREADABLE as error:
            raise ConfigError(
                f"{self.url} holds {found.data[:80]!r}, which is no store of operations; name "
                f"another path, or write {msgspec.json.encode(Format(FORMAT)).decode()} there if "
                "it was one"
            ) from error
        if version > FORMAT:
            raise ConfigError(
                f"{self.url} has format {version}, and this omidpy reads up to {FORMAT}; upgrade "
                "omidpy to the version that wrote it"
            )
        return version == FORMAT

    def _change(self, changes: list[Change]) -> bool:
        """Change what is below the path, which is made if it is not there, or no more."""
        self._make_path()
        if self._session.change(changes):
            return True
        if not self._notice_removal():
            return False
        self._make_path()
        return self._session.change(changes)

    def _notice_removal(self) -> bool:
        """Say whether the path is not there: others may have removed it, or lost their ensemble."""
        self._exists = self._check_format()
        return not self._exists

    def _make_path(self) -> None:
        if self._exists:
            return
        for name in ("keys", "workers", "locks", "done"):
            self._session.make(f"{self._path}/{name}")
        if not self._check_format() and self._root is not None:
            # What is written from now on earlier versions would not find.
            written = msgspec.json.encode(Format(FORMAT))
            self._session.change([Write(self._path, written, self._root.version)])
        self._exists = self._check_format()

    def _read_each(
        self, ids: Collection[FateId], *, is_tolerant: bool = False
    ) -> dict[FateId, Operation | Unreadable | None]:
        """Read operations, each as of one moment: its steps lie between two equal versions."""
        found: dict[FateId, Operation | Unreadable | None] = {}
        wanted = list(ids)
        while wanted:
            before = self._nodes(wanted)
            records: dict[FateId, Record] = {}
            for one in wanted:
                try:
                    node = before[one]
                    known = self._unchanged(one, node)
                    if known is None and node is not None:
                        record = decode(node.data, where=self._node(one))
                        if record.depth:
                            records[one] = record
                        else:  # one znode is all there is of it
                            found[one] = operation_of(one, record, node.version, [])
                    else:
                        found[one] = known
                except CorruptCell as error:
                    if not is_tolerant:
                        raise
                    found[one] = Unreadable(one, str(error))
            stacks = self._stacks(records)
            after = self._nodes(list(records))
            wanted = []
            for one, record in records.items():
                node, stack = before[one], stacks[one]
                assert node is not None, "it has been decoded"
                if after[one] is None:
                    found[one] = None
                elif after[one] != node:
                    wanted.append(one)
                elif None in stack:
                    # Steps come and go with the version: this one is lost, and looking again for
                    # it would never end.
                    reason = f"znode {self._node(one)} lacks {stack.count(None)} of its steps"
                    if not is_tolerant:
                        raise CorruptCell(reason)
                    found[one] = Unreadable(one, reason)
                else:
                    found[one] = operation_of(one, record, node.version, stack)
        return found

    def _unchanged(self, operation_id: FateId, node: Znode | None) -> Operation | None:
        """Return what is known of an operation since the last scan, if it is still so."""
        known = self._cache.get(operation_id)
        if node is None or known is None or _znode_version(known) != node.version:
            return None
        return known

    def _nodes(self, ids: list[FateId]) -> dict[FateId, Znode | None]:
        nodes = self._session.read_each([self._node(one) for one in ids])
        return dict(zip(ids, nodes, strict=True))

    def _stacks(self, records: dict[FateId, Record]) -> dict[FateId, list[bytes | None]]:
        paths = [
            _step_path(self._node(one), position)
            for one, record in records.items()
            for position in range(record.depth)
        ]
        steps = iter(self._session.read_each(paths))
        return {
            one: [None if (step := next(steps)) is None else step.data for _ in range(record.depth)]
            for one, record in records.items()
        }

    def _insertion(self, operation: Operation) -> list[Change]:
        node, done = self._node(operation.id), self._done(operation.id)
        return [
            # Both or none: it is not there.  What has ended is not inserted again by who had no
            # answer, or by a request that comes late (F2).
            Create(done, b""),
            Delete(done),
            Create(node, encode(operation)),
            Create(f"{node}/debug", msgspec.json.encode(Debug(operation.name))),
            *(
                Create(_step_path(node, position), raw)
                for position, raw in enumerate(operation.stack)
            ),
        ]

    def _removal(self, operation: Operation) -> list[Change]:
        node = self._node(operation.id)
        return [
            *(Delete(_step_path(node, position)) for position in range(len(operation.stack))),
            Delete(f"{node}/debug"),
            Delete(node, _znode_version(operation)),
        ]

    def _tell(self, event: object) -> None:
        del event
        for callback in list(self._callbacks):
            callback()

    def _node(self, operation_id: FateId) -> str:
        return f"{self._path}/{OPERATION_PREFIX}{operation_id}"

    def _done(self, operation_id: FateId) -> str:
        return f"{self._path}/done/{OPERATION_PREFIX}{operation_id}"

    def _key_path(self, key: str) -> str:
        return f"{self._path}/keys/{hashlib.sha256(key.encode()).hexdigest()}"


def _step_path(node: str, position: int) -> str:
    return f"{node}/repo_{position:010d}"


def _owner_id(node: Znode) -> FateId:
    return FateId(node.data.decode(errors="replace"))


def _znode_version(operation: Operation) -> int:
    return operation.version - 1
