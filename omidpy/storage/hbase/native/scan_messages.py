"""The calls of a scan as bytes: to begin one, to go on, to end it.  No I/O.

Source: `Client.proto` of HBase 2.6, and what its server was seen to do.
"""

from __future__ import annotations

import re
from typing import Any, Final

from omidpy.storage.hbase.native import cellblock
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.values import Pairing, Scan, ScanAnswer
from omidpy.storage.hbase.native.wire.answers import Answer
from omidpy.storage.hbase.native.wire.messages import (
    B1,
    B2,
    B3,
    B4,
    B5,
    B6,
    B7,
    V1,
    V2,
    V3,
    V4,
    V5,
    V6,
    V7,
    V8,
    V9,
    V10,
    V11,
    message_fields,
    message_numbers,
    put_columns,
    put_versions,
    region_specifier,
)
from omidpy.wire.protobuf import put_bool, put_bytes, put_uint64, put_varint

_PREAD: Final = 2
"""Without it the first answer ends after 256 KiB, because the server changes how it reads."""

_RUNS: Final = re.compile(
    rb"((?:\x08[\x01-\x7f])*)"  # how many cells each row has
    rb"((?:[\x10\x18\x20\x30][\x80-\xff]{0,9}[\x00-\x7f])*)"  # numbers beside them
    rb"((?:\x38[\x00\x01])*)"  # whether each is but a part of its row
)
_LEAST_CELL_BYTES: Final = 20
"""A cell has three lengths, a time and a kind; what tells of a row without one is not even read."""
_MOST_ROW_BYTES: Final = 8
_MOST_BESIDE_BYTES: Final = 1 << 17
"""A cursor, which is a key, and numbers."""
_V15, _V21, _V22, _V23, _V24 = (number << 3 for number in (15, 21, 22, 23, 24))
_B12: Final = 12 << 3 | 2


def scan_request(region: bytes, scan: Scan, *, rows: int, keeps_open: bool) -> bytes:
    """Return the `ScanRequest` that begins a scan of a region and brings its first rows.

    Args:
        region: Its name.
        scan: What to read.
        rows: How many rows at most; when they have come the scan is over.
        keeps_open: Whether the server keeps the scanner for further calls.
    """
    inner = bytearray()
    put_columns(inner, 1, scan.selection)
    put_bytes(inner, B3, scan.start)
    put_bytes(inner, B4, scan.stop)
    if scan.selection.filter_bytes is not None:
        put_bytes(inner, B5, scan.selection.filter_bytes)
    put_versions(inner, B6, V7, scan.selection)
    if scan.most_cells_of_row:
        put_uint64(inner, V9, scan.most_cells_of_row)
    if scan.most_bytes:
        put_uint64(inner, V10, scan.most_bytes)
    for key, is_true in ((_V15, scan.is_reversed), (_V21, scan.includes_start)):
        put_varint(inner, key)
        inner.append(is_true)
    put_varint(inner, _V22)
    inner.append(scan.includes_stop)
    put_varint(inner, _V23)
    inner.append(_PREAD)
    put_varint(inner, _V24)
    inner.append(True)
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    put_bytes(out, B2, inner)
    _put_call(out, rows)
    if not keeps_open:
        put_bool(out, V5, value=True)
    put_uint64(out, V11, rows)
    return bytes(out)


def next_request(scanner_id: int, sequence: int, *, rows: int) -> bytes:
    """Return the `ScanRequest` that goes on; `sequence` counts such calls of a scanner from 0."""
    out = bytearray()
    put_uint64(out, V3, scanner_id)
    _put_call(out, rows)
    put_uint64(out, V6, sequence)
    put_uint64(out, V11, rows)
    return bytes(out)


def close_request(scanner_id: int) -> bytes:
    """Return the `ScanRequest` that ends a scan."""
    out = bytearray()
    put_uint64(out, V3, scanner_id)
    put_uint64(out, V4, 0)
    put_bool(out, V5, value=True)
    return bytes(out)


def _put_call(out: bytearray, rows: int) -> None:
    put_uint64(out, V4, rows)
    put_bool(out, V7, value=True)  # rows may come in parts
    put_bool(out, V8, value=True)  # and answers may come early


def read_scan(answer: Answer, most_rows: int, pairing: Pairing | None = None) -> ScanAnswer:
    """Read a `ScanResponse`; with `pairing`, its cells as that says.

    Raises:
        Garbled: it is none, or has more rows than were asked for.
    """
    body = answer.body
    row_count = (len(answer.frame) - answer.cells_at) // _LEAST_CELL_BYTES
    if len(body) > _MOST_BESIDE_BYTES + row_count * _MOST_ROW_BYTES:
        raise Garbled("a scan tells of more rows than it brings cells for")
    # Nearly all of most answers are two fields of two bytes for each row.
    run = _RUNS.match(body)
    assert run is not None, "each part of it may be empty"
    at, flags_at, end = run.end(1), run.start(3), run.end()
    counts = list(body[1:at:2])
    partial = list(map(bool, body[flags_at + 1 : end : 2]))
    scanner_id: int | None = None
    more = more_in_region = True
    is_heartbeat = False
    cursor: bytes | None = None
    for key, value in message_fields(body[at:flags_at] + body[end:]):
        if isinstance(value, bytes):
            if key == B1:
                counts.extend(message_numbers(value))
            elif key == B7:
                partial.extend(map(bool, message_numbers(value)))
            elif key == _B12:
                cursor = _bytes_at(value, B1)
        elif key == V1:
            counts.append(value)
        elif key == V2:
            scanner_id = value
        elif key == V3:
            more = bool(value)
        elif key == V7:
            partial.append(bool(value))
        elif key == V8:
            more_in_region = bool(value)
        elif key == V9:
            is_heartbeat = bool(value)
    if len(counts) > most_rows:
        raise Garbled(f"a scan brings {len(counts)} rows where {most_rows} were asked for")
    if 0 in counts:
        raise Garbled("a scan brings a row without cells")
    rows: list[Any]
    if pairing is None:
        rows = cellblock.decode(answer.frame, answer.cells_at, counts)
    else:
        block = answer.frame, answer.cells_at, counts
        prefix, suffix, before, erased, first = pairing
        if before is None:
            rows = cellblock.decode_pairs(*block, prefix, suffix)
        elif first is not None:
            rows = cellblock.decode_changes(*block, prefix, suffix, first, before, erased)
        else:
            rows = cellblock.decode_values(*block, prefix, suffix, before, erased)
    return ScanAnswer(
        rows,
        bool(partial and len(partial) == len(rows) and partial[-1]),
        scanner_id,
        more,
        more_in_region,
        is_heartbeat,
        cursor,
    )


def _bytes_at(data: bytes, wanted: int) -> bytes | None:
    for key, value in message_fields(data):
        if key == wanted and isinstance(value, bytes):
            return value
    return None
