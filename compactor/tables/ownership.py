"""Which tables may a compaction change, and which merely hold the horizon back?

Counting is not owning.  Every table of the store counts that may hold cells of our transactions,
because a transactional table that a pruner forgets is data lost.  But we write only where an
operator has said so: a family with `OMID_ENABLED=true` in a table whose attribute names this very
commit table.  Whatever looks transactional and is not ours blocks the horizon until it is adopted
or ignored.

`judge` is pure; `survey` asks the store.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace as replace_word

from compactor.horizon import Wanted
from omidpy.base.cells import SHADOW_PREFIX
from omidpy.base.schema.phoenix import misadoption, objection
from omidpy.base.schema.table_settings import ATTRIBUTES
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    OMID_ENABLED,
    dated_incarnation,
    incarnation,
    is_system_table,
    transactional_families,
    weakness,
)
from omidpy.errors import CorruptCell, NoSuchTable, StorageError
from omidpy.facts.commit_table import read_low_watermark, read_timestamp_ceiling
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.tables.listing import hidden_among
from omidpy.facts.tables.plain_versions import presumed_plain
from omidpy.facts.tables.sightings import DOUBTS_ALL, NO_DOUBT, Seen, sight
from omidpy.model import FIRST_WORLD_TIMESTAMP, MAX_VERSION, TIMESTAMP_STEP, Cell, TableSchema
from omidpy.storage.base import Store

SETTINGS: Final = frozenset(ATTRIBUTES.values())

IGNORED_PREFIX: Final = b"ignored/"


class Standing(Enum):
    """What a compaction may do with a table."""

    OWNED = "owned"
    """Healed, collected, and counted."""
    BLOCKING = "blocking"
    """Looks transactional and is not ours: never written, holds the horizon back."""
    IGNORED = "ignored"
    """An operator said that it is not ours: never written, does not count."""
    PLAIN = "plain"
    """Nothing transactional about it: never written, does not count."""
    SYSTEM = "system"
    """Omid's, omidpy's or HBase's own."""


@dataclass(frozen=True, slots=True)
class TableStanding:
    """A table, what may be done with it, and why."""

    name: str
    standing: Standing
    families: frozenset[bytes] = frozenset()
    """The families that may be written; empty unless it is owned."""
    rest: frozenset[bytes] = frozenset()
    """Families that no pass goes over, though a transaction may have written there."""
    reason: str = ""
    """Why it holds the horizon back, and what to do about it; empty if it does not."""
    note: str = ""
    """What is wrong with it, or could not be found out; that alone holds nothing back."""
    incarnation: str = ""
    """Which table of this name it is, and since when; another one after a restore."""
    doubtful: int = NO_DOUBT
    """Of versions at or below it absence of a commit proves nothing (`facts/sightings.py`)."""
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Attributes of a table of ours by which it asks something of a run."""
    is_hidden: bool = False
    """Whether nobody here may look at its schema, so that its families are not known."""


def is_owned(schema: TableSchema, commit_table: str) -> bool:
    """Say whether the table was created or adopted for `commit_table`."""
    owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
    return (
        owner == commit_table
        and bool(transactional_families(schema))
        and not is_system_table(schema.name)
    )


def owned(standings: Iterable[TableStanding]) -> dict[str, Wanted]:
    """Return what claims must speak of, by table of ours."""
    return {
        one.name: Wanted(one.families, one.incarnation)
        for one in standings
        if one.standing is Standing.OWNED
    }


def judge(
    schema: TableSchema,
    commit_table: str,
    *,
    is_ignored: bool = False,
    ignored_families: frozenset[bytes] = frozenset(),
    witness: Cell | None = None,
) -> TableStanding:
    """Decide the standing of one table.

    Args:
        schema: The table.
        commit_table: Name of the commit table that this compaction prunes.
        is_ignored: Whether an operator said that the table is not ours.
        ignored_families: Of which of its families an operator said so.
        witness: Some cell with the qualifier of a shadow cell, if there is one in the families that
            are not ours to write.
    """
    name = schema.name
    if is_system_table(name):
        return TableStanding(name, Standing.SYSTEM)
    marked = transactional_families(schema)
    others = frozenset(schema.family_names()) - ignored_families
    if is_owned(schema, commit_table):
        rest, which = others - marked, incarnation(schema)
        asked = {key: schema.attributes[key] for key in SETTINGS if key in schema.attributes}
        # A shadow cell that a client wrote there may be lost with a server, once its entry is.
        reason = weakness(schema) or ""
        if witness is not None:
            family = family_text(witness.family)
            reason = (
                f"family {family} is not ours, but {_found(witness)}; "
                f"{family_remedy(name, witness.family)}"
            )
        return TableStanding(
            name,
            Standing.OWNED,
            marked,
            rest,
            reason,
            note=_as_note(name, misadoption(schema)),
            incarnation=which,
            settings=asked,
        )
    if is_ignored:
        return TableStanding(name, Standing.IGNORED)
    if marked:
        owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
        found = f"family {family_text(min(marked))} has {OMID_ENABLED}=true"
        found += f", but the table belongs to the commit table {owner}" if owner else ""
    elif witness is not None:
        found = _found(witness)
    else:
        note = _as_note(name, objection(schema))
        return TableStanding(name, Standing.PLAIN, rest=others, note=note)
    reason = f"not adopted: {found}; {remedy(name)}"
    return TableStanding(name, Standing.BLOCKING, rest=others, reason=reason)


def _as_note(table: str, sentence: str | None) -> str:
    """Return a sentence that begins with a table's name as what is said behind the name."""
    return "" if sentence is None else sentence.removeprefix(f"table {table} ")


def _found(shadow: Cell) -> str:
    return f"row {shadow.row!r} holds the shadow cell {shadow.qualifier!r}"


def remedy(table: str) -> str:
    """Say what an operator can do about a table that blocks the horizon."""
    return (
        f"{_adopt(table)} if its transactions are ours, `omidpy table ignore {table} --apply` if "
        "they are not"
    )


def family_remedy(table: str, family: bytes) -> str:
    """Say what an operator can do about a family, of a table of ours, that blocks the horizon."""
    name = shlex.quote(family_text(family))
    return (
        f"{_adopt(table)} to make it ours, too, `omidpy table ignore {table} --families {name} "
        "--apply` if no transaction wrote it"
    )


def _adopt(table: str) -> str:
    return (
        f"run `omidpy table adopt {table} --apply` (with --accept-undecided if it finds cells that "
        "nobody has decided about)"
    )


def family_text(family: bytes) -> str:
    """Return the name of a family as a command line has it."""
    return family.decode(errors="backslashreplace")


def unknown_tables(names: Sequence[str], store_url: str) -> str:
    """Say that a command named tables that do not exist."""
    return (
        f"there is no table {', '.join(names)} in {store_url}; `omidpy table list` shows what "
        "there is"
    )


def survey(
    store: Store, commit_table: str, *, newest: Callable[[], int] | None = None
) -> list[TableStanding]:
    """Judge every table of the store, by name.

    Shadow cells are looked for among the versions that transactions may have alone, so that tables
    of plain data cost HBase nothing.

    Args:
        store: Where they are.
        commit_table: Whose transactions are meant.
        newest: As `sight` wants it, which then remembers in which state the tables are.  None: only
            look.

    Cost: 9 RPCs, 2 more where tables may be restored one by one, and for each family without a mark
    a search for a shadow cell; `find_cell` says what that takes.
    """
    ignored = read_ignored(ControlTable(store))
    versions = transaction_versions(store)
    standings = []
    schemas = store.tables()
    for schema in schemas:
        word = said_of(schema, ignored)
        judged = partial(
            judge,
            schema,
            commit_table,
            is_ignored=word.is_ignored,
            ignored_families=frozenset(word.families),
        )
        standing = judged()
        if standing.rest and not standing.reason:
            try:
                witness = _find_shadow_cell(store, standing, versions)
            except NoSuchTable:
                # Dropped since it was listed.
                continue
            except StorageError as error:
                # Before an entry goes the table is asked for cells of its transaction, too, and one
                # that does not answer then holds it.
                note = f"could not be searched for shadow cells: {error}"
                note = "; ".join(text for text in (standing.note, note) if text)
                standings.append(replace(standing, note=note))
                continue
            standing = judged(witness=witness)
        standings.append(standing)
    standings = sorted([*standings, *hidden_tables(store, schemas)], key=lambda one: one.name)
    return _sighted(store, standings, commit_table, newest)


def hidden_tables(store: Store, schemas: list[TableSchema]) -> Iterator[TableStanding]:
    """Judge the tables that a list has left out, since this user may not look at them.

    They may be ours, or transactions may have written there.  What an operator said of one, that it
    is not ours, he said of an incarnation, which is not known here.
    """
    for name, why in hidden_among(store, schemas).items():
        if not is_system_table(name):
            reason = (
                "not known: this user may not look at it, and transactions may have written there; "
                f"let HBase's administrator grant him create or admin on {name} ({why})"
            )
            yield TableStanding(name, Standing.BLOCKING, reason=reason, is_hidden=True)


def _sighted(
    store: Store,
    standings: Iterable[TableStanding],
    commit_table: str,
    newest: Callable[[], int] | None,
) -> list[TableStanding]:
    """Say since when the tables of ours are what they are, and what is in doubt about them."""
    standings = list(standings)
    ours = {one.name: one.incarnation for one in standings if one.standing is Standing.OWNED}
    seen = sight(
        store,
        # Where entries were lost, all absence is in doubt.
        {**ours, commit_table: ""} if ours else {},
        newest=newest or (lambda: MAX_VERSION),
        only_looks=newest is None,
    )
    if not seen:
        return standings
    entries = seen.get(commit_table)
    lost = DOUBTS_ALL if entries is None else entries.doubtful
    return [
        _seen(standing, seen.get(standing.name), lost)
        for standing in standings
        # Those that were dropped since they were listed are left out.
        if standing.name not in ours or standing.name in seen
    ]


def _seen(standing: TableStanding, seen: Seen | None, lost: int) -> TableStanding:
    if seen is None:
        return standing
    standing = replace(standing, doubtful=seen.doubtful, note=standing.note or seen.complaint)
    if standing.standing is not Standing.OWNED:
        return standing
    which = dated_incarnation(standing.incarnation, seen.state)
    return replace(standing, incarnation=which, doubtful=max(seen.doubtful, lost))


def _find_shadow_cell(
    store: Store, standing: TableStanding, versions: Iterable[range]
) -> Cell | None:
    """Look for a shadow cell where no pass of ours goes."""
    columns = [(family, None) for family in sorted(standing.rest)]
    found = (
        store.find_cell(
            standing.name,
            prefix=SHADOW_PREFIX,
            columns=columns,
            min_version=stretch.start,
            max_version=stretch.stop,
        )
        for stretch in versions
    )
    return next((cell for cell in found if cell is not None), None)


def transaction_versions(store: Store) -> list[range]:
    """Return the versions that cells of transactions may have, as far as is known.

    Those that HBase's own clock sets are left out where no oracle has issued them.

    Cost: 7 gets.
    """
    low_watermark = read_low_watermark(store)
    plain = presumed_plain(store, low_watermark)
    end = MAX_VERSION
    if low_watermark < FIRST_WORLD_TIMESTAMP:
        # Timestamps that count, and milliseconds are above them.
        ceiling = read_timestamp_ceiling(store)
        end = MAX_VERSION if ceiling is None else ceiling + TIMESTAMP_STEP
    return [found for found in (range(plain.low), range(plain.high, end)) if found]


# -- what an operator takes out of the account -----------------------------------------------------


class Ignored(msgspec.Struct, frozen=True):
    """What an operator said of a table: no transaction of this commit table wrote there."""

    is_ignored: bool
    """Of all of it."""
    families: tuple[bytes, ...] = ()
    """Of these families, sorted."""
    incarnation: str = ""
    """Of which table of the name; empty where that was not written down, as earlier versions did
    not, nor does an operator who cannot change a table's attributes."""


NOT_IGNORED: Final = Ignored(is_ignored=False)


def said_of(schema: TableSchema, words: Mapping[str, Ignored]) -> Ignored:
    """Return what an operator said of a table, and not of an earlier one of its name."""
    word = words.get(schema.name, NOT_IGNORED)
    return word if word.incarnation in ("", incarnation(schema)) else NOT_IGNORED


def read_ignored(control: ControlTable) -> dict[str, Ignored]:
    """Return what operators said, by table; what cannot be decoded was not said."""
    found, _ = control.documents(IGNORED_PREFIX, Ignored)
    return {row.removeprefix(IGNORED_PREFIX).decode(): word for row, word in found.items()}


def change_ignored(
    store: Store, schema: TableSchema, change: Callable[[Ignored], Ignored], *, which: str
) -> None:
    """Change what was said of a table, whatever others say of it at that moment.

    A fact is replaced and never deleted: on HBase a delete would hide the next one.

    Args:
        store: Where it is.
        schema: The table, as what was said so far must mean it.
        change: Returns what is said then; may be called again.
        which: Its incarnation from now on.

    Cost: 1 get, and 1 checked change where something changes; a write where none can be checked.
    """
    control, row = ControlTable(store), IGNORED_PREFIX + schema.name.encode()
    while True:
        raw, word = control.read(row), NOT_IGNORED
        with contextlib.suppress(CorruptCell):
            word = NOT_IGNORED if raw is None else decode_document(raw, Ignored, row=row)
        said = said_of(schema, {schema.name: word})
        new = change(said)
        if new == said:
            return
        written = encode_document(replace_word(new, incarnation=which))
        if not store.capabilities.checked_changes:
            control.write(row, written)
            return
        if control.replace(row, raw, written):
            return


def ignored_tables(control: ControlTable) -> frozenset[str]:
    """Return the names of which an operator said that the tables are not ours."""
    return frozenset(table for table, word in read_ignored(control).items() if word.is_ignored)
