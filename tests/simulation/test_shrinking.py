"""A failing seed without what its finding does not need, and its story."""

from __future__ import annotations

from tests.machines.simulator.all_mutants import ALL_MUTANTS, seeds_until_found
from tests.machines.simulator.plan import ALONE, drawn_plan
from tests.machines.simulator.shrinking import shrink, time_line
from tests.machines.simulator.simulation import simulate


def test_what_a_finding_does_not_need_is_dropped() -> None:
    """The claim fails still, always in the same way, and with next to nothing around it."""
    mutant = ALL_MUTANTS["zombie that answers"]
    count = seeds_until_found(mutant, 0)
    assert count is not None
    seed = count - 1
    plan = drawn_plan(seed, mutant.focus)
    shrunk = shrink(seed, mutant.parts, mutant.focus, finding=mutant.finding)
    assert shrunk is not None
    assert shrunk.report.findings[0].startswith("I1: ")
    assert len(shrunk.plan.faults) < len(plan.faults)
    assert len(shrunk.plan.clients) < len(plan.clients)
    assert shrunk.plan.busy_s < plan.busy_s
    again = simulate(seed, mutant.parts, mutant.focus, until_found=mutant.finding, plan=shrunk.plan)
    assert again.digest == shrunk.report.digest
    # Nothing of what is left can be dropped: it is needed, be it only to keep what happens so.
    for fault in shrunk.plan.faults:
        rest = tuple(one for one in shrunk.plan.faults if one != fault)
        calmer = shrunk.plan._replace(faults=rest)
        findings = simulate(
            seed, mutant.parts, mutant.focus, until_found=mutant.finding, plan=calmer
        ).findings
        assert not any(one.startswith("I1: ") for one in findings)
    told = str(shrunk)
    assert "FOUND I1: " in told
    assert "is struck: " in told
    assert "calls of the store)" in told


def test_a_seed_that_finds_nothing_is_not_shrunk() -> None:
    """There is nothing that would tell what to keep."""
    assert shrink(6, focus=ALONE) is None


def test_a_transaction_that_is_left_out_shifts_nothing_that_others_draw() -> None:
    """Else what is left would be another run altogether."""
    plan = drawn_plan(6, ALONE)
    whole = simulate(6, focus=ALONE, plan=plan)
    first = whole.done[0]
    less = simulate(6, focus=ALONE, plan=plan._replace(skipped=frozenset([first])))
    assert first in less.done
    assert whole.digest != less.digest
    assert abs(less.counts["transactions committed"] - whole.counts["transactions committed"]) < 9


def test_a_time_line_counts_reads_and_leaves_out_what_travels() -> None:
    """Who reads it wants to know who did what, and when."""
    story = [
        "0.100000 oracle-a get OMIDPY_COMPACTION",
        "0.200000 client-0 -> oracle-a 12 bytes",
        "0.300000 oracle-a scan x",
        "0.400000 oracle-a write x",
        "0.500000 oracle-a ends",
    ]
    assert list(time_line(story)) == [
        "    0.4000  oracle-a       write x  (3 calls of the store)",
        "    0.5000  oracle-a       ends",
    ]
