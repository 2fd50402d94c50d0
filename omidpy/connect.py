"""From an address to a store, an oracle and the manager over both.

This is the one place that knows every backend by name, and it imports each only when its address asks
for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from omidpy.errors import ConfigError

if TYPE_CHECKING:
    from omidpy.storage.base import Store

_STORES: Final = (
    "sqlite:///relative.db",
    "sqlite:////absolute.db",
    "memory:",
)


def open_store(url: str, *, must_exist: bool = False) -> Store:
    """Open the store at `url`.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory:`.
        must_exist: Refuse to create an embedded store that is not there.

    Raises:
        ConfigError: the address is not one of a store; nothing was created.
        StorageUnavailable: there is a store, but it cannot be opened.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        if rest:
            raise ConfigError(f"store address {url!r}: memory: takes nothing after the colon")
        from omidpy.storage.memory import MemoryStore  # noqa: PLC0415 - only for its address

        return MemoryStore()
    if scheme == "sqlite":
        path, _, query = unquote(rest.removeprefix("///")).partition("?")
        if not rest.startswith("///") or not path or query:
            raise ConfigError(
                f"store address {url!r}: write sqlite:///relative.db or sqlite:////absolute.db"
            )
        from omidpy.storage.sqlite import SqliteStore  # noqa: PLC0415 - only for its address

        return SqliteStore(path, must_exist=must_exist)
    raise ConfigError(f"store address {url!r} is none of: {', '.join(_STORES)}")
