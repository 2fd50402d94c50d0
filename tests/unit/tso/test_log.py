"""Lines of the server's log: an event with its values, or a sentence as a value."""

from __future__ import annotations

import io
import logging

import pytest

from tso import log


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Return what a server would write to stderr."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    root = logging.Logger("root")  # noqa: LOG001 - pytest has its handlers on the real one
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logging.Logger, "root", root)
    log.configure_logging()
    return written


def test_an_event_comes_first_and_a_sentence_is_a_value(lines: io.StringIO) -> None:
    """Whoever splits lines by their first word must not find the first word of a sentence."""
    logger = logging.root
    logger.name = "tso.persist"
    log.log_event(logger, logging.INFO, "stopped", signal="SIGTERM", reason="two words")
    logger.warning("Omid kept its timestamps elsewhere")
    event, sentence = lines.getvalue().splitlines()
    assert event.startswith("stopped time=")
    assert event.endswith(' level=info signal=SIGTERM reason="two words"')
    assert sentence.startswith("log time=")
    assert sentence.endswith(
        ' level=warning logger=tso.persist message="Omid kept its timestamps elsewhere"'
    )
