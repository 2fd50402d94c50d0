"""The drawings of the documentation: what a reader can do with them, whatever shows them."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Final

import pytest

from tests.machines.documents import ROOT, pages

DRAWINGS: Final = sorted((ROOT / "docs" / "images").glob("*.svg"))
SVG: Final = "{http://www.w3.org/2000/svg}"


def test_there_are_drawings() -> None:
    """The tests below pass for none, too."""
    assert {path.stem for path in DRAWINGS} >= {"parts", "commit", "pruning", "levels"}


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_can_be_heard_and_read(path: Path) -> None:
    """A screen reader says title and description; everybody else can select the words."""
    root = ET.fromstring(path.read_text("utf-8"))
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert description is not None
    assert root.get("role") == "img"
    assert root.get("aria-labelledby") == f"{title.get('id')} {description.get('id')}"
    assert len(title.text or "") > 10
    assert len(description.text or "") > 100
    assert root.find(f".//{SVG}text") is not None


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_stands_in_a_page_without_touching_it(path: Path) -> None:
    """Its ids are its own, its rules are for drawings alone, and it fetches nothing."""
    text = path.read_text("utf-8")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert all(name.startswith(f"{path.stem}-") for name in ids)
    assert len(set(ids)) == len(ids)
    style = text.partition("<style>")[2].partition("</style>")[0]
    selectors = re.findall(r"^([^{}\n]+)\{", style, flags=re.MULTILINE)
    assert all("svg.drawing" in selector for selector in selectors)
    assert re.findall(r"(?:href|src)=|url\((?!#)|@import|@font-face", text) == []


def test_all_drawings_have_one_style() -> None:
    """Each carries it, to be seen alone as well; a copy that differs was forgotten."""
    styles = {
        path.read_text("utf-8").partition("<style>")[2].partition("</style>")[0]
        for path in DRAWINGS
    }
    assert len(styles) == 1
    (style,) = styles
    assert "light-dark(" in style
    sizes = [float(size) for size in re.findall(r"font-size: ([\d.]+)px", style)]
    assert min(sizes) >= 11


@pytest.mark.parametrize("path", DRAWINGS, ids=lambda path: path.stem)
def test_a_drawing_is_shown_with_words_in_its_place(path: Path) -> None:
    """One that no page shows is forgotten; where it cannot be shown, the words stand for it."""
    shown = re.compile(rf"!\[([^\]]{{20,}})\]\((?:\.\./)?images/{path.name}\)")
    assert any(shown.search(page.read_text("utf-8")) for page in pages())


def test_the_levels_are_drawn_with_every_folder() -> None:
    """A folder that is missing there has no level that a reader could know."""
    drawn = (ROOT / "docs" / "images" / "levels.svg").read_text("utf-8")
    folders = [path.parent.name for path in (ROOT / "omidpy").glob("*/__init__.py")]
    assert folders
    assert [name for name in folders if not re.search(rf"\b{name}/", drawn)] == []


def test_no_page_draws_with_characters() -> None:
    """Such a picture breaks on a narrow page, and a screen reader spells it."""
    drawn = re.compile(r"\+--|--\+|[\u2500-\u257f]")
    found = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in [*pages(), ROOT / "README.md"]
        for line in page.read_text("utf-8").splitlines()
        if drawn.search(line)
    ]
    assert found == []
