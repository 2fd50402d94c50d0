"""What is a job about to publish?  One durable object, written before the first completion.

    DEST/_omidpy/<job>/plan.json

Everything that a job's commit does is in it: the uploads to complete and the bytes of small files,
the files of before to remove, what `_SUCCESS` will say.  A process that finds it can finish the job
or take it back, knowing nothing else; while it is not written, nothing of the job is visible.  It
goes when the job is finished.

    C1 (plan-first)  no file of a job is completed before its plan is durable

It is JSON, and is read as what a stranger may have written: nothing in it is executed, and what is
no file that a job may write, or remove, below the plan's own destination is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from omidpy.base.documents import prepared
from omidpy.committers.heads.head import Replaces
from omidpy.committers.objects.pendings import magic_folder
from omidpy.committers.places import (
    PLANS,
    SUCCESS,
    SUMMARIES,
    Folder,
    check_below,
    check_job_id,
    check_path,
    is_hidden,
    is_manifest,
    parse_folder,
)
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError, UsageError

FORMAT: Final = "omidpy-plan"
VERSION: Final = 1
WITH_TABLE: Final = 2
"""The version of plans that end in the log of a table: who knows no such step must not end it."""


class OldFile(msgspec.Struct, frozen=True):
    """A file of before, to be removed once the new ones are there."""

    key: str
    etag: str
    """As it was listed: another one of this name is not ours to remove."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a job's commit will do."""

    job_id: str
    committer: str
    folder: Folder
    files: tuple[PendingFile, ...]
    old: tuple[OldFile, ...] = ()
    is_new_only: bool = True
    """Whether a file must not replace an object of its key."""
    is_sole: bool = False
    """Whether the destination was empty and must have been until the end: mode `fail`."""
    state: Literal["committing", "rolling back"] = "committing"
    created_ms: int = 0
    """Wall time."""
    success: dict[str, Any] | None = field(default_factory=dict)
    """What `_SUCCESS` will say besides what the files tell; None writes none."""
    success_path: str = SUCCESS
    """Where it is, below the destination: streams have one each."""
    run: str = ""
    """Which run of the job made it: another of the same id must not take it back."""
    is_magic: bool = False
    """Whether the job's magic folder goes with the plan."""
    replaces: Replaces = ""
    """What `old` is of: everything, or the partitions that are written; empty for nothing."""
    head: str = ""
    """The tag of the destination's head behind which `old` was listed; empty if it had none."""
    epoch: int = 0
    """The last commit that the job knows of which must be the first: mode `fail`."""
    is_sole_in_partitions: bool = False
    """Whether the partitions that it writes were empty and must have been until the end."""
    table: dict[str, Any] | None = None
    """What the job's last step tells the log of a table (`delta.py`); None for a folder."""

    @property
    def address(self) -> str:
        """Where it is, or would be."""
        return f"s3://{self.folder.bucket}/{self.folder.plan_key(self.job_id)}"

    @property
    def must_be_first(self) -> bool:
        """Whether another job's commit may refuse it: mode `fail`, and batches of streams."""
        return self.is_sole or self.is_sole_in_partitions or self.is_batch

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch of a stream, which is published once, and before later ones."""
        return self.success_path != SUCCESS

    @property
    def magic_address(self) -> str:
        """Where its magic folder is, or would be."""
        return f"s3://{self.folder.bucket}/{self.folder.key(magic_folder(self.job_id))}".rstrip("/")


class _File(msgspec.Struct, omit_defaults=True):
    key: str
    length: int
    rows: int | None = None
    upload_id: str = ""
    etags: tuple[str, ...] = ()
    data: str | None = None
    is_stamped: bool = True
    stamp: str = ""


class _Document(msgspec.Struct, omit_defaults=True):
    format: str
    version: int
    job: str
    committer: str
    destination: str
    files: list[_File]
    old: list[OldFile] = []
    new_only: bool = True
    sole: bool = False
    state: Literal["committing", "rolling back"] = "committing"
    created_ms: int = 0
    success: dict[str, Any] | None = None
    success_path: str = SUCCESS
    run: str = ""
    magic: bool = False
    replaces: Replaces = ""
    head: str = ""
    epoch: int = 0
    sole_in_partitions: bool = False
    table: dict[str, Any] | None = None


def encode(plan: Plan) -> bytes:
    """Return a plan as JSON."""
    files = [
        _File(
            key=plan.folder.below(one.key),
            length=one.length,
            rows=one.rows,
            upload_id=one.upload_id,
            etags=one.etags,
            data=None if one.data is None else base64.b64encode(one.data).decode(),
            is_stamped=one.is_stamped,
            stamp=one.stamp,
        )
        for one in plan.files
    ]
    return msgspec.json.encode(
        {
            **msgspec.to_builtins(
                _Document(
                    FORMAT,
                    VERSION if plan.table is None else WITH_TABLE,
                    plan.job_id,
                    plan.committer,
                    plan.folder.url,
                    files,
                    [OldFile(plan.folder.below(one.key), one.etag) for one in plan.old],
                    plan.is_new_only,
                    plan.is_sole,
                    plan.state,
                    plan.created_ms,
                    plan.success,
                    plan.success_path,
                    plan.run,
                    plan.is_magic,
                    plan.replaces,
                    plan.head,
                    plan.epoch,
                    plan.is_sole_in_partitions,
                    plan.table,
                )
            ),
        }
    )


def decode(data: bytes, address: str) -> Plan:
    """Read a plan.

    Raises:
        CommitterError: It is none, or one of a newer version, or one that reaches elsewhere.
    """
    try:
        raw = json.loads(data)
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise CommitterError(f"{address} is no plan of a job")
        if raw.get("version") not in {VERSION, WITH_TABLE}:
            raise CommitterError(
                f"{address} is a plan of version {raw.get('version')!r}, and this omidpy knows "
                f"version {WITH_TABLE}; finish it with the omidpy that began it, or a newer one"
            )
        document = msgspec.convert(raw, prepared(_Document))
        folder = parse_folder(document.destination)
        check_job_id(document.job)
        files = tuple(_file(one, folder, is_magic=document.magic) for one in document.files)
        old = tuple(_old(one, folder) for one in document.old)
        _check_whole(document)
    except (
        ValueError,
        RecursionError,
        binascii.Error,
        UsageError,
        msgspec.ValidationError,
    ) as error:
        raise CommitterError(f"{address} cannot be read as a plan: {error}") from error
    plan = Plan(
        document.job,
        document.committer,
        folder,
        files,
        old,
        document.new_only,
        document.sole,
        document.state,
        document.created_ms,
        document.success,
        document.success_path,
        document.run,
        document.magic,
        document.replaces,
        document.head,
        document.epoch,
        document.sole_in_partitions,
        document.table,
    )
    if plan.address != address:
        raise CommitterError(
            f"{address} is a plan of {plan.address}: it was copied or moved, and another job's "
            "files could be touched; give the plan where it was written"
        )
    return plan


def _check_whole(document: _Document) -> None:
    """Refuse what no job does, although each file by itself is one that it may have."""
    written = {one.key for one in document.files}
    if len(written) != len(document.files):
        raise ValueError("two of its files have one key")
    if written & {one.key for one in document.old}:
        raise ValueError("it removes a file that it has")
    if not is_manifest(document.success_path):
        raise ValueError(f"a job does not write its manifest to {document.success_path!r}")


def _old(one: OldFile, folder: Folder) -> OldFile:
    path = check_below(one.key)
    if is_hidden(path) and path.rpartition("/")[2] not in SUMMARIES:
        raise ValueError(f"a job does not replace {path!r}, which readers do not see")
    return OldFile(folder.key(path), one.etag)


def _file(one: _File, folder: Folder, *, is_magic: bool) -> PendingFile:
    if not is_magic or one.key == SUCCESS or one.key.startswith(PLANS):
        check_path(one.key)
    else:
        check_below(one.key)  # Hadoop's jobs may write files that readers skip
    if one.length < 0:
        raise ValueError(f"the file {one.key!r} has {one.length} bytes")
    data = None if one.data is None else base64.b64decode(one.data, validate=True)
    if data is None and not one.upload_id:
        raise ValueError(f"the file {one.key!r} has neither an upload nor bytes")
    if data is not None and len(data) != one.length:
        raise ValueError(f"the file {one.key!r} has {len(data)} bytes, not {one.length}")
    return PendingFile(
        folder.key(one.key),
        one.length,
        one.rows,
        one.upload_id,
        one.etags,
        data,
        one.is_stamped,
        one.stamp,
    )
