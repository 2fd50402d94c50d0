"""The decision step against the naive truth: every commit remembered, nothing ever forgotten."""

from __future__ import annotations

from collections import deque
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.machines.engines import compiled_engine, interpreted_engine

pytestmark = pytest.mark.timeout(120)  # a chain that leads round does not end by itself

FORMS = ["interpreted", "compiled"]

CELLS = st.one_of(st.integers(0, 12), st.sampled_from([-(2**63), 2**63 - 1, -1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 3)),
        st.tuples(st.just("commit"), st.tuples(st.integers(0, 30), st.lists(CELLS, max_size=4))),
        st.tuples(st.just("fence"), st.integers(0, 2)),
        st.tuples(st.just("clock"), st.integers(0, 5000)),
        st.tuples(st.just("raise"), st.integers(0, 30)),
    ),
    max_size=80,
)


class Model:
    """Remembers everything; `kept` is what a map that evicts the oldest write would hold."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.commits: dict[int, int] = {}
        self.fences: dict[int, int] = {}
        self.kept: deque[tuple[int, int]] = deque()
        self.low_watermark = 0

    def committed(self, cells: list[int], commit_ts: int) -> None:
        """Remember a commit, and forget as a bounded memory would."""
        for cell in cells:
            if (cell, commit_ts) in self.kept:
                continue
            self.commits[cell] = commit_ts
            self.kept.append((cell, commit_ts))
            if len(self.kept) > self.capacity:
                forgotten, forgotten_ts = self.kept.popleft()
                if all(forgotten != kept for kept, _ in self.kept):
                    self.low_watermark = max(self.low_watermark, forgotten_ts)


@pytest.fixture(params=FORMS, scope="module")
def engine(request: pytest.FixtureRequest) -> ModuleType:
    """Return the module in one of its two forms."""
    module = interpreted_engine() if request.param == "interpreted" else compiled_engine()
    if module is None:
        pytest.skip("Cython or a C compiler is missing, so there is no compiled form")
    return module


@given(capacity=st.integers(1, 8), steps=STEPS, seed=st.integers(0, 2**40))
def test_decisions_equal_those_of_an_unbounded_memory(
    engine: ModuleType, capacity: int, steps: list[tuple[str, object]], seed: int
) -> None:
    """I1, I3 and I4 at once, and the watermark is as low as the capacity permits."""
    decider = engine.Engine(last_issued=0, conflict_map_size=capacity, seed=seed)
    model = Model(capacity)
    open_starts = [50]
    last = 0
    for kind, argument in steps:
        if kind == "clock":
            assert isinstance(argument, int)
            decider.clock_ts = argument * 50
        elif kind == "begin":
            issued = decider.issue()
            assert issued > last
            assert issued % 50 == 0
            last = issued
            open_starts.append(issued)
        elif kind == "fence":
            assert isinstance(argument, int)
            last_before, last = last, decider.fence(argument)
            assert last > last_before
            model.fences[argument] = last
        elif kind == "raise":
            assert isinstance(argument, int)
            target = open_starts[argument % len(open_starts)]
            decider.raise_low_watermark(target)
            model.low_watermark = max(model.low_watermark, min(target, decider.last_issued))
        else:
            assert isinstance(argument, tuple)
            index, cells = argument
            start_ts = open_starts[index % len(open_starts)]
            table = index % 3
            verdict = decider.commit(start_ts, cells, (table,))
            conflicting = [cell for cell in cells if model.commits.get(cell, 0) >= start_ts]
            if start_ts <= model.low_watermark:
                assert verdict == engine.ABORT_LOW_WATERMARK
            elif model.fences.get(table, 0) > start_ts:
                assert verdict == engine.ABORT_FENCE
            elif conflicting:
                assert verdict == engine.ABORT_CONFLICT
                assert decider.conflicts(start_ts, cells) == conflicting
            else:
                assert verdict > last
                last = verdict
                model.committed(cells, verdict)
        assert decider.low_watermark == model.low_watermark
        assert decider.remembered_cell_count == len(model.kept)
