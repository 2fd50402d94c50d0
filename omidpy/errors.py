"""Every error omidpy raises, cut along the first question after a failure, "did it commit?".

    OmidError
      TransactionAborted            certainly not committed; retryable
        WriteConflict               another transaction committed one of the cells first
        SnapshotTooOld              the oracle or the store no longer keeps what the snapshot needs
        Invalidated                 somebody forbade the commit, usually a reader after a takeover
        Fenced                      a fence was set on one of the tables after the transaction began
      CommitOutcomeUnknown          perhaps committed; `tm.outcome(error)` finds out
      AlreadyCommitted              an earlier transaction with the same idempotency key committed
      TransactionClosed             used after its end: a bug in the caller
      OracleError
        OracleUnavailable           no answer from the oracle
        LeaseLost                   this oracle may no longer answer
        LocalProtocolError          we were about to break the protocol
        RemoteProtocolError         the peer broke it
      StorageError
        StorageUnavailable          the store cannot be reached, is full, locked or read-only
        NoSuchTable  NoSuchFamily  TableExists
        NotTransactional            the table is not marked as ours
        CorruptCell                 bytes that no writer of this format produces
      UsageError                    bad arguments; also a ValueError
      FateError                     an operation cannot be submitted, changed or understood
        OperationFailed             it was rolled back, or rolling it back failed in part
        ReservationLost             somebody else has changed it since; nothing was written
      ExportError                   an export queue cannot be made, found or run
        NoSuchQueue                 there is none of this id
        QueueFull                   nothing was added; retryable
      CommitterError                output was not published; nothing of it is visible, unless it
                                    names a `plan`, which `omidpy committers plan` finishes
      ConfigError

`retryable` belongs to the instance: true exactly where running the whole transaction again from
`begin` may help and cannot apply it twice.

`Rollback` is none of them: it is raised by callers, to leave a block, and caught at its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from omidpy.model import Cell, CellName, Timestamp


class OmidError(Exception):
    """Root of every error that omidpy raises on purpose."""

    retryable: bool = False
    advice: str = ""
    """What the message ends with: how a caller may try again."""
    attempts: int | None = None
    """How often the transaction was tried; set by `tm.attempts` and `tm.transactional`."""
    wait_s: float = 0.0
    """How long to wait before trying again can help; set where the oracle says so."""
    elapsed_s: float | None = None
    """How long all tries took, pauses included; set with `attempts`."""

    def __init__(
        self, message: str = "", *, retryable: bool | None = None, advice: str = ""
    ) -> None:
        """Keep the message.

        Args:
            message: What happened, and what would help.
            retryable: Overrides the class's own answer for this instance.
            advice: How to try again: the end of the message, for callers that have not tried again
                yet.
        """
        super().__init__(f"{message}; {advice}" if advice else message)
        if retryable is not None:
            self.retryable = retryable
        if advice:
            self.advice = advice

    @property
    def event(self) -> str:
        """The message without the advice."""
        return str(self).removesuffix(f"; {self.advice}") if self.advice else str(self)

    def give_up(self, ending: str) -> None:
        """Replace the advice by how trying again has ended."""
        self.args = (f"{self.event}; {ending}",)
        self.advice = ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Cross process boundaries whole: keyword-only arguments live in the instance's dict."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(
    kind: type[OmidError], args: tuple[object, ...], state: dict[str, object]
) -> OmidError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class Rollback(Exception):
    """Raised in the block of a transaction: rolls it back, and ends the block without an error.

    It passes through savepoints, and through functions that joined the transaction.
    """


class TransactionAborted(OmidError):
    """The transaction certainly did not commit, and none of its writes will ever be visible."""

    retryable = True


class WriteConflict(TransactionAborted):
    """Another transaction committed one of the written cells after this one began.

    `cells` names the cells in conflict, each with its `table`, `row`, `family` and `qualifier`;
    empty if the oracle does not tell.
    """

    def __init__(
        self,
        message: str = "",
        *,
        cells: Sequence[CellName] = (),
        retryable: bool | None = None,
        advice: str = "",
    ) -> None:
        """Keep the message and the cells in conflict."""
        super().__init__(message, retryable=retryable, advice=advice)
        self.cells = tuple(cells)


class SnapshotTooOld(TransactionAborted):
    """The snapshot is at or below the oracle's low watermark, or below the collection horizon."""


class Invalidated(TransactionAborted):
    """The commit was forbidden by an invalidation in the commit table."""


class Fenced(TransactionAborted):
    """A fence was set on a written table after the transaction began."""


class CommitOutcomeUnknown(OmidError):
    """The transaction may or may not have committed; `tm.outcome(error)` finds out.

    Never retried blindly: `retryable` is False, unless the transaction has an idempotency key, by
    which the next one finds out.  `start_ts` names the transaction, `witness` one of the cells it
    wrote as (table, cell), whose shadow cell is evidence that outlives the commit entry; `others`
    are such cells of the other tables that it wrote.  `store_id` is the id of its store, None if
    that is not known.
    """

    store_id: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        start_ts: Timestamp,
        witness: tuple[str, Cell] | None = None,
        others: tuple[tuple[str, Cell], ...] = (),
        store_id: str | None = None,
        retryable: bool | None = None,
        advice: str = "",
    ) -> None:
        """Keep the message and what finds the outcome later."""
        super().__init__(message, retryable=retryable, advice=advice)
        self.start_ts = start_ts
        self.witness = witness
        self.others = others
        self.store_id = store_id


class AlreadyCommitted(OmidError):
    """An earlier transaction with the same idempotency key has committed; this one wrote nothing.

    `key` is the key, `start_ts` and `commit_ts` are those of the transaction that committed.  Where
    the key was used before in this very transaction, which has not committed yet, `commit_ts` is
    None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        key: bytes,
        start_ts: Timestamp,
        commit_ts: Timestamp | None,
    ) -> None:
        """Keep the message and which transaction it was."""
        super().__init__(message)
        self.key = key
        self.start_ts = start_ts
        self.commit_ts = commit_ts


class TransactionClosed(OmidError):
    """The transaction was used after its end, entered twice, or inherited across `fork`."""


class OracleError(OmidError):
    """Something is wrong between this process and the oracle.

    `was_sent` is False only where the request certainly never left: a commit that was not asked for
    has not happened.
    """

    was_sent = True


class OracleUnavailable(OracleError):
    """The oracle gave no answer; for anything but a commit, trying again is harmless."""

    retryable = True


class LeaseLost(OracleError):
    """An oracle instance lost its lease and must not answer any more."""


class LocalProtocolError(OracleError):
    """We were about to send something that the protocol forbids."""


class RemoteProtocolError(OracleError):
    """The peer sent something that the protocol forbids."""


class StorageError(OmidError):
    """Something is wrong between this process and the store.

    Attributes:
        wrote_nothing: A write that raises it has certainly changed nothing.
    """

    wrote_nothing = False


class StorageUnavailable(StorageError):
    """The store cannot be reached, is full, read-only, or its lock's holder does not move."""


class NoSuchTable(StorageError):
    """The table does not exist."""


class NoSuchFamily(StorageError):
    """The table has no such column family."""


class TableExists(StorageError):
    """A table of this name exists already."""


class NotTransactional(StorageError):
    """The table, or the family, is not marked for transactions on this commit table."""


class CorruptCell(StorageError):
    """A cell holds bytes that no writer of this format produces."""


class UsageError(OmidError, ValueError):
    """An argument is wrong; the message names it and the remedy."""


class FateError(OmidError):
    """A fault-tolerant operation cannot be submitted, changed or understood."""


class OperationFailed(FateError):
    """A fault-tolerant operation failed and was rolled back.

    `operation_id` names it, `undo_errors` says what could not be undone; empty if all was.
    """

    def __init__(
        self,
        message: str = "",
        *,
        operation_id: str = "",
        undo_errors: Sequence[str] = (),
        retryable: bool | None = None,
    ) -> None:
        """Keep the message, the operation and what is left of it."""
        super().__init__(message, retryable=retryable)
        self.operation_id = operation_id
        self.undo_errors = tuple(undo_errors)


class ReservationLost(FateError):
    """The operation was changed by another process since it was read; nothing was written."""


class ExportError(OmidError):
    """An export queue cannot be made, opened or run; no entry of it is lost."""


class NoSuchQueue(ExportError):
    """There is no export queue of this id, or it was dropped."""


class QueueFull(ExportError):
    """An export queue holds more than its limits allow, so that nothing was added to it.

    Raised inside a transaction, which then rolls back: running it again later may help.
    """

    retryable = True


class CommitterError(OmidError):
    """Output could not be published, or what is at a destination cannot be understood.

    `plan` is empty: nothing of the job is visible, and nothing of it will be.  Otherwise it is the
    address of the job's durable plan, which was begun and is to be resumed or rolled back.
    """

    def __init__(self, message: str = "", *, plan: str = "", retryable: bool | None = None) -> None:
        """Keep the message and the address of the plan."""
        super().__init__(message, retryable=retryable)
        self.plan = plan


class ConfigError(OmidError):
    """A setting, an address or a file does not fit; nothing was started."""
