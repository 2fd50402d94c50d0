"""What every sink of export queues promises, whatever it writes to.

    class TestMine(SinkContract):
        @pytest.fixture
        def place(self): ...

A place has a sink, and reads what a receiver has that follows the sink's rule: the newest value of
each key, and its `seq`.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from omidpy.recipes.export_queue import Batch, Entry, Exporter

Newest: TypeAlias = dict[bytes, tuple[Any, tuple[int, int]]]

LARGE_BYTES: Final = 3_000_000
"""More than one batch holds, unless it is alone in it."""


def batch(*entries: tuple[bytes, Any, int, int], bucket: int = 3, fence: int = 1) -> Batch:
    """Return a batch of (key, value, commit_ts, ordinal)."""
    made = [
        Entry(key, value, commit_ts, ordinal, commit_ts - 50, {})
        for key, value, commit_ts, ordinal in entries
    ]
    return Batch(made, queue="q", bucket=bucket, fence=fence)


NEWER: Final = batch((b"k", {"n": 3}, 300, 0), (b"other", "x", 300, 2**100))
OLDER: Final = batch(
    (b"k", {"n": 1}, 100, 0), (b"k", {"n": 2}, 250, 0), (b"other", "y", 300, 2**99)
)


class Place(ABC):
    """Where a sink writes to, and how it looks there."""

    sink: Exporter

    @abstractmethod
    def newest(self) -> Newest:
        """Return what a receiver has: values as JSON has them; those that are bytes, as bytes."""

    def deliver(self, one: Batch) -> None:
        """Hand a batch to the sink."""
        self.sink.export(one)


_Place = TypeVar("_Place", bound=Place)


@contextmanager
def in_use(place: _Place) -> Iterator[_Place]:
    """Open the sink of a place, and close it afterwards."""
    place.sink.open()
    yield place
    place.sink.close()


class SinkContract:
    """The promises, as tests; whoever inherits gives the fixture `place`, its sink open."""

    empty_keys = True
    """Whether a key may be empty."""

    def test_what_is_older_changes_nothing_though_it_comes_later(self, place: Place) -> None:
        """As from a process that was paused: ordinals count, too, and may exceed 64 bits."""
        place.deliver(NEWER)
        place.deliver(OLDER)
        assert place.newest() == {b"k": ({"n": 3}, (300, 0)), b"other": ("x", (300, 2**100))}

    def test_what_comes_again_changes_nothing(self, place: Place) -> None:
        """As after a death between delivery and acknowledgement; perhaps with more behind it."""
        place.deliver(batch((b"a", 1, 100, 0), (b"b", 2, 100, 1)))
        place.deliver(batch((b"a", 1, 100, 0), (b"b", 2, 100, 1), (b"a", 3, 150, 0)))
        place.deliver(batch((b"a", 1, 100, 0)))
        assert place.newest() == {b"a": (3, (150, 0)), b"b": (2, (100, 1))}

    def test_the_last_entry_of_a_batch_wins(self, place: Place) -> None:
        """A key may be in a batch, and in a transaction, as often as it likes."""
        place.deliver(batch(*((b"k", number, 100 + 50 * number, 0) for number in range(10))))
        place.deliver(batch((b"k", "a", 600, 0), (b"k", "b", 600, 1), (b"k", "c", 600, 2)))
        assert place.newest() == {b"k": ("c", (600, 2))}

    def test_a_deletion_leaves_its_sequence_behind(self, place: Place) -> None:
        """Or an old value that comes again would rise from the dead."""
        place.deliver(batch((b"k", 1, 100, 0)))
        place.deliver(batch((b"k", None, 200, 0)))
        place.deliver(batch((b"k", 1, 100, 0)))
        assert place.newest() == {b"k": (None, (200, 0))}

    def test_keys_and_values_of_all_kinds_arrive(self, place: Place) -> None:
        """Keys that are prefixes of each other, or no text; values with quotes, and large ones."""
        values: dict[bytes, Any] = {
            b"a": {"a": [1, None, True, "'\"\\\n\u00e9\U0001f600"]},
            b"a" + bytes(8): 0,
            b"a\xff\x00'": "",
            b"large": "x" * LARGE_BYTES,
        }
        if self.empty_keys:
            values[b""] = "of the empty key"
        entries = [(key, value, 100, n) for n, (key, value) in enumerate(values.items())]
        place.deliver(batch(*entries))
        assert place.newest() == {key: (value, (100, n)) for key, value, _, n in entries}

    def test_threads_deliver_at_once(self, place: Place) -> None:
        """One object serves all buckets of a process."""
        failed: list[BaseException] = []

        def work(bucket: int) -> None:
            try:
                for number in range(5):
                    one = (b"%d" % bucket, number, 100 + 50 * number, 0)
                    place.deliver(batch(one, bucket=bucket))
            except BaseException as error:  # noqa: BLE001 - told to the test
                failed.append(error)

        threads = [threading.Thread(target=work, args=(bucket,)) for bucket in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert place.newest() == {b"%d" % bucket: (4, (300, 0)) for bucket in range(4)}


def of_seqs(found: list[tuple[bytes, Any, tuple[int, int]]]) -> Newest:
    """Follow the rule of a receiver: keep what has the largest `seq` of each key."""
    newest: Newest = {}
    for key, value, seq in found:
        if key not in newest or newest[key][1] < seq:
            newest[key] = value, seq
    return newest


def from_json(text: str | bytes | None) -> Any:
    """Return a value that came as JSON; None where there is none."""
    return None if text is None else json.loads(text)
