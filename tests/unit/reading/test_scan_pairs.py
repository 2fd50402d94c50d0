"""Scans over a store that pairs data cells with their shadow cells: what is not simple."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from omidpy.base.cells import LEGACY_TOMBSTONE
from omidpy.errors import CorruptCell, SnapshotTooOld
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.watermarks import HORIZON_FREE_AGE_S
from omidpy.model import KeyRange, Timestamp
from omidpy.reading.visibility import shadow_column
from omidpy.storage.base import Put, Row, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import PairsCells
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import World
from tests.machines.clients import TABLE, Client


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return a store that pairs."""
    store = SqliteStore(tmp_path / "s.db")
    yield store
    store.close()


@pytest.fixture
def client(store: SqliteStore) -> Client:
    """Return a client of it, whose transactions begin at 1050."""
    client = Client(store)
    client.naive._last = 1000
    return client


@pytest.fixture
def world(client: Client) -> World:
    """Return its cells, to be written by hand."""
    return World(client.store, low_watermark=0)


def scanned(client: Client, columns: list[bytes] | None = None) -> list[dict[bytes, bytes]]:
    """Return the rows that a fresh transaction scans."""
    with client.tm.begin(read_only=True) as tx:
        return [data for _, data in tx.table(TABLE).scan(columns=columns)]


def test_the_embedded_store_pairs_and_memory_does_not(store: SqliteStore) -> None:
    """So that both ways are in use, and compared by every suite that runs over both."""
    assert isinstance(store, PairsCells)
    assert not isinstance(MemoryStore(), PairsCells)


def test_pairs_come_in_key_order_without_shadow_cells(client: Client, store: SqliteStore) -> None:
    """Each data cell with the value of its own shadow cell, in pages of whole rows."""
    for row in (b"a", b"b", b"c"):
        client.write(row)
    pages = list(store.scan_pairs(TABLE, KeyRange(), columns=None, max_version=10_000, page_rows=2))
    assert [[cell[0] for row in page for cell in row] for page in pages] == [[b"a", b"b"], [b"c"]]
    for page in pages:
        for ((_, family, qualifier, version, value, shadow),) in page:
            assert (family, qualifier, value) == (b"cf", b"q", b"v")
            assert shadow is not None
            assert int.from_bytes(shadow) == version + 50


def test_a_tentative_version_does_not_borrow_an_older_ones_shadow_cell(
    client: Client, world: World
) -> None:
    """Each version has its own; the older one is what is seen."""
    world.healed(b"a", 100, 150, b"old")
    world.put(b"a", 200, b"tentative")
    assert scanned(client) == [{b"cf:q": b"old"}]


def test_a_version_committed_later_hides_nothing(client: Client, world: World) -> None:
    """At the snapshot's own timestamp is too late already."""
    world.healed(b"a", 100, 150, b"old")
    world.healed(b"a", 200, 1050, b"too new")
    assert scanned(client) == [{b"cf:q": b"old"}]


def test_tombstones_of_both_kinds_hide(client: Client, world: World) -> None:
    """Whatever is below them."""
    for row, value in ((b"a", b""), (b"b", LEGACY_TOMBSTONE)):
        world.healed(row, 100, 150)
        world.healed(row, 200, 250, value)
    assert scanned(client) == []


def test_a_family_marker_hides_a_chosen_column(client: Client, world: World) -> None:
    """It is read although nobody asked for it."""
    cell = world.put(b"a", 100, b"v")
    world.heal(cell, 150)
    marker = world.put(b"a", 200, b"", qualifier=b"")
    world.heal(marker, 250)
    assert scanned(client, [b"cf:q"]) == []
    assert scanned(client) == []


def test_a_torn_shadow_cell_is_reported(client: Client, world: World) -> None:
    """As it is by a get."""
    cell = world.put(b"a", 100)
    put = Put(*shadow_column(cell), 100, b"\x00\x00")
    client.store.write({TABLE: [RowMutation(b"a", (put,))]})
    with pytest.raises(CorruptCell, match="expected 8 bytes"):
        scanned(client)


def test_a_qualifier_that_only_looks_like_a_shadow_cells_is_data(
    client: Client, world: World
) -> None:
    """Two bytes are too short for one."""
    cell = world.put(b"a", 100, qualifier=b"\xc2\x80")
    world.heal(cell, 150)
    assert scanned(client) == [{b"cf:\xc2\x80": b"v"}]


def test_rows_that_are_not_simple_are_read_again_and_healed(client: Client, world: World) -> None:
    """One row among many: only it is read twice."""
    for number in range(9):
        world.healed(b"%d" % number, 100, 150)
    world.put(b"9", 200)
    world.enter(200, 250)
    assert len(scanned(client)) == 10
    assert world.shadows()[b"9", 200] == 250


@pytest.mark.parametrize("reverse", [False, True])
def test_where_few_rows_are_simple_the_rest_is_read_the_plain_way(
    client: Client,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    reverse: bool,  # noqa: FBT001  a parameter
) -> None:
    """Reading most rows twice costs more than pairing saves; nothing is lost on the way."""
    for number in range(10):
        world.put(b"%d" % number, 100)
        world.put(b"%d" % number, 200, b"tentative")
    world.enter(100, 150)
    pages: list[int] = []
    plain = SqliteStore.scan

    def counting(self: SqliteStore, *arguments: object, **options: object) -> object:
        for page in plain(self, *arguments, **options):  # type: ignore[arg-type]
            pages.append(len(page))
            yield page

    monkeypatch.setattr(SqliteStore, "scan", counting)
    with client.tm.begin(read_only=True) as tx:
        rows = list(tx.table(TABLE).scan(batch_size=2, reverse=reverse))
    keys = [b"%d" % number for number in range(10)]
    assert rows == [(key, {b"cf:q": b"v"}) for key in (keys[::-1] if reverse else keys)]
    assert pages == [2, 2, 2, 2]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_page_of_unhealed_rows_is_not_read_again(
    client: Client,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    reverse: bool,  # noqa: FBT001  a parameter
) -> None:
    """One look into the commit table tells of all of them, and one write heals them."""
    for number in range(10):
        world.put(b"%d" % number, 100 + 50 * (number % 2))
        world.put(b"%d" % number, 100, b"", qualifier=b"deleted")
    world.enter(100, 950)
    world.enter(150, 900)
    looks: list[tuple[str, int]] = []
    get, write = SqliteStore.get, SqliteStore.write

    def counting_get(self: SqliteStore, table: str, rows: Sequence[bytes], **how: Any) -> list[Row]:
        looks.append((table, len(rows)))
        return get(self, table, rows, **how)

    def counting_write(
        self: SqliteStore, batch: Mapping[str, Sequence[RowMutation]], **how: Any
    ) -> None:
        looks.extend((f"write {table}", len(rows)) for table, rows in batch.items())
        write(self, batch, **how)

    with client.tm.begin(read_only=True) as tx:
        table = tx.table(TABLE)
        monkeypatch.setattr(SqliteStore, "get", counting_get)
        monkeypatch.setattr(SqliteStore, "write", counting_write)
        rows = list(table.scan(reverse=reverse))
        assert looks == [(COMMIT_TABLE, 2), (f"write {TABLE}", 10)]
        looks.clear()
        assert list(table.scan(reverse=reverse)) == rows
    assert not looks, "they are healed"
    keys = [b"%d" % number for number in range(10)]
    assert rows == [(key, {b"cf:q": b"v"}) for key in (keys[::-1] if reverse else keys)]
    assert set(world.shadows().values()) == {950, 900}


def test_an_unhealed_version_committed_later_hides_nothing(client: Client, world: World) -> None:
    """Its entry is found, and says so."""
    world.healed(b"a", 100, 150, b"old")
    world.put(b"a", 200, b"too new")
    world.enter(200, 1050)
    assert scanned(client) == [{b"cf:q": b"old"}]


def test_a_shadow_cell_outranks_a_false_invalidation_in_a_scan(
    client: Client, world: World
) -> None:
    """An invalidation in the commit table is not the last word on a page of pairs either."""
    cell = world.put(b"a", 100)
    world.invalidate(100)
    reads = 0
    get = client.store.get

    def healing_get(table: str, *arguments: Any, **how: Any) -> list[Row]:
        nonlocal reads
        reads += table == TABLE
        if reads == 2:
            world.heal(cell, 150)
        return get(table, *arguments, **how)

    client.store.get = healing_get  # type: ignore[method-assign]
    assert scanned(client) == [{b"cf:q": b"v"}]
    assert reads >= 2


def test_pages_of_simple_rows_look_at_the_horizon(client: Client, world: World) -> None:
    """A simple row may be what collection has left (I10)."""
    world.healed(b"a", 100, 150)
    tx = client.tm.begin()
    client.tm.session.watermarks.publish_collection_horizon(
        Timestamp(tx.start_ts + 50), client.clock
    )
    client.clock.advance(HORIZON_FREE_AGE_S)  # type: ignore[attr-defined]
    with pytest.raises(SnapshotTooOld):
        next(tx.table(TABLE).scan())


def test_reverse_scans_see_the_newest_version(client: Client, world: World) -> None:
    """It must come first in its row, which SQLite finds last."""
    for row in (b"a", b"b"):
        world.healed(row, 100, 150, b"old")
        world.healed(row, 200, 250, b"new")
    with client.tm.begin() as tx:
        rows = list(tx.table(TABLE).scan(reverse=True))
    assert rows == [(b"b", {b"cf:q": b"new"}), (b"a", {b"cf:q": b"new"})]
