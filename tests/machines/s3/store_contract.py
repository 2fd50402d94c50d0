"""What committers ask of a store of objects; every store that tests run on is asked the same.

A class that inherits `ObjectStoreContract` supplies the fixtures `store`, a store with a bucket,
and `bucket`, its name, and says in `lacks` what that store is known to do otherwise.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Final

import pytest

from omidpy import committers
from omidpy.committers.hadoop import leftovers
from omidpy.committers.objects import store as stores
from omidpy.committers.objects.answers import Gone, Occupied, Refused
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import SUCCESS, Folder, is_hidden, parse_object
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer
from omidpy.committers.values import PendingFile
from omidpy.errors import CommitterError
from tests.machines.s3.crashing import Death, Died

JOB: Final = "job_00001"
PART: Final = b"x" * 5 * 2**20
"""The smallest that may have another behind it."""


def begun(store: ObjectStore, bucket: str, key: str, *parts: bytes) -> tuple[str, list[str]]:
    """Begin an upload and send its parts; return its id and their tags."""
    upload_id = store.create_upload(bucket, key, JOB)
    etags = [
        store.upload_part(bucket, key, upload_id, number, part)
        for number, part in enumerate(parts, 1)
    ]
    return upload_id, etags


def small_pages(store: ObjectStore) -> ObjectStore:
    """Return another of the same store whose listings have two entries a page."""
    made = ObjectStore(store.options)

    def ask_for_two(params: dict[str, Any], model: Any, **_: Any) -> None:
        params["MaxUploads" if model.name == "ListMultipartUploads" else "MaxKeys"] = 2

    for name in ("ListMultipartUploads", "ListObjectsV2"):
        made.client.meta.events.register(f"provide-client-params.s3.{name}", ask_for_two)
    return made


HEAD: Final = "_omidpy/head.json"
"""What stays in a folder wherever a job has ended."""


class ObjectStoreContract:
    """The requests one by one, and then whole jobs."""

    lacks: ClassVar[frozenset[str]] = frozenset()
    """Of `age`, `key` and `end` of an upload, what the store gets wrong."""

    # -- uploads -----------------------------------------------------------------------------------

    def test_an_upload_is_seen_once_it_is_completed(self, store: ObjectStore, bucket: str) -> None:
        """By another process, too; its tag is what the committer has computed."""
        upload_id, etags = begun(store, bucket, "out/f", PART, b"y")
        folder = Folder(bucket, "out/")
        assert store.head(bucket, "out/f") is None
        assert list(store.objects(folder)) == []
        (listed,) = store.uploads(folder)
        assert (listed.key, listed.upload_id) == ("out/f", upload_id)
        age_ms = time.time() * 1000 - listed.started_ms
        assert abs(age_ms) < 24 * 3600 * 1000 or "age" in self.lacks
        other = ObjectStore(store.options)
        tag, is_hash = other.complete_upload(bucket, "out/f", upload_id, etags, is_new=True)
        assert is_hash
        expected = PendingFile("out/f", len(PART) + 1, None, upload_id, tuple(etags))
        assert tag == expected.etag
        assert store.head(bucket, "out/f") == stores.Head(expected.length, tag, JOB)
        assert [(one.key, one.etag) for one in store.objects(folder)] == [("out/f", tag)]
        assert store.get(bucket, "out/f") == (PART + b"y", tag)
        assert list(store.uploads(folder)) == []

    def test_an_upload_that_was_aborted_is_gone(self, store: ObjectStore, bucket: str) -> None:
        """Whoever would still complete it, or add to it, is told so; to abort it again is none."""
        upload_id, etags = begun(store, bucket, "out/f", b"x")
        assert store.abort_upload(bucket, "out/f", upload_id)
        assert not store.abort_upload(bucket, "out/f", upload_id)
        error = (Gone, KeyError) if "end" in self.lacks else Gone
        with pytest.raises(error):
            store.upload_part(bucket, "out/f", upload_id, 2, b"y")
        with pytest.raises(error):
            store.complete_upload(bucket, "out/f", upload_id, etags, is_new=True)
        assert store.head(bucket, "out/f") is None

    def test_an_upload_of_another_key_is_gone(self, store: ObjectStore, bucket: str) -> None:
        """An id alone is not enough to touch it."""
        if "key" in self.lacks:
            return
        upload_id, etags = begun(store, bucket, "out/f", b"x")
        assert not store.abort_upload(bucket, "out/g", upload_id)
        with pytest.raises(Gone):
            store.complete_upload(bucket, "out/g", upload_id, etags, is_new=True)
        assert [one.key for one in store.uploads(Folder(bucket, "out/"))] == ["out/f"]

    @pytest.mark.parametrize("is_new", [True, False])
    def test_to_complete_twice_changes_nothing(
        self, store: ObjectStore, bucket: str, *, is_new: bool
    ) -> None:
        """Stores answer as before, or that it is gone, or that the object is there."""
        upload_id, etags = begun(store, bucket, "out/f", b"x")
        tag, _ = store.complete_upload(bucket, "out/f", upload_id, etags, is_new=is_new)
        try:
            again, _ = store.complete_upload(bucket, "out/f", upload_id, etags, is_new=is_new)
        except (Gone, Occupied):
            again = tag
        assert again == tag
        assert store.get(bucket, "out/f") == (b"x", tag)

    def test_an_upload_does_not_replace_what_must_not_be_there(
        self, store: ObjectStore, bucket: str
    ) -> None:
        """The condition is judged when it is completed, whatever was there when it was begun."""
        upload_id, etags = begun(store, bucket, "out/f", b"ours")
        store.put(bucket, "out/f", b"theirs")
        with pytest.raises(Occupied):
            store.complete_upload(bucket, "out/f", upload_id, etags, is_new=True)
        assert store.get(bucket, "out/f")[0] == b"theirs"
        assert store.abort_upload(bucket, "out/f", upload_id)
        upload_id, etags = begun(store, bucket, "out/f", b"ours")
        store.complete_upload(bucket, "out/f", upload_id, etags, is_new=False)
        assert store.get(bucket, "out/f")[0] == b"ours"

    def test_a_file_without_bytes_has_one_part(self, store: ObjectStore, bucket: str) -> None:
        """Which has none either."""
        upload_id, etags = begun(store, bucket, "out/f", b"")
        store.complete_upload(bucket, "out/f", upload_id, etags, is_new=True)
        assert store.get(bucket, "out/f")[0] == b""

    def test_parts_that_are_not_what_was_sent_are_refused(
        self, store: ObjectStore, bucket: str
    ) -> None:
        """Another tag, a part that is missing, or one in the middle that is too small."""
        upload_id, etags = begun(store, bucket, "out/f", b"x", b"y")
        for wrong in (["0" * 32], [*etags, "0" * 32], etags):
            with pytest.raises(CommitterError):
                store.complete_upload(bucket, "out/f", upload_id, wrong, is_new=True)
        assert store.head(bucket, "out/f") is None

    def test_uploads_are_listed_by_folder_and_page(self, store: ObjectStore, bucket: str) -> None:
        """`out` says nothing of `out10`; two uploads of one key are two, each listed once."""
        keys = ["out/a", "out/b", "out/b", "out/c/d", "out/e", "out/e1", "out/f"]
        expected = sorted((key, begun(store, bucket, key)[0]) for key in keys)
        begun(store, bucket, "out10/f")
        begun(store, bucket, "ou")
        found = small_pages(store).uploads(Folder(bucket, "out/"))
        assert sorted((one.key, one.upload_id) for one in found) == expected

    def test_uploads_of_one_key_are_listed_or_the_listing_fails(
        self, store: ObjectStore, bucket: str
    ) -> None:
        """More of them than a page holds: fewer than there are would hide what costs money."""
        expected = sorted(begun(store, bucket, "out/f")[0] for _ in range(5))
        try:
            found = list(small_pages(store).uploads(Folder(bucket, "out/")))
        except Refused:
            return
        assert sorted(one.upload_id for one in found) == expected

    # -- objects -----------------------------------------------------------------------------------

    def test_an_object_is_new_or_refused(self, store: ObjectStore, bucket: str) -> None:
        """The first at a key has decided: plans and `_SUCCESS` are written so."""
        tag, is_hash = store.put(bucket, "out/f", b"first", job_id=JOB, is_new=True)
        assert (tag, is_hash) == (hashlib.md5(b"first").hexdigest(), True)
        with pytest.raises(Occupied):
            store.put(bucket, "out/f", b"second", is_new=True)
        assert store.get(bucket, "out/f") == (b"first", tag)
        assert store.head(bucket, "out/f") == stores.Head(5, tag, JOB)

    def test_of_many_who_want_to_be_first_one_is(self, store: ObjectStore, bucket: str) -> None:
        """At the same time."""

        def is_first(at: int) -> bool:
            try:
                store.put(bucket, "out/f", b"%d" % at, is_new=True)
            except Occupied:
                return False
            return True

        store.head(bucket, "out/f")
        with ThreadPoolExecutor(8) as pool:
            firsts = list(pool.map(is_first, range(8)))
        assert firsts.count(True) == 1
        assert store.get(bucket, "out/f")[0] == b"%d" % firsts.index(True)

    def test_an_object_is_replaced_as_it_was_read_or_not_at_all(
        self, store: ObjectStore, bucket: str
    ) -> None:
        """Whoever takes a plan back says so on the plan that it has read."""
        tag, _ = store.put(bucket, "out/f", b"first")
        store.put(bucket, "out/f", b"second", expected_etag=tag)
        with pytest.raises(Occupied):
            store.put(bucket, "out/f", b"third", expected_etag=tag)
        assert store.get(bucket, "out/f")[0] == b"second"
        store.delete(bucket, "out/f")
        with pytest.raises((Gone, Occupied)):
            store.put(bucket, "out/f", b"fourth", expected_etag=tag)
        assert store.head(bucket, "out/f") is None

    def test_what_is_not_there_is_gone(self, store: ObjectStore, bucket: str) -> None:
        """To remove it is no error."""
        with pytest.raises(Gone):
            store.get(bucket, "out/f")
        assert store.head(bucket, "out/f") is None
        store.delete(bucket, "out/f")
        store.delete_many(bucket, ["out/f", "out/g"])

    def test_objects_are_listed_by_folder_and_page(self, store: ObjectStore, bucket: str) -> None:
        """In order, and none of a neighbour."""
        for key in ("out/b", "out/a", "out/c/d", "out/e", "out/f", "out10/f", "ou"):
            store.put(bucket, key, key.encode())
        found = small_pages(store).objects(Folder(bucket, "out/"))
        assert [(one.key, one.length) for one in found] == [
            (key, len(key)) for key in ("out/a", "out/b", "out/c/d", "out/e", "out/f")
        ]
        assert len(list(small_pages(store).objects(Folder(bucket, "")))) == 7

    def test_a_folder_is_occupied_by_what_is_in_it(self, store: ObjectStore, bucket: str) -> None:
        """Or by a file of its name; not by neighbours, however many pages they fill."""
        folder = Folder(bucket, "out/")
        assert store.occupied(folder) is None
        assert store.occupied(Folder(bucket, "")) is None
        for key in ("out-1/a", "out.x", "out!", "out10/a", "out20/a"):
            store.put(bucket, key, b"")
            assert small_pages(store).occupied(folder) is None
        store.put(bucket, "out/a", b"")
        assert small_pages(store).occupied(folder) == "out/a"
        assert small_pages(store).occupied(Folder(bucket, "out.x/")) == "out.x"
        assert store.occupied(Folder(bucket, "")) is not None

    def test_many_objects_are_removed_by_few_requests(
        self, store: ObjectStore, bucket: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And no other."""
        keys = [f"out/{at}" for at in range(5)]
        for key in [*keys, "out/kept"]:
            store.put(bucket, key, b"")
        monkeypatch.setattr(stores, "MANY_KEYS", 2)
        store.delete_many(bucket, keys)
        assert store.requests["DeleteObjects"] == 3
        assert [one.key for one in store.objects(Folder(bucket, "out/"))] == ["out/kept"]

    # -- what is wrong -----------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "ask",
        [
            lambda store, bucket: store.create_upload(bucket, "f", JOB),
            lambda store, bucket: store.put(bucket, "f", b""),
            lambda store, bucket: store.get(bucket, "f"),
            lambda store, bucket: store.delete(bucket, "f"),
            lambda store, bucket: store.delete_many(bucket, ["f"]),
            lambda store, bucket: list(store.objects(Folder(bucket, ""))),
            lambda store, bucket: list(store.uploads(Folder(bucket, ""))),
            lambda store, bucket: store.occupied(Folder(bucket, "")),
        ],
    )
    def test_a_bucket_that_is_not_there_is_named(
        self, store: ObjectStore, ask: Callable[[ObjectStore, str], object]
    ) -> None:
        """It is a slip in its name, and nothing else can be done about it."""
        with pytest.raises(CommitterError, match=r"no-such-bucket.*make the bucket") as raised:
            ask(store, "no-such-bucket")
        assert not raised.value.retryable

    # -- jobs --------------------------------------------------------------------------------------

    @pytest.mark.parametrize("committer", ["omidpy", "directory", "partitioned", "magic"])
    @pytest.mark.parametrize("conflict", ["fail", "append", "replace"])
    def test_a_job_is_there_whole(
        self, store: ObjectStore, bucket: str, committer: str, conflict: str
    ) -> None:
        """With each committer, in each mode; and nothing but what it has to leave."""
        if conflict != "fail":
            store.put(bucket, "out/old", b"")
        job = self.job(store, bucket, committer=committer, conflict=conflict)
        with job:
            self.write(job)
            before = [key for key in self.keys(store, bucket) if not is_hidden(key)]
            assert before == ([] if conflict == "fail" else ["old"])
        keeps_old = conflict == "append" or (conflict, committer) == ("replace", "partitioned")
        expected = [SUCCESS, "large", *["old"] * keeps_old, "small"]
        assert self.keys(store, bucket) == expected
        assert list(store.uploads(Folder(bucket, ""))) == []

    @pytest.mark.parametrize("committer", ["omidpy", "directory", "magic"])
    def test_a_job_that_is_aborted_leaves_nothing(
        self, store: ObjectStore, bucket: str, committer: str
    ) -> None:
        """Neither file nor upload."""
        job = self.job(store, bucket, committer=committer).__enter__()
        self.write(job)
        job.abort()
        assert self.keys(store, bucket) == []
        assert list(store.uploads(Folder(bucket, ""))) == []

    @pytest.mark.parametrize("action", ["resume", "rollback"])
    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_job_whose_driver_died_is_finished_or_taken_back(
        self, store: ObjectStore, bucket: str, at: int, action: str
    ) -> None:
        """Behind its plan, and behind each of its two files."""
        job = self.job(store, bucket).__enter__()
        self.write(job)
        assert isinstance(job.committer, S3Committer)
        Death(at, is_answered=True).watch(job.committer.store)
        with pytest.raises(Died):
            job.commit()
        (address,) = leftovers.plan_addresses(store, Folder(bucket, "out/"))
        plan, etag = ending.load(store, address, *parse_object(address))
        if action == "resume":
            ending.resume(store, plan)
        else:
            ending.take_back(store, plan, etag)
        expected = [SUCCESS, "large", "small"] if action == "resume" else []
        assert self.keys(store, bucket) == expected
        assert list(store.uploads(Folder(bucket, ""))) == []

    def job(self, store: ObjectStore, bucket: str, **options: Any) -> committers.Job:
        """Make a job on the same store."""
        options = {"inline_bytes": 5, "threads": 1, **options}
        return committers.job(
            f"s3://{bucket}/out", endpoint_url=store.options.endpoint_url, **options
        )

    def write(self, job: committers.Job) -> None:
        """Write a file that goes into the plan, and one that does not."""
        for name, size in (("small", 5), ("large", 50)):
            with job.task() as task, task.open(name) as file:
                file.write(b"x" * size)

    def keys(self, store: ObjectStore, bucket: str) -> list[str]:
        """Return the paths of all objects but the head, in order and without the job's id."""
        found = [one.key.removeprefix("out/") for one in store.objects(Folder(bucket, ""))]
        return sorted(key.partition("-")[0] for key in found if key != HEAD)
