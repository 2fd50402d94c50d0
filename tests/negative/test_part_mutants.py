"""Tokens and parts broken on purpose; some order of the calls of owner and worker notices.

As they are they pass in every order: `tests/property/test_interleaved_parts.py` plays the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from omidpy.base.tables import CONTROL_TABLE, VALUE
from omidpy.facts.registration import IS_OPEN, Flush, PartsRow, Registration, WorkerRow
from omidpy.storage.base import RowMutation
from omidpy.tx.parts.owner import Parts
from tests.property.test_interleaved_parts import Plan, play_all

Break = Callable[[pytest.MonkeyPatch], None]
ROW_BY_ROW = "row by row"


def owner_does_not_close(patch: pytest.MonkeyPatch) -> None:
    """Read who has registered, and let others go on registering."""
    patch.setattr(PartsRow, "close", lambda _: None)


def owner_closes_after_reading(patch: pytest.MonkeyPatch) -> None:
    """Miss who registers in between."""
    close, read = PartsRow.close, PartsRow.read

    def read_then_close(self: PartsRow) -> list[Registration]:
        found = read(self)
        close(self)
        return found

    patch.setattr(PartsRow, "close", lambda _: None)
    patch.setattr(PartsRow, "read", read_then_close)


def owner_looks_at_nobody(patch: pytest.MonkeyPatch) -> None:
    """Commit whatever was merged, as if nobody else had written."""
    patch.setattr(Parts, "settle", lambda self: self._row.close())


def worker_writes_before_it_registers(patch: pytest.MonkeyPatch) -> None:
    """Send the cells, and then announce them."""

    def send(self: Any, flush: Flush, batch: Mapping[str, Sequence[RowMutation]]) -> None:
        self._store.write(batch)
        true_send(self, flush, {})

    true_send = WorkerRow.send
    patch.setattr(WorkerRow, "send", send)


def worker_does_not_look_whether_it_may(patch: pytest.MonkeyPatch) -> None:
    """Announce a flush in a row that is closed."""

    def announce(self: Any, name: bytes, flush: Flush) -> bool:
        self._store.write({CONTROL_TABLE: [self._announcement(name, flush)]})
        return True

    patch.setattr(WorkerRow, "_announce", announce)


def worker_takes_a_row_that_is_gone_for_open(patch: pytest.MonkeyPatch) -> None:
    """Look for the mark of a closed row alone."""
    true = WorkerRow._announce

    def announce(self: Any, name: bytes, flush: Flush) -> bool:
        is_gone = self._store.get(CONTROL_TABLE, (self._row,)) == [[]]
        return true(self, name, flush) or is_gone

    patch.setattr(WorkerRow, "_announce", announce)


def worker_looks_before_it_registers(patch: pytest.MonkeyPatch) -> None:
    """Where the gateway checks nothing: miss an owner that closes in between."""

    def announce(self: Any, name: bytes, flush: Flush) -> bool:
        (cells,) = self._store.get(CONTROL_TABLE, (self._row,), columns=(VALUE,))
        self._store.write({CONTROL_TABLE: [self._announcement(name, flush)]})
        return [cell.value for cell in cells] == [IS_OPEN]

    patch.setattr(WorkerRow, "_announce", announce)


def worker_acknowledges_at_once(patch: pytest.MonkeyPatch) -> None:
    """Say that a flush is in the store before it is sent."""
    true = WorkerRow._announcement

    def announcement(self: Any, name: bytes, flush: Flush) -> RowMutation:
        return true(self, name, msgspec.structs.replace(flush, is_acknowledged=True))

    patch.setattr(WorkerRow, "_announcement", announcement)


def cells_of_discarded_workers_stay(patch: pytest.MonkeyPatch) -> None:
    """Commit what was given up."""
    patch.setattr(Parts, "_remove", lambda *_, **__: None)


def merged_cells_are_removed_too(patch: pytest.MonkeyPatch) -> None:
    """Remove all that lies where a discarded worker wrote, and believe that it went well (I8)."""
    true = Parts._remove
    patch.setattr(Parts, "_remove", lambda self, others, **_: true(self, others, is_kept=nothing))
    patch.setattr(Parts, "_compare", lambda *_: None)


def nothing(*_: object) -> bool:
    """Keep nothing."""
    return False


@pytest.mark.parametrize(
    ("break_", "kind", "plan"),
    [
        (owner_does_not_close, ROW_BY_ROW, Plan.FORGOTTEN),
        (owner_does_not_close, "one change for all", Plan.FORGOTTEN),
        (owner_closes_after_reading, "one change for all", Plan.FORGOTTEN),
        (owner_looks_at_nobody, "one change for all", Plan.FORGOTTEN),
        (worker_writes_before_it_registers, ROW_BY_ROW, Plan.FORGOTTEN),
        (worker_does_not_look_whether_it_may, ROW_BY_ROW, Plan.FORGOTTEN),
        (worker_takes_a_row_that_is_gone_for_open, ROW_BY_ROW, Plan.FORGOTTEN),
        (worker_looks_before_it_registers, "like Thrift1", Plan.FORGOTTEN),
        (worker_acknowledges_at_once, ROW_BY_ROW, Plan.DISCARDED),
        (cells_of_discarded_workers_stay, "one change for all", Plan.DISCARDED),
        (merged_cells_are_removed_too, "one change for all", Plan.REPLACED),
    ],
)
def test_a_broken_token_is_noticed(
    break_: Break, kind: str, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would commit what nobody merged, or lose what somebody did."""
    break_(monkeypatch)
    with pytest.raises(AssertionError):
        play_all(kind, plan, has_begun=False)
