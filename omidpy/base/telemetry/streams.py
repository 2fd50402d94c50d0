"""Standard streams of a program that was started without some of them, as by `2>&-`.

The next file that is opened gets the number of one that is closed, be it a store: what somebody
writes to his standard error then, a library or a child process, would be written into that.  And
where Python has no stderr, what was meant for it goes to stdout.

Libraries leave the streams of their process alone; this is for programs, as they begin.
"""

from __future__ import annotations

import os
import sys
from typing import Final

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
