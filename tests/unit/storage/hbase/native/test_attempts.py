"""Which failures are tried again, how long is waited, and what the others are called."""

from __future__ import annotations

import socket

import pytest

from omidpy.errors import (
    ConfigError,
    NoSuchTable,
    OmidError,
    StorageError,
    StorageUnavailable,
    UsageError,
)
from omidpy.storage.hbase.native.address import parse_native
from omidpy.storage.hbase.native.calling.attempts import LONGEST_PAUSE_S, MAX_ATTEMPTS, Attempts
from omidpy.storage.hbase.native.faults import (
    CallFailed,
    Disagreed,
    Fault,
    Garbled,
    Kind,
    Lost,
    NotSent,
    TooLarge,
    Unanswered,
)

HBASE = "org.apache.hadoop.hbase."
BUSY = Fault(f"{HBASE}RegionTooBusyException", "busy")
MISPLACED = Fault(f"{HBASE}NotServingRegionException", "gone")
STOPPED = Fault(f"{HBASE}regionserver.RegionServerStoppedException", "stopping")


class World:
    """A clock that pauses move."""

    def __init__(self, *, is_repeatable: bool = True, has_answered: bool = True) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []
        self.attempts = Attempts(
            parse_native("hbase+rpc://m?retry_s=30"),
            "put",
            "t",
            is_repeatable=is_repeatable,
            has_answered=lambda: has_answered,
            now_s=lambda: self.now_s,
            pause=self._pause,
            draw=lambda: 0.999,
        )

    def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds

    def fail_often(self, error: Exception) -> None:
        """Note the same failure as often as a call is made at most."""
        for _ in range(MAX_ATTEMPTS):
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Note a failure."""
        self.attempts.pause_or_raise(error, "h:1")


def test_pauses_double_up_to_a_ceiling_and_end_in_time() -> None:
    """An outage of half a minute is waited out, and no longer one."""
    world = World()
    with pytest.raises(StorageUnavailable, match="HBase cannot serve it now") as caught:
        world.fail_often(BUSY)
    assert caught.value.retryable
    assert world.pauses == sorted(world.pauses)
    assert 0 < world.pauses[0] < 0.1
    assert max(world.pauses) <= LONGEST_PAUSE_S
    assert 30 <= world.now_s < 30 + LONGEST_PAUSE_S


def test_a_region_that_was_elsewhere_is_tried_at_once_and_then_after_pauses() -> None:
    """The first look-up mostly helps; while a region opens, many would be a storm."""
    world = World()
    world.fail(MISPLACED)
    assert world.pauses == []
    world.fail(MISPLACED)
    assert len(world.pauses) == 1


def test_a_throttled_call_waits_as_long_as_the_server_says() -> None:
    """Sooner it would be refused again."""
    world = World()
    text = "number of requests exceeded - wait 1mins, 2sec, 500ms"
    throttled = Fault(f"{HBASE}quotas.RpcThrottlingException", text)
    assert throttled.wait_s == 62.5
    world.fail(throttled)
    assert world.pauses == [62.5]


@pytest.mark.parametrize("error", [Lost("broke"), Unanswered("no answer"), STOPPED])
def test_what_may_have_been_done_is_repeated_only_where_twice_is_once(error: CallFailed) -> None:
    """A server that stops may have executed the call first."""
    World().fail(error)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        World(is_repeatable=False).fail(error)


@pytest.mark.parametrize("error", [NotSent("not whole"), BUSY, MISPLACED])
def test_what_was_certainly_not_done_is_repeated(error: CallFailed) -> None:
    """And if it ends all the same, the message raises no doubt."""
    World(is_repeatable=False).fail(error)
    with pytest.raises(StorageUnavailable) as caught:
        World(is_repeatable=False, has_answered=False).fail(error)
    assert "not known" not in str(caught.value)


def test_who_does_not_agree_with_us_any_more_is_asked_again() -> None:
    """Certificates end and keys are changed, on one server after another; the address is right."""
    error = Disagreed("its certificate is not trusted: certificate has expired")
    world = World(is_repeatable=False)
    with pytest.raises(StorageUnavailable, match="certificate has expired") as caught:
        world.fail_often(error)
    assert caught.value.retryable
    assert world.now_s >= 30
    assert "not known" not in str(caught.value)
    with pytest.raises(ConfigError, match="certificate has expired"):
        World(has_answered=False).fail(error)


@pytest.mark.parametrize("error", [Garbled("what"), TooLarge("long")])
def test_what_would_fail_likewise_is_not_repeated(error: CallFailed) -> None:
    """Bytes that mean nothing, and requests that nobody takes."""
    with pytest.raises(OmidError):
        World().fail(error)


def test_a_call_is_made_once_where_nobody_ever_answered() -> None:
    """Whoever wrote a wrong address is told at once."""
    with pytest.raises(StorageUnavailable):
        World(has_answered=False).fail(Lost("broke"))


def test_our_own_errors_go_through() -> None:
    """A registry without a master may have one in a moment; a wrong address never."""
    World().fail(StorageUnavailable("no master", retryable=True))
    with pytest.raises(NoSuchTable):
        World().fail(NoSuchTable("none"))
    with pytest.raises(ConfigError):
        World().fail(ConfigError("wrong"))


def refused(error: Exception) -> str:
    """Return what a failure is called."""
    with pytest.raises(OmidError) as caught:
        World(has_answered=False).fail(error)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_a_message_names_server_call_table_and_remedy() -> None:
    """In one line."""
    assert refused(Fault(f"{HBASE}TableNotFoundException", "t\n\tat x")) == (
        "NoSuchTable: put of table 't' at the HBase server h:1: create it, or check the name "
        "(TableNotFoundException: t)"
    )
    unknown = NotSent("x")
    unknown.__cause__ = socket.gaierror(-2, "unknown")
    assert "host's name is unknown here" in refused(unknown)
    assert "gateway" in refused(unknown)
    assert "demands authentication" in refused(Fault(f"{HBASE}BadAuthException", "no"))
    assert refused(Fault(f"{HBASE}DoNotRetryIOException", "KeyValue size too large")).startswith(
        "UsageError"
    )


QUOTA = "The table a:b cannot be created as it would exceed the number of tables"
SANITY = "Compression algorithm 'LZO' failed. Set hbase.table.sanity.checks to false at conf"


@pytest.mark.parametrize(
    ("name", "text", "kind", "remedy"),
    [
        ("quotas.QuotaExceededException", QUOTA, StorageError, "raise it (`describe_namespace`"),
        ("quotas.SpaceLimitingException", "NO_WRITES", StorageError, "delete something, or"),
        ("DoNotRetryIOException", SANITY, UsageError, "HBase refuses such a table"),
    ],
)
def test_what_hbase_will_refuse_again_is_not_said_to_pass(
    name: str, text: str, kind: type[OmidError], remedy: str
) -> None:
    """No region moves, and who waits for it waits in vain."""
    world = World(is_repeatable=False)
    with pytest.raises(OmidError) as caught:
        world.fail(Fault(f"{HBASE}{name}", f"{text}\n\tat x", do_not_retry=True))
    assert type(caught.value) is kind
    assert not caught.value.retryable
    assert remedy in str(caught.value)
    assert text[:40] in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"Cell[{'r' * 400}/f:q/1/Put/vlen=9] with size 11 exceeds limit of 10 bytes", UsageError),
        ("Field is not a long, it's 2 bytes wide", UsageError),
        ("something else", StorageUnavailable),
    ],
)
def test_what_hbase_would_refuse_again_is_not_worth_another_try(
    text: str, kind: type[OmidError]
) -> None:
    """A transaction with a cell that is too large was run again until its time was over."""
    with pytest.raises(kind) as caught:
        World().fail(Fault(f"{HBASE}DoNotRetryIOException", text))
    assert not caught.value.retryable


def test_what_failed_behind_a_change_is_no_refusal_of_it() -> None:
    """A coprocessor says not to repeat it, and it was made."""
    told = "no index\n\tat x.RegionCoprocessorHost.postBatchMutate(x.java:1)"
    found = refused(Fault(f"{HBASE}DoNotRetryIOException", told))
    assert "refuses" not in found
    assert "HBase failed" in found


def test_a_scanner_that_is_gone_is_opened_again_though_hbase_says_not_to_repeat_it() -> None:
    """The region moved between two parts of a long row, and is read from there on anew."""
    for name in ("UnknownScannerException", "exceptions.OutOfOrderScannerNextException"):
        World().fail(Fault(f"{HBASE}{name}", "x", do_not_retry=True))


def test_a_class_that_nobody_knows_may_have_done_anything() -> None:
    """Unless the server says not to repeat it."""
    assert Fault("a.Strange", "x").kind is Kind.UNKNOWN
    assert not Fault("a.Strange", "x").is_certain
    assert Fault("a.Strange", "x", do_not_retry=True).kind is Kind.PERMANENT


def test_a_row_out_of_range_is_looked_up_again_though_hbase_says_not_to_repeat_it() -> None:
    """It is how a region that was split answers a put for its other half."""
    text = "Requested row out of range for HRegion t,,1.x., row='z'"
    found = Fault(f"{HBASE}exceptions.FailedSanityCheckException", text, do_not_retry=True)
    assert found.kind is Kind.MISPLACED
    assert found.is_certain
    other = Fault(f"{HBASE}exceptions.FailedSanityCheckException", "timestamp", do_not_retry=True)
    assert other.kind is Kind.PERMANENT


def test_an_argument_is_named_as_one() -> None:
    """A request longer than any."""
    assert refused(TooLarge("long")).startswith(UsageError.__name__)
