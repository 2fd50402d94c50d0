"""Tables of transactional cells, written by hand: every state that dead clients leave behind.

No client and no oracle take part, so that a test says exactly which of data cell, shadow cell and
commit entry exist.  `visible` reads back as a client would, with the product's own reader.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compactor.options import Options
from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.report import Report
from compactor.run.local import compact
from omidpy.base.cells import INVALIDATION_VALUE, commit_row, encode_commit, encode_long
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, INCARNATION_ATTRIBUTE, OMID_ENABLED
from omidpy.base.timing.clock import ManualClock
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    FIRST_TIMESTAMP_FACT,
    INVALIDATION,
    LOW_WATERMARK_FACT,
    CommitTable,
    create_system_tables,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.sightings import sight_first
from omidpy.model import Cell, FamilySchema, KeyRange, TableSchema, Timestamp
from omidpy.reading.resolution import CellResolver
from omidpy.reading.visibility import (
    Unresolved,
    VisibleRow,
    shadow_column,
    sort_row,
    visible_row,
)
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store

FAMILY: Final = b"cf"
ALL_AT_ONCE: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
"""No graces: what this run proved it also acts upon, but for version collection."""


class World:
    """A store in the middle of its life."""

    def __init__(
        self, store: Store, *, low_watermark: int = 1000, first_timestamp: int = 0
    ) -> None:
        self.store = store
        self.clock = ManualClock()
        create_system_tables(store)
        self.control = ControlTable(store)
        self.commit_table = CommitTable(store)
        self.set_low_watermark(low_watermark)
        if first_timestamp:
            self.control.raise_number(FIRST_TIMESTAMP_FACT, first_timestamp)

    # -- tables and numbers --------------------------------------------------------------------

    def set_low_watermark(self, low_watermark: int) -> None:
        """Let the oracle's low watermark rise."""
        self.control.raise_number(LOW_WATERMARK_FACT, low_watermark)

    def table(
        self,
        name: str = "t",
        *,
        families: Sequence[bytes] = (FAMILY,),
        plain_families: Sequence[bytes] = (),
        splits: Sequence[bytes] = (),
        owner: str | None = COMMIT_TABLE,
        incarnation: str | None = None,
    ) -> str:
        """Create a table; `families` are marked, `plain_families` are not."""
        schemas = [FamilySchema(family, {OMID_ENABLED: "true"}) for family in families]
        schemas += [FamilySchema(family) for family in plain_families]
        attributes = {} if owner is None else {COMMIT_TABLE_ATTRIBUTE: owner}
        if incarnation is not None:
            attributes[INCARNATION_ATTRIBUTE] = incarnation
        schema = TableSchema(name, schemas, attributes)
        self.store.create_table(schema, splits=splits)
        if incarnation is not None and owner is not None:
            sight_first(self.store, schema, self.clock, begun_s=self.clock.monotonic_s())
        return name

    # -- cells and entries ---------------------------------------------------------------------

    def put(
        self,
        row: bytes,
        version: int,
        value: bytes = b"v",
        *,
        table: str = "t",
        family: bytes = FAMILY,
        qualifier: bytes = b"q",
    ) -> Cell:
        """Write a data cell, tentative until an entry or a shadow cell says otherwise."""
        self.store.write({table: [RowMutation(row, (Put(family, qualifier, version, value),))]})
        return Cell(row, family, qualifier, version, value)

    def heal(self, cell: Cell, commit_ts: int, *, table: str = "t") -> None:
        """Write the shadow cell of a cell."""
        put = Put(*shadow_column(cell), cell.version, encode_long(commit_ts))
        self.store.write({table: [RowMutation(cell.row, (put,))]})

    def remove(self, cell: Cell, *, table: str = "t") -> None:
        """Remove a data cell and leave its shadow cell, as a Java rollback does."""
        delete = DeleteVersion(cell.family, cell.qualifier, cell.version)
        self.store.write({table: [RowMutation(cell.row, deletes=(delete,))]})

    def enter(self, start_ts: int, commit_ts: int) -> None:
        """Write a commit entry, as the oracle does."""
        put = Put(*COMMIT, start_ts, encode_commit(start_ts, commit_ts))
        self.store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (put,))]})

    def invalidate(self, start_ts: int) -> None:
        """Write an invalidation, whatever else stands in the entry."""
        put = Put(*INVALIDATION, start_ts, INVALIDATION_VALUE)
        self.store.write({COMMIT_TABLE: [RowMutation(commit_row(start_ts), (put,))]})

    def healed(self, row: bytes, version: int, commit_ts: int, value: bytes = b"v") -> Cell:
        """Write a cell of a completed transaction: healed, its entry gone."""
        cell = self.put(row, version, value)
        self.heal(cell, commit_ts)
        return cell

    # -- what is there -------------------------------------------------------------------------

    def cells(self, table: str = "t") -> list[Cell]:
        """Return every cell of a table."""
        return [cell for page in self.store.scan(table) for row in page for cell in row]

    def data(self, table: str = "t") -> list[tuple[bytes, bytes, int, bytes]]:
        """Return the data cells of a table as (row, qualifier, version, value)."""
        return [
            (cell.row, cell.qualifier, cell.version, cell.value)
            for cell in sort_row(self.cells(table)).data
        ]

    def shadows(self, table: str = "t") -> dict[tuple[bytes, int], int]:
        """Return (row, version) -> commit_ts of the shadow cells of a table of one column."""
        found: dict[tuple[bytes, int], int] = {}
        for page in self.store.scan(table):
            for cells in page:
                for (_, _, version), commit_ts in sort_row(cells).shadows.items():
                    found[cells[0].row, version] = commit_ts
        return found

    def entries(self) -> dict[int, object]:
        """Return the commit table: start_ts -> commit timestamp or `INVALID`."""
        return {row.start_ts: row.entry for page in self.commit_table.scan() for row in page}

    def image(self) -> dict[str, list[Cell]]:
        """Return every cell of every table, byte for byte."""
        return {schema.name: self.cells(schema.name) for schema in self.store.tables()}

    def visible(self, row: bytes, start_ts: int, *, table: str = "t") -> dict[bytes, bytes]:
        """Return qualifier -> value that a snapshot sees in a row, read as a client reads."""
        cells = self.store.get(table, [row], max_version=start_ts + 50)[0]
        return {
            seen.cell.qualifier: seen.cell.value
            for seen in self._seen(cells, start_ts, table).cells
        }

    def _seen(self, cells: list[Cell], start_ts: int, table: str) -> VisibleRow:
        resolver = CellResolver(self.store, self.commit_table)
        facts: dict[Cell, Timestamp | None] = {}
        while True:
            seen = visible_row(sort_row(cells), Timestamp(start_ts), facts, {}, versions_read=None)
            if isinstance(seen, VisibleRow):
                return seen
            assert isinstance(seen, Unresolved)
            resolutions = resolver.resolve(
                [(table, cell) for cell in seen.cells], may_invalidate=lambda _: False
            )
            facts.update(
                {cell: resolution.commit_ts for (_, cell), resolution in resolutions.items()}
            )

    # -- compaction ----------------------------------------------------------------------------

    def compact(self, options: Options = ALL_AT_ONCE, *, on_step: OnStep = ignore_step) -> Report:
        """Run a compaction in this process; its sleep turns the clock."""
        return compact(
            self.store, options, clock=self.clock, sleep=self.clock.advance, on_step=on_step
        )

    def split(self, at: bytes, *, table: str = "t") -> None:
        """Split a region."""
        self.store.split_region(table, at)

    def regions(self, table: str = "t") -> list[KeyRange]:
        """Return the regions of a table."""
        return self.store.regions(table)


def troubled(world: World) -> None:
    """Write, into table `t`, every kind of cell that a compaction has work with."""
    world.put(b"a", 100)
    world.put(b"z", 101)
    world.enter(100, 150)
    world.put(b"a", 200)
    world.put(b"z", 200)
    world.healed(b"b", 300, 350, b"old")
    world.healed(b"b", 400, 450, b"new")
    world.healed(b"c", 300, 350, b"gone")
    world.healed(b"c", 400, 450, b"")
    marker = world.put(b"d", 450, b"", qualifier=b"")
    world.heal(marker, 480)
    world.healed(b"d", 300, 350, b"gone")
    orphan = world.put(b"e", 500)
    world.heal(orphan, 550)
    world.remove(orphan)


def outcome(world: World) -> tuple[list[Cell], dict[int, object], list[dict[bytes, bytes]]]:
    """Return the cells, the commit table, and what readers have to show for `troubled`."""
    rows = (b"a", b"b", b"c", b"d", b"e", b"z")
    return world.cells(), world.entries(), [world.visible(row, 2000) for row in rows]
