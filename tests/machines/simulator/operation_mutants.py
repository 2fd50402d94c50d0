"""Operations, and the steps that change tables, with a guard taken out: by name.

Each is a part that the simulator puts in the place of the product's own (`Parts`).
"""

from __future__ import annotations

import contextlib
from typing import Final

from omidpy.admin.table_steps import Fence, ForgetClaims, Remove, TableTools
from omidpy.errors import NoSuchTable
from tests.machines.simulator.plan import USUAL
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall


def _removed_by_name(self: Remove, tools: TableTools) -> Fence:
    """Remove whatever table has the name by now."""
    with contextlib.suppress(NoSuchTable):
        tools.store.drop_table(self.table)
    return Fence(self.table, self.renewal)


def _unfenced(self: Fence, tools: TableTools) -> ForgetClaims:
    """Let those commit who wrote an earlier table of the name."""
    del tools
    return ForgetClaims(self.table, self.renewal)


OPERATING: Final = USUAL._replace(
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
        Parts(patches=(Patch(Fence, "do", _unfenced),)),
        "E3",
        OPERATING._replace(
            verbs=(("put", "put", "put", "create", "truncate"),), operator_stalls=(Stall(),)
        ),
    ),
}
"""The product with a guard taken out, by name."""
