"""Lines of the server's log: an event with its values, or a sentence as a value."""

from __future__ import annotations

import io
import logging
import os
import threading
from itertools import count

import pytest

from omidpy.base.clock import ManualClock
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
    log.log_event(logger, logging.INFO, "standby", holder="\x1b[2J \x9b")
    log.flush_logging()
    event, sentence, escaped = lines.getvalue().split("\n")[:3]
    assert event.startswith("stopped time=")
    assert event.endswith(' level=info signal=SIGTERM reason="two words"')
    assert sentence.startswith("log time=")
    assert sentence.endswith(
        ' level=warning logger=tso.persist message="Omid kept its timestamps elsewhere"'
    )
    assert escaped.endswith(r'holder="\u001b[2J \x9b"')


def test_a_pipe_that_nobody_reads_holds_up_nobody() -> None:
    """An unread stderr and 1,500 bad connections stopped the oracle."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader, os.fdopen(writing, "w") as stream:
        # A second passes with each line, so that no limit of the rate stops them before.
        handler = log.PatientHandler(stream, clock=count().__next__)
        logger = logging.Logger("tso")  # noqa: LOG001 - one of its own
        logger.addHandler(handler)
        line = "x" * 1000

        def log_much() -> None:
            for _ in range(1500):
                logger.warning(line)

        flood = threading.Thread(target=log_much)
        flood.start()
        flood.join(30)
        is_stuck = flood.is_alive()
        waiting_count = handler._lines.qsize()
        for _ in range(log.MAX_WAITING_LINES):
            assert reader.readline() == f"{line}\n"
        flood.join(30)
        handler.flush()
    assert not is_stuck
    assert 0 < waiting_count <= log.MAX_WAITING_LINES


def test_lines_are_limited_in_rate_and_the_lost_ones_counted() -> None:
    """What a hostile client makes us say filled 50 MB in ten seconds."""
    clock, written = ManualClock(), io.StringIO()
    handler = log.PatientHandler(written, clock=clock.monotonic_s)
    logger = logging.Logger("tso")  # noqa: LOG001 - one of its own
    logger.addHandler(handler)
    for _ in range(log.MAX_BURST_LINES + 7):
        logger.warning("again")
    clock.advance(2.5 / log.MAX_LINES_PER_S)
    for number in range(3):
        logger.warning("number %d", number)
    handler.flush()
    assert written.getvalue().count("again") == log.MAX_BURST_LINES
    lost, *last = written.getvalue().splitlines()[log.MAX_BURST_LINES :]
    assert lost.startswith("log-lines-lost time=")
    assert lost.endswith(" level=warning count=7")
    assert last == ["number 0", "number 1"]


def test_silence_saves_no_more_than_a_burst() -> None:
    """An oracle that said nothing for a month may not say a month's worth at once."""
    clock, written = ManualClock(), io.StringIO()
    handler = log.PatientHandler(written, clock=clock.monotonic_s)
    logger = logging.Logger("tso")  # noqa: LOG001 - one of its own
    logger.addHandler(handler)
    clock.advance(30 * 86_400)
    for _ in range(log.MAX_BURST_LINES + 7):
        logger.warning("again")
    handler.flush()
    assert written.getvalue().count("again") == log.MAX_BURST_LINES
