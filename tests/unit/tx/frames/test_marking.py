"""Frames into tables of Phoenix's: each row that is put gets the column by which SQL finds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pytest

import omidpy
from compactor.tables.adoption import adopt, plan_adoption
from omidpy.base.tables import OMID_ENABLED
from omidpy.errors import UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.tables.layout import TableLayout
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.spark.frames.writes import jobs
from omidpy.spark.frames.writes.jobs import Job
from omidpy.storage.base import Store
from omidpy.tx.frames.marking import Marking
from omidpy.tx.frames.shape import Shape
from tests.machines.frame_jobs import JobWorld, batch

OMIDS: Final = {
    "coprocessor$2": "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
}
X: Final[Any] = {"x": ("A:X", "string")}
MARKED: Final[Any] = {**X, "_0": ("A:_0", "string")}


def make(store: Store, name: str, *families: bytes) -> None:
    """Make a table as Phoenix does, and adopt it."""
    schemas = [FamilySchema(family, {OMID_ENABLED: "true"}) for family in families]
    store.create_table(TableSchema(name, schemas, OMIDS))
    adopt(store, plan_adoption(store, name, COMMIT_TABLE), COMMIT_TABLE)


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Return a manager of a store with a table of one family, and one of two."""
    with omidpy.connect("memory:") as tm:
        make(tm.store, "ONE", b"A")
        make(tm.store, "TWO", b"B", b"A")
        yield tm


def seen(tm: TransactionManager, table: str) -> dict[bytes, dict[bytes, bytes]]:
    """Return what a new transaction sees."""
    with tm.begin(read_only=True) as tx:
        return dict(tx.table(table).scan())


@pytest.mark.parametrize("nulls", ["keep", "delete"])
def test_each_row_that_is_put_is_one_that_sql_finds(tm: TransactionManager, nulls: str) -> None:
    """Also one of nulls alone, which UPSERT would make, too."""
    data = pa.table({"row": [b"a", b"b"], "x": ["1", None]})
    assert tm.write_arrow("ONE", data, columns=X, nulls=nulls) == 2
    assert seen(tm, "ONE") == {b"a": {b"A:X": b"1", b"A:_0": b"x"}, b"b": {b"A:_0": b"x"}}


def test_a_row_that_is_deleted_goes_with_its_mark(tm: TransactionManager) -> None:
    """And one that was not there gets none."""
    tm.write_arrow("ONE", pa.table({"row": [b"a"], "x": ["1"]}), columns=X)
    gone = pa.table({"row": [b"a", b"c"], "x": ["2", "2"], "_op": ["delete", "delete"]})
    tm.write_arrow("ONE", gone, columns=X)
    assert seen(tm, "ONE") == {}


def test_what_the_frame_says_of_the_mark_stands(tm: TransactionManager) -> None:
    """In a column or a map, as rows of indexes have it; where it is null it is the usual one."""
    data = pa.table({"row": [b"a", b"b"], "x": ["1", "2"], "_0": ["\x01", None]})
    tm.write_arrow("ONE", data, columns=MARKED, nulls="delete")
    cells = pa.map_(pa.string(), pa.binary())
    given = pa.table({"row": [b"c"], "cells": pa.array([[("A:_0", b"\x01")]], cells)})
    tm.write_arrow("ONE", given)
    marks = {row: found[b"A:_0"] for row, found in seen(tm, "ONE").items()}
    assert marks == {b"a": b"\x01", b"b": b"x", b"c": b"\x01"}


def test_tables_of_ours_have_none(tm: TransactionManager) -> None:
    """Whatever their columns are called."""
    tm.create_table("ours", ["A"])
    tm.write_arrow("ours", pa.table({"row": [b"a"], "x": ["1"]}), columns=X)
    assert seen(tm, "ours") == {b"a": {b"A:X": b"1"}}


def test_of_several_families_the_frame_says_which(tm: TransactionManager) -> None:
    """The order of Phoenix's families is not known here."""
    tm.write_arrow("TWO", pa.table({"row": [b"a"], "x": ["1"], "_0": ["x"]}), columns=MARKED)
    before = {b"a": {b"A:X": b"1", b"A:_0": b"x"}}
    assert seen(tm, "TWO") == before
    with pytest.raises(UsageError, match=r"'FAMILY:_0'.*FAMILY being that of the table's first"):
        tm.write_arrow("TWO", pa.table({"row": [b"b"], "x": ["1"]}), columns=X)
    lacking = pa.table({"row": [b"b"], "x": ["1"], "_0": pa.array([None], pa.string())})
    with pytest.raises(UsageError, match="nothing says which one has it of the row b'b'"):
        tm.write_arrow("TWO", lacking, columns=MARKED)
    with pytest.raises(UsageError, match="of the row b'b'"):
        tm.write_arrow(
            "TWO",
            pa.table(
                {
                    "row": [b"b"],
                    "cells": pa.array([[("A:X", b"1")]], pa.map_(pa.string(), pa.binary())),
                }
            ),
        )
    assert seen(tm, "TWO") == before
    tm.write_arrow("TWO", pa.table({"row": [b"a"], "_op": ["delete"]}), columns={})
    assert seen(tm, "TWO") == {}


def test_a_family_that_is_not_ours_is_one_of_several() -> None:
    """Phoenix may have added it in front, and nobody has adopted it yet."""
    families: dict[bytes, dict[str, str]] = {b"A": {}, b"B": {}}
    layout = TableLayout("T", frozenset({b"A"}), "row", families, is_phoenixs=True)
    with pytest.raises(UsageError, match="of its families nothing says"):
        Marking(layout, Shape.of(X))


# -- jobs of Spark's -------------------------------------------------------------------------------


def begin(world: JobWorld, table: str, **more: Any) -> Job:
    """Begin a write of one column."""
    shape = Shape.of(X)
    with world.place.connect() as tm:
        token = jobs.begin(tm, table, shape, hold_s=60)
    return Job(world.place, table, shape, token, "job", **more)


def test_tasks_mark_rows_too() -> None:
    """In one transaction or in several; what is replaced keeps none of the rows that go."""
    world = JobWorld()
    make(world.store, "ONE", b"A")
    job = begin(world, "ONE")
    jobs.commit(job, [jobs.run(job, [batch(row=[b"a", b"b"], x=["1", "2"])], 0)])
    several = begin(world, "ONE", rows_per_transaction=1)
    jobs.run(several, [batch(row=[b"c"], x=["3"])], 0)
    marked = {b"A:_0": b"x"}
    assert seen(world.tm, "ONE") == {
        row: {b"A:X": value, **marked} for row, value in ((b"a", b"1"), (b"b", b"2"), (b"c", b"3"))
    }
    job = begin(world, "ONE", replaced=KeyRange(b"a", b"c"))
    jobs.commit(job, [jobs.run(job, [batch(row=[b"b"], x=["9"])], 0)])
    assert seen(world.tm, "ONE") == {
        b"b": {b"A:X": b"9", **marked},
        b"c": {b"A:X": b"3", **marked},
    }


def test_a_job_is_refused_before_any_task_runs() -> None:
    """Where rows would lack their mark."""
    world = JobWorld()
    make(world.store, "TWO", b"B", b"A")
    with pytest.raises(UsageError, match="empty column"):
        begin(world, "TWO")
