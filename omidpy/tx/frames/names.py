r"""Names of columns as text, for the maps of frames, and back.

A qualifier is any bytes, and the keys of a map are text.  What is no UTF-8 is written as Python and
HBase's shell do it, `\xff`.  So that no two columns have one name, and each name leads back to its
own column, a backslash that would be read as the beginning of such a byte is written as one itself,
`\x5c`.
"""

from __future__ import annotations

import re
from typing import Final

_LIKE_A_BYTE: Final = re.compile(rb"\\(?=x[0-9a-fA-F]{2})")
_BYTE: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


def text_of(column: bytes) -> str:
    """Return the name of a column as text."""
    if b"\\" in column:
        column = _LIKE_A_BYTE.sub(rb"\\x5c", column)
    return column.decode(errors="backslashreplace")


def column_of(text: str) -> bytes:
    """Return the column that `text_of` has named so."""
    column = text.encode()
    if b"\\" in column:
        return _BYTE.sub(lambda found: bytes.fromhex(found[1].decode()), column)
    return column
