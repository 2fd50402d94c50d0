"""Many threads share one connection; no answer is lost, mistaken or waited for in vain."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from queue import SimpleQueue

import pytest

from omidpy.errors import (
    ConfigError,
    LocalProtocolError,
    OracleUnavailable,
    RemoteProtocolError,
    StorageUnavailable,
    UsageError,
)
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.address import Place
from omidpy.oracle.base import (
    AbortReason,
    Begun,
    CommitGranted,
    CommitRefused,
    InvalidationVerdict,
)
from omidpy.oracle.link import Link, _Call
from omidpy.oracle.network import SystemNetwork
from omidpy.oracle.tcp import TcpOracle
from omidpy.wire import frames
from omidpy.wire.frames import encode_response, frame
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    FenceResponse,
    HandshakeRequest,
    HandshakeResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    PeerCapabilities,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.interrupts.lines import Interrupt, Interrupter
from tests.machines.scripted_oracle import (
    JAVAS,
    OURS,
    PATIENCE_S,
    Conversation,
    Script,
    ScriptedOracle,
    obliging,
)

CELLS = (CellId(-5), CellId(7))
TABLES = (TableId(9),)
SOON_S = 0.3
"""A time limit that a test means to run into."""


@contextmanager
def served(
    *scripts: Script,
    store_id: str | None = None,
    request_timeout_s: float = PATIENCE_S,
    reconnect_budget_s: float = 5.0,
) -> Iterator[tuple[TcpOracle, ScriptedOracle]]:
    """Run an oracle with these scripts, and a client of it."""
    with ScriptedOracle(*scripts) as server:
        oracle = TcpOracle(
            server.address,
            store_id=store_id,
            request_timeout_s=request_timeout_s,
            reconnect_budget_s=reconnect_budget_s,
        )
        try:
            yield oracle, server
        finally:
            oracle.close()


@contextmanager
def threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """Give a pool of threads."""
    with ThreadPoolExecutor(count) as pool:
        yield pool


def result(future: Future[object]) -> object:
    """Wait for a thread's result, but not for ever."""
    return future.result(PATIENCE_S)


# -- one question, one answer ----------------------------------------------------------------------


def test_begin_carries_the_epoch_and_the_low_watermark() -> None:
    """A reader may settle what became of anything older than both."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        assert peer.expect(TimestampRequest) == TimestampRequest()
        peer.say(TimestampResponse(Timestamp(1000), Timestamp(250)))

    with served(script) as (oracle, _):
        begun = oracle.begin()
        assert begun == Begun(Timestamp(1000), Timestamp(100), Timestamp(250), Timestamp(0))
        assert begun.fenced_ts == 250
        assert oracle.store_id == "store-a"
        assert oracle.epoch == 100
        assert oracle.max_transaction_age_s == 900
        assert oracle.can_invalidate


def test_begin_carries_the_newest_fence() -> None:
    """What was read of a table before it may be of an earlier one."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        assert peer.expect(TimestampRequest) == TimestampRequest()
        peer.say(TimestampResponse(Timestamp(1000), Timestamp(250), Timestamp(300)))

    with served(script) as (oracle, _):
        assert oracle.begin().fenced_ts == 300


def test_a_java_oracle_tells_nothing_about_itself() -> None:
    """Nothing may be invalidated on its word, and it knows no holds and no invalidations."""

    def script(peer: Conversation) -> None:
        peer.shake_hands(JAVAS)
        assert peer.expect(TimestampRequest) == TimestampRequest(hold_ms=None)
        peer.say(TimestampResponse(Timestamp(1000)))
        peer.wait_hangup()

    with served(script, store_id="store-a") as (oracle, _):
        begun = oracle.begin(hold_s=60)
        assert begun == Begun(Timestamp(1000), Timestamp(0), Timestamp(0))
        assert begun.fenced_ts is None
        assert oracle.store_id is None
        assert oracle.max_transaction_age_s is None
        assert not oracle.can_invalidate
        with pytest.raises(LocalProtocolError, match="did not announce INVALIDATE"):
            oracle.invalidate(Timestamp(50))


def test_a_refused_retry_of_java_waits_for_everything_decided_before_it() -> None:
    """Java looks retries up beside its batches; a start timestamp leaves behind all of them."""

    def script(peer: Conversation) -> None:
        peer.shake_hands(JAVAS)
        assert peer.expect(CommitRequest).is_retry
        peer.say(CommitResponse(Timestamp(1000), None))
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(1100)))
        assert peer.expect(CommitRequest).is_retry
        peer.say(CommitResponse(Timestamp(1050), None))
        peer.expect(TimestampRequest)

    with served(script) as (oracle, _):
        refused = oracle.commit(Timestamp(1000), CELLS, TABLES, is_retry=True)
        assert refused == CommitRefused()
        with pytest.raises(OracleUnavailable) as caught:
            oracle.commit(Timestamp(1050), CELLS, TABLES, is_retry=True)
        assert caught.value.was_sent
        assert not caught.value.retryable


def test_an_epoch_that_was_published_counts_where_the_oracle_tells_none() -> None:
    """Java's says nothing about itself; ZooKeeper does.  Our own is believed itself."""

    def java(peer: Conversation) -> None:
        peer.shake_hands(JAVAS)
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(1000)))
        peer.wait_hangup()

    with ScriptedOracle(java, obliging(first_ts=2000)) as server:
        oracle = TcpOracle(
            resolve=lambda: Place("127.0.0.1", server.port, Timestamp(700)),
            request_timeout_s=PATIENCE_S,
        )
        assert oracle.begin() == Begun(Timestamp(1000), Timestamp(700))
        assert oracle.epoch == 700
        oracle._links.current.kill("the test goes on with ours")  # type: ignore[union-attr]  # it is open
        assert oracle.begin().epoch == OURS.epoch == 100
        oracle.close()


def test_an_epoch_that_the_store_has_is_read_behind_each_handshake_of_javas() -> None:
    """Java's writes it before it listens, so that it counts for who has heard of that instance."""

    def java(start_ts: int, peer: Conversation) -> None:
        peer.shake_hands(JAVAS)
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(start_ts)))
        peer.wait_hangup()

    recorded = iter((Timestamp(600), Timestamp(1000)))
    scripts = partial(java, 1000), partial(java, 1500), obliging(first_ts=2000)
    with ScriptedOracle(*scripts) as server:
        oracle = TcpOracle(
            f"127.0.0.1:{server.port}",
            recorded_epoch=lambda: next(recorded),
            request_timeout_s=PATIENCE_S,
        )
        for epoch in (600, 1000, OURS.epoch):
            assert oracle.begin().epoch == oracle.epoch == epoch
            oracle._links.current.kill("the test goes on")  # type: ignore[union-attr]  # it is open
        oracle.close()
    assert not list(recorded), "ours tells it"


def test_a_commit_is_not_in_doubt_where_the_epoch_cannot_be_read() -> None:
    """Nothing has left yet."""

    def script(peer: Conversation) -> None:
        peer.shake_hands(JAVAS)
        peer.wait_hangup()

    def unreadable() -> Timestamp:
        raise StorageUnavailable("the store is away")

    with ScriptedOracle(script) as server:
        oracle = TcpOracle(
            f"127.0.0.1:{server.port}", recorded_epoch=unreadable, reconnect_budget_s=0
        )
        with pytest.raises(OracleUnavailable, match="the store is away") as caught:
            oracle.commit(Timestamp(1000), CELLS, TABLES)
        assert not caught.value.was_sent
        assert caught.value.retryable
        oracle.close()


def test_a_timestamp_below_the_published_epoch_is_refused() -> None:
    """It comes from an instance before the published one, whose snapshots miss what that commits.

    Omid's client asks until it gets a higher one.
    """

    def script(peer: Conversation) -> None:
        peer.shake_hands(JAVAS)
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(700)))
        peer.wait_hangup()

    with ScriptedOracle(script) as server:
        oracle = TcpOracle(
            resolve=lambda: Place("127.0.0.1", server.port, Timestamp(700)),
            request_timeout_s=PATIENCE_S,
        )
        with pytest.raises(OracleUnavailable, match="not above the published epoch 700"):
            oracle.begin()
        oracle.close()


def test_nothing_is_known_before_the_first_connection() -> None:
    """To make a client costs no connection; asking what it can do does."""
    with served(obliging()) as (oracle, server):
        assert (oracle.store_id, oracle.epoch, oracle.max_transaction_age_s) == (None, 0, None)
        assert server.connection_count == 0
        assert oracle.can_invalidate
        oracle.ping()
        assert server.connection_count == 1


def test_a_hold_travels_in_milliseconds() -> None:
    """Rounded up: a hold that ends early is none."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        assert peer.expect(TimestampRequest).hold_ms == 1501
        peer.say(TimestampResponse(Timestamp(1000)))

    with served(script) as (oracle, _):
        oracle.begin(hold_s=1.5001)
        for nothing in (0, -1, float("nan"), float("inf")):
            with pytest.raises(UsageError, match="holds nothing"):
                oracle.begin(hold_s=nothing)


def test_a_hold_that_is_asked_for_again_has_the_same_name() -> None:
    """So that the oracle lets go of the first, whose answer was lost; another begin has another."""
    asked: list[TimestampRequest] = []

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        asked.append(peer.expect(TimestampRequest))
        if len(asked) == 1:
            return  # and hangs up
        peer.say(TimestampResponse(Timestamp(1000)))
        asked.append(peer.expect(TimestampRequest))
        peer.say(TimestampResponse(Timestamp(1050)))

    with served(script, script) as (oracle, _):
        assert oracle.begin(hold_s=1).start_ts == 1000
        assert oracle.begin(hold_s=1).start_ts == 1050
    first, again, other = asked
    assert first.hold_name is not None
    assert again == TimestampRequest(1000, first.hold_name, 1)
    assert other.hold_name not in (None, first.hold_name)
    assert other.repetition == 0


def test_a_commit_is_granted_or_refused_with_its_reason() -> None:
    """The reason decides between the errors that the user sees."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        request = peer.expect(CommitRequest)
        assert request == CommitRequest(Timestamp(1000), CELLS, TABLES)
        peer.say(CommitResponse(Timestamp(1000), Timestamp(1100)))
        assert peer.expect(CommitRequest).is_retry
        peer.say(CommitResponse(Timestamp(1050), None, (CellId(7),), AbortReason.CONFLICT.value))
        peer.expect(CommitRequest)
        peer.say(CommitResponse(Timestamp(1200), None))
        peer.expect(CommitRequest)
        peer.say(CommitResponse(Timestamp(1250), None, (), 99))

    with served(script) as (oracle, _):
        granted = oracle.commit(Timestamp(1000), CELLS, TABLES)
        assert granted == CommitGranted(Timestamp(1100))
        refused = oracle.commit(Timestamp(1050), CELLS, TABLES, is_retry=True)
        assert refused == CommitRefused(AbortReason.CONFLICT, (CellId(7),))
        assert oracle.commit(Timestamp(1200), CELLS, TABLES) == CommitRefused()
        unheard_of = oracle.commit(Timestamp(1250), CELLS, TABLES)
        assert unheard_of == CommitRefused(AbortReason.UNSTATED)


def test_fences_and_invalidations_are_answered() -> None:
    """All three verdicts on an invalidation."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        assert peer.expect(FenceRequest).table_id == -9
        peer.say(FenceResponse(TableId(-9), Timestamp(2000)))
        for verdict in InvalidateVerdict:
            start_ts = peer.expect(InvalidateRequest).start_ts
            commit_ts = Timestamp(150) if verdict is InvalidateVerdict.COMMITTED else None
            peer.say(InvalidateResponse(start_ts, verdict, commit_ts))

    with served(script) as (oracle, _):
        assert oracle.fence(TableId(-9)) == 2000
        assert oracle.invalidate(Timestamp(50)) is InvalidationVerdict.INVALIDATED
        assert oracle.invalidate(Timestamp(50)) is InvalidationVerdict.UNKNOWN
        assert oracle.invalidate(Timestamp(50)) == CommitGranted(Timestamp(150))


# -- many threads ----------------------------------------------------------------------------------


def test_sixteen_threads_are_in_flight_at_once_and_each_gets_its_own_answer() -> None:
    """The oracle answers commits in any order; whoever reads hands out the others' answers."""
    count, rounds = 16, 30

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        order = random.Random(7)
        for _ in range(rounds):
            # All sixteen are awaited before the first answer: they share the connection.
            starts = [peer.expect(CommitRequest).start_ts for _ in range(count)]
            order.shuffle(starts)
            for start_ts in starts:
                peer.say(CommitResponse(start_ts, Timestamp(start_ts + 100_000)))

    with served(script) as (oracle, server), threads(count) as pool:

        def commit_all(number: int) -> None:
            for turn in range(rounds):
                start_ts = Timestamp(50 * (1 + number + turn * count))
                verdict = oracle.commit(start_ts, CELLS, TABLES)
                assert verdict == CommitGranted(Timestamp(start_ts + 100_000))

        for future in [pool.submit(commit_all, number) for number in range(count)]:
            result(future)  # type: ignore[arg-type]  # None is an object
        assert server.connection_count == 1


def test_the_lead_is_handed_over_without_lost_wake_ups() -> None:
    """If one were lost, a thread would sleep until its time limit, and the test would fail."""
    count, rounds = 16, 150

    with served(obliging()) as (oracle, server), threads(count) as pool:

        def begin_and_commit() -> list[Timestamp]:
            mine = []
            for _ in range(rounds):
                start_ts = oracle.begin().start_ts
                assert isinstance(oracle.commit(start_ts, CELLS, TABLES), CommitGranted)
                mine.append(start_ts)
            return mine

        futures = [pool.submit(begin_and_commit) for _ in range(count)]
        all_starts = [start_ts for future in futures for start_ts in future.result(PATIENCE_S)]
        assert len(set(all_starts)) == count * rounds
        assert server.connection_count == 1


def test_the_same_fence_from_two_threads_goes_out_one_after_the_other() -> None:
    """Both answers name the same table, and each caller needs a fence later than its call."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(FenceRequest)
        # A second fence in flight would be read here, in place of the request of another kind.
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(1000)), FenceResponse(TableId(9), Timestamp(2000)))
        peer.expect(FenceRequest)
        peer.say(FenceResponse(TableId(9), Timestamp(3000)))

    with served(script) as (oracle, _), threads(3) as pool:
        fences = [pool.submit(oracle.fence, TableId(9)) for _ in range(2)]
        until(lambda: any(turn.locked() for turn in oracle._turns) and somebody_waits_for_a_lock())
        assert pool.submit(oracle.begin).result(PATIENCE_S).start_ts == 1000
        assert {future.result(PATIENCE_S) for future in fences} == {2000, 3000}


def somebody_waits_for_a_lock() -> bool:
    """Say whether a thread sleeps where a lock is taken, the way to a turn among them."""
    return any(frame.f_code.co_name == "within" for frame in sys._current_frames().values())


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that some thread is about to make true."""
    tick = threading.Event()
    for _ in range(int(PATIENCE_S / 0.002)):
        if condition():
            return
        tick.wait(0.002)
    raise AssertionError("the condition never came true")


def test_the_same_commit_from_two_threads_is_refused() -> None:
    """It is a bug of the caller, and one of the two would never get its answer."""
    is_asked = threading.Event()
    may_answer = threading.Event()

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        start_ts = peer.expect(CommitRequest).start_ts
        is_asked.set()
        assert may_answer.wait(PATIENCE_S)
        peer.say(CommitResponse(start_ts, Timestamp(1100)))

    with served(script) as (oracle, _), threads(1) as pool:
        first = pool.submit(oracle.commit, Timestamp(1000), CELLS, TABLES)
        assert is_asked.wait(PATIENCE_S)
        with pytest.raises(LocalProtocolError, match="in flight already"):
            oracle.commit(Timestamp(1000), CELLS, TABLES)
        may_answer.set()
        assert first.result(PATIENCE_S) == CommitGranted(Timestamp(1100))


# -- time limits -----------------------------------------------------------------------------------


def test_a_late_start_timestamp_is_never_handed_to_a_later_begin() -> None:
    """Omid's client would: its queue shifts by one.  Then 'I see what committed before' fails."""
    is_given_up = threading.Event()

    def slow(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(TimestampRequest)
        assert is_given_up.wait(PATIENCE_S)
        with pytest.raises(OSError):  # noqa: PT012  how soon the reset is seen is the kernel's affair
            while True:
                peer.say(TimestampResponse(Timestamp(1000)))

    def prompt(peer: Conversation) -> None:
        is_given_up.set()
        obliging(first_ts=5000)(peer)

    with served(slow, prompt, request_timeout_s=SOON_S) as (oracle, server):
        assert oracle.begin().start_ts == 5000
        assert oracle.begin().start_ts == 5050
        assert server.connection_count == 2


def test_one_overdue_answer_fails_everything_in_flight() -> None:
    """The connection is given up, so no other answer can come by it; commits are in doubt."""
    are_waiting = threading.Barrier(2)

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        for _ in range(4):
            peer.expect(CommitRequest)
        are_waiting.wait(PATIENCE_S)
        peer.wait_hangup()

    with (
        served(script, request_timeout_s=1.0, reconnect_budget_s=0) as (oracle, server),
        threads(4) as pool,
    ):
        commits = [
            pool.submit(oracle.commit, Timestamp(50 * number), CELLS, TABLES)
            for number in range(1, 5)
        ]
        are_waiting.wait(PATIENCE_S)
        for commit in commits:
            with pytest.raises(OracleUnavailable, match="got no answer within 1 s") as caught:
                commit.result(PATIENCE_S)
            assert not caught.value.retryable
        assert server.connection_count == 1


def test_a_thread_that_waits_for_the_leader_keeps_its_own_time_limit() -> None:
    """The leader may have more patience; the follower's answer is overdue all the same."""
    is_led = threading.Event()

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(CommitRequest)
        is_led.set()
        peer.expect(TimestampRequest)
        peer.wait_hangup()

    with served(script) as (patient, _), threads(1) as pool:
        leader = pool.submit(patient.commit, Timestamp(1000), CELLS, TABLES)
        assert is_led.wait(PATIENCE_S)
        patient._request_timeout_s = SOON_S
        patient._reconnect_budget_s = 0
        with pytest.raises(OracleUnavailable, match=r"got no answer within 0\.3 s"):
            patient.begin()
        with pytest.raises(OracleUnavailable, match=r"got no answer within 0\.3 s"):
            leader.result(PATIENCE_S)


def test_a_new_connection_is_opened_only_once_the_old_one_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A commit that still travels on the old one could overtake its own repetition."""
    is_led = threading.Event()
    may_read_on = threading.Event()
    read = Link._read

    def slow(link: Link, call: _Call) -> None:
        if threading.current_thread() is not threading.main_thread():
            assert may_read_on.wait(PATIENCE_S)
        read(link, call)

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(CommitRequest)
        is_led.set()
        peer.expect(TimestampRequest)
        peer.wait_hangup()

    with ScriptedOracle(script, obliging(first_ts=5000)) as server, threads(2) as pool:
        old_links: list[Link] = []
        were_gone: list[bool] = []

        def resolve() -> tuple[str, int]:
            were_gone.extend(not link._gone.locked() for link in old_links)
            return "127.0.0.1", server.port

        oracle = TcpOracle(resolve=resolve, connect_timeout_s=PATIENCE_S)
        oracle.ping()
        assert oracle._links.current is not None
        old_links.append(oracle._links.current)
        monkeypatch.setattr(Link, "_read", slow)
        leader = pool.submit(oracle.commit, Timestamp(1000), CELLS, TABLES)
        assert is_led.wait(PATIENCE_S)
        oracle._request_timeout_s = SOON_S
        follower = pool.submit(oracle.begin)
        until(lambda: not old_links[0].is_open)
        # The leader is still inside, and would read from whoever gets the descriptor next.
        assert old_links[0]._gone.locked()
        may_read_on.set()
        assert follower.result(PATIENCE_S).start_ts == 5000
        with pytest.raises(OracleUnavailable):
            leader.result(PATIENCE_S)
        assert were_gone == [True]
        oracle.close()


def test_a_write_set_larger_than_the_socket_s_buffer_is_sent_whole() -> None:
    """The oracle reads when it gets to it; sending waits, and others' answers still come in."""
    cells = tuple(map(CellId, range(-200_000, 0)))

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        request = peer.expect(CommitRequest)
        assert request.cell_ids == cells
        peer.say(CommitResponse(request.start_ts, Timestamp(1100)))

    with served(script) as (oracle, _):
        verdict = oracle.commit(Timestamp(1000), cells, TABLES)
        assert verdict == CommitGranted(Timestamp(1100))


def test_an_oracle_that_never_reads_is_given_up() -> None:
    """One stuck sender would hold up every thread for ever; and it is reset.

    What waits in the kernel must not arrive behind a repetition on another connection.
    """
    is_over = threading.Event()
    ends: SimpleQueue[str] = SimpleQueue()

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        assert is_over.wait(PATIENCE_S)
        try:
            while peer._sock.recv(2**20):
                pass
        except ConnectionResetError:
            ends.put("reset")
        else:
            ends.put("closed, when all of it had come")

    cells = tuple(map(CellId, range(-900_000, 0)))
    with served(script, request_timeout_s=SOON_S, reconnect_budget_s=0) as (oracle, _):
        with pytest.raises(OracleUnavailable, match=r"could not be sent within 0\.3 s"):
            oracle.commit(Timestamp(1000), cells, TABLES)
        is_over.set()
        assert ends.get(timeout=PATIENCE_S) == "reset"


def test_a_write_set_too_large_is_refused_and_the_connection_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing was sent: the transaction certainly did not commit."""
    monkeypatch.setattr(frames, "MAX_REQUEST_FRAME_BYTES", 100)
    with served(obliging()) as (oracle, server):
        oracle.begin()
        with pytest.raises(UsageError, match="write set of 100 cells"):
            oracle.commit(Timestamp(1000), tuple(map(CellId, range(100))), TABLES)
        assert oracle.begin().start_ts == 1050
        assert server.connection_count == 1


# -- an oracle that breaks down --------------------------------------------------------------------


def test_an_oracle_that_dies_in_the_middle_of_an_answer_leaves_the_commit_in_doubt() -> None:
    """Half an answer is none; the caller asks again with is_retry, on a new connection."""

    def dying(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(CommitRequest)
        whole = frame(encode_response(CommitResponse(Timestamp(1000), Timestamp(1100))))
        peer.say_bytes(whole[:-1])

    def recovered(peer: Conversation) -> None:
        peer.shake_hands()
        assert peer.expect(CommitRequest).is_retry
        peer.say(CommitResponse(Timestamp(1000), Timestamp(1100)))

    with served(dying, recovered) as (oracle, server):
        with pytest.raises(OracleUnavailable, match="in the middle of an answer") as caught:
            oracle.commit(Timestamp(1000), CELLS, TABLES)
        assert not caught.value.retryable
        # The commit was not repeated behind the caller's back.
        assert server.connection_count == 1
        verdict = oracle.commit(Timestamp(1000), CELLS, TABLES, is_retry=True)
        assert verdict == CommitGranted(Timestamp(1100))


def test_harmless_requests_are_repeated_on_a_new_connection() -> None:
    """A restart of the oracle is no business of whoever begins a transaction."""

    def dying(kind: type[object]) -> Script:
        def script(peer: Conversation) -> None:
            peer.shake_hands()
            peer.expect(kind)

        return script

    with served(dying(TimestampRequest), obliging()) as (oracle, server):
        assert oracle.begin().start_ts == 1000
        assert server.connection_count == 2
    with served(dying(FenceRequest), obliging()) as (oracle, server):
        assert oracle.fence(TableId(9)) == 1000
        assert server.connection_count == 2
    with served(dying(InvalidateRequest), obliging()) as (oracle, server):
        assert oracle.invalidate(Timestamp(50)) is InvalidationVerdict.INVALIDATED
        assert server.connection_count == 2


@pytest.mark.parametrize(
    "garbage",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        frame(b""),
        frame(b"\x0a\x02\x08"),
        frame(encode_response(FenceResponse(TableId(9), Timestamp(50)))),
        frame(encode_response(TimestampResponse(Timestamp(1001)))),
    ],
)
def test_an_oracle_that_breaks_the_protocol_is_told_from_one_that_is_away(garbage: bytes) -> None:
    """Repeating would hide a bug; the next call starts on a clean connection."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(TimestampRequest)
        peer.say_bytes(garbage)
        peer.wait_hangup()

    with served(script, obliging()) as (oracle, _):
        with pytest.raises(RemoteProtocolError):
            oracle.begin()
        assert oracle.begin().start_ts == 1000


def test_a_commit_is_in_doubt_when_the_oracle_breaks_the_protocol() -> None:
    """The caller has to find the outcome: what came was no answer."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(CommitRequest)
        peer.say_bytes(frame(b"\x12\x00"))

    with served(script) as (oracle, _):
        with pytest.raises(OracleUnavailable, match="broke the protocol") as caught:
            oracle.commit(Timestamp(1000), CELLS, TABLES)
        assert not caught.value.retryable
        assert isinstance(caught.value.__cause__, RemoteProtocolError)


def test_a_peer_that_is_no_oracle_is_named_as_such() -> None:
    """The port of some other service, say."""

    def web_server(peer: Conversation) -> None:
        peer.say_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with (
        served(web_server) as (oracle, server),
        pytest.raises(RemoteProtocolError, match=f"{server.address} does not speak the oracle's"),
    ):
        oracle.begin()


def test_start_timestamps_that_go_back_after_a_restart_are_refused() -> None:
    """I1: an oracle started on an empty store would let updates be lost."""

    def first(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(5000)))

    with served(first, obliging(first_ts=50)) as (oracle, _):
        assert oracle.begin().start_ts == 5000
        with pytest.raises(RemoteProtocolError, match="handed out start_ts 50 after 5000"):
            oracle.begin()


def test_a_commit_on_a_connection_that_ended_while_idle_is_not_in_doubt() -> None:
    """The end is seen before anything is sent, so the commit goes out on a new connection."""
    is_closed = threading.Event()

    def restarting(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(1000)))
        peer._sock.shutdown(socket.SHUT_RDWR)
        is_closed.set()

    with served(restarting, obliging(first_ts=5000)) as (oracle, server):
        start_ts = oracle.begin().start_ts
        assert is_closed.wait(PATIENCE_S)
        assert oracle.commit(start_ts, CELLS, TABLES) == CommitGranted(Timestamp(5000))
        assert server.connection_count == 2


def test_an_interrupted_thread_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C hits the thread that leads: the others must hear that the connection is gone."""
    is_followed, has_both = threading.Event(), threading.Event()
    read = Link._read

    def interrupted(link: Link, call: _Call) -> None:
        if threading.current_thread().name == "leader":
            assert is_followed.wait(PATIENCE_S)
            raise KeyboardInterrupt
        read(link, call)

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(CommitRequest)
        peer.expect(CommitRequest)
        has_both.set()
        peer.wait_hangup()

    outcome: list[BaseException] = []
    with served(script) as (oracle, _), threads(1) as pool:
        oracle.ping()
        monkeypatch.setattr(Link, "_read", interrupted)

        def lead() -> None:
            try:
                oracle.commit(Timestamp(1000), CELLS, TABLES)
            except KeyboardInterrupt as interrupt:
                outcome.append(interrupt)

        leader = threading.Thread(target=lead, name="leader")
        leader.start()
        link = oracle._links.current
        assert link is not None
        until(lambda: link._has_leader)
        follower = pool.submit(oracle.commit, Timestamp(1050), CELLS, TABLES)
        until(lambda: len(link._followers) == 1)
        assert has_both.wait(PATIENCE_S)  # what was not sent would be asked for anew
        is_followed.set()
        leader.join(PATIENCE_S)
        assert len(outcome) == 1
        with pytest.raises(OracleUnavailable, match="was interrupted"):
            follower.result(PATIENCE_S)


@pytest.mark.parametrize(
    "ask",
    [
        lambda oracle: oracle.commit(Timestamp(10**9), CELLS, TABLES),
        lambda oracle: oracle.fence(TableId(9)),
    ],
)
def test_a_call_interrupted_at_any_line_keeps_nobody_from_asking(
    ask: Callable[[TcpOracle], object],
) -> None:
    """A lock stayed with a thread that had gone, or a connection that nobody had looked at."""
    interrupter = Interrupter()

    def client() -> closing[TcpOracle]:
        return closing(TcpOracle(server.address, request_timeout_s=2 * PATIENCE_S))

    with ScriptedOracle(*(obliging(first_ts=1000 * count) for count in range(1, 2000))) as server:
        with client() as oracle:
            numbers = interrupter.places(partial(ask, oracle))
        assert len(numbers) > 100
        for number in numbers:
            with client() as oracle:
                with suppress(Interrupt):
                    interrupter.interrupt(partial(ask, oracle), number, Interrupt())
                other = threading.Thread(target=ask, args=(oracle,), daemon=True)
                other.start()
                other.join(PATIENCE_S)
                assert not other.is_alive(), interrupter.where
                assert oracle.begin().epoch == oracle.epoch == 100, interrupter.where


# -- finding the oracle ----------------------------------------------------------------------------


def closed_port() -> int:
    """Return a port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def test_an_oracle_that_is_not_there_is_named_with_the_remedy() -> None:
    """The first error that a new user meets."""
    address = f"127.0.0.1:{closed_port()}"
    oracle = TcpOracle(address, reconnect_budget_s=0)
    remedy = f"no oracle answers at {address}: .*tso-server --store URL --listen {address}"
    with pytest.raises(OracleUnavailable, match=remedy):
        oracle.begin()
    with pytest.raises(OracleUnavailable, match=remedy):
        oracle.ping()
    with pytest.raises(OracleUnavailable) as caught:
        oracle.commit(Timestamp(50), CELLS, TABLES)
    assert caught.value.retryable, "nothing was sent, so the transaction may simply run again"


def test_a_connection_to_oneself_is_no_oracle(monkeypatch: pytest.MonkeyPatch) -> None:
    """On loopback the kernel may connect a socket to itself, and it would keep the port busy."""
    port = closed_port()

    def connect_to_self(address: tuple[str, int], timeout: float) -> socket.socket:
        sock = socket.socket()
        sock.bind(address)
        sock.connect(address)
        return sock

    monkeypatch.setattr(socket, "create_connection", connect_to_self)
    oracle = TcpOracle(f"127.0.0.1:{port}", reconnect_budget_s=0, request_timeout_s=SOON_S)
    with pytest.raises(OracleUnavailable, match="nobody listens there"):
        oracle.begin()


def test_the_oracle_is_looked_for_anew_at_each_attempt() -> None:
    """After a fail-over it is somewhere else, or for a moment nowhere."""
    with ScriptedOracle(obliging(first_ts=5000)) as server:
        places: list[Callable[[], tuple[str, int]]] = [
            lambda: ("127.0.0.1", closed_port()),
            nowhere,
            lambda: ("127.0.0.1", server.port),
        ]

        def resolve() -> tuple[str, int]:
            look = places.pop(0)
            return look()

        oracle = TcpOracle(resolve=resolve, reconnect_budget_s=PATIENCE_S)
        assert oracle.begin().start_ts == 5000
        assert places == []
        oracle.close()


def nowhere() -> tuple[str, int]:
    """Look for the oracle in vain."""
    raise OracleUnavailable("no oracle holds the lease")


class CountingLock:
    """A lock that counts who came for it."""

    def __init__(self) -> None:
        """Nobody yet."""
        self._lock = threading.Lock()
        self.arrivals: list[int] = []

    def __enter__(self) -> None:
        self.arrivals.append(1)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_many_threads_do_not_wait_for_the_same_failure_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred threads times a connect limit of two seconds would be minutes."""
    count = 16
    attempts: list[int] = []
    may_fail = threading.Event()

    def resolve() -> tuple[str, int]:
        attempts.append(1)
        assert may_fail.wait(PATIENCE_S)
        return nowhere()

    oracle = TcpOracle(resolve=resolve, reconnect_budget_s=0)
    lock = CountingLock()
    monkeypatch.setattr(oracle._links, "_lock", lock)
    with threads(count) as pool:
        futures = [pool.submit(oracle.ping) for _ in range(count)]
        until(lambda: len(lock.arrivals) == count)
        may_fail.set()
        for future in futures:
            with pytest.raises(OracleUnavailable, match="no oracle holds the lease"):
                future.result(PATIENCE_S)
    # The first thread's, and one more for those who came while it was under way already.
    assert len(attempts) <= 2


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (
            HandshakeResponse(is_compatible=False, capabilities=None),
            "declares this client incompatible",
        ),
        (HandshakeResponse(is_compatible=True, is_low_latency=True), "set lowLatency: false"),
        (
            HandshakeResponse(is_compatible=True, capabilities=OURS),
            r"serves the store store-a, and this client uses the store store-b; .*tso-server",
        ),
    ],
)
def test_an_oracle_that_does_not_fit_is_a_matter_of_configuration(
    response: HandshakeResponse, why: str
) -> None:
    """To commit through another store's oracle would be to lose updates; nothing is retried."""

    def script(peer: Conversation) -> None:
        peer.expect(HandshakeRequest)
        peer.say(response)
        peer.wait_hangup()

    with served(script, store_id="store-b") as (oracle, server):
        with pytest.raises(ConfigError, match=why) as caught:
            oracle.begin()
        assert server.address in str(caught.value)
        assert server.connection_count == 1


def test_the_oracle_found_after_a_reconnect_must_serve_the_same_store() -> None:
    """Transactions that run hold timestamps of the first one."""
    other = PeerCapabilities(int(Feature.INVALIDATE), b"store-z")

    def first(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(1000)))

    with served(first, obliging(first_ts=5000, capabilities=other)) as (oracle, _):
        oracle.begin()
        with pytest.raises(ConfigError, match=r"the store store-z, and this client uses .*store-a"):
            oracle.begin()


def test_a_place_that_another_stores_oracle_has_taken_is_no_matter_of_configuration() -> None:
    """Ours has ended, and is published there until its successor begins: it is waited for."""
    other = PeerCapabilities(int(Feature.INVALIDATE), b"store-z", Timestamp(77_000))
    ours = PeerCapabilities(int(Feature.INVALIDATE), b"store-a", Timestamp(2000))

    def of_another_store(peer: Conversation) -> None:
        peer.shake_hands(other)
        peer.wait_hangup()

    with ScriptedOracle(of_another_store, obliging(first_ts=5000, capabilities=ours)) as server:
        places = iter([Timestamp(1000), Timestamp(2000)])
        oracle = TcpOracle(
            resolve=lambda: Place("127.0.0.1", server.port, next(places)),
            store_id="store-a",
            request_timeout_s=PATIENCE_S,
        )
        with closing(oracle):
            assert oracle.begin().start_ts == 5000

    with ScriptedOracle(of_another_store) as server:
        oracle = TcpOracle(
            resolve=lambda: Place("127.0.0.1", server.port, Timestamp(77_000)), store_id="store-a"
        )
        with (
            closing(oracle),
            pytest.raises(ConfigError, match="serves the store store-z"),
        ):
            oracle.ping()


STRANGERS: dict[str, Script] = {
    "a web server": lambda peer: peer.say_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "Java's oracle": obliging(capabilities=JAVAS, first_ts=1 << 60),
}


@pytest.mark.parametrize("stranger", STRANGERS)
def test_who_listens_at_a_place_of_before_is_not_taken_for_the_oracle(stranger: str) -> None:
    """It has ended, and something else has its port; the next one publishes another place soon."""
    ours = PeerCapabilities(int(Feature.INVALIDATE), b"store-a", Timestamp(2000))
    with (
        ScriptedOracle(STRANGERS[stranger], STRANGERS[stranger]) as other,
        ScriptedOracle(obliging(first_ts=5000, capabilities=ours)) as server,
    ):
        ports = iter([other.port, other.port, server.port])
        oracle = TcpOracle(
            resolve=lambda: Place("127.0.0.1", next(ports), Timestamp(1000)),
            tells_store=True,
            store_id="store-a",
            request_timeout_s=PATIENCE_S,
        )
        with closing(oracle):
            assert oracle.begin().start_ts == 5000


def test_who_finds_no_oracle_where_one_is_published_says_so_in_the_end() -> None:
    """And may try again: nothing was sent, and the next oracle may come later."""
    script = STRANGERS["a web server"]
    with ScriptedOracle(script, script) as server:
        places = iter([Place("127.0.0.1", server.port, Timestamp(1000))] * 2)
        oracle = TcpOracle(resolve=lambda: next(places), reconnect_budget_s=0)
        for ask in (oracle.begin, lambda: oracle.commit(Timestamp(1), CELLS, TABLES)):
            with pytest.raises(RemoteProtocolError, match="published no other place") as caught:
                ask()
            assert caught.value.retryable
            assert not caught.value.was_sent
        oracle.close()


def test_an_oracle_that_does_not_fit_is_left_at_once() -> None:
    """The connection would take one of the places of those who do belong there."""
    is_left = threading.Event()

    def script(peer: Conversation) -> None:
        peer.shake_hands(PeerCapabilities(store_id=b"store-z"))
        peer.wait_hangup()
        is_left.set()

    with served(script, store_id="store-a") as (oracle, _):
        with pytest.raises(ConfigError, match="serves the store store-z"):
            oracle.ping()
        assert is_left.wait(PATIENCE_S)


# -- the end, and the fork -------------------------------------------------------------------------


def test_closing_fails_what_is_in_flight_and_everything_after() -> None:
    """A manager is closed while other threads still work: they must not hang."""
    is_asked = threading.Event()

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(CommitRequest)
        is_asked.set()
        peer.wait_hangup()

    with served(script) as (oracle, server), threads(1) as pool:
        commit = pool.submit(oracle.commit, Timestamp(1000), CELLS, TABLES)
        assert is_asked.wait(PATIENCE_S)
        oracle.close()
        with pytest.raises(OracleUnavailable, match="is closed") as caught:
            commit.result(PATIENCE_S)
        assert not caught.value.retryable
        with pytest.raises(OracleUnavailable, match="is closed"):
            oracle.begin()
        oracle.close()
        assert server.connection_count == 1


def test_a_client_closed_while_it_connects_hangs_up_and_asks_nothing() -> None:
    """Nobody closes it again, and an oracle would keep the connection for ever."""

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.wait_hangup()

    with ScriptedOracle(script) as server:

        def resolve() -> tuple[str, int]:
            oracle.close()
            return "127.0.0.1", server.port

        oracle = TcpOracle(resolve=resolve, request_timeout_s=PATIENCE_S)
        with pytest.raises(OracleUnavailable, match="is closed") as caught:
            oracle.begin()
        assert not caught.value.retryable


class ClosedWhileItPauses(SystemNetwork):
    """Closes a client that waits before it tries again."""

    def __init__(self) -> None:
        self.oracle: TcpOracle | None = None
        self.goes_on: list[bool] = []

    def pause(self, seconds: float, *, until_free: threading.Lock) -> None:
        """Note whether who pauses would go on."""
        assert self.oracle is not None
        self.oracle.close()
        self.goes_on.append(not until_free.locked())


def test_closing_wakes_who_waits_before_trying_again() -> None:
    """A program that ends would else wait for nothing."""
    network = ClosedWhileItPauses()
    network.oracle = TcpOracle(resolve=nowhere, network=network)
    with pytest.raises(OracleUnavailable, match="is closed"):
        network.oracle.begin()
    assert network.goes_on == [True]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_opens_its_own_connection_and_leaves_the_parent_s_alone() -> None:
    """Two processes on one socket would read each other's answers.

    The child has a name of its own, too: what the parent began is the parent's to commit.
    """
    with served(obliging(first_ts=1000), obliging(first_ts=70_000)) as (oracle, server):
        assert oracle.begin().start_ts == 1000
        reading, writing = os.pipe()
        # Held by another thread at the fork, a lock stays locked in the child for ever.
        with oracle._links._lock:
            child = os.fork()
            if child == 0:
                signal.alarm(int(PATIENCE_S))
                try:
                    os.write(writing, b"%d %d" % (oracle.begin().start_ts, oracle.client))
                finally:
                    os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            start_ts, client = map(int, answer.read().split())
        assert start_ts == 70_000
        assert client != oracle.client
        assert os.waitpid(child, 0)[1] == 0
        assert oracle.begin().start_ts == 1050
        assert server.connection_count == 2


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_fork_spares_the_parent_s_commit_and_the_child_knows_its_timestamps() -> None:
    """A shutdown by the child would put the commit in doubt; timestamps still never go back."""
    is_asked, may_answer = threading.Event(), threading.Event()

    def script(peer: Conversation) -> None:
        peer.shake_hands()
        peer.expect(TimestampRequest)
        peer.say(TimestampResponse(Timestamp(1000)))
        peer.expect(CommitRequest)
        is_asked.set()
        assert may_answer.wait(PATIENCE_S)
        peer.say(CommitResponse(Timestamp(1000), Timestamp(1050)))
        peer.wait_hangup()

    with served(script, obliging(first_ts=500)) as (oracle, _), threads(1) as pool:
        assert oracle.begin().start_ts == 1000
        commit = pool.submit(oracle.commit, Timestamp(1000), CELLS, TABLES)
        assert is_asked.wait(PATIENCE_S)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(int(PATIENCE_S))
            try:
                oracle.begin()
            except RemoteProtocolError as error:
                os.write(writing, str(error).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            assert b"handed out start_ts 500 after 1000" in answer.read()
        assert os.waitpid(child, 0)[1] == 0
        may_answer.set()
        assert commit.result(PATIENCE_S) == CommitGranted(Timestamp(1050))
