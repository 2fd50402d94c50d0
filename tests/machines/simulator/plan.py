"""What goes wrong in a run, and when?  Drawn once, from the seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.machines.simulator.compactors import COMPACTORS
from tests.machines.simulator.exporters import EXPORTERS
from tests.machines.simulator.operators import OPERATORS, VERBS, Haste
from tests.machines.simulator.store import STORE, Chances, StoreKind
from tso.core.settings import Settings

ORACLES: Final = ("oracle-a", "oracle-b")
CLIENTS: Final = ("client-0", "client-1", "client-2", "client-3")

KINDS: Final = (
    *("crash", "crash", "pause", "pause", "stop"),
    *("hang up", "cut", "cut", "slow", "full", "clock"),
)
"""What goes wrong, some of it more often."""

BUSY_S: Final = 30.0
"""How long clients work and things go wrong."""


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


class Others(NamedTuple):
    """Who is there beside oracles and clients."""

    compactors: int = 0
    exporters: int = 0
    operators: int = 0
    lease_s: float = 10.0
    """How long they may show no life."""
    max_transaction_age_ms: int | None = None
    """None: as without them.  What is young cannot be compacted yet."""
    is_fencing: bool = False
    """Whether the receiver of exports keeps fences."""
    trouble: float = 0.0
    """How many of its requests, and of its answers, are lost."""
    faults: tuple[Fault, ...] = ()
    """What happens to them."""
    haste: Haste = Haste()
    """Of operators."""

    def names(self) -> tuple[str, ...]:
        """Return their processes."""
        return (
            *COMPACTORS[: self.compactors],
            *EXPORTERS[: self.exporters],
            *OPERATORS[: self.operators],
        )

    def __str__(self) -> str:
        faults = "\n".join(f"  {fault}" for fault in self.faults)
        who = (
            f"{self.compactors} compactors, {self.exporters} exporters, {self.operators} operators"
        )
        how = f"fencing={self.is_fencing}, trouble={self.trouble}"
        young = self.max_transaction_age_ms
        what = f"{who}, a lease of {self.lease_s:g} s, young until {young} ms, {how}"
        return f"{what}\n{faults}"


NOBODY_ELSE: Final = Others()


class Plan(NamedTuple):
    """One run."""

    store_kind: StoreKind
    settings: Settings
    chances: Chances
    faults: tuple[Fault, ...]
    lease_period_s: float
    death_share: float
    """Commits in which the client dies."""

    def __str__(self) -> str:
        faults = "\n".join(f"  {fault}" for fault in self.faults)
        what = f"a {self.store_kind} store, a lease of {self.lease_period_s:g} s"
        dice = f"{self.chances}, deaths={self.death_share}"
        return "\n".join((what, str(self.settings), dice, faults))


def drawn_plan(rng: random.Random) -> Plan:
    """Draw what goes wrong; in one run of eight nothing does."""
    store_kind: StoreKind = rng.choice(("cluster", "cluster", "file", "shared"))
    is_calm = rng.random() < 1 / 8
    faults = [] if is_calm else [_fault(rng) for _ in range(rng.randint(2, 9))]
    return Plan(
        store_kind,
        Settings(
            timestamps=rng.choice(("world", "world", "incremental")),
            conflict_map_size=rng.choice((8, 64, 4096)),
            max_transaction_age_ms=rng.choice((5_000, 20_000, 900_000)),
            decision_memory=rng.choice((4, 4096)),
            begin_memory=rng.choice((64, 4096)),
            hash_seed=rng.getrandbits(62),
        ),
        Chances() if is_calm or rng.random() < 0.3 else _chances(rng),
        tuple(sorted(faults)),
        lease_period_s=rng.choice((2.0, 10.0)),
        death_share=0.0 if is_calm else rng.choice((0.0, 0.02)),
    )


def _chances(rng: random.Random) -> Chances:
    torn = rng.choice((0.0, 0.1))
    lost, unheard, late, twice = (rng.choice((0.0, 0.002, 0.01)) for _ in range(4))
    return Chances(lost, unheard, late, twice, torn)


def _fault(rng: random.Random) -> Fault:
    at_s = rng.uniform(0, BUSY_S)
    oracle, client = rng.choice(ORACLES), rng.choice(CLIENTS)
    kind = rng.choice(KINDS)
    match kind:
        case "crash":
            target = oracle if rng.random() < 0.6 else client
            return Fault(at_s, kind, target, seconds=rng.uniform(0.1, 15))
        case "pause":
            target = oracle if rng.random() < 0.8 else client
            return Fault(at_s, kind, target, seconds=rng.choice((0.5, 3, 9, 11, 20)))
        case "stop" | "hang up":
            return Fault(at_s, kind, oracle, seconds=rng.uniform(0.1, 5))
        case "cut":
            ends = rng.choice(((oracle, STORE), (client, STORE), (client, oracle)))
            target, other = ends if rng.random() < 0.5 else ends[::-1]
            both = float(rng.random() < 0.5)
            return Fault(
                at_s, kind, target, other, seconds=rng.choice((0.5, 3, 6, 12, 18)), amount=both
            )
        case "slow":
            times = rng.choice((10, 100))
            return Fault(at_s, kind, "everything", seconds=rng.uniform(1, 10), amount=times)
        case "full":
            return Fault(at_s, kind, STORE, seconds=rng.uniform(0.1, 8))
        case _:
            ahead_ms = rng.choice((1, 500, 9_000, 12_000, 3_600_000)) * rng.choice((1, -1))
            return Fault(at_s, kind, rng.choice((oracle, client)), amount=ahead_ms)


def drawn_others(rng: random.Random) -> Others:
    """Draw who else is there, and what goes wrong with them."""
    compactors, exporters = rng.choice((0, 1, 1, 2)), rng.choice((0, 0, 1, 2))
    names = (*COMPACTORS[:compactors], *EXPORTERS[:exporters])
    others = Others(
        compactors,
        exporters,
        lease_s=rng.choice((3.0, 10.0)),
        max_transaction_age_ms=rng.choice((2_000, 5_000, None)) if compactors else None,
        is_fencing=rng.random() < 0.5,
        trouble=rng.choice((0.0, 0.1)),
        faults=_faults_of(rng, names),
    )
    # Last, so that a seed without operators is what it was before there were any.
    operators = rng.choice((0, 0, 2, 3))
    faults = (*others.faults, *_faults_of(rng, OPERATORS[:operators]))
    haste = Haste(rng.choice((0.1, 0.7)), rng.choice((0.0, 0.02, 0.1)), rng.choice(VERBS))
    return others._replace(operators=operators, faults=tuple(sorted(faults)), haste=haste)


def _faults_of(rng: random.Random, names: Sequence[str]) -> tuple[Fault, ...]:
    """Draw what goes wrong with processes of these names."""
    if not names:
        return ()
    return tuple(sorted(_fault_of(rng, rng.choice(names)) for _ in range(rng.randint(0, 4))))


def _fault_of(rng: random.Random, name: str) -> Fault:
    at_s = rng.uniform(0, BUSY_S)
    match rng.choice(("crash", "pause", "pause", "cut", "clock")):
        case "crash":
            return Fault(at_s, "crash", name, seconds=rng.uniform(0.1, 5))
        case "pause":
            return Fault(at_s, "pause", name, seconds=rng.choice((0.5, 2, 4, 11, 20)))
        case "cut":
            ends = (name, STORE) if rng.random() < 0.5 else (STORE, name)
            return Fault(at_s, "cut", *ends, seconds=rng.choice((0.5, 3, 12)), amount=1.0)
        case _:
            ahead_ms = rng.choice((500, 9_000, 3_600_000)) * rng.choice((1, -1))
            return Fault(at_s, "clock", name, amount=ahead_ms)
