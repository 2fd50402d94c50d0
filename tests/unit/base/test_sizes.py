"""Sizes as operators write them."""

from __future__ import annotations

import pytest

from omidpy.base.words.sizes import size_bytes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("50MB", 50_000_000),
        ("50 MB", 50_000_000),
        ("500kB", 500_000),
        ("500KB", 500_000),
        ("1.5MiB", 1_572_864),
        ("1GiB", 1 << 30),
        ("2tb", 2 * 10**12),
        ("800b", 800),
        ("4096", 4096),
    ],
)
def test_units_of_ten_and_of_two(text: str, found: float) -> None:
    """Two conventions that differ by 7 % at a gigabyte."""
    assert size_bytes(text) == found


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "5 M B", "5MBs", "1e6", "fifty", "5MB/s"])
def test_what_is_no_size_is_none(text: str) -> None:
    """The caller says which option it was."""
    assert size_bytes(text) is None
