"""Properties that are worked out once: what each object keeps, and that none waits for another."""

from __future__ import annotations

import pickle
import threading

import pytest

from omidpy.base.remembered import remembered


class Asked:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.count = 0

    @remembered
    def answer(self) -> int:
        """Forty-two, at some cost."""
        self.count += 1
        return 42


def test_it_is_worked_out_once_and_travels_with_its_object() -> None:
    """And each object has its own."""
    one, other = Asked(), Asked()
    assert (one.answer, one.answer, one.count, other.count) == (42, 42, 1, 0)
    copy = pickle.loads(pickle.dumps(one))
    assert (copy.answer, copy.count) == (42, 1)
    assert Asked.answer.__doc__ == "Forty-two, at some cost."


def test_a_failure_is_not_kept() -> None:
    """The next read tries again."""

    class Failing:
        fails = True

        @remembered
        def answer(self) -> int:
            if self.fails:
                raise OSError("not yet")
            return 1

    one = Failing()
    with pytest.raises(OSError, match="not yet"):
        _ = one.answer
    one.fails = False
    assert one.answer == 1


def test_no_object_waits_for_another() -> None:
    """Whatever the class."""
    is_asked, may_answer = threading.Event(), threading.Event()

    class Slow:
        def __init__(self, *, is_slow: bool) -> None:
            self.is_slow = is_slow

        @remembered
        def answer(self) -> int:
            if self.is_slow:
                is_asked.set()
                assert may_answer.wait(30)
            return 1

    waiting = threading.Thread(target=lambda: Slow(is_slow=True).answer)
    waiting.start()
    assert is_asked.wait(30)
    try:
        found: list[int] = []
        quick = threading.Thread(target=lambda: found.append(Slow(is_slow=False).answer))
        quick.start()
        quick.join(5)
        assert found == [1]
    finally:
        may_answer.set()
        waiting.join()
        quick.join()
