"""Text for a terminal, a log or the store, from any writer of it or speaker on a socket.

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


def storable(text: str) -> str:
    """Return `text` with halves of surrogate pairs escaped, which cannot be written.

    Python puts them into names of files that are no UTF-8, and so into what its errors say.  Who
    could not write down why something failed could not end it.
    """
    return text.encode(errors="backslashreplace").decode()
