"""How a repair changes what is malformed: a copy first, and then only the bytes that were copied.

What to do is for others to say (`malformed.py`, `singletons.py`).  Killed anywhere, the next repair
finds the cell as it was, and its copies there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from compactor.check.findings import Finding
from compactor.check.quarantine import KeptCell, Quarantine
from compactor.horizon import HOLE
from omidpy.base.tables import incarnation
from omidpy.model import Cell, Column
from omidpy.storage.base import RowMutation, Store
from omidpy.storage.options import RestoresTables

ANOTHER: Final = (
    "the table was made anew, disabled and enabled, or restored, meanwhile; run it again"
)
"""Why what was judged is not changed."""


class Acts:
    """Changes cells of which copies are kept."""

    def __init__(self, store: Store, *, now_ms: Callable[[], int]) -> None:
        """Change nothing yet.

        Args:
            store: Where the cells are.
            now_ms: The date.
        """
        self._store = store
        self._now_ms = now_ms
        self._quarantine = Quarantine(store)

    def which(self, table: str) -> tuple[str, int]:
        """Say which table of its name this is, and since when.

        Cost: 1 look at the catalogue, and 1 get where single tables are restored.
        """
        state = HOLE
        if isinstance(self._store, RestoresTables):
            state = self._store.table_states([table]).get(table, HOLE)
        return incarnation(self._store.schema(table)), state

    def act(
        self,
        table: str,
        which: tuple[str, int],
        cells: list[Cell],
        mutation: RowMutation,
        intent: str,
        finding: Finding,
    ) -> Finding | None:
        """Copy cells, and then change their row if the first of them is what was copied.

        Args:
            table: Where they are.
            which: What `which` said of it, before they were read.
            cells: The first one decides.
            mutation: What becomes of their row.
            intent: The same in words, and on what ground.
            finding: What is wrong with them.

        Returns:
            What is said of them now; None if the first is not what it was any more.

        Raises:
            StorageError: nothing was changed, or it is not known.
        """
        named, _ = which
        names = [
            self._quarantine.keep(
                cell,
                KeptCell(
                    table,
                    named,
                    *cell[:4],
                    len(cell.value),
                    self._now_ms(),
                    finding.detail,
                    intent,
                ),
            )
            for cell in cells
        ]
        if self.which(table) != which:
            return left(finding, ANOTHER)
        if not self._change(table, cells[0], mutation):
            return None
        detail = f"{finding.detail}; {intent}; kept as {', '.join(names)}"
        return msgspec.structs.replace(finding, detail=detail, repaired=True)

    def _change(self, table: str, cell: Cell, mutation: RowMutation) -> bool:
        """Change the row of a cell if that still has its value; say whether it had.

        Cost: 1 get, and 1 durable write; 1 get more where a newer version of its column, or an
        empty value, cannot be compared in the write.
        """
        column = Column(cell.family, cell.qualifier)
        (found,) = self._store.get(table, [cell.row], columns=(column,), max_versions=1)
        if found == [cell] and cell.value:
            return self._store.check_and_mutate(
                table, cell.row, column, cell.value, mutation, durable=True
            )
        # No store compares an older version where it writes.  At or below L only another repair, or
        # a client that comes very late, writes there: it is looked at right before.
        (found,) = self._store.get(
            table,
            [cell.row],
            columns=(column,),
            min_version=cell.version,
            max_version=cell.version + 1,
        )
        if found != [cell]:
            return False
        self._store.write({table: [mutation]}, durable=True)
        return True


def left(finding: Finding, why: str) -> Finding:
    """Return what is said of a finding that was not mended."""
    return msgspec.structs.replace(finding, detail=f"{finding.detail}; not mended: {why}")
