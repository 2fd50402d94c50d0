"""Calls of a Thrift2 gateway with nothing of ours between: its own IDL, thriftpy2's client.

For tests of the runtime itself, for what a test wants to see or spoil behind our back, and as the
measure of what we add.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import thriftpy2
from thriftpy2.rpc import make_client

from tests.machines.hbase.server import HBase

TIMEOUT_MS = 60_000


def gateway_idl(hbase: HBase) -> ModuleType:
    """Load the IDL that came with the gateway; loaded once for each path."""
    loaded: ModuleType = thriftpy2.load(
        str(hbase.idl_dir / "thrift2" / "hbase.thrift"), module_name="gateway_hbase2_thrift"
    )
    return loaded


@contextmanager
def bare_client(hbase: HBase, address: str | None = None) -> Iterator[Any]:
    """Connect to a gateway, the first if none is named; one call at a time."""
    host, port = (address or hbase.gateways[0]).rsplit(":", 1)
    service = gateway_idl(hbase).THBaseService
    client = make_client(service, host, int(port), timeout=TIMEOUT_MS)
    try:
        yield client
    finally:
        client.close()
