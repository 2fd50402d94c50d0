"""Operations, and the steps that change tables, with a guard taken out: by name.

Each is a part that the simulator puts in the place of the product's own (`Parts`).
"""

from __future__ import annotations

import contextlib
from typing import Any, Final

from omidpy.admin.table_steps import (
    Close,
    Fence,
    ForgetClaims,
    Make,
    Remove,
    TableTools,
)
from omidpy.base.tables import INCARNATION_ATTRIBUTE
from omidpy.errors import NoSuchTable, TableExists
from omidpy.facts.tables.makers import MADE_PREFIX, Makers
from omidpy.facts.tables.removal import close
from omidpy.fate.step import Done
from omidpy.model import TableSchema
from tests.machines.simulator.plan import PLAIN, USUAL
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall


def _removed_by_name(self: Remove, tools: TableTools) -> Fence:
    """Remove whatever table has the name by now."""
    with contextlib.suppress(NoSuchTable):
        tools.store.drop_table(self.table)
    return Fence(self.table, self.renewal)


def _closed_unfenced(self: Close, tools: TableTools) -> Remove:
    """Let those commit who began to write it before."""
    close(tools.store, TableSchema(self.table, (), _which(self)), self.mark)
    return Remove(self.table, self.incarnation, self.renewal)


def _which(self: Close) -> dict[str, str]:
    return {INCARNATION_ATTRIBUTE: self.incarnation}


def _unfenced(self: Fence, tools: TableTools) -> ForgetClaims:
    """Let those commit who wrote an earlier table of the name."""
    del tools
    return ForgetClaims(self.table, self.renewal)


def _nothing_removed(self: Remove, tools: TableTools) -> Fence:
    """Go on with the next table as if the one before were gone."""
    del tools
    return Fence(self.table, self.renewal)


def _undone_by_name(self: Make, tx: object, env: Any) -> None:
    """Undo the making of a table by dropping whatever has its name."""
    del tx
    with contextlib.suppress(NoSuchTable):
        env.store.drop_table(self.table)


def _taken_for_made(self: Make, tools: TableTools) -> Done:
    """Take a table that somebody else has made for one's own."""
    with contextlib.suppress(TableExists):
        Makers(tools.store).make_table(self.renewal.schema, self.renewal.splits)
    return Done({"table": self.table})


def _counts_always(self: Makers, schema: Any) -> bool:
    """Take every table for one that is there for everybody."""
    del self, schema
    return True


def _gives_up_in_word_only(self: Makers, which: str) -> bool:
    """Say that nobody makes an incarnation any more, and write it nowhere."""
    return self._control.read(MADE_PREFIX + which.encode()) is None


OPERATING: Final = USUAL._replace(
    **PLAIN,
    crowds=(0,),
    committers=(0,),
    keepers=(0,),
    calm_share=1.0,
    pauses_s=(5.0,),
    compactors=(0,),
    exporters=(0,),
    operators=(3,),
    operator_pauses_s=(0.1,),
    operator_stalls=(Stall(0.02, 6.0),),
    other_fault_counts=(0,),
    leases_s=(3.0,),
)
"""Operators who are taken for dead again and again, and go on."""

OPERATION_MUTANTS: Final[dict[str, Mutant]] = {
    "removed by name": Mutant(
        Parts(patches=(Patch(Remove, "do", _removed_by_name),)),
        "E3",
        OPERATING._replace(
            verbs=(("put", "put", "create", "make", "drop"),),
            operator_stalls=(Stall(0.5, 10.0, "drop_table"),),
        ),
    ),
    "next table made unfenced": Mutant(
        Parts(patches=(Patch(Fence, "do", _unfenced), Patch(Close, "do", _closed_unfenced))),
        "E3",
        OPERATING._replace(
            verbs=(("put", "put", "put", "create", "truncate"),), operator_stalls=(Stall(),)
        ),
    ),
    "nothing removed": Mutant(
        Parts(patches=(Patch(Remove, "do", _nothing_removed),)),
        "E3",
        OPERATING._replace(
            verbs=(("put", "put", "create", "truncate"),), operator_stalls=(Stall(),)
        ),
    ),
    "undone by name": Mutant(
        Parts(patches=(Patch(Make, "undo", _undone_by_name),)),
        "E3",
        OPERATING._replace(verbs=(("put", "put", "create", "create", "make", "drop"),)),
    ),
    "another's taken for one's own": Mutant(
        Parts(patches=(Patch(Make, "do", _taken_for_made),)),
        "E3",
        OPERATING._replace(
            verbs=(("put", "put", "create", "make", "make", "drop"),),
            operator_stalls=(Stall(0.3, 5.0, "create_table"),),
        ),
    ),
    "ghosts taken for tables": Mutant(
        Parts(patches=(Patch(Makers, "settle", _counts_always),)),
        "E3",
        OPERATING._replace(
            store_kinds=("cluster",),
            verbs=(("put", "put", "create", "drop"),),
            operator_stalls=(Stall(0.5, 10.0, "create_table"),),
        ),
    ),
    "given up in word only": Mutant(
        Parts(patches=(Patch(Makers, "give_up", _gives_up_in_word_only),)),
        "E3",
        OPERATING._replace(
            verbs=(("put", "put", "create", "make", "drop"),),
            operator_stalls=(Stall(0.5, 10.0, "create_table"),),
        ),
    ),
}
"""The product with a guard taken out, by name."""
