"""Which quick tests does a change touch?  Those that changed, and those that import what did.

    python -m tests.machines.touched

prints the files, one a line, for what differs from the last commit; where nothing does, for what
that commit changed.  Quick are tests of units, properties and contracts; only what imports
a changed module itself counts, since nearly everything reaches nearly everything in the end.

The nearest come first, since `make quick` ends in time (`tests/machines/in_time.py`): tests that
changed, tests with the name of a changed module, tests in the folder of one, and then the others.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parents[2]
QUICK: Final = ("tests/unit", "tests/property", "tests/contract")


def git(*words: str) -> list[str]:
    """Return the lines that git prints."""
    ended = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.splitlines()


def changed() -> set[str]:
    """Return the paths that differ from the last commit; if none does, those that it changed."""
    found = git("diff", "--name-only", "HEAD")
    found += git("ls-files", "--others", "--exclude-standard")
    return set(found or git("diff", "--name-only", "HEAD~1", "HEAD"))


def module_of(path: str) -> str:
    """Return the dotted name of a module, or of the package whose `__init__.py` it is."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(source: str) -> Iterator[str]:
    """Yield what a module imports: `from package import name` may load `package.name`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def touched(paths: Iterable[str], tests: Iterable[tuple[str, str]]) -> list[str]:
    """Return the tests, given as path and source, that are among the paths or import one.

    Those of one distance stay in their order.
    """
    names = set(paths)
    modules = {module_of(path) for path in names if path.endswith(".py")}
    found = [
        path for path, source in tests if path in names or not modules.isdisjoint(imported(source))
    ]
    return sorted(found, key=lambda path: distance(path, names))


def distance(test: str, paths: Iterable[str]) -> int:
    """Return how far a test is from what changed: 0 if it did itself, 3 if it only imports it."""
    found = {3}
    for path in map(PurePosixPath, paths):
        if str(path) == test:
            found.add(0)
        elif PurePosixPath(test).name == f"test_{path.name}":
            found.add(1)
        elif PurePosixPath(test).parent.name == path.parent.name:
            found.add(2)
    return min(found)


def main() -> None:
    """Print what is touched."""
    tests = (
        (str(path.relative_to(ROOT)), path.read_text("utf-8"))
        for folder in QUICK
        for path in sorted((ROOT / folder).rglob("test_*.py"))
    )
    for path in touched(changed(), tests):
        print(path)


if __name__ == "__main__":
    main()
