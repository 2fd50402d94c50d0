"""Jobs that end in a commit of a Delta log, on a real server, as readers of Delta see them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, time
from typing import Any

import pyarrow as pa
import pytest

from omidpy import committers
from omidpy.committers.heads import delta
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError
from tests.machines.s3.looking import Bucket
from tests.machines.s3.server import S3Server

deltalake = pytest.importorskip("deltalake", reason="needs the extra `delta`")
pytestmark = pytest.mark.integration


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Give a bucket; boto3 finds its store in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
    return Bucket(s3)


def rows(bucket: Bucket) -> list[tuple[Any, ...]]:
    """Return what readers of Delta see."""
    where, options = delta._where(ObjectStore(), Folder(bucket.name, "out/"))
    found = deltalake.DeltaTable(where, storage_options=options).to_pyarrow_table()
    return sorted(zip(found["v"].to_pylist(), found["p"].to_pylist(), strict=True))


def test_readers_of_delta_see_jobs_whole(bucket: Bucket) -> None:
    """By small files and by uploads, appended, replaced, and by four drivers at once."""
    address = f"s3://{bucket.name}/out"

    def run(*values: tuple[int, str], **options: Any) -> None:
        with committers.job(address, table_format="delta", partition_by=["p"], **options) as job:
            for v, p in values:
                job.task(pa.table({"v": [v], "p": [p]}))

    run((1, "a"), (2, "b: é"))
    assert rows(bucket) == [(1, "a"), (2, "b: é")]
    run((3, "a"), conflict="replace", scope="partitions", inline_bytes=0)
    assert rows(bucket) == [(2, "b: é"), (3, "a")]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda v: run((v, "c")), range(10, 14)))
    assert rows(bucket)[2:] == [(v, "c") for v in range(10, 14)]
    run((20, "d"), conflict="replace")
    assert rows(bucket) == [(20, "d")]
    assert bucket.uploads() == []


def test_moments_of_any_zone_are_those_of_utc(bucket: Bucket) -> None:
    """In files, in lists, and in names of partitions, which say no zone."""
    kind = pa.timestamp("us", "America/New_York")
    moment = datetime(2020, 6, 1, 12, tzinfo=UTC)
    lists = pa.array([[moment, None]], pa.list_(kind))
    address = f"s3://{bucket.name}/out"
    with committers.job(address, table_format="delta", partition_by=["p"]) as job:
        job.task(pa.table({"v": lists, "p": pa.array([moment], kind)}))
    assert rows(bucket) == [([moment, None], moment)]


def test_columns_that_no_table_has_are_refused(bucket: Bucket) -> None:
    """Before anything is visible."""
    job = committers.job(f"s3://{bucket.name}/out", table_format="delta")
    with pytest.raises(CommitterError, match="columns that are no table's"), job:
        job.task(pa.table({"v": pa.array([time(12)], pa.time64("us"))}))
    assert bucket.visible("out") == []
