"""A heart beats until it is over, and no failure ends it sooner."""

from __future__ import annotations

import logging

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.life.heart import beat_until

log = logging.getLogger("whose-heart")


class Life:
    """What is over after some beats, whose pauses nobody waits for."""

    def __init__(self, *failures: Exception | None) -> None:
        self._failures = list(failures)
        self.pauses_s: list[float] = []

    def is_over(self, pause_s: float) -> bool:
        """Note how long to wait; say whether every beat was made."""
        self.pauses_s.append(pause_s)
        return not self._failures

    def beat(self) -> bool:
        """Fail as it was told to."""
        if (failure := self._failures.pop(0)) is not None:
            raise failure
        return True


def test_a_heart_waits_before_each_beat_and_makes_none_once_it_is_over() -> None:
    """Who has just registered need not show life again, and who has ended must not."""
    life = Life(None, None)
    beat_until(life.is_over, life.beat, every_s=2.5, who="somebody", log=log)
    assert life.pauses_s == [2.5, 2.5, 2.5]


def test_no_failure_ends_a_heart_and_each_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A process that is at work would be taken for dead."""
    life = Life(StorageUnavailable("away"), RuntimeError("a bug"), None)
    beat_until(life.is_over, life.beat, every_s=2.5, who="somebody", log=log)
    refused, unexpected = caplog.records
    assert refused.getMessage() == "cannot show that somebody lives: away"
    assert (refused.levelname, refused.exc_info) == ("WARNING", None)
    assert unexpected.getMessage() == "the heart of somebody stumbles: RuntimeError('a bug')"
    assert unexpected.exc_info is not None
    assert {record.name for record in caplog.records} == {"whose-heart"}


def test_a_heart_that_fails_for_long_does_not_fill_a_log(caplog: pytest.LogCaptureFixture) -> None:
    """A disk is full for a weekend, at several beats a second."""
    life = Life(*[StorageUnavailable("away")] * 100, *[RuntimeError("a bug")] * 100)
    beat_until(life.is_over, life.beat, every_s=2.5, who="somebody", log=log)
    assert len(caplog.records) == 2


def test_what_ends_a_thread_ends_a_heart() -> None:
    """It is no failure of a beat."""

    def beat() -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        beat_until(lambda _: False, beat, every_s=1.0, who="somebody", log=log)
