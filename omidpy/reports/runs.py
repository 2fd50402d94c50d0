"""What the compactions of a store have done."""

from __future__ import annotations

from typing import Any

from omidpy.facts.control import ControlTable
from omidpy.storage.base import Store


def recorded(store: Store) -> tuple[list[Any], list[str]]:
    """Return the runs that a store remembers, oldest first, and the ids of those it cannot read.

    They are `compactor.report.RunRecord`s.  Cost: 1 scan.
    """
    from compactor.report import RunLog  # noqa: PLC0415 - application

    return RunLog(ControlTable(store)).read_all()
