"""Transactions for HBase and for one file, from Python.

    import omidpy

    tm = omidpy.connect("sqlite:///bank.db")
    tm.create_table("accounts", families=["cf"])
    with tm.begin() as tx:
        tx.table("accounts").put(b"alice", {b"cf:balance": b"100"})

The oracle is the package `tso`, the nightly job the package `compactor`; neither is imported here.
"""

from __future__ import annotations

from omidpy import codec, errors
from omidpy.base.installation import VERSION
from omidpy.connect import connect
from omidpy.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    CommitterError,
    ConfigError,
    CorruptCell,
    ExportError,
    FateError,
    Fenced,
    Invalidated,
    LeaseLost,
    LocalProtocolError,
    NoSuchFamily,
    NoSuchQueue,
    NoSuchTable,
    NotTransactional,
    OmidError,
    OperationFailed,
    OracleError,
    OracleUnavailable,
    QueueFull,
    RemoteProtocolError,
    ReservationLost,
    Rollback,
    SnapshotTooOld,
    StorageError,
    StorageUnavailable,
    TableExists,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.manager import TransactionManager
from omidpy.model import (
    Aborted,
    Change,
    ChangeKind,
    Committed,
    Forgotten,
    Outcome,
    TransactionStatus,
    Undecided,
)
from omidpy.reading.changes.feed import ChangeFeed
from omidpy.tx.transaction import Transaction

__version__ = VERSION

__all__ = [
    "Aborted",
    "AlreadyCommitted",
    "Change",
    "ChangeFeed",
    "ChangeKind",
    "CommitOutcomeUnknown",
    "Committed",
    "CommitterError",
    "ConfigError",
    "CorruptCell",
    "ExportError",
    "FateError",
    "Fenced",
    "Forgotten",
    "Invalidated",
    "LeaseLost",
    "LocalProtocolError",
    "NoSuchFamily",
    "NoSuchQueue",
    "NoSuchTable",
    "NotTransactional",
    "OmidError",
    "OperationFailed",
    "OracleError",
    "OracleUnavailable",
    "Outcome",
    "QueueFull",
    "RemoteProtocolError",
    "ReservationLost",
    "Rollback",
    "SnapshotTooOld",
    "StorageError",
    "StorageUnavailable",
    "TableExists",
    "Transaction",
    "TransactionAborted",
    "TransactionClosed",
    "TransactionManager",
    "TransactionStatus",
    "Undecided",
    "UsageError",
    "WriteConflict",
    "__version__",
    "codec",
    "connect",
    "errors",
]
