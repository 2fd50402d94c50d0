"""A commit that the oracle writes whole: cells, shadow cells and decision in one transaction.

Nothing of it is in the store before, and nothing is left to do behind it.  What was flushed goes
the way of the protocol, in steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import omidpy
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import (
    CommitOutcomeUnknown,
    Invalidated,
    OracleError,
    StorageUnavailable,
    TransactionAborted,
    WriteConflict,
)
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable, create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, Timestamp
from omidpy.recipes.export_queue import ExportQueue
from omidpy.storage.base import Entries, GuardedMutation
from omidpy.storage.memory import MemoryStore
from omidpy.tx.writes.buffer import FLUSH_LIMIT_BYTES
from tso.embedded import EmbeddedOracle


class WatchedStore(MemoryStore):
    """A store whose writes are listed, and may be followed or preceded by what a test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.before_batch: Callable[[], None] = lambda: None
        self.after_batch: Callable[[], None] = lambda: None

    def write(self, *arguments: Any, **options: Any) -> None:
        """Write, and list it."""
        self.calls.append("write")
        super().write(*arguments, **options)

    def write_guarded(
        self, mutations: Sequence[Any], *arguments: Any, **options: Any
    ) -> list[bool] | None:
        """Write, and list what is no renewal of a ceiling or a watermark."""
        if not any(type(one) not in (GuardedMutation, Entries) for one in mutations):
            if any(isinstance(one, Entries) for one in mutations):
                self.calls.append("entries")
            return super().write_guarded(mutations, *arguments, **options)
        self.calls.append("cells")
        self.before_batch()
        applied = super().write_guarded(mutations, *arguments, **options)
        self.after_batch()
        return applied


@pytest.fixture
def store() -> WatchedStore:
    """Return a store with the system's tables."""
    store = WatchedStore()
    create_system_tables(store)
    return store


@pytest.fixture
def tm(store: WatchedStore) -> Iterator[TransactionManager]:
    """Join it with an oracle of this process."""
    manager = TransactionManager(store, EmbeddedOracle(store), post_commit="sync")
    manager.create_table("t", ["cf"])
    manager.create_table("u", ["cf"])
    store.calls.clear()
    with manager:
        yield manager


def entries(store: MemoryStore) -> list[bytes]:
    """Return the rows of the commit table."""
    return [row[0].row for page in store.scan(COMMIT_TABLE) for row in page]


def qualifiers(store: MemoryStore, table: str) -> list[bytes]:
    """Return the qualifiers of every cell of a table, shadow cells among them."""
    return [cell.qualifier for page in store.scan(table) for row in page for cell in row]


def balance(tm: TransactionManager, row: bytes = b"r", table: str = "t") -> bytes | None:
    """Read one cell in a snapshot of its own."""
    with tm.begin(read_only=True) as tx:
        return tx.table(table).row(row).get(b"cf:q")


def test_a_commit_is_one_write_and_leaves_nothing_to_do(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """Cells of two tables and their shadow cells, and no entry."""
    with tm.begin() as tx:
        tx.table("t").put(b"r", {b"cf:q": b"1", b"cf:p": b"2"})
        tx.table("u").put(b"r", {b"cf:q": b"3"})
        tx.table("t").delete(b"gone", [b"cf:q"])
        assert store.calls == []
    assert store.calls == ["cells"]
    assert entries(store) == []
    assert len(qualifiers(store, "t")) == 6
    assert balance(tm) == b"1"
    assert balance(tm, table="u") == b"3"
    assert isinstance(tm.outcome(tx), Committed)


def test_a_refused_commit_leaves_nothing(tm: TransactionManager, store: WatchedStore) -> None:
    """Nothing was written, so that nothing is taken back."""
    loser = tm.begin()
    loser.table("t").put(b"r", {b"cf:q": b"lost"})
    loser.table("t").put(b"s", {b"cf:q": b"lost"})
    with tm.begin() as tx:
        tx.table("t").put(b"r", {b"cf:q": b"won"})
    store.calls.clear()
    with pytest.raises(WriteConflict):
        loser.commit()
    assert store.calls == []
    assert len(qualifiers(store, "t")) == 2
    assert balance(tm) == b"won"


def test_a_rolled_back_transaction_wrote_nothing(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """Not even a delete."""
    tx = tm.begin()
    tx.table("t").put(b"r", {b"cf:q": b"1"})
    tx.rollback()
    assert store.calls == []
    assert qualifiers(store, "t") == []


@pytest.mark.parametrize("how", ["flush", "token", "savepoint", "size"])
def test_what_was_flushed_goes_the_way_of_the_protocol(
    tm: TransactionManager, store: WatchedStore, how: str
) -> None:
    """What was sent before and what was not meet in one commit, with an entry between."""
    with tm.begin() as tx:
        table = tx.table("t")
        if how == "savepoint":
            with tx.savepoint():
                table.put(b"r", {b"cf:q": bytes(FLUSH_LIMIT_BYTES + 1)})
        elif how == "size":
            table.put(b"r", {b"cf:q": bytes(FLUSH_LIMIT_BYTES + 1)})
        else:
            table.put(b"r", {b"cf:q": b"1"})
            tx.flush() if how == "flush" else tx.token()
        table.put(b"r", {b"cf:q": b"2"})
        table.put(b"s", {b"cf:q": b"3"})
    assert "cells" not in store.calls
    assert "entries" in store.calls
    assert entries(store) == []
    assert balance(tm) == b"2"
    assert balance(tm, b"s") == b"3"
    shadows = [name for name in qualifiers(store, "t") if name != b"q"]
    assert len(shadows) == len(qualifiers(store, "t")) - len(shadows)


def test_what_adds_to_an_export_queue_goes_in_steps(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """Its rows go once they were delivered, and cells that are gone would tell nothing."""
    ExportQueue.create(tm, "q", buckets=1)
    queue = ExportQueue.open(tm, "q")
    store.calls.clear()
    with tm.begin() as tx:
        queue.add(tx, b"k", 1)
        tx.table("t").put(b"r", {b"cf:q": b"1"})
    assert "cells" not in store.calls
    with tm.begin() as tx:
        tx.table("t").put(b"r", {b"cf:q": b"1"})
    assert "cells" in store.calls


def test_a_deposed_oracle_writes_no_cell(tm: TransactionManager, store: WatchedStore) -> None:
    """Conflict check, lease and cells are one transaction."""

    def depose() -> None:
        raw = ControlTable(store).read(LEASE_FACT)
        ControlTable(store).replace(LEASE_FACT, raw, b"another's")

    store.before_batch = depose
    tx = tm.begin()
    tx.table("t").put(b"r", {b"cf:q": b"1"})
    with pytest.raises((CommitOutcomeUnknown, TransactionAborted)):
        tx.commit()
    assert qualifiers(store, "t") == []
    with pytest.raises(OracleError):
        tm.begin()


def test_an_invalidation_that_stands_forbids_it(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """As it forbids an entry."""
    tx = tm.begin()
    tx.table("t").put(b"r", {b"cf:q": b"1"})
    assert CommitTable(store).invalidate(tx.start_ts)
    with pytest.raises(Invalidated):
        tx.commit()
    assert qualifiers(store, "t") == []
    assert tm.outcome(tx) == Aborted()


def test_a_table_that_goes_meanwhile_takes_nobody_with_it(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """The oracle goes on, and so do those whose cells are in the same batch."""
    gone, good = tm.begin(), tm.begin()
    gone.table("t").put(b"r", {b"cf:q": b"1"})
    gone.table("u").put(b"r", {b"cf:q": b"1"})
    good.table("t").put(b"s", {b"cf:q": b"2"})

    def drop() -> None:
        store.drop_table("u")

    store.before_batch = drop
    with pytest.raises(TransactionAborted, match=r"tables it wrote \(t, u\).* was dropped") as told:
        gone.commit()
    assert not told.value.retryable
    store.before_batch = lambda: None
    good.commit()
    assert balance(tm, b"r") is None
    assert balance(tm, b"s") == b"2"
    assert tm.outcome(gone) == Aborted()


def test_a_batch_that_seemed_to_fail_is_written_again(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """Whoever found nothing meanwhile may have forbidden it; what is there is committed."""
    tx = tm.begin()
    tx.table("t").put(b"r", {b"cf:q": b"1"})

    def fail() -> None:
        store.after_batch = lambda: None
        assert CommitTable(store).invalidate(tx.start_ts)
        raise StorageUnavailable("the answer was lost")

    store.after_batch = fail
    tx.commit()
    assert balance(tm) == b"1"
    assert isinstance(tm.outcome(tx), Committed)


def test_a_batch_that_seemed_to_fail_is_found_in_the_table_that_is_left(
    tm: TransactionManager, store: WatchedStore
) -> None:
    """Another of its tables was dropped before the repetition, whichever was written first."""
    for gone, left in (("t", "u"), ("u", "t")):
        tx = tm.begin()
        tx.table("t").put(b"r", {b"cf:q": b"1"})
        tx.table("u").put(b"r", {b"cf:q": b"1"})

        def fail(gone: str = gone) -> None:
            store.after_batch = lambda: None
            store.drop_table(gone)
            raise StorageUnavailable("the answer was lost")

        store.after_batch = fail
        tx.commit()
        assert balance(tm, table=left) == b"1"
        assert isinstance(tm.outcome(tx), Committed)
        tm.create_table(gone, ["cf"])


def test_shadow_cells_left_to_others_need_an_entry(store: WatchedStore) -> None:
    """Who asks for the steps gets them."""
    with TransactionManager(store, EmbeddedOracle(store), post_commit="none") as tm:
        tm.create_table("t", ["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"1"})
        assert len(entries(store)) == 1
        assert qualifiers(store, "t") == [b"q"]


def test_a_file_takes_it_in_one_transaction(tmp_path: Path) -> None:
    """A crash image of any moment holds all of a commit or nothing: there is one moment."""
    with omidpy.connect(f"sqlite:///{tmp_path}/store.db") as tm:
        tm.create_table("t", ["cf"])
        with tm.begin() as tx:
            for row in range(100):
                tx.table("t").put(b"%d" % row, {b"cf:q": b"1"})
        assert tm.session.post_committer.owes(tx.start_ts) is False
        found = [cell for page in tm.store.scan("t") for row in page for cell in row]
        assert len(found) == 200
        assert list(tm.store.scan(COMMIT_TABLE)) == []


# -- start timestamps to spare ---------------------------------------------------------------------


@pytest.fixture
def oracle(store: WatchedStore) -> Iterator[EmbeddedOracle]:
    """Run an oracle alone, with a clock that stands still."""
    oracle = EmbeddedOracle(store, clock=ManualClock())
    yield oracle
    oracle.close()


def commit(oracle: EmbeddedOracle, start_ts: Timestamp, cell: int) -> Timestamp:
    """Commit one cell."""
    verdict: Any = oracle.commit(start_ts, [cell], [1])  # type: ignore[list-item]
    return Timestamp(verdict.commit_ts)


def test_who_commits_has_the_next_begin_to_spare(oracle: EmbeddedOracle) -> None:
    """It sees the commit that it came with, and asks nobody."""
    commit_ts = commit(oracle, oracle.begin().start_ts, 1)
    spare = oracle._driver.spare()
    assert spare is not None
    assert spare.start_ts > commit_ts
    assert oracle._driver.spare() is None


def test_nobody_begins_behind_a_commit_that_he_knows_of(oracle: EmbeddedOracle) -> None:
    """What lies to spare is worth nothing once a later decision was answered."""
    first, second = oracle.begin().start_ts, oracle.begin().start_ts
    commit(oracle, first, 1)
    later_ts = commit(oracle, second, 2)
    assert oracle.begin().start_ts > later_ts
    third = oracle.begin().start_ts
    commit(oracle, third, 3)
    fence_ts = oracle.fence(1)  # type: ignore[arg-type]
    begun = oracle.begin()
    assert begun.start_ts > fence_ts
    assert begun.newest_fence == fence_ts


def fail_once() -> Callable[[], None]:
    """Return what raises when it is first called: the answer of a store was lost."""
    errors = [StorageUnavailable("no answer")]

    def fail() -> None:
        if errors:
            raise errors.pop()

    return fail


def test_who_begins_sees_a_commit_that_was_found_in_the_store(store: WatchedStore) -> None:
    """I8: its answer was lost, and what lies to spare is from before it."""
    manager = TransactionManager(store, EmbeddedOracle(store, clock=ManualClock()))
    with manager as tm:
        tm.create_table("t", ["cf"])
        first, second = tm.begin(), tm.begin()
        first.table("t").put(b"a", {b"cf:q": b"1"})
        second.table("t").put(b"b", {b"cf:q": b"2"})
        first.commit()
        store.after_batch = fail_once()
        second.commit()
        assert second.commit_ts is not None
        later = tm.begin()
        assert later.start_ts > second.commit_ts
        assert later.table("t").row(b"b") == {b"cf:q": b"2"}


def test_nothing_is_to_spare_while_a_commit_is_durable_and_not_answered(
    store: WatchedStore,
) -> None:
    """I8: another thread may find it in the store, and begin."""
    oracle = EmbeddedOracle(store, clock=ManualClock())
    with TransactionManager(store, oracle) as tm:
        tm.create_table("t", ["cf"])
        first, second = tm.begin(), tm.begin()
        first.table("t").put(b"a", {b"cf:q": b"1"})
        second.table("t").put(b"b", {b"cf:q": b"2"})
        first.commit()
        found: list[object] = []
        store.after_batch = lambda: found.append(oracle._driver.spare())
        second.commit()
    assert found == [None]


def test_each_begin_sees_every_commit_that_was_answered_before(oracle: EmbeddedOracle) -> None:
    """Many threads, each of which knows what all of them were told."""
    newest: list[Timestamp] = [Timestamp(0)]
    started: list[Timestamp] = []
    failures: list[str] = []

    def work(number: int) -> None:
        for turn in range(150):
            known = newest[-1]
            start_ts = oracle.begin().start_ts
            started.append(start_ts)
            if start_ts <= known:
                failures.append(f"{start_ts} began behind the commit {known}")
            commit_ts = commit(oracle, start_ts, number * 1000 + turn)
            newest.append(max(newest[-1], commit_ts))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(set(started)) == len(started) == 600
