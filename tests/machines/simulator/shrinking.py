"""What of a failing seed is needed?  Its plan without the rest, and its story as a time line.

A seed draws far more than what its finding needs.  Of its plan is dropped what can be while the
same claim still fails: time, actors, faults, stalls, disturbances, habits, and transactions of
clients one by one.  What is dropped shifts what follows, so that the shrunk run need not be a part
of the first one: it is another failure of the same claim, with less around it.

The seed alone says all of it: whoever shrinks it again comes to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Final, NamedTuple, TypeVar

from tests.machines.simulator.plan import USUAL, Choices, Focus, Plan, drawn_plan
from tests.machines.simulator.simulation import PRODUCT, Parts, Report, simulate
from tests.machines.simulator.store import Chances, Stall
from tests.machines.simulator.watch import name_of

T = TypeVar("T")

MOST_RUNS: Final = 400
"""So many seeds are run at most to shrink one."""

RESTED: Final = (
    ("thinking_share", 0.0),
    ("fence_share", 0.0),
    ("late_message_share", 0.0),
    ("death_share", 0.0),
    ("repeat_share", 0.0),
    ("first_retry_share", 0.0),
)
"""Habits of clients, and how they are without."""


class Shrunk(NamedTuple):
    """A plan of which nothing more can be dropped, and what it comes to."""

    plan: Plan
    report: Report
    runs: int

    def __str__(self) -> str:
        """Say what is left, and what happens in it."""
        return "\n".join(
            (
                f"seed {self.report.seed}, shrunk in {self.runs} runs",
                str(self.plan),
                *(f"FOUND {one}" for one in self.report.findings),
                "what happens:",
                *time_line(self.report.story),
                f"again: {self.report.again}, and SHRINK=1",
            )
        )


def shrink(
    seed: int, parts: Parts = PRODUCT, focus: Focus = USUAL, *, finding: str = ""
) -> Shrunk | None:
    """Drop what a finding does not need.

    Args:
        seed: Which.
        parts: What the world is made of.
        focus: What the seed draws its plan from.
        finding: Its name; the first that is found, if empty.

    Returns:
        None where nothing is found.
    """
    plan = drawn_plan(seed, focus)
    if not finding:
        found = simulate(seed, parts, focus, plan=plan).findings
        if not found:
            return None
        finding = name_of(found[0])
    return _Shrinking(seed, parts, focus, finding).shrunk(plan)


class _Shrinking:
    def __init__(self, seed: int, parts: Parts, focus: Focus, finding: str) -> None:
        self._seed = seed
        self._parts = parts
        self._focus = focus
        self._finding = finding
        self._runs = 0
        self._last: Report | None = None
        """Of the smallest plan that fails."""

    def shrunk(self, plan: Plan) -> Shrunk | None:
        """Drop what can be, over and over, until a whole round drops nothing."""
        if not self._fails(plan):
            return None
        before = None
        while before != plan and self._runs < MOST_RUNS:
            before = plan
            plan = self._shortened(plan)
            for smaller in (self._fewer_actors, self._calmer, self._fewer_faults):
                plan = smaller(plan)
            plan = self._fewer_transactions(plan)
        report = simulate(
            self._seed,
            self._parts,
            self._focus,
            until_found=self._finding,
            plan=plan,
            keeps_story=True,
        )
        return Shrunk(plan, report, self._runs)

    def _fails(self, plan: Plan) -> bool:
        """Say whether the same claim fails; where too much was tried, nothing more does."""
        if self._runs >= MOST_RUNS:
            return False
        self._runs += 1
        report = simulate(
            self._seed, self._parts, self._focus, until_found=self._finding, plan=plan
        )
        if set(self._finding.split("|")).isdisjoint(map(name_of, report.findings)):
            return False
        self._last = report
        return True

    def _smaller(self, plan: Plan, candidates: Iterator[Plan]) -> Plan:
        return next((one for one in candidates if one != plan and self._fails(one)), plan)

    def _shortened(self, plan: Plan) -> Plan:
        """End it sooner: at once behind what was found, or in half of the time."""
        while True:
            shorter = [plan.busy_s / 2, plan.busy_s * 3 / 4]
            smaller = self._smaller(
                plan, (plan._replace(busy_s=seconds) for seconds in shorter if seconds > 1)
            )
            if smaller is plan:
                return plan
            plan = smaller

    def _fewer_actors(self, plan: Plan) -> Plan:
        for kind in (
            "compactors",
            "exporters",
            "operators",
            "crowds",
            "committers",
            "rescuers",
            "keepers",
            "sharers",
            "helpers",
            "retriers",
            "strangers",
            "followers",
        ):
            fewer: list[dict[str, Any]] = [
                {kind: count} for count in range(getattr(plan.others, kind))
            ]
            plan = self._smaller(
                plan, (plan._replace(others=plan.others._replace(**one)) for one in fewer)
            )
        clients = self._kept(plan.clients, lambda kept: plan._replace(clients=tuple(kept)))
        return plan._replace(clients=tuple(clients))

    def _calmer(self, plan: Plan) -> Plan:
        plan = self._smaller(plan, iter([plan._replace(before_share=0.0)]))
        for name, one in plan.stalls.items():
            if one.share:
                calm = plan._replace(stalls={**plan.stalls, name: Stall()})
                plan = self._smaller(plan, iter([calm]))
        for chance in fields(Chances):
            calm = plan._replace(chances=replace(plan.chances, **{chance.name: 0.0}))
            plan = self._smaller(plan, iter([calm]))
        for habit, rest in RESTED:
            rested: dict[str, Any] = {habit: rest}
            calm = plan._replace(habits=plan.habits._replace(**rested))
            plan = self._smaller(plan, iter([calm]))
        return self._smaller(plan, iter([plan._replace(choices=Choices(None, None, None))]))

    def _fewer_faults(self, plan: Plan) -> Plan:
        faults = self._kept(plan.faults, lambda kept: plan._replace(faults=tuple(kept)))
        return plan._replace(faults=tuple(faults))

    def _fewer_transactions(self, plan: Plan) -> Plan:
        assert self._last is not None, "the plan has failed"
        done = [one for one in self._last.done if one not in plan.skipped]

        def with_only(kept: Sequence[tuple[str, int]]) -> Plan:
            return plan._replace(skipped=plan.skipped | (set(done) - set(kept)))

        return with_only(self._kept(done, with_only))

    def _kept(self, parts: Sequence[T], with_only: Callable[[Sequence[T]], Plan]) -> Sequence[T]:
        """Return as few parts as the claim needs to fail, by halves, quarters, and so on.

        Source: Zeller, "Simplifying and isolating failure-inducing input" (ddmin).
        """
        kept, pieces = list(parts), 2
        if kept and self._fails(with_only([])):
            return []
        while len(kept) > 1:
            size = -(-len(kept) // pieces)
            for at in range(0, len(kept), size):
                rest = kept[:at] + kept[at + size :]
                if rest and self._fails(with_only(rest)):
                    kept, pieces = rest, max(pieces - 1, 2)
                    break
            else:
                if size == 1:
                    break
                pieces = min(2 * pieces, len(kept))
        return kept


def time_line(story: Sequence[str]) -> Iterator[str]:
    """Yield a story line by line: when, who, and what; calls of the store are counted.

    What travels is left out: both of its ends are told of.
    """
    calls: dict[str, int] = {}
    for line in story:
        at_s, _, what = line.partition(" ")
        who, _, rest = what.partition(" ")
        if rest.startswith("->"):
            continue
        if _is_call(rest):
            calls[who] = calls.get(who, 0) + 1
            if not rest.startswith(("write", "check_and_mutate", "create", "drop")):
                continue
        before = calls.pop(who, 0)
        asked = f"  ({before} calls of the store)" if before > 1 else ""
        yield f"{float(at_s):10.4f}  {who:<14} {rest}{asked}"


CALLS: Final = ("get", "scan", "write", "check_and_mutate", "create_table", "drop_table", "find")
"""What the names of calls of the store begin with."""


def _is_call(rest: str) -> bool:
    return rest.startswith((*CALLS, "set_", "regions", "schema", "tables", "table_states"))
