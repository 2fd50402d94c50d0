"""What is adopted is the table that was read, and no other that took its name meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest

from compactor.tables.adoption import AdoptionPlan, adopt, ignore, plan_adoption
from compactor.tables.ownership import is_owned, read_ignored
from omidpy.base.tables import INCARNATION_ATTRIBUTE, OMID_ENABLED, incarnation
from omidpy.cli import main
from omidpy.errors import StorageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.model import FamilySchema, TableSchema
from omidpy.opening import open_store
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.faults import FaultyStore, Point
from tests.machines.restoring import RestoringStore
from tso.embedded import EmbeddedOracle

NOW_MS: Final = 1_700_000_000_000
CHANGES: Final = ("set_table_attributes", "set_family_attributes", "write")
NAMED: Final = {INCARNATION_ATTRIBUTE: "first"}


class Replaced(MemoryStore):
    """Where somebody drops the table and makes another right before one of our changes."""

    def __init__(self, attributes: Mapping[str, str]) -> None:
        super().__init__()
        self.made_with = attributes
        self.countdown: int | None = None
        EmbeddedOracle(self).close()
        self.make()

    def make(self) -> None:
        """Make a table of plain data, like the one before."""
        self.create_table(
            TableSchema("t", [FamilySchema(b"a"), FamilySchema(b"b")], dict(self.made_with))
        )
        put = Put(b"a", b"q", NOW_MS, b"v")
        MemoryStore.write(self, {"t": [RowMutation(b"%d" % row, (put,)) for row in range(3)]})

    def replace_it(self) -> None:
        """Drop the table and make another."""
        self.countdown = None
        self.drop_table("t")
        self.make()

    def _count(self) -> None:
        if self.countdown is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.replace_it()

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Change, behind whoever replaces the table."""
        self._count()
        return super().set_table_attributes(table, attributes, only=only)

    def set_family_attributes(
        self, table: str, family: bytes, attributes: Mapping[str, str | None]
    ) -> None:
        """Change, behind whoever replaced the table before it was looked at."""
        super().set_family_attributes(table, family, attributes)
        self._count()

    def write(self, batch: Mapping[str, Sequence[RowMutation]], *, durable: bool = False) -> None:
        """Write, and let the table be replaced behind it."""
        super().write(batch, durable=durable)
        if "t" in batch:
            self._count()


def check_nobodys(store: MemoryStore) -> None:
    """Make sure that the table is not ours, and that nothing was written to it."""
    assert not is_owned(store.schema("t"), COMMIT_TABLE)
    cells = [cell for page in store.scan("t") for row in page for cell in row]
    assert [cell.qualifier for cell in cells] == [b"q"] * 3
    assert not any(OMID_ENABLED in family.attributes for family in store.schema("t").families)


@pytest.mark.parametrize("attributes", [NAMED, {}], ids=["named", "the shell's"])
def test_a_table_made_between_looking_and_adopting_is_not_adopted(
    attributes: Mapping[str, str],
) -> None:
    """Nobody has looked at its cells: those that nobody decided about would go.

    The next one of a table with an incarnation is made by somebody of ours, with another.
    """
    store = Replaced(attributes)
    plan = plan_adoption(store, "t", COMMIT_TABLE, names_it=True)
    if attributes:
        store.made_with = {INCARNATION_ATTRIBUTE: "second"}
    store.replace_it()
    with pytest.raises(StorageError, match="dropped and made again"):
        adopt(store, plan, COMMIT_TABLE)
    check_nobodys(store)
    assert store.schema("t").attributes == store.made_with


@pytest.mark.parametrize("attributes", [NAMED, {}], ids=["named", "the shell's"])
def test_a_table_made_during_the_adoption_is_not_adopted(attributes: Mapping[str, str]) -> None:
    """Before or behind any change: what comes next looks first, or compares."""
    refused = 0
    for change in range(20):
        store = Replaced(attributes)
        plan = plan_adoption(store, "t", COMMIT_TABLE, names_it=True)
        store.made_with = {INCARNATION_ATTRIBUTE: "second"} if attributes else {}
        store.countdown = change
        try:
            adopt(store, plan, COMMIT_TABLE)
        except StorageError:
            refused += 1
            check_nobodys(store)
        else:
            break
    assert store.countdown is not None, "the last was let be"
    assert is_owned(store.schema("t"), COMMIT_TABLE)
    assert refused == change == 4, "cells, two families, the table itself"


def test_a_table_that_gets_its_name_meanwhile_is_looked_at_again() -> None:
    """The one that is named is the one that is read."""
    store = Replaced({})
    store.countdown = 0
    plan = plan_adoption(store, "t", COMMIT_TABLE, names_it=True)
    assert plan.seen == store.schema("t")
    assert incarnation(plan.seen)
    adopt(store, plan, COMMIT_TABLE)
    assert incarnation(store.schema("t")) != incarnation(plan.seen), "nothing was claimed of it"


def test_without_a_name_a_table_is_known_by_its_looks() -> None:
    """A plan for people names nothing; a table that looks otherwise is noticed all the same."""
    store = Replaced({})
    plan = plan_adoption(store, "t", COMMIT_TABLE)
    assert store.schema("t").attributes == {}
    store.made_with = {"OTHER": "1"}
    store.replace_it()
    with pytest.raises(StorageError, match="what it holds now was not read"):
        adopt(store, plan, COMMIT_TABLE)
    check_nobodys(store)
    assert store.schema("t").attributes == {"OTHER": "1"}


def test_two_who_adopt_do_it_once() -> None:
    """The second finds another incarnation than it has read, whose claims it would have voided."""
    store = Replaced({})
    plans = [plan_adoption(store, "t", COMMIT_TABLE, names_it=True) for _ in range(2)]
    adopt(store, plans[0], COMMIT_TABLE)
    which = incarnation(store.schema("t"))
    with pytest.raises(StorageError, match="somebody else has adopted it"):
        adopt(store, plans[1], COMMIT_TABLE)
    assert incarnation(store.schema("t")) == which


class Deaf(MemoryStore):
    """A store whose answer to a change was lost, and which was asked again."""

    def set_table_attributes(
        self,
        table: str,
        attributes: Mapping[str, str | None],
        *,
        only: Mapping[str, str | None] | None = None,
    ) -> bool:
        """Change twice."""
        super().set_table_attributes(table, attributes, only=only)
        return super().set_table_attributes(table, attributes, only=only)


def test_a_change_whose_answer_was_lost_is_done() -> None:
    """A second attempt finds what the first has set, and says no."""
    store = Deaf()
    EmbeddedOracle(store).close()
    store.create_table(TableSchema("t", [FamilySchema(b"a")]))
    plan = plan_adoption(store, "t", COMMIT_TABLE, names_it=True)
    adopt(store, plan, COMMIT_TABLE)
    assert is_owned(store.schema("t"), COMMIT_TABLE)


def test_what_is_ours_and_has_no_name_gets_one() -> None:
    """Tables of early versions; their families are adopted as before."""
    store = MemoryStore()
    EmbeddedOracle(store).close()
    store.create_table(TableSchema("t", [FamilySchema(b"a")]))
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    store.set_table_attributes("t", {INCARNATION_ATTRIBUTE: None})
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    which = incarnation(store.schema("t"))
    assert which
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE), COMMIT_TABLE)
    assert incarnation(store.schema("t")) == which, "its claims hold"


def test_a_word_about_the_table_goes_with_its_adoption() -> None:
    """Also where the table was named for the first time by that word."""
    store = Replaced({})
    ignore(store, "t", COMMIT_TABLE)
    assert read_ignored(ControlTable(store))["t"].is_ignored
    adopt(store, plan_adoption(store, "t", COMMIT_TABLE, names_it=True), COMMIT_TABLE)
    assert not read_ignored(ControlTable(store))["t"].is_ignored


@pytest.mark.parametrize("attributes", [{}, NAMED])
@pytest.mark.parametrize("is_of_hbase", [True, False])
def test_a_command_that_names_what_was_looked_at_means_no_later_table(
    attributes: Mapping[str, str], *, is_of_hbase: bool
) -> None:
    """Given again it means the same one, by whatever name it has since; another one is left."""
    store: MemoryStore = RestoringStore() if is_of_hbase else MemoryStore()
    EmbeddedOracle(store).close()
    schema = TableSchema("t", [FamilySchema(b"a"), FamilySchema(b"b")], dict(attributes))
    store.create_table(schema)
    seen = ignore(store, "t", COMMIT_TABLE, is_dry_run=True)
    assert plan_adoption(store, "t", COMMIT_TABLE).which == seen
    if not seen:
        return  # nothing tells one from another where no table is restored
    for _ in range(2):
        ignore(store, "t", COMMIT_TABLE, families=[b"a"], only=seen)
        plan = plan_adoption(store, "t", COMMIT_TABLE, families=[b"a"], names_it=True, only=seen)
    if is_of_hbase:  # elsewhere the incarnation is all that tells, and gets another
        adopt(store, plan, COMMIT_TABLE)
        adopt(store, plan_adoption(store, "t", COMMIT_TABLE, only=seen), COMMIT_TABLE)
    store.drop_table("t")
    store.create_table(TableSchema("t", schema.families, {INCARNATION_ATTRIBUTE: "next"}))
    before = store.schema("t")
    for wanted in (seen, "other", "other@x", ""):
        with pytest.raises(StorageError, match="which was looked at"):
            ignore(store, "t", COMMIT_TABLE, only=wanted)
        with pytest.raises(StorageError, match="which was looked at"):
            plan_adoption(store, "t", COMMIT_TABLE, names_it=True, only=wanted)
    assert store.schema("t") == before


def test_two_operators_who_ignore_families_at_once_are_both_heard() -> None:
    """Each is told that it is done; of the first one nothing was left."""
    store = MemoryStore()
    EmbeddedOracle(store).close()
    families = [FamilySchema(one) for one in (b"a", b"b", b"c")]
    store.create_table(TableSchema("t", families, {INCARNATION_ATTRIBUTE: "one"}))
    others = [b"a", b"b"]

    def meanwhile(point: Point) -> None:
        if point.name.startswith("check_and_mutate.before") and others:
            ignore(store, "t", COMMIT_TABLE, families=[others.pop()])

    ignore(FaultyStore(store, meanwhile), "t", COMMIT_TABLE, families=[b"c"])
    assert read_ignored(ControlTable(store))["t"].families == (b"a", b"b", b"c")
    ignore(store, "t", COMMIT_TABLE)
    found = read_ignored(ControlTable(store))["t"]
    assert (found.is_ignored, found.families) == (True, (b"a", b"b", b"c"))


def test_the_verb_names_what_it_is_about_to_adopt(
    tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only with --apply; a dry run changes nothing."""
    url = f"sqlite:///{tmp_path}/s.db"
    store = open_store(url)
    EmbeddedOracle(store).close()
    store.create_table(TableSchema("t", [FamilySchema(b"a")]))
    seen: list[AdoptionPlan] = []

    def keep(make: Callable[..., AdoptionPlan]) -> Callable[..., AdoptionPlan]:
        def kept(*arguments: object, **options: object) -> AdoptionPlan:
            seen.append(make(*arguments, **options))
            return seen[-1]

        return kept

    monkeypatch.setattr("compactor.tables.adoption.plan_adoption", keep(plan_adoption))
    for words in (("--apply",), ()):
        with pytest.raises(SystemExit) as ended:
            main(("table", "adopt", "t", "--store", url, *words))
        assert not ended.value.code
        if words:
            assert incarnation(seen[0].seen)
            assert is_owned(store.schema("t"), COMMIT_TABLE)
    store.close()
