"""Queues are made, found and dropped; killed half-way, the same call finishes it.

The table is made before the definition that names it, and removed after the definition says that
it was dropped.  A number is used for one queue alone, so that no table of an earlier queue of this
id is ever taken for that of a later one.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from omidpy.base.cells import table_id
from omidpy.errors import (
    ConfigError,
    CorruptCell,
    ExportError,
    NoSuchQueue,
    NoSuchTable,
    TableExists,
)
from omidpy.facts.control import decode_document, encode_document
from omidpy.recipes.export_queue.entries.stored.layout import FAMILY, splits
from omidpy.recipes.export_queue.entries.stored.state import (
    GENERATION,
    ROW_PREFIX,
    Definition,
    Places,
    table_name,
)

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

T = TypeVar("T")

BUCKETS_PER_REGION: Final = 8


def make(tm: TransactionManager, places: Places, wanted: Definition) -> Definition:
    """Make a queue with the settings of `wanted`; one that has them already is left alone.

    Raises:
        ExportError: there is one with other settings.
        ConfigError: the store cannot keep queues.
    """
    check_store(tm)
    while True:
        raw = tm.session.control.read(places.row())
        known = None if raw is None else decoded(places, raw)
        if known is not None and known.is_open:
            _check_same(places, known, wanted)
            return known
        if known is not None:
            # Its dropping may have been stopped half-way: into a table that is there still his
            # adders commit for some seconds, and those of this queue must not be among them.
            _remove(tm, places, known)
        number = 1 if known is None else known.next_number()
        new = msgspec.structs.replace(
            wanted,
            number=number,
            last=number,
            made=number,
            is_open=True,
            incarnation=uuid.uuid4().hex,
        )
        written = encode_document(new)  # what it refuses leaves no table behind
        with contextlib.suppress(TableExists):
            make_table(tm, places.queue_id, number, wanted.buckets)
        if tm.session.control.replace(places.row(), raw, written):
            return new
        _remove_unnamed(tm, places, number)


def _remove_unnamed(tm: TransactionManager, places: Places, number: int) -> None:
    """Remove a table that was made for a queue of which another process made another one."""
    raw = tm.session.control.read(places.row())
    if raw is None:
        return
    known = decoded(places, raw)
    if number not in {known.number, known.successor and known.successor.number}:
        _drop_table(tm, places, number)  # no number is given twice, so that none names it later


def make_table(tm: TransactionManager, queue_id: str, number: int, buckets: int) -> None:
    """Make the table of so many buckets.

    Raises:
        TableExists: it is there.
    """
    tm.session.make_table(
        tm.session.catalog.plan(
            table_name(queue_id, number),
            [FAMILY],
            splits(GENERATION, buckets, BUCKETS_PER_REGION),
            is_own=True,
        )
    )


def find(tm: TransactionManager, places: Places) -> Definition:
    """Return the definition of a queue.

    Raises:
        NoSuchQueue: there is none of this id.

    Cost: 1 get.
    """
    raw = tm.session.control.read(places.row())
    known = None if raw is None else decoded(places, raw)
    if known is None or not known.is_open:
        was = "was dropped" if known else "does not exist"
        raise NoSuchQueue(
            f"the export queue {places.queue_id!r} {was} in {tm.store.url}; make it with "
            f"ExportQueue.create(tm, {places.queue_id!r}) or `omidpy export create "
            f"{places.queue_id}`"
        )
    return known


def pause(tm: TransactionManager, places: Places, made: int, *, is_paused: bool) -> None:
    """Let no worker export a queue, or let workers again.

    Raises:
        NoSuchQueue: it was dropped.
    """
    while True:
        raw = tm.session.control.read(places.row())
        known = None if raw is None else decoded(places, raw)
        if known is None or not known.is_open or known.made != made:
            raise NoSuchQueue(f"the export queue {places.queue_id!r} was dropped")
        new = msgspec.structs.replace(known, is_paused=is_paused)
        if new == known or tm.session.control.replace(places.row(), raw, encode_document(new)):
            return


def note_replay(tm: TransactionManager, places: Places, definition: Definition) -> bool:
    """Count a replay in the definition of a queue; False: that has changed meanwhile, try again.

    Raises:
        ExportError: it has other buckets than those of `definition`.
        NoSuchQueue: it was dropped.
    """
    raw = tm.session.control.read(places.row())
    known = None if raw is None else decoded(places, raw)
    if known is None or not known.is_open or known.made != definition.made:
        raise NoSuchQueue(f"the export queue {places.queue_id!r} was dropped")
    if known.number != definition.number:
        raise ExportError(
            f"the export queue {places.queue_id!r} got other buckets meanwhile: what was delivered "
            "before that is not kept any more"
        )
    new = msgspec.structs.replace(known, replays=known.replays + 1)
    return tm.session.control.replace(places.row(), raw, encode_document(new))


def check_going(places: Places, known: Definition) -> None:
    """Refuse to export a queue that is paused.

    Raises:
        ExportError: it is.
    """
    if known.is_paused:
        raise ExportError(
            f"the export queue {places.queue_id!r} is paused: resume it with `omidpy export resume "
            f"{places.queue_id}`"
        )


def names(tm: TransactionManager) -> list[str]:
    """Return the ids of the queues that a manager can open, sorted."""
    found, _ = _definitions(tm)
    return sorted(queue_id for queue_id, one in found.items() if one.is_open)


def malformed(tm: TransactionManager) -> dict[str, str]:
    """Return the ids of queues whose definition cannot be read, each with the reason, sorted."""
    _, found = _definitions(tm)
    return dict(sorted(found.items()))


def _definitions(tm: TransactionManager) -> tuple[dict[str, Definition], dict[str, str]]:
    whole = ROW_PREFIX + Places.of(tm.session.catalog, "x").first_table[:-1].encode()
    found, problems = tm.session.control.documents(whole, Definition)

    def by_id(rows: dict[bytes, T]) -> dict[str, T]:
        ids = {row[len(whole) :]: one for row, one in rows.items()}
        return {row.decode(errors="replace"): one for row, one in ids.items() if b"/" not in row}

    return by_id(found), by_id(problems)


def drop(tm: TransactionManager, places: Places, made: int) -> None:
    """Remove a queue with everything in it.

    Transactions that are running and have added to it abort; exporters end.  What is committed
    until this returns, by a client that still holds the queue, goes with it.

    Args:
        tm: The manager.
        places: Where queues of its id are.
        made: The number that it was made with: a later queue of its id is left alone.

    Raises:
        NoSuchQueue: there is none, and nothing is left of one.
    """
    raw = tm.session.control.read(places.row())
    known = None if raw is None else decoded(places, raw)
    if known is None:
        find(tm, places)
        return
    if known.made != made:
        raise NoSuchQueue(
            f"the export queue {places.queue_id!r} was dropped before, and another one of this id "
            "was made: open that one to drop it"
        )
    closed = msgspec.structs.replace(known, is_open=False)
    if known.is_open and not tm.session.control.replace(places.row(), raw, encode_document(closed)):
        drop(tm, places, made)
        return
    if not _remove(tm, places, known) and not known.is_open:
        find(tm, places)


def find_to_drop(tm: TransactionManager, places: Places, *, only: str | None) -> Definition:
    """Return the definition of a queue, also of one whose dropping was stopped half-way.

    Args:
        tm: The manager.
        places: Where queues of its id are.
        only: The incarnation that is meant; None: any.

    Raises:
        NoSuchQueue: there is none, and nothing is left of one; or another one has its id.

    Cost: 1 get; of one that was dropped 1 look at each of its tables.
    """
    raw = tm.session.control.read(places.row())
    known = None if raw is None else decoded(places, raw)
    if known is not None and only not in (None, known.incarnation):
        raise NoSuchQueue(
            f"the incarnation {only} of the export queue {places.queue_id!r} is gone, and the one "
            f"that had its id last, {known.incarnation or 'of an earlier version'}, was left as it "
            "is"
        )
    if known is None or not (known.is_open or _has_tables(tm, places, known)):
        return find(tm, places)  # says that there is none
    return known


def _has_tables(tm: TransactionManager, places: Places, known: Definition) -> bool:
    for number in _numbers(known):
        with contextlib.suppress(NoSuchTable):
            tm.store.schema(tm.session.catalog.full_name(table_name(places.queue_id, number)))
            return True
    return False


def _remove(tm: TransactionManager, places: Places, known: Definition) -> bool:
    """Remove the tables of a queue that was dropped, and the facts about it.

    Their numbers are given to no other queue, so that it may be done again at any time.

    Returns:
        Whether there was a table.
    """
    numbers = sorted(_numbers(known))
    found = [_drop_table(tm, places, number) for number in numbers]
    facts = [row for number in numbers for row, _ in tm.session.control.scan(places.facts(number))]
    if facts:
        tm.session.control.forget(facts)
    return any(found)


def _numbers(known: Definition) -> set[int]:
    """Return the numbers of the tables that a definition speaks of."""
    numbers = {known.made or known.number, known.number}
    if known.successor is not None:
        numbers.add(known.successor.number)
    return numbers


def _drop_table(tm: TransactionManager, places: Places, number: int) -> bool:
    table = tm.session.catalog.full_name(table_name(places.queue_id, number))
    try:
        was_there = tm.store.drop_table(table)
    except NoSuchTable:
        was_there = False
    tm.session.catalog.forget(table)
    tm.oracle.fence(table_id(table))
    return was_there


def check_store(tm: TransactionManager) -> None:
    """Refuse a store that cannot remove single versions, or check a change.

    Raises:
        ConfigError: it cannot.
    """
    able = tm.store.capabilities
    if not (able.exact_delete and able.checked_changes):
        raise ConfigError(
            f"{tm.store.url} cannot keep export queues: its gateway cannot remove single versions; "
            "open the store through hbase+thrift2://"
        )


def decoded(places: Places, raw: bytes) -> Definition:
    """Read a definition.

    Raises:
        CorruptCell: it cannot be read.
    """
    try:
        known = decode_document(raw, Definition, row=places.row())
    except CorruptCell as error:
        raise CorruptCell(
            f"{error}; `omidpy export create {places.queue_id} --restate` with the settings that "
            "the queue was made with writes it anew"
        ) from error
    return known if known.made else msgspec.structs.replace(known, made=known.number)


def _check_same(places: Places, known: Definition, wanted: Definition) -> None:
    has, asked = known.settings(), wanted.settings()
    other = [
        f"{name}={has[name]!r}, not {asked[name]!r}" for name in has if has[name] != asked[name]
    ]
    if other:
        raise ExportError(
            f"the export queue {places.queue_id!r} exists with {'; '.join(other)}: open it with "
            f"ExportQueue.open(tm, {places.queue_id!r}), or give it the same settings"
        )
