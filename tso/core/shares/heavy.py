"""When is a request served that takes long, so that hardly anybody has to wait for it?

A commit of a million cells takes the event loop a tenth of a second.  It is cut into slices, see
`slices.py`, each of which is short; but many of them add up.  So a client that asks alone waits for
nothing, and while others ask too, the heavy requests of all clients together come at a pace that
leaves them a few hundredths of the loop: few ordinary requests then meet one.

No client starves: they are served in the order in which they came, one of each client at a time,
one in a turn of the loop, and each after `MAX_WAIT_S` at the latest, which is shorter than clients
wait for an answer.  The order of one client's requests stays as it is, since it is not read from
while one of them waits.  Who has many connections and sends ever so much is slowed down no further.

Pure: no clock and no timer.
"""

from __future__ import annotations

from math import inf
from typing import Final, Generic

from tso.core.events import Ticket

HEAVY_BYTES: Final = 128 * 1024
"""A longer request is heavy: some 13,000 cells, which take a millisecond or two."""

HEAVY_BYTES_PER_S: Final = 256 * 1024
"""The pace of heavy requests while others ask: after one of so many bytes the next waits 1 s."""

MAX_WAIT_S: Final = 4.0
"""How long a heavy request waits at most; our clients wait 5 s for an answer."""


class HeavyTurns(Generic[Ticket]):
    """Who waits with a heavy request, and when the next one may be served."""

    def __init__(self) -> None:
        """Let the first one be served at once."""
        self._free_s = -inf
        self._waiting: dict[Ticket, tuple[float, int]] = {}
        self._granted: set[Ticket] = set()
        self._served_s: dict[Ticket, float] = {}

    def __contains__(self, ticket: Ticket) -> bool:
        """Say whether a client waits."""
        return ticket in self._waiting

    def may_go(self, ticket: Ticket, size_bytes: int, now_s: float, *, others_ask: bool) -> bool:
        """Say whether a heavy request may be served now; if not, it waits for `next`.

        Args:
            ticket: Whose it is.
            size_bytes: What it takes.
            now_s: What time it is, in seconds.
            others_ask: Whether anybody would have to wait for it.
        """
        if ticket in self._granted:
            self._granted.discard(ticket)
            return True
        if self._waiting or (others_ask and now_s < self._free_s):
            self._waiting.setdefault(ticket, (now_s, size_bytes))
            return False
        self._note(ticket, size_bytes, now_s)
        return True

    @property
    def due_s(self) -> float | None:
        """When `next` will name a client; None while none waits."""
        for since_s, _ in self._waiting.values():
            return min(self._free_s, since_s + MAX_WAIT_S)
        return None

    def next(self, now_s: float) -> Ticket | None:
        """Return who waited longest, if that one may go now: `may_go` will say so."""
        due_s = self.due_s
        if due_s is None or now_s < due_s:
            return None
        ticket = next(iter(self._waiting))
        _, size_bytes = self._waiting.pop(ticket)
        self._granted.add(ticket)
        self._note(ticket, size_bytes, now_s)
        return ticket

    def last_s(self, ticket: Ticket) -> float:
        """Return when a client's last heavy request was let go; long ago if it had none."""
        return self._served_s.get(ticket, -inf)

    def forget(self, ticket: Ticket) -> None:
        """Drop a client that has left."""
        self._waiting.pop(ticket, None)
        self._granted.discard(ticket)
        self._served_s.pop(ticket, None)

    def _note(self, ticket: Ticket, size_bytes: int, now_s: float) -> None:
        self._free_s = now_s + size_bytes / HEAVY_BYTES_PER_S
        self._served_s[ticket] = now_s
