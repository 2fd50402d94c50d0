"""The oracle's decision step in both of its forms: as it is written, and compiled.

The compiled form is built once a session from the same source into a temporary folder, so that it
is tested whether or not the installed package happens to be compiled.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType

import tso.core

SOURCE = Path(tso.core.__file__).parent / "engine.py"


@cache
def interpreted_engine() -> ModuleType:
    """Load the source itself, also where a compiled module lies beside it."""
    return _load("engine_interpreted", SOURCE)


@cache
def compiled_engine() -> ModuleType | None:
    """Compile the source and load the result; None where Cython or a compiler is missing."""
    if not can_compile():
        return None
    with tempfile.TemporaryDirectory() as folder:
        return load_engine(build_engine(Path(folder), SOURCE.read_text(), flags="-O0"))


def can_compile() -> bool:
    """Say whether Cython and a compiler are here."""
    has_compiler = shutil.which("cc") or shutil.which("gcc")
    return importlib.util.find_spec("Cython") is not None and has_compiler is not None


def build_engine(folder: Path, source: str, *, flags: str) -> Path:
    """Compile a source of the engine as `setup.py` does; return the extension module in `folder`.

    Args:
        folder: An empty one.
        source: What stands in `engine.py`.
        flags: What the compiler and the linker are told besides.
    """
    package = folder / "tso" / "core"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "engine.py").write_text(source)
    shutil.copy(SOURCE.with_name("engine.pxd"), package)
    command = "from Cython.Build.Cythonize import main; import sys; main(sys.argv[1:])"
    directives = ("annotation_typing", "boundscheck", "wraparound", "initializedcheck")
    options = [part for name in directives for part in ("-X", f"{name}=False")]
    subprocess.run(
        [
            *(sys.executable, "-c", command, "--quiet", "--inplace", "-3", *options),
            str(package / "engine.py"),
        ],
        check=True,
        cwd=folder,
        env={**os.environ, "CFLAGS": flags, "LDFLAGS": flags},
        capture_output=True,
        timeout=120,
    )
    (built,) = package.glob("engine.*.so")
    return built


def load_engine(path: Path) -> ModuleType:
    """Load an extension module that was built of the engine."""
    return _load("tso.core.engine", path)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_few_at_hand(folder: Path, count: int, *changes: tuple[str, str]) -> ModuleType:
    """Load the source with few settings at hand, and each text replaced that stands there once.

    Its maps are small at first.

    Args:
        folder: An empty one.
        count: See `_AT_HAND` in the engine.
        changes: What is replaced, and by what.
    """
    text = SOURCE.read_text()
    few = (
        ("_AT_HAND: Final = 4096", f"_AT_HAND: Final = {count}"),
        ("_FIRST_SLOTS: Final = 1024", f"_FIRST_SLOTS: Final = {2 * count}"),
    )
    for old, new in (*few, *changes):
        assert text.count(old) == 1, f"{old!r} is not there once"
        text = text.replace(old, new)
    path = folder / "engine_changed.py"
    path.write_text(text)
    return _load("engine_changed", path)
