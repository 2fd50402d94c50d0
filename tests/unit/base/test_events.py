"""Lines of a log: one event each, as text and as JSON."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import pytest

from omidpy.base.telemetry import events
from omidpy.base.telemetry.events import FORMS, JSON, TEXT, EventFormatter, check_format, event_line
from omidpy.errors import ConfigError


def logged(form: str) -> tuple[logging.Logger, io.StringIO]:
    """Return a logger of its own, and what it writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(EventFormatter(form))
    logger = logging.Logger("shop")  # noqa: LOG001 - one of its own
    logger.addHandler(handler)
    return logger, stream


def test_an_event_is_a_document_with_its_values() -> None:
    """Numbers stay numbers; what JSON has no word for becomes text."""
    logger, stream = logged(JSON)
    error = ValueError("a\nb")
    events.log_event(
        logger, logging.WARNING, "slow", seconds=1.5, tso_commits_total=3, error=error, far=1e999
    )
    found: dict[str, Any] = json.loads(stream.getvalue())
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "event": "slow",
        "level": "warning",
        "seconds": 1.5,
        "tso_commits_total": 3,
        "error": "a\nb",
        "far": "inf",
    }


@pytest.mark.parametrize("form", FORMS)
def test_whatever_is_said_is_one_line(form: str) -> None:
    """Sentences of several lines, tracebacks, and what would move a terminal's cursor."""
    logger, stream = logged(form)
    logger.warning("one\ntwo \x1b[2J")
    try:
        int("three\nfour")
    except ValueError:
        logger.exception("five")
    events.log_event(logger, logging.INFO, "six", reason="seven\neight\x9b", level="mine")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert not any(char in stream.getvalue() for char in "\x1b\x9b")
    if form == JSON:
        first, second, third = map(json.loads, lines)
        assert (first["event"], first["logger"]) == ("log", "shop")
        assert first["message"] == "one\ntwo \x1b[2J"
        assert "ValueError: invalid literal" in second["traceback"]
        assert (third["event"], third["level"], third["level_"]) == ("six", "info", "mine")


def test_both_forms_say_the_same() -> None:
    """By the same keys, in the same order."""
    said = [event_line(form, "e", 0.0, "info", key="two words", n=3) for form in FORMS]
    stamp = "1970-01-01T00:00:00.000+00:00"
    assert said[0] == f'e time={stamp} level=info key="two words" n=3'
    document = {"event": "e", "time": stamp, "level": "info", "key": "two words", "n": 3}
    assert json.loads(said[1]) == document
    assert list(json.loads(said[1])) == list(document)


def test_a_format_that_is_none_is_refused() -> None:
    """Before anything is begun."""
    assert [check_format(form) for form in FORMS] == [TEXT, JSON]
    with pytest.raises(ConfigError, match="'xml' is neither text nor json"):
        check_format("xml")
