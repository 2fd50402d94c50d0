"""Where do very many numbers stand, and what becomes of that memory?

Memory that is new costs time when it is first written: a page of 2 MiB takes a fifth of a
millisecond where the kernel has one, and five where a host must find it first.  So what held the
numbers of one heavy request is kept for the next one, and given back when there is none for long.

Pure, but for the memory.
"""

from __future__ import annotations

import mmap as mmap_module
import weakref
from array import array
from contextlib import suppress
from mmap import mmap
from typing import Final, cast

KEPT_S: Final = 60.0
"""How long memory that is not used is kept."""

_LARGE_BYTES: Final = 2**21
_ITEM_BYTES: Final = {"q": 8, "i": 4, "b": 1}


def zeros(typecode: str, count: int) -> array[int]:
    """Return so many zeros, in memory that is taken when they are first written.

    Much of it is in pages of 2 MiB where there are any: what is looked at next is anywhere, and
    with pages of 4 KiB nearly each look would wait for the address as well.
    """
    size = count * _ITEM_BYTES[typecode]
    if size < _LARGE_BYTES:
        return array(typecode, bytes(size))
    # Shared memory, which is what `mmap` makes unless it is told otherwise, has no large pages.
    private = getattr(mmap_module, "MAP_PRIVATE", None)
    memory = (
        mmap(-1, size)
        if private is None
        else mmap(-1, size, flags=private | mmap_module.MAP_ANONYMOUS)
    )
    if (huge_pages := getattr(mmap_module, "MADV_HUGEPAGE", None)) is not None:
        with suppress(OSError):
            memory.madvise(huge_pages)
    return cast("array[int]", memoryview(memory).cast(typecode))  # type: ignore[call-overload]


class KeptMemory:
    """Memory for numbers of which each has one user at a time, and which the next one finds."""

    def __init__(self, *, least_bytes: int = _LARGE_BYTES) -> None:
        """Keep nothing yet, and later nothing that is smaller than `least_bytes`."""
        self._least_bytes = least_bytes
        self._kept: dict[str, array[int]] = {}
        """By the kind of its numbers, one of each."""
        self._is_used = False
        self._used_s = 0.0

    @property
    def kept_bytes(self) -> int:
        """How many bytes are kept unused."""
        return sum(_ITEM_BYTES[kind] * len(one) for kind, one in self._kept.items())

    def take(self, typecode: str, count: int) -> array[int]:
        """Return room for so many numbers at least, in which anything may stand."""
        self._is_used = True
        kept = self._kept.pop(typecode, None)
        if kept is not None and len(kept) >= count:
            return kept
        return zeros(typecode, count)

    def give_back(self, user: object, typecode: str, memory: array[int]) -> None:
        """Keep memory for the next one, as soon as no reference to its user is left."""
        if _ITEM_BYTES[typecode] * len(memory) >= self._least_bytes:
            weakref.finalize(user, self._keep, typecode, memory).atexit = False

    def _keep(self, typecode: str, memory: array[int]) -> None:
        kept = self._kept.get(typecode)
        if kept is None or len(kept) < len(memory):
            self._kept[typecode] = memory

    def pass_time(self, now_s: float) -> None:
        """Let memory go that was not asked for in `KEPT_S`; `now_s` is what time it is."""
        if self._is_used:
            self._is_used = False
            self._used_s = now_s
        elif self._kept and now_s - self._used_s >= KEPT_S:
            self._kept.clear()
