"""What a transaction may send, at which version, and what it may send again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.errors import UsageError
from omidpy.model import KeyRange, Timestamp
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.tx.writes.buffer import MAX_CHECKPOINTS, WriteBuffer
from tests.machines.interrupts.lines import Interrupt, Interrupter

START = Timestamp(1000)


@pytest.fixture
def buffer() -> WriteBuffer:
    """Return the empty buffer of transaction 1000."""
    return WriteBuffer(START)


def put(buffer: WriteBuffer, row: bytes, value: bytes, qualifier: bytes = b"q") -> None:
    """Buffer one cell of table t."""
    buffer.put("t", row, b"f", qualifier, value)


def sent(buffer: WriteBuffer) -> list[tuple[bytes, int, bytes]]:
    """Take, and return what must be written as (row, version, value)."""
    return [
        (mutation.row, cell.version, cell.value)
        for mutations in buffer.take().values()
        for mutation in mutations
        for cell in mutation.puts
    ]


def flush(buffer: WriteBuffer) -> list[tuple[bytes, int, bytes]]:
    """Take, and say that it arrived."""
    taken = sent(buffer)
    buffer.acknowledge()
    return taken


def test_rows_are_sent_in_order(buffer: WriteBuffer) -> None:
    """Row order spares the store; it also makes two clients lock in one order."""
    for row in (b"c", b"a", b"b"):
        put(buffer, row, b"v")
    assert [row for row, _, _ in flush(buffer)] == [b"a", b"b", b"c"]


def test_cells_of_one_row_are_one_mutation(buffer: WriteBuffer) -> None:
    """A row is written atomically."""
    put(buffer, b"r", b"1", b"a")
    put(buffer, b"r", b"2", b"b")
    puts = [Put(b"f", b"a", 1000, b"1"), Put(b"f", b"b", 1000, b"2")]
    assert buffer.take() == {"t": [RowMutation(b"r", puts=puts)]}


def test_the_last_value_before_a_flush_is_the_only_one_sent(buffer: WriteBuffer) -> None:
    """Nothing was sent yet, so no checkpoint is spent."""
    put(buffer, b"r", b"old")
    put(buffer, b"r", b"new")
    assert flush(buffer) == [(b"r", 1000, b"new")]


def test_a_cell_once_sent_is_rewritten_at_a_higher_version(buffer: WriteBuffer) -> None:
    """A late duplicate of the first must not cover the second."""
    put(buffer, b"r", b"old")
    flush(buffer)
    put(buffer, b"r", b"new")
    assert flush(buffer) == [(b"r", 1001, b"new")]


def test_a_cell_sent_and_not_acknowledged_is_rewritten_higher_too(buffer: WriteBuffer) -> None:
    """It may have reached the store, or not: an undone savepoint could need it to be there."""
    put(buffer, b"r", b"old")
    assert sent(buffer) == [(b"r", 1000, b"old")]
    put(buffer, b"r", b"new")
    assert flush(buffer) == [(b"r", 1000, b"old"), (b"r", 1001, b"new")]


def test_after_a_failure_the_same_bytes_are_sent_again(buffer: WriteBuffer) -> None:
    """An identical cell at the same version can arrive twice and in any order."""
    put(buffer, b"r", b"v")
    first = sent(buffer)
    put(buffer, b"s", b"w")
    assert sent(buffer) == [*first, (b"s", 1000, b"w")]


def test_writing_the_value_that_was_sent_sends_nothing(buffer: WriteBuffer) -> None:
    """The cell is there already; a checkpoint would be wasted."""
    put(buffer, b"r", b"v")
    flush(buffer)
    put(buffer, b"r", b"v")
    assert flush(buffer) == []


def test_going_back_to_an_earlier_value_is_a_rewrite(buffer: WriteBuffer) -> None:
    """The newest version sent counts, not any of them."""
    for value in (b"a", b"b"):
        put(buffer, b"r", value)
        flush(buffer)
    put(buffer, b"r", b"a")
    assert flush(buffer) == [(b"r", 1002, b"a")]


def test_new_cells_share_the_version_of_a_rewrite(buffer: WriteBuffer) -> None:
    """The write version only rises."""
    put(buffer, b"r", b"v")
    flush(buffer)
    put(buffer, b"r", b"w")
    put(buffer, b"s", b"x")
    assert flush(buffer) == [(b"r", 1001, b"w"), (b"s", 1001, b"x")]


def test_the_fiftieth_version_is_refused_and_nothing_is_lost(buffer: WriteBuffer) -> None:
    """Version 1050 would be a cell of the next transaction."""
    for number in range(MAX_CHECKPOINTS + 1):
        put(buffer, b"r", b"%d" % number)
        assert flush(buffer) == [(b"r", 1000 + number, b"%d" % number)]
    put(buffer, b"r", b"one too many")
    with pytest.raises(UsageError, match=r"transaction 1000 .* 49 .*flush less often"):
        buffer.take()
    assert buffer.row("t", b"r") == {(b"f", b"q"): b"one too many"}
    assert max(cell.version for row in buffer.shadow_cells(START)["t"] for cell in row.puts) == 1049


def test_a_checkpoint_is_kept_for_the_commit(buffer: WriteBuffer) -> None:
    """A flush that the limit forces must not take the version that the commit needs."""
    for number in range(MAX_CHECKPOINTS):
        assert buffer.can_rewrite()
        put(buffer, b"r", b"%d" % number)
        flush(buffer)
    put(buffer, b"r", b"last")
    assert not buffer.can_rewrite()
    put(buffer, b"r", b"the very last")
    assert flush(buffer) == [(b"r", 1049, b"the very last")]


def test_new_cells_need_no_checkpoint(buffer: WriteBuffer) -> None:
    """A transaction that only adds cells may flush for ever."""
    for number in range(200):
        put(buffer, b"%03d" % number, b"v")
        assert buffer.can_rewrite()
        assert flush(buffer) == [(b"%03d" % number, 1000, b"v")]


def test_every_version_sent_gets_a_shadow_cell(buffer: WriteBuffer) -> None:
    """Java's readers resolve each version by its own shadow cell."""
    for value in (b"old", b"new"):
        put(buffer, b"r", value)
        flush(buffer)
    name, value = shadow_qualifier(b"q"), encode_long(1100)
    puts = [Put(b"f", name, 1000, value), Put(b"f", name, 1001, value)]
    assert buffer.shadow_cells(Timestamp(1100)) == {"t": [RowMutation(b"r", puts=puts)]}


def test_every_version_sent_is_removed_by_a_rollback(buffer: WriteBuffer) -> None:
    """Also what was not acknowledged: it may be in the store."""
    put(buffer, b"r", b"old")
    flush(buffer)
    put(buffer, b"r", b"new")
    sent(buffer)
    deletes = [DeleteVersion(b"f", b"q", 1000), DeleteVersion(b"f", b"q", 1001)]
    assert buffer.removals() == {"t": [RowMutation(b"r", deletes=deletes)]}


def test_the_write_set_names_each_cell_once(buffer: WriteBuffer) -> None:
    """The oracle compares cells, not versions."""
    for value in (b"old", b"new"):
        put(buffer, b"r", value)
        flush(buffer)
    assert buffer.names() == [("t", b"r", b"f", b"q")]
    assert buffer.tables() == {"t"}


def test_the_witness_is_a_cell_as_it_was_sent_last(buffer: WriteBuffer) -> None:
    """Its shadow cell, or its presence without one, tells what became of the transaction."""
    assert buffer.witness() is None
    for value in (b"old", b"new"):
        put(buffer, b"r", value)
        flush(buffer)
    assert buffer.witness() == ("t", (b"r", b"f", b"q", 1001, b"new"))


def test_the_size_counts_what_waits(buffer: WriteBuffer) -> None:
    """Rewriting a waiting cell replaces its bytes; sending empties it."""
    put(buffer, b"r", b"x" * 100)
    once = buffer.size_bytes
    put(buffer, b"r", b"y" * 150)
    assert buffer.size_bytes == once + 50
    flush(buffer)
    assert buffer.size_bytes == 0


def test_empty_is_what_never_wrote(buffer: WriteBuffer) -> None:
    """A transaction whose cells are all sent still has something to commit."""
    assert buffer.is_empty
    put(buffer, b"r", b"v")
    assert not buffer.is_empty
    flush(buffer)
    assert not buffer.is_empty


def test_rows_of_a_range_are_a_copy(buffer: WriteBuffer) -> None:
    """A scan goes on over what it saw first, whatever is written meanwhile."""
    for row in (b"a", b"b", b"c"):
        put(buffer, row, b"v")
    found = buffer.rows_in("t", KeyRange(b"a", b"c"))
    put(buffer, b"a", b"changed")
    assert found == {b"a": {(b"f", b"q"): b"v"}, b"b": {(b"f", b"q"): b"v"}}


# -- an exception at any line ----------------------------------------------------------------------


def interrupted(change: Callable[[WriteBuffer], object]) -> Iterator[WriteBuffer]:
    """Yield a buffer with a savepoint and two writes in it for each line, interrupted there."""
    interrupter = Interrupter()
    for number in itertools.count(1):
        buffer = WriteBuffer(START)
        buffer.open_savepoint()
        put(buffer, b"a", b"v")
        put(buffer, b"b", b"v")
        with suppress(Interrupt):
            interrupter.interrupt(lambda: change(buffer), number, Interrupt())  # noqa: B023 - at once
        yield buffer
        if interrupter.where is None:
            assert number > 10
            return


def test_what_an_interrupted_flush_did_not_send_is_sent_by_the_next() -> None:
    """Or the buffer says that it must not be committed: a cell counted as sent that never was."""
    for buffer in interrupted(lambda buffer: buffer.take(with_savepoints=True)):
        if buffer.flaw is None:
            taken = buffer.take(with_savepoints=True)
            assert [mutation.row for mutation in taken["t"]] == [b"a", b"b"]


def test_an_interrupted_savepoint_keeps_all_of_its_writes() -> None:
    """Or the buffer says that it must not be committed."""
    for buffer in interrupted(WriteBuffer.keep_savepoint):
        if buffer.flaw is None:
            assert list(buffer.rows_in("t", KeyRange())) == [b"a", b"b"]
