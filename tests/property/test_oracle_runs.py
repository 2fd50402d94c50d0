"""Requests decided in runs become what they become one by one, byte for byte and in order."""

from __future__ import annotations

import random
from types import ModuleType

import pytest

from tests.machines.engines import compiled_engine, interpreted_engine
from tests.machines.oracle_streams import compare, machine_with

GAMES_BY_DAY = 150
GAMES_BY_NIGHT = 50_000


@pytest.mark.parametrize(
    "game_count",
    [GAMES_BY_DAY, pytest.param(GAMES_BY_NIGHT, marks=[pytest.mark.nightly])],
)
@pytest.mark.parametrize("form", ["interpreted", "compiled"])
def test_runs_do_what_single_requests_do(form: str, game_count: int) -> None:
    """Every answer, batch and effect, for clients of both languages, with tiny memories."""
    engine: ModuleType | None = interpreted_engine()
    if form == "compiled":
        engine = compiled_engine()
    if engine is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    seed = random.SystemRandom().getrandbits(32)
    for game in range(seed, seed + game_count):
        with machine_with(engine) as machine:
            compare(game, machine, machine)
