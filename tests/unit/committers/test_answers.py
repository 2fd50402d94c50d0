"""Answers that are none of a store's: of a proxy in between, or of a server that redirects."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
from botocore.awsrequest import AWSResponse

from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError

OUT: Final = Folder("lake", "out/")
Call = Callable[[ObjectStore], object]
CALLS: Final[dict[str, Call]] = {
    "objects": lambda store: list(store.objects(OUT)),
    "occupied": lambda store: store.occupied(OUT),
    "uploads": lambda store: list(store.uploads(OUT)),
    "put": lambda store: store.put("lake", "k", b"x"),
    "get": lambda store: store.get("lake", "k"),
    "head": lambda store: store.head("lake", "k"),
    "create": lambda store: store.create_upload("lake", "k", "job"),
    "part": lambda store: store.upload_part("lake", "k", "id", 1, b"x"),
    "complete": lambda store: store.complete_upload("lake", "k", "id", ["a"], is_new=True),
}


class _Body(io.BytesIO):
    """What urllib3 reads an answer from."""

    def stream(self, *_: Any, **__: Any) -> Iterator[bytes]:
        """Yield all of it."""
        yield self.read()


def answering(monkeypatch: pytest.MonkeyPatch, status: int, body: bytes) -> ObjectStore:
    """Return a store whose requests all have one answer."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    made = ObjectStore(StoreOptions("http://127.0.0.1:9", threads=1))

    def answer(request: Any, **_: Any) -> AWSResponse:
        headers = {"content-type": "text/xml"}
        return AWSResponse(request.url, status, headers, _Body(body))

    made.client.meta.events.register("before-send.s3", answer)
    return made


@pytest.mark.parametrize("body", [b"", b"<html>we are back at six</html>"])
@pytest.mark.parametrize("name", CALLS)
def test_an_answer_of_somebody_else_is_none(
    monkeypatch: pytest.MonkeyPatch, name: str, body: bytes
) -> None:
    """A list without a word was an empty one: a job took its destination for empty."""
    store = answering(monkeypatch, 200, body)
    with pytest.raises(CommitterError, match=r"could not .* s3://lake/.*does not say") as info:
        CALLS[name](store)
    assert info.value.retryable
    assert store.may_be_late("lake", "k") is (name == "put")


def test_an_endpoint_that_redirects_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `http` to `https`: boto3 asks whither, is redirected again, and so on."""
    store = answering(monkeypatch, 301, b"")
    with pytest.raises(CommitterError, match=r"write the object s3://lake/k: .* redirects"):
        CALLS["put"](store)


LISTS: Final = {
    "objects": b"<ListBucketResult><IsTruncated>true</IsTruncated>"
    b"<NextContinuationToken>on</NextContinuationToken></ListBucketResult>",
    "uploads": b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated>"
    b"<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>id</NextUploadIdMarker>"
    b"</ListMultipartUploadsResult>",
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_does_not_go_on_ends(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A store that gives one page for ever would keep a job, and the memory of its driver."""
    store = answering(monkeypatch, 200, LISTS[name])
    with pytest.raises(CommitterError, match=f"could not list {name} s3://lake/out/: .* again"):
        CALLS[name](store)


@pytest.mark.parametrize("name", LISTS)
def test_a_list_that_does_not_say_how_to_go_on_is_none(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It has more, and nobody could ask for it."""
    store = answering(monkeypatch, 200, b"<Any><IsTruncated>true</IsTruncated></Any>")
    with pytest.raises(CommitterError, match="does not say Next"):
        CALLS[name](store)


def test_credentials_that_have_expired_are_looked_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An executor of operations lives for months, and what it was started with for hours."""
    body = b"<Error><Code>ExpiredToken</Code><Message>no</Message></Error>"
    store = answering(monkeypatch, 400, body)
    first = store.client
    with pytest.raises(CommitterError, match="ExpiredToken"):
        store.get("lake", "k")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    assert store.client is not first
    assert store.client._request_signer._credentials.access_key == "new"
    other = answering(monkeypatch, 404, b"<Error><Code>NoSuchKey</Code></Error>")
    kept = other.client
    with pytest.raises(CommitterError, match="NoSuchKey"):
        other.get("lake", "k")
    assert other.client is kept
