"""The documentation speaks of files, tests and invariants that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    [
        *ROOT.glob("*.md"),
        *(path for folder in ("docs", "bench", "tests") for path in (ROOT / folder).rglob("*.md")),
    ]
)
INVARIANTS: Final = ROOT / "docs" / "explanation" / "invariants.md"
BOUNDS: Final = ROOT / "docs" / "explanation" / "bounds.md"

FOLDERS: Final = ("omidpy", "tso", "compactor", "bench", "tests", "docs")
SOURCES: Final = sorted(
    path
    for folder in FOLDERS
    for suffix in ("py", "pxd", "md", "java", "toml")
    for path in (ROOT / folder).rglob(f"*.{suffix}")
    if path != Path(__file__)
)
ELSEWHERE: Final = re.compile(
    r"\b(?:D\d{1,2}|DESIGN|STYLE|FORMATS|BEHAVIOUR|PRUNING)\b"
    r"|\b(?:FATE|COMMITTERS|EXPORT_QUEUE|RPC|FACTS)\.md\b"
)
"""How a document is cited that no reader of this repository has."""


def names(path: Path) -> set[str]:
    """Return the classes and functions that a Python file defines at its top level."""
    return set(re.findall(r"^(?:class|def) (\w+)", path.read_text("utf-8"), flags=re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    """A dead link costs a reader's trust."""
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("citation", ["as D9 says", "FORMATS 2.7", "(BEHAVIOUR 4.8)", "FATE.md"])
def test_a_citation_of_a_document_elsewhere_is_recognised(citation: str) -> None:
    """The test below passes for a pattern that matches nothing, too."""
    assert ELSEWHERE.search(citation) is not None


def test_what_is_cited_can_be_read_here() -> None:
    """A reason that stands in a document elsewhere is no reason for whoever reads this code."""
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in SOURCES
        for line in path.read_text("utf-8").splitlines()
        if ELSEWHERE.search(line)
    ]
    assert found == []


def test_the_pages_that_code_cites_exist() -> None:
    """`docs/decisions/0005` is enough for a record; every other page is named whole."""
    missing = [
        f"{path.relative_to(ROOT)}: {page}"
        for path in SOURCES
        if path.suffix != ".md"
        for page in re.findall(r"\bdocs/(?:\w+/)*[\w.-]*\w", path.read_text("utf-8"))
        if not any(ROOT.glob(page if page.endswith(".md") else f"{page}*"))
    ]
    assert missing == []


def test_a_decision_has_a_number_of_its_own() -> None:
    """It is cited by it, and its heading says it."""
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    assert [int(path.name[:4]) for path in records] == list(range(1, len(records) + 1))
    for path in records:
        assert path.read_text("utf-8").startswith(f"# {int(path.name[:4])}. "), path.name


def test_the_subjects_of_fragments_are_the_chapters_of_the_change_log() -> None:
    """A release gathers each fragment into its chapter."""
    log = (ROOT / "CHANGELOG.md").read_text("utf-8")
    chapters = re.findall(r"^### (.*)$", log, flags=re.MULTILINE)
    assert len(re.findall(r"^## ", log, flags=re.MULTILINE)) == 1, "read the chapters of the newest"
    text = (ROOT / "docs" / "changes" / "README.md").read_text("utf-8")
    (listed,) = re.findall(r"^- The subject is .*: (.*)\.$", text, flags=re.MULTILINE)
    named = {"cli": "Command line", "pages": "Documentation", "hbase": "HBase"}
    for subject in re.findall(r"`([\w-]+)`", listed):
        title = named.get(subject, subject.replace("-", " "))
        assert any(one.lower().startswith(title.lower()) for one in chapters), subject


def test_every_invariant_has_its_lines() -> None:
    """Claim, keeper, second assertion and broken variant: a gap would be invisible otherwise."""
    text = INVARIANTS.read_text("utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [section.split(":")[0] for section in sections] == [
        *(f"I{n}" for n in range(1, 12)),
        *(f"F{n}" for n in range(1, 9)),
        *(f"X{n}" for n in range(1, 12)),
        *(f"P{n}" for n in range(1, 6)),
    ]
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


def test_what_keeps_an_invariant_cites_it() -> None:
    """Who changes a guard reads the code, and not the page that says what depends on it."""
    uncited = [
        f"{file} keeps {claim}"
        for claim, keepers in (*kept(INVARIANTS.read_text("utf-8")), *kept_by_committers())
        for file in re.findall(r"`((?:omidpy|tso|compactor)/[\w/]+\.py)", keepers)
        if not re.search(rf"\b{claim}\b", (ROOT / file).read_text("utf-8"))
    ]
    assert not uncited


def kept(text: str) -> Iterator[tuple[str, str]]:
    """Yield each claim of the page, and what the page says of where it is kept."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        (keepers,) = re.findall(r"^- Kept:(.*?)^- ", section, flags=re.MULTILINE | re.DOTALL)
        yield section.partition(":")[0], keepers


def kept_by_committers() -> list[tuple[str, str]]:
    """Return the same of the claims in the table of committers."""
    text = (INVARIANTS.parent / "committers.md").read_text("utf-8")
    rows = re.findall(r"^\| (C\d+) \| [^|]+ \| ([^|]+) \|", text, flags=re.MULTILINE)
    assert len(rows) == 15
    return rows


def test_the_guards_that_the_page_of_bounds_names_exist() -> None:
    """Whoever takes one away must not find it told of."""
    rows = re.findall(r"^\| .* \| (`.*) \| (.*) \|$", BOUNDS.read_text("utf-8"), re.MULTILINE)
    assert len(rows) > 30
    for guards, tests in rows:
        assert "`test_" in tests, guards
        for guard in guards.split("; "):
            file, *names_ = re.findall(r"`([^`]+)`", guard)
            assert names_, guard
            text = (ROOT / file).read_text("utf-8")
            assert [name for name in names_ if name not in text] == [], file


def test_the_tests_that_pages_name_exist() -> None:
    """A table of what may go wrong proves nothing, either."""
    named = {
        name
        for page in (ROOT / "docs" / "explanation").glob("*.md")
        for name in re.findall(r"`(test_\w+)`", page.read_text("utf-8"))
    }
    known = set().union(*(names(path) for path in (ROOT / "tests").rglob("test_*.py")))
    assert sorted(named - known) == []
    assert len(named) > 30, "the table of committers alone has more"
