"""What an exception at any line of a store's or an oracle's call used to leave behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omidpy.errors import OracleUnavailable
from omidpy.facts.commit_table import CommitTable
from omidpy.model import CellId, FamilySchema, TableId, TableSchema
from omidpy.oracle.base import CommitGranted
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.contract import keys_of, put
from tests.machines.interrupts.lines import Interrupt, Interrupter, interrupt
from tests.unit.storage.sqlite.test_store import wait_until
from tso.embedded import EmbeddedOracle

DEADLINE_S = 30.0


@pytest.fixture(name="path")
def path_of_a_store(tmp_path: Path) -> Path:
    """Return where a store with one table is."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    store.close()
    return path


@pytest.fixture(name="store")
def opened(path: Path) -> Iterator[SqliteStore]:
    """Return the store, opened."""
    store = SqliteStore(path, lock_timeout_s=2)
    yield store
    store.close()


@pytest.fixture(name="other")
def opened_by_another(path: Path) -> Iterator[SqliteStore]:
    """Return the store as another process would have it."""
    store = SqliteStore(path, lock_timeout_s=2)
    yield store
    store.close()


def interruptions(call: Callable[[], object]) -> Iterator[int]:
    """Make a call once for each line that it reaches, interrupted there."""
    interrupter = Interrupter()
    count = len(interrupter.lines(call))
    assert count > 10
    for number in range(1, count + 1):
        try:
            interrupter.interrupt(call, number, Interrupt())
        except Interrupt:
            yield number


def test_a_read_that_was_interrupted_pins_no_view(store: SqliteStore, other: SqliteStore) -> None:
    """Its connection went back inside a transaction, and later reads saw an old state."""
    for version in interruptions(lambda: store.get("t", [b"r", b"s"], max_versions=1)):
        other.write({"t": [put(b"r", version)]})
        assert store.get("t", [b"r", b"s"], max_versions=1)[0][0].version == version


def test_a_scan_that_was_interrupted_pins_no_view(store: SqliteStore, other: SqliteStore) -> None:
    """An open cursor pins one, too."""
    other.write({"t": [put(b"r%d" % number, 1) for number in range(20)]})
    for version in interruptions(lambda: list(store.scan("t", max_versions=1, page_rows=5))):
        other.write({"t": [put(b"r", version)]})
        assert next(store.scan("t", max_versions=1, page_rows=5))[0][0].version == version


@pytest.mark.parametrize("durable", [False, True])
def test_a_write_that_was_interrupted_keeps_nobody_from_writing(
    store: SqliteStore,
    other: SqliteStore,
    durable: bool,  # noqa: FBT001 - from the parameters
) -> None:
    """SQLite's lock stayed, and every other process waited and failed."""
    batch = {"t": [put(b"a", 1), put(b"b", 1)]}
    for version in interruptions(lambda: store.write(batch, durable=durable)):
        other.write({"t": [put(b"other", version)]})
        store.write({"t": [put(b"own", version)]}, durable=durable)
        assert keys_of(store.scan("t")) in ([b"other", b"own"], [b"a", b"b", b"other", b"own"])


def test_a_wait_that_was_interrupted_in_line_hands_the_lock_on(store: SqliteStore) -> None:
    """It was handed to the thread that had gone, and so to nobody."""
    inside, leave = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        inside.set()
        assert leave.wait(DEADLINE_S)

    def wait() -> None:
        with pytest.raises(Interrupt):
            store.write({"t": [put(b"waiting", 1)]})

    holder = threading.Thread(target=store._file.write, args=(hold,), kwargs={"durable": False})
    waiting = threading.Thread(target=wait)
    holder.start()
    assert inside.wait(DEADLINE_S)
    waiting.start()
    wait_until(lambda: len(store._file.write_lock._threads._line) == 2)
    interrupt(waiting)
    leave.set()
    for thread in (holder, waiting):
        thread.join(DEADLINE_S)
    store.write({"t": [put(b"next", 1)]})
    assert keys_of(store.scan("t")) == [b"next"]


def test_what_a_commit_decided_before_it_was_interrupted_is_written() -> None:
    """The oracle remembered a commit that no batch had, and said Committed of what was nowhere."""
    store = MemoryStore()
    oracle = EmbeddedOracle(store)
    starts = iter([oracle.begin().start_ts for _ in range(200)])
    asked = next(starts)

    def commit() -> None:
        oracle.commit(asked, [CellId(asked)], [TableId(1)])

    for _ in interruptions(commit):
        try:
            verdict = oracle.commit(asked, [CellId(asked)], [TableId(1)], is_retry=True)
        except OracleUnavailable:
            verdict = None  # nothing is known of it: it was not asked
        entry = CommitTable(store).read((asked,))[asked]
        assert entry == (verdict.commit_ts if isinstance(verdict, CommitGranted) else None)
        asked = next(starts)
    oracle.close()
