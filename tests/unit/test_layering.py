"""The levels of the tree, kept by reading its imports.

The folders of `omidpy/` are the levels.  A module imports from its own level or below, and neither
modules nor folders import each other round a circle.
What assembles (level 5) may reach for everything, the two applications included, but does so inside
functions, so that `import omidpy` stays light.  An import counts wherever it stands: one that runs
later, inside a function, points in the same direction as one at the top.
"""

from __future__ import annotations

import ast
import collections
import functools
import subprocess
import sys
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("omidpy", "tso", "compactor")

LEVELS: Final = (
    ("model", "errors", "base", "codec"),
    ("wire", "storage", "oracle"),
    ("facts", "life", "fate", "opening"),
    ("reading", "commit", "tx"),
    (
        *("manager", "admin", "prometheus", "tracing"),
        *("recipes", "committers", "happybase", "phoenix"),
    ),
    ("connect", "aio", "reports", "console", "cli", "spark", "testing", "__init__"),
)
"""What stands directly in `omidpy/`, folders and files, from the lowest level to the highest."""

LEVEL_OF: Final = {part: level for level, parts in enumerate(LEVELS) for part in parts}

ASSEMBLING: Final = len(LEVELS) - 1

APPLICATIONS: Final = {"tso": 2, "compactor": 3}
"""What an application may import: this level of omidpy, or below."""


@dataclass(frozen=True)
class Import:
    """One import statement: who imports what, and whether only when a function runs."""

    importer: str
    imported: str
    is_deferred: bool
    is_for_types: bool
    line: int


def modules() -> dict[str, Path]:
    """Return every module of the product by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES: Final = modules()


def imported_modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement loads: `from package import module` loads the module."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    assert node.level == 0, f"line {node.lineno}: imports are absolute"
    package = node.module or ""
    names = {f"{package}.{alias.name}" for alias in node.names}
    return sorted(name if name in MODULES else package for name in names)


def named_module(node: ast.Call) -> str:
    """Return the module that `import_module("...")` loads; empty if a call is none of that."""
    if not ast.unparse(node.func).endswith("import_module"):
        return ""
    return str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""


def imports_of(module: str, source: str) -> Iterator[Import]:
    """Yield the imports of the product's own modules that `source` makes."""

    def visit(parent: ast.AST, *, deferred: bool, types: bool) -> Iterator[Import]:
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.Import | ast.ImportFrom):
                for name in imported_modules(node):
                    if name.partition(".")[0] in PACKAGES:
                        yield Import(module, name, deferred, types, node.lineno)
            elif isinstance(node, ast.Call) and (name := named_module(node)) in MODULES:
                yield Import(module, name, deferred, types, node.lineno)
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            yield from visit(node, deferred=deferred or is_function, types=types or is_for_types)

    return visit(ast.parse(source), deferred=False, types=False)


@functools.cache
def all_imports() -> list[Import]:
    """Return every import of the product; reading it takes a second, which collecting has not."""
    return [one for name, path in MODULES.items() for one in imports_of(name, path.read_text())]


def part(module: str) -> str:
    """Return the file or folder of `omidpy/` that a module stands in."""
    return (*module.split("."), "__init__")[1]


def level(module: str) -> int:
    """Return the level of a module of omidpy."""
    assert part(module) in LEVEL_OF, f"{module} has no level: say in LEVELS where it stands"
    return LEVEL_OF[part(module)]


def complaint(found: Import) -> str | None:
    """Say what is wrong with one import; None if nothing is."""
    importer, imported = found.importer.partition(".")[0], found.imported.partition(".")[0]
    is_light = found.is_deferred or found.is_for_types
    if importer == "omidpy":
        if imported == "omidpy":
            if level(found.imported) > level(found.importer):
                return "points upwards"
        elif level(found.importer) < ASSEMBLING:
            return "only what assembles may import an application"
        elif not is_light:
            return "an application is imported inside the function that needs it"
    elif imported == "omidpy":
        if level(found.imported) > APPLICATIONS[importer]:
            return f"{importer} stands on levels up to {APPLICATIONS[importer]}"
    elif imported != importer:
        return "the applications do not know each other"
    return None


def described(found: Import, wrong: str) -> str:
    """Return a complaint with its place."""
    return f"{found.importer}:{found.line} imports {found.imported}: {wrong}"


def test_imports_point_downwards() -> None:
    """A lower level can then be read, tested and replaced without the ones above it."""
    wrong = [described(found, why) for found in all_imports() if (why := complaint(found))]
    assert not wrong, "\n".join(wrong)


def test_every_module_has_a_level() -> None:
    """A new module says where it stands before anything depends on it."""
    for module in MODULES:
        if module.startswith("omidpy"):
            assert level(module) <= ASSEMBLING


def circle(graph: Mapping[str, AbstractSet[str]]) -> str | None:
    """Return a path of a graph that comes back to where it began; None if there is none."""
    done: set[str] = set()

    def walk(node: str, path: tuple[str, ...]) -> str | None:
        if node in path:
            return " -> ".join((*path[path.index(node) :], node))
        if node in done:
            return None
        found = filter(None, (walk(one, (*path, node)) for one in sorted(graph.get(node, ()))))
        wrong = next(found, None)
        done.add(node)
        return wrong

    return next(filter(None, (walk(node, ()) for node in graph)), None)


def assert_no_circle(graph: Mapping[str, AbstractSet[str]]) -> None:
    """Fail with the whole path of a circle, which pytest would cut."""
    found = circle(graph)
    assert found is None, found


def test_no_modules_import_each_other_round_a_circle() -> None:
    """Two modules that need each other are one module, or lack a value in `model.py`.

    What is imported for types alone counts: a reader follows it all the same.
    """
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in all_imports():
        graph[found.importer].add(found.imported)
    assert_no_circle(graph)


def test_no_folders_import_each_other_round_a_circle() -> None:
    """Inside a level too there is a lower and a higher folder: reading, commit, tx."""
    graph: dict[str, set[str]] = {}
    for found in all_imports():
        if found.importer.startswith("omidpy.") and found.imported.startswith("omidpy."):
            importer, imported = part(found.importer), part(found.imported)
            if importer != imported:
                graph.setdefault(importer, set()).add(imported)
    assert_no_circle(graph)


HOUSES: Final = sorted(
    {name.rpartition(".")[0] for name, path in MODULES.items() if path.name == "__init__.py"}
    # The engine, which is compiled, has from `shares` how clients are numbered, and is what works
    # on the slices there.
    - {"", "tso.core"}
)
"""Folders that have folders, whose modules and folders are rooms."""


def rooms(house: str) -> dict[str, set[str]]:
    """Return what stands directly in a folder, modules and folders, and what each imports of it."""
    graph: dict[str, set[str]] = {}
    for found in all_imports():
        importer, imported = (
            name.removeprefix(f"{house}.").partition(".")[0] if name.startswith(f"{house}.") else ""
            for name in (found.importer, found.imported)
        )
        if importer and imported and importer != imported:
            graph.setdefault(importer, set()).add(imported)
    return graph


@pytest.mark.parametrize("house", HOUSES)
def test_no_rooms_import_each_other_round_a_circle(house: str) -> None:
    """The folders in a folder have an order too, whatever is imported when."""
    assert_no_circle(rooms(house))


MOST_IN_A_FOLDER: Final = 12
"""Modules of one folder, its `__init__` among them: a dozen can be looked through."""


def test_no_folder_has_more_modules_than_one_can_look_through() -> None:
    """A folder is a level or a subject; one that has grown has rooms in it that want a name."""
    modules_of = collections.Counter(path.parent for path in MODULES.values())
    crowded = {
        str(folder.relative_to(ROOT)): count
        for folder, count in modules_of.items()
        if count > MOST_IN_A_FOLDER
    }
    assert not crowded


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}}, None),
        ({"a": {"b", "c"}, "b": {"c"}}, None),
        ({"a": {"b"}, "b": {"c"}, "c": {"b"}}, "b -> c -> b"),
    ],
)
def test_a_circle_is_noticed(graph: dict[str, set[str]], expected: str | None) -> None:
    """The search is a guard too."""
    assert circle(graph) == expected


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("omidpy.model", "from omidpy.storage.base import Store", "points upwards"),
        ("omidpy.oracle.tcp", "from omidpy.facts.control import ControlTable", "points upwards"),
        ("omidpy.manager", "def f():\n    import tso.embedded", "only what assembles"),
        ("omidpy.connect", "import tso.embedded", "inside the function"),
        ("tso.serving.server", "from omidpy.manager import TransactionManager", "levels up to 2"),
        ("tso.cli", "def f():\n    from omidpy.connect import open_store", "levels up to 2"),
        ("omidpy.model", "importlib.import_module('omidpy.storage.base')", "points upwards"),
        ("compactor.shell.job", "import tso.durable.lease", "do not know each other"),
        ("compactor.rows.heal", "from omidpy.cli import main", "levels up to 3"),
    ],
)
def test_a_wrong_import_is_noticed(module: str, source: str, expected: str) -> None:
    """The reader of imports is itself a guard: each rule must bite."""
    (found,) = imports_of(module, source)
    assert expected in (complaint(found) or "")


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("omidpy.connect", "def f():\n    from tso.embedded import EmbeddedOracle"),
        ("tso.cli", "from omidpy.opening import open_store"),
        ("omidpy.facts.leadership", "from omidpy.facts.control import ControlTable"),
        ("compactor.run.plan", "from omidpy.facts.watermarks import Claim"),
    ],
)
def test_a_right_import_is_allowed(module: str, source: str) -> None:
    """What assembles does so inside functions; the rest looks down."""
    (found,) = imports_of(module, source)
    assert complaint(found) is None


MOST_MODULES: Final = 97
"""Of our own that `import omidpy` loads: each takes half a millisecond or more."""


def test_import_omidpy_loads_nothing_heavy() -> None:
    """A Spark executor and a command line pay for this import each time they start."""
    script = (
        "import sys, cachetools, mmh3, msgspec\n"
        "before = set(sys.modules)\n"
        "import omidpy\n"
        "for name in set(sys.modules) - before:\n"
        "    print(name, getattr(sys.modules[name], '__file__', None), sep='\\t')"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    loaded = dict(line.split("\t") for line in output.splitlines())
    assert "omidpy" in loaded
    heavy = {"tso", "compactor", "sqlite3", "asyncio", "platform", "shlex"} & {
        name.split(".")[0] for name in loaded
    }
    foreign = {name for name, file in loaded.items() if "site-packages" in file}
    ours = {name for name in loaded if name.split(".")[0] == "omidpy"}
    assert not heavy
    assert not foreign
    assert len(ours) <= MOST_MODULES, "import what few need where it is needed"
