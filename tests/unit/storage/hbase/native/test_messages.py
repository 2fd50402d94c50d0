"""The hand-written messages are those of the protobuf library, field by field."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from omidpy.errors import OmidError
from omidpy.model import MAX_VERSION, Cell
from omidpy.storage.hbase import filters
from omidpy.storage.hbase.native import cellblock, scan_messages
from omidpy.storage.hbase.native.faults import CallFailed, Fault, Garbled
from omidpy.storage.hbase.native.values import (
    Check,
    DeleteCell,
    FamilyDescriptor,
    Found,
    Get,
    PutCell,
    Region,
    RegionAction,
    RowChange,
    Scan,
    Selection,
    ServerName,
    TableDescriptor,
)
from omidpy.storage.hbase.native.wire import (
    answers,
    frames,
    messages,
    schema,
    snapshots,
    status,
)
from omidpy.storage.hbase.native.wire.answers import Answer
from omidpy.storage.hbase.native.wire.schema import Nonces
from omidpy.wire.protobuf import put_varint
from tests.machines.hbase_messages import message

REGION = Region("t", b"t,,1.id.", b"", b"m", ServerName("h", 16020, 7), 1)
OTHER = REGION._replace(name=b"t,m,1.di.", start=b"m", end=b"")
PUT = RowChange(b"a", (PutCell(b"f", b"q", 5, b"v"),))
BOTH = RowChange(b"a", PUT.puts, (DeleteCell(b"f", b"q", 4, cellblock.DELETE_VERSION),))


def read(name: str, data: bytes) -> Any:
    """Return what the library reads; it must know every field."""
    found = message(name)
    found.ParseFromString(data)
    found.DiscardUnknownFields()
    assert len(found.SerializeToString()) == len(data)
    return found


def answer(name: str, cells: bytes = b"", **values: Any) -> Answer:
    """Return an answer that the library has written."""
    body = message(name, **values).SerializeToString()
    return Answer(1, None, body, b"head" + cells, 4)


def cell(row: bytes, value: bytes, qualifier: bytes = b"q") -> bytes:
    """Return the bytes of a cell."""
    return cellblock.encode(row, b"f", qualifier, 5, value)


def test_a_get_says_what_it_wants() -> None:
    """Columns by family, versions from and to, how many, and a filter."""
    selection = Selection(
        [(b"f", b"q"), (b"f", b""), (b"g", None)], 3, 9, 2, filters.first_cell(), most_cells=4
    )
    found = read("GetRequest", messages.get_request(REGION.name, Get(b"a", selection)))
    assert (found.region.type, found.region.value) == (1, REGION.name)
    get = found.get
    assert [(one.family, list(one.qualifier)) for one in get.column] == [
        (b"f", [b"q", b""]),
        (b"g", []),
    ]
    assert get.row == b"a"
    assert (getattr(get.time_range, "from"), get.time_range.to) == (3, 9)
    assert (get.max_versions, get.store_limit) == (2, 4)
    assert get.filter.name.endswith(".FirstKeyOnlyFilter")
    plain = read("GetRequest", messages.get_request(REGION.name, Get(b"a", Selection())))
    assert not plain.get.HasField("time_range")
    assert plain.get.max_versions == 2**31 - 1, "HBase's default would be the newest alone"


def test_the_answer_to_a_get_has_its_cells_inside_or_beside() -> None:
    """HBase 2.6 answers a lone get within the message, and many at once beside it."""
    inside = answer(
        "GetResponse",
        result={
            "cell": [
                {"row": b"a", "family": b"f", "qualifier": b"q", "timestamp": 5, "value": b"v"}
            ],
            "associated_cell_count": 0,
        },
    )
    beside = answer("GetResponse", cell(b"a", b"v"), result={"associated_cell_count": 1})
    expected = Found([Cell(b"a", b"f", b"q", 5, b"v")])
    assert answers.read_get(inside) == answers.read_get(beside) == expected
    assert answers.read_get(answer("GetResponse", result={"exists": True})).exists is True


def test_a_put_travels_beside_its_message() -> None:
    """The message counts the cells."""
    body, cells = messages.mutate_request(REGION.name, PUT, None, 4)
    found = read("MutateRequest", body)
    mutation = found.mutation
    assert (mutation.row, mutation.mutate_type, mutation.durability) == (b"a", 2, 4)
    assert mutation.associated_cell_count == 1
    assert not found.HasField("condition")
    assert cells == cell(b"a", b"v")


@pytest.mark.parametrize("expected", [None, b"old"])
def test_a_condition_compares_or_wants_absence(expected: bytes | None) -> None:
    """Equal, by HBase's own comparators."""
    body, _ = messages.mutate_request(REGION.name, PUT, Check(b"a", b"f", b"c", expected), 0)
    condition = read("MutateRequest", body).condition
    assert (condition.row, condition.family, condition.qualifier) == (b"a", b"f", b"c")
    assert condition.compare_type == 2
    kind = condition.comparator.name.rpartition(".")[2]
    if expected is None:
        assert (kind, condition.comparator.serialized_comparator) == ("NullComparator", b"")
    else:
        assert kind == "BinaryComparator"
        inner = read("BinaryComparator", condition.comparator.serialized_comparator)
        assert inner.comparable.value == b"old"


def test_a_multi_keeps_its_parts_in_order_and_what_belongs_together_atomic() -> None:
    """A row that is put and deleted is one change, alone in its part."""
    parts = [
        RegionAction(REGION, (BOTH,), Check(b"a", b"f", b"c", None)),
        RegionAction(OTHER, (PUT._replace(row=b"x"), Get(b"y", Selection()))),
    ]
    body, cells = messages.multi_request(parts, 0)
    found = read("MultiRequest", body).regionAction
    assert [one.region.value for one in found] == [REGION.name, OTHER.name]
    first, second = found
    assert first.atomic
    assert [one.mutation.mutate_type for one in first.action] == [2, 3]
    assert first.condition.qualifier == b"c"
    assert not second.atomic
    assert [(one.index, one.HasField("get")) for one in second.action] == [(0, False), (1, True)]
    marker = cellblock.encode(b"a", b"f", b"q", 4, b"", cellblock.DELETE_VERSION)
    assert cells == cell(b"a", b"v") + marker + cell(b"x", b"v")


def test_changes_in_one_part_cannot_be_made_atomic_by_accident() -> None:
    """HBase would take a part of two rows for one change."""
    with pytest.raises(AssertionError, match="alone"):
        messages.multi_request([RegionAction(REGION, (BOTH, PUT))], 0)


def test_the_answers_of_a_multi_go_by_their_index() -> None:
    """Gets are answered before changes, so the order says nothing."""
    found = answers.read_multi(
        answer(
            "MultiResponse",
            cell(b"b", b"two") + cell(b"a", b"one") + cell(b"z", b"three"),
            regionActionResult=[
                {
                    "resultOrException": [
                        {"index": 1, "result": {"associated_cell_count": 1}},
                        {"index": 0, "result": {"associated_cell_count": 1}},
                        {"index": 2, "exception": {"name": "a.NoSuchX", "value": b"no\n\tat"}},
                    ]
                },
                {"exception": {"name": "a.NotServingRegionException", "value": b"gone"}},
                {
                    "resultOrException": [{"index": 0, "result": {"associated_cell_count": 1}}],
                    "processed": False,
                },
            ],
        ),
        3,
        4,
    )
    assert [one.cells[0].value for one in (found[0].found(0), found[0].found(1))] == [
        b"one",
        b"two",
    ]
    refused = found[0].results[2]
    assert isinstance(refused, Fault)
    assert found[0].first_fault is refused
    assert (refused.class_name, refused.gist) == ("NoSuchX", "NoSuchX: no")
    assert found[1].fault is not None
    assert found[1].fault.is_elsewhere
    assert found[2].processed is False
    with pytest.raises(Garbled, match="get is missing"):
        found[1].found(0)


def test_an_answer_with_fewer_parts_than_asked_is_refused() -> None:
    """They are told apart by their place alone."""
    with pytest.raises(Garbled, match="1 parts where 2"):
        answers.read_multi(answer("MultiResponse", regionActionResult=[{}]), 2, 2)


@pytest.mark.parametrize(
    "said",
    [
        b"\x0a\x00",  # parts
        b"\x0a\x04\x0a\x02\x12\x00",  # a part with a result
        b"\x0a\x04\x0a\x02\x1a\x00",  # a part with a fault
    ],
)
def test_a_multi_that_tells_of_more_than_was_asked_for_takes_no_memory(said: bytes) -> None:
    """It became objects, a hundred bytes for each of its own, before it was refused."""
    frame = said * (4_000_000 // len(said))
    inside = b"\x0a" + _delimited(said[2:] * 1_000_000) if len(said) > 2 else frame
    for body in (frame, inside):
        hostile = answers.Answer(1, None, body, body, len(body))
        tracemalloc.start()
        try:
            with pytest.raises(Garbled, match="were asked for"):
                answers.read_multi(hostile, 10, 100)
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


def _delimited(data: bytes) -> bytes:
    out = bytearray()
    put_varint(out, len(data))
    return bytes(out) + data


def test_each_action_is_answered_once_and_one_that_puts_and_deletes_twice() -> None:
    """HBase answers to each half of it."""
    twice: list[dict[str, Any]] = [{"index": at, "result": {}} for at in (0, 1)]
    asked = [{"resultOrException": twice}]
    (part,) = answers.read_multi(answer("MultiResponse", regionActionResult=asked), 1, 1)
    assert sorted(part.results) == [0, 1]
    more = answer("MultiResponse", regionActionResult=[{"resultOrException": [*twice, twice[1]]}])
    with pytest.raises(Garbled, match="more actions"):
        answers.read_multi(more, 1, 1)


def test_cells_that_say_nothing_take_no_memory() -> None:
    """Each had two bytes, and became an object of a hundred."""
    body = b"\x0a" + _delimited(b"\x0a\x00" * 2_000_000)
    hostile = answers.Answer(1, None, body, body, len(body))
    tracemalloc.start()
    try:
        with pytest.raises(Garbled, match="no row"):
            answers.read_get(hostile)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_scan_with_more_rows_than_were_asked_for_is_refused_before_they_are_read() -> None:
    """They are many, where few were asked for, up to the longest frame."""
    two = answer("ScanResponse", cell(b"a", b"1") + cell(b"b", b"2"), cells_per_result=[1, 1])
    assert len(scan_messages.read_scan(two, 2).rows) == 2
    with pytest.raises(Garbled, match="2 rows where 1 were asked for"):
        scan_messages.read_scan(two, 1)


@pytest.mark.parametrize("read", [schema.read_descriptors, snapshots.read_snapshots])
def test_what_has_no_name_takes_no_memory(read: Callable[[bytes], object]) -> None:
    """A table of two bytes became an object of three hundred."""
    body = b"\x0a\x00" * 1_000_000
    tracemalloc.start()
    try:
        with pytest.raises(Garbled, match="has no name"):
            read(body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_a_scan_says_where_how_far_and_how_much() -> None:
    """By position reads, with heartbeats, partial rows and a cursor; else deserts time out."""
    scan = Scan(
        b"a",
        b"z",
        Selection([(b"f", None)], 0, 9, 1),
        includes_start=False,
        includes_stop=True,
        is_reversed=True,
        most_cells_of_row=3,
        most_bytes=1000,
    )
    body = scan_messages.scan_request(REGION.name, scan, rows=10, keeps_open=False)
    found = read("ScanRequest", body)
    inner = found.scan
    assert (inner.start_row, inner.stop_row, inner.reversed) == (b"a", b"z", True)
    assert (inner.include_start_row, inner.include_stop_row) == (False, True)
    assert (inner.batch_size, inner.max_result_size, inner.max_versions) == (3, 1000, 1)
    assert (inner.readType, inner.need_cursor_result) == (2, True)
    assert (found.number_of_rows, found.limit_of_rows, found.close_scanner) == (10, 10, True)
    assert found.client_handles_partials
    assert found.client_handles_heartbeats
    kept = scan_messages.scan_request(REGION.name, scan, rows=10, keeps_open=True)
    assert not read("ScanRequest", kept).HasField("close_scanner")
    further = read("ScanRequest", scan_messages.next_request(99, 2, rows=10))
    assert (further.scanner_id, further.next_call_seq) == (99, 2)
    closing = read("ScanRequest", scan_messages.close_request(99))
    assert (closing.scanner_id, closing.close_scanner) == (99, True)


def test_the_answer_to_a_scan_says_whether_its_last_row_is_whole() -> None:
    """And whether anything may follow, here or at all."""
    found = scan_messages.read_scan(
        answer(
            "ScanResponse",
            cell(b"a", b"1") + cell(b"a", b"2", b"r") + cell(b"b", b"3"),
            cells_per_result=[2, 1],
            scanner_id=2**63 + 5,
            partial_flag_per_result=[False, True],
            more_results=True,
            more_results_in_region=False,
            heartbeat_message=True,
            cursor={"row": b"c"},
        ),
        2,
    )
    assert [len(row) for row in found.rows] == [2, 1]
    assert found[1:] == (True, 2**63 + 5, True, False, True, b"c")
    nothing = scan_messages.read_scan(answer("ScanResponse"), 1)
    assert nothing == ([], False, None, True, True, False, None)
    with pytest.raises(Garbled, match="row without cells"):
        scan_messages.read_scan(answer("ScanResponse", cells_per_result=[0]), 1)


@pytest.mark.parametrize("said", [b"\x08\x01", b"\x38\x01", b"\x0a\x04\x01\x01\x01\x01"])
def test_an_answer_that_claims_rows_without_cells_takes_no_memory(said: bytes) -> None:
    """Each byte of it became an object, up to the longest frame, before it was refused."""
    frame = said * (8_000_000 // len(said))
    hostile = answers.Answer(1, None, frame, frame, len(frame))
    tracemalloc.start()
    try:
        with pytest.raises(Garbled, match="more rows than it brings cells"):
            scan_messages.read_scan(hostile, 2**31 - 1)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_an_increment_carries_numbers_by_which_hbase_knows_it_again() -> None:
    """Both; without them a repeated call would count twice."""
    body, cells = messages.increment_request(REGION.name, b"a", b"f", b"n", -2, (11, 12))
    found = read("MutateRequest", body)
    assert (found.nonce_group, found.mutation.nonce, found.mutation.mutate_type) == (11, 12, 1)
    assert cells == cellblock.encode(b"a", b"f", b"n", MAX_VERSION, b"\xff" * 7 + b"\xfe")


def test_a_table_goes_to_the_master_and_comes_back() -> None:
    """With its attributes, its families' and their configuration, in any namespace."""
    family = FamilyDescriptor(b"f", {b"TTL": b"5", b"\xff": b""}, {"a.b": "c"})
    table = TableDescriptor("ns:t", (family,), {b"X": b"y"}, {"d.e": "f"})
    body = schema.create_request(table, [b"m", b"q"], Nonces(3, 4))
    found = read("CreateTableRequest", body)
    assert (found.nonce_group, found.nonce, list(found.split_keys)) == (3, 4, [b"m", b"q"])
    assert found.table_schema.table_name.namespace == b"ns"
    listed = b"\x0a" + bytes((found.table_schema.ByteSize(),))
    assert schema.read_descriptors(listed + found.table_schema.SerializeToString()) == [table]
    changed = read("ModifyTableRequest", schema.modify_request(table, Nonces(3, 4)))
    assert changed.table_schema == found.table_schema
    truncated = schema.truncate_request("t", Nonces(3, 4), keeps_splits=True)
    assert read("TruncateTableRequest", truncated).preserveSplits


def test_regions_are_named_as_the_master_names_them() -> None:
    """A split by the whole of what it is, a move by the hash in its name."""
    split = read("SplitTableRegionRequest", schema.split_request(REGION, b"c", Nonces(3, 4)))
    assert (split.region_info.region_id, split.region_info.end_key) == (1, b"m")
    assert split.split_row == b"c"
    move = read("MoveRegionRequest", schema.move_request(REGION, ServerName("g", 2, 3)))
    assert (move.region.type, move.region.value) == (2, b"id")
    assert (move.dest_server_name.host_name, move.dest_server_name.start_code) == ("g", 3)


def test_regions_that_merge_are_named_by_their_hashes() -> None:
    """And what HBase does of itself is switched off and on again."""
    merge = read("MergeTableRegionsRequest", schema.merge_request([REGION, REGION], Nonces(3, 4)))
    assert [(one.type, one.value) for one in merge.region] == [(2, b"id")] * 2
    assert (merge.forcible, merge.nonce_group, merge.nonce) == (False, 3, 4)
    balance = read("SetBalancerRunningRequest", schema.balance_request(is_on=False))
    assert (balance.on, balance.synchronous) == (False, True)
    assert schema.read_balance(b"\x08\x01")
    assert not schema.read_balance(b"\x08\x00")


def test_the_master_tells_what_each_server_has_to_do() -> None:
    """Of those that live; a server that tells nothing has nothing."""
    assert list(read("GetClusterStatusRequest", status.loads_request()).options) == [2]
    load = {"number_of_requests": 5, "total_number_of_requests": 9, "used_heap_MB": 30}
    regions = [{"row": b"r"}, {"row": b"s"}]
    told = message(
        "GetClusterStatusResponse",
        cluster_status={
            "live_servers": [
                {
                    "server": {"host_name": "h", "port": 2, "start_code": 3},
                    "server_load": {**load, "max_heap_MB": 700, "region_loads": regions},
                },
                {"server": {"host_name": "g", "port": 2, "start_code": 4}, "server_load": {}},
            ]
        },
    ).SerializeToString()
    found = status.read_loads(told)
    assert found == {
        ServerName("h", 2, 3): status.ServerLoad(2, 5, 30, 700),
        ServerName("g", 2, 4): status.ServerLoad(0, 0, 0, 0),
    }
    text = found[ServerName("h", 2, 3)].described()
    assert text == "2 regions, 5 requests a second, 30 of 700 MiB of heap"


def test_a_row_of_the_catalogue_is_a_region_if_somebody_serves_it() -> None:
    """Neither a parent that was split, nor a copy, nor one that was never opened."""

    def cells(server: bytes = b"h:16020", **values: Any) -> list[Cell]:
        info = message(
            "RegionInfo",
            **{
                "region_id": 1,
                "table_name": {"namespace": b"default", "qualifier": b"t"},
                "start_key": b"",
                "end_key": b"m",
                **values,
            },
        ).SerializeToString()
        named = (
            (b"regioninfo", b"PBUF" + info),
            (b"server", server),
            (b"serverstartcode", (7).to_bytes(8)),
            (b"server_0001", b"elsewhere:1"),
        )
        return [Cell(b"t,,1.id.", b"info", name, 1, value) for name, value in named]

    assert schema.region_of(cells()) == REGION
    for gone in ({"offline": True}, {"split": True}, {"replica_id": 1}):
        assert schema.region_of(cells(**gone)) is None
    assert schema.region_of(cells(b"")) is None
    with pytest.raises(Garbled, match="names the server"):
        schema.region_of(cells(b"h"))


@pytest.mark.parametrize(
    ("name", "decode", "values"),
    [
        ("GetResponse", answers.read_get, {"result": {"associated_cell_count": 1}}),
        ("MutateResponse", answers.read_mutate, {"processed": True}),
        (
            "MultiResponse",
            lambda found: answers.read_multi(found, 1, 1),
            {"regionActionResult": [{"exception": {"name": "a.B", "value": b"text"}}]},
        ),
        (
            "ScanResponse",
            lambda found: scan_messages.read_scan(found, 1),
            {"cells_per_result": [1], "scanner_id": 2**40, "cursor": {"row": b"abc"}},
        ),
    ],
)
def test_no_bytes_of_an_answer_raise_anything_else(
    name: str, decode: Callable[[Answer], object], values: dict[str, Any]
) -> None:
    """Whatever is cut off or changed, the error says that it is no answer."""
    block = cell(b"a", b"v") if "count" in str(values) or "cells_per" in str(values) else b""
    whole = answer(name, block, **values)
    decode(whole)
    bodies = [whole.body[:length] for length in range(len(whole.body))]
    for at in range(len(whole.body)):
        start, end = whole.body[:at], whole.body[at + 1 :]
        bodies += [start + bytes((value,)) + end for value in (0, 0x7F, 0x80, 0xFF)]
    refused = 0
    for body in bodies:
        try:
            decode(whole._replace(body=body))
        except CallFailed:
            refused += 1
    assert refused > len(bodies) // 4
    assert not issubclass(CallFailed, OmidError), "translated where it leaves"
    assert frames.MAX_FRAME_BYTES == 2**28


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 999, 1000, 1001])
@pytest.mark.parametrize("other", [None, 0, 5, 999])
def test_answers_to_many_puts_are_told_apart(count: int, other: int | None) -> None:
    """Each that brought nothing has nothing of its own, and one that failed says so."""
    results: list[dict[str, Any]] = [{"index": at, "result": {}} for at in range(count)]
    if other is not None and other < count:
        results[other] = {"index": other, "exception": {"name": "java.io.IOException"}}
    of_part = [{"resultOrException": results}]
    (part,) = answers.read_multi(answer("MultiResponse", regionActionResult=of_part), 1, count)
    assert sorted(part.results) == list(range(count))
    for at, found in part.results.items():
        if at == other:
            assert isinstance(found, Fault)
        else:
            assert found == Found([])
    fresh = [id(one.cells) for one in part.results.values() if isinstance(one, Found)]
    assert len(set(fresh)) == len(fresh), "no caller shares what it is given"
