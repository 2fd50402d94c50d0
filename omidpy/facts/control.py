"""Small durable facts about a store, one cell each, in a table of our own: the control table.

Apache Omid's tables keep their schema, because its clients delete whole rows there; what we add
lives here, in a table that every store of ours has by the name `OMIDPY_COMPACTION`.  A fact is
either a number that only rises, or a JSON document that is replaced by compare-and-set.  All of
them are written at one fixed version, and none is deleted and written again, because on HBase a
delete hides later writes at its version.  A row can be checked only where it is changed, so one
fact that not every process may change says in a second column who may.  The rows of parts are of
another kind, and described where they are written.

The rows, by the module that owns them:

    format                                                       format.py
    low-watermark  epoch  first-timestamp  sample/...  lease     the oracle (tso)
    adopted-ceiling                                              the oracle (tso), beside Omid's
    writer-key                                                   writers.py
    claim/...  prune-horizon  collection-...  hold/...           watermarks.py
    prune-horizon, its column `lease`                            the compactor (lease.py)
    ignored/...  run/...  phoenix                               the compactor and the admin commands
    snapshot-root  snapshot/...                                  the compactor (snapshot_holds.py)
    progress/...                                                 the compactor (advances.py)
    parts/...                                                   registration.py
    store-id  described/...                                     storage/hbase
    made/...                                                     makers.py
    closed/...                                                   removal.py
    export/...                                                   recipes/export_queue/entries/
    keys/...                                                     tx/keys.py
    published/...                                                committers/transactional.py
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from omidpy.base.cells import LONG_BYTES, decode_long, encode_long
from omidpy.base.documents import UNREADABLE, prepared
from omidpy.base.reach import reached
from omidpy.base.tables import (
    CONTROL_FAMILY,
    CONTROL_TABLE,
    FIXED_VERSION,
    ONE_VERSION,
    VALUE,
    is_system_table,
    transactional_families,
)
from omidpy.errors import (
    CorruptCell,
    StorageError,
    StorageUnavailable,
    TableExists,
    UsageError,
)
from omidpy.model import Column, FamilySchema, KeyRange, TableSchema, Timestamp
from omidpy.storage.base import (
    Condition,
    DeleteVersion,
    GuardedMutation,
    Put,
    RowMutation,
    Store,
)

T = TypeVar("T")

MENDING: Final = Column(CONTROL_FAMILY, b"mending")
"""Beside a fact that was found empty: the process that is about to set it."""

MENDED_BY: Final = (
    "`omidpy fsck` says what that stops, and `omidpy fsck --repair` mends it where that is safe"
)
"""Behind what is said of a fact that cannot be read."""


def transactional_tables(store: Store) -> list[str]:
    """Return the names of the users' tables that have a transactional family, sorted."""
    return [schema.name for schema in transactional_schemas(store)]


def transactional_schemas(store: Store) -> list[TableSchema]:
    """Return the users' tables that have a transactional family, by name."""
    return [
        schema
        for schema in store.tables()
        if not is_system_table(schema.name) and transactional_families(schema)
    ]


def put_value(row: bytes, value: bytes) -> RowMutation:
    """Return the mutation that sets the fact at `row`."""
    return RowMutation(row, puts=(Put(VALUE.family, VALUE.qualifier, FIXED_VERSION, value),))


def create_absent(store: Store, schema: TableSchema, *, splits: Sequence[bytes] = ()) -> None:
    """Create a table; one that exists is left alone, also by who may create none.

    HBase looks whether a user may, before it looks whether there is one.
    """
    try:
        store.create_table(schema, splits=splits)
    except TableExists:
        return
    except StorageUnavailable:
        raise
    except StorageError as error:
        try:
            store.schema(schema.name)
        except StorageError:
            raise error from None


class ControlTable:
    """Reads and writes facts.  Safe to share among threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self) -> None:
        """Create the table; one that exists is left alone."""
        families = (FamilySchema(CONTROL_FAMILY, ONE_VERSION),)
        create_absent(self._store, TableSchema(CONTROL_TABLE, families))

    def read(self, row: bytes) -> bytes | None:
        """Return the bytes of a fact, None if it was never set.  Cost: 1 get."""
        return self.read_many((row,))[0]

    def read_many(self, rows: tuple[bytes, ...]) -> list[bytes | None]:
        """Return the bytes of several facts in the order asked for.  Cost: 1 get."""
        results = self._store.get(CONTROL_TABLE, rows, columns=(VALUE,), max_versions=1)
        return [cells[0].value if cells else None for cells in results]

    def write(self, row: bytes, value: bytes, *, durable: bool = True) -> None:
        """Set a fact without looking; durable on return, unless it matters to no process later."""
        self._store.write({CONTROL_TABLE: (put_value(row, value),)}, durable=durable)

    def replace(self, row: bytes, expected: bytes | None, value: bytes) -> bool:
        """Set a fact if it still has the value `expected` (None: absent); durable on return.

        Cost: 1 checked change; 1 write and 1 get more where the value expected is empty.
        """
        return self._replace(row, VALUE, expected, value)

    def replace_own(self, row: bytes, expected: bytes | None, value: bytes) -> bool:
        """Set a fact as `replace`, to bytes that no other writer would write.

        Returns:
            Whether they are there: also where that shows only when the fact is looked at again,
            since an attempt of this writer was applied whose answer was lost, or whose sync failed.

        Cost: as `replace`; 1 checked change more where the fact is found to be different.
        """
        # Set once more instead of read: nothing says that the attempt found was synced (I1).
        return self.replace(row, expected, value) or self.replace(row, value, value)

    @property
    def is_atomic(self) -> bool:
        """Whether `replace_and` does both at once."""
        return self._store.capabilities.guarded_batches

    def replace_and(
        self,
        row: bytes,
        expected: bytes | None,
        value: bytes,
        others: Mapping[str, Sequence[RowMutation]],
    ) -> bool:
        """Set a fact as `replace`, and change rows of other tables only if it was set; durable.

        Where the store cannot do both at once the fact is set first: who dies in between has set
        the fact, and changed some of the rows, or none.

        Cost: 1 write on one file, else 2.
        """
        if not self.is_atomic:
            is_set = self.replace_own(row, expected, value)
            if is_set:
                self._store.write(others, durable=True)
            return is_set
        changes = [
            GuardedMutation(CONTROL_TABLE, put_value(row, value)),
            *(GuardedMutation(table, one) for table, some in others.items() for one in some),
        ]
        guard = Condition(CONTROL_TABLE, row, VALUE, expected)
        return self._store.write_guarded(changes, guard=guard, durable=True) is not None

    # -- a second column: who may change the first ---------------------------------------------

    def read_beside(self, row: bytes, column: Column) -> bytes | None:
        """Return what stands beside a fact, None if nothing does.  Cost: 1 get."""
        (cells,) = self._store.get(CONTROL_TABLE, (row,), columns=(column,), max_versions=1)
        return cells[0].value if cells else None

    def write_beside(
        self, row: bytes, column: Column, expected: bytes | None, value: bytes
    ) -> bool:
        """Set what stands beside a fact, as `replace_own` sets the fact; durable on return."""
        return self._replace(row, column, expected, value) or self._replace(
            row, column, value, value
        )

    def _replace(self, row: bytes, column: Column, expected: bytes | None, value: bytes) -> bool:
        if expected == b"":
            return self._replace_empty(row, column, value)
        mutation = RowMutation(row, puts=(Put(*column, FIXED_VERSION, value),))
        return self._store.check_and_mutate(
            CONTROL_TABLE, row, column, expected, mutation, durable=True
        )

    def _replace_empty(self, row: bytes, column: Column, value: bytes) -> bool:
        """Set what is empty, which no release of this format writes, and no store can compare.

        Who wants to writes his mark beside it first, then looks, and sets it if the mark is his
        still: another who came between has either written over the mark, or is seen by the look.
        """
        mark = uuid.uuid4().hex.encode()
        put = Put(*MENDING, FIXED_VERSION, mark)
        self._store.write({CONTROL_TABLE: [RowMutation(row, puts=(put,))]}, durable=True)
        if self.read_beside(row, column) != b"":
            return False
        mutation = RowMutation(row, puts=(Put(*column, FIXED_VERSION, value),))
        return self._store.check_and_mutate(
            CONTROL_TABLE, row, MENDING, mark, mutation, durable=True
        )

    def replace_beside(self, row: bytes, column: Column, expected: bytes, value: bytes) -> bool:
        """Set a fact if `expected` stands beside it, in `column`; durable on return."""
        return self._store.check_and_mutate(
            CONTROL_TABLE, row, column, expected, put_value(row, value), durable=True
        )

    def forget(self, rows: list[bytes]) -> None:
        """Delete facts that will never be written again under these names."""
        delete = (DeleteVersion(VALUE.family, VALUE.qualifier, FIXED_VERSION),)
        self._store.write({CONTROL_TABLE: [RowMutation(row, deletes=delete) for row in rows]})

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield (row, bytes) of every fact whose row starts with `prefix`, in row order."""
        for page in self._store.scan(
            CONTROL_TABLE, KeyRange.starting_with(prefix), columns=(VALUE,), max_versions=1
        ):
            for cells in page:
                yield cells[0].row, cells[0].value

    def scan_back(self, prefix: bytes, *, page_rows: int = 64) -> Iterator[tuple[bytes, bytes]]:
        """Yield what `scan` does, the last one first.  Cost: 1 RPC a page."""
        for page in self._store.scan(
            CONTROL_TABLE,
            KeyRange.starting_with(prefix),
            columns=(VALUE,),
            max_versions=1,
            reverse=True,
            page_rows=page_rows,
        ):
            for cells in page:
                yield cells[0].row, cells[0].value

    def documents(self, prefix: bytes, type_: type[T]) -> tuple[dict[bytes, T], dict[bytes, str]]:
        """Return every JSON fact whose row starts with `prefix`, by row, in row order.

        Returns:
            Those that can be decoded; and of the others, why they cannot.  What a malformed fact
            means is for the caller to say: none may end what does not need it.
        """
        found: dict[bytes, T] = {}
        malformed: dict[bytes, str] = {}
        for row, value in self.scan(prefix):
            try:
                row.decode()  # names are text, to whoever lists these
                found[row] = decode_document(value, type_, row=row)
            except (CorruptCell, UnicodeDecodeError) as error:
                malformed[row] = str(error)
        return found, malformed

    def last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        """Return (row, bytes) of the last fact whose row starts with `prefix`.  Cost: 1 RPC."""
        pages = self._store.scan(
            CONTROL_TABLE,
            KeyRange.starting_with(prefix),
            columns=(VALUE,),
            max_versions=1,
            reverse=True,
            page_rows=1,
        )
        return next(((page[0][0].row, page[0][0].value) for page in pages), None)

    # -- numbers that only rise ----------------------------------------------------------------

    def read_number(self, row: bytes) -> Timestamp | None:
        """Return a number, None if it was never set.  Cost: 1 get."""
        value = self.read(row)
        return None if value is None else decode_number(value, row=row)

    def raise_number(self, row: bytes, to: int) -> Timestamp:
        """Raise a number to at least `to`; durable on return.

        Returns:
            The number afterwards, which another process may have raised further.
        """
        while True:
            raw = self.read(row)
            number = to if raw is None else max(to, decode_number(raw, row=row))
            # Also where it is high enough: who wrote it may have heard that its sync failed.
            if self.replace(row, raw, encode_long(number)):
                return Timestamp(number)
            reached("control.raised_by_another", "I4")


def decode_number(value: bytes, *, row: bytes) -> Timestamp:
    """Decode a fact that is a number.

    Raises:
        CorruptCell: naming the row, and what mends it.
    """
    return decode_bound(value, what=f"{CONTROL_TABLE} row {row!r}")


def decode_bound(value: bytes, *, what: str) -> Timestamp:
    """Decode a number that timestamps are compared with, which no one below 0 can be.

    Raises:
        CorruptCell: naming `what`, and what mends it.
    """
    if not isinstance(value, bytes) or len(value) != LONG_BYTES:
        shown = value[:80] if isinstance(value, bytes) else value
        raise CorruptCell(f"{what} holds {shown!r}, expected 8 bytes, big endian; {MENDED_BY}")
    if (number := decode_long(value, what=what)) < 0:
        raise CorruptCell(f"{what} holds {value!r}, a number below 0; {MENDED_BY}")
    return number


def decode_document(value: bytes, type_: type[T], *, row: bytes) -> T:
    """Decode a JSON fact.

    Raises:
        CorruptCell: naming the row.
    """
    try:
        return msgspec.json.decode(value, type=prepared(type_))
    except UNREADABLE as error:
        shown = value[:80] if isinstance(value, bytes) else b""
        raise CorruptCell(
            f"{CONTROL_TABLE} row {row!r} holds {shown or value!r} (in hexadecimal "
            f"{shown.hex()}): {error}"
        ) from error


def encode_document(value: Any) -> bytes:
    """Encode a JSON fact, and make sure that it can be read again.

    What a caller was given, and handed on unseen, would be malformed from then on: a hold of it
    keeps everything, and a queue, or a commit, waits for somebody who repairs it.

    Raises:
        UsageError: naming the field that does not hold what it is for; nothing was written.
    """
    encoded = msgspec.json.encode(value)
    if isinstance(value, msgspec.Struct):
        try:
            msgspec.json.decode(encoded, type=prepared(type(value)))
        except UNREADABLE as error:
            raise UsageError(f"{value!r:.200} could not be read again: {error}") from error
    return encoded
