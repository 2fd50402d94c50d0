"""Scans as Arrow record batches."""

from __future__ import annotations

import re
import sys
from typing import Any

import pyarrow as pa
import pytest

from omidpy.base.installation import install_hint
from omidpy.codec import BYTES, FLOAT64, INT64, JSON, TEXT, Codec
from omidpy.errors import ConfigError, CorruptCell, NoSuchFamily, TransactionClosed, UsageError
from omidpy.tx.table import TransactionalTable
from tests.machines.clients import TABLE, Client

ALL: dict[bytes, Codec[Any]] = {
    b"cf:balance": INT64,
    b"cf:rate": FLOAT64,
    b"cf:name": TEXT,
    b"cf:tags": JSON,
    b"other:raw": BYTES,
}


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def fill(client: Client, count: int) -> None:
    """Write rows of one number."""
    with client.tm.begin() as tx:
        for number in range(count):
            tx.table(TABLE).put(b"%03d" % number, {b"cf:balance": INT64.encode(number)})


def numbers(table: TransactionalTable, **options: Any) -> list[list[int]]:
    """Return the numbers of each batch."""
    batches = table.scan_arrow(codecs={b"cf:balance": INT64}, **options)
    return [batch.column("cf:balance").to_pylist() for batch in batches]


def test_each_column_has_the_type_of_its_codec(client: Client) -> None:
    """JSON stays text: its values have no one type."""
    with client.tm.begin() as tx:
        tx.table(TABLE).put(
            b"a",
            {
                b"cf:balance": INT64.encode(-5),
                b"cf:rate": FLOAT64.encode(0.5),
                b"cf:name": TEXT.encode("Alice"),
                b"cf:tags": JSON.encode(["x"]),
                b"other:raw": b"\xff",
                b"cf:unasked": b"1",
            },
        )
        (batch,) = tx.table(TABLE).scan_arrow(codecs=ALL)
    assert batch.schema.names == [
        "row",
        "cf:balance",
        "cf:rate",
        "cf:name",
        "cf:tags",
        "other:raw",
    ]
    assert batch.schema.types == [
        pa.binary(),
        pa.int64(),
        pa.float64(),
        pa.string(),
        pa.string(),
        pa.binary(),
    ]
    assert not batch.schema.field("row").nullable
    assert batch.to_pylist() == [
        {
            "row": b"a",
            "cf:balance": -5,
            "cf:rate": 0.5,
            "cf:name": "Alice",
            "cf:tags": '["x"]',
            "other:raw": b"\xff",
        }
    ]


def test_an_absent_column_is_null_and_a_row_without_any_is_left_out(client: Client) -> None:
    """As `scan` has it with columns."""
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        table.put(b"a", {b"cf:name": b"A"})
        table.put(b"b", {b"cf:balance": INT64.encode(1)})
        table.put(b"c", {b"cf:unasked": b"1"})
        (batch,) = table.scan_arrow(codecs={b"cf:balance": INT64, b"cf:name": TEXT})
    assert batch.to_pylist() == [
        {"row": b"a", "cf:balance": None, "cf:name": "A"},
        {"row": b"b", "cf:balance": 1, "cf:name": None},
    ]


def test_batches_are_full_but_for_the_last(client: Client) -> None:
    """Whatever the pages of the store are."""
    fill(client, 7)
    with client.tm.begin() as tx:
        assert numbers(tx.table(TABLE), batch_rows=3) == [[0, 1, 2], [3, 4, 5], [6]]
        assert numbers(tx.table(TABLE), batch_rows=7) == [[0, 1, 2, 3, 4, 5, 6]]
        assert numbers(tx.table(TABLE), row_prefix=b"9") == []


def test_ranges_and_directions_are_those_of_a_scan(client: Client) -> None:
    """The arguments are the same."""
    fill(client, 5)
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        assert numbers(table, row_start=b"001", row_stop=b"003") == [[1, 2]]
        assert numbers(table, row_prefix=b"004") == [[4]]
        assert numbers(table, row_start=b"003", row_stop=b"001", reverse=True) == [[3, 2]]


def test_own_writes_lie_over_the_snapshot(client: Client) -> None:
    """Buffered, deleted and new rows."""
    fill(client, 3)
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        table.counter_set(b"001", b"cf:balance", 100)
        table.delete(b"002", columns=[b"cf:balance"])
        table.counter_set(b"0000", b"cf:balance", 50)
        assert numbers(table) == [[0, 50, 100]]


def test_a_value_of_another_codec_is_named_by_row_and_column(client: Client) -> None:
    """Else nobody finds it among a million."""
    fill(client, 2)
    client.write(b"001", b"one", b"cf:balance")
    with (
        client.tm.begin() as tx,
        pytest.raises(CorruptCell, match=r"row b'001', column b'cf:balance': b'one' is no INT64"),
    ):
        numbers(tx.table(TABLE))


@pytest.mark.parametrize(
    ("codecs", "error", "message"),
    [
        ({}, UsageError, "codecs is empty; name at least one column"),
        ({b"cf": INT64}, UsageError, "family:qualifier"),
        ({"cf:a": INT64}, TypeError, "must be bytes"),
        ({b"cf:a": int}, TypeError, r"omidpy\.codec"),
        ([b"cf:a"], TypeError, "mapping"),
        ({b"no:a": INT64}, NoSuchFamily, "no transactional family"),
        ({b"cf:\\xff": INT64, b"cf:\xff": INT64}, UsageError, "both be named"),
    ],
)
def test_codecs_that_do_not_fit_are_refused_at_once(
    client: Client, codecs: Any, error: type[Exception], message: str
) -> None:
    """Not when the first batch is asked for."""
    with client.tm.begin() as tx, pytest.raises(error, match=message):
        tx.table(TABLE).scan_arrow(codecs=codecs)


def test_json_is_checked_though_it_stays_text(client: Client) -> None:
    """Whoever parses the column later should not be the one to find it out."""
    client.write(b"a", b"{", b"cf:tags")
    with (
        client.tm.begin() as tx,
        pytest.raises(CorruptCell, match=r"row b'a', column b'cf:tags': b'\{' is no JSON"),
    ):
        list(tx.table(TABLE).scan_arrow(codecs={b"cf:tags": JSON}))


@pytest.mark.parametrize("batch_rows", [0, -1])
def test_a_batch_has_a_row_at_least(client: Client, batch_rows: int) -> None:
    """Refused at once, like the codecs."""
    with client.tm.begin() as tx, pytest.raises(UsageError, match="batch_rows"):
        tx.table(TABLE).scan_arrow(codecs={b"cf:balance": INT64}, batch_rows=batch_rows)


def test_a_scan_ends_with_its_transaction(client: Client) -> None:
    """A batch of a closed transaction would not be of its snapshot for sure."""
    fill(client, 4)
    tx = client.tm.begin()
    batches = tx.table(TABLE).scan_arrow(codecs={b"cf:balance": INT64}, batch_rows=1)
    next(batches)
    tx.rollback()
    with pytest.raises(TransactionClosed):
        next(batches)


def test_without_pyarrow_the_remedy_is_named(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is an extra, and is needed for this alone."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with (
        client.tm.begin() as tx,
        pytest.raises(ConfigError, match=re.escape(install_hint("spark"))),
    ):
        tx.table(TABLE).scan_arrow(codecs={b"cf:balance": INT64})
