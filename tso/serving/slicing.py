"""Who of those with long requests is served next, and how much of it in one turn of the loop?

`core/shares/slices.py` says what a slice is; here they are done, one request after another in the
order in which they came, between the turns of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omidpy.base.reach import reached
from omidpy.base.timing.clock import Clock
from omidpy.errors import RemoteProtocolError
from tso.core.machine import Machine
from tso.core.shares.slices import LongRequest
from tso.serving.connection import Connection

SLICED_S: Final = 0.25
"""After so long a heavy request gets a second slice in each turn of the loop, and so on."""

ALL_SLICES: Final = 2**14
"""More slices than any request takes."""

_FRAME_HEAD: Final = 4


class Slicing:
    """What is read slice by slice."""

    def __init__(
        self, machine: Machine[Connection], clock: Clock, *, soon: Callable[[], object]
    ) -> None:
        """Have nothing to read; `soon` lets `go_on` be called in the next turn of the loop."""
        self._machine = machine
        self._clock = clock
        self._soon = soon
        self._long: dict[Connection, LongRequest] = {}
        self._is_due = False
        self._since_s: float | None = None
        """Since when the first of them has been read."""

    def __contains__(self, connection: Connection) -> bool:
        """Say whether a request of a connection is read."""
        return connection in self._long

    def read(self, connection: Connection, frame: bytearray) -> None:
        """Begin to read a request; in the end `Connection.end_long` is called."""
        self._long[connection] = self._machine.long_request(frame, _FRAME_HEAD, len(frame))
        self.come_soon()

    def forget(self, connection: Connection) -> None:
        """Drop what a connection asked that is closed."""
        if self._long.pop(connection, None) is not None:
            reached("oracle.long_left_between_slices", "I9")

    def finish_first(self) -> None:
        """Read the one to its end that is under way."""
        for connection, request in list(self._long.items())[:1]:
            reached("oracle.long_ended_at_once", "I2")
            self._go_on(connection, request, ALL_SLICES)

    def come_soon(self) -> None:
        """Go on in the next turn of the loop."""
        if not self._is_due:
            self._is_due = True
            self._soon()

    def go_on(self) -> None:
        """Do a slice of what takes long: one in a turn of the loop, or more if that lasts."""
        self._is_due = False
        now_s = self._clock.monotonic_s()
        if self._since_s is None:
            self._since_s = now_s
        slice_count = 1 + int((now_s - self._since_s) / SLICED_S)
        if not self._machine.is_filled:
            self._machine.fill(slice_count)
            if self._long:
                reached("oracle.long_behind_long", "I3")
        elif self._long:
            connection, request = next(iter(self._long.items()))
            if self._go_on(connection, request, slice_count):
                self._since_s = None
        if self._long or not self._machine.is_filled:
            self.come_soon()
        else:
            self._since_s = None

    def _go_on(self, connection: Connection, request: LongRequest, slice_count: int) -> bool:
        """Go on with a long request; say whether it is dealt with."""
        try:
            while not request.go_on(slice_count):
                if slice_count < ALL_SLICES:
                    return False
        except RemoteProtocolError as error:
            del self._long[connection]
            connection.abort(str(error))
        else:
            del self._long[connection]
            connection.end_long(request.request)
        return True
