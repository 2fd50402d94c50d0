"""Where an oracle answers, and how that is written: host:port, host, or [ipv6]:port."""

from __future__ import annotations

from typing import NamedTuple

from omidpy.base.words.hosts import is_host
from omidpy.errors import ConfigError
from omidpy.model import Timestamp
from omidpy.wire.messages import DEFAULT_PORT


class Place(NamedTuple):
    """Where an oracle answers, and the epoch that was published with it; 0 if none was."""

    host: str
    port: int
    epoch: Timestamp = Timestamp(0)


def parse_address(address: str) -> tuple[str, int]:
    """Return the host and port in `host:port`, `host` or `[ipv6]:port`.

    Raises:
        ConfigError: if it is none of them.
    """
    host, separator, port = address.rpartition(":")
    if not separator or address.endswith("]"):
        host, port = address, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not is_host(host) or not is_number or not 0 < int(port) < 2**16:
        raise ConfigError(
            f"{address!r} is no address of an oracle; expected host:port, "
            f"for instance 127.0.0.1:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}"
        )
    return host, int(port)


def address_text(address: tuple[str, int]) -> str:
    """Write an address as HOST:PORT."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
