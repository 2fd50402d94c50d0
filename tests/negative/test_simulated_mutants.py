"""The product with a part broken on purpose: the simulator must find each, by name.

Each has a seed at which it was found, at which the product as it is has nothing to be found. Any
change of what is asked in which order gives seeds another meaning: a mutant that is not found at
its own is looked for at the others.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from tests.machines.simulator.compaction_mutants import COMPACTION_MUTANTS
from tests.machines.simulator.export_mutants import EXPORT_MUTANTS
from tests.machines.simulator.mutants import MUTANTS
from tests.machines.simulator.operation_mutants import OPERATION_MUTANTS
from tests.machines.simulator.simulation import Parts, simulate


class Sight(NamedTuple):
    """Where a mutant was found, and what is found there."""

    seed: int
    finding: str


SEEN: Final = {
    "no conflict check": Sight(1, "lost update"),
    "early reply": Sight(0, "I2"),
    "begin overtakes a commit": Sight(4, "I2"),
    "forgotten epoch": Sight(13, "lost update"),
    "lost fence": Sight(7, "fence"),
    "commit decided twice": Sight(0, "I8"),
    "retry answered abort": Sight(4, "I8"),
    "invalidation ignored": Sight(6, "I9"),
    "silent eviction": Sight(2, "lost update"),
    "clock followed back": Sight(6, "I1"),
    "issued above the ceiling": Sight(620, "I1"),
    "reused ceiling": Sight(0, "I1"),
    "watermark before durability": Sight(31, "I4"),
    "torn batch accepted": Sight(0, "I2"),
    "cells written unguarded": Sight(565, "I9"),
    "cells without shadow cells": Sight(0, "I5"),
    "absent taken for aborted": Sight(217, "I9"),
    "zombie that answers": Sight(21, "stale snapshot"),
    "lease vouched for ever": Sight(1251, "stale snapshot"),
    "impatient standby": Sight(74, "I1"),
    "silence taken for abort": Sight(6, "I9"),
    "silence taken for not sent": Sight(6, "I9"),
    "undecided left alone": Sight(1132, "lost append"),
    "entry removed first": Sight(8, "I8"),
}

SEEN_WITH_OTHERS: Final = {
    "watermark read behind the pass": Sight(6, "I8"),
    "claimed unhealed": Sight(6, "I8"),
    "last row left out": Sight(0, "fsck"),
    "newest timestamp taken for the watermark": Sight(51, "fsck"),
    "pruned up to the watermark": Sight(6, "stale read"),
    "one claim suffices": Sight(314, "I8"),
    "refusal taken for delivered": Sight(0, "E1"),
    "removed taken for never written": Sight(293, "E1"),
    "snapshot before the watermark": Sight(1101, "E1"),
    "removed by name": Sight(0, "E3"),
    "next table made unfenced": Sight(2, "E3"),
    "operation written by the deposed": Sight(143, "E3"),
}

MUTANTS_OF_OTHERS: Final = {**COMPACTION_MUTANTS, **EXPORT_MUTANTS, **OPERATION_MUTANTS}

MOST_SEEDS: Final = 1000
"""Within so many, from the first one on, each mutant must be found by something."""

OTHER_SEEDS: Final = 150
"""So many are tried where a mutant is not found at its own."""


def test_every_mutant_is_listed() -> None:
    """One that nobody runs is found by nobody."""
    assert SEEN.keys() == MUTANTS.keys()
    assert SEEN_WITH_OTHERS.keys() == MUTANTS_OF_OTHERS.keys()


@pytest.mark.parametrize("name", SEEN)
def test_a_mutant_is_found_by_its_name(name: str) -> None:
    """And nothing is found in the product where it is."""
    _find(MUTANTS[name], SEEN[name], with_others=False)


@pytest.mark.parametrize("name", SEEN_WITH_OTHERS)
def test_a_mutant_of_others_is_found_by_its_name(name: str) -> None:
    """The same, of what compacts, exports and operates beside oracles and clients."""
    _find(MUTANTS_OF_OTHERS[name], SEEN_WITH_OTHERS[name], with_others=True)


def _find(mutant: Parts, sight: Sight, *, with_others: bool) -> None:
    for seed in (sight.seed, *range(OTHER_SEEDS)):
        findings = simulate(seed, mutant, with_others=with_others).findings
        if sight.finding in {one.partition(":")[0] for one in findings}:
            assert simulate(seed, with_others=with_others).findings == ()
            return
    pytest.fail(f"it was not found in {OTHER_SEEDS} seeds: give it another of its own")


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*SEEN, *SEEN_WITH_OTHERS])
def test_a_mutant_is_found_without_a_known_seed(name: str) -> None:
    """However seeds change their meaning: by whatever it breaks first, within as many."""
    mutant = {**MUTANTS, **MUTANTS_OF_OTHERS}[name]
    for seed in range(MOST_SEEDS):
        if simulate(seed, mutant, with_others=name in MUTANTS_OF_OTHERS).findings:
            return
    pytest.fail(f"{name} was not found in {MOST_SEEDS} seeds")
