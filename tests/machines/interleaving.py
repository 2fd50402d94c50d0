"""What if another process were faster, exactly here?  A store that lets a test act between calls.

`InterleavedStore` calls a function before each call of the store beneath; what that function does
through the store beneath is what another process did in time.  Each chance is taken once at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from omidpy.storage.base import Store


class InterleavedStore:
    """Passes every call on, after a word to `before`."""

    def __init__(self, store: Store, before: Callable[[str, str], None]) -> None:
        self._store = store
        self._before = before

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the store beneath; calls that name a table are announced."""
        found = getattr(self._store, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._before(name, _table(name, args))
            return found(*args, **kwargs)

        return call


def interleaved(store: Store, before: Callable[[str, str], None]) -> Store:
    """Return a store that calls `before(method, table)` before each call."""
    return cast("Store", InterleavedStore(store, before))


def once(
    method: str | tuple[str, ...], table: str, act: Callable[[], None], *, after: int = 0
) -> Callable[[str, str], None]:
    """Return what calls `act` before one matching call, after `after` others."""
    methods = (method,) if isinstance(method, str) else method
    seen = 0

    def before(called: str, on: str) -> None:
        nonlocal seen
        if called in methods and on == table:
            seen += 1
            if seen == after + 1:
                act()

    return before


def _table(method: str, args: tuple[Any, ...]) -> str:
    if not args:
        return ""
    first = args[0]
    if method == "write":
        return next(iter(first), "")
    if method == "write_guarded":
        return str(first[0].table)
    return first if isinstance(first, str) else ""
