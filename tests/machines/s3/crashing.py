"""A driver that dies at a request of its own: before the store has it, or before the answer.

    death = Death(at=3, is_answered=True)
    death.watch(committer.store)

What dies sends nothing more: each later request of the same store fails in the same way, before it
leaves, so that no handler of the dead process can clean up.
"""

from __future__ import annotations

import threading
from typing import Any

from omidpy.committers.objects.store import ObjectStore


class Died(BaseException):
    """The process ends here; no `except Exception` sees it."""


class Death:
    """Ends whatever sends request number `at`, from 0."""

    def __init__(self, at: int, *, is_answered: bool) -> None:
        """Die before the request leaves, or once the store has carried it out."""
        self.at = at
        self.is_answered = is_answered
        self.has_come = False
        self._sent = 0
        self._lock = threading.Lock()

    def watch(self, store: ObjectStore) -> None:
        """Count the requests of a store, too."""
        store.before_request = self._before
        store.client.meta.events.register("after-call.s3", self._after)

    def _before(self, operation: str) -> None:
        with self._lock:
            if self.has_come:
                raise Died(operation)
            if self._sent == self.at and not self.is_answered:
                self.has_come = True
                raise Died(operation)
            self._sent += 1

    def _after(self, **_: Any) -> None:
        with self._lock:
            if self.has_come or (self.is_answered and self._sent > self.at):
                self.has_come = True
                raise Died
