"""Where an entry stands in the table of its queue, and the bytes of it.  Pure.

Rows, numbers big endian:

    dead    generation 1 | 00 | bucket 2 | commit_ts 8 | start_ts 8 | ordinal
    log     generation 1 | 01 | bucket 2 | start_ts 8 | ordinal
    fluo    generation 1 | 01 | bucket 2 | length of key 2 | key | start_ts 8 | ordinal
    kept    generation 1 | 02 | bucket 2 | commit_ts 8 | start_ts 8 | ordinal
    claim   generation 1 | 03 | bucket 2

All of a row but the commit timestamp is known when the entry is added, and no two additions have
one row (X3): a transaction has its own start timestamp, and each of its entries an ordinal of its
own (`tx/ordinals.py`).  So adders never conflict.  A log is in the order in which transactions
began, and the layout `fluo` has the entries of a key side by side, among them in that order: the
length before the key keeps one that begins with another one apart from it.

Dead letters of a bucket are in the order in which they committed, and stand apart from all logs, so
that one look shows that no bucket has any.  One that was delivered, of a queue that keeps what was,
is kept in the same order in a place that no exporter reads unless it is to be delivered again.
Nothing stands in the row of claims: transactions of owners delete it, and one aborts another.

The cell `e:e` of a log row holds an entry:

    01 | length of key 4 | key | length of headers 4 | headers, JSON | value

and that of a dead letter holds what is known of its death, and then the entry as it was:

    01 | length of note 4 | note, JSON | entry

so that neither is ever empty, whatever the value is.  A dead letter that is kept is an entry again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import mmh3
import msgspec

from omidpy.base.documents import UNREADABLE
from omidpy.base.words.arguments import MAX_VALUE_BYTES
from omidpy.errors import CorruptCell, UsageError
from omidpy.model import KeyRange

FAMILY: Final = b"e"
QUALIFIER: Final = b"e"
COLUMN: Final = FAMILY + b":" + QUALIFIER

MAX_BUCKETS: Final = 65_536
MAX_KEY_BYTES: Final = 32_000
"""Of a key that is part of a row."""

BY_TIME: Final = "log"
BY_KEY: Final = "fluo"
LAYOUTS: Final = (BY_TIME, BY_KEY)

FORMAT: Final = b"\x01"
_DEAD: Final = b"\x00"
_LOG: Final = b"\x01"
_KEPT: Final = b"\x02"
_CLAIM: Final = b"\x03"
_PLACE_BYTES: Final = 4
_TS_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_KEY_LENGTH_BYTES: Final = 2
_MAX_TS: Final = 2**63 - 1


class LogRow(NamedTuple):
    """What the row of an entry says."""

    bucket: int
    start_ts: int
    ordinal: bytes


class DeadRow(NamedTuple):
    """What the row of a dead letter says."""

    bucket: int
    commit_ts: int
    start_ts: int
    ordinal: bytes


class Content(NamedTuple):
    """What the cell of an entry says."""

    key: bytes
    headers: Mapping[str, str]
    value: bytes


def bucket_of(key: bytes, bucket_count: int) -> int:
    """Return the bucket of a key: all of its entries are in one."""
    return mmh3.hash(key, 0, signed=False) % bucket_count


def _place(generation: int, bucket: int, kind: bytes) -> bytes:
    return bytes((generation,)) + kind + bucket.to_bytes(2, "big")


def log_row(generation: int, bucket: int, start_ts: int, ordinal: bytes) -> bytes:
    """Return the row of an entry."""
    return _place(generation, bucket, _LOG) + start_ts.to_bytes(_TS_BYTES, "big") + ordinal


def parse_log_row(row: bytes) -> LogRow:
    """Return what the row of an entry says."""
    bucket = int.from_bytes(row[2:_PLACE_BYTES], "big")
    at = _PLACE_BYTES + _TS_BYTES
    return LogRow(bucket, int.from_bytes(row[_PLACE_BYTES:at], "big"), row[at:])


def keyed_row(generation: int, bucket: int, key: bytes, start_ts: int, ordinal: bytes) -> bytes:
    """Return the row of an entry in the layout `fluo`.

    Raises:
        UsageError: the key is too long.
    """
    if len(key) > MAX_KEY_BYTES:
        raise UsageError(
            f"the key {key[:40]!r}... has {len(key)} bytes, more than the {MAX_KEY_BYTES} that one "
            f"has in the layout {BY_KEY!r}; make the queue with layout={BY_TIME!r}"
        )
    place = _place(generation, bucket, _LOG) + len(key).to_bytes(_KEY_LENGTH_BYTES, "big")
    return place + key + start_ts.to_bytes(_TS_BYTES, "big") + ordinal


def parse_keyed_row(row: bytes) -> LogRow:
    """Return what the row of an entry says in the layout `fluo`."""
    at = len(key_prefix(row))
    start_ts = int.from_bytes(row[at : at + _TS_BYTES], "big")
    return LogRow(int.from_bytes(row[2:_PLACE_BYTES], "big"), start_ts, row[at + _TS_BYTES :])


def key_prefix(row: bytes) -> bytes:
    """Return what the rows of one key begin with in the layout `fluo`, and no others."""
    start = _PLACE_BYTES + _KEY_LENGTH_BYTES
    return row[: start + int.from_bytes(row[_PLACE_BYTES:start], "big")]


def log_range(generation: int, bucket: int, *, from_ts: int = 0, to_ts: int = _MAX_TS) -> KeyRange:
    """Return the rows of a bucket's entries of transactions that began in [from_ts, to_ts)."""
    return KeyRange(
        log_row(generation, bucket, from_ts, b""), log_row(generation, bucket, to_ts, b"")
    )


def dead_row(generation: int, bucket: int, commit_ts: int, start_ts: int, ordinal: bytes) -> bytes:
    """Return the row of a dead letter."""
    stamps = commit_ts.to_bytes(_TS_BYTES, "big") + start_ts.to_bytes(_TS_BYTES, "big")
    return _place(generation, bucket, _DEAD) + stamps + ordinal


def kept_row(dead: bytes) -> bytes:
    """Return the row that a dead letter has once it was delivered and is kept."""
    return dead[:1] + _KEPT + dead[2:]


def kept_range(generation: int, bucket: int, *, from_ts: int, to_ts: int) -> KeyRange:
    """Return the rows of dead letters that are kept, and that committed in [from_ts, to_ts)."""
    place = _place(generation, bucket, _KEPT)
    return KeyRange(
        place + from_ts.to_bytes(_TS_BYTES, "big"), place + to_ts.to_bytes(_TS_BYTES, "big")
    )


def claim_row(generation: int, bucket: int) -> bytes:
    """Return the row that transactions of a bucket's owners have in common."""
    return _place(generation, bucket, _CLAIM)


def parse_dead_row(row: bytes) -> DeadRow:
    """Return what the row of a dead letter says, kept or not."""
    first, second = _PLACE_BYTES + _TS_BYTES, _PLACE_BYTES + 2 * _TS_BYTES
    return DeadRow(
        int.from_bytes(row[2:_PLACE_BYTES], "big"),
        int.from_bytes(row[_PLACE_BYTES:first], "big"),
        int.from_bytes(row[first:second], "big"),
        row[second:],
    )


def dead_range(generation: int, bucket: int, *, to_bucket: int = MAX_BUCKETS) -> KeyRange:
    """Return the rows of the dead letters of the buckets in [bucket, to_bucket)."""
    end = _place(generation, 0, _LOG)
    if to_bucket < MAX_BUCKETS:
        end = _place(generation, to_bucket, _DEAD)
    return KeyRange(_place(generation, bucket, _DEAD), end)


def is_in_place(row: bytes, key: bytes, bucket_count: int, layout: str) -> bool:
    """Say whether the row of an entry is one that its key has, among so many buckets."""
    if int.from_bytes(row[2:_PLACE_BYTES], "big") != bucket_of(key, bucket_count):
        return False
    if row[1:2] != _LOG or not key:
        return True
    is_by_key = key_prefix(row)[_PLACE_BYTES + _KEY_LENGTH_BYTES :] == key
    return is_by_key == (layout == BY_KEY)


def splits(generation: int, bucket_count: int, buckets_per_region: int) -> list[bytes]:
    """Return where the regions of a queue's table meet."""
    starts = range(buckets_per_region, bucket_count, buckets_per_region)
    return [_place(generation, bucket, _LOG) for bucket in starts]


def encode_content(key: bytes, headers: Mapping[str, str], value: bytes) -> bytes:
    """Return the cell of an entry.

    Raises:
        UsageError: it is longer than a cell can be.
    """
    noted = msgspec.json.encode(headers) if headers else b""
    content = FORMAT + _measured(key) + _measured(noted) + value
    if len(content) > MAX_VALUE_BYTES - 1024:  # a dead letter is longer by a note
        raise UsageError(
            f"the entry of key {key[:40]!r} has {len(content)} bytes, more than the "
            f"{MAX_VALUE_BYTES - 1024} that one cell holds; put the value into a table, and its "
            "row's key into the queue"
        )
    return content


def decode_content(content: bytes) -> Content:
    """Return what the cell of an entry says.

    Raises:
        CorruptCell: it is none.
    """
    key, rest = _parted(_checked(content), content)
    noted, value = _parted(rest, content)
    try:
        headers = msgspec.json.decode(noted, type=dict[str, str]) if noted else {}
    except UNREADABLE as error:
        raise CorruptCell(f"the headers {noted[:40]!r} of an entry are no JSON: {error}") from error
    return Content(key, headers, value)


def content_of(row: bytes, cell: bytes) -> Content | None:
    """Return what a cell says of an entry, whether that was set aside or not; None: of claims.

    Raises:
        CorruptCell: it says nothing.
    """
    if row[1:2] == _CLAIM:
        return None
    return decode_content(decode_dead(cell)[1] if row[1:2] == _DEAD else cell)


def encode_dead(note: bytes, content: bytes) -> bytes:
    """Return the cell of a dead letter."""
    return FORMAT + _measured(note) + content


def decode_dead(cell: bytes) -> tuple[bytes, bytes]:
    """Return the note of a dead letter, and the cell of its entry.

    Raises:
        CorruptCell: it is none.
    """
    return _parted(_checked(cell), cell)


def _measured(part: bytes) -> bytes:
    return len(part).to_bytes(_LENGTH_BYTES, "big") + part


def _checked(content: bytes) -> bytes:
    if content[:1] != FORMAT:
        raise CorruptCell(f"{content[:40]!r} is no entry of an export queue, or of a newer omidpy")
    return content[1:]


def _parted(rest: bytes, content: bytes) -> tuple[bytes, bytes]:
    end = _LENGTH_BYTES + int.from_bytes(rest[:_LENGTH_BYTES], "big")
    if len(rest) < max(end, _LENGTH_BYTES):
        raise CorruptCell(f"{content[:40]!r} is cut off: no entry of an export queue")
    return rest[_LENGTH_BYTES:end], rest[end:]
