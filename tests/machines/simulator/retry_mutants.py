"""Idempotency keys and attempts with a guard taken out, by name."""

from __future__ import annotations

from typing import Any, Final

from compactor.run import steps
from omidpy.base.tables import KEYS_TABLE
from omidpy.errors import AlreadyCommitted
from omidpy.model import Committed
from omidpy.tx import transaction
from omidpy.tx.keys import COLUMN, USED, find_use, key_row, open_keys, used_before
from omidpy.tx.retry import Attempt
from omidpy.tx.transaction import Transaction
from tests.machines.simulator.mutants import BUSY, SLOW_TO_WRITE
from tests.machines.simulator.simulation import Mutant, Parts, Patch

RETRYING: Final = BUSY._replace(
    retriers=(3,), retry_pauses_s=(0.3,), pauses_s=(3.0,), workloads=(("long fork",),)
)
"""Orders that several carry out, and little else."""


def finds_none(*_: Any) -> None:
    """Take every key for free."""


def uses_it_freely(self: Transaction, key: bytes) -> None:
    """Note a key where two transactions can do so at one time."""
    open_keys(self._session)
    row = key_row(key, table_prefix=self._session.catalog.table_prefix)
    if (use := find_use(self._snapshot, row)) is not None:
        raise used_before(key, start_ts=use.start_ts, commit_ts=use.commit_ts)
    self.table(KEYS_TABLE, conflict_free=True).put(row, {COLUMN: USED})


def settles_whatever(self: Attempt, found: AlreadyCommitted) -> bool:
    """Take the commit of another for one's own."""
    self._transaction.learn(Committed(found.commit_ts))
    self.error, self.succeeded = None, True
    return True


def keeps_none(_: Any, low_watermark: Any, **__: Any) -> Any:
    """Forget keys as soon as nobody who has not seen them can commit."""
    return low_watermark


RETRY_MUTANTS: Final[dict[str, Mutant]] = {
    "used key not looked for": Mutant(
        Parts(patches=(Patch(transaction, "find_use", finds_none),)), "order", RETRYING
    ),
    "key that two use at once": Mutant(
        Parts(patches=(Patch(Transaction, "use_key", uses_it_freely),)),
        "order",
        RETRYING._replace(retry_thinking_shares=(0.5,)),
    ),
    "another's order taken for one's own": Mutant(
        Parts(patches=(Patch(Attempt, "settle", settles_whatever),)),
        "I9|I8",
        SLOW_TO_WRITE._replace(
            retriers=(3,), retry_pauses_s=(0.3,), pauses_s=(3.0,), retry_budgets_s=((10.0,),)
        ),
    ),
    "keys forgotten at once": Mutant(
        Parts(patches=(Patch(steps, "keys_horizon", keeps_none),)),
        "order",
        RETRYING._replace(compactors=(2,), compaction_pauses_s=(0.5,)),
    ),
}
"""By name."""
