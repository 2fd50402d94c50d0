"""A pool, for programs that have one: its connection may be shared, so that all lend the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omidpy.happybase.connection import Connection
from omidpy.storage.hbase.addresses.from_happybase import DirectConnection, Settings


class NoConnectionsAvailable(RuntimeError):
    """All connections of a pool are in use: never raised here, and there for who expects it."""


class _Lent(Connection):
    """What a pool lends."""

    def __init__(self, **arguments: Any) -> None:
        self.borrowers: dict[object, None] = {}
        super().__init__(**arguments)

    def close(self) -> None:
        """End the connections to HBase's servers, unless others have borrowed it, too.

        With happybase's pools a thread closes its own, such as after an error.
        """
        if len(self.borrowers) <= 1:
            super().close()


class ConnectionPool(DirectConnection):
    """Lends a connection to any number of threads at once.  Safe to share among threads."""

    def __init__(self, size: int, **kwargs: Any) -> None:
        """Connect.

        Args:
            size: At least 1, as happybase's pools want, and of no effect.
            kwargs: Those of `Connection`; `autoconnect` is of no effect, as in happybase.

        Raises:
            TypeError, ValueError: the size is no such number.
            ConfigError, StorageUnavailable: as `Connection`.
        """
        if not isinstance(size, int):
            raise TypeError("Pool 'size' arg must be an integer")
        if not size > 0:
            raise ValueError("Pool 'size' arg must be greater than zero")
        self._connection = _Lent(**{**kwargs, "autoconnect": True})

    def settings(self) -> Settings:
        """Return what `omidpy.connect` takes of it."""
        return self._connection.settings()

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Connection]:
        """Lend the connection for the length of a block; none has to wait, whatever `timeout`."""
        del timeout
        connection, borrower = self._connection, object()
        connection.borrowers[borrower] = None
        try:
            connection.open()
            yield connection
        finally:
            connection.borrowers.pop(borrower, None)
