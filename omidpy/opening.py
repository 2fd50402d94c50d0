"""From an address to a store, and to an oracle that serves it.

This is the one place that knows every backend by name, and it imports each only when its address
asks for it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import ConfigError, NoSuchTable
from omidpy.model import Timestamp
from omidpy.oracle.base import Oracle
from omidpy.storage.address import init_command, server_command, sqlite_path
from omidpy.storage.base import Store

_STORES: Final = (
    "sqlite:///relative.db",
    "sqlite:////absolute.db",
    "memory:",
    "hbase://zookeeper:2181,zookeeper:2181/hbase",
    "hbase+rpc://master:16000,master:16000",
    "hbase+thrift2://host:port,host:port",
    "hbase+thrift1://host:port,host:port",
)


def open_store(url: str, *, must_exist: bool = False) -> Store:
    """Open the store at `url`.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`, or HBase, which is not
            called before the store is used: `hbase://zk1:2181,zk2:2181/hbase` found through
            ZooKeeper, `hbase+rpc://master1:16000,...` through its masters,
            `hbase+thrift2://host:port,...` through Thrift2 gateways, and `hbase+thrift1://` where
            clients reach no others.
        must_exist: Refuse to create an embedded store that is not there.

    Raises:
        ConfigError: the address is not one of a store; nothing was created.
        StorageUnavailable: there is a store, but it cannot be opened.
    """
    if not isinstance(url, str):
        raise TypeError(f"the address of a store must be str, not {url!r}")
    scheme, _, rest = url.partition(":")
    if scheme == "memory":
        if rest:
            raise ConfigError(f"store address {url!r}: memory: takes nothing after the colon")
        from omidpy.storage.memory import MemoryStore  # noqa: PLC0415 - only for its address

        return MemoryStore()
    if scheme == "sqlite":
        path = sqlite_path(url)
        from omidpy.storage.sqlite import SqliteStore  # noqa: PLC0415 - only for its address

        return SqliteStore(path, must_exist=must_exist)
    if scheme in ("hbase", "hbase+rpc"):
        from omidpy.storage.hbase.direct import NativeStore  # noqa: PLC0415 - only for its address

        return NativeStore(url)
    if scheme == "hbase+thrift2":
        # Refuses with the name of the extra where that is not installed.
        from omidpy.storage.hbase.thrift2 import Thrift2Store  # noqa: PLC0415 - only for its address

        return Thrift2Store(url)
    if scheme == "hbase+thrift1":
        from omidpy.storage.hbase.thrift1 import Thrift1Store  # noqa: PLC0415 - only for its address

        return Thrift1Store(url)
    raise ConfigError(f"store address {url!r} is none of: {', '.join(_STORES)}")


def open_oracle(
    store: Store, tso: str, *, client: int | None = None, hands_on: bool = False
) -> Oracle:
    """Connect to the oracle at `tso`, and make sure that it answers and serves `store`.

    Args:
        store: The store that it must serve.
        tso: `HOST:PORT`, `store:` or `zk://HOST:PORT,.../omid`, each with options behind `?`.
        client: Who we are to it, for a process that goes on with what another one began, see
            `TcpOracle`; None draws a number.
        hands_on: Whether another process goes on with what this one begins.

    Raises:
        ConfigError: the address does not fit, or the oracle serves another store.
        OracleUnavailable: no oracle answers.
    """
    from omidpy.facts.writers import read_writer_key  # noqa: PLC0415 - the same
    from omidpy.oracle.tcp import TcpOracle  # noqa: PLC0415 - only if one is asked
    from omidpy.oracle.tls import client_tls, options_of  # noqa: PLC0415 - the same

    recorded_epoch = partial(_omids_epoch, store)
    place, _, query = tso.partition("?")
    if tso.startswith("zk:"):
        from omidpy.oracle import zookeeper  # noqa: PLC0415 - only for its address

        address = zookeeper.parse_zookeeper(tso)
        tls = client_tls(address.oracle_options, address=address.text, prefix="oracle-")
        oracle = TcpOracle(
            resolve=zookeeper.resolver(address),
            recorded_epoch=recorded_epoch,
            store_id=store.store_id,
            tls=tls,
            client=client,
            hands_on=hands_on,
        )
    elif place == "store:":
        from omidpy.facts.leadership import lease_place  # noqa: PLC0415 - only for its address
        from omidpy.oracle.address import Place  # noqa: PLC0415 - the same

        tls = client_tls(options_of(query, address=place), address=place)
        oracle = TcpOracle(
            resolve=lambda: Place(*lease_place(store)),
            tells_store=True,
            store_id=store.store_id,
            tls=tls,
            client=client,
            hands_on=hands_on,
        )
    else:
        tls = client_tls(options_of(query, address=place), address=place)
        oracle = TcpOracle(
            place,
            recorded_epoch=recorded_epoch,
            store_id=store.store_id,
            tls=tls,
            client=client,
            hands_on=hands_on,
        )
    try:
        oracle.ping()
        _check_set_up(store)
        if store.capabilities.guarded_batches:
            oracle.writer_key = read_writer_key(store)
        return oracle
    except BaseException:
        oracle.close()
        raise


def _omids_epoch(store: Store) -> Timestamp:
    """Return the low watermark with which an oracle of Omid's began, or a later one; 0: none.

    It writes it before it listens.  Without it, what an oracle that died has still under way would
    appear behind a reader that had seen nothing of it (I8).
    """
    from omidpy.facts.commit_table import read_java_low_watermark  # noqa: PLC0415 - beside Omid's

    try:
        return read_java_low_watermark(store)
    except NoSuchTable:
        return Timestamp(0)  # `_check_set_up` has the word


def _check_set_up(store: Store) -> None:
    from omidpy.facts.format import check_format  # noqa: PLC0415 - only if an oracle is asked

    try:
        store.schema(CONTROL_TABLE)
    except NoSuchTable as error:
        raise ConfigError(
            f"the store {store.url} has not been set up; run {init_command(store.url)}, or "
            f"start {server_command(store.url)}"
        ) from error
    check_format(store)
