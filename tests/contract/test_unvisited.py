"""Nothing is forgotten that a cell may need where no pass of ours goes.

Each test leaves, somewhere else than in a table of ours, what a client leaves that dies after its
commit: a cell, and the entry that is all its proof.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from compactor.pruning.standing import read_standing
from compactor.report import RunLog
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, OMID_ENABLED
from omidpy.errors import StorageUnavailable
from omidpy.facts.tables.questions import Questions
from omidpy.facts.watermarks import Watermarks
from omidpy.model import FIRST_WORLD_TIMESTAMP, Cell
from omidpy.reports.store import collect as collect_status
from omidpy.storage.base import Row, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.ignoring import set_ignored
from tests.machines.interleaving import interleaved

MILLISECONDS = 1_700_000_000_000
"""What HBase's clock gives cells that are written without a transaction."""


@pytest.fixture
def world(store: Store) -> World:
    """Return a store with a table of ours, one that has no mark, and L = 1000."""
    made = World(store)
    made.table()
    made.table("java", families=(), plain_families=(b"cf", b"cg"), owner=None, splits=[b"m"])
    return made


def test_a_table_that_only_the_dead_wrote_keeps_their_entries(world: World) -> None:
    """No mark and no shadow cell: it looks like plain data, and is all that holds a commit."""
    world.put(b"z", 100, table="java", family=b"cg")
    world.enter(100, 150)
    world.put(b"a", 200)
    world.enter(200, 250)
    before = world.image()["java"]
    for options in (replace(ALL_AT_ONCE, is_dry_run=True), ALL_AT_ONCE):
        report = world.compact(options)
        (laggard,) = report.laggards
        assert (laggard.table, laggard.start, laggard.end) == ("java", b"z".hex(), "")
        assert "row b'z' holds the cell b'q' of family cg at version 100" in laggard.reason
        assert "omidpy table adopt java --apply" in laggard.reason
        assert "--accept-undecided" in laggard.reason
        assert "omidpy table ignore java --apply" in laggard.reason
        assert (report.entries_pruned, report.horizon) == (0, 0)
        assert world.entries() == {100: 150, 200: 250}
    assert Watermarks(world.control).prune_horizon() == 0
    assert world.image()["java"] == before
    assert world.visible(b"z", 2000, table="java") == {b"q": b"v"}


def test_only_an_operator_s_word_lets_them_go(world: World) -> None:
    """Ignored, nobody of ours reads the table; adopted, its cells are healed first."""
    world.put(b"a", 100, table="java")
    world.enter(100, 150)
    assert world.compact().laggards
    set_ignored(world.control, "java", is_ignored=True)
    assert world.compact(replace(ALL_AT_ONCE, is_dry_run=True)).entries_pruned == 1
    set_ignored(world.control, "java", is_ignored=False)
    for family in (b"cf", b"cg"):
        world.store.set_family_attributes("java", family, {OMID_ENABLED: "true"})
    world.store.set_table_attributes("java", {COMMIT_TABLE_ATTRIBUTE: "OMID_COMMIT_TABLE"})
    report = world.compact()
    assert (report.entries_pruned, list(report.laggards)) == (1, [])
    assert world.shadows("java") == {(b"a", 100): 150}


def test_a_family_of_ours_that_has_no_mark_keeps_them_too(world: World) -> None:
    """It was empty when the table was adopted, or came later, from Java or the HBase shell."""
    world.table("mixed", plain_families=(b"late",))
    world.put(b"a", 100, table="mixed", family=b"late")
    world.enter(100, 150)
    report = world.compact()
    (laggard,) = report.laggards
    assert "family late is not ours" in laggard.reason
    assert "omidpy table adopt mixed --apply" in laggard.reason
    assert "omidpy table ignore mixed --families late --apply" in laggard.reason
    assert world.entries() == {100: 150}
    set_ignored(world.control, "mixed", is_ignored=False, families=[b"late"])
    assert world.compact().entries_pruned == 1


def test_what_a_pass_goes_over_is_no_strangers(world: World) -> None:
    """The families of ours in the same table hold cells of just these versions."""
    world.table("mixed", plain_families=(b"late",))
    world.put(b"a", 100, table="mixed")
    world.enter(100, 150)
    report = world.compact()
    assert (report.entries_pruned, list(report.laggards)) == (1, [])


def test_an_ignored_family_leaves_the_others_in_the_account(world: World) -> None:
    """What an operator said of one is said of no other."""
    world.table("mixed", plain_families=(b"late", b"other"))
    world.put(b"a", 100, table="mixed", family=b"other")
    world.enter(100, 150)
    set_ignored(world.control, "mixed", is_ignored=False, families=[b"late"])
    (laggard,) = world.compact().laggards
    assert "family other is not ours" in laggard.reason


def test_a_table_left_out_of_a_run_is_not_asked_but_held_by_its_record(world: World) -> None:
    """It is ours: its claim says how far it is healed, and what lies there is no stranger's."""
    world.put(b"a", 100)
    world.enter(100, 150)
    report = world.compact(replace(ALL_AT_ONCE, exclude=frozenset({"t"})))
    (laggard,) = report.laggards
    assert (laggard.table, laggard.watermark) == ("t", 0)
    assert "--exclude" in laggard.reason
    assert world.entries() == {100: 150}


@pytest.mark.parametrize("version", [99, 150, MILLISECONDS])
def test_a_cell_of_another_version_forbids_nothing(world: World, version: int) -> None:
    """Plain data beside transactions is the rule, and must not stop the pruning for ever."""
    world.put(b"a", version, table="java")
    world.enter(100, 150)
    report = world.compact()
    assert (report.entries_pruned, list(report.laggards)) == (1, [])


@pytest.mark.parametrize("version", [100, 149, 210, 349])
def test_every_version_from_the_first_to_the_last_of_those_that_go_forbids(
    world: World, version: int
) -> None:
    """Checkpoints are cells of their transaction, and late entries lie between."""
    world.put(b"a", version, table="java")
    world.enter(100, 150)
    world.enter(300, 350)
    world.enter(1050, 1100)
    assert [one.table for one in world.compact().laggards] == ["java"]
    assert world.entries() == {100: 150, 300: 350, 1050: 1100}


def test_where_nothing_is_about_to_go_nobody_is_asked(world: World) -> None:
    """A quiet night reads no foreign table."""
    asked: list[str] = []
    world.put(b"a", 100, table="java")
    world.enter(1050, 1100)
    store = interleaved(
        world.store, lambda method, table: asked.append(table) if method == "find_cell" else None
    )
    listed = World(store)
    listed.clock = world.clock
    assert list(listed.compact(replace(ALL_AT_ONCE)).laggards) == []
    for_shadow_cells = len(asked)
    world.enter(100, 150)
    asked.clear()
    assert listed.compact().laggards
    assert len(asked) == for_shadow_cells + 1


def test_milliseconds_are_no_versions_of_a_store_that_counted_before(world: World) -> None:
    """Entries of both ways of telling time are left over: between them lies all plain data."""
    world.put(b"a", MILLISECONDS, table="java")
    world.enter(100, 150)
    late = FIRST_WORLD_TIMESTAMP + 50
    world.enter(late, late + 50)
    world.set_low_watermark(late + 1000)
    report = world.compact()
    assert (report.entries_pruned, list(report.laggards)) == (2, [])


def test_a_table_that_cannot_be_asked_keeps_everything(world: World) -> None:
    """It is disabled, or its region is down: silence is no answer."""
    world.enter(100, 150)

    def fail(method: str, table: str) -> None:
        if method == "find_cell" and table == "java" and failing:
            raise StorageUnavailable("table 'java' is disabled")

    failing: list[bool] = []
    listed = World(interleaved(world.store, fail))
    report = listed.compact(
        on_step=lambda step: failing.append(True) if step == "minimum-known" else None
    )
    (laggard,) = report.laggards
    assert laggard.table == "java"
    assert "could not be searched" in laggard.reason
    assert "table 'java' is disabled" in laggard.reason
    assert world.entries() == {100: 150}


def test_a_table_dropped_before_it_is_asked_forbids_nothing(world: World) -> None:
    """Its cells are gone, and so is what they needed."""
    world.put(b"a", 100, table="java")
    world.enter(100, 150)

    def drop(name: str) -> None:
        if name == "minimum-known":
            world.store.drop_table("java")

    report = world.compact(on_step=drop)
    assert (report.entries_pruned, list(report.laggards)) == (1, [])


def test_what_was_asked_is_remembered_with_its_cost_and_never_used_again(world: World) -> None:
    """Whoever looks sees what a horizon rested on; the next run asks anew all the same."""
    questions = Questions(world.control)
    world.enter(100, 150)
    told = world.compact(replace(ALL_AT_ONCE, is_dry_run=True))
    assert [(one.table, one.calls, one.cells, one.answer) for one in told.asked] == [
        ("java", 2, 0, "")
    ]
    assert questions.last() == []
    world.compact()
    (asked,) = questions.last()
    assert (asked.table, asked.families, asked.versions) == ("java", (b"cf", b"cg"), ((100, 150),))
    assert (asked.calls, asked.cells, asked.answer) == (2, 0, "")
    assert asked.run == RunLog(world.control).runs()[-1].run_id
    (note,) = [one for one in RunLog(world.control).runs()[-1].notes if "were asked" in one]
    assert "2 calls, 0 cells came back" in note
    world.enter(300, 350)
    world.put(b"a", 300, table="java")
    report = world.compact()
    assert (report.entries_pruned, report.asked[0].cells) == (0, 1)
    (asked,) = questions.last()
    assert "row b'a' holds the cell b'q'" in asked.answer
    (shown,) = read_standing(world.store)["asked"]
    assert (shown["table"], shown["families"], shown["cells"]) == ("java", ["6366", "6367"], 1)


class Bounded(MemoryStore):
    """Says how low the versions begin that are read of a plain table."""

    def __init__(self) -> None:
        super().__init__()
        self.lowest: list[int] = []

    def find_cell(self, table: str, **options: Any) -> Cell | None:
        """Note the bound."""
        if table == "plain":
            self.lowest.append(options.get("min_version", 0))
        return super().find_cell(table, **options)

    def scan(self, table: str, *args: Any, **options: Any) -> Iterator[list[Row]]:
        """Note the bound."""
        if table == "plain":
            self.lowest.append(options.get("min_version", 0))
        return super().scan(table, *args, **options)


def test_nobody_reads_the_plain_data_of_a_store_in_world_time() -> None:
    """Neither a run nor `status`: both ask for versions above all that HBase's own clock sets."""
    store = Bounded()
    world = World(store, low_watermark=FIRST_WORLD_TIMESTAMP + 5000)
    world.control.raise_number(b"first-timestamp", FIRST_WORLD_TIMESTAMP)
    world.table()
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    world.put(b"a", MILLISECONDS, table="plain")
    world.enter(FIRST_WORLD_TIMESTAMP + 100, FIRST_WORLD_TIMESTAMP + 150)
    assert collect_status(store)["tables"]["plain"] == ["plain"]
    assert [one["table"] for one in read_standing(store)["laggards"]] == ["t"], (
        "nobody compacted it"
    )
    assert world.compact().entries_pruned == 1
    assert len(store.lowest) > 3
    assert min(store.lowest) >= FIRST_WORLD_TIMESTAMP
