"""Numbers as drawings: what is drawn where, and that nothing in them is markup."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from omidpy.console import drawing
from omidpy.console.drawing import MAX_STRIPES, WIDTH, bars, columns, health_of, key_space, line

NOW_MS: Final = 1_800_000_000_000
HOUR: Final = 3_600_000_000_000


def ago(hours: float) -> int:
    """Return the timestamp of a moment."""
    return round(NOW_MS * 1_000_000 - hours * HOUR)


def ranges(*watermarks: int) -> list[dict[str, Any]]:
    """Return the ranges of a table, one for each watermark."""
    edges = ["", *(f"{number:04x}" for number in range(1, len(watermarks))), ""]
    return [
        {"start": start, "end": end, "watermark": watermark}
        for start, end, watermark in zip(edges, edges[1:], watermarks, strict=False)
    ]


@pytest.mark.parametrize(
    ("watermark", "expected"),
    [
        (0, "never"),
        (50, "counted"),
        (ago(25.9), "fresh"),
        (ago(26.1), "behind"),
        (ago(-1), "fresh"),
    ],
)
def test_how_far_rows_are_healed(watermark: int, expected: str) -> None:
    """Up to the night before, with two hours to spare."""
    assert health_of(watermark, now_ms=NOW_MS) == expected


def test_ranges_stand_beside_each_other_over_the_whole_width() -> None:
    """In the order of keys."""
    drawn = key_space(ranges(ago(1), ago(50), 0), now_ms=NOW_MS)
    assert re.findall(r'<rect class="(\w+)" x="([\d.]+)"', drawn) == [
        ("fresh", "0.0"),
        ("behind", f"{WIDTH / 3:.1f}"),
        ("never", f"{2 * WIDTH / 3:.1f}"),
    ]
    assert "[start, 0x0001): healed up to 1 h ago" in drawn
    assert "[0x0002, end): no compaction has passed here" in drawn


def test_of_many_ranges_the_worst_of_neighbours_is_drawn() -> None:
    """One of 10,000 that is behind must not vanish between pixels."""
    healed = [ago(1)] * 9999
    drawn = key_space(ranges(*healed[:5000], 0, *healed[5000:]), now_ms=NOW_MS)
    assert drawn.count("<rect") == MAX_STRIPES
    assert drawn.count('class="never"') == 1
    assert "the worst of 2" in drawn


def test_a_table_without_claims_was_never_passed() -> None:
    """Nothing is not a blank."""
    assert key_space([], now_ms=NOW_MS).count('class="never"') == 1


def test_hostile_keys_are_escaped() -> None:
    """A key that is printable is shown as it is, and is no markup."""
    key = b"<rect onload=alert(1)>&\"'".hex()
    drawn = key_space([{"start": "", "end": key, "watermark": 0}], now_ms=NOW_MS)
    assert "<rect onload" not in drawn
    assert "&lt;rect onload=alert(1)&gt;&amp;&#34;&#39;" in drawn
    assert "<b>" not in bars([("<b>\x1b", 1)], title="<b>")
    assert "<b>" not in columns(["<b>"], {"<b>": [1]}, title="<b>")


def test_bars_are_as_long_as_their_numbers() -> None:
    """The longest has all the room; nothing has no bar."""
    drawn = bars([("a", 50), ("b", 100), ("c", 0)], title="t")
    assert re.findall(r'width="([\d.]+)"', drawn) == ["50.0", "100.0"]
    assert '<td class="n">0</td>' in drawn
    assert bars([], title="t").count("<tr>") == 0


def test_columns_have_few_enough_labels_to_be_read() -> None:
    """A hundred runs are drawn, and not a hundred moments over each other."""
    labels = [f"11-{number:02} 03:00" for number in range(100)]
    drawn = columns(labels, {"pruned": list(range(100))}, title="t")
    assert drawn.count('class="series-0"') == 100 + 1
    assert 2 < len(re.findall(r">11-\d\d 03:00</text>", drawn)) <= WIDTH // drawing.LABEL_WIDTH


def test_a_line_goes_from_left_to_right() -> None:
    """Its highest point is the most; where all is nothing, it lies."""
    drawn = line([0, 4, 2], title="t", height=58)
    points = re.search(r'<polyline class="stroke" points="([^"]+)"', drawn)
    assert points is not None
    assert points[1] == f"0.0,56.0 {WIDTH / 2:.1f},6.0 {WIDTH}.0,31.0"
    assert "0.0,56.0" in line([0, 0], title="t", height=58)
