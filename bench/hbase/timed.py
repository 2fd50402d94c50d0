"""How long does each call of a gateway take, as the process that makes it sees it?

As a program it is a `tso-server` that writes down its own calls when it ends:

    python -m bench.hbase.timed FILE --store URL ...
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from omidpy.storage.hbase.pool import GatewayPool
from tso.cli import main

Calls: TypeAlias = dict[str, list[float]]
"""Seconds of each call, by method and table."""


@contextmanager
def timed_calls() -> Iterator[Calls]:
    """Time every call that this process makes within the block."""
    calls: Calls = defaultdict(list)
    original = GatewayPool.call

    def call(self: GatewayPool, method: str, *args: Any, **more: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return original(self, method, *args, **more)
        finally:
            calls[f"{method} {more.get('table')}"].append(time.perf_counter() - began_s)

    GatewayPool.call = call  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        GatewayPool.call = original  # type: ignore[method-assign]


if __name__ == "__main__":
    with timed_calls() as found:
        status = main(sys.argv[2:])
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(found))
    sys.exit(status)
