"""Many transactions at a time on one connection: what a busy client is to an oracle.

A client with threads, or Java's, asks the next thing before the last is answered, so that one
message brings many begins, and one many commits.  What the oracle then does in one go, or writes as
one batch, no client comes to that does one thing after the other.

A crowd speaks our protocol, or Java's, and then does as Omid's own client does, whatever ours would
do: it says nothing of who it is, asks again on the next connection, and where no answer comes looks
into the commit table and forbids the commit by itself; it reads by Omid's own algorithm.  That is
on a store without guarded batches, since Omid knows HBase alone.

Source of what is Java's: Omid's `AbstractTransactionManager`, `TSOClient` and `SnapshotFilterImpl`.
"""

from __future__ import annotations

import random
import select
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from omidpy.base.cells import (
    cell_id,
    data_qualifier,
    decode_long,
    encode_long,
    is_shadow_qualifier,
    shadow_qualifier,
    table_id,
)
from omidpy.base.commit_facts import INVALID
from omidpy.commit.outcome import OutcomeFinder
from omidpy.errors import OmidError, RemoteProtocolError, StorageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.leadership import lease_address, read_lease
from omidpy.facts.witnesses import witness_state
from omidpy.model import (
    Aborted,
    Cell,
    CellId,
    Committed,
    TableId,
    Timestamp,
)
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.testing.clients import Client
from omidpy.testing.history import Recorder, TransactionRecord
from omidpy.wire.connection import ClientConnection, Phase, Question
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import (
    ALL_FEATURES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    FenceResponse,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.simulator.network import NetworkOf
from tests.machines.simulator.single_cells import SingleCells
from tests.machines.simulator.store import SimStore
from tests.machines.simulator.world import Process, World

CROWDS: Final = ("crowd-a", "crowd-b")
FAMILY: Final = b"cf"
QUALIFIER: Final = b"v"
KEYS: Final = tuple(f"k{number:02}" for number in range(24))

REQUEST_S: Final = 5.0
"""How long it waits for answers; then it connects anew."""
RECONNECT_S: Final = 1.0
TRIES: Final = 3
"""How often a commit is asked for without an answer."""
READING_SHARE: Final = 0.4


class CrowdHabits(NamedTuple):
    """How crowds go about their work."""

    tongue: str
    pause_s: float
    """Between two rounds, on average."""
    sizes: tuple[int, ...]
    """How many transactions a round has, one of these."""
    thinking_share: float
    """Rounds in which time passes between what is written and the commits."""
    fence_share: float
    """Rounds of Java's before which it sets a fence, and reads behind it."""


class CrowdedCells(SingleCells):
    """The workload of crowds: single cells, of which many are written at one time."""

    name: Final = "crowd"

    def __init__(self, prefix: str) -> None:
        self.table = f"{prefix}_crowd"


class NoAnswer(Exception):
    """The connection is gone."""


@dataclass(slots=True, eq=False)
class One:
    """One transaction of a crowd."""

    start_ts: Timestamp
    began_ns: int
    record: TransactionRecord
    values: dict[str, int] = field(default_factory=dict)
    verdict: CommitResponse | None = None

    def cells(self) -> list[Cell]:
        """Return what it has written."""
        return [
            Cell(key.encode(), FAMILY, QUALIFIER, self.start_ts, b"%d" % value)
            for key, value in self.values.items()
        ]


class Talk:
    """One connection, as its client sees it: questions go out together, answers come as they do."""

    def __init__(self, crowd: Crowd, address: tuple[str, int], epoch: int) -> None:
        self.epoch = epoch
        self._world = crowd.world
        self._sock: Any = crowd.network.connect(address, timeout_s=2.0)
        self._poller: Any = crowd.network.poller(self._sock, select.POLLIN)
        self._connection: ClientConnection[Any] = ClientConnection(
            features=Feature.NONE if crowd.is_java else ALL_FEATURES,
            client=None if crowd.is_java else crowd.number,
        )
        until_s = self._world.now_s + REQUEST_S
        self._send(self._connection.handshake())
        while self._connection.phase is Phase.HANDSHAKING:
            self._receive(until_s)
        if self._connection.phase is not Phase.READY:
            raise NoAnswer

    def ask(self, questions: Sequence[tuple[Question, Callable[[Any], object]]]) -> None:
        """Ask many things at once, and hand each answer over; raise if one does not come."""
        frames = []
        for question, hand_over in questions:
            self._connection.expect(question, hand_over)
            frames.append(frame_request(question))
        self._send(b"".join(frames))
        until_s = self._world.now_s + REQUEST_S
        while self._connection.in_flight:
            self._receive(until_s)

    def close(self) -> None:
        """End it."""
        self._sock.close()

    def _send(self, data: bytes) -> None:
        try:
            while data:
                data = data[self._sock.send(data) :]
        except OSError as error:
            raise NoAnswer from error

    def _receive(self, until_s: float) -> None:
        left_ms = int((until_s - self._world.now_s) * 1000)
        if left_ms <= 0 or not self._poller.poll(left_ms):
            raise NoAnswer
        try:
            data = self._sock.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError as error:
            raise NoAnswer from error
        if not data:
            raise NoAnswer
        try:
            for hand_over, answer in self._connection.receive(data):
                hand_over(answer)
        except RemoteProtocolError as error:
            raise NoAnswer from error


class Crowd:
    """A process that does many transactions at a time."""

    def __init__(
        self,
        world: World,
        process: Process,
        store: SimStore,
        network: NetworkOf,
        client: Client,
        table: str,
        *,
        is_java: bool,
        habits: CrowdHabits,
    ) -> None:
        """Do nothing yet.

        Args:
            world: Where it is.
            process: Its process.
            store: As that sees it.
            network: As that sees it.
            client: Ours: it numbers values and keeps the record; and finds out what is not Java's.
            table: Whose cells are written.
            is_java: Whose protocol it speaks.
            habits: How it goes about its work.
        """
        self.world = world
        self.network = network
        self.is_java = is_java
        self.number = process.dice("number of a crowd").getrandbits(61) + 1
        self._process = process
        self._store = store
        self._client = client
        self._table = table
        self._commit_table = CommitTable(store)
        self._habits = habits
        self._talk: Talk | None = None

    def work(self, dice: random.Random, until_s: float) -> None:
        """Do rounds until it is late."""
        while self.world.now_s < until_s:
            self.world.program.sleep(dice.expovariate(1 / self._habits.pause_s))
            self.world.counts["rounds of crowds"] += 1
            if self.is_java and dice.random() < self._habits.fence_share:
                self._read_behind_a_fence(dice)
            self._round(dice, dice.choice(self._habits.sizes))

    # -- the connection --------------------------------------------------------------------------

    def _connected(self) -> Talk:
        """Return the connection, made anew if there is none."""
        if self._talk is None:
            try:
                address = lease_address(self._store)
                record = read_lease(self._store)
                epoch = 0 if record is None or record.epoch is None else record.epoch
                self._talk = Talk(self, address, epoch)
            except (OmidError, OSError) as error:
                raise NoAnswer from error
        return self._talk

    def _ask(self, questions: Sequence[tuple[Question, Callable[[Any], object]]]) -> None:
        try:
            self._connected().ask(questions)
        except NoAnswer:
            talk, self._talk = self._talk, None
            if talk is not None:
                talk.close()
            raise

    def _read_behind_a_fence(self, dice: random.Random) -> None:
        """Forbid the commit of whatever is unknown, as Omid's `fence` does: its epoch is new.

        It reads another table than it fences, so that what it forbids is refused by nobody else.
        """
        began_ns = self._recorder.now_ns()
        fences: list[FenceResponse] = []
        fenced = table_id(dice.choice((self._table, f"{self._table}_fenced")))
        try:
            self._ask([(FenceRequest(fenced), fences.append)])
        except NoAnswer:
            return
        fence_ts = fences[0].fence_ts
        record = self._recorder.begin("crowd", start_ts=fence_ts, began_ns=began_ns)
        try:
            for key in dice.sample(KEYS, 6):
                record.read(key, *self._read(key, fence_ts, fence_ts))
        except StorageError:
            record.aborted("the store is gone")
            return
        record.committing()
        record.committed(None)

    # -- a round ---------------------------------------------------------------------------------

    def _round(self, dice: random.Random, size: int) -> None:
        begun: list[One] = []
        began_ns = self._recorder.now_ns()

        def begin(answer: TimestampResponse) -> None:
            record = self._recorder.begin("crowd", start_ts=answer.start_ts, began_ns=began_ns)
            begun.append(One(answer.start_ts, began_ns, record))

        try:
            self._ask([(TimestampRequest(), begin)] * size)
        except NoAnswer:
            for one in begun:
                one.record.aborted("the connection ended")
            return
        talk = self._talk
        assert talk is not None, "it has just answered"
        ready = [one for one in begun if self._write(dice, one, talk.epoch)]
        if dice.random() < self._habits.thinking_share:
            self.world.program.sleep(dice.uniform(0.0, 2.0))
        for one in ready:
            one.record.committing()
        self._commit(ready)
        for one in ready:
            if one.verdict is None:
                self._find_out(one)
            elif one.verdict.commit_ts is None:
                self._roll_back(one, "refused")
            else:
                self._told_committed(one, one.verdict.commit_ts)

    @property
    def _recorder(self) -> Recorder:
        return self._client.recorder

    def _write(self, dice: random.Random, one: One, epoch: int) -> bool:
        """Read a little, and write some cells; False: it was given up."""
        try:
            if self.is_java and one.start_ts <= epoch:
                one.record.aborted("below the epoch")
                return False
            if self.is_java and dice.random() < READING_SHARE:
                key = dice.choice(KEYS)
                one.record.read(key, *self._read(key, one.start_ts, epoch))
            for key in dice.sample(KEYS, dice.choice((1, 1, 2))):
                one.values[key] = self._client.value()
                one.record.write(key, one.values[key])
            self._store.write({self._table: _puts(one.cells())})
        except StorageError:
            self._roll_back(one, "its cells could not be written")
            return False
        return True

    def _commit(self, ready: Sequence[One]) -> None:
        """Ask for all commits at once, and again for those that were not answered."""
        for attempt in range(TRIES if self.is_java else 1):
            waiting = [one for one in ready if one.verdict is None]
            if not waiting:
                return
            if attempt:
                self.world.program.sleep(RECONNECT_S)
            try:
                self._ask([self._question(one, is_retry=attempt > 0) for one in waiting])
            except NoAnswer:
                continue

    def _question(self, one: One, *, is_retry: bool) -> tuple[Question, Callable[[Any], object]]:
        def hand_over(answer: CommitResponse) -> None:
            one.verdict = answer

        return CommitRequest(
            one.start_ts, self._cell_ids(one), self._table_ids, is_retry
        ), hand_over

    def _cell_ids(self, one: One) -> tuple[CellId, ...]:
        return tuple(cell_id(self._table, key.encode(), FAMILY, QUALIFIER) for key in one.values)

    @property
    def _table_ids(self) -> tuple[TableId, ...]:
        return (table_id(self._table),)

    # -- what follows a commit -------------------------------------------------------------------

    def _told_committed(self, one: One, commit_ts: int, *, leaves_entry: bool = False) -> None:
        one.record.committed(commit_ts)
        shadows = [
            Cell(
                cell.row, FAMILY, shadow_qualifier(QUALIFIER), cell.version, encode_long(commit_ts)
            )
            for cell in one.cells()
        ]
        try:
            self._store.write({self._table: _puts(shadows)})
            if not leaves_entry:
                self._commit_table.complete([one.start_ts])
        except StorageError:
            return

    def _roll_back(self, one: One, reason: str) -> None:
        """Note it, and remove the cells, which it does not try twice."""
        one.record.aborted(reason)
        deletes = [
            RowMutation(key.encode(), (), (DeleteVersion(FAMILY, QUALIFIER, one.start_ts),))
            for key in one.values
        ]
        try:
            self._store.write({self._table: deletes})
        except StorageError:
            return

    def _find_out(self, one: One) -> None:
        """Find out what became of a commit of which nobody told."""
        self.world.counts["commits of crowds without an answer"] += 1
        try:
            if self.is_java:
                self._find_out_as_java(one)
            else:
                self._find_out_as_ours(one)
        except OmidError:
            one.record.unknown()

    def _find_out_as_java(self, one: One) -> None:
        for _ in range(2):
            entry = self._commit_table.read((one.start_ts,))[one.start_ts]
            if isinstance(entry, int):
                self._told_committed(one, entry, leaves_entry=True)
                return
            if entry is INVALID or self._commit_table.invalidate(one.start_ts):
                self._roll_back(one, "invalidated")
                return
        one.record.unknown()

    def _find_out_as_ours(self, one: One) -> None:
        outcomes: OutcomeFinder = self._client.tm.session.outcomes
        outcome = outcomes.settle(
            one.start_ts,
            (self._table, one.cells()[0]),
            self._cell_ids(one),
            self._table_ids,
            others=(),
        )
        match outcome:
            case Committed():
                self._told_committed(one, outcome.commit_ts or 0)
            case Aborted():
                self._roll_back(one, "found aborted")
            case _:
                one.record.unknown()

    # -- reading, as Omid does -------------------------------------------------------------------

    def _read(self, key: str, start_ts: int, epoch: int) -> tuple[int, int] | tuple[None]:
        """Return the newest value of a snapshot, and when that was committed."""
        (cells,) = self._store.get(self._table, (key.encode(),), max_version=start_ts)
        known = {
            (data_qualifier(cell.qualifier), cell.version): decode_long(cell.value, what="a shadow")
            for cell in cells
            if is_shadow_qualifier(cell.qualifier)
        }
        data = [cell for cell in cells if not is_shadow_qualifier(cell.qualifier)]
        for cell in sorted(data, key=lambda one: -one.version):
            commit_ts = known.get((cell.qualifier, cell.version)) or self._located(cell, epoch)
            if commit_ts is not None and commit_ts < start_ts:
                return int(cell.value), commit_ts
        return (None,)

    def _located(self, cell: Cell, epoch: int) -> int | None:
        """Return when a cell was committed; the order of what is asked is Omid's."""
        start_ts = Timestamp(cell.version)
        entry = self._commit_table.read((start_ts,))[start_ts]
        if isinstance(entry, int):
            heal = Cell(
                cell.row, FAMILY, shadow_qualifier(QUALIFIER), cell.version, encode_long(entry)
            )
            self._store.write({self._table: _puts([heal])})
            return entry
        if entry is INVALID:
            return None
        shadow, _ = witness_state(self._store, self._table, cell)
        if shadow is not None:
            return shadow
        if cell.version < epoch and self._commit_table.invalidate(start_ts):
            self.world.counts["invalidations planted by crowds"] += 1
            return None
        entry = self._commit_table.read((start_ts,))[start_ts]
        if isinstance(entry, int):
            return entry
        return witness_state(self._store, self._table, cell)[0]


def _puts(cells: Iterable[Cell]) -> list[RowMutation]:
    return [
        RowMutation(cell.row, (Put(cell.family, cell.qualifier, cell.version, cell.value),))
        for cell in cells
    ]
