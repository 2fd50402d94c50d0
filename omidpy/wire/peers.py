"""Who is at the other end of a TCP connection, and is that one still there?

What a socket is asked to look after, whichever protocol is spoken over it.  Lacks any timer: the
kernel looks, and a call that waits finds the connection broken.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final

LIVENESS_OPTIONS: Final[Mapping[str, int]] = {
    "TCP_KEEPIDLE": 10,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 25_000,
}
"""A peer whose machine is gone is let go after 25 s: of silence, or with bytes on their way.

By default that takes the kernel two hours, for which a server keeps a client's place and its
holds, and a client believes in a connection that no server knows of."""

PATIENT_OPTIONS: Final[Mapping[str, int]] = {
    "TCP_KEEPIDLE": 30,
    "TCP_KEEPINTVL": 10,
    "TCP_KEEPCNT": 3,
}
"""A peer may be unreachable for a minute, as long as a call is waited for.

What lies between the two forgets a connection over which nothing goes for some minutes, and drops
the next call without a word; it hears of this one every half minute."""


def watch_peer(sock: socket.socket, options: Mapping[str, int] = LIVENESS_OPTIONS) -> None:
    """Let the kernel find out when the other end of a TCP connection is gone."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def without_descriptors() -> OSError | None:
    """Return what this process is told that can open no more files; None where it can.

    Where a name is looked up that is told as a name that is unknown.
    """
    try:
        socket.socket().close()
    except OSError as error:
        return error
    return None


def check_not_ourselves(sock: socket.socket) -> None:
    """Raise `ConnectionRefusedError` where a socket is connected to itself."""
    # Where no server listens, the kernel may pick the wanted port as our own and connect the socket
    # to itself; we would then occupy the port that the server needs.
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError("the connection met itself: nobody listens there")
