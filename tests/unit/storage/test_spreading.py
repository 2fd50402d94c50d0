"""Tasks of one server are far from each other, and where nothing is known nothing changes."""

from __future__ import annotations

from collections import Counter
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.ranges.cutting import Cutting
from compactor.ranges.range_task import RangeTask
from omidpy.errors import NoSuchTable
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.spark.frames.partitions import portions
from omidpy.storage.memory import MemoryStore
from omidpy.storage.spreading import by_turns, spread

SPLITS: Final = [b"b", b"c", b"d", b"e", b"f"]
ON: Final = ("one", "one", "one", "two", "two", "three")
"""Who serves each of the regions."""
BY_TURNS: Final = [b"", b"d", b"b", b"f", b"e", b"c"]
"""Where they begin, in the order in which they are read."""


class Served(MemoryStore):
    """A store that several servers serve, as far as it tells."""

    asked = 0

    def region_servers(self, table: str) -> list[tuple[KeyRange, str]]:
        """Say who has what."""
        self.asked += 1
        if table == "gone":
            raise NoSuchTable("it is gone")
        return list(zip(self.regions(table), ON, strict=True))


def made(store: MemoryStore) -> MemoryStore:
    """Return a store with a table of six regions."""
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]), splits=SPLITS)
    return store


@given(st.lists(st.sampled_from("abcd"), max_size=40))
def test_each_server_has_its_share_of_every_stretch(servers: list[str]) -> None:
    """Of the first n tasks each has what its share of all is, within one; in their own order."""
    found = by_turns(list(enumerate(servers)), servers)
    assert sorted(found) == list(enumerate(servers))
    for name, count in Counter(servers).items():
        mine = [number for number, server in found if server == name]
        assert mine == sorted(mine)
        so_far = 0
        for length, (_, server) in enumerate(found, 1):
            so_far += server == name
            assert abs(so_far - length * count / len(servers)) <= 1 + len(set(servers)) / 2


def test_neighbours_are_served_by_different_servers() -> None:
    """As long as there are enough of them."""
    assert by_turns("aaabbb", "aaabbb") == list("ababab")
    assert by_turns("aaaab", "aaaab") == list("aabaa")
    assert by_turns(range(3), ("x", "x", "x")) == [0, 1, 2]


def test_frames_read_by_turns() -> None:
    """Ranges, and lists of rows by the first of each."""
    store = made(Served())
    found = portions(store, "t", [b"cf"], KeyRange(), None, wanted=None)
    assert [one.key_range.start for one in found] == BY_TURNS
    rows = [bytes((letter,)) for letter in b"abcdef"]
    lists = portions(store, "t", [b"cf"], KeyRange(), rows, wanted=6)
    assert [one.rows for one in lists] == [(start or b"a",) for start in BY_TURNS]
    plain = portions(made(MemoryStore()), "t", [b"cf"], KeyRange(), None, wanted=None)
    assert [one.key_range.start for one in plain] == [b"", *SPLITS]


def task(table: str, rows: KeyRange) -> RangeTask:
    """Return a task of the compactor's."""
    return RangeTask(table, rows, frozenset((b"cf",)), 1, 1, 0, "commits")


def test_compactions_pass_by_turns() -> None:
    """Over tables whose servers can be found out; others stay where they are."""
    store = Served()
    made(store)
    rows = store.regions("t")
    tasks = [task("t", one) for one in rows]
    found = spread(store, tasks, lambda one: (one.table, one.key_range.start))
    assert [one.key_range.start for one in found] == BY_TURNS
    assert store.asked == 1
    gone = [task("gone", one) for one in rows]
    assert spread(store, gone, lambda one: (one.table, one.key_range.start)) == gone
    lone = tasks[:1]
    assert spread(store, lone, lambda one: (one.table, one.key_range.start)) == lone
    assert store.asked == 2, "one task has no order"


@pytest.mark.parametrize("kind", [Served, MemoryStore])
def test_what_is_cut_is_what_was_to_be_cut(kind: type[MemoryStore]) -> None:
    """In another order where servers are known."""
    store = made(kind())
    tasks = [task("t", one) for one in store.regions("t")]
    found = Cutting(wanted=1).cut(store, tasks)
    assert sorted(one.key_range for one in found) == [one.key_range for one in tasks]
    starts = BY_TURNS if kind is Served else [b"", *SPLITS]
    assert [one.key_range.start for one in found] == starts
