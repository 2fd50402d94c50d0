"""Which ports may a server take that must come back on the same one after a crash?

Asking the kernel for any free port gives one of its ephemeral range, where an outgoing connection
may take it while the server is down.  So ports come in blocks from below that range, and a block
belongs to whoever has its first port bound: two runs of the tests never share one, and a run that
is killed gives its block back by dying.
"""

from __future__ import annotations

import random
import socket

BLOCK_PORTS = 32
_FIRST, _END = 20_000, 32_000  # Linux's ephemeral range begins at 32768


class PortBlock:
    """A block of ports of our own; each name is given the same port each time it asks."""

    def __init__(self) -> None:
        """Find a block none of whose ports is in use.

        Raises:
            OSError: There is none.
        """
        blocks = list(range(_FIRST, _END, BLOCK_PORTS))
        random.shuffle(blocks)
        for first in blocks:
            if (claim := _bound(first)) is None:
                continue
            self._claim = claim
            self._free = iter(range(first + 1, first + BLOCK_PORTS))
            self._ports: dict[str, int] = {}
            if all(is_free(port) for port in range(first + 1, first + BLOCK_PORTS)):
                return
            claim.close()
        raise OSError(f"no {BLOCK_PORTS} free ports in a row between {_FIRST} and {_END}")

    def port(self, name: str) -> int:
        """Return the port of `name`."""
        if name not in self._ports:
            self._ports[name] = next(self._free)
        return self._ports[name]

    def close(self) -> None:
        """Give the block back."""
        self._claim.close()


def is_free(port: int) -> bool:
    """Say whether nothing listens on a port of the loopback."""
    if (bound := _bound(port)) is None:
        return False
    bound.close()
    return True


def answers(port: int) -> bool:
    """Say whether something listens on a port of the loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _bound(port: int) -> socket.socket | None:
    bound = socket.socket()
    # As servers do: connections of a server that was killed linger on its port without owning it.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        return None
    return bound
