"""The twins of the change feed and of waiting for a row."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Self

from omidpy.aio.lanes import Fetched, Lane
from omidpy.model import Change, Timestamp
from omidpy.reading.changes import feed


class ChangeFeed(AsyncIterator[Change]):
    """Twin of `omidpy.ChangeFeed`; its `until` is known once the first change was asked for."""

    def __init__(self, lane: Lane, opened: Callable[[], feed.ChangeFeed]) -> None:
        """Open it in a thread, when the first change is asked for."""
        self._lane = lane
        self._open = opened
        self._blocking: feed.ChangeFeed | None = None
        self._fetched = Fetched(lane, self._opened)
        self.offset: Timestamp | None = None
        """As in the blocking one; None also before the first change was asked for."""

    @property
    def until(self) -> Timestamp | None:
        """The commit timestamp up to which they go; None before the first page."""
        return None if self._blocking is None else self._blocking.until

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        try:
            change, self.offset = await anext(self._fetched)
        except StopAsyncIteration:
            if self._fetched.has_ended:
                assert self._blocking is not None, "opened for the first page"
                self.offset = self._blocking.offset
            raise
        return change

    async def aclose(self) -> None:
        """Free what the feed holds; one that is iterated to its end holds nothing."""
        await self._fetched.aclose()
        if self._blocking is not None:
            await self._lane.finish(self._blocking.close)

    def _opened(self) -> Iterator[tuple[Change, Timestamp | None]]:
        self._blocking = blocking = self._open()
        # The offset goes with what is handed on, not with what was fetched; and a generator would
        # end where the feed fails.
        return map(lambda change: (change, blocking.offset), blocking)  # noqa: C417 - see above


async def watched(lane: Lane, opened: Callable[[], feed.RowWatch]) -> list[Change]:
    """Wait until a row has changed, or the time is over; between two looks no thread waits."""
    watch = await lane.run(opened)
    while True:
        found = await lane.run(watch.look)
        if found or (pause_s := watch.pause_s()) is None:
            return list(found)
        await asyncio.sleep(pause_s)
