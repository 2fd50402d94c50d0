"""Lets go of a server that does not answer: it stands still, or its network swallows what is sent.

Its kernel acknowledges what comes all the same, so that keepalives are answered, and who waits for
the server would wait for ever.  A driver that waits by itself has no other end: its connection is
cut, and it finds the end of its stream.
"""

from __future__ import annotations

import os
import socket
import threading
from types import TracebackType
from typing import Self


class Deadline:
    """Cuts a connection that is still waited for at the end of a block's time.

    Attributes:
        has_passed: Whether it did.
    """

    def __init__(self, descriptor: int, timeout_s: float) -> None:
        """Know the connection by the descriptor of its socket; time begins to count.

        Raises:
            OSError: there are too many open files, or threads.
        """
        self.has_passed = False
        # One of our own: the driver may close its own any time, and another have its number then.
        self._socket = socket.socket(fileno=os.dup(descriptor))
        self._lock = threading.Lock()
        self._timer = threading.Timer(timeout_s, self._pass)
        self._timer.daemon = True
        try:
            self._timer.start()
        except RuntimeError as error:
            self._socket.close()
            raise OSError(str(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._socket.close()

    def _pass(self) -> None:
        with self._lock:
            if self._socket.fileno() < 0:
                return  # the block has ended meanwhile
            self.has_passed = True
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it is cut already
