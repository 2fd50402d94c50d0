"""Snapshots of single tables, as HBase keeps them in its root folder, hold the prune horizon."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from compactor.options import NO_SNAPSHOTS, Options
from compactor.pruning.prune import PruneLimits
from compactor.pruning.snapshot_holds import (
    ROOT_FACT,
    SNAPSHOT_PREFIX,
    SnapshotHolds,
    recorded_holds,
)
from compactor.pruning.snapshots import (
    LocalFolder,
    SnapshotRoot,
    TableSnapshot,
    list_snapshots,
    local_folder,
)
from compactor.pruning.standing import read_standing
from compactor.ranges.range_pass import OnStep, ignore_step
from compactor.report import RunLog
from compactor.shell.display import summary
from compactor.shell.metrics import values_of
from compactor.tables.ownership import survey
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE
from omidpy.errors import ConfigError, StorageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Timestamp
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World
from tests.machines.restoring import RestoringStore
from tests.unit.compactor.test_operation import Killed, at, die

DAY_MS = 86_400_000


def varint(value: int) -> bytes:
    """Return a number as protobuf has it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def field(number: int, value: int | bytes) -> bytes:
    """Return a field of a message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


class Root:
    """HBase's root folder, with what is read of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "hbase.version").write_bytes(b"8")
        (path / ".hbase-snapshot").mkdir()

    def snapshot(
        self,
        name: str,
        table: str,
        created_ms: int,
        *,
        owner: str | None = None,
        kind: int = 1,
        is_under_way: bool = False,
    ) -> Path:
        """Take a snapshot."""
        folder = self.path / ".hbase-snapshot" / (".tmp" if is_under_way else "") / name
        folder.mkdir(parents=True)
        fields = (field(1, name.encode()), field(2, table.encode()), field(3, created_ms))
        (folder / ".snapshotinfo").write_bytes(b"".join(fields) + field(4, kind) + field(6, b"me"))
        pairs = [(b"IS_META", b"false")]
        if owner is not None:
            pairs.append((COMMIT_TABLE_ATTRIBUTE.encode(), owner.encode()))
        table_name = field(1, b"default") + field(2, table.encode())
        schema = field(1, table_name)
        schema += b"".join(field(2, field(1, key) + field(2, value)) for key, value in pairs)
        (folder / "data.manifest").write_bytes(field(1, schema) + field(2, b"region"))
        return folder


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Return the root folder of an HBase without snapshots."""
    return Root(tmp_path)


def test_snapshots_are_read_as_hbase_writes_them(root: Root) -> None:
    """Those that are being taken, too."""
    root.snapshot("one", "ns:t", 1_700_000_000_000, owner=COMMIT_TABLE)
    root.snapshot("two", "u", 2, kind=2, is_under_way=True)
    assert sorted(list_snapshots(LocalFolder(str(root.path)))) == [
        TableSnapshot("one", "ns:t", 1_700_000_000_000, commit_table=COMMIT_TABLE),
        TableSnapshot("two", "u", 2, is_flushed=False),
    ]


def test_a_snapshot_that_has_not_begun_to_look_is_none(root: Root) -> None:
    """What it will hold is healed further than anything that counts now."""
    folder = root.snapshot("one", "t", 1, is_under_way=True)
    (folder / ".snapshotinfo").unlink()
    assert list_snapshots(LocalFolder(str(root.path))) == []


def test_a_snapshot_that_is_being_deleted_is_no_damaged_one(
    root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File by file; and whoever is told that snapshots cannot be listed may declare them void."""
    folder = root.snapshot("one", "t", 1)
    (folder / ".snapshotinfo").unlink()

    def delete_the_rest(_: float) -> None:
        (folder / "data.manifest").unlink()
        folder.rmdir()

    monkeypatch.setattr(time, "sleep", delete_the_rest)
    assert list_snapshots(LocalFolder(str(root.path))) == []


@pytest.mark.parametrize("damage", ["version", "info", "cut", "noise"])
def test_where_snapshots_cannot_be_known_that_is_said(root: Root, damage: str) -> None:
    """A wrong folder has no snapshots either, and must not be taken for an HBase without any."""
    folder = root.snapshot("one", "t", 1)
    info = folder / ".snapshotinfo"
    if damage == "version":
        (root.path / "hbase.version").unlink()
    elif damage == "info":
        info.unlink()
    elif damage == "cut":
        info.write_bytes(info.read_bytes()[:4])
    else:
        info.write_bytes(b"\x0b\x0b\x0b")
    with pytest.raises(StorageError):
        list_snapshots(LocalFolder(str(root.path)))


@pytest.mark.parametrize("address", ["/hbase", "file:///hbase"])
def test_a_folder_of_this_machine_has_two_kinds_of_addresses(address: str) -> None:
    """Both without Spark."""
    assert isinstance(local_folder(address), LocalFolder)


def test_a_folder_elsewhere_needs_the_spark_job() -> None:
    """A run that looked at nothing would forget what snapshots need."""
    with pytest.raises(ConfigError, match="only the Spark job"):
        local_folder("hdfs://nn/hbase")


class Snapshots(World):
    """Two tables of ours; what commits is left unhealed by its client."""

    def __init__(self, root: Root) -> None:
        super().__init__(RestoringStore())
        self.root = root
        self.table("t", incarnation="one")
        self.table("u", incarnation="two")

    def run(
        self,
        low_watermark: int,
        *,
        is_dry_run: bool = False,
        name: bool | str = True,
        on_step: OnStep = ignore_step,
    ) -> list[str]:
        """Compact up to `low_watermark`, two days after the last run; return who holds back.

        Args:
            low_watermark: L.
            is_dry_run: Write nothing.
            name: Where the snapshots are said to be; True: where they are, False: nothing is said.
            on_step: Called behind each step.
        """
        self.clock.advance(2 * DAY_MS / 1000)
        self.set_low_watermark(low_watermark)
        self.put(b"a", low_watermark - 50)
        self.enter(low_watermark - 50, low_watermark - 10)
        address = name if isinstance(name, str) else str(self.root.path) if name else None
        options = Options(
            grace_s=0.0, invalidation_grace_s=0.0, hbase_root=address, is_dry_run=is_dry_run
        )
        self.report = self.compact(options, on_step=on_step)
        return [one.reason for one in self.report.laggards]

    def snapshot(self, name: str = "s", table: str = "t", **more: object) -> None:
        """Take a snapshot a day and a half from now, before the next run."""
        created_ms = self.clock.wall_ms() + DAY_MS * 3 // 2
        self.root.snapshot(name, table, created_ms, **more)  # type: ignore[arg-type]  # of `Root`


@pytest.fixture
def world(root: Root) -> Snapshots:
    """Return a store that one run has healed up to 1000."""
    made = Snapshots(root)
    assert made.run(1000) == []
    return made


def test_a_snapshot_holds_what_was_not_healed_when_it_was_taken(world: Snapshots) -> None:
    """As long as it is there, and the report says which it is."""
    world.snapshot()
    for low_watermark in (2000, 3000):
        (reason,) = world.run(low_watermark)
        assert "snapshot s" in reason
        assert "delete_snapshot 's'" in reason
        assert world.report.horizon == 1000
        assert low_watermark - 50 in world.entries()
        (recorded,) = recorded_holds(world.control, below=low_watermark)
        assert recorded.reason == reason
        assert read_standing(world.store)["laggards"][-1]["reason"] == reason

    (world.root.path / ".hbase-snapshot" / "s" / ".snapshotinfo").unlink()
    (world.root.path / ".hbase-snapshot" / "s" / "data.manifest").unlink()
    (world.root.path / ".hbase-snapshot" / "s").rmdir()

    assert world.run(4000) == []
    assert world.entries() == {}
    assert list(world.control.scan(SNAPSHOT_PREFIX)) == []


def test_what_a_snapshot_holds_is_remembered(world: Snapshots) -> None:
    """The claims of its time are void once the table is restored, and thinned out in any case."""
    world.snapshot()
    world.run(2000)
    assert isinstance(world.store, RestoringStore)
    world.store.enable_again("t")

    world.run(3000)

    assert [one.watermark for one in world.report.laggards] == [1000]


@pytest.mark.parametrize("moment", ["before-it-lists", "before-it-remembers"])
def test_a_run_that_stood_still_forgets_nothing_of_a_later_snapshot(
    world: Snapshots, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """What that holds was found by claims which are gone by now: it would hold all, for ever."""
    holds = SnapshotHolds(
        world.control,
        SnapshotRoot(str(world.root.path), LocalFolder(str(world.root.path))),
        commit_table=COMMIT_TABLE,
        is_dry_run=False,
    )
    limits = PruneLimits(Timestamp(0), Timestamp(1000), Timestamp(1000))
    standings = survey(world.store, COMMIT_TABLE)
    real = holds._counting

    def stand_still(ours: Any) -> Any:
        found: Any = [] if moment == "before-it-remembers" else None
        world.snapshot()
        world.run(2000)
        assert isinstance(world.store, RestoringStore)
        world.store.enable_again("t")
        return real(ours) if found is None else found

    monkeypatch.setattr(holds, "_counting", stand_still)
    holds.limit(limits, standings, [])
    world.run(3000)
    assert [one.watermark for one in world.report.laggards] == [1000]


def test_a_run_that_stood_still_writes_over_no_hold_that_a_faster_one_has_mended(
    world: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found one that could not be read; only one of them has read the claims that count."""
    root = SnapshotRoot(str(world.root.path), LocalFolder(str(world.root.path)))
    slow = SnapshotHolds(world.control, root, commit_table=COMMIT_TABLE, is_dry_run=False)
    limits = PruneLimits(Timestamp(0), Timestamp(1000), Timestamp(1000))
    standings = survey(world.store, COMMIT_TABLE)
    world.snapshot()
    world.run(1000)
    ((row, recorded),) = world.control.scan(SNAPSHOT_PREFIX)
    world.control.write(row, b"{")
    real = slow._counting

    def stand_still(ours: Any) -> Any:
        world.run(2000)
        return real(ours)

    monkeypatch.setattr(slow, "_counting", stand_still)
    lowered, _ = slow.limit(limits, standings, [])
    assert lowered.horizon < 1000, "this one knows of no claim"
    assert list(world.control.scan(SNAPSHOT_PREFIX)) == [(row, recorded)]


@pytest.mark.parametrize("ahead_ms", [60_000, 12 * 3_600_000, DAY_MS - 1])
def test_a_claim_of_just_before_may_be_one_of_just_after(world: Snapshots, ahead_ms: int) -> None:
    """The dates of the worker and of HBase's master differ: by hours, where nobody sets them."""
    world.run(2000)
    world.root.snapshot("s", "t", world.clock.wall_ms() + ahead_ms)
    world.run(3000)
    assert [one.watermark for one in world.report.laggards] == [1000]


@pytest.mark.parametrize(
    ("table", "owner", "holds"),
    [("t", None, True), ("gone", COMMIT_TABLE, True), ("gone", None, False), ("o", "OTHER", False)],
)
def test_snapshots_count_that_could_bring_back_our_cells(
    world: Snapshots, table: str, owner: str | None, *, holds: bool
) -> None:
    """Of a table of ours, adopted since or not, or of one that was ours and is gone."""
    world.snapshot(table=table, owner=owner)
    assert bool(world.run(2000)) == holds


def test_a_snapshot_without_a_flush_has_no_heal_for_certain(world: Snapshots) -> None:
    """Shadow cells may be in memory alone, and their cells in files."""
    world.snapshot(kind=2)
    (reason,) = world.run(2000)
    assert "without a flush" in reason
    assert [one.watermark for one in world.report.laggards] == [0]


def test_snapshots_that_cannot_be_listed_hold_everything(world: Snapshots) -> None:
    """There might be one."""
    (world.root.path / "hbase.version").unlink()
    (reason,) = world.run(2000)
    assert "could not be listed" in reason
    assert world.report.entries_pruned == 0
    assert 1950 in world.entries()


def test_a_dry_run_says_what_a_snapshot_holds_and_remembers_nothing(world: Snapshots) -> None:
    """A later run must find out for itself."""
    world.snapshot()
    rehearsed = world.run(2000, is_dry_run=True)
    assert len(rehearsed) == 1
    assert world.report.horizon == 1000
    assert list(world.control.scan(SNAPSHOT_PREFIX)) == []


def test_what_finishes_a_killed_run_looks_for_snapshots_too(world: Snapshots) -> None:
    """One that was begun before the passes may be listed only by now."""
    created_ms = world.clock.wall_ms() + DAY_MS * 3 // 2
    with pytest.raises(Killed):
        world.run(2000, on_step=at("horizon-raised", die))
    world.root.snapshot("s", "t", created_ms)
    (reason,) = world.run(3000)
    assert "snapshot s" in reason
    assert 1950 in world.entries()


def notes_of_the_last_run(world: World) -> int:
    """Return how often it said that snapshots are not known."""
    return sum("--hbase-root" in note for note in RunLog(world.control).runs()[-1].notes)


def test_where_no_run_was_ever_told_one_says_what_it_does_not_know(root: Root) -> None:
    """It prunes: nobody could else who has no access to that folder."""
    world = Snapshots(root)
    world.run(1000, name=False)
    world.snapshot()
    assert world.run(2000, name=False) == []
    assert world.entries() == {}
    assert notes_of_the_last_run(world) == 1
    assert world.report.knows_snapshots is False
    assert "snapshots    not known" in summary(world.report)
    assert values_of(world.report, exit_code=0, now_s=0.0)["snapshots_unknown"] == 1


def test_a_run_that_is_not_told_looks_where_the_last_one_did(
    world: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever forgets the option by hand undoes what the nightly job has kept."""
    monkeypatch.chdir(world.root.path.parent)
    world.run(1100, name=world.root.path.name)
    monkeypatch.chdir("/")
    world.snapshot()
    (reason,) = world.run(2000, name=False)
    assert "snapshot s" in reason
    assert 1950 in world.entries()
    assert world.report.knows_snapshots is True
    assert "snapshots" not in summary(world.report).split("held back")[0]
    assert notes_of_the_last_run(world) == 0
    assert values_of(world.report, exit_code=0, now_s=0.0)["snapshots_unknown"] == 0


@pytest.mark.parametrize("fact", [b'{"address":"hdfs://nn/hbase"}', b'{"address":"/away"}', b"{"])
def test_what_the_last_run_could_read_and_this_one_cannot_holds_everything(
    world: Snapshots, fact: bytes
) -> None:
    """It knows that there may be snapshots, and not which."""
    world.control.write(ROOT_FACT, fact)
    (reason,) = world.run(2000, name=False)
    assert "could not be listed" in reason
    assert "--hbase-root none" in reason
    assert ("only the Spark job" in reason) == (b"hdfs" in fact)
    assert 1950 in world.entries()


@pytest.mark.parametrize("is_dry_run", [True, False])
def test_an_operator_may_take_back_where_the_snapshots_are(
    world: Snapshots, *, is_dry_run: bool
) -> None:
    """A dry run takes nothing back, and says what a run would do."""
    world.snapshot()
    world.run(2000)
    assert world.run(3000, name=NO_SNAPSHOTS, is_dry_run=is_dry_run) == []
    assert world.report.entries_pruned == 2
    assert bool(recorded_holds(world.control, below=3000)) == is_dry_run
    assert bool(world.run(4000, name=False)) == is_dry_run


@pytest.mark.parametrize("name", [True, "/"])
def test_a_dry_run_and_a_wrong_folder_are_not_remembered(root: Root, *, name: bool | str) -> None:
    """What was never found there is nowhere."""
    world = Snapshots(root)
    world.run(1000, name=name, is_dry_run=name is True)
    assert world.control.read(ROOT_FACT) is None


def test_a_store_without_snapshots_of_tables_says_nothing_of_them() -> None:
    """Neither that they are known nor that they are not."""
    world = World(MemoryStore())
    world.table()
    report = world.compact(Options(grace_s=0.0))
    assert report.horizon
    assert report.knows_snapshots is None
    assert "snapshots" not in summary(report)
    assert values_of(report, exit_code=0, now_s=0.0)["snapshots_unknown"] == 0
