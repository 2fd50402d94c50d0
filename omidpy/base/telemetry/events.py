"""Log lines that a person reads and a machine splits: one event a line, as text or as JSON.

    text    event time=2026-01-01T00:00:00.000+00:00 level=info key=value key="some value"
    json    {"event": "...", "time": "...", "level": "info", "key": 1, "key": "some value"}

A sentence, which is what libraries log, is the event `log` with its `logger` and its `message`; a
traceback is a value, too.  A number that is also a metric has the metric's name.

Libraries configure nothing: `configure` is for programs.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

from omidpy.base.words.printable import printable
from omidpy.errors import ConfigError

FORMS: Final = ("text", "json")
TEXT, JSON = FORMS

_EVENT: Final = "event_of_line"
_VALUES: Final = "values_of_line"
"""Attributes of records that are events; all others are sentences."""
_OWN: Final = frozenset({"event", "time", "level"})
_PLAIN: Final = re.compile(r"[\w.:/@+-]+")


def check_format(form: str, *, name: str = "--log-format") -> str:
    """Return the name of a format.

    Raises:
        ConfigError: it is none; it names the setting.
    """
    if form not in FORMS:
        raise ConfigError(f"{name} {form!r} is neither {' nor '.join(FORMS)}")
    return form


def event_record(event: str, values: Mapping[str, object]) -> dict[str, Any]:
    """Return what makes a log record an event, as its `extra`."""
    return {_EVENT: event, _VALUES: dict(values)}


def log_event(logger: logging.Logger, level: int, event: str, /, **values: object) -> None:
    """Log one event with its values."""
    text = " ".join([event, *(f"{k}={text_of(v)}" for k, v in values.items())])
    logger.log(level, "%s", text, extra=event_record(event, values))


def event_line(form: str, event: str, created_s: float, level: str, /, **values: object) -> str:
    """Return the line of an event.

    Args:
        form: One of `FORMS`.
        event: Its name.
        created_s: When it was, in seconds since 1970.
        level: How bad it is.
        values: What is said of it; one called as what every line has gets a `_` behind its name.
    """
    values = {f"{key}_" if key in _OWN else key: value for key, value in values.items()}
    moment = dt.datetime.fromtimestamp(created_s, dt.UTC)
    stamp = moment.isoformat(timespec="milliseconds")
    if form == JSON:
        said_so = {key: _json_of(value) for key, value in values.items()}
        document = {"event": event, "time": stamp, "level": level, **said_so}
        return json.dumps(document)
    said = "".join(f" {key}={text_of(value)}" for key, value in values.items())
    return f"{event} time={stamp} level={level}{said}"


def failure_line(text: str, code: int) -> str:
    """Return what stands on stdout, for a program, in place of a document: why there is none."""
    return json.dumps({"error": text, "code": code})


class EventFormatter(logging.Formatter):
    """Makes a line of a record; a sentence becomes the event `log`."""

    def __init__(self, form: str = TEXT) -> None:
        """Write lines of one of `FORMS`."""
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, which is `event key=value` for an event."""
        event = getattr(record, _EVENT, None)
        if event is None or record.exc_info is not None:
            values: dict[str, object] = {"logger": record.name, "message": record.getMessage()}
            if record.exc_info is not None:
                values["traceback"] = self.formatException(record.exc_info)
            return self.line("log", record, values)
        return self.line(event, record, getattr(record, _VALUES))

    def line(self, event: str, record: logging.LogRecord, values: Mapping[str, object]) -> str:
        """Return the line of an event at the time of a record."""
        level = record.levelname.lower()
        return event_line(self.form, event, record.created, level, **values)


def configure(form: str, level: int = logging.INFO) -> None:
    """Send every log record of the process to stderr, a line each.  Only a program does this.

    Where logging is configured already, that stands.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(EventFormatter(form))
    logging.basicConfig(level=level, handlers=[handler])


def text_of(value: object) -> str:
    """Return a value as it stands behind its key in a line of text."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    return printable(json.dumps(text, ensure_ascii=False))


def _json_of(value: object) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)
