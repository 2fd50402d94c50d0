"""A store on HBase through its Thrift2 gateway: `hbase+thrift2://host:port,...`.

Every call is one or a few RPCs of a pool of connections (`pool.py`), which also repeats what may
be repeated.  Reads may, and so may `write`: each put and delete names its version, so that doing it
twice is doing it once.  `check_and_mutate` and changes of tables may not; when their answer is
lost, `StorageUnavailable` says that the outcome is not known.

Lacks what the gateway lacks: transactions over many rows (`guarded_batches`), locks that die with
their process, splits and merges of regions.

How it reads is in `reads.py`.

Durability: HBase acknowledges a write when it is in the memory of every replica of its log
(`SYNC_WAL`).  With `durable`, or for every write with `?durability=fsync`, it is on their disks
(`FSYNC_WAL`).  Region servers have a log each, so on HBase a durable write says nothing about
earlier writes to other rows: who fears the loss of power to all replicas at once needs
`?durability=fsync`.

HBase's delete markers: a `DeleteVersion` hides a later put at the same version until a major
compaction.  Nothing here prevents that; who writes must not return to a version once deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from omidpy.errors import (
    NoSuchFamily,
    NoSuchTable,
    OmidError,
    StorageUnavailable,
    UsageError,
)
from omidpy.model import (
    Cell,
    Column,
    TableSchema,
)
from omidpy.storage import rules
from omidpy.storage.base import (
    Capabilities,
    CellGroup,
    Condition,
    Entries,
    GuardedMutation,
    ProcessLock,
    RowMutation,
)
from omidpy.storage.hbase import described, identity, states
from omidpy.storage.hbase.addresses.gateways import FRAMED_BATCH_BYTES, HBaseAddress, parse_address
from omidpy.storage.hbase.dropping import OneTable, drop_if
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.keys import check_findable
from omidpy.storage.hbase.rpc.gateway import SILENCE_S, Unanswered
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.thrift2 import convert
from omidpy.storage.hbase.thrift2 import schema as schemas
from omidpy.storage.hbase.thrift2.joined import JoinedPuts
from omidpy.storage.hbase.thrift2.reads import Thrift2Reads

WRITE_BATCH_ROWS: Final = 1000
"""Rows that one RPC writes."""
WRITE_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one RPC writes, unless one row has more; see also `FRAMED_BATCH_BYTES`."""

_EQUAL: Final = 2


class Thrift2Store(Thrift2Reads):
    """A store on HBase.  Safe to share among threads, and after a fork."""

    def __init__(self, address: HBaseAddress | str, *, pool: GatewayPool | None = None) -> None:
        """Open the store without calling it yet.

        Args:
            address: `hbase+thrift2://host:port,...`.
            pool: Connections to its gateways; the store closes them.  None makes a pool.

        Raises:
            ConfigError: the address does not fit.
        """
        if isinstance(address, str):
            address = parse_address(address)
        super().__init__(address, GatewayPool(address) if pool is None else pool)
        self._durability = convert.FSYNC_WAL if address.durability == "fsync" else None
        self._store_id: str | None = None
        self._joined = JoinedPuts(self._put)

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
        """What HBase can do, seen through this gateway."""
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
        rules.check_schema(schema, splits)
        rules.check_alone(self.url, beside)
        self._change(
            schema.name, "createTable", schemas.table_descriptor(schema), sorted(splits) or None
        )
        described.record(self, schema)
        return True

    def drop_table(self, table: str, *, only: Mapping[str, str] | None = None) -> bool:
        """Disable and remove a table; a second attempt goes on where the first one ended."""
        return self.drop_table_if(table, only=only, still=lambda: True)

    def drop_table_if(
        self, table: str, *, only: Mapping[str, str] | None, still: Callable[[], bool]
    ) -> bool:
        """Remove a table as `drop_table` does, if that is wanted still; see `RestoresTables`."""
        name = schemas.table_name(table)
        one = OneTable(
            is_meant=lambda: rules.has(self.schema(table).attributes, only),
            is_enabled=lambda: bool(self._read(table, "isTableEnabled", name)),
            disable=lambda: self._change(table, "disableTable", name),
            enable=lambda: self._change(table, "enableTable", name),
            drop=lambda: self._change(table, "deleteTable", name),
        )
        if not drop_if(one, looks_again=bool(only), still=still):
            return False
        self._families.pop(table, None)
        described.forget(self, table)
        return True

    def schema(self, table: str) -> TableSchema:
        """Return a table's families and attributes."""
        return schemas.table_schema(self._described(table))

    def tables(self) -> list[TableSchema]:
        """List every table of every namespace but HBase's own, by name."""
        descriptors = self._read(None, "getTableDescriptorsByPattern", ".*", False)
        return sorted(map(schemas.table_schema, descriptors), key=lambda schema: schema.name)

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Set attributes of a table; None removes one.

        The gateway changes a table whatever it is by then, so `only` holds when it is looked at,
        which is right before.
        """
        rules.check_attributes(attributes)
        before = self._described(table)
        if not rules.has(schemas.table_schema(before).attributes, only):
            return False
        descriptor = schemas.changed_table(before, attributes)
        if descriptor is not None:
            self._change(table, "modifyTable", descriptor)
        described.record(self, self.schema(table))
        return True

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Set attributes of a family; None removes one."""
        rules.check_attributes(attributes)
        columns = {column.name: column for column in self._described(table).columns or ()}
        rules.check_family(table, family, columns)
        changed = schemas.changed_family(columns[family], attributes)
        if changed is not None:
            self._change(table, "modifyColumnFamily", schemas.table_name(table), changed)
        described.record(self, self.schema(table))

    def table_states(self, tables: Sequence[str]) -> dict[str, int]:
        """Return the states of some tables; see `RestoresTables` and `states.py`."""
        return {cell.row.decode(): cell.version for cell in self._states_of(tables)}

    def closed_tables(self, tables: Sequence[str]) -> dict[str, str]:
        """Return those that are disabled; see `ClosesTables` and `states.py`."""
        return states.closed(self._states_of(tables))

    def _states_of(self, tables: Sequence[str]) -> list[Cell]:
        rows = [table.encode() for table in tables]
        found = self.get(states.CATALOGUE, rows, columns=(states.STATE,), max_versions=1)
        return [cells[0] for cells in found if cells]

    def hidden_tables(self, listed: Collection[str]) -> dict[str, str]:
        """Return the tables that the gateway's user may not look at; see `HidesTables`."""
        pages = self.scan(states.CATALOGUE, columns=(states.STATE,), max_versions=1)
        return states.hidden(pages, listed, self.schema)

    def split_region(self, table: str, at: bytes) -> None:
        """Refuse: the gateway cannot."""
        self._described(table)
        raise UsageError(
            f"the Thrift2 gateway cannot split a region of {table!r} at {at!r}; use "
            f"`split '{table}', ...` in the HBase shell, or create the table with splits"
        )

    def merge_regions(self, table: str, at: bytes) -> None:
        """Refuse: the gateway cannot."""
        self._described(table)
        raise UsageError(
            f"the Thrift2 gateway cannot merge the regions of {table!r} that meet at {at!r}; use "
            "`merge_region` in the HBase shell"
        )

    # -- writes -----------------------------------------------------------------------------------

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Apply row mutations; see `Store`.

        All of a batch's mutations of one row are applied as one.

        Cost: 1 RPC per table and `WRITE_BATCH_ROWS` rows that only put, the same for those that
        only delete, and 1 for each row that does both.  A lone row goes by the call for one, which
        takes 0.20 ms where a batch of one takes 0.31.  Small puts of threads share calls, unless
        they are to be durable.
        """
        self._check_open()
        checked = []
        for table, mutations in batch.items():

            def check(
                families: frozenset[bytes],
                table: str = table,
                mutations: Sequence[RowMutation] = mutations,
            ) -> rules.Effects:
                effects: rules.Effects = {}
                for mutation in mutations:
                    rules.add_effects(effects, table, mutation, families)
                    check_findable(table, mutation.row)
                return effects

            checked.append((table, self._checked(table, check)))
        for table, effects in checked:
            self._write_rows(table, convert.row_writes(effects), durable=durable)

    def _write_rows(self, table: str, writes: list[convert.RowWrite], *, durable: bool) -> None:
        durability = convert.FSYNC_WAL if durable else self._durability
        name = table.encode()
        puts = [write for write in writes if not write.deletes]
        # A shared call that was given up may arrive after its writers went on.  To a transaction's
        # cells that does no harm; a fact is durable, and written again at the version that it has.
        if not durable and self._joined.takes(puts):
            self._joined.write(table, [write.put(durability) for write in puts])
        else:
            for batch in self._batches(puts):
                self._put(table, [write.put(durability) for write in batch])
        deletes = [write for write in writes if not write.puts]
        for batch in self._batches(deletes):
            operations = [write.delete(durability) for write in batch]
            if len(operations) == 1:
                self._repeatable(table, "deleteSingle", name, operations[0])
                continue
            failed = self._repeatable(table, "deleteMultiple", name, operations)
            if failed:
                raise StorageUnavailable(
                    f"{self.url} deleted only part of a batch of table {table!r}: {len(failed)} of "
                    f"{len(batch)} rows failed, the first is {failed[0].row!r}; delete them again"
                )
        for write in writes:
            if write.puts and write.deletes:
                self._repeatable(table, "mutateRow", name, write.mutations(durability))

    def _put(self, table: str, puts: Sequence[Any], *, patience_s: float | None = None) -> None:
        """Send puts in one call; with `patience_s` once, and no longer than that."""
        method, argument = ("put", puts[0]) if len(puts) == 1 else ("putMultiple", puts)
        self._call(
            table,
            method,
            table.encode(),
            argument,
            is_idempotent=patience_s is None,
            patience_s=patience_s,
        )

    def _batches(self, writes: list[convert.RowWrite]) -> Iterator[list[convert.RowWrite]]:
        max_bytes = WRITE_BATCH_BYTES
        if self._address.transport == "framed":
            max_bytes = min(max_bytes, FRAMED_BATCH_BYTES)
        return convert.batches(writes, max_rows=WRITE_BATCH_ROWS, max_bytes=max_bytes)

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
        call = self._change_on(Condition(table, row, column, expected), mutation, durable=durable)
        if call is None:
            (cells,) = self.get(table, [row], columns=[column], max_versions=1)
            return (cells[0].value if cells else None) == expected
        method, arguments = call
        return bool(self._call(table, method, *arguments, is_idempotent=False))

    def write_then_check(
        self, changes: Sequence[GuardedMutation], check: Condition
    ) -> tuple[list[bool], bool]:
        """Change rows, and then look at another one; see `ChecksBehind`.

        Cost: 1 RPC for each, sent all at once.
        """
        calls: list[tuple[str, Sequence[Any]]] = []
        for table, mutation, condition in changes:
            assert condition is not None, "each change has a condition"
            assert condition.table == table, "which is on its own row"
            call = self._change_on(condition, mutation, durable=False)
            assert call is not None, "each change changes something"
            calls.append(call)
        *applied, is_held = self._call_ahead(changes[0].table, calls, [check])
        return [bool(one) for one in applied], is_held

    def put_then_check(self, entries: Entries, checks: Sequence[Condition]) -> list[bool]:
        """Put many cells, and then look at some rows; see `ChecksBehind`.

        Cost: 1 RPC for each `WRITE_BATCH_ROWS` cells and for each look, sent all at once.
        """
        table, (family, qualifier), _, cells = entries
        self._checked(table, lambda known: rules.check_family(table, family, known))
        name, durability = table.encode(), self._durability
        puts = [
            idl.TPut(row, [idl.TColumnValue(family, qualifier, value, version)], durability)
            for row, version, value in cells
        ]
        calls: list[tuple[str, Sequence[Any]]] = [
            ("putMultiple", (name, puts[first : first + WRITE_BATCH_ROWS]))
            for first in range(0, len(puts), WRITE_BATCH_ROWS)
        ]
        return self._call_ahead(table, calls, checks)[len(calls) :]

    def _call_ahead(
        self, table: str, calls: list[tuple[str, Sequence[Any]]], checks: Sequence[Condition]
    ) -> list[Any]:
        """Make calls that change `table`, look behind them, and return what came of each."""
        looks = []
        for check in checks:
            wanted = idl.TGet(row=check.row, columns=[idl.TColumn(*check.column)], maxVersions=1)
            looks.append(("get", (check.table.encode(), wanted)))
        what, patience_s = "a change and a look behind it", min(SILENCE_S, self._address.timeout_s)
        self._check_open()
        try:
            with self._pool.owned(table=table, what=what, is_patient=False) as client:
                answers = client.call_ahead([*calls, *looks], patience_s=patience_s)
        except (Unanswered, OmidError) as error:
            # Whatever a call was refused for, one before it may have been done.
            if isinstance(error, NoSuchTable | NoSuchFamily):
                self._families.pop(table, None)
            places = ", ".join(repr(check.table) for check in checks)
            why = (
                f"no answer within {patience_s:g} s"
                if isinstance(error, Unanswered)
                else f"{error}"
            )
            raise StorageUnavailable(
                f"{what}, in {table!r} and {places} of {self.url}: {why}; whether it was applied "
                "is not known",
                retryable=True,
            ) from error
        found = map(convert.row_of, answers[len(calls) :])
        held = [
            (cells[0].value if cells else None) == check.expected
            for cells, check in zip(found, checks, strict=True)
        ]
        return [*answers[: len(calls)], *held]

    def _change_on(
        self, condition: Condition, mutation: RowMutation, *, durable: bool
    ) -> tuple[str, Sequence[Any]] | None:
        """Return the call that applies `mutation` if a condition holds; None if it does nothing."""
        table, row, column, expected = condition
        rules.check_same_row(row, mutation)

        def check(families: frozenset[bytes]) -> rules.Effects:
            effects: rules.Effects = {}
            rules.add_effects(effects, table, mutation, families)
            rules.check_condition(condition, families)
            check_findable(table, row)
            return effects

        effects = self._checked(table, check)
        if not effects:
            return None
        (write,) = convert.row_writes(effects)
        durability = convert.FSYNC_WAL if durable else self._durability
        place = (table.encode(), row, column.family, column.qualifier)
        if not write.deletes:
            # The gateway does it in 0.36 ms where `checkAndMutate` takes 0.59 ms, and a lone
            # commit of a transaction waits for it.
            return "checkAndPut", (*place, expected, write.put(durability))
        value = b"" if expected is None else expected
        return "checkAndMutate", (*place, _EQUAL, value, write.mutations(durability))

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
