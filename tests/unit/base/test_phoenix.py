"""Which tables are Phoenix's?  Attributes are as HBase 2.6.4 has them of Phoenix 5.2.1."""

from __future__ import annotations

import pytest

from omidpy.base.schema.phoenix import (
    index_objection,
    indexes,
    is_coprocessor,
    is_transactional,
    may_have_indexes,
    misadoption,
    objection,
)
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, CONFLICT_LEVEL_ATTRIBUTE
from omidpy.model import FamilySchema, TableSchema

OMIDS = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
OTHER = "|org.apache.phoenix.coprocessor.UngroupedAggregateRegionObserver|805306366|"
INDEXER = "|org.apache.phoenix.hbase.index.IndexRegionObserver|805306366|"
STRANGE = "hdfs:///cp.jar|com.example.Counts|1001|arg=OmidTransactionalProcessor"


def table(*coprocessors: str, name: str = "T", **attributes: str) -> TableSchema:
    """Return a table with coprocessors."""
    numbered = {f"coprocessor${place}": one for place, one in enumerate(coprocessors, 1)}
    return TableSchema(name, [FamilySchema(b"0", {})], {**numbered, **attributes})


@pytest.mark.parametrize(
    ("schema", "says", "objects"),
    [
        (table(OTHER, OMIDS), True, False),
        (table(OMIDS), True, False),
        (table(" |  org.apache.phoenix.coprocessor.OmidTransactionalProcessor |1|"), True, False),
        (table(OTHER), False, True),
        (table(INDEXER), False, True),
        (table(STRANGE), False, False),
        (table("no bars"), False, False),
        (table(""), False, False),
        (table(), False, False),
        (table(note=OMIDS), False, False),
        (table(OTHER, name="SYSTEM.CATALOG"), False, True),
        (table(name="SYSTEM.MUTEX"), False, True),
        (table(name="SYSTEM:SEQUENCE"), False, True),
        (table(name="SYSTEM.MINE"), False, False),
    ],
)
def test_tables_are_told_by_their_coprocessors(
    schema: TableSchema, *, says: bool, objects: bool
) -> None:
    """Of Phoenix's own tables one has none, so that their names count, too."""
    assert is_transactional(schema) is says
    assert (objection(schema) is not None) is objects


@pytest.mark.parametrize(
    ("attribute", "is_one"),
    [
        ("coprocessor$1", True),
        ("COPROCESSOR$12", True),
        ("coprocessor$", False),
        ("coprocessor$1x", False),
        ("x-coprocessor$1", False),
    ],
)
def test_the_attribute_of_a_coprocessor_has_a_number(attribute: str, *, is_one: bool) -> None:
    """As HBase reads it, in either case."""
    assert is_coprocessor(attribute) is is_one


@pytest.mark.parametrize("level", ["cell", "changing", None])
def test_a_table_that_was_adopted_by_cell_loses_updates(level: str | None) -> None:
    """And so does one of which each client thinks what it likes."""
    attributes = {COMMIT_TABLE_ATTRIBUTE: "OMID_COMMIT_TABLE"}
    if level is not None:
        attributes[CONFLICT_LEVEL_ATTRIBUTE] = level
    complaint = misadoption(table(OMIDS, **attributes))
    assert complaint is not None
    assert "`omidpy table adopt T --conflict-level row --apply`" in complaint
    assert misadoption(table(STRANGE, **attributes)) is None


def test_a_table_that_was_adopted_by_row_is_well() -> None:
    """So is one that nobody has adopted."""
    ours = {COMMIT_TABLE_ATTRIBUTE: "OMID_COMMIT_TABLE", CONFLICT_LEVEL_ATTRIBUTE: "row"}
    assert misadoption(table(OMIDS, **ours)) is None
    assert misadoption(table(OMIDS)) is None
    assert misadoption(table(OTHER)) is None


def test_a_table_that_knows_no_transactions_can_be_given_back() -> None:
    """Whoever adopted one by mistake is told what undoes it."""
    complaint = misadoption(table(OTHER, **{COMMIT_TABLE_ATTRIBUTE: "OMID_COMMIT_TABLE"}))
    assert complaint is not None
    assert "table_att_unset" in complaint


@pytest.mark.parametrize(
    ("index", "of"),
    [
        (table(OMIDS, name="BY_TOWN", DATA_TABLE_NAME="PEOPLE"), "PEOPLE"),
        (table(INDEXER, name="BY_TOWN", DATA_TABLE_NAME="PEOPLE"), "PEOPLE"),
        (table(OMIDS, name="S:BY_TOWN", DATA_TABLE_NAME="S.PEOPLE"), "S:PEOPLE"),
        (table(OMIDS, name="S.BY_TOWN", DATA_TABLE_NAME="S.PEOPLE"), "S.PEOPLE"),
        (table(OMIDS, name="_IDX_PEOPLE"), "PEOPLE"),
        (table(OMIDS, name="_IDX_S.PEOPLE"), "S.PEOPLE"),
        (table(OMIDS, name="S:_IDX_PEOPLE"), "S:PEOPLE"),
        # What views share is of their table, whichever view it names.
        (table(OMIDS, name="_IDX_PEOPLE", DATA_TABLE_NAME="ADULTS"), "PEOPLE"),
    ],
)
def test_an_index_says_what_it_is_of(index: TableSchema, of: str) -> None:
    """Neither is written by anybody but Phoenix; other tables are."""
    known = indexes([table(OMIDS, name=of), table(OMIDS, name="OTHER"), index])
    assert list(known) == [index.name]
    found = index_objection(of, known)
    assert found is not None
    assert f"table {of} has indexes of Phoenix's ({index.name})" in found
    found = index_objection(index.name, known)
    assert found is not None
    assert "what is written to one of the two alone" in found
    assert index_objection("OTHER", known) is None
    assert may_have_indexes(index)


@pytest.mark.parametrize(
    "schema",
    [
        table(OMIDS),
        table(STRANGE, DATA_TABLE_NAME="PEOPLE"),
        table(DATA_TABLE_NAME="PEOPLE"),
        table(name="_IDX_PEOPLE"),
    ],
)
def test_what_phoenix_has_not_made_is_no_index(schema: TableSchema) -> None:
    """Anybody may name a table, or an attribute, like one of Phoenix's."""
    assert indexes([schema]) == {}


def test_only_phoenixs_tables_may_have_indexes() -> None:
    """No other table is looked at a second time."""
    assert may_have_indexes(table(OMIDS))
    assert not may_have_indexes(table(STRANGE))
    assert not may_have_indexes(table())
