"""What goes wrong in a run, and when?  Drawn once, from the seed and from a focus.

A *focus* says what a plan draws from.  With the usual one every seed is another world: other kinds
of stores, other sizes, other faults, other processes, or none of them.  Another focus makes that
common which a certain defect needs, so that it is met in few seeds, whatever they mean by now; when
it happens, and how it meets what else goes on, the seed draws as ever.

Everything that is drawn has dice of its own: what is added shifts nothing that is there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from tests.machines.simulator.committers import COMMITTERS, RESCUERS, CommitHabits
from tests.machines.simulator.compactors import COMPACTORS, FOR_EVER_S
from tests.machines.simulator.crowds import CROWDS, CrowdHabits
from tests.machines.simulator.exporters import EXPORTERS
from tests.machines.simulator.followers import FOLLOWERS, FollowHabits
from tests.machines.simulator.heavies import FEW, HeavyChoice
from tests.machines.simulator.holders import HOLDERS, HoldHabits
from tests.machines.simulator.jugglers import (
    ENDINGS,
    JUGGLERS,
    WAYS,
    JuggleHabits,
)
from tests.machines.simulator.keepers import KEEPERS, KEEPERS_VERBS, KeeperHabits
from tests.machines.simulator.objects import ObjectChances
from tests.machines.simulator.operators import OPERATORS, VERBS, Haste
from tests.machines.simulator.retriers import RETRIERS, RetryHabits
from tests.machines.simulator.sharers import HELPERS, SHARERS, ShareHabits
from tests.machines.simulator.store import STORE, Chances, Stall, StoreKind
from tests.machines.simulator.strangers import DEEDS, MOST_LINES, STRANGERS, StrangeHabits
from tso.core.settings import Settings, TimestampMode

T = TypeVar("T")

ORACLES: Final = ("oracle-a", "oracle-b")
CLIENTS: Final = ("client-0", "client-1", "client-2", "client-3")

BUSY_S: Final = 30.0
"""How long clients work and things go wrong."""


class Focus(NamedTuple):
    """What a plan draws from, each time one of these; as it stands here: the usual."""

    calm_share: float = 1 / 8
    """Seeds in which nothing goes wrong with oracles, clients and their store."""
    store_kinds: tuple[StoreKind, ...] = ("cluster", "cluster", "file", "shared")

    # Of oracles.
    timestamps: tuple[TimestampMode, ...] = ("world", "world", "incremental")
    conflict_maps: tuple[int, ...] = (8, 64, 4096)
    ages_ms: tuple[int, ...] = (5_000, 20_000, 900_000)
    decision_memories: tuple[int, ...] = (4, 4096)
    begin_memories: tuple[int, ...] = (64, 4096)
    oracle_leases_s: tuple[float, ...] = (2.0, 10.0)

    clock_skews_ms: tuple[int, ...] = (50,)
    """How far the clock of each host of an oracle or a client is ahead or behind at most."""

    # Of clients.
    pauses_s: tuple[float, ...] = (0.5,)
    """Between two transactions, on average."""
    thinking_shares: tuple[float, ...] = (0.02,)
    """Steps of a transaction after which its client thinks for seconds."""
    thoughts_s: tuple[float, ...] = (12.0,)
    """For how long at most."""
    fence_shares: tuple[float, ...] = (0.03,)
    late_message_shares: tuple[float, ...] = (0.003,)
    """Messages between clients and oracles that come seconds late."""
    death_shares: tuple[float, ...] = (0.0, 0.02)
    """Commits in which the client dies."""
    repeat_shares: tuple[float, ...] = (0.1,)
    """Commits that are asked for once more although they were answered."""
    first_retry_shares: tuple[float, ...] = (0.0, 0.0, 0.1)
    """Commits of which the oracle hears first what says that it is asked again."""
    long_shares: tuple[float, ...] = (0.0, 0.0, 0.1)
    """Begins that ask for more time than others have."""
    post_commits: tuple[tuple[str, ...], ...] = (("sync", "none"),)
    """Who completes a commit: one of these, of each client."""
    workloads: tuple[tuple[str, ...], ...] = (("appends", "registers", "bank", "long fork"),)

    # What goes wrong with these and with the store.
    fault_counts: tuple[int, ...] = (2, 3, 4, 5, 6, 7, 8, 9)
    fault_kinds: tuple[str, ...] = (
        *("crash", "crash", "pause", "pause", "stop"),
        *("hang up", "cut", "cut", "slow", "full", "clock"),
    )
    cut_ends: tuple[str, ...] = ("oracle store", "client store", "client oracle")
    fault_cuts_s: tuple[float, ...] = (0.5, 3, 6, 12, 18)
    fault_pauses_s: tuple[float, ...] = (0.5, 3, 9, 11, 20)
    fault_clocks_ms: tuple[int, ...] = (1, 500, 9_000, 12_000, 3_600_000)
    half_close_counts: tuple[int, ...] = (0, 0, 0, 1, 2)
    """How often an oracle's connections carry nothing any more in one direction."""
    undisturbed_share: float = 0.3
    """Seeds in which no call of the store gets lost or comes late."""
    lost: tuple[float, ...] = (0.0, 0.002, 0.01)
    unheard: tuple[float, ...] = (0.0, 0.002, 0.01)
    late: tuple[float, ...] = (0.0, 0.002, 0.01)
    twice: tuple[float, ...] = (0.0, 0.002, 0.01)
    torn: tuple[float, ...] = (0.0, 0.1)
    failing_syncs: tuple[float, ...] = (0.0, 0.0, 0.01)
    """Durable writes of which the sync fails."""
    rotten: tuple[float, ...] = (0.0, 0.0, 0.0, 0.001, 0.01)
    """Reads of which a checksum tells that they are not what was written."""
    power_losses: tuple[int, ...] = (0, 0, 0, 0, 0, 0, 0, 1)
    """How often the store loses its power: where it is a file, everybody does."""
    dark_s: tuple[float, ...] = (0.2, 1.0, 4.0)
    """For how long."""
    client_stalls: tuple[Stall, ...] = (Stall(), Stall(0.001))
    oracle_stalls: tuple[Stall, ...] = (Stall(), Stall(0.001))

    # Who else is there, and what goes wrong with them.
    compactors: tuple[int, ...] = (0, 1, 1, 2)
    exporters: tuple[int, ...] = (0, 0, 1, 2)
    operators: tuple[int, ...] = (0, 0, 2, 3)
    crowds: tuple[int, ...] = (0, 0, 1, 2)
    leases_s: tuple[float, ...] = (3.0, 10.0)
    retentions_s: tuple[float, ...] = (FOR_EVER_S, FOR_EVER_S, 0.0, 3.0, 10.0)
    """How far back compactors keep snapshots readable."""
    young_ms: tuple[int | None, ...] = (2_000, 5_000, None)
    """Where there are compactors: what is young cannot be compacted yet.  None: as without them."""
    is_fencing: tuple[bool, ...] = (False, True)
    troubles: tuple[float, ...] = (0.0, 0.1)
    adding_shares: tuple[float, ...] = (0.5,)
    """Transactions beside each of which an entry is added for exporters."""
    other_fault_counts: tuple[int, ...] = (0, 1, 2)
    """Of each of them."""
    other_fault_kinds: tuple[str, ...] = ("crash", "pause", "pause", "cut", "clock")
    other_pauses_s: tuple[float, ...] = (0.5, 2, 4, 11, 20)
    compactor_stalls: tuple[Stall, ...] = (Stall(), Stall(0.005, 15.0))
    exporter_stalls: tuple[Stall, ...] = (Stall(), Stall(0.005, 15.0))
    operator_stalls: tuple[Stall, ...] = (Stall(), Stall(0.02, 12.0), Stall(0.1, 12.0))
    compaction_pauses_s: tuple[float, ...] = (3.0,)
    operator_pauses_s: tuple[float, ...] = (0.1, 0.7)
    verbs: tuple[tuple[str, ...], ...] = VERBS
    crowd_tongues: tuple[str, ...] = ("java", "ours")
    """Java's where it can be: on a store as HBase is, beside nobody who prunes."""
    crowd_pauses_s: tuple[float, ...] = (1.0, 3.0)
    crowd_sizes: tuple[tuple[int, ...], ...] = ((1, 4, 12), (2, 3), (12, 24))
    """How many transactions a round has, one of these."""
    crowd_thinking_shares: tuple[float, ...] = (0.0, 0.3)
    crowd_fence_shares: tuple[float, ...] = (0.1, 0.5)
    crowd_stalls: tuple[Stall, ...] = (Stall(), Stall(0.005, 15.0))

    # Of committers, who end their jobs, and the store of objects.
    committers: tuple[int, ...] = (0, 0, 0, 1, 2, 3)
    rescuers: tuple[int, ...] = (0, 1, 2)
    committer_stalls: tuple[Stall, ...] = (Stall(), Stall(0.01, 15.0), Stall(0.05, 15.0))
    rescuer_stalls: tuple[Stall, ...] = (Stall(), Stall(0.02, 15.0))
    strictness: tuple[bool, ...] = (True, False)
    job_pauses_s: tuple[float, ...] = (0.3, 2.0)
    publish_shares: tuple[float, ...] = (0.0, 0.3)
    twin_shares: tuple[float, ...] = (0.15,)
    inline_shares: tuple[float, ...] = (0.0, 0.5, 1.0)
    driver_death_shares: tuple[float, ...] = (0.0, 0.01)
    patiences_s: tuple[float, ...] = (0.0, 1.0, 5.0)
    rollback_shares: tuple[float, ...] = (0.2, 0.5, 1.0)
    kept_outcomes: tuple[int, ...] = (100, 3)
    list_bytes: tuple[int, ...] = (1 << 17, 200)
    objects_lost: tuple[float, ...] = (0.0, 0.01)
    objects_unheard: tuple[float, ...] = (0.0, 0.01, 0.05)
    objects_late: tuple[float, ...] = (0.0, 0.01)
    objects_busy: tuple[float, ...] = (0.0, 0.05)
    objects_conflicting: tuple[float, ...] = (0.0, 0.05)

    # Of who gives the queue other buckets, and takes care of what was set aside.
    keepers: tuple[int, ...] = (0, 0, 1, 2)
    """Where there are exporters."""
    keeper_stalls: tuple[Stall, ...] = (Stall(), Stall(0.01, 12.0))
    keeper_verbs: tuple[tuple[str, ...], ...] = (KEEPERS_VERBS,)
    keeper_pauses_s: tuple[float, ...] = (2.0,)
    poison_shares: tuple[float, ...] = (0.0, 0.1)

    before_shares: tuple[float, ...] = (0.0,)
    """Of oracles, clients and compactors: how many are the release before, at each start."""

    # What is legal, and seldom chosen.
    pages_rows: tuple[int | None, ...] = (None, None, None, 1, 2)
    """How many rows a page of a scan has at most; None: as many as were asked for."""
    few_at_once: tuple[int | None, ...] = (None, None, 1, 0)
    """How many entries an oracle writes one by one; None: as many as it does."""
    turns_work: tuple[int | None, ...] = (None, None, None, 1, 3)
    """How much an oracle hears of one client before it hears others; None: as much as it does."""

    # Of commits that are done in slices.
    heavy_shares: tuple[float, ...] = (0.2,)
    """Seeds in which there are any."""
    heavy_maps: tuple[int, ...] = (100, 200, 8192)
    heavy_at_hand: tuple[int | None, ...] = (None, FEW)
    heavy_at_once: tuple[tuple[int, int, int, int], ...] = ((64, 16, 8, 8), (16, 4, 2, 2))
    heavy_paces: tuple[int, ...] = (1 << 18, 400)
    slices_s: tuple[float, ...] = (0.0, 0.001, 0.03)

    # Of transactions with many writers.
    sharers: tuple[int, ...] = (0, 0, 0, 1, 2)
    helpers: tuple[int, ...] = (1, 2, 3)
    share_pauses_s: tuple[float, ...] = (0.5, 2.0)
    share_patiences_s: tuple[float, ...] = (1.0, 5.0)
    unnamed_shares: tuple[float, ...] = (0.0, 0.3, 1.0)
    careless_shares: tuple[float, ...] = (0.0, 0.1)
    garbled_shares: tuple[float, ...] = (0.0, 0.1)
    flushes_bytes: tuple[int | None, ...] = (None, 1)
    sharer_stalls: tuple[Stall, ...] = (Stall(), Stall(0.02, 6.0))
    helper_stalls: tuple[Stall, ...] = (Stall(), Stall(0.05, 8.0))

    # Of orders, which are carried out once.
    retriers: tuple[int, ...] = (0, 0, 0, 2, 3)
    retry_pauses_s: tuple[float, ...] = (0.3, 1.0)
    retry_budgets_s: tuple[tuple[float, ...], ...] = ((0.0, 2.0), (0.5, 10.0))
    retry_thinking_shares: tuple[float, ...] = (0.0, 0.3)
    retrier_stalls: tuple[Stall, ...] = (Stall(), Stall(0.02, 6.0))

    # Of followers of changes.
    followers: tuple[int, ...] = (0, 0, 0, 1, 2)
    follow_pauses_s: tuple[float, ...] = (0.5, 3.0)
    follow_page_shares: tuple[float, ...] = (0.0, 0.5)
    follow_dawdling_shares: tuple[float, ...] = (0.05, 0.5)
    follower_stalls: tuple[Stall, ...] = (Stall(), Stall(0.02, 6.0))

    # Of holders.
    holders: tuple[int, ...] = (0, 0, 0, 1, 2)
    hold_pauses_s: tuple[float, ...] = (0.3, 2.0)
    held_shares: tuple[float, ...] = (0.3, 0.8)
    hold_lengths_s: tuple[tuple[float, ...], ...] = ((2.0, 6.0), (5.0, 15.0))
    looks_s: tuple[float, ...] = (0.2, 2.0)
    holder_stalls: tuple[Stall, ...] = (Stall(), Stall(0.02, 6.0))

    # Of strangers.
    strangers: tuple[int, ...] = (0, 0, 0, 1, 2)
    strange_pauses_s: tuple[float, ...] = (0.3, 1.0)
    strange_deeds: tuple[tuple[str, ...], ...] = (DEEDS,)
    strange_lines: tuple[int, ...] = (3, MOST_LINES)
    connection_counts: tuple[int | None, ...] = (None, 128)

    # Of jugglers, who are clients on asyncio.
    jugglers: tuple[int, ...] = (0, 0, 0, 1, 2)
    juggle_pauses_s: tuple[float, ...] = (0.4, 1.5)
    juggle_cancel_shares: tuple[float, ...] = (0.0, 0.3)
    juggle_limit_shares: tuple[float, ...] = (0.0, 0.3)
    juggle_threads: tuple[int, ...] = (32, 32, 2)
    juggle_lives_s: tuple[tuple[float, ...], ...] = ((30.0,), (3.0, 10.0))
    juggle_endings: tuple[tuple[str, ...], ...] = (ENDINGS,)
    juggle_ways: tuple[tuple[str, ...], ...] = (WAYS,)
    juggle_post_commits: tuple[tuple[str, ...], ...] = (("async", "sync", "none"),)
    juggler_stalls: tuple[Stall, ...] = (Stall(), Stall(0.01, 6.0))

    # Of ZooKeeper.
    ensemble_shares: tuple[float, ...] = (0.3,)
    """How many worlds have one."""
    znode_leases: tuple[tuple[str, ...], ...] = (ORACLES, ORACLES, ORACLES[:1], ())
    """Oracles that hold their lease there, too."""
    znode_operations: tuple[bool, ...] = (False, True)
    omids_oracles: tuple[bool, ...] = (False, True)
    session_timeouts_s: tuple[float, ...] = (3.0, 10.0)


USUAL: Final = Focus()
NO_GUESTS: Final[dict[str, Any]] = {
    "ensemble_shares": (0.0,),
    "retentions_s": (FOR_EVER_S,),
    "sharers": (0,),
    "retriers": (0,),
    "strangers": (0,),
    "followers": (0,),
    "holders": (0,),
    "jugglers": (0,),
}
PLAIN: Final[dict[str, Any]] = {"heavy_shares": (0.0,), **NO_GUESTS}
"""What a focus has that is about others: clients do ordinary transactions, and nothing else."""

ALONE: Final = Focus(
    compactors=(0,), exporters=(0,), operators=(0,), crowds=(0,), committers=(0,), **NO_GUESTS
)
"""Oracles and clients, and nobody else."""

CROWDED: Final = ALONE._replace(
    crowds=(1, 2),
    pauses_s=(0.5, 2.0),
    store_kinds=("cluster", "cluster", "cluster", "shared"),
    crowd_tongues=("java", "ours", "ours"),
)
"""Beside them those who do many transactions at a time."""

LAME: Final = USUAL._replace(
    calm_share=0.0,
    leases_s=(3.0,),
    oracle_leases_s=(2.0, 10.0),
    compactors=(1, 2),
    exporters=(2,),
    operators=(2,),
    fault_counts=(0, 2, 4),
    pauses_s=(0.5, 2.0),
    operator_pauses_s=(0.3,),
    compaction_pauses_s=(0.5,),
    adding_shares=(1.0,),
    oracle_stalls=(Stall(), Stall(0.03, 9.0, "COMMIT_TABLE"), Stall(0.03, 9.0, "write")),
    client_stalls=(Stall(), Stall(0.01, 9.0), Stall(0.3, 6.0, "check_and_mutate|write_guarded")),
    compactor_stalls=(
        Stall(0.01, 15.0),
        Stall(0.1, 15.0, "check_and_mutate|COMMIT_TABLE"),
        Stall(0.2, 12.0, "schema"),
    ),
    exporter_stalls=(
        Stall(0.02, 10.0),
        Stall(0.1, 10.0, "check_and_mutate|write_guarded"),
        Stall(0.1, 9.0, "write"),
    ),
    operator_stalls=(Stall(0.1, 12.0), Stall(0.3, 12.0, "_table")),
    committer_stalls=(Stall(0.05, 15.0), Stall(0.2, 15.0, "PutObject|Complete|Delete")),
    rescuer_stalls=(Stall(0.05, 15.0), Stall(0.2, 15.0, "PutObject|Complete|Delete")),
    keeper_stalls=(Stall(0.02, 12.0), Stall(0.1, 12.0, "check_and_mutate|_table")),
)
"""Everybody stands still, is taken for dead, and goes on."""

DARK: Final = USUAL._replace(
    calm_share=0.0,
    store_kinds=("cluster", "cluster", "file", "shared"),
    power_losses=(0, 1, 2, 3),
    fault_counts=(0, 2, 4),
    failing_syncs=(0.0, 0.01, 0.05),
    clock_skews_ms=(50, 20_000),
    oracle_leases_s=(2.0, 2.0, 10.0),
    leases_s=(3.0,),
    pauses_s=(0.1, 0.5, 2.0),
    compactors=(0, 2),
    operators=(0, 2),
    compaction_pauses_s=(0.3, 2.0),
    operator_pauses_s=(0.3, 0.7),
    verbs=(*VERBS, ("put", "put", "put", "create", "truncate", "truncate")),
    post_commits=(("none",), ("sync", "none")),
    oracle_stalls=(Stall(), Stall(0.1, 12.0, "COMMIT_TABLE")),
    client_stalls=(Stall(), Stall(0.6, 6.0, "check_and_mutate OMID_COMMIT_TABLE")),
    compactor_stalls=(
        Stall(),
        Stall(0.1, 12.0, "write_guarded|get OMIDPY_CONTROL"),
        Stall(0.6, 10.0, "schema x"),
    ),
)
"""The power goes, and what was not synced with it; and all stand still before what they decide."""

SELDOM: Final = (0,) * 9
"""Nobody, in nine seeds of ten."""

ROLLING: Final = ALONE._replace(
    calm_share=0.0,
    before_shares=(0.3, 0.5, 0.7),
    rotten=(0.0,),
    compactors=(0, 1, 2),
    oracle_leases_s=(2.0, 2.0, 10.0),
    pauses_s=(0.2, 0.5),
    fault_counts=(8, 12, 16),
    fault_kinds=(
        *("crash", "crash", "crash", "crash", "stop", "stop", "stop", "stop"),
        *("pause", "hang up", "cut", "clock"),
    ),
    fault_cuts_s=(0.5, 3, 6),
    death_shares=(0.02, 0.05),
    post_commits=(("none",), ("sync", "none")),
    exporters=(*SELDOM, 2),
    keepers=(0, 1),
    operators=(*SELDOM, 2),
    committers=(*SELDOM, 2),
    rescuers=(1,),
    sharers=(*SELDOM, 1),
    helpers=(2,),
    retriers=(*SELDOM, 2),
)
"""Two releases: whoever starts again is of the one, or of the other (`rolling.py`)."""

FOCI: Final = {
    "usual": USUAL,
    "alone": ALONE,
    "crowded": CROWDED,
    "lame": LAME,
    "dark": DARK,
    "rolling": ROLLING,
}
"""What seeds are run with, by name."""


class Fault(NamedTuple):
    """Something that goes wrong once."""

    at_s: float
    kind: str
    target: str
    other: str = ""
    seconds: float = 0.0
    amount: float = 0.0

    def __str__(self) -> str:
        other = f" and {self.other}" if self.other else ""
        amount = f", {self.amount:g}" if self.amount else ""
        return f"{self.at_s:6.2f} s  {self.kind} {self.target}{other} {self.seconds:.2f} s{amount}"


class Habits(NamedTuple):
    """How clients go about their work."""

    pause_s: float
    thinking_share: float
    thought_s: float
    fence_share: float
    late_message_share: float
    death_share: float
    repeat_share: float
    first_retry_share: float
    long_share: float
    post_commits: tuple[str, ...]
    workloads: tuple[str, ...]


class Others(NamedTuple):
    """Who is there beside oracles and clients."""

    compactors: int
    exporters: int
    operators: int
    lease_s: float
    """How long they may show no life."""
    is_fencing: bool
    """Whether the receiver of exports keeps fences."""
    trouble: float
    """How many of its requests, and of its answers, are lost."""
    adding_share: float
    compaction_pause_s: float
    retention_s: float
    haste: Haste
    crowds: int
    crowd_habits: CrowdHabits
    committers: int
    rescuers: int
    commit_habits: CommitHabits
    keepers: int
    keeper_habits: KeeperHabits
    sharers: int
    helpers: int
    share_habits: ShareHabits
    retriers: int
    retry_habits: RetryHabits
    strangers: int
    strange_habits: StrangeHabits
    followers: int
    follow_habits: FollowHabits
    holders: int
    hold_habits: HoldHabits
    jugglers: int
    juggle_habits: JuggleHabits

    ensemble: EnsembleHabits | None = None
    """None: there is no ZooKeeper."""

    def names(self) -> tuple[str, ...]:
        """Return their processes."""
        return (
            *COMPACTORS[: self.compactors],
            *EXPORTERS[: self.exporters],
            *OPERATORS[: self.operators],
            *CROWDS[: self.crowds],
            *COMMITTERS[: self.committers],
            *RESCUERS[: self.rescuers if self.committers else 0],
            *KEEPERS[: self.keepers if self.exporters else 0],
            *SHARERS[: self.sharers],
            *HELPERS[: self.helpers if self.sharers else 0],
            *RETRIERS[: self.retriers],
            *STRANGERS[: self.strangers],
            *FOLLOWERS[: self.followers],
            *HOLDERS[: self.holders],
            *JUGGLERS[: self.jugglers],
        )


class EnsembleHabits(NamedTuple):
    """What is kept in ZooKeeper."""

    oracles: tuple[str, ...]
    """Those that hold their lease there, too."""
    has_operations: bool
    """Whether operators keep theirs there."""
    has_omids: bool
    """Whether an oracle of Omid's stands by."""
    timeout_s: float
    """Of the sessions of oracles."""


class Choices(NamedTuple):
    """What the product, or a store, may choose, and seldom does."""

    page_rows: int | None
    few_at_once: int | None
    turn_work: int | None
    heavy: HeavyChoice | None = None
    """What is done in slices; None: there are no commits that are so large."""


class Plan(NamedTuple):
    """One run."""

    store_kind: StoreKind
    settings: Settings
    chances: Chances
    object_chances: ObjectChances
    stalls: dict[str, Stall]
    """By process."""
    faults: tuple[Fault, ...]
    oracle_lease_s: float
    clock_skew_ms: int
    habits: Habits
    others: Others
    choices: Choices
    clients: tuple[str, ...] = CLIENTS
    busy_s: float = BUSY_S
    skipped: frozenset[tuple[str, int]] = frozenset()
    """Transactions of clients that are left out: of whom, and how many came before."""
    before_share: float = 0.0
    """How many processes that can be are the release before, at each start."""

    def __str__(self) -> str:
        """Say what a seed has drawn."""
        stalls = "; ".join(f"{name} {one}" for name, one in self.stalls.items() if one.share)
        return "\n".join(
            (
                f"a {self.store_kind} store, a lease of {self.oracle_lease_s:g} s",
                f"clocks within {self.clock_skew_ms} ms",
                *map(str, (self.settings, self.chances, self.object_chances)),
                *map(str, (self.habits, self.others, self.choices)),
                f"clients for {self.busy_s:g} s: {' '.join(self.clients) or 'none'}",
                *([f"transactions left out: {len(self.skipped)}"] if self.skipped else []),
                *([f"of the release before: {self.before_share:g}"] if self.before_share else []),
                f"stalls: {stalls or 'none'}",
                *(f"  {fault}" for fault in self.faults),
            )
        )


def drawn_plan(seed: int, focus: Focus) -> Plan:
    """Draw what goes wrong; with the usual focus nothing does in one run of eight."""
    return _Drawing(seed, focus).plan()


class _Drawing:
    """Draws for one seed: for each purpose by other dice."""

    def __init__(self, seed: int, focus: Focus) -> None:
        self._seed = seed
        self._focus = focus

    def _dice(self, purpose: str) -> random.Random:
        return random.Random(f"{purpose} in the plan of {self._seed}")

    def _one(self, purpose: str, choices: Sequence[T]) -> T:
        return self._dice(purpose).choice(choices)

    def plan(self) -> Plan:
        """Draw everything."""
        focus = self._focus
        is_calm = self._dice("calm").random() < focus.calm_share
        others = self._others()
        faults = [] if is_calm else [*self._faults(), *self._power_losses(), *self._half_closes()]
        for name in others.names():
            count = self._one(f"faults of {name}", focus.other_fault_counts)
            dice = (self._dice(f"fault {number} of {name}") for number in range(count))
            faults += [self._fault_of(one, name) for one in dice]
        habits, heavy = self._habits(), self._heavy()
        settings = self._settings(others)
        if heavy is not None:
            settings = replace(settings, conflict_map_size=heavy.map_size)
        return Plan(
            self._one("kind of store", focus.store_kinds),
            settings,
            Chances() if is_calm else self._chances(),
            ObjectChances() if is_calm else self._object_chances(),
            self._stalls(others, is_calm=is_calm),
            tuple(sorted(faults)),
            self._one("lease of oracles", focus.oracle_leases_s),
            self._one("skew of clocks", focus.clock_skews_ms),
            habits._replace(death_share=0.0) if is_calm else habits,
            others,
            Choices(
                self._one("rows of a page", focus.pages_rows),
                self._one("entries one by one", focus.few_at_once),
                self._one("work of a turn", focus.turns_work),
                heavy,
            ),
            before_share=self._one("release before", focus.before_shares),
        )

    def _heavy(self) -> HeavyChoice | None:
        focus = self._focus
        if self._dice("heavy").random() >= self._one("share of heavy", focus.heavy_shares):
            return None
        return HeavyChoice(
            self._one("conflict map of heavy", focus.heavy_maps),
            self._one("heavy at hand", focus.heavy_at_hand),
            self._one("heavy at once", focus.heavy_at_once),
            self._one("pace of heavy", focus.heavy_paces),
            self._one("time of a slice", focus.slices_s),
        )

    def _settings(self, others: Others) -> Settings:
        focus = self._focus
        age_ms = self._one("age", focus.ages_ms)
        if others.compactors:
            age_ms = self._one("age where there are compactors", focus.young_ms) or age_ms
        return Settings(
            timestamps=self._one("timestamps", focus.timestamps),
            conflict_map_size=self._one("conflict map", focus.conflict_maps),
            max_transaction_age_ms=age_ms,
            decision_memory=self._one("memory of decisions", focus.decision_memories),
            begin_memory=self._one("memory of begins", focus.begin_memories),
            hash_seed=self._dice("hashes").getrandbits(62),
        )

    def _chances(self) -> Chances:
        focus = self._focus
        if self._dice("disturbances").random() < focus.undisturbed_share:
            return Chances()
        return Chances(
            lost=self._one("lost calls", focus.lost),
            unheard=self._one("lost answers", focus.unheard),
            late=self._one("late calls", focus.late),
            twice=self._one("calls that come twice", focus.twice),
            torn=self._one("torn calls", focus.torn),
            unsynced=self._one("failing syncs", focus.failing_syncs),
            rotten=self._one("rotten blocks", focus.rotten),
        )

    def _object_chances(self) -> ObjectChances:
        focus = self._focus
        return ObjectChances(
            lost=self._one("lost requests", focus.objects_lost),
            unheard=self._one("lost answers of objects", focus.objects_unheard),
            late=self._one("late requests", focus.objects_late),
            busy=self._one("busy objects", focus.objects_busy),
            conflicting=self._one("conflicts of objects", focus.objects_conflicting),
        )

    def _habits(self) -> Habits:
        focus = self._focus
        return Habits(
            pause_s=self._one("pauses of clients", focus.pauses_s),
            thinking_share=self._one("thinking", focus.thinking_shares),
            thought_s=self._one("thoughts", focus.thoughts_s),
            fence_share=self._one("fences", focus.fence_shares),
            late_message_share=self._one("late messages", focus.late_message_shares),
            death_share=self._one("deaths", focus.death_shares),
            repeat_share=self._one("repeats", focus.repeat_shares),
            first_retry_share=self._one("retries that come first", focus.first_retry_shares),
            long_share=self._one("long transactions", focus.long_shares),
            post_commits=self._one("post-commits", focus.post_commits),
            workloads=self._one("workloads", focus.workloads),
        )

    def _others(self) -> Others:
        focus = self._focus
        exporters = self._one("exporters", focus.exporters)
        committers = self._one("committers", focus.committers)
        sharers = self._one("sharers", focus.sharers)
        return Others(
            compactors=self._one("compactors", focus.compactors),
            exporters=exporters,
            operators=self._one("operators", focus.operators),
            lease_s=self._one("lease of others", focus.leases_s),
            is_fencing=self._one("fencing", focus.is_fencing),
            trouble=self._one("trouble", focus.troubles),
            adding_share=self._one("adding", focus.adding_shares),
            compaction_pause_s=self._one("pauses of compactors", focus.compaction_pauses_s),
            retention_s=self._one("retention", focus.retentions_s),
            haste=Haste(
                self._one("pauses of operators", focus.operator_pauses_s),
                self._one("verbs", focus.verbs),
            ),
            crowds=self._one("crowds", focus.crowds),
            crowd_habits=CrowdHabits(
                self._one("tongue of crowds", focus.crowd_tongues),
                self._one("pauses of crowds", focus.crowd_pauses_s),
                self._one("sizes of crowds", focus.crowd_sizes),
                self._one("thinking of crowds", focus.crowd_thinking_shares),
                self._one("fences of crowds", focus.crowd_fence_shares),
            ),
            committers=committers,
            rescuers=self._one("rescuers", focus.rescuers) if committers else 0,
            commit_habits=self._commit_habits(),
            keepers=self._one("keepers", focus.keepers) if exporters else 0,
            keeper_habits=KeeperHabits(
                self._one("pauses of keepers", focus.keeper_pauses_s),
                self._one("verbs of keepers", focus.keeper_verbs),
                self._one("poison", focus.poison_shares),
            ),
            sharers=sharers,
            helpers=self._one("helpers", focus.helpers) if sharers else 0,
            share_habits=self._share_habits(),
            retriers=self._one("retriers", focus.retriers),
            retry_habits=RetryHabits(
                self._one("pauses of retriers", focus.retry_pauses_s),
                self._one("budgets of retriers", focus.retry_budgets_s),
                self._one("thinking of retriers", focus.retry_thinking_shares),
            ),
            strangers=self._one("strangers", focus.strangers),
            strange_habits=StrangeHabits(
                self._one("pauses of strangers", focus.strange_pauses_s),
                self._one("deeds of strangers", focus.strange_deeds),
                self._one("connections of strangers", focus.strange_lines),
                self._one("room for connections", focus.connection_counts),
            ),
            followers=self._one("followers", focus.followers),
            follow_habits=FollowHabits(
                self._one("pauses of followers", focus.follow_pauses_s),
                self._one("pages of followers", focus.follow_page_shares),
                self._one("dawdling of followers", focus.follow_dawdling_shares),
            ),
            holders=self._one("holders", focus.holders),
            hold_habits=HoldHabits(
                self._one("pauses of holders", focus.hold_pauses_s),
                self._one("held", focus.held_shares),
                self._one("lengths of holds", focus.hold_lengths_s),
                self._one("looks of holders", focus.looks_s),
            ),
            jugglers=self._one("jugglers", focus.jugglers),
            juggle_habits=self._juggle_habits(),
            ensemble=self._ensemble(),
        )

    def _ensemble(self) -> EnsembleHabits | None:
        focus = self._focus
        share = self._one("share of ensembles", focus.ensemble_shares)
        if self._dice("ensemble").random() >= share:
            return None
        oracles = self._one("leases in znodes", focus.znode_leases)
        return EnsembleHabits(
            oracles,
            self._one("operations in znodes", focus.znode_operations),
            # One that holds no lease there does not know that Omid's does.
            oracles == ORACLES and self._one("oracles of Omid's", focus.omids_oracles),
            self._one("timeout of sessions", focus.session_timeouts_s),
        )

    def _juggle_habits(self) -> JuggleHabits:
        focus = self._focus
        return JuggleHabits(
            self._one("pauses of jugglers", focus.juggle_pauses_s),
            self._one("cancellations", focus.juggle_cancel_shares),
            self._one("time limits", focus.juggle_limit_shares),
            self._one("threads of jugglers", focus.juggle_threads),
            self._one("lives of loops", focus.juggle_lives_s),
            self._one("ends of loops", focus.juggle_endings),
            self._one("ways of jugglers", focus.juggle_ways),
            self._one("post-commits of jugglers", focus.juggle_post_commits),
        )

    def _share_habits(self) -> ShareHabits:
        focus = self._focus
        return ShareHabits(
            self._one("pauses of sharers", focus.share_pauses_s),
            self._one("patience of sharers", focus.share_patiences_s),
            self._one("tasks without a name", focus.unnamed_shares),
            self._one("careless helpers", focus.careless_shares),
            self._one("garbled parts", focus.garbled_shares),
            self._one("flushes of helpers", focus.flushes_bytes),
        )

    def _commit_habits(self) -> CommitHabits:
        focus = self._focus
        return CommitHabits(
            is_strict=self._one("strictness", focus.strictness),
            pause_s=self._one("pauses of committers", focus.job_pauses_s),
            publish_share=self._one("publications", focus.publish_shares),
            twin_share=self._one("twins", focus.twin_shares),
            inline_share=self._one("small files", focus.inline_shares),
            death_share=self._one("deaths of drivers", focus.driver_death_shares),
            patience_s=self._one("patience of rescuers", focus.patiences_s),
            rollback_share=self._one("jobs taken back", focus.rollback_shares),
            kept=self._one("outcomes kept", focus.kept_outcomes),
            list_bytes=self._one("bytes of a list", focus.list_bytes),
        )

    def _stalls(self, others: Others, *, is_calm: bool) -> dict[str, Stall]:
        focus = self._focus
        kinds = (
            (() if is_calm else ORACLES, "oracles", focus.oracle_stalls),
            (() if is_calm else CLIENTS, "clients", focus.client_stalls),
            (COMPACTORS[: others.compactors], "compactors", focus.compactor_stalls),
            (EXPORTERS[: others.exporters], "exporters", focus.exporter_stalls),
            (OPERATORS[: others.operators], "operators", focus.operator_stalls),
            (CROWDS[: others.crowds], "crowds", focus.crowd_stalls),
            (COMMITTERS[: others.committers], "committers", focus.committer_stalls),
            (RESCUERS[: others.rescuers], "rescuers", focus.rescuer_stalls),
            (KEEPERS[: others.keepers], "keepers", focus.keeper_stalls),
            (SHARERS[: others.sharers], "sharers", focus.sharer_stalls),
            (HELPERS[: others.helpers], "helpers", focus.helper_stalls),
            (RETRIERS[: others.retriers], "retriers", focus.retrier_stalls),
            (FOLLOWERS[: others.followers], "followers", focus.follower_stalls),
            (HOLDERS[: others.holders], "holders", focus.holder_stalls),
            (JUGGLERS[: others.jugglers], "jugglers", focus.juggler_stalls),
        )
        return {
            name: self._one(f"stalls of {kind}", choices)
            for names, kind, choices in kinds
            for name in names
        }

    # -- faults ----------------------------------------------------------------------------------

    def _faults(self) -> list[Fault]:
        count = self._one("faults", self._focus.fault_counts)
        return [self._fault(self._dice(f"fault {number}")) for number in range(count)]

    def _fault(self, dice: random.Random) -> Fault:
        focus = self._focus
        at_s = dice.uniform(0, BUSY_S)
        oracle, client = dice.choice(ORACLES), dice.choice(CLIENTS)
        kind = dice.choice(focus.fault_kinds)
        match kind:
            case "crash":
                target = oracle if dice.random() < 0.6 else client
                return Fault(at_s, kind, target, seconds=dice.uniform(0.1, 15))
            case "pause":
                target = oracle if dice.random() < 0.8 else client
                return Fault(at_s, kind, target, seconds=dice.choice(focus.fault_pauses_s))
            case "stop" | "hang up":
                return Fault(at_s, kind, oracle, seconds=dice.uniform(0.1, 5))
            case "cut":
                names = {"oracle": oracle, "client": client, "store": STORE}
                ends = [names[end] for end in dice.choice(focus.cut_ends).split()]
                target, other = ends if dice.random() < 0.5 else ends[::-1]
                both = float(dice.random() < 0.5)
                seconds = dice.choice(focus.fault_cuts_s)
                return Fault(at_s, kind, target, other, seconds=seconds, amount=both)
            case "slow":
                times = dice.choice((10, 100))
                return Fault(at_s, kind, "everything", seconds=dice.uniform(1, 10), amount=times)
            case "full":
                return Fault(at_s, kind, STORE, seconds=dice.uniform(0.1, 8))
            case _:
                ahead_ms = dice.choice(focus.fault_clocks_ms) * dice.choice((1, -1))
                return Fault(at_s, kind, dice.choice((oracle, client)), amount=ahead_ms)

    def _power_losses(self) -> list[Fault]:
        count = self._one("losses of power", self._focus.power_losses)
        each = (self._dice(f"loss of power {number}") for number in range(count))
        return [
            Fault(dice.uniform(0, BUSY_S), "power", STORE, seconds=dice.choice(self._focus.dark_s))
            for dice in each
        ]

    def _half_closes(self) -> list[Fault]:
        count = self._one("half closes", self._focus.half_close_counts)
        each = (self._dice(f"half close {number}") for number in range(count))
        return [
            Fault(
                dice.uniform(0, BUSY_S),
                "half close",
                dice.choice(ORACLES),
                amount=float(dice.random() < 0.5),
            )
            for dice in each
        ]

    def _fault_of(self, dice: random.Random, name: str) -> Fault:
        at_s = dice.uniform(0, BUSY_S)
        match dice.choice(self._focus.other_fault_kinds):
            case "crash":
                return Fault(at_s, "crash", name, seconds=dice.uniform(0.1, 5))
            case "pause":
                return Fault(at_s, "pause", name, seconds=dice.choice(self._focus.other_pauses_s))
            case "cut":
                ends = (name, STORE) if dice.random() < 0.5 else (STORE, name)
                return Fault(at_s, "cut", *ends, seconds=dice.choice((0.5, 3, 12)), amount=1.0)
            case _:
                ahead_ms = dice.choice((500, 9_000, 3_600_000)) * dice.choice((1, -1))
                return Fault(at_s, "clock", name, amount=ahead_ms)
