"""The README's code, run as printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.machines.documents import environment
from tests.machines.readme import blocks, run_readme


@pytest.mark.integration
def test_the_readme_runs_as_printed(tmp_path: Path) -> None:
    """The first thing a new user does is copy it."""
    run_readme(Path(sys.executable), tmp_path, environment())


def test_the_readme_shows_what_the_test_above_runs() -> None:
    """A README without blocks would pass it."""
    languages = [block.language for block in blocks()]
    assert languages.count("python") == languages.count("text") == 2
    assert "console" in languages
