"""The rows that a transaction has buffered, by key and by range, against a plain dict."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from omidpy.model import KeyRange, Timestamp
from omidpy.tx.writes.buffer import WriteBuffer

keys = st.binary(min_size=1, max_size=2)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), keys, keys),
        st.tuples(st.just("put many"), st.lists(keys, min_size=9, max_size=20), keys),
        st.tuples(st.just("look"), st.binary(max_size=2), st.binary(max_size=2)),
        st.tuples(st.just("flush"), st.none(), st.none()),
    ),
    max_size=20,
)


@given(steps)
def test_a_range_holds_what_was_put_since_the_last_flush(steps: list[tuple[str, ...]]) -> None:
    """Whenever it is asked for, however many keys came in between."""
    buffer = WriteBuffer(Timestamp(1000))
    model: dict[bytes, bytes] = {}
    for step, first, second in steps:
        match step, first, second:
            case "put", bytes(row), bytes(new):
                buffer.put("t", row, b"f", b"q", new)
                model[row] = new
            case "put many", list(rows), bytes(new):
                for row in rows:
                    buffer.put("t", row, b"f", b"q", new)
                    model[row] = new
            case "look", bytes(start), bytes(end):
                key_range = KeyRange(start, end)
                found = buffer.rows_in("t", key_range)
                wanted = sorted(row for row in model if key_range.contains(row))
                if not key_range.is_empty():
                    assert list(found) == wanted
                assert all(found[row] == {(b"f", b"q"): model[row]} for row in found)
            case _:
                buffer.take()
                buffer.acknowledge()
                model.clear()
    for row, value in model.items():
        assert buffer.row("t", row) == {(b"f", b"q"): value}
