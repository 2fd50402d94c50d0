"""What do the znodes of an operation hold?  JSON, named as a table's columns (`table/rows.py`).

Pure: records to bytes and back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from omidpy.base.documents import UNREADABLE, Natural, prepared
from omidpy.errors import CorruptCell
from omidpy.fate.operation import Failure, FateId, Operation, Reservation, Rest, Status


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an operation's znode holds; names as in a table (`table/rows.py`)."""

    status: Status
    fateop: str
    w: str
    ctime: Natural
    depth: Natural
    """How many steps there are."""
    txkey: str | None = None
    reservation: Reservation | None = None
    autoclean: bool = False
    pivot: bool = False
    retval: Any = None
    exception: Failure | None = None
    undoerrors: tuple[Failure, ...] = ()
    progress: str = ""
    waiting: str = ""
    failures: Natural = 0
    rest: Rest | None = None
    txageoff: Natural | None = None
    base: Natural = 0
    """What its znode's version counts from: it was written so often in an earlier place."""


class Format(msgspec.Struct, frozen=True):
    """What the root's znode holds."""

    format: int


class Debug(msgspec.Struct, frozen=True):
    """What the znode `debug` of an operation holds."""

    fateop: str


def encode(operation: Operation, *, base: int = 0) -> bytes:
    """Return what an operation's own znode holds."""
    return msgspec.json.encode(
        Record(
            status=operation.status,
            fateop=operation.name,
            w=operation.write_id,
            ctime=operation.created_ms,
            depth=len(operation.stack),
            txkey=operation.key,
            reservation=operation.reservation,
            autoclean=operation.auto_clean,
            pivot=operation.is_past_pivot,
            retval=operation.result,
            exception=operation.exception,
            undoerrors=operation.undo_errors,
            progress=operation.progress,
            waiting=operation.waiting,
            failures=operation.failures,
            rest=operation.rest,
            txageoff=operation.finished_ms,
            base=base,
        )
    )


def decode(data: bytes, *, where: str) -> Record:
    """Read what an operation's own znode holds.

    Raises:
        CorruptCell: it is no record, naming the znode.
    """
    try:
        found = msgspec.json.decode(data, type=prepared(Record))
        if found.txkey is not None:
            msgspec.json.decode(found.txkey, type=list)  # lists show it
    except UNREADABLE as error:
        raise CorruptCell(f"znode {where} holds {data[:80]!r}: {error}") from error
    return found


def operation_of(
    operation_id: FateId, record: Record, version: int, stack: list[bytes | None]
) -> Operation:
    """Return the operation of a record, whose znode has this version, with these steps."""
    return Operation(
        id=operation_id,
        name=record.fateop,
        status=record.status,
        version=record.base + version + 1,
        write_id=record.w,
        created_ms=record.ctime,
        key=record.txkey,
        auto_clean=record.autoclean,
        is_past_pivot=record.pivot,
        reservation=record.reservation,
        stack=tuple(step for step in stack if step is not None),
        result=record.retval,
        exception=record.exception,
        undo_errors=record.undoerrors,
        progress=record.progress,
        waiting=record.waiting,
        failures=record.failures,
        rest=record.rest,
        finished_ms=record.txageoff,
    )
