"""Who removes a table notes it, so that readers by a timestamp are told; nobody else is."""

from __future__ import annotations

from typing import Final

import pytest

from compactor.tables.adoption import adopt, plan_adoption
from omidpy.base.tables import incarnation
from omidpy.errors import NoSuchTable, OracleUnavailable, SnapshotTooOld, StorageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.removed import (
    MOST_REMOVED,
    Removals,
    forget_removal,
    note_removal,
    removed_row,
)
from omidpy.manager import TransactionManager
from omidpy.model import Timestamp
from omidpy.testing.faults import FaultyStore, on
from tests.machines.clients import TABLE, Client

NOW: Final = Timestamp(500)


def which(client: Client) -> str:
    """Return the incarnation of the table."""
    return incarnation(client.store.schema(TABLE))


def renew(client: Client) -> None:
    """Drop the table past all that notes it, and make another."""
    client.store.drop_table(TABLE)
    client.tm.create_table(TABLE, ["cf"])


def test_the_newest_removal_counts() -> None:
    """A reader from before any of them has lost something, one from behind it has not."""
    client, removals = Client(), None
    removals = Removals(client.store)
    assert removals.behind(TABLE, Timestamp(0)) is None
    for at_ts in (500, 700):
        note_removal(client.store, TABLE, which(client), Timestamp(at_ts))
        renew(client)
    assert removals.behind(TABLE, Timestamp(0)) == 700
    assert removals.behind(TABLE, Timestamp(699)) == 700
    assert removals.behind(TABLE, Timestamp(700)) is None
    removals.check(TABLE, Timestamp(700))
    with pytest.raises(StorageError, match="'t' was dropped or truncated at 700, after the snap"):
        removals.check(TABLE, Timestamp(699))


def test_a_table_that_is_there_was_not_removed() -> None:
    """Its note came before the removal, and that did not."""
    client = Client()
    removals = Removals(client.store)
    note_removal(client.store, TABLE, which(client), NOW)
    assert removals.behind(TABLE, Timestamp(0)) is None
    renew(client)
    note_removal(client.store, TABLE, which(client), Timestamp(900))
    assert removals.behind(TABLE, Timestamp(0)) == NOW


def test_who_comes_too_late_notes_nothing() -> None:
    """What was drawn since is above what was committed to the next table, perhaps."""
    client = Client()
    gone = which(client)
    renew(client)
    note_removal(client.store, TABLE, gone, Timestamp(900))
    assert ControlTable(client.store).read(removed_row(TABLE)) is None
    client.store.drop_table(TABLE)
    with pytest.raises(NoSuchTable):
        note_removal(client.store, TABLE, gone, Timestamp(900))


def test_a_name_that_is_used_again_and_again_has_few_notes() -> None:
    """No cost grows with what is over."""
    client = Client()
    sizes = []
    for count in range(3 * MOST_REMOVED):
        note_removal(client.store, TABLE, which(client), Timestamp(1000 + count))
        renew(client)
        sizes.append(len(ControlTable(client.store).read(removed_row(TABLE)) or b""))
    assert sizes[-1] == sizes[MOST_REMOVED]
    assert Removals(client.store).behind(TABLE, Timestamp(0)) == 1000 + 3 * MOST_REMOVED - 1


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b'[{"which":1}]'])
def test_a_garbled_note_says_nothing_and_is_written_over(raw: bytes) -> None:
    """It stops neither readers nor the next removal."""
    client = Client()
    ControlTable(client.store).write(removed_row(TABLE), raw)
    assert Removals(client.store).behind(TABLE, Timestamp(0)) is None
    forget_removal(client.store, TABLE, "x")
    since = client.write()
    client.tm.drop_table(TABLE)
    client.tm.create_table(TABLE, ["cf"])
    with pytest.raises(SnapshotTooOld, match="dropped or truncated"):
        list(client.tm.changes(TABLE, since=since))


def test_a_table_that_is_kept_is_not_an_earlier_one() -> None:
    """It gets another incarnation, by which who was to remove it does not, and has its rows."""
    client = Client()
    since = client.write() - 1
    failing = FaultyStore(client.store, on("drop_table.before", OracleUnavailable("gone")))
    with pytest.raises(OracleUnavailable):
        TransactionManager(failing, client.oracle, clock=client.clock).drop_table(TABLE)
    assert ControlTable(client.store).read(removed_row(TABLE)) is not None
    plan = plan_adoption(client.store, TABLE, COMMIT_TABLE)
    adopt(client.store, plan, COMMIT_TABLE, reopens=True)
    assert [one.row for one in client.tm.changes(TABLE, since=since)] == [b"r"]
