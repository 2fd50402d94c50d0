"""Which gateway does a connection of happybase's lead to?  Its settings, as an address of ours.

One of `omidpy.happybase` leads to HBase itself, and says its address.

Only the settings are taken: host and port, transport, protocol, time limit, size of the pool, and
the prefix of its tables.  Connections are opened anew and belong to us.  Theirs carry one call at a
time without a lock, and a pool lends them to a thread at a time, so that sharing one with its owner
would mix up answers; and ours are checked for the answer to the right call (`gateway.py`).

happybase is imported here alone, and only by `connect` when it was given one of its objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlencode

from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.storage.hbase.addresses.spelling import place_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

PATIENCE_S: Final = 10.0
"""How long to wait for a connection of a pool, whose settings are then read."""


class Connection(Protocol):
    """What is used of a `happybase.Connection`."""

    host: str
    port: int
    timeout: int | None
    table_prefix: bytes | None
    table_prefix_separator: bytes


class Pool(Protocol):
    """What is used of a `happybase.ConnectionPool`."""

    def connection(self, timeout: float | None = None) -> AbstractContextManager[Any]:
        """Lend a connection until the block ends."""
        ...


class Settings(NamedTuple):
    """What a connection says."""

    url: str
    """An address of ours."""
    table_prefix: str
    """What the names of its tables begin with."""


class DirectConnection(ABC):
    """A connection or a pool of `omidpy.happybase`, which has an address of ours already."""

    @abstractmethod
    def settings(self) -> Settings:
        """Return what it says."""


def settings_of(given: object) -> Settings:
    """Return the settings of a connection or a pool.

    Raises:
        TypeError: it is neither.
        ConfigError: every connection of the pool is in use, or one says what no address can.
        StorageUnavailable: the pool cannot reach its gateway.
    """
    if isinstance(given, DirectConnection):
        return given.settings()
    if not any(kind.__module__.partition(".")[0] == "happybase" for kind in type(given).__mro__):
        raise TypeError(
            f"the address of a store must be str, not {given!r}; or give a happybase.Connection or "
            "ConnectionPool, of happybase or of omidpy.happybase"
        )
    import happybase  # noqa: PLC0415 - of the extra, and there if one of its objects is

    if isinstance(given, happybase.ConnectionPool):
        with _borrowed(given) as connection:
            return _settings(connection, pool_size=given._queue.maxsize)  # noqa: SLF001 - no public name
    if isinstance(given, happybase.Connection):
        return _settings(given, pool_size=None)
    raise TypeError(f"connect takes a Connection or ConnectionPool of happybase's, not {given!r}")


@contextmanager
def _borrowed(pool: Pool) -> Iterator[Connection]:
    """Lend a connection to look at; nothing is sent through it."""
    import happybase  # noqa: PLC0415 - see above
    from thriftpy2.thrift import TException  # noqa: PLC0415 - what happybase is made of

    try:
        with pool.connection(timeout=PATIENCE_S) as connection:
            yield connection
    except happybase.NoConnectionsAvailable as error:
        raise ConfigError(
            f"all connections of the pool have been in use for {PATIENCE_S:g} s, so that its "
            "settings cannot be read; connect before it is used, or give the address itself"
        ) from error
    except (TException, OSError) as error:
        raise StorageUnavailable(
            f"the pool of happybase's lends no connection: {error}; is its gateway running?"
        ) from error


def _settings(connection: Any, *, pool_size: int | None) -> Settings:
    from happybase import connection as kinds  # noqa: PLC0415 - see above

    options: dict[str, object] = {
        "transport": _name(kinds.THRIFT_TRANSPORTS, connection, "_transport_class"),
        "protocol": _name(kinds.THRIFT_PROTOCOLS, connection, "_protocol_class"),
    }
    if connection.timeout:
        options["timeout_s"] = connection.timeout / 1000
    if pool_size is not None:
        options["pool_size"] = pool_size
    prefix = b""
    if connection.table_prefix is not None:
        prefix = connection.table_prefix + connection.table_prefix_separator
    where = place_text((connection.host, connection.port))
    return Settings(f"hbase+thrift1://{where}?{urlencode(options)}", prefix.decode())


def _name(known: dict[str, type], connection: Any, attribute: str) -> str:
    """Return happybase's own word for the class that a connection uses."""
    used = getattr(connection, attribute, None)
    for name, kind in known.items():
        if kind is used:
            return name
    raise ConfigError(
        f"the connection of happybase's to {connection.host}:{connection.port} speaks in a way "
        f"that is not known here ({used!r}); give the address, hbase+thrift1://HOST:PORT"
    )
