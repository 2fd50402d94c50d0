"""The tree of commands, and how little of it one run imports."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer.main

from omidpy.cli.app import NOUNS, tree


@pytest.mark.parametrize("noun", NOUNS)
def test_a_branch_is_what_it_is_in_the_whole_tree(noun: str) -> None:
    """So that a script and `--help` see the same verbs."""
    branch, whole = (typer.main.get_command(one) for one in (tree(noun), tree()))
    assert list(branch.commands) == [noun]  # type: ignore[attr-defined]
    assert list(whole.commands) == list(NOUNS)  # type: ignore[attr-defined]
    found, expected = (one.commands[noun] for one in (branch, whole))  # type: ignore[attr-defined]
    assert getattr(found, "commands", {}).keys() == getattr(expected, "commands", {}).keys()
    assert [one.opts for one in found.params] == [one.opts for one in expected.params]


def test_a_verb_imports_its_own_noun_alone() -> None:
    """Scripts call one verb after the other: each would wait for what all of them look after."""
    script = (
        "import sys\n"
        "from omidpy.cli import main\n"
        "try:\n"
        "    main(['commit-table', 'stats', '--store', 'sqlite:///nowhere/there.db'])\n"
        "except SystemExit as ended:\n"
        "    print(ended.code, *sorted(sys.modules))\n"
    )
    code, *modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert code == "2"
    assert "omidpy.cli.compaction.commit_table" in modules
    others = ("omidpy.committers", "omidpy.recipes", "omidpy.fate", "compactor", "tso")
    assert not [one for one in modules if one.startswith(others)]
