"""What is said of one transaction: every kind of evidence, and the order in which it is read."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import omidpy
from omidpy.base.cells import commit_row, encode_long, shadow_qualifier
from omidpy.cli.app import tree
from omidpy.errors import UsageError
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, LOW_WATERMARK_FACT, CommitTable
from omidpy.facts.control import ControlTable
from omidpy.facts.inspection import State, inspect
from omidpy.facts.watermarks import COLLECTION_HORIZON, PRUNE_HORIZON
from omidpy.model import Timestamp
from omidpy.storage.base import Put, RowMutation
from tests.machines.clients import TABLE, Client


def written(client: Client, *rows: bytes) -> omidpy.Transaction:
    """Return a transaction that has flushed a value in some rows."""
    tx = client.tm.begin()
    for row in rows:
        tx.table(TABLE).put(row, {b"cf:q": b"v"})
    tx.flush()
    return tx


def test_a_complete_transaction_is_told_by_its_shadow_cells() -> None:
    """Its commit entry is gone, as it should be."""
    client = Client(post_commit="sync")
    tx = written(client, b"a", b"b")
    tx.commit()
    found = inspect(client.store, tx.start_ts)
    assert found.state is State.COMMITTED
    assert found.commit_ts == tx.commit_ts
    assert found.entry is None
    assert (found.cell_count, found.unhealed_count, found.orphan_shadow_count) == (2, 0, 0)
    assert {cell.cell.row for cell in found.cells} == {b"a", b"b"}
    assert {cell.commit_ts for cell in found.cells} == {tx.commit_ts}


def test_a_commit_whose_client_died_is_told_by_its_entry() -> None:
    """What a reader or the compactor still has to heal is counted."""
    client = Client(post_commit="none")
    tx = written(client, b"a")
    tx.commit()
    found = inspect(client.store, tx.start_ts + 3)
    assert (found.start_ts, found.state) == (tx.start_ts, State.COMMITTED)
    assert found.entry == found.commit_ts == tx.commit_ts
    assert (found.cell_count, found.unhealed_count) == (1, 1)


def test_what_cannot_be_read_is_named_and_the_rest_is_told() -> None:
    """Whoever mends a malformed fact needs all the others."""
    client = Client(post_commit="none")
    tx = written(client, b"a", b"b")
    tx.commit()
    assert tx.commit_ts is not None

    def shadow(row: bytes, value: bytes) -> RowMutation:
        return RowMutation(row, (Put(b"cf", shadow_qualifier(b"q"), tx.start_ts, value),))

    entry = RowMutation(commit_row(tx.start_ts), (Put(*COMMIT, tx.start_ts, b"\xff"),))
    client.store.write({COMMIT_TABLE: [entry], TABLE: [shadow(b"a", b"?")]})
    found = inspect(client.store, tx.start_ts)
    assert (found.state, found.commit_ts) == (State.UNREADABLE, None)
    assert (found.cell_count, found.unhealed_count) == (2, 2)
    first, second = found.malformed
    assert commit_row(tx.start_ts).hex() in first
    assert "the shadow cell (b'a'" in second
    client.store.write({TABLE: [shadow(b"b", encode_long(tx.commit_ts))]})
    assert inspect(client.store, tx.start_ts).state is State.COMMITTED


def test_a_running_transaction_is_undecided_and_dead_below_the_watermark() -> None:
    """Nothing was decided; whether it still can be is what the low watermark says."""
    client = Client()
    tx = written(client, b"a")
    assert inspect(client.store, tx.start_ts).state is State.UNDECIDED
    ControlTable(client.store).raise_number(LOW_WATERMARK_FACT, tx.start_ts)
    assert inspect(client.store, tx.start_ts).state is State.DEAD


def test_an_invalidation_is_told_unless_a_shadow_cell_contradicts_it() -> None:
    """A false invalidation is outranked by a shadow cell, as for every reader."""
    client = Client(post_commit="sync")
    lost = written(client, b"a")
    CommitTable(client.store).invalidate(lost.start_ts)
    assert inspect(client.store, lost.start_ts).state is State.INVALIDATED
    done = written(client, b"b")
    done.commit()
    CommitTable(client.store).invalidate(done.start_ts)
    assert inspect(client.store, done.start_ts).state is State.COMMITTED


@pytest.mark.parametrize("horizon", [PRUNE_HORIZON, COLLECTION_HORIZON])
def test_an_invalidation_of_which_no_cell_is_left_tells_nothing_below_a_horizon(
    horizon: bytes,
) -> None:
    """Who planted it may have stood still while a commit came, was completed, and collected."""
    client = Client()
    tx = written(client, b"a")
    CommitTable(client.store).invalidate(tx.start_ts)
    ControlTable(client.store).raise_number(horizon, tx.start_ts)
    assert inspect(client.store, tx.start_ts).state is State.INVALIDATED
    tx.rollback()
    assert inspect(client.store, tx.start_ts).state is State.FORGOTTEN
    ControlTable(client.store).write(horizon, encode_long(tx.start_ts - 1))
    assert inspect(client.store, tx.start_ts).state is State.INVALIDATED


def test_what_left_nothing_behind_is_forgotten() -> None:
    """Rolled back, collected or never begun: the store cannot tell."""
    client = Client()
    tx = written(client, b"a")
    tx.rollback()
    assert inspect(client.store, tx.start_ts).state is State.FORGOTTEN


def test_a_tombstone_is_named_and_tables_can_be_chosen() -> None:
    """A reader of the output must see that the cell deletes."""
    client = Client(post_commit="sync")
    with client.tm.begin() as tx:
        tx.table(TABLE).delete(b"a", columns=[b"cf:q"])
    (cell,) = inspect(client.store, tx.start_ts, tables=[TABLE]).cells
    assert cell.kind == "tombstone"
    with pytest.raises(omidpy.NoSuchTable, match="nowhere"):
        inspect(client.store, tx.start_ts, tables=["nowhere"])


def test_a_transaction_that_completes_during_the_scan_is_not_called_undecided() -> None:
    """The entry is read first: later it could be gone although no shadow cell was seen."""
    client = Client(post_commit="none")
    tx = written(client, b"a")
    tx.commit()
    assert tx.commit_ts is not None
    commit_ts = Timestamp(tx.commit_ts)
    original = client.store.scan

    def complete_after_scan(*args: object, **kwargs: object) -> object:
        pages = list(original(*args, **kwargs))  # type: ignore[arg-type]  # passed through
        CommitTable(client.store).complete([tx.start_ts])
        return iter(pages)

    client.store.scan = complete_after_scan  # type: ignore[method-assign, assignment]  # a race
    found = inspect(client.store, tx.start_ts)
    assert (found.state, found.commit_ts) == (State.COMMITTED, commit_ts)


@pytest.mark.parametrize("number", [0, -50, 2**63])
def test_what_is_no_timestamp_is_refused(number: int) -> None:
    """A typing error must not read a whole store."""
    with pytest.raises(UsageError, match="start_ts"):
        inspect(Client().store, number)


def test_the_command_prints_what_was_found(tmp_path: object) -> None:
    """`tx inspect` and `tx outcome` say the same to people and to programs."""
    url = f"sqlite:///{tmp_path}/x.db"
    with omidpy.connect(url, post_commit="none") as tm:
        tm.create_table("t", ["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"cf:q": b"v"})
    run = CliRunner()
    number = str(tx.start_ts)
    text = run.invoke(tree(), ["tx", "inspect", number, "--store", url])
    assert text.exit_code == 0
    assert "committed" in text.output
    assert "b'cf:q'" in text.output
    document = json.loads(
        run.invoke(tree(), ["tx", "inspect", number, "--store", url, "--json"]).output
    )
    assert document["state"] == "committed"
    assert document["commit_entry"] == document["commit_ts"] == tx.commit_ts
    assert document["cells"][0]["row"] == b"r".hex()
    assert document["age_s"] >= document["commit_age_s"] >= 0
    answer = run.invoke(tree(), ["tx", "outcome", number, "--store", url, "--json"])
    assert json.loads(answer.output) == {
        "start_ts": tx.start_ts,
        "outcome": "committed",
        "commit_ts": tx.commit_ts,
    }


def test_what_was_never_issued_is_said_to_be_that(tmp_path: object) -> None:
    """It was "forgotten", as if there had been something to forget."""
    url = f"sqlite:///{tmp_path}/x.db"
    run = CliRunner()

    def said(start_ts: int, *words: str) -> str:
        answer = run.invoke(tree(), ["tx", "outcome", str(start_ts), "--store", url, *words])
        assert answer.exit_code == 0
        return answer.output.strip()

    with omidpy.connect(url) as tm:
        tx = tm.begin()
        tx.rollback()
        assert said(tx.start_ts) == "undecided"
        assert said(tx.start_ts + 10**12).startswith("never-issued: no timestamp above ")
        assert said(1050).startswith("never-issued: the first timestamp of this store is ")
        assert json.loads(said(1050, "--json"))["outcome"] == "never-issued"
    with omidpy.connect(url) as tm:
        tm.begin().rollback()
        assert said(tx.start_ts) == "forgotten"
