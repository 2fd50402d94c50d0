"""Which workers does a commit cover, and which of them stand in its way?

Whatever a worker wrote lies at a version of the transaction, so that a commit would show it, merged
or not: until the entry goes, and then no longer.  So the owner answers for every worker that has
announced a flush (`registration.py`):

    merged      its part was merged
    discarded   the owner gave it up
    covered     another attempt of its task was merged, or one that wrote the very same
    missing     none of these: the transaction aborts, and the error names the worker

The cells of those in the middle must go, unless the digest says that they are the merged ones.
They can go if each flush of the worker was acknowledged, so that nothing of it is under way, and
the store deletes single versions.  What cannot go must be harmless: an attempt of a merged task
writes cells at the version of the merged ones, and by the rule of tasks the same.

Pure: from a row that is closed to a verdict.  `owner.py` carries it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final, NamedTuple

from omidpy.facts.registration import Registration
from omidpy.tx.parts.tokens import Part, digest_of


class PartStatus(StrEnum):
    """What becomes of a part at the commit."""

    MERGED = "merged"
    DISCARDED = "discarded"
    COVERED = "covered"
    """Another attempt of its task was merged, or one that wrote the very same."""
    MISSING = "missing"
    """The transaction cannot commit."""


class RegisteredPart(NamedTuple):
    """A worker that has written cells of a transaction, or was about to."""

    worker_id: str
    task: str | None
    status: PartStatus


class Objection(NamedTuple):
    """Why a commit cannot be asked for."""

    reason: str
    retryable: bool = False


Merged = Mapping[str, Part]
"""Worker id -> its part."""

RULE: Final = "attempts of a task must write identical cells; materialise their input first"


def status(one: Registration, merged: Merged, discarded: AbstractSet[str]) -> PartStatus:
    """Say what becomes of a worker's part."""
    if one.worker_id in merged:
        return PartStatus.MERGED
    if one.worker_id in discarded:
        return PartStatus.DISCARDED
    is_covered = any(_is_attempt(one, part) or _is_equal(one, part) for part in merged.values())
    return PartStatus.COVERED if is_covered else PartStatus.MISSING


def contradiction(one: Registration | None, part: Part, digest: str) -> str | None:
    """Say how a part differs from what its worker registered; None if it does not.

    Args:
        one: What the worker registered; None if nothing, as one does that wrote nothing.
        part: Its part, as it was handed over.
        digest: That of its bytes.
    """
    if one is None:
        # One that wrote nothing says so by its digest, too: with that of another worker's writes
        # its part, which merges none of them, would answer for that worker.
        is_empty = not part.cells and part.digest == digest_of(())
        return None if is_empty else f"worker {part.worker_id} has registered no writes"
    if one.version != part.version:
        return f"{_named(one)} registered writes at version {one.version}, not {part.version}"
    if one.part != digest:
        return f"{_named(one)} registered a part with another digest"
    return None


def to_remove(
    registered: Sequence[Registration],
    merged: Merged,
    discarded: AbstractSet[str],
    *,
    digests: Mapping[str, str],
    can_delete: bool,
) -> list[Registration] | Objection:
    """Return the workers whose cells must go before the commit; or say why it cannot be.

    Args:
        registered: All of them, from a row that is closed.
        merged: Parts by worker.
        discarded: Workers that were given up.
        digests: Those of the bytes of the merged parts, by worker.
        can_delete: Whether the store can remove single versions.
    """
    known = {one.worker_id: one for one in registered}
    for worker_id, part in merged.items():
        # Compared at the merge, and once more now that no worker can register any more.
        reason = contradiction(known.get(worker_id), part, digests[worker_id])
        if reason is not None:
            return Objection(f"a merged part is not what was written: {reason}")
    statuses = [(one, status(one, merged, discarded)) for one in registered]
    if missing := [_named(one) for one, found in statuses if found is PartStatus.MISSING]:
        return Objection(
            f"the part of {', '.join(missing)} was neither merged nor discarded; pass what its "
            "finish() returned to tx.merge, or its id to tx.discard, before the commit"
        )
    removable = []
    for one, found in statuses:
        if found is PartStatus.MERGED or any(_is_equal(one, part) for part in merged.values()):
            continue
        if can_delete and one.is_acknowledged:
            removable.append(one)
        elif (objection := _objection(one, merged)) is not None:
            return objection
    return removable


def _objection(one: Registration, merged: Merged) -> Objection | None:
    """Say why the cells of a worker must not stay, although they cannot be removed.

    An attempt that died before its last flush gave no digest; of that one the rows at the ends of
    each flush are looked for.
    """
    attempts = (part for part in merged.values() if _is_attempt(one, part))
    part = next((part for part in attempts if part.version == one.version), None)
    if part is None:
        why = (
            "this store cannot delete single versions"
            if one.is_acknowledged
            else "it was in the middle of a write, which may still arrive"
        )
        return Objection(
            f"the cells of {_named(one)} cannot be removed: {why}; run the transaction again, and "
            "give all attempts of a task its name (tm.resume(token, task=...)) and one token, so "
            "that one that ends makes up for one that died",
            retryable=True,
        )
    if one.digest is not None:
        return Objection(f"{_named(one)} has another digest than the merged attempt: {RULE}")
    rows = {(name.table, name.row) for name in part.cells}
    for stretch in one.stretches():
        for row in (stretch.first, stretch.last):
            if (stretch.table, row) not in rows:
                return Objection(
                    f"{_named(one)} wrote row {row!r} of table {stretch.table!r}, and the merged "
                    f"attempt did not: {RULE}"
                )
    return None


def _is_attempt(one: Registration, part: Part) -> bool:
    return one.task is not None and one.task == part.task


def _is_equal(one: Registration, part: Part) -> bool:
    """Say whether a worker wrote the cells of a part, and no others."""
    return (one.digest, one.version) == (part.digest, part.version)


def _named(one: Registration) -> str:
    return f"worker {one.worker_id}" + ("" if one.task is None else f" of task {one.task!r}")
