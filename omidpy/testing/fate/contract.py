"""The tests that hold every store of operations to what `omidpy.fate.store.FateStore` says.

A store's test inherits `FateStoreContract` and supplies a fixture `fates` that yields an empty
store, and the methods `reopen` and `let_die`.  Needs pytest, and nothing of the store but the
protocol.
"""

from __future__ import annotations

from omidpy.testing.fate.queues import Queues
from omidpy.testing.fate.records import Records
from omidpy.testing.fate.submissions import Submissions
from omidpy.testing.fate.workers import Workers


class FateStoreContract(Records, Submissions, Workers, Queues):
    """Every sentence of the protocol, as a test."""
