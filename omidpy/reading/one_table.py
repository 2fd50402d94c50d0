"""Was all that a scan has read of one table?  Asked once, behind it, where it took several reads.

A table that is dropped and made again, or truncated, has nothing of what was there before: what is
still to come of a scan is missing then, and nothing else tells (I8).  A scan that was one read asks
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.errors import StorageError
from omidpy.facts.tables.sameness import check_same, which_table
from omidpy.model import RowValues, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.visibility import SeenRow, is_nothing
from omidpy.storage.base import LONG_READ_S, Store
from omidpy.storage.options import RestoresTables
from omidpy.storage.pages import Reads, reads_of

P = TypeVar("P")

STATE_AGE_S: Final = 5.0
"""How long a table's state is taken for what it was, as its layout is (`Catalog.layout`)."""


class _Known(NamedTuple):
    """Which table it was at a moment."""

    read_s: float
    after_ts: Timestamp
    """It was read after the transaction of this start_ts had begun."""
    which: str


class KnownStates:
    """Which tables of their names there are, as was seen lately.  Safe to share among threads."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Know nothing yet."""
        self._store = store
        self._clock = clock
        self._is_restoring = isinstance(store, RestoresTables)
        self.is_remote = store.capabilities.remote
        self._known: dict[str, _Known] = {}

    def which(self, table: str, incarnation: str | None, begun: Begun) -> str | None:
        """Return what stands for a table before a scan of it; None: that is not known.

        Args:
            table: Its name in the store.
            incarnation: Which of its name the reader has opened; None: it has not looked.
            begun: What the oracle answered to the reader.  What was seen before a fence that it
                tells of speaks of an earlier table, perhaps.

        Cost: 1 get where single tables are restored, once in `STATE_AGE_S` and behind each fence;
        else nothing.
        """
        if not self._is_restoring:
            return incarnation
        now_s, known = self._clock.monotonic_s(), self._known.get(table)
        fenced_ts = begun.fenced_ts
        if (
            known is None
            or now_s - known.read_s >= STATE_AGE_S
            or (fenced_ts is not None and known.after_ts < fenced_ts)
        ):
            known = _Known(now_s, begun.start_ts, which_table(self._store, table))
            self._known[table] = known
        return known.which

    def check(self, table: str, which: str) -> None:
        """Refuse what was read if the table is another one by now.

        Raises:
            StorageError: as `check_same`.

        Cost: as `check_same`.
        """
        try:
            check_same(self._store, table, which)
        except StorageError:
            self._known.pop(table, None)
            raise


class OneTable:
    """One scan, of however many parts, and of how many reads it was.

    Attributes:
        has_shown: Whether something was seen of a row.
    """

    def __init__(
        self, states: KnownStates, table: str, incarnation: str | None, begun: Begun
    ) -> None:
        """Look which table it is; see `KnownStates.which`."""
        self._states = states
        self._table = table
        self._which = states.which(table, incarnation, begun)
        self._since_s = SystemClock.monotonic_s()
        self._parts: list[Reads | None] = []
        self._more = 0
        self.has_shown = False

    def over(self, pages: Iterator[P]) -> Iterator[P]:
        """Return pages of the scan, which are a part of it from now on."""
        self._parts.append(reads_of(pages))
        return pages

    def read_again(self) -> None:
        """Note that something of the table was read beside the pages."""
        self._more += 1

    def note(self, rows: Iterable[SeenRow | RowValues]) -> None:
        """Note what is seen of rows.  Cost: that of a row, nearly always."""
        self.has_shown = self.has_shown or not all(is_nothing(row) for row in rows)

    @property
    def is_one_read(self) -> bool:
        """Whether all that was read so far was one read; never if a store does not tell."""
        counts: list[Any] = [None if part is None else part.count for part in self._parts]
        return None not in counts and sum(counts) + self._more <= 1

    def check(self) -> None:
        """Refuse what was read if a part of it may be of another table.

        Raises:
            StorageError: the table was dropped, truncated or restored since before the scan.

        Cost: nothing behind one read, or behind several that took less than it takes a cluster to
        make a table anew; else 1 look (`check_same`).
        """
        if self._states.is_remote and SystemClock.monotonic_s() - self._since_s <= LONG_READ_S:
            return
        if self._which is not None and not self.is_one_read:
            self._states.check(self._table, self._which)
