"""Can a table have been turned back to what it was, so that absence proves nothing in it?

A cell without a shadow cell and without a commit entry is normally no transaction's that committed:
the entry goes after the last shadow cell.  Not so in a table that was restored, or cloned, from a
snapshot: it may have been taken between a cell and its shadow cell, and the entry has long gone, by
the client's hand or the compactor's.  Such a cell is *doubtful*: no run may drop it.

No restore asks us, so what is remembered is in which states each table was seen
(`RestoresTables`).  The first one is that in which it was made or adopted, and there is no doubt,
unless it was adopted by a rule, which asks no person what its cells without a proof are.  Whoever
makes a table tells that right behind; where he died in between, the first state that anybody sees
is taken for a later one.  Only of a table without an incarnation, which no client of ours has made,
it is taken for the first.

In every later one it may be a copy, and doubtful is what lies at or below the newest timestamp that
was issued until it was seen.  Tables are told apart by their incarnation, an attribute that a copy
has, too, whatever its name; where there is none, by their name.

A commit table that was restored has lost entries: then every table is in doubt (`DOUBTS_ALL`).

What an operator knows no process can know: `accept` ends a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from omidpy.base.tables import incarnation
from omidpy.errors import CorruptCell, NoSuchTable
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.model import MAX_VERSION, TableSchema
from omidpy.storage.base import Store
from omidpy.storage.options import RestoresTables

SIGHTED_PREFIX: Final = b"sighted/"
NO_DOUBT: Final = 0
DOUBTS_ALL: Final = MAX_VERSION + 1
"""What nothing is known about is in doubt as a whole."""


class Sighting(msgspec.Struct, frozen=True):
    """A table in one of its states."""

    table: str
    state: int
    doubtful: int
    """Versions at or below it are in doubt."""


class Seen(msgspec.Struct, frozen=True):
    """What is known of one table."""

    state: int
    doubtful: int
    complaint: str = ""
    """Why what is remembered of it cannot be read; then everything is in doubt."""


def sight(
    store: Store,
    tables: Mapping[str, str],
    *,
    newest: Callable[[], int],
    only_looks: bool = False,
) -> dict[str, Seen]:
    """Look in which state some tables are, and remember it.

    Args:
        store: One that restores no tables alone raises no doubt, and none is returned.
        tables: By name, the incarnation of each, empty where it has none.
        newest: Called where a new doubt arises, after the state was read: returns what no timestamp
            that was issued so far is above.
        only_looks: Remember nothing.

    Returns:
        By name, those that are there.

    Cost: 2 RPCs, and 1 conditional write for each table in a new state.
    """
    if not (tables and isinstance(store, RestoresTables)):
        return {}
    control = ControlTable(store)
    states = store.table_states(list(tables))
    rows = {table: _row(table, which) for table, which in tables.items() if table in states}
    known = dict(zip(rows, control.read_many(tuple(rows.values())), strict=True)) if rows else {}

    def first(table: str) -> int:
        """Return what is in doubt about a table that nobody has seen by its incarnation."""
        if not tables[table]:
            return NO_DOUBT
        # It may have been given its incarnation only now.
        unnamed = _row(table, "")
        for one in _decoded(unnamed, control.read(unnamed)):
            if (one.table, one.state) == (table, states[table]):
                return one.doubtful
        return newest()

    return {
        table: _sight(
            control, row, table, states[table], known[table], first, newest, only_looks=only_looks
        )
        for table, row in rows.items()
    }


def _sight(
    control: ControlTable,
    row: bytes,
    table: str,
    state: int,
    raw: bytes | None,
    first: Callable[[str], int],
    newest: Callable[[], int],
    *,
    only_looks: bool,
) -> Seen:
    while True:
        try:
            sightings = _decoded(row, raw)
            for one in sightings:
                if (one.table, one.state) == (table, state):
                    return Seen(state, one.doubtful)
            doubtful = newest() if sightings else first(table)
        except CorruptCell as error:
            why = f"cannot be told from an earlier one: {error}; nothing without a proof is dropped"
            return Seen(state, DOUBTS_ALL, complaint=why)
        more = _with(sightings, Sighting(table, state, doubtful))
        if only_looks or control.replace(row, raw, encode_document(more)):
            return Seen(state, doubtful)
        raw = control.read(row)


def sight_first(store: Store, schema: TableSchema) -> None:
    """Remember a table that was just made: what is in it is no copy.

    Cost: 2 RPCs and 1 conditional write, where tables may be restored one by one.
    """
    if not isinstance(store, RestoresTables):
        return
    table, row = schema.name, _row(schema.name, incarnation(schema))
    states, control = store.table_states([table]), ControlTable(store)
    if table in states:
        _sight(
            control,
            row,
            table,
            states[table],
            control.read(row),
            lambda _: NO_DOUBT,
            lambda: DOUBTS_ALL,
            only_looks=False,
        )


def state_of(store: Store, table: str) -> int | None:
    """Return the state of a table, before it is read; None where no single table is restored.

    Raises:
        NoSuchTable: it is not there.

    Cost: 1 get where single tables are restored.
    """
    if not isinstance(store, RestoresTables):
        return None
    states = store.table_states([table])
    if table not in states:
        raise NoSuchTable(f"there is no table {table!r} in {store.url}")
    return states[table]


def doubt_about(store: Store, table: str, which: str) -> int:
    """Return up to which version a table of ours is in doubt, as it is now.

    Cost: 2 RPCs where single tables are restored.
    """
    seen = sight(store, {table: which}, newest=lambda: DOUBTS_ALL, only_looks=True)
    return seen[table].doubtful if table in seen else NO_DOUBT


def sight_adopted(store: Store, table: str, which: str, *, state: int, doubtful: int) -> None:
    """Remember a table that is about to become ours, as it was when it was read for that.

    It may be in another state by now: then it may be a copy, as ever.

    Args:
        store: Where it is.
        table: Its name.
        which: The incarnation that it gets, which no table ever had.
        state: What `state_of` said before it was read.
        doubtful: Versions at or below it are in doubt.

    Cost: 1 conditional write.
    """
    first = encode_document([Sighting(table, state, doubtful)])
    ControlTable(store).replace(_row(table, which), None, first)


def accept(store: Store, table: str, which: str, *, state: int) -> None:
    """End the doubt about a table as it was seen: what had no proof in it never committed.

    Args:
        store: Where it is.
        table: Its name.
        which: Its incarnation.
        state: What `state_of` said before it was looked at.  In any later one it is in doubt anew.

    Cost: 2 RPCs.
    """
    control, row = ControlTable(store), _row(table, which)
    while True:
        raw = control.read(row)
        try:
            sightings = _decoded(row, raw)
        except CorruptCell:
            sightings = []
        accepted = _with(sightings, Sighting(table, state, NO_DOUBT))
        if control.replace(row, raw, encode_document(accepted)):
            return


def _with(sightings: Iterable[Sighting], newest: Sighting) -> list[Sighting]:
    """Add a sighting, in place of that of an earlier state, which never comes again."""
    return [*(one for one in sightings if one.table != newest.table), newest]


def _row(table: str, which: str) -> bytes:
    # No incarnation has this sign.
    return SIGHTED_PREFIX + (which or f"={table}").encode()


def _decoded(row: bytes, raw: bytes | None) -> list[Sighting]:
    return [] if raw is None else decode_document(raw, list[Sighting], row=row)
