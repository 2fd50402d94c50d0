"""Log lines that a person reads and a machine splits: `event key=value key="some value"`."""

from __future__ import annotations

import datetime as dt
import json
import logging
import re
import sys
from typing import Final

_PLAIN: Final = re.compile(r"[\w.:/@+-]+")
_IS_EVENT: Final = "is_event"
"""Attribute of records that `log_event` made; all others are sentences."""


def log_event(logger: logging.Logger, level: int, event: str, **values: object) -> None:
    """Log one event of the daemon with its values."""
    text = " ".join([event, *(f"{k}={_text(v)}" for k, v in values.items())])
    logger.log(level, "%s", text, extra={_IS_EVENT: True})


def configure_logging() -> None:
    """Send every log record of the process to stderr, a line each.  Only a daemon does this."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_EventFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class _EventFormatter(logging.Formatter):
    """Put time and level behind the event; a sentence becomes the event `log`."""

    def format(self, record: logging.LogRecord) -> str:
        moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
        stamp = moment.isoformat(timespec="milliseconds")
        message = record.getMessage()
        if hasattr(record, _IS_EVENT) and record.exc_info is None:
            event, _, values = message.partition(" ")
        else:
            event, values = "log", f"logger={record.name} message={_text(message)}"
            if record.exc_info is not None:
                values += f" traceback={_text(self.formatException(record.exc_info))}"
        line = f"{event} time={stamp} level={record.levelname.lower()} {values}"
        return line.rstrip()


def _text(value: object) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
