"""Says again what a queue is whose definition cannot be read.

Its entries and the states of its buckets are there, but nothing says how many buckets, which codec
and which layout it has: its maker knows, and each entry is held against what he says.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import msgspec

from omidpy.errors import CorruptCell, ExportError
from omidpy.facts.control import encode_document
from omidpy.model import Column
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.stored.layout import (
    FAMILY,
    QUALIFIER,
    content_of,
    is_in_place,
)
from omidpy.recipes.export_queue.upkeep.making import decoded, find

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.model import Cell
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places

NUMBERS: Final = 1 << 10
"""So many tables of an id may have been given up that nothing tells of any more."""


def restate(tm: TransactionManager, places: Places, wanted: Definition) -> Definition:
    """Write the definition of a queue anew, with the settings that `wanted` has.

    Raises:
        NoSuchQueue: there is none of this id.
        ExportError: its definition can be read; or what is there contradicts these settings.

    Cost: reads every entry.
    """
    control = tm.session.control
    raw = control.read(places.row())
    number = _number(tm, places, raw)
    column = Column(FAMILY, QUALIFIER)
    for page in tm.store.scan(places.table(number), columns=(column,), max_versions=1):
        for cells in page:
            for cell in cells:
                if complaint := _complaint(cell, wanted):
                    raise ExportError(
                        f"the row {cell.row!r} of {places.table(number)!r} {complaint}: the queue "
                        f"{places.queue_id!r} had other settings"
                    )
    new = msgspec.structs.replace(
        wanted, number=number, last=number + NUMBERS, made=number, incarnation=uuid.uuid4().hex
    )
    if not control.replace(places.row(), raw, encode_document(new)):
        raise ExportError(f"somebody else has written the definition of {places.queue_id!r}")
    return new


def _number(tm: TransactionManager, places: Places, raw: bytes | None) -> int:
    """Return the number of the one table that a queue without a definition has."""
    try:
        if raw is None or not decoded(places, raw).is_open:
            find(tm, places)
    except CorruptCell:
        first, there = places.first_table, [schema.name for schema in tm.store.tables()]
        ends = [name.removeprefix(first) for name in there if name.startswith(first)]
        numbers = [1 if not end else int(end[1:]) for end in ends if not end or _is_suffix(end)]
        if len(numbers) != 1:
            tables = ", ".join(places.table(number) for number in sorted(numbers)) or "none"
            raise ExportError(
                f"of the queue {places.queue_id!r} there must be one table, and there is: {tables}"
                ": it was about to get other buckets, or to be dropped.  Drop what is too much of "
                "that in the store, and begin again"
            ) from None
        return numbers[0]
    raise ExportError(
        f"the definition of the queue {places.queue_id!r} can be read: nothing has to be said again"
    )


def _is_suffix(end: str) -> bool:
    return end[0] == "." and end[1:].isdecimal()


def _complaint(cell: Cell, wanted: Definition) -> str:
    """Say why a cell is none of such a queue; empty if it may be."""
    try:
        content = content_of(cell.row, cell.value)
        if content is None:
            return ""
        codec_named(wanted.codec).decode(content.value)
    except CorruptCell as error:
        return f"is none of the codec {wanted.codec!r}: {error}"
    if not is_in_place(cell.row, content.key, wanted.buckets, wanted.layout):
        return f"is not where {wanted.buckets} buckets of the layout {wanted.layout!r} have it"
    return ""
