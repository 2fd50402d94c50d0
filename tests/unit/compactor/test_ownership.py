"""Which tables a compaction may write, and which hold its horizon."""

from __future__ import annotations

from typing import Final

import pytest

from compactor.tables.adoption import ignore
from compactor.tables.ownership import (
    Standing,
    ignored_tables,
    judge,
    survey,
    transaction_versions,
)
from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    DURABILITY_ATTRIBUTE,
    OMID_ENABLED,
    transactional_families,
)
from omidpy.facts.commit_table import (
    COMMIT_TABLE,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    create_system_tables,
)
from omidpy.facts.control import ControlTable
from omidpy.model import Cell, FamilySchema, TableSchema
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World
from tests.machines.ignoring import set_ignored

WITNESS: Final = Cell(b"r", b"cf", shadow_qualifier(b"q"), 50, bytes(8))


def schema(name: str = "t", *, mark: str | None = "true", owner: str | None = None) -> TableSchema:
    """Return a table of one family."""
    attributes = {} if mark is None else {OMID_ENABLED: mark}
    owned = {} if owner is None else {COMMIT_TABLE_ATTRIBUTE: owner}
    return TableSchema(name, (FamilySchema(b"cf", attributes), FamilySchema(b"plain")), owned)


@pytest.mark.parametrize(
    ("mark", "owner", "witness", "expected"),
    [
        ("true", COMMIT_TABLE, None, Standing.OWNED),
        ("TRUE", COMMIT_TABLE, WITNESS, Standing.OWNED),
        ("true", None, None, Standing.BLOCKING),
        ("true", "ANOTHER", None, Standing.BLOCKING),
        (None, None, WITNESS, Standing.BLOCKING),
        (None, COMMIT_TABLE, WITNESS, Standing.BLOCKING),
        ("false", None, WITNESS, Standing.BLOCKING),
        ("false", None, None, Standing.PLAIN),
        (None, COMMIT_TABLE, None, Standing.PLAIN),
    ],
)
def test_standing(
    mark: str | None, owner: str | None, witness: Cell | None, expected: Standing
) -> None:
    """Owned needs the mark *and* our name; whatever else looks transactional blocks."""
    standing = judge(
        schema(mark=mark, owner=owner), COMMIT_TABLE, is_ignored=False, witness=witness
    )
    assert standing.standing is expected
    assert standing.families == (frozenset({b"cf"}) if expected is Standing.OWNED else frozenset())


@pytest.mark.parametrize("durability", ["ASYNC_WAL", "SKIP_WAL"])
def test_a_table_of_ours_that_may_lose_writes_holds_everything(durability: str) -> None:
    """Altered since it was adopted: a shadow cell there is gone with its server, entry or not."""
    table = schema(owner=COMMIT_TABLE)
    attributes = {**table.attributes, DURABILITY_ATTRIBUTE: durability}
    standing = judge(TableSchema("t", table.families, attributes), COMMIT_TABLE)
    assert standing.standing is Standing.OWNED
    assert f"DURABILITY={durability}" in standing.reason
    assert "USE_DEFAULT" in standing.reason


def test_the_mark_is_read_as_java_reads_it() -> None:
    """Client and compactor must agree: a family that one writes and the other leaves is lost."""
    marks = {b"a": "true", b"b": "TRUE", b"c": "false", b"d": "yes"}
    families = [FamilySchema(name, {OMID_ENABLED: mark}) for name, mark in marks.items()]
    assert transactional_families(TableSchema("t", families)) == {b"a", b"b"}


def test_blocking_table_says_what_was_found_and_what_to_do() -> None:
    """An operator reads this line in the morning."""
    reason = judge(schema(owner="ANOTHER"), COMMIT_TABLE).reason
    assert "OMID_ENABLED" in reason
    assert "ANOTHER" in reason
    assert "omidpy table adopt t" in reason
    assert "omidpy table ignore t" in reason


def test_ignoring_takes_a_blocking_table_out_of_the_account_but_never_one_of_ours() -> None:
    """A table of ours that is ignored by mistake would lose data."""
    blocking = judge(schema(), COMMIT_TABLE, is_ignored=True, witness=WITNESS)
    assert blocking.standing is Standing.IGNORED
    ours = judge(schema(owner=COMMIT_TABLE), COMMIT_TABLE, is_ignored=True, witness=WITNESS)
    assert ours.standing is Standing.OWNED


@pytest.mark.parametrize("name", ["OMID_COMMIT_TABLE", "OMIDPY_COMPACTION", "hbase:meta"])
def test_system_tables_are_never_judged_by_their_looks(name: str) -> None:
    """The commit table holds no cells of transactions, whatever its attributes say."""
    made = judge(schema(name, owner=COMMIT_TABLE), COMMIT_TABLE, is_ignored=False, witness=WITNESS)
    assert made.standing is Standing.SYSTEM


def test_survey_finds_a_shadow_cell_in_a_table_without_marks() -> None:
    """Java writes transactions into any table; only its shadow cells give it away."""
    world = World(MemoryStore())
    world.table("java", families=(), plain_families=(b"cf",), owner=None)
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    world.table("ours")
    cell = world.put(b"r", 100, table="java")
    world.heal(cell, 150, table="java")
    world.put(b"r", 100, table="plain")
    standings = {one.name: one.standing for one in survey(world.store, COMMIT_TABLE)}
    assert standings["java"] is Standing.BLOCKING
    assert standings["plain"] is Standing.PLAIN
    assert standings["ours"] is Standing.OWNED
    assert standings["OMID_COMMIT_TABLE"] is Standing.SYSTEM


def test_a_shadow_cell_in_a_family_of_ours_without_the_mark_is_told_with_its_remedies() -> None:
    """A pass goes over the marked families alone; the table stays ours to heal."""
    made = judge(schema(owner=COMMIT_TABLE), COMMIT_TABLE, witness=WITNESS)
    assert made.standing is Standing.OWNED
    assert made.rest == {b"plain"}
    assert "family cf is not ours" in made.reason
    assert "omidpy table adopt t --apply" in made.reason
    assert "omidpy table ignore t --families cf --apply" in made.reason


@pytest.mark.parametrize(
    ("mark", "owner", "rest"),
    [
        ("true", COMMIT_TABLE, {b"plain"}),
        ("true", None, {b"cf", b"plain"}),
        (None, None, {b"cf", b"plain"}),
    ],
)
def test_what_no_pass_goes_over_is_known_by_family(
    mark: str | None, owner: str | None, rest: set[bytes]
) -> None:
    """All of a table that is not ours; of one that is, what has no mark and nobody ignores."""
    table = schema(mark=mark, owner=owner)
    assert judge(table, COMMIT_TABLE).rest == rest
    ignored = judge(table, COMMIT_TABLE, ignored_families=frozenset({b"plain"}))
    assert ignored.rest == rest - {b"plain"}
    if owner is None:
        assert judge(table, COMMIT_TABLE, is_ignored=True).rest == frozenset()


@pytest.mark.parametrize(
    ("first", "low_watermark", "adopted", "ceiling", "expected"),
    [
        (None, 0, None, None, [range(2**63 - 1)]),
        (None, 10**18, None, 10**18, [range(10**15, 2**63 - 1)]),
        (10**18, 10**18, None, 10**18, [range(10**18, 2**63 - 1)]),
        (50, 1000, None, 5000, [range(50, 5050)]),
        (50, 1000, 500, 5000, [range(5050)]),
        (50, 10**18, 10**18, 10**18, [range(10**15, 2**63 - 1)]),
        (50, 10**18, 5000, 10**18, [range(5050), range(10**15, 2**63 - 1)]),
    ],
    ids=[
        "nobody-knows",
        "omids-world-before-ours",
        "ours",
        "counting",
        "omids-counting",
        "omids-world",
        "omids-counting-then-world",
    ],
)
def test_shadow_cells_are_looked_for_where_transactions_have_versions(
    first: int | None,
    low_watermark: int,
    adopted: int | None,
    ceiling: int | None,
    expected: list[range],
) -> None:
    """HBase's own versions, milliseconds, are left out wherever they cannot be an oracle's."""
    store = MemoryStore()
    create_system_tables(store)
    facts = {
        b"first-timestamp": first,
        b"adopted-ceiling": adopted,
        b"low-watermark": low_watermark,
    }
    for name, number in facts.items():
        if number is not None:
            ControlTable(store).write(name, encode_long(number))
    if ceiling is not None:
        put = Put(*TIMESTAMP_CEILING, 1, encode_long(ceiling))
        store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, (put,))]})
    assert transaction_versions(store) == expected


def test_a_shadow_cell_of_a_version_that_no_oracle_issued_proves_nothing() -> None:
    """A table that was adopted once and given back has shadow cells of milliseconds."""
    world = World(MemoryStore(), first_timestamp=10**18, low_watermark=10**18)
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    cell = world.put(b"r", 1_700_000_000_000, table="plain")
    world.heal(cell, cell.version, table="plain")
    standings = {one.name: one.standing for one in survey(world.store, COMMIT_TABLE)}
    assert standings["plain"] is Standing.PLAIN


def test_ignoring_can_be_taken_back() -> None:
    """A fact is replaced, never deleted: on HBase a delete would hide the next one."""
    world = World(MemoryStore())
    control = ControlTable(world.store)
    set_ignored(control, "java", is_ignored=True)
    assert ignored_tables(control) == {"java"}
    set_ignored(control, "java", is_ignored=False)
    assert ignored_tables(control) == frozenset()
    set_ignored(control, "java", is_ignored=True)
    assert ignored_tables(control) == {"java"}


def test_a_later_table_of_an_ignored_name_is_not_ignored() -> None:
    """Nobody has been asked about it, and its commits would be forgotten."""
    world = World(MemoryStore())
    world.table("java", owner=None)
    ignore(world.store, "java", COMMIT_TABLE)
    assert _standing(world, "java") is Standing.IGNORED
    world.store.drop_table("java")
    world.table("java", owner=None)
    assert _standing(world, "java") is Standing.BLOCKING
    ignore(world.store, "java", COMMIT_TABLE)
    assert _standing(world, "java") is Standing.IGNORED


def test_a_family_is_ignored_of_one_table_alone() -> None:
    """That one was dropped, and a transaction may have written the family of the next."""
    world = World(MemoryStore())
    world.table("mixed", families=(b"cf",), plain_families=(b"log",))
    ignore(world.store, "mixed", COMMIT_TABLE, families=[b"log"])
    assert _rest(world, "mixed") == frozenset()
    ignore(world.store, "mixed", COMMIT_TABLE, families=[b"log"])
    assert _rest(world, "mixed") == frozenset()
    world.store.drop_table("mixed")
    world.table("mixed", families=(b"cf",), plain_families=(b"log",))
    assert _rest(world, "mixed") == {b"log"}


def test_what_earlier_versions_wrote_down_goes_by_the_name() -> None:
    """They did not say which table they meant."""
    world = World(MemoryStore())
    world.table("java", owner=None)
    set_ignored(world.control, "java", is_ignored=True)
    assert _standing(world, "java") is Standing.IGNORED


def _standing(world: World, table: str) -> Standing:
    (found,) = [one for one in survey(world.store, COMMIT_TABLE) if one.name == table]
    return found.standing


def _rest(world: World, table: str) -> frozenset[bytes]:
    (found,) = [one for one in survey(world.store, COMMIT_TABLE) if one.name == table]
    return found.rest
