"""Blocking calls, awaited: in which thread they run, in what order, and what a cancellation does.

A thread cannot be stopped.  So a task that is cancelled while a call is under way waits until it
has ended: the next call never meets a half-done one, and the objects need no locks.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, suppress
from contextvars import copy_context
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, Self, TypeVar, cast

from omidpy.base.callers.pools import submitted
from omidpy.base.reach import reached
from omidpy.errors import OmidError, StorageUnavailable, UsageError
from omidpy.tx.writes.buffer import WriteBuffer

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

STOPPED: Final = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)
"""What a task is ended with from outside: a cancellation, or what a signal's handler raises."""


class _NoThread(StorageUnavailable):
    """A call was not made."""


class Threads:
    """Runs calls in threads, any number of them at the same time.  Also after a fork."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._is_closed = False
        self._start()

    def _start(self) -> None:
        self._pool = ThreadPoolExecutor(self._size, thread_name_prefix="omidpy-aio")
        self._pid = os.getpid()

    async def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the call returns; leave only once it has ended, cancelled or not.

        It runs in a copy of the caller's context.

        Raises:
            UsageError: they were closed; the call does not run.
            StorageUnavailable: the system lets no thread start; nor does it run then.
        """
        if self._is_closed:
            raise UsageError("this manager is closed; connect again")
        if self._pid != os.getpid():
            # The pool believes in threads that are the parent's: no call would ever begin.
            self._start()
        return await _run_in(self._pool.submit, function, *args, **kwargs)

    async def end(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run what ends something that was begun: also where no thread can start, or none may.

        Then it runs here, while the loop waits: what was begun ends all the same, and says itself
        what it still can of a store that was closed.
        """
        if self._is_closed:
            return copy_context().run(function, *args, **kwargs)
        return await surely(self.run, function, *args, **kwargs)

    def close(self) -> None:
        """Take no more calls, but those that end something."""
        self._is_closed = True
        self._pool.shutdown(wait=False)


class Lane:
    """Runs calls in threads, one at a time and in the order in which they were made."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        """Whose tasks it serves; None before the first call."""

    @property
    def _turn(self) -> asyncio.Lock:
        """What hands out the turns.

        Raises:
            UsageError: this is another event loop, which nobody would wake when its turn comes.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None and not self._is_abandoned(self._loop):
                raise UsageError(
                    "it belongs to another event loop: begin another one in this loop, or hand the "
                    "call over by asyncio.run_coroutine_threadsafe"
                )
            self._loop, self._lock = loop, asyncio.Lock()
        return self._lock

    def _is_abandoned(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Say whether a loop will never go on, and has left no call under way."""
        return loop.is_closed() and not self._lock.locked()

    async def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Return what the call returns; see `Threads.run`."""
        async with self._turn:
            return await self._threads.run(function, *args, **kwargs)

    async def write(
        self,
        function: Callable[[], R],
        buffer: WriteBuffer,
        name: str,
        forget: Callable[[], object] | None = None,
    ) -> R:
        """Return what a call returns that writes; see `Threads.run`.

        Who is cancelled while it is under way is not told what became of it, and may catch that and
        go on: what was written must not be committed.  So that is noted before the call, and taken
        back when its caller is told: nobody has to do anything when an interrupt comes, or another
        one behind that.  One that is cancelled before its turn has written nothing.

        Args:
            function: The call.
            buffer: Where it writes.
            name: What it is called.
            forget: Called where it is cancelled under way, before any other call has its turn, if
                the caller knows better what must not be committed.
        """
        async with self._turn:
            call = object()
            buffer.begin_half(call, cancelled_text(name))
            try:
                result = await self._threads.run(function)
            except STOPPED:
                if forget is not None:
                    forget()
                    buffer.end_half(call)
                raise
            except Exception:
                buffer.end_half(call)
                raise
            buffer.end_half(call)
            return result

    async def at_once(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that asks no store, in its turn, and here.

        A task that is cancelled is so before it: once it is done nothing is awaited any more.
        """
        async with self._turn:
            return function(*args, **kwargs)

    async def enter(self, block: AbstractContextManager[object]) -> None:
        """Enter a block; a task cancelled meanwhile leaves it before any other call comes."""
        is_entered = False

        def enter() -> None:
            nonlocal is_entered
            block.__enter__()
            is_entered = True

        async with self._turn:
            try:
                await self._threads.run(enter)
            except STOPPED:
                # The thread could not be stopped, and the block that would have ended what was
                # begun there never runs.
                if is_entered:
                    reached("aio.left_as_it_was_entered", "I9")
                    leave = functools.partial(block.__exit__, asyncio.CancelledError, None, None)
                    await outlast(asyncio.ensure_future(self._threads.end(leave)))
                raise

    async def finish(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a call that must take place even if it is cancelled while it waits for its turn."""

        async def in_turn() -> R:
            async with self._turn:
                return await self._threads.end(function, *args, **kwargs)

        return await outlast(asyncio.ensure_future(in_turn()))


async def apart(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a call in a thread of the event loop; see `Threads.run`."""
    submit = functools.partial(asyncio.get_running_loop().run_in_executor, None)
    return await _run_in(submit, function, *args, **kwargs)


async def _run_in(
    submit: Callable[..., Any],
    function: Callable[P, R],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    made = submitted(submit, functools.partial(copy_context().run, function, *args, **kwargs))
    if made is None:
        raise _NoThread(
            "a call was not made, since no thread can be started for it; allow this user more "
            "processes (ulimit -u), or this container (pids.max)"
        )
    return await outlast(asyncio.wrap_future(made))


class Run(Protocol):
    """Runs a call in a thread."""

    def __call__(
        self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        """Return what the call returns; leave only once it has ended, cancelled or not."""
        ...


async def surely(run: Run, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a call that must take place: here, while the loop waits, where no thread can start."""
    try:
        return await run(function, *args, **kwargs)
    except _NoThread:
        return copy_context().run(function, *args, **kwargs)


async def opened_by(run: Run, open_one: Callable[[], R], close: Callable[[R], object]) -> R:
    """Return what a call opens; a task cancelled meanwhile closes it, since nobody else has it."""
    opened: list[R] = []
    try:
        await run(lambda: opened.append(open_one()))
    except STOPPED:
        for one in opened:
            with suppress(OmidError):  # the canceller wants no more of it
                await outlast(asyncio.ensure_future(surely(run, close, one)))
        raise
    return opened[0]


async def outlast(future: asyncio.Future[R]) -> R:
    """Return a result; leave only once it is there, however often this is cancelled meanwhile.

    An interrupt that comes while the task has its step, and not while the loop waits, is raised
    here: it waits as well, or two threads would have the transaction.
    """
    stopped: BaseException | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except STOPPED as error:
            if stopped is None or isinstance(stopped, asyncio.CancelledError):
                stopped = error  # to be cancelled says less than an interrupt
    if stopped is None:
        return future.result()
    if not future.cancelled():
        # What it raised shows in the transaction's state; the canceller wants no more of it.
        future.exception()
    raise stopped


# -- from a blocking method to its twin ------------------------------------------------------------
#
# A twin has `blocking`, the object that it drives, and `lane`, in which that object's calls run.
# One that writes has `buffer`, in which what it belongs to collects that.


def awaited(
    function: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the method that awaits a blocking one."""

    @functools.wraps(function)
    async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        # `blocking` is looked up in the lane too: finding a table may read its layout.
        return cast("R", await self.lane.run(lambda: function(self.blocking, *args, **kwargs)))

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]", call)


def written(
    function: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]:
    """Return the method that awaits a blocking one that writes; see `Lane.write`."""

    @functools.wraps(function)
    async def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(
            "R",
            await self.lane.write(
                lambda: function(self.blocking, *args, **kwargs), self.buffer, function.__name__
            ),
        )

    return cast("Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]", call)


def cancelled_text(name: str) -> str:
    """Say why a transaction must not be committed in which a call was cancelled."""
    return (
        f"{name}() was cancelled while it was under way, as by a timeout, so that its caller was "
        "not told whether that is in the transaction; let the block end by it, or put a savepoint "
        "around it"
    )


def iterated(
    function: Callable[Concatenate[Any, P], Iterator[R]], *, most: int = 1000
) -> Callable[Concatenate[Any, P], AsyncIterator[R]]:
    """Return the method that iterates over what a blocking one yields; see `Fetched`."""

    @functools.wraps(function)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> Fetched[R]:
        return Fetched(self.lane, lambda: function(self.blocking, *args, **kwargs), most=most)

    return cast("Callable[Concatenate[Any, P], AsyncIterator[R]]", call)


class Fetched(AsyncIterator[R]):
    """What a blocking iterator yields: opened when the first item is asked for.

    Items are fetched 1, 2, 4 and so on at a time, `most` at the most: the first comes soon, and
    many come in one call.  What was fetched is there for whoever asks next: tasks may share it, and
    one that is cancelled while it waits, as by a timeout, takes nothing with it.
    """

    def __init__(self, lane: Lane, opened: Callable[[], Iterator[R]], *, most: int = 1000) -> None:
        """Open it in a thread of `lane`, and fetch there."""
        self._lane = lane
        self._open = opened
        self._most = most
        self._items: Iterator[R] | None = None
        # Filled by a thread in one step, and emptied in the event loop: tasks may share it.
        self._ready: deque[R] = deque()
        self._failure: Exception | None = None
        """What follows what is ready."""
        self.has_ended = False
        """Whether nothing more will be fetched."""
        self._is_begun = False
        self._is_closed = False
        self._size = 1

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> R:
        while not self._ready:
            if self._is_closed or self.has_ended:
                raise StopAsyncIteration
            self._is_begun = True
            await self._lane.run(self._turn)
        return self._ready.popleft()

    async def aclose(self) -> None:
        """Free what it holds; one that is iterated to its end holds nothing."""
        self._is_closed = True
        self._ready.clear()
        if self._is_begun:  # also where it is only being opened
            await self._lane.finish(self._close)

    def _close(self) -> None:
        self._items = None  # of which a generator frees what it holds
        self._ready.clear()  # of a page that was fetched before this one's turn

    def _turn(self) -> None:
        if self._ready or self._is_closed:
            return  # another task has waited for the same, or closed it
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self._items is None:
            self._items = self._open()
        page: list[R] = []
        try:
            for one in islice(self._items, self._size):
                page.append(one)  # noqa: PERF402 - kept if the next one fails
        except Exception as error:
            if not page:
                raise
            # What came before it is handed out first.
            self._failure = error
        else:
            self.has_ended = not page
        self._ready.extend(page)
        self._size = min(self._size * 2, self._most)


def opening(
    function: Callable[Concatenate[Any, P], R],
    twin: Callable[[Any, R], S],
    *,
    close: Callable[[R], object] = lambda _: None,
) -> Callable[Concatenate[Any, P], Opening[S]]:
    """Return the method that opens what a blocking one returns, as its twin.

    Args:
        function: The blocking one.
        twin: Makes the twin.
        close: What is done with it where the task is cancelled and nobody gets it.
    """

    @functools.wraps(function)
    def call(self: Any, *args: P.args, **kwargs: P.kwargs) -> Opening[S]:
        async def opened() -> S:
            blocking = await opened_by(
                self.lane.run, lambda: function(self.blocking, *args, **kwargs), close
            )
            return twin(self, blocking)

        return Opening(opened)

    return cast("Callable[Concatenate[Any, P], Opening[S]]", call)


class Opening(Awaitable[R], AbstractAsyncContextManager[R], Generic[R]):
    """Something about to be opened: `await` it, or open and close it by `async with`."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self._open = opened
        self._context: AbstractAsyncContextManager[Any] | None = None

    def __await__(self) -> Generator[Any, None, R]:
        return self._open().__await__()

    async def __aenter__(self) -> R:
        value: Any = await self._open()
        self._context = value
        entered: R = await value.__aenter__()
        return entered

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        assert self._context is not None, "entered before"
        return await self._context.__aexit__(exc_type, exc, traceback)
