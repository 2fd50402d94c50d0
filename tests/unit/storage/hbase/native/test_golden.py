"""Frames that Java's own client and HBase's own server exchanged, read and written by ours.

`golden.txt` has one of each kind; `tests/machines/golden_frames.py` says how it was made.  Where
there is one way to write a thing, ours is that of Java, bit for bit; where Java says more than we
do, what we say is what it says.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.model import MAX_VERSION, Cell
from omidpy.storage.hbase.native import cellblock, scan_messages
from omidpy.storage.hbase.native.cellblock import (
    DELETE_COLUMN,
    DELETE_FAMILY,
    DELETE_VERSION,
    PUT,
    encode,
)
from omidpy.storage.hbase.native.faults import Fault, Garbled, Kind
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
from omidpy.storage.hbase.native.wire import answers, frames, messages, schema
from omidpy.storage.hbase.native.wire.answers import Answer
from omidpy.wire.protobuf import fields
from tests.machines.golden_frames import Exchange, header, read_exchanges
from tests.machines.hbase_messages import message

ALL: Final = read_exchanges(Path(__file__).with_name("golden.txt"))
CF: Final = b"cf"
Q: Final = b"q"


def of(method: str, number: int = 0, service: str = "ClientService") -> Exchange:
    """Return one of the calls of a method, by its place among them."""
    return [one for one in ALL if (one.service, one.method) == (service, method)][number]


def delimited(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the message at a position, and where it ends."""
    fields = answers.Fields(data, at, len(data))
    end = fields.skip_delimited()
    return fields.own(), end


def asked(exchange: Exchange) -> tuple[bytes, bytes]:
    """Return the parameter and the cells of a request."""
    _, at = delimited(exchange.request, 0)
    body, at = delimited(exchange.request, at)
    return body, exchange.request[at:]


def parsed(name: str, data: bytes) -> Any:
    """Return what the library reads, without what we have no use for."""
    found = message(name)
    found.ParseFromString(data)
    found.DiscardUnknownFields()
    return found


def answer(exchange: Exchange) -> Answer:
    """Return what our reader makes of an answer."""
    return answers.answer(exchange.answer)


REGION: Final = Region(
    "frames",
    parsed("MutateRequest", asked(of("Mutate"))[0]).region.value,
    b"",
    b"m",
    ServerName("h", 1),
)


def test_every_frame_is_an_answer_to_its_call() -> None:
    """The ids are Java's, and the headers of requests are as ours are made."""
    assert len(ALL) > 25
    for exchange in ALL:
        assert answer(exchange).call_id == header(exchange.request)[1 << 3]
        body, cells = asked(exchange)
        told = header(exchange.request)
        theirs = parsed("RequestHeader", delimited(exchange.request, 0)[0])
        # Java says these where they are the usual ones, too.
        if not theirs.priority:
            theirs.ClearField("priority")
        if not theirs.cell_block_meta.length:
            theirs.ClearField("cell_block_meta")
        mine = frames.request(
            int(told[1 << 3]),
            exchange.method,
            body,
            cells,
            priority=int(told.get(6 << 3, 0)),
            timeout_ms=int(told.get(7 << 3, 0)),
        )[4:]
        assert parsed("RequestHeader", delimited(mine, 0)[0]) == theirs
        assert mine.endswith(body + cells)


def inline(mutation: Any) -> list[bytes]:
    """Return the cells of a mutation that has them in itself, as they would stand in a block.

    Java writes a lone one so, and many in a block; we write all in a block.
    """
    kinds = {0: DELETE_VERSION, 1: DELETE_COLUMN, 2: DELETE_FAMILY}
    return [
        encode(
            mutation.row,
            column.family,
            one.qualifier,
            one.timestamp if one.HasField("timestamp") else MAX_VERSION,
            one.value,
            kinds[one.delete_type] if one.HasField("delete_type") else PUT,
        )
        for column in mutation.column_value
        for one in column.qualifier_value
    ]


def put(row: bytes, version: int, value: bytes) -> RowChange:
    """Return a put of one cell."""
    return RowChange(row, (PutCell(CF, Q, version, value),))


def delete(version: int, kind: int, qualifier: bytes = Q) -> RowChange:
    """Return a delete in the row b."""
    return RowChange(b"b", (), (DeleteCell(CF, qualifier, version, kind),))


CHANGES: Final[list[tuple[RowChange, Check | None, bool]]] = [
    (put(b"a", 5, b"one"), None, True),
    (delete(5, DELETE_VERSION), None, True),
    (delete(4, DELETE_COLUMN), None, True),
    (delete(3, DELETE_FAMILY, b""), None, True),
    (put(b"a", 6, b"four"), Check(b"a", CF, Q, b"one"), True),
    (put(b"a", 6, b"four"), Check(b"a", CF, Q, b"another"), False),
    (put(b"c", 5, b"five"), Check(b"c", CF, Q, None), True),
]


@pytest.mark.parametrize("number", range(len(CHANGES)))
def test_changes_are_written_as_java_writes_them(number: int) -> None:
    """The cells to the bit; the messages field by field; and the answer says the same."""
    exchange = of("Mutate", number)
    change, check, was_processed = CHANGES[number]
    body, _ = asked(exchange)
    mine, my_cells = messages.mutate_request(REGION.name, change, check, 0)
    theirs, ours = parsed("MutateRequest", body), parsed("MutateRequest", mine)
    assert [my_cells] == inline(theirs.mutation)
    assert theirs.region == ours.region
    for field in ("row", "mutate_type", "durability"):
        assert getattr(ours.mutation, field) == getattr(theirs.mutation, field)
    if check is not None and check.expected is None:
        # HBase takes an empty value that is compared, which is Java's, for absence as well.
        theirs.condition.comparator.CopyFrom(ours.condition.comparator)
    assert ours.condition == theirs.condition
    assert answers.read_mutate(answer(exchange)) is was_processed


def test_an_increment_is_one_of_java_s() -> None:
    """Its cell to the bit, with the server's clock as version; the answer is the number."""
    exchange = of("Mutate", len(CHANGES))
    theirs = parsed("MutateRequest", asked(exchange)[0])
    nonces = (theirs.nonce_group, theirs.mutation.nonce)
    mine, my_cells = messages.increment_request(REGION.name, b"n", CF, Q, 7, nonces)
    ours = parsed("MutateRequest", mine)
    assert all(nonces)
    assert (ours.nonce_group, ours.mutation.nonce) == nonces
    assert [my_cells] == inline(theirs.mutation)
    (cell,) = answers.read_get(answer(exchange)).cells
    assert (cell.row, int.from_bytes(cell.value)) == (b"n", 7)


def test_an_exception_of_hbase_s_is_read() -> None:
    """Its class says what it means, and not to try again."""
    fault = answer(of("Mutate", len(CHANGES) + 1)).fault
    assert isinstance(fault, Fault)
    assert (fault.class_name, fault.kind) == ("NoSuchColumnFamilyException", Kind.PERMANENT)
    assert "Column family no does not exist" in fault.gist


def test_multis_are_written_as_java_writes_them() -> None:
    """Two regions in one call; a row's mutations in one, atomic; gets."""
    body, cells = asked(of("Multi", 0))
    theirs = parsed("MultiRequest", body)
    names = [one.region.value for one in theirs.regionAction]
    rows = [put(b"b", 5, b"two"), put(b"z", 5, b"three")]
    parts = [
        RegionAction(REGION._replace(name=name), (row,))
        for name, row in zip(names, rows, strict=True)
    ]
    mine, my_cells = messages.multi_request(parts, 0)
    assert my_cells == cells
    ours = parsed("MultiRequest", mine)
    for my_part, part in zip(ours.regionAction, theirs.regionAction, strict=True):
        assert my_part.region == part.region
        assert [one.mutation.row for one in my_part.action] == [
            one.mutation.row for one in part.action
        ]
    assert [one.first_fault for one in answers.read_multi(answer(of("Multi", 0)), 2, 100)] == [
        None
    ] * 2
    body, _ = asked(of("Multi", 1))
    both = RowChange(b"c", put(b"c", 7, b"six").puts, (DeleteCell(CF, Q, 5, DELETE_VERSION),))
    mine, my_cells = messages.multi_request([RegionAction(REGION, (both,))], 0)
    theirs, ours = parsed("MultiRequest", body), parsed("MultiRequest", mine)
    actions = theirs.regionAction[0].action
    assert my_cells == b"".join(cell for one in actions for cell in inline(one.mutation))
    assert ours.regionAction[0].atomic
    assert theirs.regionAction[0].atomic
    kinds = [
        [one.mutation.mutate_type for one in found.regionAction[0].action]
        for found in (theirs, ours)
    ]
    assert kinds[0] == kinds[1]
    (done,) = answers.read_multi(answer(of("Multi", 1)), 1, 1)
    assert (done.first_fault, done.processed) == (None, True)


CELL_A: Final = [Cell(b"a", CF, Q, 6, b"four"), Cell(b"a", CF, Q, 5, b"one")]
CELL_C: Final = Cell(b"c", CF, Q, 7, b"six")

CELL_Z: Final = Cell(b"z", CF, Q, 5, b"three")


def test_gets_are_read() -> None:
    """Cells within the message, none, and whether there are any."""
    assert answers.read_get(answer(of("Get", 0))).cells == CELL_A
    assert answers.read_get(answer(of("Get", 1))) == Found([])
    assert answers.read_get(answer(of("Get", 2))).exists is True
    theirs = parsed("GetRequest", asked(of("Get", 0))[0]).get
    ours = parsed(
        "GetRequest", messages.get_request(REGION.name, Get(b"a", Selection(max_versions=2)))
    ).get
    assert (ours.row, ours.max_versions) == (theirs.row, theirs.max_versions)
    many = of("Multi", 2)
    parts = answers.read_multi(
        answer(many), len(parsed("MultiRequest", asked(many)[0]).regionAction), 3
    )
    found = {cell for part in parts for one in part.results.values() for cell in cells_of(one)}
    assert found == {CELL_A[0], CELL_Z}
    assert sum(len(part.results) for part in parts) == 3


def cells_of(found: Found | Fault) -> list[Cell]:
    """Return the cells of a result."""
    assert isinstance(found, Found)
    return found.cells


def test_scans_are_read() -> None:
    """Rows with their versions; a region's end; the scan backwards."""
    scans = [one for one in ALL if one.method == "Scan"]
    mine = [one for one in scans if b"frames" in asked(one)[0][:40]]
    found = [scan_messages.read_scan(answer(one), 1000) for one in mine]
    rows = [row for one in found for row in one.rows]
    assert CELL_A in rows
    assert [CELL_C] in rows
    assert [CELL_Z] in rows
    assert all(not one.is_last_partial for one in found)
    asked_for = parsed(
        "ScanRequest",
        asked(
            next(one for one in mine if CELL_A in scan_messages.read_scan(answer(one), 1000).rows)
        )[0],
    )
    ours = parsed(
        "ScanRequest",
        scan_messages.scan_request(
            REGION.name, Scan(b"a", b"n", Selection(max_versions=2)), rows=1, keeps_open=True
        ),
    )
    for field in ("start_row", "stop_row", "max_versions", "include_stop_row"):
        assert getattr(ours.scan, field) == getattr(asked_for.scan, field), field


@pytest.mark.parametrize("number", range(len(ALL)))
def test_blocks_of_cells_are_written_back_bit_for_bit(number: int) -> None:
    """Those of every answer; HBase's codec has one way to write a cell."""
    found = answer(ALL[number])
    block = found.frame[found.cells_at :]
    at = count = 0
    while at < len(block):
        at += 4 + struct.unpack_from(">I", block, at)[0]
        count += 1
    cells = [
        cell for one in cellblock.decode(found.frame, found.cells_at, [1] * count) for cell in one
    ]
    assert b"".join(encode(*cell) for cell in cells) == block
    assert count or not block


def test_the_catalogue_is_read() -> None:
    """Two regions, where they are; what names them is written back as it came."""
    scans = [one for one in ALL if one.method == "Scan"]
    rows = [
        row
        for one in scans
        for row in scan_messages.read_scan(answer(one), 1000).rows
        if row[0].family == schema.CATALOGUE_FAMILY
    ]
    regions = {region.name: region for row in rows if (region := schema.region_of(row)) is not None}
    mine = sorted(
        (one for one in regions.values() if one.table == "frames"), key=lambda one: one.start
    )
    assert [(one.start, one.end) for one in mine] == [(b"", b"m"), (b"m", b"")]
    assert {one.server.host for one in mine} == {"localhost"}
    infos = [cell.value for row in rows for cell in row if cell.qualifier == b"regioninfo"]
    for region in mine:
        assert any(one.startswith(b"PBUF" + schema.region_message(region)) for one in infos)


def test_a_table_is_described_bit_for_bit() -> None:
    """Java's request, the master's answer, and ours of what was read."""
    exchange = of("GetTableDescriptors", service="MasterService")
    body = answer(exchange).body
    (found,) = schema.read_descriptors(body)
    assert (found.table, found.attributes[b"NOTE"]) == ("frames", b"golden")
    assert found.families[0].attributes[b"VERSIONS"] == b"3"
    (_, told), *_ = fields(body)
    assert schema.table_message(found) == told
    made = of("CreateTable", service="MasterService")
    theirs = parsed("CreateTableRequest", asked(made)[0])
    attributes = {
        pair.first: pair.second for pair in theirs.table_schema.column_families[0].attributes
    }
    descriptor = TableDescriptor(
        "frames", (FamilyDescriptor(CF, attributes, {}),), {b"NOTE": b"golden"}, {}
    )
    nonces = schema.Nonces(theirs.nonce_group, theirs.nonce)
    ours = parsed("CreateTableRequest", schema.create_request(descriptor, [b"m"], nonces))
    # Java adds a mark of its own to the attributes of the table.
    assert ours.table_schema.table_name == theirs.table_schema.table_name
    assert ours.table_schema.column_families == theirs.table_schema.column_families
    assert (list(ours.split_keys), ours.nonce) == (list(theirs.split_keys), theirs.nonce)


@pytest.mark.parametrize("method", ["CreateTable", "DisableTable", "DeleteTable"])
def test_changes_of_tables_are_procedures(method: str) -> None:
    """Which are asked for by the number that the master gave."""
    exchange = of(method, service="MasterService")
    number = schema.read_procedure_id(answer(exchange).body)
    assert number is not None
    if method == "CreateTable":
        first = of("getProcedureResult", service="MasterService")
        assert asked(first)[0] == schema.procedure_request(number)
        assert schema.read_procedure(answer(first).body)[1] is None
        return
    nonces = dict(fields(asked(exchange)[0]))
    written = schema.table_request(
        "frames", schema.Nonces(int(nonces[2 << 3]), int(nonces[3 << 3]))
    )
    assert written == asked(exchange)[0]


@pytest.mark.parametrize("number", range(len(ALL)))
def test_nothing_of_an_answer_may_be_missing(number: int) -> None:
    """Each of them cut at every byte is refused by the reader of frames."""
    whole = ALL[number].answer
    for length in range(len(whole)):
        with pytest.raises(Garbled):
            answers.answer(whole[:length])
