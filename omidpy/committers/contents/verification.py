"""Is what `_SUCCESS` promises there?  Each file that it names, with its bytes, tag and rows."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ListedObject, ObjectStore
from omidpy.committers.places import SUCCESS, Folder, is_hidden
from omidpy.committers.publishing import success
from omidpy.committers.publishing.completing import unobserved
from omidpy.errors import CommitterError


@dataclass(slots=True)
class Verified:
    """What a look at every file of a destination has found."""

    job_id: str
    committer: str
    files: int = 0
    bytes: int = 0
    rows: int | None = None
    """Counted in the files; None if that was not asked."""
    missing: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    """Files that are others than the job's, each with what differs."""
    others: list[str] = field(default_factory=list)
    """Files of other jobs, which is no error."""

    @property
    def is_whole(self) -> bool:
        """Say whether everything is as the manifest has it."""
        return not self.missing and not self.different


def verify(
    store: ObjectStore,
    folder: Folder,
    *,
    reads_rows: bool = False,
    progress: Callable[[int, int], None] = unobserved,
) -> Verified:
    """Compare a destination with its `_SUCCESS`: 1 read and 1 listing for each 1,000 files.

    Args:
        store: Where it is.
        folder: The destination.
        reads_rows: Count the rows of Parquet files, too, each of which is read whole.
        progress: Told of each file.

    Raises:
        CommitterError: There is no `_SUCCESS`, or none that says which files there are.
    """
    address = f"{folder.url}/{SUCCESS}"
    try:
        data, _ = store.get(folder.bucket, folder.key(SUCCESS))
    except Gone as error:
        raise CommitterError(
            f"there is no {address}: no job was committed there, or it is still running; "
            f"`omidpy committers plan list {folder.url}` shows whether one is unfinished"
        ) from error
    document = success.decode(data, address)
    if not document:
        raise CommitterError(
            f"{address} is empty: it was left by a committer that renames, and names no files"
        )
    found = {one.key: one for one in store.objects(folder)}
    promised = _promised(document)
    result = Verified(str(document.get("jobId", "")), str(document.get("committer", "")))
    result.rows = 0 if reads_rows else None
    for done, one in enumerate(promised, 1):
        _compare(store, folder, one, found.get(one["key"]), result)
        progress(done, len(promised))
    names = {one["key"] for one in promised}
    result.others = sorted(
        key for key in found if key not in names and not is_hidden(folder.below(key))
    )
    return result


def _promised(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the files of a manifest; Hadoop's has their names alone, and at most a hundred."""
    ours = document.get("omidpy")
    if isinstance(ours, dict) and isinstance(ours.get("files"), list):
        return [one for one in ours["files"] if isinstance(one, dict) and "key" in one]
    return [{"key": str(name).removeprefix("/")} for name in document.get("filenames") or ()]


def _compare(
    store: ObjectStore,
    folder: Folder,
    promised: dict[str, Any],
    found: ListedObject | None,
    to: Verified,
) -> None:
    key = promised["key"]
    if found is None:
        to.missing.append(key)
        return
    to.files += 1
    to.bytes += found.length
    if promised.get("bytes", found.length) != found.length:
        to.different.append(f"{key}: {found.length} bytes, not {promised['bytes']}")
        return
    if promised.get("etag") and promised["etag"] != found.etag:
        to.different.append(f"{key}: its tag is {found.etag}, not {promised['etag']}")
        return
    if to.rows is not None and key.endswith(".parquet"):
        rows = _rows(store.get(folder.bucket, key)[0], key)
        to.rows += rows
        if promised.get("rows") not in {None, rows}:
            to.different.append(f"{key}: {rows} rows, not {promised['rows']}")


def _rows(data: bytes, key: str) -> int:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415 - see above

    try:
        return int(pq.read_metadata(io.BytesIO(data)).num_rows)
    except (pa.ArrowInvalid, OSError) as error:
        raise CommitterError(f"{key} is no Parquet file: {error}") from error
