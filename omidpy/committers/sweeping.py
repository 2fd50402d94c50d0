"""Removes files that were uploaded for transactions, and that no snapshot will ever see.

    S1  the low watermark L is read
    S2  jobs are listed, by the names of their files; one that began above L is left alone
    S3  every version of the cells that name files is read
    S4  a job that a cell names goes if its transaction has certainly not committed; that is asked,
        and a commit that has not happened is forbidden
    S5  a job that no cell names goes
    S6  but neither, while the table, or the commit table, is in doubt, since it may have been
        restored: a cell may have come back without what proved its commit, and one that is missing
        may come back, too (`facts/tables/sightings.py`).  That is read behind S3

    P4 (unnamed)  nothing is removed that a cell names, or that a cell may come to name

At or below L no transaction commits any more (I4), and one that has committed had written its cells
before; so what S3 does not find was never committed, or was replaced and then collected, which is
when no snapshot can read it.  The order matters: cells that were read before L was raised may have
lacked those of a transaction that then committed.

Jobs of other stores, and of other tables of this one, have folders of their own and are not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from omidpy.base.cells import is_tombstone
from omidpy.base.reach import reached
from omidpy.base.tables import PUBLISHED_TABLE, incarnation
from omidpy.base.words.arguments import prefix_end
from omidpy.committers.contents import manifests
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing.completing import unobserved
from omidpy.committers.transactional import discard, owner_of
from omidpy.errors import CommitterError, ConfigError, NoSuchTable
from omidpy.facts.commit_table import COMMIT_TABLE, read_low_watermark
from omidpy.facts.tables.sightings import doubt_about
from omidpy.model import Aborted, Cell, Committed, KeyRange, Outcome, Timestamp, base

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager

_COLUMN: Final = (manifests.FAMILY, manifests.FILES.partition(b":")[2])


@dataclass(slots=True)
class Swept:
    """What became of the jobs of a destination."""

    removed: list[str] = field(default_factory=list)
    """Jobs whose files went, or would go."""
    objects: int = 0
    """How many these had."""
    running: list[str] = field(default_factory=list)
    """Kept: their transactions may still commit."""
    undecided: list[str] = field(default_factory=list)
    """Kept: it could not be said whether their transactions have committed, or the table may have
    been restored since."""
    named: int = 0
    """Kept: so many jobs are part of a snapshot that can be read."""


def sweep(
    tm: TransactionManager,
    store: ObjectStore,
    folder: Folder,
    *,
    is_dry: bool = False,
    progress: Callable[[int, int], None] = unobserved,
) -> Swept:
    """Remove what no reader will see of a destination.

    Args:
        tm: Of the store whose transactions have published there.
        store: How the object store is reached.
        folder: The destination.
        is_dry: Only say what would go.
        progress: Told of each job.

    Raises:
        ConfigError: the store cannot say what its cells were.
        CommitterError: the table is gone, so that it is not known what is named.
    """
    if not tm.store.capabilities.multi_version_scan:
        raise ConfigError(
            f"{tm.store.url} shows the newest version of a cell alone, so that files of older "
            "snapshots would go; open the store through hbase+thrift2://"
        )
    low_watermark = read_low_watermark(tm.store)
    owner = owner_of(tm)
    jobs = _jobs(store, manifests.owner_folder(folder, owner))
    named = _named(tm, folder)
    doubtful = _doubtful(tm)
    swept = Swept()
    for done, (job_id, objects) in enumerate(sorted(jobs.items()), 1):
        start_ts = manifests.start_ts_of(job_id)
        if start_ts is None:
            continue  # no publisher of ours has made this
        cell = named.get(job_id)
        if start_ts > low_watermark and not _is_committed(tm, start_ts, cell):
            swept.running.append(job_id)
        else:
            outcome = _outcome(tm, start_ts, cell)
            if isinstance(outcome, Committed):
                swept.named += 1
            elif not isinstance(outcome, Aborted) or start_ts <= doubtful:
                swept.undecided.append(job_id)
            else:
                reached("publishing.swept", "P4")
                swept.removed.append(job_id)
                place = manifests.job_folder(folder, owner, job_id)
                swept.objects += objects if is_dry else discard(store, place)
        progress(done, len(jobs))
    return swept


def _is_committed(tm: TransactionManager, start_ts: int, cell: Cell | None) -> bool:
    """Say whether a transaction that might commit has: snapshots read what it has published."""
    return cell is not None and isinstance(_outcome(tm, start_ts, cell), Committed)


def _outcome(tm: TransactionManager, start_ts: int, cell: Cell | None) -> Outcome:
    """Say what became of a transaction by a cell that names a job; None if none does, nor will."""
    if cell is None:
        return Aborted()
    table = tm.session.catalog.full_name(PUBLISHED_TABLE)
    return tm.session.outcomes.of_running(Timestamp(start_ts), (table, cell))


def _doubtful(tm: TransactionManager) -> int:
    """Return up to which transaction nothing follows from what is not there.

    Cost: 3 RPCs where single tables are restored.
    """
    table = tm.session.catalog.full_name(PUBLISHED_TABLE)
    which = incarnation(tm.store.schema(table))
    return max(doubt_about(tm.store, *one) for one in ((table, which), (COMMIT_TABLE, "")))


def _jobs(store: ObjectStore, place: Folder) -> dict[str, int]:
    """Return the jobs that have left anything below a folder, with how many objects each has."""
    found: dict[str, int] = {}
    for one in store.objects(place):
        job_id = place.below(one.key).partition("/")[0]
        found[job_id] = found.get(job_id, 0) + 1
    for upload in store.uploads(place):
        found.setdefault(place.below(upload.key).partition("/")[0], 0)
    return found


def _named(tm: TransactionManager, folder: Folder) -> dict[str, Cell]:
    """Return the jobs that any version of any cell names, each with one such cell.

    Raises:
        CommitterError: the table is gone.
    """
    table = tm.session.catalog.full_name(PUBLISHED_TABLE)
    start = manifests.portions_prefix(folder)
    found: dict[str, Cell] = {}
    try:
        pages: Iterable[list[list[Cell]]] = tm.store.scan(
            table, KeyRange(start, prefix_end(start)), columns=[_COLUMN]
        )
        for page in pages:
            for row in page:
                job_id = manifests.parse_portion_row(folder, row[0].row).job_id
                for cell in row:
                    # A tombstone is of the job's successor, and names nothing.
                    if not is_tombstone(cell.value):
                        assert base(cell.version) == manifests.start_ts_of(job_id)
                        found.setdefault(job_id, cell)
    except NoSuchTable as error:
        raise CommitterError(
            f"there is no table {table} in {tm.store.url}, so that nobody knows which files of "
            f"{folder.url} are in use; check --store, nothing was removed"
        ) from error
    return found
