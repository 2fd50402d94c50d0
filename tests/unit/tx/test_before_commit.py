"""What others do while a commit begins, or an argument is read, is looked at before acting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import pytest

from omidpy.errors import TransactionAborted, TransactionClosed, UsageError
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client

COLUMN = b"cf:q"


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def put(tx: Transaction, row: bytes = b"r", value: bytes = b"v") -> None:
    """Write one cell."""
    tx.table(TABLE).put(row, {COLUMN: value})


def torn(tx: Transaction) -> None:
    """Hand over half of a batch, and go on as if nothing had been."""

    def tear() -> None:
        with tx.table(TABLE).batch(batch_size=1) as batch:
            batch.put(b"half", {COLUMN: b"v"})
            raise ZeroDivisionError

    with suppress(ZeroDivisionError):
        tear()


@pytest.mark.parametrize(
    ("callback", "reason"),
    [
        (Transaction.set_rollback_only, "set_rollback_only was called"),
        (Transaction.rollback, "by a callback of before_commit"),
        (torn, "batch"),
        (lambda tx: tx.forbid_commit("of a reason"), "of a reason"),
    ],
    ids=["rollback only", "rollback", "a torn batch", "forbidden"],
)
@pytest.mark.parametrize("is_block", [False, True], ids=["commit", "block"])
def test_a_callback_can_forbid_the_commit(
    client: Client, callback: Callable[[Transaction], None], reason: str, *, is_block: bool
) -> None:
    """It ran behind the guards, and the transaction was committed all the same."""
    tx = client.tm.begin()
    later: list[str] = []

    def run() -> None:
        if not is_block:
            tx.commit()
            return
        with tx:
            pass

    put(tx)
    tx.flush()
    tx.before_commit(lambda: callback(tx))
    tx.after_commit(lambda _: later.append("committed"))
    with pytest.raises(TransactionAborted, match=reason) as refused:
        run()
    assert not refused.value.retryable
    assert tx.status == "rolled_back"
    assert later == []
    assert client.raw() == []
    assert "commit" not in client.oracle.asked


def test_nobody_is_called_for_a_transaction_that_was_rolled_back(client: Client) -> None:
    """The next one would write into what has ended."""
    tx = client.tm.begin()
    called: list[str] = []
    put(tx)
    tx.before_commit(tx.rollback)
    tx.before_commit(lambda: called.append("second"))
    with pytest.raises(TransactionAborted):
        tx.commit()
    assert called == []


@pytest.mark.parametrize("is_caught", [False, True])
def test_a_callback_does_not_commit(client: Client, *, is_caught: bool) -> None:
    """The commit that it interrupts would go on with what is committed already."""
    tx = client.tm.begin()
    put(tx)

    def commit() -> None:
        with suppress(UsageError if is_caught else ZeroDivisionError):
            tx.commit()

    tx.before_commit(commit)
    if is_caught:
        tx.commit()
        assert client.read() == {COLUMN: b"v"}
    else:
        with pytest.raises(UsageError, match="committing already"):
            tx.commit()
        assert tx.status == "rolled_back"
        assert client.read() == {}


class Awaited:
    """What a call gives has to be awaited."""

    async def __call__(self, *_: object) -> None:
        """Forbid what nobody asked about."""
        raise ZeroDivisionError


async def forbid(*_: object) -> None:
    """Forbid it, if anybody awaits this."""
    raise ZeroDivisionError


def yielding(*_: object) -> Iterator[None]:
    """Forbid it, if anybody goes over this."""
    yield
    raise ZeroDivisionError


CALLBACKS = [None, "text", forbid, partial(forbid, 1), Awaited(), yielding]


@pytest.mark.parametrize("callback", CALLBACKS)
@pytest.mark.parametrize("name", ["before_commit", "after_commit", "after_rollback", "when_undone"])
def test_what_would_not_run_is_refused_as_a_callback(
    client: Client, name: str, callback: object
) -> None:
    """A coroutine that was to forbid a commit was never begun, and it was committed."""
    tx = client.tm.begin()
    put(tx)
    with pytest.raises(TypeError, match=f"{name} takes a (plain )?function"):
        getattr(tx, name)(callback)
    tx.commit()


def test_a_check_that_nobody_goes_on_with_forbids_the_commit(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """It returns at once, and has looked at nothing."""
    tx = client.tm.begin()
    put(tx)
    tx.before_commit(lambda: yielding())  # noqa: PLW0108 - no generator by its looks
    tx.after_rollback(lambda: yielding())  # noqa: PLW0108 - as above
    with pytest.raises(TypeError, match=r"returned <generator .* which nobody goes on with"):
        tx.commit()
    assert (tx.status, client.raw()) == ("rolled_back", [])
    assert "after_rollback of transaction" in caplog.text
    tx = client.tm.begin()
    put(tx)
    tx.after_commit(lambda _: yielding())
    tx.commit()
    assert "after_commit of transaction" in caplog.text


def test_a_savepoint_that_a_callback_leaves_open_ends_the_transaction(client: Client) -> None:
    """Nobody is left who could close it."""
    tx = client.tm.begin()
    put(tx)
    tx.before_commit(tx.savepoint().__enter__)
    with pytest.raises(UsageError, match="open savepoint"):
        tx.commit()
    assert tx.status == "rolled_back"
    assert client.raw() == []


def test_a_child_that_a_callback_forks_commits_nothing(client: Client) -> None:
    """Nor does it remove what its parent is about to commit."""
    tx = client.tm.begin()
    put(tx)
    tx.flush()
    children: list[int] = []
    parent = os.getpid()
    tx.before_commit(lambda: children.append(os.fork()))
    try:
        tx.commit()
    except BaseException as error:
        if os.getpid() == parent:
            raise
        is_right = isinstance(error, TransactionClosed) and client.raw() != []
        os._exit(0 if is_right else 1)
    finally:
        if os.getpid() != parent:
            os._exit(2)
    assert os.waitpid(children[0], 0)[1] == 0
    assert client.read() == {COLUMN: b"v"}


def test_an_undone_savepoint_takes_a_callback_back(client: Client) -> None:
    """What it would write belongs to what was undone."""
    called: list[str] = []

    def undone(tx: Transaction) -> None:
        with tx.savepoint():
            tx.before_commit(lambda: called.append("undone"))
            raise ZeroDivisionError

    with client.tm.begin() as tx:
        tx.before_commit(lambda: called.append("kept before"))
        with suppress(ZeroDivisionError):
            undone(tx)
        with tx.savepoint():
            tx.before_commit(lambda: called.append("kept within"))
    assert called == ["kept before", "kept within"]


def test_the_last_ones_are_called_behind_all_others(client: Client) -> None:
    """Also behind those that others register; an undone savepoint takes one back."""
    called: list[str] = []

    def undone(tx: Transaction) -> None:
        with tx.savepoint():
            tx.before_commit_last(lambda: called.append("undone"))
            raise ZeroDivisionError

    def register() -> None:
        called.append("first")
        tx.before_commit_last(lambda: called.append("last of all"))
        tx.before_commit(lambda: called.append("second"))

    with client.tm.begin() as tx:
        with tx.savepoint():
            tx.before_commit_last(lambda: called.append("last"))
        with suppress(ZeroDivisionError):
            undone(tx)
        tx.before_commit(register)
    assert called == ["first", "second", "last", "last of all"]


def test_a_last_one_registers_no_other_one(client: Client) -> None:
    """It would no longer be the last, and what it tells of would not be all."""
    tx = client.tm.begin()
    put(tx)
    tx.before_commit_last(lambda: tx.before_commit(lambda: None))
    with pytest.raises(UsageError, match="registers no other one"):
        tx.commit()
    assert client.read() == {}


# -- blocks and savepoints that are left wrongly ---------------------------------------------------


def test_a_block_that_cannot_be_committed_is_rolled_back(client: Client) -> None:
    """Nobody can go back into it to leave the savepoint."""
    tx = client.tm.begin()
    put(tx)
    tx.flush()
    with pytest.raises(UsageError, match="open savepoint"), tx:
        tx.savepoint().__enter__()
    assert tx.status == "rolled_back"
    assert client.raw() == []


@pytest.mark.parametrize("error", [None, ZeroDivisionError()])
def test_savepoints_left_in_another_order_forbid_the_commit(
    client: Client, error: Exception | None
) -> None:
    """The first one's end was the second one's, whose writes were undone or kept for it."""
    tx = client.tm.begin()
    first, second = tx.savepoint(), tx.savepoint()
    first.__enter__()
    second.__enter__()
    put(tx, b"second's")
    if error is None:
        with pytest.raises(UsageError, match="reverse order"):
            first.__exit__(None, None, None)
    else:
        first.__exit__(type(error), error, None)
    second.__exit__(None, None, None)
    first.__exit__(None, None, None)
    with pytest.raises(TransactionAborted, match="reverse order"):
        tx.commit()
    assert client.raw() == []


# -- arguments that end the transaction ------------------------------------------------------------


class Ending(Mapping[bytes, bytes]):
    """Columns of a row; whoever reads them ends the transaction."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx

    def __getitem__(self, column: bytes) -> bytes:
        return b"v"

    def __iter__(self) -> Iterator[bytes]:
        self.tx.commit()
        yield COLUMN

    def __len__(self) -> int:
        return 1


def ending(tx: Transaction) -> Iterator[bytes]:
    """Yield columns, and end the transaction."""
    tx.commit()
    yield COLUMN


@pytest.mark.parametrize(
    "write",
    [
        lambda tx: tx.table(TABLE).put(b"late", Ending(tx)),
        lambda tx: tx.table(TABLE).delete(b"r", ending(tx)),
        lambda tx: tx.table(TABLE).batch().put(b"late", Ending(tx)),
        lambda tx: tx.table(TABLE).row(b"r", ending(tx)),
        lambda tx: list(tx.table(TABLE).scan(columns=ending(tx))),
    ],
    ids=["put", "delete", "batch", "row", "scan"],
)
def test_a_write_is_refused_whose_argument_ends_the_transaction(
    client: Client, write: Callable[[Transaction], object]
) -> None:
    """It was acknowledged, and never written."""
    tx = client.tm.begin()
    put(tx)
    with pytest.raises(TransactionClosed, match="is committed"):
        write(tx)
    assert client.read() == {COLUMN: b"v"}
    assert client.read(b"late") == {}
