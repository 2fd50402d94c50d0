"""Run what is compiled under AddressSanitizer, beside its interpreted form."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.machines.engines import can_compile

FLAGS: Final = "-O0 -fno-omit-frame-pointer -fsanitize=address"
PATIENCE_S: Final = 14_000


def sanitizer() -> str | None:
    """Return the path of the sanitizer's library; None where the compiler brings none."""
    compiler = shutil.which("gcc")
    if not can_compile() or compiler is None:
        return None
    named = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    )
    found = Path(named.stdout.strip())
    return str(found) if found.is_absolute() and found.exists() else None


def needed_sanitizer() -> str:
    """Return the path of the sanitizer's library; skip the test where there is none."""
    library = sanitizer()
    if library is None:
        pytest.skip("no gcc with AddressSanitizer, or no Cython")
    return library


def attack(
    program: str, built: Path, *, seed: int, payload_count: int
) -> subprocess.CompletedProcess[str]:
    """Run both forms side by side in a process that the sanitizer watches.

    Args:
        program: The module that does so, called with the next three.
        built: The compiled module.
        seed: The same brings the same bytes.
        payload_count: How many.
    """
    library = needed_sanitizer()
    return subprocess.run(
        [sys.executable, "-m", program, str(built), str(seed), str(payload_count)],
        env={
            **os.environ,
            "LD_PRELOAD": library,
            "ASAN_OPTIONS": "detect_leaks=0,halt_on_error=1",
            # Each object in memory of its own: a byte behind it is nobody's.
            "PYTHONMALLOC": "malloc",
        },
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
