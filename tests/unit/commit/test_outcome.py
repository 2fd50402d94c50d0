"""Lost requests, lost replies, a dead oracle: what the caller hears, and what becomes of the cells.

I8 and I9 hold on every path: nothing is taken back that may have committed, and nothing is called
aborted that may still commit.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from omidpy.base.cells import commit_row, encode_commit, encode_long, shadow_qualifier
from omidpy.base.commit_facts import INVALID
from omidpy.commit.outcome import SETTLE_BUDGET_S
from omidpy.errors import (
    CommitOutcomeUnknown,
    Fenced,
    Invalidated,
    OracleUnavailable,
    RemoteProtocolError,
    StorageUnavailable,
    TransactionAborted,
    UsageError,
)
from omidpy.facts.commit_table import COMMIT
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import COLLECTION_HORIZON, PRUNE_HORIZON
from omidpy.model import (
    Aborted,
    Cell,
    CellId,
    Committed,
    FamilySchema,
    Forgotten,
    TableSchema,
    Timestamp,
    TransactionStatus,
    Undecided,
)
from omidpy.oracle.base import CommitGranted, CommitRefused, InvalidationVerdict
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client, Loss


@pytest.fixture
def client() -> Client:
    """Return a client whose oracle's line a test can cut."""
    return Client()


def pending(client: Client) -> Transaction:
    """Return a transaction with one cell to commit."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    return tx


def unknown(client: Client, *, decided: bool) -> tuple[Transaction, CommitOutcomeUnknown]:
    """Return a transaction whose commit ended without an answer, decided or not, and its error."""
    tx = pending(client)

    def dead(_: Timestamp) -> CommitGranted | InvalidationVerdict:
        raise OracleUnavailable("the oracle is dead", retryable=False)

    client.oracle.losses.append(Loss.REPLY if decided else Loss.REQUEST)
    client.oracle.invalidation = dead
    if decided:
        # No evidence either: the commit table cannot be read.
        assert isinstance(client.store, FaultyStore)
        client.store.plans.append(
            on("get.before", StorageUnavailable("cut"), table=client.commit_table.name)
        )
    with pytest.raises(CommitOutcomeUnknown) as caught:
        tx.commit()
    client.oracle.invalidation = None
    if isinstance(client.store, FaultyStore):
        client.store.plans.clear()
    return tx, caught.value


# -- replies and requests lost ---------------------------------------------------------------------


def test_a_reply_lost_after_the_decision_is_a_commit(client: Client) -> None:
    """The commit entry says so; the caller need not know that anything went wrong."""
    client.oracle.losses.append(Loss.REPLY)
    tx = pending(client)
    tx.commit()
    assert tx.status is TransactionStatus.COMMITTED
    assert client.oracle.asked[-2:] == ["begin", "commit"], "the entry needs no second question"
    assert client.read() == {b"cf:q": b"v"}


def test_a_request_that_was_lost_is_made_a_certain_abort(client: Client) -> None:
    """The oracle forbids it first; only then are the cells taken back."""
    client.oracle.losses.append(Loss.REQUEST)
    tx = pending(client)
    with pytest.raises(Invalidated, match=f"transaction {tx.start_ts} was aborted") as caught:
        tx.commit()
    assert caught.value.retryable
    assert client.oracle.asked[-2:] == ["commit", "invalidate"]
    assert client.entries() == {tx.start_ts: INVALID}
    assert client.raw_data() == []
    assert tx.status is TransactionStatus.ROLLED_BACK


def test_a_request_that_never_left_is_a_plain_abort(client: Client) -> None:
    """Nobody was there to send it to: it has not happened, and may be tried again."""
    client.oracle.losses.append(Loss.NOT_SENT)
    tx = pending(client)
    with pytest.raises(TransactionAborted, match="was not committed") as caught:
        tx.commit()
    assert caught.value.retryable
    assert client.oracle.asked[-1] == "commit", "there is nothing to find out"
    assert client.raw_data() == []


def test_a_dead_oracle_leaves_the_outcome_open(client: Client) -> None:
    """It may have decided before it died.  The cells stay: the commit may be in the table."""
    tx, error = unknown(client, decided=False)
    assert tx.status is TransactionStatus.UNKNOWN
    assert error.start_ts == tx.start_ts
    assert not error.retryable
    assert client.raw_data() == [(b"r", b"q", tx.start_ts, b"v")]
    assert "rolled-back" not in client.steps


def test_a_store_that_fails_for_a_moment_is_asked_again() -> None:
    """The evidence is there; one lost read must not leave the outcome open."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    client.oracle.losses.append(Loss.REPLY)
    tx = pending(client)
    tx.flush()
    client.store.plans.append(on("get.before", StorageUnavailable("cut"), nth=1))
    tx.commit()
    assert tx.status is TransactionStatus.COMMITTED


def test_waiting_for_a_dead_oracle_has_a_bound(client: Client) -> None:
    """The settle budget, on the client's own clock."""
    began_s = client.clock.monotonic_s()
    unknown(client, decided=False)
    assert SETTLE_BUDGET_S <= client.clock.monotonic_s() - began_s < SETTLE_BUDGET_S + 2


def test_an_unexpected_answer_leaves_the_outcome_open(client: Client) -> None:
    """Any failure after the request was sent is an open outcome, also of a second question."""
    tx = pending(client)
    client.oracle.losses.append(Loss.REQUEST)

    def garbled(_: Timestamp) -> CommitGranted | InvalidationVerdict:
        raise RemoteProtocolError("not an answer")

    client.oracle.invalidation = garbled
    with pytest.raises(CommitOutcomeUnknown):
        tx.commit()
    assert tx.status is TransactionStatus.UNKNOWN
    assert client.raw_data() != []


def test_a_with_block_does_not_roll_back_an_unknown_outcome(client: Client) -> None:
    """I8: the block ends with the error, and the cells stay."""
    client.oracle.losses.append(Loss.REQUEST)
    tx = pending(client)

    def cut(_: Timestamp) -> CommitGranted | InvalidationVerdict:
        raise RemoteProtocolError("not an answer")

    client.oracle.invalidation = cut

    def commit_in_block() -> None:
        with tx:
            pass

    with pytest.raises(CommitOutcomeUnknown):
        commit_in_block()
    assert client.raw_data() != []


def test_transactional_does_not_repeat_an_unknown_outcome(client: Client) -> None:
    """It may have been applied once already."""
    runs: list[int] = []

    @client.tm.transactional
    def change(tx: Transaction) -> None:
        runs.append(tx.start_ts)
        tx.table(TABLE).put(b"r", {b"cf:q": b"v"})

    def cut(_: Timestamp) -> CommitGranted | InvalidationVerdict:
        raise RemoteProtocolError("not an answer")

    client.oracle.losses.append(Loss.REQUEST)
    client.oracle.invalidation = cut
    with pytest.raises(CommitOutcomeUnknown):
        change()
    assert len(runs) == 1


# -- finding out later -----------------------------------------------------------------------------


def test_a_commit_is_found_out_later() -> None:
    """By the error alone; the transaction itself may be gone."""
    client = Client(FaultyStore(MemoryStore()))
    tx, error = unknown(client, decided=True)
    assert client.tm.outcome(error) == Committed(Timestamp(tx.start_ts + 50))
    assert client.read() == {b"cf:q": b"v"}


def test_finding_out_finishes_the_transaction() -> None:
    """Given the transaction, what follows a commit is done: shadow cells, entry, callbacks."""
    client = Client(FaultyStore(MemoryStore()))
    tx = pending(client)
    called: list[int | None] = []
    tx.after_commit(lambda tx: called.append(tx.commit_ts))
    client.tm.begin = lambda **_: tx  # type: ignore[method-assign]  # `unknown` commits this one
    unknown(client, decided=True)
    assert called == []
    assert client.tm.outcome(tx) == Committed(Timestamp(tx.start_ts + 50))
    assert tx.status is TransactionStatus.COMMITTED
    assert called == [tx.start_ts + 50]
    assert client.entries() == {}
    assert client.tm.outcome(tx) == Committed(Timestamp(tx.start_ts + 50))
    assert called == [tx.start_ts + 50], "callbacks run once"


def test_what_had_not_committed_is_forbidden_and_taken_back(client: Client) -> None:
    """Asking makes it certain; only then do the cells go."""
    tx, _ = unknown(client, decided=False)
    assert client.tm.outcome(tx) == Aborted()
    assert client.entries() == {tx.start_ts: INVALID}
    assert tx.status is TransactionStatus.ROLLED_BACK
    assert client.raw_data() == []


def test_while_the_oracle_is_dead_the_outcome_stays_undecided(client: Client) -> None:
    """Absence is no evidence."""
    tx, error = unknown(client, decided=False)
    client.oracle.is_dead = True
    assert client.tm.outcome(error) == Undecided()
    assert client.tm.outcome(tx) == Undecided()
    assert tx.status is TransactionStatus.UNKNOWN
    assert client.raw_data() != []


def test_a_shadow_cell_proves_a_commit_whose_entry_is_gone() -> None:
    """A reader healed it and the compactor pruned the entry; the oracle need not be asked."""
    client = Client(FaultyStore(MemoryStore()))
    tx, error = unknown(client, decided=True)
    client.read()
    client.commit_table.complete([tx.start_ts])
    client.oracle.is_dead = True
    assert client.tm.outcome(error) == Committed(Timestamp(tx.start_ts + 50))


def test_a_shadow_cell_outranks_an_invalidation() -> None:
    """A reader of a new epoch may have planted a false one."""
    client = Client(FaultyStore(MemoryStore()))
    tx, error = unknown(client, decided=True)
    client.read()
    client.commit_table.complete([tx.start_ts])
    assert client.commit_table.invalidate(tx.start_ts)
    assert client.tm.outcome(error) == Committed(Timestamp(tx.start_ts + 50))


def test_a_shadow_cell_that_appears_late_outranks_an_invalidation_too() -> None:
    """It is read again behind an invalidation: the completion fell between the two reads."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    tx, error = unknown(client, decided=True)
    plans = client.store.plans

    def complete_and_invalidate() -> None:
        plans.clear()
        client.read()
        client.commit_table.complete([tx.start_ts])
        assert client.commit_table.invalidate(tx.start_ts)

    plans.append(on("get.before", complete_and_invalidate, table=client.commit_table.name))
    assert client.tm.outcome(error) == Committed(Timestamp(tx.start_ts + 50))


def test_an_inherited_transaction_is_finished_by_its_parent_alone(client: Client) -> None:
    """A forked child may find out; cells and callbacks are not its business."""
    tx, _ = unknown(client, decided=False)
    client.tm.session.generation += 1  # what a fork does in the child
    assert client.tm.outcome(tx) == Aborted()
    assert tx.status is TransactionStatus.UNKNOWN
    assert client.raw_data() != []


def forgetful(_: Timestamp) -> CommitGranted | InvalidationVerdict:
    """Answer as an oracle that decided too long ago to remember."""
    return InvalidationVerdict.UNKNOWN


def test_a_forgotten_decision_is_an_abort_where_the_cell_has_no_shadow_cell(client: Client) -> None:
    """An entry goes only after all shadow cells are there, so this one never had an entry."""
    tx, error = unknown(client, decided=False)
    client.oracle.invalidation = forgetful
    assert client.tm.outcome(error) == Aborted()
    assert client.tm.outcome(tx) == Aborted()


def land_entry(client: Client, start_ts: int) -> Timestamp:
    """Write a commit entry blindly, as what a dead oracle has under way on HBase arrives."""
    commit_ts = client.tm.begin().start_ts
    put = Put(*COMMIT, start_ts, encode_commit(start_ts, commit_ts))
    client.store.write({client.commit_table.name: [RowMutation(commit_row(start_ts), (put,))]})
    return commit_ts


def test_a_forgotten_decision_is_forbidden_before_it_is_called_an_abort(client: Client) -> None:
    """On HBase the entry of a dead oracle can still be under way, and land after the question."""
    tx, error = unknown(client, decided=False)
    client.oracle.invalidation = forgetful
    assert client.tm.outcome(error) == Aborted()
    assert client.entries() == {tx.start_ts: INVALID}
    land_entry(client, tx.start_ts)
    assert client.tm.outcome(error) == Aborted()
    assert client.read() == {}


def test_a_forgotten_decision_whose_entry_lands_before_it_is_forbidden_is_a_commit() -> None:
    """Whichever of the two is in the table first stands."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    tx, error = unknown(client, decided=False)
    client.oracle.invalidation = forgetful
    plans = client.store.plans
    landed: list[Timestamp] = []

    def land() -> None:
        plans.clear()
        landed.append(land_entry(client, tx.start_ts))

    plans.append(on("check_and_mutate.before", land, table=client.commit_table.name))
    assert client.tm.outcome(error) == Committed(landed[0])
    assert client.read() == {b"cf:q": b"v"}


def collected(client: Client, start_ts: int) -> None:
    """Remove the cell of a transaction and its shadow cell."""
    deletes = [DeleteVersion(b"cf", one, start_ts) for one in (b"q", shadow_qualifier(b"q"))]
    client.store.write({TABLE: [RowMutation(b"r", deletes=tuple(deletes))]})


def test_what_was_healed_pruned_and_collected_before_it_is_forbidden_is_no_abort() -> None:
    """Who stands still behind his look forbids what has committed, been seen, and gone."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    tx, error = unknown(client, decided=False)
    client.oracle.invalidation = forgetful
    plans = client.store.plans

    def pass_by() -> None:
        plans.clear()
        land_entry(client, tx.start_ts)
        assert client.read() == {b"cf:q": b"v"}
        client.commit_table.complete([tx.start_ts])
        ControlTable(client.store).raise_number(PRUNE_HORIZON, tx.start_ts)
        collected(client, tx.start_ts)

    plans.append(on("check_and_mutate.before", pass_by, table=client.commit_table.name))
    assert client.tm.outcome(tx) == Forgotten()
    assert tx.status is TransactionStatus.UNKNOWN
    assert client.tm.outcome(error) == Forgotten()
    assert client.tm.outcome(int(tx.start_ts)) == Forgotten()


@pytest.mark.parametrize("horizon", [PRUNE_HORIZON, COLLECTION_HORIZON])
def test_an_invalidation_tells_nothing_where_cell_and_entry_may_be_gone(
    client: Client, horizon: bytes
) -> None:
    """Somebody may have stood still before he planted it.  With its cell it tells all the same."""
    tx, error = unknown(client, decided=False)
    assert client.commit_table.invalidate(tx.start_ts)
    control = ControlTable(client.store)
    control.raise_number(horizon, tx.start_ts)
    assert client.tm.outcome(error) == Aborted()
    collected(client, tx.start_ts)
    assert client.tm.outcome(error) == Forgotten()
    control.write(horizon, encode_long(tx.start_ts - 1))
    assert client.tm.outcome(error) == Aborted()


def test_what_an_oracle_finds_forbidden_is_no_abort_where_all_may_be_gone(client: Client) -> None:
    """Who stood still has planted it between our look and the oracle's."""
    tx, error = unknown(client, decided=False)
    land_entry(client, tx.start_ts)
    assert client.read() == {b"cf:q": b"v"}
    client.commit_table.complete([tx.start_ts])
    ControlTable(client.store).raise_number(COLLECTION_HORIZON, tx.start_ts)
    collected(client, tx.start_ts)

    def plant(start_ts: Timestamp) -> InvalidationVerdict:
        assert client.commit_table.invalidate(start_ts)
        return InvalidationVerdict.INVALIDATED

    client.oracle.invalidation = plant
    assert client.tm.outcome(error) == Forgotten()


def test_a_forgotten_decision_without_any_cell_stays_open(client: Client) -> None:
    """The cell may have been collected, committed or not."""
    tx, error = unknown(client, decided=False)
    delete = DeleteVersion(b"cf", b"q", tx.start_ts)
    client.store.write({TABLE: [RowMutation(b"r", deletes=(delete,))]})
    client.oracle.invalidation = forgetful
    ControlTable(client.store).raise_number(COLLECTION_HORIZON, tx.start_ts)
    assert client.tm.outcome(error) == Forgotten()


def test_a_forgotten_decision_without_any_cell_is_none_where_nothing_was_collected(
    client: Client,
) -> None:
    """Where cells and decisions are one write, nothing of a commit can still be under way."""
    tx, error = unknown(client, decided=False)
    delete = DeleteVersion(b"cf", b"q", tx.start_ts)
    client.store.write({TABLE: [RowMutation(b"r", deletes=(delete,))]})
    client.oracle.invalidation = forgetful
    ControlTable(client.store).raise_number(COLLECTION_HORIZON, tx.start_ts - 1)
    assert client.tm.outcome(error) == Aborted()


def test_a_cell_that_may_have_been_taken_back_is_no_evidence(client: Client) -> None:
    """Whoever asks about the transaction of another knows one cell, and not what became of it."""
    tx, _ = unknown(client, decided=False)
    witness = tx.witness()
    delete = DeleteVersion(b"cf", b"q", tx.start_ts)
    client.store.write({TABLE: [RowMutation(b"r", deletes=(delete,))]})
    client.oracle.invalidation = forgetful
    assert client.tm.session.outcomes.settle(tx.start_ts, witness) == Forgotten()


def test_an_entry_that_was_delivered_is_no_evidence(client: Client) -> None:
    """Its row was removed because it was committed."""
    tx, error = unknown(client, decided=False)
    delete = DeleteVersion(b"cf", b"q", tx.start_ts)
    client.store.write({TABLE: [RowMutation(b"r", deletes=(delete,))]})
    client.oracle.invalidation = forgetful
    queue = "OMIDPY_EXPORT_q"
    client.store.create_table(TableSchema(queue, [FamilySchema(b"e")]))
    entry = (queue, Cell(b"r", b"e", b"e", tx.start_ts, b"v"))
    error.others = (entry,)
    assert client.tm.outcome(error) == Forgotten()
    error.others = ()
    assert client.tm.outcome(error) == Aborted()


def test_a_table_that_was_made_anew_is_no_evidence_against_the_others(client: Client) -> None:
    """The cells of one are gone with it; those of the other tell that it was committed."""
    client.tm.create_table("other", ["cf"])
    tx, error = unknown(client, decided=False)
    cell = Cell(b"r", b"cf", b"q", tx.start_ts, b"v")
    shadow = Put(b"cf", shadow_qualifier(b"q"), tx.start_ts, encode_long(tx.start_ts + 50))
    client.store.write({"other": [RowMutation(b"r", puts=(Put(*cell[1:]), shadow))]})
    client.store.drop_table(TABLE)
    client.tm.create_table(TABLE, ["cf"])
    client.oracle.invalidation = forgetful
    error.others = (("other", cell),)
    assert client.tm.outcome(error) == Committed(Timestamp(tx.start_ts + 50))


def made_anew(client: Client, *tables: str) -> None:
    """Let tables be dropped and made again."""
    for table in tables:
        client.tm.drop_table(table)
        client.tm.create_table(table, ["cf"])


def test_where_all_tables_were_made_anew_nobody_can_tell(client: Client) -> None:
    """It may have been committed, and seen, and gone with them: it must not be called aborted."""
    client.tm.create_table("other", ["cf"])
    tx, error = unknown(client, decided=False)
    made_anew(client, TABLE, "other")
    client.oracle.invalidation = forgetful
    cell = Cell(b"r", b"cf", b"q", tx.start_ts, b"v")
    for others in ((), (("other", cell),)):
        error.others = others
        assert client.tm.outcome(error) == Forgotten()
    client.tm.create_table("lasting", ["cf"])
    error.others = (("other", cell), ("lasting", cell))
    assert client.tm.outcome(error) == Aborted()


def test_a_commit_whose_tables_were_all_made_anew_is_not_called_aborted(client: Client) -> None:
    """It would be run again, and what was committed once be done twice."""

    def forgets(_: Timestamp) -> InvalidationVerdict:
        made_anew(client, TABLE)
        return InvalidationVerdict.UNKNOWN

    tx = pending(client)
    client.oracle.losses.append(Loss.REQUEST)
    client.oracle.invalidation = forgets
    with pytest.raises(CommitOutcomeUnknown) as caught:
        tx.commit()
    assert tx.status is TransactionStatus.UNKNOWN
    client.oracle.invalidation = forgetful
    assert client.tm.outcome(tx) == client.tm.outcome(caught.value) == Forgotten()


def test_a_transaction_whose_tables_are_made_anew_before_it_commits_is_aborted(
    client: Client,
) -> None:
    """By a fence, with evidence: it may be run again."""
    tx = pending(client)
    made_anew(client, TABLE)
    with pytest.raises(Fenced, match="a fence was set on one of the tables it wrote") as caught:
        tx.commit()
    assert caught.value.retryable
    assert client.tm.outcome(tx) == Aborted()
    assert client.raw() == []


def test_a_forgotten_decision_of_a_dropped_table_stays_open(client: Client) -> None:
    """There is nothing left that could tell."""
    _, error = unknown(client, decided=False)
    client.tm.drop_table(TABLE)
    client.oracle.invalidation = forgetful
    assert client.tm.outcome(error) == Forgotten()


def test_an_oracle_that_cannot_invalidate_is_asked_for_the_commit_again(client: Client) -> None:
    """Java's oracle: the commit path knows the write set and may repeat its request."""
    client.oracle.can_invalidate = False
    client.oracle.losses.append(Loss.REQUEST)
    tx = pending(client)
    tx.commit()
    assert client.oracle.asked[-2:] == ["commit", "retry"]
    assert client.read() == {b"cf:q": b"v"}


def refusing(
    client: Client, before: Callable[[], object] = lambda: None
) -> Callable[..., CommitRefused]:
    """Return Java's answer to a retry whose entry it did not find, and what happens meanwhile."""

    def commit(*_: object, is_retry: bool = False) -> CommitRefused:
        if not is_retry:
            raise OracleUnavailable("the reply was lost", retryable=False)
        before()
        return CommitRefused()

    client.oracle.can_invalidate = False
    return commit


def test_beside_java_a_refused_retry_may_be_a_commit(client: Client) -> None:
    """Its retry overtakes the batch that holds the commit; the entry, not the answer, decides."""
    tx = pending(client)
    tx.flush()

    def land() -> None:
        granted = client.naive.commit(tx.start_ts, {CellId(1)}, ())
        assert isinstance(granted, CommitGranted)

    client.oracle.commit = refusing(client, land)  # type: ignore[method-assign]  # Java's
    tx.commit()
    assert tx.status is TransactionStatus.COMMITTED
    assert client.read() == {b"cf:q": b"v"}


def test_beside_java_a_refused_retry_is_made_a_certain_abort(client: Client) -> None:
    """An instance that lost its lease may still write the entry: it must not count then."""
    tx = pending(client)
    client.oracle.commit = refusing(client)  # type: ignore[method-assign]  # Java's
    with pytest.raises(TransactionAborted):
        tx.commit()
    assert client.entries() == {tx.start_ts: INVALID}
    assert client.raw_data() == []


def test_beside_java_a_shadow_cell_outranks_a_refused_retry(client: Client) -> None:
    """Complete, and its entry gone: a reader healed it and the compactor pruned it."""
    tx = pending(client)
    tx.flush()

    def complete() -> None:
        client.naive.commit(tx.start_ts, {CellId(1)}, ())
        client.read()
        client.commit_table.complete([tx.start_ts])

    client.oracle.commit = refusing(client, complete)  # type: ignore[method-assign]  # Java's
    tx.commit()
    assert tx.status is TransactionStatus.COMMITTED
    assert client.entries() == {}


def test_beside_java_a_commit_completed_under_the_invalidation_is_found() -> None:
    """The invalidation was false and goes again."""
    client = Client(FaultyStore(MemoryStore()))
    assert isinstance(client.store, FaultyStore)
    plans = client.store.plans
    tx = pending(client)
    tx.flush()

    def complete() -> None:
        plans.clear()
        client.naive.commit(tx.start_ts, {CellId(1)}, ())
        client.read()
        client.commit_table.complete([tx.start_ts])

    def arm() -> None:
        table = client.commit_table.name
        plans.append(on("check_and_mutate.before", complete, table=table))

    client.oracle.commit = refusing(client, arm)  # type: ignore[method-assign]  # Java's
    tx.commit()
    assert tx.status is TransactionStatus.COMMITTED
    assert client.entries() == {}


def test_beside_java_a_refusal_without_own_cells_proves_nothing(client: Client) -> None:
    """They may have been collected after a commit that was complete."""
    tx = pending(client)
    tx.flush()

    def collect() -> None:
        delete = DeleteVersion(b"cf", b"q", tx.start_ts)
        client.store.write({TABLE: [RowMutation(b"r", deletes=(delete,))]})

    client.oracle.commit = refusing(client, collect)  # type: ignore[method-assign]  # Java's
    with pytest.raises(CommitOutcomeUnknown):
        tx.commit()
    assert tx.status is TransactionStatus.UNKNOWN
    assert client.entries() == {}


def test_beside_java_a_bare_question_forbids_nothing(client: Client) -> None:
    """Without the write set there is nothing to repeat, and only the oracle may invalidate."""
    _, error = unknown(client, decided=False)
    client.oracle.can_invalidate = False
    assert client.tm.outcome(error) == Undecided()
    assert client.entries() == {}


# -- by number, and by transactions that know ------------------------------------------------------


def test_ended_transactions_know_their_own_outcome(client: Client) -> None:
    """No store and no oracle is asked."""
    tx = pending(client)
    assert client.tm.outcome(tx) == Undecided()
    tx.commit()
    assert client.tm.outcome(tx) == Committed(tx.commit_ts)
    other = pending(client)
    other.rollback()
    assert client.tm.outcome(other) == Aborted()


def test_a_bare_number_asks_the_commit_table_and_writes_nothing() -> None:
    """`omidpy tx outcome`: an operator must be able to look without deciding."""
    client = Client(post_commit="none")
    start_ts = client.write()
    assert client.tm.outcome(start_ts) == Committed(Timestamp(start_ts + 50))
    assert client.tm.outcome(start_ts + 7) == Committed(Timestamp(start_ts + 50))
    tx = pending(client)
    assert client.tm.outcome(int(tx.start_ts)) == Undecided()
    assert tx.start_ts not in client.entries()
    client.naive.raise_low_watermark()
    assert client.tm.outcome(int(tx.start_ts)) == Forgotten()
    client.commit_table.invalidate(tx.start_ts)
    assert client.tm.outcome(int(tx.start_ts)) == Aborted()
    ControlTable(client.store).raise_number(PRUNE_HORIZON, tx.start_ts)
    assert client.tm.outcome(int(tx.start_ts)) == Forgotten()


@pytest.mark.parametrize("what", [True, "50", None, 50.0])
def test_outcome_takes_what_names_a_transaction(client: Client, what: object) -> None:
    """`True` is an int to Python, and no timestamp."""
    with pytest.raises(TypeError, match=r"outcome\(\) takes a transaction"):
        client.tm.outcome(what)  # type: ignore[arg-type]  # that is the point


# -- two stores ------------------------------------------------------------------------------------


@pytest.mark.parametrize("asks_by", ["transaction", "error", "error of another process"])
def test_no_other_store_is_asked_what_became_of_a_commit(asks_by: str) -> None:
    """It found nothing, called the commit aborted, and its cells were removed (I8)."""
    client, other = Client(FaultyStore(MemoryStore())), Client()
    tx, error = unknown(client, decided=True)
    what: Transaction | CommitOutcomeUnknown = error
    if asks_by == "transaction":
        what = tx
    elif asks_by == "error of another process":
        what = pickle.loads(pickle.dumps(error))
    other.write()
    with pytest.raises(UsageError, match="is one of another store than memory:"):
        other.tm.outcome(what)
    assert isinstance(client.tm.outcome(what), Committed)
    assert client.read() == {b"cf:q": b"v"}


def test_an_error_of_an_earlier_version_names_no_store() -> None:
    """It is asked for where it is brought."""
    client = Client(FaultyStore(MemoryStore()))
    _, error = unknown(client, decided=True)
    assert error.store_id == client.store.store_id
    del error.__dict__["store_id"]
    assert isinstance(client.tm.outcome(error), Committed)


def test_a_snapshot_of_another_store_is_not_held() -> None:
    """Nothing would be held, and its reader learn that when it is gone."""
    client, other = Client(), Client()
    with pytest.raises(UsageError, match="is one of another store"):
        other.tm.hold(client.tm.snapshot(), for_s=60)
    client.tm.hold(client.tm.snapshot(), for_s=60)
