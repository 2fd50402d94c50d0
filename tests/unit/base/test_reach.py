"""Marks at rare branches: nothing to anybody, unless somebody listens."""

from __future__ import annotations

import re
from pathlib import Path

from omidpy.base.reach import listening, reached
from tests.machines.simulator.marks import COMPILED, all_marks

INVARIANTS = Path(__file__).parents[3] / "docs" / "explanation" / "invariants.md"
COMMITTERS = INVARIANTS.with_name("committers.md")


def test_a_mark_is_told_to_who_listens_and_to_nobody_else() -> None:
    """A listener within another takes its place, and gives it back."""
    outer: list[str] = []
    inner: list[str] = []
    reached("one", "I1")
    with listening(outer.append):
        reached("two", "I1")
        with listening(inner.append):
            reached("three", "I1")
        reached("four", "I1")
    reached("five", "I1")
    assert (outer, inner) == (["two", "four"], ["three"])


def test_each_mark_has_a_name_of_its_own_and_a_claim_that_is_stated() -> None:
    """Two branches of one name would hide that one of them was never taken."""
    marks = list(all_marks())
    names = [mark.name for mark in marks]
    assert len(names) > 60
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_]+\.[a-z_]+", name) for name in names)
    stated = set(re.findall(r"^## ([A-Z]\d+):", INVARIANTS.read_text("utf-8"), re.MULTILINE))
    stated |= set(re.findall(r"^\| (C\d+) \|", COMMITTERS.read_text("utf-8"), re.MULTILINE))
    assert {mark.claim for mark in marks} <= stated


def test_no_mark_stands_in_what_is_compiled() -> None:
    """There even a call that does nothing costs something."""
    assert not [mark for mark in all_marks() if mark.path in COMPILED]
    root = INVARIANTS.parents[2]
    assert all("reached" not in (root / path).read_text("utf-8") for path in COMPILED)
