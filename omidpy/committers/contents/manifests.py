"""What is published where?  Cells of a transactional table, each of which names files.

Rows of `OMIDPY_PUBLISHED`, where <destination> is `s3://BUCKET/FOLDER`:

    <destination> 00 h                      written by who replaces or found nothing
    <destination> 00 p <job> 00 <number>    the files of one publication, in portions

and the files of a job lie below the destination, where readers of folders do not look:

    FOLDER/_omidpy/published/<owner>/<job>/<path>

<owner> tells this table from those of other stores that publish to the same destination, and <job>
holds the start timestamp of its transaction.  So who finds a file knows which transaction to ask
about.

    P1 (named)   a file is part of a destination, for a snapshot, if and only if a cell that the
                 snapshot sees names it; the file is durable before the cell is written

so what was published becomes visible with the rest of its transaction, and with it alone.

Pure.  Lacks the reading and writing of cells (`transactional.py`) and of files.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.committers.places import PLANS, Folder
from omidpy.errors import CommitterError, CorruptCell, UsageError

FAMILY: Final = b"p"
HEAD: Final = FAMILY + b":head"
FILES: Final = FAMILY + b":files"

VERSION: Final = 1
PORTION_FILES: Final = 2000
"""Of one cell: some 300 kB."""

_END: Final = b"\0"
_HEAD: Final = b"h"
_PORTION: Final = b"p"
_OWNER_CHARACTERS: Final = 16
_FOLDER: Final = "published/"
_JOB: Final = re.compile(r"t([0-9]{1,19})_[0-9a-f]{12}")
_MOST_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file that was published."""

    bucket: str
    key: str
    path: str
    """Below the folder of its job: with the folders of partitions, and without the job's."""
    length: int
    rows: int | None = None
    etag: str = ""
    """As its publisher expects it; empty if that is unknown."""

    @property
    def url(self) -> str:
        """The address of the file."""
        return f"s3://{self.bucket}/{self.key}"


class Name(NamedTuple):
    """What the row of a portion says."""

    job_id: str
    number: int


class _Portion(msgspec.Struct, frozen=True):
    """What a cell holds."""

    version: int
    owner: str
    files: list[tuple[str, int, int | None, str]]
    """Path, bytes, rows, tag."""


# -- rows ------------------------------------------------------------------------------------------


def prefix(folder: Folder) -> bytes:
    """Return what the rows of a destination begin with, and no others.

    Raises:
        UsageError: its name has a character that ends names here.
    """
    if "\0" in folder.url:
        raise UsageError(f"{folder.url!r} has a zero byte in its name, and cannot be published to")
    return folder.url.encode() + _END


def head_row(folder: Folder) -> bytes:
    """Return the row that a job which must be alone writes: two that do conflict (P2)."""
    return prefix(folder) + _HEAD


def portions_prefix(folder: Folder) -> bytes:
    """Return what the rows of a destination's portions begin with."""
    return prefix(folder) + _PORTION


def portion_row(folder: Folder, job_id: str, number: int) -> bytes:
    """Return the row of a portion, of its job alone: jobs that append never conflict (P3)."""
    return portions_prefix(folder) + job_id.encode() + _END + b"%08d" % number


def parse_portion_row(folder: Folder, row: bytes) -> Name:
    """Return what the row of a portion says.

    Raises:
        CorruptCell: it is none.
    """
    job_id, _, number = row[len(portions_prefix(folder)) :].partition(_END)
    is_number = number.isdigit() and len(number) <= _MOST_DIGITS
    if not is_number or not _JOB.fullmatch(job_id.decode(errors="replace")):
        raise CorruptCell(f"the row {row!r} names no files that were published")
    return Name(job_id.decode(), int(number))


# -- jobs and their folders ------------------------------------------------------------------------


def job_name(start_ts: int, unique: str) -> str:
    """Return the id of a job of a transaction; `unique` has 12 hex digits."""
    name = f"t{start_ts}_{unique}"
    assert _JOB.fullmatch(name), name
    return name


def start_ts_of(job_id: str) -> int | None:
    """Return the transaction of a job; None if it is of none."""
    match = _JOB.fullmatch(job_id)
    return int(match[1]) if match else None


def owner_name(store_id: str, table: str) -> str:
    """Return what stands for a table of a store in the names of files."""
    # The length keeps two pairs apart whose texts are one when joined.
    text = f"{len(store_id)} {store_id} {table}"
    return hashlib.sha256(text.encode()).hexdigest()[:_OWNER_CHARACTERS]


def owner_folder(folder: Folder, owner: str) -> Folder:
    """Return the folder of all jobs of an owner."""
    return Folder(folder.bucket, f"{folder.prefix}{PLANS}{_FOLDER}{owner}/")


def job_folder(folder: Folder, owner: str, job_id: str) -> Folder:
    """Return the folder of a job."""
    return Folder(folder.bucket, f"{owner_folder(folder, owner).prefix}{job_id}/")


# -- cells -----------------------------------------------------------------------------------------


def portions(owner: str, files: Sequence[PublishedFile]) -> Iterator[bytes]:
    """Yield the cells that name some files; one where there are none."""
    for at in range(0, max(len(files), 1), PORTION_FILES):
        some = files[at : at + PORTION_FILES]
        named = [(one.path, one.length, one.rows, one.etag) for one in some]
        yield msgspec.json.encode(_Portion(VERSION, owner, named))


def decode_portion(folder: Folder, job_id: str, data: bytes) -> list[PublishedFile]:
    """Return the files that a cell names.

    Raises:
        CorruptCell: it is none.
        CommitterError: a newer omidpy has written it.
    """
    try:
        known = msgspec.json.decode(data, type=prepared(_Portion))
    except UNREADABLE as error:
        raise CorruptCell(
            f"a cell of job {job_id} at {folder.url} holds {data[:80]!r}, which names no files: "
            f"{error}"
        ) from error
    if known.version != VERSION:
        raise CommitterError(
            f"job {job_id} was published to {folder.url} in format {known.version}, and this "
            f"omidpy knows format {VERSION}; read it with a newer one"
        )
    place = job_folder(folder, known.owner, job_id)
    return [
        PublishedFile(folder.bucket, place.key(path), path, length, rows, etag)
        for path, length, rows, etag in known.files
    ]
