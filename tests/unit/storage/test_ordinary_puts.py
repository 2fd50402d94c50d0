"""Puts that are seen to be ordinary leave behind what a look at each cell says that they do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omidpy.errors import NoSuchFamily, UsageError
from omidpy.model import MAX_VERSION
from omidpy.storage import rules
from omidpy.storage.base import DeleteVersion, Put, RowMutation

FAMILIES = frozenset((b"f", b"g"))
rows: Any = st.sampled_from((b"a", b"b", b"r" * 1024, b"r" * 1025, b"", b"r" * 40_000, "a"))
puts = st.builds(
    Put,
    st.sampled_from((b"f", b"f", b"g", b"h", "f")),
    st.sampled_from((b"", b"q", b"q", b"q" * 2000, "q")),
    st.sampled_from((1, 1, 2, 0, -1, MAX_VERSION, MAX_VERSION - 1)),
    st.sampled_from((b"", b"v", b"w", b"v" * 2000, "v", None)),
)
mutations = st.lists(
    st.builds(
        RowMutation,
        st.one_of(st.sampled_from((b"a", b"b")), rows),
        st.lists(puts, max_size=3),
        st.one_of(st.just(()), st.just([DeleteVersion(b"f", b"q", 9)])),
    ),
    max_size=3,
)


@given(mutations)
def test_what_is_ordinary_is_taken_and_leaves_each_cell_behind(batch: list[RowMutation]) -> None:
    """Nothing that another look would refuse, or put over something else of the same batch."""
    if not rules.are_ordinary_puts(batch, FAMILIES):
        return
    effects: rules.Effects = {}
    for mutation in batch:
        rules.add_effects(effects, "t", mutation, FAMILIES)
    cells = [(one.row, *put) for one in batch for put in one.puts]
    assert [(*name, value) for name, value in effects.items()] == cells
    assert len({one.row for one in batch}) == len(batch)


def test_ordinary_puts_are_seen_to_be() -> None:
    """Else it would be right, and of no use."""
    batch = [
        RowMutation(b"%d" % at, [Put(b"f", b"q", 1, b"v"), Put(b"f", b"q", 2, b"v" * 5000)])
        for at in range(3)
    ]
    assert rules.are_ordinary_puts(batch, FAMILIES)


@pytest.mark.parametrize("value", [b"v" * (rules.LONG_BYTES + 1), b"v" * rules.MAX_CELL_BYTES])
def test_what_may_be_too_large_is_looked_at(value: bytes) -> None:
    """A value that fits goes on; one that does not is refused there."""
    batch = [RowMutation(b"a", [Put(b"f", b"q", 1, value)])]
    assert not rules.are_ordinary_puts(batch, FAMILIES)
    if len(value) > rules.MAX_VALUE_BYTES:
        with pytest.raises(UsageError, match="10 MiB"):
            rules.add_effects({}, "t", batch[0], FAMILIES)


def test_a_family_that_is_not_there_is_looked_at() -> None:
    """The error names it."""
    batch = [RowMutation(b"a", [Put(b"h", b"q", 1, b"v")])]
    assert not rules.are_ordinary_puts(batch, FAMILIES)
    with pytest.raises(NoSuchFamily):
        rules.add_effects({}, "t", batch[0], FAMILIES)
