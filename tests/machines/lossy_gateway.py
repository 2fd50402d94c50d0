"""A network between a store and its gateway that loses what a test wants lost.

    with LossyGateway(hbase.gateways[0]) as network:
        network.lose_answer("checkAndPut")  # the next one is applied, its answer never arrives
        store = Thrift2Store(network.url)

A call is lost by cutting its connection: before the gateway gets it, or once its answer has begun
to arrive, hence after HBase applied it.  Speaks the binary protocol over the buffered transport,
where a message has no length.  That is no hindrance: on one connection a call begins when the last
one was answered, and begins with its name.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, Self

from omidpy.oracle.address import parse_address

_HEADER = struct.Struct(">II")
_CALL: Final = 0x80010001
_CHUNK_BYTES: Final = 1 << 16
_PATIENCE_S: Final = 60.0

Loses = Callable[[str], bool]


class LossyGateway:
    """Listens on a port of its own; every connection leads to the gateway."""

    def __init__(self, target: str) -> None:
        """Lead to the gateway at `target`, HOST:PORT."""
        self._target = parse_address(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        """HOST:PORT of this side."""
        self.url = f"hbase+thrift2://{self.address}"
        self.calls: Counter[str] = Counter()
        """Calls that arrived by name, lost or not."""
        self.losses: Counter[str] = Counter()
        """Calls that were lost by name, on either way."""
        self._lock = threading.Lock()
        self._loses_request: Loses = _never
        self._loses_answer: Loses = _never
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._is_dead = False
        self._run(self._accept)

    def lose_request(self, method: str, *, nth: int = 1, is_last: bool = False) -> None:
        """Lose the nth call of a method from now on before it reaches the gateway.

        Args:
            method: Its name in the interface.
            nth: Those before it pass.
            is_last: Refuse every connection from then on, as a gateway does that was killed.
        """
        self._loses_request = self._nth(method, nth, is_last=is_last)

    def lose_answer(self, method: str, *, nth: int = 1, is_last: bool = False) -> None:
        """Lose the answer to the nth call of a method from now on; see `lose_request`."""
        self._loses_answer = self._nth(method, nth, is_last=is_last)

    def lose_answers(self, loses: Loses) -> None:
        """Lose the answers to the calls for whose name `loses` says so."""
        self._loses_answer = loses

    def lose_nothing(self) -> None:
        """Pass everything on again."""
        self._loses_request = self._loses_answer = _never

    def close(self) -> None:
        """Refuse connections, cut those that are open, and wait for the threads."""
        with self._lock:
            self._die()
            threads = list(self._threads)
        for thread in threads:
            thread.join(_PATIENCE_S)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _nth(self, method: str, nth: int, *, is_last: bool) -> Loses:
        left = nth

        def loses(called: str) -> bool:
            nonlocal left
            left -= called == method
            if left or called != method:
                return False
            if is_last:
                self._die()
            return True

        return loses

    def _die(self) -> None:
        """With the lock held: cut everything."""
        self._is_dead = True
        for end in (self._listener, *self._sockets):
            _cut(end)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                gateway = socket.create_connection(self._target, timeout=_PATIENCE_S)
            except OSError:
                client.close()
                continue
            gateway.settimeout(None)
            with self._lock:
                if self._is_dead:
                    _cut(client)
                    _cut(gateway)
                    return
                self._sockets |= {client, gateway}
                link = _Link(self, client, gateway)
                self._run(self._end_after, link, link.pass_calls)
                self._run(self._end_after, link, link.pass_answers)

    def _end_after(self, link: _Link, passing: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            passing()
        with self._lock:
            self._sockets -= {link.client, link.gateway}
        _cut(link.client)
        _cut(link.gateway)

    def is_request_lost(self, method: str) -> bool:
        """Count a call that arrived; say whether it ends here."""
        with self._lock:
            self.calls[method] += 1
            return self._is_lost(method, self._loses_request)

    def is_answer_lost(self, method: str) -> bool:
        """Say whether the answer to a call ends here."""
        with self._lock:
            return self._is_lost(method, self._loses_answer)

    def _is_lost(self, method: str, loses: Loses) -> bool:
        if not loses(method):
            return False
        self.losses[method] += 1
        return True


class _Link:
    """One connection of a client, and ours to the gateway for it."""

    def __init__(
        self, network: LossyGateway, client: socket.socket, gateway: socket.socket
    ) -> None:
        self.client = client
        self.gateway = gateway
        self._network = network
        self._method: str | None = None
        """The call that is under way; None between calls."""

    def pass_calls(self) -> None:
        """Pass on what the client sends until it ends or is to be lost."""
        while data := self.client.recv(_CHUNK_BYTES):
            if self._method is None:
                data, method = _with_name(self.client, data)
                if self._network.is_request_lost(method):
                    return
                self._method = method
            self.gateway.sendall(data)

    def pass_answers(self) -> None:
        """Pass on what the gateway answers until it ends or is to be lost."""
        while data := self.gateway.recv(_CHUNK_BYTES):
            method, self._method = self._method, None
            if method is not None and self._network.is_answer_lost(method):
                return
            self.client.sendall(data)


def _with_name(source: socket.socket, data: bytes) -> tuple[bytes, str]:
    """Return the beginning of a call, as much as has arrived, and the method's name."""
    while True:
        if len(data) >= _HEADER.size:
            kind, length = _HEADER.unpack_from(data)
            assert kind == _CALL, "a call of the binary protocol begins here"
            if len(data) >= _HEADER.size + length:
                return data, data[_HEADER.size : _HEADER.size + length].decode()
        more = source.recv(_CHUNK_BYTES)
        if not more:
            raise ConnectionError("the client ended in the middle of a name")
        data += more


def _never(_method: str) -> bool:
    return False


def _cut(end: socket.socket) -> None:
    """Close a socket, also while another thread waits for it."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
