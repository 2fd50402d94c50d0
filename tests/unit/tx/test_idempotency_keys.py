"""One transaction a key: repetitions, races, deaths, unknown outcomes, and what joins what."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import omidpy
from omidpy import aio
from omidpy.base.tables import CONFLICT_LEVEL_ATTRIBUTE, KEYS_TABLE
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConfigError,
    OracleUnavailable,
    Rollback,
    StorageUnavailable,
    TransactionAborted,
    UsageError,
    WriteConflict,
)
from omidpy.manager import TransactionManager
from omidpy.model import Committed, Timestamp, TransactionStatus
from omidpy.oracle.base import CommitGranted, InvalidationVerdict
from omidpy.storage.memory import MemoryStore
from omidpy.tx.keys import MAX_KEY_BYTES, key_row
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client, Loss
from tests.machines.like_thrift1 import LikeThrift1

KEY = b"order-17"


@pytest.fixture
def client() -> Client:
    """Return a client whose oracle's line a test can cut."""
    return Client()


def put(client: Client, key: bytes = KEY, value: bytes = b"v") -> Transaction:
    """Commit one cell with a key."""
    with client.tm.begin(idempotency_key=key) as tx:
        tx.table(TABLE).put(b"r", {b"cf:q": value})
    return tx


def cut_off(client: Client, *, decided: bool) -> None:
    """Let the next commit end without an answer, and nobody find out what became of it."""

    def dead(_: Timestamp) -> CommitGranted | InvalidationVerdict:
        raise OracleUnavailable("the oracle is dead", retryable=False)

    client.oracle.losses.append(Loss.REPLY if decided else Loss.REQUEST)
    client.oracle.invalidation = dead
    client.tm.session.outcomes._evidence = no_evidence  # type: ignore[method-assign, assignment]


def no_evidence(*_: object) -> omidpy.Outcome:
    """Stand in for a store that cannot be read."""
    raise StorageUnavailable("cut")


# -- repetitions -----------------------------------------------------------------------------------


def test_a_repetition_is_told_the_first_commit_and_writes_nothing(client: Client) -> None:
    """The block does not run: begin raises."""
    first = put(client)
    image = client.raw(), client.raw(KEYS_TABLE)
    with pytest.raises(AlreadyCommitted) as caught:
        put(client, value=b"again")
    assert (caught.value.start_ts, caught.value.commit_ts) == (first.start_ts, first.commit_ts)
    assert caught.value.key == KEY
    assert not caught.value.retryable
    assert (client.raw(), client.raw(KEYS_TABLE)) == image


def test_a_key_alone_is_a_commit(client: Client) -> None:
    """Whoever found nothing to write has done what the key names, too."""
    with client.tm.begin(idempotency_key=KEY) as tx:
        pass
    assert tx.commit_ts is not None
    with pytest.raises(AlreadyCommitted):
        client.tm.begin(idempotency_key=KEY)


def test_other_keys_are_other_transactions(client: Client) -> None:
    """Also one that the other begins with."""
    put(client, b"a")
    put(client, b"ab")
    put(client, b"b")


@pytest.mark.parametrize("how", ["raises", "rolls back", "conflicts"])
def test_a_key_that_was_rolled_back_is_free(client: Client, how: str) -> None:
    """Nobody sees what it wrote, flushed or not."""
    tx = client.tm.begin(idempotency_key=KEY)
    tx.table(TABLE).put(b"r", {b"cf:q": b"lost"})
    tx.flush()
    if how == "raises":
        with pytest.raises(ZeroDivisionError), tx:
            raise ZeroDivisionError
    elif how == "rolls back":
        tx.rollback()
    else:
        client.write()
        with pytest.raises(WriteConflict):
            tx.commit()
    assert put(client).commit_ts is not None


def test_a_key_of_a_dead_client_is_free_until_it_has_committed(client: Client) -> None:
    """Its cell lies there, tentative; and if it goes on, it is refused."""
    dead = client.tm.begin(idempotency_key=KEY)
    dead.flush()
    put(client)
    with pytest.raises(WriteConflict):
        dead.commit()


def test_a_crash_between_commit_and_shadow_cells_has_used_the_key() -> None:
    """The commit entry says so, and the reader heals the row."""
    client = Client(post_commit="none")
    first = put(client)
    assert len(client.entries()) == 1, "nothing was completed"
    other = TransactionManager(client.store, client.naive, clock=ManualClock())
    with pytest.raises(AlreadyCommitted) as caught:
        other.begin(idempotency_key=KEY)
    assert caught.value.commit_ts == first.commit_ts


def test_of_two_that_run_at_once_one_commits(client: Client) -> None:
    """Neither sees the other; the oracle does."""
    one = client.tm.begin(idempotency_key=KEY)
    two = client.tm.begin(idempotency_key=KEY)
    one.commit()
    with pytest.raises(WriteConflict) as caught:
        two.commit()
    assert caught.value.retryable
    assert caught.value.cells[0][0] == KEYS_TABLE


@pytest.mark.parametrize("level", ["cell", "row"])
def test_clients_of_both_conflict_levels_meet(level: str) -> None:
    """The table of keys has one level, whatever that of a client is."""
    client = Client(conflict_level=level)
    other_level = {"cell": "row", "row": "cell"}[level]
    other = TransactionManager(
        client.store, client.naive, clock=ManualClock(), conflict_level=other_level
    )
    one = client.tm.begin(idempotency_key=KEY)
    two = other.begin(idempotency_key=KEY)
    one.commit()
    with pytest.raises(WriteConflict):
        two.commit()
    assert client.store.schema(KEYS_TABLE).attributes[CONFLICT_LEVEL_ATTRIBUTE] == "cell"


def test_managers_with_prefixes_have_keys_of_their_own() -> None:
    """They have tables of their own, too."""
    client = Client()
    prefixed = TransactionManager(
        client.store, client.naive, clock=ManualClock(), table_prefix="app_"
    )
    put(client)
    prefixed.begin(idempotency_key=KEY).commit()
    with pytest.raises(AlreadyCommitted):
        prefixed.begin(idempotency_key=KEY)
    assert len({key_row(KEY, table_prefix=prefix) for prefix in ("", "app_", "app_2")}) == 3


@pytest.mark.parametrize(
    ("key", "error"),
    [
        ("text", TypeError),
        (17, TypeError),
        (b"", UsageError),
        (b"x" * (MAX_KEY_BYTES + 1), UsageError),
    ],
)
def test_bad_keys_are_refused_before_anything_is_asked(
    client: Client, key: object, error: type[Exception]
) -> None:
    """Also where a function is decorated with one."""
    asked = list(client.oracle.asked)
    with pytest.raises(error, match="idempotency"):
        client.tm.begin(idempotency_key=key)  # type: ignore[arg-type]
    with pytest.raises(error, match="idempotency"):
        client.tm.transactional(idempotency_key=key)  # type: ignore[call-overload]
    assert client.oracle.asked == asked
    put(client, b"x" * MAX_KEY_BYTES)


def test_readers_have_no_key(client: Client) -> None:
    """Nothing would tell that they ran."""
    with pytest.raises(UsageError, match="read-only"):
        client.tm.begin(read_only=True, idempotency_key=KEY)


# -- lost answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("decided", [True, False])
def test_after_an_unknown_outcome_the_next_try_is_exact(client: Client, *, decided: bool) -> None:
    """By another process, too: it commits if, and only if, the first has not."""
    tx = client.tm.begin(idempotency_key=KEY)
    tx.table(TABLE).put(b"r", {b"cf:q": b"first"})
    cut_off(client, decided=decided)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        tx.commit()
    assert caught.value.retryable
    assert "same idempotency key" in str(caught.value)
    other = Client.__new__(Client)
    other.tm = TransactionManager(client.store, client.naive, clock=ManualClock())
    if decided:
        with pytest.raises(AlreadyCommitted) as found:
            put(other, value=b"second")
        assert found.value.start_ts == tx.start_ts
    else:
        put(other, value=b"second")
        late = client.naive.commit(tx.start_ts, tx._cell_ids(), ())
        assert not isinstance(late, CommitGranted)
    assert other.read() == {b"cf:q": b"first" if decided else b"second"}


def test_a_request_that_arrives_late_is_refused(client: Client) -> None:
    """It was under way while its successor, with the same key, committed."""
    tx = client.tm.begin(idempotency_key=KEY)
    tx.flush()
    put(client)
    assert not isinstance(client.naive.commit(tx.start_ts, tx._cell_ids(), ()), CommitGranted)


def test_without_a_key_an_unknown_outcome_is_never_retried(client: Client) -> None:
    """Also where a function that joined has used one: the rest of the transaction has none."""
    tx = client.tm.begin()
    tx.use_key(KEY)
    cut_off(client, decided=True)
    with pytest.raises(CommitOutcomeUnknown) as caught:
        tx.commit()
    assert not caught.value.retryable
    assert "do not run it again" in str(caught.value)


def test_attempts_end_where_the_last_one_turns_out_to_have_committed(client: Client) -> None:
    """What its block computed is what was committed, and its callbacks are called."""
    called: list[int] = []
    runs = 0
    for attempt in client.tm.attempts(idempotency_key=KEY):
        with attempt as tx:
            runs += 1
            tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
            tx.after_commit(lambda done: called.append(done.start_ts))
            cut_off(client, decided=True)
    assert runs == 1
    assert attempt.succeeded
    assert tx.status is TransactionStatus.COMMITTED
    assert tx.commit_ts is not None
    assert called == [tx.start_ts]


def test_attempts_raise_where_an_earlier_one_had_committed(client: Client) -> None:
    """The last block computed something else."""
    runs: list[Transaction] = []

    def loop() -> None:
        for attempt in client.tm.attempts(idempotency_key=KEY):
            with attempt as tx:
                tx.table(TABLE).put(b"r", {b"cf:q": b"%d" % len(runs)})
                runs.append(tx)
                if len(runs) == 1:
                    cut_off(client, decided=False)
                else:
                    # The request that was under way arrives behind the snapshot of the second.
                    client.naive.commit(runs[0].start_ts, runs[0]._cell_ids(), ())

    with pytest.raises(AlreadyCommitted) as caught:
        loop()
    assert len(runs) == 2
    assert caught.value.start_ts == runs[0].start_ts
    assert client.read() == {b"cf:q": b"0"}


@pytest.mark.parametrize("own", [ValueError("no such order"), Rollback(), UsageError("wrong")])
def test_a_try_in_doubt_is_not_told_as_failed_because_a_later_block_raised(
    client: Client, own: Exception
) -> None:
    """I9: the block was rolled back, and the one before it may be committed."""
    numbers = []

    def run() -> None:
        for attempt in client.tm.attempts(idempotency_key=KEY):
            with attempt as tx:
                numbers.append(attempt.number)
                if attempt.number == 2:
                    raise own
                tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                cut_off(client, decided=False)

    with pytest.raises(CommitOutcomeUnknown) as last:
        run()
    assert last.value.__cause__ is own
    assert numbers == [1, 2]


def test_asyncio_tells_of_a_try_in_doubt_the_same(client: Client) -> None:
    """I9: as the blocking loop does."""
    runs = []

    async def main() -> None:
        async with aio.TransactionManager(client.tm) as tm:

            @tm.transactional(idempotency_key=KEY)
            async def write(tx: aio.Transaction) -> None:
                runs.append(tx)
                if len(runs) == 2:
                    raise ValueError("no such order")
                await tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                cut_off(client, decided=False)

            with pytest.raises(CommitOutcomeUnknown):
                await write()

    asyncio.run(main())
    assert len(runs) == 2


# -- functions -------------------------------------------------------------------------------------


def adding(client: Client, key: bytes | Callable[..., bytes]) -> Callable[..., object]:
    """Return a function that adds to a cell, once a key."""

    @client.tm.transactional(idempotency_key=key)
    def add(tx: Transaction, order: bytes, amount: int) -> int:
        table = tx.table(TABLE)
        total = int(table.row(b"r").get(b"cf:q", b"0")) + amount
        table.put(b"r", {b"cf:q": b"%d" % total})
        return total

    return add


def test_a_function_runs_once_a_key(client: Client) -> None:
    """A repetition returns the commit of the first."""
    add = adding(client, lambda order, _: order)
    assert add(b"a", 1) == 1
    again = add(b"a", 1)
    assert isinstance(again, Committed)
    assert again.commit_ts is not None
    assert add(b"b", 1) == 2


@pytest.mark.parametrize(
    ("key", "error"), [(None, TypeError), ("text", TypeError), (b"", UsageError)]
)
def test_a_function_that_gives_no_key_is_told(
    client: Client, key: Any, error: type[Exception]
) -> None:
    """What was to run once ran as often as it was called, in transactions without a key."""
    add = adding(client, lambda *_: key)
    with pytest.raises(error, match="idempotency key"):
        add(b"a", 1)
    with pytest.raises(error, match="idempotency key"), client.tm.begin():
        add(b"a", 1)

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)

        @tm.transactional(idempotency_key=lambda: key)
        async def once(tx: aio.Transaction) -> None:
            await tx.table(TABLE).put(b"r", {b"cf:q": b"1"})

        with pytest.raises(error, match="idempotency key"):
            await once()

    asyncio.run(main())
    assert client.raw() == []


def test_a_fixed_key_is_for_a_function_that_runs_once_ever(client: Client) -> None:
    """Such as the step of a migration."""
    add = adding(client, b"migration-3")
    assert add(b"a", 1) == 1
    assert isinstance(add(b"b", 1), Committed)


def test_a_lost_answer_is_no_matter_to_a_function_with_a_key(client: Client) -> None:
    """It returns what it computed, and ran once."""
    add = adding(client, b"k")
    cut_off(client, decided=True)
    assert add(b"a", 5) == 5
    assert client.read() == {b"cf:q": b"5"}


def test_a_lost_request_is_no_matter_to_a_function_with_a_key(client: Client) -> None:
    """It ran twice, and was committed once."""
    add = adding(client, b"k")
    cut_off(client, decided=False)
    assert add(b"a", 5) == 5
    assert client.read() == {b"cf:q": b"5"}


@pytest.mark.parametrize("is_passed", [True, False])
def test_a_call_that_joins_uses_the_key_in_that_transaction(
    client: Client, *, is_passed: bool
) -> None:
    """Both are there, or neither; and the second call of the same transaction does nothing."""
    add = adding(client, lambda order, _: order)
    for is_kept in (False, True):
        with client.tm.begin() as tx:
            given = (tx,) if is_passed else ()
            assert add(*given, b"a", 1) == 1
            assert add(*given, b"a", 1) == Committed(None)
            tx.flush()
            assert add(*given, b"a", 1) == Committed(None)
            if not is_kept:
                raise omidpy.Rollback
    assert isinstance(add(b"a", 1), Committed)
    assert client.read() == {b"cf:q": b"1"}


def test_a_call_that_failed_where_it_joined_has_not_used_its_key(client: Client) -> None:
    """The caller may have caught what it raised, and commit the rest."""

    @client.tm.transactional(idempotency_key=KEY)
    def fail(tx: Transaction, error: type[Exception] | None) -> str:
        if error is not None:
            raise error
        return "done"

    with client.tm.begin() as tx:
        with pytest.raises(ZeroDivisionError):
            fail(tx, ZeroDivisionError)
        tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    assert fail(None) == "done"


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_call_that_failed_where_it_joined_may_be_made_again_there(
    client: Client, *, is_flushed: bool
) -> None:
    """It is not done, whatever became of the first one."""
    errors = [ZeroDivisionError()]

    @client.tm.transactional(idempotency_key=KEY)
    def pay(tx: Transaction) -> str:
        if errors:
            raise errors.pop()
        tx.table(TABLE).put(b"r", {b"cf:q": b"paid"})
        return "done"

    with client.tm.begin() as tx:
        with pytest.raises(ZeroDivisionError):
            pay(tx)
        if is_flushed:
            tx.flush()
        assert pay(tx) == "done"
    assert client.read() == {b"cf:q": b"paid"}
    assert isinstance(pay(), Committed)


@pytest.mark.parametrize("is_noted", [False, True])
def test_a_call_cut_short_between_its_end_and_its_key_forbids_the_commit(
    client: Client, monkeypatch: pytest.MonkeyPatch, *, is_noted: bool
) -> None:
    """What it did would be there, and be done again."""
    add = adding(client, KEY)
    note = Transaction._note_key

    def interrupted(tx: Transaction, key: bytes) -> None:
        if is_noted:
            note(tx, key)
        raise KeyboardInterrupt

    monkeypatch.setattr(Transaction, "_note_key", interrupted)
    tx = client.tm.begin()
    with pytest.raises(KeyboardInterrupt):
        add(tx, b"a", 1)
    monkeypatch.undo()
    with pytest.raises(TransactionAborted, match="has not ended, or was cut short"):
        tx.commit()
    assert add(b"a", 1) == 1
    assert client.read() == {b"cf:q": b"1"}


def test_two_calls_with_one_key_are_not_under_way_in_one_transaction(client: Client) -> None:
    """Neither knows of the other what it will have done."""

    @client.tm.transactional(idempotency_key=KEY)
    def pay(tx: Transaction, depth: int) -> None:
        if depth:
            pay(tx, depth - 1)

    with client.tm.begin() as tx, pytest.raises(UsageError, match="under way in transaction"):
        pay(tx, 1)


def test_a_call_that_commits_what_it_has_joined_is_refused(client: Client) -> None:
    """Its key would not be in that commit."""

    @client.tm.transactional(idempotency_key=KEY)
    def pay(tx: Transaction) -> None:
        tx.table(TABLE).put(b"r", {b"cf:q": b"paid"})
        tx.commit()

    tx = client.tm.begin()
    with pytest.raises(TransactionAborted, match="has not ended, or was cut short"):
        pay(tx)
    assert client.read() == {}


def test_a_task_that_is_cancelled_while_a_key_is_looked_for_has_not_used_it() -> None:
    """The look goes on behind it, and whoever catches that may commit the rest."""

    async def pay_late() -> None:
        looking, go_on = threading.Event(), threading.Event()
        async with aio.connect("memory:") as tm:
            await tm.create_table(TABLE, families=["cf"])

            @tm.transactional(idempotency_key=KEY)
            async def pay(tx: aio.Transaction) -> str:
                await tx.table(TABLE).put(b"r", {b"cf:q": b"paid"})
                return "done"

            async with tm.begin() as tx:
                await tx.use_key(b"another")
            get = tm.blocking.store.get

            def slow(*args: Any, **options: Any) -> Any:
                looking.set()
                go_on.wait(10)
                return get(*args, **options)

            tm.blocking.store.get = slow  # type: ignore[method-assign]
            async with tm.begin() as tx:
                await tx.table(TABLE).put(b"other", {b"cf:q": b"v"})
                task = asyncio.create_task(pay(tx))
                await asyncio.to_thread(looking.wait, 10)
                task.cancel()
                go_on.set()
                with suppress(asyncio.CancelledError):
                    await task
                assert task.cancelled()
            assert await pay() == "done"
            assert await pay() != "done"

    asyncio.run(pay_late())


def test_an_error_of_the_functions_own_is_not_taken_for_a_repetition(client: Client) -> None:
    """It may be of another store."""
    put(client, b"inner")

    @client.tm.transactional(idempotency_key=b"outer")
    def outer(tx: Transaction) -> None:
        client.tm.begin(idempotency_key=b"inner")

    with pytest.raises(AlreadyCommitted):
        outer()


def test_a_savepoint_that_is_undone_frees_the_key(client: Client) -> None:
    """It was written inside."""
    add = adding(client, lambda order, _: order)
    with client.tm.begin() as tx:
        with suppress(ZeroDivisionError), tx.savepoint():
            add(tx, b"a", 1)
            raise ZeroDivisionError
        assert add(tx, b"a", 1) == 1


# -- the first key of a store, threads, asyncio ----------------------------------------------------


def test_the_first_key_of_a_store_makes_the_table(client: Client) -> None:
    """Also for a transaction that runs already, since nobody can have written to another one."""
    with client.tm.begin() as tx:
        tx.use_key(KEY)
    with pytest.raises(AlreadyCommitted):
        put(client)


def test_keys_of_a_table_that_was_dropped_are_not_committed_to_the_next(client: Client) -> None:
    """Its transaction would have used a key that nobody finds."""
    put(client, b"before")
    tx = client.tm.begin(idempotency_key=KEY)
    tx.flush()
    client.tm.drop_table(KEYS_TABLE)
    put(client, b"after")
    with pytest.raises(omidpy.Fenced):
        tx.commit()


def test_a_gateway_that_makes_no_tables_uses_keys_all_the_same() -> None:
    """Once somebody has made theirs, by other means."""
    store = MemoryStore()
    client = Client(store)
    poor = TransactionManager(
        LikeThrift1(store), client.naive, post_commit="sync", clock=ManualClock()
    )
    with pytest.raises(ConfigError, match=r"hbase\+thrift2"):
        poor.begin(idempotency_key=KEY)
    put(client, b"first")
    poor.begin(idempotency_key=KEY).commit()
    with pytest.raises(AlreadyCommitted):
        put(client)


def test_threads_with_one_key_do_it_once(tmp_path: Path) -> None:
    """On one file, each with a manager's oracle between them."""
    with omidpy.connect(f"sqlite:///{tmp_path}/s.db") as tm:
        tm.create_table("t", ["cf"])
        results: list[object] = []
        barrier = threading.Barrier(4)

        @tm.transactional(idempotency_key=lambda name: name)
        def once(tx: Transaction, name: bytes) -> str:
            table = tx.table("t")
            count = int(table.row(name).get(b"cf:n", b"0")) + 1
            table.put(name, {b"cf:n": b"%d" % count})
            return "ran"

        def work() -> None:
            barrier.wait()
            results.extend(once(b"%d" % number) for number in range(10))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results.count("ran") == 10
        assert len({one for one in results if isinstance(one, Committed)}) == 10
        with tm.begin() as tx:
            rows = [data for key, data in tx.table("t").scan()]
        assert rows == [{b"cf:n": b"1"}] * 10


def test_asyncio_has_the_same() -> None:
    """Begin, decorated functions, attempts, and lost answers."""
    client = Client()

    async def main() -> None:
        tm = aio.TransactionManager(client.tm)
        async with tm.begin(idempotency_key=b"a") as tx:
            await tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
        with pytest.raises(AlreadyCommitted):
            await tm.begin(idempotency_key=b"a")

        @tm.transactional(idempotency_key=lambda name: name)
        async def once(tx: aio.Transaction, name: bytes) -> str:
            await tx.table(TABLE).put(name, {b"cf:q": b"1"})
            return "ran"

        cut_off(client, decided=True)
        assert await once(b"x") == "ran"
        assert isinstance(await once(b"x"), Committed)
        async with tm.begin() as tx:
            assert await once(tx, b"y") == "ran"
            assert await once(b"y") == Committed(None)
            with pytest.raises(AlreadyCommitted):
                await tx.use_key(b"y")
        async for attempt in tm.attempts(idempotency_key=b"b"):
            async with attempt as tx:
                await tx.table(TABLE).put(b"b", {b"cf:q": b"1"})
        with pytest.raises(AlreadyCommitted):
            await anext(aiter(tm.attempts(idempotency_key=b"b")))

    asyncio.run(main())
