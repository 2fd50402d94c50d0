"""From addresses to a manager over a store and its oracle, with what stands above managers.

Export queues and publishers are made with a manager, and `tx.queue` and `tx.publish` ask the
manager for them.  So they are handed to it here, where both are known.
"""

from __future__ import annotations

import atexit
import weakref
from typing import TYPE_CHECKING, Final

from omidpy import opening
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.facts.tables.catalog import DEFAULT_CONFLICT_LEVEL
from omidpy.manager import TransactionManager
from omidpy.model import FIRST_WORLD_TIMESTAMP
from omidpy.oracle.base import Oracle
from omidpy.storage.base import Store
from omidpy.tx.publishing import Publishing
from omidpy.tx.session import Openable

if TYPE_CHECKING:
    from omidpy.storage.hbase.addresses.from_happybase import Connection, DirectConnection, Pool

open_store: Final = opening.open_store


_open_managers: weakref.WeakSet[TransactionManager] = weakref.WeakSet()


def connect(
    url: str | Connection | Pool | DirectConnection,
    tso: str | None = None,
    *,
    conflict_level: str = DEFAULT_CONFLICT_LEVEL,
    post_commit: str = "async",
) -> TransactionManager:
    """Open a store and its oracle, and return the manager over both.

    Args:
        url: The store, see `open_store`.  Or a `happybase.Connection` or `ConnectionPool`, whose
            gateway is then used by connections of our own, with the prefix of its tables; or one of
            `omidpy.happybase`, whose HBase is.
        tso: `HOST:PORT` of a `tso-server`, `store:` to find it through its lease in the store, or
            `zk://HOST:PORT,.../omid` to find it, or Omid's own, through ZooKeeper.  None runs the
            oracle in this process, which then has the store to itself.  Behind the first two,
            `?tls=true&ca=FILE&cert=FILE&key=FILE` speaks TLS; behind the third these options begin
            with `oracle-`, since ZooKeeper has its own.
        conflict_level: `cell` or `row`: what a write conflicts on in tables made here.  Others
            say so themselves, and one transaction may write tables of both.
        post_commit: When shadow cells are written: `async`, `sync` or `none`.

    Raises:
        ConfigError: an address does not fit, the oracle serves another store, or another process
            already runs the oracle of this one.
        OracleUnavailable: no oracle answers at `tso`.
        StorageUnavailable: the store cannot be opened.
    """
    return connect_as(None, url, tso, conflict_level=conflict_level, post_commit=post_commit)


def connect_as(
    client: int | None,
    url: str | Connection | Pool | DirectConnection,
    tso: str | None = None,
    *,
    conflict_level: str = DEFAULT_CONFLICT_LEVEL,
    post_commit: str = "async",
    hands_on: bool = False,
) -> TransactionManager:
    """Connect, as a client that the oracle knows: `connect`, for one who goes on with another's.

    Args:
        client: The number that the other process has to the oracle, which is a secret of theirs:
            only the same client may commit what it began.  None draws one.
        url: As in `connect`, and so are the others.
        tso: See `connect`.
        conflict_level: See `connect`.
        post_commit: See `connect`.
        hands_on: Whether another process goes on with what this one begins, as its client.
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
        from omidpy.storage.hbase.addresses.from_happybase import settings_of  # noqa: PLC0415 - happybase's

        url, table_prefix = settings_of(url)
    store: Store | None = None
    oracle: Oracle | None = None
    try:
        store = opening.open_store(url, must_exist=tso is not None)
        oracle = open_oracle(store, tso, client=client, hands_on=hands_on)
        _check_world_time(store, oracle)
        manager = TransactionManager(
            store,
            oracle,
            conflict_level=conflict_level,
            post_commit=post_commit,
            is_oracle_here=tso is None,
            table_prefix=table_prefix,
            find_queue=find_queue,
            make_publisher=make_publisher,
            tso=tso,
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


def find_queue(manager: TransactionManager, queue_id: str) -> Openable:
    """Find an export queue for a manager, by its id."""
    from omidpy.recipes.export_queue import ExportQueue  # noqa: PLC0415 - few ask for one

    return ExportQueue.open(manager, queue_id)


def make_publisher(manager: TransactionManager) -> Publishing:
    """Make what publishes files with the transactions of a manager."""
    from omidpy.committers.transactional import Publisher  # noqa: PLC0415 - few ask for one

    return Publisher(manager)


def open_oracle(
    store: Store, tso: str | None, *, client: int | None = None, hands_on: bool = False
) -> Oracle:
    """Connect to the oracle at `tso`, and make sure that it answers and serves `store`.

    None: run it in this process.

    Raises:
        ConfigError: the address does not fit, or the oracle serves another store.
        OracleUnavailable: no oracle answers.
    """
    if tso is not None:
        return opening.open_oracle(store, tso, client=client, hands_on=hands_on)
    from tso.embedded import EmbeddedOracle  # noqa: PLC0415 - only this layer may import it

    return EmbeddedOracle(store)


@atexit.register
def _drain_at_exit() -> None:
    """Finish post-commit work of managers that were not closed; readers would heal the rest.

    No thread begins any more, so that what is left is done here.
    """
    for manager in list(_open_managers):
        try:
            manager.session.post_committer.close()
        except StorageUnavailable:
            continue
