"""The release before, beside this tree in one process, and the simulator's own actors upon it.

Its packages keep their text and get other names: `omidpy.errors` of the release before is the
module `before.omidpy.errors`, in `sys.modules` as any other, so that whatever looks a class up by
its module finds the right one (msgspec and dataclasses do, for annotations).  Its sources say
`import omidpy`, and what they mean by it is decided by their own `__import__`: each of its modules
has builtins of its own, and a function looks its builtins up where it is defined, so that imports
within functions come to the same.  No text is rewritten, nothing is swapped for a while, and
nothing is written anywhere: the sources stay in memory.

Simulated processes are put together by modules of this folder.  Those of `ACTORS` are loaded once
more in the same way, as `before.tests.machines.simulator...`: the same lines upon other packages.
What they share with this tree, time, network, store and watch, they import as it is.  A name that
the release before has in another module is found there, and a module that it has in another folder;
what it has nowhere is `Absent`, and an error where it is used.

Which release that is, `tests/machines/two_versions.py` says.  Its engine runs interpreted.
Imports by `importlib` are not seen: what the simulator runs has none of its own packages.
"""

from __future__ import annotations

import builtins
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, NamedTuple

from tests.machines.two_versions import PACKAGES, ROOT, packed, revision_before

PREFIX: Final = "before."
HERE: Final = __name__.rpartition(".")[0]
ACTORS: Final = (
    *(
        f"{HERE}.{name}"
        for name in (
            *("simulation", "instance", "compactors", "exporters", "keepers", "operators"),
            *("committers", "objects", "sharers", "retriers"),
        )
    ),
    "tests.machines.s3.fake",
)
"""What imports the packages of the side that it plays for."""

WITHOUT: Final = "this clone lacks the release before: git fetch --unshallow --tags"
"""What is said where there is none."""

_DEFINED: Final = re.compile(r"^(?:class |def |)(\w+)\b *[(:=]", re.MULTILINE)


class Absent:
    """What the release before does not have, and no process of it may use."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *_: object, **__: object) -> object:
        """Be of no use."""
        raise AssertionError(f"the release before has no {self._name}")

    def __getattr__(self, name: str) -> object:
        """Be of no use."""
        return self(name)


class Source(NamedTuple):
    """A module that is not loaded yet."""

    text: str
    path: str
    is_package: bool


class Tree:
    """The packages of a release, under the names that they have in this process."""

    def __init__(self, prefix: str, sources: Callable[[], Mapping[str, Source]]) -> None:
        """Know nothing of them yet.

        Args:
            prefix: What stands before the names of its modules.
            sources: What it has, by the names of modules without the prefix.
        """
        self.prefix = prefix
        self._sources = sources
        self._modules: dict[str, set[str]] = {}
        """Where names are defined, once somebody had to look for one."""

    def get(self, module: str, name: str) -> Any:
        """Return what has a name in a module, or in another one if that is the only one.

        One that was moved has the name of the module still, and one that was parted its folder.

        Raises:
            LookupError: it is not there, or in several others.
        """
        if (found := self._in(module, name)) is None:
            where = self._where(name) - {module}
            folder, _, last = module.rpartition(".")
            namesakes = {one for one in where if one.rpartition(".")[2] == last}
            neighbours = {one for one in where if one.rpartition(".")[0] == folder}
            where = namesakes or neighbours or where
            found = self._in(where.pop(), name) if len(where) == 1 else None
        if found is None:
            raise LookupError(f"{self.prefix}{module} has no {name}")
        return found

    def _in(self, module: str, name: str) -> Any:
        try:
            return getattr(importlib.import_module(self.prefix + module), name, None)
        except ModuleNotFoundError as error:
            if not f"{self.prefix}{module}.".startswith(f"{error.name}."):
                raise
            return None

    def _where(self, name: str) -> set[str]:
        if not self._modules:
            for module, source in self._sources().items():
                for one in _DEFINED.findall(source.text):
                    self._modules.setdefault(one, set()).add(module)
        return set(self._modules.get(name, ()))


class Before:
    """The release before, ready to be imported."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = sources
        self.tree = Tree(PREFIX, lambda: sources)
        self.here = Tree("", lambda: dict(_sources_here()))
        """This tree, which it is beside."""
        root = ModuleType(PREFIX[:-1])
        root.__path__ = []
        sys.modules[root.__name__] = root
        sys.meta_path.insert(0, _Finder(sources, {**vars(builtins), "__import__": self._import}))

    def actor(self, name: str) -> Any:
        """Return one of `ACTORS`, by the last part of its name, upon the release before."""
        return importlib.import_module(f"{PREFIX}{HERE}.{name}")

    def get(self, module: str, name: str) -> Any:
        """Return what this tree has under a name in a module, as the release before has it."""
        return self.tree.get(module, name)

    def _import(
        self,
        name: str,
        globals: Any = None,  # noqa: A002 - as it is called
        locals: Any = None,  # noqa: A002 - as it is called
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        """Import for a module of the release before: its own packages, and whatever else there is.

        See `builtins.__import__`.
        """
        is_its_own = name.partition(".")[0] in PACKAGES or name in ACTORS
        if level or not is_its_own:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if not fromlist:
            importlib.import_module(PREFIX + name)
            return sys.modules[PREFIX + name.partition(".")[0]]
        asks = str((globals or {}).get("__name__")).removeprefix(PREFIX)
        if asks in ACTORS and name not in ACTORS:
            return self._for_an_actor(name, fromlist)
        return builtins.__import__(PREFIX + name, globals, locals, fromlist, 0)

    def _for_an_actor(self, name: str, wanted: Sequence[str]) -> Any:
        """Return what holds the names that an actor wants of a module of this tree."""
        found = SimpleNamespace()
        for one in wanted:
            try:
                setattr(found, one, self._module_or(name, one))
            except LookupError:
                setattr(found, one, Absent(f"{name}.{one}"))
        return found

    def _module_or(self, name: str, one: str) -> Any:
        module = f"{name}.{one}"
        if (
            module not in self._sources
            and (ROOT / module.replace(".", "/")).with_suffix(".py").is_file()
        ):
            module = self._moved(module)
        return (
            importlib.import_module(PREFIX + module)
            if module in self._sources
            else self.get(name, one)
        )

    def _moved(self, module: str) -> str:
        """Return where a module of this tree was before: the only one of its own name there."""
        last = module.rpartition(".")[2]
        named = [one for one in self._sources if one.rpartition(".")[2] == last]
        return named[0] if len(named) == 1 else module


class _Loader(InspectLoader):
    def __init__(self, source: Source, its_builtins: dict[str, Any]) -> None:
        self._source = source
        self._builtins = its_builtins

    def get_source(self, fullname: str) -> str:
        """Return its text, for who prints a line of it."""
        del fullname
        return self._source.text

    def is_package(self, fullname: str) -> bool:
        """Say whether there are modules in it."""
        del fullname
        return self._source.is_package

    def exec_module(self, module: ModuleType) -> None:
        """Run it, upon its own builtins."""
        vars(module)["__builtins__"] = self._builtins
        exec(compile(self._source.text, self._source.path, "exec", dont_inherit=True), vars(module))


class _Finder(MetaPathFinder):
    """Finds the release before in memory, and this tree's actors for it where they are."""

    def __init__(self, sources: Mapping[str, Source], its_builtins: dict[str, Any]) -> None:
        self._sources = sources
        self._builtins = its_builtins

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module whose name has the prefix."""
        del path, target
        if not fullname.startswith(PREFIX):
            return None
        name = fullname.removeprefix(PREFIX)
        source = self._sources.get(name)
        if any(f"{one}.".startswith(f"{name}.") for one in ACTORS):
            source = _source(name, ROOT)
        if source is None:
            return None
        return spec_from_file_location(
            fullname,
            source.path,
            loader=_Loader(source, self._builtins),
            submodule_search_locations=[] if source.is_package else None,
        )


def _source(name: str, root: Path) -> Source:
    """Return a module of this tree."""
    path = root.joinpath(*name.split("."))
    is_package = path.is_dir()
    path = path / "__init__.py" if is_package else path.with_suffix(".py")
    return Source(text=path.read_text("utf-8"), path=str(path), is_package=is_package)


def _sources_here() -> Iterator[tuple[str, Source]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = _module_of(path.relative_to(ROOT))
            yield name, _source(name, ROOT)


def _sources_of(revision: str) -> Iterator[tuple[str, Source]]:
    with packed(revision) as archive:
        for member in archive:
            path = Path(member.name)
            file = archive.extractfile(member) if path.suffix == ".py" else None
            if file is not None:
                yield (
                    _module_of(path),
                    Source(
                        text=file.read().decode(),
                        path=f"<{revision}>/{path}",
                        is_package=path.name == "__init__.py",
                    ),
                )


def _module_of(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def before() -> Before | None:
    """Return the release before, loaded once; None if this is no clone that reaches that far."""
    try:
        revision = revision_before()
        return Before(dict(_sources_of(revision))) if revision is not None else None
    except (OSError, subprocess.CalledProcessError):
        return None
