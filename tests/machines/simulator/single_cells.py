"""Workloads of single cells that others write than a client in its own turn.

A client makes their table, and in the end looks at every cell; what is written meanwhile is theirs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from omidpy.testing.anomalies import Anomaly
from omidpy.testing.checkers import check_registers
from omidpy.testing.clients import Client, Steps
from omidpy.testing.history import Recorded, TransactionRecord
from omidpy.testing.workloads import COLUMN, FAMILY
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction


def reads_of(table: TransactionalTable, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Read cells in one call; return what `TransactionRecord.read` is told of each."""
    rows = dict(table.rows([key.encode() for key in keys], include_timestamp=True))
    found = ((key, rows.get(key.encode(), {}).get(COLUMN)) for key in keys)
    return [(key, None) if pair is None else (key, int(pair[0]), pair[1]) for key, pair in found]


def read_into(table: TransactionalTable, record: TransactionRecord, keys: Sequence[str]) -> None:
    """Read cells in one call, and note what was found."""
    for read in reads_of(table, keys):
        record.read(*read)


class SingleCells(ABC):
    """Cells of one table, each judged by itself."""

    table: str

    @property
    @abstractmethod
    def name(self) -> str:
        """The workload's, in histories."""

    def prepare(self, client: Client) -> Steps:
        """Make the table."""
        client.tm.create_table(self.table, [FAMILY])
        yield

    def transaction(self, client: Client) -> Steps:
        """Do nothing: those do it whose cells they are."""
        del client
        yield

    def last_look(self, client: Client, keys: Iterable[str]) -> Steps:
        """Read every cell that was ever written."""
        wanted = list(keys)

        def body(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            read_into(table, record, wanted)
            yield

        return client.transaction(self, body, rollback_share=0)

    def check(self, history: Sequence[Recorded]) -> list[Anomaly]:
        """Judge each cell."""
        return check_registers(history)
