"""Files that are published with a transaction: both are there, or neither is."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omidpy
from omidpy import committers
from omidpy.base.tables import PUBLISHED_TABLE
from omidpy.cli import main
from omidpy.committers import sweeping
from omidpy.committers.choice import object_store
from omidpy.committers.contents import manifests
from omidpy.committers.places import Folder
from omidpy.committers.transactional import owner_of
from omidpy.errors import (
    CommitterError,
    ConfigError,
    Fenced,
    StorageUnavailable,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx import transaction
from omidpy.tx.transaction import Transaction
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.cells import World as Compacted
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import empty_hbase
from tests.machines.interrupts.lines import Interrupt, Interrupter
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.s3 import publishing_checks as checks
from tests.machines.s3.crashing import Died
from tests.machines.s3.looking import Bucket
from tests.machines.s3.publishing import Mortal, World
from tests.machines.s3.publishing_checks import BOTH, NEITHER, ONE, TWO
from tests.machines.s3.server import S3Server

pytestmark = pytest.mark.integration

ROAD_BY_DAY = Road.DIRECT


@pytest.fixture
def world(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> World:
    """Give a store and a destination; the endpoint is in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    return World(s3, Bucket(s3))


# -- together --------------------------------------------------------------------------------------


def test_cells_and_files_appear_at_one_instant(world: World) -> None:
    """Before the commit others see neither, afterwards both; the transaction sees its own."""
    checks.cells_and_files_appear_at_one_instant(world)
    with world.tm.begin() as tx:
        publication = tx.publish([ONE, TWO], world.address)
        assert [one.rows for one in publication.files] == [1, 2]
        assert tx.published(world.address).rows == 6
    assert world.bucket.visible(world.folder.prefix.rstrip("/")) == []


def test_several_destinations_are_one_commit(world: World) -> None:
    """An aborted one leaves nothing at any."""
    with world.tm.begin() as tx:
        tx.publish(ONE, f"{world.address}/a")
        tx.publish(TWO, f"{world.address}/b")
    with world.tm.begin() as tx:
        rows = [tx.published(f"{world.address}/{one}").rows for one in ("a", "b", "ab")]
        assert rows == [1, 2, 0]
        with pytest.raises(UsageError, match="no Parquet file"):
            tx.published(f"{world.address}/ab").dataset()


def test_a_rollback_removes_what_was_uploaded(world: World) -> None:
    """At once, and the exception of the block wins."""

    def fail() -> None:
        with world.tm.begin() as tx:
            tx.publish(ONE, world.address, inline_bytes=0)
            assert world.left() != []
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert world.left() == []
    assert world.seen() == NEITHER


def test_a_refused_commit_removes_what_was_uploaded(world: World) -> None:
    """The other one's files stay."""
    tx = world.tm.begin()
    tx.table("orders").put(b"first", {b"cf:value": b"2"})
    tx.publish(TWO, world.address)
    world.publish(Mortal())
    with pytest.raises(WriteConflict):
        tx.commit()
    assert world.seen() == BOTH
    assert all(str(tx.start_ts) not in key for key in world.left())


def test_a_savepoint_takes_back_what_was_published_in_it(world: World) -> None:
    """Like every other cell."""
    with world.tm.begin() as tx:
        tx.publish(ONE, world.address)
        with suppress(ZeroDivisionError), tx.savepoint():
            tx.publish(TWO, world.address)
            raise ZeroDivisionError
    assert world.seen() == (None, [1])
    world.oracle.raise_low_watermark()
    assert len(world.sweep().removed) == 1
    assert world.seen() == (None, [1])


def test_a_failed_upload_leaves_the_transaction_as_it_was(world: World) -> None:
    """It may go on without."""
    with world.tm.begin() as tx:
        tx.table("orders").put(b"first", {b"cf:value": b"1"})
        with pytest.raises(CommitterError, match="cannot be read"):
            tx.publish([ONE, "/no/such/file.csv"], world.address, inline_bytes=0)
    assert world.seen() == (b"1", [])
    assert world.bucket.uploads() == []


def test_a_publication_that_is_cut_short_is_not_committed_in_part(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever catches the error of a flush between two cells of it must not commit one of them."""
    monkeypatch.setattr(manifests, "PORTION_FILES", 1)
    monkeypatch.setattr(transaction, "FLUSH_LIMIT_BYTES", 0)
    world.publish(Mortal())
    store = FaultyStore(
        world.store,
        on("write.before", StorageUnavailable("out"), nth=2, table=PUBLISHED_TABLE),
    )
    tx = world.manager(store).begin()
    with pytest.raises(StorageUnavailable):
        tx.publish([ONE, TWO], world.address)
    with pytest.raises(TransactionAborted, match=r"publication to s3://.* was cut short"):
        tx.commit()
    assert world.seen() == BOTH


@pytest.mark.usefixtures("copied_clients")
def test_whoever_dies_anywhere_leaves_both_or_neither(world: World, s3: S3Server) -> None:
    """At each third of the moments, and at the last; what nobody names is then removed."""
    living = Mortal()
    world.publish(living)
    assert world.seen() == BOTH
    assert living.moments > 30
    die_at(s3, world.bucket, sorted({*range(0, living.moments, 3), living.moments - 1}))


@pytest.mark.nightly
@pytest.mark.parametrize("conflict", ["append", "replace", "fail"])
def test_whoever_dies_anywhere_in_any_mode_leaves_both_or_neither(
    world: World, s3: S3Server, conflict: str
) -> None:
    """The long form: each moment of requests and of calls of the store, in each mode."""
    living = Mortal()
    world.publish(living, conflict=conflict)
    die_at(s3, world.bucket, range(living.moments), conflict=conflict)


def die_at(s3: S3Server, bucket: Bucket, moments: Any, **options: Any) -> None:
    """Let publishers die, each at another moment; see both or neither, before and after a sweep."""
    ends = []
    for at in moments:
        world = World(s3, bucket)
        with pytest.raises(Died):
            world.publish(Mortal(at), **options)
        end = world.seen()
        assert end in (BOTH, NEITHER), at
        # While it may still commit nothing is touched.
        before = world.left()
        if before:
            world.sweep()
            assert world.left() == before
        world.oracle.raise_low_watermark()
        if before:
            world.sweep()
        assert world.seen() == end, at
        assert (world.left() == []) == (end == NEITHER), at
        ends.append(end)
    assert ends[0] == NEITHER
    assert ends[-1] == BOTH
    assert ends == sorted(ends, key=lambda one: one == BOTH)


# Python tells of an interrupt in `__del__`, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("every", [61, pytest.param(1, marks=pytest.mark.nightly)])
def test_an_interrupted_publication_is_whole_or_absent(world: World, every: int) -> None:
    """At any line of the call, for whoever commits all the same; what is left is swept."""
    places = Interrupter((Path(committers.__file__).parent,))

    def publish(tx: Transaction) -> None:
        tx.publish([ONE, TWO], world.address, inline_bytes=500, threads=1, success=False)

    publish(world.tm.begin())
    numbers = places.places(lambda: publish(world.tm.begin()))
    assert len(numbers) > 200
    whole = 0
    for number in numbers[::every]:
        tx = world.tm.begin()
        with suppress(Interrupt):
            places.interrupt(lambda: publish(tx), number, Interrupt())  # noqa: B023 - now
        with suppress(TransactionAborted):
            tx.commit()
        files = world.manager().begin().published(world.address).files
        found = sorted(one.rows or 0 for one in files)
        whole += len(found) == 2 * (whole + 1)
        assert found == sorted([1, 2] * whole), places.where
    world.oracle.raise_low_watermark()
    world.sweep()
    left = [key for key in world.left() if key.endswith(".parquet")]
    assert len(left) == 2 * whole


_KILLED = """
import sys
import pyarrow as pa
import omidpy
from omidpy.testing.faults import kill

url, address, at = sys.argv[1:]
tm = omidpy.connect(url)
def reach(step):
    if step == at:
        kill()
tm.session.on_step = reach
with tm.begin() as tx:
    tx.table("orders").put(b"first", {b"cf:value": b"1"})
    tx.publish(pa.table({"n": [1]}), address, inline_bytes=0)
    reach("published")
    if at == "flushed":
        tx.flush()
"""


# -- older snapshots, and others who publish -------------------------------------------------------


def test_older_snapshots_see_the_older_state(world: World) -> None:
    """Also after what they see was replaced, for as long as they can be read."""
    checks.older_snapshots_see_the_older_state(world)


def test_both_who_append_keep_their_files(world: World) -> None:
    """At the same time, to one destination."""
    checks.both_who_append_keep_their_files(world)


@pytest.mark.parametrize("conflict", ["replace", "fail"])
def test_of_two_who_want_to_be_alone_one_is_aborted(world: World, conflict: str) -> None:
    """Else both would be there."""
    checks.of_two_who_want_to_be_alone_one_is_aborted(world, conflict)


def test_what_is_appended_while_another_replaces_stays(world: World) -> None:
    """As if it had come behind."""
    world.publish(Mortal())
    replacing = world.tm.begin()
    replacing.publish(ONE, world.address, conflict="replace")
    with world.tm.begin() as tx:
        tx.publish(TWO, world.address)
    replacing.commit()
    assert world.seen()[1] == [1, 2]


def test_a_destination_that_has_files_is_refused_before_anything_is_sent(world: World) -> None:
    """In mode `fail`; what another transaction has not committed does not count."""
    other = world.tm.begin()
    other.publish(ONE, world.address)
    with world.tm.begin() as tx:
        tx.publish(TWO, world.address, conflict="fail")
    left = world.left()
    with (
        world.tm.begin() as tx,
        pytest.raises(CommitterError, match=r"is not empty: 1 publications.*choose conflict="),
    ):
        tx.publish(ONE, world.address, conflict="fail")
    assert world.left() == left
    other.commit()
    assert world.seen()[1] == [1, 2]


def test_who_replaces_also_replaces_its_own(world: World) -> None:
    """The last word of a transaction counts."""
    with world.tm.begin() as tx:
        tx.publish(ONE, world.address)
        tx.publish(TWO, world.address, conflict="replace")
        assert tx.published(world.address).rows == 2
    assert world.seen()[1] == [2]


# -- what is published -----------------------------------------------------------------------------


def test_frames_files_and_partitions(world: World, tmp_path: Path) -> None:
    """And all of it is read back."""
    pd = pytest.importorskip("pandas")
    (tmp_path / "notes.csv").write_text("a\n1\n")
    frame = pd.DataFrame({"month": [1, 1, 2], "flight": ["AA1", "AA2", "UA7"]})
    with world.tm.begin() as tx:
        tx.publish(frame, world.address, partition_by=["month"])
        tx.publish(
            [str(tmp_path / "notes.csv"), pa.record_batch({"flight": ["DL5"]})], world.address
        )
    with world.tm.begin() as tx:
        found = tx.published(world.address)
        assert found.rows is None
        assert sorted(one.path.split("-")[0] for one in found.files) == [
            "month=1/part",
            "month=2/part",
            "notes",
            "part",
        ]
        (notes,) = [one for one in found.files if one.path.startswith("notes")]
        assert found.read(notes) == b"a\n1\n"
        table = found.table(columns=["flight", "month"]).sort_by("flight")
        assert table.to_pydict() == {
            "flight": ["AA1", "AA2", "DL5", "UA7"],
            "month": [1, 1, None, 2],
        }
        keys = [url.removeprefix(f"s3://{world.bucket.name}/") for url in found.urls]
        assert found.size_bytes == sum(len(world.bucket.get(key)) for key in keys)


def test_int96_is_read_whatever_its_year(world: World, tmp_path: Path) -> None:
    """In nanoseconds of 64 bits, as pyarrow has it, years before 1677 were others."""
    moments = [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    with world.tm.begin() as tx:
        tx.publish([str(tmp_path / "a.parquet")], world.address)
        assert tx.published(world.address).table().equals(table)


def test_many_files_are_many_cells(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell holds a bounded number of them."""
    monkeypatch.setattr(manifests, "PORTION_FILES", 2)
    with world.tm.begin() as tx:
        tx.publish([ONE] * 5, world.address)
        assert len(tx.published(world.address).files) == 5
    assert world.seen() == (None, [1] * 5)


def test_nothing_is_published_too(world: World) -> None:
    """A publication without files, which `replace` makes of a destination that is to be empty."""
    world.publish(Mortal())
    with world.tm.begin() as tx:
        tx.publish([], world.address, conflict="replace")
    assert world.seen() == (b"1", [])


def test_a_file_that_was_overwritten_is_noticed(world: World) -> None:
    """A reader gets what was published, or an error."""
    with world.tm.begin() as tx:
        (one,) = tx.publish(ONE, world.address).files
    key = one.url.removeprefix(f"s3://{world.bucket.name}/")
    found = world.tm.begin().published(world.address)
    world.bucket.put(key)
    with pytest.raises(CommitterError, match=r"has 6 bytes, and \d+ were published"):
        found.read(found.files[0])
    world.bucket.client.delete_object(Bucket=world.bucket.name, Key=key)
    with pytest.raises(CommitterError, match=r"is gone: it was replaced.*tm\.hold"):
        found.read(found.files[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conflict": "merge"}, "conflict='merge' is none of fail, append, replace"),
        ({"partition_by": "month"}, r"must be a list of columns: \['month'\]"),
        ({"job_id": "x" * 9}, "no option 'job_id': the transaction's start timestamp is in it"),
        ({"scope": "partitions"}, "no option 'scope'"),
        ({"unique_names": False}, "no option 'unique_names'"),
        ({"success": "yes"}, "success='yes' must be True or False"),
        ({"committer": "partitioned"}, "committer='partitioned' is none of omidpy, directory"),
        ({"endpoint": "x"}, "there is no option 'endpoint'; did you mean 'endpoint_url'"),
        ({"threads": 0}, "threads=0 must be a whole number"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(
    world: World, options: dict[str, Any], message: str
) -> None:
    """And the transaction goes on."""
    with world.tm.begin() as tx:
        with pytest.raises(UsageError, match=message):
            tx.publish(ONE, world.address, **options)
        tx.table("orders").put(b"first", {b"cf:value": b"1"})
    assert world.seen() == (b"1", [])
    assert world.left() == []


def test_wrong_addresses_and_uses_are_refused(world: World) -> None:
    """With the remedy."""
    with world.tm.begin() as tx:
        with pytest.raises(UsageError, match="no address of S3; write s3://"):
            tx.publish(ONE, "file:///tmp/x")
        with pytest.raises(UsageError, match="zero byte"):
            tx.publish(ONE, f"{world.address}/a\0b", conflict="replace")
        with pytest.raises(UsageError, match="'conflict' is none of endpoint_url"):
            tx.published(world.address, conflict="append")
        with pytest.raises(UsageError, match="a int is no table"):
            tx.publish(5, world.address)
    with world.tm.begin(read_only=True) as tx, pytest.raises(UsageError, match="read-only"):
        tx.publish(ONE, world.address)


def test_the_first_publisher_makes_the_table_and_commits(world: World) -> None:
    """Although a table that is made aborts those who wrote an earlier one of its name."""
    assert PUBLISHED_TABLE not in world.tm.tables()
    world.publish(Mortal())
    assert PUBLISHED_TABLE in world.tm.tables()
    tx = world.tm.begin()
    tx.publish(ONE, world.address)
    world.tm.drop_table(PUBLISHED_TABLE)
    later = world.tm.begin()
    later.publish(TWO, world.address)
    with pytest.raises(Fenced):
        later.commit()
    with pytest.raises(Fenced):
        tx.commit()
    assert world.seen() == (b"1", [])


# -- readers without transactions ------------------------------------------------------------------


def told(world: World) -> dict[str, Any]:
    """Return what `_SUCCESS` says."""
    said = world.bucket.success(world.folder.prefix.rstrip("/"))["omidpy"]
    assert isinstance(said, dict)
    return said


def test_success_tells_of_the_newest_snapshot(world: World) -> None:
    """All files of it, whoever has published them; it never goes back."""
    world.publish(Mortal())
    with world.tm.begin() as tx:
        tx.publish(ONE, world.address, success=False)
    assert len(told(world)["files"]) == 2
    with world.tm.begin() as tx:
        tx.publish(TWO, world.address)
    said = told(world)
    assert sorted(one["rows"] for one in said["files"]) == [1, 1, 2, 100_000]
    later = {**said, "snapshot_ts": said["snapshot_ts"] * 2}
    document = world.bucket.success(world.folder.prefix.rstrip("/"))
    world.bucket.put(
        f"{world.folder.prefix}_SUCCESS", json.dumps({**document, "omidpy": later}).encode()
    )
    with world.tm.begin() as tx:
        tx.publish(TWO, world.address, conflict="replace")
    assert told(world) == later


def test_success_tells_of_what_is_published_behind_an_undone_savepoint(world: World) -> None:
    """The first, which would have told of both, was taken back; alone it tells of nothing."""
    with world.tm.begin() as tx:
        for what, is_undone in ((ONE, True), (TWO, False)):
            with suppress(ZeroDivisionError), tx.savepoint():
                tx.publish(what, world.address)
                if is_undone:
                    raise ZeroDivisionError
    assert [one["rows"] for one in told(world)["files"]] == [2]
    before = told(world)
    with world.tm.begin() as tx, suppress(ZeroDivisionError), tx.savepoint():
        tx.publish(ONE, world.address)
        raise ZeroDivisionError
    assert told(world) == before


def test_a_job_without_a_transaction_may_write_beside(world: World) -> None:
    """Readers by transactions do not see its files, and its modes spare theirs."""
    world.publish(Mortal())
    with committers.job(world.address, conflict="replace") as job:
        job.task(TWO)
    assert world.seen() == BOTH
    with world.tm.begin() as tx:
        tx.publish(ONE, world.address)
    assert world.seen()[1] == [1, 1, 100_000]
    assert len(told(world)["files"]) == 3
    assert len(world.bucket.visible(world.folder.prefix.rstrip("/"))) == 1


# -- what nobody names -----------------------------------------------------------------------------


def test_files_of_running_transactions_are_not_swept(world: World) -> None:
    """However long they take, until they cannot commit any more."""
    checks.files_of_running_transactions_are_not_swept(world)
    tx = world.tm.begin()
    tx.publish(ONE, world.address, inline_bytes=0)
    found = world.sweep()
    assert [len(found.running), found.named, found.removed] == [1, 1, []]
    world.oracle.raise_low_watermark()
    assert len(world.sweep().removed) == 1
    assert world.seen() == (None, [1])


def test_a_commit_that_only_its_cells_tell_of_is_kept(world: World) -> None:
    """The publisher died before it wrote a shadow cell, and the commit entry is all there is."""
    checks.a_commit_that_only_its_entry_tells_of_is_kept(world)
    assert world.sweep().named == 1


def test_flushed_cells_of_the_dead_are_settled_before_their_files_go(world: World) -> None:
    """What is removed cannot be committed afterwards."""
    tx = world.tm.begin()
    tx.publish(ONE, world.address)
    tx.flush()
    world.oracle.raise_low_watermark(tx.start_ts)
    assert len(world.sweep().removed) == 1
    with pytest.raises(TransactionAborted):
        tx.commit()
    assert world.left() == []


def test_what_was_replaced_goes_behind_a_compaction(world: World) -> None:
    """Once no snapshot can read it; a snapshot that somebody holds can."""
    world.publish(Mortal())
    before = world.tm.begin(read_only=True)
    world.publish(Mortal(), b"2", conflict="replace")

    def compact() -> None:
        low_watermark = world.oracle.raise_low_watermark()
        Compacted(world.store, low_watermark=low_watermark).compact(
            replace(ALL_AT_ONCE, should_wait=True)
        )

    with world.tm.hold(before, for_s=60):
        compact()
        assert world.sweep().removed == []
        assert world.seen(at=before.start_ts) == BOTH
    world.tm.begin()
    compact()
    found = world.sweep()
    assert (len(found.removed), found.named) == (1, 1)
    assert world.seen() == (b"2", [1, 100_000])
    assert len([key for key in world.left() if key.endswith(".parquet")]) == 2


def test_other_stores_files_are_not_swept(world: World, s3: S3Server) -> None:
    """Two stores that publish to one destination know nothing of each other."""
    other = World(s3, world.bucket)
    other.folder = world.folder
    other.publish(Mortal())
    world.publish(Mortal())
    world.oracle.raise_low_watermark()
    other.oracle.raise_low_watermark()
    for one in (world, other):
        assert (one.sweep().removed, one.seen()) == ([], BOTH)


def test_nothing_is_swept_where_the_table_is_gone(world: World) -> None:
    """An address of another store must not cost all files."""
    world.publish(Mortal())
    world.oracle.raise_low_watermark()
    world.store.drop_table(PUBLISHED_TABLE)
    with pytest.raises(CommitterError, match=r"no table OMIDPY_PUBLISHED.*nothing was removed"):
        world.sweep()
    assert len(world.left()) > 2


def test_what_no_publisher_has_made_is_not_swept(world: World) -> None:
    """Somebody put it there, among the files of jobs that nobody names."""
    world.publish(Mortal())
    owner = manifests.owner_folder(world.folder, owner_of(world.tm)).prefix
    foreign = f"{owner}notes/readme"
    world.bucket.put(foreign)
    world.oracle.raise_low_watermark()
    assert world.sweep().removed == []
    assert foreign in world.left()


def test_nothing_is_swept_through_a_store_that_hides_versions(world: World) -> None:
    """It does not say which files older snapshots see."""
    world.publish(Mortal())
    store = object_store(world.address, {"endpoint_url": world.endpoint})
    before = world.left()
    with pytest.raises(ConfigError, match="newest version"):
        sweeping.sweep(world.manager(LikeThrift1(world.store)), store, world.folder)
    assert world.left() == before


def test_a_folder_that_begins_alike_is_not_swept(world: World, s3: S3Server) -> None:
    """`lake1` says nothing of `lake10`."""
    longer = World(s3, world.bucket)
    longer.folder = type(world.folder)(world.bucket.name, world.folder.prefix[:-1] + "0/")
    longer.store, longer.oracle = world.store, world.oracle
    longer.publish(Mortal())
    with world.tm.begin() as tx:
        tx.publish(ONE, world.address)
    assert world.seen()[1] == [1]
    world.oracle.raise_low_watermark()
    assert world.sweep().named == 1
    assert longer.seen() == BOTH


# -- processes and commands ------------------------------------------------------------------------


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Give the address of a store in a file, and a destination."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    url = f"sqlite:///{tmp_path / 'lake.db'}"
    with omidpy.connect(url) as tm:
        tm.create_table("orders", ["cf"])
    monkeypatch.setenv("OMIDPY_STORE", url)
    return url, f"s3://{Bucket(s3).name}/lake"


def run(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command; return what it printed, as JSON."""
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    "step",
    [
        "flushed",
        "decided",
        *(pytest.param(one, marks=pytest.mark.nightly) for one in ("published", "never")),
    ],
)
def test_publishers_that_are_killed_for_real(
    lake: tuple[str, str], step: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By SIGKILL; the command lists and sweeps."""
    url, address = lake
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, url, address, step], check=False, timeout=120
    )
    assert done.returncode == (0 if step == "never" else -signal.SIGKILL)
    is_there = step in {"decided", "never"}
    with omidpy.connect(url) as tm, tm.begin() as tx:
        assert bool(tx.table("orders").row(b"first")) == is_there
        assert len(tx.published(address).files) == is_there
    words = ("committers", "published")
    assert len(run(*words, "list", address, capsys=capsys)["files"]) == is_there
    found = run(*words, "sweep", address, "--dry-run", capsys=capsys)
    assert [len(found["removed"]), found["named"]] == [not is_there, is_there]
    assert run(*words, "sweep", address, capsys=capsys) == {**found, "dry_run": False}
    assert run(*words, "sweep", address, capsys=capsys)["removed"] == []
    assert len(run(*words, "list", address, capsys=capsys)["files"]) == is_there


def test_the_commands_speak_to_people(
    lake: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of what is there, and of what is not."""
    url, address = lake
    with pytest.raises(SystemExit):
        main(["committers", "published", "list", address])
    assert "nothing was published to s3://" in capsys.readouterr().out
    with omidpy.connect(url) as tm, tm.begin() as tx:
        tx.publish(ONE, address)
    with pytest.raises(SystemExit):
        main(["committers", "published", "list", address])
    assert "part-00000-c000-t" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["committers", "published", "sweep", address])
    assert "removed 0 publications with 0 objects; kept 1 that" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["committers", "published", "list", address, "--at", "1d"])
    assert "nothing was published" in capsys.readouterr().out


@pytest.mark.hbase
def test_files_are_published_with_cells_of_hbase(
    hbase: HBase, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its versions name files, of older snapshots too; a later oracle lets the dead be swept."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    bucket = Bucket(s3)
    address, folder = f"s3://{bucket.name}/lake", Folder(bucket.name, "lake/")
    store = object_store(address, {})
    with empty_hbase(hbase) as url:
        with omidpy.connect(url) as tm:
            tm.create_table("orders", ["cf"])
            with tm.begin() as tx:
                tx.table("orders").put(b"first", {b"cf:value": b"1"})
                tx.publish(ONE, address)
            before = tm.begin(read_only=True)
            with tm.begin() as tx:
                tx.publish(TWO, address, conflict="replace")
            dead = tm.begin()
            dead.publish(ONE, address)
            dead.flush()
            found = sweeping.sweep(tm, store, folder)
            assert (len(found.running), found.named) == (1, 2)
        with omidpy.connect(url) as tm:  # whose oracle begins above all of them
            found = sweeping.sweep(tm, store, folder)
            assert (len(found.removed), found.named, found.undecided) == (1, 2, [])
            assert tm.snapshot().published(address).table()["v"].to_pylist() == [2, 2]
            earlier = tm.snapshot(at=before.start_ts)
            assert earlier.published(address).table()["v"].to_pylist() == [1]
            assert earlier.table("orders").row(b"first") == {b"cf:value": b"1"}
