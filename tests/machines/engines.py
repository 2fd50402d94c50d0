"""What is compiled in both of its forms, as it is written, and compiled.

The oracle's decision step, what decides simple rows, the encoding of messages, the codec of HBase's
cells, and what reads HBase's answers.  The compiled form is built from the same source, so that it
is tested whether or not the installed package happens to be compiled, and kept outside the checkout
by what it is built of: a change of the source, of a flag, of Python, Cython or the compiler builds
again, and nothing else.  Each worker of each Python would spend ten seconds on it otherwise.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.metadata import version as version_of
from pathlib import Path
from types import ModuleType

import tso.core
from tests.machines.maven import only_one

ROOT = Path(__file__).parents[2]
SOURCE = Path(tso.core.__file__).parent / "engine.py"
CELLS = ROOT / "omidpy" / "storage" / "hbase" / "native" / "cellblock.py"
"""The codec's source."""
ANSWERS = ROOT / "omidpy" / "storage" / "hbase" / "native" / "wire" / "answers.py"
"""The source of what reads answers."""
ROWS = ROOT / "omidpy" / "base" / "rows" / "simple.py"
"""The source of what decides simple rows."""
MESSAGES = ROOT / "omidpy" / "wire" / "protobuf.py"
"""The source of what encodes messages."""


@cache
def interpreted_engine() -> ModuleType:
    """Load the source itself, also where a compiled module lies beside it."""
    return _load("engine_interpreted", SOURCE)


@cache
def compiled_engine() -> ModuleType | None:
    """Compile the source and load the result; None where Cython or a compiler is missing."""
    return load_engine(kept_module(SOURCE, flags="-O0")) if can_compile() else None


@cache
def interpreted_cells() -> ModuleType:
    """Load the source of the codec itself, also where a compiled module lies beside it."""
    return _load("cellblock_interpreted", CELLS)


@cache
def compiled_cells() -> ModuleType | None:
    """Compile the codec and load the result; None where Cython or a compiler is missing."""
    return load_cells(kept_module(CELLS, flags="-O0")) if can_compile() else None


@cache
def interpreted_answers() -> ModuleType:
    """Load the source of what reads answers, also where a compiled module lies beside it."""
    return _load("answers_interpreted", ANSWERS)


@cache
def interpreted_messages() -> ModuleType:
    """Load the source of what encodes messages, also where a compiled module lies beside it."""
    return _load("protobuf_interpreted", MESSAGES)


@cache
def interpreted_rows() -> ModuleType:
    """Load the source of what decides simple rows, also where a compiled module lies beside it."""
    return _load("simple_rows_interpreted", ROWS)


@cache
def compiled_rows() -> ModuleType | None:
    """Compile what decides simple rows; None where Cython or a compiler is missing."""
    if not can_compile():
        return None
    return _load("omidpy.base.rows.simple", kept_module(ROWS, flags="-O0"))


def can_compile() -> bool:
    """Say whether Cython and a compiler are here."""
    has_compiler = shutil.which("cc") or shutil.which("gcc")
    return importlib.util.find_spec("Cython") is not None and has_compiler is not None


def kept_module(of: Path, *, flags: str) -> Path:
    """Return a module as it stands in this checkout, compiled, and compile it if it is not kept.

    Safe to call from many processes at once: one builds, the others wait for it.

    Args:
        of: Which module it is, by its file in this checkout.
        flags: As of `build_module`.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "omidpy" / "compiled"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = [shutil.which(os.environ.get("CC", "cc")) or "gcc", "--version"]
    version = subprocess.run(compiler, check=True, capture_output=True).stdout
    made_of = (
        *(of.read_bytes(), of.with_suffix(".pxd").read_bytes(), Path(__file__).read_bytes()),
        *(flags.encode(), sys.version.encode(), version_of("Cython").encode(), version),
    )
    digest = hashlib.sha256(b"".join(b"%d:%b" % (len(part), part) for part in made_of))
    kept = folder / f"{of.stem}-{digest.hexdigest()[:16]}.so"
    if not kept.exists():
        with only_one(kept.with_suffix(".lock")):
            if not kept.exists():
                with tempfile.TemporaryDirectory(dir=folder) as made:
                    build_module(Path(made), of, of.read_text(), flags=flags).rename(kept)
    return kept


def build_engine(folder: Path, source: str, *, flags: str) -> Path:
    """Compile a source of the engine; as `build_module`."""
    return build_module(folder, SOURCE, source, flags=flags)


def build_module(folder: Path, of: Path, source: str, *, flags: str) -> Path:
    """Compile a module as `setup.py` does; return the extension module in `folder`.

    Args:
        folder: An empty one.
        of: Which module it is, by its file in this checkout; its types lie beside that.
        source: What stands in it.
        flags: What the compiler and the linker are told besides.
    """
    package = folder / of.parent.relative_to(ROOT)
    package.mkdir(parents=True)
    inner = package
    while inner != folder:
        (inner / "__init__.py").touch()
        inner = inner.parent
    (package / of.name).write_text(source)
    shutil.copy(of.with_suffix(".pxd"), package)
    command = "from Cython.Build.Cythonize import main; import sys; main(sys.argv[1:])"
    directives = ("annotation_typing", "boundscheck", "wraparound", "initializedcheck")
    options = [part for name in directives for part in ("-X", f"{name}=False")]
    subprocess.run(
        [
            *(sys.executable, "-c", command, "--quiet", "--inplace", "-3", *options),
            str(package / of.name),
        ],
        check=True,
        cwd=folder,
        env={**os.environ, "CFLAGS": flags, "LDFLAGS": flags},
        capture_output=True,
        timeout=120,
    )
    (built,) = package.glob(f"{of.stem}.*.so")
    return built


def load_engine(path: Path) -> ModuleType:
    """Load an extension module that was built of the engine."""
    return _load("tso.core.engine", path)


def load_cells(path: Path) -> ModuleType:
    """Load an extension module that was built of the codec."""
    return _load("omidpy.storage.hbase.native.cellblock", path)


def load_answers(path: Path) -> ModuleType:
    """Load an extension module that was built of what reads answers."""
    return _load("omidpy.storage.hbase.native.wire.answers", path)


def load_messages(path: Path) -> ModuleType:
    """Load an extension module that was built of what encodes messages."""
    return _load("omidpy.wire.protobuf", path)


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
