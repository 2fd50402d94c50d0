"""Every format is byte for byte that of Omid's own classes, written and read in both directions.

No server runs: Omid's classes write to a table that takes notes, and read from one that was filled
by us.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from omidpy.base.cells import (
    FAMILY_MARKER_QUALIFIER,
    INVALIDATION_VALUE,
    LEGACY_TOMBSTONE,
    LOW_WATERMARK_ROW,
    cell_id,
    commit_row,
    data_qualifier,
    decode_commit,
    decode_long,
    encode_commit,
    encode_long,
    is_family_marker,
    is_shadow_qualifier,
    is_tombstone,
    row_id,
    shadow_qualifier,
    start_ts_of_commit_row,
    table_id,
)
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    INVALIDATION,
    LOW_WATERMARK,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
)
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.frames import decode_request, decode_response, encode_request, encode_response
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceRequest,
    FenceResponse,
    HandshakeRequest,
    HandshakeResponse,
    Request,
    Response,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.java import JavaDriver

pytestmark = [pytest.mark.integration, pytest.mark.java]

CHANCE = random.Random(20170227)
STARTS = [
    50,
    1000,
    500_000_050,
    1_700_000_000_000_000_000,
    2**63 - 58,
    *(50 * CHANCE.randrange(1, 2**56) for _ in range(20)),
]
DISTANCES = [0, 1, 50, 127, 128, 16_383, 16_384, 2**32, 10**15]
QUALIFIERS = [
    b"",
    b"q",
    b"col1",
    b"\x00",
    b"\x80",
    b"\xc2",
    b"\xc2\x80",
    b"\x00\xc2\x80",
    b"q\xc2\x80",
    b"\x00\xc2\x80q\xc2\x80",
    *(CHANCE.randbytes(CHANCE.randrange(1, 40)) for _ in range(20)),
]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaDriver]:
    """Run Omid's classes, without any server."""
    with JavaDriver() as driver:
        yield driver


# -- shadow cells, deletes, ids --------------------------------------------------------------------


@pytest.mark.parametrize("qualifier", QUALIFIERS)
def test_shadow_qualifiers_are_omid_s(java: JavaDriver, qualifier: bytes) -> None:
    """One byte off, and each side takes the other's committed cells for tentative ones."""
    ours = shadow_qualifier(qualifier)
    assert java.call("golden.shadow_qualifier", qualifier=qualifier.hex()) == ours.hex()
    assert java.call("golden.data_qualifier", qualifier=ours.hex()) == qualifier.hex()
    assert data_qualifier(ours) == qualifier


def test_the_older_shadow_qualifiers_are_read_as_omid_reads_them(java: JavaDriver) -> None:
    """Tables that an old Omid wrote have the suffix alone."""
    old = b"col1\xc2\x80"
    assert java.call("golden.data_qualifier", qualifier=old.hex()) == data_qualifier(old).hex()
    assert data_qualifier(old) == b"col1"


@pytest.mark.parametrize("value", [b"", b"v", LEGACY_TOMBSTONE, b"__OMID_TOMBSTONE_"])
@pytest.mark.parametrize("qualifier", [*QUALIFIERS[:10], FAMILY_MARKER_QUALIFIER])
def test_a_cell_is_what_omid_takes_it_for(java: JavaDriver, qualifier: bytes, value: bytes) -> None:
    """Data, shadow cell, tombstone or family marker: the bytes alone say which."""
    assert java.call("golden.cell", qualifier=qualifier.hex(), value=value.hex()) == {
        "is_shadow": is_shadow_qualifier(qualifier),
        "is_tombstone": is_tombstone(value),
        "is_family_marker": is_family_marker(qualifier, value),
    }


@pytest.mark.parametrize(
    ("table", "row", "family", "qualifier"),
    [
        ("test", b"row1", b"data", b"col1"),
        ("ns:test", b"row1", b"data", b"col1"),
        ("t", b"\x00", b"f", b""),
        ("t", b"\xff" * 300, b"family", b"\x00\xff"),
        ("t", b"alice", b"cf", b"balance" * 7),
    ],
)
def test_conflict_ids_are_omid_s(
    java: JavaDriver, table: str, row: bytes, family: bytes, qualifier: bytes
) -> None:
    """A conflict between a Java client and ours is found only if both name the cell alike."""
    assert java.call(
        "golden.cell_ids",
        table=table,
        row=row.hex(),
        family=family.hex(),
        qualifier=qualifier.hex(),
    ) == {
        "cell": cell_id(table, row, family, qualifier),
        "row": row_id(table, row),
        "table": table_id(table),
    }


# -- the commit table ------------------------------------------------------------------------------


@pytest.mark.parametrize("start", STARTS)
def test_rows_of_the_commit_table_are_omid_s(java: JavaDriver, start: int) -> None:
    """The row is where everybody looks for the outcome."""
    row = commit_row(start)
    assert java.call("golden.commit_row", start=start) == row.hex()
    assert java.call("golden.start_of_commit_row", row=row.hex()) == start
    assert start_ts_of_commit_row(row) == start


def test_the_regions_of_the_commit_table_are_those_of_omid_s_tool(java: JavaDriver) -> None:
    """Our own `omidpy init` makes the same sixteen."""
    keys = [bytes.fromhex(key) for key in java.call("golden.commit_regions")]
    assert len(keys) == 15
    assert keys == sorted(keys)
    for index, key in enumerate(keys):
        # UniformSplit between the rows of 0 and of the greatest long, in units of 2**59 * 248.
        assert key == bytes((index, 0xF8 - 8 * index)) + bytes(7)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("start", STARTS[:4])
def test_commit_entries_are_omid_s(java: JavaDriver, start: int, distance: int) -> None:
    """Written by its oracle and read by us, written by ours and read by its clients."""
    commit = start + distance
    (write,) = java.call("golden.write_commit_table", step="commit", start=start, commit=commit)
    value = encode_commit(start, commit)
    family, qualifier = COMMIT.family.hex(), COMMIT.qualifier.hex()
    assert write["row"] == commit_row(start).hex()
    assert write["cells"] == [[family, qualifier, start, value.hex()]]
    assert decode_commit(start, value) == commit
    assert read_entry(java, start, [(COMMIT.qualifier, value)]) == {
        "is_present": True,
        "is_valid": True,
        "commit": commit,
    }


def read_entry(java: JavaDriver, start: int, cells: list[tuple[bytes, bytes]]) -> Any:
    """Let Omid's client read a row of the commit table."""
    return java.call(
        "golden.read_commit_entry",
        start=start,
        row=commit_row(start).hex(),
        cells=[[b"F".hex(), qualifier.hex(), start, value.hex()] for qualifier, value in cells],
    )


def test_an_invalidation_is_omid_s_and_beats_a_commit(java: JavaDriver) -> None:
    """Both may stand in a row: on HBase a late commit is a plain put."""
    (write,) = java.call("golden.write_commit_table", step="invalidate", start=1000)
    family, qualifier = INVALIDATION.family.hex(), INVALIDATION.qualifier.hex()
    assert write["cells"] == [[family, qualifier, 1000, INVALIDATION_VALUE.hex()]]
    assert write["condition"] == f"{family}:{COMMIT.qualifier.hex()} EQUAL absent"
    both = [
        (COMMIT.qualifier, encode_commit(1000, 1050)),
        (INVALIDATION.qualifier, INVALIDATION_VALUE),
    ]
    assert read_entry(java, 1000, both) == {"is_present": True, "is_valid": False, "commit": -1}
    assert read_entry(java, 1000, []) == {"is_present": False, "is_valid": False, "commit": None}


def test_a_transaction_with_checkpoints_has_one_entry(java: JavaDriver) -> None:
    """Omid asks for the entry of a cell's version; the checkpoints do not count."""
    for step in ("invalidate", "complete"):
        (write,) = java.call("golden.write_commit_table", step=step, start=1049)
        assert write["row"] == commit_row(1000).hex()


def test_omid_completes_a_commit_by_deleting_its_row_up_to_the_version(java: JavaDriver) -> None:
    """The marker hides every later put at that version, which is why nothing is put there again."""
    (write,) = java.call("golden.write_commit_table", step="complete", start=1000)
    assert (write["kind"], write["version"], write["cells"]) == ("Delete", 1000, [])


def test_the_low_watermark_is_omid_s(java: JavaDriver) -> None:
    """Compaction in HBase, and our pruner, both go by it."""
    (write,) = java.call("golden.write_commit_table", step="low_watermark", start=1000)
    assert write["row"] == LOW_WATERMARK_ROW.hex()
    ((family, qualifier, _, value),) = write["cells"]
    assert (family, qualifier) == (LOW_WATERMARK.family.hex(), LOW_WATERMARK.qualifier.hex())
    assert bytes.fromhex(value) == encode_long(1000)
    assert decode_long(bytes.fromhex(value), what="the watermark") == 1000
    cells = [[LOW_WATERMARK.family.hex(), LOW_WATERMARK.qualifier.hex(), 1, value]]
    assert java.call("golden.read_low_watermark", row=LOW_WATERMARK_ROW.hex(), cells=cells) == 1000


def test_names_of_tables_families_and_rows_are_omid_s(java: JavaDriver) -> None:
    """Both sides find each other's tables without being told."""
    constants = java.call("golden.constants")
    assert constants["commit_table"] == COMMIT_TABLE
    assert bytes.fromhex(constants["commit_family"]) == COMMIT.family
    assert bytes.fromhex(constants["low_watermark_family"]) == LOW_WATERMARK.family
    assert constants["timestamp_table"] == TIMESTAMP_TABLE
    assert constants["timestamp_family"].encode() == TIMESTAMP_CEILING.family
    assert bytes.fromhex(constants["TSO_ROW"]) == TIMESTAMP_CEILING_ROW
    assert bytes.fromhex(constants["TSO_QUALIFIER"]) == TIMESTAMP_CEILING.qualifier
    assert constants["transaction_attribute"] == "__OMID_TRANSACTION__"


# -- the protocol ----------------------------------------------------------------------------------

NUMBERS = [0, 1, -1, 127, 128, 2**63 - 1, -(2**63), -6913231044530751237]

REQUESTS: list[tuple[Request, str]] = [
    (TimestampRequest(), "timestampRequest { }"),
    (HandshakeRequest(), "handshakeRequest { clientCapabilities { } }"),
    *((FenceRequest(TableId(n)), f"fenceRequest {{ TableId: {n} }}") for n in NUMBERS),
    *(
        (
            CommitRequest(Timestamp(1000), (CellId(n), CellId(7)), (TableId(n),), is_retry=retry),
            (
                f"commitRequest {{ startTimestamp: 1000 {'isRetry: true ' if retry else ''}"
                f"cellId: {n} cellId: 7 TableId: {n} }}"
            ),
        )
        for n in NUMBERS
        for retry in (False, True)
    ),
    (CommitRequest(Timestamp(50), (), ()), "commitRequest { startTimestamp: 50 }"),
]

RESPONSES: list[tuple[Response, str]] = [
    (
        HandshakeResponse(is_compatible=True),
        "handshakeResponse { clientCompatible: true serverCapabilities { } lowLatency: false }",
    ),
    *(
        (TimestampResponse(Timestamp(n)), f"timestampResponse {{ startTimestamp: {n} }}")
        for n in (0, 50, 2**63 - 1)
    ),
    (
        CommitResponse(Timestamp(1000), Timestamp(1050)),
        "commitResponse { aborted: false startTimestamp: 1000 commitTimestamp: 1050 }",
    ),
    (
        CommitResponse(Timestamp(1000), None),
        "commitResponse { aborted: true startTimestamp: 1000 }",
    ),
    *(
        (FenceResponse(TableId(n), Timestamp(50)), f"fenceResponse {{ TableId: {n} FenceId: 50 }}")
        for n in NUMBERS
    ),
]


def words(text: str) -> list[str]:
    """Return a message's text without its layout."""
    return text.replace("{", " { ").replace("}", " } ").split()


@pytest.mark.parametrize(("message", "text"), REQUESTS, ids=[text for _, text in REQUESTS])
def test_requests_are_omid_s(java: JavaDriver, message: Request, text: str) -> None:
    """Ours are read by its oracle, its clients' by ours."""
    theirs = bytes.fromhex(java.call("golden.message", type="Request", text=text))
    assert theirs == encode_request(message)
    assert decode_request(theirs) == message
    for packed in (False, True):
        ours = encode_request(message, packed=packed)
        read = java.call("golden.read_message", type="Request", bytes=ours.hex())
        assert words(read) == words(text)


@pytest.mark.parametrize(("message", "text"), RESPONSES, ids=[text for _, text in RESPONSES])
def test_responses_are_omid_s(java: JavaDriver, message: Response, text: str) -> None:
    """Ours are read by its clients, its oracle's by ours."""
    theirs = bytes.fromhex(java.call("golden.message", type="Response", text=text))
    assert theirs == encode_response(message)
    assert decode_response(theirs) == message
    read = java.call("golden.read_message", type="Response", bytes=encode_response(message).hex())
    assert words(read) == words(text)


def test_the_attribute_of_server_side_reads_has_the_bytes_that_are_documented(
    java: JavaDriver,
) -> None:
    """A read with it lets Omid's coprocessor judge visibility."""
    text = "timestamp: 1000 readTimestamp: 1003 visibilityLevel: 2 epoch: -1"
    written = java.call("golden.message", type="Transaction", text=text)
    assert written == "08e807" + "10eb07" + "1802" + "20ffffffffffffffffff01"
