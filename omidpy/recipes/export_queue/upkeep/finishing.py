"""Takes up operations that give queues other buckets, and that no executor runs any more.

While such an operation stands still nothing can be added to its queue, or new entries wait in
buckets that no worker exports (`rebucketing.py`).  So a worker of a queue also finishes them: its
own, and those of other queues of the store, which it finds on the way.

An operation has one executor at a time, so that any number of exporters may do this.

Where one has ended, and its queue is closed all the same, by an executor of it that was paused
until then and died, a worker of the queue opens it again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from omidpy.fate.client import Fate
from omidpy.fate.operation import Operation, parse_id
from omidpy.fate.table.store import TableFateStore
from omidpy.recipes.export_queue.upkeep import making
from omidpy.recipes.export_queue.upkeep.rebucketing import (
    KIND,
    LOOK_EVERY_S,
    RebucketTools,
    let_go,
)

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places

log: Final = logging.getLogger(__name__)

LOOKS: Final = 3
CLOSE_S: Final = 10.0
"""How long a step that is under way may take to end, when its exporter does."""


class Finisher:
    """Looks for such operations, and runs them.  One thread at a time."""

    def __init__(self, tm: TransactionManager, places: Places) -> None:
        """Run nothing before `look` finds something; `places` are those of the worker's queue."""
        self._tm = tm
        self._places = places
        self._store = TableFateStore(tm.store)
        self._seen: Definition | None = None
        self._fate: Fate | None = None

    def look(self, now: Definition) -> None:
        """Begin to run what waits, in a thread, or end that where nothing does.

        Args:
            now: The queue as it is; where that has not changed, and is to get no other buckets,
                nothing is looked for.

        Cost: nothing; or a scan of operations, and a get, while one is under way or the first time.
        """
        if now == self._seen and now.successor is None and self._fate is None:
            return
        self._seen = now
        self._open_again(now)
        waits = self._waits()
        if waits and self._fate is None:
            self._fate = self._new().start()
        elif not waits:
            self.close()

    def run(self, pause: Callable[[float], object], *, looks: int = LOOKS) -> None:
        """Run what can be run now, in this thread.

        Args:
            pause: Called with the seconds until something that waits for exporters is looked at
                again.
            looks: How often to look.
        """
        self._open_again(making.find(self._tm, self._places))
        if not self._waits():
            return
        with_pauses = self._new()
        try:
            for number in range(looks):
                due_s = with_pauses.run_pending()
                if due_s is None:
                    return
                if number + 1 < looks:
                    pause(min(due_s, LOOK_EVERY_S))
        finally:
            with_pauses.close()

    def close(self) -> None:
        """End, and let others go on."""
        fate, self._fate = self._fate, None
        if fate is not None:
            fate.close(CLOSE_S)

    def _open_again(self, now: Definition) -> None:
        new = now.successor
        if new is None or new.is_open or not new.operation:
            return
        found = self._store.read(parse_id(new.operation))
        if found is None or not found.is_finished:
            return  # the call that had submitted one that was deleted goes on with its buckets
        log.warning(
            "queue %s: operation %s has ended and left the queue closed; it is opened again",
            self._places.queue_id,
            new.operation,
        )
        let_go(RebucketTools(self._tm), self._places.queue_id, now.made, new.operation)

    def _new(self) -> Fate:
        return Fate(RebucketTools(self._tm), self._store, {KIND: 1})

    def _waits(self) -> bool:
        return any(
            isinstance(one, Operation) and one.name == KIND and not one.is_finished
            for one in self._store.scan()
        )
