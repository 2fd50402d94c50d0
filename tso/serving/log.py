"""The daemon's log: one event a line, as `omidpy/base/telemetry/events.py` writes them.

A daemon's log must not hold up what it tells about.  Lines are written by a thread of their own, so
that a pipe that is not read stops the log and not the oracle; and what a hostile client makes us
say is limited in rate, so that it fills no disk.  Lines that found no room are counted, and the
next one that does is told how many they were.

A line about a client is also limited by whom it is about, and by its cause with that one, so that
who makes much noise hides no line about anybody else.  Where several together fill what all have,
there is a reserve for lines that were not heard for long.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from queue import Full, Queue
from typing import Final, TextIO

from omidpy.base.telemetry.events import (
    JSON,
    TEXT,
    EventFormatter,
    event_line,
    event_record,
    text_of,
)
from omidpy.base.telemetry.streams import tell

MAX_LINES_PER_S: Final = 50
MAX_BURST_LINES: Final = 500
"""Lines that may come at once, after a time without any."""

LINES_PER_S_ABOUT_ONE: Final = 10
BURST_LINES_ABOUT_ONE: Final = 100
"""The same of lines about one name, or one address."""

LINES_PER_S_OF_CAUSE: Final = 5
BURST_LINES_OF_CAUSE: Final = 50
"""The same of those that say the same about it."""

RESERVED_LINES_PER_S: Final = 10
RESERVED_BURST_LINES: Final = 100
"""Lines beyond all that, of a kind that was not heard for so long that it had its whole burst."""

MAX_KIND_COUNT: Final = 2048
"""Kinds of lines, and whom they are about, that are told apart; the one not heard for longest is
forgotten."""

MAX_WAITING_LINES: Final = 1000
"""Lines that wait until those before them are read."""

LAST_LINES_S: Final = 1.0
"""How long the end of the process waits for its last lines to be read."""

_NUMBERS: Final = re.compile(r"\d+")
_CAUSE_LENGTH: Final = 80
_KIND: Final = "kind_of_line"


def log_event(
    logger: logging.Logger, level: int, event: str, *, about: Hashable = None, **values: object
) -> None:
    """Log one event of the daemon with its values.

    Args:
        logger: Where.
        level: How bad it is.
        event: Its name.
        about: Whose share of all lines this is one of; None is nobody's.
        values: What is said of it.  A `reason`, but for its numbers, tells causes apart.
    """
    text = " ".join([event, *(f"{k}={text_of(v)}" for k, v in values.items())])
    reason = _NUMBERS.sub("#", str(values.get("reason", ""))[:_CAUSE_LENGTH])
    kind = (event, reason, about)
    logger.log(level, "%s", text, extra={**event_record(event, values), _KIND: kind})


def configure_logging(form: str = TEXT) -> None:
    """Send every log record of the process to stderr, a line each.  Only a daemon does this."""
    handler = PatientHandler(sys.stderr)
    handler.setFormatter(EventFormatter(form))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def announce(line: str, event: str, **values: object) -> None:
    """Print a line that others wait for, behind what was logged before it; in JSON as an event."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PatientHandler):
            form = getattr(handler.formatter, "form", TEXT)
            if form == JSON:
                line = event_line(form, event, time.time(), "info", **values)
            handler.say(line)
            return
    tell(line)


def flush_logging() -> None:
    """Wait a moment for the last lines: the process is about to end without ceremony."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class _Allowance:
    """How many lines of some kind may still be said."""

    __slots__ = ("_burst", "_counted_s", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left = burst
        self._counted_s = now_s

    def left(self, now_s: float) -> float:
        self._left = min(self._left + (now_s - self._counted_s) * self._per_s, self._burst)
        self._counted_s = now_s
        return self._left

    def is_whole(self, now_s: float) -> bool:
        return self.left(now_s) >= self._burst

    def take(self) -> None:
        self._left -= 1


class _Limiter:
    """Which lines may be said."""

    def __init__(self, now_s: float) -> None:
        self._all = _Allowance(MAX_LINES_PER_S, MAX_BURST_LINES, now_s)
        self._reserve = _Allowance(RESERVED_LINES_PER_S, RESERVED_BURST_LINES, now_s)
        self._kinds: OrderedDict[Hashable, _Allowance] = OrderedDict()

    def may_say(self, kind: tuple[Hashable, Hashable, Hashable], now_s: float) -> bool:
        """Say whether a line may be said, which then counts."""
        about = kind[-1]
        own = [self._of(kind, LINES_PER_S_OF_CAUSE, BURST_LINES_OF_CAUSE, now_s)]
        if about is not None:
            one = self._of(("", "", about), LINES_PER_S_ABOUT_ONE, BURST_LINES_ABOUT_ONE, now_s)
            own.append(one)
            if min(each.left(now_s) for each in own) < 1:
                return False
        common = self._all
        if common.left(now_s) < 1:
            common = self._reserve
            if common.left(now_s) < 1 or not all(each.is_whole(now_s) for each in own):
                return False
        for each in (common, *own):
            each.take()
        return True

    def _of(self, kind: Hashable, per_s: float, burst: float, now_s: float) -> _Allowance:
        found = self._kinds.get(kind)
        if found is None:
            if len(self._kinds) >= MAX_KIND_COUNT:
                self._kinds.popitem(last=False)
            found = self._kinds[kind] = _Allowance(per_s, burst, now_s)
        self._kinds.move_to_end(kind)
        return found


class PatientHandler(logging.Handler):
    """Hands lines to a thread that may wait for the pipe's reader."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`, at most so many lines a second of `clock`."""
        super().__init__()
        self._write = _writer_of(stream)
        self._clock = clock
        self._lines: Queue[str] = Queue(MAX_WAITING_LINES)
        self._lost_count = 0
        self._limiter = _Limiter(clock())
        threading.Thread(target=self._work, name="tso-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line, or count it as lost."""
        kind = getattr(record, _KIND, (record.name, str(record.msg)[:_CAUSE_LENGTH], None))
        if not self._limiter.may_say(kind, self._clock()):
            self._lost_count += 1
            return
        try:
            if self._lost_count:
                self._lines.put_nowait(self._lost_line(record))
                self._lost_count = 0
            self._lines.put_nowait(self.format(record))
        except Full:
            self._lost_count += 1
        except Exception:  # noqa: BLE001 - a line that cannot be made must not end the oracle
            self.handleError(record)

    def _lost_line(self, record: logging.LogRecord) -> str:
        made = self.formatter
        writer = made if isinstance(made, EventFormatter) else EventFormatter()
        return writer.line("log-lines-lost", record, {"count": self._lost_count})

    def say(self, line: str) -> None:
        """Take a line as it is."""
        with suppress(Full):
            self._lines.put_nowait(line)

    def flush(self) -> None:
        """Wait until the lines are written, but no longer than `LAST_LINES_S`."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(
                lambda: not self._lines.unfinished_tasks, LAST_LINES_S
            )

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError, ValueError):  # its reader is gone
                self._write(line + "\n")
            self._lines.task_done()


def _writer_of(stream: TextIO) -> Callable[[str], object]:
    """Return what writes text past the stream's own lock, which a stopped reader would hold.

    It writes to a descriptor of its own, which stays open: the stream's number may be another
    file's once the stream is closed, such as a store's, which lines would destroy.
    """
    try:
        own = io.FileIO(os.dup(stream.fileno()), "w")
    except io.UnsupportedOperation:
        return stream.write
    encoding = stream.encoding

    def write(text: str) -> None:
        rest = text.encode(encoding, "backslashreplace")
        while rest:
            rest = rest[os.write(own.fileno(), rest) :]

    return write
