"""A store of objects in memory, behind the calls of boto3's client that committers make.

It answers as S3 does (404, 412, NoSuchUpload), costs microseconds, and lets a test act at any
request: before it is carried out, or between its first try, whose answer is lost, and its second.

    objects = Objects()
    store = objects.store()
    store.at_request = lambda number, operation: ...
"""

from __future__ import annotations

import hashlib
import io
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from botocore.exceptions import ClientError, ConnectionClosedError

from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore

PAGE: Final = 1000


@dataclass
class _Object:
    data: bytes
    metadata: dict[str, str]
    etag: str


@dataclass
class _Upload:
    key: str
    metadata: dict[str, str]
    parts: dict[int, bytes] = field(default_factory=dict)


class Objects:
    """What one bucket holds, whoever asks."""

    def __init__(self) -> None:
        """Hold nothing."""
        self.objects: dict[str, _Object] = {}
        self.uploads: dict[str, _Upload] = {}
        self.if_match: Literal["kept", "refused", "ignored"] = "kept"
        """What the store makes of a write on the condition of a tag."""
        self._ids = itertools.count()

    def store(self) -> FakeStore:
        """Give the store of another process."""
        return FakeStore(self)

    def new_id(self) -> str:
        """Return the id of an upload."""
        return f"upload{next(self._ids):06}"


class FakeStore(ObjectStore):
    """The requests of one process."""

    def __init__(self, objects: Objects) -> None:
        """Ask those objects."""
        super().__init__(StoreOptions(threads=1))
        self.sent = 0
        self.at_request: Callable[[int, str], None] | None = None
        """Called before each request with its number, from 0, and its operation."""
        self.twice_at: int | None = None
        """Which request is carried out, has no answer, and is sent again."""
        self.between: Callable[[], None] | None = None
        """Called between its two tries."""
        self.refuses: tuple[int, int] | None = None
        """Which request is answered with which status, and not carried out."""
        self.silent_at: int | None = None
        """Which request is carried out, and has no answer however often it is tried."""
        self._client = _Client(objects, self)
        self._objects = objects

    @property
    def is_strict(self) -> bool:
        """Whether it keeps all conditions, as Amazon's."""
        return self._objects.if_match == "kept"

    def call(self, operation: str, work: Callable[[], Any]) -> Any:
        """Carry out a request, or let it be."""
        number, self.sent = self.sent, self.sent + 1
        self.requests[operation] += 1
        if self.at_request is not None:
            self.at_request(number, operation)
        if self.refuses is not None and number == self.refuses[0]:
            raise _refused(self.refuses[1], _code(self.refuses[1], operation))
        if number == self.silent_at:
            with suppress(ClientError):
                work()
            self._calling.is_unanswered = operation == "PutObject"
            self.has_lost_upload = self.has_lost_upload or operation == "CreateMultipartUpload"
            raise ConnectionClosedError(endpoint_url="http://nowhere")
        if number == self.twice_at:
            with suppress(ClientError):  # which nobody hears of either
                work()
            self._calling.is_unanswered = operation == "PutObject"
            self.has_lost_upload = self.has_lost_upload or operation == "CreateMultipartUpload"
            if self.between is not None:
                self.between()
        return work()


def _refused(status: int, code: str) -> ClientError:
    said: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(said, "a request")


def _code(status: int, operation: str) -> str:
    """Return what a store says beside a status."""
    missing = "NoSuchUpload" if "Upload" in operation else "NoSuchKey"
    codes = {404: missing, 409: "ConditionalRequestConflict", 412: "PreconditionFailed"}
    return codes.get(status, "SlowDown")


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


class _Client:
    """What boto3's client has of methods, as far as committers call them."""

    def __init__(self, objects: Objects, store: FakeStore) -> None:
        self._all = objects
        self._store = store

    def put_object(
        self,
        *,
        Key: str,  # noqa: N803 - boto3's names, here and below
        Body: bytes,  # noqa: N803
        Metadata: dict[str, str],  # noqa: N803
        IfNoneMatch: str = "",  # noqa: N803
        IfMatch: str = "",  # noqa: N803
        **_: Any,
    ) -> Any:
        def work() -> Any:
            now = self._all.objects.get(Key)
            if IfMatch and self._all.if_match == "refused":
                raise _refused(501, "NotImplemented")
            self._check(now, IfNoneMatch, IfMatch if self._all.if_match == "kept" else "")
            self._all.objects[Key] = _Object(Body, Metadata, _md5(Body))
            return {"ETag": f'"{_md5(Body)}"'}

        return self._store.call("PutObject", work)

    @staticmethod
    def _check(now: _Object | None, none_match: str, match: str = "") -> None:
        if none_match and now is not None:
            raise _refused(412, "PreconditionFailed")
        if match and now is None:
            raise _refused(404, "NoSuchKey")
        if match and now is not None and match.strip('"') != now.etag:
            raise _refused(412, "PreconditionFailed")

    def _there(self, key: str) -> _Object:
        if key not in self._all.objects:
            raise _refused(404, "NoSuchKey")
        return self._all.objects[key]

    def get_object(self, *, Key: str, **_: Any) -> Any:  # noqa: N803
        def work() -> Any:
            found = self._there(Key)
            return {"Body": io.BytesIO(found.data), "ETag": f'"{found.etag}"'}

        return self._store.call("GetObject", work)

    def head_object(self, *, Key: str, **_: Any) -> Any:  # noqa: N803
        def work() -> Any:
            found = self._there(Key)
            etag, length = f'"{found.etag}"', len(found.data)
            return {"ContentLength": length, "ETag": etag, "Metadata": found.metadata}

        return self._store.call("HeadObject", work)

    def list_objects_v2(
        self,
        *,
        Prefix: str,  # noqa: N803
        Delimiter: str = "",  # noqa: N803
        ContinuationToken: str = "",  # noqa: N803
        **_: Any,
    ) -> Any:
        def work() -> Any:
            keys = sorted(one for one in self._all.objects if one.startswith(Prefix))
            folders: list[str] = []
            if Delimiter:
                rest = {one: one[len(Prefix) :].partition(Delimiter) for one in keys}
                folders = sorted({Prefix + a + sep for a, sep, _ in rest.values() if sep})
                keys = [one for one in keys if not rest[one][1]]
            keys = [one for one in keys if one > ContinuationToken]
            page = keys[:PAGE]
            there = self._all.objects
            return {
                "Contents": [
                    {"Key": one, "Size": len(there[one].data), "ETag": f'"{there[one].etag}"'}
                    for one in page
                ],
                "CommonPrefixes": [{"Prefix": one} for one in folders],
                "IsTruncated": len(keys) > PAGE,
                "NextContinuationToken": page[-1] if page else "",
            }

        return self._store.call("ListObjectsV2", work)

    def delete_object(self, *, Key: str, **_: Any) -> Any:  # noqa: N803
        return self._store.call("DeleteObject", lambda: self._all.objects.pop(Key, None))

    def delete_objects(self, *, Delete: Any, **_: Any) -> Any:  # noqa: N803
        def work() -> Any:
            for one in Delete["Objects"]:
                now = self._all.objects.get(one["Key"])
                if now is not None and one.get("ETag", now.etag).strip('"') == now.etag:
                    del self._all.objects[one["Key"]]
            return {}

        return self._store.call("DeleteObjects", work)

    def create_multipart_upload(self, *, Key: str, Metadata: dict[str, str], **_: Any) -> Any:  # noqa: N803
        def work() -> Any:
            made = self._all.new_id()
            self._all.uploads[made] = _Upload(Key, Metadata)
            return {"UploadId": made}

        return self._store.call("CreateMultipartUpload", work)

    def _upload(self, upload_id: str) -> _Upload:
        if upload_id not in self._all.uploads:
            raise _refused(404, "NoSuchUpload")
        return self._all.uploads[upload_id]

    def upload_part(self, *, UploadId: str, PartNumber: int, Body: bytes, **_: Any) -> Any:  # noqa: N803
        def work() -> Any:
            self._upload(UploadId).parts[PartNumber] = Body
            return {"ETag": f'"{_md5(Body)}"'}

        return self._store.call("UploadPart", work)

    def complete_multipart_upload(
        self,
        *,
        Key: str,  # noqa: N803
        UploadId: str,  # noqa: N803
        MultipartUpload: Any,  # noqa: N803
        IfNoneMatch: str = "",  # noqa: N803
        **_: Any,
    ) -> Any:
        def work() -> Any:
            upload = self._upload(UploadId)
            self._check(self._all.objects.get(Key), IfNoneMatch)
            data = b"".join(upload.parts[one["PartNumber"]] for one in MultipartUpload["Parts"])
            hashes = b"".join(bytes.fromhex(_md5(upload.parts[at])) for at in sorted(upload.parts))
            etag = f"{_md5(hashes)}-{len(upload.parts)}"
            self._all.objects[Key] = _Object(data, upload.metadata, etag)
            del self._all.uploads[UploadId]
            return {"ETag": f'"{etag}"'}

        return self._store.call("CompleteMultipartUpload", work)

    def abort_multipart_upload(self, *, UploadId: str, **_: Any) -> Any:  # noqa: N803
        def work() -> None:
            self._upload(UploadId)
            del self._all.uploads[UploadId]

        return self._store.call("AbortMultipartUpload", work)

    def list_multipart_uploads(self, *, Prefix: str, **_: Any) -> Any:  # noqa: N803
        def work() -> Any:
            found = self._all.uploads.items()
            began = datetime.fromtimestamp(0, UTC)
            return {
                "Uploads": [
                    {"Key": one.key, "UploadId": name, "Initiated": began}
                    for name, one in sorted(found)
                    if one.key.startswith(Prefix)
                ],
                "IsTruncated": False,
            }

        return self._store.call("ListMultipartUploads", work)
