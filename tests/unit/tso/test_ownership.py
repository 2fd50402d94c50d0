"""Whose a transaction is: no stranger decides it, and no flood makes it a stranger's."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.base import AbortReason
from omidpy.wire.messages import CommitResponse, FenceRequest, TimestampRequest
from tests.machines.oracle_driver import Driver, commit_request, small
from tso.core.shares.clients import numbered


def refused(start_ts: int, reason: AbortReason, conflicts: tuple[int, ...] = ()) -> CommitResponse:
    """Return the abort that a client would get."""
    cells = tuple(CellId(cell) for cell in conflicts)
    return CommitResponse(Timestamp(start_ts), None, cells, reason.value)


def test_a_flood_of_begins_makes_nobodys_transaction_a_strangers() -> None:
    """A stranger committed it with no cells, and its owner's conflict was answered with that."""
    driver = Driver(small(begin_memory=2, old_begin_memory=200))
    driver.ask_as("victim", TimestampRequest(), client=7)
    for _ in range(10):
        driver.ask_as("stranger", *[TimestampRequest()] * 100, client=8)
        driver.ask_as("another", TimestampRequest(), client=9)
    driver.ask_as("stranger", commit_request(50, []), client=8)
    assert driver.sent[-1] == ("stranger", refused(50, AbortReason.LOW_WATERMARK))
    driver.ask_as("another", commit_request(driver.machine.last_issued, [1]), client=9)
    assert 50 not in driver.disk.entries
    driver.ask_as("victim", commit_request(50, [1]), client=7)
    assert driver.sent[-1] == ("victim", refused(50, AbortReason.CONFLICT, (1,)))


def test_whoever_floods_forgets_what_it_began_itself() -> None:
    """What it began first is refused, and remembered as no decision; the victim's commits."""
    driver = Driver(small(begin_memory=2, old_begin_memory=200))
    driver.ask_as("victim", TimestampRequest(), client=7)
    for _ in range(10):
        driver.ask_as("flood", *[TimestampRequest()] * 100, client=8)
        driver.ask_as("another", TimestampRequest(), client=9)
    newest = driver.machine.last_issued
    driver.ask_as("flood", commit_request(100, [1]), client=8)
    assert driver.sent[-1] == ("flood", refused(100, AbortReason.LOW_WATERMARK))
    driver.ask_as("flood", commit_request(newest - 500, [1]), client=8)
    driver.ask_as("victim", commit_request(50, [2]), client=7)
    assert set(driver.disk.entries) == {newest - 500, 50}
    assert driver.machine.low_watermark == 0


def test_what_is_nobodys_any_more_is_looked_up_before_it_is_refused() -> None:
    """It may have been decided: what the commit table says is the answer, and no refusal is."""
    driver = Driver(small(begin_memory=2, old_begin_memory=200, decision_memory=2))
    for _ in range(10):
        driver.ask_as("flood", *[TimestampRequest()] * 100, client=8)
        driver.ask_as("another", TimestampRequest(), client=9)
    newest = driver.machine.last_issued - 50
    for number in range(4):
        driver.ask_as("flood", commit_request(newest - 50 * number, [number]), client=8)
    driver.disk.entries[100] = Timestamp(1000)
    driver.ask_as("flood", commit_request(100, [9]), commit_request(150, [9]), client=8)
    assert [answer for _, answer in driver.sent[-2:]] == [
        CommitResponse(Timestamp(100), Timestamp(1000)),
        refused(150, AbortReason.LOW_WATERMARK),
    ]
    driver.disk.prune_horizon = 200
    driver.ask_as("flood", commit_request(200, [9]), client=8)
    assert "may have been pruned" in driver.closed["flood"]


def test_nobody_is_told_a_commit_that_was_decided_a_moment_ago_and_is_not_durable() -> None:
    """I2: a stranger's request was looked up beside the owner's, which was decided behind that."""
    driver = Driver(small(begin_memory=2, old_begin_memory=200, decision_memory=2))
    driver.ask_as("victim", TimestampRequest(), client=7)
    for _ in range(10):
        driver.ask_as("flood", *[TimestampRequest()] * 100, client=8)
        driver.ask_as("another", TimestampRequest(), client=9)
    newest = driver.machine.last_issued - 50
    for number in range(4):
        driver.ask_as("flood", commit_request(newest - 50 * number, [number]), client=8)
    driver.flushes_at_once = False
    driver.ask_as("flood", commit_request(newest - 500, [20]), client=8)
    driver.ask_as("victim", commit_request(50, [100]), client=7)
    driver.ask_as("stranger", commit_request(50, []), client=8)
    driver.land()
    sent = len(driver.sent)
    driver.land()
    assert 50 not in driver.disk.entries
    assert [name for name, _ in driver.sent[sent:]] == ["flood"], "it is decided, and no more"
    driver.land()
    commit_ts = driver.disk.entries[50]
    assert isinstance(commit_ts, int)
    committed = CommitResponse(Timestamp(50), Timestamp(commit_ts))
    assert driver.sent[sent + 1 :] == [("victim", committed), ("stranger", committed)]


def test_a_repetition_is_answered_whoever_asks() -> None:
    """Who lost an answer may come from another address; to be told changes nothing."""
    driver = Driver(small(decision_memory=1))
    driver.ask_as("ours", *[TimestampRequest()] * 3, client=7)
    driver.ask_as("ours", commit_request(50, [1]), commit_request(100, [2]), client=7)
    committed = driver.sent[-2:]
    for start_ts in (50, 100):
        repeated = replace(commit_request(start_ts, [9]), is_retry=True)
        driver.ask_as("elsewhere", repeated, client=8)
    assert [answer for _, answer in driver.sent[-2:]] == [answer for _, answer in committed]
    driver.ask_as("elsewhere", replace(commit_request(150, []), is_retry=True), client=8)
    assert "nothing is known about start_ts 150" in driver.closed["elsewhere"]
    driver.ask_as("ours", commit_request(150, [3]), client=7)
    assert set(driver.disk.entries) == {50, 100, 150}


def test_a_connection_of_omids_clients_owns_what_it_began() -> None:
    """When it is lost its transactions are refused, without ending what the next one does."""
    mine, other = (numbered(3, number, is_connection=True) for number in (1, 2))
    driver = Driver()
    driver.ask_as("java", *[TimestampRequest()] * 2, client=mine)
    driver.ask_as("java, connected again", commit_request(50, []), client=other)
    assert driver.sent[-1] == ("java, connected again", refused(50, AbortReason.LOW_WATERMARK))
    driver.ask_as("java", commit_request(50, [1]), client=mine)
    assert set(driver.disk.entries) == {50}
    assert driver.closed == {}
    driver.ask_as("ours", commit_request(100, []), client=numbered(3, 1, is_connection=False))
    assert driver.closed == {"ours": "another client began start_ts 100"}


def test_whoever_watches_is_told_who_began_a_transaction() -> None:
    """Also where the engine has forgotten it; not where nobody has begun it, nor of strangers."""
    driver = Driver(small(begin_memory=2, old_begin_memory=200))
    driver.ask_as("victim", TimestampRequest(), client=7)
    for _ in range(10):
        driver.ask_as("stranger", *[TimestampRequest()] * 100, client=8)
        driver.ask_as("another", TimestampRequest(), client=9)
    newest = driver.machine.last_issued
    assert driver.machine.began(50, [7, 8, 9]) == [7]
    assert driver.machine.began(newest, [7, 8, 9]) == [9]
    assert driver.machine.began(newest, [7, 8]) == []
    assert driver.machine.began(50, [8, 9]) is None
    for never in (newest + 50, 51, 0, -50):
        assert driver.machine.began(never, [7, 8, 9]) is None


class Counters:
    """Counts what is counted."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def count(self, name: str, amount: int = 1) -> None:
        """Add."""
        self.counts[name] += amount

    def observe(self, name: str, value: float) -> None:
        """Do nothing."""

    def gauge(self, name: str, value: float) -> None:
        """Do nothing."""


def test_refusals_are_counted_by_reason() -> None:
    """A storm of conflicts is mended by other means than transactions that take too long."""
    driver = Driver(small(begin_memory=2, old_begin_memory=200))
    metrics = driver.machine._figures.metrics = Counters()
    driver.ask_as("a", *[TimestampRequest()] * 3, client=7)
    driver.ask_as("a", commit_request(50, [1]), client=7)
    driver.ask_as("a", commit_request(100, [1]), client=7)
    cells = [*range(10, 10 + driver.machine.max_commit_cells + 1)]
    driver.ask_as("a", commit_request(150, cells), client=7)
    counted = {name: count for name, count in metrics.counts.items() if "aborts" in name}
    assert counted == {"tso.aborts": 2, "tso.aborts.conflict": 1, "tso.aborts.tooLarge": 1}
    driver.ask_as("b", TimestampRequest(), client=8)
    mine = driver.machine.last_issued
    driver.ask_as("a", FenceRequest(TableId(5)), client=7)
    driver.ask_as("b", commit_request(mine, [3], tables=[5]), client=8)
    assert metrics.counts["tso.aborts.fence"] == 1
    assert metrics.counts["tso.aborts.lowWatermark"] == 0
    for _ in range(3):
        driver.ask_as("flood", *[TimestampRequest()] * 200, client=9)
        driver.ask_as("b", TimestampRequest(), client=8)
    driver.ask_as("stranger", commit_request(200, []), client=10)
    assert metrics.counts["tso.aborts.lowWatermark"] == 1
