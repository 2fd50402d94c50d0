"""Who writes next, who is refused, and what the refusal says."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.storage.base import LockHeld
from omidpy.storage.sqlite import lock as lock_module
from omidpy.storage.sqlite.lock import (
    FairLock,
    FileLock,
    WriteLock,
    _Place,
    describe_holder,
    open_lock_file,
    process_state,
)
from omidpy.testing.contract import in_threads
from tests.machines.waiting import wait_for

DEADLINE_S = 30.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the path of a lock file."""
    return str(tmp_path / "store.db-lock")


def nothing() -> None:
    """Do nothing."""


def taken(path: str, purpose: str) -> FileLock:
    """Take a process lock."""
    lock = FileLock(path, purpose=purpose)
    lock.take()
    return lock


@contextmanager
def held(run: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """Let another thread be inside a lock for the length of a block."""
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        inside.set()
        assert leave.wait(DEADLINE_S)

    thread = threading.Thread(target=run, args=(hold,), daemon=True)
    thread.start()
    assert inside.wait(DEADLINE_S)
    try:
        yield
    finally:
        leave.set()
        thread.join(DEADLINE_S)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s
        os.sched_yield()


# -- among threads ---------------------------------------------------------------------------------


def test_waiting_threads_get_the_mutex_in_their_order() -> None:
    """A thread that writes in a loop must not starve the others."""
    lock = FairLock()
    order: list[int] = []
    threads = []
    with held(lock.run):
        for number in range(5):
            thread = threading.Thread(
                target=lock.run, args=(lambda number=number: order.append(number),), daemon=True
            )
            threads.append(thread)
            thread.start()
            wait_until(lambda number=number: len(lock._line) == number + 2)  # type: ignore[misc]  # a bound default
    for thread in threads:
        thread.join(DEADLINE_S)
    assert order == [0, 1, 2, 3, 4]


def test_a_mutex_not_free_in_time_is_refused_and_stays_whole() -> None:
    """The one who gave up must not be handed the mutex later."""
    lock = FairLock()
    with held(lock.run):
        for timeout_s in (0, 0.01):
            with pytest.raises(TimeoutError):
                lock.run(nothing, timeout_s=timeout_s)
    lock.run(nothing, timeout_s=0)


def test_whoever_left_the_line_without_a_word_holds_nobody_up() -> None:
    """An exception may come at the very line that would leave it, ahead of others or behind."""
    lock = FairLock()
    lock._line.append(_Place())
    lock.run(nothing, timeout_s=0)
    done = threading.Event()
    with held(lock.run):
        gone = _Place()
        lock._line.append(gone)
        thread = threading.Thread(target=lock.run, args=(done.set,), daemon=True)
        thread.start()
        wait_until(lambda: len(lock._line) == 3)
    assert done.wait(DEADLINE_S)
    thread.join(DEADLINE_S)


def test_what_is_done_inside_may_fail() -> None:
    """The mutex is free again."""
    lock = FairLock()

    def fail() -> None:
        raise OSError("the disk is full")

    for _ in range(2):
        with pytest.raises(OSError, match="full"):
            lock.run(fail, timeout_s=0)


# -- among processes -------------------------------------------------------------------------------


def test_two_openings_exclude_each_other(path: str) -> None:
    """Each opening of the file is a process as far as `flock` can tell."""
    locks = [WriteLock(path, timeout_s=DEADLINE_S) for _ in range(3)]
    inside: list[int] = []
    total = 0

    def step() -> None:
        nonlocal total
        inside.append(1)
        assert len(inside) == 1
        total += 1
        inside.pop()

    def work(lock: WriteLock) -> None:
        for _ in range(60):
            lock.run(step)

    in_threads([lambda lock=lock: work(lock) for lock in locks for _ in range(2)])  # type: ignore[misc]  # a bound default
    assert total == 360


def test_a_refusal_names_the_holder_and_the_wait(path: str) -> None:
    """And after the holder has gone, the right is free: whoever gave up left no claim behind."""
    holder, other = WriteLock(path, timeout_s=5), WriteLock(path, timeout_s=0.05)
    for _ in range(3):
        with (
            held(holder.run),
            pytest.raises(StorageUnavailable, match=rf"within 0.05 s.*process {os.getpid()}"),
        ):
            other.run(nothing)
        WriteLock(path, timeout_s=DEADLINE_S).run(nothing)
    other._timeout_s = DEADLINE_S
    other.run(nothing)


def test_whoever_writes_while_the_interpreter_ends_looks_for_himself(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread begins any more that could sleep for him; he waits as long as others do."""
    holder = FileLock(path, purpose="another process")

    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", start)
    pauses: list[float] = []

    def sleep(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 7:
            holder.release()

    monkeypatch.setattr(time, "sleep", sleep)
    written: list[int] = []
    holder.take()
    WriteLock(path, timeout_s=DEADLINE_S).run(lambda: written.append(1))
    assert written == [1]
    holder.take()
    with pytest.raises(StorageUnavailable, match=r"within 0.01 s.*another process"):
        WriteLock(path, timeout_s=0.01).run(nothing)
    holder.release()


def test_many_who_gave_up_share_one_thread_that_sleeps(path: str) -> None:
    """A holder that is stopped for an hour must not cost a thread for each attempt."""
    holder, other = WriteLock(path, timeout_s=5), WriteLock(path, timeout_s=0.01)
    with held(holder.run):
        for _ in range(5):
            with pytest.raises(StorageUnavailable):
                other.run(nothing)
        assert sum(thread.name == "omidpy-write-lock" for thread in threading.enumerate()) == 1


def test_one_who_gave_up_takes_nothing_from_whoever_comes_next(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that still sleeps for him gives the lock to the next, for as long as he needs."""
    may_sleep = threading.Event()
    real_flock = fcntl.flock

    def flock(file: int | FileIO, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            assert may_sleep.wait(DEADLINE_S)
        real_flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    holder, patient, other = (WriteLock(path, timeout_s=0.05) for _ in range(3))
    with held(holder.run):
        with pytest.raises(StorageUnavailable):
            patient.run(nothing)
        patient._timeout_s = DEADLINE_S
        inside, leave = threading.Event(), threading.Event()

        def stay() -> None:
            inside.set()
            assert leave.wait(DEADLINE_S)

        thread = threading.Thread(target=patient.run, args=(stay,), daemon=True)
        thread.start()
        wait_until(lambda: patient._sleeper._claims.qsize() == 2)
    may_sleep.set()
    assert inside.wait(DEADLINE_S)
    with pytest.raises(StorageUnavailable):
        other.run(nothing)
    leave.set()
    thread.join(DEADLINE_S)
    other._timeout_s = DEADLINE_S
    other.run(nothing)


def test_a_lock_that_was_waited_for_is_given_back_however_its_work_ends(path: str) -> None:
    """The thread that keeps it does so, where the writer itself did not come to it."""
    holder, other = (WriteLock(path, timeout_s=DEADLINE_S) for _ in range(2))
    errors: list[BaseException] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def write() -> None:
        try:
            other.run(interrupted)
        except KeyboardInterrupt as error:
            errors.append(error)

    thread = threading.Thread(target=write, daemon=True)
    with held(holder.run):
        thread.start()
        wait_until(other._sleeper._awake.locked)
    thread.join(DEADLINE_S)
    assert errors
    holder.run(nothing)


@pytest.mark.parametrize(("store_mode", "mode"), [(None, 0o600), (0o664, 0o664), (0o755, 0o644)])
def test_a_lock_file_is_for_those_who_may_use_the_store(
    tmp_path: Path, store_mode: int | None, mode: int
) -> None:
    """Before there is a store it is for its owner alone."""
    store, path = tmp_path / "store.db", tmp_path / "store.db-lock"
    if store_mode is not None:
        store.touch()
        store.chmod(store_mode)
    old = os.umask(0)
    try:
        os.close(open_lock_file(str(path)))
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == mode


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
    held = taken(path, "the first")
    monkeypatch.setattr(fcntl, "flock", real_flock)
    with pytest.raises(StorageUnavailable, match="the first"):
        taken(path, "the second")
    held.release()


def test_a_full_disk_spares_the_note(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note serves messages alone."""

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    WriteLock(path, timeout_s=1).run(nothing)
    taken(path, "p").release()


def test_a_removed_lock_file_excludes_nobody_and_is_not_relied_on(path: str) -> None:
    """A tidy operator removes lock files; the one taken next must be the one others find."""
    first = taken(path, "the first")
    Path(path).unlink()
    second = taken(path, "the second")
    with pytest.raises(StorageUnavailable, match="the second"):
        taken(path, "the third")
    first.release()
    with pytest.raises(StorageUnavailable, match="the second"):
        taken(path, "the third")
    second.release()


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOMEM])
def test_a_lock_file_that_cannot_be_looked_at_is_not_taken_for_removed(
    path: str, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It may have been, so that it is not relied on until the system tells."""
    looked, other = os.stat, f"{path}2"

    def fail(name: Any, *rest: Any, **options: Any) -> os.stat_result:
        if name in (path, other):
            raise OSError(number, os.strerror(number))
        return looked(name, *rest, **options)

    held = taken(path, "the first")
    Path(other).touch()
    monkeypatch.setattr(os, "stat", fail)
    wait_for(lambda: not held.excludes, 10)
    assert not held.was_removed
    with pytest.raises(StorageUnavailable, match=f"cannot lock .*{os.strerror(number)}"):
        taken(other, "another")
    monkeypatch.undo()
    wait_for(lambda: held.excludes, 10)
    Path(path).unlink()
    wait_for(lambda: not held.excludes, 10)
    assert held.was_removed
    held.release()


def test_a_system_that_grants_no_lock_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has it, so that to wait for another process would be no help."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(StorageUnavailable, match="local disk") as caught:
        taken(path, "p")
    assert not isinstance(caught.value, LockHeld)


def test_a_released_lock_leaves_no_descriptor(path: str) -> None:
    """A refused one neither."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    held = taken(path, "p")
    with pytest.raises(StorageUnavailable):
        taken(path, "q")
    held.release()
    held.release()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_an_unreachable_lock_file_is_named(tmp_path: Path) -> None:
    """The remedy is a writable directory."""
    with pytest.raises(StorageUnavailable, match="writable"):
        taken(str(tmp_path / "absent" / "x.lock"), "p")


def test_a_lock_file_without_a_descriptor_says_what_to_allow(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was said to be about a directory without room."""

    def full(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StorageUnavailable, match="ulimit -n") as caught:
        lock_module.open_lock_file(path)
    assert "directory" not in str(caught.value)


def test_a_lock_with_a_strange_note_is_still_described(path: str) -> None:
    """Another program's file, or one whose holder had no time to write."""
    for note in (b"", b"\xff\xfe nonsense", b"99999999 long gone"):
        Path(path).write_bytes(note)
        lock, other = WriteLock(path, timeout_s=0.01), WriteLock(path, timeout_s=5)
        with held(other.run):
            Path(path).write_bytes(note)
            with pytest.raises(
                StorageUnavailable, match=f"held by process {os.getpid()}, which is"
            ):
                lock.run(nothing)
        WriteLock(path, timeout_s=DEADLINE_S).run(nothing)


def test_a_note_of_an_earlier_holder_accuses_nobody(path: str) -> None:
    """Its process may have ended, and another have its number: to end that would be of no use."""
    bystander = os.getppid()
    lock, other = WriteLock(path, timeout_s=0.01), WriteLock(path, timeout_s=5)
    with held(other.run):
        Path(path).write_bytes(f"{bystander} writing".encode())
        with pytest.raises(StorageUnavailable) as refused:
            lock.run(nothing)
    assert str(bystander) not in str(refused.value)
    assert f"process {os.getpid()}, which is this process" in str(refused.value)


def test_a_holder_of_whom_the_kernel_does_not_tell_is_not_named(
    path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In another container the numbers are others, and elsewhere nothing tells."""
    Path(path).write_bytes(b"1 writing")
    found = describe_holder(path)
    assert found.startswith("another process, ")
    assert "may have been an earlier one" in found
    for kernels in (tmp_path / "absent", tmp_path / "locks"):
        monkeypatch.setattr(lock_module, "_LOCKS", kernels)
        assert describe_holder(path) == found
        stat = Path(path).stat()
        place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
        lines = [
            f"1: FLOCK  ADVISORY  WRITE -1 {place} 0 EOF",
            f"2: POSIX  ADVISORY  WRITE 7 {place} 0 EOF",
            f"3: FLOCK  ADVISORY  WRITE 8 {place}1 0 EOF",
            f"3: -> FLOCK  ADVISORY  WRITE 9 {place} 0 EOF",
            "",
        ]
        (tmp_path / "locks").write_text("\n".join(lines))


def test_a_holder_at_work_and_one_that_waits_are_told_the_same(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `tso-server` that stands by wrote a line for each change, ten times a second."""
    monkeypatch.setattr(lock_module, "_holding_process", lambda _: 2**22 + 1)
    told = set()
    for letter in "RSD":
        monkeypatch.setattr(lock_module, "process_state", lambda _, letter=letter: letter)
        told.add(describe_holder(path))
    (text,) = told
    assert "which is running" in text


def test_the_state_of_a_process_is_one_letter() -> None:
    """None where the system does not tell."""
    assert process_state(os.getpid()) in {"R", "S"}
    assert process_state(2**22 + 1) is None
