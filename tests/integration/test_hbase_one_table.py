"""A scan of a real HBase whose table becomes another one on the way is refused, by either road."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from omidpy import admin
from omidpy.errors import SnapshotTooOld, StorageError
from omidpy.reading import one_table
from tests.machines.clients import TABLE, Client
from tests.machines.hbase import HBase, Road
from tests.machines.hbase_store import one_region_store

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROAD_BY_DAY = Road.DIRECT

ROWS: Final = tuple(b"%d" % number for number in range(8))


@pytest.fixture
def client(hbase: HBase) -> Iterator[Client]:
    """Return a client whose table has some rows in each of two regions."""
    with one_region_store(hbase) as store:
        made = Client(store, table=None)
        made.tm.create_table(TABLE, ["cf"], splits=[b"4"])
        fill(made)
        yield made
        made.tm.session.post_committer.close()


def fill(client: Client) -> None:
    """Write the rows."""
    with client.tm.begin() as tx:
        for row in ROWS:
            tx.table(TABLE).put(row, {b"cf:q": b"v"})


def drop_and_make(client: Client) -> None:
    """Let there be another one of the name, of one region."""
    client.tm.drop_table(TABLE)
    client.tm.create_table(TABLE, ["cf"])


def empty_as_the_shell_does(client: Client) -> None:
    """Make it again with all of its attributes, its incarnation among them, and fence nobody."""
    schema = client.store.schema(TABLE)
    client.store.drop_table(TABLE)
    client.store.create_table(schema, splits=[b"4"])


CHANGES: Final[dict[str, Callable[[Client], object]]] = {
    "truncated": lambda client: admin.truncate_table(client.tm, TABLE),
    "made anew": drop_and_make,
    "truncated by the shell": empty_as_the_shell_does,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_scan_that_crosses_another_table_is_refused(
    hbase: HBase, client: Client, change: str
) -> None:
    """Between two pages, and between the last row of a region and the first one of the next."""
    # A gateway reads through all regions in one call.
    for size in (2, 100) if hbase.road is Road.DIRECT else (2,):
        with client.tm.begin(read_only=True) as tx:
            assert len(list(tx.table(TABLE).scan(batch_size=size))) == len(ROWS)
            found = tx.table(TABLE).scan(batch_size=size)
            assert next(found)[0] == ROWS[0]
            CHANGES[change](client)
            with pytest.raises(StorageError, match="'t' was dropped, truncated, or disabled"):
                list(found)
        with client.tm.begin(read_only=True) as tx:
            assert list(tx.table(TABLE).scan(batch_size=2)) == []
        client.tm.drop_table(TABLE)
        client.tm.create_table(TABLE, ["cf"], splits=[b"4"])
        fill(client)


def test_an_offset_of_an_earlier_table_is_refused(client: Client) -> None:
    """What had come last to that is in no feed any more."""
    feed = client.tm.changes(TABLE)
    assert len(list(feed)) == len(ROWS)
    client.write(b"unseen")
    drop_and_make(client)
    client.write(b"new")
    with pytest.raises(SnapshotTooOld, match="table 't' was dropped or truncated"):
        list(client.tm.changes(TABLE, since=feed.offset))
    found = client.tm.changes(TABLE, since=feed.offset, spans_tables=True)
    assert [change.row for change in found] == [b"new"]


def test_a_scan_of_one_call_looks_at_no_table(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of several looks once, at its end, unless it was over too soon."""
    asked: list[Sequence[str]] = []
    kind: Any = type(client.store)
    states = kind.table_states

    def counted(store: Any, tables: Sequence[str]) -> Any:
        asked.append(tables)
        return states(store, tables)

    monkeypatch.setattr(kind, "table_states", counted)

    def looks(**options: Any) -> int:
        asked.clear()
        with client.tm.begin(read_only=True) as tx:
            list(tx.table(TABLE).scan(**options))
        return len(asked)

    looks()
    for long_s, count in ((-1.0, 1), (60.0, 0)):
        monkeypatch.setattr(one_table, "LONG_READ_S", long_s)
        assert looks(row_start=b"1", row_stop=b"3") == 0
        assert looks(row_start=b"1", row_stop=b"7", batch_size=2) == count
