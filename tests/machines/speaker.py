"""A server that says whatever a test wants, byte by byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable


class Speaker:
    """A server that answers each request by what a function sends."""

    def __init__(self, speak: Callable[[socket.socket], None]) -> None:
        self._speak = speak
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.url = f"http://{self.address}/"
        self.served = 0
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._serve, daemon=True)
        self._main.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while connection.recv(1 << 16):
                self.served += 1
                self._speak(connection)

    def close(self) -> None:
        """End it."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in (self._main, *self._threads):
            thread.join()
