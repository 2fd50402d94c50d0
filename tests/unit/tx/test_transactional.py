"""`tm.transactional`: what can be decorated, and how it is called; types are in `tests/typing`."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import Context
from typing import Any

import pytest

from omidpy import aio
from omidpy.errors import WriteConflict
from omidpy.manager import TransactionManager
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client

Decorate = Callable[[TransactionManager], object]


@pytest.fixture
def client() -> Client:
    """Return a manager over memory."""
    return Client()


def put(tx: Transaction, row: bytes) -> None:
    """Write something."""
    tx.table(TABLE).put(row, {b"cf:q": b"v"})


# -- methods ---------------------------------------------------------------------------------------


def bank_of(client: Client) -> Any:
    """Return a class with a method of each kind."""
    tm = client.tm

    class Bank:
        tries = 0

        @tm.transactional
        def open(self, tx: Transaction, row: bytes, *, times: int = 1) -> tuple[object, int]:
            self.tries += 1
            put(tx, row)
            if self.tries < times:
                client.write(row)
            return self, self.tries

        @staticmethod
        @tm.transactional
        def audit(tx: Transaction, row: bytes) -> bytes:
            put(tx, row)
            return row

        @classmethod
        @tm.transactional(retry_budget_s=5)
        def found(cls, tx: Transaction, row: bytes) -> type:
            put(tx, row)
            return cls

    return Bank


def test_a_method_takes_the_transaction_behind_self(client: Client) -> None:
    """Bound, unbound, with a transaction and without; it is run again whole."""
    bank = bank_of(client)()
    assert bank.open(b"a", times=3) == (bank, 3)
    assert type(bank).open(bank, b"b") == (bank, 4)
    with client.tm.begin() as tx:
        assert bank.open(tx, b"c") == (bank, 5)
        assert type(bank).open(bank, tx, row=b"d") == (bank, 6)
        assert bank.open(b"e") == (bank, 7)
        assert client.read(b"c") == client.read(b"e") == {}, "it joined"
    assert all(client.read(row) for row in (b"a", b"b", b"c", b"d", b"e"))


def test_static_and_class_methods(client: Client) -> None:
    """Their own decorators stand above ours."""
    bank = bank_of(client)
    with client.tm.begin() as tx:
        assert bank.audit(tx, b"a") == b"a"
        assert bank().audit(b"b") == b"b"
        assert bank.found(tx, b"c") is bank().found(b"d") is bank
        assert client.read(b"a") == {}
    assert bank.audit(b"e") == b"e"
    assert bank.found(b"f") is bank
    assert all(client.read(row) for row in (b"a", b"b", b"c", b"d", b"e", b"f"))


def test_a_bound_method_can_be_decorated(client: Client) -> None:
    """It has its object already."""

    class Rows:
        def add(self, tx: Transaction, row: bytes) -> None:
            put(tx, row)

    client.tm.transactional(Rows().add)(b"a")
    assert client.read(b"a")


def test_a_decorated_function_keeps_its_name_and_its_signature(client: Client) -> None:
    """For whoever reads the documentation."""

    @client.tm.transactional
    def transfer(tx: Transaction, source: bytes, amount: int = 1) -> None:
        """Move something."""

    assert (transfer.__name__, transfer.__doc__) == ("transfer", "Move something.")
    assert list(inspect.signature(transfer).parameters) == ["tx", "source", "amount"]


def test_arguments_of_any_number_are_passed_on(client: Client) -> None:
    """The transaction is the first of them."""

    @client.tm.transactional
    def write(*args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        put(args[0], b"a")
        return len(args), kwargs

    assert write(1, 2, a=3) == (3, {"a": 3})
    assert functools.partial(write, 1)(b=4) == (2, {"b": 4})
    assert client.tm.transactional(print)() is None, "a built-in may hide its signature"


# -- what is refused -------------------------------------------------------------------------------


def generator(tx: Transaction) -> Iterator[bytes]:
    """Yield what nobody reads before the transaction has ended."""
    yield from (key for key, _ in tx.table(TABLE).scan())


async def coroutine(tx: Transaction) -> None:
    """Run when somebody awaits it."""
    put(tx, b"a")


async def asynchronous_generator(tx: Transaction) -> AsyncIterator[Transaction]:
    """Run when somebody iterates over it."""
    yield tx


class Callee:
    """Is called as a function is."""

    async def __call__(self, tx: Transaction) -> None:
        """Run when somebody awaits it."""


REFUSED: list[tuple[str, Any, str]] = [
    ("generator", generator, "generator is a generator, .* return a list, or .* tm.begin"),
    ("partial", functools.partial(generator), "is a generator"),
    ("coroutine", coroutine, r"coroutine is an `async def`, .*`omidpy.aio.connect`"),
    ("callable", Callee(), "is an `async def`"),
    ("async-generator", asynchronous_generator, "is a generator"),
    ("nothing", lambda: 5, "takes no transaction; make that its first argument"),
    ("keyword", lambda *, tx: tx, "takes no transaction"),
    ("self-alone", lambda self: self, "takes no transaction; .* after `self`"),
    ("static", staticmethod(put), "write @staticmethod above @tm.transactional"),
    ("class", classmethod(lambda cls, tx: tx), "write @classmethod above @tm.transactional"),
    ("number", 5, "decorates functions, not 5"),
]


@pytest.mark.parametrize(
    ("function", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_what_cannot_be_a_transaction_is_refused_when_it_is_decorated(
    client: Client, function: Any, message: str
) -> None:
    """Not when it is called, which may be at night."""
    with pytest.raises(TypeError, match=message):
        client.tm.transactional(function)
    with pytest.raises(TypeError, match=message):
        client.tm.transactional(retry_budget_s=5)(function)


def test_asyncio_decorates_async_functions_and_methods(client: Client) -> None:
    """And refuses generators, async or not."""

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:

            class Bank:
                tries = 0

                @tm.transactional
                async def open(self, tx: aio.Transaction, row: bytes) -> int:
                    await tx.table(TABLE).put(row, {b"cf:q": b"v"})
                    self.tries += 1
                    if self.tries == 1:
                        raise WriteConflict
                    return self.tries

                @classmethod
                @tm.transactional
                async def found(cls, tx: aio.Transaction) -> type:
                    assert tx.status == "running"
                    return cls

            bank = Bank()
            assert await bank.open(b"a") == 2
            async with tm.begin() as tx:
                assert await bank.open(tx, b"b") == 3
                assert await Bank.open(bank, b"c") == 4
                assert await Bank.found() is await bank.found(tx) is Bank
            refused: list[Any] = [generator, asynchronous_generator, lambda: 5, staticmethod(put)]
            for function in refused:
                with pytest.raises(TypeError):
                    tm.transactional(function)
            assert all(map(client.read, (b"a", b"b", b"c")))

    asyncio.run(main())


# -- what blocks leave behind ----------------------------------------------------------------------


def test_blocks_of_many_managers_leave_one_variable() -> None:
    """A context keeps all that were ever set in it, and so one of each manager that is gone."""
    context = Context()

    def enter() -> None:
        with Client().tm.begin() as tx:
            put(tx, b"a")

    async def enter_as_task() -> None:
        async with aio.TransactionManager(Client().tm).begin() as tx:
            await tx.table(TABLE).put(b"a", {b"cf:q": b"v"})

    counts = []
    for _ in range(3):
        context.run(enter)
        with asyncio.Runner() as runner:
            runner.run(enter_as_task(), context=context)
        counts.append(len(context))
    assert counts[1:] == counts[:1] * 2


def test_a_block_is_found_by_its_own_manager_alone() -> None:
    """Of two stores each has its own transactions, in whatever order their blocks begin and end."""
    one, other = Client(), Client()

    @one.tm.transactional
    def joined(tx: Transaction) -> int:
        return tx.start_ts

    with one.tm.begin() as tx:
        with other.tm.begin():
            assert joined() == tx.start_ts
        assert joined() == tx.start_ts
    with other.tm.begin():
        assert joined() > tx.start_ts
