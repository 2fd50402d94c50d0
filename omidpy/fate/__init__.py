"""Operations of several steps that survive the death of their executor.

Steps are in `step.py`, what is known of an operation in `operation.py`, and where it is kept in
`store.py` and `table_store.py`.
"""

from __future__ import annotations

from omidpy.fate.locks import Locks
from omidpy.fate.operation import Failure, Operation, Status
from omidpy.fate.step import Again, Defer, Done, Retry, Step, StepContext, step
from omidpy.fate.table_store import TableFateStore

__all__ = [
    "Again",
    "Defer",
    "Done",
    "Failure",
    "Locks",
    "Operation",
    "Retry",
    "Status",
    "Step",
    "StepContext",
    "TableFateStore",
    "step",
]
