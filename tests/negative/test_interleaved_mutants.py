"""The rest of the client broken on purpose; the state machine of interleaved clients notices.

Savepoints, tokens, holds and horizons, which the workloads hardly touch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from compactor.plan import Compaction
from omidpy.buffer import WriteBuffer
from omidpy.errors import SnapshotTooOld
from omidpy.model import Timestamp
from omidpy.savepoint import Savepoint
from omidpy.snapshot import Snapshot
from tests.property.test_interleaved_clients import InterleavedClients

Break = Callable[[pytest.MonkeyPatch], None]


def savepoint_is_never_undone(patch: pytest.MonkeyPatch) -> None:
    """Keep what an undone savepoint wrote."""
    patch.setattr(Savepoint, "_undo", lambda self: self._buffer.keep_savepoint())


def savepoint_is_always_undone(patch: pytest.MonkeyPatch) -> None:
    """Forget what a savepoint wrote although it went well."""
    patch.setattr(WriteBuffer, "keep_savepoint", WriteBuffer.drop_savepoint)


def merged_cells_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """Take a worker's part, and give its cells no shadow cells and no conflict check."""
    patch.setattr(WriteBuffer, "merge", lambda *_, **__: None)


def holds_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Collect versions that somebody holds."""
    patch.setattr(Compaction, "read_holds", lambda _: [])


def horizon_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """Answer a reader whose versions may be gone (I10)."""
    patch.setattr(Snapshot, "check_horizon", lambda _: None)


def past_includes_its_moment(patch: pytest.MonkeyPatch) -> None:
    """Show what was committed at the moment that is looked at."""
    original = Snapshot.__init__

    def init(self: Any, reader: Any, begun: Any, *, at: Any, **options: Any) -> None:
        moved = None if at is None else Timestamp(at + 1)
        original(self, reader, begun, at=moved, **options)

    patch.setattr(Snapshot, "__init__", init)


def run(max_examples: int) -> None:
    """Run the machine without shrinking, the same way each time."""
    machine = seed(7)(InterleavedClients)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=50,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize(
    "break_",
    [
        savepoint_is_never_undone,
        savepoint_is_always_undone,
        merged_cells_are_forgotten,
        holds_are_ignored,
        horizon_is_not_read,
        past_includes_its_moment,
    ],
)
def test_a_broken_client_is_noticed(break_: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the examples that the machine itself gets in a development run, times a few."""
    break_(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, SnapshotTooOld)):
        run(200)


def test_the_client_as_it_is_passes() -> None:
    """The same examples; a machine that always fails would notice every mutant too."""
    run(60)
