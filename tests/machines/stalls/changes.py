"""Which calls change something for good?  Read from the code, so that a new one is noticed.

A change is a call of a method that writes: of the store's protocol, of the facts, of a store of
operations, of the oracle.  What a receiver is cannot be read from a call, so that a method of such
a name counts wherever it is called; what is none is listed by whoever compares.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("omidpy/life", "omidpy/fate", "omidpy/admin", "omidpy/facts", "compactor")
QUEUES: Final = ("omidpy/recipes/export_queue",)
"""Of export queues."""

READS: Final = frozenset(
    {
        *("url", "store_id", "capabilities", "schema", "tables", "regions", "get", "scan"),
        *("find_cell", "close", "lock"),
        *("scan_pairs", "scan_values", "scan_portions", "get_portion", "row_parts", "table_states"),
        *("region_servers", "scan_changes", "sift", "hidden_tables", "closed_tables"),
        *("is_locked_here",),
    }
)
"""What the store's protocols have that changes no cell and no table."""
STORE_WRITES: Final = frozenset(
    {
        *("create_table", "drop_table", "set_table_attributes", "set_family_attributes"),
        *("split_region", "merge_regions", "write", "check_and_mutate", "write_guarded"),
        *("write_then_check", "put_then_check", "drop_table_if"),
    }
)
"""And what does."""
FACT_WRITES: Final = frozenset(
    {
        *("replace", "replace_own", "write_beside", "replace_beside", "forget", "complete"),
        *("record_claim", "forget_claims", "raise_prune_horizon", "publish_collection_horizon"),
        *("invalidate", "invalidate_all", "undo_invalidation"),
    }
)
OPERATION_WRITES: Final = frozenset({"insert", "swap", "delete", "remove", "change", "make"})
"""Of the stores of operations, and of their sessions with ZooKeeper."""
ORACLE_WRITES: Final = frozenset({"fence", "invalidate"})
SESSION_WRITES: Final = frozenset({"make_table"})
"""Of what a client has of a store."""
WRITES: Final = STORE_WRITES | FACT_WRITES | OPERATION_WRITES | ORACLE_WRITES | SESSION_WRITES
NO_RECEIVERS: Final = frozenset({"msgspec.structs", "structs", "dataclasses"})
"""Modules that have functions of such names."""


class Place(NamedTuple):
    """A call in the code that changes something."""

    path: str
    where: str
    """The names of the classes and functions around it."""
    method: str
    first: int
    last: int
    """Its lines."""

    @property
    def name(self) -> str:
        """What it is called in lists: it survives that lines move."""
        return f"{self.path} {self.where} {self.method}"

    def is_in(self, where: str) -> bool:
        """Say whether it is in a class, or in a function, whose full name is given."""
        return f"{self.where}.".startswith(f"{where}.")

    def __str__(self) -> str:
        return f"{self.path}:{self.first}: {self.where} calls {self.method}()"


@cache
def places(folders: tuple[str, ...] = FOLDERS) -> tuple[Place, ...]:
    """Return every change in some folders, in the order of files and lines."""
    return tuple(
        place
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for place in sorted(_places(path), key=lambda one: one.first)
    )


def _places(path: Path) -> Iterator[Place]:
    name = path.relative_to(ROOT).as_posix()

    def visit(node: ast.AST, where: tuple[str, ...]) -> Iterator[Place]:
        for child in ast.iter_child_nodes(node):
            inside = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = (*where, child.name)
            elif (
                isinstance(child, ast.Call)
                and isinstance(child.func, ast.Attribute)
                and child.func.attr in WRITES
                and ast.unparse(child.func.value) not in NO_RECEIVERS
            ):
                last = child.end_lineno or child.lineno
                yield Place(name, ".".join(where), child.func.attr, child.lineno, last)
            yield from visit(child, inside)

    yield from visit(ast.parse(path.read_text()), ())


@cache
def _by_file() -> dict[str, list[Place]]:
    found: dict[str, list[Place]] = defaultdict(list)
    for place in places(FOLDERS + QUEUES):
        found[str(ROOT / place.path)].append(place)
    return dict(found)


def places_here() -> tuple[Place, ...]:
    """Return the changes that this thread is in the middle of, the innermost first."""
    found: list[Place] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        line = frame.f_lineno
        found += [
            place
            for place in _by_file().get(frame.f_code.co_filename, ())
            if place.first <= line <= place.last
        ]
        frame = frame.f_back
    return tuple(found)
