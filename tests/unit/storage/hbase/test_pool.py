"""The pool of connections to gateways, over scripted connections and a clock turned by hand."""

from __future__ import annotations

import contextlib
import itertools
import random
import ssl
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from thriftpy2.thrift import TApplicationException, TDecodeException, TType
from thriftpy2.transport import TTransportException

from omidpy.base.timing.clock import ManualClock
from omidpy.errors import (
    ConfigError,
    NoSuchTable,
    OmidError,
    StorageError,
    StorageUnavailable,
    UsageError,
)
from omidpy.storage.hbase.addresses.gateways import Gateway, parse_address
from omidpy.storage.hbase.idl import thrift2
from omidpy.storage.hbase.rpc.attempts import LONGEST_PAUSE_S, MAX_ATTEMPTS
from omidpy.storage.hbase.rpc.gateway import CallNotSent, Unanswered
from omidpy.storage.hbase.rpc.places import Places
from omidpy.storage.hbase.rpc.pool import COOL_DOWN_S, LOOK_AFTER_S, GatewayPool
from tests.machines.gateways import SILENCE, ScriptedGateways
from tests.machines.interrupts.lines import Interrupt, Interrupter

TIMEOUT: Final = TimeoutError("timed out")
CLOSED: Final = TTransportException(TTransportException.END_OF_FILE, "TSocket read 0 bytes")
REFUSED: Final = ConnectionRefusedError(111, "Connection refused")


def busy() -> Exception:
    """Return HBase's answer while a region moves."""
    error: Exception = thrift2.TIOError(
        message="org.apache.hadoop.hbase.NotServingRegionException: t,,1 is not online",
        canRetry=True,
    )
    return error


class RecordedPlaces(Places):
    """Looks up nothing, and keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__(parse_address("hbase+thrift2://nowhere"), None, ManualClock().monotonic_s)
        self.asked: list[tuple[str, str | None]] = []

    def look_up(self, gateway: Gateway, table: str | None) -> None:
        """Note it."""
        self.asked.append((gateway[0], table))


class World:
    """A pool over scripted gateways, its clock, and the pauses that it made."""

    def __init__(self, *steps: Any, url: str = "hbase+thrift2://gw1", **down: Exception) -> None:
        self.clock = ManualClock()
        self.pauses: list[float] = []
        self.gateways = ScriptedGateways(*steps, down=down)
        self.places = RecordedPlaces()
        self.pool = GatewayPool(
            parse_address(url),
            self.gateways.open,
            clock=self.clock,
            places=self.places,
            pause=self._paused,
            rng=random.Random(1),
        )

    def _paused(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.advance(seconds)

    def read(self) -> Any:
        """Make an idempotent call."""
        return self.pool.call("get", is_idempotent=True, table="t")

    def change(self) -> Any:
        """Make a call that must not be made twice."""
        return self.pool.call("checkAndMutate", is_idempotent=False, table="t")

    @property
    def calls(self) -> list[str]:
        """Return the calls that were made, without looks."""
        return [entry for entry in self.gateways.log if entry != "look"]


def met(*steps: Any, **kwargs: Any) -> World:
    """Return a world whose pool has had an answer before."""
    world = World("hello", *steps, **kwargs)
    assert world.read() == "hello"
    world.gateways.log.clear()
    return world


def test_a_connection_is_used_again() -> None:
    """Opening one costs a round trip or more, with TLS and Kerberos several."""
    world = World(1, 2, 3)
    assert [world.read(), world.change(), world.read()] == [1, 2, 3]
    assert len(world.gateways.clients) == 1


def test_nothing_is_opened_before_it_is_needed() -> None:
    """A store may be opened where HBase is down, and a parent forks before it reads."""
    world = World()
    assert world.gateways.hosts == []


# -- what is made again ----------------------------------------------------------------------------


@pytest.mark.parametrize("failure", [TIMEOUT, CLOSED, ConnectionResetError(104, "reset")])
def test_a_failed_connection_is_discarded_and_an_idempotent_call_made_again(
    failure: Exception,
) -> None:
    """What comes next on it may be the answer to the call that was given up."""
    world = met(failure, "answer")
    assert world.read() == "answer"
    first, second = world.gateways.clients
    assert first.is_closed
    assert not second.is_closed


@pytest.mark.parametrize("failure", [TIMEOUT, CLOSED, busy()])
def test_a_call_that_is_not_idempotent_is_made_once(failure: Exception) -> None:
    """It may have been applied: made again it would fail for having succeeded, or apply twice."""
    world = met(failure, "never asked for")
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        world.change()
    assert world.calls == ["checkAndMutate"]
    assert list(world.gateways.steps) == ["never asked for"]


def test_a_call_that_was_not_sent_is_made_again_even_if_not_idempotent() -> None:
    """A gateway executes whole messages only."""
    unsent = CallNotSent("broken pipe")
    unsent.__cause__ = BrokenPipeError(32, "Broken pipe")
    world = met(unsent, "answer")
    assert world.change() == "answer"
    assert world.calls == ["checkAndMutate", "checkAndMutate"]


def test_a_dead_connection_is_found_before_a_call_that_must_not_be_lost() -> None:
    """A gateway that was restarted a moment ago must not leave the outcome of a write unknown."""
    world = met("answer")
    world.gateways.clients[0].has_died = True
    assert world.change() == "answer"
    assert world.gateways.log == ["look", "checkAndMutate"]
    assert world.gateways.clients[0].is_closed


def test_an_argument_that_does_not_fit_is_the_callers_error() -> None:
    """It is not the gateway's fault: nothing is made again, and no gateway is avoided."""
    unsent = CallNotSent("put")
    unsent.__cause__ = TDecodeException("TPut", 1, "row", "text", TType.BINARY)
    world = met(unsent)
    with pytest.raises(UsageError, match=r"'row.*'TPut'.*`'text'`"):
        world.read()
    assert world.gateways.clients[0].is_closed
    assert len(world.calls) == 1


def test_an_answer_that_is_an_error_keeps_the_connection() -> None:
    """HBase refused, the connection is in step: opening another would cost for nothing."""
    world = met(thrift2.TIOError(message="t", canRetry=False), "answer")
    with pytest.raises(NoSuchTable, match="table 't'"):
        world.change()
    assert world.change() == "answer"
    assert len(world.gateways.clients) == 1


def test_a_refusal_for_good_is_not_repeated() -> None:
    """Asking again does not make the table exist; its outcome is known, too."""
    world = met(thrift2.TIOError(message="t", canRetry=False))
    with pytest.raises(NoSuchTable) as caught:
        world.read()
    assert world.calls == ["get"]
    assert world.pauses == []
    assert "not known" not in str(caught.value)


def test_hbase_gets_time_to_mend_itself() -> None:
    """A region that moves is back in a moment; asking at once would only add load."""
    world = met(busy(), busy(), busy(), "answer")
    assert world.read() == "answer"
    assert len(world.pauses) == 3
    assert len(world.gateways.clients) == 1


def test_retries_end_with_the_time_that_the_address_gives() -> None:
    """Somebody waits for the answer."""
    world = met(*[busy()] * MAX_ATTEMPTS, url="hbase+thrift2://gw1?retry_s=3")
    with pytest.raises(StorageUnavailable, match="cannot serve it now") as caught:
        world.read()
    assert caught.value.retryable
    assert 3 <= sum(world.pauses) <= 3 + LONGEST_PAUSE_S
    assert max(world.pauses) <= LONGEST_PAUSE_S


def test_retries_end_with_their_number_even_if_no_time_passes() -> None:
    """Two bounds: a clock that stands still must not make a loop without end."""
    world = met(*[busy()] * (MAX_ATTEMPTS + 1), url="hbase+thrift2://gw1?retry_s=99999")
    with pytest.raises(StorageUnavailable):
        world.read()
    assert len(world.calls) == MAX_ATTEMPTS


def test_a_mistake_of_ours_is_not_repeated_for_half_a_minute() -> None:
    """It would come back each time, and its message late."""
    world = met(TypeError("a mistake"), "never asked for")
    with pytest.raises(StorageUnavailable, match="TypeError: a mistake"):
        world.read()
    assert world.pauses == []
    assert world.gateways.clients[0].is_closed


def test_an_interrupt_discards_the_connection_and_passes_through() -> None:
    """Ctrl-C in the middle of a call leaves its answer on the way."""
    world = met(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        world.read()
    assert world.gateways.clients[0].is_closed


def own(world: World) -> None:
    """Make a call in a block."""
    with world.pool.owned() as client:
        client.call("x")


@pytest.mark.parametrize("use", [World.read, World.change, own])
@pytest.mark.parametrize("is_new", [False, True])
def test_a_call_interrupted_at_any_line_leaves_no_connection_in_use(
    use: Callable[[World], object],
    is_new: bool,  # noqa: FBT001 - from the parameters
) -> None:
    """Each such interrupt cost the pool a connection, or its lock, and in the end all waited."""
    url = "hbase+thrift2://gw1?pool_size=1&timeout_s=60"
    interrupter = Interrupter()
    for number in itertools.count(1):
        world = World(*range(4), url=url) if is_new else met(*range(4), url=url)
        with contextlib.suppress(Interrupt):
            interrupter.interrupt(partial(use, world), number, Interrupt())
        other = threading.Thread(target=world.read, daemon=True)
        other.start()
        other.join(10)
        assert not other.is_alive(), interrupter.where
        still_open = [one for one in world.gateways.clients if not one.is_closed]
        assert len(still_open) == 1, interrupter.where
        if interrupter.where is None:
            break
    assert number > 30


# -- where regions are -----------------------------------------------------------------------------


def test_a_call_that_outlasts_its_patience_is_left_and_not_made_again() -> None:
    """It goes on in the gateway, which is well: others still use it, and are not disturbed."""
    world = met(Unanswered("get"), "answer")
    with pytest.raises(Unanswered):
        world.pool.call("get", is_idempotent=True, table="t", patience_s=1.0)
    assert world.gateways.clients[0].is_closed, "the late answer would be taken for another's"
    assert world.calls == ["get"]
    assert world.pauses == []
    assert world.read() == "answer"
    assert len(world.gateways.clients) == 2


def test_a_gateway_that_says_nothing_looks_up_the_regions_meanwhile() -> None:
    """It may be following two servers to and fro, each of which takes the region for the other's.

    A call that may not be made twice is helped too: nothing of it is repeated.
    """
    world = met(SILENCE, "answer", SILENCE, "done")
    assert world.read() == "answer"
    assert world.change() == "done"
    assert world.places.asked == [("gw1", "t")] * 2
    assert world.pauses == []


@pytest.mark.parametrize("failure", [TIMEOUT, busy()])
def test_a_gateway_looks_up_the_regions_before_it_is_asked_again(failure: Exception) -> None:
    """Its own client gave up without reading the catalogue, and would again."""
    world = met(failure, "answer")
    assert world.read() == "answer"
    assert world.places.asked == [("gw1", "t")]


@pytest.mark.parametrize("failure", [CLOSED, thrift2.TIOError(message="t", canRetry=False)])
def test_what_is_no_matter_of_regions_makes_nobody_look_them_up(failure: Exception) -> None:
    """A look-up reads a row of the catalogue for each region."""
    world = met(failure, "answer")
    with contextlib.suppress(NoSuchTable):
        world.read()
    assert world.places.asked == []


def test_regions_are_looked_up_before_a_scan_of_thrift1_is_begun_again() -> None:
    """Its calls own a connection, and are repeated by whoever makes them."""
    world = met(busy(), busy())
    for is_idempotent in (True, False):
        with (
            pytest.raises(StorageUnavailable),
            world.pool.owned(table="t", is_idempotent=is_idempotent) as client,
        ):
            client.call("scannerGetList")
        assert world.places.asked == [("gw1", "t")]


# -- which gateway ---------------------------------------------------------------------------------

BOTH: Final = "hbase+thrift2://gw1,gw2"


def test_another_gateway_is_used_when_one_is_down() -> None:
    """That is what several are named for, at the first contact already."""
    world = World(1, 2, url=BOTH, gw1=REFUSED)
    assert (world.read(), world.change()) == (1, 2)
    assert world.gateways.hosts[-1] == "gw2"


def test_a_call_that_failed_goes_to_another_gateway() -> None:
    """The one that does not answer most likely still does not."""
    for seed in range(4):
        world = World("hello", TIMEOUT, "answer", url=BOTH)
        world.pool._rng.seed(seed)
        assert [world.read(), world.read()] == ["hello", "answer"]
        first, second = world.gateways.hosts
        assert first != second


def test_a_gateway_that_failed_is_asked_last_until_it_cooled_down() -> None:
    """Each new connection would otherwise wait for its refusal, or worse, for a time-out."""
    world = World(*range(20), url=BOTH, gw1=REFUSED)
    for _ in range(6):
        world.read()
        world.gateways.clients[-1].has_died = True
        world.clock.advance(LOOK_AFTER_S / 10)
        world.change()
        world.gateways.clients[-1].has_died = True
        world.clock.advance(LOOK_AFTER_S / 10)
    assert world.gateways.hosts.count("gw1") <= 1
    del world.gateways.down["gw1"]
    world.clock.advance(COOL_DOWN_S + LOOK_AFTER_S)
    for _ in range(2):
        world.read()
        world.gateways.clients[-1].has_died = True
        world.clock.advance(LOOK_AFTER_S * 2)
    assert "gw1" in world.gateways.hosts[-2:]


def test_a_broken_connection_takes_its_idle_neighbours_along() -> None:
    """A gateway that died broke all; finding out one by one would spend the retries."""
    world = met("a", "b", CLOSED, "answer")
    with world.pool.owned() as one, world.pool.owned() as two:
        assert {one.call("x"), two.call("y")} == {"a", "b"}
    assert len(world.gateways.clients) == 2
    assert world.read() == "answer"
    assert [client.is_closed for client in world.gateways.clients] == [True, True, False]


def test_a_wrong_address_is_reported_at_once() -> None:
    """A user who misspelt it waits for the message, not for half a minute of retries."""
    world = World(gw1=REFUSED)
    with pytest.raises(StorageUnavailable, match=r"gw1:9090.*nobody listens.*hbase thrift2 start"):
        world.read()
    assert world.pauses == []
    assert world.gateways.hosts == ["gw1"]


def test_a_pool_that_had_answers_waits_for_a_gateway_to_come_back() -> None:
    """Restarting a gateway takes seconds, and must not fail what may simply wait."""
    world = met("answer")
    world.gateways.clients[0].has_died = True
    world.gateways.down["gw1"] = REFUSED
    pause = world.pool._pause

    def come_back(seconds: float) -> None:
        pause(seconds)
        if len(world.pauses) == 3:
            del world.gateways.down["gw1"]

    world.pool._pause = come_back
    assert world.change() == "answer"
    assert len(world.pauses) == 3


def test_an_impatient_block_does_not_wait_for_a_gateway_to_come_back() -> None:
    """Whoever has another way must not wait for this one first."""
    world = met("answer")
    world.gateways.clients[0].has_died = True
    world.gateways.down["gw1"] = REFUSED
    with pytest.raises(StorageUnavailable), world.pool.owned(is_patient=False):
        pytest.fail("nobody can be connected to")
    assert world.pauses == []


def test_a_first_call_without_answer_points_to_the_doctor() -> None:
    """A gateway with another transport hangs or hangs up; nothing in Thrift says why."""
    for failure in (TIMEOUT, CLOSED):
        world = World(failure)
        with pytest.raises(
            StorageUnavailable, match=r"buffered transport and binary.*omidpy doctor gw1:9090"
        ):
            world.read()
        assert world.pauses == []


def test_a_certificate_that_is_not_trusted_any_more_is_asked_for_again() -> None:
    """It has ended, say; where none was trusted before nothing mends it but the address."""
    refusal = ssl.SSLCertVerificationError("self-signed certificate")
    refusal.verify_message = "self-signed certificate"
    world = met("never asked for")
    world.gateways.clients[0].has_died = True
    world.gateways.down["gw1"] = refusal
    with pytest.raises(StorageUnavailable, match="tls_ca=FILE") as caught:
        world.change()
    assert caught.value.retryable
    assert world.pauses
    world = World()
    world.gateways.down["gw1"] = refusal
    with pytest.raises(ConfigError, match="tls_ca=FILE"):
        world.change()
    assert world.pauses == []


# -- idle connections ------------------------------------------------------------------------------


def test_a_connection_is_looked_at_only_after_a_second() -> None:
    """A look costs a system call; what answered just now needs none."""
    world = met(*range(9))
    world.read()
    world.clock.advance(LOOK_AFTER_S)
    world.read()
    assert "look" not in world.gateways.log
    world.clock.advance(LOOK_AFTER_S + 0.001)
    world.read()
    assert world.gateways.log.count("look") == 1


def test_an_idle_connection_is_replaced_before_the_gateway_closes_it() -> None:
    """The gateway closes it after a minute, perhaps just as the next call is written."""
    world = met(1, 2)
    world.clock.advance(50.0)
    world.read()
    assert len(world.gateways.clients) == 1
    world.clock.advance(50.001)
    world.read()
    assert [client.is_closed for client in world.gateways.clients] == [True, False]


def test_connections_that_a_peak_left_behind_are_closed() -> None:
    """The last used is the next used, so the others age; each has a thread of the gateway."""
    world = met(*range(20))
    with world.pool.owned() as one, world.pool.owned() as two:
        one.call("x")
        two.call("y")
    for _ in range(8):
        world.clock.advance(10)
        world.read()
    assert sorted(client.is_closed for client in world.gateways.clients) == [False, True]


# -- bounds ----------------------------------------------------------------------------------------


def test_no_more_connections_are_open_than_the_address_allows() -> None:
    """A gateway has so many threads, and serves no connection beyond."""
    world = met("second", url="hbase+thrift2://gw1?pool_size=1&timeout_s=30")
    got: list[Any] = []
    with world.pool.owned():
        thread = threading.Thread(target=lambda: got.append(world.read()))
        thread.start()
        deadline_s = time.monotonic() + 30
        while not world.pool._waiting:
            assert time.monotonic() < deadline_s, "the thread does not wait"
        assert got == []
    thread.join(30)
    assert got == ["second"]
    assert len(world.gateways.clients) == 1


def test_waiting_for_a_connection_ends() -> None:
    """A thread that owns one and asks for another would otherwise wait for itself, for ever."""
    world = met(url="hbase+thrift2://gw1?pool_size=1&timeout_s=0.05")
    with (
        world.pool.owned(),
        pytest.raises(StorageUnavailable, match=r"all 1 connections .* raise pool_size"),
    ):
        world.read()


def test_a_connection_that_failed_leaves_room_for_another() -> None:
    """Counting only what opens would fill the pool with what broke."""
    world = met(*[TIMEOUT, "answer"] * 10, url="hbase+thrift2://gw1?pool_size=1&timeout_s=0.05")
    assert [world.read() for _ in range(10)] == ["answer"] * 10
    world.gateways.clients[-1].has_died = True
    world.gateways.down["gw1"] = REFUSED
    world.gateways.steps.append("late")
    with pytest.raises(StorageUnavailable, match="nobody listens"):
        world.change()
    world.gateways.down.clear()
    assert world.change() == "late"


def test_calls_of_one_block_have_one_connection() -> None:
    """A scanner lives in the gateway that opened it."""
    world = World("scanner", "rows", url=BOTH)
    with world.pool.owned() as client:
        assert [client.call("openScanner"), client.call("getScannerRows")] == ["scanner", "rows"]
    assert len(world.gateways.hosts) == 1


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (CLOSED, StorageUnavailable),
        (busy(), StorageUnavailable),
        (RuntimeError("mine"), RuntimeError),
    ],
)
def test_an_error_in_a_block_discards_the_connection(
    failure: Exception, raised: type[Exception]
) -> None:
    """Half a conversation may be under way; the next user must not meet its other half."""
    world = met(failure)
    with pytest.raises(raised), world.pool.owned(table="t") as client:
        client.call("getScannerRows")
    assert world.gateways.clients[0].is_closed


def test_a_closed_pool_refuses_and_leaves_nothing_open() -> None:
    """Closing twice does nothing; a connection in use is closed when it comes back."""
    world = met("last", url=BOTH)
    with world.pool.owned() as client:
        world.pool.close()
        world.pool.close()
        assert client.call("x") == "last"
    assert all(client.is_closed for client in world.gateways.clients)
    with pytest.raises(StorageUnavailable, match="is closed; open it again"):
        world.read()


def test_after_a_fork_the_child_begins_anew_and_the_parent_goes_on() -> None:
    """Two processes on one connection would read each other's answers."""
    world = met("of the owner", "of the child")
    with world.pool.owned(), world.pool.owned():
        pass
    world.pool.before_fork()
    world.pool.after_fork_in_parent()
    with world.pool.owned() as client:
        assert client.call("x") == "of the owner"
        world.pool.before_fork()
        world.pool.after_fork_in_child()
        used, idle = world.gateways.clients
        assert used.is_closed
        assert idle.is_closed
        assert world.read() == "of the child"
    assert len(world.gateways.clients) == 3
    assert len(world.pool._idle) == 1, "what came back was not the child's"


@pytest.mark.parametrize("failure", [TIMEOUT, CLOSED, busy(), TApplicationException(6, "no")])
def test_no_error_of_thrift_reaches_a_caller(failure: Exception) -> None:
    """A user should need to catch one tree of errors, and read no Java."""
    world = met(failure)
    with pytest.raises(OmidError) as caught:
        world.change()
    assert isinstance(caught.value, StorageError | UsageError)
    assert caught.value.__cause__ is failure
