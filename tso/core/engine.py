"""Decide whether a write set may commit, and when; read the request and write the answer.

The oracle's arithmetic: timestamps, the newest commit of each cell, fences and the low watermark.
No clock, no socket, no store, no lock; `machine.py` owns the one instance and says what time it is.
It also reads commit requests, which are as long as write sets, and writes the two answers of which
there is one for each transaction.  `omidpy/wire/frames.py` defines the format; what is read and
written here is the same, byte for byte.

Memory is bounded.  Forgetting is allowed, lying is not:

    I1  every timestamp is greater than every one issued before it
    I3  a cell, or a fence, that was forgotten is at or below `low_watermark`
    I4  no transaction with start_ts <= low_watermark commits

so a snapshot at or below the watermark is refused unseen.  That may refuse a transaction that was
harmless; it never lets a lost update through.

A transaction belongs to whoever began it: a commit of somebody else's, with no cells or with other
ones, would let that one's own commit be answered as a repetition, and its conflict go unseen.  What
Omid's clients begin is everybody's, since they do not say who they are.

The module is plain Python.  `engine.pxd` beside it gives the same source C types where a compiler
is found at install time; one set of tests runs on both.

Source: Omid (FAST 2017), status oracle.  Unlike Omid we evict the oldest commit of all and not of
one bucket, which keeps the watermark as low as the capacity permits, and no cell id is special.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from omidpy.errors import RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STEP: Final = 50

ABORT_CONFLICT: Final = -1
ABORT_LOW_WATERMARK: Final = -2
ABORT_FENCE: Final = -3

EVERYBODYS: Final = -1
"""Owner of what a client began that does not say who it is."""

MAX_NAMED_CONFLICTS: Final = 64
"""Conflicting cells that one abort names."""

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_MULTIPLIER: Final = 0x9E37_79B9_7F4A_7C15
_FIRST_SLOTS: Final = 1024
_MAX_CAPACITY: Final = 2**30

# Fields as they stand on the wire: number << 3 | wire type; 0 is a number, 2 a length and bytes.
_TIMESTAMP: Final = 1 << 3 | 2
_COMMIT: Final = 2 << 3 | 2
_HANDSHAKE: Final = 3 << 3 | 2
_FENCE: Final = 4 << 3 | 2
_INVALIDATE: Final = 1001 << 3 | 2
_START: Final = 1 << 3
_IS_RETRY: Final = 2 << 3
_CELL: Final = 3 << 3
_CELLS: Final = 3 << 3 | 2
_TABLE: Final = 4 << 3
_TABLES: Final = 4 << 3 | 2
_MAX_KEY: Final = 2**32 - 1
_MAX_SIGNED: Final = 2**63 - 1


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return not __file__.endswith(".py")


class OldestFirstMap:
    """A map of 64-bit integers that forgets the entry set longest ago when it is full.

    Slots are numbered from 1 in flat arrays; 0 is "none".  Each slot hangs in the chain of its hash
    bucket and in one list from the oldest to the newest entry.  Setting an entry again makes it the
    newest.

    Cost: O(1) and at most 36 bytes an entry; memory grows by doubling up to `capacity` entries.
    """

    def __init__(self, capacity: int, *, seed: int = 0) -> None:
        """Start empty.

        Args:
            capacity: Most entries kept, at least 1.
            seed: Makes the buckets of chosen keys hard to guess.
        """
        if not 1 <= capacity < _MAX_CAPACITY:
            raise ValueError(f"capacity {capacity} is not between 1 and {_MAX_CAPACITY - 1}")
        self.capacity = capacity
        self.count = 0
        self.evicted_key = 0
        self.evicted_value = 0
        self._multiplier = (_MULTIPLIER + 2 * seed) & _MASK
        self._oldest = 0
        self._newest = 0
        slots = min(capacity, _FIRST_SLOTS) + 1
        self._keys = array("q", bytes(8 * slots))
        self._values = array("q", bytes(8 * slots))
        self._older = array("i", bytes(4 * slots))
        self._newer = array("i", bytes(4 * slots))
        self._next_in_chain = array("i", bytes(4 * slots))
        self._slot_count = slots
        self._heads = array("i")
        self._shift = 0
        self._rebuild_chains()

    def get(self, key: int) -> int:
        """Return the value of `key`, 0 if there is none."""
        slot = self._find(key)
        return self._values[slot] if slot else 0

    def put(self, key: int, value: int) -> bool:
        """Set `key` and make it the newest entry.

        Args:
            key: Any signed 64-bit integer.
            value: Any signed 64-bit integer but 0.

        Returns:
            Whether the oldest entry had to go; it is in `evicted_key` and `evicted_value`.
        """
        slot = self._find(key)
        if slot:
            # It becomes the newest: the list must stay in the order in which values were set, or
            # an eviction would take a recent commit and drag the watermark up to it.
            self._values[slot] = value
            self._unlink(slot)
            self._append(slot)
            return False
        evicted = False
        if self.count == self.capacity:
            slot = self._evict_oldest()
            evicted = True
        else:
            self.count += 1
            if self.count == self._slot_count:
                self._grow()
            slot = self.count
        self._keys[slot] = key
        self._values[slot] = value
        bucket = self._bucket(key)
        self._next_in_chain[slot] = self._heads[bucket]
        self._heads[bucket] = slot
        self._append(slot)
        return evicted

    def replace(self, key: int, value: int) -> bool:
        """Set the value of an entry that exists, leaving its age; False if there is none."""
        slot = self._find(key)
        if not slot:
            return False
        self._values[slot] = value
        return True

    def _find(self, key: int) -> int:
        slot = self._heads[self._bucket(key)]
        while slot and self._keys[slot] != key:
            slot = self._next_in_chain[slot]
        return slot

    def _bucket(self, key: int) -> int:
        return ((key * self._multiplier) & _MASK) >> self._shift

    def _evict_oldest(self) -> int:
        slot = self._oldest
        key = self._keys[slot]
        self.evicted_key = key
        self.evicted_value = self._values[slot]
        bucket = self._bucket(key)
        after = self._next_in_chain[slot]
        here = self._heads[bucket]
        if here == slot:
            self._heads[bucket] = after
        else:
            while self._next_in_chain[here] != slot:
                here = self._next_in_chain[here]
            self._next_in_chain[here] = after
        self._unlink(slot)
        return slot

    def _unlink(self, slot: int) -> None:
        older = self._older[slot]
        newer = self._newer[slot]
        if older:
            self._newer[older] = newer
        else:
            self._oldest = newer
        if newer:
            self._older[newer] = older
        else:
            self._newest = older

    def _append(self, slot: int) -> None:
        self._older[slot] = self._newest
        self._newer[slot] = 0
        if self._newest:
            self._newer[self._newest] = slot
        else:
            self._oldest = slot
        self._newest = slot

    def _grow(self) -> None:
        self._slot_count = min(2 * self._slot_count, self.capacity + 1)
        self._keys = _resized(self._keys, "q", self._slot_count)
        self._values = _resized(self._values, "q", self._slot_count)
        self._older = _resized(self._older, "i", self._slot_count)
        self._newer = _resized(self._newer, "i", self._slot_count)
        self._next_in_chain = _resized(self._next_in_chain, "i", self._slot_count)
        self._rebuild_chains()

    def _rebuild_chains(self) -> None:
        bits = max(self._slot_count.bit_length(), 4)
        self._shift = 64 - bits
        self._heads = array("i", bytes(4 << bits))
        slot = self._oldest
        while slot:
            bucket = self._bucket(self._keys[slot])
            self._next_in_chain[slot] = self._heads[bucket]
            self._heads[bucket] = slot
            slot = self._newer[slot]


class Engine:
    """Timestamps, conflicts, fences and the low watermark of one oracle instance."""

    def __init__(
        self,
        *,
        last_issued: int,
        conflict_map_size: int,
        max_fence_count: int = 65_536,
        seed: int = 0,
        begin_memory: int = 2**20,
    ) -> None:
        """Begin above `last_issued`, at which the low watermark stands too.

        Args:
            last_issued: No timestamp at or below it will be issued, and none that was may commit.
            conflict_map_size: Cells whose newest commit is remembered.
            max_fence_count: Tables whose newest fence is remembered.
            seed: See `OldestFirstMap`.
            begin_memory: Transactions of which it is remembered who began them.
        """
        self.last_issued = last_issued
        self.low_watermark = last_issued
        self.clock_ts = 0
        self._commits = OldestFirstMap(conflict_map_size, seed=seed)
        self._owners = OldestFirstMap(begin_memory, seed=seed)
        self._forgotten_start = last_issued
        self._max_fence_count = max_fence_count
        self._fences: dict[int, int] = {}  # the oldest first

    def issue(self) -> int:
        """Return a new timestamp: the clock's, or one step above the last if that is greater."""
        self.last_issued = max(self.last_issued + STEP, self.clock_ts)
        return self.last_issued

    def begin(self, client: int) -> int:
        """Return a new timestamp for a transaction of `client`, a number above 0; 0 is anybody."""
        start_ts = self.issue()
        self.give(start_ts, client)
        return start_ts

    def give(self, start_ts: int, client: int) -> None:
        """Let a transaction that begins at a timestamp belong to a client."""
        if self._owners.put(start_ts, client or EVERYBODYS):
            self._forgotten_start = max(self._forgotten_start, self._owners.evicted_key)

    def owner(self, start_ts: int) -> int:
        """Say whose a transaction is: a client's, `EVERYBODYS`, or nobody's, which is 0.

        It is everybody's if nobody knows any more who began it.
        """
        if start_ts <= 0 or start_ts > self.last_issued or start_ts % STEP:
            return 0
        owner = self._owners.get(start_ts)
        if owner:
            return owner
        return EVERYBODYS if start_ts <= self._forgotten_start else 0

    def commit(self, start_ts: int, cell_ids: Sequence[int], table_ids: Iterable[int]) -> int:
        """Decide a transaction and remember what it wrote.

        Args:
            start_ts: Snapshot the transaction read.
            cell_ids: Cells written; none is fine, and so are repeats.
            table_ids: Tables written, for fences.

        Returns:
            The commit timestamp, or one of the `ABORT_...` numbers, which are negative.

        Cost: O(cells), no I/O.
        """
        # First, because the other two answer from what is remembered.  A cell or a fence that is
        # not remembered may have been forgotten, and then it is at or below the watermark (I3).
        # Past this line that is below `start_ts`, so that "not remembered" means "harmless".
        if start_ts <= self.low_watermark:
            return ABORT_LOW_WATERMARK
        if self._fences:
            for table_id in table_ids:
                # Equal is allowed: Omid's clients begin a transaction at the fence's own timestamp.
                if self._fences.get(table_id, 0) > start_ts:
                    return ABORT_FENCE
        for cell in cell_ids:
            # Equal is a conflict: a snapshot does not see what was committed at its own timestamp.
            if self._commits.get(cell) >= start_ts:
                return ABORT_CONFLICT
        # Every cell is checked before the first one is noted, so that a refusal leaves no trace.
        # From here on nothing refuses: a commit that was noted for some of its cells only would let
        # a later transaction overwrite the others unseen.
        commit_ts = self.issue()
        for cell in cell_ids:
            # A full map forgets another cell's commit for this one.  If the transaction wrote more
            # cells than the map holds, that can be one of its own: the watermark is then its
            # `commit_ts`, and whatever has begun by now is refused.
            if self._commits.put(cell, commit_ts):
                self._forget_up_to(self._commits.evicted_value)
        return commit_ts

    def conflicts(self, start_ts: int, cell_ids: Iterable[int]) -> list[int]:
        """Return the cells committed at or above `start_ts`, at most `MAX_NAMED_CONFLICTS`."""
        found: list[int] = []
        for cell in cell_ids:
            if self._commits.get(cell) >= start_ts:
                found.append(cell)
                if len(found) == MAX_NAMED_CONFLICTS:
                    break
        return found

    def fence(self, table_id: int) -> int:
        """Abort, from now on, every transaction on the table that began before this moment."""
        fence_ts = self.issue()
        # A table has one place, the last: its newest fence refuses whatever an older one did.
        self._fences.pop(table_id, None)
        self._fences[table_id] = fence_ts
        # Too many fences are forgotten as cells are, by raising the watermark over the oldest: it
        # then refuses, on every table, what that fence refused on one.
        if len(self._fences) > self._max_fence_count:
            self._forget_up_to(next(iter(self._fences.values())))
        return fence_ts

    def raise_low_watermark(self, to: int) -> bool:
        """Raise the low watermark to `to`, if that is above it; say whether it moved."""
        if to <= self.low_watermark:
            return False
        # Never above the last timestamp issued: the next transaction begins above that one, and a
        # watermark above its start would refuse it before it has done anything.
        self._forget_up_to(min(to, self.last_issued))
        return True

    @property
    def fence_count(self) -> int:
        """How many tables have a fence above the low watermark."""
        return len(self._fences)

    @property
    def remembered_cell_count(self) -> int:
        """How many cells have a commit in memory."""
        return self._commits.count

    def _forget_up_to(self, low_watermark: int) -> None:
        # What was evicted may be older than a watermark that age has raised meanwhile.  Lowering it
        # again would let transactions commit that readers already take for dead (I4).
        if low_watermark <= self.low_watermark:
            return
        self.low_watermark = low_watermark
        while self._fences:
            oldest = next(iter(self._fences))
            if self._fences[oldest] > low_watermark:
                break
            del self._fences[oldest]


# -- messages --------------------------------------------------------------------------------------


def read_commit(payload: bytes) -> tuple[int, bool, tuple[int, ...], tuple[int, ...]] | None:
    """Return (start_ts, is_retry, cell ids, table ids) of a commit request.

    None if the payload is another request, or holds several.

    Raises:
        RemoteProtocolError: `decode_request` refuses it as well.

    Cost: O(bytes), whatever they are.
    """
    envelope = _Fields(payload)
    parts: list[bytes] = []
    has_others = False
    while field := envelope.next():
        if field == _COMMIT:
            parts.append(payload[envelope.first : envelope.last])
        elif field in (_TIMESTAMP, _HANDSHAKE, _FENCE, _INVALIDATE):
            has_others = True
    if has_others or not parts:
        return None
    has_start = is_retry = False
    start_ts = 0
    cell_ids: list[int] = []
    table_ids: list[int] = []
    # Two occurrences of a message are read as one, each of which must be whole by itself, as every
    # protobuf parser does.
    for part in parts:
        body = _Fields(part)
        while field := body.next():
            if field == _CELL:
                cell_ids.append(_signed(body.number))
            elif field == _CELLS:
                body.unpack(cell_ids)
            elif field == _START:
                start_ts = _signed(body.number)
                has_start = True
            elif field == _TABLE:
                table_ids.append(_signed(body.number))
            elif field == _TABLES:
                body.unpack(table_ids)
            elif field == _IS_RETRY:
                is_retry = body.number != 0
    if not has_start:
        raise RemoteProtocolError("the message lacks a start_ts")
    return start_ts, is_retry, tuple(cell_ids), tuple(table_ids)


def timestamp_frame(start_ts: int, low_watermark: int | None) -> bytes:
    """Return the frame of a `TimestampResponse`."""
    body = bytearray()
    body.append(_START)
    _put(body, start_ts)
    if low_watermark is not None:
        body += b"\xc8\x3e"  # field 1001, a number
        _put(body, low_watermark)
    return _framed(_TIMESTAMP, body)


def commit_frame(start_ts: int, commit_ts: int) -> bytes:
    """Return the frame of a `CommitResponse` that says committed."""
    body = bytearray(b"\x08\x00\x10")  # field 1: not aborted; field 2
    _put(body, start_ts)
    body.append(3 << 3)
    _put(body, commit_ts)
    return _framed(_COMMIT, body)


class _Fields:
    """The fields of a message, one after another."""

    def __init__(self, data: bytes) -> None:
        self.number = 0
        """The value of a field that is a number, without its sign."""
        self.first = 0
        self.last = 0
        """Where the bytes of a field that has a length begin, and end."""
        self._data = data
        self._end = len(data)
        self._position = 0

    def next(self) -> int:
        """Go to the next field; return its key, or 0 at the end.

        Raises:
            RemoteProtocolError: the bytes end inside a field, or hold what is no field.
        """
        while self._position < self._end:
            key = self._varint(self._end)
            if not 8 <= key <= _MAX_KEY:
                raise RemoteProtocolError(f"{key} is no protobuf field key")
            wire_type = key & 7
            if wire_type == 0:
                self.number = self._varint(self._end)
                return key
            if wire_type == 2:
                length = self._varint(self._end)
                left = self._end - self._position
                if length > left:
                    raise RemoteProtocolError(
                        f"field {key >> 3} claims {length} bytes where {left} are left"
                    )
                self.first = self._position
                self.last = self._position = self._position + length
                return key
            if wire_type not in (1, 5):
                raise RemoteProtocolError(f"field {key >> 3} has the wire type {wire_type}")
            self._position += 8 if wire_type == 1 else 4
            if self._position > self._end:
                raise RemoteProtocolError(f"the message ends inside field {key >> 3}")
        return 0

    def unpack(self, into: list[int]) -> None:
        """Append the numbers that the field's bytes are.

        Raises:
            RemoteProtocolError: they end inside a number.
        """
        self._position = self.first
        while self._position < self.last:
            into.append(_signed(self._varint(self.last)))

    def _varint(self, end: int) -> int:
        """Return the number at the position, and go behind it; it must end before `end`."""
        value = 0
        shift = 0
        while self._position < end:
            byte = self._data[self._position]
            self._position += 1
            if shift == 63 and byte > 1:
                raise RemoteProtocolError("a number has more than 64 bits")
            # The compiled form has 64 bits: what is shifted must have them, too.
            bits = byte & 0x7F
            value |= bits << shift
            if byte < 0x80:
                return value
            shift += 7
        raise RemoteProtocolError("the message ends inside a number")


def _signed(value: int) -> int:
    """Return the signed number that stands for an unsigned one of 64 bits."""
    return ~(value ^ _MASK) if value > _MAX_SIGNED else value


def _put(out: bytearray, value: int) -> None:
    """Append a signed number, seven bits a byte, lowest first."""
    rest = value & _MASK
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)


def _framed(kind: int, body: bytearray) -> bytes:
    """Return the frame of a message of less than 128 bytes."""
    size = len(body)
    return bytes((0, 0, 0, size + 2, kind, size)) + body


def _resized(old: array[int], typecode: str, length: int) -> array[int]:
    """Return a copy of `old` with zeros up to `length` items.

    The detour over bytes works for an array and for the view of one that compiled code holds.
    """
    kept = memoryview(old).cast("B").tobytes()
    itemsize = 8 if typecode == "q" else 4
    return array(typecode, kept + bytes(itemsize * length - len(kept)))
