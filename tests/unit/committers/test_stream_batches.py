"""Batches of a stream to S3: what a restart repeats is passed over, and nothing else is."""

from __future__ import annotations

from typing import Any, Final

import pytest
from pyspark.sql.types import StructType

from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.s3 import S3Committer
from omidpy.committers.spark.source import _Message, _settings, _StreamWriter
from omidpy.committers.values import TaskId
from omidpy.errors import CommitterError
from tests.machines.s3.jobs import OUT

QUERY: Final = "11111111-2222-3333-4444-555555555555"
OURS: Final = "aaaaaaaa-2222-3333-4444-555555555555"
THEIRS: Final = "bbbbbbbb-2222-3333-4444-555555555555"
AGAIN: Final = "cccccccc-2222-3333-4444-555555555555"


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give what somebody outside sees."""
    del moto_bucket
    return ObjectStore()


def publish(number: int, data: bytes, run: str, *, inline_bytes: int = 0, **files: bytes) -> None:
    """Let a run of the query publish a batch, and take it back where that fails, as Spark does."""
    settings: Any = _settings(
        {"path": OUT.url, "inlineBytes": f"{inline_bytes}"}, StructType([]), overwrite=False
    )
    job_id = f"{QUERY}-b{number:010}"
    made = settings.committer(job_id=job_id)
    assert isinstance(made, S3Committer)
    attempt = made.setup_task(TaskId(0))
    for name, content in (files or {"f": data}).items():
        with attempt.open(name) as file:
            file.write(content)
    writer, messages = (
        _StreamWriter(settings),
        [_Message(made.commit_task(attempt), job_id, run=run)],
    )
    try:
        writer.commit([*messages], number)
    except CommitterError:
        writer.abort([*messages], number)
        raise


def contents(store: ObjectStore) -> list[bytes]:
    """Return what readers find; nothing else is left."""
    assert list(store.uploads(OUT)) == []
    keys = [one.key for one in store.objects(OUT) if not OUT.below(one.key).startswith("_")]
    return sorted(store.get(OUT.bucket, key)[0] for key in keys)


def test_a_restart_repeats_its_newest_batch_and_goes_on(store: ObjectStore) -> None:
    """Each run begins with a batch that the one before has published."""
    publish(0, b"0", OURS)
    publish(1, b"1", OURS)
    publish(1, b"1", OURS)  # whose answer was lost
    publish(1, b"1", THEIRS)
    publish(2, b"2", THEIRS)
    publish(2, b"2", AGAIN)
    publish(3, b"3", AGAIN)
    assert contents(store) == [b"0", b"1", b"2", b"3"]


def test_a_checkpoint_that_was_put_back_is_refused(store: ObjectStore) -> None:
    """Its batches were published once more where their files had other names."""
    for number in range(3):
        publish(number, b"%d" % number, OURS)
    with pytest.raises(CommitterError, match="was put back"):
        publish(1, b"", THEIRS, other=b"1")
    assert contents(store) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("later", [0, 1, 2])
def test_a_driver_that_stood_still_publishes_no_batch_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, later: int
) -> None:
    """It has read that its batch is not published, and another run publishes it, and goes on.

    That run aborts its uploads; small files are none, and come from the driver itself.
    """
    publish(0, b"0", OURS)
    commit_job = S3Committer.commit_job

    def stand_still(made: S3Committer, messages: Any) -> Any:
        monkeypatch.setattr(S3Committer, "commit_job", commit_job)
        for number in range(1, 2 + later):
            publish(number, b"%d" % number, THEIRS)
        return commit_job(made, messages)

    monkeypatch.setattr(S3Committer, "commit_job", stand_still)
    with pytest.raises(CommitterError, match=f"batch {1 + later} of the stream .* meanwhile"):
        publish(1, b"", OURS, inline_bytes=1000, other=b"1")
    assert contents(store) == [b"%d" % number for number in range(2 + later)]
    publish(2 + later, b"last", THEIRS)
    assert contents(store)[-1] == b"last"


@pytest.mark.parametrize("later", [0, 1])
def test_a_driver_that_was_replaced_is_not_told_to_begin_anew(
    store: ObjectStore, later: int
) -> None:
    """Where its successor has its very checkpoint, a new one would publish all rows again."""
    publish(0, b"0", OURS)
    for number in range(1, 2 + later):
        publish(number, b"%d" % number, THEIRS)
    with pytest.raises(CommitterError, match=f"if run {THEIRS} has taken .* all is well, .*; else"):
        publish(1, b"", OURS)
    with pytest.raises(CommitterError) as caught:
        publish(later, b"", THEIRS, other=b"1")
    assert "all is well" not in str(caught.value), "it is the newest itself"


def test_of_two_copies_of_a_checkpoint_each_is_told_where_they_meet(store: ObjectStore) -> None:
    """Rows of either that the other has not read were passed over, and missing."""
    publish(0, b"0", OURS)
    publish(0, b"0", THEIRS)  # as behind a restart
    publish(1, b"1", OURS)
    with pytest.raises(CommitterError, match="copies of one checkpoint"):
        publish(1, b"theirs", THEIRS)
    assert contents(store) == [b"0", b"1"]


def test_a_copy_of_a_checkpoint_that_was_overtaken_is_told(store: ObjectStore) -> None:
    """Its run has published the batch before, so that it repeats nothing."""
    publish(0, b"0", OURS)
    publish(1, b"1", THEIRS)
    with pytest.raises(CommitterError, match="copies of one checkpoint"):
        publish(1, b"ours", OURS)
    assert contents(store) == [b"0", b"1"]


def test_a_note_that_cannot_be_read_is_named(store: ObjectStore) -> None:
    """It says nothing of other streams, nor of batches that no other run has published."""
    publish(0, b"0", OURS)
    publish(1, b"1", OURS)
    note = OUT.key(f"_omidpy/streams/{QUERY}.passed.json")
    store.put(OUT.bucket, note, b"{")
    publish(1, b"1", OURS)
    with pytest.raises(CommitterError, match=r"passed\.json cannot be read"):
        publish(1, b"1", THEIRS)
    store.delete(OUT.bucket, note)
    publish(1, b"1", THEIRS)
    assert contents(store) == [b"0", b"1"]


def test_a_batch_of_an_earlier_version_says_no_run(store: ObjectStore) -> None:
    """A query goes on behind an upgrade, and what is older is refused there, too."""
    publish(0, b"0", "")
    publish(1, b"1", "")
    publish(1, b"1", OURS)
    publish(2, b"2", OURS)
    with pytest.raises(CommitterError, match="was put back"):
        publish(0, b"", OURS, other=b"0")
    assert contents(store) == [b"0", b"1", b"2"]
