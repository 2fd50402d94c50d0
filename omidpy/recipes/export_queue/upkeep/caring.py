"""What a worker does beside exporting, now and then: measure, finish, purge."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from omidpy.recipes.export_queue.upkeep.finishing import Finisher
from omidpy.recipes.export_queue.upkeep.lag import measure_roughly
from omidpy.recipes.export_queue.upkeep.retention import Purger

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places


class Care:
    """Takes care of one queue.  One thread at a time."""

    def __init__(
        self, tm: TransactionManager, places: Places, find: Callable[[], Definition]
    ) -> None:
        """Begin when first asked to; `find` returns the queue as it is now."""
        self._tm = tm
        self._places = places
        self._find = find
        self._purger = Purger(tm, places)
        self._finisher = Finisher(tm, places)

    def look(self, definition: Definition) -> None:
        """Do what is due."""
        if definition.max_entries is not None or definition.max_lag_s is not None:
            measure_roughly(self._tm, self._places, definition)
        self._finisher.look(self._find())
        self._purger.run_if_due(definition)

    def finish(self, pause: Callable[[float], object]) -> None:
        """Finish what others have left."""
        self._finisher.run(pause)

    def close(self) -> None:
        """End what was begun."""
        self._finisher.close()
