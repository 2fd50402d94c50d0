"""How long does each call of a process take, as that process sees it?

As a program it is a `tso-server` that writes down its own calls when it ends:

    python -m bench.hbase.timed FILE --store URL ...
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.hbase.rpc.gateway import GatewayClient
from omidpy.storage.hbase.rpc.pool import GatewayPool
from tso.cli import main

Calls: TypeAlias = dict[str, list[float]]
"""Seconds of each call in order.

By `gateway METHOD TABLE`, `gateway METHOD, METHOD` for calls that did not wait for each other,
`oracle begin` or `oracle commit`.
"""

BEGIN: Final = "oracle begin"
COMMIT: Final = "oracle commit"


@contextmanager
def timed_calls() -> Iterator[Calls]:
    """Time every call of a gateway or of an oracle that this process makes within the block."""
    calls: Calls = defaultdict(list)
    with ExitStack() as patches:
        for owner, method in (
            (GatewayPool, "call"),
            (GatewayClient, "call_ahead"),
            (TcpOracle, "begin"),
            (TcpOracle, "commit"),
        ):
            patches.enter_context(_timed(owner, method, calls))
        yield calls


@contextmanager
def _timed(owner: type[Any], method: str, calls: Calls) -> Iterator[None]:
    original = getattr(owner, method)

    def call(self: Any, *args: Any, **more: Any) -> Any:
        name = f"oracle {method}"
        if owner is GatewayPool:
            name = f"gateway {args[0]} {more.get('table')}"
        elif owner is GatewayClient:
            name = "gateway " + ", ".join(called for called, _ in args[0])
        began_s = time.perf_counter()
        try:
            return original(self, *args, **more)
        finally:
            calls[name].append(time.perf_counter() - began_s)

    setattr(owner, method, call)
    try:
        yield
    finally:
        setattr(owner, method, original)


if __name__ == "__main__":
    with timed_calls() as found:
        status = main(sys.argv[2:])
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(found))
    sys.exit(status)
