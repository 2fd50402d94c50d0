"""From an address to a store, an oracle and the manager over both.

This is the one place that knows every backend by name, and it imports each only when its address
asks for it.
"""

from __future__ import annotations

import atexit
import weakref
from typing import Final

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import ConfigError, NoSuchTable, StorageUnavailable
from omidpy.manager import TransactionManager
from omidpy.model import FIRST_WORLD_TIMESTAMP
from omidpy.oracle.base import Oracle
from omidpy.storage import opening
from omidpy.storage.address import init_command, server_command, sqlite_path
from omidpy.storage.base import Store
from omidpy.storage.hbase.from_happybase import Connection, Pool, settings_of

_STORES: Final = (
    "sqlite:///relative.db",
    "sqlite:////absolute.db",
    "memory:",
    "hbase+thrift2://host:port,host:port",
    "hbase+thrift1://host:port,host:port",
)


_open_managers: weakref.WeakSet[TransactionManager] = weakref.WeakSet()


def connect(
    url: str | Connection | Pool,
    tso: str | None = None,
    *,
    conflict_level: str = "cell",
    post_commit: str = "async",
) -> TransactionManager:
    """Open a store and its oracle, and return the manager over both.

    Args:
        url: The store, see `open_store`.  Or a `happybase.Connection` or `ConnectionPool`, whose
            gateway is then used by connections of our own, with the prefix of its tables.
        tso: `HOST:PORT` of a `tso-server`, `store:` to find it through its lease in the store, or
            `zk://HOST:PORT,.../omid` to find it, or Omid's own, through ZooKeeper.  None runs the
            oracle in this process, which then has the store to itself.  Behind the first two,
            `?tls=true&ca=FILE&cert=FILE&key=FILE` speaks TLS; behind the third these options begin
            with `oracle-`, since ZooKeeper has its own.
        conflict_level: `cell` or `row`: what a write conflicts on in tables made here.
        post_commit: When shadow cells are written: `async`, `sync` or `none`.

    Raises:
        ConfigError: an address does not fit, the oracle serves another store, or another process
            already runs the oracle of this one.
        OracleUnavailable: nobody answers at `tso`.
        StorageUnavailable: the store cannot be opened.
    """
    if tso is not None and not isinstance(tso, str):
        raise TypeError(f"tso must be str, not {tso!r}: HOST:PORT, or store:")
    if tso is not None and url == "memory:":
        raise ConfigError(
            f"tso={tso!r}: the store memory: lives in this process, where no tso-server can "
            "reach it; leave tso out, or use sqlite:///file.db"
        )
    table_prefix = ""
    if not isinstance(url, str):
        url, table_prefix = settings_of(url)
    store: Store | None = None
    oracle: Oracle | None = None
    try:
        store = open_store(url, must_exist=tso is not None)
        oracle = open_oracle(store, tso)
        _check_world_time(store, oracle)
        manager = TransactionManager(
            store,
            oracle,
            conflict_level=conflict_level,
            post_commit=post_commit,
            is_oracle_here=tso is None,
            table_prefix=table_prefix,
        )
        _open_managers.add(manager)
        return manager
    except BaseException:
        for opened in (oracle, store):
            if opened is not None:
                opened.close()
        raise


def _check_world_time(store: Store, oracle: Oracle) -> None:
    """Refuse small timestamps where the store sets versions of its own, by its clock.

    Those are milliseconds, and must lie below every version of a transaction's.
    """
    if store.capabilities.checked_changes:
        return
    start_ts = oracle.begin().start_ts
    if start_ts < FIRST_WORLD_TIMESTAMP:
        raise ConfigError(
            f"the oracle's timestamps are not world time (it issued {start_ts}), which {store.url} "
            "needs; open the store through hbase+thrift2://, or start tso-server with "
            "--timestamps world"
        )


def _embedded_oracle(store: Store) -> Oracle:
    from tso.embedded import EmbeddedOracle  # noqa: PLC0415 - only this layer may import it

    return EmbeddedOracle(store)


def open_oracle(store: Store, tso: str | None) -> Oracle:
    """Connect to the oracle at `tso`, and make sure that it answers and serves `store`.

    None: run it in this process.

    Raises:
        ConfigError: the address does not fit, or the oracle serves another store.
        OracleUnavailable: nobody answers.
    """
    if tso is None:
        return _embedded_oracle(store)
    from omidpy.oracle.tcp import TcpOracle  # noqa: PLC0415 - not needed by an embedded oracle
    from omidpy.oracle.tls import client_tls, options_of  # noqa: PLC0415 - the same

    place, _, query = tso.partition("?")
    if tso.startswith("zk:"):
        from omidpy.oracle import zookeeper  # noqa: PLC0415 - only for its address

        address = zookeeper.parse_zookeeper(tso)
        tls = client_tls(address.oracle_options, address=address.text, prefix="oracle-")
        oracle = TcpOracle(resolve=zookeeper.resolver(address), store_id=store.store_id, tls=tls)
    elif place == "store:":
        from omidpy.facts.leadership import lease_address  # noqa: PLC0415 - only for its address

        tls = client_tls(options_of(query, address=place), address=place)
        oracle = TcpOracle(resolve=lambda: lease_address(store), store_id=store.store_id, tls=tls)
    else:
        tls = client_tls(options_of(query, address=place), address=place)
        oracle = TcpOracle(place, store_id=store.store_id, tls=tls)
    try:
        oracle.ping()
        _check_set_up(store)
        return oracle
    except BaseException:
        oracle.close()
        raise


def _check_set_up(store: Store) -> None:
    try:
        store.schema(CONTROL_TABLE)
    except NoSuchTable as error:
        raise ConfigError(
            f"the store {store.url} has not been set up; run {init_command(store.url)}, or "
            f"start {server_command(store.url)}"
        ) from error


@atexit.register
def _drain_at_exit() -> None:
    """Finish post-commit work of managers that nobody closed; readers would heal the rest.

    No thread begins any more, so that what is left is done here.
    """
    for manager in list(_open_managers):
        try:
            manager.session.post_committer.close()
        except StorageUnavailable:
            continue


def open_store(url: str, *, must_exist: bool = False) -> Store:
    """Open the store at `url`.

    Args:
        url: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`, or
            `hbase+thrift2://host:port,...` for HBase through its Thrift2 gateways, which is not
            called before the store is used; `hbase+thrift1://` where clients reach no others.
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
    if scheme == "hbase+thrift2":
        # Refuses with the name of the extra where that is not installed.
        from omidpy.storage.hbase.thrift2 import Thrift2Store  # noqa: PLC0415 - only for its address

        return Thrift2Store(url)
    if scheme == "hbase+thrift1":
        from omidpy.storage.hbase.thrift1 import Thrift1Store  # noqa: PLC0415 - only for its address

        return Thrift1Store(url)
    raise ConfigError(f"store address {url!r} is none of: {', '.join(_STORES)}")


opening.open_with(lambda url: open_store(url, must_exist=True))
