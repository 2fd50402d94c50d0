"""The product with a part broken on purpose: the simulator must find each, by name.

No seed is recorded, since any change of what is asked in which order gives seeds another meaning.
Each mutant has a focus instead, in which what it breaks is common, so that few seeds are enough.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.machines.simulator.all_mutants import (
    ALL_MUTANTS,
    BETWEEN_WINDOWS,
    BY_DAY,
    MOST_SEEDS,
    seeds_until_found,
)
from tests.machines.simulator.batch_mutants import BATCH_MUTANTS
from tests.machines.simulator.before import WITHOUT, before
from tests.machines.simulator.bucket_mutants import BUCKET_MUTANTS
from tests.machines.simulator.client_mutants import CLIENT_MUTANTS
from tests.machines.simulator.collection_mutants import COLLECTION_MUTANTS
from tests.machines.simulator.committer_mutants import COMMITTER_MUTANTS
from tests.machines.simulator.compaction_mutants import COMPACTION_MUTANTS
from tests.machines.simulator.disk_mutants import DISK_MUTANTS
from tests.machines.simulator.export_mutants import EXPORT_MUTANTS
from tests.machines.simulator.follow_mutants import FOLLOW_MUTANTS
from tests.machines.simulator.heavy_mutants import HEAVY_MUTANTS
from tests.machines.simulator.juggle_mutants import JUGGLE_MUTANTS
from tests.machines.simulator.mutants import MUTANTS
from tests.machines.simulator.operation_mutants import OPERATION_MUTANTS
from tests.machines.simulator.plan import Focus
from tests.machines.simulator.retry_mutants import RETRY_MUTANTS
from tests.machines.simulator.rolling_mutants import ROLLING_MUTANTS
from tests.machines.simulator.sharing_mutants import SHARING_MUTANTS
from tests.machines.simulator.simulation import Mutant, Report, simulate
from tests.machines.simulator.stranger_mutants import STRANGER_MUTANTS
from tests.machines.simulator.znode_mutants import ZNODE_MUTANTS

NIGHTLY_WINDOWS = 25


def test_no_two_mutants_have_one_name() -> None:
    """One that nobody runs is found by nobody; and of each actor some are looked for by day."""
    assert set(ALL_MUTANTS) >= BY_DAY
    by_actor = (
        *(MUTANTS, BATCH_MUTANTS, CLIENT_MUTANTS),
        *(COMPACTION_MUTANTS, COLLECTION_MUTANTS, EXPORT_MUTANTS, OPERATION_MUTANTS, DISK_MUTANTS),
        *(COMMITTER_MUTANTS, BUCKET_MUTANTS),
        *(HEAVY_MUTANTS, SHARING_MUTANTS, RETRY_MUTANTS, STRANGER_MUTANTS),
        *(FOLLOW_MUTANTS, ROLLING_MUTANTS, JUGGLE_MUTANTS, ZNODE_MUTANTS),
    )
    assert len(ALL_MUTANTS) == sum(map(len, by_actor))
    assert not [sorted(mutants) for mutants in by_actor if BY_DAY.isdisjoint(mutants)]


def _mutant(name: str) -> Mutant:
    if name in ROLLING_MUTANTS and before() is None:
        pytest.skip(WITHOUT)
    return ALL_MUTANTS[name]


@cache
def _product(seed: int, focus: Focus) -> Report:
    """Run the product as it is, once where several mutants are found by one seed."""
    return simulate(seed, focus=focus)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly)
        for name in ALL_MUTANTS
    ],
)
def test_a_mutant_is_found_by_its_name(name: str) -> None:
    """And nothing is found in the product where it is."""
    mutant = _mutant(name)
    count = seeds_until_found(mutant, 0)
    assert count is not None, f"it was not found in {MOST_SEEDS} seeds"
    report = _product(count - 1, mutant.focus)
    assert not report.findings, report


@pytest.mark.nightly
@pytest.mark.parametrize("name", ALL_MUTANTS)
def test_a_mutant_is_found_whatever_seeds_mean(name: str) -> None:
    """Wherever one begins to look for it."""
    mutant = _mutant(name)
    for window in range(1, NIGHTLY_WINDOWS + 1):
        first = window * BETWEEN_WINDOWS
        count = seeds_until_found(mutant, first)
        assert count is not None, f"it was not found in {MOST_SEEDS} seeds from {first} on"
        report = _product(first + count - 1, mutant.focus)
        assert not report.findings, report
