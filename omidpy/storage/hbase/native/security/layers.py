"""What lies between the bytes of a connection and those on its socket?  Encryption, or nothing.

A layer seals what is to be sent and opens what arrived, and does no I/O.  Layers lie above each
other: HBase's own, of SASL, above TLS.

A layer counts what passes it, and both ends must count the same: what was sealed has to be sent,
whole and in its order, or the connection is of no more use.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Sequence
from typing import Final, Protocol

from omidpy.base.within import within
from omidpy.storage.hbase.native.faults import Disagreed
from omidpy.wire.tls import TlsStream, refusal

TLS_OPTIONS: Final = "tls_"
"""How the options of an address about TLS begin."""

_PART_BYTES: Final = 64 * 1024


class Layer(Protocol):
    """Seals and opens.  One thread may seal while another opens."""

    def seal(self, data: bytes) -> bytes:
        """Return what to send in place of `data`; an exception leaves the layer of no more use."""
        ...

    def open(self, arrived: bytes) -> bytes:
        """Return what arrived bytes say: nothing while a part is incomplete.

        An exception leaves the layer of no more use.

        Raises:
            Disagreed: the server ends the conversation, because it wants to be shown more.
            Garbled: it is nothing that the other end has sealed.
            OSError: the same, of TLS.
        """
        ...

    @property
    def is_over(self) -> bool:
        """Whether the other end said that it sends nothing any more."""
        ...


class TlsLayer:
    """TLS, whose handshake is done."""

    def __init__(self, stream: TlsStream) -> None:
        """Seal and open by a stream of this connection alone."""
        self._stream = stream
        self._lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        """Whether the other end said that it sends nothing any more."""
        return self._stream.is_over

    def seal(self, data: bytes) -> bytes:
        """Return records of TLS."""
        return within(self._lock, self._seal, data)

    def _seal(self, data: bytes) -> bytes:
        view = memoryview(data)
        for at in range(0, len(data), _PART_BYTES):
            self._stream.seal(view[at : at + _PART_BYTES])
        return self._stream.to_send()

    def open(self, arrived: bytes) -> bytes:
        """Return what records say."""
        try:
            return within(self._lock, self._stream.receive, arrived)
        except ssl.SSLError as error:
            # In TLS 1.3 a server that wants a certificate says so after the handshake.
            if error.reason is not None and "CERTIFICATE" in error.reason:
                raise Disagreed(refusal(error, prefix=TLS_OPTIONS)) from error
            raise


class Stack:
    """Layers above each other."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        """Take layers, the one that is nearest to the socket first."""
        self._layers = tuple(layers)

    @property
    def is_over(self) -> bool:
        """Whether the other end said that it sends nothing any more."""
        return any(layer.is_over for layer in self._layers)

    def seal(self, data: bytes) -> bytes:
        """Seal by all, from above."""
        for layer in reversed(self._layers):
            data = layer.seal(data)
        return data

    def open(self, arrived: bytes) -> bytes:
        """Open by all, from below."""
        for layer in self._layers:
            if arrived:
                arrived = layer.open(arrived)
        return arrived
