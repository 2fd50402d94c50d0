"""One page of a scan: the first rows of a range, whole, in one call where one region has them.

Nothing stays on a server between two pages, so that the next one shows what was written until it
was asked for, and a server that dies costs a repeated call.  A page ends at a number of rows, or of
bytes: then HBase cuts the row that it is at, which is left out here and comes with the next page.
It also ends when the server has looked for long and found little; its answer says which row it was
at, and the next call goes on from there, so that a desert of deleted rows costs calls and no
time-out.

A row that alone is longer than a page is read by a scanner that is kept open, part by part of one
view, until it has all come or is more than its reader wants.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import OmidError
from omidpy.model import Cell, KeyRange
from omidpy.storage.hbase.native import cellblock, scan_messages
from omidpy.storage.hbase.native.calling.attempts import Attempts
from omidpy.storage.hbase.native.calling.calls import Calls, Sent, forget
from omidpy.storage.hbase.native.connections.pool import until
from omidpy.storage.hbase.native.faults import CallFailed, Garbled, Unanswered
from omidpy.storage.hbase.native.values import Pairing, Region, Scan, ScanAnswer, Selection
from omidpy.storage.pages import Reads

PAGE_BYTES: Final = 1024 * 1024
"""What a page comes to, about; a row that has more comes alone."""

MOST_ROWS: Final = 2**31 - 1
"""Of a page; HBase takes no greater number, and cuts it."""

MOST_AHEAD_S: Final = 1.0
"""How old a page may be that was asked for ahead."""


_NO_REASON: Final = "a scan brings neither rows nor a reason"

_KEPT_BYTES: Final = 4 * PAGE_BYTES


@cache
def _keep_memory() -> None:
    """Let the C library keep what it got for a page, once that is free, for the next one.

    To give it back and to ask for it anew costs a fault for each 4 KiB, in all as much time as
    decoding them takes.  glibc gives back what is more than twice the largest piece that it was
    ever given back and had got for it alone, up to 32 MiB (`mallopt(3)`): this one, of which not a
    byte is touched.  To others it is nothing.
    """
    bytes(_KEPT_BYTES)


class Position(NamedTuple):
    """Where the next page begins."""

    key: bytes
    is_included: bool
    """Whether a row of this key is still to come."""


class Page(NamedTuple):
    """Rows of a scan, and where it goes on."""

    rows: list[Any]
    """Lists of cells, or of pairs, or keys and what else there is: whole rows, in the order of the
    scan.

    Empty only at its end, or beside a long row.
    """
    position: Position | None
    """None at the end."""
    long_row: bytes | None = None
    """The key of a row behind them that is longer than the reader wants."""


class _Ahead(NamedTuple):
    """A page that has been asked for."""

    sent: Sent
    region: Region
    sent_s: float


@dataclass(frozen=True, slots=True)
class Scanner:
    """What to read of which table, in which direction."""

    calls: Calls
    table: str
    key_range: KeyRange
    selection: Selection
    is_reversed: bool = False
    is_too_long: Callable[[list[Cell]], bool] | None = None
    """Says of the cells of a row, as far as they have come, that the rest is not wanted."""
    pairing: Pairing | None = None
    """Which cells come with others; None: each comes by itself."""
    reads: Reads = field(default_factory=Reads, compare=False)
    """Calls that read, those that failed among them."""

    def start(self) -> Position:
        """Return where the first page begins."""
        if self.is_reversed:
            return Position(self.key_range.end, is_included=False)
        return Position(self.key_range.start, is_included=True)

    def pages(
        self, rows: int, start: Position | None = None
    ) -> Generator[list[Any], None, Position | None]:
        """Yield pages of at most `rows`, from the third on asked for while the one before is used.

        So HBase works while the reader does, and a scan that ends within two pages costs no call
        in vain.  What was asked for more than `MOST_AHEAD_S` ago is asked for anew, and no page of
        that scan ahead any more: no row is older than that when it comes.

        Args:
            rows: In a page.
            start: Where to begin; None: at the start of the range.

        Returns:
            The place of a row that is longer than the reader wants; None at the end.

        Raises:
            OmidError: what the failure of a call means.

        Cost: 1 RPC a page, and 1 more where it is not read to its end.
        """
        rows = min(rows, MOST_ROWS)
        position: Position | None = self.start() if start is None else start
        ahead: _Ahead | None = None
        is_ahead, count = True, 0
        try:
            while position is not None:
                if ahead is not None and SystemClock.monotonic_s() > ahead.sent_s + MOST_AHEAD_S:
                    forget([ahead.sent])
                    ahead, is_ahead = None, False
                page = self.page(position, rows, ahead=ahead)
                ahead, position = None, page.position
                if page.long_row is not None:
                    if page.rows:
                        yield page.rows
                    return Position(page.long_row, is_included=True)
                count += 1
                if is_ahead and count > 1 and position is not None:
                    ahead = self._ask_ahead(position, rows)
                if page.rows:
                    yield page.rows
            return None
        finally:
            if ahead is not None:
                forget([ahead.sent])

    def _ask_ahead(self, position: Position, rows: int) -> _Ahead | None:
        """Ask for a page; None where that fails, which its reader will meet himself."""
        try:
            if self._is_behind_end(position):
                return None
            region = self._region(position)
            sent_s = SystemClock.monotonic_s()
            return _Ahead(self._send(region, position, rows, PAGE_BYTES), region, sent_s)
        except (CallFailed, OmidError):
            return None

    def page(
        self,
        position: Position,
        rows: int,
        *,
        most_bytes: int = PAGE_BYTES,
        ahead: _Ahead | None = None,
    ) -> Page:
        """Read the next rows, at most `rows` and about `most_bytes`.

        `ahead` is what has asked for the same already, if anything has.

        Raises:
            OmidError: what the failure of a call means.

        Cost: 1 RPC for each region that is passed, more for a long row or a desert.
        """
        _keep_memory()
        rows = min(rows, MOST_ROWS)
        attempts: Attempts | None = None
        while True:
            region: Region | None = None
            try:
                if self._is_behind_end(position):
                    return Page([], None)
                if ahead is not None:
                    region, asked, ahead = ahead.region, ahead.sent, None
                else:
                    region = self._region(position)
                    asked = self._send(region, position, rows, most_bytes)
                answer = self._answer(asked, rows, self.pairing)
                self._check_progress(position, answer)
                found = self._page_of(region, answer, rows)
                attempts = None
                if found is None:
                    found = self._long_page(region, self._key(answer.rows[-1]))
                elif not found.rows and found.position == Position(position.key, is_included=True):
                    if not position.is_included:
                        # It stands at a row that has come already, and must not come again.
                        further = self._further(region, position)
                        if further is None:
                            return Page([], None)
                        position, attempts = further, None
                        continue
                    # The row at which it begins takes longer to look through than a call may, and
                    # each call looks from its beginning.
                    found = self._long_page(region, position.key)
                if found.rows or found.long_row is not None or found.position is None:
                    return found
                position = found.position
            except (CallFailed, OmidError) as error:
                attempts = attempts or self.calls.attempts("scan", self.table, is_repeatable=True)
                self.calls.after_failure(attempts, self.table, region, error)

    def first_cells(self, row: bytes, most_cells: int, most_bytes: int) -> list[Cell]:
        """Read the first cells of a row, at most so many and of about so many bytes.

        At least one comes if there is one.  Cost: 1 RPC.
        """
        scan = Scan(
            row,
            row,
            self.selection,
            includes_stop=True,
            most_cells_of_row=most_cells,
            most_bytes=most_bytes,
        )
        attempts: Attempts | None = None
        while True:
            region: Region | None = None
            try:
                until_s = until(self.calls.address.timeout_s)
                region = self.calls.locations.locate(self.table, row, until_s=until_s)
                request = scan_messages.scan_request(region.name, scan, rows=1, keeps_open=False)
                sent = self.calls.send(region, "Scan", request, until_s=until_s)
                answer = scan_messages.read_scan(self.calls.wait(sent, until_s), 1)
                if answer.is_heartbeat and not answer.rows:
                    # From its beginning it would take as long again, for ever.
                    answer = self._behind_heartbeats(region, scan)
                return answer.rows[0] if answer.rows else []
            except (CallFailed, OmidError) as error:
                attempts = attempts or self.calls.attempts("scan", self.table, is_repeatable=True)
                self.calls.after_failure(attempts, self.table, region, error)

    def _region(self, position: Position) -> Region:
        until_s = until(self.calls.address.timeout_s)
        if self.is_reversed and not position.is_included:
            return self.calls.locations.locate_before(self.table, position.key, until_s=until_s)
        return self.calls.locations.locate(self.table, position.key, until_s=until_s)

    def _is_behind_end(self, position: Position) -> bool:
        start, end = self.key_range
        if self.is_reversed:
            # The lower end is included: a row of that key is still to come.
            return bool(position.key) and (
                position.key < start or (position.key == start and not position.is_included)
            )
        return bool(end) and position.key >= end

    def _check_progress(self, position: Position, answer: ScanAnswer) -> None:
        """Refuse rows that were not asked for, which would let a scan go round and round."""
        keys = [self._key(row) for row in (answer.rows[:1] + answer.rows[-1:])]
        for row in keys if answer.cursor is None else (*keys, answer.cursor):
            is_behind = bool(position.key) and (
                row > position.key if self.is_reversed else row < position.key
            )
            if is_behind or (row in keys and row == position.key and not position.is_included):
                raise Garbled(f"a scan goes back from {position.key[:64]!r} to {row[:64]!r}")

    def _scan(self, position: Position, most_bytes: int) -> Scan:
        return Scan(
            position.key,
            self.key_range.start if self.is_reversed else self.key_range.end,
            self.selection,
            includes_start=position.is_included,
            includes_stop=self.is_reversed,
            is_reversed=self.is_reversed,
            most_bytes=most_bytes,
        )

    def _send(
        self,
        region: Region,
        position: Position,
        rows: int,
        most_bytes: int,
        *,
        keeps_open: bool = False,
    ) -> Sent:
        request = scan_messages.scan_request(
            region.name, self._scan(position, most_bytes), rows=rows, keeps_open=keeps_open
        )
        self.reads.count += 1
        return self.calls.send(region, "Scan", request, until_s=until(self.calls.address.timeout_s))

    def _answer(self, sent: Sent, rows: int, pairing: Pairing | None = None) -> ScanAnswer:
        # From now on: no thread may have listened since it was sent.
        until_s = until(self.calls.address.timeout_s)
        return scan_messages.read_scan(self.calls.wait(sent, until_s), rows, pairing)

    def _page_of(self, region: Region, answer: ScanAnswer, rows: int) -> Page | None:
        """Return the whole rows of an answer, and what follows; None if one did not fit at all."""
        found = answer.rows[:-1] if answer.is_last_partial else answer.rows
        if answer.is_last_partial:
            if not found:
                return None
            return Page(found, Position(self._key(answer.rows[-1]), is_included=True))
        if len(found) >= rows:
            return Page(found, self._after(self._key(found[-1])))
        if not answer.more_in_region or not answer.more:
            return Page(found, self._after_region(region))
        if found:
            return Page(found, self._after(self._key(found[-1])))
        if answer.cursor is not None:
            return Page([], Position(answer.cursor, is_included=True))
        if answer.is_heartbeat:
            raise Unanswered("a scan's time was over before it came to a cell")
        raise Garbled(_NO_REASON)

    def behind(self, page: list[Any]) -> Position:
        """Return where the page begins that follows one."""
        return self._after(self._key(page[-1]))

    def _after(self, row: bytes) -> Position:
        return Position(row, is_included=False)

    def _further(self, region: Region, position: Position) -> Position | None:
        """Return where a scan goes on that has not got past the row before it; None: nowhere.

        Backwards there is no next key, and each call of its own would begin with that row anew.
        """
        if not self.is_reversed:
            return Position(position.key + b"\0", is_included=True)
        answer = self._behind_heartbeats(region, self._scan(position, 1))
        if not answer.rows:
            return self._after_region(region)
        row: bytes = answer.rows[0][0].row
        if row >= position.key:
            raise Garbled(f"a scan does not get past {position.key[:64]!r}")
        return Position(row, is_included=True)

    def _after_region(self, region: Region) -> Position | None:
        if self.is_reversed:
            if not region.start or region.start <= self.key_range.start:
                return None
            return Position(region.start, is_included=False)
        if not region.end or (self.key_range.end and region.end >= self.key_range.end):
            return None
        return Position(region.end, is_included=True)

    def _long_page(self, region: Region, row: bytes) -> Page:
        """Read a row that alone is longer than a page."""
        cells: list[Cell] = []
        scanner_id: int | None = None
        try:
            position = Position(row, is_included=True)
            asked = self._send(region, position, 1, PAGE_BYTES, keeps_open=True)
            answer = self._answer(asked, 1)
            scanner_id, sequence = answer.scanner_id, 0
            while True:
                for part in answer.rows:
                    if part[0].row != row:
                        # It is gone since it was met.
                        is_first = not cells
                        return Page([] if is_first else [self._whole(cells)], self._after(row))
                    cells += part
                if self.is_too_long is not None and self.is_too_long(cells):
                    return Page([], self._after(row), long_row=row)
                is_whole = bool(answer.rows) and not answer.is_last_partial
                if is_whole or not answer.more or not answer.more_in_region:
                    if not answer.more or not answer.more_in_region:
                        scanner_id = None
                    return Page([self._whole(cells)] if cells else [], self._after(row))
                answer = self._next_call(region, scanner_id, sequence, answer)
                sequence += 1
        finally:
            if scanner_id is not None:
                self.calls.end_scanner(region, scanner_id)

    def _behind_heartbeats(self, region: Region, scan: Scan) -> ScanAnswer:
        """Return the first answer of a scan of a row that has something, or is the last."""
        request = scan_messages.scan_request(region.name, scan, rows=1, keeps_open=True)
        until_s = until(self.calls.address.timeout_s)
        answer = self._answer(self.calls.send(region, "Scan", request, until_s=until_s), 1)
        scanner_id, sequence = answer.scanner_id, 0
        try:
            while not answer.rows and answer.more and answer.more_in_region:
                answer = self._next_call(region, scanner_id, sequence, answer)
                sequence += 1
            return answer
        finally:
            if scanner_id is not None:
                self.calls.end_scanner(region, scanner_id)

    def _key(self, row: Any) -> bytes:
        """Return the key of a row of an answer."""
        is_shaped = self.pairing is not None and self.pairing.before is not None
        key: bytes = row[0] if is_shaped else row[0][0]
        return key

    def _whole(self, cells: list[Cell]) -> Any:
        """Return a row that came in parts as others come."""
        if self.pairing is None:
            return cells
        if self.pairing.first is not None:
            return cells[0].row, [], cells
        pairs = cellblock.pairs_of(cells, self.pairing.prefix, self.pairing.suffix)
        return pairs if self.pairing.before is None else (cells[0].row, pairs)

    def _next_call(
        self, region: Region, scanner_id: int | None, sequence: int, before: ScanAnswer
    ) -> ScanAnswer:
        """Let a scanner that is kept open go on from where the answer before has ended."""
        if scanner_id is None:
            raise Garbled("a scan that goes on has no number")
        if not before.rows and not before.is_heartbeat:
            raise Garbled(_NO_REASON)  # for ever, perhaps, and without a pause
        until_s = until(self.calls.address.timeout_s)
        request = scan_messages.next_request(scanner_id, sequence, rows=1)
        sent = self.calls.send(region, "Scan", request, until_s=until_s)
        return scan_messages.read_scan(self.calls.wait(sent, until_s), 1)
