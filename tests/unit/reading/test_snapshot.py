"""A snapshot over a store: which reads it makes, what it heals, and when it must refuse (I10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from omidpy.base.cells import SHADOW_SUFFIX, encode_long
from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import SnapshotTooOld, StorageUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.watermarks import HORIZON_FREE_AGE_S, Watermarks
from omidpy.model import Cell, KeyRange, Timestamp
from omidpy.oracle.base import Begun
from omidpy.reading.resolution import CellResolver, CommitCache
from omidpy.reading.snapshot import FIRST_VERSIONS, Snapshot, SnapshotReader
from omidpy.reading.visibility import VisibleRow, cells_of
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, Point, on
from tests.machines.cells import ALL_AT_ONCE, World

NEW = Timestamp(10_000)


class Readers:
    """A world of hand-written cells, and snapshots of it that share one reader."""

    def __init__(self) -> None:
        self.store = FaultyStore(MemoryStore())
        self.world = World(self.store, low_watermark=0)
        self.world.table()
        self.clock = ManualClock()
        self.watermarks = Watermarks(self.world.control)
        self.owed: set[int] = set()
        self.reader = SnapshotReader(
            self.store,
            CellResolver(self.store, self.world.commit_table),
            self.watermarks,
            self.clock,
            owes=self.owed.__contains__,
        )

    def at(self, start_ts: int = NEW, *, epoch: int = 0, low_watermark: int = 0) -> Snapshot:
        """Return the snapshot at `start_ts`."""
        begun = Begun(Timestamp(start_ts), Timestamp(epoch), Timestamp(low_watermark))
        return self.reader.open(begun, asked_s=self.clock.monotonic_s())

    def values(self, snapshot: Snapshot, *rows: bytes) -> list[list[bytes]]:
        """Return the values that the snapshot sees in each row."""
        found = snapshot.read("t", rows)
        return [[seen.cell.value for seen in cells_of(row)] for row in found]

    def publish(self, horizon: int) -> None:
        """Publish a collection horizon, as the compactor does."""
        self.watermarks.publish_collection_horizon(Timestamp(horizon), self.clock)


@pytest.fixture
def readers() -> Readers:
    """Return an empty world."""
    return Readers()


# -- the reads it makes ----------------------------------------------------------------------------


def test_healed_rows_cost_one_get(readers: Readers) -> None:
    """The common case: data cells and shadow cells come together."""
    for row in (b"a", b"b"):
        readers.world.healed(row, 100, 150)
    readers.store.calls.clear()
    assert readers.values(readers.at(), b"a", b"b") == [[b"v"], [b"v"]]
    assert readers.store.calls == {"get": 1}


def test_unresolved_cells_of_many_rows_share_their_reads(readers: Readers) -> None:
    """One get of the commit table, one of the shadow cells, one write that heals.

    And one of the horizon, since nothing is seen of some rows.
    """
    for number in range(20):
        readers.world.put(b"%02d" % number, 100 + 50 * (number // 2))
    readers.world.enter(100, 10_000 - 50)
    readers.world.enter(150, 10_000 - 100)
    readers.store.calls.clear()
    seen = readers.values(readers.at(), *(b"%02d" % number for number in range(20)))
    assert seen == [[b"v"]] * 4 + [[]] * 16
    assert readers.store.calls == {"get": 4, "write": 1}


def test_rows_come_in_the_order_asked_for_and_repeat(readers: Readers) -> None:
    """As a list of keys promises."""
    readers.world.healed(b"a", 100, 150, b"A")
    readers.world.healed(b"b", 100, 150, b"B")
    assert readers.values(readers.at(), b"b", b"none", b"a", b"b") == [[b"B"], [], [b"A"], [b"B"]]


def test_a_version_below_many_newer_ones_is_found(readers: Readers) -> None:
    """The first read takes the newest few; where all are too new, the rest is read."""
    readers.world.healed(b"r", 100, 150, b"old")
    for number in range(FIRST_VERSIONS + 2):
        readers.world.healed(b"r", 200 + 50 * number, 5000 + 50 * number, b"new")
    readers.store.calls.clear()
    assert readers.values(readers.at(1000), b"r") == [[b"old"]]
    assert readers.store.calls == {"get": 2}


def test_commits_are_remembered_over_reads(readers: Readers) -> None:
    """A commit timestamp stays true for ever."""
    readers.world.put(b"a", 100)
    readers.world.put(b"b", 100)
    readers.world.enter(100, 150)
    assert readers.values(readers.at(), b"a") == [[b"v"]]
    readers.store.calls.clear()
    assert readers.values(readers.at(), b"b") == [[b"v"]]
    assert readers.store.calls == {"get": 1, "write": 1}, "no commit table get, but healed"


def test_a_commit_found_by_its_shadow_cell_is_remembered(readers: Readers) -> None:
    """Its entry is gone by then; other cells of the transaction need no second search."""
    cell = readers.world.put(b"a", 100)
    readers.world.put(b"b", 100)
    readers.store.plans.append(
        on("get.before", lambda: readers.world.heal(cell, 150), table=COMMIT_TABLE, nth=1)
    )
    assert readers.values(readers.at(), b"a") == [[b"v"]]
    assert readers.values(readers.at(), b"b") == [[b"v"]]


def test_that_something_has_not_committed_is_not_remembered(readers: Readers) -> None:
    """It is true of this snapshot alone."""
    readers.world.put(b"r", 100)
    assert readers.values(readers.at(1000), b"r") == [[]]
    readers.world.enter(100, 1050)
    assert readers.values(readers.at(2000), b"r") == [[b"v"]]


def test_an_autocommitted_cell_is_not_remembered_for_its_number(readers: Readers) -> None:
    """Java writes such a cell outside any transaction; one of the same number may be tentative."""
    auto = readers.world.put(b"a", 100)
    readers.world.put(b"b", 100)
    readers.world.heal(auto, 100)
    snapshot = readers.at()
    assert readers.values(snapshot, b"a", b"b") == [[b"v"], []]
    # Found by reading its shadow cell afresh, it is remembered no more than from the row.
    resolver = readers.reader.resolver
    resolver.resolve([("t", auto)], may_invalidate=lambda _: False)
    assert resolver.cache.get(Timestamp(100)) is None


def test_the_cache_is_bounded() -> None:
    """A process that lives for years keeps the commits it used last."""
    cache = CommitCache(size=2)
    for start_ts in (50, 150, 250):
        cache.update({Timestamp(start_ts): Timestamp(start_ts + 50)})
    known = cache.known(Timestamp(start_ts) for start_ts in (50, 150, 250))
    assert known == {150: 200, 250: 300}


# -- columns ---------------------------------------------------------------------------------------


def test_named_columns_come_alone_though_markers_are_read(readers: Readers) -> None:
    """The family's marker sits in the empty qualifier, which must be read and not shown."""
    for qualifier in (b"", b"a", b"b"):
        cell = readers.world.put(b"r", 100, qualifier=qualifier)
        readers.world.heal(cell, 150)
    found = readers.at().read("t", [b"r"], [(b"cf", b"a")])[0]
    assert [seen.cell.qualifier for seen in cells_of(found)] == [b"a"]


def test_a_marker_hides_a_column_read_by_name(readers: Readers) -> None:
    """Reading one column must see the delete of its family."""
    cell = readers.world.put(b"r", 100, qualifier=b"a")
    readers.world.heal(cell, 150)
    marker = readers.world.put(b"r", 200, b"", qualifier=b"")
    readers.world.heal(marker, 250)
    assert readers.at().read("t", [b"r"], [(b"cf", b"a")]) == [VisibleRow([])]


def test_an_older_shadow_cell_is_found_when_its_column_is_named(readers: Readers) -> None:
    """The row is not asked for it then; the fresh read is, or the cell would be invalidated."""
    cell = readers.world.put(b"r", 100)
    put = Put(b"cf", b"q" + SHADOW_SUFFIX, 100, encode_long(150))
    readers.store.write({"t": [RowMutation(b"r", (put,))]})
    snapshot = readers.at(epoch=5000)
    found = snapshot.read("t", [b"r"], [(b"cf", b"q")])[0]
    assert [tuple(seen) for seen in cells_of(found)] == [(cell, 150)]
    assert readers.world.entries() == {}


# -- healing and invalidating ----------------------------------------------------------------------


def test_what_had_committed_is_healed_tombstones_too(readers: Readers) -> None:
    """The next reader, and the compactor, need not ask again."""
    readers.world.put(b"a", 100)
    readers.world.put(b"b", 103, b"")
    readers.world.enter(100, 150)
    readers.values(readers.at(), b"a", b"b")
    assert readers.world.shadows() == {(b"a", 100): 150, (b"b", 103): 150}
    assert readers.world.entries() == {100: 150}, "readers never remove an entry"


def test_a_commit_beyond_the_snapshot_is_healed_and_not_seen(readers: Readers) -> None:
    """It is final all the same."""
    readers.world.put(b"r", 100)
    readers.world.enter(100, 5000)
    assert readers.values(readers.at(1000), b"r") == [[]]
    assert readers.world.shadows() == {(b"r", 100): 5000}


def test_a_healed_cell_is_not_written_again(readers: Readers) -> None:
    """Its shadow cell appeared between the row's read and the fresh one."""
    cell = readers.world.put(b"r", 100)
    readers.store.plans.append(
        on("get.before", lambda: readers.world.heal(cell, 150), table=COMMIT_TABLE, nth=1)
    )
    readers.store.calls.clear()
    assert readers.values(readers.at(), b"r") == [[b"v"]]
    assert readers.store.calls["write"] == 1, "the writer's own"


def test_a_reader_that_cannot_write_still_reads(
    readers: Readers, caplog: pytest.LogCaptureFixture
) -> None:
    """Healing is a courtesy, and that it fails is not said at each of a thousand reads a second."""
    readers.world.put(b"r", 100)
    readers.world.enter(100, 150)
    readers.store.plans.append(on("write.before", StorageUnavailable("read-only")))
    for _ in range(100):
        assert readers.values(readers.at(), b"r") == [[b"v"]]
    (said,) = caplog.messages
    assert said == "shadow cells of 1 cells could not be written: read-only"


def test_cells_that_this_process_owes_are_not_healed(readers: Readers) -> None:
    """Its own post-commit writes them in a moment."""
    readers.world.put(b"r", 100)
    readers.world.enter(100, 150)
    readers.owed.add(100)
    assert readers.values(readers.at(), b"r") == [[b"v"]]
    assert readers.world.shadows() == {}


@pytest.mark.parametrize(
    ("told", "is_forbidden"),
    [
        ({"epoch": 150}, True),
        ({"low_watermark": 150}, True),
        ({"epoch": 100, "low_watermark": 100}, False),
        ({}, False),
    ],
    ids=["epoch", "low-watermark", "not-below", "java"],
)
def test_only_what_began_below_the_epoch_is_invalidated(
    readers: Readers, told: dict[str, int], *, is_forbidden: bool
) -> None:
    """Above it the oracle may be about to commit, and only the oracle may forbid that."""
    readers.world.put(b"r", 100)
    snapshot = readers.at(1000, **told)
    assert readers.values(snapshot, b"r") == [[]]
    assert readers.world.entries() == ({100: INVALID} if is_forbidden else {})


def test_a_false_invalidation_is_undone_and_leaves_the_entry_alone(readers: Readers) -> None:
    """Only the column `IT` goes."""
    cell = readers.world.put(b"r", 100)
    readers.store.plans.append(
        on("check_and_mutate.before", lambda: readers.world.heal(cell, 150), nth=1)
    )
    assert readers.values(readers.at(1000, epoch=500), b"r") == [[b"v"]]
    assert readers.world.entries() == {}


# -- the horizon (I10) -----------------------------------------------------------------------------

Read = Callable[[Snapshot], object]
READS = pytest.mark.parametrize(
    "read",
    [
        lambda snapshot: snapshot.read("t", [b"r"]),
        lambda snapshot: list(snapshot.scan("t", KeyRange())),
        lambda snapshot: list(snapshot.scan("t", KeyRange(b"x"))),
        lambda snapshot: list(snapshot.scan("t", KeyRange(), reverse=True)),
    ],
    ids=["get", "scan", "empty-scan", "reverse-scan"],
)


@READS
def test_a_snapshot_below_the_horizon_is_refused(readers: Readers, read: Read) -> None:
    """Also where nothing is found: what was there may have been dropped whole."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.publish(1001)
    readers.clock.advance(HORIZON_FREE_AGE_S)
    with pytest.raises(SnapshotTooOld, match=r"snapshot 1000 .* horizon 1001.*--retention"):
        read(snapshot)


@READS
def test_a_snapshot_at_the_horizon_is_served(readers: Readers, read: Read) -> None:
    """The newest version at or below the horizon is kept, so this snapshot has all it needs."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.publish(1000)
    readers.clock.advance(60)
    read(snapshot)


def test_a_young_snapshot_need_not_look(readers: Readers) -> None:
    """A horizon that could pass it has not been public long enough to be acted upon."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.publish(5000)
    readers.clock.advance(HORIZON_FREE_AGE_S * 0.99)
    readers.store.calls.clear()
    assert readers.values(snapshot, b"r") == [[b"v"]]
    assert readers.store.calls == {"get": 1}


def test_the_age_of_a_snapshot_counts_from_before_it_was_asked_for(readers: Readers) -> None:
    """The answer may have been long under way, while the horizon went past it."""
    readers.world.healed(b"r", 100, 150)
    asked_s = readers.clock.monotonic_s()
    readers.clock.advance(HORIZON_FREE_AGE_S)
    readers.publish(5000)
    snapshot = readers.reader.open(Begun(Timestamp(1000)), asked_s=asked_s)
    with pytest.raises(SnapshotTooOld):
        snapshot.read("t", [b"r"])


def test_the_horizon_is_read_after_the_batch_arrived(readers: Readers) -> None:
    """Read before, it could rise and be acted upon while the batch is under way."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.clock.advance(60)

    def collect_and_tell(point: Point) -> None:
        if point.name == "get.before" and point.tables == ("t",):
            readers.store.plans.clear()
            readers.publish(5000)

    readers.store.plans.append(collect_and_tell)
    with pytest.raises(SnapshotTooOld):
        snapshot.read("t", [b"r"])


def test_every_page_of_a_scan_is_judged(readers: Readers) -> None:
    """A long scan may be overtaken half way."""
    for row in (b"a", b"b", b"c"):
        readers.world.healed(row, 100, 150)
    snapshot = readers.at(1000)
    readers.clock.advance(60)
    pages = snapshot.scan("t", KeyRange(), page_rows=1)
    assert [row for row, _ in next(pages)] == [b"a"]
    readers.publish(5000)
    readers.clock.advance(HORIZON_FREE_AGE_S)
    with pytest.raises(SnapshotTooOld):
        next(pages)


def test_the_end_of_a_scan_is_judged(readers: Readers) -> None:
    """`nothing more` is an answer too."""
    readers.world.healed(b"a", 100, 150)
    snapshot = readers.at(1000)
    readers.clock.advance(60)
    pages = snapshot.scan("t", KeyRange(), page_rows=1)
    next(pages)
    readers.publish(5000)
    readers.clock.advance(HORIZON_FREE_AGE_S)
    with pytest.raises(SnapshotTooOld):
        next(pages)


def test_a_look_counts_for_as_long_as_a_begin(readers: Readers) -> None:
    """Old snapshots read as many rows as young ones: one look a second does for all."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.clock.advance(60)
    readers.values(snapshot, b"r")
    readers.store.calls.clear()
    readers.clock.advance(HORIZON_FREE_AGE_S * 0.99)
    assert readers.values(snapshot, b"r") == [[b"v"]]
    assert readers.store.calls == {"get": 1}
    readers.publish(5000)
    readers.clock.advance(HORIZON_FREE_AGE_S * 0.01)
    with pytest.raises(SnapshotTooOld):
        readers.values(snapshot, b"r")


def test_a_look_counts_from_when_it_began(readers: Readers) -> None:
    """Its answer may have been long under way, while the horizon went past the snapshot."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.clock.advance(60)

    def dawdle(point: Point) -> None:
        if point.name == "get.after" and "OMIDPY_COMPACTION" in point.tables:
            readers.clock.advance(HORIZON_FREE_AGE_S)

    readers.store.plans.append(dawdle)
    readers.values(snapshot, b"r")
    readers.publish(5000)
    with pytest.raises(SnapshotTooOld):
        readers.values(snapshot, b"r")


def test_who_has_sent_cells_looks_each_time(readers: Readers) -> None:
    """They go as soon as the transaction cannot commit any more."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    snapshot.has_sent_cells = True
    for _ in range(2):
        readers.store.calls.clear()
        readers.values(snapshot, b"r")
        assert readers.store.calls == {"get": 2}


def test_a_store_without_our_control_table_has_no_horizon(readers: Readers) -> None:
    """Java alone ever ran there, and never collects behind our readers' backs."""
    readers.world.healed(b"r", 100, 150)
    snapshot = readers.at(1000)
    readers.clock.advance(60)
    readers.store.drop_table("OMIDPY_COMPACTION")
    assert readers.values(snapshot, b"r") == [[b"v"]]


def test_cells_of_later_transactions_are_not_even_read(readers: Readers) -> None:
    """Versions from the next start_ts on cannot matter; own checkpoints can."""
    own = readers.world.put(b"r", 1049, b"own")
    readers.world.put(b"r", 1050, b"later")
    points: list[Cell] = []
    snapshot = readers.at(1000)
    points.extend(seen.cell for row in snapshot.read("t", [b"r"]) for seen in cells_of(row))
    assert points == [own]


# -- heals behind a scan ---------------------------------------------------------------------------


def unhealed(readers: Readers, *rows: bytes) -> None:
    """Write committed cells without shadow cells."""
    for number, row in enumerate(rows):
        start_ts = 100 * (number + 1)
        readers.world.put(row, start_ts)
        readers.world.enter(start_ts, start_ts + 50)


def test_what_a_scan_heals_is_written_behind_it(readers: Readers) -> None:
    """The rows come first; who gets single ones has them healed at once."""
    soon: list[Callable[[], object]] = []
    readers.reader.run_soon = soon.append
    unhealed(readers, b"a", b"b", b"c")
    pages = readers.at().scan("t", KeyRange(b"a", b"c"))
    assert [key for page in pages for key, _ in page] == [b"a", b"b"]
    assert (readers.world.shadows(), len(soon)) == ({}, 1)
    readers.values(readers.at(), b"c")
    assert readers.world.shadows() == {(b"c", 300): 350}
    soon.pop()()
    assert readers.world.shadows() == {(b"a", 100): 150, (b"b", 200): 250, (b"c", 300): 350}
    assert soon == []


def test_a_scan_of_healed_rows_leaves_nothing_to_do(readers: Readers) -> None:
    """The common case hands over nothing."""
    soon: list[Callable[[], object]] = []
    readers.reader.run_soon = soon.append
    readers.world.healed(b"a", 100, 150)
    list(readers.at().scan("t", KeyRange()))
    assert soon == []


def test_a_heal_that_comes_late_brings_nothing_back(readers: Readers) -> None:
    """Its cell was collected meanwhile; a shadow cell alone is seen by nobody, and goes."""
    soon: list[Callable[[], object]] = []
    readers.reader.run_soon = soon.append
    unhealed(readers, b"a")
    readers.world.healed(b"a", 200, 250, b"newer")
    list(readers.at().scan("t", KeyRange()))
    readers.world.put(b"a", 300, b"newest")
    readers.world.enter(300, 350)
    list(readers.at().scan("t", KeyRange()))
    readers.world.set_low_watermark(1000)
    readers.world.compact()
    for _ in range(2):
        readers.world.clock.advance(3600)
        readers.world.compact()
    before = readers.values(readers.at(), b"a")
    for heal in soon:
        heal()
    assert readers.values(readers.at(), b"a") == before == [[b"newest"]]
    readers.world.compact(replace(ALL_AT_ONCE, should_collect=True))
    assert set(readers.world.shadows()) == {(b"a", 300)}
