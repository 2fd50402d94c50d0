"""The rest of the client broken on purpose; the state machine of interleaved clients notices.

Savepoints, tokens, holds, horizons, conflict-free writes and conflicts by row, which the workloads
hardly touch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from compactor.collection import Collection
from compactor.old_versions import Column, Committed
from omidpy.base.cells import cell_id
from omidpy.errors import SnapshotTooOld, TransactionAborted
from omidpy.facts.layout import TableLayout
from omidpy.model import MAX_VERSION, Cell, Timestamp
from omidpy.reading.snapshot import Snapshot
from omidpy.tx.buffer import WriteBuffer
from omidpy.tx.savepoint import Savepoint
from tests.property.test_interleaved_clients import InterleavedClients, InterleavedClientsByRow

pytestmark = pytest.mark.usefixtures("spans_however_small")

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
    patch.setattr(Collection, "holds", lambda _: [])


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


def conflict_free_writes_are_checked(patch: pytest.MonkeyPatch) -> None:
    """Have the oracle compare what nobody asked it to."""
    patch.setattr(WriteBuffer, "checked_names", lambda self: list(self._sent))


def every_write_is_conflict_free(patch: pytest.MonkeyPatch) -> None:
    """Let the last one win."""
    patch.setattr(WriteBuffer, "checked_names", lambda _: [])


def rows_conflict_by_cell(patch: pytest.MonkeyPatch) -> None:
    """Forget the conflict level of the table."""
    patch.setattr(TableLayout, "conflict_id", lambda self, *name: cell_id(self.name, *name))


def deletes_are_collected_whatever_lies_below(patch: pytest.MonkeyPatch) -> None:
    """Drop a tombstone above a version that began before it and committed much later."""
    true = Column.going_top

    def going_top(column: Column, marker: Committed | None) -> Cell | None:
        return true(replace(column, lowest_staying=MAX_VERSION), marker)

    patch.setattr(Column, "going_top", going_top)


def run(max_examples: int, machine: type[InterleavedClients] = InterleavedClients) -> None:
    """Run the machine without shrinking, the same way each time."""
    run_state_machine_as_test(
        seed(7)(machine),
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
    ("break_", "machine"),
    [
        # It takes more examples than its opposite does; `test_savepoints.py` plays it.
        pytest.param(savepoint_is_never_undone, InterleavedClients, marks=pytest.mark.nightly),
        (savepoint_is_always_undone, InterleavedClients),
        (merged_cells_are_forgotten, InterleavedClients),
        (holds_are_ignored, InterleavedClients),
        (horizon_is_not_read, InterleavedClients),
        (past_includes_its_moment, InterleavedClients),
        (conflict_free_writes_are_checked, InterleavedClients),
        (every_write_is_conflict_free, InterleavedClients),
        # It takes half a minute to meet by chance, and sometimes five; `test_heal.py` plays it.
        pytest.param(
            deletes_are_collected_whatever_lies_below,
            InterleavedClients,
            marks=pytest.mark.nightly,
        ),
        (rows_conflict_by_cell, InterleavedClientsByRow),
    ],
)
def test_a_broken_client_is_noticed(
    break_: Break, machine: type[InterleavedClients], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most within some hundred examples; the bound leaves room for an unlucky run.

    An abort that the model does not expect notices as well: `parts.py` compares merged cells.
    """
    break_(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, SnapshotTooOld, TransactionAborted)):
        run(4000, machine)


@pytest.mark.parametrize("machine", [InterleavedClients, InterleavedClientsByRow])
def test_the_client_as_it_is_passes(machine: type[InterleavedClients]) -> None:
    """The same examples; a machine that always fails would notice every mutant too."""
    run(60, machine)
