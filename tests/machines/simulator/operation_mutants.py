"""Operations, and the steps that change tables, with a guard taken out: by name.

Each is a part that the simulator puts in the place of the product's own (`Parts`).
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from omidpy.admin.table_steps import Fence, ForgetClaims, Make, Remove, TableTools
from omidpy.errors import NoSuchTable
from omidpy.facts.makers import Makers
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Operation
from omidpy.fate.table.store import TableFateStore
from omidpy.life.members import TableJudge
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


def _made_by_whoever_comes(self: Makers, schema: Any, splits: Any) -> bool:
    """Make it, whoever has made it before."""
    self._store.create_table(schema, splits=splits)
    return True


_swap = TableFateStore.swap


def _written_by_the_deposed(self: TableFateStore, old: Operation, new: Operation) -> bool:
    """Write over whatever somebody else has written meanwhile."""
    found = self.read(old.id)
    return found is not None and _swap(self, found, new)


def _undone_by_name(self: Make, tx: Any, env: TableTools) -> None:
    """Remove the table, whoever has made it."""
    del tx
    with contextlib.suppress(NoSuchTable):
        env.store.drop_table(self.table)


OPERATION_MUTANTS: Final = {
    "removed by name": Parts(patches=(Patch(Remove, "do", _removed_by_name),)),
    "next table made unfenced": Parts(patches=(Patch(Fence, "do", _unfenced),)),
    "made by whoever comes": Parts(patches=(Patch(Makers, "make_table", _made_by_whoever_comes),)),
    "locks that exclude nobody": Parts(patches=(Patch(Locks, "write", lambda *_: None),)),
    "operation written by the deposed": Parts(
        patches=(Patch(TableFateStore, "swap", _written_by_the_deposed),)
    ),
    "everybody taken for dead": Parts(
        patches=(Patch(TableJudge, "dead", lambda _, members: frozenset(members)),)
    ),
    "undone by name": Parts(patches=(Patch(Make, "undo", _undone_by_name),)),
}
"""The product with a guard taken out, by name."""
