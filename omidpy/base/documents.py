"""Of what is stored as JSON: which numbers can be what they say, and what cannot be read.

A bit that turns in a stored number leaves JSON that can be read.  So a field of a stored document
says what it can be, and what it cannot be is malformed like anything else: an obstacle, and never
believed.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from omidpy.model import MAX_VERSION

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)]
"""A count, a version, a moment: never below 0, and of 63 bits."""

Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_VERSION)]
"""A length of time, or the number of something that is there."""

Moment: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=253_402_300_799_999)]
"""Milliseconds since 1970 that a date can be made of: up to the year 9999."""

UNREADABLE: Final = (msgspec.DecodeError, TypeError, RecursionError)
"""What a decoder raises of bytes that are no such document: of any, the last where they are nested
thousands deep."""
