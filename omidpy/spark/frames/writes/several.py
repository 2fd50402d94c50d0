"""A frame that is written in many transactions: those of a task, and the end of all of them.

Each attempt at a task commits what it writes, so that one which is late, because it stood still or
because Spark runs a task twice at once, would write its old rows over newer ones for as long as it
lives: its transactions begin anew where they conflict.  So each task has a row among the keys
(`omidpy/tx/keys.py`), which says that it is under way, or has ended, and which attempt has come to
its end, by the number that Spark gives each in the order in which it begins them:

    a task's transaction    reads the row, is refused if it says ended, or if an attempt has come to
                            its end that began later, and writes it
    the end of an attempt   writes that it has come to its end
    the end of the job      writes that all have ended, before Spark is told anything

A transaction that has begun before the end conflicts with it, and aborts; one that begins behind it
sees it.  Two attempts at one task conflict, too, and come one after the other.

An attempt that began behind one that has come to its end writes all of it again: Spark begins it
where the answer of that one was lost, and rows may have gone from task to task since.

Rows are forgotten as keys are.  Of a driver that died the tasks never end; its job has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from omidpy.base.tables import KEYS_TABLE
from omidpy.errors import ConfigError, TransactionClosed
from omidpy.manager import TransactionManager
from omidpy.tx.keys import COLUMN, USED, find_use, key_row, open_keys
from omidpy.tx.session import Session
from omidpy.tx.transaction import Transaction

_TASK_KEY: Final = b"\x00task\x00"
"""What the keys of tasks begin with, beside those of writes and of streams."""
_UNDER_WAY: Final = USED + b" task"
_ENDED: Final = USED + b" ended"
_NONE: Final = -1
"""No attempt has come to its end."""
ENDED_AT_ONCE: Final = 1000
"""Tasks whose end is one transaction."""


def can_end(session: Session) -> bool:
    """Say whether the tasks of a job can be ended: not through a gateway that makes no table.

    Raises:
        ConfigError: what has the name of the table of keys is none.

    Cost: as `open_keys`.
    """
    try:
        open_keys(session)
    except ConfigError:
        if session.store.capabilities.checked_changes:
            raise
        return False
    return True


def check_under_way(
    tx: Transaction, job: str, task: int, attempt: int, *, is_last: bool = False
) -> None:
    """Let a transaction of a task commit only if the attempt is not late by then.

    Args:
        tx: The transaction.
        job: The name of the job.
        task: Which task.
        attempt: Which attempt at it; those that begin later have greater numbers.
        is_last: The attempt has come to its end.

    Raises:
        TransactionClosed: it is late.

    Cost: 1 get, and 1 cell more in the commit.
    """
    row = _row(tx, job, task)
    use = find_use(tx.snapshot, row)
    done = _NONE
    if use is not None:
        if use.value == _ENDED:
            raise _too_late(task, "its job has ended without it")
        done = int(use.value.removeprefix(_UNDER_WAY) or _NONE)
    if attempt < done:
        raise _too_late(task, "another one, which began later, has come to its end")
    said = attempt if is_last else done
    tx.table(KEYS_TABLE).put(row, {COLUMN: b"%b %d" % (_UNDER_WAY, said)})


def _too_late(task: int, why: str) -> TransactionClosed:
    return TransactionClosed(
        f"this attempt at task {task} comes too late: {why}, and what it has not written yet is "
        "not written any more"
    )


def end(tm: TransactionManager, job: str, count: int) -> None:
    """Let no attempt at the tasks of a job, so many, commit anything from now on.

    Raises:
        OmidError: some may.

    Cost: 1 transaction for each `ENDED_AT_ONCE` tasks, more where late attempts are under way.
    """
    open_keys(tm.session)
    for first in range(0, count, ENDED_AT_ONCE):
        for attempt in tm.attempts():
            with attempt as tx:
                keys = tx.table(KEYS_TABLE)
                for task in range(first, min(first + ENDED_AT_ONCE, count)):
                    keys.put(_row(tx, job, task), {COLUMN: _ENDED})


def groups(batches: Iterable[Any], most_rows: int) -> Iterator[list[Any]]:
    """Yield batches of so many rows together, the last ones fewer."""
    group: list[Any] = []
    left = most_rows
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, left)
            group.append(part)
            at += part.num_rows
            left -= part.num_rows
            if not left:
                yield group
                group, left = [], most_rows
    if group:
        yield group


def _row(tx: Transaction, job: str, task: int) -> bytes:
    key = _TASK_KEY + f"{job}-{task}".encode()
    return key_row(key, table_prefix=tx.session.catalog.table_prefix)
