"""A compactor in a process of its own that kills itself at a step of its plan.

    python -m tests.machines.mortal_compactor STORE STEP

Exit code -9 if it came to the step, 0 if there was nothing to do there.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from compactor.run.local import compact
from omidpy.opening import open_store
from tests.machines.workload import DEADLINE_S, NO_GRACES, ROOT


def main(url: str, step: str) -> None:
    """Compact, and die."""

    def on_step(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    compact(open_store(url), NO_GRACES, on_step=on_step)


def compact_and_die(url: str, step: str) -> bool:
    """Run one until it dies; say whether it came that far."""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.machines.mortal_compactor", url, step],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0


if __name__ == "__main__":
    main(*sys.argv[1:])
