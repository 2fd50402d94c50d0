"""Posts each entry to a URL, as JSON, in order.

    Idempotency-Key: <queue>-<start_ts>-<ordinal>    the same whenever this entry comes
    X-Omidpy-Seq: <commit_ts>-<ordinal>              grows for each key
    X-Omidpy-Fence: <number>                         grows with each owner of the bucket

| answer | what it means |
|---|---|
| 2xx, 409, 412 | delivered, or refused as older than what the receiver has |
| 400, 413, 415, 422 | poison: this entry will never be taken |
| 401, 403, 404, 405, 407, 410 | come again later; if nothing else is answered, the exporter ends |
| any other, or none | come again later, after `Retry-After` seconds, an hour at most |

So a receiver that still works on an earlier request of the same key must not answer 409, as some
drafts have it, but 425, 429 or 503.  What is refused by its fence is taken for delivered here, and
not removed all the same: somebody else has the bucket then.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from omidpy.errors import UsageError
from omidpy.recipes.export_queue.exporter import Exporter, Poison, Refused, Retry
from omidpy.recipes.export_queue.sinks.documents import line

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry

TAKEN: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})
NEVER: Final = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
EVERYBODY: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
        HTTPStatus.GONE,
    }
)
"""What is answered to whoever asks, whatever the entry is."""
SHOWN_BYTES: Final = 200
LONGEST_PAUSE_S: Final = 3600.0
"""A receiver may not send an exporter to sleep for ever."""


class WebhookSink(Exporter):
    """One request for each entry."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0
    ) -> None:
        """Post to a URL.

        Args:
            url: `http://` or `https://`.
            headers: Sent with each request, such as `Authorization`.
            timeout_s: How long an answer may take.

        Raises:
            UsageError: it is no such URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"the URL of a webhook is http:// or https://, not {url!r}")
        self._host, self._port = parts.hostname, parts.port
        self._is_secure = parts.scheme == "https"
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = dict(headers or {})
        self._timeout_s = timeout_s

    def export(self, batch: Batch) -> None:
        """Post the entries, one after the other."""
        connection = self._connection()
        try:
            for entry in batch:
                self._post(connection, batch, entry)
        except http.client.HTTPException as error:
            raise Retry(f"{self._host}: {error!r}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if self._is_secure:
            return http.client.HTTPSConnection(
                self._host,
                self._port,
                timeout=self._timeout_s,
                context=ssl.create_default_context(),
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)

    def _post(self, connection: http.client.HTTPConnection, batch: Batch, entry: Entry) -> None:
        commit_ts, ordinal = entry.seq
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{batch.queue}-{entry.id}",
            "X-Omidpy-Seq": f"{commit_ts}-{ordinal}",
            "X-Omidpy-Fence": str(batch.fence),
            **self._headers,
        }
        connection.request("POST", self._path, body=line(batch, entry), headers=headers)
        answer = connection.getresponse()
        said = answer.read()[:SHOWN_BYTES]
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES or answer.status in TAKEN:
            return
        what = f"{self._host} answers {answer.status} {answer.reason}: {said!r}"
        if answer.status in NEVER:
            raise Poison(entry, what)
        wait = answer.getheader("Retry-After", "")
        after_s = min(float(wait), LONGEST_PAUSE_S) if wait.isdecimal() else None
        if answer.status in EVERYBODY:
            raise Refused(what, after=after_s)
        raise Retry(what, after=1.0 if after_s is None else after_s)
