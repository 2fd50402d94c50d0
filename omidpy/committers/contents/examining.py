"""What does a store promise the jobs of a destination, and who else writes there?

Jobs need two conditions of a store: that nothing is written over, and that a head takes the place
of the one that was read.  A store that knows the second one not may refuse it, which a job notices
and says, or take no notice of it, which is not seen without a try: so it is tried here, on an
object of its own below `_omidpy/`, which is removed again.

    requests: 6 for the conditions, 2 for the head and what it lists, and what `others` costs
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

from omidpy.committers.contents import reading
from omidpy.committers.contents.state import PublishedState
from omidpy.committers.heads import listing, looking
from omidpy.committers.heads.changes import ListedFile
from omidpy.committers.heads.looking import Seen
from omidpy.committers.heads.neighbours import DELTA, record_of
from omidpy.committers.objects.answers import Gone, Occupied, Unconditional
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import PLANS, Folder, is_hidden
from omidpy.errors import CommitterError

Kept = Literal["kept", "refused", "ignored"]
"""What a store makes of a condition: it refuses requests that have one, or takes no notice."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a store makes of conditions on a write."""

    creates: Kept
    """`If-None-Match`: where nothing is."""
    swaps: Kept
    """`If-Match`: in the place of an object of a tag."""


@dataclass(frozen=True, slots=True)
class Place:
    """What is at a destination."""

    problem: str = ""
    """Why its head cannot be understood; empty if it can, or there is none."""
    epoch: int = 0
    """How many jobs were committed there."""
    unlisted: int = 0
    """The last commit whose files the head does not list; 0 if it lists all."""
    others: tuple[str, ...] = ()
    """Keys of files that readers of the folder see, and no head knows."""
    records: tuple[str, ...] = ()
    """What other tools keep there about its files."""
    unfinished: tuple[str, ...] = ()
    """Jobs that have a plan: they commit just now, or their drivers have died."""


def try_conditions(store: ObjectStore, folder: Folder) -> Conditions:
    """Try what a store makes of conditions, on an object of its own.

    Raises:
        CommitterError: It could not be written, or removed again.
    """
    key = folder.key(f"{PLANS}doctor-{uuid.uuid4().hex}.json")
    try:
        creates = _creates(store, folder.bucket, key)
        return Conditions(creates, _swaps(store, folder.bucket, key))
    finally:
        store.delete(folder.bucket, key)


def _creates(store: ObjectStore, bucket: str, key: str) -> Kept:
    try:
        store.put(bucket, key, b"first", is_new=True)
        store.put(bucket, key, b"second", is_new=True)
    except Unconditional:
        store.put(bucket, key, b"first")
        return "refused"
    except Occupied:
        return "kept"
    return "ignored"


def _swaps(store: ObjectStore, bucket: str, key: str) -> Kept:
    _, etag = store.get(bucket, key)
    store.put(bucket, key, b"another")
    try:
        store.put(bucket, key, b"third", expected_etag=etag)
    except Occupied:
        return "kept" if store.has_swaps(bucket) else "refused"
    return "ignored"


def look(store: ObjectStore, folder: Folder) -> Place:
    """Look at a destination; nothing is changed.

    Raises:
        CommitterError: The store failed.
    """
    records: dict[str, str] = {}
    for one in store.objects(folder):
        if (name := record_of(folder.below(one.key))) is not None:
            records[name] = one.key
    if DELTA in records and _is_own_log(store, folder.bucket, records[DELTA]):
        del records[DELTA]
    unfinished = tuple(looking.planned_jobs(store, folder))
    try:
        seen, files = _newest(store, folder)
    except Gone as error:
        return Place(f"{error}; the head names this list", 0, 0, (), tuple(records), unfinished)
    except CommitterError as error:
        return Place(str(error), 0, 0, (), tuple(records), unfinished)
    listed = {folder.key(one.path) for one in files}
    found = reading.others(store, PublishedState(folder.url, seen.head.epoch, (), store))
    others = tuple(key for key in found if key not in listed and not is_hidden(folder.below(key)))
    head = seen.head
    return Place("", head.epoch, head.unlisted, others, tuple(records), unfinished)


def _newest(store: ObjectStore, folder: Folder) -> tuple[Seen, tuple[ListedFile, ...]]:
    """Return the newest head with its files: a list that is gone may be one of the head before.

    Raises:
        Gone: A list is not there that the newest head names.
        CommitterError: The head cannot be understood, or is another one each time; or the store
            failed.
    """
    for _ in range(reading.TRIES):
        seen = looking.read(store, folder)
        if (files := listing.files_if_newest(store, folder, seen)) is not None:
            return seen, files
    raise CommitterError(
        f"the head of {folder.url} was written by others {reading.TRIES} times while it was read; "
        "ask again"
    )


def _is_own_log(store: ObjectStore, bucket: str, key: str) -> bool:
    """Say whether the last commit of a Delta log is of a job of ours, which it names."""
    data, _ = store.get(bucket, key)
    return b'"omidpy-' in data
