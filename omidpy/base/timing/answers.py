"""Does an answer of HTTP come in time as a whole?

`http.client` has a time for each read alone, so that a server that sends a byte now and then is
waited for as long as it likes.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from typing import Any


class TimelyAnswer(http.client.HTTPResponse):
    """An answer that has to come in time as a whole: status, headers, and what is read of it."""

    def __init__(self, sock: socket.socket, *args: Any, timeout_s: float, **options: Any) -> None:
        raw = sock.makefile("rb", buffering=0)
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Timely(sock, raw, time.monotonic() + timeout_s))


class _Timely(io.RawIOBase):
    """What a socket receives until a moment."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, until_s: float) -> None:
        self._sock, self._raw, self._until_s = sock, raw, until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the answer has not come to its end in time")
        self._sock.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()
