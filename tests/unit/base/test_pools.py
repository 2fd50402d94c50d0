"""A call that a pool refuses is never made; or it is made where it was asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from omidpy.base.callers.pools import begun, submitted
from tests.machines.threads import refuse_threads

POOL = "refused"


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Return one of two threads, of which the first is there."""
    with ThreadPoolExecutor(2, thread_name_prefix=POOL) as made:
        made.submit(int).result()
        yield made


def test_what_is_refused_is_not_made_by_another_thread(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool has it in its queue, and its other thread comes to that when it is free."""
    gate, made = threading.Event(), list[int]()
    busy = pool.submit(gate.wait)
    refuse_threads(monkeypatch, POOL)
    assert submitted(pool.submit, made.append, 1) is None
    gate.set()
    busy.result()
    pool.shutdown(wait=True)
    assert made == []


def test_what_is_refused_is_made_here(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, and what it raises is raised where it is waited for, but for an interrupt."""
    gate, made = threading.Event(), list[int]()
    pool.submit(gate.wait)
    refuse_threads(monkeypatch, POOL)
    begun(pool.submit, made.append, 1).result()
    with pytest.raises(ValueError, match="invalid literal"):
        begun(pool.submit, int, "x").result()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun(pool.submit, interrupted)
    gate.set()
    pool.shutdown(wait=True)
    assert made == [1]


def test_what_a_pool_takes_is_made_there(pool: ThreadPoolExecutor) -> None:
    """And tells what it returns, or raises."""
    assert begun(pool.submit, threading.get_ident).result() != threading.get_ident()
    made = submitted(pool.submit, int, "x")
    assert made is not None
    assert isinstance(made.exception(), ValueError)


def test_a_pool_that_is_closed_says_so(pool: ThreadPoolExecutor) -> None:
    """That is no matter of threads."""
    pool.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        begun(pool.submit, int)
