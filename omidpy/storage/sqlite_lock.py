"""Who may write to the file now?  First one thread of this process, then one process.

`flock` rights on small files beside the database.  The kernel frees them when their holder dies, a
waiter sleeps until it is its turn, and the file names the holder, so that one that is stopped can
be reported.  SQLite's own way is to poll, which starves writers under load.

A `flock` belongs to the open file, which `fork` shares: so write locks are closed before a fork,
and a child closes its copy of a process lock without unlocking it.  No descriptor outlives `exec`.

Lacks waiting for a process lock, and fairness among processes beyond the kernel's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

from omidpy.errors import StorageUnavailable

_SHORT_PAUSES_S: Final = (0.00005, 0.0001, 0.0002, 0.0004)
"""How long to try again before a thread is made that sleeps: most writers are done by then."""

_NOTE_BYTES: Final = 512
"""A note in a lock file: the holder's pid, a space, its purpose, padded with spaces."""


class FairLock:
    """A mutex whose waiters get it in the order in which they came."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiters: deque[threading.Lock] = deque()

    def acquire(self, timeout_s: float = -1) -> bool:
        """Take the mutex; False if `timeout_s` seconds passed first; negative waits for ever."""
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiters.append(turn)
        if turn.acquire(timeout=timeout_s if timeout_s < 0 else min(timeout_s, 1e6)):
            return True
        with self._guard:
            if turn in self._waiters:
                self._waiters.remove(turn)
                return False
        return True  # handed over between the timeout and the guard

    def release(self) -> None:
        """Hand the mutex to the longest waiter, or free it."""
        with self._guard:
            if self._waiters:
                self._waiters.popleft().release()
            else:
                self._is_held = False


class _Waiter:
    """A thread asleep in `flock` for the one thread that may ask."""

    def __init__(self) -> None:
        self.is_done = threading.Event()
        self.is_wanted = True
        self.is_detached = False
        self.error: OSError | None = None


class WriteLock:
    """The right to write, as a context manager; not reentrant.

    At most `timeout_s` seconds pass before it is refused.  The sleep is a thread's, because a
    blocked `flock` has no timeout; if nobody wants the lock any more when the thread gets it, it
    gives it back.
    """

    def __init__(self, path: str, *, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._fd: int | None = None
        self._threads = FairLock()
        self._guard = threading.Lock()
        self._waiter: _Waiter | None = None
        self._note = b""

    def __enter__(self) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        if not self._threads.acquire(self._timeout_s):
            raise self._refusal()
        try:
            self._acquire_file(deadline_s)
        except BaseException:
            self._release()  # an interrupt may have come after the lock did
            raise

    def __exit__(self, *exc_info: object) -> None:
        self._release()

    def _release(self) -> None:
        try:
            if self._fd is not None:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def _acquire_file(self, deadline_s: float) -> None:
        if self._fd is None:
            self._fd = open_lock_file(self._path)
            self._note = _note(os.getpid(), "writing")
        # While a waiter sleeps on this open file, an attempt of our own would succeed together with
        # it, and its giving back would then free what we hold.
        if self._waiter is not None or not self._try_file(self._fd, deadline_s):
            self._wait(self._fd, deadline_s)
        # The note serves messages alone: a full disk must not turn it into a failure.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, self._note, 0)

    def _try_file(self, fd: int, deadline_s: float) -> bool:
        for pause_s in (*_SHORT_PAUSES_S, None):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if pause_s is None or time.monotonic() + pause_s > deadline_s:
                    return False
                time.sleep(pause_s)
            else:
                return True
        return False

    def _wait(self, fd: int, deadline_s: float) -> None:
        with self._guard:
            waiter = self._waiter
            if waiter is None:
                waiter = self._waiter = _Waiter()
                thread = threading.Thread(
                    target=self._sleep, args=(fd, waiter), name="omidpy-write-lock", daemon=True
                )
                thread.start()
            waiter.is_wanted = True
        try:
            waiter.is_done.wait(max(0.0, deadline_s - time.monotonic()))
        finally:
            with self._guard:
                if waiter.is_done.is_set():
                    self._waiter = None
                else:
                    waiter.is_wanted = False
        if not waiter.is_done.is_set():
            raise self._refusal()
        if waiter.error is not None:
            raise StorageUnavailable(
                f"cannot lock {self._path}: {waiter.error}; keep the store on a local disk"
            ) from waiter.error

    def _sleep(self, fd: int, waiter: _Waiter) -> None:
        error = None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as caught:
            error = caught
        with self._guard:
            if waiter.is_detached:
                return  # the descriptor was closed, and the lock went with the last use of its file
            if waiter.is_wanted:
                waiter.error = error
                waiter.is_done.set()
                return
            self._waiter = None
            if error is None:
                fcntl.flock(fd, fcntl.LOCK_UN)

    def _refusal(self) -> StorageUnavailable:
        holder = describe_holder(self._path)
        return StorageUnavailable(
            f"no right to write within {self._timeout_s:g} s: {self._path} is held by {holder}"
        )

    # -- fork and close ---------------------------------------------------------------------------

    def suspend(self) -> None:
        """Wait for the writer of this process, keep others out, and close the file."""
        self._threads.acquire()
        self._guard.acquire()
        self._close_file()

    def resume(self) -> None:
        """Undo `suspend`; the file is opened again by the next writer."""
        self._guard.release()
        self._threads.release()

    def resume_in_child(self) -> None:
        """Undo `suspend` in a forked child, where threads that waited do not exist."""
        self._threads = FairLock()
        self._guard = threading.Lock()

    def _close_file(self) -> None:
        if self._waiter is not None:
            self._waiter.is_detached = True
            self._waiter = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class FileLock:
    """A `ProcessLock` on a file; taken by the constructor, without waiting."""

    def __init__(self, path: str, *, purpose: str) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._fd: int | None = _lock_now(path)
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, _note(os.getpid(), purpose), 0)

    def release(self) -> None:
        """Give the right up; a second call does nothing."""
        with self._mutex:
            fd, self._fd = self._fd, None
        if fd is not None:
            # Unlocking first frees the lock even while a child, between fork and its first
            # instruction of ours, still has the open file.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    @property
    def is_held(self) -> bool:
        """Whether this process holds it."""
        return self._fd is not None

    def forget_in_child(self) -> None:
        """Close a forked child's copy; the parent keeps the lock."""
        self._mutex = threading.Lock()
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def _lock_now(path: str) -> int:
    while True:
        fd = open_lock_file(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            raise StorageUnavailable(f"{path} is held by {describe_holder(path)}") from None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # somebody removed the file meanwhile: a lock on it excludes nobody


def _is_still(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116  a pair with fstat
    except FileNotFoundError:
        return False


def open_lock_file(path: str) -> int:
    """Open a lock file, made if absent.

    Raises:
        StorageUnavailable: naming the file and the remedy.
    """
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StorageUnavailable(
            f"cannot open the lock file {path}: {error.strerror}; writing needs a writable "
            "directory with free space beside the store"
        ) from error


def _note(pid: int, purpose: str) -> bytes:
    return f"{pid} {purpose}".encode()[: _NOTE_BYTES - 1].ljust(_NOTE_BYTES - 1) + b"\n"


def describe_holder(path: str) -> str:
    """Say who holds a lock file, as far as the file and the system tell."""
    try:
        note = Path(path).read_bytes()[:_NOTE_BYTES].decode(errors="replace").strip()
    except OSError:
        note = ""
    pid_text, _, purpose = note.partition(" ")
    if not pid_text.isdigit():
        return "another process"
    pid = int(pid_text)
    return f"process {pid} ({purpose}), {_condition(pid)}"


def _condition(pid: int) -> str:
    state = process_state(pid)
    if state in {"T", "t"}:
        return f"which is stopped; continue it with `kill -CONT {pid}`, or end it"
    if state is None:
        return "which has just ended, or runs in another container; try again, or look for it there"
    if pid == os.getpid():
        return "which is this process; release it, or use the object that has it"
    return f"which is running (state {state}); wait for it, or end it"


def process_state(pid: int) -> str | None:
    """Return the one-letter state of a process as /proc has it; None where that does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]
