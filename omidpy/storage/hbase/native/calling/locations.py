"""Which server has a row?  A memory of the catalogue, corrected by what servers say.

A thread that needs a region that is not known reads it from `hbase:meta`; the first to want a table
reads all of it at once.  Those who want the same table meanwhile wait for that one look-up and find
it done.  A place is forgotten when a server says that the region is not there, and only the place
that proved wrong: of many threads that found it wrong one looks up, and the others find it mended.

Tables are replaced whole, so that who reads needs no lock.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from copy import copy
from typing import Final, NamedTuple, Protocol

from omidpy.base.timing.pauses import Pauses
from omidpy.base.within import within
from omidpy.errors import OmidError
from omidpy.model import Cell
from omidpy.storage import forking
from omidpy.storage.hbase.native.cellblock import MOST_ROW_BYTES
from omidpy.storage.hbase.native.faults import CallFailed, Garbled, NotSent
from omidpy.storage.hbase.native.values import (
    META,
    META_REGION,
    Region,
    Scan,
    Selection,
    ServerName,
)
from omidpy.storage.hbase.native.wire.schema import CATALOGUE_FAMILY, region_of

MOST_FIRST: Final = 5000
"""Regions of a table that are read when it is first wanted; of a larger one, others as needed."""
_PAGE: Final = 1000
_ABOVE_ALL_IDS: Final = b"99999999999999"
_FIRST_PAUSE_S: Final = 0.0002
_LONGEST_PAUSE_S: Final = 0.02
"""Between two looks whether another thread has ended its look-up, which takes about 1 ms."""
_INFO: Final = Selection(columns=((CATALOGUE_FAMILY, None),), max_versions=1)


class NoRegion(CallFailed):
    """The catalogue has no region for a row: no such table, or it is being split just now."""

    is_certain = True


class ReadCatalogue(Protocol):
    """Reads rows of `hbase:meta`, from the server that has it."""

    def __call__(self, scan: Scan, rows: int, *, until_s: float) -> list[list[Cell]]:
        """Return the first rows of a scan."""
        ...


class _Known(NamedTuple):
    """The regions of a table that are known, in order."""

    starts: tuple[bytes, ...] = ()
    regions: tuple[Region, ...] = ()


class Locations:
    """Where regions are.  Safe to share among threads, and after a fork."""

    def __init__(
        self,
        meta_server: Callable[[], ServerName],
        read: ReadCatalogue,
        is_told: Callable[[], bool] = lambda: True,
    ) -> None:
        """Know nothing yet.

        Args:
            meta_server: Finds the catalogue.
            read: Reads it.
            is_told: Whether what was found last still holds, as far as one can say.
        """
        self._find_meta = meta_server
        self._read = read
        self._is_told = is_told
        self._meta: ServerName | None = None
        self._meta_failure: tuple[float, OmidError | None] = (0.0, None)
        """When it was last looked for in vain, and what was raised."""
        self._tables: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._look_ups: dict[str, threading.Lock] = {}
        forking.register(self)

    def locate(self, table: str, row: bytes, *, until_s: float) -> Region:
        """Return the region that has a row.

        Raises:
            NoRegion: the catalogue knows none.
            CallFailed: the catalogue could not be read.
        """
        if table == META:
            return self.meta()
        found = self._known(table, row)
        if found is not None:
            return found
        return within(self._lock_for(table, until_s), self._look_up, table, row, until_s)

    def locate_before(self, table: str, row: bytes, *, until_s: float) -> Region:
        """Return the region with the rows right below `row`; empty is the end of the table."""
        if table == META:
            return self.meta()
        known = self._tables.get(table, _Known())
        index = bisect_right(known.starts, row) - 1 if row else len(known.starts) - 1
        if row and index >= 0 and known.starts[index] == row:
            index -= 1
        if index >= 0:
            found = known.regions[index]
            if _is_right_below(found, row):
                return found
        return within(self._lock_for(table, until_s), self._look_up_before, table, row, until_s)

    def look_anew(self, region: Region, *, until_s: float) -> Region | None:
        """Return where the catalogue has the first row of a region now; None if nowhere.

        Raises:
            CallFailed: the catalogue could not be read.
        """
        try:
            return self._read_one(region.table, region.start, until_s)
        except NoRegion:
            return None

    def all(self, table: str, *, until_s: float) -> list[Region]:
        """Return a table's regions as the catalogue has them now, in order."""
        if table == META:
            return [self.meta()]
        return self._read_all(table, None, until_s)

    def meta(self) -> Region:
        """Return the one region of the catalogue."""
        server = self._meta
        if server is None or not self._is_told():
            asked_s = time.monotonic()
            server = self._meta = within(self._lock_of(META), self._find_meta_once, asked_s)
        return Region(META, META_REGION, b"", b"", server)

    def forget(self, region: Region) -> None:
        """Note that a region is not where it was looked for."""
        if region.table == META:
            if self._meta == region.server:
                self._meta = None
            return
        within(self._lock, self._drop, region)

    def move(self, region: Region, server: ServerName) -> None:
        """Note that a region is on another server, as the one that had it says.

        A server remembers for two minutes that a region left it, also where it came back and was
        split since.  Two of them would send who believes them to and fro; so what was told is
        followed once, and then the catalogue is asked.
        """
        if region.table == META:
            self._meta = server
        elif region.is_told:
            self.forget(region)
        else:
            told = region._replace(server=server, is_told=True)
            within(self._lock, self._replace, region, told)

    def forget_table(self, table: str) -> None:
        """Know nothing of a table any more: it was dropped, or made again."""
        self._tables.pop(table, None)

    # -- what is known -----------------------------------------------------------------------------

    def _known(self, table: str, row: bytes) -> Region | None:
        known = self._tables.get(table)
        if known is None:
            return None
        index = bisect_right(known.starts, row) - 1
        if index < 0:
            return None
        found = known.regions[index]
        return found if not found.end or row < found.end else None

    def _drop(self, region: Region) -> None:
        """Forget one region, unless it was replaced meanwhile.  Holds `_lock`."""
        known = self._tables.get(region.table, _Known())
        if region in known.regions:
            kept = [one for one in known.regions if one != region]
            self._tables[region.table] = _in_order(kept)

    def _replace(self, region: Region, by: Region) -> None:
        known = self._tables.get(region.table, _Known())
        if region in known.regions:
            changed = [by if one == region else one for one in known.regions]
            self._tables[region.table] = _in_order(changed)

    def _add(self, table: str, regions: Sequence[Region]) -> None:
        """Keep regions, in place of all that they overlap.  Holds `_lock`."""
        known = self._tables.get(table, _Known())
        kept = [one for one in known.regions if not any(_overlap(one, new) for new in regions)]
        self._tables[table] = _in_order([*kept, *regions])

    # -- look-ups ----------------------------------------------------------------------------------

    def _lock_of(self, table: str) -> threading.Lock:
        return self._look_ups.setdefault(table, threading.Lock())

    def _lock_for(self, table: str, until_s: float) -> threading.Lock:
        """Return the lock of look-ups in a table, once the thread that looks up has given it back.

        That one may wait for longer than this one may.

        Raises:
            NotSent: it does.
        """
        lock = self._lock_of(table)
        pauses = Pauses(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, at_least=0.5)
        while lock.locked():
            if time.monotonic() > until_s:
                raise NotSent(f"another thread is still looking for a region of table {table!r}")
            time.sleep(pauses.next_s())
        return lock

    def _find_meta_once(self, asked_s: float) -> ServerName:
        """Find the catalogue, unless another thread has, or has failed to, since this one asked.

        A failure takes seconds where nobody answers, and threads would take turns in it.
        """
        server = self._meta
        if server is not None and self._is_told():
            return server
        failed_s, failure = self._meta_failure
        if failure is not None and failed_s >= asked_s:
            raise copy(failure) from failure.__cause__
        try:
            return self._find_meta()
        except OmidError as error:
            told = copy(error)  # of each thread its own: it is given a traceback
            told.__cause__ = error.__cause__
            self._meta_failure = (time.monotonic(), told)
            raise

    def _look_up(self, table: str, row: bytes, until_s: float) -> Region:
        """Look a row up, unless another thread has meanwhile.  Holds the table's lock."""
        found = self._known(table, row)
        if found is not None:
            return found
        if not self._tables.get(table, _Known()).regions:
            regions = self._read_all(table, MOST_FIRST, until_s)
            within(self._lock, self._set_all, table, regions)
            if (found := self._known(table, row)) is not None:
                return found
        # HBase's own way: the last region whose name is not above that of one made in the far
        # future which begins with the row.
        return self._read_one(table, row, until_s)

    def _set_all(self, table: str, regions: Sequence[Region]) -> None:
        self._tables[table] = _in_order(regions)

    def _look_up_before(self, table: str, row: bytes, until_s: float) -> Region:
        for region in reversed(self._read_all(table, None, until_s)):
            # One that ends before has other rows: between the two is a region that nobody has yet.
            if _is_right_below(region, row):
                within(self._lock, self._add, table, (region,))
                return region
        raise NoRegion(f"the catalogue has no region of table {table!r} below {row!r}")

    def _read_one(self, table: str, row: bytes, until_s: float) -> Region:
        # Of the longest rows the end is left out: no key is longer, and no region begins there.
        scan = Scan(
            (b"%b,%b,%b" % (table.encode(), row, _ABOVE_ALL_IDS))[:MOST_ROW_BYTES],
            b"%b,," % table.encode(),
            _INFO,
            includes_stop=True,
            is_reversed=True,
        )
        # Of a region that was split the catalogue may still have the parent, between the daughters.
        for cells in self._read(scan, 5, until_s=until_s):
            region = region_of(cells)
            if region is not None and region.table == table and region.holds(row):
                within(self._lock, self._add, table, (region,))
                return region
        raise NoRegion(f"the catalogue has no region of table {table!r} for {row[:64]!r}")

    def _read_all(self, table: str, most: int | None, until_s: float) -> list[Region]:
        # The catalogue is in the order of tables, start keys and ids; no table has a blank.
        start, stop = b"%b,," % table.encode(), b"%b ,," % table.encode()
        found: list[Region] = []
        includes_start = True
        last = _order(start)
        while most is None or len(found) < most:
            page = self._read(
                Scan(start, stop, _INFO, includes_start=includes_start), _PAGE, until_s=until_s
            )
            for cells in page:
                if (place := _order(cells[0].row)) <= last:
                    raise Garbled(f"the catalogue goes back to {cells[0].row[:64]!r}")
                last = place
            found += filter(None, map(region_of, page))
            if len(page) < _PAGE:
                break
            start, includes_start = page[-1][0].row, False
        return [one for one in found if one.table == table]

    # -- fork --------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Let no thread change what is known; look-ups go on."""
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        """Let others in again."""
        self._lock.release()

    def after_fork_in_child(self) -> None:
        """Keep what is known, with locks of our own."""
        self._lock = threading.Lock()
        self._look_ups = {}


def _order(row: bytes) -> tuple[bytes, bytes, bytes]:
    """Return what rows of the catalogue are sorted by: the table, where a region begins, its id."""
    table, _, rest = row.partition(b",")
    start, _, region_id = rest.rpartition(b",")
    return table, start, region_id


def _in_order(regions: Sequence[Region]) -> _Known:
    ordered = sorted(regions, key=lambda one: one.start)
    return _Known(tuple(one.start for one in ordered), tuple(ordered))


def _is_right_below(region: Region, row: bytes) -> bool:
    """Say whether a region has the rows right below one; empty is the end of the table."""
    if not row:
        return not region.end
    return region.start < row and (not region.end or row <= region.end)


def _overlap(one: Region, other: Region) -> bool:
    return (not other.end or one.start < other.end) and (not one.end or other.start < one.end)
