"""Operations of several steps that survive the death of their executor.

    from omidpy.fate import Done, Fate, Step, TableFateStore, step

Steps are in `step.py`, what is known of an operation in `operation.py`, and who runs it in
`running/executor.py`.
"""

from __future__ import annotations

from omidpy.fate.client import Fate, OperationHandle
from omidpy.fate.locks import Locks
from omidpy.fate.operation import Failure, Operation, Status
from omidpy.fate.running.sweep import Keep
from omidpy.fate.step import Again, Defer, Done, Retry, Step, StepContext, step
from omidpy.fate.table.store import TableFateStore
from omidpy.fate.zookeeper.store import ZooKeeperFateStore

__all__ = [
    "Again",
    "Defer",
    "Done",
    "Failure",
    "Fate",
    "Keep",
    "Locks",
    "Operation",
    "OperationHandle",
    "Retry",
    "Status",
    "Step",
    "StepContext",
    "TableFateStore",
    "ZooKeeperFateStore",
    "step",
]
