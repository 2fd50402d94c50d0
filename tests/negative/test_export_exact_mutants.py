"""Exporters that keep marks, broken on purpose: each variant must be caught.

The same checks run on them as they are and pass (`tests/unit/recipes/test_export_exactly.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from omidpy.recipes.export_queue.delivery.exactly import ExactDelivery
from omidpy.recipes.export_queue.entries.ordering import Position
from omidpy.recipes.export_queue.marks import Mark
from omidpy.storage.memory import MemoryStore
from tests.machines import export_exact
from tests.machines.marking import LogSink

Variant = Callable[[pytest.MonkeyPatch], None]


def reads_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X10: the next owner begins at the cursor."""
    monkeypatch.setattr(Mark, "covers", lambda *_: False)


def passes_over_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mark be a position alone, as that of a log without poison."""

    def after(self: Mark, until: Position, but: Collection[Position]) -> Mark:
        del but
        return replace(self, until=max(self.until, until))

    monkeypatch.setattr(Mark, "after", after)


def goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mark be where the last batch has ended, though an earlier one was longer."""

    def after(self: Mark, until: Position, but: Collection[Position]) -> Mark:
        return replace(self, until=until, but=frozenset(but))

    monkeypatch.setattr(Mark, "after", after)


def never_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X10: who has made a successor's tools useless goes on with its own."""

    def take_over(self: ExactDelivery, lease: Any, standing: Any, share: Any, _: Any) -> None:
        lease.confirm()
        standing.share = share
        standing.mark = self._exporter.take_over(share) or Mark()

    monkeypatch.setattr(ExactDelivery, "_take_over", take_over)


def fences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X10: the receiver takes what an earlier owner sends."""
    export = LogSink.export_marked

    def blindly(self: LogSink, share: Any, batch: Any, mark: Mark) -> None:
        fences = self._log.fences
        self.on_step("before-commit")
        fences[share.name] = share.fence
        on_step, self.on_step = self.on_step, lambda _: None
        export(self, share, batch, mark)
        self.on_step = on_step
        self.on_step("behind-commit")

    monkeypatch.setattr(LogSink, "export_marked", blindly)


def anybody_sleeps() -> None:
    """At each moment, and the other one has finished or not."""
    for moment in export_exact.MOMENTS:
        for is_over in (True, False):
            export_exact.who_sleeps_brings_nothing_twice(MemoryStore(), moment, is_over=is_over)


def anybody_dies() -> None:
    """Behind its commit, with batches smaller and larger than the next one's."""
    for sizes in ((1 << 20, 1), (1, 1 << 20)):
        export_exact.who_dies_brings_nothing_twice(MemoryStore(), "behind-commit", sizes)


def poison_is_left_out() -> None:
    """Whatever becomes of it."""
    for poison in ("park-key", "skip"):
        export_exact.what_is_about_to_be_set_aside_is_not_passed_over(
            MemoryStore(), "behind-commit", poison
        )


def parts_of_it_come_again() -> None:
    """One by one."""
    export_exact.what_was_left_out_may_come_in_smaller_batches(MemoryStore())


def it_was_set_aside() -> None:
    """By a later owner."""
    export_exact.who_sleeps_delivers_nothing_that_was_set_aside(MemoryStore())


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr("omidpy.recipes.export_queue.delivery.patience.FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    ("variant", "check"),
    [
        (reads_no_mark, anybody_dies),
        (goes_back, parts_of_it_come_again),
        (passes_over_what_was_left_out, poison_is_left_out),
        (never_looks_again, it_was_set_aside),
        (fences_nobody, anybody_sleeps),
    ],
)
def test_broken_exporters_are_caught(
    variant: Variant, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a thing that somebody would write."""
    check()
    variant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check()
