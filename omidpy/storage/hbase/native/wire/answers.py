"""What a server says to a call, as values: who is answered, and what came of gets and changes.

Of each answer every byte is looked at here, and of a get of many rows there are many.  So the
module is compiled as `cellblock.py` is: plain Python, to which `answers.pxd` beside it gives C
types where a compiler is found at install time.  Compiled, nothing else holds an index against the
length of what it is an index into: each one comes behind the comparison that says it is within.

Source: `RPC.proto`, `Client.proto` and `HBase.proto` of HBase 2.6, and what its server was seen to
do.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from omidpy.model import Cell
from omidpy.storage.hbase.native import cellblock
from omidpy.storage.hbase.native.faults import Fault, Garbled
from omidpy.storage.hbase.native.values import Found

SERVERS_OWN: Final = -1
"""The call id of an answer to no call: the server is about to close the connection."""

_IS_COMPILED: Final = not __file__.endswith(".py")

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_LEAST_KEY: Final = 8
_MAX_KEY: Final = 2**32 - 1
_MINUS_ONES: Final = (2**64 - 1, 2**32 - 1)

# What a field is called: its number and the type of what it holds.
_V1: Final = 1 << 3
_V2: Final = 2 << 3
_V3: Final = 3 << 3
_V4: Final = 4 << 3
_V5: Final = 5 << 3
_B1: Final = 1 << 3 | 2
_B2: Final = 2 << 3 | 2
_B3: Final = 3 << 3 | 2
_B6: Final = 6 << 3 | 2

_new: Final = tuple.__new__
_Cell: Final = Cell


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return _IS_COMPILED


class Fields:
    """The fields of a message, one after another."""

    def __init__(self, data: bytes, start: int, stop: int) -> None:
        """Stand before the first field of the message that some bytes have between two places."""
        if not 0 <= start <= stop <= len(data):
            raise Garbled("a message is beyond the end of an answer")
        self._data = data
        self._octets = data
        self._position = start
        self._end = stop
        self.number = 0
        """What the field holds, if that is a number."""
        self.start = 0
        self.stop = 0
        """Where in the bytes the field's own are, if it holds bytes."""

    def next(self) -> int:
        """Go to the next number or bytes, and return the key of the field; 0 at the end.

        Fields of fixed width are left out: no answer has one.

        Raises:
            Garbled: the message ends inside a field, or holds what is none.
        """
        while self._position < self._end:
            key = self._varint()
            if not _LEAST_KEY <= key <= _MAX_KEY:
                raise Garbled(f"an answer cannot be read: {key} is no protobuf field key")
            kind = key & 7
            if kind == _VARINT:
                self.number = self._varint()
                return key
            if kind == _BYTES:
                self.skip_delimited()
                return key
            if kind not in (_FIXED64, _FIXED32):
                raise Garbled(f"an answer cannot be read: field {key >> 3} has the type {kind}")
            width = 8 if kind == _FIXED64 else 4
            if width > self._end - self._position:
                raise Garbled(f"an answer cannot be read: it ends inside field {key >> 3}")
            self._position += width
        return 0

    def skip_delimited(self) -> int:
        """Go past a length and as many bytes, and return where they end.

        Raises:
            Garbled: fewer are left.
        """
        length = self._varint()
        left = self._end - self._position
        if length > left:
            raise Garbled(f"a part of an answer claims {length} bytes where {left} are left")
        self.start = self._position
        self.stop = self._position = self._position + length
        return self.stop

    def own(self) -> bytes:
        """Return the bytes that the field holds."""
        return self._octets[self.start : self.stop]

    def message(self) -> Fields:
        """Return the fields of the message that the field holds."""
        return Fields(self._data, self.start, self.stop)

    def _varint(self) -> int:
        octets = self._octets
        value = shift = 0
        while self._position < self._end:
            byte = octets[self._position]
            self._position += 1
            if shift == 63 and byte > 1:  # the tenth byte has room for one more bit
                raise Garbled("an answer cannot be read: a number has more than 64 bits")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise Garbled("an answer cannot be read: it ends inside a number")


# -- frames ----------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """What came for a call."""

    call_id: int
    fault: Fault | None
    body: bytes
    """The result, encoded; empty beside a fault."""
    frame: bytes
    cells_at: int
    """Where in the frame the block of cells begins; it ends with the frame."""


def answer(frame: bytes) -> Answer:
    """Read a frame, without the length before it.

    Raises:
        Garbled: it is no answer.
    """
    call_id: int | None = None
    fault: Fault | None = None
    cells_length = 0
    whole = Fields(frame, 0, len(frame))
    position = whole.skip_delimited()
    header = whole.message()
    while key := header.next():
        if key == _V1:
            call_id = SERVERS_OWN if header.number in _MINUS_ONES else header.number
        elif key == _B2:
            fault = _fault(header.message())
        elif key == _B3:
            cells_length = _first_number(header.message())
    if call_id is None:
        raise Garbled("the header of an answer has no call id")
    body = b""
    if fault is None:
        position = whole.skip_delimited()
        body = whole.own()
    if cells_length != len(frame) - position:
        raise Garbled(
            f"an answer claims {cells_length} bytes of cells where {len(frame) - position} are left"
        )
    return Answer(call_id, fault, body, frame, position)


def _fault(fields: Fields) -> Fault:
    """Read an `ExceptionResponse`."""
    name = text = host = ""
    port, do_not_retry = 0, False
    while key := fields.next():
        if key == _B1:
            name = fields.own().decode(errors="replace")
        elif key == _B2:
            text = fields.own().decode(errors="replace")
        elif key == _B3:
            host = fields.own().decode(errors="replace")
        elif key == _V4:
            port = fields.number
        elif key == _V5:
            do_not_retry = bool(fields.number)
    return Fault(name, text, host=host, port=port, do_not_retry=do_not_retry)


def _first_number(fields: Fields) -> int:
    """Return the first field of a message; 0 if that is no number or not there."""
    while key := fields.next():
        if key == _V1:
            return fields.number
    return 0


# -- what was found --------------------------------------------------------------------------------


class Result(NamedTuple):
    """What a message says of a row."""

    inline: list[Cell]
    """Cells within the message: a lone get and an increment are answered so."""
    cell_count: int
    """Cells in the block."""
    exists: bool | None


def _result(fields: Fields) -> Result:
    """Read a `Result`."""
    inline: list[Cell] = []
    count, exists = 0, None
    while key := fields.next():
        if key == _B1:
            inline.append(_cell(fields.message()))
        elif key == _V2:
            count = fields.number
        elif key == _V3:
            exists = bool(fields.number)
    return Result(inline, count, exists)


def _cell(fields: Fields) -> Cell:
    """Read a `Cell`; HBase tells of all that it has."""
    row = family = qualifier = value = b""
    version = 0
    while key := fields.next():
        if key == _B1:
            row = fields.own()
        elif key == _B2:
            family = fields.own()
        elif key == _B3:
            qualifier = fields.own()
        elif key == _V4:
            version = fields.number
        elif key == _B6:
            value = fields.own()
    if not row or not family:
        raise Garbled("a cell of an answer has no row or no family")
    return _new(_Cell, (row, family, qualifier, version, value))


def read_get(answer: Answer) -> Found:
    """Read a `GetResponse`.

    Raises:
        Garbled: it is none, or says nothing of the row.
    """
    found: Result | None = None
    fields = Fields(answer.body, 0, len(answer.body))
    while key := fields.next():
        if key == _B1:
            found = _result(fields.message())
    if found is None:
        raise Garbled("the answer to a get has no result")
    (cells,) = cellblock.decode(answer.frame, answer.cells_at, (found.cell_count,))
    return Found(found.inline + cells, found.exists)


# -- what became of many ---------------------------------------------------------------------------


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


def read_multi(answer: Answer, part_count: int, action_count: int) -> list[PartAnswer]:
    """Read a `MultiResponse`: one answer for each part, in their order.

    Args:
        answer: What came.
        part_count: How many parts were asked for.
        action_count: How many actions those have in all; a change that puts and deletes is answered
            as two.

    Raises:
        Garbled: it is none, or has another number of parts, or tells of more than was asked for.
    """
    fault_count = 0
    parts: list[PartAnswer] = []
    owners: list[tuple[dict[int, Found | Fault], int, Result]] = []
    fields = Fields(answer.body, 0, len(answer.body))
    while key := fields.next():
        if key == _B1:
            # A part takes two bytes, and a hundred times as much once it is read.
            if len(parts) == part_count:
                raise Garbled(f"an answer has more than the {part_count} parts that were asked for")
            part = _part(fields.message(), owners, 2 * action_count - fault_count - len(owners))
            fault_count += len(part.results)
            parts.append(part)
    if len(parts) != part_count:
        raise Garbled(f"an answer has {len(parts)} parts where {part_count} were asked for")
    counts = [found.cell_count for _, _, found in owners]
    rows = cellblock.decode(answer.frame, answer.cells_at, counts)
    for (results, index, found), cells in zip(owners, rows, strict=True):
        results[index] = Found(found.inline + cells if found.inline else cells, found.exists)
    return parts


def _part(
    fields: Fields, owners: list[tuple[dict[int, Found | Fault], int, Result]], most: int
) -> PartAnswer:
    """Read a `RegionActionResult` of so many results at most; note which wait for their cells."""
    fault: Fault | None = None
    processed: bool | None = None
    results: dict[int, Found | Fault] = {}
    count = 0
    while key := fields.next():
        if key == _B1:
            if count == most:
                raise Garbled("an answer tells of more actions than were asked for")
            count += 1
            index = 0
            found: Result | Fault | None = None
            one = fields.message()
            while one_key := one.next():
                if one_key == _V1:
                    index = one.number
                elif one_key == _B2:
                    found = _result(one.message())
                elif one_key == _B3:
                    found = _named_fault(one.message())
            if isinstance(found, Fault):
                results[index] = found
            elif found is not None:
                owners.append((results, index, found))
        elif key == _B2:
            fault = _named_fault(fields.message())
        elif key == _V3:
            processed = bool(fields.number)
    return PartAnswer(fault, processed, results)


def _named_fault(fields: Fields) -> Fault:
    """Read the exception of a part: class and text."""
    name = text = ""
    while key := fields.next():
        if key == _B1:
            name = fields.own().decode(errors="replace")
        elif key == _B2:
            text = fields.own().decode(errors="replace")
    return Fault(name, text)


def read_mutate(answer: Answer) -> bool:
    """Read a `MutateResponse`; return whether the condition held.

    Raises:
        Garbled: it does not say.
    """
    fields = Fields(answer.body, 0, len(answer.body))
    while key := fields.next():
        if key == _V2:
            return bool(fields.number)
    raise Garbled("the answer to a mutation does not say whether it was processed")
