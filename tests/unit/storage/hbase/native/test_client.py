"""What is made again after a failure, where, and what is never made again."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from omidpy.errors import NoSuchFamily, OmidError, StorageUnavailable, UsageError
from omidpy.model import MAX_VERSION
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.calling import calls as calls_module
from omidpy.storage.hbase.native.calling.attempts import MAX_ATTEMPTS
from omidpy.storage.hbase.native.calling.calls import Sent
from omidpy.storage.hbase.native.calling.steps import Step
from omidpy.storage.hbase.native.cellblock import DELETE_FAMILY, DELETE_VERSION, encode
from omidpy.storage.hbase.native.client import NativeClient
from omidpy.storage.hbase.native.connections import connection
from omidpy.storage.hbase.native.connections.connection import Waiting
from omidpy.storage.hbase.native.faults import Garbled, Lost, NotSent, Unanswered
from omidpy.storage.hbase.native.values import (
    Check,
    DeleteCell,
    Get,
    PutCell,
    Region,
    RowChange,
    Selection,
    ServerName,
)
from tests.machines.fake_hbase import (
    PROCESSED,
    REFUSED,
    SILENCE,
    Call,
    FakeHBase,
    Reply,
    client_of,
    fault,
)
from tests.machines.hbase_messages import message
from tests.machines.interrupts.lines import Interrupt, Interrupter

PUT = RowChange(b"a", (PutCell(b"f", b"q", 5, b"v"),))
BOTH = RowChange(b"a", PUT.puts, (DeleteCell(b"f", b"q", 4, DELETE_VERSION),))
UNDATED_PUT = RowChange(b"a", (PutCell(b"f", b"q", MAX_VERSION, b"v"),))
UNDATED_DELETE = RowChange(b"a", (), (DeleteCell(b"f", b"", MAX_VERSION, DELETE_FAMILY),))
UNDATED = [UNDATED_PUT, UNDATED_DELETE, RowChange(b"a", PUT.puts, UNDATED_DELETE.deletes)]
CHECK = Check(b"a", b"f", b"c", None)
LOST = Reply(body=b"\x10\x01", after_bytes=0)


def scripted(*replies: Reply) -> Callable[[Call], Reply]:
    """Answer with these, one after another, and then with the last one."""
    return lambda call: replies[min(call.number, len(replies) - 1)]


def multi(*parts: dict[str, Any], cells: bytes = b"") -> Reply:
    """Return the answer to a Multi."""
    body = message("MultiResponse", regionActionResult=parts)
    return Reply(body.SerializeToString(), cells)


def made(count: int) -> Reply:
    """Return the answer to a Multi in one region whose changes were all made."""
    return multi({"resultOrException": [{"index": one, "result": {}} for one in range(count)]})


@pytest.fixture(name="opened")
def clients_of_fakes() -> Iterator[Callable[..., tuple[NativeClient, list[FakeHBase]]]]:
    """Return what opens a client of fakes."""
    with ExitStack() as resources:

        def opened(
            *scripts: Callable[[Call], Reply], options: str = "timeout_s=5&retry_s=5"
        ) -> tuple[NativeClient, list[FakeHBase]]:
            fakes = [resources.enter_context(FakeHBase(script)) for script in scripts]
            client = client_of(*fakes, options=options)
            resources.callback(client.close)
            return client, fakes

        yield opened


Opened = Callable[..., tuple[NativeClient, list[FakeHBase]]]


def relocated(client: NativeClient, fake: FakeHBase) -> None:
    """Let every look-up end at a fake."""
    region = Region("t", b"t,,2.id.", b"", b"", fake.server)
    client.calls.locations._look_up = lambda *_: region  # type: ignore[method-assign]


def test_a_put_whose_answer_was_lost_is_made_again(opened: Opened) -> None:
    """It names its version, so twice is once."""
    client, (fake,) = opened(scripted(LOST, PROCESSED))
    relocated(client, fake)
    client.mutate("t", PUT)
    assert fake.methods == ["Mutate", "Mutate"]
    assert fake.calls[0].body != b""
    assert fake.calls[0].cells == fake.calls[1].cells == encode(b"a", b"f", b"q", 5, b"v")


@pytest.mark.parametrize("change", UNDATED)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "reply", [LOST, SILENCE, fault("io.SomeIOException"), Reply(raw=b"\xff" * 8)]
)
def test_a_change_that_is_dated_by_the_server_is_not_made_twice(
    opened: Opened, change: RowChange, count: int, reply: Reply
) -> None:
    """The second would be the later one, and hide what another client has written in between."""
    client, (fake,) = opened(scripted(reply), options="timeout_s=0.3&retry_s=5")
    relocated(client, fake)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known") as told:
        client.mutate_many("t", [change, PUT._replace(row=b"b")][:count])
    assert not told.value.retryable
    assert len(fake.calls) == 1


@pytest.mark.parametrize("count", [1, 2])
def test_one_that_was_certainly_not_made_is_made_again(opened: Opened, count: int) -> None:
    """A region that moves is no reason to fail."""
    gone = fault("NotServingRegionException")
    client, (fake,) = opened(scripted(gone, gone, made(2) if count > 1 else PROCESSED))
    relocated(client, fake)
    client.mutate_many("t", [UNDATED_PUT, UNDATED_PUT._replace(row=b"b")][:count])
    assert len(fake.calls) == 3


def told_of_each(count: int, name: str, text: str) -> Reply:
    """Return the answer to a Multi in one region that says the same of each change."""
    exception = {"name": f"x.{name}", "value": f"x.{name}: {text}\n\tat x".encode()}
    return multi(
        {"resultOrException": [{"index": at, "exception": exception} for at in range(count)]}
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("RegionTooBusyException", "Over memstore limit=2.5G"),
        ("RegionTooBusyException", "Failed to obtain lock; regionName=t"),
        ("NotServingRegionException", "t,,1.x. is closing"),
    ],
)
def test_what_is_told_of_all_changes_of_a_region_is_told_of_those_that_were_made_too(
    opened: Opened, name: str, text: str
) -> None:
    """HBase makes a batch in parts where rows are locked, and looks anew before each of them."""
    rows = [UNDATED_PUT._replace(row=row) for row in (b"a", b"b")]
    client, (fake,) = opened(scripted(told_of_each(2, name, text), made(2)))
    relocated(client, fake)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        client.mutate_many("t", rows)
    assert len(fake.calls) == 1
    client.mutate_many("t", [PUT._replace(row=row) for row in (b"a", b"b")])


@pytest.mark.parametrize(("count", "text"), [(1, "Over memstore limit"), (2, "StoreTooBusy,t:f")])
def test_a_change_that_is_alone_in_its_part_or_refused_by_itself_is_made_again(
    opened: Opened, count: int, text: str
) -> None:
    """Nothing was made before it was refused."""
    busy = told_of_each(count, "RegionTooBusyException", text)
    client, (fake, _) = opened(scripted(busy, made(count)), scripted(made(1)))
    rows = [b"a", b"aa"][:count]
    client.mutate_many("t", [UNDATED_PUT._replace(row=row) for row in (*rows, b"z")])
    assert len(fake.calls) == 2


@pytest.mark.parametrize("name", ["DoNotRetryIOException", "RegionTooBusyException", "Other"])
def test_a_coprocessor_that_fails_behind_the_change_has_not_undone_it(
    opened: Opened, name: str
) -> None:
    """Such as one that writes an index; where it stood the Java stack says."""
    frame = "at org.apache.hadoop.hbase.regionserver.RegionCoprocessorHost"
    for hook, is_made in (("postBatchMutateIndispensably", True), ("preBatchMutate", False)):
        failed = fault(name, f"no index\n\t{frame}.{hook}(RegionCoprocessorHost.java:9)")
        client, (fake,) = opened(scripted(failed), options="timeout_s=5&retry_s=0")
        relocated(client, fake)
        with pytest.raises(StorageUnavailable) as told:
            client.check_and_mutate("t", CHECK, PUT)
        is_doubtful = is_made or name == "Other"
        assert ("whether it was applied is not known" in str(told.value)) is is_doubtful
        fake.calls.clear()
        with pytest.raises(StorageUnavailable) as told:
            client.increment("t", b"a", b"f", b"q", 1)
        assert ("whether it was applied is not known" in str(told.value)) is is_doubtful
        assert len(fake.calls) == 1 or not is_made


def test_of_many_one_in_doubt_is_enough(opened: Opened) -> None:
    """Whatever else went wrong beside it, and is known not to have been made."""
    client, (stopped, doubtful) = opened(scripted(made(1)), scripted(fault("io.SomeIOException")))
    stopped.stop()
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        client.mutate_many("t", [UNDATED_PUT, UNDATED_PUT._replace(row=b"z")])
    assert len(doubtful.calls) == 1


@pytest.mark.parametrize("change", [PUT, BOTH])
@pytest.mark.parametrize(
    "reply", [LOST, SILENCE, fault("io.SomeIOException"), Reply(raw=b"\xff" * 8)]
)
def test_a_conditional_change_of_unknown_outcome_is_never_made_again(
    opened: Opened, change: RowChange, reply: Reply
) -> None:
    """A second one might find its own first, and say that it was refused."""
    client, (fake,) = opened(scripted(reply), options="timeout_s=0.3&retry_s=5")
    relocated(client, fake)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        client.check_and_mutate("t", CHECK, change)
    assert len(fake.calls) == 1


@pytest.mark.parametrize(
    "name",
    [
        "NotServingRegionException",
        "exceptions.RegionOpeningException",
        "ipc.ServerNotRunningYetException",
        "RegionTooBusyException",
        "CallQueueTooBigException",
        "quotas.RpcThrottlingException",
    ],
)
def test_a_conditional_change_that_was_certainly_not_made_is(opened: Opened, name: str) -> None:
    """The server says so; the user's transaction need not fail because a region moves."""
    client, (fake,) = opened(scripted(fault(name), fault(name), PROCESSED))
    relocated(client, fake)
    assert client.check_and_mutate("t", CHECK, PUT)
    assert len(fake.calls) == 3


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_change_whose_region_could_not_be_looked_up_was_not_made(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """The catalogue's answer was lost, and nothing sent behind it yet."""
    client, (fake,) = opened(scripted(made(2) if count > 1 else PROCESSED))
    locate = client.calls.locations.locate
    failures = [Lost("the catalogue's answer"), Unanswered("no answer")]

    def locate_later(*words: Any, **options: Any) -> Region:
        if failures:
            raise failures.pop()
        return locate(*words, **options)

    monkeypatch.setattr(client.calls.locations, "locate", locate_later)
    if count:
        client.mutate_many("t", [UNDATED_PUT, UNDATED_PUT._replace(row=b"b")][:count])
    else:
        assert client.check_and_mutate("t", CHECK, PUT)
    assert not failures
    assert len(fake.calls) == 1


def test_an_exception_of_no_call_says_nothing_of_those_in_flight(opened: Opened) -> None:
    """The server has taken the opening, so it may have made the change and fail by another call."""
    said = "org.apache.hadoop.hbase.ipc.FatalConnectionException"
    exception = {"exception_class_name": said, "stack_trace": "no", "do_not_retry": True}
    header = message("ResponseHeader", call_id=2**32 - 1, exception=exception).SerializeToString()
    frame = bytes((len(header),)) + header
    client, (fake,) = opened(scripted(PROCESSED, Reply(raw=struct.pack(">I", len(frame)) + frame)))
    client.mutate("t", PUT)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known") as told:
        client.check_and_mutate("t", CHECK, PUT)
    assert "FatalConnectionException" in str(told.value)
    assert len(fake.calls) == 2


@pytest.mark.parametrize("change", [PUT, UNDATED_DELETE])
def test_a_change_without_a_condition_was_made_only_if_the_answer_says_so(
    opened: Opened, change: RowChange
) -> None:
    """As of puts and deletes of a row that are made in one."""
    client, (fake,) = opened(scripted(REFUSED))
    with pytest.raises(StorageUnavailable, match="lacks a part"):
        client.mutate("t", change)
    assert len(fake.calls) == 1


@pytest.mark.parametrize("is_asked", [False, True])
def test_an_answer_that_says_nothing_of_a_row_does_not_say_that_it_is_empty(
    opened: Opened,
    is_asked: bool,  # noqa: FBT001 - a table
) -> None:
    """A reader would lack its cells without an error."""
    get = Get(b"a", Selection())
    nothing = message("GetResponse", result={}) if is_asked else message("GetResponse")
    client, _ = opened(scripted(Reply(nothing.SerializeToString())))
    with pytest.raises(StorageUnavailable, match="could not be read"):
        client.exists("t", get) if is_asked else client.get("t", get)


def test_a_refused_condition_is_no_failure(opened: Opened) -> None:
    """The answer says whether it held."""
    client, (fake,) = opened(scripted(REFUSED))
    assert not client.check_and_mutate("t", CHECK, PUT)
    assert len(fake.calls) == 1


def test_an_answer_that_does_not_say_whether_a_condition_held_is_none(opened: Opened) -> None:
    """HBase before 2.4 says nothing of it, and has made the change all the same."""
    client, (fake,) = opened(scripted(made(1)))
    relocated(client, fake)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        client.check_and_mutate("t", CHECK, BOTH)
    with pytest.raises(Garbled, match="does not say whether that held"):
        client.in_order([Step("t", (PUT,), CHECK)], patience_s=5)
    assert len(fake.calls) == 2
    client.mutate("t", BOTH)


def test_a_region_that_moved_is_followed_where_it_went(opened: Opened) -> None:
    """Without a look-up, which may lag behind."""
    with FakeHBase(scripted(PROCESSED)) as there:
        told = fault(
            "exceptions.RegionMovedException",
            f"Region moved to: hostname=127.0.0.1 port={there.port} startCode=7. As of "
            "locationSeqNum=9.",
        )
        client, (here,) = opened(scripted(told))
        assert client.check_and_mutate("t", CHECK, PUT)
        assert client.check_and_mutate("t", CHECK, PUT)
        assert (len(here.calls), len(there.calls)) == (1, 2)
        client.close()


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_compaction_is_asked_for_where_the_region_is_by_now(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    """The server that had it when the regions were listed says for ever that it has not."""
    client, (before, behind) = opened(
        lambda _: fault("NotServingRegionException"), lambda _: Reply()
    )
    locations = client.calls.locations
    region = locations.locate("t", b"a", until_s=0)
    found = region._replace(server=behind.server, name=b"t,,2.other." if is_gone else region.name)
    monkeypatch.setattr(locations, "all", lambda *_, **__: [region])
    monkeypatch.setattr(locations, "look_anew", lambda *_, **__: found)
    Admin(client.calls).compact("t", is_major=True)
    assert set(before.methods) <= {"CompactRegion", "GetTableState"}
    assert behind.methods == ["CompactRegion"]
    assert found.name in behind.calls[0].body


def test_a_region_is_waited_for_though_no_master_answers(opened: Opened) -> None:
    """Whether the table is there is asked in between, and not knowing is no reason to end."""
    gone = fault("NotServingRegionException")
    client, (fake,) = opened(scripted(*[gone] * 8, PROCESSED))
    relocated(client, fake)
    client.calls.registry.server = ServerName("127.0.0.1", 1)  # type: ignore[attr-defined] # of the fake
    client.mutate("t", PUT)
    assert len(fake.calls) == 9


def test_a_disabled_table_is_told_after_a_few_failures(opened: Opened) -> None:
    """Its regions are not there, as if they moved; the master knows."""

    def script(call: Call) -> Reply:
        if call.method == "GetTableState":
            return Reply(b"\x0a\x02\x08\x01")
        return fault("NotServingRegionException")

    client, (fake,) = opened(script)
    relocated(client, fake)
    with pytest.raises(StorageUnavailable, match="it is disabled; enable it"):
        client.mutate("t", PUT)
    assert fake.methods.count("Mutate") == 3


def test_an_impatient_call_ends_no_connection(opened: Opened) -> None:
    """Others wait on it for longer, and would not know the outcome of theirs."""

    def script(call: Call) -> Reply:
        return SILENCE if call.method == "Multi" else PROCESSED

    client, (fake,) = opened(script)
    relocated(client, fake)
    with pytest.raises(Unanswered):
        client.in_order([Step("t", (PUT,), CHECK), look(b"z")], patience_s=0.05)
    client.mutate("t", PUT)
    assert len(fake.openings) == 1


def test_a_permanent_refusal_is_not_made_again(opened: Opened) -> None:
    """And is of our own kind, with what helps."""
    client, (fake,) = opened(scripted(fault("regionserver.NoSuchColumnFamilyException", "no f")))
    with pytest.raises(NoSuchFamily, match=r"put of table 't' at the HBase server .*no f"):
        client.mutate("t", PUT)
    assert len(fake.calls) == 1


def test_of_a_batch_what_failed_is_made_again_alone(opened: Opened) -> None:
    """By row: HBase says which."""
    bad = {"index": 1, "exception": {"name": "x.RegionTooBusyException", "value": b"busy"}}
    client, (fake,) = opened(
        scripted(multi({"resultOrException": [{"index": 0, "result": {}}, bad]}), made(1))
    )
    rows = [PUT._replace(row=row) for row in (b"a", b"b")]
    client.mutate_many("t", rows)
    first, second = (message("MultiRequest") for _ in range(2))
    first.ParseFromString(fake.calls[0].body)
    second.ParseFromString(fake.calls[1].body)
    rows_of = [
        [one.mutation.row for one in found.regionAction[0].action] for found in (first, second)
    ]
    assert rows_of == [[b"a", b"b"], [b"b"]]
    assert fake.calls[1].cells == encode(b"b", b"f", b"q", 5, b"v")


def test_rows_that_do_not_fit_into_one_answer_come_in_as_many_as_it_takes(opened: Opened) -> None:
    """HBase has nothing to be waited for; each was an attempt, with longer and longer pauses."""

    def one_of(call: Call) -> Reply:
        if call.method == "Get":
            return Reply(message("GetResponse", result={}).SerializeToString())
        asked = message("MultiRequest")
        asked.ParseFromString(call.body)
        count = len(asked.regionAction[0].action)
        too_large = {"name": "x.MultiActionResultTooLarge", "value": b"Max size exceeded"}
        rest = [{"index": at, "exception": too_large} for at in range(1, count)]
        return multi({"resultOrException": [{"index": 0, "result": {}}, *rest]})

    client, (fake,) = opened(one_of)
    pauses: list[float] = []
    client.calls._pause = pauses.append
    row_count = 2 * MAX_ATTEMPTS
    found = client.get_many("t", [Get(b"%03d" % at, Selection()) for at in range(row_count)])
    assert (len(found), len(fake.calls)) == (row_count, row_count)
    assert not pauses


@pytest.mark.parametrize("is_read", [False, True])
@pytest.mark.parametrize(
    "results",
    [
        [],
        [{"index": 0, "result": {}}],
        [{"index": 0, "result": {}}, {"index": 2, "result": {}}],
        [{"index": 0, "result": {}}, {"index": 7, "exception": {"name": "x.Y", "value": b""}}],
    ],
)
def test_an_answer_that_lacks_a_row_is_no_success(
    opened: Opened,
    results: list[dict[str, Any]],
    is_read: bool,  # noqa: FBT001 - a table
) -> None:
    """A row would be taken for written, or for empty, of which the server has said nothing."""
    client, (fake,) = opened(scripted(multi({"resultOrException": results})))
    rows = (b"a", b"b")

    def call() -> None:
        if is_read:
            client.get_many("t", [Get(row, Selection()) for row in rows])
        else:
            client.mutate_many("t", [PUT._replace(row=row) for row in rows])

    with pytest.raises(StorageUnavailable, match=f"127.0.0.1:{fake.port}.*lacks a part"):
        call()


@pytest.mark.parametrize("part", [{}, {"processed": False}])
def test_an_answer_that_says_nothing_of_a_change_in_one_is_no_success(
    opened: Opened, part: dict[str, Any]
) -> None:
    """Of puts and deletes of a row HBase says that they were processed."""
    changes = [BOTH, BOTH._replace(row=b"b")]
    for said, is_done in ((part, False), ({"processed": True}, True)):
        reply = partial(_as_many, said)
        client, (fake,) = opened(reply, options="timeout_s=5&retry_s=0")
        relocated(client, fake)
        with nullcontext() if is_done else pytest.raises(StorageUnavailable, match="lacks a part"):
            client.mutate("t", BOTH)
        with nullcontext() if is_done else pytest.raises(StorageUnavailable, match="lacks a part"):
            client.mutate_many("t", changes)


def _as_many(said: dict[str, Any], call: Call) -> Reply:
    """Say the same of each part of a Multi."""
    asked = message("MultiRequest")
    asked.ParseFromString(call.body)
    return multi(*[said] * len(asked.regionAction))


def test_what_cannot_be_located_again_is_not_taken_for_done(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a batch comes in the order of servers, and none of it may be forgotten."""

    def each(count: int) -> Reply:
        return multi(*[{"resultOrException": [{"index": 0, "result": {}}]}] * count)

    client, (even, odd) = opened(
        scripted(fault("RegionTooBusyException"), each(3)), scripted(each(1), each(2))
    )
    calls = client.calls
    located: list[bytes] = []
    send = calls.send

    def locate(table: str, row: bytes, *, until_s: float) -> Region:
        del until_s
        located.append(row)
        if len(located) == 8:
            raise StorageUnavailable("no server has the catalogue", retryable=True)
        server = (odd if int(row) % 2 else even).server
        return Region(table, b"t,%b,1.id." % row, row, b"%d" % (int(row) + 1), server)

    def send_but_once(region: Region, *words: Any, **options: Any) -> Any:
        if region.server == odd.server and len(located) == 6:
            raise NotSent("the connection broke")
        return send(region, *words, **options)

    monkeypatch.setattr(calls.locations, "locate", locate)
    monkeypatch.setattr(calls, "send", send_but_once)
    calls.connections.note_answer()
    client.mutate_many("t", [PUT._replace(row=b"%d" % number) for number in range(6)])
    written = [call.body for fake in (even, odd) for call in fake.calls[-2:]]
    for number in range(6):
        assert any(b"t,%d,1." % number in body for body in written)
    assert [b"t,%d,1." % number in even.calls[-1].body for number in range(6)] == [True, False] * 3


def test_changes_that_were_acknowledged_are_told_beside_a_failure(opened: Opened) -> None:
    """So that whoever makes the rest again leaves them alone."""
    refused = {"index": 1, "exception": {"name": "x.NoSuchColumnFamilyException", "value": b""}}
    results = [{"index": 0, "result": {}}, refused, {"index": 2, "result": {}}]
    client, _ = opened(scripted(multi({"resultOrException": results}), PROCESSED))
    rows = [UNDATED_PUT._replace(row=row) for row in (b"a", b"b", b"c")]
    made: list[RowChange] = []
    with pytest.raises(NoSuchFamily):
        client.mutate_many("t", rows, made=made)
    assert [one.row for one in made] == [b"a", b"c"]
    client.mutate_many("t", rows[1:2], made=made)
    assert [one.row for one in made] == [b"a", b"c", b"b"]


def test_rows_that_cannot_be_located_cost_the_time_of_one_call_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A catalogue's server that is switched off costs seconds each time: for 500 rows, an hour."""
    row_count, look_s = 100, 0.02
    looked: list[bytes] = []

    def nowhere(_: str, row: bytes, *, until_s: float) -> Region:
        del until_s
        looked.append(row)
        time.sleep(look_s)
        raise NotSent("the catalogue's server cannot be reached: timed out")

    with FakeHBase(lambda _: SILENCE) as fake:
        client = client_of(fake, options="timeout_s=0.2&retry_s=0")
        monkeypatch.setattr(client.calls.locations, "locate", nowhere)
        with pytest.raises(StorageUnavailable, match="timed out"):
            client.get_many("t", [Get(b"%03d" % at, Selection()) for at in range(row_count)])
        client.close()
    assert len(looked) <= 2 * (1 + 0.2 / look_s)


def test_a_batch_goes_to_all_servers_before_one_answers(opened: Opened) -> None:
    """Two servers take no longer than one."""
    came: list[int] = []

    def script(number: int) -> Callable[[Call], Reply]:
        def answer(_: Call) -> Reply:
            came.append(number)
            limit_s = time.monotonic() + 5
            while len(came) < 2 and time.monotonic() < limit_s:
                time.sleep(0.001)
            return made(2) if len(came) == 2 else fault("RegionTooBusyException")

        return answer

    client, fakes = opened(script(0), script(1))
    client.mutate_many("t", [PUT._replace(row=row) for row in (b"a", b"x", b"aa", b"z")])
    assert sorted(came) == [0, 1]
    assert [len(fake.calls) for fake in fakes] == [1, 1]


def test_gets_of_two_servers_come_in_the_order_that_was_asked(opened: Opened) -> None:
    """Whatever the regions, and whatever the order of the results."""

    def script(call: Call) -> Reply:
        asked = message("MultiRequest")
        asked.ParseFromString(call.body)
        actions = asked.regionAction[0].action
        cells = b"".join(encode(one.get.row, b"f", b"q", 1, b"v") for one in reversed(actions))
        results = [
            {"index": one.index, "result": {"associated_cell_count": 1}}
            for one in reversed(actions)
        ]
        return multi({"resultOrException": results}, cells=cells)

    client, _ = opened(script, script)
    rows = [b"z", b"a", b"y", b"aa", b"a"]
    found = client.get_many("t", [Get(row, Selection()) for row in rows])
    assert [one.cells[0].row for one in found] == rows


# -- order -----------------------------------------------------------------------------------------


def done(call: Call) -> Reply:
    """Answer a Multi: changes are made, gets find nothing."""
    asked = message("MultiRequest")
    asked.ParseFromString(call.body)
    return multi(
        *(
            {
                "processed": True,
                "resultOrException": [
                    {"index": one.index, "result": {"associated_cell_count": 0}}
                    for one in part.action
                ],
            }
            for part in asked.regionAction
        )
    )


def look(row: bytes) -> Step:
    """Return a look at a row."""
    return Step("t", (Get(row, Selection()),))


def test_steps_of_one_server_go_in_one_multi_in_their_order(opened: Opened) -> None:
    """Its regions are done one after another; calls of a connection are not."""
    client, (fake,) = opened(done)
    answers = client.in_order([Step("t", (PUT,), CHECK), look(b"z")], patience_s=5)
    (call,) = fake.calls
    asked = message("MultiRequest")
    asked.ParseFromString(call.body)
    first, second = asked.regionAction
    assert first.HasField("condition")
    assert first.atomic
    assert second.action[0].HasField("get")
    assert answers[0][0].processed is True


def test_a_step_on_another_server_waits_for_the_answer(opened: Opened) -> None:
    """The look behind a change is not even sent before the change is answered."""
    order: list[str] = []

    def slow(call: Call) -> Reply:
        time.sleep(0.05)
        order.append("changed")
        return done(call)

    def quick(call: Call) -> Reply:
        order.append("looked")
        return done(call)

    client, _ = opened(slow, quick)
    client.in_order([Step("t", (PUT,), CHECK), look(b"z")], patience_s=5)
    assert order == ["changed", "looked"]


def test_a_failed_step_ends_what_is_done_in_order_and_is_not_made_again(opened: Opened) -> None:
    """What comes behind it would speak for something that may not be there."""
    with pytest.raises(Exception, match="NotServingRegion"):
        opened(scripted(fault("NotServingRegionException")))[0].in_order(
            [Step("t", (PUT,), CHECK), look(b"z")], patience_s=5
        )
    gone = {"exception": {"name": "a.NotServingRegionException", "value": b"x"}}
    client, (fake, other) = opened(scripted(multi(gone)), done)
    with pytest.raises(Exception, match="NotServingRegion"):
        client.in_order([Step("t", (PUT,), CHECK), look(b"z")], patience_s=5)
    assert (len(fake.calls), len(other.calls)) == (1, 0)


def test_what_was_done_in_order_is_told_of_each_action(opened: Opened) -> None:
    """An oracle would tell a commit whose entry may not be there."""
    rows = [RowChange(row, PUT.puts) for row in (b"a", b"b", b"c")]
    client, _ = opened(scripted(multi({"resultOrException": [{"index": 0, "result": {}}]})))
    with pytest.raises(Garbled, match="lacks a part"):
        client.in_order([Step("t", rows)], patience_s=5)


# -- ends ------------------------------------------------------------------------------------------


def test_a_first_call_that_nobody_answers_is_told_at_once() -> None:
    """The address is probably wrong, and its user waits."""
    with FakeHBase(done) as fake:
        client = client_of(fake)
        client.calls.connections._has_answered = False
        fake.stop()
        began_s = time.monotonic()
        with pytest.raises(StorageUnavailable):
            client.mutate("t", PUT)
        assert time.monotonic() - began_s < 2
        client.close()


def test_a_cell_longer_than_any_request_is_refused_before_it_is_sent(opened: Opened) -> None:
    """Naming what to do."""
    client, (fake,) = opened(done)
    long = PUT._replace(puts=(PutCell(b"f", b"q", 5, b"v" * (2**28)),))
    with pytest.raises(UsageError, match="write less at a time"):
        client.mutate("t", long)
    assert fake.calls == []


def test_a_closed_client_is_told_at_once(opened: Opened) -> None:
    """A thread that was under way would repeat its call for half a minute otherwise."""
    client, (fake,) = opened(scripted(PROCESSED))
    client.mutate("t", PUT)
    client.close()
    relocated(client, fake)
    began_s = time.monotonic()
    with pytest.raises(StorageUnavailable, match="closed meanwhile; open it again"):
        client.mutate("t", PUT)
    assert time.monotonic() - began_s < 1


def test_a_child_after_a_fork_has_connections_of_its_own(opened: Opened) -> None:
    """And the parent's go on; a shared socket would mix up answers."""
    client, (fake,) = opened(scripted(PROCESSED))
    client.mutate("t", PUT)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        code = 1
        try:
            client.mutate("t", PUT)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    client.mutate("t", PUT)
    assert len(fake.openings) == 2
    assert len(fake.calls) == 3


def test_an_interrupted_batch_leaves_the_client_usable(opened: Opened) -> None:
    """At whatever line; nothing stays in flight."""
    client, _ = opened(done, done)
    rows = [PUT._replace(row=row) for row in (b"a", b"z")]
    interrupter = Interrupter()

    def call() -> object:
        client.mutate_many("t", rows)
        return None

    for number in list(interrupter.places(call))[::7]:
        with suppress(Interrupt):
            interrupter.interrupt(call, number, Interrupt())
        client.mutate_many("t", rows)
    for place in client.calls.connections._places.values():
        assert place.connection is not None
        assert place.connection._pending == {}


def test_every_failure_that_leaves_is_one_of_ours(opened: Opened) -> None:
    """Foreign exceptions are translated where they enter."""
    for reply in (
        fault("any.OtherException"),
        fault("AccessDeniedException"),
        Reply(raw=b"\0" * 9),
    ):
        client, (fake,) = opened(scripted(reply), options="timeout_s=1&retry_s=0")
        relocated(client, fake)
        with pytest.raises(OmidError):
            client.get("t", Get(b"a", Selection()))


@pytest.mark.parametrize("is_known", [False, True])
def test_a_server_that_stands_still_is_left_when_its_region_is_elsewhere(
    opened: Opened,
    monkeypatch: pytest.MonkeyPatch,
    is_known: bool,  # noqa: FBT001 - a table
) -> None:
    """It keeps its connections, and would be waited for as long as a call may take."""
    monkeypatch.setattr(connection, "DOUBT_S", 0.05)
    monkeypatch.setattr(connection, "LOOK_S", 0.05)
    client, (still, other) = opened(scripted(SILENCE), scripted(PROCESSED))
    region = client.calls.locations.locate("t", b"a", until_s=0)
    looks = []

    def look(found: Region, **_: object) -> Region:
        looks.append(found)
        return found._replace(server=other.server) if is_known or len(looks) > 2 else found

    client.calls.locations.look_anew = look  # type: ignore[method-assign, assignment]
    client.calls.locations._look_up = lambda *_: region._replace(server=other.server)  # type: ignore[method-assign]
    began_s = time.monotonic()
    client.mutate("t", PUT)
    assert time.monotonic() - began_s < 3
    # On a busy machine the other one takes its time, too, and is doubted as well.
    of_still = [one for one in looks if one.server != other.server]
    assert of_still == [region] * (1 if is_known else 3)
    assert (still.methods, other.methods) == (["Mutate"], ["Mutate"])


def test_a_change_on_a_condition_is_in_doubt_where_its_server_was_replaced(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one may have made it before it stood still."""
    monkeypatch.setattr(connection, "DOUBT_S", 0.05)
    monkeypatch.setattr(connection, "LOOK_S", 0.05)
    client, (_, other) = opened(scripted(SILENCE), scripted(PROCESSED))
    relocated(client, other)
    client.calls.locations.look_anew = (  # type: ignore[method-assign]
        lambda found, **_: found._replace(server=other.server)
    )
    with pytest.raises(StorageUnavailable, match=r"another one is in its place.*is not known"):
        client.check_and_mutate("t", CHECK, PUT)
    assert other.calls == []


def test_a_slow_answer_of_a_server_that_is_right_is_waited_for(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the catalogue says so, or cannot be read."""
    monkeypatch.setattr(connection, "DOUBT_S", 0.02)
    monkeypatch.setattr(connection, "LOOK_S", 0.02)

    def slow(_: Call) -> Reply:
        time.sleep(0.2)
        return PROCESSED

    client, (fake,) = opened(slow)
    for found in (None, ServerName("127.0.0.1", 1), fake.server):

        def look(region: Region, found: ServerName | None = found, **_: object) -> Region | None:
            if found is not None and found.port == 1:
                raise Unanswered("no catalogue")
            return None if found is None else region._replace(server=found)

        client.calls.locations.look_anew = look  # type: ignore[method-assign]
        assert client.check_and_mutate("t", CHECK, PUT)
    assert len(fake.calls) == 3


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_master_that_stands_still_is_left_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
    is_replaced: bool,  # noqa: FBT001 - a table
) -> None:
    """The registry says who is active."""
    monkeypatch.setattr(connection, "DOUBT_S", 0.05)
    monkeypatch.setattr(connection, "LOOK_S", 0.05)
    with FakeHBase(scripted(SILENCE)) as still, FakeHBase(scripted(Reply(b""))) as next_one:
        client = client_of(still, options="timeout_s=0.4&retry_s=0.1")
        client.calls._active_master()
        if is_replaced:
            client.calls.registry.server = next_one.server  # type: ignore[attr-defined] # of the fake
            assert Admin(client.calls).descriptors() == []
            assert next_one.methods == ["GetTableDescriptors"]
        else:
            with pytest.raises(StorageUnavailable, match=r"no answer within 0\.4 s"):
                Admin(client.calls).descriptors()
        client.close()


@pytest.mark.parametrize("cells", [b"", b"\x00\x00\x00\x00%/org.apache.hadoop.hbase.filter.Binar"])
def test_an_increment_whose_answer_has_no_number_was_done(opened: Opened, cells: bytes) -> None:
    """So HBase answers, now and then, where it knows that it was done before."""
    there = encode(b"a", b"f", b"q", 5, (7).to_bytes(8))
    client, (fake,) = opened(
        scripted(
            Reply(_result("MutateResponse", 1 if cells else 0), cells),
            Reply(_result("GetResponse", 1), there),
        )
    )
    relocated(client, fake)
    assert client.increment("t", b"a", b"f", b"q", 3) == 7
    assert fake.methods == ["Mutate", "Get"]


def _result(kind: str, cell_count: int) -> bytes:
    body = message(kind, result={"associated_cell_count": cell_count})
    return bytes(body.SerializeToString())


def reading(client: NativeClient, fake: FakeHBase) -> tuple[Callable[[], bytes], list[Region]]:
    """Return what reads a cell from a server, and the looks at the catalogue that this takes.

    Once it is `relocated` the catalogue has the region elsewhere.
    """
    relocated(client, fake)
    region = client.calls.locations.locate("t", b"a", until_s=0)
    client.calls.locations._set_all("t", [region])
    looks: list[Region] = []

    def look(region: Region, **_: object) -> Region:
        looks.append(region)
        return client.calls.locations._look_up("t", b"a", 0.0)

    client.calls.locations.look_anew = look  # type: ignore[method-assign]

    def read() -> bytes:
        value: bytes = client.get("t", Get(b"a", Selection())).cells[0].value
        return value

    return read, looks


def told(value: bytes, after_s: float = 0.0) -> Callable[[Call], Reply]:
    """Answer with a cell, after some time."""

    def answer(_: Call) -> Reply:
        time.sleep(after_s)
        return Reply(_result("GetResponse", 1), encode(b"a", b"f", b"q", 5, value))

    return answer


def test_a_late_answer_is_believed_where_the_region_is_still_there_alone(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stood still has in its memory what was there before others wrote (I8)."""
    client, (still, other) = opened(told(b"old", 0.05), told(b"new"))
    monkeypatch.setattr(calls_module, "SLOW_S", 0.02)
    read, looks = reading(client, still)
    assert [read(), read()] == [b"old"] * 2
    assert len(looks) == 2
    relocated(client, other)
    assert read() == b"new"
    assert still.methods == ["Get"] * 3


def test_an_answer_behind_a_silence_is_looked_at_once(opened: Opened) -> None:
    """Whoever asks first when the server goes on may be answered at once, and from its memory."""
    client, (still, other) = opened(told(b"old"), told(b"new"))
    read, looks = reading(client, still)

    def be_silent() -> None:
        (place,) = client.calls.connections._places.values()
        assert place.connection is not None
        place.connection._came_s -= connection.DOUBT_S + 1

    assert read() == b"old"
    assert len(looks) == 0
    be_silent()
    assert [read(), read()] == [b"old"] * 2
    assert len(looks) == 1
    be_silent()
    relocated(client, other)
    assert read() == b"new"
    assert still.methods == ["Get"] * 4


def test_who_has_the_catalogue_is_asked_where_there_is_time_for_it(opened: Opened) -> None:
    """HBase serves on where ZooKeeper does not, and no call is held up by that again and again."""
    client, (still, other) = opened(scripted(PROCESSED), scripted(PROCESSED))
    calls, asked = client.calls, []
    answers: list[ServerName | OmidError] = [
        still.server,
        StorageUnavailable("no ZooKeeper"),
        other.server,
    ]

    def meta_server() -> ServerName:
        asked.append(answers[0])
        if isinstance(found := answers.pop(0), OmidError):
            raise found
        return found

    silent: Any = SimpleNamespace(came_behind_silence=lambda _: True, believe=lambda: None)
    calls.registry = SimpleNamespace(meta_server=meta_server)
    region = Region("t", b"t,,1.id.", b"", b"", still.server)
    sent = Sent(silent, Waiting(1, "Get"), region)
    calls.locations._meta = still.server
    calls.locations.look_anew = lambda found, **_: found  # type: ignore[method-assign]
    soon_s = time.monotonic() + 3
    in_time_s = soon_s + calls.address.connect_timeout_s
    calls._doubt(sent, soon_s)
    assert asked == [], "whoever has seconds alone does not wait for it"
    calls._doubt(sent, in_time_s)
    calls._doubt(sent, in_time_s)
    calls._doubt(sent, in_time_s)
    assert len(asked) == 2, "it has not answered a moment ago"
    calls._untold_s -= calls_module._ASK_AGAIN_S + 1
    with pytest.raises(Lost, match="another one is in its place"):
        calls._doubt(sent, in_time_s)
    assert calls.locations._meta is None
    calls.locations._meta = other.server
    calls._doubt(sent, in_time_s)
    assert len(asked) == 3, "another server has it, and can be asked"
