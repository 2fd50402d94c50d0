"""Tables and regions, as an administrator changes them: calls to the master, and to servers.

A change is a procedure of the master's, which is waited for.  It carries numbers by which the
master knows a repeated request, so that a lost answer is asked for again and nothing is done twice.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from omidpy.base.timing.pauses import pause_after
from omidpy.errors import NoSuchTable, OmidError, StorageUnavailable, UsageError
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.calling.recognition import Recognition
from omidpy.storage.hbase.native.connections.pool import until
from omidpy.storage.hbase.native.faults import CallFailed, Fault
from omidpy.storage.hbase.native.translate import NAME_A_SNAPSHOT
from omidpy.storage.hbase.native.values import (
    FamilyDescriptor,
    Region,
    ServerName,
    TableDescriptor,
)
from omidpy.storage.hbase.native.wire import schema, snapshots, status
from omidpy.storage.hbase.native.wire.schema import Nonces
from omidpy.storage.hbase.native.wire.snapshots import TableSnapshot
from omidpy.storage.hbase.native.wire.status import ServerLoad

PROCEDURE_S: Final = 300.0
"""How long a procedure of the master's is waited for."""
_MOST_NUMBER: Final = 2**63 - 1
_DELETIONS: Final = 3
"""How often a snapshot is asked to be removed whose answers are lost."""
_FIRST_LOOK_S: Final = 0.02
_LONGEST_LOOK_S: Final = 0.5

T = TypeVar("T")

_random: Final = random.SystemRandom()


class _LeftAsItIsError(Exception):
    """There is nothing to change, or not any more."""


class Admin:
    """An administrator of one HBase.  Safe to share among threads."""

    def __init__(self, calls: Calls, *, pause: Callable[[float], object] = time.sleep) -> None:
        """Call through `calls`."""
        self._calls = calls
        self._pause = pause

    # -- what is there -----------------------------------------------------------------------------

    def descriptor(self, table: str) -> TableDescriptor:
        """Return what a table is.

        Raises:
            NoSuchTable: it is not there.
        """
        found = self._ask(
            "GetTableDescriptors",
            schema.descriptors_request((table,), with_system_tables=True),
            schema.read_descriptors,
            table,
        )
        if not found:
            self._calls.locations.forget_table(table)
            raise NoSuchTable(
                f"there is no table {table!r} at {self._calls.address.url}; create it, or check "
                "the name"
            )
        return found[0]

    def descriptors(self) -> list[TableDescriptor]:
        """Return what every table is but HBase's own."""
        return self._ask(
            "GetTableDescriptors", schema.descriptors_request(), schema.read_descriptors, None
        )

    def state(self, table: str) -> str:
        """Return the state of a table: enabled, disabled, disabling or enabling."""
        return self._ask("GetTableState", schema.state_request(table), schema.read_state, table)

    def regions(self, table: str) -> list[Region]:
        """Return the regions of a table as the catalogue has them now, in order."""
        calls = self._calls
        attempts = None
        while True:
            try:
                until_s = until(calls.address.timeout_s)
                return calls.locations.all(table, until_s=until_s)
            except (CallFailed, OmidError) as error:
                attempts = attempts or calls.attempts("list of regions", table, is_repeatable=True)
                attempts.pause_or_raise(error)

    # -- tables ------------------------------------------------------------------------------------

    def create(self, descriptor: TableDescriptor, splits: Sequence[bytes] = ()) -> None:
        """Create a table whose regions meet at `splits`."""
        request = schema.create_request(descriptor, sorted(splits), _new_nonces())
        self._change("CreateTable", request, descriptor.table)
        self._calls.locations.forget_table(descriptor.table)

    def drop(self, table: str) -> None:
        """Remove a table that is disabled."""
        self._change("DeleteTable", schema.table_request(table, _new_nonces()), table)
        self._calls.locations.forget_table(table)

    def truncate(self, table: str, *, keeps_splits: bool) -> None:
        """Remove all cells of a table that is disabled, and enable it."""
        request = schema.truncate_request(table, _new_nonces(), keeps_splits=keeps_splits)
        self._change("truncateTable", request, table)
        self._calls.locations.forget_table(table)

    def enable(self, table: str) -> None:
        """Let the regions of a disabled table be opened; returns once they are."""
        self._change("EnableTable", schema.table_request(table, _new_nonces()), table)

    def disable(self, table: str) -> None:
        """Close the regions of a table, which a change of it asks for; returns once they are."""
        self._change("DisableTable", schema.table_request(table, _new_nonces()), table)
        self._calls.locations.forget_table(table)

    def modify(
        self, table: str, change: Callable[[TableDescriptor], TableDescriptor | None]
    ) -> None:
        """Make a table what `change` makes of what it is; None: leave it as it is.

        HBase takes a whole table and compares nothing.  A call that is made again, as behind a
        master that has failed, may come long after the look; what others have changed meanwhile
        would go, with all cells of a family that they have added.  So each begins with a look.

        Cost: 1 look and 1 call, and the looks at how far it is.
        """
        self._remake("ModifyTable", table, change, schema.modify_request)

    def modify_family(
        self, table: str, change: Callable[[TableDescriptor], FamilyDescriptor | None]
    ) -> None:
        """Make a family of a table what `change` makes of what the table is; as `modify`."""
        self._remake(
            "ModifyColumn",
            table,
            change,
            lambda made, nonces: schema.modify_family_request(table, made, nonces),
        )

    def _remake(
        self,
        method: str,
        table: str,
        change: Callable[[TableDescriptor], T | None],
        request: Callable[[T, Nonces], bytes],
    ) -> None:
        nonces = _new_nonces()

        def body() -> bytes:
            made = change(self.descriptor(table))
            if made is None:
                raise _LeftAsItIsError
            return request(made, nonces)

        with contextlib.suppress(_LeftAsItIsError):
            self._change(method, body, table)

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self, name: str, table: str, *, flushes: bool = True) -> None:
        """Keep a table as it is under a name; ends when it is kept.

        Args:
            name: Of the snapshot, which no other one may have.
            table: The table, enabled or not.
            flushes: Write what servers have in memory to files first; else it is not in it.

        Errors: as of a change of a table; UsageError, there is a snapshot of that name.  Where the
        first answer was lost HBase 2.5, which does not know a repeated call, may say so of this
        one, or that one is being made.
        """
        self.descriptor(table)  # HBase would say that a snapshot cannot be made
        request = snapshots.snapshot_request(name, table, _new_nonces(), flushes=flushes)
        number = self._ask("Snapshot", request, snapshots.read_begun, table, Recognition())
        if number is not None:
            self._await_procedure("Snapshot", table, number)
            return
        asked = snapshots.snapshot_named(name, table)
        self._await(
            lambda: self._ask("IsSnapshotDone", asked, snapshots.read_is_done, table),
            f"the snapshot {name!r} of table {table!r}",
            "see `list_snapshots` in the `hbase shell`",
        )

    def snapshots(self) -> list[TableSnapshot]:
        """Return the snapshots of all tables, by name."""
        found = self._ask("GetCompletedSnapshots", b"", snapshots.read_snapshots, None)
        return sorted(found)

    def delete_snapshot(self, name: str) -> None:
        """Remove a snapshot; files that nothing else needs go some time later.

        The call knows no numbers.  So the snapshot is looked at before each one: where an answer
        was lost, one that is gone was removed, and another one that has its name by then stays.

        Errors: UsageError, there is none of that name.
        """
        seen = self._snapshots_of(name)
        if not seen:
            raise UsageError(
                f"there is no snapshot {name!r} at {self._calls.address.url}; {NAME_A_SNAPSHOT}"
            )
        for left in reversed(range(_DELETIONS)):
            recognition = Recognition()
            try:
                self._calls.at_master(
                    "DeleteSnapshot",
                    snapshots.snapshot_named(name),
                    bytes,
                    what="DeleteSnapshot",
                    table=None,
                    is_repeatable=False,
                    recognition=recognition,
                )
            except StorageUnavailable:
                if not (left and recognition.is_unanswered):
                    raise
            else:
                return
            if self._snapshots_of(name) != seen:
                return

    def _snapshots_of(self, name: str) -> list[TableSnapshot]:
        return [one for one in self.snapshots() if one.name == name]

    # -- regions -----------------------------------------------------------------------------------

    def split(self, region: Region, at: bytes) -> None:
        """Split a region.

        Errors: StorageUnavailable, with HBase's "NOT splittable", while it still holds references
        into the files of the region that it was split from, until a compaction; or while it moves.
        """
        self._change("SplitRegion", schema.split_request(region, at, _new_nonces()), region.table)

    def merge(self, regions: Sequence[Region]) -> None:
        """Make one region of some that lie side by side.

        Errors: StorageUnavailable, with HBase's own words, while one of them still holds references
        into the files of a region that it was split from, until a compaction; or while it moves.
        """
        request = schema.merge_request(regions, _new_nonces())
        self._change("MergeTableRegions", request, regions[0].table)
        for region in regions:
            self._calls.locations.forget(region)

    def balance(self, *, is_on: bool) -> bool:
        """Let the master move regions of itself, or not; return whether it did so before."""
        request = schema.balance_request(is_on=is_on)
        return self._ask("SetBalancerRunning", request, schema.read_balance, None)

    def version(self) -> str:
        """Return which release of HBase the master is, such as `2.6.4`; empty if it is not told."""
        return self._ask("GetClusterStatus", status.version_request(), status.read_version, None)

    def loads(self) -> dict[ServerName, ServerLoad]:
        """Return what each region server has to do, as it last told the master."""
        return self._ask("GetClusterStatus", status.loads_request(), status.read_loads, None)

    def move(self, region: Region, to: ServerName | None = None) -> None:
        """Move a region to a server, or to one that the master chooses; ends when it has moved."""
        self._calls.at_master(
            "MoveRegion",
            schema.move_request(region, to),
            bytes,
            what="move of a region",
            table=region.table,
            is_repeatable=True,
        )

    def flush(self, table: str) -> None:
        """Write what a table has in memory to files."""
        for region in self.regions(table):
            self._at_region(region, "FlushRegion", schema.flush_request)

    def compact(self, table: str, *, is_major: bool) -> None:
        """Ask for a compaction of every region of a table; it is not waited for."""
        request = partial(schema.compact_request, is_major=is_major)
        for region in self.regions(table):
            self._at_region(region, "CompactRegion", request)

    def _at_region(self, region: Region, method: str, request: Callable[[Region], bytes]) -> None:
        """Make a call where a region is, or by now what has its first row."""
        calls = self._calls
        attempts = calls.attempts(method, region.table, is_repeatable=True)
        while True:
            try:
                calls.at_server(region, method, request(region))
                return
            except (CallFailed, OmidError) as error:
                calls.after_failure(attempts, region.table, region, error)
            with contextlib.suppress(CallFailed, OmidError):  # which the next attempt meets, too
                until_s = until(calls.address.timeout_s)
                region = calls.locations.look_anew(region, until_s=until_s) or region

    # -- procedures --------------------------------------------------------------------------------

    def _ask(
        self,
        method: str,
        request: bytes | Callable[[], bytes],
        read: Callable[[bytes], T],
        table: str | None,
        recognition: Recognition | None = None,
    ) -> T:
        return self._calls.at_master(
            method,
            request,
            read,
            what=method,
            table=table,
            is_repeatable=True,
            recognition=recognition,
        )

    def _change(self, method: str, request: bytes | Callable[[], bytes], table: str) -> None:
        """Make the master do something, and wait until it is done."""
        number = self._ask(method, request, schema.read_procedure_id, table, Recognition())
        if number is not None and number <= _MOST_NUMBER:  # else there was nothing to do
            self._await_procedure(method, table, number)

    def _await_procedure(self, method: str, table: str, number: int) -> None:
        def has_ended() -> bool:
            state, fault = self._ask(
                "getProcedureResult", schema.procedure_request(number), schema.read_procedure, table
            )
            if fault is not None:
                self._fail(method, table, fault)
            if state == schema.NOT_FOUND:
                # It ended so long ago that the master has forgotten how.
                raise StorageUnavailable(
                    f"{method} of table {table!r} at {self._calls.address.url} has ended, and the "
                    f"master has forgotten how (procedure {number}); whether it was applied is not "
                    "known: look at the table"
                )
            return state != schema.RUNNING

        self._await(
            has_ended,
            f"{method} of table {table!r}",
            f"see procedure {number} (`list_procedures` in the `hbase shell`)",
        )

    def _await(self, has_ended: Callable[[], bool], what: str, look: str) -> None:
        deadline_s = time.monotonic() + PROCEDURE_S
        looks = 0
        while not has_ended():
            if time.monotonic() > deadline_s:
                raise StorageUnavailable(
                    f"{what} at {self._calls.address.url} has not ended within {PROCEDURE_S:g} s "
                    f"and goes on; {look}"
                )
            looks += 1
            self._pause(pause_after(looks, _FIRST_LOOK_S, _LONGEST_LOOK_S, at_least=0.5))

    def _fail(self, method: str, table: str, fault: Fault) -> None:
        attempts = self._calls.attempts(method, table, is_repeatable=True)
        attempts.give_up(fault)


def _new_nonces() -> Nonces:
    return Nonces(_random.randrange(1, 2**63), _random.randrange(1, 2**63))
