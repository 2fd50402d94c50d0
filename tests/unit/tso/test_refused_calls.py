"""The system refuses one call after the other: what a commit is told is true, and it goes on."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy
from omidpy.errors import CommitOutcomeUnknown, OmidError

CALLS: Final = ("open", "stat", "fstat", "pwrite", "pread", "fsync", "link", "unlink")
URL: Final = "sqlite:///{}"


class Refusing:
    """Lets all calls pass but one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self._number = number
        self._left: int | None = None
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))
        monkeypatch.setattr(fcntl, "flock", self._wrapped(fcntl.flock))
        monkeypatch.setattr(threading.Thread, "start", self._wrapped(threading.Thread.start, True))

    def _wrapped(self, call: Callable[..., Any], is_thread: bool = False) -> Callable[..., Any]:  # noqa: FBT001, FBT002 - one of two
        def wrapped(*args: Any, **options: Any) -> Any:
            if self._left is not None:
                self._left -= 1
                if self._left == -1:
                    if is_thread:
                        raise RuntimeError("can't start new thread")
                    raise OSError(self._number, os.strerror(self._number))
            return call(*args, **options)

        return wrapped

    def refused(self, at: int, work: Callable[[], object]) -> tuple[bool, OmidError | None]:
        """Work without one call; say whether there was such a one, and what came out."""
        self._left = at
        try:
            work()
        except OmidError as error:
            return self._left < 0, error
        else:
            return self._left < 0, None
        finally:
            self._left = None


@pytest.fixture(params=[errno.EIO, errno.EMFILE, errno.ENOSPC])
def refusing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Refusing:
    """Return one for each way in which a system refuses."""
    return Refusing(monkeypatch, request.param)


def test_a_commit_is_told_what_it_is_and_the_next_one_commits(
    refusing: Refusing, tmp_path: Path
) -> None:
    """At every call, also of those that open the file anew behind an error."""
    with omidpy.connect(URL.format(tmp_path / "store.db")) as tm:
        tm.create_table("t", ["cf"])
        for at in itertools.count():
            row = b"%d" % at
            file: Any = tm.store._file  # type: ignore[attr-defined]
            file.write_lock.run_in_process(file._close_writers)

            def commit(row: bytes = row) -> None:
                with tm.begin() as tx:
                    tx.table("t").put(row, {b"cf:q": b"1"})

            was_refused, error = refusing.refused(at, commit)
            commit(b"next %d" % at)
            with tm.begin(read_only=True) as tx:
                is_there = bool(tx.table("t").row(row))
            assert is_there or error is not None, at
            assert isinstance(error, CommitOutcomeUnknown | None) or not is_there, (at, error)
            if not was_refused:
                break
    assert at > 8


def test_a_store_that_could_not_be_opened_can_be_later(refusing: Refusing, tmp_path: Path) -> None:
    """And what is raised is an error of ours, which says why."""
    for at in itertools.count():
        url = URL.format(tmp_path / f"{at}.db")
        was_refused, _ = refusing.refused(at, lambda url=url: omidpy.connect(url).close())  # type: ignore[misc]
        omidpy.connect(url).close()
        if not was_refused:
            break
    assert at > 50
