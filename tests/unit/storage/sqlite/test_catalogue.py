"""What is remembered of a table: where its cells are, and which of its columns are all of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from omidpy.errors import NoSuchFamily
from omidpy.model import ColumnSpec
from omidpy.storage import rules
from omidpy.storage.sqlite.queries.catalogue import Physical

TWO = Physical("cells_1", frozenset((b"f", b"g")), [(b"f", None), (b"g", None)])


@pytest.mark.parametrize(
    "columns",
    [
        None,
        [(b"f", None), (b"g", None)],
        ((b"g", None), (b"f", None)),
        [(b"f", None)],
        [(b"f", None), (b"f", None)],
        [(b"g", None), (b"f", b"q")],
        [(b"g", None), (b"f", None), (b"f", b"q")],
        [],
    ],
)
def test_a_selection_is_what_the_rules_say(columns: Sequence[ColumnSpec] | None) -> None:
    """Also where it is told at a glance: everything, and nothing but that, is None."""
    expected = rules.selection("t", columns, TWO.families)
    assert TWO.selection("t", columns) == expected
    is_all = columns is None or {(b"f", None), (b"g", None)} <= set(columns)
    assert (expected is None) == is_all


def test_a_selection_of_other_families_is_refused() -> None:
    """However many they are."""
    with pytest.raises(NoSuchFamily):
        TWO.selection("t", [(b"f", None), (b"h", None)])
