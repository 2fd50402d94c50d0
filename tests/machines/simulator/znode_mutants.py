"""What is kept in ZooKeeper, with a guard taken out: by name.

Each is a part that the simulator puts in the place of the product's own (`Parts`).
"""

from __future__ import annotations

from typing import Any, Final

from omidpy.fate.zookeeper import store as znodes
from omidpy.fate.zookeeper.members import EphemeralJudge
from tests.machines.simulator.plan import ALONE, PLAIN
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall
from tso.durable.zk_lease import ZooKeeperLease


class ChecksItsRecord(ZooKeeperLease):
    """Looks at the record in the store alone, once it has both."""

    @property
    def vouched_until_s(self) -> float:
        """Until the record may be another's."""
        return self._own.vouched_until_s

    def check(self) -> None:
        """Look at the record."""
        self._own.check()

    def renew_if_due(self, *, before_check: bool = False) -> None:
        """Renew the record."""
        self._own.renew_if_due(before_check=before_check)


class WaitsForNobody(ZooKeeperLease):
    """Takes the znode over the version that is there."""

    def _other_holder(self, node: Any) -> None:
        del node


_LEASES: Final = ALONE._replace(**PLAIN)._replace(
    ensemble_shares=(1.0,),
    znode_leases=(("oracle-a", "oracle-b"),),
    omids_oracles=(True,),
    oracle_leases_s=(2.0,),
    calm_share=0.0,
    fault_counts=(6,),
    fault_kinds=("pause", "cut"),
    cut_ends=("oracle store",),
    fault_pauses_s=(3, 9),
    fault_cuts_s=(6, 12),
)
"""Oracles that stand still or are cut off for longer than their lease, and Omid's beside them."""

_OPERATIONS: Final = ALONE._replace(**PLAIN)._replace(
    ensemble_shares=(1.0,),
    znode_operations=(True,),
    znode_leases=((),),
    operators=(3,),
    operator_pauses_s=(0.1,),
    operator_stalls=(Stall(0.05, 12.0),),
    leases_s=(3.0,),
    pauses_s=(5.0,),
)
"""Operators who stand still, and whose operations others carry out meanwhile."""


def _any_version(operation: object) -> int:
    """Write over whatever has become of an operation."""
    del operation
    return -1


def _always_alive(self: EphemeralJudge, asked: Any) -> frozenset[str]:
    """Take nobody for dead, so that nobody goes on with what they left."""
    del self, asked
    return frozenset()


ZNODE_MUTANTS: Final[dict[str, Mutant]] = {
    "znode of the lease not looked at": Mutant(Parts(znode_lease=ChecksItsRecord), "I8", _LEASES),
    "znode of the lease taken at once": Mutant(Parts(znode_lease=WaitsForNobody), "I8", _LEASES),
    "operation's znode written over": Mutant(
        Parts(patches=(Patch(znodes, "_znode_version", _any_version),)), "E3|quiet", _OPERATIONS
    ),
    "nobody's session over": Mutant(
        Parts(patches=(Patch(EphemeralJudge, "dead", _always_alive),)),
        "quiet",
        _OPERATIONS._replace(other_fault_counts=(3,), other_fault_kinds=("crash",)),
    ),
}
