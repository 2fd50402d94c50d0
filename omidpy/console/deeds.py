"""What may be changed through the console, and the journal of who did it.

A deed is on record before it is begun: where the journal cannot be written, nothing is done.  What
became of it is a second line.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from io import FileIO
from typing import Final

from omidpy.console.people import Person
from omidpy.console.sources import Sources
from omidpy.errors import ConfigError, FateError, OmidError, UsageError
from omidpy.fate.table.store import TableFateStore

logger = logging.getLogger(__name__)

RESERVED_WAIT_S: Final = 5.0
"""How long a deed waits for an operation that an executor has."""

ENTRIES_SHOWN: Final = 20

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that may be changed."""

    name: str
    page: str
    """Whose page offers it."""
    about: tuple[str, ...]
    """Which fields of its form say what is meant."""
    act: Callable[[Sources, Form], str]
    """Does it; returns what to tell."""


@dataclass(slots=True)
class Entry:
    """A deed in the journal."""

    number: str
    time: str
    who: str
    by: str
    peer: str
    deed: str
    about: dict[str, str]
    state: str = "asked"
    """`asked`, then `done`, `refused` or `failed`."""
    told: str = ""


class Journal:
    """Who did what: a file of lines of JSON, and the newest of them here."""

    def __init__(self, path: str) -> None:
        """Go on with a file.

        Raises:
            ConfigError: it cannot be written.
        """
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"--journal {path!r}: {error.strerror}") from error
        # Nothing is kept for later: a line that was refused must not come with the next one.
        self._file: FileIO = os.fdopen(descriptor, "ab", buffering=0)
        self._is_torn = False
        """Whether the file ends within a line."""
        self._lock = threading.Lock()
        self.entries: deque[Entry] = deque(maxlen=ENTRIES_SHOWN)

    def begin(self, person: Person, peer: str, deed: str, about: dict[str, str]) -> Entry:
        """Note what somebody asks for, before it is done.

        Raises:
            OSError: it cannot be written, so that nothing must be done.
        """
        entry = Entry(secrets.token_hex(6), _now(), person.name, person.by, peer, deed, about)
        try:
            self._write(entry)
        except OSError:
            # The line may be there, and be read: then it should not stand alone.
            self.end(entry, "refused", "the journal could not be written")
            raise
        self.entries.appendleft(entry)
        return entry

    def end(self, entry: Entry, state: str, told: str) -> None:
        """Note what became of it."""
        entry.state, entry.told = state, told
        try:
            self._write(entry)
        except OSError:
            logger.exception("what became of %s is not in the journal: %s", entry.number, state)

    def _write(self, entry: Entry) -> None:
        line = {**asdict(entry), "time": _now()}
        with self._lock:
            self._append(json.dumps(line).encode() + b"\n")
            os.fsync(self._file.fileno())
        logger.info(
            "%s %s, by %s from %s: %s %s",
            entry.state,
            entry.who,
            entry.by,
            entry.peer,
            entry.deed,
            json.dumps(entry.about),
        )

    def _append(self, line: bytes) -> None:
        """Write a line, behind what is there of one that could not be written whole."""
        left = b"\n" + line if self._is_torn else line
        while left:
            left = left[self._file.write(left) :]
            self._is_torn = bool(left)

    def close(self) -> None:
        """Close the file of deeds; nothing is recorded any more."""
        self._file.close()


def carry_out(deed: Deed, sources: Sources, form: Form, journal: Journal, entry: Entry) -> None:
    """Do what is on record, and note what became of it."""
    try:
        told = deed.act(sources, form)
    except _Refused as error:
        journal.end(entry, "refused", str(error))
    except OmidError as error:
        journal.end(entry, "failed", str(error))
    except Exception as error:
        logger.exception("the deed %s has failed", deed.name)
        journal.end(entry, "failed", f"{type(error).__name__}: {error}")
    else:
        journal.end(entry, "done", told)


class _Refused(FateError):
    """It was not done, and nothing has changed."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _fate(verb: str, sources: Sources, form: Form) -> str:
    from omidpy.fate.admin import Outcome  # noqa: PLC0415 - only where something is changed
    from omidpy.fate.operation import parse_id  # noqa: PLC0415 - the same
    from omidpy.reports.operations import administrator  # noqa: PLC0415 - the same

    admin = administrator(TableFateStore(sources.cells()), wait_s=RESERVED_WAIT_S)
    told = getattr(admin, verb)(parse_id(form.get("id", "")))
    if told.outcome is not Outcome.DONE:
        raise _Refused(told.text)
    return str(told.text)


def _retry(sources: Sources, form: Form) -> str:
    from omidpy.recipes.export_queue import ExportQueue  # noqa: PLC0415 - see above

    name, key = form.get("queue", ""), form.get("key", "")
    try:
        chosen = bytes.fromhex(key) if key else None
    except ValueError:
        raise UsageError(f"the key {key[:80]!r} is not hexadecimal") from None
    count = ExportQueue.open(sources.manager(), name).dead_letters().retry(chosen)
    return f"{count} dead letters of {name} are tried again"


def _end_job(sources: Sources, form: Form, *, resumes: bool) -> str:
    from omidpy.reports import jobs  # noqa: PLC0415 - see above

    address = form.get("plan", "")
    sources.folder_of(address)
    if resumes:
        done = jobs.resume_job(sources.objects(), address)
        told = f"{len(done.files)} files, {done.bytes_written:,} bytes"
        return f"job {done.job_id} is committed: {told}"
    plan = jobs.roll_back_job(sources.objects(), address)
    return f"job {plan.job_id} is rolled back: nothing of it is left at {plan.folder.url}"


DEEDS: Final = {
    deed.name: deed
    for deed in (
        *(
            Deed(verb, "operations", ("id",), partial(_fate, verb))
            for verb in ("cancel", "fail", "delete")
        ),
        Deed("retry", "queues", ("queue", "key"), _retry),
        Deed("resume", "jobs", ("plan",), partial(_end_job, resumes=True)),
        Deed("rollback", "jobs", ("plan",), partial(_end_job, resumes=False)),
    )
}
