"""A Python program that moves units between accounts in a table of Phoenix's until it is killed.

    python -m tests.machines.phoenix_transfers STORE ORACLE TABLE ACCOUNTS SEED

Account K has its balance in N.  Beside it clients of Phoenix do the same (`Connection.transfers`).
"""

from __future__ import annotations

import random
import sys
import time

import omidpy
from omidpy import phoenix
from omidpy.errors import OmidError

PAUSE_S = 0.2
"""Between tries while no oracle answers."""


def main(store: str, oracle: str, table: str, accounts: int, seed: int) -> None:
    """Move for ever."""
    chance = random.Random(seed)
    with omidpy.connect(store, oracle) as tm:
        balances = phoenix.table(tm, table)
        while True:
            source, target = chance.sample(range(accounts), 2)
            try:
                with tm.begin() as tx:
                    for number, change in ((source, -1), (target, 1)):
                        row = balances.get(tx, f"a{number:03}")
                        assert row is not None, "no account is ever deleted"
                        balances.put(tx, {"K": row["K"], "N": row["N"] + change})
            except OmidError as error:
                if not error.retryable:
                    time.sleep(PAUSE_S)
                continue
            print("moved", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
