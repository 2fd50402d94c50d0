"""What `cells` finds out about the versions of one column, and what it leaves in the store."""

from __future__ import annotations

import pytest

from omidpy.errors import NoSuchFamily, SnapshotTooOld, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Timestamp
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from tests.machines.clients import TABLE, Client

COLUMN = b"cf:q"


@pytest.fixture
def client() -> Client:
    """Return a manager whose commits leave everything to readers."""
    return Client(FaultyStore(MemoryStore()), post_commit="none")


def test_commits_without_a_shadow_cell_are_found_and_healed(client: Client) -> None:
    """As by every reader; the second look finds the shadow cells."""
    for number in range(3):
        client.write(value=b"%d" % number)
    assert len(client.raw_shadows()) == 0
    with client.tm.begin() as tx:
        assert tx.table(TABLE).cells(b"r", COLUMN) == [b"2", b"1", b"0"]
        assert len(client.raw_shadows()) == client.tm.metrics.healed_cells == 3
        assert tx.table(TABLE).cells(b"r", COLUMN) == [b"2", b"1", b"0"]
    assert client.tm.metrics.healed_cells == 3


def test_what_nobody_committed_is_not_shown(client: Client) -> None:
    """Neither above a committed value nor below one."""
    client.write(value=b"first")
    open_tx = client.tm.begin()
    open_tx.table(TABLE).put(b"r", {COLUMN: b"open"})
    open_tx.flush()
    client.write(value=b"second")
    dead = client.tm.begin()
    dead.table(TABLE).put(b"r", {COLUMN: b"dead"})
    dead.flush()
    with client.tm.begin() as tx:
        assert tx.table(TABLE).cells(b"r", COLUMN) == [b"second", b"first"]


def test_all_versions_come_with_one_get(client: Client) -> None:
    """Where all of them have their shadow cells."""
    client.tm.session.post_committer = Client(
        client.store, table=None
    ).tm.session.post_committer  # completes
    for number in range(10):
        client.write(value=b"%d" % number)
    assert isinstance(client.store, FaultyStore)
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        before = client.store.calls["get"]
        assert len(table.cells(b"r", COLUMN)) == 10
        assert client.store.calls["get"] == before + 1


def test_a_cell_that_is_taken_away_meanwhile_is_read_past(client: Client) -> None:
    """Its row is read again: what it had hidden may have gone with it."""
    client.write(value=b"first")
    other = client.tm.begin()
    other.table(TABLE).put(b"r", {COLUMN: b"rolled back"})
    other.flush()
    assert isinstance(client.store, FaultyStore)
    # After the row was read, and before its cells are resolved.
    client.store.plans.append(on("get.before", other.rollback, nth=1, table=COMMIT_TABLE))
    with client.tm.begin() as tx:
        assert tx.table(TABLE).cells(b"r", COLUMN) == [b"first"]
    assert other.status == "rolled_back"


def test_a_snapshot_below_the_horizon_shows_nothing(client: Client) -> None:
    """What it needs may have been collected."""
    client.write()
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        watermarks = client.tm.session.reader.watermarks
        watermarks.publish_collection_horizon(Timestamp(tx.start_ts + 50), client.clock)
        tx.flush()
        client.clock.advance(3600)  # type: ignore[attr-defined]  # a clock that is cranked
        with pytest.raises(SnapshotTooOld):
            table.cells(b"r", COLUMN)


def test_of_writes_without_conflicts_those_that_were_seen_are_shown(client: Client) -> None:
    """The one that began first and committed last was never seen by anybody."""
    first, second = client.tm.begin(), client.tm.begin()
    for tx, value in ((first, b"first"), (second, b"second")):
        tx.table(TABLE, conflict_free=True).put(b"r", {COLUMN: value})
    second.commit()
    first.commit()
    with client.tm.begin() as tx:
        assert tx.table(TABLE).cells(b"r", COLUMN) == [b"second"]


def test_wrong_arguments_are_named(client: Client) -> None:
    """As in every read."""
    table = client.tm.begin().table(TABLE)
    with pytest.raises(UsageError, match="timestamp=5 cannot be honoured"):
        table.cells(b"r", COLUMN, timestamp=5)  # type: ignore[arg-type]  # the point
    with pytest.raises(UsageError, match="versions must be at least 1, not 0"):
        table.cells(b"r", COLUMN, versions=0)
    with pytest.raises(UsageError, match="b'cf' must be written b'family:qualifier'"):
        table.cells(b"r", b"cf")
    with pytest.raises(NoSuchFamily, match="b'missing'"):
        table.cells(b"r", b"missing:q")
    with pytest.raises(TypeError, match="row key must be bytes"):
        table.cells("r", COLUMN)  # type: ignore[arg-type]  # the point
