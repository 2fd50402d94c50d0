"""Pytest's side of `make quick`, which ends in time: what is not begun by then is left out.

    python -m pytest -p tests.machines.in_time --in-time SECONDS FILES

No test is stopped; one whose turn comes later is skipped, and at the end it is said how many tests
of which files were.  Whatever is to run whichever way belongs to the front.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

import pytest

LEFT_OUT: Final = "left out: the time of this run was over"


class InTime:
    """Skips what is not begun before a deadline, and says what was."""

    def __init__(self, deadline_s: float) -> None:
        """Skip from a time of the monotonic clock on."""
        self._deadline_s = deadline_s

    @pytest.hookimpl(tryfirst=True)  # before any fixture is made
    def pytest_runtest_setup(self) -> None:
        """Leave out a test whose turn comes too late."""
        if time.monotonic() >= self._deadline_s:
            pytest.skip(LEFT_OUT)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say which files had tests that were left out."""
        files = Counter(
            report.nodeid.partition("::")[0]
            for report in terminalreporter.stats.get("skipped", [])
            if LEFT_OUT in str(report.longrepr)
        )
        for file, count in files.items():
            terminalreporter.write_line(f"left out, since time was over: {count} tests of {file}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the number of seconds."""
    parser.addoption("--in-time", type=float, default=None, metavar="SECONDS")


def pytest_configure(config: pytest.Config) -> None:
    """Count from here; workers begin a moment later."""
    seconds: float | None = config.getoption("--in-time")
    if seconds is not None:
        config.pluginmanager.register(InTime(time.monotonic() + seconds), "in-time")
