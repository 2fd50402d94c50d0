"""Signs of life in a table: judged by the judge's own clock, and by nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import StorageUnavailable
from omidpy.fate.table.store import FATE_TABLE, TableFateStore
from omidpy.life import members
from omidpy.life.members import BEAT, WORKER_PREFIX, TableMember
from omidpy.life.processes import this_process
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.faults import FaultyStore, on
from tests.machines.waiting import wait_for

LEASE_S = 8.0


class NoLocks(MemoryStore):
    """A store whose locks are not of this process, as HBase has none."""

    @property
    def capabilities(self):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as its base has it
        """Everything but locks."""
        from dataclasses import replace

        return replace(super().capabilities, process_locks=False)


def look(judge: object, worker: str, clock: ManualClock, *, every_s: float, times: int) -> bool:
    """Look at a worker several times; say whether it is dead in the end."""
    dead: frozenset[str] = frozenset()
    for _ in range(times):
        dead = judge.dead([worker])  # type: ignore[attr-defined]  # a judge
        clock.advance(every_s)
    return bool(dead)


def test_a_worker_is_dead_after_its_own_lease_and_no_sooner() -> None:
    """The lease is the worker's, not the judge's; equality is not yet too long."""
    clock = ManualClock()
    fates = TableFateStore(NoLocks())
    worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
    judge = fates.new_judge(clock)
    assert not look(judge, worker.id, clock, every_s=LEASE_S / 4, times=5)
    assert look(judge, worker.id, clock, every_s=LEASE_S / 4, times=1)


def test_a_worker_of_this_machine_is_dead_as_soon_as_its_process_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever starts it again after a kill need not wait for the lease of the killed one."""
    clock = ManualClock()
    fates = TableFateStore(NoLocks())
    alive = fates.new_worker(lease_s=LEASE_S, clock=clock)
    me = this_process()
    gone = msgspec.structs.replace(me, begun=me.begun - 1)
    monkeypatch.setattr(members, "this_process", lambda: gone)
    killed = fates.new_worker(lease_s=LEASE_S, clock=clock)
    assert fates.new_judge(clock).dead([alive.id, killed.id]) == {killed.id}


def test_the_date_is_no_evidence() -> None:
    """Clocks of two machines differ, and are set."""
    clock = ManualClock()
    fates = TableFateStore(NoLocks())
    worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
    judge = fates.new_judge(clock)
    judge.dead([worker.id])
    clock.step_wall(milliseconds=10**9)
    assert judge.dead([worker.id]) == frozenset()


def test_time_in_which_nobody_looked_does_not_count() -> None:
    """A machine that wakes from a suspend must not bury everyone on it."""
    clock = ManualClock()
    fates = TableFateStore(NoLocks())
    worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
    judge = fates.new_judge(clock)
    assert not look(judge, worker.id, clock, every_s=LEASE_S / 2 + 0.1, times=20)


def test_a_worker_whose_process_has_ended_is_dead_at_once(tmp_path: Path) -> None:
    """Where locks die with their process nobody waits for a lease."""
    clock = ManualClock()
    with_locks = SqliteStore(tmp_path / "store.db")
    fates = TableFateStore(with_locks)
    worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
    judge = fates.new_judge(clock)
    assert judge.dead([worker.id]) == frozenset()
    assert worker._lock is not None
    worker._lock.release()  # as the kernel does
    assert judge.dead([worker.id]) == {worker.id}
    with_locks.close()


def test_who_takes_over_a_lock_buries_who_had_it_before() -> None:
    """Else the dead one would seem to live by the lock of the new one."""
    clock = ManualClock()
    store = MemoryStore()
    fates = TableFateStore(store)
    first = fates.new_worker(lease_s=LEASE_S, clock=clock)
    assert first._lock is not None
    first._lock.release()
    second = fates.new_worker(lease_s=LEASE_S, clock=clock)
    judge = fates.new_judge(clock)
    assert judge.dead([first.id, second.id]) == {first.id}
    assert not first.beat()
    assert second.beat()


def test_many_workers_live_side_by_side() -> None:
    """Each in a place of its own; one that has ended leaves it to the next."""
    clock = ManualClock()
    store = MemoryStore()
    fates = TableFateStore(store)
    workers = [fates.new_worker(lease_s=LEASE_S, clock=clock) for _ in range(3)]
    assert [worker._sign.slot for worker in workers] == [0, 1, 2]
    judge = fates.new_judge(clock)
    assert judge.dead([worker.id for worker in workers]) == frozenset()
    workers[1].retire()
    assert fates.new_worker(lease_s=LEASE_S, clock=clock)._sign.slot == 1


def test_a_sign_of_life_whose_answer_was_lost_is_recognised() -> None:
    """The worker lives, and says the same once more."""
    clock = ManualClock()
    store = FaultyStore(MemoryStore())
    worker = TableFateStore(store).new_worker(lease_s=LEASE_S, clock=clock)
    store.plans.append(on("check_and_mutate.after", StorageUnavailable("lost"), nth=1))
    with pytest.raises(StorageUnavailable):
        worker.beat()
    assert worker.beat()
    assert worker.beat()


def test_a_worker_does_not_trust_itself_for_its_whole_lease() -> None:
    """It stops beginning things before anybody may think it dead; clocks do not run alike."""
    clock = ManualClock()
    worker = TableFateStore(NoLocks()).new_worker(lease_s=LEASE_S, clock=clock)
    clock.advance(LEASE_S * 0.79)
    assert worker.is_trusted()
    clock.advance(LEASE_S * 0.02)
    assert not worker.is_trusted()
    assert worker.beat()
    assert worker.is_trusted()


def test_a_worker_whose_lock_file_was_removed_does_not_trust_itself(tmp_path: Path) -> None:
    """A judge takes the lock of a file that is made anew, and buries it at once."""
    store, clock = SqliteStore(tmp_path / "s.db"), ManualClock()
    fates = TableFateStore(store)
    worker = fates.new_worker(lease_s=LEASE_S, clock=clock)
    assert worker.is_trusted()
    (lock,) = tmp_path.glob("s.db-fate-*.lock")
    lock.unlink()
    wait_for(lambda: not worker.is_trusted(), 10)
    assert fates.new_judge(clock).dead([worker.id]) == {worker.id}
    store.close()


def test_a_sign_of_life_that_cannot_be_read_is_judged_by_its_bytes() -> None:
    """One of a newer program: as long as it changes somebody lives."""
    clock = ManualClock()
    store = NoLocks()
    fates = TableFateStore(store)
    worker: TableMember = fates.new_worker(lease_s=LEASE_S, clock=clock)
    row = WORKER_PREFIX + worker.id.encode()
    store.write({FATE_TABLE: [RowMutation(row, [Put(*BEAT, 1, b"\x00later")])]})
    judge = fates.new_judge(clock)
    assert not look(judge, worker.id, clock, every_s=10.0, times=7)
    assert look(judge, worker.id, clock, every_s=10.0, times=1)
