"""What if a gateway looks for a region where it is no more?

A gateway remembers where regions are, and corrects itself by what region servers tell it.  HBase
has a case in which that takes minutes.  A region moves to another server and back, as in a rolling
restart, and within two minutes is merged, split or dropped.  Each of the two servers then goes on
saying for two minutes that it moved to the other one, and HBase's client follows them to and fro:
it asks the catalogue only once a server knows nothing of a region.  Meanwhile a client that asks
for a row of it hears nothing, and in the end that retries are exhausted; a table dropped and
created anew under the same name is no better off.

So a thread that has waited for a while asks the same gateway where all regions of the table are.
For that it reads the catalogue and corrects its memory, and also the call that it is busy with goes
where it should: measured, 0.6 s later.  Before a call that failed for such a reason is made again,
it is asked likewise.

A table that was dropped and created anew needs more: a gateway keeps the place that has the higher
sequence number, and that of a region of the old table, which moved often, is higher than a new
one's.  So where a look-up did not help, the next one makes it forget the place of each region.
Thrift1 has no call for that.

It is an attempt to help: it has a connection of its own for a few seconds at most, and its failure
concerns no client.  Each table is looked up once in `EVERY_S` at each gateway, however many wait
for it.

Source: measured with HBase 2.6.4 and gateways 2.6.1; read in their code: the opening of a region
removes no earlier move from a server's memory, which keeps it for a fixed 120 s, and scans look up
every repetition in the client's cache.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from thriftpy2.thrift import TException

from omidpy.errors import OmidError
from omidpy.storage.hbase.addresses.gateways import Gateway, HBaseAddress
from omidpy.storage.hbase.addresses.spelling import place_text
from omidpy.storage.hbase.rpc.gateway import CallNotSent, Client, open_client
from omidpy.storage.hbase.rpc.translate import is_declared, is_transient

_logger = logging.getLogger(__name__)

LONGEST_S: Final = 5.0
"""How long a look-up may take, to connect and to hear of each."""
EVERY_S: Final = 3.0
"""How often a table is looked up at a gateway at most."""

AGAIN_S: Final = 30.0
"""A look-up so soon after another says that the first has not helped."""

_METHODS: Final = {"thrift1": "getTableRegions", "thrift2": "getAllRegionLocations"}


class Places:
    """Makes gateways look up where the regions of a table are.  Thread-safe without a lock."""

    def __init__(
        self,
        address: HBaseAddress,
        open_client: Callable[[str, int], Client] | None,
        now_s: Callable[[], float],
    ) -> None:
        """Begin without having looked up anything; None opens clients as `address` says."""
        self._open_client = open_client or self._open_impatiently
        self._impatient = replace(
            address,
            timeout_s=min(address.timeout_s, LONGEST_S),
            connect_timeout_s=min(address.connect_timeout_s, LONGEST_S),
        )
        self._now_s = now_s
        self._looked_up_s: dict[tuple[Gateway, str], float] = {}

    def look_up(self, gateway: Gateway, table: str | None) -> None:
        """Make a gateway look up where the regions of a table are, unless it just did.

        None is no table, and nothing to look up.

        Cost: a connection and 1 RPC, which reads the catalogue's rows of the table; 1 more for each
        region within `AGAIN_S` of the last one.
        """
        if table is None:
            return
        now_s = self._now_s()
        # Two threads may both find it to be long ago; then it is looked up twice.
        since_last_s = now_s - self._looked_up_s.get((gateway, table), -math.inf)
        if since_last_s < EVERY_S:
            return
        self._looked_up_s[gateway, table] = now_s
        _logger.info(
            "a call on table %r waits, or failed: the gateway %s is made to look up its regions",
            table,
            place_text(gateway),
        )
        with contextlib.suppress(TException, CallNotSent, OSError, EOFError, OmidError):
            client = self._open_client(*gateway)
            try:
                found = client.call(_METHODS[self._impatient.api], table.encode())
                if since_last_s < AGAIN_S and self._impatient.api == "thrift2":
                    self._forget(client, table, found, now_s + LONGEST_S)
            finally:
                client.close()

    def _forget(self, client: Client, table: str, found: Sequence[Any], until_s: float) -> None:
        """Make a gateway forget where each region was, and read it from the catalogue."""
        for place in found:
            if self._now_s() >= until_s:
                return
            client.call("getRegionLocation", table.encode(), place.regionInfo.startKey, True)

    def _open_impatiently(self, host: str, port: int) -> Client:
        return open_client(self._impatient, host, port)


def may_be_misled(error: BaseException) -> bool:
    """Say whether a call may have failed because its gateway looked in the wrong place."""
    return isinstance(error, TimeoutError) or (is_declared(error) and is_transient(error))
