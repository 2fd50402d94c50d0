"""In which order the changes of a batch are sent, and what is sent again after a failure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from omidpy.errors import StorageUnavailable
from omidpy.happybase.batch import SKIP_WAL, SYNC_WAL, Batch
from omidpy.happybase.connection import Connection
from omidpy.happybase.session import PlainSession
from omidpy.storage.hbase.native.values import RowChange

LOST = StorageUnavailable("whether it was applied is not known")


class Client:
    """HBase, as far as a batch calls it."""

    def __init__(self) -> None:
        """Answer all calls."""
        self.calls = SimpleNamespace(address=SimpleNamespace(durability="default"))
        self.sent: list[tuple[str, list[bytes], int]] = []
        self.failures: list[Exception | None] = []
        """Of the next calls."""
        self.acknowledged = 0

    def mutate_many(
        self,
        table: str,
        changes: Sequence[RowChange],
        *,
        durability: int,
        made: list[RowChange],
    ) -> None:
        """Note what is to be changed; of what fails the first `acknowledged` rows are made."""
        assert table == "t"
        kind = "put" if all(one.puts and not one.deletes for one in changes) else "delete"
        assert kind == "put" or all(one.deletes and not one.puts for one in changes)
        self.sent.append((kind, [one.row for one in changes], durability))
        made += changes[: self.acknowledged]
        if self.failures and (error := self.failures.pop(0)) is not None:
            raise error


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    """Return what connections call."""
    made = Client()
    monkeypatch.setattr(PlainSession, "native", made)
    monkeypatch.setattr(PlainSession, "check_plain", lambda *_: None)
    return made


def batch(batch_size: int | None = None) -> Batch:
    """Return one of a table."""
    return Connection("localhost", autoconnect=False).table("t").batch(batch_size=batch_size)


def test_puts_are_sent_before_deletes(client: Client) -> None:
    """As the gateway does: what a batch puts and deletes is gone, and not so by the millisecond."""
    with batch() as one:
        one.delete(b"a", [b"cf:q"])
        one.put(b"a", {b"cf:q": b"1"})
        one.put(b"b", {b"cf:q": b"1"}, wal=False)
        one.delete(b"b", [b"cf"])
    assert client.sent == [
        ("put", [b"a"], SYNC_WAL),
        ("put", [b"b"], SKIP_WAL),
        ("delete", [b"a", b"b"], SYNC_WAL),
    ]


@pytest.mark.parametrize(
    ("wal", "durability"),
    [(None, SYNC_WAL), (1, SYNC_WAL), ("yes", SYNC_WAL), (0, SKIP_WAL), ("", SKIP_WAL)],
)
def test_a_change_is_sent_whatever_says_whether_it_is_logged(
    client: Client, wal: Any, durability: int
) -> None:
    """It was in no group of those that are sent, and the block ended as if it had been."""
    table = Connection("localhost", autoconnect=False).table("t")
    table.put(b"a", {b"cf:q": b"1"}, wal=wal)
    with table.batch(wal=True) as one:
        one.delete(b"a", [b"cf:q"], wal=wal)
    assert client.sent == [("put", [b"a"], durability), ("delete", [b"a"], durability)]


def test_what_may_have_been_made_is_not_made_again_by_the_end_of_the_block(client: Client) -> None:
    """Its user was told, and nothing but him knows whether a second one does harm."""
    client.failures = [LOST]
    with suppress(StorageUnavailable), batch(batch_size=2) as one:
        one.put(b"a", {b"cf:q": b"1"})
        one.put(b"b", {b"cf:q": b"1"})
        pytest.fail("it has not failed")
    assert client.sent == [("put", [b"a", b"b"], SYNC_WAL)]


def test_an_exception_of_another_kind_ends_a_block_with_what_is_left(client: Client) -> None:
    """As in happybase, also behind changes that were sent before."""
    with suppress(KeyError), batch(batch_size=2) as one:
        one.put(b"a", {b"cf:q": b"1", b"cf:r": b"1"})
        one.put(b"b", {b"cf:q": b"1"})
        raise KeyError
    assert [rows for _, rows, _ in client.sent] == [[b"a"], [b"b"]]


def test_who_sends_again_sends_what_was_not_acknowledged(client: Client) -> None:
    """A put that was made would hide, as a later one, what was written since."""
    one = batch()
    one.put(b"a", {b"cf:q": b"1"})
    one.delete(b"b", [b"cf:q"])
    client.failures = [None, LOST]
    with pytest.raises(StorageUnavailable):
        one.send()
    one.send()
    one.send()
    assert client.sent == [
        ("put", [b"a"], SYNC_WAL),
        ("delete", [b"b"], SYNC_WAL),
        ("delete", [b"b"], SYNC_WAL),
    ]


def test_rows_that_were_acknowledged_are_not_sent_again_with_those_that_failed(
    client: Client,
) -> None:
    """One refused row fails a call of a thousand, of which all others were made."""
    one = batch()
    for row in (b"a", b"b", b"c"):
        one.put(row, {b"cf:q": b"1", b"cf:r": b"1"})
    client.failures = [LOST]
    client.acknowledged = 2
    with pytest.raises(StorageUnavailable):
        one.send()
    one.send()
    assert [rows for _, rows, _ in client.sent] == [[b"a", b"b", b"c"], [b"c"]]
