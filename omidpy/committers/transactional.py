"""One commit for HBase and S3: `tx.publish` and `tx.published`.

    files are uploaded whole -> a cell names them -> the transaction commits

The files are a job's of their own, below a folder that only this transaction has (`manifests.py`),
and are durable before the cell is written.  So the oracle's decision is the one instant at which
both appear; a driver that dies before it leaves files that no cell names, and one that dies after
it has nothing left to do.  What no cell names is removed after a rollback, and by `sweeping.py`
after a death.

    P2 (alone)  of two transactions that replace one destination, or found it empty, one commits:
                both write its head
    P3 (both)   of two that append, neither loses files: no two jobs have one row

A transaction that replaces removes the rows that its snapshot sees.  So what was appended at the
same time stays, as if it had come afterwards.

`_SUCCESS` at the destination says for readers without transactions what the newest snapshot sees.
It is written after the commit, by each publisher for all before it, and never goes back.
"""

from __future__ import annotations

import json
import uuid
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.installation import install_hint
from omidpy.base.reach import reached
from omidpy.base.tables import PUBLISHED_TABLE
from omidpy.base.timing.clock import SystemClock
from omidpy.committers.choice import CONFLICTS, committer, object_store
from omidpy.committers.contents import manifests
from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.contents.state import Publication, Published
from omidpy.committers.jobs import Job
from omidpy.committers.objects.answers import Gone, NoBucket, Occupied
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import SUCCESS, Folder, parse_folder
from omidpy.committers.publishing import success
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import Manifest
from omidpy.errors import CommitterError, ConfigError, NoSuchTable, TableExists, UsageError

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.tx.transaction import Transaction

COMMITTERS: Final = ("omidpy", "directory")
"""Whose files are where their messages say, with all that a cell tells of them."""
ROW_PREFIX: Final = b"published/"
"""Of facts; `published/created/<table>`: a client was about to make it, and so it may have been."""

_NOT_OURS: Final = {
    "job_id": "the transaction's start timestamp is in it",
    "unique_names": "names are unique",
    "store": "its commit is the transaction's",
    "scope": "conflict speaks of the whole destination",
    "table_format": "the transaction says what is visible, and no log",
}
_TRIES: Final = 5


class Publisher:
    """Publishes for the transactions of one manager.  Safe to share among threads."""

    def __init__(self, tm: TransactionManager) -> None:
        """Publish into the manager's store."""
        self._tm = tm
        self._told: weakref.WeakKeyDictionary[Transaction, set[str]] = weakref.WeakKeyDictionary()
        """To which destinations a transaction will have published."""

    # -- publishing ----------------------------------------------------------------------------

    def publish(
        self,
        tx: Transaction,
        what: object,
        destination: str,
        *,
        conflict: str,
        partition_by: Iterable[str],
        **options: Any,
    ) -> Publication:
        """Upload, and name the files in cells of the transaction; see `Transaction.publish`."""
        folder = parse_folder(destination)
        if conflict not in CONFLICTS:
            raise UsageError(f"conflict={conflict!r} is none of {', '.join(CONFLICTS)}")
        if isinstance(partition_by, str):
            raise UsageError(f"partition_by must be a list of columns: [{partition_by!r}]")
        job_id = manifests.job_name(tx.start_ts, uuid.uuid4().hex[:12])
        owner = owner_of(self._tm)
        place = manifests.job_folder(folder, owner, job_id)
        made, tells = _committer(place, job_id, options)
        table = self._open(tx)
        seen = _rows(tx, folder) if conflict != "append" else []
        if conflict == "fail" and seen:
            raise CommitterError(
                f"{folder.url} is not empty: {len(seen)} publications are visible at "
                f"{tx.start_ts}; write elsewhere, or choose conflict='append' or 'replace'"
            )
        tx.after_rollback(lambda: discard(made.store, place))
        columns = tuple(partition_by)
        if type(what).__module__.startswith("pyspark."):
            try:
                _save(what, place, job_id, columns, made.name, options)
            except Exception:
                # Spark calls it failed, too, where the process that committed it was killed behind.
                if not _is_written(made.store, place, job_id):
                    raise
        else:
            _write(Job(made, partition_by=columns), what)
        files = _uploaded(made.store, place, job_id)
        with tx.whole(f"a publication to {folder.url} was cut short"):
            if conflict != "append":
                tx.table(table).put(manifests.head_row(folder), {manifests.HEAD: job_id.encode()})
                for row in seen:
                    tx.table(table).delete(row)
            names = tx.table(table, conflict_free=True)
            for number, cell in enumerate(manifests.portions(owner, files)):
                row = manifests.portion_row(folder, job_id, number)
                names.put(row, {manifests.FILES: cell})
        if tells and folder.url not in (told := self._told.setdefault(tx, set())):
            told.add(folder.url)
            tx.after_commit(lambda _: self.tell(made.store, folder))
            tx.when_undone(lambda: told.discard(folder.url))
        return Publication(job_id, folder.url, tuple(files))

    def _open(self, tx: Transaction) -> str:
        """Return the name of the table, which the first that publishes makes."""
        tm = self._tm
        try:
            tx.table(PUBLISHED_TABLE)
        except NoSuchTable:
            try:
                self._create(tm)
            except TableExists:
                tm.session.catalog.forget(tm.session.catalog.full_name(PUBLISHED_TABLE))
        return PUBLISHED_TABLE

    def _create(self, tm: TransactionManager) -> None:
        planned = tm.session.catalog.plan(PUBLISHED_TABLE, [manifests.FAMILY], (), is_own=True)
        if tm.session.control.replace(_created_row(tm), None, b"{}"):
            # There never was one, and so no transaction that wrote to an earlier one.  A fence, as
            # of every other table, would abort the one that publishes.
            tm.session.catalog.create(planned)
        else:
            tm.session.make_table(planned)

    # -- reading -------------------------------------------------------------------------------

    def published(self, tx: Transaction, destination: str, **options: Any) -> Published:
        """Return what a transaction sees of a destination; see `Transaction.published`."""
        folder = parse_folder(destination)
        store = object_store(folder.url, options)
        return _seen(tx, folder, store)

    # -- readers without transactions ----------------------------------------------------------

    def tell(self, store: ObjectStore, folder: Folder) -> bool:
        """Write `_SUCCESS` unless a later snapshot has; say whether it was written.

        Raises:
            CommitterError: the object store failed; the next publisher tells of this one, too.
        """
        with self._tm.snapshot() as tx:
            seen = _seen(tx, folder, store)
        for _ in range(_TRIES):
            etag, snapshot_ts = _told_until(store, folder)
            if snapshot_ts >= seen.snapshot_ts:
                return False
            try:
                store.put(
                    folder.bucket,
                    folder.key(SUCCESS),
                    _success(seen),
                    is_new=not etag,
                    expected_etag=etag,
                )
            except (Occupied, Gone):
                reached("publishing.told_by_another", "P1")
                continue  # another was quicker: look again
            return True
        return False


# -- uploading -------------------------------------------------------------------------------------


def _committer(place: Folder, job_id: str, options: Mapping[str, Any]) -> tuple[S3Committer, bool]:
    """Make the committer of a job, and say whether `_SUCCESS` is wanted.

    Raises:
        UsageError: an option is wrong; nothing was sent.
    """
    given = dict(options)
    tells = given.pop("success", True)
    if not isinstance(tells, bool):
        raise UsageError(f"success={tells!r} must be True or False")
    for name, why in _NOT_OURS.items():
        if name in given:
            raise UsageError(f"tx.publish takes no option {name!r}: {why}")
    name = given.pop("committer", COMMITTERS[0])
    if name not in COMMITTERS:
        raise UsageError(f"committer={name!r} is none of {', '.join(COMMITTERS)}")
    made = committer(place.url, name, job_id=job_id, **given)
    assert isinstance(made, S3Committer), "those named above are"
    made.may_have_run_before = False  # the id is new with each call
    return made, tells


def _write(job: Job, what: object) -> None:
    """Write frames and files, a task each, as a job of its own."""
    outputs = list(what) if isinstance(what, list | tuple) else [what]
    with job:
        for one in outputs:
            job.task(_table(one))


def _table(one: object) -> object:
    """Turn what another library calls a table into pyarrow's; paths and all else stay."""
    module = type(one).__module__.partition(".")[0]
    if isinstance(one, str) or module in {"pathlib", "pyarrow"}:
        return one
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"publishing tables needs pyarrow: {install_hint('s3')}") from error
    if module == "pandas":
        return pa.Table.from_pandas(one)
    return pa.table(one) if hasattr(one, "__arrow_c_stream__") else one


def _save(
    frame: Any,
    place: Folder,
    job_id: str,
    partition_by: tuple[str, ...],
    name: str,
    options: Mapping[str, Any],
) -> None:
    """Let Spark's tasks write a frame, as a job of the same id."""
    from omidpy.committers.spark import source  # noqa: PLC0415 - an extra

    source.register(frame.sparkSession)
    given = {key: value for key, value in options.items() if key not in {"success", "committer"}}
    writer = frame.write.format(source.NAME).mode("append")
    writer = writer.option("job_id", job_id).option("committer", name)
    # It names the files to us, whatever the session says of it.
    writer = writer.option("success", "true")
    if partition_by:
        writer = writer.option("partitionBy", ",".join(partition_by))
    for key, value in given.items():
        writer = writer.option(key, value)
    writer.save(place.url)


def _is_written(store: ObjectStore, place: Folder, job_id: str) -> bool:
    """Say whether a job is known to be committed, whose files its `_SUCCESS` names."""
    with suppress(CommitterError):
        found = store.head(place.bucket, place.key(SUCCESS))
        return found is not None and found.job_id == job_id
    return False


def _uploaded(store: ObjectStore, place: Folder, job_id: str) -> list[PublishedFile]:
    """Return the files of a job that is committed, as its own `_SUCCESS` names them.

    Tasks of Spark have told their driver, which is another process.
    """
    address = f"{place.url}/{SUCCESS}"
    document = success.decode(store.get(place.bucket, place.key(SUCCESS))[0], address)
    if document.get("jobId") != job_id or "omidpy" not in document:
        raise CommitterError(f"{address} is not of job {job_id}, which was to write it")
    return [
        PublishedFile(
            place.bucket,
            one["key"],
            place.below(one["key"]),
            one["bytes"],
            one["rows"],
            one["etag"],
        )
        for one in document["omidpy"]["files"]
    ]


def discard(store: ObjectStore, place: Folder) -> int:
    """Remove everything of a job that no cell will ever name; return how many objects it had.

    Uploads go first, so that none becomes an object behind us.
    """
    try:
        uploads = list(store.uploads(place))
    except NoBucket:
        return 0  # of which the caller that failed was told
    for upload in uploads:
        store.abort_upload(place.bucket, upload.key, upload.upload_id)
    keys = [one.key for one in store.objects(place)]
    store.delete_many(place.bucket, keys)
    return len(keys)


# -- the table -------------------------------------------------------------------------------------


def owner_of(tm: TransactionManager) -> str:
    """Return what stands for the table of a manager in the names of files."""
    return manifests.owner_name(tm.store.store_id, tm.session.catalog.full_name(PUBLISHED_TABLE))


def _created_row(tm: TransactionManager) -> bytes:
    return ROW_PREFIX + b"created/" + tm.session.catalog.full_name(PUBLISHED_TABLE).encode()


def _cells(tx: Transaction, folder: Folder) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a destination's portions that a transaction sees, with their cells."""
    try:
        table = tx.table(PUBLISHED_TABLE)
    except NoSuchTable:
        return
    for row, cells in table.scan(row_prefix=manifests.portions_prefix(folder)):
        yield row, cells[manifests.FILES]


def _rows(tx: Transaction, folder: Folder) -> list[bytes]:
    return [row for row, _ in _cells(tx, folder)]


def _seen(tx: Transaction, folder: Folder, store: ObjectStore) -> Published:
    files: list[PublishedFile] = []
    for row, cell in _cells(tx, folder):
        name = manifests.parse_portion_row(folder, row)
        files += manifests.decode_portion(folder, name.job_id, cell)
    ordered = tuple(sorted(files, key=lambda one: one.key))
    return Published(folder.url, tx.start_ts, ordered, store)


# -- `_SUCCESS` ------------------------------------------------------------------------------------


def _told_until(store: ObjectStore, folder: Folder) -> tuple[str, int]:
    """Return the tag of `_SUCCESS`, empty if there is none, and the snapshot that it tells of."""
    try:
        data, etag = store.get(folder.bucket, folder.key(SUCCESS))
    except Gone:
        return "", 0
    try:
        document = success.decode(data, f"{folder.url}/{SUCCESS}")
        return etag, int(document["omidpy"]["snapshot_ts"])
    except (CommitterError, KeyError, TypeError, ValueError):
        return etag, 0  # of a job without a transaction, or of none


def _success(seen: Published) -> bytes:
    manifest = Manifest(
        f"snapshot {seen.snapshot_ts}",
        seen.destination,
        "omidpy",
        tuple(one.key for one in seen.files),
        seen.size_bytes,
        seen.rows,
        0.0,
        0,
        extra={"snapshot_ts": seen.snapshot_ts},
    )
    now_ms = SystemClock().wall_ms()
    document = json.loads(success.encode(manifest, (), now_ms=now_ms))
    document["omidpy"]["files"] = [
        {"key": one.key, "bytes": one.length, "rows": one.rows, "etag": one.etag}
        for one in seen.files
    ]
    return json.dumps(document, separators=(",", ":")).encode()
