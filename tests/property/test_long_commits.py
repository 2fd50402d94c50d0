"""Long commits decided by slices become what they become as one, whatever comes between."""

from __future__ import annotations

import random
from pathlib import Path
from types import ModuleType

import pytest

from tests.machines.engines import compiled_engine, interpreted_engine, with_few_at_hand
from tests.machines.long_commits import play, play_known

pytestmark = pytest.mark.timeout(3600)

GAMES_BY_DAY = 100
GAMES_BY_NIGHT = 50_000
NIGHTLY = [pytest.mark.nightly]
AT_HAND = 4096
FEW = 5


@pytest.mark.parametrize("game_count", [GAMES_BY_DAY, pytest.param(GAMES_BY_NIGHT, marks=NIGHTLY)])
def test_slices_change_nothing(tmp_path: Path, game_count: int) -> None:
    """With so little at hand that each border is met often."""
    engine = with_few_at_hand(tmp_path, FEW)
    play_known(engine)
    seed = random.SystemRandom().getrandbits(32)
    for game in range(seed, seed + game_count):
        play(game, engine, engine, at_hand=FEW)


@pytest.mark.parametrize("game_count", [GAMES_BY_DAY, pytest.param(GAMES_BY_NIGHT, marks=NIGHTLY)])
def test_slices_of_machine_code_change_nothing(game_count: int) -> None:
    """In the form that serves, as it is."""
    engine: ModuleType | None = compiled_engine()
    if engine is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    seed = random.SystemRandom().getrandbits(32)
    for game in range(seed, seed + game_count):
        play(game, engine, engine, at_hand=AT_HAND)
    play(seed, engine, interpreted_engine(), at_hand=AT_HAND)
