"""Every reader of HBase's bytes, over answers that were damaged: it refuses them, or reads them.

No exception of another kind, and nothing that is kept in proportion to a number in the bytes.  The
answers are sound ones of every kind; a damage is some bytes changed, lost, doubled or put between.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.errors import RemoteProtocolError
from omidpy.model import Cell
from omidpy.storage.hbase.native import scan_messages
from omidpy.storage.hbase.native.calling import registry
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.faults import Fault, Garbled
from omidpy.storage.hbase.native.values import FamilyDescriptor, TableDescriptor
from omidpy.storage.hbase.native.wire import answers, schema, snapshots, status
from omidpy.storage.hbase.native.wire.answers import Answer
from omidpy.storage.hbase.native.wire.frames import FrameSplitter
from tests.machines.fake_hbase import Reply, frame_of
from tests.machines.hbase_messages import message

DAMAGES: Final = 25
"""Damaged answers for an example of Hypothesis's."""

ROWS: Final = (b"a", b"a\x00", b"row" * 9)
CELLS: Final = b"".join(
    encode(row, family, qualifier, 5, b"value" * 3)
    for row in ROWS
    for family, qualifier in ((b"f", b""), (b"f", b"q"), (b"other", b"\xff"))
)
THREE: Final = {"associated_cell_count": 3}
PARTS: Final = [
    {"resultOrException": [{"index": 0, "result": THREE}, {"index": 1, "result": THREE}]},
    {"exception": {"name": "x.NotServingRegionException", "value": b"gone"}, "processed": False},
    {
        "resultOrException": [
            {"index": 0, "result": THREE},
            {"index": 1, "exception": {"name": "x.RegionTooBusyException", "value": b"busy"}},
        ],
    },
]
MOVED: Final = (
    "org.apache.hadoop.hbase.exceptions.RegionMovedException",
    "x.RegionMovedException: Region moved to: hostname=h port=7 startCode=9. As of x\n\tat y",
)
THROTTLED: Final = ("x.RpcThrottlingException", "x.RpcThrottlingException: wait 1mins, 2sec\n\tat")
DESCRIPTOR: Final = TableDescriptor(
    "ns:t", (FamilyDescriptor(b"f", {b"VERSIONS": b"3"}, {"a": "b"}),), {b"A": b"B"}, {"c": "d"}
)
Reader = Callable[[bytes], object]


def body(name: str, **values: Any) -> bytes:
    """Return the bytes of a message."""
    found: bytes = message(name, **values).SerializeToString()
    return found


def nested(data: bytes) -> bytes:
    """Return a message whose first field is this one."""
    assert len(data) < 0x80
    return bytes((0x0A, len(data))) + data


class Framed(NamedTuple):
    """An answer, whose parts may be damaged before they are framed, or all of it afterwards."""

    result: bytes = b""
    cells: bytes = b""
    fault: tuple[str, str] | None = None

    @property
    def whole(self) -> bytes:
        """The bytes as they come."""
        return frame_of(5, Reply(self.result, self.cells, self.fault))

    def damaged(self, dice: random.Random) -> bytes:
        """Return the bytes with some damage."""
        if dice.random() < 0.3:
            return damaged(dice, self.whole)
        which = dice.randrange(3)
        result = damaged(dice, self.result) if which != 1 else self.result
        cells = damaged(dice, self.cells) if which != 0 else self.cells
        return Framed(result, cells, self.fault).whole


def reads(read: Callable[[Answer], object]) -> Reader:
    """Return what reads a frame, what its exception comes to, and its result."""

    def reader(data: bytes) -> object:
        answer = answers.answer(data[4:])
        return told(answer.fault), read(answer)

    return reader


def told(fault: Fault | None) -> object:
    """Draw every conclusion from an exception."""
    if fault is None:
        return None
    return (
        fault.gist,
        fault.kind,
        fault.is_certain,
        fault.is_elsewhere,
        fault.moved_to,
        fault.wait_s,
    )


def catalogue(data: bytes) -> object:
    """Read a row of the catalogue whose region is these bytes, or whose server is."""
    info, _, server = data.partition(b"|")
    cells = [
        Cell(b"t,a,7.x.", schema.CATALOGUE_FAMILY, qualifier, 1, value)
        for qualifier, value in ((b"regioninfo", info), (b"server", server))
    ]
    return schema.region_of(cells)


def split(data: bytes) -> object:
    """Cut bytes into frames, as they come in pieces."""
    splitter = FrameSplitter(2**20)
    for at in range(0, len(data), 7):
        splitter.incoming.append(data[at : at + 7])
        list(splitter.frames())
    return splitter.missing


SERVER: Final = body("ServerName", host_name="h", port=16020, start_code=9)
INFO: Final = b"PBUF" + body(
    "RegionInfo",
    region_id=7,
    table_name={"namespace": b"ns", "qualifier": b"t"},
    start_key=b"a",
    end_key=b"m",
)
FOREIGN: Final = body("BytesBytesPair", first=b"x.TableExistsException", second=b"t")

READERS: Final[dict[str, tuple[Reader, bytes | Framed]]] = {
    "frames": (split, Framed(b"body").whole * 3 + Framed(b"x" * 50, b"cells").whole),
    "a move": (reads(bool), Framed(fault=MOVED)),
    "a throttle": (reads(bool), Framed(fault=THROTTLED)),
    "a get": (
        reads(answers.read_get),
        Framed(body("GetResponse", result=THREE), encode(b"a", b"f", b"q", 5, b"value" * 9) * 3),
    ),
    "a get with its cells inside": (
        reads(answers.read_get),
        Framed(
            body(
                "GetResponse",
                result={
                    "cell": [{"row": b"a", "family": b"f", "timestamp": 5, "value": b"v"}],
                    "exists": True,
                },
            )
        ),
    ),
    "a mutation": (reads(answers.read_mutate), Framed(b"\x10\x01")),
    "a multi": (
        reads(lambda answer: answers.read_multi(answer, 3, 3)),
        Framed(body("MultiResponse", regionActionResult=PARTS), CELLS),
    ),
    "a scan": (
        reads(lambda answer: scan_messages.read_scan(answer, 3)),
        Framed(
            body(
                "ScanResponse",
                cells_per_result=[3, 3, 3],
                partial_flag_per_result=[False, False, True],
                scanner_id=2**40,
                more_results=True,
                heartbeat_message=True,
                cursor={"row": b"row"},
            ),
            CELLS,
        ),
    ),
    "a scan whose numbers are packed": (
        reads(lambda answer: scan_messages.read_scan(answer, 3)),
        Framed(b"\x0a\x03\x03\x03\x03\x3a\x03\x00\x00\x01", CELLS),
    ),
    "tables": (schema.read_descriptors, nested(schema.table_message(DESCRIPTOR))),
    "loads": (
        status.read_loads,
        body(
            "GetClusterStatusResponse",
            cluster_status={
                "live_servers": [
                    {
                        "server": {"host_name": "h", "port": 2, "start_code": 3},
                        "server_load": {"used_heap_MB": 30, "region_loads": [{"row": b"r"}] * 3},
                    }
                ]
            },
        ),
    ),
    "snapshots": (
        snapshots.read_snapshots,
        nested(body("SnapshotDescription", table="ns:t", creation_time=2**40) + b"\x0a\x01s"),
    ),
    "a snapshot that has begun": (snapshots.read_begun, b"\x08\x07\x10\x09"),
    "a snapshot that is done": (snapshots.read_is_done, b"\x08\x01"),
    "a state": (schema.read_state, nested(b"\x08\x01")),
    "a number of a procedure": (schema.read_procedure_id, b"\x08\x07"),
    "a procedure": (
        lambda data: told(schema.read_procedure(data)[1]),
        b"\x08\x02\x2a" + bytes((len(FOREIGN) + 2, 0x12, len(FOREIGN))) + FOREIGN,
    ),
    "a region": (catalogue, INFO + b"|host:16020"),
    "a znode": (registry._znode_fields, b"\xff\0\0\0\x05id567PBUF" + nested(SERVER)),
    "a place": (registry._named_server, nested(SERVER)),
    "the catalogue's place": (
        registry._meta_server,
        nested(b"\x12" + bytes((len(SERVER),)) + SERVER),
    ),
    "an id": (registry._text, nested("ä".encode() * 9)),
}


def damaged(dice: random.Random, data: bytes) -> bytes:
    """Return the bytes with up to four changes: cut, flipped, filled with noise, or doubled."""
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(data) + 1)
        before, after = data[:at], data[at:]
        data = dice.choice(
            (
                before,
                before + dice.randbytes(1) + after[1:],
                before + bytes((after[0] ^ 1 << dice.randrange(8),)) + after[1:] if after else b"",
                before + dice.randbytes(dice.randrange(6)) + after,
                before + b"\xff" * dice.randrange(12) + after,
                before + b"9" * dice.choice((3, 6000)) + after,
                data + after,
            )
        )
    return data


@pytest.mark.parametrize("name", READERS)
@given(seed=st.integers(0, 2**64))
def test_damaged_bytes_are_refused_or_read(name: str, seed: int) -> None:
    """What comes out is an error of ours, which is told with the server's name, or a value."""
    read, sound = READERS[name]
    read(sound.whole if isinstance(sound, Framed) else sound)
    dice = random.Random(seed)
    refused = (*OURS, *MORE.get(name, ()))
    for _ in range(DAMAGES):
        with suppress(*refused):
            read(sound.damaged(dice) if isinstance(sound, Framed) else damaged(dice, sound))


OURS: Final = (Garbled,)
MORE: Final = {
    "a znode": (RemoteProtocolError, struct.error),
    "a place": (RemoteProtocolError,),
    "the catalogue's place": (RemoteProtocolError,),
    "an id": (RemoteProtocolError,),
}
"""What the callers of the registry's readers translate besides."""
