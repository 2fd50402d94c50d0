"""What a sweep says that it would remove and keep, and what it then does, is the same."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

import pyarrow as pa
import pytest

from omidpy.base.tables import PUBLISHED_TABLE, incarnation
from omidpy.committers import job, sweeping, transactional
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.sweeping import Swept
from omidpy.connect import make_publisher
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.tables.sightings import accept, sight, state_of
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from omidpy.tx.transaction import Transaction
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.restoring import RestoringStore

LAKE = Folder("lake", "flights/")
ONE = pa.table({"v": [1]})


class World:
    """A store of cells, its oracle, and a destination."""

    def __init__(self, cells: MemoryStore | None = None) -> None:
        """Begin with nothing."""
        self.cells = cells or MemoryStore()
        self.oracle = NaiveOracle(self.cells)
        self.tm = TransactionManager(
            self.cells, self.oracle, post_commit="sync", make_publisher=make_publisher
        )
        self.objects = ObjectStore()

    def publish(self, tx: Transaction, **options: str) -> str:
        """Publish a file with a transaction; return its job."""
        return tx.publish([ONE], LAKE.url, threads=1, **options).job_id

    def sweep(self, *, is_dry: bool) -> Swept:
        """Sweep, or say what a sweep would do."""
        return sweeping.sweep(self.tm, self.objects, LAKE, is_dry=is_dry)

    def stored(self) -> list[tuple[str, str]]:
        """Return all objects, with their tags."""
        return [(one.key, one.etag) for one in self.objects.objects(Folder("lake", ""))]


@pytest.fixture
def world(moto_bucket: str) -> World:
    """Give an empty one."""
    del moto_bucket
    return World()


def test_a_dry_sweep_says_truly_what_a_sweep_keeps(world: World) -> None:
    """Of every kind of job: dead, replaced, committed a moment ago, and running."""
    dead, dead_and_flushed = world.tm.begin(), world.tm.begin()
    gone = [world.publish(dead), world.publish(dead_and_flushed)]
    dead_and_flushed.flush()
    with world.tm.begin() as tx:
        world.publish(tx)
    with world.tm.begin() as tx:
        world.publish(tx, conflict="replace")  # an older snapshot reads what it has replaced
    world.oracle.raise_low_watermark()
    with world.tm.begin() as tx:
        world.publish(tx)
    running, flushed = world.tm.begin(), world.tm.begin()
    kept = [world.publish(running), world.publish(flushed)]
    flushed.flush()
    before = world.stored()

    said = world.sweep(is_dry=True)

    assert world.stored() == before
    assert (said.named, sorted(said.removed), sorted(said.running)) == (
        3,
        sorted(gone),
        sorted(kept),
    )
    assert said.objects > 0
    assert asdict(world.sweep(is_dry=False)) == asdict(said)
    left = {key for key, _ in world.stored()}
    assert {key for key, _ in before} - left == {
        key for key, _ in before if any(job in key for job in gone)
    }
    # Whom it kept since they may still commit does so.
    running.commit()
    flushed.commit()
    again = world.sweep(is_dry=True)
    assert (again.named, again.removed, again.running) == (5, [], [])
    assert len(world.tm.snapshot().published(LAKE.url).files) == 4


def test_a_dry_sweep_ends_no_transaction(world: World) -> None:
    """Below the low watermark it cannot commit any more, above it is only asked."""
    tx = world.tm.begin()
    job = world.publish(tx)
    tx.flush()
    for _ in range(2):
        assert world.sweep(is_dry=True).running == [job]
    tx.commit()
    assert world.sweep(is_dry=True).named == 1


@pytest.mark.parametrize("is_seen", [True, False])
def test_nothing_goes_while_the_table_may_have_been_restored(
    moto_bucket: str, *, is_seen: bool
) -> None:
    """S6: a cell without its proof, and one that is missing, may be of committed transactions."""
    del moto_bucket
    cells = RestoringStore()
    world = World(cells)
    with world.tm.begin() as tx:
        kept = world.publish(tx)
    tx = world.tm.begin()
    unproven = world.publish(tx)
    tx.flush()
    snapshot = cells.snapshot(PUBLISHED_TABLE)
    tx.commit()  # its shadow cell comes, and its entry goes
    with world.tm.begin() as tx:
        missing = world.publish(tx)
    world.oracle.raise_low_watermark()
    assert (world.sweep(is_dry=False).named, world.sweep(is_dry=True).removed) == (3, [])
    cells.restore(PUBLISHED_TABLE, snapshot)
    world.oracle.decisions.clear()  # it was started again since
    which = incarnation(cells.schema(PUBLISHED_TABLE))
    if is_seen:  # by a compaction, which knows how far the doubt goes
        newest = world.tm.begin().start_ts
        sight(cells, {PUBLISHED_TABLE: which}, newest=lambda: newest)
    before = world.stored()
    swept = world.sweep(is_dry=False)
    assert (swept.named, swept.removed, sorted(swept.undecided)) == (
        1,
        [],
        sorted([unproven, missing]),
    )
    assert world.stored() == before
    state = state_of(cells, PUBLISHED_TABLE)
    assert state is not None
    accept(cells, PUBLISHED_TABLE, which, state=state)
    assert sorted(world.sweep(is_dry=False).removed) == sorted([unproven, missing])
    assert all(kept in key for key, _ in world.stored() if "/published/" in key)


def test_nothing_goes_while_the_commit_table_may_have_been_restored(moto_bucket: str) -> None:
    """What it has lost were commits."""
    del moto_bucket
    cells = RestoringStore()
    world = World(cells)
    dead = world.tm.begin()
    job = world.publish(dead)
    dead.flush()
    world.oracle.raise_low_watermark()
    sight(cells, {COMMIT_TABLE: ""}, newest=lambda: 0)
    assert world.sweep(is_dry=True).removed == [job]
    cells.restore(COMMIT_TABLE, cells.snapshot(COMMIT_TABLE))
    assert (world.sweep(is_dry=False).undecided, world.sweep(is_dry=True).removed) == ([job], [])


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_frame_that_spark_calls_failed_is_published_where_it_is_there(
    world: World, monkeypatch: pytest.MonkeyPatch, *, is_committed: bool
) -> None:
    """The process that committed it was killed behind that; else its files are of nobody."""

    def save(frame: object, place: Folder, job_id: str, *rest: object) -> None:
        del frame, rest
        with suppress(OSError), job(place.url, job_id=job_id, threads=1) as made:
            made.task(ONE)
            if not is_committed:
                raise OSError("an executor is lost")
        raise ValueError("what Spark says")

    monkeypatch.setattr(transactional, "_save", save)
    frame = type("DataFrame", (), {"__module__": "pyspark.sql"})()
    with suppress(ValueError), world.tm.begin() as tx:
        tx.publish(frame, LAKE.url, threads=1)
    seen = world.tm.begin().published(LAKE.url, threads=1)
    assert seen.rows == (1 if is_committed else 0)
    stored = [f"s3://lake/{key}" for key, _ in world.stored() if key.endswith("parquet")]
    assert stored == seen.urls
    assert list(world.objects.uploads(LAKE)) == []
