"""Who writes next, who is refused, and what the refusal says."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.storage.sqlite_lock import FairLock, FileLock, WriteLock, process_state
from omidpy.testing.contract import in_threads


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of a lock file."""
    return str(tmp_path / "store.db-lock")


def test_waiting_threads_get_the_mutex_in_their_order() -> None:
    """A thread that writes in a loop must not starve the others."""
    lock = FairLock()
    order: list[int] = []
    lock.acquire()

    def take(number: int) -> None:
        assert lock.acquire(30)
        order.append(number)
        lock.release()

    threads = []
    for number in range(5):
        threads.append(threading.Thread(target=take, args=(number,), daemon=True))
        threads[-1].start()
        deadline_s = time.monotonic() + 30
        while len(lock._waiters) <= number:
            assert time.monotonic() < deadline_s
            os.sched_yield()
    lock.release()
    for thread in threads:
        thread.join(30)
    assert order == [0, 1, 2, 3, 4]


def test_a_mutex_not_free_in_time_is_refused_and_stays_whole() -> None:
    """The one who gave up must not be handed the mutex later."""
    lock = FairLock()
    lock.acquire()
    assert not lock.acquire(0)
    assert not lock.acquire(0.01)
    lock.release()
    assert lock.acquire(0)
    lock.release()


def test_two_openings_exclude_each_other(path: str) -> None:
    """Each opening of the file is a process as far as `flock` can tell."""
    locks = [WriteLock(path, timeout_s=30) for _ in range(3)]
    inside: list[int] = []
    total = 0

    def work(lock: WriteLock) -> None:
        nonlocal total
        for _ in range(60):
            with lock:
                inside.append(1)
                assert len(inside) == 1
                total += 1
                inside.pop()

    in_threads([lambda lock=lock: work(lock) for lock in locks for _ in range(2)])  # type: ignore[misc]  # a bound default
    assert total == 360
    close(*locks)


def test_a_refusal_names_the_holder_and_the_wait(path: str) -> None:
    """And after the holder has gone, the right is free: whoever gave up left no claim behind."""
    holder, other = WriteLock(path, timeout_s=5), WriteLock(path, timeout_s=0.05)
    with (
        holder,
        pytest.raises(StorageUnavailable, match=rf"within 0.05 s.*process {os.getpid()}"),
        other,
    ):
        pass
    for _ in range(3):
        with holder:
            pass
        with WriteLock(path, timeout_s=5), pytest.raises(StorageUnavailable), other:
            pass
    with WriteLock(path, timeout_s=30):
        pass
    other._timeout_s = 30
    with other:
        pass
    close(holder, other)


def test_one_who_gave_up_takes_nothing_from_himself(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """His sleeping thread shares the open file with his next attempt, and gives back for both."""
    may_sleep, is_inside, is_checked = (threading.Event() for _ in range(3))
    real_flock = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            assert may_sleep.wait(30)
        real_flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    holder, patient, other = (WriteLock(path, timeout_s=0.05) for _ in range(3))
    with holder, pytest.raises(StorageUnavailable), patient:
        pass
    sleepers = [thread for thread in threading.enumerate() if "write-lock" in thread.name]
    waiter = patient._waiter
    assert waiter is not None
    patient._timeout_s = 30

    def try_again() -> None:
        with patient:
            is_inside.set()
            assert is_checked.wait(30)

    def check() -> None:
        deadline_s = time.monotonic() + 30
        while not (waiter.is_wanted or is_inside.is_set()):
            assert time.monotonic() < deadline_s
            os.sched_yield()
        may_sleep.set()
        assert is_inside.wait(30)
        for sleeper in sleepers:
            sleeper.join(30)
        try:
            with pytest.raises(StorageUnavailable), other:
                pass
        finally:
            is_checked.set()

    in_threads([try_again, check])
    close(holder, patient, other)


def test_a_lock_file_removed_between_opening_and_locking_is_made_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a file that has no name any more excludes nobody."""
    real_flock = fcntl.flock
    removals = iter([True, False])

    def flock(fd: int, operation: int) -> None:
        real_flock(fd, operation)
        if operation & fcntl.LOCK_EX and next(removals):
            Path(path).unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    held = FileLock(path, purpose="the first")
    monkeypatch.setattr(fcntl, "flock", real_flock)
    with pytest.raises(StorageUnavailable, match="the first"):
        FileLock(path, purpose="the second")
    held.release()


def test_a_full_disk_spares_the_note(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note serves messages alone."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    lock = WriteLock(path, timeout_s=1)
    with lock:
        pass
    FileLock(path, purpose="p").release()
    close(lock)


def test_a_removed_lock_file_excludes_nobody_and_is_not_relied_on(path: str) -> None:
    """A tidy operator removes lock files; the one taken next must be the one others find."""
    first = FileLock(path, purpose="the first")
    Path(path).unlink()
    second = FileLock(path, purpose="the second")
    with pytest.raises(StorageUnavailable, match="the second"):
        FileLock(path, purpose="the third")
    first.release()
    with pytest.raises(StorageUnavailable, match="the second"):
        FileLock(path, purpose="the third")
    second.release()


def test_a_released_lock_leaves_no_descriptor(path: str) -> None:
    """A refused one neither."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = FileLock(path, purpose="p")
    with pytest.raises(StorageUnavailable):
        FileLock(path, purpose="q")
    held.release()
    held.release()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_unreachable_lock_file_is_named(tmp_path: Path) -> None:
    """The remedy is a writable directory."""
    with pytest.raises(StorageUnavailable, match="writable"):
        FileLock(str(tmp_path / "absent" / "x.lock"), purpose="p")


def test_a_lock_with_a_strange_note_is_still_described(path: str) -> None:
    """Another program's file, or one whose holder had no time to write."""
    for note in (b"", b"\xff\xfe nonsense", b"99999999 long gone"):
        Path(path).write_bytes(note)
        lock, other = WriteLock(path, timeout_s=0.01), WriteLock(path, timeout_s=5)
        with other:
            Path(path).write_bytes(note)
            with pytest.raises(StorageUnavailable, match=r"another process|long gone"), lock:
                pass
        with WriteLock(path, timeout_s=30):
            pass
        close(lock, other)


def test_the_state_of_a_process_is_one_letter() -> None:
    """None where the system does not tell."""
    assert process_state(os.getpid()) in {"R", "S"}
    assert process_state(2**22 + 1) is None


def close(*locks: WriteLock) -> None:
    """Close the files of locks, as their store would."""
    for lock in locks:
        lock.suspend()
        lock.resume()
