"""A client whose process ends between, or in the middle of, any two things that it does.

What a client does to the world is a list of *effects*: a write to its store, a question to its
oracle that changes something.  A `Moment` is a place in that list: after so many effects, and a
part of the next one.  There are no other places to die at, as far as anybody else can tell, so that
dying at each moment of a list is dying everywhere.

A batch of rows has parts: each half without the other, which is what a store leaves that had sent
the batch to two regions, or whose other region does not serve.  So has a commit: the request has
left, and nobody waits for the answer.  And whatever leaves a process may be held up on its way, and
arrive when the process has long gone on, or is dead.

In place of dying a client can also be told that the effect failed, and live on.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple, TypeAlias, TypeVar

from omidpy.errors import OmidError, OracleUnavailable, StorageUnavailable
from omidpy.model import CellId, Column, TableId, Timestamp
from omidpy.oracle.address import parse_address
from omidpy.oracle.base import Begun, CommitGranted, CommitVerdict, InvalidationVerdict, Oracle
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.base import (
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    RowMutation,
    Store,
    singly,
)
from omidpy.testing.faults import FaultyStore, kill
from omidpy.wire.connection import ClientConnection
from omidpy.wire.frames import frame_request
from omidpy.wire.messages import CommitRequest

T = TypeVar("T")

WriteBatch: TypeAlias = Mapping[str, Sequence[RowMutation]]


class Guarded(NamedTuple):
    """Mutations that are applied all at once, or not at all."""

    mutations: list[GuardedMutation]
    guard: Condition | None


class LateCommit(NamedTuple):
    """A commit request, and who sent it."""

    request: CommitRequest
    client: int


HeldUp: TypeAlias = LateCommit | Guarded | list[GuardedMutation]
"""What is on its way to an oracle or to a store."""
HoldUp: TypeAlias = Callable[[HeldUp], object]
"""Takes over what is held up."""

COMMIT: Final = "commit"
"""The effect that decides."""


class Ending(StrEnum):
    """What happens at the moment."""

    KILLED = "killed"
    FAILED = "failed"


class Part(StrEnum):
    """How much of an effect happens."""

    ONE_HALF = "one half"
    OTHER_HALF = "other half"
    SENT = "sent"
    """It happens, or may: its process does not wait for that."""
    HELD_UP = "held up"
    """It happens when all is over, by whoever takes it over."""
    ALL = "all"
    """It happens, and only the answer is lost."""


class Effect(NamedTuple):
    """One thing that a client does to the world."""

    name: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Moment:
    """After `count` effects, and `part` of the next one."""

    count: int
    part: Part | None = None


def moments(effects: Sequence[Effect], ending: Ending) -> list[Moment]:
    """Return every moment of a client's life at which it can end so."""
    found = []
    for count, effect in enumerate(effects):
        found.append(Moment(count))
        if ending is Ending.FAILED:
            # Who lives on waits for the answer, and is told that there is none.
            found += [Moment(count, part) for part in effect.parts if part is not Part.SENT]
            found.append(Moment(count, Part.ALL))
        else:
            found += [Moment(count, part) for part in effect.parts]
    return found


@dataclass
class Death:
    """When a process ends, and its effects so far."""

    moment: Moment | None = None
    ending: Ending = Ending.KILLED
    is_awake: bool = True
    """Whether effects count."""
    effects: list[Effect] = field(default_factory=list)

    def perform(
        self,
        name: str,
        whole: Callable[[], T],
        failure: Callable[[str], OmidError],
        parts: Mapping[Part, Callable[[], object]],
    ) -> T:
        """Do an effect, if its moment is not now."""
        if not self.is_awake:
            return whole()
        count = len(self.effects)
        self.effects.append(Effect(name, tuple(parts)))
        if self.moment is None or self.moment.count != count:
            return whole()
        if self.moment.part is Part.ALL:
            whole()
        elif self.moment.part is not None:
            parts[self.moment.part]()
        if self.ending is Ending.KILLED:
            kill()
        raise failure(f"{name} failed at {self.moment}")


class MortalStore(FaultyStore):
    """A store whose writes are effects."""

    def __init__(self, store: Store, death: Death, hold_up: HoldUp) -> None:
        super().__init__(store)
        self._death = death
        self._hold_up = hold_up

    def write(self, batch: WriteBatch, *, durable: bool = False) -> None:
        """Write all of it, or as much as there is time for."""
        sent = [GuardedMutation(table, row) for table, rows in batch.items() for row in rows]
        parts = self._parts(
            sent, lambda part: lambda: self.store.write(_by_table(part), durable=durable)
        )
        whole = partial(self.store.write, batch, durable=durable)
        self._death.perform(f"write {', '.join(batch)}", whole, StorageUnavailable, parts)

    def _parts(
        self,
        sent: Sequence[GuardedMutation],
        applying: Callable[[Sequence[GuardedMutation]], Callable[[], object]],
    ) -> dict[Part, Callable[[], object]]:
        """Return what can happen of a batch; `applying` returns what applies some of it."""
        parts: dict[Part, Callable[[], object]] = {Part.HELD_UP: lambda: self._hold_up(list(sent))}
        if len(sent) > 1:
            middle = len(sent) // 2
            parts[Part.ONE_HALF] = applying(sent[:middle])
            parts[Part.OTHER_HALF] = applying(sent[middle:])
        return parts

    def check_and_mutate(
        self,
        table: str,
        row: bytes,
        column: Column,
        expected: bytes | None,
        mutation: RowMutation,
        *,
        durable: bool = False,
    ) -> bool:
        """Apply it, if there is time."""

        def whole() -> bool:
            return self.store.check_and_mutate(
                table, row, column, expected, mutation, durable=durable
            )

        change = GuardedMutation(table, mutation, Condition(table, row, column, expected))
        parts = {Part.HELD_UP: lambda: self._hold_up([change])}
        return self._death.perform(f"change {table}", whole, StorageUnavailable, parts)

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply all of them, or none."""

        def whole() -> list[bool] | None:
            return self.store.write_guarded(mutations, guard=guard, durable=durable)

        parts = {Part.HELD_UP: lambda: self._hold_up(Guarded(singly(mutations), guard))}
        return self._death.perform("write guarded", whole, StorageUnavailable, parts)


def deliver(store: Store, sent: Guarded | Sequence[GuardedMutation]) -> None:
    """Let mutations arrive that were held up."""
    if isinstance(sent, Guarded):
        store.write_guarded(sent.mutations, guard=sent.guard)
        return
    for table, mutation, condition in sent:
        if condition is None:
            store.write({table: [mutation]})
        else:
            store.check_and_mutate(
                table, mutation.row, condition.column, condition.expected, mutation
            )


def _by_table(sent: Sequence[GuardedMutation]) -> dict[str, list[RowMutation]]:
    batch: dict[str, list[RowMutation]] = {}
    for table, mutation, _ in sent:
        batch.setdefault(table, []).append(mutation)
    return batch


class MortalOracle:
    """An oracle at an address, of which commits and invalidations are effects."""

    def __init__(
        self,
        oracle: Oracle,
        death: Death,
        address: str,
        hold_up: HoldUp,
    ) -> None:
        """Ask `oracle`, which is at `address`, if there is time.

        Args:
            oracle: Who decides.
            death: When there is not.
            address: HOST:PORT.
            hold_up: Takes a commit over that is held up.
        """
        self.oracle = oracle
        self._death = death
        self._address = address
        self._hold_up = hold_up

    @property
    def store_id(self) -> str | None:
        """The id of the store behind."""
        return self.oracle.store_id

    @property
    def can_invalidate(self) -> bool:
        """Whether the oracle behind can."""
        return self.oracle.can_invalidate

    @property
    def max_transaction_age_s(self) -> float | None:
        """The age limit of the oracle behind."""
        return self.oracle.max_transaction_age_s

    @property
    def max_commit_cells(self) -> int | None:
        """What the oracle behind takes at once."""
        return self.oracle.max_commit_cells

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Pass on."""
        return self.oracle.begin(hold_s=hold_s)

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Ask, if there is time, and hear the answer, if there is."""
        request = CommitRequest(start_ts, tuple(cell_ids), tuple(table_ids), is_retry)
        client = self.oracle.client if isinstance(self.oracle, TcpOracle) else 0
        return self._death.perform(
            COMMIT,
            lambda: self.oracle.commit(start_ts, cell_ids, table_ids, is_retry=is_retry),
            _no_answer,
            {
                Part.SENT: lambda: send_commits(self._address, [request], client=client),
                Part.HELD_UP: lambda: self._hold_up(LateCommit(request, client)),
            },
        )

    def fence(self, table_id: TableId) -> Timestamp:
        """Pass on."""
        return self.oracle.fence(table_id)

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Ask, if there is time."""
        return self._death.perform(
            "invalidate", lambda: self.oracle.invalidate(start_ts), OracleUnavailable, {}
        )

    def close(self) -> None:
        """Pass on."""
        self.oracle.close()


def _no_answer(message: str) -> OracleUnavailable:
    return OracleUnavailable(message, retryable=False)


def send_commits(address: str, requests: Sequence[CommitRequest], *, client: int) -> socket.socket:
    """Send commit requests in one packet, for answers that nobody waits for.

    Args:
        address: The oracle's.
        requests: What to ask.
        client: Who began the transactions.

    Returns:
        The connection; what was sent arrives also if its process dies at once.
    """
    connection = socket.create_connection(parse_address(address), timeout=30)
    hello = ClientConnection[object](after_ts=Timestamp(0), client=client).handshake()
    connection.sendall(hello + b"".join(frame_request(request) for request in requests))
    return connection
