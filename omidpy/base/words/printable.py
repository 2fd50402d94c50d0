"""Text for a terminal or a log, from any writer of the store or speaker on a socket.

A name in a hostile store may hold what moves the cursor, rewrites lines above, or turns the reading
direction round.  Whatever a person could not read as itself is shown as an escape.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """Return `text` with everything escaped that is not printable, but for line ends and tabs."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text
    )
