"""The documentation speaks of files, tests and invariants that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").rglob("*.md")]
)
INVARIANTS: Final = ROOT / "docs" / "explanation" / "invariants.md"


def names(path: Path) -> set[str]:
    """Return the classes and functions that a Python file defines at its top level."""
    return set(re.findall(r"^(?:class|def) (\w+)", path.read_text("utf-8"), flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A dead link costs a reader's trust."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_invariant_has_its_lines() -> None:
    """Claim, keeper, second assertion and broken variant: a gap would be invisible otherwise."""
    text = INVARIANTS.read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [section.split(":")[0] for section in sections] == [f"I{n}" for n in range(1, 11)]
    for section in sections:
        starts = re.findall(r"^- ([A-Za-z ]+):", section, flags=re.MULTILINE)
        assert starts == ["Kept", "Asserted again", "Broken variant"], section.splitlines()[0]


def test_the_files_and_tests_that_invariants_name_exist() -> None:
    """The page proves nothing once a test was renamed."""
    for line in INVARIANTS.read_text("utf-8").splitlines():
        known: set[str] = set()
        for word in re.findall(r"`([^`]+)`", line):
            file, _, name = word.partition("::")
            if "/" in file:
                assert (ROOT / file).is_file(), line
                known = names(ROOT / file)
            elif not name:
                name = file
            assert not name or name in known, f"{name}: {line}"
