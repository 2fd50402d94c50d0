"""How many bytes are `50MB`?  Sizes as operators write them: a number and, mostly, a unit.

Units of ten and of two are told apart as everywhere: 1 MB is 1,000,000 bytes, 1 MiB is 1,048,576.
"""

from __future__ import annotations

import re
from typing import Final

EXAMPLES: Final = "500kB, 50MB or 1GiB"

_UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)")


def size_bytes(text: str) -> float | None:
    """Return the bytes in a size; None if the text is none."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        return None
    return float(match[1]) * _UNITS[match[2]]
