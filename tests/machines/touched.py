"""Which quick tests does a change touch?  Those that changed, and those that import what did.

    python -m tests.machines.touched

prints the files, one a line, for what differs from the last commit; where nothing does, for what
that commit changed.  Quick are tests of units, properties and contracts; only what imports
a changed module itself counts, since nearly everything reaches nearly everything in the end.
"""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
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
    """Return the tests, given as path and source, that are among the paths or import one."""
    names = set(paths)
    modules = {module_of(path) for path in names if path.endswith(".py")}
    return [
        path for path, source in tests if path in names or not modules.isdisjoint(imported(source))
    ]


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
