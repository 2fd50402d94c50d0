"""Can a table have been turned back to what it was, so that absence proves nothing in it?

A cell without a shadow cell and without a commit entry is normally no transaction's that committed:
the entry goes after the last shadow cell.  Not so in a table that was restored, or cloned, from a
snapshot: it may have been taken between a cell and its shadow cell, and the entry has long gone, by
the client's hand or the compactor's.  Such a cell is *doubtful*: no run may drop it, and no claim
of another state speaks of the table (I7).

No restore asks us, so what is remembered is in which states each table was seen
(`RestoresTables`).  The first one is that in which it was made or adopted, and there is no doubt,
unless it was adopted by a rule, which asks no person what its cells without a proof are.  Whoever
makes a table tells that right behind; where he died in between, or stood still until there was
something in it, the first state that anybody sees is taken for a later one.  Only of a table
without an incarnation, which no client of ours has made, it is taken for the first.

In every later one it may be a copy, and doubtful is what lies at or below the newest timestamp that
was issued until it was seen.  Tables are told apart by their incarnation, an attribute that a copy
has, too, whatever its name; where there is none, by their name.

A commit table that was restored has lost entries: then every table is in doubt (`DOUBTS_ALL`).

What an operator knows no process can know: `accept` ends a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from omidpy.base.tables import incarnation
from omidpy.base.timing.clock import Clock
from omidpy.errors import CorruptCell, NoSuchTable
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.model import MAX_VERSION, TableSchema
from omidpy.storage.base import Store
from omidpy.storage.options import RestoresTables

SIGHTED_PREFIX: Final = b"sighted/"
NO_DOUBT: Final = 0
DOUBTS_ALL: Final = MAX_VERSION + 1
"""What nothing is known about is in doubt as a whole."""
JUST_MADE_S: Final = 60.0
"""Within this time nobody has filled a table, compacted it and restored it from a snapshot."""
_GONE: Final = -1
"""The state of a table that is not there."""


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

    Cost: 2 RPCs, and 1 conditional write, or 1 get more where it only looks, for each table in a
    new state.
    """
    if not (tables and isinstance(store, RestoresTables)):
        return {}
    control = ControlTable(store)
    rows = {table: _row(table, which) for table, which in tables.items()}
    known = dict(zip(rows, control.read_many(tuple(rows.values())), strict=True))
    # Behind what is remembered, so that of two states the later one is this one: a run that stood
    # still in between would take the table for restored, because a faster one has seen it later.
    states = store.table_states(list(tables))

    def first(table: str, state: int) -> int:
        """Return what is in doubt about a table that nobody has seen by its incarnation."""
        if not tables[table]:
            return NO_DOUBT
        # It may have been given its incarnation only now.
        unnamed = _row(table, "")
        for one in _decoded(unnamed, control.read(unnamed)):
            if (one.table, one.state) == (table, state):
                return one.doubtful
        return newest()

    found = {}
    for table, row in rows.items():
        if table in states:
            remembered = _Remembered(store, control, row, table, known[table], states[table])
            seen = _sight(remembered, first, newest, only_looks=only_looks)
            if seen is not None:
                found[table] = seen
    return found


@dataclass
class _Remembered:
    """What is remembered of a table, and in which state it was found behind that."""

    store: RestoresTables
    control: ControlTable
    row: bytes
    table: str
    raw: bytes | None
    state: int

    def is_so_still(self) -> bool:
        """Say whether nobody has seen it since; else look again."""
        raw, before = self.control.read(self.row), self.raw
        if raw != before:
            self.look_again(raw)
        return raw == before

    def replace(self, new: bytes) -> bool:
        """Remember something else, unless another has, and then look again."""
        if self.control.replace(self.row, self.raw, new):
            return True
        self.look_again(self.control.read(self.row))
        return False

    def look_again(self, raw: bytes | None) -> None:
        """Take what is remembered now, and the state behind that."""
        self.raw = raw
        self.state = self.store.table_states([self.table]).get(self.table, _GONE)


def _sight(
    one: _Remembered,
    first: Callable[[str, int], int],
    newest: Callable[[], int],
    *,
    only_looks: bool,
) -> Seen | None:
    """Look what is known of a table, and remember its state; None: it is gone meanwhile."""
    while one.state != _GONE:
        table, state = one.table, one.state
        try:
            sightings = _decoded(one.row, one.raw)
            for known in sightings:
                if (known.table, known.state) == (table, state):
                    return Seen(state, known.doubtful)
            doubtful = newest() if sightings else first(table, state)
        except CorruptCell as error:
            why = f"cannot be told from an earlier one: {error}; nothing without a proof is dropped"
            return Seen(state, DOUBTS_ALL, complaint=why)
        more = encode_document(_with(sightings, Sighting(table, state, doubtful)))
        if one.is_so_still() if only_looks else one.replace(more):
            return Seen(state, doubtful)
    return None


def sight_first(store: Store, schema: TableSchema, clock: Clock, *, begun_s: float | None) -> None:
    """Remember a table that was just made: what is in it is no copy.

    Not where its maker stood still meanwhile and it has cells: it may have been filled, and
    restored from a snapshot, by now.  Then whoever sees it first takes it for a copy.

    Args:
        store: Where it is.
        schema: What it was made by.
        clock: Measures how long that took.
        begun_s: When its making began, by this clock; None: another process may have made it.

    Cost: 2 RPCs and 1 conditional write, where tables may be restored one by one; 1 search for a
    cell more where it was not made just now.
    """
    if not isinstance(store, RestoresTables):
        return
    table, row = schema.name, _row(schema.name, incarnation(schema))
    control = ControlTable(store)
    raw, states = control.read(row), store.table_states([table])
    if table not in states:
        return
    # Behind the look at its state: what comes into an empty one later is no copy, or comes with
    # another state.
    is_young = begun_s is not None and clock.monotonic_s() - begun_s < JUST_MADE_S
    if is_young or store.find_cell(table) is None:
        remembered = _Remembered(store, control, row, table, raw, states[table])
        _sight(remembered, lambda *_: NO_DOUBT, lambda: DOUBTS_ALL, only_looks=False)


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
