"""The data calls of a region server, Get, Mutate and Multi, as bytes.  No I/O.

Values that are written travel in the block of cells and not in the messages: smaller, and cheaper
for both sides.  Each function returns the parameter and the block.

Source: `Client.proto` and `HBase.proto` of HBase 2.6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, NamedTuple, TypeGuard

from omidpy.errors import RemoteProtocolError
from omidpy.model import MAX_VERSION, Cell
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.hbase.native.faults import Fault, Garbled
from omidpy.storage.hbase.native.values import (
    Action,
    Check,
    Found,
    Get,
    RegionAction,
    RowChange,
    Selection,
)
from omidpy.storage.hbase.native.wire.frames import Answer
from omidpy.wire.protobuf import fields, put_bool, put_bytes, put_uint64, put_varint, varints

REGION_NAME: Final = 1
ENCODED_REGION_NAME: Final = 2
_PUT, _DELETE = 2, 3
MOST_DONE: Final = 1000
"""Actions of which the answers are known by heart."""
_EQUAL: Final = 2

_IS_COMPILED: Final = cellblock.is_compiled()
_SEQUENCES: Final = (tuple, list)
"""They have as many items as they say."""

_COMPARATORS: Final = b"org.apache.hadoop.hbase.filter."


def _key(number: int, wire_type: int) -> int:
    return number << 3 | wire_type


V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11 = (_key(number, 0) for number in range(1, 12))
B1, B2, B3, B4, B5, B6, B7, B8 = (_key(number, 2) for number in range(1, 9))


def region_specifier(name: bytes, kind: int = REGION_NAME) -> bytes:
    """Return a `RegionSpecifier`."""
    out = bytearray((V1, kind))
    put_bytes(out, B2, name)
    return bytes(out)


# -- reads -----------------------------------------------------------------------------------------


def put_columns(out: bytearray, number: int, selection: Selection) -> None:
    """Append the columns that a read wants, by family."""
    families: dict[bytes, list[bytes]] = {}
    for family, qualifier in selection.columns or ():
        names = families.setdefault(family, [])
        if qualifier is not None:
            names.append(qualifier)
    for family, names in families.items():
        column = bytearray()
        put_bytes(column, B1, family)
        for name in names:
            put_bytes(column, B2, name)
        put_bytes(out, _key(number, 2), column)


def put_versions(out: bytearray, range_key: int, count_key: int, selection: Selection) -> None:
    """Append from and to which version a read goes, and how many of a column it brings."""
    if selection.min_version > 0 or selection.max_version < MAX_VERSION:
        versions = bytearray()
        put_uint64(versions, V1, selection.min_version)
        put_uint64(versions, V2, selection.max_version)
        put_bytes(out, range_key, versions)
    put_uint64(out, count_key, selection.max_versions)


def get_message(get: Get) -> bytes:
    """Return a `Get`."""
    out = bytearray()
    put_bytes(out, B1, get.row)
    put_columns(out, 2, get.selection)
    if get.selection.filter_bytes is not None:
        put_bytes(out, B4, get.selection.filter_bytes)
    put_versions(out, B5, V6, get.selection)
    if get.selection.most_cells:
        put_uint64(out, V8, get.selection.most_cells)
    if get.existence_only:
        put_bool(out, V10, value=True)
    return bytes(out)


def get_request(region: bytes, get: Get) -> bytes:
    """Return a `GetRequest`."""
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    put_bytes(out, B2, get_message(get))
    return bytes(out)


class _Result(NamedTuple):
    inline: list[Cell]
    """Cells within the message: a lone get and an increment are answered so."""
    cell_count: int
    """Cells in the block."""
    exists: bool | None


def _result(data: bytes) -> _Result:
    inline: list[Cell] = []
    count, exists = 0, None
    for key, value in message_fields(data):
        if key == B1 and isinstance(value, bytes):
            inline.append(_cell(value))
        elif key == V2 and isinstance(value, int):
            count = value
        elif key == V3:
            exists = bool(value)
    return _Result(inline, count, exists)


def _cell(data: bytes) -> Cell:
    """Read a `Cell`."""
    row = family = qualifier = value = b""
    version = 0
    for key, found in message_fields(data):
        if isinstance(found, bytes):
            if key == B1:
                row = found
            elif key == B2:
                family = found
            elif key == B3:
                qualifier = found
            elif key == B6:
                value = found
        elif key == V4:
            version = found
    return Cell(row, family, qualifier, version, value)


def read_get(answer: Answer) -> Found:
    """Read a `GetResponse`."""
    found = _Result([], 0, None)
    for key, value in message_fields(answer.body):
        if key == B1 and isinstance(value, bytes):
            found = _result(value)
    (cells,) = cellblock.decode(answer.frame, answer.cells_at, (found.cell_count,))
    return Found(found.inline + cells, found.exists)


# -- writes ----------------------------------------------------------------------------------------


class _Mutation(NamedTuple):
    message: bytes
    cells: bytes


def _mutation(row: bytes, kind: int, cells: list[bytes], durability: int) -> _Mutation:
    out = bytearray()
    put_bytes(out, B1, row)
    out += bytes((V2, kind))
    if durability:
        out += bytes((V6, durability))
    out.append(V8)
    put_varint(out, len(cells))
    return _Mutation(bytes(out), b"".join(cells))


def _mutations(change: RowChange, durability: int) -> Iterator[_Mutation]:
    """Yield the `MutationProto`s of a change, puts first."""
    row, puts, deletes = change
    encode = cellblock.encode
    if puts:
        cells = [encode(row, *put) for put in puts]
        yield _mutation(row, _PUT, cells, durability)
    if deletes:
        cells = [encode(row, *one[:3], b"", one.kind) for one in deletes]
        yield _mutation(row, _DELETE, cells, durability)


def _condition(check: Check) -> bytes:
    out = bytearray()
    put_bytes(out, B1, check.row)
    put_bytes(out, B2, check.family)
    put_bytes(out, B3, check.qualifier)
    out += bytes((V4, _EQUAL))
    comparator = bytearray()
    if check.expected is None:
        put_bytes(comparator, B1, _COMPARATORS + b"NullComparator")
        put_bytes(comparator, B2, b"")
    else:
        value, wrapped = bytearray(), bytearray()
        put_bytes(value, B1, check.expected)
        put_bytes(wrapped, B1, value)
        put_bytes(comparator, B1, _COMPARATORS + b"BinaryComparator")
        put_bytes(comparator, B2, wrapped)
    put_bytes(out, B5, comparator)
    return bytes(out)


def mutate_request(
    region: bytes, change: RowChange, check: Check | None, durability: int
) -> tuple[bytes, bytes]:
    """Return a `MutateRequest` for a change that only puts or only deletes, and its cells."""
    (mutation,) = _mutations(change, durability)
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    put_bytes(out, B2, mutation.message)
    if check is not None:
        put_bytes(out, B3, _condition(check))
    return bytes(out), mutation.cells


def read_mutate(answer: Answer) -> bool:
    """Read a `MutateResponse`; return whether the condition held."""
    for key, value in message_fields(answer.body):
        if key == V2:
            return bool(value)
    raise Garbled("the answer to a mutation does not say whether it was processed")


def increment_request(
    region: bytes,
    row: bytes,
    family: bytes,
    qualifier: bytes,
    amount: int,
    nonces: tuple[int, int],
) -> tuple[bytes, bytes]:
    """Return a `MutateRequest` that adds to a number of 8 bytes, and its cell.

    `nonces` are those of the client and of the call: HBase does a call with the same ones once.
    """
    cell = cellblock.encode(row, family, qualifier, MAX_VERSION, amount.to_bytes(8, signed=True))
    mutation = bytearray()
    put_bytes(mutation, B1, row)
    mutation += bytes((V2, 1, V8, 1))
    put_uint64(mutation, V9, nonces[1])
    out = bytearray()
    put_bytes(out, B1, region_specifier(region))
    put_bytes(out, B2, mutation)
    put_uint64(out, V4, nonces[0])
    return bytes(out), cell


# -- many at once ----------------------------------------------------------------------------------


def multi_request(parts: Sequence[RegionAction], durability: int) -> tuple[bytes, bytes]:
    """Return a `MultiRequest` and its cells.

    A part whose one change puts and deletes, or has a condition, is atomic.  Other changes count as
    a put or a delete each; within a part they are not one.
    """
    out = bytearray()
    cells: list[bytes] = []
    for part in parts:
        action = bytearray()
        put_bytes(action, B1, region_specifier(part.region.name))
        is_atomic = part.check is not None or any(
            isinstance(one, RowChange) and one.puts and one.deletes for one in part.actions
        )
        assert not is_atomic or len(part.actions) == 1, "one change alone is atomic"
        if is_atomic:
            put_bool(action, V2, value=True)
        elif _IS_COMPILED and are_puts(part.actions):
            some, block = cellblock.encode_puts(part.actions, durability)
            action += some
            cells.append(block)
            put_bytes(out, B1, action)
            continue
        for index, one in enumerate(part.actions):
            if isinstance(one, Get):
                _put_action(action, index, B3, get_message(one))
                continue
            for number, mutation in enumerate(_mutations(one, durability)):
                _put_action(action, index + number, B2, mutation.message)
                cells.append(mutation.cells)
        if part.check is not None:
            put_bytes(action, B4, _condition(part.check))
        put_bytes(out, B1, action)
    return bytes(out), b"".join(cells)


def are_puts(actions: Sequence[Action]) -> TypeGuard[Sequence[RowChange]]:
    """Say whether `cellblock.encode_puts` can be asked for some actions."""
    return all(
        isinstance(one, RowChange) and not one.deletes and type(one.puts) in _SEQUENCES
        for one in actions
    )


def _put_action(out: bytearray, index: int, key: int, message: bytes) -> None:
    body = bytearray((V1,))
    put_varint(body, index)
    put_bytes(body, key, message)
    put_bytes(out, B3, body)


class PartAnswer(NamedTuple):
    """What became of the actions in one region."""

    fault: Fault | None
    """Of the region as a whole."""
    processed: bool | None
    """Whether the condition held."""
    results: dict[int, Found | Fault]
    """By the number of the action."""

    @property
    def first_fault(self) -> Fault | None:
        """A fault of the region or of one of the actions; None if all were done."""
        if self.fault is not None:
            return self.fault
        return next((one for one in self.results.values() if isinstance(one, Fault)), None)

    def found(self, number: int) -> Found:
        """Return what a get found."""
        found = self.results.get(number)
        if not isinstance(found, Found):
            raise Garbled("the answer to a get is missing")
        return found


def read_multi(answer: Answer, part_count: int) -> list[PartAnswer]:
    """Read a `MultiResponse`: one answer for each part, in their order."""
    counts: list[int] = []
    parts: list[PartAnswer] = []
    waiting: list[tuple[PartAnswer, int, _Result]] = []
    for key, value in message_fields(answer.body):
        if key != B1 or not isinstance(value, bytes):
            continue
        fault, processed = None, None
        results: dict[int, Found | Fault] = {}
        gets: list[tuple[int, _Result]] = []
        done, rest = _done_at_first(value)
        for part_key, part_value in message_fields(rest):
            if part_key == B1 and isinstance(part_value, bytes):
                index, found = _result_or_fault(part_value)
                if isinstance(found, Fault):
                    results[index] = found
                elif found is not None:
                    gets.append((index, found))
            elif part_key == B2 and isinstance(part_value, bytes):
                fault = _named_fault(part_value)
            elif part_key == V3:
                processed = bool(part_value)
        if done:
            results = {**{index: Found([]) for index in range(done)}, **results}
        part = PartAnswer(fault, processed, results)
        parts.append(part)
        for index, found in gets:
            counts.append(found.cell_count)
            waiting.append((part, index, found))
    if len(parts) != part_count:
        raise Garbled(f"an answer has {len(parts)} parts where {part_count} were asked for")
    rows = cellblock.decode(answer.frame, answer.cells_at, counts)
    for (part, index, found), cells in zip(waiting, rows, strict=True):
        part.results[index] = Found(found.inline + cells, found.exists)
    return parts


def _done_at_first(part: bytes) -> tuple[int, bytes]:
    """Return how many actions of a part were done and brought nothing, up to the first other one.

    Nearly all answers to puts are these alone, one of 6 or 7 bytes for each.  And what is left.
    """
    all_done, ends = _all_done()
    if len(part) <= len(all_done) and all_done.startswith(part) and len(part) in ends:
        return ends[len(part)], b""
    return 0, part


@cache
def _all_done() -> tuple[bytes, dict[int, int]]:
    """Return such answers, and where each of them ends: the count up to there by the place."""
    found = bytearray()
    ends: dict[int, int] = {}
    for index in range(MOST_DONE):
        body = bytearray((V1,))
        put_varint(body, index)
        put_bytes(body, B2, b"")
        put_bytes(found, B1, body)
        ends[len(found)] = index + 1
    return bytes(found), ends


def _result_or_fault(data: bytes) -> tuple[int, _Result | Fault | None]:
    index = 0
    found: _Result | Fault | None = None
    for key, value in message_fields(data):
        if key == V1 and isinstance(value, int):
            index = value
        elif key == B2 and isinstance(value, bytes):
            found = _result(value)
        elif key == B3 and isinstance(value, bytes):
            found = _named_fault(value)
    return index, found


def _named_fault(data: bytes) -> Fault:
    """Read the exception of a part: class and text."""
    name, text = "", ""
    for key, value in message_fields(data):
        if isinstance(value, bytes):
            if key == B1:
                name = value.decode(errors="replace")
            elif key == B2:
                text = value.decode(errors="replace")
    return Fault(name, text)


def message_numbers(data: bytes) -> Iterator[int]:
    """Yield the numbers of a packed field, with an error of ours where there are none."""
    try:
        yield from varints(data)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error


def message_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield fields, with an error of ours where there are none."""
    try:
        yield from fields(data)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error
