"""A clerk that works until it is killed, and prints a line for each transaction that committed.

python -m tests.machines.tpcc STORE ORACLE SCHEMA SEED WAREHOUSES DISTRICTS CUSTOMERS ITEMS
"""

from __future__ import annotations

import sys
import time

import omidpy
from omidpy.errors import OmidError
from tests.machines.tpcc.clerk import Clerk
from tests.machines.tpcc.tables import Size

PAUSE_S = 0.2
"""Between tries while no oracle answers."""


def main(store: str, oracle: str, schema: str, seed: int, size: Size) -> None:
    """Work for ever."""
    with omidpy.connect(store, oracle) as tm:
        clerk = Clerk(tm, schema, size, seed=seed)
        while True:
            try:
                clerk.work(1)
            except OmidError:
                time.sleep(PAUSE_S)
                continue
            print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Size(*map(int, sys.argv[5:])))
