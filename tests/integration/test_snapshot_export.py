"""`omidpy export-snapshot`: tables of one moment, as Parquet in a real S3 server."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

import omidpy
from omidpy.cli import main
from omidpy.codec import INT64, TEXT
from omidpy.committers.contents.state import file_system
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.snapshots import Codecs, Work, export_snapshot, run_here, write_portion
from omidpy.errors import (
    CommitterError,
    NoSuchTable,
    SnapshotTooOld,
    StorageError,
    UsageError,
)
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.cells import World as Compacted
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.processes import tso_server
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

OMIDPY: Final = Path(sys.executable).with_name("omidpy")

pytestmark = pytest.mark.integration


class World:
    """A store with accounts in three regions and notes in one, and a bucket."""

    def __init__(self, s3: S3Server) -> None:
        """Make them."""
        self.store = MemoryStore()
        self.oracle = NaiveOracle(self.store)
        self.tm = TransactionManager(self.store, self.oracle, post_commit="sync")
        self.tm.create_table("accounts", ["cf"], splits=[b"4", b"7"])
        self.tm.create_table("notes", ["cf"])
        self.bucket = Bucket(s3)
        self.move(0)

    @property
    def address(self) -> str:
        """Where exports go."""
        return f"s3://{self.bucket.name}/out"

    def move(self, amount: int) -> None:
        """Let ten accounts and a note have a number, at one instant."""
        with self.tm.begin() as tx:
            for at in range(10):
                cells = {b"cf:balance": INT64.encode(amount), b"cf:name": TEXT.encode(f"n{at}")}
                tx.table("accounts").put(b"%d" % at, cells)
            tx.table("notes").put(b"all", {b"cf:balance": INT64.encode(amount)})

    def read(self, folder: str = "out") -> Any:
        """Return what a reader of folders finds."""
        import pyarrow.dataset as ds

        files = file_system(ObjectStore(StoreOptions()))
        place = f"{self.bucket.name}/{folder}"
        return ds.dataset(place, filesystem=files, partitioning="hive").to_table()


@pytest.fixture
def world(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a store and a bucket; the endpoint is in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    return World(s3)


def test_each_cell_is_a_row_with_the_time_of_its_commit(world: World) -> None:
    """What a table has, whatever its columns."""
    done = export_snapshot(world.tm, ["accounts"], world.address)
    found = world.read().sort_by([("row", "ascending"), ("qualifier", "ascending")]).to_pylist()
    assert done.rows == {"accounts": 20} == {"accounts": len(found)}
    with world.tm.begin() as tx:
        seen = {
            (row, column): cell
            for row, cells in tx.table("accounts").scan(include_timestamp=True)
            for column, cell in cells.items()
        }
    assert {
        (one["row"], one["family"] + b":" + one["qualifier"]): (one["value"], one["commit_ts"])
        for one in found
    } == seen
    assert len(world.bucket.visible("out")) == 3


def test_columns_are_typed_on_demand(world: World) -> None:
    """And a row is a row."""
    codecs: Codecs = {b"cf:balance": INT64, b"cf:name": TEXT}
    done = export_snapshot(world.tm, ["accounts"], world.address, codecs=codecs)
    table = world.read()
    assert table.schema.field("cf:balance").type == pa.int64()
    assert sorted(table["cf:name"].to_pylist()) == [f"n{at}" for at in range(10)]
    assert done.rows == {"accounts": 10}


def test_several_tables_are_of_one_moment(world: World) -> None:
    """Whatever is written while tasks run is in none of them."""

    def run(work: Work, progress: Any) -> Any:
        world.move(7)
        return run_here(world.tm)(work, progress)

    told: list[tuple[int, int]] = []
    done = export_snapshot(
        world.tm,
        ["accounts", "notes"],
        world.address,
        run=run,
        progress=lambda *moved: told.append(moved),
    )
    assert told == [(at, 4) for at in range(1, 5)]
    rows = world.read().to_pylist()
    assert {one["value"] for one in rows if one["qualifier"] == b"balance"} == {INT64.encode(0)}
    assert {one["table"] for one in rows} == {"accounts", "notes"}
    assert done.rows == {"accounts": 20, "notes": 1}
    said = world.bucket.success("out")["omidpy"]
    assert (said["snapshot_ts"], said["tables"]) == (done.snapshot_ts, ["accounts", "notes"])
    later = export_snapshot(world.tm, ["accounts", "notes"], world.address, conflict="replace")
    assert {one["value"] for one in world.read().to_pylist() if one["table"] == "notes"} == {
        INT64.encode(7)
    }
    assert later.snapshot_ts > done.snapshot_ts


def test_an_earlier_moment_is_exported(world: World) -> None:
    """By its timestamp, as `tm.snapshot` takes it."""
    before = world.tm.begin().start_ts
    world.move(7)
    export_snapshot(world.tm, ["notes"], world.address, at=before)
    assert world.read().to_pylist()[0]["value"] == INT64.encode(0)


def test_a_compaction_beside_an_export_leaves_it_what_it_reads(world: World) -> None:
    """The snapshot is held from its beginning to its end, and no longer."""
    begun: list[int] = []

    def run(work: Work, progress: Any) -> Any:
        world.move(7)
        low_watermark = world.oracle.raise_low_watermark()
        Compacted(world.store, low_watermark=low_watermark).compact(
            replace(ALL_AT_ONCE, should_wait=True)
        )
        begun.append(work.snapshot_ts)
        return run_here(world.tm)(work, progress)

    export_snapshot(world.tm, ["accounts", "notes"], world.address, run=run)
    assert {one["value"] for one in world.read().to_pylist() if one["table"] == "notes"} == {
        INT64.encode(0)
    }
    low_watermark = world.oracle.raise_low_watermark()
    Compacted(world.store, low_watermark=low_watermark).compact(
        replace(ALL_AT_ONCE, should_wait=True)
    )
    with pytest.raises(SnapshotTooOld):
        export_snapshot(world.tm, ["notes"], f"{world.address}2", at=begun[0])
    assert world.bucket.keys("out2") == []


@pytest.mark.parametrize("when", ["before", "between", "behind"])
def test_a_table_that_is_made_anew_meanwhile_is_not_exported(world: World, when: str) -> None:
    """Some regions were read of the earlier one, and others of an empty one: no job has both."""

    def run(work: Work, progress: Any) -> Any:
        def make_anew() -> None:
            world.tm.drop_table("accounts")
            world.tm.create_table("accounts", ["cf"])

        if when == "before":
            make_anew()
        first, *others = work.portions
        messages = [write_portion(world.tm, work, first)]
        if when == "between":
            make_anew()
        messages += run_here(world.tm)(replace(work, portions=tuple(others)), progress)
        if when == "behind":
            make_anew()
        return messages

    with pytest.raises((StorageError, SnapshotTooOld), match="'accounts' was dropped"):
        export_snapshot(world.tm, ["accounts", "notes"], world.address, run=run)
    assert world.bucket.keys() == []
    assert world.bucket.uploads() == []


def test_an_empty_table_has_columns(world: World) -> None:
    """Whoever reads it back finds them, and no rows."""
    world.tm.create_table("empty", ["cf"], splits=[b"m"])
    export_snapshot(world.tm, ["empty"], world.address)
    assert world.read().schema.names == ["row", "family", "qualifier", "value", "commit_ts"]
    assert len(world.bucket.visible("out")) == 1
    export_snapshot(world.tm, ["empty"], f"{world.address}/typed", codecs={b"cf:n": INT64})
    assert world.read("out/typed").schema.names == ["row", "cf:n"]


def test_a_task_that_fails_leaves_nothing(world: World) -> None:
    """Not one table of two, and no hold."""
    held: list[int] = []

    def run(work: Work, progress: Any) -> Any:
        held.append(len(list(world.tm.session.control.scan(b"hold/"))))
        done = run_here(world.tm)(work, progress)
        assert len(done) == 4
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        export_snapshot(world.tm, ["accounts", "notes"], world.address, run=run, inline_bytes=0)
    assert world.bucket.keys() == []
    assert world.bucket.uploads() == []
    assert held == [1]
    assert list(world.tm.session.control.scan(b"hold/")) == []


def test_what_cannot_be_exported_is_said_before_anything_is_sent(world: World) -> None:
    """With the remedy."""
    with pytest.raises(NoSuchTable, match="missing"):
        export_snapshot(world.tm, ["notes", "missing"], world.address)
    with pytest.raises(UsageError, match="a table is named twice"):
        export_snapshot(world.tm, ["notes", "notes"], world.address)
    with pytest.raises(UsageError, match="tables are a list of names, not 'notes'"):
        export_snapshot(world.tm, "notes", world.address)
    with pytest.raises(UsageError, match="no address of S3"):
        export_snapshot(world.tm, ["notes"], "/tmp/x")
    world.bucket.put("out/theirs")
    with pytest.raises(CommitterError, match=r"is not empty.*choose conflict='append'"):
        export_snapshot(world.tm, ["notes"], world.address)
    assert world.bucket.keys() == ["out/theirs"]


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Give a bucket; a store in a file, with a table, is in the environment."""
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with omidpy.connect(url) as tm:
        tm.create_table("notes", ["cf"])
        with tm.begin() as tx:
            tx.table("notes").put(b"a", {b"cf:n": INT64.encode(5)})
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    monkeypatch.setenv("OMIDPY_STORE", url)
    monkeypatch.setenv("HERE", url)
    return Bucket(s3)


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it printed."""
    with pytest.raises(SystemExit) as ended:
        main(["export-snapshot", *words])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def test_the_command_exports(lake: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    """And says what."""
    code, out, _ = run("notes", f"s3://{lake.name}/a", "--json", capsys=capsys)
    said = json.loads(out)
    assert (code, said["tables"], said["files"]) == (0, {"notes": 1}, 1)
    assert said["job"] in lake.visible("a")[0]
    words = ("notes", f"s3://{lake.name}/b", "--columns", "cf:n=int64")
    code, out, _ = run(*words, capsys=capsys)
    assert (code, out.splitlines()[0]) == (0, "notes: 1 rows")
    assert f"s3://{lake.name}/b: 1 files, " in out
    code, _, err = run(*words, capsys=capsys)
    assert code == 1
    assert "is not empty" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["notes"], "no tables with an address behind them"),
        (["s3://b/a", "notes"], "no tables with an address behind them"),
        (["notes", "s3://b/a", "--columns", "cf:n"], "write for instance cf:balance=int64"),
        (["notes", "s3://b/a", "--columns", "cf:n=long"], "one of bytes, text, int64, float64"),
        (["notes", "s3://b/a", "--columns", "n=int64"], "must be written b'family:qualifier'"),
        (["notes", "s3://b/a", "--at", "soon"], "--at='soon' is no moment"),
        (["notes", "s3://b/a", "--hold", "long"], "--hold='long' is no duration"),
        (["notes", "s3://b/a", "--conflict", "merge"], "conflict='merge' must be one of fail"),
        (["notes", "s3://b/a", "--spark", "local[2]"], "--spark needs --tso"),
    ],
)
def test_a_wrong_word_is_a_usage_error(
    lake: Bucket, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2, nothing sent."""
    code, _, err = run(*words, capsys=capsys)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_exports(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each region by a task, which is a process of its own."""
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    bucket = Bucket(s3)
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with omidpy.connect(url) as tm:
        tm.create_table("accounts", ["cf"], splits=[b"4", b"7"])
        tm.create_table("notes", ["cf"])
        with tm.begin() as tx:
            for at in range(10):
                tx.table("accounts").put(b"%d" % at, {b"cf:n": INT64.encode(at)})
    with tso_server(url) as server:
        done = subprocess.run(
            [
                *(str(OMIDPY), "export-snapshot", "accounts", "notes"),
                *(f"s3://{bucket.name}/out", "--columns", "cf:n=int64", "--json"),
                *("--store", url, "--tso", server.address, "--spark", "local[2]"),
            ],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["tables"] == {"accounts": 10, "notes": 0}
    assert len(bucket.visible("out")) == said["files"] == 4
    assert bucket.uploads() == []
