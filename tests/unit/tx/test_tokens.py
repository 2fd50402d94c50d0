"""One transaction, written by several processes: what workers may do, and what a merge refuses."""

from __future__ import annotations

import json

import pytest

from omidpy.errors import (
    OracleUnavailable,
    StorageUnavailable,
    TransactionAborted,
    TransactionClosed,
    UsageError,
    WriteConflict,
)
from omidpy.manager import TransactionManager
from omidpy.model import Aborted, Committed, Timestamp, Undecided
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.worker import Worker
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return the owner's manager."""
    return Client()


def elsewhere(client: Client, token: bytes, *, task: str | None = None) -> Worker:
    """Resume a token as another process would: nothing shared but the store and the oracle."""
    tm = TransactionManager(client.store, client.oracle, clock=client.clock, post_commit="sync")
    return tm.resume(token, task=task)


def part_of(
    client: Client,
    token: bytes,
    cells: dict[bytes, bytes],
    *,
    task: str | None = None,
) -> bytes:
    """Run a whole worker: one column of some rows."""
    worker = elsewhere(client, token, task=task)
    for row, value in cells.items():
        worker.table(TABLE).put(row, {b"cf:q": value})
    return worker.finish()


def rows(client: Client) -> dict[bytes, bytes]:
    """Return what is committed."""
    with client.tm.begin() as tx:
        return {key: data[b"cf:q"] for key, data in tx.table(TABLE).scan()}


@pytest.mark.parametrize("task", [5, True, b"a", ["a"]])
def test_the_name_of_a_task_is_text(client: Client, task: object) -> None:
    """Written down as it is it could not be read, and so the owner could not commit."""
    with client.tm.begin() as tx:
        token = tx.token()
        with pytest.raises(TypeError, match="name of a task"):
            client.tm.resume(token, task=task)  # type: ignore[arg-type]  # what is tested
        tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    assert rows(client) == {b"r": b"v"}


# -- the straight way ------------------------------------------------------------------------------


def test_one_commit_covers_every_part(client: Client) -> None:
    """All of it is visible at once, with a shadow cell for every cell."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"a", {b"cf:q": b"owner's"})
    token = tx.token()
    for row in (b"b", b"c"):
        tx.merge(part_of(client, token, {row: b"worker's"}, task=row.decode()))
    assert rows(client) == {}
    tx.commit()
    assert rows(client) == {b"a": b"owner's", b"b": b"worker's", b"c": b"worker's"}
    assert {row for row, _ in client.raw_shadows()} == {b"a", b"b", b"c"}
    assert client.entries() == {}


def test_a_worker_reads_the_snapshot_and_what_was_flushed(client: Client) -> None:
    """Its own buffer lies over both; later commits of others do not show."""
    client.write(b"old", b"1")
    tx = client.tm.begin()
    tx.table(TABLE).put(b"own", {b"cf:q": b"2"})
    token = tx.token()
    client.write(b"late", b"3")
    worker = elsewhere(client, token)
    table = worker.table(TABLE)
    table.put(b"worker", {b"cf:q": b"4"})
    assert {key for key, _ in table.scan()} == {b"old", b"own", b"worker"}
    assert table.row(b"late") == {}
    tx.rollback()


def test_a_worker_can_change_what_the_owner_flushed(client: Client) -> None:
    """It writes at a higher version than the owner did."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"a", {b"cf:q": b"owner's"})
    tx.merge(part_of(client, tx.token(), {b"a": b"worker's"}))
    assert tx.table(TABLE).row(b"a") == {b"cf:q": b"worker's"}
    tx.commit()
    assert rows(client) == {b"a": b"worker's"}


def test_a_later_token_lies_above_what_the_owner_wrote_in_between(client: Client) -> None:
    """Else a worker's write would be hidden by what it had read."""
    tx = client.tm.begin()
    first = tx.token()
    assert tx.token() == first, "tokens share a version while nothing is written"
    tx.table(TABLE).put(b"a", {b"cf:q": b"owner's"})
    tx.merge(part_of(client, tx.token(), {b"a": b"worker's"}))
    tx.commit()
    assert rows(client) == {b"a": b"worker's"}


def test_a_workers_cells_take_part_in_conflict_detection(client: Client) -> None:
    """The owner's request names them, and the error names the cell."""
    tx = client.tm.begin()
    tx.merge(part_of(client, tx.token(), {b"a": b"worker's"}))
    client.write(b"a", b"first")
    with pytest.raises(WriteConflict) as caught:
        tx.commit()
    assert caught.value.cells == ((TABLE, b"a", b"cf", b"q"),)
    assert rows(client) == {b"a": b"first"}
    assert [value for *_, value in client.raw_data()] == [b"first"]


def test_conflict_free_cells_stay_so_through_a_part(client: Client) -> None:
    """What a worker wrote without conflict detection is not checked for the owner either."""
    tx = client.tm.begin()
    worker = elsewhere(client, tx.token())
    worker.table(TABLE, conflict_free=True).put(b"a", {b"cf:q": b"worker's"})
    tx.merge(worker.finish())
    client.write(b"a", b"first")
    tx.commit()
    assert tx.commit_ts is not None


def test_a_part_can_hold_a_table_that_the_owner_never_opened(client: Client) -> None:
    """The owner must know its conflict level."""
    client.tm.create_table("other", ["cf"])
    tx = client.tm.begin()
    worker = elsewhere(client, tx.token())
    worker.table("other").put(b"a", {b"cf:q": b"1"})
    tx.merge(worker.finish())
    tx.commit()
    with client.tm.begin() as later:
        assert later.table("other").row(b"a") == {b"cf:q": b"1"}


def test_tasks_that_wrote_nothing_may_all_be_merged(client: Client) -> None:
    """Empty partitions are common, and their parts look alike."""
    tx = client.tm.begin()
    token = tx.token()
    for _ in range(2):
        tx.merge(part_of(client, token, {}))
    for task in ("1", "2"):
        tx.merge(part_of(client, token, {}, task=task))
    tx.commit()


# -- attempts and parts that do not fit ------------------------------------------------------------


def test_a_part_merged_twice_is_refused_and_harms_nothing(client: Client) -> None:
    """The mistake is the caller's bookkeeping; the data is right."""
    tx = client.tm.begin()
    part = part_of(client, tx.token(), {b"a": b"1"}, task="t")
    tx.merge(part)
    with pytest.raises(UsageError, match="merged already"):
        tx.merge(part)
    tx.commit()
    assert rows(client) == {b"a": b"1"}


def test_a_failed_attempt_is_repeated(client: Client) -> None:
    """The second one writes the same bytes at the same versions over the first's."""
    tx = client.tm.begin()
    token = tx.token()
    failed = elsewhere(client, token, task="t")
    failed.table(TABLE).put(b"a", {b"cf:q": b"1"})
    failed.finish()  # written, and the part was lost with its process
    tx.merge(part_of(client, token, {b"a": b"1", b"b": b"2"}, task="t"))
    tx.commit()
    assert rows(client) == {b"a": b"1", b"b": b"2"}


def test_attempts_that_differ_make_the_transaction_rollback_only(client: Client) -> None:
    """One of them wrote cells that the commit would show and nobody meant."""
    tx = client.tm.begin()
    token = tx.token()
    tx.merge(part_of(client, token, {b"a": b"1"}, task="t"))
    with pytest.raises(UsageError, match="materialise"):
        tx.merge(part_of(client, token, {b"a": b"2"}, task="t"))
    with pytest.raises(TransactionAborted, match="different digest"):
        tx.commit()
    assert rows(client) == {}


def test_two_parts_with_one_cell_make_the_transaction_rollback_only(client: Client) -> None:
    """Which of them is in the store nobody can say."""
    tx = client.tm.begin()
    token = tx.token()
    tx.merge(part_of(client, token, {b"a": b"1"}, task="t"))
    with pytest.raises(UsageError, match="two parts"):
        tx.merge(part_of(client, token, {b"a": b"1"}, task="u"))
    with pytest.raises(TransactionAborted, match="two parts"):
        tx.commit()


def test_the_digest_tells_write_sets_apart(client: Client) -> None:
    """Lengths are hashed too: a byte moved from the qualifier to the value changes it."""
    tx = client.tm.begin()
    digests = set()
    for column, value in ((b"cf:q1", b"2"), (b"cf:q", b"12")):
        worker = elsewhere(client, tx.token())
        worker.table(TABLE).put(b"a", {column: value})
        digests.add(json.loads(worker.finish())["digest"])
    assert len(digests) == 2
    tx.rollback()


def test_a_part_of_another_transaction_is_refused(client: Client) -> None:
    """Its cells have another start_ts."""
    first, second = client.tm.begin(), client.tm.begin()
    part = part_of(client, first.token(), {b"a": b"1"})
    with pytest.raises(UsageError, match=f"belongs to transaction {first.start_ts}"):
        second.merge(part)
    second.commit()
    first.rollback()


def test_a_token_of_another_store_is_refused(client: Client) -> None:
    """The same start_ts means another transaction there."""
    token = client.tm.begin().token()
    with pytest.raises(UsageError, match="belongs to the store"):
        Client().tm.resume(token)


def test_a_part_of_another_store_is_refused(client: Client) -> None:
    """Even where the start_ts is the same."""
    other = Client()
    tx, twin = client.tm.begin(), other.tm.begin()
    assert tx.start_ts == twin.start_ts
    with pytest.raises(UsageError, match="of the store"):
        tx.merge(part_of(other, twin.token(), {b"a": b"1"}))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"nonsense", UsageError),
        (b"{}", UsageError),
        ("text", TypeError),
        (
            json.dumps({"store_id": "", "start_ts": 1, "version": 1, "epoch": 0, "format": "9"}),
            TypeError,
        ),
        (
            json.dumps(
                {"store_id": "", "start_ts": 1, "version": 1, "epoch": 0, "format": "9"}
            ).encode(),
            UsageError,
        ),
    ],
)
def test_what_is_no_token_is_refused(client: Client, data: bytes, error: type[Exception]) -> None:
    """A file name, a part, or the token of a later version."""
    with pytest.raises(error, match="token"):
        client.tm.resume(data)


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"nonsense", UsageError), ("text", TypeError), (b"", UsageError)],
)
def test_what_is_no_part_is_refused(client: Client, data: bytes, error: type[Exception]) -> None:
    """A token handed back, for example."""
    tx = client.tm.begin()
    with pytest.raises(error, match="part"):
        tx.merge(data)
    with pytest.raises(UsageError, match="part"):
        tx.merge(tx.token())
    part = json.loads(part_of(client, tx.token(), {}))
    with pytest.raises(UsageError, match="omidpy-part-4"):
        tx.merge(json.dumps(part | {"format": "omidpy-part-9"}).encode())


# -- a worker's own limits -------------------------------------------------------------------------


def test_a_finished_worker_is_closed(client: Client) -> None:
    """What it wrote after its part would be in nobody's write set."""
    worker = elsewhere(client, client.tm.begin().token())
    worker.finish()
    with pytest.raises(TransactionClosed, match="has finished"):
        worker.table(TABLE)
    with pytest.raises(TransactionClosed, match="has finished"):
        worker.finish()


def test_a_finish_that_failed_can_be_repeated() -> None:
    """The same bytes are sent again."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    tx = client.tm.begin()
    worker = elsewhere(client, tx.token())
    worker.table(TABLE).put(b"a", {b"cf:q": b"1"})
    store.plans.append(on("write_guarded.after", StorageUnavailable("lost"), nth=1, table=TABLE))
    with pytest.raises(StorageUnavailable):
        worker.finish()
    tx.merge(worker.finish())
    tx.commit()
    assert rows(client) == {b"a": b"1"}


def test_a_worker_cannot_rewrite_what_it_flushed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one version for all workers, and a cell is sent at a version once."""
    monkeypatch.setattr(worker_module, "FLUSH_LIMIT_BYTES", 1)
    worker = elsewhere(client, client.tm.begin().token())
    worker.table(TABLE).put(b"a", {b"cf:q": b"1"})
    worker.table(TABLE).put(b"a", {b"cf:q": b"1"})
    with pytest.raises(UsageError, match="cannot write it again"):
        worker.table(TABLE).put(b"a", {b"cf:q": b"2"})


def test_a_worker_that_was_inherited_across_fork_is_closed(client: Client) -> None:
    """Parent and child would write one part."""
    worker = client.tm.resume(client.tm.begin().token())
    client.tm._after_fork_in_child()
    with pytest.raises(TransactionClosed, match="parent process"):
        worker.finish()


# -- ends ------------------------------------------------------------------------------------------


def test_rolling_back_after_a_token_is_made_durable_first(client: Client) -> None:
    """A worker that writes on does it for a transaction that nobody can commit any more."""
    tx = client.tm.begin()
    token = tx.token()
    part = part_of(client, token, {b"a": b"1"})
    tx.rollback()
    assert "invalidate" in client.oracle.asked
    assert client.tm.outcome(token) == Aborted()
    with pytest.raises(TransactionClosed):
        tx.merge(part)


def test_a_rollback_without_token_asks_the_oracle_nothing(client: Client) -> None:
    """Its cells are removed, and nobody else can write more of them."""
    client.tm.begin().rollback()
    assert "invalidate" not in client.oracle.asked


def test_a_rollback_beside_a_dead_oracle_still_ends(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The low watermark will pass the transaction; readers ignore it meanwhile."""
    tx = client.tm.begin()
    tx.token()
    client.oracle.is_dead = True
    tx.rollback()
    assert tx.status == "rolled_back"
    assert "without an invalidation" in caplog.text


def test_merged_cells_are_removed_by_a_rollback(client: Client) -> None:
    """The owner knows their names."""
    tx = client.tm.begin()
    tx.merge(part_of(client, tx.token(), {b"a": b"1"}))
    tx.rollback()
    assert client.raw() == []


def test_a_token_tells_the_outcome(client: Client) -> None:
    """While the owner runs nothing is forced; once it committed, the witness knows."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
    token = tx.token()
    assert client.tm.outcome(token) == Undecided()
    assert "invalidate" not in client.oracle.asked
    tx.commit()
    assert tx.commit_ts is not None
    assert client.entries() == {}, "the shadow cell is the only evidence"
    assert client.tm.outcome(token) == Committed(tx.commit_ts)


def test_the_token_of_an_abandoned_owner_is_settled_below_the_low_watermark(
    client: Client,
) -> None:
    """It cannot commit any more, so that forbidding it decides nothing new."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
    token = tx.token()
    client.tm.begin()
    client.naive.raise_low_watermark()
    assert client.tm.outcome(token) == Aborted()


def test_a_read_only_transaction_hands_out_no_token(client: Client) -> None:
    """There is nothing that a worker could do with it."""
    with client.tm.begin(read_only=True) as tx, pytest.raises(UsageError, match="read-only"):
        tx.token()


def test_a_token_needs_a_flush_that_succeeds() -> None:
    """Else a worker would read less than its owner wrote."""
    store = FaultyStore(MemoryStore())
    client = Client(store)
    tx = client.tm.begin()
    tx.table(TABLE).put(b"a", {b"cf:q": b"1"})
    store.plans.append(on("write.before", StorageUnavailable("down"), nth=1, table=TABLE))
    with pytest.raises(StorageUnavailable):
        tx.token()
    assert tx.token()


def test_a_lost_answer_to_an_owners_commit_is_settled_by_a_witness(client: Client) -> None:
    """A merged cell is as good a witness as an own one."""
    tx = client.tm.begin()
    tx.merge(part_of(client, tx.token(), {b"a": b"1"}))
    witness = tx.witness()
    assert witness is not None
    assert witness[1].row == b"a"
    assert base_of(witness[1].version) == tx.start_ts
    tx.rollback()


def base_of(version: int) -> Timestamp:
    """Return the transaction of a version."""
    return Timestamp(version - version % 50)


def test_a_worker_outlives_an_oracle_that_is_gone(client: Client) -> None:
    """A worker asks the oracle nothing."""
    tx = client.tm.begin()
    token = tx.token()
    client.oracle.is_dead = True
    assert part_of(client, token, {b"a": b"1"})
    with pytest.raises(OracleUnavailable):
        client.tm.begin()
