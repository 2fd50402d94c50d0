"""A call that HBase knows by its numbers is made again only where it does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from omidpy.errors import NoSuchTable, StorageUnavailable
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.calling import recognition
from omidpy.storage.hbase.native.calling.recognition import REMEMBERED_S, Recognition
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.faults import Forgotten, Lost, NotSent
from omidpy.storage.hbase.native.values import Region, ServerName
from tests.machines.fake_hbase import Call, FakeHBase, Reply, client_of, fault
from tests.machines.hbase_messages import message

LOST = Reply(after_bytes=0)
NOT_KNOWN = "whether it was applied is not known"
HERE = ServerName("h", 1, 1)


class Counter:
    """A server with a number, which knows increments again as HBase does."""

    def __init__(self, *, loses: int = 0) -> None:
        self.number = 0
        self.known: set[tuple[int, int]] = set()
        self.loses = loses
        """How many answers it loses yet."""

    def __call__(self, call: Call) -> Reply:
        """Answer an increment."""
        asked = message("MutateRequest")
        asked.ParseFromString(call.body)
        numbers = asked.nonce_group, asked.mutation.nonce
        self.number += numbers not in self.known
        self.known.add(numbers)
        self.loses -= 1
        if self.loses >= 0:
            return LOST
        body = message("MutateResponse", result={"associated_cell_count": 1})
        number = encode(b"a", b"f", b"q", 5, self.number.to_bytes(8))
        return Reply(body.SerializeToString(), number)


@pytest.fixture(name="resources")
def what_is_closed() -> Iterator[ExitStack]:
    """Return what closes servers and clients."""
    with ExitStack() as resources:
        yield resources


def opened(resources: ExitStack, *fakes: FakeHBase) -> NativeClient:
    """Return a client of the first server, whose look-ups end at the last."""
    for fake in fakes:
        resources.enter_context(fake)
    client = client_of(fakes[0])
    resources.callback(client.close)
    region = Region("t", b"t,,1.id.", b"", b"", fakes[-1].server)
    client.calls.locations._look_up = lambda *_: region  # type: ignore[method-assign]
    return client


def increment(client: NativeClient) -> int:
    """Add 1."""
    return client.increment("t", b"a", b"f", b"q", 1)


def test_an_increment_in_doubt_goes_to_no_other_server(resources: ExitStack) -> None:
    """The next server of a region knows nothing of what the one before has done."""
    first, second = FakeHBase(before := Counter(loses=1)), FakeHBase(behind := Counter())
    client = opened(resources, first, second)
    with pytest.raises(StorageUnavailable, match=NOT_KNOWN) as told:
        increment(client)
    assert not told.value.retryable
    assert (before.number, behind.number) == (1, 0)


def test_one_that_was_certainly_not_done_does(resources: ExitStack) -> None:
    """And one whose answer was lost goes to the same server again, which adds once."""
    gone = fault("NotServingRegionException")
    second = FakeHBase(counter := Counter(loses=1))
    assert increment(opened(resources, FakeHBase(lambda _: gone), second)) == 1
    assert counter.number == 1


def test_an_increment_is_not_made_again_a_long_time_later(
    resources: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a process that was stopped while it waited: HBase has forgotten the call."""
    now_s = [0.0]
    counter = Counter(loses=1)

    def script(call: Call) -> Reply:
        reply = counter(call)
        now_s[0] += 3600
        counter.known.clear()
        return reply

    monkeypatch.setattr(
        "omidpy.storage.hbase.native.client.Recognition",
        lambda: Recognition(now_s=lambda: now_s[0]),
    )
    with pytest.raises(StorageUnavailable, match=NOT_KNOWN):
        increment(opened(resources, FakeHBase(script)))
    assert counter.number == 1


@pytest.mark.parametrize(
    "then", [fault("RegionTooBusyException"), fault("NotServingRegionException")]
)
def test_a_refusal_behind_a_lost_answer_says_nothing_of_the_call(
    resources: ExitStack, then: Reply
) -> None:
    """Who tries again, with other numbers, would add once more."""
    fake = FakeHBase(lambda call: then if call.number else LOST)
    client = opened(resources, fake)
    with pytest.raises(StorageUnavailable, match=NOT_KNOWN) as told:
        increment(client)
    assert not told.value.retryable
    assert len(fake.calls) > 1


def test_an_increment_that_was_done_is_told_though_its_number_cannot_be_read(
    resources: ExitStack,
) -> None:
    """The look behind it fails, and not the increment."""
    none = message("MutateResponse", result={"associated_cell_count": 0}).SerializeToString()
    busy = fault("RegionTooBusyException")
    fake = FakeHBase(lambda call: Reply(none) if call.method == "Mutate" else busy)
    with pytest.raises(StorageUnavailable, match="it was done, and what the number") as told:
        increment(opened(resources, fake))
    assert not told.value.retryable


def test_a_change_of_a_table_is_not_asked_for_again_a_long_time_later(
    resources: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master would disable, by then, what another client has made under that name."""
    now_s = [0.0]

    def script(_: Call) -> Reply:
        now_s[0] += 3600
        return LOST

    monkeypatch.setattr(
        "omidpy.storage.hbase.native.admin.Recognition", lambda: Recognition(now_s=lambda: now_s[0])
    )
    fake = FakeHBase(script)
    with pytest.raises(StorageUnavailable, match=NOT_KNOWN):
        Admin(opened(resources, fake).calls).disable("t")
    assert fake.methods == ["DisableTable"]


def test_a_procedure_that_the_master_has_forgotten_may_have_failed(resources: ExitStack) -> None:
    """It remembers neither what succeeded nor what did not."""
    fake = FakeHBase(
        lambda call: Reply(b"\x08\x07" if call.method == "DisableTable" else b"\x08\x00")
    )
    with pytest.raises(StorageUnavailable, match=NOT_KNOWN):
        Admin(opened(resources, fake).calls).disable("t")


def test_time_counts_from_the_first_attempt_that_is_in_doubt() -> None:
    """What was certainly not done leaves nothing to be known again."""
    now_s = [0.0]
    known = Recognition(now_s=lambda: now_s[0])
    known.begin(HERE)
    known.note(NotSent("no"))
    now_s[0] += 2 * REMEMBERED_S
    known.begin(HERE._replace(port=2))
    known.note(Lost("gone"))
    now_s[0] += REMEMBERED_S
    known.begin(HERE._replace(port=2))
    known.note(Lost("gone again"))
    now_s[0] += 1
    with pytest.raises(Forgotten, match="gone; so long ago"):
        known.begin(HERE._replace(port=2))


def test_of_a_table_that_is_gone_nothing_is_in_doubt() -> None:
    """Nor of what was refused before it was ever sent."""
    known = Recognition()
    told = StorageUnavailable("no", retryable=True)
    assert known.told(told) is told
    known.begin(HERE)
    known.note(Lost("gone"))
    missing = NoSuchTable("no")
    assert known.told(missing) is missing
    assert NOT_KNOWN in str(known.told(told))
    assert recognition.REMEMBERED_S < 900, "the master forgets behind a quarter of an hour"
