"""The rest of the client broken on purpose; the state machine of interleaved clients notices.

Savepoints, tokens, holds, horizons, conflict-free writes and conflicts by row, which the workloads
hardly touch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from compactor.pruning.collection import Collection
from compactor.rows.old_versions import Column, Committed
from omidpy.base.cells import cell_id
from omidpy.errors import SnapshotTooOld, TransactionAborted
from omidpy.facts.tables.layout import TableLayout
from omidpy.model import MAX_VERSION, Cell, Timestamp
from omidpy.reading.snapshot import Snapshot
from omidpy.tx.writes.buffer import WriteBuffer
from omidpy.tx.writes.savepoint import Savepoint
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
    patch.setattr(Snapshot, "check_horizon", lambda *_, **__: None)


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


def run(first: int, max_examples: int, machine: type[InterleavedClients]) -> None:
    """Run the machine without shrinking, from a seed, the same way each time."""
    run_state_machine_as_test(
        seed(first)(machine),
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=50,
            phases=[Phase.generate],
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


FOUND: Final[list[tuple[Break, type[InterleavedClients], int]]] = [
    (savepoint_is_always_undone, InterleavedClients, 15),
    (merged_cells_are_forgotten, InterleavedClients, 12),
    (holds_are_ignored, InterleavedClients, 4),
    (horizon_is_not_read, InterleavedClients, 5),
    (past_includes_its_moment, InterleavedClients, 18),
    (conflict_free_writes_are_checked, InterleavedClients, 15),
    (every_write_is_conflict_free, InterleavedClients, 12),
    (rows_conflict_by_cell, InterleavedClientsByRow, 10),
]
"""Each with a seed that meets it within five examples: most others take some hundred."""
BY_NIGHT: Final = {
    past_includes_its_moment,
    conflict_free_writes_are_checked,
    every_write_is_conflict_free,
}
"""There is not time for all of them by day."""


@pytest.mark.parametrize(
    ("break_", "machine", "first"),
    [
        *(
            pytest.param(*found, marks=pytest.mark.nightly if found[0] in BY_NIGHT else ())
            for found in FOUND
        ),
        # It takes more examples than its opposite does; `test_savepoints.py` plays it.
        pytest.param(savepoint_is_never_undone, InterleavedClients, 7, marks=pytest.mark.nightly),
        # It takes half a minute to meet by chance, and sometimes five; `test_heal.py` plays it.
        pytest.param(
            deletes_are_collected_whatever_lies_below,
            InterleavedClients,
            7,
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_broken_client_is_noticed(
    break_: Break, machine: type[InterleavedClients], first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound leaves room for rules that draw otherwise than when its seed was found.

    An abort that the model does not expect notices as well: `parts/owner.py` compares merged cells.
    """
    break_(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, SnapshotTooOld, TransactionAborted)):
        run(first, 4000, machine)


@pytest.mark.nightly
@pytest.mark.parametrize(("machine", "first"), sorted({found[1:] for found in FOUND}, key=str))
def test_the_client_as_it_is_passes(machine: type[InterleavedClients], first: int) -> None:
    """The same examples; a machine that always fails would notice every mutant too.

    By day the machine runs in `tests/property/test_interleaved_clients.py`, on other examples.
    """
    run(first, 8, machine)
