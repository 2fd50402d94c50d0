"""Fragments become items of the change log, each in its chapter and section, and none is lost."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from release.changelog import (
    KINDS,
    ROOT,
    SECTIONS,
    ChangelogError,
    Fragment,
    chapter,
    fragment_paths,
    gather,
    project_version,
    read,
    versions,
    with_fragments,
)

LOG: Final = """# Change log

## 0.2.0

Tested.

### Transactions

- Old.

### If you ran a checkout

- Stop.

## 0.1.0

### Oracle

- First.
"""

FIX: Final = Fragment("oracle", "b", "fix", "It is mended.\nIt holds.\n")
FEATURE: Final = Fragment("oracle", "z", "feature", "It is new.\n")
OF_TRANSACTIONS: Final = Fragment("transactions", "a", "feature", "It reads.\n")


def test_each_goes_into_its_section_of_the_chapter_what_is_new_first() -> None:
    """What the chapter had stays, and so do older chapters and sections of no subject."""
    expected = LOG.replace("- Old.\n", "- Old.\n- It reads.\n").replace(
        "### If you", "### Oracle\n\n- It is new.\n- It is mended.\n  It holds.\n\n### If you"
    )
    assert with_fragments(LOG, "0.2.0", [FIX, FEATURE, OF_TRANSACTIONS]) == expected


def test_a_chapter_that_is_not_there_is_begun_above_the_others() -> None:
    """The newest comes first."""
    text = with_fragments(LOG, "0.3.0", [FEATURE])
    assert versions(text) == ["0.3.0", "0.2.0", "0.1.0"]
    assert chapter(text, "0.3.0") == "### Oracle\n\n- It is new."
    assert text.endswith(LOG.partition("# Change log\n\n")[2])
    assert with_fragments("# Change log\n", "0.1.0", [FEATURE]) == (
        "# Change log\n\n## 0.1.0\n\n### Oracle\n\n- It is new.\n"
    )


def test_what_was_released_is_not_written_into() -> None:
    """Somebody has read it."""
    with pytest.raises(ChangelogError, match=r"0\.1\.0 has been released"):
        with_fragments(LOG, "0.1.0", [FEATURE])


def test_nothing_to_add_changes_nothing() -> None:
    """Whoever runs it twice loses nothing."""
    assert with_fragments(LOG, "0.2.0", []) == LOG


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("oracle.fix.md", "x"),
        ("orakle.name.fix.md", "x"),
        ("oracle.name.bug.md", "x"),
        ("oracle..fix.md", "x"),
        ("oracle.name.fix.md", " \n"),
    ],
)
def test_what_is_no_fragment_is_named_and_nothing_is_changed(
    tmp_path: Path, name: str, text: str
) -> None:
    """It would be lost, or stand where nobody looks."""
    folder = tmp_path / "docs" / "changes"
    folder.mkdir(parents=True)
    (folder / "oracle.good.fix.md").write_text("It is good.\n")
    (folder / name).write_text(text)
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    with pytest.raises(ChangelogError, match=re.escape(name)):
        gather(tmp_path, "0.2.0")
    assert (tmp_path / "CHANGELOG.md").read_text() == LOG
    assert len(fragment_paths(tmp_path)) == 2


def test_gathered_fragments_are_gone_and_the_page_about_them_stays(tmp_path: Path) -> None:
    """A second run would tell everything twice."""
    folder = tmp_path / "docs" / "changes"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("# Fragments\n")
    (folder / "oracle.good.fix.md").write_text("It is good.\n")
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    assert gather(tmp_path, "0.2.0") == 1
    assert "- It is good." in chapter((tmp_path / "CHANGELOG.md").read_text(), "0.2.0")
    assert [path.name for path in folder.iterdir()] == ["README.md"]


def test_the_fragments_of_this_tree_can_be_gathered() -> None:
    """A release would stop at the first that cannot."""
    fragments = [read(path) for path in fragment_paths(ROOT)]
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    made = with_fragments(text, project_version(ROOT), fragments)
    assert all(fragment.item in made for fragment in fragments)
    assert set(text.splitlines()) <= set(made.splitlines())


def test_the_page_about_fragments_names_all_subjects_and_kinds() -> None:
    """Whoever writes one looks there."""
    page = (ROOT / "docs" / "changes" / "README.md").read_text("utf-8")
    assert all(f"`{word}`" in page for word in (*SECTIONS, *KINDS))
