"""Which tables are transactional?  What a client must know of one to use it.

A table is one of ours if its attribute names our commit table and it has families marked
`OMID_ENABLED`.  The conflict level is part of the table, because two clients that disagree about
it would not see each other's conflicts: each write-set entry is made as its table says, and a
manager has a level for the tables that it makes alone.  For the same reason a layout that is
remembered must not outlive its table: another one may have been made by the name, at the other
level.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from omidpy.base.schema.family_options import family_attributes
from omidpy.base.schema.phoenix import index_objection, indexes, may_have_indexes, misadoption
from omidpy.base.schema.table_settings import setting_attributes
from omidpy.base.tables import (
    CHANGING,
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    INCARNATION_ATTRIBUTE,
    KEYS_TABLE,
    OMID_ENABLED,
    forgetfulness,
    incarnation,
    maker_of,
    new_incarnation,
    transactional_families,
)
from omidpy.base.timing.clock import Clock
from omidpy.base.words.arguments import (
    check_bytes,
    check_family_name,
    check_free_name,
    check_several,
    check_table_name,
    check_text,
)
from omidpy.errors import (
    ConfigError,
    NoSuchTable,
    NotTransactional,
    TableExists,
    UsageError,
)
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable, transactional_schemas
from omidpy.facts.tables.layout import TableLayout
from omidpy.facts.tables.makers import Makers, ghost_text
from omidpy.facts.tables.sightings import sight_first
from omidpy.model import FamilySchema, TableSchema, Timestamp
from omidpy.storage.base import Store

CONFLICT_LEVELS: Final = ("cell", "row")
DEFAULT_CONFLICT_LEVEL: Final = CONFLICT_LEVELS[0]


class _Known(NamedTuple):
    """The layout of a table as it once was."""

    read_s: float
    """By the monotonic clock, before it was read."""
    after_ts: Timestamp
    """It was read after the transaction of this start_ts had begun; 0: that is not known."""
    layout: TableLayout
    is_open: bool
    """Whether it was seen that nobody removes it; who only reads does not look."""

    def is_recent(self, now_s: float) -> bool:
        """Say whether it was read not long ago."""
        return now_s - self.read_s < LAYOUT_AGE_S

    def speaks_to(self, fenced_ts: Timestamp | None) -> bool:
        """Say whether it holds for a transaction behind that fence, or behind who knows which."""
        return fenced_ts is not None and self.after_ts >= fenced_ts


class NewTable(NamedTuple):
    """A table that is to be made."""

    schema: TableSchema
    splits: tuple[bytes, ...] = ()
    """Where its regions meet."""


LAYOUT_AGE_S: Final = 5.0
"""How long a table's layout is trusted; who writes asks for more (`Catalog.layout_for`)."""

NO_TRANSACTION: Final = Timestamp(0)
"""Below every fence."""

CLOSED_PREFIX: Final = b"closed/"
"""Rows of the control table: who removes which incarnation of a table (`removal.py`)."""


class Catalog:
    """The tables of one store, as one manager uses them.  Safe to share among threads."""

    def __init__(
        self, store: Store, clock: Clock, *, conflict_level: str, table_prefix: str = ""
    ) -> None:
        if conflict_level not in CONFLICT_LEVELS:
            raise UsageError(f"conflict_level={conflict_level!r} is none of {CONFLICT_LEVELS}")
        self._store = store
        self._clock = clock
        self._conflict_level = conflict_level
        self.table_prefix = table_prefix
        self._layouts: dict[str, _Known] = {}
        self._unindexed: dict[str, _Known] = {}
        self._makers = Makers(store)

    @property
    def conflict_level(self) -> str:
        """`cell` or `row`: that of tables made here."""
        return self._conflict_level

    def plan(
        self,
        name: str,
        families: Iterable[str | bytes] | Mapping[str, object] | Mapping[bytes, object],
        splits: Sequence[bytes],
        settings: Mapping[str, object] | None = None,
        *,
        is_own: bool = False,
    ) -> NewTable:
        """Return a transactional table to be made; see `TransactionManager.create_table`.

        `is_own`: it is one of omidpy's own, which no user makes (`maker_of`).
        """
        given, name = name, check_table_name(self.full_name(name))
        if not is_own:
            # Of a prefix the tables of queues and of what was published are its own.
            check_free_name(name if maker_of(given) is None else given)
        options = _family_options(families)
        if not options:
            raise UsageError(f"table {name!r} needs at least one column family")
        splits = tuple(check_several("splits", splits))  # which an iterator gives once
        for split in splits:
            if not check_bytes("a split point", split):
                raise UsageError("a split point must not be empty")
        schema = TableSchema(
            name,
            [
                FamilySchema(family, {OMID_ENABLED: "true", **attributes})
                for family, attributes in sorted(options.items())
            ],
            {
                COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE,
                CONFLICT_LEVEL_ATTRIBUTE: self._level_of(name),
                INCARNATION_ATTRIBUTE: new_incarnation(),
                **setting_attributes(name, settings or {}),
            },
        )
        return NewTable(schema, tuple(sorted(set(splits))))

    def check_absent(self, name: str) -> None:
        """Refuse the name of a table that exists.

        Raises:
            TableExists: there is one.
        """
        try:
            found = self._store.schema(name)
        except NoSuchTable:
            return
        if not self._makers.is_ghost(found):
            raise TableExists(f"table {name!r} exists already in {self._store.url}")

    def create(self, table: NewTable) -> None:
        """Make a table that `plan` has returned.

        Raises:
            TableExists: nothing was changed.
        """
        while True:
            begun_s = self._clock.monotonic_s()
            try:
                self._store.create_table(table.schema, splits=table.splits)
            except TableExists:
                if not self._clear_ghost(table.schema.name):
                    raise
            else:
                break
        sight_first(self._store, table.schema, self._clock, begun_s=begun_s)
        self.forget(table.schema.name)

    def _clear_ghost(self, name: str) -> bool:
        """Remove a ghost (`makers.py`); return whether the name may be free now."""
        try:
            found = self._store.schema(name)
        except NoSuchTable:
            return True
        if not self._makers.is_ghost(found):
            return False
        self._makers.remove_ghost(found)
        return True

    def forget(self, name: str) -> None:
        """Remember nothing of a table that was changed."""
        self._layouts.pop(name, None)

    def to_remove(self, name: str) -> TableSchema:
        """Return a table that a client wants to be gone (`removal.py`).

        Raises:
            NoSuchTable: it is not there.
            NotTransactional: it is not ours to remove.
        """
        schema = self._settled(check_table_name(self.full_name(name)))
        check_ours(schema)
        return schema

    def names(self) -> list[str]:
        """Return the names of the transactional tables, sorted."""
        prefix = self.table_prefix
        found = transactional_schemas(self._store)
        ghosts = self._makers.ghosts(found)
        return [
            one.name.removeprefix(prefix)
            for one in found
            if one.name.startswith(prefix) and one.name not in ghosts
        ]

    def full_name(self, name: str) -> str:
        """Return the name that a table has in the store."""
        # Before anybody looks for it in a dict, which says nothing of what it was given.
        name = check_text("a table name", name)
        if not self.table_prefix or name == KEYS_TABLE:
            return name
        return self.table_prefix + check_table_name(name)

    def _level_of(self, name: str) -> str:
        """Return the level of a table that is made here, or that does not say.

        The keys of a store are the same for all of its clients, whatever their level: two of them
        that use one key must meet.
        """
        return DEFAULT_CONFLICT_LEVEL if name == KEYS_TABLE else self._conflict_level

    def layout(
        self,
        name: str,
        *,
        start_ts: Timestamp = NO_TRANSACTION,
        fenced_ts: Timestamp | None = None,
    ) -> TableLayout:
        """Return what must be known of a table to read it, at most `LAYOUT_AGE_S` old.

        Args:
            name: Its name in the store.
            start_ts: A transaction that has begun, if there is one.
            fenced_ts: Its `Begun.fenced_ts`: what was read before that fence may be of an earlier
                table.  None: that is put up with.
        """
        now_s = self._clock.monotonic_s()
        known = self._recent(name, now_s)
        if known is not None and (fenced_ts is None or known.speaks_to(fenced_ts)):
            return known.layout
        return self._read(name, now_s, after_ts=start_ts)

    def layout_for(
        self, name: str, *, start_ts: Timestamp, fenced_ts: Timestamp | None
    ) -> TableLayout:
        """Return what must be known of a table to write it in a transaction.

        Either it is still so, or a fence aborts the transaction: a table of the name is made only
        after a fence behind which no transaction could begin to write the one before: that was
        closed (`removal.py`), or had ended.  What was read since the newest fence that this
        transaction will not run into speaks of no earlier table.

        Args:
            name: Its name in the store.
            start_ts: The transaction, which has begun.
            fenced_ts: Its `Begun.fenced_ts`; None: read it anew.

        Raises:
            ConfigError: it is being dropped, or its conflict level is being changed.

        Cost: 1 look at the schema and 1 scan of the control table, once in `LAYOUT_AGE_S` and after
        each fence; as much a transaction where the oracle tells of none.  What `Makers.settle`
        takes, once.
        """
        now_s = self._clock.monotonic_s()
        known = self._recent(name, now_s)
        if known is not None and known.is_open and known.speaks_to(fenced_ts):
            return known.layout
        return self._read(name, now_s, after_ts=start_ts, is_written=True)

    def check_unindexed(
        self, layout: TableLayout, *, start_ts: Timestamp, fenced_ts: Timestamp | None
    ) -> None:
        """Refuse to write a table of which Phoenix keeps indexes, or that is one.

        Either it still has none, or a fence aborts the transaction: Phoenix sets one behind a new
        index.  So what was found is believed as long as in `layout_for`.

        Args:
            layout: The table, which Phoenix writes, too.
            start_ts: The transaction, which has begun.
            fenced_ts: As in `layout_for`.

        Raises:
            ConfigError: it has, or is; nothing was written.

        Cost: 1 list of all tables, once in `LAYOUT_AGE_S` and after each fence; one a transaction
        where the oracle tells of none.
        """
        now_s = self._clock.monotonic_s()
        known = self._unindexed.get(layout.name)
        if known is not None and known.is_recent(now_s) and known.speaks_to(fenced_ts):
            return
        complaint = index_objection(layout.name, indexes(self._store.tables()))
        if complaint is not None:
            raise ConfigError(complaint)
        self._unindexed[layout.name] = _Known(now_s, start_ts, layout, is_open=True)

    def _recent(self, name: str, now_s: float) -> _Known | None:
        known = self._layouts.get(name)
        return known if known is not None and known.is_recent(now_s) else None

    def _read(
        self, name: str, now_s: float, *, after_ts: Timestamp, is_written: bool = False
    ) -> TableLayout:
        check_table_name(name)
        # Before the table: these rows go behind its removal, so that of one which is there all are
        # seen that stood there; and who closes it from here on fences this transaction off (I8).
        closings = _closings(self._store, CLOSED_PREFIX) if is_written else []
        schema = self._settled(name)
        layout = self._layout_of(schema)
        if any(row.startswith(closed_prefix(schema)) for row in closings):
            raise ConfigError(
                f"table {name!r} is being dropped; if that was interrupted, drop it again, or keep "
                f"it: `omidpy table adopt {name} --reopen --apply` opens it"
            )
        self._layouts[name] = _Known(now_s, after_ts, layout, is_written)
        return layout

    def _settled(self, name: str) -> TableSchema:
        """Return a table's schema.

        Raises:
            NoSuchTable: also where one is there that no client may use.
        """
        schema = self._store.schema(name)
        if not self._makers.settle(schema):
            raise NoSuchTable(ghost_text(name, is_written=False))
        return schema

    def _layout_of(self, schema: TableSchema) -> TableLayout:
        families = check_ours(schema)
        if (complaint := forgetfulness(schema, families)) is not None:
            raise NotTransactional(complaint)
        if (complaint := misadoption(schema)) is not None:
            raise ConfigError(complaint)
        # Clients of a table go by what it says, whatever they make themselves: one transaction may
        # write tables of both levels.  Where a table says nothing, they do as they would make it.
        level = schema.attributes.get(CONFLICT_LEVEL_ATTRIBUTE, self._level_of(schema.name))
        if level == CHANGING:
            raise ConfigError(
                f"the conflict level of table {schema.name!r} is being changed; if that was "
                f"interrupted, run `omidpy table adopt {schema.name} --conflict-level cell|row "
                "--apply` again"
            )
        if level not in CONFLICT_LEVELS:
            raise ConfigError(
                f"table {schema.name!r} detects conflicts by {level!r}, which is none of "
                f"{', '.join(CONFLICT_LEVELS)}; adopt it with `omidpy table adopt {schema.name} "
                "--conflict-level cell|row --apply`"
            )
        settings = {family.name: family.attributes for family in schema.families}
        return TableLayout(
            schema.name,
            families,
            level,
            settings,
            is_phoenixs=may_have_indexes(schema),
            incarnation=incarnation(schema),
        )


def _family_options(
    families: Iterable[str | bytes] | Mapping[str, object] | Mapping[bytes, object],
) -> dict[bytes, dict[str, str]]:
    """Return the attributes asked for, by family."""
    if isinstance(families, (str, bytes)) or not isinstance(families, Iterable):
        raise TypeError(f"families must be a list of names, not {families!r:.80}")
    if not isinstance(families, Mapping):
        return {_family_name(family): {} for family in families}
    found: dict[bytes, dict[str, str]] = {}
    for family, options in families.items():
        name = _family_name(family)
        if name in found:
            raise UsageError(f"family {name!r} is named twice, by text and by bytes")
        found[name] = family_attributes(name, options)
    return found


def _family_name(family: object) -> bytes:
    """Return a family's name, which happybase's users may end with a colon."""
    if isinstance(family, str):
        family = family.removesuffix(":")
    elif isinstance(family, bytes):
        family = family.removesuffix(b":")
    return check_family_name(family)


def closed_prefix(schema: TableSchema) -> bytes:
    """Return what the rows begin with of those who remove this incarnation of a table."""
    return CLOSED_PREFIX + (incarnation(schema) or f"={schema.name}").encode() + b"/"


def is_closed(store: Store, schema: TableSchema) -> bool:
    """Say whether somebody removes a table, so that none may begin to write it.

    Cost: 1 scan of the control table.
    """
    return bool(_closings(store, closed_prefix(schema)))


def _closings(store: Store, prefix: bytes) -> list[bytes]:
    return [row for row, _ in ControlTable(store).scan(prefix)]


def check_ours(schema: TableSchema) -> frozenset[bytes]:
    """Return the transactional families of a table of ours.

    Raises:
        NotTransactional: it has another owner, or none.
    """
    families = transactional_families(schema)
    owner = schema.attributes.get(COMMIT_TABLE_ATTRIBUTE)
    if not families or owner != COMMIT_TABLE:
        if owner not in (None, COMMIT_TABLE):
            reason = f"belongs to the commit table {owner!r}"
        elif families:
            reason = f"has {OMID_ENABLED}=true, Omid's mark, and has not been adopted"
        else:
            reason = "is not marked for transactions"
        raise NotTransactional(
            f"table {schema.name!r} {reason}; make tables with tm.create_table, or take one over "
            f"with `omidpy table adopt {schema.name}`"
        )
    return families
