"""Every mark that the product has, and what each belongs to: read from its sources.

A mark says `reached("who.what_has_happened", "I1")`; see `omidpy/base/reach.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
PACKAGES: Final = ("omidpy", "tso", "compactor")
COMPILED: Final = (
    "tso/core/engine.py",
    "omidpy/base/rows/simple.py",
    "omidpy/wire/protobuf.py",
    "omidpy/storage/hbase/native/cellblock.py",
    "omidpy/storage/hbase/native/wire/answers.py",
)
"""Where none may be: it would cost something there."""


class Mark(NamedTuple):
    """One branch that says when it was taken."""

    name: str
    claim: str
    path: str
    line: int


def all_marks() -> Iterator[Mark]:
    """Yield the marks of all sources, in their order."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            if "reached(" in text and path.name != "reach.py":
                yield from _marks_in(str(path.relative_to(ROOT)), text)


def _marks_in(path: str, text: str) -> Iterator[Mark]:
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "reached"
        ):
            name, claim = (ast.literal_eval(argument) for argument in node.args)
            yield Mark(name, claim, path, node.lineno)


def table_of(seeds_by_mark: Mapping[str, int]) -> Iterator[str]:
    """Yield a line a mark: how many seeds reached it, what it is called, and its claim."""
    marks = sorted(all_marks(), key=lambda mark: (seeds_by_mark.get(mark.name, 0), mark.name))
    for mark in marks:
        count = seeds_by_mark.get(mark.name, 0)
        yield f"{count or 'never':>10} {mark.name} ({mark.claim})"
