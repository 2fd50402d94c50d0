"""What is on a store's disks, and what goes with the power.

Whatever is written is there for everybody at once, and on the disks when it is synced.  Until then
the disk knows what was there before, and puts that back when the power goes: what it has not
written of a log is lost from some place of that log on, and a change is lost whole.

    file, shared    one log.  A durable write that changes something syncs all that came before it,
                    and the power is that of a host on which everybody runs
    cluster         a log for each part of a table, as if each were served by a server of its own.
                    A durable write syncs the one of its rows.  Servers lose their power, and those
                    who asked them live on

A cluster promises less than it is asked for here: cells and commit entries are as durable as its
address says (`docs/guide/hbase.md`), so that nothing could be claimed of a commit that was told
where they are not synced.  So its disks are quick with those, and slow with the rest: what the
compactor writes, and all facts.  That is one of the things that they may do.

Nothing is kept in worlds in which the power stays on.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from omidpy.base.cells import start_ts_of_commit_row
from omidpy.base.tables import CONTROL_TABLE
from omidpy.facts.commit_table import COMMIT_TABLE, INVALIDATION, TIMESTAMP_TABLE
from omidpy.fate.table.store import FATE_TABLE
from omidpy.storage.base import RowMutation
from omidpy.storage.memory import MemoryStore

if TYPE_CHECKING:
    from tests.machines.simulator.store import StoreKind

FACTS: Final = frozenset({CONTROL_TABLE, TIMESTAMP_TABLE, FATE_TABLE})
"""Tables in which neither cells nor commit entries are."""


PART_BYTES: Final = 5
"""Rows that begin with the same of them are served by one server."""

THE_ONLY_ONE: Final = ("", b"")
"""The log of a store that has one."""

SLOW: Final = "compactor"
"""Whose cells a cluster's disks are slow with, by what the names of their processes begin with."""

Rows: TypeAlias = dict[tuple[str, bytes], dict[Any, bytes] | None]
"""Cells by table and row; None: the row is not there."""


class Change(NamedTuple):
    """A change that is on no disk yet."""

    before: Rows
    """The rows that it changed, as they were."""
    commits: Sequence[int]
    """Transactions whose commit it made."""


class Disk:
    """What is to be lost."""

    def __init__(self, kind: StoreKind, memory: MemoryStore) -> None:
        self._kind = kind
        self._memory = memory
        self._logs: dict[tuple[str, bytes], list[Change]] = defaultdict(list)
        """By table, and by what the rows of a part of it begin with."""
        self.is_watched = False
        """Whether the power may go: else nothing is kept."""
        self.is_down = False
        self.losses = 0
        """How often the power went."""

    @property
    def is_in_one_log(self) -> bool:
        """Whether everybody runs on the host of the store, which has one log."""
        return self._kind != "cluster"

    def rows_before(self, rows: Iterable[tuple[str, bytes]]) -> Rows:
        """Return rows as they are, before they are changed."""
        tables = self._memory._tables
        before: Rows = {}
        for table, row in rows:
            if self.is_watched and table in tables and (table, row) not in before:
                cells = tables[table].rows.get(row)
                before[table, row] = None if cells is None else dict(cells)
        return before

    def changed(self, before: Rows, commits: Sequence[int], *, is_synced: bool) -> None:
        """Keep a change, or sync what it belongs to."""
        if not self.is_watched:
            return
        if self.is_in_one_log:
            if is_synced:
                self._logs.clear()
            else:
                self._logs[THE_ONLY_ONE].append(Change(before, commits))
            return
        for (table, row), cells in before.items():
            log = self._logs[table, row[:PART_BYTES]]
            if is_synced:
                log.clear()
                continue
            start_ts = start_ts_of_commit_row(row) if table == COMMIT_TABLE else None
            own = [start_ts] if start_ts is not None and start_ts in commits else []
            log.append(Change({(table, row): cells}, own))

    def changed_table(self, table: str) -> None:
        """Sync what belongs to a table that was made, changed or dropped: its own, or the log."""
        for place in [place for place in self._logs if self.is_in_one_log or place[0] == table]:
            del self._logs[place]

    def is_quick(self, table: str, mutations: Sequence[RowMutation], writer: str) -> bool:
        """Say whether a cluster's disks have written by themselves what nobody asked to be synced.

        Args:
            table: Where.
            mutations: What.
            writer: Whose process it is.
        """
        if self.is_in_one_log or table in FACTS or writer.startswith(SLOW):
            return False
        puts = [put for one in mutations for put in one.puts]
        return not puts or any(put[:2] != INVALIDATION for put in puts)

    def is_on_disk(self, start_ts: int) -> bool:
        """Say whether the commit of a transaction, which is there, would outlive the power."""
        return not any(
            start_ts in change.commits for changes in self._logs.values() for change in changes
        )

    def lose_power(self, dice: random.Random) -> tuple[list[tuple[str, bytes]], list[int]]:
        """Put back what is lost; return which rows, and which transactions committed in it."""
        rows: list[tuple[str, bytes]] = []
        commits: list[int] = []
        for log in list(self._logs.values()):
            # All of it, from anywhere on, or what was written just now.
            few = max(0, len(log) - dice.randint(0, 3))
            kept = dice.choice((0, dice.randint(0, len(log)), few))
            for change in reversed(log[kept:]):
                self._put_back(change)
                rows += change.before
                commits += change.commits
        self._logs.clear()
        self.losses += 1
        return rows, commits

    def _put_back(self, change: Change) -> None:
        for (table, row), cells in change.before.items():
            found = self._memory._tables.get(table)
            if found is None:
                continue
            found.order = None
            if cells is None:
                found.rows.pop(row, None)
            else:
                found.rows[row] = dict(cells)
