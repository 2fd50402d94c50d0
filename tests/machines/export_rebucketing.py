"""The steps that give a queue other buckets, one after the other, with whatever happens between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from omidpy.fate.step import Defer, Done, Step
from omidpy.recipes.export_queue.upkeep.rebucketing import (
    Drain,
    Prepare,
    RebucketTools,
    Settle,
    Sweep,
    Switch,
)
from tests.machines.export_queues import QUEUE, Scene

STEPS: Final = (Prepare, Settle, Drain, Switch, Sweep)


class Told:
    """What a step is told of its operation."""

    attempt = 1
    is_stopping = False

    def __init__(self, operation: str = "0" * 16) -> None:
        self.id = operation

    def confirm(self) -> None:
        """Nobody else has it."""

    def progress(self, text: str) -> None:
        """Take note of nothing."""


class Rebucketing:
    """One operation, taken step by step."""

    def __init__(self, scene: Scene, buckets: int, operation: str = "0" * 16) -> None:
        self.tools = RebucketTools(scene.tm, sleep=scene.clock.advance)
        self.told = Told(operation)
        known = scene.queue._find()
        self.next: Step | None = Prepare(QUEUE, known.made, known.number, buckets)
        self.result: Any = None

    @property
    def reason(self) -> str:
        """Why the next step cannot be taken yet; empty if it can."""
        answer = None if self.next is None else self.next.ready(self.told, self.tools)
        return answer.reason if isinstance(answer, Defer) else ""

    def take(self, *, times: int = 1) -> None:
        """Take the next step, as often as executors that die at its end would."""
        assert self.next is not None, "there is no further step"
        assert not self.reason, self.reason
        for _ in range(times):
            answer = self.next.call(self.told, self.tools)
        if isinstance(answer, Done):
            self.next, self.result = None, answer.result
        else:
            assert isinstance(answer, STEPS), answer
            self.next = answer

    def finish(self, act: Callable[[], object] = lambda: None) -> None:
        """Take the steps that are left, and act before each and after the last."""
        while self.next is not None:
            act()
            self.take()
        act()
