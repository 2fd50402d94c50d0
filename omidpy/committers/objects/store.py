"""An S3-compatible store through boto3: few verbs, errors that say what to do, requests counted.

Credentials come by boto3's own chain.  Objects of this class can be pickled: they hold options, and
make their client when it is first needed, so that a task makes its own.

Every request is counted where it leaves, repetitions included.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from omidpy.base.within import within
from omidpy.committers.objects.answers import (
    EXPIRED_CODES,
    OCCUPIED_CODES,
    Gone,
    Occupied,
    Refused,
    Unconditional,
    again_after_conflicts,
    told,
    translated,
)
from omidpy.committers.objects.client import StoreOptions, is_amazons, new_client
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError

MANY_KEYS: Final = 1000
"""How many keys one answer of a listing has at most, and one bulk delete takes."""

REQUEST_LIFE_S: Final = 1800.0
"""After so long a store refuses a request that was on its way: a signature holds for 15 minutes of
the store's clock, and the signer's may be 15 minutes ahead."""

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object of a listing."""

    key: str
    length: int
    etag: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A multipart upload that is neither completed nor aborted."""

    key: str
    upload_id: str
    started_ms: int


@dataclass(frozen=True, slots=True)
class Head:
    """What the store says of an object."""

    length: int
    etag: str
    job_id: str
    """That its writer stamped it with; empty if none did."""
    stamp: str = ""
    """Of the file, or of the run of the job: no other object has it; empty if it has none."""


class ObjectStore:
    """The requests that committers make."""

    def __init__(self, options: StoreOptions | None = None) -> None:
        """Keep the options; nothing is sent."""
        self.options = options or StoreOptions()
        self.requests: Counter[str] = Counter()
        """How many requests of each operation were sent."""
        self.before_request: Callable[[str], None] | None = None
        """Called with the operation's name before each request: what a test fails."""
        self.id = uuid.uuid4().hex
        """Of this object in this process: a copy has another."""
        self.has_lost_upload = False
        """Whether an upload may have been begun whose id no caller was told."""
        self.origin = self.id
        """Of what this is a copy of."""
        self._lock = threading.Lock()
        self._client: Any = None
        self._late: dict[tuple[str, str], float] = {}
        self._unconditional: set[str] = set()
        """Buckets whose store refused to replace an object by its tag."""
        self._unhashed: set[str] = set()
        """Buckets whose tags are no hashes, as those of S3 Express are."""
        self._calling = threading.local()
        self._background: ThreadPoolExecutor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out what belongs to this process.

        Copies of one store are one object, wherever they are taken out: a client costs as much time
        as a request, and each task of a job would make one.
        """
        return _copy_of, (self.origin, self.options)

    @property
    def request_count(self) -> int:
        """How many requests were sent."""
        return sum(self.counts().values())

    def counts(self) -> dict[str, int]:
        """Return how many requests of each operation were sent."""
        return within(self._lock, dict, self.requests)

    @property
    def client(self) -> Any:
        """The client of boto3, made when it is first asked for."""
        # An interrupt between two lines of a `with` would leave it locked for ever.
        return within(self._lock, self._opened)

    @property
    def is_strict(self) -> bool:
        """Whether the store is known to keep all conditions, of bulk deletes as well: Amazon's."""
        return is_amazons(self.client)

    @property
    def background(self) -> ThreadPoolExecutor:
        """Threads for requests that no caller waits for yet."""
        return within(self._lock, self._with_threads)

    def _with_threads(self) -> ThreadPoolExecutor:
        if self._background is None:
            self._background = ThreadPoolExecutor(self.options.threads, "omidpy-upload")
        return self._background

    def _opened(self) -> Any:
        if self._client is None:
            client = new_client(self.options)
            client.meta.events.register("before-send.s3", self._count)
            client.meta.events.register("needs-retry.s3.PutObject", self._note_answer)
            client.meta.events.register("needs-retry.s3.CreateMultipartUpload", self._note_upload)
            client.meta.events.register("after-call.s3", self._note_credentials)
            self._client = client
        return self._client

    def _count(self, event_name: str, **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        within(self._lock, self.requests.update, (operation,))
        if self.before_request is not None:
            self.before_request(operation)

    def _note_answer(self, caught_exception: Exception | None, **_: Any) -> None:
        if caught_exception is not None:
            self._calling.is_unanswered = True

    def _note_upload(self, caught_exception: Exception | None, **_: Any) -> None:
        if caught_exception is not None:
            self.has_lost_upload = True

    def _note_credentials(self, parsed: Mapping[str, Any], **_: Any) -> None:
        if parsed.get("Error", {}).get("Code") in EXPIRED_CODES:
            within(self._lock, self._forget_client)

    def _forget_client(self) -> None:
        # boto3 reads a file of credentials once, and who has written new ones says so to nobody.
        self._client = None

    def may_be_late(self, bucket: str, key: str) -> bool:
        """Say whether a try to write an object had no answer, and may still be carried out."""
        since_s = self._late.get((bucket, key))
        return since_s is not None and time.monotonic() - since_s < REQUEST_LIFE_S

    # -- uploads -----------------------------------------------------------------------------------

    def create_upload(self, bucket: str, key: str, job_id: str, stamp: str = "") -> str:
        """Begin a multipart upload; return its id."""
        with translated(f"s3://{bucket}/{key}", "begin an upload"):
            answer = self.client.create_multipart_upload(
                Bucket=bucket, Key=key, Metadata=_stamps(job_id, stamp)
            )
            return str(told(answer, "UploadId"))

    def upload_part(self, bucket: str, key: str, upload_id: str, number: int, data: bytes) -> str:
        """Send a part; return its tag."""
        with translated(f"s3://{bucket}/{key}", f"upload part {number}"):
            answer = self.client.upload_part(
                Bucket=bucket, Key=key, UploadId=upload_id, PartNumber=number, Body=data
            )
            return _bare(told(answer, "ETag"))

    def complete_upload(
        self, bucket: str, key: str, upload_id: str, etags: Sequence[str], *, is_new: bool
    ) -> tuple[str, bool]:
        """Make an upload visible; return the object's tag, and whether it is a hash.

        Args:
            bucket: Its bucket.
            key: Its key.
            upload_id: Its id.
            etags: Of its parts.
            is_new: Refuse if the key has an object.

        Raises:
            Gone: There is no such upload: it was completed or aborted.
            Spoilt: Its parts are others.
            Occupied: The key has an object.
        """
        parts = [{"ETag": f'"{etag}"', "PartNumber": at} for at, etag in enumerate(etags, 1)]
        condition = {"IfNoneMatch": "*"} if is_new else {}

        def send() -> Any:
            with translated(f"s3://{bucket}/{key}", "complete the upload"):
                answer = self.client.complete_multipart_upload(
                    Bucket=bucket,
                    Key=key,
                    UploadId=upload_id,
                    MultipartUpload={"Parts": parts},
                    **condition,
                )
                return told(answer, "ETag"), answer

        etag, answer = again_after_conflicts(send)
        return _bare(etag), self._is_hash(bucket, answer)

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> bool:
        """Give an upload up; say whether it was there."""
        try:
            with translated(f"s3://{bucket}/{key}", "abort the upload"):
                self.client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload_id)
        except Gone:
            return False
        return True

    def uploads(self, folder: Folder) -> Iterator[Upload]:
        """Yield the uploads below a folder that are neither completed nor aborted."""
        markers: dict[str, str] = {}
        before: list[Upload] = []
        while True:
            try:
                page, more = self._page_of_uploads(folder.bucket, folder.prefix, markers)
            except Refused:
                if "UploadIdMarker" not in markers:
                    raise
                # Some stores refuse the marker that they gave, and all go on behind a key: what is
                # left of that key is asked for alone.
                key = markers["KeyMarker"]
                page, more = self._page_of_uploads(folder.bucket, key, {})
                seen = {one.upload_id for one in before}
                page = [one for one in page if one.key == key and one.upload_id not in seen]
                if more.get("KeyMarker") == key:
                    raise
                more = {"KeyMarker": key}
            for one in page:
                # The prefix ends in "/"; a store that read it otherwise must not cost other jobs.
                if one.key.startswith(folder.prefix):
                    yield one
            if not more:
                return
            before, markers = page, more

    def _page_of_uploads(
        self, bucket: str, prefix: str, markers: dict[str, str]
    ) -> tuple[list[Upload], dict[str, str]]:
        """Return some uploads, and the markers behind them; empty if there are no more."""
        with translated(f"s3://{bucket}/{prefix}", "list uploads"):
            answer = self.client.list_multipart_uploads(Bucket=bucket, Prefix=prefix, **markers)
            more = (
                {
                    "KeyMarker": told(answer, "NextKeyMarker"),
                    "UploadIdMarker": told(answer, "NextUploadIdMarker"),
                }
                if told(answer, "IsTruncated")
                else {}
            )
        page = [
            Upload(one["Key"], one["UploadId"], int(one["Initiated"].timestamp() * 1000))
            for one in answer.get("Uploads", ())
        ]
        if more and more == markers:
            raise _endless(f"s3://{bucket}/{prefix}", "uploads")
        return page, more

    # -- objects -----------------------------------------------------------------------------------

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        *,
        job_id: str = "",
        stamp: str = "",
        is_new: bool = False,
        expected_etag: str = "",
        metadata: dict[str, str] | None = None,
    ) -> tuple[str, bool]:
        """Write an object; return its tag, and whether that is a hash.

        A store that has no writes on the condition of a tag is asked for the tag first, which lets
        another come between; `has_swaps` says so, and the first time it is logged.

        Raises:
            Occupied: There is one already (`is_new`), or another than `expected_etag`.
            Gone: There is none, and `expected_etag` was to be replaced.
            Conflicting: Others write it at the same time, for as long as it was tried.
            Unconditional: The store cannot say that there is one already (`is_new`).
        """
        write = partial(
            self._put, bucket, key, data, {**_stamps(job_id, stamp), **(metadata or {})}
        )
        if not expected_etag:
            return write(is_new=is_new)
        if self.has_swaps(bucket):
            try:
                return write(is_new=is_new, expected_etag=expected_etag)
            except Unconditional:
                self._unconditional.add(bucket)
                _log.warning(
                    "the store of s3://%s has no conditional writes (If-Match): of jobs and "
                    "operators that end at the same time at one destination one may not see the "
                    "other, and a job that is acknowledged may be lost; let one run at a time",
                    bucket,
                )
        found = self.head(bucket, key)
        if found is None:
            raise Gone(f"could not write the object s3://{bucket}/{key}: it is gone")
        if found.etag != expected_etag:
            raise Occupied(f"could not write the object s3://{bucket}/{key}: it is another now")
        return write(is_new=False)

    def has_swaps(self, bucket: str) -> bool:
        """Say whether a bucket's store is not known to lack writes on the condition of a tag."""
        return bucket not in self._unconditional

    def _put(
        self,
        bucket: str,
        key: str,
        data: bytes,
        stamps: dict[str, str],
        *,
        is_new: bool,
        expected_etag: str = "",
    ) -> tuple[str, bool]:
        options: dict[str, Any] = {}
        if is_new:
            options["IfNoneMatch"] = "*"
        if expected_etag:
            options["IfMatch"] = f'"{expected_etag}"'

        def send() -> Any:
            with translated(f"s3://{bucket}/{key}", "write the object", is_conditional=True):
                answer = self.client.put_object(
                    Bucket=bucket, Key=key, Body=data, Metadata=stamps, **options
                )
                if "ETag" not in answer:
                    self._calling.is_unanswered = True
                return told(answer, "ETag"), answer

        self._calling.is_unanswered = False
        try:
            etag, answer = again_after_conflicts(send)
        finally:
            if self._calling.is_unanswered:
                self._late[bucket, key] = time.monotonic()
        return _bare(etag), self._is_hash(bucket, answer)

    def note_tag(self, bucket: str, digest: str, etag: str) -> None:
        """Learn from an object's MD5 and tag whether the tags of its bucket are hashes."""
        if digest != etag:
            self._unhashed.add(bucket)

    def _is_hash(self, bucket: str, answer: dict[str, Any]) -> bool:
        return bucket not in self._unhashed and not _is_opaque(answer)

    def get(self, bucket: str, key: str) -> tuple[bytes, str]:
        """Read an object; return its bytes and its tag.

        Raises:
            Gone: There is none.
        """
        with translated(f"s3://{bucket}/{key}", "read the object"):
            answer = self.client.get_object(Bucket=bucket, Key=key)
            return answer["Body"].read(), _bare(told(answer, "ETag"))

    def head(self, bucket: str, key: str) -> Head | None:
        """Return what is known of an object; None if there is none."""
        try:
            with translated(f"s3://{bucket}/{key}", "look at the object"):
                answer = self.client.head_object(Bucket=bucket, Key=key)
                length, etag = told(answer, "ContentLength"), told(answer, "ETag")
        except Gone:
            return None
        stamps = answer.get("Metadata", {})
        return Head(
            length,
            _bare(etag),
            stamps.get(_STAMP, ""),
            stamps.get(_STAMP_OF_FILE, ""),
        )

    def objects(self, folder: Folder) -> Iterator[ListedObject]:
        """Yield the objects below a folder, in order of keys."""
        for answer in self._pages(folder.bucket, Prefix=folder.prefix):
            for one in answer.get("Contents", ()):
                # A store with folders of its own lists them as objects that end in "/".
                if one["Key"].startswith(folder.prefix) and not one["Key"].endswith("/"):
                    yield ListedObject(one["Key"], one["Size"], _bare(one["ETag"]))

    def occupied(self, folder: Folder) -> str | None:
        """Return the key of a file that makes a folder no empty one; None if it is empty.

        A file of the folder's own name counts: no folder can be there, to readers of paths.  A
        folder that is there costs 1 request more, for its first key.
        """
        file = folder.prefix.rstrip("/")
        for answer in self._pages(folder.bucket, Prefix=file, Delimiter="/"):
            keys = [one["Key"] for one in answer.get("Contents", ())]
            folders = [one["Prefix"] for one in answer.get("CommonPrefixes", ())]
            if file and file in keys:
                return file
            if folder.prefix in folders or (not file and (keys or folders)):
                return next((one.key for one in self.objects(folder)), folder.prefix)
            if max([*keys, *folders], default="") > folder.prefix:
                return None
        return None

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object; it is no error if there is none."""
        with translated(f"s3://{bucket}/{key}", "delete the object"):
            self.client.delete_object(Bucket=bucket, Key=key)

    def delete_many(
        self, bucket: str, keys: Sequence[str], etags: Mapping[str, str] | None = None
    ) -> None:
        """Remove objects, a thousand with each request.

        Args:
            bucket: Where.
            keys: Which.
            etags: The tag that a key's object must have, where it must: one of another stays, on a
                store that looks (Amazon's does, and others ignore it).
        """
        tags = etags or {}
        for at in range(0, len(keys), MANY_KEYS):
            some = [
                {"Key": key, **({"ETag": f'"{tags[key]}"'} if tags.get(key) else {})}
                for key in keys[at : at + MANY_KEYS]
            ]
            with translated(f"s3://{bucket}", "delete objects"):
                answer = self.client.delete_objects(
                    Bucket=bucket, Delete={"Objects": some, "Quiet": True}
                )
            failed = [
                one for one in answer.get("Errors", ()) if one.get("Code") not in OCCUPIED_CODES
            ]
            if failed:
                first = failed[0]
                raise CommitterError(
                    f"could not delete {len(failed)} of {len(some)} objects, "
                    f"s3://{bucket}/{first.get('Key')} for one: {first.get('Message')}"
                )

    def _pages(self, bucket: str, **options: str) -> Iterator[dict[str, Any]]:
        more: dict[str, str] = {}
        while True:
            before = more
            with translated(f"s3://{bucket}/{options['Prefix']}", "list objects"):
                answer = self.client.list_objects_v2(Bucket=bucket, **options, **more)
                is_last = not told(answer, "IsTruncated")
                if not is_last:
                    more = {"ContinuationToken": told(answer, "NextContinuationToken")}
            yield answer
            if is_last:
                return
            if more == before:
                raise _endless(f"s3://{bucket}/{options['Prefix']}", "objects")


def _endless(address: str, what: str) -> CommitterError:
    """Return what is raised of a list that would never end."""
    return CommitterError(
        f"could not list {what} {address}: the store goes on where it has begun, again and again"
    )


_MOST_COPIES: Final = 8
"""How many stores of other processes' jobs are kept: Spark's workers outlive jobs."""
_copies: Final[OrderedDict[tuple[int, str], ObjectStore]] = OrderedDict()
_copies_lock: Final = threading.Lock()


def _copy_of(origin: str, options: StoreOptions) -> ObjectStore:
    """Return this process's copy of a store."""
    return within(_copies_lock, _kept_copy, origin, options)


def shared(options: StoreOptions) -> ObjectStore:
    """Return this process's own store of some options, for who comes back to it again and again."""
    return _copy_of(repr(options), options)


def _kept_copy(origin: str, options: StoreOptions) -> ObjectStore:
    # A process that was forked must not use the connections of its parent.
    key = (os.getpid(), origin)
    if (found := _copies.pop(key, None)) is None:
        found = ObjectStore(options)
        found.origin = origin
    _copies[key] = found
    while len(_copies) > _MOST_COPIES:
        _copies.popitem(last=False)
    return found


_STAMP: Final = "omidpy-job"
_STAMP_OF_FILE: Final = "omidpy-stamp"


def _stamps(job_id: str, stamp: str) -> dict[str, str]:
    found = {_STAMP: job_id, _STAMP_OF_FILE: stamp}
    return {name: value for name, value in found.items() if value}


def _bare(etag: str) -> str:
    return etag.strip('"')


def _is_opaque(answer: dict[str, Any]) -> bool:
    """Say whether a tag is no hash of the bytes: objects encrypted by keys of a service."""
    return str(answer.get("ServerSideEncryption", "")).startswith("aws:") or bool(
        answer.get("SSECustomerAlgorithm")
    )
