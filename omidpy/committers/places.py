"""Where does a job write?  Addresses of objects and folders, and names that no other job uses.

A prefix is a folder: its key ends in "/", so that `dataset1` never touches `dataset10`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from omidpy.errors import UsageError

SCHEMES: Final = ("s3", "s3a", "s3n")
SUCCESS: Final = "_SUCCESS"
SUMMARIES: Final = frozenset({"_metadata", "_common_metadata"})
"""Hidden files that speak of the files beside them, and go with them."""
PLANS: Final = "_omidpy/"
"""The folder, below a destination, of the plans of jobs that are being committed."""
LISTS: Final = f"{PLANS}lists/"
"""The folder of the lists of files that a destination's head names."""
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""How Hive and Spark name the folder of a missing value."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_STREAM: Final = re.compile(rf"{PLANS}streams/[A-Za-z0-9_-]+\.json")
_ADDRESS: Final = re.compile(r"([A-Za-z0-9]+)://([^/]*)(?:/(.*))?", re.DOTALL)
_UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_JOB_ID: Final = re.compile(rf"{_UUID}(?:-b[0-9]{{10}})?|[A-Za-z0-9_]{{8,128}}")
_OWNERS: Final = (
    re.compile(rf"-({_UUID}(?:-b[0-9]{{10}})?)$"),
    re.compile(r"-([A-Za-z0-9_]{8,128})$"),
)
# What Spark escapes in the name of a partition's folder, and nothing else: it reads an escape as
# one character, so that the bytes of a letter beyond ASCII would come back as other letters.
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(0x20)))


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of a bucket."""

    bucket: str
    prefix: str
    """Empty for the whole bucket; else it ends in "/" and does not begin with it."""

    @property
    def url(self) -> str:
        """Its address, without "/" at the end."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def key(self, path: str) -> str:
        """Return the key of a file by its path below the folder."""
        return self.prefix + path

    def below(self, key: str) -> str:
        """Return the path of a key below the folder."""
        assert key.startswith(self.prefix), f"{key} is not in {self.url}"
        return key[len(self.prefix) :]

    def plan_key(self, job_id: str) -> str:
        """Return the key of a job's plan."""
        return f"{self.prefix}{PLANS}{job_id}/plan.json"


def is_object_store(address: str) -> bool:
    """Say whether an address is one of S3, and not of a file system."""
    return address.partition("://")[0].lower() in SCHEMES and "://" in address


def parse_folder(address: str) -> Folder:
    """Read `s3://bucket/folder`.

    Raises:
        UsageError: It is no such address.
    """
    bucket, path = _parse(address)
    path = path.strip("/")
    if any(part in {"", ".", ".."} for part in path.split("/")) and path:
        raise UsageError(f"{address!r} has an empty folder, '.' or '..' in its path")
    return Folder(bucket, f"{path}/" if path else "")


def parse_object(address: str) -> tuple[str, str]:
    """Read `s3://bucket/key`; return bucket and key.

    Raises:
        UsageError: It is no such address.
    """
    bucket, key = _parse(address)
    if not key.strip("/"):
        raise UsageError(f"{address!r} names a bucket and no object in it; write s3://BUCKET/KEY")
    return bucket, key


def check_path(path: str) -> str:
    """Return a file's path below its destination.

    Raises:
        UsageError: It would lie elsewhere, or be hidden from readers.
    """
    parts = path.split("/")
    if not path or any(part in {"", ".", ".."} for part in parts):
        raise UsageError(f"the path {path!r} is no path of a file below the destination")
    if _CONTROL.search(path):
        raise UsageError(
            f"the path {path!r} has a control character, which answers of a store cannot carry; "
            "name the file otherwise"
        )
    if is_hidden(path):
        raise UsageError(
            f"the path {path!r} has a part that begins with '_' or '.', which readers of "
            "datasets skip; name the file otherwise"
        )
    return path


def check_below(path: str) -> str:
    """Return the path of an object below a destination, hidden or not.

    Raises:
        UsageError: It would lie elsewhere, or is a folder.
    """
    if any(part in {"", ".", ".."} for part in path.split("/")):
        raise UsageError(f"the path {path!r} is no path of a file below the destination")
    return path


def is_manifest(path: str) -> bool:
    """Say whether a job may write its manifest to a path below its destination."""
    return path == SUCCESS or _STREAM.fullmatch(path) is not None


def is_hidden(path: str) -> bool:
    """Say whether readers of datasets skip a file: a part of its path begins with `_` or `.`.

    A partition's folder, `_name=value`, is none of these.
    """
    *folders, name = path.split("/")
    return name.startswith(("_", ".")) or any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) for part in folders
    )


def check_job_id(job_id: str) -> str:
    """Return a job's id if names that hold it can be told from those of every other.

    Raises:
        UsageError: It cannot be found again in a file's name.
    """
    if not is_job_id(job_id):
        raise UsageError(
            f"the job id {job_id!r} must be a UUID, or 8 to 128 letters, digits and '_'; leave it "
            "out for a new one"
        )
    return job_id


def is_job_id(text: str) -> bool:
    """Say whether a text can be the id of a job."""
    return _JOB_ID.fullmatch(text) is not None


def batch_of(job_id: str) -> tuple[str, int]:
    """Return the query of a batch and its number, by its job's id; -1 of a job that is no batch."""
    query, _, number = job_id.rpartition("-b")
    return query, int(number) if number.isdecimal() else -1


def owner(path: str) -> str:
    """Return the id of the job that a file's name ends in, before its first dot; empty if none.

    No id is taken for another that it is a part of: what looks like a UUID is one.
    """
    stem = path.rpartition("/")[2].partition(".")[0]
    return next((match[1] for one in _OWNERS if (match := one.search(stem))), "")


def names_job(path: str, job_id: str) -> bool:
    """Say whether a name speaks of a job: ours at its end, or Spark's with a UUID within."""
    if owner(path) == job_id:
        return True
    is_uuid = re.fullmatch(_UUID, job_id) is not None
    return (
        is_uuid and re.search(rf"(?<![0-9a-fA-F]){job_id}(?![0-9a-fA-F]|-b[0-9])", path) is not None
    )


def unique_name(path: str, job_id: str) -> str:
    """Put a job's id into a file's name, before its first dot, unless it stands there.

    Source: Hadoop's staging committers; they leave a name alone that has the id anywhere.
    """
    if owner(path) == job_id:
        return path
    folder, slash, name = path.rpartition("/")
    stem, dot, endings = name.partition(".")
    return f"{folder}{slash}{stem}-{job_id}{dot}{endings}"


def partition_folder(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """Return the folder of a partition, `a=1/b=x`, as Hive and Spark escape it."""
    parts = []
    for name, value in zip(names, values, strict=True):
        # An empty text is as good as none: a folder cannot say it otherwise.
        text = _escaped(value) if value else NULL_PARTITION
        parts.append(f"{_escaped(name)}={text}")
    return "/".join(parts)


def folder_of(path: str) -> str:
    """Return the folder of a file, without "/" at its end; empty for one at the top."""
    return path.rpartition("/")[0]


def _escaped(text: str) -> str:
    return "".join(f"%{ord(one):02X}" if one in _ESCAPED else one for one in text)


def _parse(address: str) -> tuple[str, str]:
    match = _ADDRESS.fullmatch(address)
    if match is None or match[1].lower() not in SCHEMES or not match[2]:
        raise UsageError(f"{address!r} is no address of S3; write s3://BUCKET/FOLDER")
    return match[2], match[3] or ""
