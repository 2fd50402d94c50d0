"""A happybase connection leaves tables alone that transactions write, also from now on."""

from __future__ import annotations

import pytest

from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import UsageError
from omidpy.happybase import session
from omidpy.happybase.connection import Connection
from omidpy.happybase.session import PlainSession
from omidpy.storage.hbase.native.values import TableDescriptor


class Master:
    """HBase's master, as far as a connection asks it."""

    def __init__(self) -> None:
        """Have plain tables."""
        self.attributes: dict[bytes, bytes] = {}
        self.asked = 0
        self.dropped: list[str] = []

    def descriptor(self, table: str) -> TableDescriptor:
        """Describe a table."""
        self.asked += 1
        return TableDescriptor(table, (), self.attributes, {})

    def drop(self, table: str) -> None:
        """Remove one."""
        self.dropped.append(table)


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    """Return what connections ask."""
    made = Master()
    monkeypatch.setattr(PlainSession, "admin", made)
    return made


def connection() -> Connection:
    """Return one that has asked nobody yet."""
    return Connection("localhost", autoconnect=False)


def test_a_table_that_was_adopted_meanwhile_is_not_written(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs have connections open for months, and operators adopt tables in between."""
    now_s = 1000.0
    monkeypatch.setattr(SystemClock, "monotonic_s", lambda: now_s)
    one = connection()
    for _ in range(3):
        one.check_plain(b"t")
    assert master.asked == 1
    master.attributes[COMMIT_TABLE_ATTRIBUTE.encode()] = b"OMID_COMMIT_TABLE"
    now_s += session.PLAIN_AGE_S
    with pytest.raises(UsageError, match="written by transactions"):
        one.check_plain(b"t")


def test_a_table_that_was_adopted_a_moment_ago_is_not_removed(master: Master) -> None:
    """Nothing would bring back what transactions have written there."""
    one = connection()
    one.check_plain(b"t")
    master.attributes[COMMIT_TABLE_ATTRIBUTE.encode()] = b"OMID_COMMIT_TABLE"
    with pytest.raises(UsageError, match="written by transactions"):
        one.delete_table("t")
    assert master.dropped == []
