"""What does a long request take, one slice of a third of a millisecond after the other?

A commit of a million cells takes a tenth of a second from its bytes to its places in the conflict
map.  Only its decision must be one with nothing in between, and that is as short as any once the
rest is done: ahead of it the request is read, its cells are told apart, and each is looked for in
the map; behind it they are put into their places.  What others commit in between is decided as if
the long one had been decided all at once, see `LongCommit` and `LatestMap.reserve` in `engine.py`.

Nothing is changed before the decision: a request that is given up leaves nothing behind.

Pure: no clock, and nothing to wait for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from omidpy.base.reach import reached
from omidpy.model import CellId, TableId, Timestamp
from omidpy.wire.messages import CommitRequest

if TYPE_CHECKING:
    from tso.core.engine import Engine, LongCommit

READ_AT_ONCE: Final = 32_768
"""Fields and numbers of a request that one slice reads."""

SORTED_AT_ONCE: Final = 16_384
"""Numbers that one tells apart."""

EXAMINED_AT_ONCE: Final = 8192
"""Cells that one looks for in the map, or cells of the map that it looks for among them."""

FILLED_AT_ONCE: Final = 8192
"""Cells that one puts into their places."""


class LongRequest:
    """A request that is read and made ready for its decision slice by slice."""

    def __init__(
        self, engine: Engine, data: bytes | bytearray, first: int, end: int, most: int
    ) -> None:
        """Begin with the payload between two places of `data`; `most` is as for `read_commit`."""
        self.request: CommitRequest | None = None
        """What was asked, once all slices are done; None if it is no commit."""
        self._engine = engine
        self._commit: LongCommit = engine.long_commit(data, first, end, most)
        self._most = most

    def go_on(self, slice_count: int) -> bool:
        """Do so many slices, at least 1; say whether those were all.

        Raises:
            RemoteProtocolError: see `read_commit`.
        """
        commit, engine = self._commit, self._engine
        if not commit.read(slice_count * READ_AT_ONCE):
            return False
        if not commit.is_commit:
            return True
        cells = cast("tuple[CellId, ...]", commit)
        # Of what is too large no more is looked at than how many cells there are.
        is_decided = len(commit) + len(commit.tables) <= self._most
        if is_decided and engine.may_slice(commit):
            if not commit.sort(slice_count * SORTED_AT_ONCE):
                return False
            if not engine.examine(commit, slice_count * EXAMINED_AT_ONCE):
                if commit.examined_count == commit.cells.count:
                    reached("oracle.committed_beside_long", "I3")
                return False
        elif is_decided:
            cells = tuple(map(CellId, commit.cells))
        self.request = CommitRequest(
            Timestamp(commit.start_ts),
            cells,
            cast("tuple[TableId, ...]", commit.tables),
            commit.is_retry,
        )
        return True
