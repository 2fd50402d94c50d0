"""Of what is stored as JSON: which numbers can be what they say, and what cannot be read.

A bit that turns in a stored number leaves JSON that can be read.  So a field of a stored document
says what it can be, and what it cannot be is malformed like anything else: an obstacle, and never
believed.

And by which types may be decoded?  By what is `prepared`, since that may be done in any thread.
"""

from __future__ import annotations

import os
import threading
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from omidpy.base.within import within
from omidpy.model import MAX_VERSION

K = TypeVar("K")

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]
"""A count, a version, a moment: never below 0, and of 63 bits."""

Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
"""A length of time, or the number of something that is there."""

Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970 that a date can be made of: up to the year 9999."""

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, TypeError, RecursionError)
"""What a decoder raises of bytes that are no such document: the second where a text in them is no
UTF-8, the last where they are nested thousands deep."""

_prepared: set[object] = set()
_preparing = threading.Lock()


def prepared(kind: K) -> K:
    """Return a type by which something is decoded or converted next, known to msgspec as a whole.

    msgspec finds out what a class consists of when it is first asked for it, and shows that to
    other threads before it is done: where two came first at once, one of them ended the process.
    """
    if kind not in _prepared:
        within(_preparing, _prepare, kind)
    return kind


def _prepare(kind: object) -> None:
    msgspec.msgpack.Decoder(kind)
    _prepared.add(kind)


# A child would have for ever what another thread of its parent had half done.
os.register_at_fork(
    before=_preparing.acquire,
    after_in_parent=_preparing.release,
    after_in_child=_preparing.release,
)
