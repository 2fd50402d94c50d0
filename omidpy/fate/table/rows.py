"""How is an operation laid out in a row?  Accumulo's columns, with JSON values.

    row tx_<16 hex>                           done_<16 hex>, the same, once it is finished
    txadmin   status  reservation  fateop      what the search for work reads, as in Accumulo
              v  w                             ours: the guard version, and who wrote it
    tx        txkey  ctime
    txinfo    autoclean  exception  retval  txageoff (wall time of the end)
              pivot  undoerrors  progress  waiting  failures  rest       ours
    repos     99, 98, ...                      the stack: 100 less the position, so the top is first

Every cell is written at one version and over what is there, which costs nothing in a file and on
HBase; none but steps is deleted while its row lives, and no step is ever pushed where one was taken
away, because on HBase a delete hides later writes at its version.

Pure: cells to values and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from omidpy.base.documents import UNREADABLE, Natural, prepared
from omidpy.errors import CorruptCell
from omidpy.fate.operation import (
    FINISHED,
    MAX_STACK,
    Failure,
    FateId,
    Operation,
    Reservation,
    Rest,
    Status,
)
from omidpy.model import Cell, Column
from omidpy.storage.base import DeleteVersion, Put, RowMutation

ADMIN: Final = b"txadmin"
TX: Final = b"tx"
INFO: Final = b"txinfo"
REPOS: Final = b"repos"
FAMILIES: Final = (ADMIN, TX, INFO, REPOS)

FIXED_VERSION: Final = 1
OPERATION_PREFIX: Final = b"tx_"
DONE_PREFIX: Final = b"done_"
"""Of what is finished: the search for work does not read it."""
GUARD: Final = Column(ADMIN, b"v")
STATUS: Final = Column(ADMIN, b"status")

FIRST_VERSION: Final = 1
"""Of an operation as it is inserted; each change of it has the next one."""


class _Kept(NamedTuple):
    """A field of the record that has a cell of its own."""

    field: str
    column: Column
    type: Any


_KEPT: Final = (
    _Kept("version", GUARD, Natural),
    _Kept("write_id", Column(ADMIN, b"w"), str),
    _Kept("status", Column(ADMIN, b"status"), Status),
    _Kept("name", Column(ADMIN, b"fateop"), str),
    _Kept("reservation", Column(ADMIN, b"reservation"), Reservation | None),
    _Kept("created_ms", Column(TX, b"ctime"), Natural),
    _Kept("key", Column(TX, b"txkey"), str | None),
    _Kept("auto_clean", Column(INFO, b"autoclean"), bool),
    _Kept("is_past_pivot", Column(INFO, b"pivot"), bool),
    _Kept("result", Column(INFO, b"retval"), Any),
    _Kept("exception", Column(INFO, b"exception"), Failure | None),
    _Kept("undo_errors", Column(INFO, b"undoerrors"), tuple[Failure, ...]),
    _Kept("progress", Column(INFO, b"progress"), str),
    _Kept("waiting", Column(INFO, b"waiting"), str),
    _Kept("failures", Column(INFO, b"failures"), Natural),
    _Kept("rest", Column(INFO, b"rest"), Rest | None),
    _Kept("finished_ms", Column(INFO, b"txageoff"), Natural | None),
)

_BY_COLUMN: Final = {kept.column: kept for kept in _KEPT}
_ALWAYS: Final = frozenset({"version", "write_id", "status", "name", "created_ms"})
_DEFAULTS: Final = {
    field.name: field.default
    for field in msgspec.structs.fields(Operation)
    if field.name not in _ALWAYS
}
_decoders: Final[dict[Column, Callable[[bytes], Any]]] = {
    kept.column: msgspec.json.Decoder(prepared(kept.type)).decode for kept in _KEPT
}
_decode_key: Final = msgspec.json.Decoder(list).decode


def row_of(operation_id: FateId) -> bytes:
    """Return the row of an operation."""
    return OPERATION_PREFIX + operation_id.encode()


def done_row_of(operation_id: FateId) -> bytes:
    """Return the row of an operation that is finished."""
    return DONE_PREFIX + operation_id.encode()


def id_of(row: bytes) -> FateId:
    """Return the operation of a row."""
    return FateId(row.partition(b"_")[2].decode(errors="replace"))


def says_finished(cells: Sequence[Cell]) -> bool:
    """Say whether a row is of an operation that is finished, as far as it can be read."""
    ends = {msgspec.json.encode(status) for status in FINISHED}
    return any(cell.value in ends for cell in cells if (cell.family, cell.qualifier) == STATUS)


def says_fresh(cells: Sequence[Cell]) -> bool:
    """Say whether a row is as an operation is inserted, and nobody has changed it since."""
    return guard_of(cells) == b"%d" % FIRST_VERSION


def guard_value(operation: Operation) -> bytes:
    """Return what the guard's cell holds."""
    return msgspec.json.encode(operation.version)


def insertion(operation: Operation, row: bytes | None = None) -> RowMutation:
    """Return the mutation that writes a new record, by default to its first row."""
    puts = [
        _put(kept.column, getattr(operation, kept.field))
        for kept in _KEPT
        if kept.field in _ALWAYS or getattr(operation, kept.field) != _DEFAULTS[kept.field]
    ]
    puts += [_put_step(position, raw) for position, raw in enumerate(operation.stack, start=1)]
    return RowMutation(row or row_of(operation.id), puts)


def difference(old: Operation, new: Operation, row: bytes | None = None) -> RowMutation:
    """Return the mutation that makes `new` of `old`, by default in its first row."""
    puts = [
        _put(kept.column, getattr(new, kept.field))
        for kept in _KEPT
        if getattr(new, kept.field) != getattr(old, kept.field)
    ]
    for position, raw in enumerate(new.stack, start=1):
        if position > len(old.stack) or old.stack[position - 1] != raw:
            puts.append(_put_step(position, raw))
    deletes = [
        _delete(_step_column(position))
        for position in range(len(new.stack) + 1, len(old.stack) + 1)
    ]
    return RowMutation(row or row_of(new.id), puts, deletes)


def removal(cells: Sequence[Cell]) -> RowMutation:
    """Return the mutation that deletes every cell of a row, of which there is one at least."""
    deletes = [DeleteVersion(cell.family, cell.qualifier, cell.version) for cell in cells]
    return RowMutation(cells[0].row, deletes=deletes)


def guard_of(cells: Sequence[Cell]) -> bytes | None:
    """Return what the guard's cell of a row holds; None: it has none."""
    return next((one.value for one in cells if (one.family, one.qualifier) == GUARD), None)


def operation_of(cells: Sequence[Cell], *, table: str) -> Operation:
    """Read a record.

    Raises:
        CorruptCell: naming the cell that cannot be read.
    """
    found: dict[str, Any] = {}
    steps: list[bytes] = []
    row = cells[0].row
    for cell in cells:
        if cell.family == REPOS:
            steps.append(cell.value)
            continue
        column = Column(cell.family, cell.qualifier)
        kept = _BY_COLUMN.get(column)
        if kept is None:
            continue
        try:
            value = found[kept.field] = _decoders[column](cell.value)
            if kept.field == "key" and value is not None:
                _decode_key(value)  # lists show it, and changes of tables go by it
        except UNREADABLE as error:
            raise CorruptCell(
                f"{table} row {row!r} holds {cell.value[:80]!r} in "
                f"{(cell.family + b':' + cell.qualifier).decode()}: {error}"
            ) from error
    if missing := sorted(_ALWAYS - set(found)):
        raise CorruptCell(f"{table} row {row!r} lacks the cell of {missing[0]!r}")
    return Operation(id=id_of(row), stack=tuple(reversed(steps)), **found)


def _put(column: Column, value: Any) -> Put:
    return Put(column.family, column.qualifier, FIXED_VERSION, msgspec.json.encode(value))


def _put_step(position: int, raw: bytes) -> Put:
    return Put(*_step_column(position), FIXED_VERSION, raw)


def _delete(column: Column) -> DeleteVersion:
    return DeleteVersion(column.family, column.qualifier, FIXED_VERSION)


def _step_column(position: int) -> Column:
    return Column(REPOS, b"%02d" % (MAX_STACK - position))
