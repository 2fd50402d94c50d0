"""What a run read, healed and pruned: one JSON document, kept in the store for `compact history`.

The keys of `Report` are a contract with scripts; what else a run has to say (foreign cells, other
runs seen) is in its `RunRecord`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

import msgspec

from omidpy.base.documents import Moment, Natural
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import CorruptCell
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.tables.questions import Question
from omidpy.facts.watermarks import DATES_DIFFER_S
from omidpy.model import KeyRange

RUN_PREFIX: Final = b"run/"
RUNS_KEPT: Final = 100


class Laggard(msgspec.Struct, frozen=True):
    """Rows that this run did not bring up to its low watermark, and why."""

    table: str
    start: str
    """First row, in hexadecimal; empty is the start of the table."""
    end: str
    """Row after the last, in hexadecimal; empty is the end of the table."""
    watermark: int
    """How far they are healed; 0 where no claim speaks of them."""
    reason: str
    age_s: float | None = None
    """How long ago the oldest of what they hold back was issued; None if that cannot be told."""

    @classmethod
    def of(cls, table: str, key_range: KeyRange, *, watermark: int, reason: str) -> Laggard:
        """Describe a range that holds something back, and why."""
        return cls(table, key_range.start.hex(), key_range.end.hex(), watermark, reason)


class Held(msgspec.Struct, frozen=True):
    """A snapshot whose versions a client keeps from being dropped."""

    name: str
    owner: str
    """Host and process; empty where an early version made it."""
    start_ts: int
    expires_ms: int
    """Wall time."""


class RangeReport(msgspec.Struct, frozen=True):
    """How long the pass over a range took."""

    start: str
    """First row, in hexadecimal, as in `Laggard`."""
    end: str
    seconds: float
    rows_read: int


class TableReport(msgspec.Struct, frozen=True):
    """What one run did to a table, or would do."""

    table: str
    rows_read: int = 0
    cells_healed: int = 0
    cells_dropped: int = 0
    bytes_dropped: int = 0
    ranges: int = 0
    cells_read: int = 0
    bytes_read: int = 0
    """Keys and values."""
    seconds: float = 0.0
    """Of all tasks together."""
    slowest: Sequence[RangeReport] = ()
    """The ranges that took longest."""


class AskedReport(msgspec.Struct, frozen=True):
    """What one table that is not ours was asked before commits were forgotten, and its cost."""

    table: str
    families: Sequence[str]
    """In hexadecimal."""
    calls: int
    cells: int
    """How many came back."""
    answer: str
    """What forbids to forget them; empty if nothing does."""

    @classmethod
    def of(cls, question: Question) -> Self:
        """Describe what was asked of a place that no pass goes over."""
        families = [family.hex() for family in question.families]
        return cls(question.table, families, question.calls, question.cells, question.answer)


class Report(msgspec.Struct, frozen=True):
    """What one run did; in a dry run, what it would have done as far as that can be known."""

    rows_read: int = 0
    cells_read: int = 0
    cells_healed: int = 0
    """Shadow cells written."""
    transactions_invalidated: int = 0
    """Invalidations that this run created."""
    cells_dropped: int = 0
    """Data cells removed, their shadow cells not counted, and shadow cells without a data cell."""
    entries_pruned: int = 0
    """Commits removed from the commit table."""
    invalidations_pruned: int = 0
    low_watermark: int = 0
    """L: what this run judged cells by."""
    horizon: int = 0
    """The prune horizon after the run: the commit table may have forgotten what is at or below."""
    bytes_dropped: int = 0
    """Keys and values of the cells that `cells_dropped` counts."""
    ranges: int = 0
    """Into how many tasks the tables were divided."""
    ranges_whole: int = 0
    """In how many of these every version was read, not only those behind the last claims."""
    quick: str = ""
    """Why no row had to be handed out and judged; empty where some were."""
    tables: Sequence[TableReport] = ()
    """What was passed over, by name."""
    low_watermark_age_s: float | None = None
    """How old the oldest transaction can be that may still commit; None: unknown."""
    horizon_age_s: float | None = None
    holds: Sequence[Held] = ()
    """Who keeps old versions, the oldest snapshot first."""
    entries_left: int | None = None
    """Rows of the commit table after the run; None if they were not counted."""
    entries_growth_a_day: float | None = None
    """How many more there are than after the last run that counted them, a day between them."""
    asked: Sequence[AskedReport] = ()
    """The tables that are not ours, and what they said of the commits about to be forgotten."""
    knows_snapshots: bool | None = None
    """Whether it was known which snapshots HBase has of tables; if not, the commits that they would
    need were forgotten.  None: there are no such snapshots."""
    laggards: Sequence[Laggard] = ()
    dry_run: bool = False
    seconds: float = 0.0

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        return document

    def json(self) -> str:
        """Return the report as one line of JSON."""
        return msgspec.json.encode(self).decode()


class RunRecord(msgspec.Struct, frozen=True):
    """One run as the store remembers it."""

    run_id: str
    started_ms: Moment
    host: str
    pid: Natural
    ended_ms: Moment | None = None
    """None while it runs, and for ever if it was killed."""
    error: str | None = None
    report: Report | None = None
    foreign_cells: Natural = 0
    """Cells older than the oracle's first timestamp: left alone."""
    notes: Sequence[str] = ()
    operation: str = ""
    """What it was carried out as; `omidpy fate list` shows it."""
    resumed_count: Natural = 0
    """How often another process went on with it."""
    superseded_by: str = ""
    """The run that took its place when it had been killed."""

    def row(self) -> bytes:
        """Return the control row of the run; rows sort by time."""
        return RUN_PREFIX + self.run_id.encode()

    def state(self) -> str:
        """Say in a word how it went."""
        if self.superseded_by:
            return "superseded"
        if self.ended_ms is None:
            return "unfinished"
        if self.error is not None:
            return "failed"
        return "held back" if self.report is not None and self.report.laggards else "done"


def new_run(*, now_ms: int) -> RunRecord:
    """Return the record of a run that starts now in this process."""
    run_id = f"{now_ms:020d}-{uuid.uuid4().hex}"
    return RunRecord(run_id, now_ms, socket.gethostname(), os.getpid())


class RunLog:
    """The newest runs of a store."""

    def __init__(self, control: ControlTable, now_ms: Callable[[], int] | None = None) -> None:
        """Keep runs in a control table; they are put in order by their dates, as of `now_ms`."""
        self._control = control
        self._now_ms = now_ms or SystemClock().wall_ms

    def write(self, record: RunRecord) -> bytes:
        """Record a run; return what is written, for `replace`."""
        written = encode_document(record)
        self._control.write(record.row(), written)
        return written

    def replace(self, written: bytes | None, record: RunRecord) -> bytes | None:
        """Record what became of a run; None if another driver has recorded more of it since.

        Args:
            written: What was on record; None if nothing was.
            record: What shall be.
        """
        encoded = encode_document(record)
        return encoded if self._control.replace(record.row(), written, encoded) else None

    def read_raw(self, run_id: str) -> tuple[bytes | None, RunRecord | None]:
        """Return what is on record of a run, for `replace`, and what that says if it can be read.

        Cost: 1 get.
        """
        row = RUN_PREFIX + run_id.encode()
        raw = self._control.read(row)
        with contextlib.suppress(CorruptCell):
            return raw, None if raw is None else decode_document(raw, RunRecord, row=row)
        return raw, None

    def runs(self) -> list[RunRecord]:
        """Return the recorded runs, oldest first; one that cannot be decoded is left out."""
        return self.read_all()[0]

    def read_all(self) -> tuple[list[RunRecord], list[str]]:
        """Return the recorded runs, and the ids of those that cannot be decoded, oldest first.

        Cost: 1 scan.
        """
        found, malformed = self._control.documents(RUN_PREFIX, RunRecord)
        ids = [row.removeprefix(RUN_PREFIX).decode(errors="replace") for row in malformed]
        runs = sorted(found.items(), key=lambda one: self._place(one[0]))
        return [run for _, run in runs], ids

    def old(self) -> dict[bytes, str]:
        """Return the rows of all but the newest `RUNS_KEPT`, and what they were carried out as."""
        rows = sorted(self._control.scan(RUN_PREFIX), key=lambda one: self._place(one[0]))
        found = {}
        for row, raw in rows[:-RUNS_KEPT]:
            found[row] = ""
            with contextlib.suppress(CorruptCell):
                found[row] = decode_document(raw, RunRecord, row=row).operation
        return found

    def _place(self, row: bytes) -> tuple[bool, bytes]:
        """Return what puts a run among others.

        One that is dated ahead of now is no newer than the others: its date was wrong, or ours is
        by now, and then those of today would be the oldest of all, and forgotten at once.
        """
        number = row.removeprefix(RUN_PREFIX).partition(b"-")[0]
        latest_ms = self._now_ms() + round(DATES_DIFFER_S * 1000)
        is_ahead = number.isdigit() and int(number) > latest_ms
        return not is_ahead, row

    def forget(self, rows: Iterable[bytes]) -> None:
        """Forget the records of these runs."""
        if old := list(rows):
            self._control.forget(old)
