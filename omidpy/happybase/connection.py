"""A connection: to HBase itself, with the methods of happybase's to a gateway."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from omidpy.base.words.arguments import check_free_name
from omidpy.errors import ConfigError
from omidpy.happybase import families as options_of
from omidpy.happybase.columns import Text, as_bytes, table_text
from omidpy.happybase.session import PlainSession
from omidpy.happybase.table import Table
from omidpy.storage.hbase.addresses.from_happybase import DirectConnection, Settings
from omidpy.storage.hbase.native.address import SCHEMES
from omidpy.storage.hbase.native.values import TableDescriptor

DEFAULT_HOST: Final = "localhost"
DEFAULT_ZNODE: Final = "hbase"
COMPATIBLE: Final = ("0.90", "0.92", "0.94", "0.96", "0.98")
TRANSPORTS: Final = ("buffered", "framed")
PROTOCOLS: Final = ("binary", "compact")


class Connection(PlainSession, DirectConnection):
    """HBase, as happybase's users know it.  Safe to share among threads, and after a fork.

    It differs from happybase's: there is no `client` or `transport`, errors are those of
    `omidpy.errors`, and `host` names ZooKeeper or is an address.
    """

    def __init__(
        self,
        host: str | None = DEFAULT_HOST,
        port: int | None = None,
        timeout: int | None = None,
        autoconnect: bool = True,  # noqa: FBT001, FBT002 - happybase's signature
        table_prefix: Text | None = None,
        table_prefix_separator: Text = b"_",
        compat: str = "0.98",
        transport: str = "buffered",
        protocol: str = "binary",
    ) -> None:
        """Find HBase, and ask whether it is there.

        Args:
            host: ZooKeeper's servers, `zk1` or `zk1,zk2:2181`; or an address,
                `hbase://zk1,zk2:2181/hbase`, `hbase+rpc://master:16000`, with its options.
            port: ZooKeeper's, if the host does not say; 2181.
            timeout: Milliseconds that a call is waited for; None as the address says, 60,000.
            autoconnect: Whether to ask now; else `open` does.
            table_prefix: What the names of tables begin with.
            table_prefix_separator: What stands between that and the rest.
            compat: Checked as happybase does, and of no effect.
            transport: Checked as happybase does, and of no effect.
            protocol: Checked as happybase does, and of no effect.

        Raises:
            ValueError: a word is none of those that happybase knows.
            TypeError: a prefix is no text.
            ConfigError: an address does not fit, or the ZooKeeper client is not installed.
            StorageUnavailable: HBase does not answer.
        """
        for name, value, known in (
            ("transport", transport, TRANSPORTS),
            ("compat", compat, COMPATIBLE),
            ("protocol", protocol, PROTOCOLS),
        ):
            if value not in known:
                raise ValueError(f"{name!r} must be one of {', '.join(known)}")
        for name, prefix in (
            ("table_prefix", table_prefix),
            ("table_prefix_separator", table_prefix_separator),
        ):
            if not isinstance(prefix, bytes | str) and (
                prefix is not None or name == "table_prefix_separator"
            ):
                raise TypeError(f"{name!r} must be a string")
        self.host = host or DEFAULT_HOST
        self.port = port
        self.timeout = timeout
        self.table_prefix = None if table_prefix is None else as_bytes(table_prefix)
        self.table_prefix_separator = as_bytes(table_prefix_separator)
        self.compat = compat
        super().__init__(_url(self.host, port, timeout))
        if autoconnect:
            self.open()

    def settings(self) -> Settings:
        """Return what `omidpy.connect` takes of it: its address, and the prefix of its tables."""
        return Settings(self.url, table_text(self._table_name(b"")))

    def __enter__(self) -> Self:
        """Return itself.  happybase's is no context manager; its pool gives one."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def __del__(self) -> None:
        """Close it, as happybase's: its sockets go with who has opened it."""
        if hasattr(self, "_opened"):
            self.close()

    def table(self, name: Text, use_prefix: bool = True) -> Table:  # noqa: FBT001, FBT002 - happybase's signature
        """Return a table, without looking whether it is there."""
        return Table(self._table_name(name) if use_prefix else as_bytes(name), self)

    # -- tables ------------------------------------------------------------------------------------

    def tables(self) -> list[bytes]:
        """Return the names of all tables, or of those with the prefix, without it; in order."""
        names = sorted(one.table.encode() for one in self.admin.descriptors())
        if self.table_prefix is None:
            return names
        prefix = self._table_name(b"")
        return [name[len(prefix) :] for name in names if name.startswith(prefix)]

    def create_table(self, name: Text, families: Mapping[Any, Mapping[str, Any] | None]) -> None:
        """Create a table.

        Args:
            name: Its name, without the prefix.
            families: The options of each family by its name: `max_versions` (3), `compression`,
                `in_memory`, `bloom_filter_type` (`NONE`), `block_cache_enabled` (False),
                `time_to_live` (seconds); in brackets what the Thrift1 gateway gives, too.

        Raises:
            TypeError: `families` is no dict, or an option is unknown.
            ValueError: there is no family.
            TableExists: it is there.
            UsageError: Omid or omidpy makes the table of that name.
        """
        full = self._table_name(name)
        check_free_name(table_text(full))
        if not isinstance(families, dict):
            raise TypeError("'families' arg must be a dictionary")
        if not families:
            raise ValueError(f"Cannot create table {full!r} (no column families specified)")
        made = tuple(options_of.descriptor(family, given) for family, given in families.items())
        self.admin.create(TableDescriptor(table_text(full), made, {}, {}))

    def delete_table(self, name: Text, disable: bool = False) -> None:  # noqa: FBT001, FBT002 - happybase's signature
        """Remove a table that is disabled, or with `disable` any.

        Raises:
            UsageError: transactions write it: `TransactionManager.drop_table` removes it.
        """
        full = self._table_name(name)
        self.forget(full)  # it may have been adopted a moment ago, and nothing brings it back
        self.check_plain(full)
        if disable and self.is_table_enabled(name):
            self.disable_table(name)
        self.admin.drop(table_text(full))
        self.forget(full)

    def enable_table(self, name: Text) -> None:
        """Enable a table, so that it can be read and written again."""
        self.admin.enable(table_text(self._table_name(name)))

    def disable_table(self, name: Text) -> None:
        """Disable a table, as HBase asks before it is deleted."""
        self.admin.disable(table_text(self._table_name(name)))

    def is_table_enabled(self, name: Text) -> bool:
        """Say whether a table is enabled."""
        return self.admin.state(table_text(self._table_name(name))) == "enabled"

    def compact_table(self, name: Text, major: bool = False) -> None:  # noqa: FBT001, FBT002 - happybase's signature
        """Ask for a compaction of a table; it is not waited for."""
        self.admin.compact(table_text(self._table_name(name)), is_major=major)

    def _table_name(self, name: Text) -> bytes:
        if self.table_prefix is None:
            return as_bytes(name)
        return self.table_prefix + self.table_prefix_separator + as_bytes(name)


def _url(host: str, port: int | None, timeout_ms: int | None) -> str:
    """Return the address that the arguments of a connection come to."""
    if "://" not in host:
        url = f"hbase://{host}{'' if port is None else f':{port}'}/{DEFAULT_ZNODE}"
    elif host.partition("://")[0] not in SCHEMES:
        raise ConfigError(
            f"host {host!r} is a gateway's address; happybase itself speaks to gateways, and here "
            "an address is hbase://ZOOKEEPER:2181/hbase or hbase+rpc://MASTER:16000"
        )
    elif port is not None:
        raise ConfigError(f"host {host!r} is an address, which has its port: leave {port} out")
    else:
        url = host
    if timeout_ms:
        url += f"{'&' if '?' in url else '?'}timeout_s={timeout_ms / 1000:g}"
    return url
