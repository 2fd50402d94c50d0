"""A compactor in a process of its own that is killed at a step, on the file of a `World`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.faults import kill
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.forks import PROCESSES

DEADLINE_S: Final = 120.0


def compact_and_die(path: Path, step: str) -> int | None:
    """Compact until a step; return how the process ended."""
    process = PROCESSES.Process(target=_compact, args=(path, step), daemon=True)
    process.start()
    process.join(DEADLINE_S)
    code = process.exitcode
    process.kill()
    process.join()
    process.close()
    return code


def _compact(path: Path, step: str) -> None:
    def on_step(name: str) -> None:
        if name == step:
            kill()

    options = replace(ALL_AT_ONCE, should_wait=True)
    World(SqliteStore(path)).compact(options, on_step=on_step)
