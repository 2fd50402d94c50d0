"""Operations in a plain table of a store: memory, one file, or HBase, whose gateway checks changes.

The table is not transactional, so that operations go on while the oracle is down.  It is made when
the first operation is kept.

    tx_<16 hex>       an operation (`rows.py`); its guard is `txadmin:v`
    done_<16 hex>     one that is finished
    key_<sha256>      tx:id       the operation that was last submitted under a key
    worker_<id>       tx:beat     a worker's sign of life (`life/members.py`)
    lock_<table>      tx:queue    who holds and wants locks on a table (`locks.py`)
    format            txadmin:v   which form all this has

An operation that ends moves to another row, which the search for work does not read: in one change
where there are guarded batches; elsewhere it ends in its first row, is copied, and removed there,
and a sweep finishes what was begun.  A row of the second kind is written once it is final, so it is
the one that counts where there are both.

A queue for locks goes when no operation is in it, and is made again above what was deleted.

A submission under a key is in two rows, which HBase changes one after the other: the operation is
kept as NEW, the key's row is swapped from what it named to the new id, and only then is the
operation seeded.  Who finds a live operation under the key, NEW or not, seeds it and takes it for
its own; what was kept in vain is removed, or ages off.

A key's row may go when its operation has, and come back.  On HBase a delete hides later writes up
to its version, so each is written one version above the last one seen, and looked at afterwards;
what does not show is written again, higher.

Where the store has guarded batches, threads share them (`joined.py`): one sync for several steps.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from omidpy.base.timing.clock import Clock
from omidpy.errors import (
    ConfigError,
    CorruptCell,
    FateError,
    NoSuchTable,
    StorageUnavailable,
    TableExists,
)
from omidpy.facts.control import MENDED_BY
from omidpy.fate.operation import FateId, Operation, Unreadable, is_id
from omidpy.fate.store import FORMAT, FateStore, brief, is_live
from omidpy.fate.table.joined import JoinedChanges
from omidpy.fate.table.rows import (
    DONE_PREFIX,
    FAMILIES,
    FIRST_VERSION,
    FIXED_VERSION,
    GUARD,
    OPERATION_PREFIX,
    STATUS,
    TX,
    difference,
    done_row_of,
    guard_of,
    guard_value,
    id_of,
    insertion,
    operation_of,
    removal,
    row_of,
    says_finished,
    says_fresh,
)
from omidpy.life.base import Judge
from omidpy.life.members import MemberRows, TableJudge, TableMember
from omidpy.model import Cell, Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import Condition, DeleteVersion, Put, Row, RowMutation, Store

FATE_TABLE: Final = "OMIDPY_FATE"
FORMAT_ROW: Final = b"format"
KEY_PREFIX: Final = b"key_"
LOCK_PREFIX: Final = b"lock_"
KEY_OWNER: Final = Column(TX, b"id")
LOCK_QUEUE: Final = Column(TX, b"queue")

MAX_STEP_BYTES: Final = 1 << 20
"""HBase takes ten times as much; but a listing reads every step."""

_ONE_VERSION: Final = {"VERSIONS": "1"}
_FORMAT_DIGITS: Final = 9

FIRST_LEAP: Final = 1 << 20
"""By how much the version of a key that does not show is raised first; doubled each time."""

MAX_LEAPS: Final = 20
"""How often a key's row is written before that must be told."""


def format_complaint(raw: bytes) -> str:
    """Say why what the format's row holds is no format; empty if it is one."""
    if raw.isdigit() and len(raw) <= _FORMAT_DIGITS and int(raw):
        return ""
    return f"the row {FORMAT_ROW!r} holds {raw[:80]!r}, which is no number of a format"


def has_our_form(store: Store, table: str = FATE_TABLE) -> bool:
    """Say whether this version can read every operation in a table, whatever its format row says.

    Cost: reads all of them.
    """
    for prefix in (OPERATION_PREFIX, DONE_PREFIX):
        for page in store.scan(table, KeyRange.starting_with(prefix), max_versions=1):
            for cells in page:
                try:
                    operation_of(cells, table=table)
                except CorruptCell:
                    return False
    return True


class TableFateStore(FateStore):
    """Keeps operations in a table of `store`, which it does not close."""

    max_step_bytes = MAX_STEP_BYTES

    def __init__(self, store: Store, table: str = FATE_TABLE) -> None:
        """Use the table `table`, made when it is needed.

        Raises:
            ConfigError: the store cannot check a change, or a newer omidpy has written the table.
            CorruptCell: which format the table has cannot be read.
        """
        if not (store.capabilities.checked_changes and store.capabilities.exact_delete):
            raise ConfigError(
                f"{store.url} cannot keep operations: the gateway cannot check a change; open the "
                "store through hbase+thrift2://"
            )
        super().__init__()
        self._store = store
        self._table = table
        self._changes = JoinedChanges(store)
        self._workers = MemberRows(store, table)
        self._queues: dict[str, Cell] = {}
        """As they were seen last.  Threads share it: each use is one step of a dict."""
        self._exists = self._check_format()

    @property
    def url(self) -> str:
        """The store's address and the table."""
        return f"table {self._table} of {self._store.url}"

    @property
    def cells(self) -> Store:
        """The store that has the table."""
        return self._store

    # -- operations ----------------------------------------------------------------------------

    def insert(self, operation: Operation) -> bool:
        """Write a new record; see `FateStore`."""
        self._make_table()
        return self._change(row_of(operation.id), GUARD, None, insertion(operation))

    def swap(self, old: Operation, new: Operation) -> bool:
        """Write what differs; see `FateStore`.

        Cost: 1 checked change; at the beginning, and at the end, 1 get more.
        """
        if new.is_finished and not old.is_finished and not new.stack:
            return not self._is_echo(old) and self._finish(old, new)
        row = row_of(old.id)
        if old.is_finished:
            found = self._find(old.id)
            if not found:
                return False
            row = found[0].row
        is_done = self._change(row, GUARD, guard_value(old), difference(old, new, row))
        # Behind the change: of who stood still before it what he has seen may have ended, and its
        # echo be what he has changed (F1).
        return not self._is_echo(old) and is_done

    def _is_echo(self, old: Operation) -> bool:
        """Say whether what is as it was inserted has ended before, and remove it then."""
        if old.version != FIRST_VERSION or old.is_finished or not self._has_moved(old.id):
            return False
        self._remove_left(old.id)
        return True

    def remove(self, operation: Operation) -> bool:
        """Remove the record and its key's mark; see `FateStore`."""
        cells = self._find(operation.id)
        if not cells:
            return False
        if cells[0].row == done_row_of(operation.id):
            # The first row goes first: alone, it would speak for the operation again.
            self._remove_left(operation.id)
        if not self._change(cells[0].row, GUARD, guard_value(operation), removal(cells)):
            return False
        if operation.key is not None:
            owner = self._key_owner(_key_row(operation.key))
            if owner is not None and _owner_id(owner) == operation.id:
                self._forget_key(owner)
        return True

    def remove_unreadable(self, operation_id: FateId) -> bool:
        """Remove a record that cannot be read, and its key's mark; see `FateStore`."""
        cells = self._find(operation_id)
        if not cells:
            return False
        try:
            operation_of(cells, table=self._table)
        except CorruptCell:
            pass
        else:
            return False
        if not self._change(cells[0].row, GUARD, guard_of(cells), removal(cells)):
            return False
        # The cell that names its key may be what cannot be read.
        for owner in self._key_owners():
            if _owner_id(owner) == operation_id:
                self._forget_key(owner)
        return True

    def read(self, operation_id: FateId) -> Operation | None:
        """Return an operation; see `FateStore`.  Cost: 1 get; 2 if it is finished."""
        cells = self._find(operation_id)
        return operation_of(cells, table=self._table) if cells else None

    def scan_live(self, *, but: Collection[FateId] = ()) -> Iterator[Operation | Unreadable]:
        """Yield what is not finished; see `FateStore`.

        Cost: 1 RPC a page, and 1 get for those together that nobody has begun yet.
        """
        fresh: list[Operation] = []
        for one in self._scan(OPERATION_PREFIX, but):
            if isinstance(one, Operation) and one.version == FIRST_VERSION:
                fresh.append(one)
            else:
                yield one
        # The echo of a finished one (`_remove_left`) would be run again, and keep its locks.
        moved = self._get([done_row_of(one.id) for one in fresh]) if fresh else []
        yield from (one for one, cells in zip(fresh, moved, strict=True) if not cells)

    def scan_finished(self) -> Iterator[Operation | Unreadable]:
        """Yield what is finished; see `FateStore`.  Cost: 1 RPC a page."""
        return self._scan(DONE_PREFIX, ())

    def archive(self, operation: Operation) -> bool:
        """Move what is finished; see `FateStore`.

        Where rows change one by one it is in both for a moment, and the new row counts.
        """
        self._make_table()
        (cells,) = self._get([row_of(operation.id)])
        if self._changes.joins:
            return bool(cells) and self._move(operation, operation, cells)
        # What others have written since would be lost (F1): the new row counts from here on.
        if not cells or guard_of(cells) != guard_value(operation):
            return False
        row = done_row_of(operation.id)
        self._change(row, GUARD, None, insertion(operation, row))
        return self._remove_left(operation.id)

    def _finish(self, old: Operation, new: Operation) -> bool:
        """Write the end of an operation, and move it."""
        if self._changes.joins:
            (cells,) = self._get([row_of(old.id)])
            return bool(cells) and self._move(old, new, cells)
        if not self._change(row_of(old.id), GUARD, guard_value(old), difference(old, new)):
            return False
        with contextlib.suppress(StorageUnavailable):  # a sweep moves it, then
            self.archive(new)
        return True

    def _move(self, old: Operation, new: Operation, cells: Sequence[Cell]) -> bool:
        """Write `new` to the other row and remove the first one, in one, if that is still `old`."""
        condition = Condition(self._table, row_of(old.id), GUARD, guard_value(old))
        there = insertion(new, done_row_of(new.id))
        return self._changes.change(condition, removal(cells), before=there)

    def _remove_left(self, operation_id: FateId) -> bool:
        """Remove the first row of an operation that is finished, and written in the other one.

        It may be as it was inserted: a write of its submitter that was held up for so long, or that
        he repeats since the first one had no answer, finds the row gone, and makes it again.
        """
        (cells,) = self._get([row_of(operation_id)])
        if not cells:
            return False
        return self._change(cells[0].row, GUARD, guard_of(cells), removal(cells))

    def _has_moved(self, operation_id: FateId) -> bool:
        """Say whether an operation has ended, whatever its first row says."""
        return bool(self._get([done_row_of(operation_id)])[0])

    def _find(self, operation_id: FateId) -> Row:
        """Return the row of an operation; empty if there is none."""
        (cells,) = self._get([row_of(operation_id)])
        if cells and not (says_finished(cells) or says_fresh(cells)):
            return cells
        # Behind the look at the first row: it is written there before it goes here.  One that is as
        # it was inserted may be the echo of a finished one (`_remove_left`).
        (moved,) = self._get([done_row_of(operation_id)])
        return moved or cells

    def _scan(self, prefix: bytes, but: Collection[FateId]) -> Iterator[Operation | Unreadable]:
        for cells in self._rows(prefix):
            if id_of(cells[0].row) in but:
                continue
            try:
                yield operation_of(cells, table=self._table)
            except CorruptCell as error:
                yield Unreadable(id_of(cells[0].row), str(error))

    # -- keys ----------------------------------------------------------------------------------

    def claim_key(self, operation: Operation) -> Operation:
        """Insert a NEW record under its key; see `FateStore`."""
        assert operation.key is not None, "only what has a key claims one"
        row = _key_row(operation.key)
        owner = self._key_owner(row)
        if (live := self._live(owner, operation.key)) is not None:
            return live
        self.insert_settled(operation)
        for leap in range(MAX_LEAPS):
            owner = self._key_owner(row)
            # Behind the insertion: a claimant that finds this operation in the row finds its record
            # too, and does not take the key for free (F5).
            if owner is not None and _owner_id(owner) == operation.id:
                return operation
            if (live := self._live(owner, operation.key, but=operation.id)) is not None:
                self.delete(operation)
                return live
            self._take_key(row, owner, operation, leap)
        raise FateError(
            f"operation {operation.id} could not be entered under its key {operation.key}, "
            f"because row {row!r} of {self.url} changes all the time; submit it again"
        )

    def _take_key(self, row: bytes, owner: Cell | None, operation: Operation, leap: int) -> None:
        """Write a key's row once; whether that shows is for the caller to see."""
        if owner is not None and not owner.value:
            # Garbled, and what is empty cannot be compared: so it gets something to compare first.
            # Random, so that of two that do so at once one finds another mark than its own.
            mark = Put(*KEY_OWNER, owner.version, b"?" + uuid.uuid4().hex.encode())
            self._store.write({self._table: [RowMutation(row, (mark,))]}, durable=True)
            return
        deletes: tuple[DeleteVersion, ...] = ()
        version = operation.created_ms + (0 if leap == 0 else FIRST_LEAP << leap)
        if owner is not None:
            version = owner.version + 1
            deletes = (DeleteVersion(*KEY_OWNER, owner.version),)
        put = Put(*KEY_OWNER, version, operation.id.encode())
        expected = None if owner is None else owner.value
        try:
            self._change(row, KEY_OWNER, expected, RowMutation(row, (put,), deletes))
        except StorageUnavailable:
            if not brief(leap + 1):
                raise

    def _live(self, owner: Cell | None, key: str, *, but: FateId | None = None) -> Operation | None:
        """Return the operation that a key's row names if that keeps the key from others.

        Where the row names none, which no executor writes, or one that has another key, the
        operations say for themselves which keys they have.
        """
        if owner is None:
            return None
        if is_id(_owner_id(owner)):
            found = self.read(_owner_id(owner))
            if found is None or found.key == key:
                return found if is_live(found) else None
        others = (one for one in self.live_in_order() if one.key == key and one.id != but)
        return next(filter(is_live, others), None)

    def _key_owner(self, row: bytes) -> Cell | None:
        (cells,) = self._get([row], columns=[KEY_OWNER])
        return cells[0] if cells else None

    def _key_owners(self) -> list[Cell]:
        return [cells[0] for cells in self._rows(KEY_PREFIX, columns=[KEY_OWNER])]

    def _forget_key(self, owner: Cell) -> None:
        delete = DeleteVersion(*KEY_OWNER, owner.version)
        self._change(owner.row, KEY_OWNER, owner.value, RowMutation(owner.row, deletes=(delete,)))

    # -- locks ---------------------------------------------------------------------------------

    def read_lock_queue(self, table: str) -> bytes | None:
        """Return a table's queue; see `FateStore`.  Cost: 1 get."""
        (cells,) = self._get([LOCK_PREFIX + table.encode()], columns=[LOCK_QUEUE])
        if not cells:
            self._queues.pop(table, None)
            return None
        self._queues[table] = cells[0]
        return cells[0].value

    def swap_lock_queue(self, table: str, old: bytes | None, new: bytes | None) -> bool:
        """Replace a table's queue; see `FateStore`.  Cost: 1 checked change; a new one 1 get more.

        It stays at the version at which it was made.
        """
        self._make_table()
        row = LOCK_PREFIX + table.encode()
        if old is None:
            assert new is not None, "there is nothing to remove"
            return self._make_queue(row, new)
        known = self._queues.get(table)
        if known is None or known.value != old:
            # The version is what is missing: the condition below is on the value, as asked.
            self.read_lock_queue(table)
            known = self._queues.get(table)
            if known is None or known.value != old:
                return False
        mutation = RowMutation(row, deletes=(DeleteVersion(*LOCK_QUEUE, known.version),))
        if new is None:
            self._queues.pop(table, None)  # there may be a new name with each operation
        else:
            mutation = RowMutation(row, (Put(*LOCK_QUEUE, known.version, new),))
        return self._change(row, LOCK_QUEUE, old, mutation)

    def _make_queue(self, row: bytes, queue: bytes) -> bool:
        """Write a queue where there is none, above whatever was deleted there."""
        made_ms = time.time_ns() // 1_000_000
        for leap in range(MAX_LEAPS):
            version = made_ms + (0 if leap == 0 else FIRST_LEAP << leap)
            put = Put(*LOCK_QUEUE, version, queue)
            if not self._change(row, LOCK_QUEUE, None, RowMutation(row, (put,))):
                return False
            (cells,) = self._get([row], columns=[LOCK_QUEUE])
            if cells:
                return cells[0].value == queue
        raise FateError(f"row {row!r} of {self.url} does not show what is written there; try again")

    def lock_queues(self) -> Iterator[tuple[str, bytes]]:
        """Yield every queue; see `FateStore`."""
        for cells in self._rows(LOCK_PREFIX, columns=[LOCK_QUEUE]):
            table = cells[0].row.removeprefix(LOCK_PREFIX).decode(errors="replace")
            yield table, cells[0].value

    # -- workers -------------------------------------------------------------------------------

    def new_worker(self, *, lease_s: float, clock: Clock) -> TableMember:
        """Register a worker; see `FateStore`."""
        self._make_table()
        return TableMember(self._workers, lease_s=lease_s, clock=clock)

    def new_judge(self, clock: Clock) -> TableJudge:
        """Return a judge; see `FateStore`."""
        return TableJudge(self._workers, clock)

    def worker_names(self) -> dict[str, str]:
        """Say where each worker runs; see `FateStore`."""
        return self._workers.names()

    def sweep(self, judge: Judge) -> None:
        """Remove rows of keys and workers that nothing refers to; see `FateStore`."""
        # Keys first: a key that was there then named an operation that was there before.
        owners = self._key_owners()
        there = {
            cells[0].row
            for cells in self._rows(OPERATION_PREFIX, columns=[STATUS])
            if not says_finished(cells)
        }
        for row in there:
            if self._has_moved(id_of(row)):
                self._remove_left(id_of(row))
        for owner in owners:  # one that is finished keeps its key from no other
            # Nor is one that names no operation removed: it tells the next one to look for itself.
            if is_id(_owner_id(owner)) and row_of(_owner_id(owner)) not in there:
                self._forget_key(owner)
        signs = self._workers.read_all()
        for worker in judge.dead(signs):
            if worker in signs:
                self._workers.forget(worker, signs[worker])

    def close(self) -> None:
        """Do nothing: the store is its owner's."""

    # -- the table -----------------------------------------------------------------------------

    def _check_format(self) -> bool:
        """Say whether the table is there, in our own format.

        Raises:
            ConfigError: a newer omidpy has written it.
            CorruptCell: no omidpy has written it.
        """
        (cells,) = self._get([FORMAT_ROW], columns=[GUARD])
        self._format = cells[0].value if cells else None
        if self._format is not None:
            if complaint := format_complaint(self._format):
                raise CorruptCell(f"{self.url}: {complaint}; {MENDED_BY}")
            if int(self._format) > FORMAT:
                raise ConfigError(
                    f"{self.url} has format {self._format.decode()}, and this omidpy reads up to "
                    f"{FORMAT}; upgrade omidpy to the version that wrote it"
                )
        return self._format == b"%d" % FORMAT

    def _make_table(self) -> None:
        if self._exists:
            return
        families = [FamilySchema(family, _ONE_VERSION) for family in FAMILIES]
        if self._format is None:
            with contextlib.suppress(TableExists):
                self._store.create_table(TableSchema(self._table, families))
        put = Put(*GUARD, FIXED_VERSION, b"%d" % FORMAT)
        mutation = RowMutation(FORMAT_ROW, (put,))
        # What is written from now on earlier versions would not find.
        self._store.check_and_mutate(
            self._table, FORMAT_ROW, GUARD, self._format, mutation, durable=True
        )
        self._exists = self._check_format()

    def _change(
        self, row: bytes, column: Column, expected: bytes | None, mutation: RowMutation
    ) -> bool:
        try:
            return self._changes.change(Condition(self._table, row, column, expected), mutation)
        except NoSuchTable:
            return False  # no row of it is as the caller saw it

    def _get(self, rows: Sequence[bytes], columns: Sequence[Column] | None = None) -> list[Row]:
        try:
            return self._store.get(self._table, rows, columns=columns, max_versions=1)
        except NoSuchTable:
            return [[] for _ in rows]

    def _rows(self, prefix: bytes, columns: Sequence[Column] | None = None) -> Iterator[Row]:
        key_range = KeyRange.starting_with(prefix)
        with contextlib.suppress(NoSuchTable):
            for page in self._store.scan(self._table, key_range, columns=columns, max_versions=1):
                yield from page


def _key_row(key: str) -> bytes:
    return KEY_PREFIX + hashlib.sha256(key.encode()).hexdigest().encode()


def _owner_id(owner: Cell) -> FateId:
    return FateId(owner.value.decode(errors="replace"))
