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

A transaction belongs to the client that began it: a commit by another client, with no cells or with
other ones, would let the owner's commit be answered as a repetition, and its conflict go unseen.
Of the oldest ones this module forgets who that was, and tells it to `owners.py` before; it never
says that they are everybody's.

The module is plain Python.  `engine.pxd` beside it gives the same source C types where a compiler
is found at install time; one set of tests runs on both.

Source: Omid (FAST 2017), status oracle.  Unlike Omid we evict the oldest commit of all and not of
one bucket, which keeps the watermark as low as the capacity permits, and no cell id is special.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from omidpy.errors import RemoteProtocolError
from tso.core.memory import KeptMemory, zeros
from tso.core.shares.clients import NUMBER_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

STEP: Final = 50

ABORT_CONFLICT: Final = -1
ABORT_LOW_WATERMARK: Final = -2
ABORT_FENCE: Final = -3

EVERYBODYS: Final = -1
"""Owner of what a client began that does not say who it is."""

FORGOTTEN: Final = -2
"""Owner of what began so long ago that only `owners.py` knows whose it is."""

MAX_NAMED_CONFLICTS: Final = 64
"""Conflicting cells that one abort names."""

# The same for compiled code, where what others import is an object.
_STEP: Final = STEP
_EVERYBODYS: Final = EVERYBODYS
_NUMBER_BITS: Final = NUMBER_BITS
_FORGOTTEN: Final = FORGOTTEN
_MOST_LEAVING: Final = 8192
_STAMP_BYTES: Final = 8

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_MULTIPLIER: Final = 0x9E37_79B9_7F4A_7C15
_STEP_INVERSE: Final = pow(STEP // 2, -1, 2**64)  # what turns 50 into 2
_GROUP_BITS: Final = 16
_FIRST_SLOTS: Final = 1024
_SLOT_BYTES: Final = 21
_MIN_BITS: Final = 4
_MOST_BITS: Final = 22
_MAX_CAPACITY: Final = 2**30
_AT_HAND: Final = 4096  # settings that are surely in a processor's cache
_MARKED: Final = 2  # what is to be old once its slot is filled
_FEW_TABLES: Final = 4096
_EMPTIED_FOR_ONE: Final = 16  # places of a table that are emptied as quickly as one is filled

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

MAX_RUN_REQUESTS: Final = 1024
"""Requests that one run decides at most."""

MAX_RUN_BYTES: Final = 64 * 1024
"""Bytes of requests after which a run ends."""

RUN_NUMBERS: Final = 4096
"""Cells and tables that a commit within a run has at most."""

_MAX_BYTES: Final = MAX_RUN_BYTES
_FRAME_HEAD: Final = 4
_SHORTEST_FRAME: Final = 6
_ANSWER_HEAD: Final = 6
_MAX_ANSWER_BYTES: Final = 40
_ENTRY_BYTES: Final = 16
_IS_ABORTED: Final = 1 << 3
_ANSWERED_START: Final = 2 << 3
_ANSWERED_COMMIT: Final = 3 << 3
_WATERMARK_FIRST: Final = 0xC8
_WATERMARK_SECOND: Final = 0x3E  # field 1001, a number
_NEWEST_FENCE_FIRST: Final = 0xD0
_NEWEST_FENCE_SECOND: Final = 0x3E  # field 1002, a number


def is_compiled() -> bool:
    """Say whether this module runs as machine code."""
    return not __file__.endswith(".py")


class LatestMap:
    """A map of 64-bit integers that remembers so many of the latest settings, and no older one.

    A ring: each setting takes the next slot, once there are no new ones that of the oldest setting,
    whether its key was set again meanwhile or not.  So slots are in the order of age by themselves.
    They are numbered from 1 in flat arrays; 0 is "none".

    Each slot leads to the one that was set before it in the same hash bucket, and the bucket to the
    newest.  So a chain leads from new to old, and nothing takes out of it what is overwritten:
    where it leads to a slot that is no older, that slot was overwritten, and so was all that was
    behind.

    Cost: O(1) and at most 29 bytes a setting; most of it is waiting for memory, and
    the looks at it do not wait for one another.
    Memory grows by doubling up to `capacity` settings.
    """

    def __init__(
        self,
        capacity: int,
        *,
        seed: int = 0,
        is_reserved: bool = False,
        holds_timestamps: bool = False,
    ) -> None:
        """Start empty.

        Args:
            capacity: Settings that are remembered, at least 1.
            seed: Makes the buckets of chosen keys hard to guess.
            is_reserved: Have all of the memory at once, so that it need never grow, which takes a
                while; what is not used yet is no more than a promise of the operating system.
            holds_timestamps: Keys are timestamps.  Then some thousand that follow one another are
                neighbours in memory, since they are set and looked for together; where such a group
                is, is hard to guess as well.
        """
        if not 1 <= capacity < _MAX_CAPACITY:
            raise ValueError(f"capacity {capacity} is not between 1 and {_MAX_CAPACITY - 1}")
        self.capacity = capacity
        self.count = 0
        self.evicted_key = 0
        self.evicted_value = 0
        self.evicted_is_old = False
        self._holds_timestamps = holds_timestamps
        self._multiplier = (_MULTIPLIER + 2 * seed) & _MASK
        self._group_multiplier = self._multiplier if holds_timestamps else 0
        self._newest = 0
        self.set_count = 0
        """How many settings there ever were."""
        self._older_count = 0
        slots = (capacity if is_reserved else min(capacity, _FIRST_SLOTS)) + 1
        self._keys = zeros("q", slots)
        self._values = zeros("q", slots)
        self._before = zeros("i", slots)
        self._is_old = zeros("b", slots)
        self._slot_count = slots
        self._heads = zeros("i", 1)
        self._shift = 0
        self.unfilled = 0
        """How many slots were given to keys that do not stand in them yet; see `reserve`."""
        self._gap_first = 0
        self._gap_count = 0
        self._gap_filled = 0
        self._gap_value = 0
        self._gap_keys: Numbers | None = None
        self._rebuild_chains()

    def get(self, key: int) -> int:
        """Return the value that `key` was last set to, 0 if that is not remembered."""
        slot = self.find(key, self.count)
        return self._values[slot] if slot else 0

    def put(self, key: int, value: int) -> bool:
        """Set `key`.

        Args:
            key: Any signed 64-bit integer.
            value: Any signed 64-bit integer but 0.

        Returns:
            Whether the oldest setting had to go; `evicted_key` and `evicted_value` are what it was,
            and `evicted_is_old` whether its key is known to have been set again.
        """
        return self.put_over(key, value, self.find(key, _AT_HAND))

    def put_over(self, key: int, value: int, before: int) -> bool:
        """Do the same where it is known at which slot `key` was set lately; 0 if it was not."""
        evicted = self.count == self.capacity
        if before:
            self._is_old[before] = 1
        if evicted:
            slot = self._newest + 1 if self._newest < self.capacity else 1
            self.evicted_key = self._keys[slot]
            self.evicted_value = self._values[slot]
            self.evicted_is_old = self._is_old[slot] != 0
        else:
            if self.count + 1 == self._slot_count:
                self._grow()
            self.count += 1
            slot = self.count
        self._newest = slot
        self.set_count += 1
        self._keys[slot] = key
        self._values[slot] = value
        self._is_old[slot] = 0
        bucket = self._bucket(key)
        self._before[slot] = self._heads[bucket]
        self._heads[bucket] = slot
        return evicted

    def replace(self, key: int, value: int) -> bool:
        """Correct what `key` was last set to, leaving its age; False if that is not remembered."""
        slot = self.find(key, self.count)
        if not slot:
            return False
        self._values[slot] = value
        return True

    def recent(self, since: int) -> int:
        """Return how many of the latest settings have a value of at least `since`.

        Values must have been set in ascending order.

        Cost: O(log of the answer); it looks at little more than those.
        """
        # Snapshots that were taken one after another mostly have the same commits above them.
        known = min(self.set_count - self._older_count, self.count)
        if self._begins_at(known, since):
            return known
        known = 0
        reach = 1
        while reach <= self.count and self._value_at(reach - 1) >= since:
            known = reach
            reach *= 2
        most = min(reach - 1, self.count)
        while known < most:
            middle = (known + most + 1) // 2
            if self._value_at(middle - 1) >= since:
                known = middle
            else:
                most = middle - 1
        self._older_count = self.set_count - known
        return known

    def _begins_at(self, latest: int, since: int) -> bool:
        """Say whether so many of the latest settings, and no more, have a value from `since` on."""
        if latest and self._value_at(latest - 1) < since:
            return False
        return latest == self.count or self._value_at(latest) < since

    def _value_at(self, age: int) -> int:
        """Return the value of the setting of that age."""
        slot = self._slot(age)
        if self.unfilled and self._is_unfilled(slot):
            return self._gap_value
        return self._values[slot]

    def find(self, key: int, latest: int) -> int:
        """Return the newest slot of `key`, 0 if it is not among so many of the latest settings.

        The chain is left where it gets too old, unseen: nearly always at its first slot, which is
        somewhere in memory that no look has touched for long.
        """
        slot = self._heads[self._bucket(key)]
        age = -1
        while slot:
            age_here = self.age(slot)
            # A slot that was overwritten since it got its place in the chain is no older than the
            # one that led here.  What a bucket leads to may have been overwritten as well: then it
            # leads to keys of another bucket, and there were none of its own that are remembered.
            if age_here <= age or age_here >= latest:
                return 0
            if self._keys[slot] == key:
                return slot
            age = age_here
            slot = self._before[slot]
        return 0

    def age(self, slot: int) -> int:
        """Return the age of a slot; the newest has 0."""
        # Without a branch: half of the slots are behind the newest, and a processor that guesses
        # wrong waits for each bucket by itself.
        age = self._newest - slot
        return age + ((age >> 63) & self.capacity)

    def _slot(self, age: int) -> int:
        """Return the slot of that age; the newest has 0."""
        slot = self._newest - age
        return slot if slot > 0 else slot + self.capacity

    def _bucket(self, key: int) -> int:
        spread = key * self._multiplier + (key >> _GROUP_BITS) * self._group_multiplier
        return (spread & _MASK) >> self._shift

    # -- very many settings of one value ---------------------------------------------------------

    def reserve(self, keys: Numbers, value: int) -> int:
        """Set very many keys to one value at once, and fill in their slots little by little.

        From here on they are set: `find_beside` sees them.  As long as `unfilled` is not 0, `find`,
        `put` and `get` may not be used: they see stale slots.

        Args:
            keys: Distinct ones, so many fewer than `capacity` that the settings at hand stay.
            value: As for `put`.

        Returns:
            The greatest value that had to go of what is not known to have been set again; 0 if
            there is none.  Values must have been set in ascending order.

        Cost: O(1) but for the settings that go and are known to be old.
        """
        count = keys.count
        while self._slot_count <= self.capacity and self.count + count >= self._slot_count:
            self._grow()
        self._gap_keys = keys
        self._gap_first = self._newest + 1 if self._newest < self.capacity else 1
        self._gap_count = self.unfilled = count
        self._gap_filled = 0
        self._gap_value = value
        evicted_count = max(self.count + count - self.capacity, 0)
        forgotten = 0
        # The latest of what goes is at the end of the gap.
        for place in range(count - 1, count - 1 - evicted_count, -1):
            slot = self._gap_slot(place)
            if not self._is_old[slot]:
                forgotten = self._values[slot]
                break
        self._newest = self._gap_slot(count - 1)
        self.set_count += count
        self.count = min(self.count + count, self.capacity)
        return forgotten

    def fill(self, most: int) -> bool:
        """Fill so many slots that were reserved; say whether that was all."""
        keys = self._gap_keys
        if keys is None:
            return True
        end = min(self._gap_filled + most, self._gap_count)
        for place in range(self._gap_filled, end):
            slot = self._gap_slot(place)
            key = keys.number(place)
            bucket = self._bucket(key)
            first = self._heads[bucket]
            newer = self._newer_than(slot, first) if first else 0
            self._keys[slot] = key
            self._values[slot] = self._gap_value
            self._is_old[slot] = self._is_old[slot] == _MARKED
            if newer:
                self._before[slot] = self._before[newer]
                self._before[newer] = slot
            else:
                self._before[slot] = first
                self._heads[bucket] = slot
            self._gap_filled = place + 1
        self.unfilled = self._gap_count - self._gap_filled
        if not self.unfilled:
            self._gap_keys = None
        return not self.unfilled

    def _newer_than(self, slot: int, first: int) -> int:
        """Return the oldest slot of a chain that is newer than `slot`, 0 if there is none.

        A slot that is not filled yet leads nowhere: what was behind it was older, and went with it.
        """
        own_age = self.age(slot)
        newer = 0
        age = -1
        while first:
            age_here = self.age(first)
            if age_here <= age or age_here >= own_age or self._is_unfilled(first):
                break
            newer = first
            age = age_here
            first = self._before[first]
        return newer

    def find_beside(self, key: int, latest: int) -> int:
        """Do what `find` does, also while slots are not filled: then these may be found, too."""
        keys = self._gap_keys
        if keys is None:
            return self.find(key, latest)
        newest = self.age(self._gap_slot(self._gap_count - 1))
        slot = self._heads[self._bucket(key)]
        age = -1
        while slot:  # what was set since
            age_here = self.age(slot)
            if age_here <= age or age_here >= newest:
                break
            if age_here >= latest:
                return 0
            if self._keys[slot] == key:
                return slot
            age = age_here
            slot = self._before[slot]
        place = keys.find(key)
        if place >= self._gap_filled:
            found = self._gap_slot(place)
            return found if self.age(found) < latest else 0
        while slot:  # what was set before
            age_here = self.age(slot)
            if age_here <= age or age_here >= latest or self._is_unfilled(slot):
                return 0
            if self._keys[slot] == key:
                return slot
            age = age_here
            slot = self._before[slot]
        return 0

    def get_beside(self, key: int) -> int:
        """Do what `get` does, also while slots are not filled."""
        slot = self.find_beside(key, self.count)
        return self._value_at(self.age(slot)) if slot else 0

    def marked_beside(self, before: int) -> int:
        """Return what `put_over` is to be told of a slot that `find_beside` has found.

        A slot that is not filled yet is marked as old here, so that filling it finds the mark, and
        `put_over` is told of none.  It may be called while `room_beside` is not 0.
        """
        if before and self._is_unfilled(before):
            self._is_old[before] = _MARKED
            before = 0
        return before

    def room_beside(self) -> int:
        """Return how many settings there may be until an unfilled slot goes, or all move."""
        room = self.capacity - 1 - self.age(self._gap_slot(self._gap_filled))
        if self._slot_count <= self.capacity:
            room = min(room, self._slot_count - 1 - self.count)
        return room

    def key_at(self, age: int) -> int:
        """Return the key of the setting of that age; no slot may be unfilled."""
        return self._keys[self._slot(age)]

    def mark(self, key: int, latest: int) -> None:
        """Note that a key is being set again, if it was set among so many of the latest."""
        slot = self.find(key, latest)
        if slot:
            self._is_old[slot] = 1

    def _gap_slot(self, place: int) -> int:
        slot = self._gap_first + place
        return slot - self.capacity if slot > self.capacity else slot

    def _is_unfilled(self, slot: int) -> bool:
        place = slot - self._gap_first
        if place < 0:
            place += self.capacity
        return self._gap_filled <= place < self._gap_count

    # -- memory ----------------------------------------------------------------------------------

    def _grow(self) -> None:
        self._slot_count = min(2 * self._slot_count, self.capacity + 1)
        self._keys = _resized(self._keys, "q", self._slot_count)
        self._values = _resized(self._values, "q", self._slot_count)
        self._before = _resized(self._before, "i", self._slot_count)
        self._is_old = _resized(self._is_old, "b", self._slot_count)
        self._rebuild_chains()

    def _rebuild_chains(self) -> None:
        """Make the chains anew for more slots; none was overwritten yet."""
        bits = _bucket_bits(self._slot_count - 1)
        self._shift = 64 - bits
        if self._holds_timestamps:
            # Times this, a timestamp has the number of its step, modulo the number of buckets, in
            # its highest bits, and nothing behind them.
            self._multiplier = (_STEP_INVERSE << (self._shift - 1)) & _MASK
        self._heads = zeros("i", 1 << bits)
        for slot in range(1, self.count + 1):
            bucket = self._bucket(self._keys[slot])
            self._before[slot] = self._heads[bucket]
            self._heads[bucket] = slot


class Numbers:
    """Distinct numbers, in the order in which they came, of very many: read, then told apart.

    Both take long, and are done little by little.
    """

    def __init__(self, most: int, *, seed: int, memory: KeptMemory | None = None) -> None:
        """Have room for so many; `seed` is as for `LatestMap`, and `memory` may have the room."""
        self.total = 0
        """How many came, those that repeat others among them."""
        self.count = 0
        """How many of them were told apart, which stand first."""
        self._memory = memory
        self._numbers = self._room("q", most)
        self._seen = 0
        self._emptied = 0
        self._multiplier = (_MULTIPLIER + 2 * seed) & _MASK
        self._shift = 64 - _MIN_BITS
        self._last_bucket = (1 << _MIN_BITS) - 1
        self._places = zeros("i", 1 << _MIN_BITS)

    def __len__(self) -> int:
        return self.total

    def __iter__(self) -> Iterator[int]:
        # Refers to these numbers until its end: without a reference their memory is another's.
        yield from memoryview(self._numbers)[: self.count if self.is_sorted else self.total]

    @property
    def is_sorted(self) -> bool:
        """Whether all were told apart."""
        return self._seen == self.total

    def add(self, number: int) -> None:
        """Take one more; there must be room, and none may have been told apart."""
        self._numbers[self.total] = number
        self.total += 1

    def sort(self, most: int) -> bool:
        """Tell so many more from those before; say whether those were all.

        Before the first of them the table of their places is emptied, little by little as well.
        """
        if not self._emptied:
            bits = max((2 * self.total).bit_length(), _MIN_BITS)
            self._shift = 64 - bits
            self._last_bucket = (1 << bits) - 1
            self._places = self._room("i", 1 << bits)
        if self._emptied <= self._last_bucket:
            end = min(self._emptied + _EMPTIED_FOR_ONE * most, self._last_bucket + 1)
            for place in range(self._emptied, end):
                self._places[place] = 0
            self._emptied = end
            if end <= self._last_bucket:
                return False
        end = min(self._seen + most, self.total)
        for place in range(self._seen, end):
            number = self._numbers[place]
            bucket = self._bucket(number)
            if not self._places[bucket]:
                self._numbers[self.count] = number
                self.count += 1
                self._places[bucket] = self.count
        self._seen = end
        return end == self.total

    def _room(self, typecode: str, count: int) -> array[int]:
        if self._memory is None:
            return zeros(typecode, count)
        room = self._memory.take(typecode, count)
        self._memory.give_back(self, typecode, room)
        return room

    def find(self, number: int) -> int:
        """Return the place of a number; -1 if it is not among those that were told apart."""
        return self._places[self._bucket(number)] - 1

    def number(self, place: int) -> int:
        """Return the number at a place."""
        return self._numbers[place]

    def _bucket(self, number: int) -> int:
        """Return where the place of a number stands, or would."""
        bucket = ((number * self._multiplier) & _MASK) >> self._shift
        while (place := self._places[bucket]) and self._numbers[place - 1] != number:
            bucket = bucket + 1 & self._last_bucket
        return bucket


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
        is_reserved: bool = False,
        keep: Callable[[Mapping[int, bytearray]], None] | None = None,
    ) -> None:
        """Begin above `last_issued`, at which the low watermark stands too.

        Args:
            last_issued: No timestamp at or below it will be issued, and none that was may commit.
            conflict_map_size: Writes of cells that are remembered, the latest ones.
            max_fence_count: Tables whose newest fence is remembered.
            seed: See `LatestMap`.
            begin_memory: Transactions of which it is remembered who began them.
            is_reserved: See `LatestMap`.
            keep: Is told who began what, of those that are forgotten here and may still commit; see
                `settle`.
        """
        self.last_issued = last_issued
        self.low_watermark = last_issued
        self.clock_ts = 0
        self.newest_fence = 0
        """Of any table; 0 if this instance has set none."""
        self._commits = LatestMap(conflict_map_size, seed=seed, is_reserved=is_reserved)
        self._owners = LatestMap(
            begin_memory, seed=seed, is_reserved=is_reserved, holds_timestamps=True
        )
        self._forgotten_start = last_issued
        self._forgotten_owned = 0
        self._keep = keep
        self._leaving_bytes = bytearray(_STAMP_BYTES * _MOST_LEAVING)
        self._leaving = memoryview(self._leaving_bytes).cast("q")
        self.leaving_count = 0
        """How many were forgotten here and not told yet."""
        self._leaving_owner = 0
        self._run_owners = array("q", bytes(_STAMP_BYTES * _MOST_LEAVING))
        self._run_firsts = array("q", bytes(_STAMP_BYTES * _MOST_LEAVING))
        self._run_count = 0
        self.memory = KeptMemory()
        """Where long commits stand while they are under way."""
        self._seed = seed
        self._max_fence_count = max_fence_count
        self._fences: dict[int, int] = {}  # the oldest first

    def issue(self) -> int:
        """Return a new timestamp: the clock's, or one step above the last if that is greater."""
        self.last_issued = max(self.last_issued + _STEP, self.clock_ts)
        return self.last_issued

    def begin(self, client: int) -> int:
        """Return a new timestamp for a transaction of `client`, a number above 0; 0 is anybody."""
        start_ts = self.issue()
        self.give(start_ts, client)
        return start_ts

    def give(self, start_ts: int, client: int) -> None:
        """Let a transaction that begins at a timestamp belong to a client."""
        if self._owners.put(start_ts, client or _EVERYBODYS):
            self._forgotten_start = max(self._forgotten_start, self._owners.evicted_key)
            # What is at or below the watermark commits no more (I4), whosever it is.
            if (
                self._owners.evicted_value != _EVERYBODYS
                and self._owners.evicted_key > self.low_watermark
            ):
                self._let_go(self._owners.evicted_key, self._owners.evicted_value)

    def _let_go(self, start_ts: int, owner: int) -> None:
        """Forget who began a transaction that may still commit."""
        self._forgotten_owned = start_ts
        if self._keep is None:
            return
        if self.leaving_count == _MOST_LEAVING:
            self.settle()
        # Under load a client's begins follow one another.
        if owner != self._leaving_owner or not self.leaving_count:
            self._leaving_owner = owner
            self._run_owners[self._run_count] = owner
            self._run_firsts[self._run_count] = self.leaving_count
            self._run_count += 1
        self._leaving[self.leaving_count] = start_ts
        self.leaving_count += 1

    def settle(self) -> None:
        """Tell all that was forgotten: `keep` knows it then.

        It hears what each client began, which are numbers of eight bytes, in ascending order.
        """
        if self._keep is None or not self.leaving_count:
            return
        begun: dict[int, bytearray] = {}
        for run in range(self._run_count):
            first = self._run_firsts[run]
            end = self.leaving_count
            if run + 1 < self._run_count:
                end = self._run_firsts[run + 1]
            stamps = self._leaving_bytes[_STAMP_BYTES * first : _STAMP_BYTES * end]
            owner = self._run_owners[run]
            if owner in begun:
                begun[owner] += stamps
            else:
                begun[owner] = stamps
        self.leaving_count = self._run_count = 0
        self._keep(begun)

    def owner(self, start_ts: int) -> int:
        """Say whose a transaction is: a client's, `EVERYBODYS`, or 0 for one that was never begun.

        `FORGOTTEN` is a client's that only `keep` knows, or was never begun.
        """
        if start_ts <= 0 or start_ts > self.last_issued or start_ts % _STEP:
            return 0
        owner = self._owners.get(start_ts)
        if owner:
            return owner
        if start_ts > self._forgotten_start:
            return 0
        return _FORGOTTEN if start_ts <= self._forgotten_owned else _EVERYBODYS

    def commit(self, start_ts: int, cell_ids: Sequence[int], table_ids: Iterable[int]) -> int:
        """Decide a transaction and remember what it wrote.

        Args:
            start_ts: Snapshot the transaction read.
            cell_ids: Cells written; none is fine, and so are repeats.
            table_ids: Tables written, for fences.

        Returns:
            The commit timestamp, or one of the `ABORT_...` numbers, which are negative.

        Cost: O(cells), no I/O; of a `LongCommit` that was examined, what was not.
        """
        if isinstance(cell_ids, LongCommit):
            return self._decide_long(start_ts, cell_ids)
        cells = array("q", cell_ids)
        tables = array("q", table_ids)
        return self.decide(start_ts, cells, len(cells), tables, len(tables))

    def decide(
        self,
        start_ts: int,
        cells: array[int],
        cell_count: int,
        tables: array[int],
        table_count: int,
    ) -> int:
        """Do the same with the first so many numbers of arrays."""
        # First, because the other two answer from what is remembered.  A cell or a fence that is
        # not remembered may have been forgotten, and then it is at or below the watermark (I3).
        # Past this line that is below `start_ts`, so that "not remembered" means "harmless".
        if start_ts <= self.low_watermark:
            return ABORT_LOW_WATERMARK
        if self._fences:
            for place in range(table_count):
                # Equal is allowed: Omid's clients begin a transaction at the fence's own timestamp.
                if self._fences.get(tables[place], 0) > start_ts:
                    return ABORT_FENCE
        commits = self._commits
        # What a long commit wrote may not be in its place yet: then cells are found beside it.
        is_filling = commits.unfilled != 0
        if is_filling and cell_count > commits.room_beside():
            commits.fill(_MAX_CAPACITY)
            is_filling = False
        # Equal is a conflict: a snapshot does not see what was committed at its own timestamp.
        recent = commits.recent(start_ts) if cell_count else 0
        if recent:
            for place in range(cell_count):
                cell = cells[place]
                if is_filling:
                    before = commits.find_beside(cell, recent)
                else:
                    before = commits.find(cell, recent)
                if before:
                    return ABORT_CONFLICT
        # Every cell is checked before the first one is noted, so that a refusal leaves no trace.
        # From here on nothing refuses: a commit that was noted for some of its cells only would let
        # a later transaction overwrite the others unseen.
        commit_ts = self.issue()
        noted = 0
        for place in range(cell_count):
            cell = cells[place]
            # Only among what is still at hand: that finds what is set all the time.  To look
            # further would cost more than all the rest.
            at_hand = max(noted, _AT_HAND)
            if is_filling:
                before = commits.find_beside(cell, at_hand)
            else:
                before = commits.find(cell, at_hand)
            # A cell that is repeated takes no second place from others.
            if before and commits.age(before) < noted:
                continue
            noted += 1
            if is_filling:
                before = commits.marked_beside(before)
            # A full map forgets a commit of some cell for this one.  If the transaction wrote more
            # cells than the map holds, that can be one of its own: the watermark is then its
            # `commit_ts`, and whatever has begun by now is refused.
            if commits.put_over(cell, commit_ts, before):
                forgotten_ts = commits.evicted_value
                if forgotten_ts > self.low_watermark and not commits.evicted_is_old:
                    self._forget_up_to(forgotten_ts)
        return commit_ts

    # -- long commits ----------------------------------------------------------------------------

    def long_commit(self, data: bytes | bytearray, first: int, end: int, most: int) -> LongCommit:
        """Begin to read a commit request; see `LongCommit`."""
        return LongCommit(data, first, end, most, seed=self._seed, memory=self.memory)

    def may_slice(self, commit: LongCommit) -> bool:
        """Say whether a commit that was read may be sorted, and given to `commit` as it is.

        It may not where the map is so small that it would push out what is at hand; then `commit`
        is to be given the numbers.
        """
        return commit.cells.total + _AT_HAND <= self._commits.capacity

    def examine(self, commit: LongCommit, most: int) -> bool:
        """Look at so many more cells of a commit that was sorted; True if all are looked at.

        Nothing changes by it.  Each cell is looked for once among all that is remembered, and from
        the first look on whatever is set is looked for among the cells.  So once nothing is left,
        every cell is known to be free of commits from `start_ts` on, up to this moment.  What is
        forgotten meanwhile is at or below the low watermark (I3), which `commit` looks at last.
        """
        commits = self._commits
        if commits.unfilled:
            commits.fill(most)
            return False
        if commit.examined_count < 0:
            commit.examined_count = 0
            commit.set_count = commits.set_count
        cells = commit.cells
        if commit.examined_count < cells.count:
            end = min(commit.examined_count + most, cells.count)
            recent = commits.recent(commit.start_ts)
            if recent:
                for place in range(commit.examined_count, end):
                    cell = cells.number(place)
                    if commits.find(cell, recent):
                        commit.name(cell)
            commit.examined_count = end
        elif not commit.conflicts:
            left = min(commits.set_count - commit.set_count, commits.count)
            count = min(left, most)
            for age in range(left - 1, left - 1 - count, -1):
                cell = commits.key_at(age)
                if cells.find(cell) >= 0:
                    commit.name(cell)
            commit.set_count = commits.set_count - (left - count)
        return commit.examined_count == cells.count and (
            bool(commit.conflicts) or commit.set_count == commits.set_count
        )

    def fill(self, most: int) -> bool:
        """Put so much of what a long commit wrote into its place; True if nothing is left."""
        return self._commits.fill(most)

    @property
    def unfilled_count(self) -> int:
        """How many writes of a long commit are not in their place yet."""
        return self._commits.unfilled

    def _decide_long(self, start_ts: int, commit: LongCommit) -> int:
        """Decide a long commit: what was examined ahead is not looked at again.

        Cost: O(what was not examined yet, and the tables or fences).
        """
        assert commit.start_ts == start_ts, "it was examined for another snapshot"
        assert self.may_slice(commit), "it would push out what it marks, and itself"
        if start_ts <= self.low_watermark:
            return ABORT_LOW_WATERMARK
        if self._fences and self._is_fenced(start_ts, commit.tables):
            return ABORT_FENCE
        while not commit.sort(_MAX_CAPACITY):
            pass
        while not self.examine(commit, _MAX_CAPACITY):
            pass
        if commit.conflicts:
            return ABORT_CONFLICT
        cells = commit.cells
        commit_ts = self.issue()
        # As when each is noted after the other: what is at hand grows older by the ones before.
        for place in range(min(cells.count, _AT_HAND)):
            self._commits.mark(cells.number(place), _AT_HAND - place)
        if cells.count:
            forgotten_ts = self._commits.reserve(cells, commit_ts)
            if forgotten_ts > self.low_watermark:
                self._forget_up_to(forgotten_ts)
        return commit_ts

    def _is_fenced(self, start_ts: int, tables: Numbers) -> bool:
        """Say whether one of the tables has a fence above a snapshot."""
        tables.sort(_MAX_CAPACITY)
        if tables.count <= _FEW_TABLES:
            for place in range(tables.count):
                if self._fences.get(tables.number(place), 0) > start_ts:
                    return True
            return False
        for table in reversed(self._fences):
            if self._fences[table] <= start_ts:
                return False
            if tables.find(table) >= 0:
                return True
        return False

    def conflicts(self, start_ts: int, cell_ids: Iterable[int]) -> list[int]:
        """Return the cells committed at or above `start_ts`, at most `MAX_NAMED_CONFLICTS`.

        Of a long commit those that were found when it was examined.
        """
        if isinstance(cell_ids, LongCommit):
            return list(cell_ids.conflicts)
        found: list[int] = []
        for cell in cell_ids:
            if self._commits.get_beside(cell) >= start_ts:
                found.append(cell)
                if len(found) == MAX_NAMED_CONFLICTS:
                    break
        return found

    def fence(self, table_id: int) -> int:
        """Abort, from now on, every transaction on the table that began before this moment."""
        fence_ts = self.issue()
        # A table has one place, the last: its newest fence refuses whatever an older one did.
        self._fences.pop(table_id, None)
        self._fences[table_id] = self.newest_fence = fence_ts
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
        """How many writes of cells are in memory."""
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


def read_commit(
    payload: bytes, most: int
) -> tuple[int, bool, tuple[int, ...], tuple[int, ...]] | None:
    """Return (start_ts, is_retry, cell ids, table ids) of a commit request.

    None if the payload is another request, or holds several.

    Args:
        payload: The bytes.
        most: Cells, and tables, that a commit may have.  All of them are read, but only one beyond
            that is returned, since it refuses the commit as well as a million would; and a number
            of one byte would become an object of forty.

    Raises:
        RemoteProtocolError: `decode_request` refuses it as well.

    Cost: O(bytes), whatever they are.
    """
    commit = LongCommit(payload, 0, len(payload), most, seed=0)
    while not commit.read(_MAX_CAPACITY):
        pass
    if not commit.is_commit:
        return None
    return commit.start_ts, commit.is_retry, tuple(commit.cells), tuple(commit.tables)


class LongCommit:
    """A commit request that is read, sorted and examined little by little.

    To have it decided before all of that is done is to wait for the rest.
    """

    def __init__(
        self,
        data: bytes | bytearray,
        first: int,
        end: int,
        most: int,
        *,
        seed: int,
        memory: KeptMemory | None = None,
    ) -> None:
        """Begin to read.

        Args:
            data: Where the payload is, which must not change until it is read.
            first: Where the payload begins.
            end: Where it ends.
            most: See `read_commit`.
            seed: See `LatestMap`.
            memory: Where the cells are to stand; None: in memory that is new.
        """
        self.start_ts = 0
        self.is_retry = False
        self.is_commit = False
        """Whether it is a commit request at all, once it is read."""
        room = min(most + 1, end - first)
        self.cells = Numbers(room, seed=seed, memory=memory)
        self.tables = Numbers(room, seed=seed)
        self.examined_count = -1
        """How many cells were looked for; -1: that has not begun."""
        self.set_count = 0
        """How many settings the conflict map had when the last one of them was looked for."""
        self.conflicts: list[int] = []
        """Cells that were committed at or above `start_ts`, not all of them."""
        self._room = room
        self._data = data
        self._first = first
        self._end = end
        self._envelope: _Fields | None = _Fields(data, first, end)
        self._body: _Fields | None = None
        self._packed_key = 0
        self._is_scanned = False
        self._has_others = False
        self._has_start = False

    def __len__(self) -> int:
        return self.cells.total

    def __iter__(self) -> Iterator[int]:
        return iter(self.cells)

    def name(self, cell: int) -> None:
        """Note a conflict with a cell, once, up to `MAX_NAMED_CONFLICTS`."""
        if len(self.conflicts) < MAX_NAMED_CONFLICTS and cell not in self.conflicts:
            self.conflicts.append(cell)

    def sort(self, most: int) -> bool:
        """Tell so many more numbers from the others; say whether those were all."""
        if not self.cells.is_sorted:
            self.cells.sort(most)
            return False
        return self.tables.sort(most)

    def read(self, most: int) -> bool:
        """Read so many more fields and numbers; say whether those were all.

        Raises:
            RemoteProtocolError: see `read_commit`.
        """
        envelope = self._envelope
        if envelope is None:
            return True
        left = most
        # First all of the envelope: what is wrong with it, or another request in it, comes first.
        while not self._is_scanned:
            if not left:
                return False
            left -= 1
            field = envelope.next()
            if field == _COMMIT:
                self.is_commit = True
            elif field in (_TIMESTAMP, _HANDSHAKE, _FENCE, _INVALIDATE):
                self._has_others = True
            elif not field:
                self._is_scanned = True
                if self._has_others or not self.is_commit:
                    self.is_commit = False
                    self._end_reading()
                    return True
                envelope = self._envelope = _Fields(self._data, self._first, self._end)
        # Two occurrences of a message are read as one, each of which must be whole by itself, as
        # every protobuf parser does.
        while left:
            body = self._body
            if body is None:
                left -= 1
                field = envelope.next()
                if field == _COMMIT:
                    self._body = _Fields(self._data, envelope.first, envelope.last)
                elif not field:
                    if not self._has_start:
                        raise RemoteProtocolError("the message lacks a start_ts")
                    self._end_reading()
                    return True
            elif self._packed_key:
                left = self._unpack(body, left)
            else:
                left -= 1
                self._take_field(body)
        return False

    def _take_field(self, body: _Fields) -> None:
        field = body.next()
        if field == _CELL:
            if self.cells.total < self._room:
                self.cells.add(_signed(body.number))
        elif field in (_CELLS, _TABLES):
            self._packed_key = field
            body.enter()
        elif field == _START:
            self.start_ts = _signed(body.number)
            self._has_start = True
        elif field == _TABLE:
            if self.tables.total < self._room:
                self.tables.add(_signed(body.number))
        elif field == _IS_RETRY:
            self.is_retry = body.number != 0
        elif not field:
            self._body = None

    def _unpack(self, body: _Fields, left: int) -> int:
        """Take numbers of a packed field; return how much is left to do now."""
        numbers = self.cells if self._packed_key == _CELLS else self.tables
        while left:
            if not body.has_more():
                self._packed_key = 0
                break
            left -= 1
            value = body.take()
            if numbers.total < self._room:
                numbers.add(_signed(value))
        return left

    def _end_reading(self) -> None:
        self._envelope = self._body = None
        self._data = b""


def timestamp_frame(
    start_ts: int, low_watermark: int | None, newest_fence: int | None = None
) -> bytes:
    """Return the frame of a `TimestampResponse`."""
    body = bytearray()
    body.append(_START)
    _put(body, start_ts)
    if low_watermark is not None:
        body += bytes((_WATERMARK_FIRST, _WATERMARK_SECOND))
        _put(body, low_watermark)
    if newest_fence is not None:
        body += bytes((_NEWEST_FENCE_FIRST, _NEWEST_FENCE_SECOND))
        _put(body, newest_fence)
    return _framed(_TIMESTAMP, body)


def commit_frame(start_ts: int, commit_ts: int) -> bytes:
    """Return the frame of a `CommitResponse` that says committed."""
    body = bytearray((_IS_ABORTED, 0, _ANSWERED_START))
    _put(body, start_ts)
    body.append(_ANSWERED_COMMIT)
    _put(body, commit_ts)
    return _framed(_COMMIT, body)


class _Fields:
    """The fields of a message, one after another."""

    def __init__(self, data: bytes | bytearray, first: int, end: int) -> None:
        self.number = 0
        """The value of a field that is a number, without its sign."""
        self.first = 0
        self.last = 0
        """Where the bytes of a field that has a length begin, and end."""
        self._data = data
        self._end = end
        self._position = first

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

    def enter(self) -> None:
        """Go back to where the field's bytes begin, which are numbers for `take`."""
        self._position = self.first

    def has_more(self) -> bool:
        """Say whether numbers are left of the field that was entered."""
        return self._position < self.last

    def take(self) -> int:
        """Return the next number of the field that was entered.

        Raises:
            RemoteProtocolError: its bytes end inside a number.
        """
        return self._varint(self.last)

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


# -- runs ------------------------------------------------------------------------------------------


class Decisions:
    """What was decided lately, for retries and duplicates."""

    def __init__(
        self, capacity: int, *, forgotten_start: int, seed: int, is_reserved: bool = False
    ) -> None:
        """Remember so many decisions; know nothing of transactions up to `forgotten_start`."""
        self.forgotten_start = forgotten_start
        """At or below it a transaction may have been decided and forgotten."""
        self._decided = LatestMap(
            capacity, seed=seed, is_reserved=is_reserved, holds_timestamps=True
        )

    def get(self, start_ts: int) -> int:
        """Return what was decided about a transaction; 0 if nothing is remembered."""
        return self._decided.get(start_ts)

    def note(self, start_ts: int, decision: int) -> None:
        """Remember a decision, and forget the oldest where there are too many."""
        if self._decided.put(start_ts, decision):
            self.forgotten_start = max(self.forgotten_start, self._decided.evicted_key)

    def replace(self, start_ts: int, decision: int) -> None:
        """Correct a decision, if it is still remembered."""
        self._decided.replace(start_ts, decision)


class Tally:
    """What one share was given, added up where that costs least; see `rates.py`."""

    def __init__(self) -> None:
        """Add up for no share, until `rates.py` names one."""
        self.share = -1
        """Whose; -1 is that of no share."""
        self.cells_count = 0
        """Cells that it wrote."""
        self.request_count = 0
        """Begins and commits."""


class Run:
    """The ordinary requests that a client sent one after another, from bytes to bytes.

    Ordinary are begins without a hold, and first commits of transactions of which everything is
    known: who began them, and that nothing was decided about them or forbidden; but no refusal that
    must be explained.  What is anything else, or not plainly readable, ends the run and leaves no
    trace; `machine.py` goes on with it, and would have made the same of each request before it.

    Nothing here is an object for each request: that costs ten times what the decision does.
    """

    def __init__(
        self,
        engine: Engine,
        decisions: Decisions,
        *,
        max_commit_cells: int,
        invalidated: set[int],
        tally: Tally | None = None,
    ) -> None:
        """Decide with what `machine.py` decides with as well.

        Args:
            engine: Timestamps, cells, fences.
            decisions: What was decided lately.
            max_commit_cells: Cells and tables that one commit may have.
            invalidated: Transactions that must not commit.
            tally: Where what one share takes is added up.
        """
        self.request_count = 0
        """Requests that the last run decided, each with an answer."""
        self.commit_count = 0
        """Granted commits among them."""
        self.refused_count = 0
        """Refused commits among them."""
        self.written_count = 0
        """Cells of the granted commits."""
        self.early_count = 0
        """Requests before the first commit that was granted."""
        self.early_ts = 0
        """The timestamp of the last begin among those; 0 if there is none."""
        self.is_tallied = False
        """Whether all of that was added up here, so that the machine need not."""
        self._tally = Tally() if tally is None else tally
        self._engine = engine
        self._decisions = decisions
        self._max_numbers = min(max_commit_cells, RUN_NUMBERS)
        self._invalidated = invalidated
        self._cells = array("q", bytes(8 * RUN_NUMBERS))
        self._cell_count = 0
        self._tables = array("q", bytes(8 * RUN_NUMBERS))
        self._table_count = 0
        self._entry_bytes = bytearray(_ENTRY_BYTES * MAX_RUN_REQUESTS)
        self._entries = memoryview(self._entry_bytes).cast("q")
        self._answer_bytes = bytearray(_MAX_ANSWER_BYTES * MAX_RUN_REQUESTS)
        self._answers = self._answer_bytes
        self._length = 0
        self._early_length = 0
        self._client = 0
        self._shows_watermark = False
        self._tells_why = False
        self._nothing: bytes | bytearray = b""
        self._data: bytes | bytearray = self._nothing
        self._value = 0

    def take(
        self,
        data: bytes | bytearray,
        client: int,
        shows_watermark: bool,  # noqa: FBT001 - a name costs time with each read
        tells_why: bool,  # noqa: FBT001
        at_most: int,
    ) -> int:
        """Decide what is ordinary at the beginning of `data`; return how many bytes that was.

        Args:
            data: Frames, the last of which may be unfinished.
            client: Who sent them; 0 is anybody.
            shows_watermark: Whether the client is told the low watermark, and the newest fence.
            tells_why: Whether the client is told why a commit is refused, which ends the run.
            at_most: Requests; further ones are left, as are those beyond `MAX_RUN_REQUESTS` and
                `MAX_RUN_BYTES`.

        Cost: O(bytes), no I/O.
        """
        self.request_count = self.commit_count = self.refused_count = 0
        self.written_count = self.early_count = self.early_ts = 0
        self._length = self._early_length = 0
        self._client = client
        self._shows_watermark = shows_watermark
        self._tells_why = tells_why
        self._data = data
        try:
            taken = self._take(len(data), min(at_most, MAX_RUN_REQUESTS))
        finally:
            # The conversation owns the bytes, and may cut them again.
            self._data = self._nothing
        self.is_tallied = self._client >> _NUMBER_BITS == self._tally.share
        if self.is_tallied:
            self._tally.cells_count += self.written_count
            self._tally.request_count += self.request_count
        return taken

    def entries(self) -> bytearray:
        """Return start_ts and commit_ts of each granted commit of the last run.

        They are numbers of eight bytes, as an `array("q")` has them.
        """
        return self._entry_bytes[: _ENTRY_BYTES * self.commit_count]

    def early_answers(self) -> bytes:
        """Return the frames that answer what came before the first granted commit."""
        return bytes(self._answer_bytes[: self._early_length])

    def late_answers(self) -> bytes:
        """Return the frames that answer the first granted commit, and what came behind it."""
        return bytes(self._answer_bytes[self._early_length : self._length])

    def _take(self, size: int, most: int) -> int:
        position = 0
        while (
            self.request_count < most
            and position < _MAX_BYTES
            and size - position >= _SHORTEST_FRAME
        ):
            length = 0
            for place in range(position, position + _FRAME_HEAD):
                byte = self._data[place]
                length = length << 8 | byte
            first = position + _FRAME_HEAD
            if length < _SHORTEST_FRAME - _FRAME_HEAD or length > size - first:
                break
            # What an ordinary request has is less, and fields of nothing take as long as numbers.
            if length > _MAX_BYTES:
                break
            if (
                length == _SHORTEST_FRAME - _FRAME_HEAD
                and self._data[first] == _TIMESTAMP
                and self._data[first + 1] == 0
            ):
                self._begin()
            elif not self._commit(first, first + length):
                break
            self.request_count += 1
            position = first + length
        if not self.commit_count:
            self._end_early()
        return position

    def _end_early(self) -> None:
        """Note that whatever was answered so far came before the first granted commit."""
        self.early_count = self.request_count
        self._early_length = self._length

    def _begin(self) -> None:
        start_ts = self._engine.begin(self._client)
        if not self.commit_count:
            self.early_ts = start_ts
        body = self._length + _ANSWER_HEAD
        self._answers[body] = _START
        end = self._write(body + 1, start_ts)
        if self._shows_watermark:
            self._answers[end] = _WATERMARK_FIRST
            self._answers[end + 1] = _WATERMARK_SECOND
            end = self._write(end + 2, self._engine.low_watermark)
            if self._engine.newest_fence > self._engine.low_watermark:
                self._answers[end] = _NEWEST_FENCE_FIRST
                self._answers[end + 1] = _NEWEST_FENCE_SECOND
                end = self._write(end + 2, self._engine.newest_fence)
        self._enclose(end, _TIMESTAMP)

    def _commit(self, first: int, end: int) -> bool:
        """Read and decide a commit request; False leaves it as if it had not been seen."""
        position = self._read(first + 1, end)
        if self._data[first] != _COMMIT or position < 0:
            return False
        left = end - position
        if self._value != left or not left or self._data[position] != _START:
            return False
        position = self._read(position + 1, end)
        if position < 0:
            return False
        start_ts = _signed(self._value)
        self._cell_count = self._table_count = 0
        while position < end:
            key = self._data[position]
            # The number, or the length of several.
            position = self._read(position + 1, end)
            if position < 0:
                return False
            if key == _CELL:
                if not self._keep_cell():
                    return False
            elif key == _TABLE:
                if not self._keep_table():
                    return False
            elif key in (_CELLS, _TABLES):
                left = end - position
                if self._value > left:
                    return False
                last = position + self._value
                while position < last:
                    position = self._read(position, last)
                    if position < 0:
                        return False
                    if not (self._keep_cell() if key == _CELLS else self._keep_table()):
                        return False
            else:
                return False
        return self._is_fresh(start_ts) and self._decide(start_ts)

    def _keep_cell(self) -> bool:
        """Note the number just read as a cell; False if there are too many."""
        if self._cell_count + self._table_count >= self._max_numbers:
            return False
        self._cells[self._cell_count] = _signed(self._value)
        self._cell_count += 1
        return True

    def _keep_table(self) -> bool:
        """Note the number just read as a table; False if there are too many."""
        if self._cell_count + self._table_count >= self._max_numbers:
            return False
        self._tables[self._table_count] = _signed(self._value)
        self._table_count += 1
        return True

    def _is_fresh(self, start_ts: int) -> bool:
        """Say whether a transaction is the client's, and surely neither decided nor forbidden."""
        owner = self._engine.owner(start_ts)
        if not owner or owner not in (_EVERYBODYS, self._client):
            return False
        if start_ts <= self._decisions.forgotten_start or self._decisions.get(start_ts):
            return False
        # What is barred has been forgotten, so that it was refused above.
        return not (self._invalidated and start_ts in self._invalidated)

    def _decide(self, start_ts: int) -> bool:
        """Decide what was read; False leaves no trace of it."""
        decision = self._engine.decide(
            start_ts, self._cells, self._cell_count, self._tables, self._table_count
        )
        if decision < 0:
            if self._tells_why:
                return False
            self.refused_count += 1
        elif not self.commit_count:
            self._end_early()
        self._decisions.note(start_ts, decision)
        body = self._length + _ANSWER_HEAD
        self._answers[body] = _IS_ABORTED
        self._answers[body + 1] = decision < 0
        self._answers[body + 2] = _ANSWERED_START
        end = self._write(body + 3, start_ts)
        if decision > 0:
            self._entries[2 * self.commit_count] = start_ts
            self._entries[2 * self.commit_count + 1] = decision
            self.commit_count += 1
            self.written_count += self._cell_count
            self._answers[end] = _ANSWERED_COMMIT
            end = self._write(end + 1, decision)
        self._enclose(end, _COMMIT)
        return True

    def _write(self, place: int, value: int) -> int:
        """Write a number into the answers; return the place behind it."""
        rest = value & _MASK
        while rest > 0x7F:
            self._answers[place] = rest & 0x7F | 0x80
            place += 1
            rest >>= 7
        self._answers[place] = rest
        return place + 1

    def _enclose(self, end: int, kind: int) -> None:
        """Write what stands before an answer of less than 128 bytes, and end it."""
        head = self._length
        size = end - head - _ANSWER_HEAD
        for place in range(3):
            self._answers[head + place] = 0
        self._answers[head + 3] = size + 2
        self._answers[head + 4] = kind
        self._answers[head + 5] = size
        self._length = end

    def _read(self, position: int, end: int) -> int:
        """Read the number at a position; return the one behind it.

        Returns:
            -1 unless the number ends before `end` and has 64 bits.
        """
        value = 0
        shift = 0
        while position < end:
            byte = self._data[position]
            position += 1
            if shift == 63 and byte > 1:
                return -1
            bits = byte & 0x7F
            value |= bits << shift
            if byte < 0x80:
                self._value = value
                return position
            shift += 7
        return -1


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


def map_bytes(capacity: int) -> int:
    """Return how much memory a `LatestMap` takes when it is full."""
    return _SLOT_BYTES * (capacity + 1) + (4 << _bucket_bits(capacity))


def _bucket_bits(capacity: int) -> int:
    """Return the logarithm of the number of buckets.

    Very large maps have several settings for each: nearly every look ends at what a bucket leads
    to, whose age tells that all behind it is older than what is asked for, and so many buckets as
    there may be settings would fit into no cache: with 16 million of them, a commit of ten cells
    took a quarter longer.
    """
    return min(max((capacity - 1).bit_length(), _MIN_BITS), _MOST_BITS)


def map_capacity(size_bytes: float) -> int:
    """Return how many settings a `LatestMap` may have that takes so much memory.

    0 if there is none, or none that is so large.
    """
    least, most = 0, _MAX_CAPACITY - 1
    if size_bytes > map_bytes(most):
        return 0
    while least < most:
        middle = (least + most + 1) // 2
        if map_bytes(middle) <= size_bytes:
            least = middle
        else:
            most = middle - 1
    return least


def _resized(old: array[int], typecode: str, length: int) -> array[int]:
    """Return a copy of `old` with zeros up to `length` items.

    The detour over bytes works for an array and for the view of one that compiled code holds.
    """
    kept = memoryview(old).cast("B")
    resized = zeros(typecode, length)
    memoryview(resized).cast("B")[: len(kept)] = kept
    return resized
