"""How addresses of HBase are spelled, wherever they lead: places, and options behind them.

Only reads text, and names in each error the address, the part that is wrong, and what to write.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl

from omidpy.base.words.hosts import is_host
from omidpy.errors import ConfigError

_HOST_AND_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:/?#\s]+))(?::([0-9]+))?")

FLAGS: Final = {"on": True, "true": True, "off": False, "false": False}
"""How an option says yes or no: in the words of ZooKeeper's addresses, too."""


def without_options(url: str) -> str:
    """Return an address as far as its question mark, where what follows may be secret."""
    return url.partition("?")[0]


def place_text(place: tuple[str, int]) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def place(url: str, text: str, *, kind: str) -> tuple[str, int | None]:
    """Return a host and its port; None: none is named.

    Args:
        url: The address that names it.
        text: `HOST:PORT`, or `HOST`.
        kind: What is there, for messages.

    Raises:
        ConfigError: it is neither.
    """
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None:
        raise ConfigError(
            f"store address {url!r}: {text!r} is no {kind}; write HOST:PORT, several separated by "
            "commas, and an IPv6 address in brackets"
        )
    if match[1] is not None:
        try:
            ipaddress.IPv6Address(match[1])
        except ValueError:
            raise ConfigError(
                f"store address {url!r}: {match[1]!r} in brackets is no IPv6 address"
            ) from None
    host: str = match[1] or match[2]
    if not is_host(host):
        raise ConfigError(f"store address {url!r}: {host!r} is no name of a host; correct it")
    if match[3] is None:
        return host, None
    port = int(match[3])
    if not 0 < port < 2**16:
        raise ConfigError(f"store address {url!r}: port {port} of {text!r} is not in 1 to 65535")
    return host, port


def options(url: str, query: str, value: Callable[[str, str, str], object]) -> dict[str, Any]:
    """Return the options of an address, each of which `value(url, name, text)` reads.

    Raises:
        ConfigError: they are no options, or one is given twice.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError(
            f"store address {url!r}: after the question mark come NAME=VALUE, separated by &"
        ) from None
    found: dict[str, Any] = {}
    for name, text in pairs:
        if name in found:
            raise ConfigError(f"store address {url!r}: option {name} is given twice")
        found[name] = value(url, name, text)
    return found


def seconds(url: str, name: str, text: str) -> float:
    """Return how long something may take; only `retry_s` may be 0.

    Raises:
        ConfigError: it is no such number.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    lowest = "0 or more" if name == "retry_s" else "more than 0"
    if not 0 <= number < math.inf or (number == 0 and name != "retry_s"):
        raise ConfigError(
            f"store address {url!r}: {name}={text!r} must be a number of seconds, {lowest}"
        )
    return number
