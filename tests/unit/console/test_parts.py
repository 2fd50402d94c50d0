"""Parts of pages: each within its time, one of each at once, and remembered."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from omidpy.console import parts
from omidpy.console.parts import Loader, Part, Shown
from omidpy.errors import StorageUnavailable
from tests.machines.threads import refuse_threads

PATIENCE_S = 30.0


def part(load: Callable[[], Any], key: str = "k", *, may_be_s: float = 0.0) -> Part:
    """Return a part."""
    return Part(key, "Title", load, may_be_s)


def shown(loader: Loader, *wanted: Part) -> list[Shown]:
    """Load parts of one page."""
    return asyncio.run(loader.shown(wanted))


class Gate:
    """Something that answers when it is told to, and counts who asks."""

    def __init__(self) -> None:
        self.count = 0
        self.answer = threading.Event()
        self.ended = threading.Event()

    def __call__(self) -> int:
        """Wait."""
        self.count += 1
        self.answer.wait(PATIENCE_S)
        return self.count


def test_what_fails_says_why_and_the_others_are_shown() -> None:
    """An error of ours as it is; another one with its kind."""

    def fail() -> None:
        raise StorageUnavailable("no disk")

    def stumble() -> None:
        raise KeyError("x")

    first, second, third = shown(
        Loader(), part(fail, "a"), part(stumble, "b"), part(lambda: 7, "c")
    )
    assert (first.found, first.problem) == (None, "no disk")
    assert second.problem == "KeyError: 'x'"
    assert (third.found, third.problem) == (7, "")


def test_what_is_late_is_shown_with_the_next_page() -> None:
    """And is asked for once, however many look."""
    loader, gate = Loader(deadline_s=0.05), Gate()
    slow = part(gate, may_be_s=PATIENCE_S)
    for _ in range(3):
        (late,) = shown(loader, slow)
        assert late.found is None
        assert "is still asked" in late.problem
    gate.answer.set()
    loader.deadline_s = PATIENCE_S
    (found,) = shown(loader, slow)
    assert (found.found, found.problem) == (1, "")


def test_what_is_late_again_is_shown_as_it_was() -> None:
    """With its age, and the word that it is old."""
    loader, gate = Loader(PATIENCE_S), Gate()
    gate.answer.set()
    assert shown(loader, part(gate))[0].found == 1
    gate.answer.clear()
    loader.deadline_s = 0.05
    (old,) = shown(loader, part(gate))
    assert old.found == 1
    assert "is still asked" in old.problem
    gate.answer.set()


def test_a_count_may_be_some_seconds_old() -> None:
    """It reads a whole table; anything else is asked for anew."""
    loader, counts = Loader(PATIENCE_S), iter(range(10))
    assert [shown(loader, part(lambda: next(counts)))[0].found for _ in range(2)] == [0, 1]
    kept = part(lambda: next(counts), may_be_s=PATIENCE_S)
    assert [shown(loader, kept)[0].found for _ in range(2)] == [1, 1]
    loader.forget()
    assert shown(loader, kept)[0].found == 2


def test_a_failure_is_not_kept() -> None:
    """Whoever mended something looks again at once."""
    loader, answers = Loader(PATIENCE_S), iter([KeyError("x"), None])

    def once() -> int:
        if (error := next(answers)) is not None:
            raise error
        return 5

    wanted = part(once, may_be_s=PATIENCE_S)
    assert [shown(loader, wanted)[0].found for _ in range(2)] == [None, 5]


def test_a_store_that_hangs_is_not_asked_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread that waits takes memory, and a connection."""
    monkeypatch.setattr(parts, "MAX_LOADING", 2)
    loader, gate = Loader(deadline_s=0.05), Gate()
    found = shown(loader, *(part(gate, str(number)) for number in range(5)))
    assert gate.count == 2
    assert sum("other parts are being loaded" in one.problem for one in found) == 3
    gate.answer.set()
    loader.deadline_s = PATIENCE_S
    while any(one.name.startswith("console ") for one in threading.enumerate()):
        threading.Event().wait(0.01)
    assert shown(loader, part(gate, "later"))[0].found == 3


def test_a_part_for_which_no_thread_starts_is_asked_for_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Everybody waited for it, for ever, and its place among those being loaded was gone."""
    loader = Loader(deadline_s=0.5)
    goes_on = refuse_threads(monkeypatch)
    for _ in range(parts.MAX_LOADING + 1):
        (found,) = shown(loader, part(lambda: 1, may_be_s=PATIENCE_S))
        assert found.problem == "RuntimeError: can't start new thread"
    goes_on()
    assert shown(loader, part(lambda: 1, may_be_s=PATIENCE_S))[0].found == 1
