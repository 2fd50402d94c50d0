"""Omid's `HBaseTransactionManager`, with the words of our own client, so that one test reads both.

    java = JavaManager(driver, connect=server.address)
    with java.begin() as tx:
        tx.put("accounts", b"alice", {b"cf:balance": b"100"})
        tx.row("accounts", b"alice")

Rows are dictionaries from `family:qualifier` to value, as ours are.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pytest

from tests.machines.java import JavaDied, JavaDriver, JavaError

_numbers = itertools.count(1)


class JavaManager:
    """One of Omid's transaction managers."""

    def __init__(
        self,
        driver: JavaDriver,
        connect: str,
        *,
        level: str = "CELL",
        mode: str = "DIRECT",
        **options: Any,
    ) -> None:
        """Make it, of an oracle at `connect`: HOST:PORT, or with mode `HA` a ZooKeeper's."""
        self.driver = driver
        self.name = f"manager-{next(_numbers)}"
        driver.call(
            "tm.open", manager=self.name, connect=connect, level=level, mode=mode, **options
        )

    def begin(self) -> JavaTransaction:
        """Begin a transaction."""
        name = f"tx-{next(_numbers)}"
        return JavaTransaction(self, name, self.driver.call("tx.begin", manager=self.name, tx=name))

    def fence(self, table: str) -> JavaTransaction:
        """Return a transaction that began with a fence of `table`."""
        name = f"tx-{next(_numbers)}"
        begun = self.driver.call("tm.fence", manager=self.name, tx=name, table=table)
        return JavaTransaction(self, name, begun)

    @property
    def low_watermark(self) -> int:
        """Omid's own reading of the low watermark."""
        watermark: int = self.driver.call("tm.low_watermark", manager=self.name)
        return watermark

    def ends_at(self, point: str, *, ends_process: bool = False) -> None:
        """Have the next commit end at `point`, see `Mortality.Point` in the driver.

        Without `ends_process` the transaction is left as a dead client would leave it, and the
        process lives on for the rest of the test.
        """
        self.driver.call("tm.dies", manager=self.name, point=point, ends_process=ends_process)

    def close(self) -> None:
        """Give up its connections."""
        self.driver.call("tm.close", manager=self.name)


class JavaTransaction:
    """One of Omid's transactions.  As a context it commits on a clean exit, like ours."""

    def __init__(self, manager: JavaManager, name: str, begun: Mapping[str, int]) -> None:
        """Take over what the driver began."""
        self._manager = manager
        self._name = name
        self.start_ts = begun["start"]
        self.epoch = begun["epoch"]
        self.commit_ts: int | None = None

    def call(self, do: str, **arguments: Any) -> Any:
        """Do one thing in it."""
        return self._manager.driver.call(f"tx.{do}", tx=self._name, **arguments)

    def put(self, table: str, row: bytes, data: Mapping[bytes, bytes], **options: Any) -> None:
        """Write a row's cells."""
        cells = [[*_column(name), value.hex()] for name, value in data.items()]
        self.call("put", table=table, row=row.hex(), cells=cells, **options)

    def delete(self, table: str, row: bytes, columns: Sequence[bytes] = (), **options: Any) -> None:
        """Delete columns (`cf:q`), families (`cf`), or without any the row."""
        self.call(
            "delete",
            table=table,
            row=row.hex(),
            columns=[_column(name) for name in columns if b":" in name],
            families=[name.hex() for name in columns if b":" not in name],
            **options,
        )

    def row(self, table: str, row: bytes, columns: Sequence[bytes] = ()) -> dict[bytes, bytes]:
        """Read a row; empty when it is absent."""
        cells = self.call(
            "get", table=table, row=row.hex(), columns=[_column(name) for name in columns]
        )
        return _row(cells)

    def scan(self, table: str, **options: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """Read the rows of a table, in order."""
        rows = self.call("scan", table=table, **options)
        return [(bytes.fromhex(key), _row(cells)) for key, cells in rows]

    def checkpoint(self) -> int:
        """Write what follows at a higher version."""
        version: int = self.call("checkpoint")
        return version

    def set_rollback_only(self) -> None:
        """Forbid its commit."""
        self.call("rollback_only")

    def commit(self) -> int:
        """Commit; return the commit timestamp, 0 where there was nothing to commit.

        Raises:
            JavaError: `RollbackException` if it certainly did not commit.
        """
        ended = self.call("commit")
        commit_ts: int = ended["commit"]
        self.commit_ts = commit_ts
        return commit_ts

    def rollback(self) -> None:
        """Remove its cells."""
        assert self.call("rollback")["status"] == "ROLLEDBACK"

    def is_refused(self) -> None:
        """Try to commit, and be rolled back."""
        with pytest.raises(JavaError) as caught:
            self.commit()
        assert caught.value.type == "RollbackException", caught.value

    def is_abandoned(self) -> None:
        """Commit until the client's end, as the manager was told, in a process that lives on."""
        with pytest.raises(JavaError, match=r"abandoned"):
            self.commit()

    def is_killed(self) -> None:
        """Commit until the process's end."""
        with pytest.raises(JavaDied):
            self.commit()
        assert self._manager.driver.wait_for_end() != 0

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit, or roll back after an error."""
        if error is None:
            self.commit()
        else:
            self.rollback()


def _column(name: bytes) -> list[str]:
    family, _, qualifier = name.partition(b":")
    return [family.hex(), qualifier.hex()]


def _row(cells: Sequence[tuple[str, str, int, str]]) -> dict[bytes, bytes]:
    return {
        bytes.fromhex(family) + b":" + bytes.fromhex(qualifier): bytes.fromhex(value)
        for family, qualifier, _, value in cells
    }
