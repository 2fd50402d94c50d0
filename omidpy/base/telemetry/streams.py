"""Standard streams of a program that was started without some of them, as by `2>&-`.

The next file that is opened gets the number of one that is closed, be it a store: what somebody
writes to his standard error then, a library or a child process, would be written into that.  And
where Python has no stderr, what was meant for it goes to stdout.

And a word on stderr may find nobody who takes it, as on a full disk, or behind a terminal that has
gone: what a program does is not ended by that.

Libraries leave the streams of their process alone; this is for programs.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Final, TextIO

_STANDARD: Final = 3
"""So many numbers mean a stream in every process."""


def fill_closed_streams() -> None:
    """Give /dev/null to each standard stream that is closed."""
    filler = os.open(os.devnull, os.O_RDWR)
    while filler < _STANDARD:
        os.set_inheritable(filler, True)  # as the others are
        filler = os.open(os.devnull, os.O_RDWR)
    os.close(filler)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123 - for as long as the process lives
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 - see above


def tell(line: str, stream: TextIO | None = None) -> None:
    """Write a line to stderr, or another stream; where nobody takes it the program goes on."""
    with suppress(OSError):
        print(line, file=stream or sys.stderr, flush=True)
