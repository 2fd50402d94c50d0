"""Do all gateways of an address lead to the same HBase?

Calls go to whichever gateway answers, so that two clusters in one address would each get a part of
every transaction, and it would not be noticed until data is missed.  A gateway is asked for the id
of its cluster before the first call that it gets; one gateway alone is not asked.

A client that begins at the wrong cluster is found by the oracle, which knows the store's id.

Lacks an answer where a gateway is too old to know the call, or its HBase is down: the one is
believed, the other asked again with its next connection.
"""

from __future__ import annotations

import threading

from thriftpy2.thrift import TApplicationException, TException

from omidpy.base.within import within
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses.gateways import Gateway, HBaseAddress
from omidpy.storage.hbase.addresses.spelling import place_text
from omidpy.storage.hbase.rpc.gateway import Client
from omidpy.storage.hbase.rpc.translate import is_declared


class OneCluster:
    """The cluster of an address, as far as its gateways have told.  Thread-safe."""

    def __init__(self, address: HBaseAddress) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._ids: dict[Gateway, str | None] = {}

    def check(self, client: Client, gateway: Gateway) -> None:
        """Hold the cluster behind a new connection against that of the other gateways.

        Raises:
            ConfigError: it is another one.
            TException, OSError: the connection does not work.

        Cost: 1 RPC for each gateway, none if there is but one.
        """
        if len(self._address.gateways) == 1 or gateway in self._ids:
            return
        try:
            found: str | None = client.call("getClusterId")
        except TException as error:
            if not is_declared(error):
                raise
            if not isinstance(error, TApplicationException):
                return
            found = None
        within(self._lock, self._compare, gateway, found)

    def _compare(self, gateway: Gateway, found: str | None) -> None:
        others = [one for one in self._ids.items() if None not in (one[1], found)]
        for other, known in others:
            if known != found:
                raise ConfigError(
                    f"the gateways {place_text(other)} and {place_text(gateway)} lead to "
                    f"two HBase clusters, {known} and {found}: correct {self._address.url}, "
                    "which may name gateways of one alone"
                )
        self._ids[gateway] = found

    def after_fork_in_child(self) -> None:
        """Forget a lock that another thread of the parent may have held."""
        self._lock = threading.Lock()
