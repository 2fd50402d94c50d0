"""Log lines that a person reads and a machine splits: `event key=value key="some value"`.

A daemon's log must not hold up what it tells about.  Lines are written by a thread of their own, so
that a pipe that nobody reads stops the log and not the oracle; and what a hostile client makes us
say is limited in rate, so that it fills no disk.  Lines that found no room are counted, and the
next one that does is told how many they were.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue
from typing import Final, TextIO

from omidpy.base.printable import printable

MAX_LINES_PER_S: Final = 50
MAX_BURST_LINES: Final = 500
"""Lines that may come at once, after a time without any."""

MAX_WAITING_LINES: Final = 1000
"""Lines that wait for somebody to read those before them."""

LAST_LINES_S: Final = 1.0
"""How long the end of the process waits for its last lines to be read."""

_PLAIN: Final = re.compile(r"[\w.:/@+-]+")
_IS_EVENT: Final = "is_event"
"""Attribute of records that `log_event` made; all others are sentences."""


def log_event(logger: logging.Logger, level: int, event: str, **values: object) -> None:
    """Log one event of the daemon with its values."""
    text = " ".join([event, *(f"{k}={_text(v)}" for k, v in values.items())])
    logger.log(level, "%s", text, extra={_IS_EVENT: True})


def configure_logging() -> None:
    """Send every log record of the process to stderr, a line each.  Only a daemon does this."""
    handler = PatientHandler(sys.stderr)
    handler.setFormatter(_EventFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def announce(line: str) -> None:
    """Print a line that others wait for, behind what was logged before it."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, PatientHandler):
            handler.say(line)
            return
    print(line, file=sys.stderr, flush=True)


def flush_logging() -> None:
    """Wait a moment for the last lines: the process is about to end without ceremony."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class PatientHandler(logging.Handler):
    """Hands lines to a thread that may wait for whoever reads them."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`, at most so many lines a second of `clock`."""
        super().__init__()
        self._write = _writer_of(stream)
        self._clock = clock
        self._lines: Queue[str] = Queue(MAX_WAITING_LINES)
        self._lost_count = 0
        self._allowance = float(MAX_BURST_LINES)
        self._counted_s = clock()
        threading.Thread(target=self._work, name="tso-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line, or count it as lost."""
        if not self._may_say():
            self._lost_count += 1
            return
        try:
            if self._lost_count:
                lost = f"count={self._lost_count}"
                self._lines.put_nowait(_line("log-lines-lost", record, lost))
                self._lost_count = 0
            self._lines.put_nowait(self.format(record))
        except Full:
            self._lost_count += 1
        except Exception:  # noqa: BLE001 - a line that cannot be made must not end the oracle
            self.handleError(record)

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

    def _may_say(self) -> bool:
        now_s = self._clock()
        earned = (now_s - self._counted_s) * MAX_LINES_PER_S
        self._allowance = min(self._allowance + earned, MAX_BURST_LINES)
        self._counted_s = now_s
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def _work(self) -> None:
        while True:
            line = self._lines.get()
            with suppress(OSError, ValueError):  # whoever read it is gone
                self._write(line + "\n")
            self._lines.task_done()


def _writer_of(stream: TextIO) -> Callable[[str], object]:
    """Return what writes text past the stream's own lock, which a stopped reader would hold."""
    try:
        number = stream.fileno()
    except io.UnsupportedOperation:
        return stream.write
    encoding = stream.encoding

    def write(text: str) -> None:
        rest = text.encode(encoding, "backslashreplace")
        while rest:
            rest = rest[os.write(number, rest) :]

    return write


class _EventFormatter(logging.Formatter):
    """Put time and level behind the event; a sentence becomes the event `log`."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if hasattr(record, _IS_EVENT) and record.exc_info is None:
            event, _, values = message.partition(" ")
        else:
            event, values = "log", f"logger={record.name} message={_text(message)}"
            if record.exc_info is not None:
                values += f" traceback={_text(self.formatException(record.exc_info))}"
        return _line(event, record, values)


def _line(event: str, record: logging.LogRecord, values: str) -> str:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    stamp = moment.isoformat(timespec="milliseconds")
    return f"{event} time={stamp} level={record.levelname.lower()} {values}".rstrip()


def _text(value: object) -> str:
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return printable(json.dumps(text, ensure_ascii=False))
