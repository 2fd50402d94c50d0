"""What is wrong with a job is said once, and leaves nothing: each way to write, on moto."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from omidpy import committers
from omidpy.cli import main
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.snapshots import export_snapshot
from omidpy.connect import make_publisher
from omidpy.errors import CommitterError, ConfigError, UsageError
from omidpy.manager import TransactionManager
from omidpy.storage.memory import MemoryStore
from tests.machines.naive_oracle import NaiveOracle

OUT: Final = "s3://lake/out"
TABLE: Final = pa.table({"p": [1], "v": [2]})

Way = Callable[..., None]


def by(name: str) -> Way:
    """Return what writes a file by a job of a committer."""

    def write(address: str = OUT, **options: Any) -> None:
        made = committers.job(address, committer=name, partition_by=["p"], threads=2, **options)
        with made as job:
            job.task(TABLE)

    return write


def manager() -> TransactionManager:
    """Return one of a store of its own."""
    store = MemoryStore()
    return TransactionManager(
        store, NaiveOracle(store), post_commit="sync", make_publisher=make_publisher
    )


def publish(address: str = OUT, **options: Any) -> None:
    """Publish a file with a transaction."""
    with manager().begin() as tx:
        tx.publish(TABLE, address, **options)


def export(address: str = OUT, **options: Any) -> None:
    """Export a table."""
    tm = manager()
    tm.create_table("t", ["cf"])
    export_snapshot(tm, ["t"], address, **options)


def save(address: str = OUT, **options: str) -> None:
    """Begin what Spark's driver begins for a frame; its tasks need Spark itself."""
    from pyspark.sql.types import StructType

    from omidpy.committers.spark.source import ParquetSource

    ParquetSource({"path": address, **options}).writer(StructType(), overwrite=False)


S3: Final = ("omidpy", "directory", "partitioned", "magic")
WAYS: Final[dict[str, Way]] = {
    **{name: by(name) for name in S3},
    "publish": publish,
    "export-snapshot": export,
}


@pytest.fixture(params=[*WAYS])
def way(request: pytest.FixtureRequest) -> str:
    """Give the name of each way to write."""
    return str(request.param)


@pytest.fixture
def store(moto_bucket: str) -> Iterator[ObjectStore]:
    """Give a store that sees a bucket, and at the end no upload in it."""
    found = ObjectStore()
    yield found
    assert list(found.uploads(Folder(moto_bucket, ""))) == []


def keys(store: ObjectStore) -> list[str]:
    """Return all that is in the bucket."""
    found = [one.key for one in store.objects(Folder("lake", ""))]
    return [key for key in found if not key.endswith("_omidpy/head.json")]


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of the requests that are sent from now on."""
    sent: list[str] = []
    count = ObjectStore._count

    def note(self: ObjectStore, event_name: str, **more: Any) -> None:
        sent.append(event_name.rpartition(".")[2])
        count(self, event_name, **more)

    monkeypatch.setattr(ObjectStore, "_count", note)
    return sent


def test_without_credentials_nothing_is_sent(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, way: str
) -> None:
    """The error names what boto3 looks for."""
    sent = asked(monkeypatch)
    with monkeypatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.delenv(name)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("HOME", str(tmp_path))
        with pytest.raises(ConfigError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET"):
            WAYS[way]()
    assert sent == []
    assert keys(store) == []


@pytest.mark.parametrize("conflict", ["fail", "append"])
def test_a_bucket_that_is_not_there_is_named_once(
    store: ObjectStore, caplog: pytest.LogCaptureFixture, way: str, conflict: str
) -> None:
    """An abort that fails for the same reason adds nothing."""
    with pytest.raises(CommitterError, match=r"s3://nowhere/out.*make the bucket") as raised:
        WAYS[way]("s3://nowhere/out", conflict=conflict)
    assert str(raised.value).count("nowhere") == 1
    assert [one for one in caplog.records if one.levelno >= logging.WARNING] == []
    assert keys(store) == []


@pytest.mark.parametrize("way", [*S3, "publish"])
def test_a_store_without_uploads_is_said_to_lack_them(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Nothing of the job is left."""
    create = ObjectStore._opened

    def lacking(self: ObjectStore) -> Any:
        client = create(self)
        client.meta.events.register_first("before-call.s3.CreateMultipartUpload", refuse)
        return client

    def refuse(**_: Any) -> Any:
        from botocore.awsrequest import AWSResponse

        answer = AWSResponse("", 501, {}, None)
        meta = {"HTTPStatusCode": 501}
        return answer, {"Error": {"Code": "NotImplemented"}, "ResponseMetadata": meta}

    monkeypatch.setattr(ObjectStore, "_opened", lacking)
    with pytest.raises(CommitterError, match="committers need multipart uploads"):
        WAYS[way](inline_bytes=0)
    assert keys(store) == []


@pytest.mark.parametrize("conflict", ["fail", "replace"])
@pytest.mark.parametrize("way", S3)
def test_a_file_of_the_name_of_the_destination_stays(
    store: ObjectStore, way: str, conflict: str
) -> None:
    """On a store that has no folders it is in nobody's way, but in mode `fail` of a folder."""
    store.put("lake", "out", b"theirs")
    if conflict == "fail" and way != "partitioned":
        with pytest.raises(CommitterError, match="is not empty: it has s3://lake/out;"):
            WAYS[way](conflict=conflict)
        assert keys(store) == ["out"]
    else:
        WAYS[way](conflict=conflict)
        assert len(keys(store)) == 3
    assert store.get("lake", "out")[0] == b"theirs"


@pytest.mark.parametrize("way", [*S3, "export-snapshot", "spark"])
def test_a_conflict_is_refused_before_any_upload(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """One listing is all that is sent."""
    store.put("lake", "out/p=1/theirs", b"theirs")
    sent = asked(monkeypatch)
    with pytest.raises(CommitterError, match=r"has.*; choose|choose conflict="):
        {**WAYS, "spark": save}[way](conflict="fail")
    # The abort of a job that was begun looks for its plan, and for what its tasks have left.
    assert sent[0] == "ListObjectsV2"
    assert not {"CreateMultipartUpload", "UploadPart", "PutObject", "DeleteObject"} & {*sent}
    assert keys(store) == ["out/p=1/theirs"]


def test_a_publication_in_the_way_is_refused_before_any_upload(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of transactions cells say what is there, and nothing is sent at all."""
    tm = manager()
    with tm.begin() as tx:
        tx.publish(TABLE, OUT)
    before = keys(store)
    sent = asked(monkeypatch)
    with tm.begin() as tx, pytest.raises(CommitterError, match="is not empty: 1 publications"):
        tx.publish(TABLE, OUT, conflict="fail")
    assert sent == []
    assert keys(store) == before


@pytest.mark.parametrize("way", [*WAYS, "spark"])
def test_an_unknown_option_is_named_with_its_nearest(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A slip would otherwise change nothing, unnoticed."""
    sent = asked(monkeypatch)
    ways = {**WAYS, "spark": save}
    with pytest.raises(UsageError, match=r"no option 'inline_byte'; did you mean 'inline_bytes'"):
        ways[way](inline_byte="0")
    with pytest.raises(UsageError, match=r"conflict='sometimes' .*(one|none) of fail, append, rep"):
        ways[way](conflict="sometimes")
    assert sent == []
    assert keys(store) == []


@pytest.mark.parametrize("name", S3)
def test_a_plan_that_nobody_understands_is_no_jobs_to_replace(
    store: ObjectStore, name: str
) -> None:
    """A newer omidpy may have begun the same job."""
    data = b'{"format":"omidpy-plan","version":9}'
    key = "out/_omidpy/job_00001/plan.json"
    store.put("lake", key, data)
    with pytest.raises(CommitterError, match="another driver has begun to commit job job_00001"):
        by(name)(job_id="job_00001", inline_bytes=10_000)
    assert store.get("lake", key)[0] == data
    assert [one for one in keys(store) if one != key and "__magic_job" not in one] == []
    # What the other driver may speak of is left to it.
    for upload in store.uploads(Folder("lake", "out/")):
        store.abort_upload("lake", upload.key, upload.upload_id)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("uploads", "list", "lake/out"), "is no address of S3; write s3://"),
        (("uploads", "abort", "s3://lake/out", "--older-than", "soon"), "is no duration; write"),
        (("uploads", "abort", "s3://lake/out/../x"), "has an empty folder, '.' or '..'"),
        (("uploads", "list", "s3://nowhere/out"), "make the bucket, or check its name"),
        (("plan", "list", "s3://nowhere/out"), "make the bucket, or check its name"),
        (("plan", "show", "s3://lake"), "names a bucket and no object"),
        (("plan", "show", "s3://lake/out/_omidpy/job_00001/plan.json"), "there is no plan s3://"),
        (("plan", "resume", "s3://lake/out/_omidpy/x/plan.json"), "there is no plan s3://lake/"),
        (("plan", "rollback", "s3://nowhere/out/_omidpy/x/plan.json"), "make the bucket"),
        (("plan", "resume", "s3://lake/out/__magic_job-job_00001"), "there is no s3://lake/out/__"),
        (("plan", "show", "s3://nowhere/__magic_job-job_00001"), "make the bucket, or check"),
        (("verify", "s3://lake/out"), "no job was committed"),
        (("verify", "s3://nowhere/out"), "make the bucket, or check its name"),
    ],
)
def test_the_commands_say_what_is_wrong(
    store: ObjectStore, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    """In a line of stderr, which names the input."""
    with pytest.raises(SystemExit) as ended:
        main(["committers", *words])
    out, err = capsys.readouterr()
    assert ended.value.code in {1, 2}
    assert (out, message in err) == ("", True), err
    assert err.count("nowhere") <= 1
    assert keys(store) == []
