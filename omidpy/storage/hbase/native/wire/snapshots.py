"""Snapshots of tables in the messages of HBase's master.  No I/O.

Source: `Snapshot.proto` and `Master.proto` of HBase 2.5 and 2.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from omidpy.errors import RemoteProtocolError
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.wire.messages import B1, B2, V1, V2, V3
from omidpy.storage.hbase.native.wire.schema import Nonces
from omidpy.wire.protobuf import fields, put_bytes, put_uint64

_V4: Final = 4 << 3
_FLUSH: Final = 1
_SKIP_FLUSH: Final = 2


class TableSnapshot(NamedTuple):
    """What a table was at a moment, by a name that no other one has."""

    name: str
    table: str
    created_ms: int = 0
    """Milliseconds since 1970, by the master's clock."""


def snapshot_request(name: str, table: str, nonces: Nonces, *, flushes: bool) -> bytes:
    """Return a `SnapshotRequest`.

    HBase 2.5 overlooks the numbers, by which 2.6 knows a repeated one.

    Args:
        name: Of the snapshot.
        table: Whose.
        nonces: By which it is known again.
        flushes: Write what servers have in memory to files first, else it is not in it.
    """
    out = bytearray()
    put_bytes(out, B1, _described(name, table, flushes=flushes))
    put_uint64(out, V2, nonces.group)
    put_uint64(out, V3, nonces.nonce)
    return bytes(out)


def snapshot_named(name: str, table: str = "") -> bytes:
    """Return what deletes a snapshot, or asks whether it is done."""
    out = bytearray()
    put_bytes(out, B1, _described(name, table))
    return bytes(out)


def _described(name: str, table: str, *, flushes: bool = True) -> bytes:
    out = bytearray()
    put_bytes(out, B1, name.encode())
    if table:
        put_bytes(out, B2, table.encode())
    put_uint64(out, _V4, _FLUSH if flushes else _SKIP_FLUSH)
    return bytes(out)


def read_begun(body: bytes) -> int | None:
    """Read a `SnapshotResponse`: the number of its procedure; None where it is none, as in 2.5."""
    number = next((value for key, value in _parts(body) if key == V2), None)
    # Without a procedure 2.6 says -1.
    return number if isinstance(number, int) and number < 1 << 63 else None


def read_is_done(body: bytes) -> bool:
    """Read an `IsSnapshotDoneResponse`."""
    return any(key == V1 and bool(value) for key, value in _parts(body))


def read_snapshots(body: bytes) -> list[TableSnapshot]:
    """Read a `GetCompletedSnapshotsResponse`."""
    return [
        _snapshot(value) for key, value in _parts(body) if key == B1 and isinstance(value, bytes)
    ]


def _snapshot(data: bytes) -> TableSnapshot:
    found = TableSnapshot("", "")
    for key, value in _parts(data):
        if isinstance(value, bytes):
            if key == B1:
                found = found._replace(name=value.decode(errors="backslashreplace"))
            elif key == B2:
                found = found._replace(table=value.decode(errors="backslashreplace"))
        elif key == V3:
            found = found._replace(created_ms=value)
    if not found.name:
        raise Garbled("a snapshot has no name")
    return found


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    try:
        yield from fields(data)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error
