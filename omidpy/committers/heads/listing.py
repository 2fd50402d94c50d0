"""Where is the list of a destination's files kept?  In its head, and in lists that the head names.

    DEST/_omidpy/head.json           the newest changes, and the names of lists
    DEST/_omidpy/lists/<id>.json     a change of before: written once, and never changed

A commit adds its files where it adds its outcome, by the same request: so the files of a job are
part of the list from the instant at which the job is committed, and those that it replaces are not.

    C12 (whole-jobs)  the list of a head has every file of each commit that no later one replaced,
                      and none of any other job
    C13 (lists-last)  no list is removed that a head names, or that a head may come to name

A head holds INLINE_BYTES of changes at most.  With more, they become a list, together with those
lists of before that are not twice as long: so there are few, and a file is written again only as
often as what is there doubles.

    requests: none; where the head is full 1 list is written, 1 listing made and the old lists
              removed by 1, and those lists read that become one
    to read:  1 for the head, and 1 for each list

A list that no head names any more is of a commit that lost its place to another, or of a dead
driver.  It is listed *before* the head is replaced and removed afterwards: the driver that had
written it by then had seen a head of before, and what it would write now is refused.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.committers.heads import looking
from omidpy.committers.heads.changes import EVERYTHING, Change, ListedFile, ListName, then
from omidpy.committers.heads.head import Head
from omidpy.committers.heads.looking import Seen
from omidpy.committers.heads.plan import Plan
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import LISTS, Folder, folder_of
from omidpy.errors import CommitterError

FORMAT: Final = "omidpy-list"
VERSION: Final = 1
INLINE_BYTES: Final = 128 * 2**10
"""Of changes in a head: some thousand files."""


class _Document(msgspec.Struct):
    format: str
    version: int
    change: Change


def change_of(plan: Plan) -> Change:
    """Return what the commit of a job changes."""
    files = tuple(
        ListedFile(plan.folder.below(one.key), one.length, one.rows, one.etag) for one in plan.files
    )
    # What a job found empty, and what was not written since, has nothing of before either.
    if plan.replaces == "folder" or plan.is_sole:
        return Change((EVERYTHING,), files)
    if plan.replaces == "partitions" or plan.is_sole_in_partitions:
        folders = {folder_of(one.path) for one in files} - {""}
        return Change(tuple(sorted(f"{one}/" for one in folders)), files)
    return Change((), files)


def added(
    store: ObjectStore, folder: Folder, head: Head, change: Change
) -> tuple[Head, frozenset[str]]:
    """Add a change to a head that is to be written.

    Returns:
        The head, and the keys of lists that go once it is written, and only if it took the place of
        the one that was read (C13).

    Raises:
        CommitterError: The store failed; nothing was decided.
    """
    old = {list_key(folder, one) for one in head.lists}
    recent = then(head.recent, change)
    if EVERYTHING in recent.drops:
        head = replace(head, lists=(), unlisted=0)
    head = replace(head, recent=_above(head.lists, recent))
    if len(msgspec.json.encode(head.recent)) > INLINE_BYTES:
        # Before the head is replaced: what is found was written by who saw this head, or earlier.
        old |= {one.key for one in store.objects(Folder(folder.bucket, folder.key(LISTS)))}
        head = _moved(store, folder, head)
    return head, frozenset(old - {list_key(folder, one) for one in head.lists})


def files_of(store: ObjectStore, folder: Folder, head: Head) -> tuple[ListedFile, ...]:
    """Return the files of a destination, in order of their paths (C12).

    Raises:
        Gone: A list is not there: the head is not the newest any more.
        CommitterError: A list cannot be understood, or the store failed.
    """
    found = Change()
    for one in head.lists:
        found = then(found, _read(store, folder, one))
    return tuple(sorted(then(found, head.recent).files, key=lambda one: one.path))


def files_if_newest(
    store: ObjectStore, folder: Folder, seen: Seen
) -> tuple[ListedFile, ...] | None:
    """Return the files of a destination whose head was read; None: it has another head by now.

    Raises:
        Gone: A list is not there that the newest head names: it was removed.
        CommitterError: A list cannot be understood, or the store failed.
    """
    try:
        return files_of(store, folder, seen.head)
    except Gone:
        # The job that replaced the head has removed a list that it does not name any more.
        if looking.read(store, folder).etag == seen.etag:
            raise
        return None


def list_key(folder: Folder, one: ListName) -> str:
    """Return the key of a list."""
    return folder.key(f"{LISTS}{one.name}.json")


def _above(lists: tuple[ListName, ...], change: Change) -> Change:
    """Return a change as it stands on lists: on none it has nothing to drop."""
    return change if lists else Change((), change.files)


def _moved(store: ObjectStore, folder: Folder, head: Head) -> Head:
    """Return a head whose changes are in a list; the list is written."""
    lists, change = list(head.lists), head.recent
    while lists and lists[-1].size < 2 * len(msgspec.json.encode(change)):
        try:
            below = _read(store, folder, lists[-1])
        except CommitterError:
            break  # it is its readers' obstacle, and no reason to fail a job
        lists.pop()
        change = then(below, change)
    change = _above(tuple(lists), change)
    data = msgspec.json.encode(_Document(FORMAT, VERSION, change))
    made = ListName(uuid.uuid4().hex, len(data))
    store.put(folder.bucket, list_key(folder, made), data)
    return replace(head, lists=(*lists, made), recent=Change())


def _read(store: ObjectStore, folder: Folder, one: ListName) -> Change:
    key = list_key(folder, one)
    data, _ = store.get(folder.bucket, key)
    try:
        document = msgspec.json.decode(data, type=prepared(_Document))
    except UNREADABLE as error:
        raise CommitterError(
            f"s3://{folder.bucket}/{key} cannot be read as a list of files: {error}; a job with "
            f"conflict='replace' begins {folder.url} anew"
        ) from error
    if (document.format, document.version) != (FORMAT, VERSION):
        raise CommitterError(
            f"s3://{folder.bucket}/{key} is a {document.format} of version {document.version}, and "
            f"this omidpy knows {FORMAT} of version {VERSION}; read it with a newer omidpy"
        )
    return document.change
