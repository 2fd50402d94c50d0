"""Where is the store, as the driver, the processes that Spark plans with, and tasks reach it?

A task must not write into another store than the driver's, which has the same address there: each
looks at its id.  A store that is one file is on one machine.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from omidpy.connect import connect_as
from omidpy.errors import ConfigError
from omidpy.facts.tables.catalog import DEFAULT_CONFLICT_LEVEL
from omidpy.manager import TransactionManager
from omidpy.storage.address import sqlite_path
from omidpy.storage.base import Store
from omidpy.storage.handed import HandedStore, handed
from omidpy.tx.session import Session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omidpy.storage.hbase.native.security.tokens import Token

_FILE: Final = "sqlite:"


@dataclass(frozen=True, slots=True)
class Place:
    """A store and its oracle, by their addresses."""

    store: str
    tso: str
    conflict_level: str = DEFAULT_CONFLICT_LEVEL
    store_id: str = ""
    """Empty: not looked at yet."""
    host: str = ""
    """The only machine that reaches it; empty for any."""
    token: Token | None = field(default=None, repr=False)
    """What proves to the store who its tasks are; None if nothing has to."""

    def connect(self, client: int | None = None, *, hands_on: bool = False) -> TransactionManager:
        """Open the store.

        Args:
            client: Who we are to the oracle, where this process ends what another one began.
            hands_on: Whether another one ends what this process begins.

        Raises:
            ConfigError: it is another one than it was, or out of reach; or as `omidpy.connect`.
        """
        here = socket.gethostname()
        if self.host and self.host != here:
            raise ConfigError(
                f"{self.store} is one file on {self.host}, and this task runs on {here}; run Spark "
                "on that machine alone, as master 'local[*]' does, or keep the store on HBase"
            )
        sent = HandedStore(self.store, self.token, self.store_id)
        return sent.opened(
            lambda url: connect_as(
                client, url, self.tso, conflict_level=self.conflict_level, hands_on=hands_on
            )
        )

    def seen(self, store: Store) -> Place:
        """Return it as processes elsewhere are to reach it, once it was opened."""
        if not self.store.startswith(_FILE):
            return replace(self, store_id=store.store_id, token=handed(store).token)
        from omidpy.storage.sqlite.queries.reads import url_of  # noqa: PLC0415 - only for its address

        url = url_of(str(Path(sqlite_path(self.store)).absolute()))
        return replace(self, store=url, store_id=store.store_id, host=socket.gethostname())


def place_of(session: Session) -> Place:
    """Return the place that a manager was connected to.

    Raises:
        ConfigError: other processes cannot reach it.
    """
    if session.tso is None:
        raise ConfigError(
            "tasks of Spark are processes of their own, and share an oracle: start tso-server, and "
            "connect with omidpy.connect(URL, tso='HOST:PORT')"
        )
    made = Place(session.store.url, session.tso, session.catalog.conflict_level)
    return made.seen(session.store)


def check_reach(place: Place, spark: SparkSession) -> None:
    """Refuse to send a store that is one file to workers on other machines.

    Raises:
        ConfigError: the master of the session has such.
    """
    from compactor.shell.job import is_local  # noqa: PLC0415 - an application, and an extra

    master = spark.sparkContext.master
    if place.host and not is_local(master or ""):
        raise ConfigError(
            f"{place.store} is one file on this machine, and the Spark master is {master}, whose "
            "workers run elsewhere; use master 'local[*]', or keep the store on HBase"
        )
