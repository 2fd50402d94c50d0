"""Posts each entry to a URL, as JSON, in order.

    Idempotency-Key: <queue>-<start_ts>-<ordinal>    the same whenever this entry comes
    X-Omidpy-Seq: <commit_ts>-<ordinal>              grows for each key
    X-Omidpy-Fence: <number>                         grows with each owner of the bucket

| answer | what it means |
|---|---|
| 2xx | delivered |
| 409, 412 | older than a fence that the receiver has seen, perhaps: see below |
| 400, 413, 415, 422 | poison: this entry will never be taken |
| 401, 403, 404, 405, 407, 410 | come again later; if nothing else is answered, the exporter ends |
| any other, or none | come again later, after `Retry-After` seconds, an hour at most |

Behind 409 and 412 nothing is removed, and the bucket is looked at: its owner goes on.  Where that
is the same exporter all the same, it comes again, and ends if nothing else is answered.

A receiver may answer so of what it has already.  Who knows that of his says so with `taken`: these
answers count as 2xx.  Then it must not answer them while it still works on an earlier request of
the same key, as some drafts have it, but 425, 429 or 503.

An answer has its time as a whole, however slowly it drips, and no more of it is read than a page.
"""

from __future__ import annotations

import http.client
import re
import ssl
from collections.abc import Collection, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from omidpy.base.timing.answers import TimelyAnswer
from omidpy.base.words.arguments import check_several
from omidpy.base.words.durations import check_seconds
from omidpy.base.words.hosts import is_host
from omidpy.errors import UsageError
from omidpy.recipes.export_queue.exporter import Deposed, Exporter, Poison, Refused, Retry
from omidpy.recipes.export_queue.sinks.documents import line

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry

OLDER: Final = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})
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
"""What is answered to any request, whatever the entry is."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT: Final = re.compile(r"[\t -~\x80-\xff]*")
SHOWN_BYTES: Final = 200
READ_BYTES: Final = 1 << 16
"""So much of an answer is read, so that the next request can follow; what is longer ends the
connection."""
LONGEST_PAUSE_S: Final = 3600.0
"""A receiver may not send an exporter to sleep for ever."""


class WebhookSink(Exporter):
    """One request for each entry."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        taken: Collection[int] = (),
    ) -> None:
        """Post to a URL.

        Args:
            url: `http://` or `https://`.
            headers: Sent with each request, such as `Authorization`.
            timeout_s: How long an answer may take.
            taken: Answers, of 409 and 412, by which this receiver says that it has the entry, or a
                newer one of its key.  Without, they speak of the fence, and deliver nothing.

        Raises:
            UsageError: it is no such URL, a header cannot be sent, or there is no such answer.
        """
        self._taken = frozenset(check_several("taken", taken))
        if strangers := [one for one in self._taken if one not in OLDER]:
            raise UsageError(f"taken={strangers[0]!r} is none of the answers 409 and 412")
        check_seconds(timeout_s=timeout_s)
        self._is_secure, self._host, self._port, self._path = _parts_of(url)
        self._headers = _headers_of(headers)
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
        made: Any
        if self._is_secure:
            made = http.client.HTTPSConnection(
                self._host,
                self._port,
                timeout=self._timeout_s,
                context=ssl.create_default_context(),
            )
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        made.response_class = partial(TimelyAnswer, timeout_s=self._timeout_s)
        return made  # type: ignore[no-any-return]

    def _post(self, connection: http.client.HTTPConnection, batch: Batch, entry: Entry) -> None:
        commit_ts, ordinal = entry.seq
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{batch.queue}-{entry.id}",
            "X-Omidpy-Seq": f"{commit_ts}-{ordinal}",
            "X-Omidpy-Fence": str(batch.fence),
            **self._headers,
        }
        if connection.sock is not None:
            connection.sock.settimeout(self._timeout_s)  # the last answer has used some of it
        connection.request("POST", self._path, body=line(batch, entry), headers=headers)
        answer = connection.getresponse()
        said = answer.read(READ_BYTES)[:SHOWN_BYTES]
        if not answer.isclosed():
            connection.close()  # there is more of it; the next request opens another one
        is_delivered = HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES
        if is_delivered or answer.status in self._taken:
            return
        what = f"{self._host} answers {answer.status} {answer.reason}: {said!r}"
        if answer.status in OLDER:
            raise Deposed(
                f"{what}, as of an older fence than it has seen; if it says so of entries that it "
                f"has already, taken=[{answer.status}], or --taken {answer.status}, counts these "
                "as delivered"
            )
        if answer.status in NEVER:
            raise Poison(entry, what)
        wait = answer.getheader("Retry-After", "")
        after_s = min(float(wait), LONGEST_PAUSE_S) if wait.isdecimal() else None
        if answer.status in EVERYBODY:
            raise Refused(what, after=after_s)
        raise Retry(what, after=1.0 if after_s is None else after_s)


def _headers_of(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return headers that can be sent: one that cannot would be taken for what an entry has.

    Raises:
        TypeError, UsageError: naming it, but not its value, which may be a secret.
    """
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"headers are texts by name, not {type(headers).__name__}")
    checked = dict(headers or {})
    for name, text in checked.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError(f"headers are texts by name, and {name!r:.80} is none")
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_TEXT.fullmatch(text):
            raise UsageError(
                f"the header {name!r:.80} cannot be sent: its name has letters, digits and '-', "
                "and its text no end of a line and no letters beyond Latin-1"
            )
    return checked


def _parts_of(url: str) -> tuple[bool, str, int | None, str]:
    """Return whether a URL is secure, its host, its port, and what is asked for there.

    Raises:
        UsageError: it is no URL of a webhook.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"{url!r} is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"the URL of a webhook is http:// or https://, not {url!r}")
    if not is_host(host):
        raise UsageError(f"{url!r}: {host!r} is no name of a host")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"the URL of a webhook at {host!r} has a user in it, who would not be sent; give "
            'headers={"Authorization": ...}'
        )
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if any(not "!" <= letter <= "~" for letter in path):
        raise UsageError(f"{url!r}: what is no ASCII, and blanks, are written as %XX in {path!r}")
    return parts.scheme == "https", host, port, path
