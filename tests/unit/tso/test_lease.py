"""Who may answer as the oracle of a store, with locks and without."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError, CorruptCell, LeaseLost, OracleUnavailable, StorageUnavailable
from omidpy.facts.commit_table import create_system_tables
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import LEASE_FACT, lease_address, read_lease
from omidpy.storage.base import Capabilities
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.waiting import wait_for
from tso.durable.lease import Lease


class LocklessStore(MemoryStore):
    """A store whose locks do not die with their process: it has none."""

    @property
    def capabilities(self) -> Capabilities:
        """Lack locks."""
        return replace(super().capabilities, process_locks=False)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def locked() -> MemoryStore:
    """Return a store with locks."""
    store = MemoryStore()
    create_system_tables(store)
    return store


@pytest.fixture
def lockless() -> MemoryStore:
    """Return a store without locks."""
    store = LocklessStore()
    create_system_tables(store)
    return store


def lease(store: MemoryStore, clock: ManualClock, holder: str = "a") -> Lease:
    """Return a claim with a period of ten seconds."""
    return Lease(store, holder=holder, clock=clock, purpose=f"oracle {holder}")


def renewed_without_answer(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> tuple[Lease, Lease]:
    """Return a lease of three seconds whose renewal got no answer just now, and a standby's."""
    held, standby = lease(store, clock), lease(store, clock, "b")
    held.try_acquire()
    clock.advance(3)

    def write_and_fail(*args: Any, **options: Any) -> bool:
        monkeypatch.undo()
        store.check_and_mutate(*args, **options)
        raise StorageUnavailable("the answer was lost")

    monkeypatch.setattr(store, "check_and_mutate", write_and_fail)
    with pytest.raises(StorageUnavailable):
        held.renew_if_due()
    return held, standby


# -- with locks ------------------------------------------------------------------------------------


def test_a_lock_decides_at_once(locked: MemoryStore, clock: ManualClock) -> None:
    """The holder is named while it lives; when it is gone nobody waits."""
    first, second = lease(locked, clock), lease(locked, clock, "b")
    assert first.try_acquire() is None
    assert "oracle a" in (second.try_acquire() or "")
    first._lock.release()  # type: ignore[union-attr]  # as the kernel does for the dead
    assert second.try_acquire() is None
    record = read_lease(locked)
    assert record is not None
    assert record.holder == "b"
    assert record.sequence == 2
    with pytest.raises(LeaseLost, match="belongs to process"):
        first.check()


def test_a_lock_needs_no_renewal(locked: MemoryStore, clock: ManualClock) -> None:
    """No write every few seconds for nothing."""
    held = lease(locked, clock)
    held.try_acquire()
    before = read_lease(locked)
    clock.advance(100)
    held.renew_if_due()
    assert read_lease(locked) == before
    assert not held.needs_renewal


def test_an_oracle_whose_lock_file_was_removed_ends(tmp_path: Path, clock: ManualClock) -> None:
    """I8: another one takes the lock of a file that is made anew, and commits."""
    store = SqliteStore(tmp_path / "s.db")
    create_system_tables(store)
    held = Lease(store, holder="a", clock=clock)
    assert held.try_acquire() is None
    assert held.vouched_until_s == inf
    (tmp_path / "s.db-oracle.lock").unlink()
    wait_for(lambda: held.vouched_until_s == -inf, 10)
    with pytest.raises(LeaseLost, match=r"lock file .* was removed"):
        held.renew_if_due()
    held.release()
    store.close()


# -- without ---------------------------------------------------------------------------------------


def test_a_record_is_taken_over_when_it_has_stood_still_for_its_period(
    lockless: MemoryStore, clock: ManualClock
) -> None:
    """By the observer's own clock, from when it first saw the record."""
    first, second = lease(lockless, clock), lease(lockless, clock, "b")
    assert first.try_acquire() is None
    clock.advance(1000)
    assert "process" in (second.try_acquire() or "")
    clock.advance(10)
    assert second.try_acquire() is not None
    clock.advance(0.001)
    assert second.try_acquire() is None
    with pytest.raises(LeaseLost):
        first.check()


def test_a_renewed_record_is_not_taken_over(lockless: MemoryStore, clock: ManualClock) -> None:
    """A quarter of the period is in time."""
    first, second = lease(lockless, clock), lease(lockless, clock, "b")
    first.try_acquire()
    for _ in range(20):
        assert second.try_acquire() is not None
        clock.advance(2.5)
        first.renew_if_due()
    first.check()


def test_a_renewal_is_not_written_before_it_is_due(
    lockless: MemoryStore, clock: ManualClock
) -> None:
    """A flush asks at every batch."""
    held = lease(lockless, clock)
    held.try_acquire()
    before = read_lease(lockless)
    clock.advance(2.4)
    held.renew_if_due()
    assert read_lease(lockless) == before


def test_a_renewal_whose_answer_was_lost_is_as_old_as_it_was(
    lockless: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A standby counts from when the record changed, not from when its holder learnt of it."""
    first, second = renewed_without_answer(lockless, clock, monkeypatch)
    assert second.try_acquire() is not None
    clock.advance(6)
    first.renew_if_due()
    clock.advance(4.1)
    assert first.vouched_until_s < clock.monotonic_s()
    assert second.try_acquire() is None


def test_a_renewal_whose_answer_was_lost_is_done_again(
    lockless: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is still due, so that the next one finds it and the one after it renews."""
    first, second = renewed_without_answer(lockless, clock, monkeypatch)
    for _ in range(2):
        clock.advance(3)
        assert second.try_acquire() is not None
        first.renew_if_due()
    clock.advance(9)
    assert first.vouched_until_s > clock.monotonic_s()
    assert second.try_acquire() is not None


def test_whoever_finds_its_record_replaced_has_lost(
    lockless: MemoryStore, clock: ManualClock
) -> None:
    """It was stopped for too long; nothing that it wrote since is answered."""
    first, second = lease(lockless, clock), lease(lockless, clock, "b")
    first.try_acquire()
    second.try_acquire()
    clock.advance(11)
    assert second.try_acquire() is None
    with pytest.raises(LeaseLost):
        first.renew_if_due()
    with pytest.raises(LeaseLost):
        first.publish(address="h:1", epoch=5)
    first.release()
    record = read_lease(lockless)
    assert record is not None
    assert record.holder == "b"


def test_of_two_that_take_over_one_is_faster(lockless: MemoryStore, clock: ManualClock) -> None:
    """Compare-and-set on the record they both saw."""
    lease(lockless, clock).try_acquire()
    second, third = lease(lockless, clock, "b"), lease(lockless, clock, "c")
    second.try_acquire()
    third.try_acquire()
    clock.advance(11)
    raw = lockless.get("OMIDPY_COMPACTION", [b"lease"])[0][0].value
    assert second.try_acquire() is None
    assert not third._replace(raw, third._record)
    assert third.try_acquire() is not None


# -- both ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["locked", "lockless"])
def test_a_lease_given_up_is_free_at_once(
    name: str, request: pytest.FixtureRequest, clock: ManualClock
) -> None:
    """After a clean stop nobody waits for the period."""
    store = request.getfixturevalue(name)
    first, second = lease(store, clock), lease(store, clock, "b")
    first.try_acquire()
    first.release()
    assert read_lease(store) is None
    assert not first.is_held
    assert second.try_acquire() is None


def test_the_address_is_published_when_the_oracle_can_answer(
    locked: MemoryStore, clock: ManualClock
) -> None:
    """Before that, clients are told to wait; without any oracle, how to start one."""
    with pytest.raises(OracleUnavailable, match="start `tso-server --store memory:`"):
        lease_address(locked)
    held = lease(locked, clock)
    held.try_acquire()
    with pytest.raises(OracleUnavailable, match="is starting"):
        lease_address(locked)
    held.publish(address="[::1]:24758", epoch=0)
    assert lease_address(locked) == ("::1", 24758)
    held.publish(address="", epoch=0)
    with pytest.raises(ConfigError, match="which stands also where it was killed"):
        lease_address(locked)


@pytest.mark.parametrize(
    "address", ["h:99999", "a..b:1", "h:" + "9" * 5000, "h\0:1", "h:\u0663", ":1"]
)
def test_an_address_that_is_none_is_told_as_such(
    locked: MemoryStore, clock: ManualClock, address: str
) -> None:
    """A client that called there ended in a foreign error, which nobody tries again behind."""
    held = lease(locked, clock)
    held.try_acquire()
    held.publish(address=address, epoch=0)
    with pytest.raises(CorruptCell, match=r"row b'lease'.*the next `tso-server` takes it over"):
        lease_address(locked)


def test_a_store_without_our_tables_has_no_oracle() -> None:
    """Java alone has served it, or nobody."""
    assert read_lease(MemoryStore()) is None


# -- a record that cannot be read ------------------------------------------------------------------

HELD_FOR_NO_TIME: Final = (
    b'{"holder":"x","address":"h:1","epoch":5,"pid":1,"host":"h","period_ms":0,"sequence":7}'
)
GARBLED: Final = [b"", HELD_FOR_NO_TIME, b"{", b"\xff\x00", b'{"holder": 3}', b"x" * 5000]


@pytest.mark.parametrize("garbled", GARBLED)
def test_with_a_lock_what_cannot_be_read_is_taken_over_at_once(
    locked: MemoryStore, clock: ManualClock, garbled: bytes
) -> None:
    """Nobody else lives; no oracle of the store started any more."""
    first = lease(locked, clock)
    assert first.try_acquire() is None
    ControlTable(locked).write(LEASE_FACT, garbled)
    with pytest.raises(LeaseLost, match="cannot be read"):
        first.check()
    first.release()
    second = lease(locked, clock, "b")
    assert second.try_acquire() is None
    second.publish(address="h:1", epoch=5)
    assert lease_address(locked) == ("h", 1)


@pytest.mark.parametrize("garbled", GARBLED)
def test_without_locks_it_must_stand_still_for_a_period(
    lockless: MemoryStore, clock: ManualClock, garbled: bytes
) -> None:
    """Whoever held it may answer begins until then, and is told before it answers a commit."""
    first, second = lease(lockless, clock), lease(lockless, clock, "b")
    assert first.try_acquire() is None
    ControlTable(lockless).write(LEASE_FACT, garbled)
    clock.advance(1)
    assert "cannot be read" in str(second.try_acquire())
    clock.advance(9.5)
    assert second.try_acquire() is not None
    assert clock.monotonic_s() > first.vouched_until_s
    with pytest.raises(LeaseLost, match="cannot be read"):
        first.check()
    clock.advance(1)
    assert second.try_acquire() is None
    with pytest.raises(LeaseLost, match="process"):
        first.check()


def test_our_own_record_never_comes_back_after_one_that_cannot_be_read(
    locked: MemoryStore, clock: ManualClock
) -> None:
    """Who compares with an older one, be it its own, finds another."""
    held = lease(locked, clock)
    assert held.try_acquire() is None
    before = held.guard.expected
    ControlTable(locked).write(LEASE_FACT, b"{")
    held.release()
    assert held.try_acquire() is None
    assert held.guard.expected != before


def test_whoever_looks_for_the_oracle_is_told_what_ends_it(
    locked: MemoryStore, clock: ManualClock
) -> None:
    """A start of the oracle does."""
    assert lease(locked, clock).try_acquire() is None
    ControlTable(locked).write(LEASE_FACT, b"{")
    with pytest.raises(CorruptCell, match=r"row b'lease' .*the next `tso-server` takes it over"):
        lease_address(locked)
