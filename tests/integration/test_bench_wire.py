"""The benchmark on the wire still runs, and its generator counts what oracles answer."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.processes import ROOT, tso_server
from bench.wire import builds
from bench.wire.__main__ import DURABLE_LOADS, LOADS, WireDocument, main
from bench.wire.load import Load, generate
from bench.wire.oracles import OURS
from tests.machines import engines


@pytest.mark.integration
def test_aborts_are_counted_among_answers(tmp_path: Path) -> None:
    """A map of one cell forgets every other one at once, so hardly anything may commit."""
    options = ["--conflict-map-size", "1"]
    with tso_server("null:", log=tmp_path / "log", options=options) as address:
        answers = generate(address, Load(2, 8), seconds=0.1, seed=1)
    assert answers.count == 8 * len(answers.latencies)
    assert answers.count / 2 < answers.aborted_count <= answers.count


@pytest.mark.integration
@pytest.mark.parametrize(
    ("beside_omid", "more"),
    [
        (False, ()),
        pytest.param(False, ("--sqlite",), marks=pytest.mark.nightly),
        pytest.param(False, ("--before", str(ROOT)), marks=pytest.mark.nightly),
        pytest.param(True, (), marks=[pytest.mark.nightly, pytest.mark.java]),
        pytest.param(
            True, ("--hbase",), marks=[pytest.mark.nightly, pytest.mark.java, pytest.mark.hbase]
        ),
    ],
    ids=["alone", "on a file", "beside another checkout", "beside Omid's", "both on HBase"],
)
def test_every_load_is_measured(
    tmp_path: Path, *, beside_omid: bool, more: tuple[str, ...]
) -> None:
    """Ratios are those of one round."""
    words = ["--quick", "--output", str(tmp_path), *more, *([] if beside_omid else ["--alone"])]
    assert main(words) == 0
    (path,) = tmp_path.glob("*-wire*.json")
    document = msgspec.json.decode(path.read_bytes(), type=WireDocument)
    is_compared = beside_omid or "--before" in more
    oracles = {one.oracle for one in document.measured}
    assert OURS in oracles
    assert len(oracles) == 1 + is_compared
    loads = DURABLE_LOADS if "--sqlite" in more else LOADS
    expected = {(load.name, oracle) for load in loads for oracle in oracles}
    assert {(one.load, one.oracle) for one in document.measured} == expected
    assert all(one.per_processor_s and one.p50_ms for one in document.measured)
    assert len(document.ratios) == (len(LOADS) if is_compared else 0)
    assert {ratio.over for ratio in document.ratios} == oracles - {OURS}


@pytest.mark.parametrize("form", ["compiled", "interpreted"])
def test_a_build_of_the_engine_is_measured(form: str) -> None:
    """A form that refused what it is given would be quick, and tell nothing."""
    engine = engines.interpreted_engine()
    if form == "compiled":
        if (found := engines.compiled_engine()) is None:
            pytest.skip("Cython or a C compiler is missing: install gcc and cython")
        engine = found
    assert builds.run_us(engine, 2 * builds.RUN) > 0
    assert builds.single_us(engine, 10) > 0
