"""Which cell beside a frame's own does each row of Apache Phoenix's need?

SQL finds a row by its empty column, `family:_0`, where it needs no other column of the row: one
that has none is missing from `SELECT K`, and in others.  So each row that is put gets it, as by
UPSERT.  The family is that of the table's first column that is not of its key: where there is one
family alone it is that one, and else the frame has to say.

Pure.
"""

from __future__ import annotations

from omidpy.base.schema.phoenix import EMPTY_COLUMN, EMPTY_VALUE
from omidpy.base.words.arguments import parse_column
from omidpy.errors import UsageError
from omidpy.facts.tables.layout import TableLayout
from omidpy.tx.frames.shape import Shape


class Marking:
    """What gives rows of one table their empty column; nothing to tables that are not Phoenix's."""

    def __init__(self, layout: TableLayout, shape: Shape) -> None:
        """Look how it is found.

        Raises:
            UsageError: no part of the save knows it; nothing was written.
        """
        self._table = layout.name
        self._is_phoenixs = layout.is_phoenixs
        # Families that are not transactional count, too: Phoenix's first one may be among them.
        families = [*(layout.settings or layout.families)]
        self._column = families[0] + b":" + EMPTY_COLUMN if len(families) == 1 else None
        named = {field.column for field in shape.fields}
        if self._is_phoenixs and self._column is None and named and shape.rest is None:
            self._check(named)

    @property
    def is_needed(self) -> bool:
        """Whether rows may get a cell."""
        return self._is_phoenixs

    def mark(self, row: bytes, cells: dict[bytes, bytes]) -> None:
        """Add what a row needs to the cells that are put there.

        Raises:
            UsageError: it is not among those that are known.
        """
        if not self._is_phoenixs:
            return
        if self._column is None:
            self._check(cells, row)
        else:
            cells.setdefault(self._column, EMPTY_VALUE)

    def _check(self, columns: set[bytes] | dict[bytes, bytes], row: bytes | None = None) -> None:
        if any(parse_column(one)[1] == EMPTY_COLUMN for one in columns):
            return
        where = "" if row is None else f" of the row {row[:60]!r}"
        raise UsageError(
            f"table {self._table!r} is Phoenix's, whose queries would miss rows without their "
            f"empty column, and of its families nothing says which one has it{where}; give "
            "the frame a column of texts 'x' for it, as columns={'_0': ('FAMILY:_0', 'string')}, "
            "FAMILY being that of the table's first column behind its key, or write by "
            "omidpy.phoenix.table(tm, NAME).put"
        )
