"""The twins of the change feed and of waiting for a row."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Self

from omidpy.aio.lanes import Lane
from omidpy.model import Change, Timestamp
from omidpy.reading.changes import feed

MOST_AT_ONCE = 1000


class ChangeFeed(AsyncIterator[Change]):
    """Twin of `omidpy.ChangeFeed`; its `until` is known once the first change was asked for."""

    def __init__(self, lane: Lane, opened: Callable[[], feed.ChangeFeed]) -> None:
        """Open it in a thread, when the first change is asked for."""
        self._lane = lane
        self._open = opened
        self._blocking: feed.ChangeFeed | None = None
        # Filled by a thread in one step, and emptied in the event loop: tasks may share the feed.
        self._ready: deque[tuple[Change, Timestamp | None]] = deque()
        self._failure: Exception | None = None
        """What follows what is ready."""
        self._has_ended = False
        self._is_closed = False
        self._size = 1
        self.offset: Timestamp | None = None
        """As in the blocking one; None also before the first change was asked for."""

    @property
    def until(self) -> Timestamp | None:
        """The commit timestamp up to which they go; None before the first page."""
        return None if self._blocking is None else self._blocking.until

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        while not self._ready:
            if self._is_closed:
                raise StopAsyncIteration
            if self._has_ended:
                assert self._blocking is not None, "opened for the first page"
                self.offset = self._blocking.offset
                raise StopAsyncIteration
            await self._lane.run(self._turn)
        change, self.offset = self._ready.popleft()
        return change

    async def aclose(self) -> None:
        """Free what the feed holds; one that is iterated to its end holds nothing."""
        self._is_closed = True
        self._ready.clear()
        if self._blocking is not None:
            await self._lane.finish(self._close, self._blocking)

    def _close(self, blocking: feed.ChangeFeed) -> None:
        blocking.close()
        self._ready.clear()  # of a page that was fetched before this one's turn

    def _turn(self) -> None:
        """Fetch more, 1, 2, 4 and so on at a time: the first comes soon, and many in one call."""
        if self._ready or self._is_closed:
            return  # another task has waited for the same, or closed the feed
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._blocking is None:
            self._blocking = self._open()
        blocking = self._blocking
        page: list[tuple[Change, Timestamp | None]] = []
        try:
            for one in islice(blocking, self._size):
                page.append((one, blocking.offset))  # noqa: PERF401 - kept if the next one fails
        except Exception as error:
            if not page:
                raise
            # What came before it is handed out first: the blocking feed counts it as seen.
            self._failure = error
        else:
            self._has_ended = not page
        self._ready.extend(page)
        self._size = min(self._size * 2, MOST_AT_ONCE)


async def watched(lane: Lane, opened: Callable[[], feed.RowWatch]) -> list[Change]:
    """Wait until a row has changed, or the time is over; between two looks no thread waits."""
    watch = await lane.run(opened)
    while True:
        found = await lane.run(watch.look)
        if found or (pause_s := watch.pause_s()) is None:
            return list(found)
        await asyncio.sleep(pause_s)
