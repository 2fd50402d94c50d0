"""Parts of pages, each asked for by itself and within a time.

A store, or an oracle, that does not answer must not keep a page from saying so.  So a part is
loaded in a thread of its own, and a page waits for all of its parts for a moment together.  A part
that is late is shown as it was last, or as late; its thread goes on, and the next page shows what
it has found: a count of a long table needs no more than a second look.

A page that asks for what is being loaded waits for the same, so that pages that are asked for again
and again do not ask a store for more than one of each.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

from omidpy.base.timing.clock import SystemClock
from omidpy.base.within import within
from omidpy.errors import OmidError

logger = logging.getLogger(__name__)

DEADLINE_S: Final = 3.0
"""How long a page waits for its parts."""

MAX_LOADING: Final = 32
"""Parts that are loaded at once; further ones are not begun."""

MAX_KEPT: Final = 64
"""Parts that are remembered as they were last."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a page shows, and where it comes from."""

    key: str
    """Tells it apart from all others, of other pages too."""
    title: str
    load: Callable[[], Any]
    """Runs in a thread; what it returns is what the template calls `found`."""
    may_be_s: float = 0.0
    """How old what it returned may be; 0: it is asked for anew."""

    @property
    def template(self) -> str:
        """What it is shown by: the first word of its key is the name."""
        return f"{self.key.partition(' ')[0]}.html"


@dataclass(frozen=True, slots=True)
class Shown:
    """A part as it is shown."""

    part: Part
    found: Any = None
    """None where there is nothing to show but `problem`."""
    problem: str = ""
    age_s: float = 0.0
    """How old `found` is."""


@dataclass(slots=True)
class _Run:
    future: Future[Any] = field(default_factory=Future)
    began_s: float = field(default_factory=SystemClock.monotonic_s)
    ended_s: float | None = None


class Loader:
    """Loads the parts of a page, and waits for all of them together at most so long."""

    def __init__(self, deadline_s: float = DEADLINE_S) -> None:
        """Wait at most so long for the parts of a page."""
        self.deadline_s = deadline_s
        self._lock = threading.Lock()
        self._runs: OrderedDict[str, _Run] = OrderedDict()
        """The newest of each part."""
        self._last: OrderedDict[str, tuple[Any, float]] = OrderedDict()
        self._loading = 0

    async def shown(self, parts: Sequence[Part]) -> list[Shown]:
        """Load the parts of a page; return each as it is when the time is over."""
        runs = [self._run_of(part) for part in parts]
        waiting = [asyncio.wrap_future(run.future) for run in runs if run is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=self.deadline_s)
            for one in waiting:
                if one.done() and not one.cancelled():
                    one.exception()  # it is shown; nobody else has to hear of it
        return [self._as_shown(part, run) for part, run in zip(parts, runs, strict=True)]

    def forget(self) -> None:
        """Ask for everything anew from now on: something was changed."""
        within(self._lock, self._runs.clear)

    def _run_of(self, part: Part) -> _Run | None:
        with self._lock:
            run = self._runs.get(part.key)
            if run is not None and self._serves(run, part):
                return run
            if self._loading >= MAX_LOADING:
                return None
            run = self._runs[part.key] = _Run()
            self._runs.move_to_end(part.key)
            while len(self._runs) > MAX_KEPT:
                self._runs.popitem(last=False)
            self._loading += 1
        thread = threading.Thread(
            target=self._load, args=(part, run), name=f"console {part.key}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there are too many; or everybody would wait for this one
            self._end(run)
            run.future.set_exception(error)
        return run

    @staticmethod
    def _serves(run: _Run, part: Part) -> bool:
        if run.ended_s is None:
            return True
        return (
            run.future.exception() is None
            and SystemClock.monotonic_s() - run.ended_s < part.may_be_s
        )

    def _load(self, part: Part, run: _Run) -> None:
        try:
            found = part.load()
        except Exception as error:
            if not isinstance(error, OmidError):
                logger.warning("the part %s of a page has failed", part.key, exc_info=True)
            self._end(run)
            run.future.set_exception(error)
        else:
            self._end(run)
            with self._lock:
                self._last[part.key] = (found, SystemClock.monotonic_s())
                self._last.move_to_end(part.key)
                while len(self._last) > MAX_KEPT:
                    self._last.popitem(last=False)
            run.future.set_result(found)

    def _end(self, run: _Run) -> None:
        with self._lock:
            run.ended_s = SystemClock.monotonic_s()
            self._loading -= 1

    def _as_shown(self, part: Part, run: _Run | None) -> Shown:
        now_s = SystemClock.monotonic_s()
        if run is not None and run.future.done():
            error = run.future.exception()
            if error is None:
                assert run.ended_s is not None, "it has ended before it had a result"
                return Shown(part, run.future.result(), age_s=now_s - run.ended_s)
            name = "" if isinstance(error, OmidError) else f"{type(error).__name__}: "
            return Shown(part, problem=f"{name}{error}")
        if run is None:
            problem = f"{MAX_LOADING} other parts are being loaded; look again later"
        else:
            problem = (
                f"has not answered for {now_s - run.began_s:.1f} s, and is still asked; look again"
            )
        last = self._last.get(part.key)
        if last is None:
            return Shown(part, problem=problem)
        return Shown(part, last[0], problem, now_s - last[1])
