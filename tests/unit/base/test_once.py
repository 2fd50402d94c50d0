"""An iterator that a refused try has used up is not taken for an empty one by the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

import omidpy
from omidpy.base.callers.once import MOST_KEPT, gone_over_once
from omidpy.errors import UsageError
from omidpy.recipes.export_queue import ExportQueue
from omidpy.tx.transaction import Transaction

ROWS = pa.table({"id": ["a", "b"], "x": ["1", "2"]})


def identity(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch."""
    return batch


def generated() -> Iterator[int]:
    """Yield two numbers."""
    yield 1
    yield 2


@dataclass
class Counted:
    """An iterator without a hash, which is equal to all that have come as far."""

    left: int = 2

    def __iter__(self) -> Iterator[int]:
        """Return itself."""
        return self

    def __next__(self) -> int:
        """Return what is left."""
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


@dataclass(unsafe_hash=True)
class Alike(Counted):
    """One with a hash."""


@pytest.mark.parametrize(
    "make",
    [
        *(generated, Counted, Alike),
        *(lambda: iter([1, 2]), lambda: map(int, "12"), lambda: enumerate("12")),
    ],
)
def test_an_iterator_is_gone_over_once(make: Callable[[], Iterator[object]]) -> None:
    """With a weak reference to it, or without."""
    iterator = make()
    assert len(list(gone_over_once(iterator, what="they"))) == 2
    with pytest.raises(UsageError, match="they were read before, from the same"):
        list(gone_over_once(iterator, what="they"))
    assert len(list(gone_over_once(make(), what="they"))) == 2


def test_an_iterator_that_is_equal_to_one_that_was_read_is_another_one() -> None:
    """It was refused for the other one's sake, and one without a hash in any case."""
    for kind in (Counted, Alike):
        first, second = kind(), kind()
        began = gone_over_once(first, what="they")
        assert [next(began), *gone_over_once(second, what="they")] == [1, 1, 0]


def test_what_makes_an_iterator_each_time_is_gone_over_as_often() -> None:
    """A list, a table, a view of a dict."""
    for source in ([1, 2], {1: 1, 2: 2}.items()):
        for _ in range(2):
            assert len(list(gone_over_once(source, what="they"))) == 2


def test_one_that_was_not_begun_is_not_gone_over() -> None:
    """A shape that is refused before the first row is mended, and the reader used."""
    iterator = generated()
    gone_over_once(iterator, what="they")
    assert list(gone_over_once(iterator, what="they")) == [1, 2]


def test_few_are_kept() -> None:
    """Those that take no weak reference would else stay for ever."""
    first = iter([1])
    list(gone_over_once(first, what="they"))
    for _ in range(MOST_KEPT):
        list(gone_over_once(iter([1]), what="they"))
    assert list(gone_over_once(first, what="they")) == []


@pytest.mark.parametrize(
    "make",
    [
        ROWS.to_reader,
        lambda: (batch for batch in ROWS.to_batches()),
        lambda: iter(ROWS.to_batches()),
        lambda: map(identity, ROWS.to_batches()),
    ],
    ids=["reader", "generator", "iterator", "map"],
)
def test_a_second_try_does_not_commit_without_the_rows_of_the_first(
    make: Callable[[], Iterable[pa.RecordBatch]],
) -> None:
    """A conflict made it, and it committed no row at all."""
    with omidpy.connect("memory:") as tm:
        tm.create_table("t", ["cf"])

        @tm.transactional
        def load(tx: Transaction, data: object) -> int:
            count = tx.table("t").write_arrow(data, columns={"x": ("cf:x", "string")}, key="id")
            tx.table("t").counter_inc(b"loads", b"cf:n")
            with tm.begin() as other:  # somebody is quicker
                other.table("t").counter_inc(b"loads", b"cf:n")
            return count

        with pytest.raises(UsageError, match="the rows of write_arrow were read before"):
            load(make())
        with tm.begin() as tx:
            assert [key for key, _ in tx.table("t").scan()] == [b"loads"]
            assert (
                tx.table("t").write_arrow(make(), columns={"x": ("cf:x", "string")}, key="id") == 2
            )


def test_a_second_try_does_not_commit_without_the_entries_of_the_first() -> None:
    """The same of an export queue."""
    with omidpy.connect("memory:") as tm:
        tm.create_table("t", ["cf"])
        queue = ExportQueue.create(tm, "q", buckets=1)

        @tm.transactional
        def add(tx: Transaction, pairs: Iterable[tuple[bytes, object]]) -> None:
            tx.queue("q").add_all(pairs)
            tx.table("t").counter_inc(b"adds", b"cf:n")
            if queue.lag().entries == 0:
                with tm.begin() as other:
                    other.table("t").counter_inc(b"adds", b"cf:n")

        with pytest.raises(UsageError, match="the entries of add_all were read before"):
            add((b"k", number) for number in range(3))
        assert queue.lag().entries == 0
