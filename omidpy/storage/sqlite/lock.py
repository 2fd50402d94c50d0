"""Who may write to the file now?  First one thread of this process, then one process.

`flock` rights on small files beside the database.  The kernel frees them when their holder dies, a
waiter sleeps until it is its turn, and the file names the holder, so that one that is stopped can
be reported.  SQLite's own way is to poll, which starves writers under load.

An exception may come at any line of a writer, while it waits or after it was let in.  So what
others wait for is held by `within` alone: a place in line as long as its thread stands in it, and
a lock on the file as long as the file is open, each time anew.  Where a thread of our own sleeps
in `flock` for a writer, it gives the lock back once the writer has left, however it left.

A `flock` belongs to the open file, which `fork` shares: a child closes its copies without unlocking
them.  No descriptor outlives `exec`.

Lacks waiting for a process lock, and fairness among processes beyond the kernel's.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from io import FileIO
from math import inf
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from omidpy.base.timing.clock import SystemClock
from omidpy.base.within import within
from omidpy.errors import StorageUnavailable
from omidpy.storage.base import LockHeld

T = TypeVar("T")

_SHORT_PAUSES_S: Final = (0.00005, 0.0001, 0.0002, 0.0004)
"""How long to try again before a thread is made that sleeps: most writers are done by then."""

_LOOK_S: Final = 0.05
"""How often one who waits in line looks whether the first in it left without a word."""

NAME_LOOK_S: Final = 0.1
"""How often a lock looks whether its file was removed."""

_LOCKS: Final = Path("/proc/locks")

NOTE_BYTES: Final = 512
"""A note in a lock file: the holder's pid, a space, its purpose, padded with spaces.

What lies behind it is a mark (`gaps.py`)."""


class _Place:
    """A place in line."""

    __slots__ = ("called", "taken")

    def __init__(self) -> None:
        self.taken = threading.Lock()
        """Held as long as its thread stands there, or is inside."""
        self.called: SimpleQueue[None] | None = None
        """How its thread is told that the line has moved on, if it waits."""


class FairLock:
    """Lets one thread in at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._inside = threading.Lock()
        """What excludes; the line is for the order."""
        self._line: deque[_Place] = deque()

    def run(
        self,
        work: Callable[[], T],
        *,
        timeout_s: float = inf,
        refusal: Callable[[], Exception] = TimeoutError,
    ) -> T:
        """Return what `work` returns, called when this thread's turn has come.

        Args:
            work: What to do inside.
            timeout_s: How long to wait at most.
            refusal: Makes the exception to raise then.
        """
        place = _Place()
        return within(place.taken, self._run_in_line, place, work, timeout_s, refusal)

    def _run_in_line(
        self,
        place: _Place,
        work: Callable[[], T],
        timeout_s: float,
        refusal: Callable[[], Exception],
    ) -> T:
        self._line.append(place)
        try:
            if self._first() is not place and not self._is_called(place, timeout_s):
                raise refusal()
            return within(self._inside, work)
        finally:
            self._leave(place)

    def _is_called(self, place: _Place, timeout_s: float) -> bool:
        """Wait until `place` is the first in line; False if that takes too long."""
        deadline_s = time.monotonic() + timeout_s
        place.called = SimpleQueue()
        # A thread that leaves the line looks for this queue behind leaving, and this one looks who
        # is first behind making it: one of the two sees the other.
        while self._first() is not place:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            with contextlib.suppress(Empty):
                place.called.get(timeout=min(left_s, _LOOK_S))
        return True

    def _first(self) -> _Place:
        """Return the first in line, without those who left it without a word."""
        while not (first := self._line[0]).taken.locked():
            self._remove(first)
        return first

    def _leave(self, place: _Place) -> None:
        self._remove(place)
        if not self._line:
            return
        try:
            called = self._line[0].called
        except IndexError:  # the other one has just left
            return
        if called is not None:
            # Should an interrupt come before this line, the next one looks again after `_LOOK_S`.
            called.put(None)

    def _remove(self, place: _Place) -> None:
        try:  # noqa: SIM105 - each write comes by here
            self._line.remove(place)
        except ValueError:
            pass  # two who wait may find the same one gone

    # -- fork --------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Wait for the thread inside, and keep others out."""
        self._inside.acquire()

    def resume(self) -> None:
        """Take the lock again that `suspend` gave up."""
        self._inside.release()


class _Busy(Exception):
    """Another process has the lock."""


class _Claim:
    """What a writer asks of the thread that sleeps for it."""

    __slots__ = ("error", "file", "granted", "wanted")

    def __init__(self) -> None:
        self.wanted = threading.Lock()
        """Held as long as the writer wants the lock, or has it."""
        self.granted: SimpleQueue[None] = SimpleQueue()
        self.file: FileIO | None = None
        self.error: Exception | None = None


class _Sleeper:
    """Sleeps in `flock` in place of writers, because a blocked `flock` has no timeout.

    Its thread lasts as long as there are claims.  A claim whose writer has gone is passed over.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._claims: SimpleQueue[_Claim] = SimpleQueue()
        self._awake = threading.Lock()
        """Held by the thread that serves the claims."""
        self._opening = threading.Lock()
        """Held while the file is opened or closed, so that a fork knows whether it is open."""
        self._file: FileIO | None = None

    def ask(self, claim: _Claim) -> bool:
        """Take the lock for `claim`, some time; False if no thread can be made that does it."""
        self._claims.put(claim)
        if self._awake.locked():
            return True
        try:
            threading.Thread(target=self._serve_all, name="omidpy-write-lock", daemon=True).start()
        except RuntimeError:
            # The interpreter ends, and lets no thread begin since Python 3.12.
            return False
        return True

    def _serve_all(self) -> None:
        # A writer that asks behind the last look, and before the lock is free, finds the lock held
        # and starts no thread: it relies on another look.
        while not self._claims.empty() and self._awake.acquire(blocking=False):
            try:
                self._serve()
            finally:
                self._awake.release()

    def _serve(self) -> None:
        try:
            with self._opening:
                self._file = file = _opened(self._path)
        except StorageUnavailable as error:
            self._grant(None, error)
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            self._grant(file, None)
        except OSError as error:
            self._grant(None, error)
        finally:
            with self._opening:
                # Which unlocks it, too, where an exception kept the writer from doing so.
                file.close()
                self._file = None

    def _grant(self, file: FileIO | None, error: Exception | None) -> None:
        """Let the first writer have the lock that still wants it, until it wants it no more.

        Or let it have the error.
        """
        is_used = False
        while not is_used:
            try:
                claim = self._claims.get_nowait()
            except Empty:
                return
            is_used = claim.wanted.locked()
            claim.file, claim.error = file, error
            claim.granted.put(None)
            with claim.wanted:
                pass  # until the writer has left, however it left

    # -- fork --------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Let the file be open or closed, and nothing in between."""
        self._opening.acquire()

    def resume(self) -> None:
        """Undo `suspend`."""
        self._opening.release()

    def forget_in_child(self) -> None:
        """Close a forked child's copy of the file; the parent's thread sleeps on."""
        if self._file is not None:
            self._file.close()


class WriteLock:
    """The right to write; not reentrant.

    At most `timeout_s` seconds pass before it is refused.
    """

    def __init__(self, path: str, *, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._threads = FairLock()
        self._sleeper = _Sleeper(path)

    def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, called while no other thread or process may write.

        Raises:
            StorageUnavailable: others went on writing for too long; nothing was done.
        """
        deadline_s = time.monotonic() + self._timeout_s
        return self._threads.run(
            partial(self._run_alone, work, deadline_s),
            timeout_s=self._timeout_s,
            refusal=self._refusal,
        )

    def run_in_process(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, called while no other thread of this process writes."""
        return self._threads.run(work)

    def run_if_free(self, work: Callable[[], object]) -> None:
        """Do the work if no other process writes; the threads of this one are kept out already."""
        with contextlib.suppress(_Busy, StorageUnavailable):
            with_file(self._path, partial(self._run_if_free, work, -inf))

    def _run_alone(self, work: Callable[[], T], deadline_s: float) -> T:
        try:
            return with_file(self._path, partial(self._run_if_free, work, deadline_s))
        except _Busy:
            claim = _Claim()
        return within(claim.wanted, self._run_when_granted, work, deadline_s, claim)

    def _run_if_free(self, work: Callable[[], T], deadline_s: float, file: FileIO) -> T:
        """Do the work, or raise `_Busy` if another process has the lock."""
        for pause_s in (*_SHORT_PAUSES_S, None):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if pause_s is None or time.monotonic() + pause_s > deadline_s:
                    raise _Busy from None
                time.sleep(pause_s)
            except OSError as error:
                raise _failure(self._path, error) from error
        _write_note(file, "writing")
        return work()

    def _run_when_granted(self, work: Callable[[], T], deadline_s: float, claim: _Claim) -> T:
        if not self._sleeper.ask(claim):
            return self._run_alone_by_looking(work, deadline_s)
        try:
            claim.granted.get(timeout=max(0.0, deadline_s - time.monotonic()))
        except Empty:
            # The claim stays with the sleeper, which passes it over: `wanted` is free by then.
            raise self._refusal() from None
        if claim.error is not None:
            raise _failure(self._path, claim.error) from claim.error
        assert claim.file is not None, "what is granted is a locked file, or an error"
        _write_note(claim.file, "writing")
        result = work()
        # At once: the thread that keeps the lock for us needs time to wake.
        fcntl.flock(claim.file, fcntl.LOCK_UN)
        return result

    def _run_alone_by_looking(self, work: Callable[[], T], deadline_s: float) -> T:
        """Try again and again, where no thread can sleep for us."""
        while True:
            try:
                return with_file(self._path, partial(self._run_if_free, work, deadline_s))
            except _Busy:
                if time.monotonic() + _LOOK_S > deadline_s:
                    raise self._refusal() from None
                time.sleep(_LOOK_S)

    def _refusal(self) -> StorageUnavailable:
        holder = describe_holder(self._path)
        return StorageUnavailable(
            f"no right to write within {self._timeout_s:g} s: {self._path} is held by {holder}"
        )

    # -- fork --------------------------------------------------------------------------------------

    def suspend(self) -> None:
        """Wait for the writer of this process, and keep others out."""
        self._threads.suspend()
        self._sleeper.suspend()

    def resume(self) -> None:
        """Undo `suspend`."""
        self._sleeper.resume()
        self._threads.resume()

    def resume_in_child(self) -> None:
        """Undo `suspend` in a forked child, where threads that waited do not exist."""
        self._sleeper.forget_in_child()
        self._sleeper = _Sleeper(self._path)
        self._threads = FairLock()


def with_file(path: str, work: Callable[[FileIO], T]) -> T:
    """Return what `work` makes of a lock file that is open meanwhile.

    Raises:
        StorageUnavailable: it cannot be opened; see `open_lock_file`.
    """
    with _opened(path) as file: return work(file)  # fmt: skip  # noqa: E701 - see within.py


class FileLock:
    """A `ProcessLock` on a file, not taken yet."""

    def __init__(self, path: str, *, purpose: str) -> None:
        self._path = path
        self._purpose = purpose
        self._mutex = threading.Lock()
        self._fd: int | None = None
        self._is_named = True
        """Whether its file still had the name when that was last seen."""
        self._is_seen = True
        """Whether the system told when that was last looked at."""
        self._looked_s = -inf

    def take(self) -> None:
        """Take the lock, without waiting; once.

        Raises:
            LockHeld: another process has it, or another lock of this one; the message says which.
            StorageUnavailable: the system lets nobody take it.
        """
        try:
            self._take()
        except BaseException:
            self.release()
            raise

    def _take(self) -> None:
        while True:
            self._fd = open_lock_file(self._path)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = describe_holder(self._path)
                raise LockHeld(f"{self._path} is held by {holder}") from None
            except OSError as error:
                raise _failure(self._path, error) from error
            if self._is_still():
                break
            self.release()  # the file was removed meanwhile: a lock on it excludes no process
        _write_note(self._fd, self._purpose)

    def release(self) -> None:
        """Give the right up; a second call does nothing."""
        within(self._mutex, self._release)

    def _release(self) -> None:
        if self._fd is not None:
            # Unlocking first frees the lock even while a child, between fork and its first
            # instruction of ours, still has the open file.
            with contextlib.suppress(OSError):  # to close it does the same
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    @property
    def is_held(self) -> bool:
        """Whether this process holds it."""
        return self._fd is not None

    @property
    def excludes(self) -> bool:
        """Whether it is held, and its file was there a moment ago.

        Another process makes a file anew where it was removed, and takes that lock.  Where the
        system does not tell, it may have been.
        """
        now_s = SystemClock.monotonic_s()
        if self._is_named and (now_s - self._looked_s >= NAME_LOOK_S or not self._is_seen):
            within(self._mutex, self._look)
            self._looked_s = now_s
        return self._is_named and self._is_seen and self._fd is not None

    @property
    def was_removed(self) -> bool:
        """Whether its file was seen to be gone, or another's."""
        return not self._is_named

    def _look(self) -> None:
        if self._fd is not None:
            try:
                self._is_named = _is_still(self._fd, self._path)
                self._is_seen = True
            except OSError:
                self._is_seen = False

    def _is_still(self) -> bool:
        assert self._fd is not None, "it was opened"
        try:
            return _is_still(self._fd, self._path)
        except OSError as error:
            raise _failure(self._path, error) from error

    def forget_in_child(self) -> None:
        """Close a forked child's copy; the parent keeps the lock."""
        self._mutex = threading.Lock()
        self._close()


def _is_still(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))  # noqa: PTH116  a pair with fstat
    except (FileNotFoundError, NotADirectoryError):
        return False


def _failure(path: str, error: Exception) -> StorageUnavailable:
    return StorageUnavailable(f"cannot lock {path}: {error}; keep the store on a local disk")


def _opened(path: str) -> FileIO:
    return FileIO(path, "r+", opener=open_lock_file)


def open_lock_file(path: str, flags: int = os.O_RDWR | os.O_CLOEXEC) -> int:
    """Open a lock file, made if absent.

    Raises:
        StorageUnavailable: naming the file and the remedy.
    """
    try:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            store = Path(path.removesuffix("-lock"))
            # A user who may write the store needs its lock, and no other user does.
            mode = store.stat().st_mode & 0o666 if store.exists() else 0o600
            return os.open(path, flags | os.O_CREAT, mode)
    except OSError as error:
        remedy = "writing needs a writable directory with free space beside the store"
        if error.errno in (errno.EMFILE, errno.ENFILE):
            remedy = "allow more open files (ulimit -n), or close some"
        raise StorageUnavailable(
            f"cannot open the lock file {path}: {error.strerror}; {remedy}"
        ) from error


def _write_note(file: int | FileIO, purpose: str) -> None:
    try:  # noqa: SIM105 - each write comes by here
        os.pwrite(file if isinstance(file, int) else file.fileno(), _note(os.getpid(), purpose), 0)
    except OSError:
        pass  # The note serves messages alone: a full disk must not turn it into a failure.


@lru_cache(maxsize=16)
def _note(pid: int, purpose: str) -> bytes:
    return f"{pid} {purpose}".encode()[: NOTE_BYTES - 1].ljust(NOTE_BYTES - 1) + b"\n"


def describe_holder(path: str) -> str:
    """Say who holds a lock file, as far as the file and the system tell.

    Which process that is, the kernel says alone.  A note is written behind the lock and stays: it
    may be an earlier holder's, whose number another process has by now.
    """
    try:
        note = Path(path).read_bytes()[:NOTE_BYTES].decode(errors="replace").strip()
    except OSError:
        note = ""
    noted, _, purpose = note.partition(" ")
    if (pid := _holding_process(path)) is not None:
        word = f" ({purpose})" if noted == str(pid) else ""
        return f"process {pid}{word}, {_condition(pid)}"
    if not noted.isdigit():
        return "another process"
    return (
        "another process, which has just let go of it, or runs in another container: try again, or "
        f"look for it there (the note in the file is that of process {noted}, {purpose}, which may "
        "have been an earlier one)"
    )


def is_locked_here(path: str) -> bool | None:
    """Say whether a process has a file locked; None where the kernel does not tell.

    One in another container may have it all the same.
    """
    try:
        return None if not _LOCKS.read_text() else _holding_process(path) is not None
    except OSError:
        return None


def _holding_process(path: str) -> int | None:
    """Return which process has a file locked; None where the kernel tells of none here."""
    try:
        stat = os.stat(path)  # noqa: PTH116  its numbers alone
        locks = _LOCKS.read_text()
    except OSError:
        return None
    place = f"{os.major(stat.st_dev):02x}:{os.minor(stat.st_dev):02x}:{stat.st_ino}"
    for line in locks.splitlines():
        # `1: FLOCK ADVISORY WRITE 6852 fe:00:9982899 0 EOF`; of who waits the second word is `->`.
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5:6] == [place] and int(words[4]) > 0:
            return int(words[4])
    return None


def _condition(pid: int) -> str:
    state = process_state(pid)
    if state in {"T", "t"}:
        return f"which is stopped; continue it with `kill -CONT {pid}`, or end it"
    if state is None:
        return "which has just ended; try again"
    if pid == os.getpid():
        return "which is this process; release it, or use the object that has it"
    # Whether it sleeps or works at this instant says nothing, and who looks on writes down changes.
    return "which is running; wait for it, or end it"


def process_state(pid: int) -> str | None:
    """Return the one-letter state of a process as /proc has it; None where that does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]
