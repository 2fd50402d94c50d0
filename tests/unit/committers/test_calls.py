"""Jobs, tasks and publications called out of turn, on moto."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from omidpy import committers
from omidpy.committers import transactional, values
from omidpy.committers.contents.state import file_system
from omidpy.committers.hadoop.file_output import FileOutputCommitter
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.objects.uploads import Allowance, Sender, UploadedFile
from omidpy.committers.places import Folder
from omidpy.committers.protocol import Attempt
from omidpy.committers.s3 import S3Committer
from omidpy.committers.transactional import Publisher
from omidpy.committers.values import TaskMessage
from omidpy.errors import CommitterError, UsageError
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from tests.machines.naive_oracle import NaiveOracle

OUT: Final = Folder("lake", "out/")
TABLE: Final = pa.table({"v": [1, 2, 3]})


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give what another process sees."""
    del moto_bucket
    return ObjectStore()


def names(store: ObjectStore) -> list[str]:
    """Return the beginnings of the names of all files."""
    found = [one.key.removeprefix("out/").partition("-")[0] for one in store.objects(OUT)]
    return [path for path in found if path != "_omidpy/head.json"]


# -- jobs and tasks --------------------------------------------------------------------------------


def test_who_commits_in_the_block_has_committed(store: ObjectStore) -> None:
    """The end of the block then does nothing, also for a task."""
    with committers.job(OUT.url) as job:
        with job.task() as task:
            task.open("f").close()
            task.commit()
        job.commit()
    assert names(store) == ["_SUCCESS", "f"]


def test_a_task_that_is_committed_is_not_aborted_any_more(store: ObjectStore) -> None:
    """What its message names is the job's."""
    with committers.job(OUT.url, inline_bytes=0) as job:
        task = job.task()
        task.open("f").close()
        task.commit()
        task.abort()
    assert names(store) == ["_SUCCESS", "f"]


def test_tables_of_a_task_are_one_file(store: ObjectStore) -> None:
    """As many as they are."""
    with committers.job(OUT.url) as job, job.task() as task:
        for _ in range(3):
            task.write(TABLE)
    assert names(store) == ["_SUCCESS", "part"]
    assert job.manifest is not None
    assert job.manifest.rows == 9


def test_a_job_that_was_committed_stays_when_it_is_aborted(store: ObjectStore) -> None:
    """Its files were seen; nothing is asked, and another end does not come after the first."""
    with committers.job(OUT.url) as job:
        job.task(TABLE)
    assert isinstance(job.committer, S3Committer)
    before = job.committer.store.counts()
    job.abort()
    assert job.committer.store.counts() == before
    assert names(store) == ["_SUCCESS", "part"]


@pytest.mark.parametrize("number", [-1, 0])
def test_the_number_of_a_task_is_new_and_from_0_up(store: ObjectStore, number: int) -> None:
    """One that is committed is not tried again."""
    with committers.job(OUT.url) as job:
        job.task(TABLE)
        with pytest.raises((CommitterError, UsageError), match=r"committed already|is negative"):
            job.task(TABLE, number=number)
    assert names(store) == ["_SUCCESS", "part"]


# -- files -----------------------------------------------------------------------------------------


def file_of(store: ObjectStore, bucket: str = "lake", left: int = 15) -> UploadedFile:
    """Begin a file whose parts are shorter than what may stay in hand."""
    return UploadedFile(
        Sender(store),
        bucket=bucket,
        key="out/f",
        job_id="job_00001",
        first_part_bytes=10,
        inline_bytes=12,
        allowance=Allowance(left),
    )


def test_an_upload_begins_where_a_file_cannot_stay_in_hand(store: ObjectStore) -> None:
    """While its task goes on writing, and not before; at its end it is one or the other."""
    small, part, large = (file_of(store) for _ in range(3))
    small.write(b"x" * 9)
    part.write(b"x" * 12)
    part.close()
    assert (part.pending().data, len(part.pending().etags)) == (None, 2)
    large.write(b"x" * 13)
    large.close()
    assert len(large.pending().etags) == 2
    small.close()
    assert (small.pending().data, small.pending().upload_id) == (b"x" * 9, "")
    assert store.counts() == {"CreateMultipartUpload": 2, "UploadPart": 4}


def test_a_file_that_is_too_long_to_stay_in_hand_is_begun_before_its_first_part(
    store: ObjectStore,
) -> None:
    """The request is under way while the part fills."""
    file = UploadedFile(
        Sender(store),
        bucket="lake",
        key="out/f",
        job_id="job_00001",
        first_part_bytes=100,
        inline_bytes=12,
        allowance=Allowance(0),
    )
    file.write(b"x" * 12)
    assert store._background is None
    file.write(b"x")
    store.background.shutdown()
    assert store.counts() == {"CreateMultipartUpload": 1}


def test_a_file_ends_once(store: ObjectStore) -> None:
    """A second end changes nothing, and one behind its abort sends nothing."""
    file = file_of(store)
    file.write(b"x" * 9)
    for _ in range(2):
        file.close()
    assert file.pending().data == b"x" * 9
    given_up = file_of(store, left=0)
    given_up.write(b"x")
    given_up.abort()
    given_up.close()
    store.background.shutdown()
    assert store.counts() == {}
    closed = file_of(store)
    closed.close()
    closed.abort()
    for one in (given_up, closed):
        with pytest.raises(CommitterError, match="was not closed"):
            one.pending()


def test_what_could_not_be_begun_is_not_aborted(store: ObjectStore) -> None:
    """Whoever writes was told; the abort of the task goes on with its other files."""
    file = file_of(store, "nowhere")
    file.write(b"x" * 13)
    file.abort()
    assert store.counts() == {"CreateMultipartUpload": 1}


# -- publications ----------------------------------------------------------------------------------


class Foreign:
    """A table of another library, which speaks Arrow."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Give it."""
        return TABLE.__arrow_c_stream__(requested_schema)


def test_tables_of_other_libraries_become_arrows() -> None:
    """What nobody knows stays as it is, and is refused by whoever writes it."""
    assert transactional._table(Foreign()) == TABLE
    assert transactional._table(TABLE.to_pandas()) == pa.Table.from_pandas(TABLE.to_pandas())
    assert transactional._table("a path") == "a path"
    assert transactional._table(TABLE) is TABLE
    assert transactional._table(5) == 5


@pytest.mark.parametrize("field", ["jobId", "omidpy"])
def test_a_manifest_of_another_job_names_no_files(store: ObjectStore, field: str) -> None:
    """What its tasks have uploaded would be lost, or another's be published."""
    with committers.job(OUT.url, job_id="job_00001") as job:
        job.task(TABLE)
    assert [one.rows for one in transactional._uploaded(store, OUT, job.id)] == [3]
    said = json.loads(store.get("lake", "out/_SUCCESS")[0])
    del said[field]
    store.put("lake", "out/_SUCCESS", json.dumps(said).encode())
    with pytest.raises(CommitterError, match="is not of job job_00001, which was to write it"):
        transactional._uploaded(store, OUT, job.id)


@pytest.mark.parametrize(
    "said", ["nonsense", {}, {"omidpy": 3}, {"omidpy": {}}, {"omidpy": {"snapshot_ts": "soon"}}]
)
def test_a_manifest_without_a_snapshot_tells_of_none(store: ObjectStore, said: object) -> None:
    """It is of a job without a transaction, or nobody's; its tag is known."""
    if isinstance(said, dict):
        said = {"name": "x.SuccessData/1", **said}
    etag, _ = store.put("lake", "out/_SUCCESS", json.dumps(said).encode())
    assert transactional._told_until(store, OUT) == (etag, 0)


@pytest.mark.parametrize("is_gone", [True, False])
def test_who_tells_of_a_snapshot_looks_again_where_another_was_quicker(
    store: ObjectStore, *, is_gone: bool
) -> None:
    """Its `_SUCCESS` was written, or removed, between the look and the writing."""
    cells = MemoryStore()
    publisher = Publisher(TransactionManager(cells, NaiveOracle(cells), post_commit="sync"))
    store.put("lake", "out/_SUCCESS", b"")
    ours = ObjectStore()

    def hurry(name: str) -> None:
        if name == "PutObject" and ours.counts()[name] == 1:
            if is_gone:
                store.delete("lake", "out/_SUCCESS")
            else:
                store.put("lake", "out/_SUCCESS", b"{}")

    ours.before_request = hurry
    assert publisher.tell(ours, OUT)
    assert ours.counts()["PutObject"] == 2
    assert transactional._told_until(store, OUT)[1] > 0


def test_a_frame_names_its_files_whatever_its_session_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One without `_SUCCESS` was written, and could not be published."""
    pytest.importorskip("pyspark.sql.datasource", reason="needs Spark 4")
    from omidpy.committers.spark import source

    said: dict[str, str] = {}

    class Frame:
        """Notes what its writer is told."""

        sparkSession = None  # noqa: N815 - Spark's name

        def __getattr__(self, name: str) -> Any:
            return self if name == "write" else lambda *_: self

        def option(self, name: str, value: str) -> Frame:
            """Note it."""
            said[name] = value
            return self

    monkeypatch.setattr(source, "register", lambda _: None)
    transactional._save(Frame(), OUT, "job_00001", (), "omidpy", {})
    assert said["success"] == "true"


def test_the_bytes_of_a_small_file_are_hashed_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its completion, the head and the manifest need its tag; of 50 files that was 0.1 s."""
    del store
    hashed: list[bytes] = []
    md5 = values.md5

    def count(data: bytes) -> str:
        hashed.append(data)
        return md5(data)

    monkeypatch.setattr(values, "md5", count)
    with committers.job("s3://lake/out") as job:
        for content in (b"one", b"two"):
            with job.task() as task, task.open(content.decode()) as file:
                file.write(content)
    assert sorted(hashed) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("named", "is_strict"),
    [
        ({}, True),
        ({"option": "https://s3.eu-central-1.amazonaws.com"}, True),
        ({"option": "http://127.0.0.1:9000"}, False),
        ({"option": "https://s3.amazonaws.com.example"}, False),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, False),
        ({"profile": "http://127.0.0.1:9000"}, False),
    ],
    ids=str,
)
def test_a_store_is_amazons_where_its_client_asks_amazon(
    named: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_strict: bool
) -> None:
    """Others may take no notice of the tags in a bulk delete; a profile may name them, too."""
    config = tmp_path / "config"
    endpoint = named.get("profile")
    config.write_text(f"[default]\nendpoint_url = {endpoint}\n" if endpoint else "[default]\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    if "AWS_ENDPOINT_URL" in named:
        monkeypatch.setenv("AWS_ENDPOINT_URL", named["AWS_ENDPOINT_URL"])
    options = StoreOptions(named.get("option"), region="eu-central-1")
    assert ObjectStore(options).is_strict == is_strict


def test_a_reader_without_credentials_leaves_them_to_arrow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has a chain of its own, and may read what is open to all."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    found = file_system(ObjectStore(StoreOptions("http://127.0.0.1:1", "us-east-1")))
    assert found.type_name == "s3"


@pytest.mark.parametrize("name", ["directory", "omidpy"])
def test_tasks_of_threads_are_committed_at_the_same_time(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Eight that upload for 0.2 s each took 2.0 s; the barrier opens once all are on their way."""
    del moto_bucket
    job = committers.job(OUT.url, committer=name, inline_bytes=0).__enter__()
    assert isinstance(job.committer, S3Committer)
    together = threading.Barrier(8, timeout=60)
    commit = job.committer.commit_task

    def beside(attempt: Attempt) -> TaskMessage:
        together.wait()
        return commit(attempt)

    monkeypatch.setattr(job.committer, "commit_task", beside)

    def one(number: int) -> None:
        with job.task(number=number) as task, task.open(f"f{number}") as file:
            file.write(b"x")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    job.commit()
    assert job.manifest is not None
    assert len(job.manifest.files) == 8


def test_tasks_that_move_their_own_folder_are_committed_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight on a local file system; the barrier opens once all are about to rename."""
    job = committers.job(str(tmp_path / "out"), committer="file").__enter__()
    assert isinstance(job.committer, FileOutputCommitter)
    together = threading.Barrier(8, timeout=60)
    rename = job.committer.tree.rename

    def beside(source: str, target: str, *, is_over: bool = False) -> None:
        if "task_" in target:
            together.wait()
        rename(source, target, is_over=is_over)

    monkeypatch.setattr(job.committer.tree, "rename", beside)

    def one(number: int) -> None:
        with job.task(number=number) as task, task.open(f"f{number}") as file:
            file.write(b"x%d" % number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(8)))
    job.commit()
    found = [one for one in (tmp_path / "out").iterdir() if one.name[0] == "f"]
    assert sorted(one.read_bytes() for one in found) == [b"x%d" % at for at in range(8)]


def test_tasks_that_move_their_files_to_the_destination_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two of one name the second sees the first one's, and is refused."""
    job = committers.job(
        str(tmp_path / "out"), committer="file", algorithm_version=2, unique_names=False
    ).__enter__()
    second = job.task()
    with second.open("same") as file:
        file.write(b"second")
    assert isinstance(job.committer, FileOutputCommitter)
    check, waiting = job.committer._check_movable, list[Future[None]]()

    def beside(*args: Any) -> None:
        check(*args)
        if not waiting:
            waiting.append(pool.submit(second.commit))
            # It has to wait for its turn: as long as that is taken it has not looked.
            assert job._turn(second.number).locked()

    with ThreadPoolExecutor(1) as pool:
        monkeypatch.setattr(job.committer, "_check_movable", beside)
        with job.task() as task, task.open("same") as file:
            file.write(b"first")
    assert isinstance(waiting[0].exception(), CommitterError)
    (found,) = [one for one in (tmp_path / "out").iterdir() if one.name.startswith("same")]
    assert found.read_bytes() == b"first"


def test_an_attempt_waits_for_another_that_may_fail(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two at one task the first that is committed counts, and not the first that began to."""
    del moto_bucket
    job = committers.job(OUT.url, inline_bytes=0).__enter__()
    began, second_waits = threading.Event(), threading.Event()
    commit, calls = job.committer.commit_task, []

    def fail_first(attempt: Attempt) -> TaskMessage:
        calls.append(attempt.id.attempt)
        if attempt.id.attempt == 0:
            began.set()
            assert second_waits.wait(60)
            raise CommitterError("the store has failed")
        return commit(attempt)

    monkeypatch.setattr(job.committer, "commit_task", fail_first)
    first, second = job.task(number=0), job.task(number=0)
    turn = job._turn

    def and_say(number: int) -> threading.Lock:
        second_waits.set()
        return turn(number)

    with ThreadPoolExecutor(1) as pool:
        failing = pool.submit(first.commit)
        assert began.wait(60)
        monkeypatch.setattr(job, "_turn", and_say)
        second.commit()
        assert isinstance(failing.exception(), CommitterError)
    assert calls == [0, 1]
    assert job.done == {0}
    job.abort()


def test_a_task_that_is_committed_while_its_job_is_aborted_is_no_part(
    moto_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its uploads go, too."""
    del moto_bucket
    job = committers.job(OUT.url, inline_bytes=0).__enter__()
    assert isinstance(job.committer, S3Committer)
    commit = job.committer.commit_task

    def and_abort(attempt: Attempt) -> TaskMessage:
        found = commit(attempt)
        job.abort()
        return found

    monkeypatch.setattr(job.committer, "commit_task", and_abort)
    task = job.task()
    with task.open("a") as file:
        file.write(b"x")
    with pytest.raises(CommitterError, match="is aborted, and cannot take"):
        task.commit()
    assert list(job.committer.store.uploads(OUT)) == []
