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
    if importlib.util.find_spec("Cython") is None or not (
        shutil.which("cc") or shutil.which("gcc")
    ):
        return None
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "tso" / "core"
        package.mkdir(parents=True)
        (package.parent / "__init__.py").touch()
        (package / "__init__.py").touch()
        for name in ("engine.py", "engine.pxd"):
            shutil.copy(SOURCE.with_name(name), package / name)
        command = "from Cython.Build.Cythonize import main; import sys; main(sys.argv[1:])"
        options = ["--quiet", "--inplace", "-3", "-X", "annotation_typing=False"]
        subprocess.run(
            [sys.executable, "-c", command, *options, str(package / "engine.py")],
            check=True,
            cwd=folder,
            env={**os.environ, "CFLAGS": "-O0"},
            capture_output=True,
            timeout=120,
        )
        (built,) = package.glob("engine.*.so")
        return _load("tso.core.engine", built)


def _load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
