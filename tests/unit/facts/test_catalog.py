"""A table is made again by its name, at the other conflict level, while clients remember the old.

Two clients that disagree about the level see none of each other's conflicts, so that one of them
would overwrite what the other has committed.
"""

from __future__ import annotations

import asyncio

import pytest

from omidpy import aio
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    OMID_ENABLED,
)
from omidpy.errors import ConfigError, Fenced, OracleUnavailable
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableSchema
from omidpy.oracle.base import Begun
from tests.machines.clients import TABLE, Client, LossyOracle

BY_ROW = r"detects conflicts by row, this client by cell; connect with conflict_level='row'"


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


@pytest.mark.parametrize("oracle", [LossyOracle, SilentOracle])
def test_a_table_made_again_by_row_is_not_written_by_cell(oracle: type[LossyOracle]) -> None:
    """The client has written it a moment ago, and would commit beside a client by row."""
    scene = Scene(oracle)
    scene.remember()
    scene.make_again()
    tx = scene.by_cell.begin()
    with pytest.raises(ConfigError, match=BY_ROW):
        tx.table(TABLE)
    tx.rollback()


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
    tx = scene.by_cell.begin()
    with pytest.raises(ConfigError, match=BY_ROW):
        tx.table(TABLE)
    with pytest.raises(ConfigError, match=BY_ROW):
        tx.table(TABLE)  # once more, for what it has found is no reason to trust the memory
    older.rollback()
    tx.rollback()


def test_a_worker_does_not_write_it_either() -> None:
    """Its manager remembers the earlier table, and the token is of a transaction after the next."""
    scene = Scene()
    scene.remember()
    scene.make_again()
    owner = scene.by_row.begin()
    worker = scene.by_cell.resume(owner.token())
    with pytest.raises(ConfigError, match=BY_ROW):
        worker.table(TABLE)
    owner.rollback()


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
        tx = await tm.begin()
        try:
            await tx.table(TABLE).put(b"r", {b"cf:q": b"1"})
        finally:
            await tx.rollback()
            tm.threads.close()

    with pytest.raises(ConfigError, match=BY_ROW):
        asyncio.run(write())


def test_a_table_that_somebody_else_makes_in_its_place_is_read_anew() -> None:
    """HBase's shell and Phoenix set no fence of ours, so that the removal sets one."""
    scene = Scene()
    scene.remember()
    scene.by_row.drop_table(TABLE)
    attributes = {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE, CONFLICT_LEVEL_ATTRIBUTE: "row"}
    families = [FamilySchema(b"cf", {OMID_ENABLED: "true"})]
    scene.client.store.create_table(TableSchema(TABLE, families, attributes))
    tx = scene.by_cell.begin()
    with pytest.raises(ConfigError, match=BY_ROW):
        tx.table(TABLE)
    tx.rollback()


def test_a_table_can_be_dropped_while_no_oracle_answers(caplog: pytest.LogCaptureFixture) -> None:
    """It is gone, whatever follows; that no fence was set is said."""
    scene = Scene()
    shared = scene.by_row.oracle
    assert isinstance(shared, LossyOracle)
    shared.is_dead = True
    scene.by_row.drop_table(TABLE)
    assert TABLE not in scene.by_row.tables()
    assert "no fence set behind it" in caplog.text
    with pytest.raises(OracleUnavailable):
        scene.by_row.create_table(TABLE, ["cf"])


def test_a_reader_may_go_by_what_it_remembers() -> None:
    """It has no conflicts; the price of looking is saved."""
    scene = Scene(SilentOracle)
    scene.remember()
    store = scene.client.store
    with pytest.MonkeyPatch.context() as patch, scene.by_cell.begin(read_only=True) as tx:
        patch.setattr(store, "schema", None)  # which nobody can call
        assert tx.table(TABLE).row(b"r") == {b"cf:q": b"0"}
