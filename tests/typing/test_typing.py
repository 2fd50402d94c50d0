"""Type checkers accept `accepted.py` and refuse each marked line of `refused.py`.

The marks are comments for the checkers, and one that is not needed is an error of its own: a line
that a checker accepts, or a type that it no longer sees, fails here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent
ROOT: Final = FOLDER.parents[1]
FILES: Final = ("accepted.py", "refused.py")


def test_mypy_accepts_and_refuses() -> None:
    """With the strict settings of this tree, which are those of careful users."""
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *(FOLDER / name for name in FILES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
    assert f"no issues found in {len(FILES)} source files" in run.stdout


def test_pyright_accepts_and_refuses() -> None:
    """By basedpyright, which is pyright in a wheel, with pyright's own settings."""
    pytest.importorskip("basedpyright", reason="basedpyright is missing: `make setup` installs it")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(FOLDER)),
            *("--pythonpath", sys.executable),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(run.stdout)
    complaints = [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in found["generalDiagnostics"]
    ]
    assert complaints == []
    assert found["summary"]["filesAnalyzed"] == len(FILES)


def test_every_mark_is_for_both_checkers() -> None:
    """A line that one of them accepts would otherwise be missed by the other's users."""
    lines = (FOLDER / "refused.py").read_text("utf-8").splitlines()
    marked = [line for line in lines if "# type: ignore[" in line or "# pyright: ignore" in line]
    assert len(marked) > 15
    assert all("# type: ignore[" in line and "# pyright: ignore" in line for line in marked)
