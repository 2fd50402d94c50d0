"""What has become of the jobs of a destination, in which order?  One small object, its head.

    DEST/_omidpy/head.json

A job is committed, or rolled back, at the instant at which the head says so.  The head is replaced
by `If-Match` alone (or `If-None-Match` the first time), so that of two who write it, one looks
again.  The order of commits is the order in which heads were written: each commit has the next
epoch, and a job that must not come after another, or is to remove what others have written, knows
from the head that it saw which those are.

    C9 (one-decision)   the outcome of a run is written once, and who would decide otherwise
                        reads it first
    C10 (in-order)      a commit that refuses or replaces others decides about exactly the jobs that
                        were committed before it
    C11 (remembered)    the outcome of a run is kept while its plan is there; a run that is older
                        than what was forgotten may be decided only if its plan is there, and was
                        there when that was forgotten

A plan may come late, or a second time, when the outcome of its run is forgotten: so a head says
which jobs had a plan then.  KEPT runs at least are not forgotten, nor, up to MOST_YOUNG, those of
the last YOUNG_MS: what a clock may be behind, or a plan be on its way.

Which files the commits have left is in the head, too (`listing.py`).

Source: conditional heads are how table formats commit; Omid's own commit table, on S3.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

import msgspec

from omidpy.base.documents import prepared
from omidpy.committers.heads.changes import Change, ListName
from omidpy.committers.places import PLANS, Folder
from omidpy.errors import CommitterError

FORMAT: Final = "omidpy-head"
VERSION: Final = 2
WITHOUT_FILES: Final = 1
"""The version of heads that did not say which files the commits have left."""
KEPT: Final = 100
"""So many outcomes are kept whatever became of their plans."""
MOST: Final = 200
"""With more, those are forgotten whose plans are gone; that costs a listing in a hundred jobs."""
YOUNG_MS: Final = 15 * 60_000
"""Runs of the last quarter of an hour are kept besides, as long as there is room."""
MOST_YOUNG: Final = 2_000
"""With more, half of them are forgotten, however young."""

Outcome = Literal["committed", "rolled back"]
Replaces = Literal["", "folder", "partitions"]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one run of a job."""

    job: str
    run: str
    """Empty where it is not known: its driver wrote no plan."""
    outcome: Outcome
    epoch: int
    """Of a commit: its place in the order; of what was rolled back, that of the commit before."""
    created_ms: int
    """When its plan was made, by its driver's clock."""
    replaces: Replaces = ""
    """What of the files of before the job removes."""


class _Document(msgspec.Struct):
    format: str
    version: int
    write: str
    epoch: int
    forgotten_ms: int
    entries: list[Entry]
    lists: tuple[ListName, ...] = ()
    recent: Change = Change()
    unlisted: int = 0
    closed_ms: int = -1
    waiting: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Head:
    """What a destination remembers of its jobs."""

    epoch: int = 0
    """Of the last commit."""
    entries: tuple[Entry, ...] = ()
    """The oldest first."""
    forgotten_ms: int = -1
    """The latest `created_ms` of those that were forgotten; -1 if none were."""
    lists: tuple[ListName, ...] = ()
    """Where the files of earlier commits are listed, the oldest first."""
    recent: Change = field(default_factory=Change)
    """What the commits since have changed."""
    unlisted: int = 0
    """The last commit whose files are not listed; 0 if all are."""
    closed_ms: int = -1
    """As `forgotten_ms`, of those that were not young any more; -1 if none, or that is unknown."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """The jobs that had a plan when outcomes were last forgotten, each with the `closed_ms` of
    before it was first found: an older run of it has ended."""

    def of(self, job_id: str, run: str, created_ms: int) -> Entry | None:
        """Return the outcome of a run; None if it has none, or it was forgotten."""
        for one in reversed(self.entries):
            is_this = one.run == run or (not one.run and created_ms <= one.created_ms)
            if one.job == job_id and is_this:
                return one
        return None

    def has_forgotten(self, job_id: str, created_ms: int) -> bool:
        """Say whether a run that is not named here is known to have ended: no plan waited (C11)."""
        return created_ms <= self.waiting.get(job_id, self.closed_ms)

    def is_committed(self, job_id: str) -> bool:
        """Say whether a run of a job is known to be committed."""
        return any(one.job == job_id and one.outcome == "committed" for one in self.entries)

    def commits_after(self, epoch: int) -> list[Entry]:
        """Return the commits behind an epoch that are remembered."""
        return [one for one in self.entries if one.outcome == "committed" and one.epoch > epoch]

    def with_entry(
        self, job_id: str, run: str, outcome: Outcome, created_ms: int, replaces: Replaces = ""
    ) -> Head:
        """Return the head in which a run has an outcome."""
        epoch = self.epoch + (outcome == "committed")
        made = Entry(job_id, run, outcome, epoch, created_ms, replaces)
        return replace(self, epoch=epoch, entries=(*self.entries, made))

    def is_full(self, now_ms: int) -> bool:
        """Say whether there is so much to forget that it is worth a listing of plans."""
        old = sum(one.created_ms <= now_ms - YOUNG_MS for one in self.entries[:-KEPT])
        return old > MOST - KEPT or len(self.entries) > MOST_YOUNG

    def without_old(self, planned: Collection[str], now_ms: int) -> Head:
        """Forget what is older than the last KEPT, but for the jobs that have a plan (C11).

        An outcome without a run is kept: its driver may write its plan yet.
        """
        old, kept = self.entries[:-KEPT], self.entries[-KEPT:]
        young_ms = now_ms - YOUNG_MS
        room = len(self.entries) - MOST_YOUNG // 2  # what is behind it may stay if it is young
        stay: list[Entry] = []
        gone_ms: list[int] = []
        for at, one in enumerate(old):
            is_kept_young = one.created_ms > young_ms and at >= room
            if one.job in planned or not one.run or is_kept_young:
                stay.append(one)
            else:
                gone_ms.append(one.created_ms)
        return replace(
            self,
            entries=(*stay, *kept),
            forgotten_ms=max([self.forgotten_ms, *gone_ms]),
            # Of a young one the plan may be on its way, or its driver's clock behind: it is asked.
            closed_ms=max([self.closed_ms, *(ms for ms in gone_ms if ms <= young_ms)]),
            waiting={one: self.waiting.get(one, self.closed_ms) for one in planned},
        )


def head_key(folder: Folder) -> str:
    """Return the key of a destination's head."""
    return folder.key(f"{PLANS}head.json")


def encode(head: Head) -> bytes:
    """Return a head as JSON; no two are equal, so that a tag is never that of an earlier one."""
    return msgspec.json.encode(
        _Document(
            FORMAT,
            VERSION,
            uuid.uuid4().hex,
            head.epoch,
            head.forgotten_ms,
            list(head.entries),
            head.lists,
            head.recent,
            head.unlisted,
            head.closed_ms,
            dict(head.waiting),
        )
    )


def decode(data: bytes, address: str) -> Head:
    """Read a head.

    Raises:
        CommitterError: It is none, or one of a newer version.
    """
    try:
        raw = json.loads(data)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise CommitterError(
                f"{address} is no head of a destination; if nobody writes there now, delete it"
            )
        if raw.get("version") not in {VERSION, WITHOUT_FILES}:
            raise CommitterError(
                f"{address} is a head of version {raw.get('version')!r}, and this omidpy knows "
                f"version {VERSION}; write and read there with a newer omidpy"
            )
        document = msgspec.convert(raw, prepared(_Document))
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise CommitterError(
            f"{address} cannot be read as a head: {error}; if nobody writes there now, delete it"
        ) from error
    if document.version == WITHOUT_FILES:
        document.unlisted = document.epoch
    return Head(
        document.epoch,
        tuple(document.entries),
        document.forgotten_ms,
        document.lists,
        document.recent,
        document.unlisted,
        document.closed_ms,
        document.waiting,
    )
