"""Foci for marks that hardly a seed comes to: each makes common what one of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from omidpy.base.tables import CONTROL_TABLE
from tests.machines.simulator.bucket_mutants import FAILING, POISONED
from tests.machines.simulator.collection_mutants import HELD
from tests.machines.simulator.committer_mutants import STALLING
from tests.machines.simulator.compaction_mutants import COMPACTING
from tests.machines.simulator.mutants import STALLED
from tests.machines.simulator.plan import ALONE, Focus
from tests.machines.simulator.store import Stall

MOST_SEEDS: Final = 400
"""In so many each is reached: in its focus every fortieth seed comes to it, or more."""

FORBIDDING_LATE: Final = STALLED._replace(
    store_kinds=("cluster",),
    death_shares=(0.0, 0.05),
    pauses_s=(0.1,),
    oracle_stalls=(Stall(0.1, 12.0, "COMMIT_TABLE"),),
    client_stalls=(Stall(0.5, 8.0, "check_and_mutate OMID_COMMIT_TABLE"),),
)
"""Oracles write a commit late, and clients stand still right before they forbid it."""

COMPACTING_LATE: Final = COMPACTING._replace(
    calm_share=1.0,
    compactors=(2,),
    leases_s=(3.0,),
    compaction_pauses_s=(0.2,),
    other_fault_counts=(0,),
)
"""Two compactors, of which one takes the other for dead."""

SEEKING: Final[Mapping[str, Focus]] = {
    "committers.came_when_forgotten": STALLING._replace(kept_outcomes=(1,)),
    "committers.late_behind_its_end": STALLING._replace(
        calm_share=0.0,
        fault_counts=(0,),
        committer_stalls=(Stall(0.05, 15.0),),
        objects_late=(0.1,),
        objects_lost=(0.0,),
        objects_unheard=(0.0,),
        objects_busy=(0.0,),
        inline_shares=(1.0,),
    ),
    "outcome.commit_was_first": FORBIDDING_LATE,
    "reader.commit_was_first": FORBIDDING_LATE._replace(
        store_kinds=("cluster", "shared"),
        oracle_stalls=(Stall(0.1, 6.0, "COMMIT_TABLE|write_guarded"),),
        client_stalls=(Stall(0.7, 4.0, "check_and_mutate OMID_COMMIT_TABLE"),),
    ),
    "compaction.slice_deposed": COMPACTING_LATE._replace(
        pauses_s=(0.2,),
        compactor_stalls=(Stall(0.1, 12.0, "write_guarded|get OMIDPY_CONTROL"),),
    ),
    "compaction.table_changed": COMPACTING_LATE._replace(
        leases_s=(3.0, 10.0),
        pauses_s=(3.0,),
        post_commits=(("none",),),
        operators=(2,),
        operator_pauses_s=(0.6,),
        operator_stalls=(Stall(),),
        verbs=(("put", "put", "put", "create", "truncate", "truncate"),),
        compactor_stalls=(Stall(0.6, 10.0, "schema x"),),
    ),
    "export.buckets_of_another": FAILING,
    "export.table_of_nobody": FAILING,
    "export.waits_again": POISONED._replace(
        keepers=(2,),
        keeper_verbs=(("rebucket", "retry", "retry"),),
        keeper_pauses_s=(0.1,),
        keeper_stalls=(Stall(0.05, 4.0),),
        poison_shares=(0.4,),
    ),
    "hold.came_too_late": HELD._replace(
        holder_stalls=(Stall(0.5, 12.0, f"write {CONTROL_TABLE}"),),
    ),
    "oracle.place_of_a_greedy_share": ALONE._replace(
        strangers=(2,),
        strange_pauses_s=(0.3,),
        strange_deeds=(("lines",),),
        strange_lines=(80,),
        connection_counts=(128,),
    ),
}
"""By mark."""
