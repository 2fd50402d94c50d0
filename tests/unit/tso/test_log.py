"""Lines of the server's log: an event with its values, or a sentence as a value."""

from __future__ import annotations

import io
import logging
import os
import threading
from itertools import count
from pathlib import Path

import pytest

from omidpy.base.timing.clock import ManualClock
from tso.serving import log


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
    logger.name = "tso.durable.persist"
    log.log_event(logger, logging.INFO, "stopped", signal="SIGTERM", reason="two words")
    logger.warning("Omid kept its timestamps elsewhere")
    log.log_event(logger, logging.INFO, "standby", holder="\x1b[2J \x9b")
    log.flush_logging()
    event, sentence, escaped = lines.getvalue().split("\n")[:3]
    assert event.startswith("stopped time=")
    assert event.endswith(' level=info signal=SIGTERM reason="two words"')
    assert sentence.startswith("log time=")
    assert sentence.endswith(
        ' level=warning logger=tso.durable.persist message="Omid kept its timestamps elsewhere"'
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


def test_a_line_reaches_no_file_that_took_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    """It may be a store's: lines of a log in it are the end of that store."""
    with (tmp_path / "log").open("w") as stream:
        handler = log.PatientHandler(stream)
        number = stream.fileno()
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)
    try:
        if other != number:
            os.dup2(other, number)
        handler.say("a line")
        handler.flush()
        assert os.fstat(other).st_size == 0
    finally:
        os.close(other)
        if other != number:
            os.close(number)
    assert (tmp_path / "log").read_text() == "a line\n"


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


def said(
    handler: log.PatientHandler, *, about: object, count: int, reason: str = "", event: str = "e"
) -> None:
    """Say the same so many times, of connections with a number each."""
    logger = logging.Logger("tso")  # noqa: LOG001 - one of its own
    logger.addHandler(handler)
    for number in range(count):
        reason_here = reason.format(number)
        log.log_event(
            logger,
            logging.WARNING,
            event,
            about=about,
            peer=f"{about}:{number}",
            reason=reason_here,
        )


def test_a_noisy_peer_hides_no_line_about_another() -> None:
    """It spent what all lines had, and what happened to others was not in the log."""
    clock, written = ManualClock(), io.StringIO()
    handler = log.PatientHandler(written, clock=clock.monotonic_s)
    for _ in range(20):
        said(handler, about="noisy", count=500, reason="commit {} of another")
        said(handler, about="other", count=1, reason="a request of {} bytes")
        handler.flush()
        clock.advance(1.0)
    lines = written.getvalue().splitlines()
    assert sum("peer=other" in line for line in lines) == 20
    noisy = sum("peer=noisy" in line for line in lines)
    assert noisy >= log.BURST_LINES_OF_CAUSE
    assert noisy <= log.BURST_LINES_OF_CAUSE + 20 * log.LINES_PER_S_OF_CAUSE


def test_one_cause_of_a_peer_hides_no_other_and_many_causes_no_other_peer() -> None:
    """Whoever chooses the words of its own lines has as many as any other."""
    clock, written = ManualClock(), io.StringIO()
    handler = log.PatientHandler(written, clock=clock.monotonic_s)
    said(handler, about="noisy", count=1000, reason="the same {}")
    said(handler, about="noisy", count=1, reason="something else")
    handler.flush()
    assert "something else" in written.getvalue()
    for word in range(log.MAX_KIND_COUNT + 1000):
        said(handler, about="noisy", count=1, reason=chr(0x4E00 + word))
    said(handler, about="other", count=1)
    handler.flush()
    lines = written.getvalue().splitlines()
    assert sum("peer=noisy" in line for line in lines) == log.BURST_LINES_ABOUT_ONE
    assert sum("peer=other" in line for line in lines) == 1


def test_many_noisy_peers_leave_a_reserve_and_memory_stays_bounded() -> None:
    """What was not heard for long is said once all the same."""
    clock, written = ManualClock(), io.StringIO()
    handler = log.PatientHandler(written, clock=clock.monotonic_s)
    for peer in range(12):
        said(handler, about=f"noisy{peer}", count=60)
        handler.flush()
    said(handler, about="quiet", count=2)
    said(handler, about=None, count=2, event="lease-lost")
    handler.flush()
    lines = written.getvalue().splitlines()
    assert sum("peer=noisy" in line for line in lines) <= log.MAX_BURST_LINES + 2
    assert sum("peer=quiet" in line for line in lines) == 1
    assert sum(line.startswith("lease-lost") for line in lines) == 1
    for peer in range(2 * log.MAX_KIND_COUNT):
        said(handler, about=peer, count=1)
    handler.flush()
    assert len(handler._limiter._kinds) <= log.MAX_KIND_COUNT
    bound = log.MAX_BURST_LINES + log.RESERVED_BURST_LINES
    assert sum(" peer=" in line for line in written.getvalue().splitlines()) <= bound
