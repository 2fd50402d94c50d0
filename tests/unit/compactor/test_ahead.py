"""One page is read ahead: in order, no more than one, and never behind its caller's back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

import pytest

from compactor.ranges.ahead import read_ahead
from omidpy.errors import StorageUnavailable

PATIENCE_S: Final = 30.0


class Pages:
    """Three pages; the reads of all but the first wait until they are let go."""

    def __init__(self) -> None:
        self.begun = [threading.Event() for _ in range(3)]
        self.let_go = threading.Event()
        self.read: list[int] = []

    def __iter__(self) -> Iterator[int]:
        """Read them."""
        for number, begun in enumerate(self.begun):
            begun.set()
            assert not number or self.let_go.wait(PATIENCE_S)
            self.read.append(number)
            yield number


def test_next_page_is_read_while_one_is_worked_on() -> None:
    """To wait for it and for the writes of the last one took twice as long."""
    pages = Pages()
    with read_ahead(iter(pages)) as following:
        assert next(following) == 0
        assert pages.begun[1].wait(PATIENCE_S), "behind the back of whoever works on the first"
        pages.let_go.set()
        assert next(following) == 1
        assert list(following) == [2]


def test_no_more_than_one_page_is_read_ahead() -> None:
    """Memory holds two pages, however slow the writes are."""
    pages = Pages()
    pages.let_go.set()
    with read_ahead(iter(pages)) as following:
        assert next(following) == 0
    assert pages.read == [0, 1]


def test_read_that_is_under_way_is_waited_for_on_leaving() -> None:
    """Its store is closed next."""
    pages = Pages()
    with read_ahead(iter(pages)) as following:
        assert next(following) == 0
        pages.let_go.set()
    assert not [one for one in threading.enumerate() if one.name.startswith("compaction-ahead")]


def test_what_a_read_raises_comes_behind_the_pages_before_it() -> None:
    """They were read, and go."""

    def broken() -> Iterator[int]:
        yield 1
        raise StorageUnavailable("no answer")

    with read_ahead(broken()) as following:
        assert next(following) == 1
        with pytest.raises(StorageUnavailable):
            next(following)
