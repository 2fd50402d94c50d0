"""A `tso-server` that dies while it writes commits down: `python -m tests.machines.crashes.server`.

    MOMENT --store URL --listen HOST:PORT ...      the rest are the server's own options

MOMENT counts what one flush that has commits in it does to the commit table, in JSON; `null` dies
never, and says on stderr what those effects were.  What is held up is said there too, so that it
can be delivered when this process is dead.

What this lacks: the look at the lease is no effect, since now and then it is a renewal.  It comes
after the entries are written and before the flush ends, and there is a moment on either side.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final, Unpack
from unittest import mock

import msgspec

from omidpy.errors import StorageUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Column
from omidpy.opening import open_store
from omidpy.storage.base import (
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    Read,
    Row,
    RowMutation,
    Store,
    singly,
)
from omidpy.storage.options import ChecksBehind
from omidpy.testing.faults import kill
from tests.machines.crashes.mortal import (
    Death,
    Effect,
    HeldUp,
    HoldUp,
    Moment,
    MortalStore,
    WriteBatch,
    deliver,
)
from tests.machines.processes import ServerProcess
from tso.cli import main
from tso.core.events import Batch, FlushResult, Ticket
from tso.durable.persist import StorePersistence

_EFFECTS: Final = "effects "
_HELD_UP: Final = "held-up "


class MortalServer(ServerProcess):
    """Such a server, watched by the process that started it."""

    def __init__(self, store: str, *options: str, moment: Moment | None) -> None:
        """Start it; `moment` None lives on."""
        program = ("tests.machines.crashes.server", msgspec.json.encode(moment).decode())
        super().__init__(store, *options, program=program)

    def effects(self, nth: int) -> list[Effect]:
        """Return what its nth flush with commits did, from 1, of a server that lives on."""
        said = self.wait_for(f"^{_EFFECTS}{nth} ")
        return msgspec.json.decode(said.removeprefix(f"{_EFFECTS}{nth} "), type=list[Effect])

    def held_up(self) -> list[GuardedMutation]:
        """Return what it held up before it died; empty where that was nothing."""
        for line in self.lines:
            if line.startswith(_HELD_UP):
                return msgspec.json.decode(line.removeprefix(_HELD_UP), type=list[GuardedMutation])
        return []


class ServerStore(MortalStore):
    """A store of which only what becomes of the commit table is an effect."""

    def write(self, batch: WriteBatch, *, durable: bool = False) -> None:
        """Write, or as much as there is time for."""
        if COMMIT_TABLE in batch:
            super().write(batch, durable=durable)
        else:
            self.store.write(batch, durable=durable)

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
        change = super().check_and_mutate if table == COMMIT_TABLE else self.store.check_and_mutate
        return change(table, row, column, expected, mutation, durable=durable)

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Apply them all at once, if there is time."""
        whole = partial(self.store.write_guarded, mutations, guard=guard, durable=durable)
        return self._death.perform("write all at once", whole, StorageUnavailable, {})

    def get(self, table: str, rows: Sequence[bytes], **read: Unpack[Read]) -> list[Row]:
        """Read, if there is time."""
        whole = partial(self.store.get, table, rows, **read)
        if table != COMMIT_TABLE:
            return whole()
        return self._death.perform(f"read {table}", whole, StorageUnavailable, {})


class AheadServerStore(ServerStore):
    """The same of a store that looks at the lease behind a few entries, without a wait."""

    def __init__(self, store: Store, death: Death, hold_up: HoldUp) -> None:
        super().__init__(store, death, hold_up)
        assert isinstance(store, ChecksBehind)
        self._ahead = store

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Apply them and look, or as much as there is time for."""
        parts = self._parts(changes, lambda part: lambda: deliver(self.store, part))
        whole = partial(self._ahead.write_then_check, changes, check)
        return self._death.perform("write ahead", whole, StorageUnavailable, parts)

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Put them and look, or as much as there is time for."""
        puts = [GuardedMutation(entries.table, one.mutation) for one in singly([entries])]
        parts = self._parts(puts, lambda part: lambda: deliver(self.store, part))
        whole = partial(self._ahead.put_then_check, entries, checks)
        return self._death.perform("put ahead", whole, StorageUnavailable, parts)


def _say(kind: str, what: object) -> None:
    print(kind + msgspec.json.encode(what).decode(), file=sys.stderr, flush=True)


def run(moment: Moment | None, options: Sequence[str]) -> int:
    """Be a server until its moment has come."""
    death = Death(moment, is_awake=False)
    counter = itertools.count(1)
    flush = StorePersistence.flush

    def hold_up(sent: HeldUp) -> None:
        _say(_HELD_UP, sent)

    def opened(url: str) -> Store:
        store = open_store(url)
        mortal = AheadServerStore if isinstance(store, ChecksBehind) else ServerStore
        return mortal(store, death, hold_up)

    def flush_and_die(self: StorePersistence, batch: Batch[Ticket]) -> FlushResult:
        death.is_awake = bool(batch.commits)
        result = flush(self, batch)
        if batch.commits:
            death.is_awake = False
            if moment == Moment(len(death.effects)):
                kill()
            _say(f"{_EFFECTS}{next(counter)} ", death.effects)
            death.effects.clear()
        return result

    with (
        mock.patch("tso.cli.open_store", opened),
        mock.patch.object(StorePersistence, "flush", flush_and_die),
    ):
        return main(options)


if __name__ == "__main__":
    sys.exit(run(msgspec.json.decode(sys.argv[1], type=Moment | None), sys.argv[2:]))
