"""A table says by what its conflicts are detected, also one that was made again by its name.

Two clients that disagree about the level see none of each other's conflicts, so that one of them
would overwrite what the other has committed.  So each goes by the table's, whatever it makes tables
with itself, and by no earlier table's that it remembers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from omidpy import aio
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    OMID_ENABLED,
)
from omidpy.errors import ConfigError, Fenced, OracleUnavailable, WriteConflict
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableSchema
from omidpy.oracle.base import Begun
from omidpy.tx.transaction import Transaction
from tests.machines.clients import TABLE, Client, LossyOracle


class SilentOracle(LossyOracle):
    """Omid's: it tells of no fence, and of nothing else."""

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Tell the start timestamp alone."""
        return Begun(super().begin(hold_s=hold_s).start_ts)


class Scene:
    """A client that works by cell, and another one by row, of one store and one oracle."""

    def __init__(self, oracle: type[LossyOracle] = LossyOracle) -> None:
        client = Client()
        self.client = client
        shared = oracle(client.naive)
        self.by_cell = self._manager(shared, "cell")
        self.by_row = self._manager(shared, "row")

    def _manager(self, oracle: LossyOracle, level: str) -> TransactionManager:
        store, clock = self.client.store, self.client.clock
        return TransactionManager(
            store, oracle, conflict_level=level, post_commit="sync", clock=clock
        )

    def remember(self) -> None:
        """Let the client by cell learn what the table is."""
        with self.by_cell.begin() as tx:
            tx.table(TABLE).put(b"r", {b"cf:q": b"0"})

    def make_again(self) -> None:
        """Drop the table, and make it by row."""
        self.by_row.drop_table(TABLE)
        self.by_row.create_table(TABLE, ["cf", "other"])

    def meets(self, tx: Transaction, write: Callable[[], object] | None = None) -> None:
        """See a transaction of the client by cell meet one that writes another cell of its row."""
        other = self.by_row.begin()
        other.table(TABLE).put(b"r", {b"cf:other": b"1"})
        (write or (lambda: tx.table(TABLE).put(b"r", {b"cf:q": b"1"})))()
        other.commit()
        with pytest.raises(WriteConflict) as caught:
            tx.commit()
        assert [row for _, row, *_ in caught.value.cells] == [b"r"]


@pytest.mark.parametrize("oracle", [LossyOracle, SilentOracle])
def test_a_table_made_again_by_row_is_not_written_by_cell(oracle: type[LossyOracle]) -> None:
    """The client has written it a moment ago, and would commit beside a client by row."""
    scene = Scene(oracle)
    scene.remember()
    scene.make_again()
    scene.meets(scene.by_cell.begin())


def test_one_transaction_writes_tables_of_both_levels() -> None:
    """Each entry of its write set is made as the table says."""
    scene = Scene()
    scene.by_row.create_table("rows", ["cf"])
    for tm in (scene.by_cell, scene.by_row):
        for column, is_refused in ((b"cf:q", True), (b"cf:other", False)):
            first, second = tm.begin(), tm.begin()
            first.table(TABLE).put(b"r", {b"cf:q": b"1"})
            first.table("rows").put(b"mine", {b"cf:q": b"1"})
            second.table("rows").put(b"yours", {b"cf:q": b"1"})
            second.table(TABLE).put(b"r", {column: b"2"})
            first.commit()
            if is_refused:
                with pytest.raises(WriteConflict):
                    second.commit()
            else:
                second.commit()
        first, second = tm.begin(), tm.begin()
        first.table(TABLE).put(b"s", {b"cf:q": b"1"})
        first.table("rows").put(b"r", {b"cf:q": b"1"})
        second.table(TABLE).put(b"s", {b"cf:other": b"1"})
        second.table("rows").put(b"r", {b"cf:other": b"1"})
        first.commit()
        with pytest.raises(WriteConflict) as caught:
            second.commit()
        assert {cell[:2] for cell in caught.value.cells} == {("rows", b"r")}


def test_a_level_that_is_none_is_refused() -> None:
    """A newer client may have made it; by another one the updates of both would be lost."""
    scene = Scene()
    scene.client.store.set_table_attributes(TABLE, {CONFLICT_LEVEL_ATTRIBUTE: "family"})
    with scene.by_cell.begin() as tx, pytest.raises(ConfigError, match="by 'family', which is"):
        tx.table(TABLE)


@pytest.mark.parametrize("oracle", [LossyOracle, SilentOracle])
def test_a_transaction_that_knew_the_earlier_table_does_not_commit(
    oracle: type[LossyOracle],
) -> None:
    """It may go by what it knows, since the fence of the next table is above it."""
    scene = Scene(oracle)
    tx = scene.by_cell.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
    scene.make_again()
    with pytest.raises(Fenced):
        tx.commit()
    with scene.by_row.begin() as after:
        assert after.table(TABLE).row(b"r") == {}


def test_what_another_transaction_has_read_too_early_is_read_again() -> None:
    """It is kept last, though it is older than what a younger transaction has read since."""
    scene = Scene()
    older = scene.by_cell.begin()
    older.table(TABLE)
    scene.make_again()
    scene.meets(scene.by_cell.begin())
    scene.meets(scene.by_cell.begin())  # what the first has found is believed
    older.rollback()


def test_a_worker_does_not_write_it_either() -> None:
    """Its manager remembers the earlier table, and the token is of a transaction after the next."""
    scene = Scene()
    scene.remember()
    scene.make_again()
    owner = scene.by_cell.begin()
    worker = scene.by_cell.resume(owner.token())

    def write() -> None:
        worker.table(TABLE).put(b"r", {b"cf:q": b"1"})
        owner.merge(worker.finish())

    scene.meets(owner, write)


def test_a_worker_asks_for_a_table_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are asked for with each row, and no fence is told here."""
    scene = Scene(SilentOracle)
    with scene.by_cell.begin() as owner:
        worker = scene.by_cell.resume(owner.token())
        worker.table(TABLE)
        monkeypatch.setattr(scene.client.store, "schema", None)  # which nobody can call
        worker.table(TABLE)


def test_what_its_manager_has_read_since_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many workers as tasks, and the token tells of the fences."""
    scene = Scene()
    with scene.by_cell.begin() as owner:
        worker = scene.by_cell.resume(owner.token())
        worker.table(TABLE)
        monkeypatch.setattr(scene.client.store, "schema", None)  # which nobody can call
        scene.by_cell.resume(owner.token()).table(TABLE)


def test_asyncio_does_not_write_it_either() -> None:
    """The twin drives the same transaction."""
    scene = Scene()
    scene.remember()
    scene.make_again()

    async def write() -> None:
        tm = aio.TransactionManager(scene.by_cell)
        try:
            tx = await tm.begin()
            await tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
            with scene.by_row.begin() as other:
                other.table(TABLE).put(b"r", {b"cf:other": b"1"})
            await tx.commit()
        finally:
            tm.threads.close()

    with pytest.raises(WriteConflict):
        asyncio.run(write())


def test_a_table_that_somebody_else_makes_in_its_place_is_read_anew() -> None:
    """HBase's shell and Phoenix set no fence of ours, so that the removal sets one."""
    scene = Scene()
    scene.remember()
    scene.by_row.drop_table(TABLE)
    attributes = {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE, CONFLICT_LEVEL_ATTRIBUTE: "row"}
    families = [FamilySchema(b"cf", {OMID_ENABLED: "true"})]
    scene.client.store.create_table(TableSchema(TABLE, families, attributes))
    scene.meets(scene.by_cell.begin())


def test_a_table_is_not_dropped_while_no_oracle_answers() -> None:
    """Its writers would be told committed; it is there, and open, as it was."""
    scene = Scene()
    shared = scene.by_row.oracle
    assert isinstance(shared, LossyOracle)
    shared.is_dead = True
    with pytest.raises(OracleUnavailable):
        scene.by_row.drop_table(TABLE)
    shared.is_dead = False
    scene.remember()
    scene.by_row.drop_table(TABLE)
    assert TABLE not in scene.by_row.tables()


def test_a_reader_may_go_by_what_it_remembers() -> None:
    """It has no conflicts; the price of looking is saved."""
    scene = Scene(SilentOracle)
    scene.remember()
    store = scene.client.store
    with pytest.MonkeyPatch.context() as patch, scene.by_cell.begin(read_only=True) as tx:
        patch.setattr(store, "schema", None)  # which nobody can call
        assert tx.table(TABLE).row(b"r") == {b"cf:q": b"0"}
