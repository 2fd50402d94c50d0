"""Clients that are broken on purpose: each must be caught, by the check that is named for it.

The same checks run on the true client first and pass, so that a check which catches everything is
caught as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.commit import decision
from omidpy.commit.post_commit import Completer, Completion
from omidpy.errors import CommitOutcomeUnknown, OmidError, SnapshotTooOld, StorageUnavailable
from omidpy.facts.watermarks import HORIZON_FREE_AGE_S, Watermarks
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Cell, KeyRange, Outcome, Timestamp, base
from omidpy.oracle.base import Begun, CommitGranted, InvalidationVerdict
from omidpy.reading import resolution, snapshot, visibility
from omidpy.reading.resolution import CellResolver, TableCell
from omidpy.reading.snapshot import Snapshot, SnapshotReader
from omidpy.reading.visibility import (
    Invalidate,
    ReadCommitEntry,
    ReadShadowCell,
    Resolution,
    Resolver,
    SortedRow,
    cells_of,
    shadow_column,
)
from omidpy.storage.base import DeleteVersion, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, Point, on
from omidpy.tx.table import TransactionalTable
from omidpy.tx.writes.buffer import WriteBuffer
from tests.machines.cells import World
from tests.machines.clients import TABLE, Client, Loss

Check = Callable[[], None]
Variant = Callable[[pytest.MonkeyPatch], None]


class Scene:
    """A table with one tentative cell of transaction 100, and a client that reads it."""

    def __init__(self) -> None:
        self.store = FaultyStore(MemoryStore())
        self.client = Client(self.store, post_commit="none")
        self.world = World(self.store, low_watermark=0)
        self.cell = self.world.put(b"r", 100, b"v")

    def complete(self) -> None:
        """Do what follows the commit of transaction 100 at 150."""
        self.world.heal(self.cell, 150)
        self.world.commit_table.complete([Timestamp(100)])

    def seen(self, start_ts: int = 1000, *, epoch: int = 0) -> list[bytes]:
        """Return what a snapshot shows of the row."""
        return self.values(self.open(start_ts, epoch=epoch))

    def open(self, start_ts: int = 1000, *, epoch: int = 0) -> Snapshot:
        """Return a snapshot of the client's reader."""
        begun = Begun(Timestamp(start_ts), Timestamp(epoch))
        return self.client.tm.session.reader.open(begun, asked_s=self.client.clock.monotonic_s())

    def values(self, reading: Snapshot) -> list[bytes]:
        """Return the values of the row."""
        return [seen.cell.value for seen in cells_of(reading.read(TABLE, [b"r"])[0])]


# -- checks ----------------------------------------------------------------------------------------


def a_commit_is_seen_whenever_it_completes() -> None:
    """Let the writer heal and remove its entry between any two reads (I5, I8)."""
    for nth in range(1, 5):
        scene = Scene()
        scene.world.enter(100, 150)
        scene.store.calls.clear()
        scene.store.plans.append(on("get.before", scene.complete, nth=nth))
        assert scene.seen() == [b"v"], f"completed before read {nth}"


def a_false_invalidation_found_hides_nothing() -> None:
    """Another reader invalidated a transaction that had completed."""
    scene = Scene()
    scene.world.enter(100, 150)

    def complete_and_invalidate(point: Point) -> None:
        if point.name == "get.before" and scene.world.commit_table.name in point.tables:
            scene.store.plans.clear()
            scene.complete()
            assert scene.world.commit_table.invalidate(Timestamp(100))

    scene.store.plans.append(complete_and_invalidate)
    assert scene.seen() == [b"v"]
    assert scene.world.entries() == {}


def a_false_invalidation_of_our_own_hides_nothing() -> None:
    """Let the transaction complete just before it is forbidden."""
    scene = Scene()
    scene.world.enter(100, 150)
    scene.world.commit_table.complete([Timestamp(100)])
    scene.store.plans.append(
        on("check_and_mutate.before", lambda: scene.world.heal(scene.cell, 150), nth=1)
    )
    assert scene.seen(epoch=500) == [b"v"]
    assert scene.world.entries() == {}


def a_later_snapshot_sees_a_later_commit() -> None:
    """Commit what was tentative for one snapshot, for the next one."""
    scene = Scene()
    assert scene.seen(1000) == []
    scene.world.enter(100, 1050)
    assert scene.seen(1000) == []
    assert scene.seen(2000) == [b"v"]


def a_family_delete_hides_by_commit_order() -> None:
    """Write a cell that began before the delete and committed after it."""
    scene = Scene()
    marker = scene.world.put(b"r", 200, b"", qualifier=b"")
    scene.world.heal(marker, 250)
    scene.world.heal(scene.cell, 300)
    assert scene.seen() == [b"v"]


def own_deletes_are_seen() -> None:
    """In gets and scans, before anything is flushed."""
    client = Client()
    client.write()
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        table.delete(b"r", [b"cf:q"])
        assert table.row(b"r") == {}
        assert list(table.scan()) == []


def a_late_duplicate_does_no_harm() -> None:
    """Let the first request arrive once more, after the cell was rewritten."""
    client = Client()
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"old"})
    first = tx._buffer.take()
    tx.flush()
    tx.table(TABLE).put(b"r", {b"cf:q": b"new"})
    tx.flush()
    client.store.write(first)
    assert tx.table(TABLE).row(b"r") == {b"cf:q": b"new"}
    tx.commit()
    assert client.read() == {b"cf:q": b"new"}


def an_open_outcome_keeps_the_cells() -> None:
    """Let the oracle decide and die; its entry comes to light later (I8)."""
    store = FaultyStore(MemoryStore())
    client = Client(store)

    def dead(_: Timestamp) -> CommitGranted | InvalidationVerdict:
        raise StorageUnavailable("no answer")

    client.oracle.losses.append(Loss.REPLY)
    client.oracle.invalidation = dead
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    store.plans.append(on("get.before", StorageUnavailable("cut"), table=client.commit_table.name))
    with pytest.raises(OmidError) as caught:
        tx.commit()
    store.plans.clear()
    assert isinstance(caught.value, CommitOutcomeUnknown)
    assert client.read() == {b"cf:q": b"v"}


def a_death_while_completing_loses_nothing() -> None:
    """Whichever write of the completion fails, the commit stays visible (I5, I8)."""
    for nth in (1, 2):
        store = FaultyStore(MemoryStore())
        client = Client(store, post_commit="sync")
        with client.tm.begin() as tx:
            tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
            tx.flush()
            # The oracle's own write of the entry is the first.
            died = on("write.before", StorageUnavailable("died"), nth=nth + 1)
            store.plans.append(died)
        store.plans.clear()
        # Another process, which remembers nothing.
        other = TransactionManager(store, client.oracle, post_commit="none")
        assert other.begin().table(TABLE).row(b"r") == {b"cf:q": b"v"}, f"write {nth} failed"


def an_autocommitted_cell_vouches_for_no_other() -> None:
    """Give a tentative cell the number of one that Java wrote outside any transaction."""
    scene = Scene()
    auto = scene.world.put(b"auto", 100)
    scene.world.heal(auto, 100)
    reading = scene.open()
    found = reading.read(TABLE, [b"auto", b"r"])
    assert [len(cells_of(row)) for row in found] == [1, 0]
    assert scene.seen() == []


def collected(scene: Scene) -> None:
    """Publish a horizon, let the grace pass, and drop what the horizon no longer protects."""
    newer = scene.world.healed(b"r", 1200, 1250, b"new")
    assert newer.version > 1000
    scene.client.tm.session.reader.watermarks.publish_collection_horizon(
        Timestamp(1300), scene.client.clock
    )
    delete = DeleteVersion(b"cf", b"q", 100)
    scene.store.write({TABLE: [RowMutation(b"r", deletes=(delete,))]})


def a_reader_below_the_horizon_is_refused() -> None:
    """Its version is gone; an answer would be wrong (I10)."""
    scene = Scene()
    scene.world.heal(scene.cell, 150)
    reading = scene.open(1000)
    assert scene.values(reading) == [b"v"]
    collected(scene)
    scene.client.clock.advance(HORIZON_FREE_AGE_S * 2)  # type: ignore[attr-defined]  # cranked
    with pytest.raises(SnapshotTooOld):
        scene.values(reading)
    with pytest.raises(SnapshotTooOld):
        list(reading.scan(TABLE, KeyRange()))


def a_delete_that_is_collected_hides_to_the_last() -> None:
    """Let a tombstone complete, and be collected with what it hid, between any two reads (I10)."""
    for nth in range(1, 5):
        scene = Scene()
        hidden = scene.world.healed(b"r", 50, 70, b"hidden")
        tombstone = scene.world.put(b"r", 200, b"")
        scene.world.enter(200, 250)

        def complete_and_collect(
            scene: Scene = scene, hidden: Cell = hidden, tombstone: Cell = tombstone
        ) -> None:
            scene.world.heal(tombstone, 250)
            scene.world.commit_table.complete([Timestamp(200)])
            for cell in (hidden, tombstone):
                columns = ((cell.family, cell.qualifier), shadow_column(cell))
                deletes = [DeleteVersion(*column, cell.version) for column in columns]
                scene.store.write({TABLE: [RowMutation(b"r", deletes=deletes)]})

        scene.store.calls.clear()
        scene.store.plans.append(on("get.before", complete_and_collect, nth=nth))
        assert scene.seen() == [], f"collected before read {nth}"


def a_slow_begin_is_an_old_snapshot() -> None:
    """Keep the answer of the oracle long under way (I10).

    A column is left of the row: where nothing is seen, a reader looks whatever its age.
    """
    scene = Scene()
    scene.world.heal(scene.cell, 150)
    scene.world.heal(scene.world.put(b"r", 50, b"left", qualifier=b"other"), 60)
    client = scene.client
    naive = client.naive.begin

    def slow(*, hold_s: float | None = None) -> Begun:
        begun = naive(hold_s=hold_s)
        collected(scene)
        client.clock.advance(HORIZON_FREE_AGE_S * 2)  # type: ignore[attr-defined]  # cranked
        return begun

    client.naive._last = 1000
    client.naive.begin = slow  # type: ignore[method-assign]  # the answer takes its time
    table = client.tm.begin().table(TABLE)
    with pytest.raises(SnapshotTooOld):
        table.row(b"r")


def a_running_transaction_survives_its_readers() -> None:
    """Let a reader meet its flushed cell; told committed, it must be visible (I8)."""
    client = Client()
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    tx.flush()
    assert client.read() == {}
    tx.commit()
    assert client.read() == {b"cf:q": b"v"}
    assert INVALID not in client.entries().values()


CHECKS: Sequence[Check] = (
    a_commit_is_seen_whenever_it_completes,
    a_false_invalidation_found_hides_nothing,
    a_false_invalidation_of_our_own_hides_nothing,
    a_later_snapshot_sees_a_later_commit,
    a_family_delete_hides_by_commit_order,
    own_deletes_are_seen,
    a_late_duplicate_does_no_harm,
    an_open_outcome_keeps_the_cells,
    a_death_while_completing_loses_nothing,
    an_autocommitted_cell_vouches_for_no_other,
    a_reader_below_the_horizon_is_refused,
    a_delete_that_is_collected_hides_to_the_last,
    a_slow_begin_is_an_old_snapshot,
    a_running_transaction_survives_its_readers,
)


# -- broken clients --------------------------------------------------------------------------------


def _resolution(answer: object, *, is_healed: bool) -> Resolution:
    return Resolution(answer if isinstance(answer, int) else None, True, is_healed)  # type: ignore[arg-type]


def reads_the_shadow_cell_first(patch: pytest.MonkeyPatch) -> None:
    """Read the shadow cell, then the commit table, and be done."""

    def broken(cell: Cell, *, may_invalidate: bool) -> Resolver:
        del may_invalidate
        shadow = yield ReadShadowCell(cell)
        if shadow is not None:
            return _resolution(shadow, is_healed=True)
        return _resolution((yield ReadCommitEntry(base(cell.version))), is_healed=False)

    patch.setattr(resolution, "commit_timestamp", broken)


def never_reads_the_shadow_cell_again(patch: pytest.MonkeyPatch) -> None:
    """Take absence from the commit table for an answer."""

    def broken(cell: Cell, *, may_invalidate: bool) -> Resolver:
        del may_invalidate
        return _resolution((yield ReadCommitEntry(base(cell.version))), is_healed=False)

    patch.setattr(resolution, "commit_timestamp", broken)


def believes_any_invalidation(patch: pytest.MonkeyPatch) -> None:
    """Take `IT` in the commit table for final, as Omid does."""
    true = visibility.commit_timestamp

    def broken(cell: Cell, *, may_invalidate: bool) -> Resolver:
        entry = yield ReadCommitEntry(base(cell.version))
        if entry is INVALID:
            return Resolution(None, is_final=True, is_healed=False)
        return (yield from true(cell, may_invalidate=may_invalidate))

    patch.setattr(resolution, "commit_timestamp", broken)


def believes_its_own_invalidation(patch: pytest.MonkeyPatch) -> None:
    """Invalidate and look no further."""

    def broken(cell: Cell, *, may_invalidate: bool) -> Resolver:
        start_ts = base(cell.version)
        entry = yield ReadCommitEntry(start_ts)
        if isinstance(entry, int):
            return _resolution(entry, is_healed=False)
        shadow = yield ReadShadowCell(cell)
        if shadow is None and may_invalidate:
            yield Invalidate(start_ts)
        return _resolution(shadow, is_healed=True)

    patch.setattr(resolution, "commit_timestamp", broken)


def remembers_what_had_not_committed(patch: pytest.MonkeyPatch) -> None:
    """Cache negative answers."""
    true = CellResolver.resolve
    unresolved: set[TableCell] = set()

    def broken(
        self: CellResolver,
        cells: Sequence[TableCell],
        *,
        may_invalidate: Callable[[Timestamp], bool],
        entries: Mapping[Timestamp, CommitEntry] | None = None,
    ) -> dict[TableCell, Resolution]:
        resolutions = {key: Resolution(None, False, False) for key in cells if key in unresolved}
        asked = [key for key in cells if key not in unresolved]
        resolutions.update(true(self, asked, may_invalidate=may_invalidate, entries=entries))
        unresolved.update(
            key for key, resolution in resolutions.items() if resolution.commit_ts is None
        )
        return resolutions

    patch.setattr(CellResolver, "resolve", broken)


def compares_markers_by_start(patch: pytest.MonkeyPatch) -> None:
    """Hide every cell that began before the family delete began."""

    def broken(cell: Cell, commit_ts: int, marker: Cell, marker_commit_ts: int) -> bool:
        return marker.version >= cell.version

    patch.setattr(visibility, "is_hidden", broken)


def ignores_its_own_deletes(patch: pytest.MonkeyPatch) -> None:
    """Lay only puts over the snapshot."""
    true = TransactionalTable._overlaid

    def broken(
        self: TransactionalTable, row: bytes, seen: object, own: object, specs: object
    ) -> object:
        puts = {column: value for column, value in own.items() if value}  # type: ignore[attr-defined]
        return true(self, row, seen, puts, specs)  # type: ignore[arg-type]

    patch.setattr(TransactionalTable, "_overlaid", broken)


def rewrites_at_the_same_version(patch: pytest.MonkeyPatch) -> None:
    """Send a cell twice at one version: a late copy of the first would undo the second."""
    true = WriteBuffer.take

    def broken(self: WriteBuffer, **options: bool) -> object:
        sent, self._sent = self._sent, {}
        taken = true(self, **options)
        for name, versions in self._sent.items():
            sent[name] = {**sent.get(name, {}), **versions}
        self._sent = sent
        return taken

    patch.setattr(WriteBuffer, "take", broken)


def rolls_back_while_unknown(patch: pytest.MonkeyPatch) -> None:
    """Take no answer for an abort."""

    def broken(*arguments: object) -> Outcome:
        return Aborted()

    patch.setattr(decision, "_settle", broken)


def removes_the_entry_first(patch: pytest.MonkeyPatch) -> None:
    """Break I5: remove the entry, then write the shadow cells."""

    def broken(self: Completer, batch: Sequence[Completion]) -> None:
        for completion in batch:
            try:
                self._commit_table.complete([completion.start_ts])
                self._store.write(completion.shadow_cells)
            except OmidError:
                continue

    patch.setattr(Completer, "complete", broken)


def removes_the_entry_whatever_happened(patch: pytest.MonkeyPatch) -> None:
    """Break I5 as Omid's asynchronous committer does: overlook the failed write."""

    def broken(self: Completer, batch: Sequence[Completion]) -> None:
        for completion in batch:
            for step in (
                lambda c=completion: self._store.write(c.shadow_cells),
                lambda c=completion: self._commit_table.complete([c.start_ts]),
            ):
                try:
                    step()  # type: ignore[no-untyped-call]  # two calls, each on its own
                except OmidError:
                    continue

    patch.setattr(Completer, "complete", broken)


def caches_autocommitted_cells(patch: pytest.MonkeyPatch) -> None:
    """Let every shadow cell speak for its number."""
    true = visibility.sort_row

    def broken(cells: Sequence[Cell]) -> SortedRow:
        row = true(cells)
        commits = {base(version): commit for (_, _, version), commit in row.shadows.items()}
        return row._replace(commits=commits)

    patch.setattr(snapshot, "sort_row", broken)
    patch.setattr(snapshot, "simple_row", lambda *_: None)


def does_not_read_the_horizon(patch: pytest.MonkeyPatch) -> None:
    """Break I10: release whatever was found."""
    nothing = Timestamp(0), Timestamp(0)
    patch.setattr(Watermarks, "read_horizons", lambda _: nothing)
    patch.setattr(Watermarks, "read_horizons_beside", lambda *_: (*nothing, None))


def takes_a_cell_that_went_for_an_abort(patch: pytest.MonkeyPatch) -> None:
    """Go on with the row as it was read."""
    true = CellResolver.resolve

    def broken(
        self: CellResolver,
        cells: Sequence[TableCell],
        *,
        may_invalidate: Callable[[Timestamp], bool],
        entries: Mapping[Timestamp, CommitEntry] | None = None,
    ) -> dict[TableCell, Resolution]:
        resolutions = true(self, cells, may_invalidate=may_invalidate, entries=entries)
        return {key: resolution._replace(is_gone=False) for key, resolution in resolutions.items()}

    patch.setattr(CellResolver, "resolve", broken)


def counts_its_age_from_the_answer(patch: pytest.MonkeyPatch) -> None:
    """Break I10: take a snapshot for as young as its arrival."""
    true = SnapshotReader.open

    def broken(self: SnapshotReader, begun: Begun, *, asked_s: float) -> Snapshot:
        del asked_s
        return true(self, begun, asked_s=self.clock.monotonic_s())

    patch.setattr(SnapshotReader, "open", broken)


def invalidates_above_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """Forbid what the oracle may be about to commit."""
    true = CellResolver.resolve

    def broken(
        self: CellResolver,
        cells: Sequence[TableCell],
        *,
        may_invalidate: Callable[[Timestamp], bool],
        entries: Mapping[Timestamp, CommitEntry] | None = None,
    ) -> dict[TableCell, Resolution]:
        del may_invalidate
        return true(self, cells, may_invalidate=lambda _: True, entries=entries)

    patch.setattr(CellResolver, "resolve", broken)


MUTANTS: Sequence[tuple[Variant, Check]] = (
    (reads_the_shadow_cell_first, a_commit_is_seen_whenever_it_completes),
    (never_reads_the_shadow_cell_again, a_commit_is_seen_whenever_it_completes),
    (believes_any_invalidation, a_false_invalidation_found_hides_nothing),
    (believes_its_own_invalidation, a_false_invalidation_of_our_own_hides_nothing),
    (remembers_what_had_not_committed, a_later_snapshot_sees_a_later_commit),
    (compares_markers_by_start, a_family_delete_hides_by_commit_order),
    (ignores_its_own_deletes, own_deletes_are_seen),
    (rewrites_at_the_same_version, a_late_duplicate_does_no_harm),
    (rolls_back_while_unknown, an_open_outcome_keeps_the_cells),
    (removes_the_entry_first, a_death_while_completing_loses_nothing),
    (removes_the_entry_whatever_happened, a_death_while_completing_loses_nothing),
    (caches_autocommitted_cells, an_autocommitted_cell_vouches_for_no_other),
    (does_not_read_the_horizon, a_reader_below_the_horizon_is_refused),
    (takes_a_cell_that_went_for_an_abort, a_delete_that_is_collected_hides_to_the_last),
    (counts_its_age_from_the_answer, a_slow_begin_is_an_old_snapshot),
    (invalidates_above_its_epoch, a_running_transaction_survives_its_readers),
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_true_client_passes(check: Check) -> None:
    """Else the check proves nothing."""
    check()


@pytest.mark.parametrize(
    ("variant", "check"), MUTANTS, ids=[variant.__name__ for variant, _ in MUTANTS]
)
def test_a_broken_client_is_caught(
    monkeypatch: pytest.MonkeyPatch, variant: Variant, check: Check
) -> None:
    """By the check that is named for it."""
    variant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()


def test_every_check_catches_somebody() -> None:
    """A check without a mutant is a claim without a proof."""
    assert {check for _, check in MUTANTS} == set(CHECKS)
