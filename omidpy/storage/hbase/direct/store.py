"""A store on HBase without a gateway: `hbase://zk1,zk2:2181/hbase`, `hbase+rpc://master:16000`.

What it means is what the gateways' stores mean.  Reads are repeated after failures, and so is
`write`: each put and delete names its version, so that doing it twice is doing it once.
`check_and_mutate` is repeated only where a server says that it did nothing; when its answer is
lost, `StorageUnavailable` says that the outcome is not known.  Changes of tables carry numbers by
which the master knows them again, and are asked for again.

**Order.**  A region server executes the calls of one connection at the same time, so that a read
sent behind a write may miss it.  Nothing here is sent before what it must come behind was answered;
where it saves a wait, both go in one Multi, whose regions a server does one after another
(`ChecksBehind`, docs/decisions/0060).  A scan in pairs, which only snapshots ask for, reads a page
ahead (docs/decisions/0072).

Lacks what HBase lacks: transactions over many rows (`guarded_batches`), locks that die with their
process.  It lacks splits and merges of regions, as the gateways do.

Durability: as `thrift2/store.py` says.

HBase's delete markers: a `DeleteVersion` hides a later put at the same version until a major
compaction.  Nothing here prevents that; who writes must not return to a version once deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from omidpy.base.collector import paused_collector
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import NoSuchFamily, NoSuchTable, OmidError, StorageUnavailable, UsageError
from omidpy.model import Cell, Column, TableSchema
from omidpy.storage import rules
from omidpy.storage.base import (
    WHOLE_TABLE,
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    ProcessLock,
    RowMutation,
)
from omidpy.storage.hbase import described, identity, states
from omidpy.storage.hbase.direct import descriptors
from omidpy.storage.hbase.direct.reads import NativeReads
from omidpy.storage.hbase.dropping import OneTable, drop_if
from omidpy.storage.hbase.keys import check_findable
from omidpy.storage.hbase.native.address import NativeAddress, parse_native
from omidpy.storage.hbase.native.calling.steps import Step, was_processed
from omidpy.storage.hbase.native.cellblock import DELETE_VERSION
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.faults import CallFailed
from omidpy.storage.hbase.native.scanning import Scanner
from omidpy.storage.hbase.native.security import kerberos, tokens
from omidpy.storage.hbase.native.values import (
    FSYNC_WAL,
    Check,
    DeleteCell,
    FamilyDescriptor,
    Get,
    PutCell,
    RowChange,
    Selection,
    TableDescriptor,
)
from omidpy.storage.hbase.native.wire.answers import PartAnswer

PATIENCE_S: Final = 3.0
"""How long changes and looks behind them are waited for, before they are given up."""

_NEWEST: Final = 1
_NAMES: Final = 1000
"""Names of tables that one call reads."""
_STATES: Final = Selection([states.STATE], max_versions=_NEWEST)
"""Everybody may read them, and few may look at the schema of the catalogue."""
_new: Final = tuple.__new__
"""Makes a named tuple of another one, without the call of a Python function."""


class NativeStore(NativeReads):
    """A store on HBase.  Safe to share among threads, and after a fork."""

    def __init__(self, address: NativeAddress | str, *, client: NativeClient | None = None) -> None:
        """Open the store without calling it yet.

        Args:
            address: `hbase://...` or `hbase+rpc://...`.
            client: Calls HBase; the store closes it.  None makes one.

        Raises:
            ConfigError: the address does not fit, or a package is missing.
        """
        if isinstance(address, str):
            address = parse_native(address)
        super().__init__(address, NativeClient(address) if client is None else client)
        self._durability = FSYNC_WAL if address.durability == "fsync" else 0
        self._store_id: str | None = None
        self._tokens = tokens.Source(self._client.calls.fetch_token)

    def token_to_hand_on(self) -> tokens.Token | None:
        """Return what proves who we are to tasks in other processes; None without Kerberos.

        A process that was handed a token itself hands on that one.  Half-way to its end it fetches
        another, if it has a ticket, as processes of a driver have.

        Cost: 1 RPC, unless the last one is good for half its time.

        Raises:
            ConfigError: HBase gives none out.
            StorageUnavailable: HBase does not answer.
        """
        if self._address.sasl is None:
            return None
        held = tokens.held(self._address.url)
        if held is not None and (
            held.is_good_for_long(SystemClock().wall_ms()) or not kerberos.has_ticket()
        ):
            return held
        return self._tokens.token()

    @property
    def store_id(self) -> str:
        """An id kept in the store, made by the first client that asks.

        Raises:
            ConfigError: the store has not been set up.
        """
        if self._store_id is None:
            self._store_id = identity.store_id(self)
        return self._store_id

    @property
    def capabilities(self) -> Capabilities:
        """What HBase can do."""
        return Capabilities(
            guarded_batches=False, process_locks=False, remote=True, region_admin=False
        )

    # -- tables -----------------------------------------------------------------------------------

    def create_table(
        self,
        schema: TableSchema,
        *,
        splits: Sequence[bytes] = (),
        beside: GuardedMutation | None = None,
    ) -> bool:
        """Create a table; see `Store`.  Families keep all versions unless `VERSIONS` says less."""
        self._check_open()
        rules.check_schema(schema, splits)
        rules.check_alone(self.url, beside)
        self._admin.create(descriptors.table_descriptor(schema), splits)
        described.record(self, schema)
        return True

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Disable and remove a table; a second attempt goes on where the first one ended."""
        return self.drop_table_if(table, only=only, still=lambda: True)

    def drop_table_if(
        self, table: str, *, only: Mapping[str, str] | None, still: Callable[[], bool]
    ) -> bool:
        """Remove a table as `drop_table` does, if that is wanted still; see `RestoresTables`."""
        admin = self._admin
        one = OneTable(
            is_meant=lambda: rules.has(self.schema(table).attributes, only),
            is_enabled=lambda: admin.state(table) == "enabled",
            disable=lambda: admin.disable(table),
            enable=lambda: admin.enable(table),
            drop=lambda: admin.drop(table),
        )
        if not drop_if(one, looks_again=bool(only), still=still):
            return False
        self._families.pop(table, None)
        described.forget(self, table)
        return True

    def schema(self, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        self._check_open()
        return descriptors.table_schema(self._described(table))

    def tables(self) -> list[TableSchema]:
        """List every table of every namespace but HBase's own, by name."""
        self._check_open()
        found = map(descriptors.table_schema, self._admin.descriptors())
        return sorted(found, key=lambda schema: schema.name)

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Set attributes of a table; None removes one.

        HBase changes a table whatever it is by then, so `only` holds when it is looked at, which is
        right before each attempt.
        """
        self._check_open()
        rules.check_attributes(attributes)
        is_other = is_again = False

        def changed(before: TableDescriptor) -> TableDescriptor | None:
            nonlocal is_other, is_again
            found = descriptors.table_schema(before).attributes
            # Of an attempt whose answer was lost: it is known by its numbers, and waited for.
            is_ours = is_again and rules.has(found, attributes)
            is_other = not (is_ours or rules.has(found, only))
            is_again = True
            if is_other:
                return None
            return descriptors.changed_table(before, attributes) or (before if is_ours else None)

        self._admin.modify(table, changed)
        if is_other:
            return False
        described.record(self, self.schema(table))
        return True

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Set attributes of a family; None removes one."""
        self._check_open()
        rules.check_attributes(attributes)
        is_again = False

        def changed(before: TableDescriptor) -> FamilyDescriptor | None:
            nonlocal is_again
            was_tried, is_again = is_again, True
            families = {one.name: one for one in before.families}
            rules.check_family(table, family, families)
            found = families[family]
            return descriptors.changed_family(found, attributes) or (found if was_tried else None)

        self._admin.modify_family(table, changed)
        described.record(self, self.schema(table))

    def table_states(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the states of some tables; see `RestoresTables` and `states.py`."""
        return {cell.row.decode(): cell.version for cell in self._states_of(tables)}

    def closed_tables(self, tables: Sequence[str]) -> dict[str, str]:
        """Return those that are disabled; see `ClosesTables` and `states.py`."""
        return states.closed(self._states_of(tables))

    def _states_of(self, tables: Sequence[str]) -> list[Cell]:
        self._check_open()
        gets = [Get(table.encode(), _STATES) for table in tables]
        found = self._client.get_many(states.CATALOGUE, gets)
        return [one.cells[0] for one in found if one.cells]

    def hidden_tables(self, listed: Collection[str]) -> dict[str, str]:
        """Return the tables that this user may not look at; see `HidesTables`."""
        scanner = Scanner(self._client.calls, states.CATALOGUE, WHOLE_TABLE, _STATES)
        return states.hidden(self._pages(scanner, _NAMES), listed, self.schema)

    def split_region(self, table: str, at: bytes) -> None:
        """Refuse: nothing of omidpy needs it, and HBase's shell has it."""
        self.schema(table)
        raise UsageError(
            f"{self.url} does not split regions; for table {table!r} at {at!r} use "
            f"`split '{table}', ...` in the HBase shell, or create the table with splits"
        )

    def merge_regions(self, table: str, at: bytes) -> None:
        """Refuse: nothing of omidpy needs it, and HBase's shell has it."""
        self.schema(table)
        raise UsageError(
            f"{self.url} does not merge regions; for those of table {table!r} that meet at {at!r} "
            "use `merge_region` in the HBase shell"
        )

    # -- writes -----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations; see `Store`.

        All of a batch's mutations of one row are applied as one.

        Cost: 1 RPC per table, server and 1,000 rows or 4 MiB, those of a batch at once.
        """
        self._check_open()
        checked = []
        for table, mutations in batch.items():

            def check(
                families: frozenset[bytes],
                table: str = table,
                mutations: Sequence[RowMutation] = mutations,
            ) -> list[RowChange]:
                if rules.are_ordinary_puts(mutations, families):
                    with paused_collector():
                        return [_new(RowChange, mutation) for mutation in mutations]
                effects: rules.Effects = {}
                for mutation in mutations:
                    rules.add_effects(effects, table, mutation, families)
                    check_findable(table, mutation.row)
                return _row_changes(effects)

            checked.append((table, self._checked(table, check)))
        durability = FSYNC_WAL if durable else self._durability
        for table, changes in checked:
            if changes:
                with self._forgetting(table):
                    self._client.mutate_many(table, changes, durability=durability)

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
        """Apply `mutation` if the newest version of `column` has the value `expected`.

        Raises:
            StorageUnavailable: also if the answer was lost; then it may have been applied.
        """
        change = self._change_on(Condition(table, row, column, expected), mutation)
        if change is None:
            (cells,) = self.get(table, [row], columns=[column], max_versions=1)
            return (cells[0].value if cells else None) == expected
        with self._forgetting(table):
            return self._client.check_and_mutate(
                table,
                Check(row, *column, expected),
                change,
                durability=FSYNC_WAL if durable else self._durability,
            )

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Change rows, and then look at another one; see `ChecksBehind`.

        Cost: 1 RPC where one server has all the rows, else 1 for each change of servers.
        """
        steps: list[Step] = []
        for table, mutation, condition in changes:
            assert condition is not None, "each change has a condition"
            assert condition.table == table, "which is on its own row"
            change = self._change_on(condition, mutation)
            assert change is not None, "each change changes something"
            guard = Check(condition.row, *condition.column, condition.expected)
            steps.append(Step(table, (change,), guard))
        answers = self._done_in_order([*steps, _look(check)], changes[0].table, [check])
        applied = [was_processed(one[0]) for one in answers[:-1]]
        return applied, _is_held(answers[-1], check)

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Put many cells, and then look at some rows; see `ChecksBehind`.

        Cost: 1 RPC where one server has all the rows, else 1 for each server with cells, all at
        once, and 1 for each change of servers behind them.
        """
        table, (family, qualifier), _, cells = entries
        self._checked(table, lambda known: rules.check_family(table, family, known))
        puts = [
            RowChange(row, (PutCell(family, qualifier, version, value),))
            for row, version, value in cells
        ]
        steps = [Step(table, puts), *map(_look, checks)]
        answers = self._done_in_order(steps, table, checks)
        return [_is_held(answer, check) for answer, check in zip(answers[1:], checks, strict=True)]

    def _done_in_order(
        self, steps: Sequence[Step], table: str, checks: Sequence[Condition]
    ) -> list[list[PartAnswer]]:
        """Do steps one after another, once; whatever goes wrong, any of it may have been done."""
        self._check_open()
        try:
            return self._client.in_order(
                steps,
                patience_s=min(PATIENCE_S, self._address.timeout_s),
                durability=self._durability,
            )
        except (CallFailed, OmidError) as error:
            if isinstance(error, NoSuchTable | NoSuchFamily):
                self._families.pop(table, None)
            places = ", ".join(repr(check.table) for check in checks)
            raise StorageUnavailable(
                f"a change and a look behind it, in {table!r} and {places} of {self.url}: {error}; "
                "whether it was applied is not known",
                retryable=True,
            ) from error

    def _change_on(self, condition: Condition, mutation: RowMutation) -> RowChange | None:
        """Return what applies `mutation` if a condition holds; None if it does nothing."""
        table, row, _, _ = condition
        rules.check_same_row(row, mutation)

        def check(families: frozenset[bytes]) -> rules.Effects:
            effects: rules.Effects = {}
            rules.add_effects(effects, table, mutation, families)
            rules.check_condition(condition, families)
            check_findable(table, row)
            return effects

        changes = _row_changes(self._checked(table, check))
        return changes[0] if changes else None

    def write_guarded(
        self,
        mutations: Sequence[GuardedMutation | Entries | CellGroup],
        *,
        guard: Condition | None = None,
        durable: bool = False,
    ) -> list[bool] | None:
        """Refuse: HBase has no transactions over many rows."""
        del mutations, guard, durable
        raise UsageError(
            f"{self.url} has no guarded batches: HBase changes one row at a time atomically; use "
            "check_and_mutate for each row"
        )

    # -- life -------------------------------------------------------------------------------------

    def lock(self, name: str, *, purpose: str) -> ProcessLock:
        """Refuse: HBase has no locks that die with their process."""
        raise UsageError(
            f"{self.url} has no lock {name!r} for {purpose!r}: HBase does not notice when a client "
            "dies; use a lease"
        )


def _row_changes(effects: rules.Effects) -> list[RowChange]:
    """Gather what a batch leaves behind, by row; each cell appears once."""
    rows: dict[bytes, tuple[list[PutCell], list[DeleteCell]]] = {}
    for (row, family, qualifier, version), value in effects.items():
        found = rows.get(row)
        if found is None:
            found = rows[row] = ([], [])
        if value is None:
            found[1].append(DeleteCell(family, qualifier, version, DELETE_VERSION))
        else:
            found[0].append(PutCell(family, qualifier, version, value))
    return [RowChange(row, puts, deletes) for row, (puts, deletes) in rows.items()]


def _look(check: Condition) -> Step:
    selection = Selection([(check.column[0], check.column[1])], max_versions=_NEWEST)
    return Step(check.table, (Get(check.row, selection),))


def _is_held(answers: Sequence[PartAnswer], check: Condition) -> bool:
    """Say whether what a look found is what was expected."""
    (answer,) = answers
    found = answer.found(0)
    return (found.cells[0].value if found.cells else None) == check.expected
