"""Operations, and the steps that change tables, with a guard taken out: by name.

Each is a part that the simulator puts in the place of the product's own (`Parts`).
"""

from __future__ import annotations

import contextlib
from typing import Final

from omidpy.admin.table_steps import Fence, ForgetClaims, Remove, TableTools
from omidpy.errors import NoSuchTable
from omidpy.fate.operation import Operation
from omidpy.fate.table.store import TableFateStore
from tests.machines.simulator.simulation import Parts, Patch


def _removed_by_name(self: Remove, tools: TableTools) -> Fence:
    """Remove whatever table has the name by now."""
    with contextlib.suppress(NoSuchTable):
        tools.store.drop_table(self.table)
    return Fence(self.table, self.renewal)


def _unfenced(self: Fence, tools: TableTools) -> ForgetClaims:
    """Let those commit who wrote an earlier table of the name."""
    del tools
    return ForgetClaims(self.table, self.renewal)


_swap = TableFateStore.swap


def _written_by_the_deposed(self: TableFateStore, old: Operation, new: Operation) -> bool:
    """Write over whatever somebody else has written meanwhile."""
    found = self.read(old.id)
    return found is not None and _swap(self, found, new)


OPERATION_MUTANTS: Final = {
    "removed by name": Parts(patches=(Patch(Remove, "do", _removed_by_name),)),
    "next table made unfenced": Parts(patches=(Patch(Fence, "do", _unfenced),)),
    "operation written by the deposed": Parts(
        patches=(Patch(TableFateStore, "swap", _written_by_the_deposed),)
    ),
}
"""The product with a guard taken out, by name."""
