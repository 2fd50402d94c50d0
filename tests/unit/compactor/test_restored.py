"""A single table is turned back to what it was, behind our back.

Its old cells return, and the claims that were made of it are lies.  Of a cell that has neither a
shadow cell nor an entry nothing is known: its client may have come to its end since the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from compactor.check import acceptance
from compactor.check.acceptance import Doubt
from compactor.check.acts import ANOTHER
from compactor.check.findings import Kind
from compactor.check.fsck import Check, CheckOptions
from compactor.check.malformed import Malformed
from compactor.check.repair import Suspicion
from compactor.options import Options
from compactor.pruning.standing import read_standing
from compactor.ranges.progress import NoProgress
from compactor.run.local import compact
from compactor.tables.adoption import AdoptionPlan, adopt, plan_adoption
from compactor.tables.following import Rule, set_rule
from compactor.tables.ownership import survey
from omidpy.admin.table_steps import ForgetClaims, Make, Renewal, TableTools
from omidpy.base.cells import commit_row, encode_long, shadow_qualifier
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    CONTROL_TABLE,
    FIXED_VERSION,
    INCARNATION_ATTRIBUTE,
    OMID_ENABLED,
    VALUE,
)
from omidpy.base.timing.clock import Clock
from omidpy.errors import StorageError, UsageError
from omidpy.facts.commit_table import (
    COMMIT,
    COMMIT_TABLE,
    FIRST_TIMESTAMP_FACT,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
)
from omidpy.facts.tables import catalog, sightings
from omidpy.facts.tables.sightings import SIGHTED_PREFIX, sight
from omidpy.facts.watermarks import PRUNE_HORIZON, Watermarks
from omidpy.fate import Locks, TableFateStore
from omidpy.manager import TransactionManager
from omidpy.model import FIRST_WORLD_TIMESTAMP, Cell, FamilySchema, TableSchema
from omidpy.storage.base import DeleteVersion, Put, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.restoring import RestoringStore

CEILING = 5000
REPAIR: Final = CheckOptions(settle_s=0.0, is_repair=True)


class Restoring(World):
    """A store with one table of ours, whose tables are restored one by one."""

    store: RestoringStore

    def __init__(self) -> None:
        super().__init__(RestoringStore())
        self.set_ceiling(CEILING)
        self.table(incarnation="one")
        self.compact()

    def set_ceiling(self, ceiling: int) -> None:
        """Let the oracle issue timestamps up to `ceiling`."""
        put = Put(*TIMESTAMP_CEILING, ceiling, encode_long(ceiling))
        self.store.write({TIMESTAMP_TABLE: [RowMutation(TIMESTAMP_CEILING_ROW, (put,))]})

    def complete(self, start_ts: int) -> None:
        """Remove an entry, as a client does that has come to its end."""
        delete = DeleteVersion(*COMMIT, start_ts)
        row = RowMutation(commit_row(start_ts), deletes=(delete,))
        self.store.write({COMMIT_TABLE: [row]})

    def committed(self, start_ts: int) -> Any:
        """Commit a transaction; return a snapshot from between its cell and its shadow cell."""
        cell = self.put(b"a", start_ts)
        self.enter(start_ts, start_ts + 50)
        snapshot = self.store.snapshot("t")
        self.heal(cell, start_ts + 50)
        self.complete(start_ts)
        return snapshot

    def doubts(self) -> dict[str, int]:
        """Return what is in doubt, by table."""
        return {one.name: one.doubtful for one in survey(self.store, COMMIT_TABLE) if one.doubtful}


def accepted(world: Restoring, table: str) -> int:
    """Say what an operator says; return what is in doubt still."""
    doubt = acceptance.find_doubt(world.store, table, COMMIT_TABLE)
    return acceptance.accept(world.store, doubt, COMMIT_TABLE)


@pytest.fixture
def world() -> Restoring:
    """Return a store with one table, which a compaction has seen."""
    return Restoring()


def restored(world: Restoring, snapshot: Any) -> str:
    """Turn the table back."""
    world.store.restore("t", snapshot)
    return "t"


def cloned_under_its_name(world: Restoring, snapshot: Any) -> str:
    """Drop the table, and clone it."""
    world.store.drop_table("t")
    world.store.restore("t", snapshot)
    return "t"


def cloned_long_after(world: Restoring, snapshot: Any) -> str:
    """Do the same, with runs in between that know of no such table any more."""
    world.store.drop_table("t")
    world.compact()
    world.compact()
    world.store.restore("t", snapshot)
    return "t"


def cloned_beside(world: Restoring, snapshot: Any) -> str:
    """Make another table of it."""
    world.store.restore("copy", snapshot)
    return "copy"


@pytest.mark.parametrize(
    "turn_back", [restored, cloned_under_its_name, cloned_long_after, cloned_beside]
)
@pytest.mark.parametrize("start_ts", [900, 1200], ids=["below-the-horizon", "above-it"])
def test_what_comes_back_without_a_proof_is_neither_forbidden_nor_dropped(
    world: Restoring, turn_back: Callable[[Restoring, Any], str], start_ts: int
) -> None:
    """It was committed: whoever drops it loses acknowledged data."""
    snapshot = world.committed(start_ts)
    table = turn_back(world, snapshot)
    before = world.cells(table)
    world.set_low_watermark(2000)

    for _ in range(2):
        report = world.compact()

        assert world.cells(table) == before
        assert world.entries() == {}
        assert report.cells_dropped == report.transactions_invalidated == 0
        (laggard,) = report.laggards
        assert laggard.table == table
        assert f"omidpy table accept {table} --apply" in laggard.reason
        assert "1 cells have neither" in laggard.reason
        assert b"a".hex() in laggard.reason
        assert str(start_ts) in laggard.reason


def test_what_was_claimed_of_a_table_counts_no_more_once_it_was_restored(
    world: Restoring,
) -> None:
    """The heals that the claims speak of are gone with what came after the snapshot."""
    cell = world.put(b"a", 1200)
    world.enter(1200, 1250)
    snapshot = world.store.snapshot("t")
    world.set_low_watermark(2000)
    world.compact(Options(grace_s=3600.0))
    assert (cell.row, 1200) in world.shadows()
    world.store.restore("t", snapshot)
    world.clock.advance(7200)

    report = world.compact(Options(grace_s=3600.0, exclude=frozenset({"t"})))

    assert report.horizon < 1200
    assert world.entries() == {1200: 1250}
    world.compact()
    assert world.visible(b"a", 3000) == {b"q": b"v"}
    assert world.entries() == {}


def test_a_table_that_is_restored_during_a_pass_loses_nothing(world: Restoring) -> None:
    """The look for entries came before the restore, so that it says nothing of what is there."""
    world.put(b"z", 1910)
    snapshot = world.committed(1900)
    world.set_low_watermark(2000)

    def restore_once(step: str) -> None:
        if step == "page-read" and world.store.changes["t"] == 1:
            world.store.restore("t", snapshot)

    report = world.compact(on_step=restore_once)

    assert [cell.version for cell in world.cells()] == [1900, 1910]
    assert "during the pass" in report.laggards[0].reason


def test_doubt_ends_where_the_table_was_seen(world: Restoring) -> None:
    """What began after that nobody can have brought back: it goes as ever."""
    world.store.enable_again("t")
    world.compact()
    world.put(b"b", CEILING + 50)
    world.set_ceiling(CEILING + 5000)
    world.set_low_watermark(CEILING + 1000)

    report = world.compact()

    assert world.cells() == []
    assert report.cells_dropped == 1
    assert not report.laggards


def test_an_operator_ends_the_doubt(world: Restoring) -> None:
    """A table may have been disabled for another reason, and nobody else can know that."""
    world.put(b"b", 1500)
    world.store.enable_again("t")
    world.set_low_watermark(2000)
    assert world.compact().laggards
    assert world.doubts() == {"t": CEILING + 49}
    assert "restored or cloned" in read_standing(world.store)["laggards"][0]["reason"]

    accepted(world, "t")

    assert world.doubts() == {}
    report = world.compact()
    assert world.cells() == []
    assert not report.laggards


@pytest.mark.parametrize("only_looks", [False, True])
@pytest.mark.parametrize("call", ["table_states", "get"])
def test_who_stood_still_takes_no_table_for_restored_that_another_has_seen_since(
    world: Restoring, monkeypatch: pytest.MonkeyPatch, call: str, *, only_looks: bool
) -> None:
    """An operator would be asked once more for a word that lets cells go."""
    real = getattr(world.store, call)

    def stand_still(*what: Any, **more: Any) -> Any:
        found = real(*what, **more)
        monkeypatch.undo()  # once
        world.store.enable_again("t")
        world.compact()
        accepted(world, "t")
        return found

    monkeypatch.setattr(world.store, call, stand_still)
    seen = sight(world.store, {"t": "one"}, newest=lambda: CEILING, only_looks=only_looks)

    assert call == "table_states" or seen["t"].doubtful == 0
    assert world.doubts() == {}
    assert not world.compact().laggards


def test_an_operator_is_told_what_a_word_would_cost(world: Restoring) -> None:
    """Before he gives it."""
    world.put(b"b", 1500)
    world.put(b"c", 1500)
    world.healed(b"d", 1600, 1650)
    world.store.enable_again("t")
    world.store.enable_again(COMMIT_TABLE)
    world.set_low_watermark(2000)
    world.compact()

    assert acceptance.find_doubt(world.store, "t", COMMIT_TABLE).cells == 2
    assert acceptance.find_doubt(world.store, COMMIT_TABLE, COMMIT_TABLE).cells is None
    assert accepted(world, "t") == CEILING + 49, "of the commit table"
    assert accepted(world, COMMIT_TABLE) == 0
    assert acceptance.find_doubt(world.store, "t", COMMIT_TABLE) == Doubt("t", 0, 0)
    world.table("plain", families=(), plain_families=[b"p"], owner=None)
    for table, why in (("nix", "no table nix"), ("plain", "not one of ours")):
        with pytest.raises(UsageError, match=why):
            acceptance.accept(world.store, Doubt(table, 0, 0), COMMIT_TABLE)


def test_an_operator_is_told_of_what_the_low_watermark_has_not_passed(world: Restoring) -> None:
    """A snapshot of a minute ago: its cells go, too, as soon as the watermark has passed them."""
    snapshot = world.committed(1500)
    world.store.restore("t", snapshot)
    assert [cell.version for cell in world.cells()] == [1500]
    world.set_low_watermark(1200)
    world.compact()

    assert acceptance.find_doubt(world.store, "t", COMMIT_TABLE).cells == 1
    accepted(world, "t")
    world.set_low_watermark(2000)
    assert world.compact().cells_dropped == 1


@pytest.mark.parametrize("what", ["region", "entries", "fact"])
def test_nothing_is_accepted_of_what_cannot_be_read(
    world: Restoring, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """An operator was told that no cell would go, and committed data went once it answered."""
    snapshot = world.committed(500)
    world.store.restore("t", snapshot)
    world.compact()
    table = COMMIT_TABLE if what == "entries" else "t"
    real = world.store.scan

    def scan(name: str, *arguments: Any, **options: Any) -> Any:
        if name == table:
            raise StorageError("a region does not answer")
        return real(name, *arguments, **options)

    if what == "fact":
        world.control.write(PRUNE_HORIZON, b"?")
    else:
        monkeypatch.setattr(world.store, "scan", scan)

    with pytest.raises(StorageError, match=r"nothing is accepted: .*(does not answer|not judged)"):
        accepted(world, "t")

    monkeypatch.undo()
    assert world.doubts() == {"t": CEILING + 49}


@pytest.mark.parametrize("is_before", [True, False], ids=["before-it-is-accepted", "right-then"])
@pytest.mark.parametrize("table", ["t", COMMIT_TABLE])
def test_what_came_while_a_table_was_read_is_not_accepted(
    world: Restoring,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    is_before: bool,  # noqa: FBT001 - a table
) -> None:
    """The operator was told of another state, and knows nothing of this one."""
    snapshot = world.committed(500)
    world.store.enable_again(table)
    world.compact()
    doubt = acceptance.find_doubt(world.store, table, COMMIT_TABLE)
    if is_before:
        world.store.restore("t", snapshot)
        world.store.enable_again(table)
    else:
        real = sightings.accept

        def accept_late(*what: Any, **more: Any) -> None:
            world.store.restore("t", snapshot)
            world.store.enable_again(table)
            real(*what, **more)

        monkeypatch.setattr(sightings, "accept", accept_late)
    before = world.image()

    with pytest.raises(StorageError, match="not accepted; do it again"):
        acceptance.accept(world.store, doubt, COMMIT_TABLE)

    assert not is_before or world.image() == before
    assert world.compact().cells_dropped == 0
    assert world.doubts()["t"] == CEILING + 49
    assert [cell.version for cell in world.cells()] == [500]


def test_an_acceptance_that_is_given_again_speaks_of_what_was_shown(world: Restoring) -> None:
    """Behind a lost answer the table may be restored once more, which nobody has looked at."""
    world.store.restore("t", world.committed(500))
    shown = acceptance.find_doubt(world.store, "t", COMMIT_TABLE)
    assert (
        acceptance.find_doubt(world.store, "t", COMMIT_TABLE, only=shown.seen).cells == shown.cells
    )
    world.store.enable_again("t")
    with pytest.raises(StorageError, match="which was looked at"):
        acceptance.find_doubt(world.store, "t", COMMIT_TABLE, only=shown.seen)


def test_an_acceptance_speaks_of_the_table_as_it_is(world: Restoring) -> None:
    """The next restore brings new doubt."""
    world.store.enable_again("t")
    world.compact()
    accepted(world, "t")

    world.store.enable_again("t")

    world.compact()
    assert world.doubts() == {"t": CEILING + 49}


def test_a_commit_table_that_was_restored_puts_every_table_in_doubt(world: Restoring) -> None:
    """The entries of what committed after its snapshot are lost."""
    snapshot = world.store.snapshot(COMMIT_TABLE)
    cell = world.put(b"a", 1200)
    world.enter(1200, 1250)
    world.store.restore(COMMIT_TABLE, snapshot)
    world.set_low_watermark(2000)

    report = world.compact()

    assert world.cells() == [cell]
    assert report.cells_dropped == 0
    assert report.laggards
    accepted(world, COMMIT_TABLE)
    world.compact()
    assert world.cells() == []


def test_a_table_that_is_adopted_or_made_by_an_operation_is_known_at_once(
    world: Restoring,
) -> None:
    """It may be restored before a compaction has ever seen it, too."""
    store = world.store
    world.table("java", owner=None)
    adopt(store, plan_adoption(store, "java", COMMIT_TABLE), COMMIT_TABLE)
    families = [FamilySchema(b"cf", {OMID_ENABLED: "true"})]
    attributes = {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE, INCARNATION_ATTRIBUTE: "two"}
    made = Renewal(TableSchema("made", families, attributes))
    tools = TableTools(store, NaiveOracle(store), Locks(TableFateStore(store)))
    Make("made", made).do(tools)

    for table in ("java", "made"):
        store.enable_again(table)

    world.compact()
    assert world.doubts() == dict.fromkeys(("java", "made"), CEILING + 49)


def test_claims_of_a_table_as_it_is_outlive_an_operation_on_its_name(world: Restoring) -> None:
    """They name its state, too, and an operation that comes late must not take them for others."""
    tools = TableTools(world.store, NaiveOracle(world.store), Locks(TableFateStore(world.store)))
    before = Watermarks(world.control).claims()
    assert before
    ForgetClaims("t", None).do(tools)
    assert Watermarks(world.control).claims() == before


def test_a_malformed_sighting_ends_no_run_and_leaves_what_has_no_proof(world: Restoring) -> None:
    """It may have spoken of a restore."""
    cell = world.put(b"b", 1500)
    row = SIGHTED_PREFIX + b"one"
    put = Put(*VALUE, FIXED_VERSION, b"{")
    world.store.write({CONTROL_TABLE: [RowMutation(row, puts=(put,))]})
    world.set_low_watermark(2000)

    report = world.compact()

    assert world.cells() == [cell]
    assert report.laggards
    accepted(world, "t")
    world.compact()
    assert world.cells() == []


def test_a_dry_run_remembers_nothing_and_says_the_same(world: Restoring) -> None:
    """It must not be the run that has seen the table, and so set the bound."""
    world.put(b"b", 1500)
    world.store.enable_again("t")
    world.set_low_watermark(2000)
    before = world.image()

    rehearsed = world.compact(Options(grace_s=0.0, is_dry_run=True))

    assert world.image() == before
    assert rehearsed.cells_dropped == 0
    assert [one.reason for one in rehearsed.laggards] == [
        one.reason for one in world.compact().laggards
    ]


def test_a_check_calls_it_unproven(world: Restoring) -> None:
    """`uncommitted` would promise that nobody needs it."""
    world.put(b"b", 1500)
    world.store.enable_again("t")
    world.set_low_watermark(2000)

    report = Check(world.store, CheckOptions(settle_s=0.0), sleep=world.clock.advance).run()

    assert [one.kind.value for one in report.findings] == ["unproven"]


def test_a_table_is_known_from_its_creation_on(world: Restoring) -> None:
    """It may be restored before a compaction has ever seen it."""
    store = world.store
    manager = TransactionManager(store, NaiveOracle(store), post_commit="sync")
    manager.create_table("new", families=["cf"])
    snapshot = store.snapshot("new")
    store.restore("new", snapshot)

    world.compact()

    assert world.doubts() == {"new": CEILING + 49}


@pytest.mark.parametrize("is_filled", [True, False])
@pytest.mark.parametrize("seconds", [0.0, 2 * sightings.JUST_MADE_S, None])
def test_a_maker_that_stood_still_vouches_for_an_empty_table_alone(
    world: Restoring,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float | None,
    is_filled: bool,  # noqa: FBT001 - a table
) -> None:
    """Before it tells of the table, that may have been filled, and restored, by others."""
    sight_first = sightings.sight_first

    def tell_late(store: Store, schema: TableSchema, clock: Clock, **_: object) -> None:
        if is_filled:
            world.put(b"a", 900, table="new")
        begun_s = None if seconds is None else clock.monotonic_s() - seconds
        sight_first(store, schema, clock, begun_s=begun_s)

    monkeypatch.setattr(catalog, "sight_first", tell_late)
    manager = TransactionManager(world.store, NaiveOracle(world.store), post_commit="sync")
    manager.create_table("new", families=["cf"])

    world.compact()

    assert world.doubts() == ({"new": CEILING + 49} if is_filled and seconds != 0.0 else {})


@pytest.mark.parametrize("is_restored", [True, False])
def test_a_table_of_which_nobody_told_that_it_was_made_is_in_doubt(
    world: Restoring,
    monkeypatch: pytest.MonkeyPatch,
    is_restored: bool,  # noqa: FBT001 - a table
) -> None:
    """Its maker died right behind that; what it is when a run first sees it may be a copy."""
    manager = TransactionManager(world.store, NaiveOracle(world.store), post_commit="sync")
    with monkeypatch.context() as patched:
        patched.setattr(catalog, "sight_first", lambda *_, **__: None)
        manager.create_table("new", families=["cf"])
    cell = world.put(b"a", 900, table="new")
    if is_restored:
        snapshot = world.store.snapshot("new")
        world.store.restore("new", snapshot)
    else:
        world.enter(900, 950)

    report = world.compact()

    assert world.doubts() == {"new": CEILING + 49}
    assert cell in world.cells("new")
    assert [one.table for one in report.laggards] == (["new"] if is_restored else [])
    accepted(world, "new")
    assert world.doubts() == {}


def test_a_table_without_an_incarnation_is_not_held_up(world: Restoring) -> None:
    """Who makes one in the shell tells nobody of it."""
    world.table("shell")
    world.put(b"a", 900, table="shell")
    report = world.compact()
    assert (world.cells("shell"), list(report.laggards)) == ([], [])


@pytest.mark.parametrize("is_in_doubt", [True, False])
def test_a_table_that_gets_an_incarnation_has_the_doubt_that_it_had(
    world: Restoring,
    is_in_doubt: bool,  # noqa: FBT001 - a table
) -> None:
    """It is in the same state as before."""
    world.table("shell")
    world.compact()
    if is_in_doubt:
        world.store.enable_again("shell")
        world.compact()
    expected = {"shell": CEILING + 49} if is_in_doubt else {}
    assert world.doubts() == expected
    world.set_ceiling(CEILING + 5000)

    world.store.set_table_attributes("shell", {INCARNATION_ATTRIBUTE: "given"})

    world.compact()
    assert world.doubts() == expected


def test_a_store_that_is_restored_as_a_whole_raises_no_doubt() -> None:
    """Its cells and its entries are of one moment."""
    world = World(MemoryStore())
    world.table()
    assert sight(world.store, {"t": ""}, newest=lambda: 7) == {}


def test_plain_data_of_a_restored_table_is_no_doubt() -> None:
    """It never had a proof, stays in any case, and holds nothing."""
    world = Restoring()
    world.set_ceiling(2 * FIRST_WORLD_TIMESTAMP)
    world.set_low_watermark(FIRST_WORLD_TIMESTAMP + 1000)
    world.compact()
    world.store.enable_again("t")
    plain = world.put(b"a", 1_700_000_000_000)
    assert world.compact().laggards == []
    assert plain in world.cells()


# -- tables that are adopted -----------------------------------------------------------------------

W: Final = 1_700_000_000_000_000_000
"""Phoenix's timestamps are times."""
PHOENIXS: Final = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"


class Phoenix(Restoring):
    """A store in which compactions adopt what Phoenix makes."""

    def __init__(self) -> None:
        World.__init__(self, RestoringStore())
        self.set_ceiling(W + 5_000_000)
        self.set_low_watermark(W + 1000)
        self.control.raise_number(FIRST_TIMESTAMP_FACT, W)
        self.store.create_table(
            TableSchema("t", [FamilySchema(b"cf")], {"coprocessor$1": PHOENIXS})
        )
        set_rule(self.control, Rule(is_followed=True))

    def night(self) -> list[str]:
        """Compact; return what is noted about the table."""
        notes: list[str] = []

        class Notes(NoProgress):
            def note(self, text: str) -> None:
                notes.append(text)

        clock = self.clock
        compact(self.store, ALL_AT_ONCE, clock=clock, sleep=clock.advance, progress=Notes())
        assert COMMIT_TABLE_ATTRIBUTE in self.store.schema("t").attributes
        return [note for note in notes if note.startswith("table t ")]


@pytest.fixture
def phoenix() -> Phoenix:
    """Return a store with one table that Phoenix has made."""
    return Phoenix()


def test_a_rule_adopts_what_was_ours_before_and_drops_nothing_of_it(phoenix: Phoenix) -> None:
    """The entry has gone since the snapshot, which knows of no adoption."""
    phoenix.put(b"a", W + 100)
    phoenix.enter(W + 100, W + 150)
    snapshot = phoenix.store.snapshot("t")
    phoenix.night()
    assert (phoenix.entries(), phoenix.doubts()) == ({}, {"t": W + 5_000_049})
    phoenix.store.restore("t", snapshot)
    phoenix.set_low_watermark(W + 1500)
    before = phoenix.cells()

    notes = phoenix.night()

    assert phoenix.cells() == before
    assert phoenix.entries() == {}
    assert "1 cells have neither" in notes[0]
    assert "`omidpy table accept t --apply`" in notes[0]
    accepted(phoenix, "t")
    phoenix.night()
    assert phoenix.cells() == []


def test_a_rule_drops_nothing_of_what_was_restored_before_it_was_ever_ours(
    phoenix: Phoenix,
) -> None:
    """Its client has removed the entry, far above all that a compaction has forgotten."""
    snapshot = phoenix.committed(W + 2000)
    phoenix.store.restore("t", snapshot)
    before = phoenix.cells()

    for _ in range(2):
        phoenix.night()
        phoenix.set_low_watermark(W + 3000)

    assert phoenix.cells() == before


def test_what_is_healed_when_a_rule_adopts_it_is_no_doubt(phoenix: Phoenix) -> None:
    """A new table is held up by nothing that begins before it and fails behind it."""
    phoenix.healed(b"a", W + 100, W + 150)
    assert len(phoenix.night()) == 1
    assert phoenix.doubts() == {}
    phoenix.put(b"b", W + 1100)
    phoenix.set_low_watermark(W + 1500)
    phoenix.night()
    assert [cell.row for cell in phoenix.cells()] == [b"a", b"a"]


def test_doubt_of_what_a_rule_adopts_is_told_until_all_of_it_has_a_proof(
    phoenix: Phoenix,
) -> None:
    """Transactions run while a table is adopted, as they always do; they come to their ends."""
    cell = phoenix.put(b"a", W + 2000)
    assert "adopted by a rule" in str(phoenix.night())
    assert "adopted by a rule" in str(phoenix.night())
    phoenix.heal(cell, W + 2050)
    phoenix.set_ceiling(W + 9_000_000)
    phoenix.set_low_watermark(W + 6_000_000)
    assert phoenix.night() == []


def java(world: Restoring, which: str | None) -> tuple[AdoptionPlan, Callable[[], None]]:
    """Plan to adopt a table of another's; return that, and what turns it back to what it is."""
    world.table("java", owner=None, incarnation=which, plain_families=[b"pf"])
    snapshot = world.store.snapshot("java")
    plan = plan_adoption(world.store, "java", COMMIT_TABLE)
    return plan, lambda: world.store.restore("java", snapshot)


def before_each(
    monkeypatch: pytest.MonkeyPatch, world: Restoring, call: str, act: Callable[[], None]
) -> None:
    """Do something before each call of one kind."""
    real = getattr(world.store, call)

    def act_first(*what: Any, **more: Any) -> Any:
        act()
        return real(*what, **more)

    monkeypatch.setattr(world.store, call, act_first)


@pytest.mark.parametrize("which", ["given", None])
def test_a_table_that_is_restored_while_it_is_read_is_not_adopted(
    world: Restoring, which: str | None
) -> None:
    """What was found is not what is there; nothing is written to it."""
    plan, restore = java(world, which)
    restore()
    before = world.store.schema("java")

    with pytest.raises(StorageError, match="restored"):
        adopt(world.store, plan, COMMIT_TABLE)

    assert world.store.schema("java") == before


def test_a_table_that_is_restored_while_it_is_marked_is_not_adopted(
    world: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its incarnation came back with it."""
    plan, restore = java(world, "given")
    before_each(monkeypatch, world, "set_family_attributes", restore)

    with pytest.raises(StorageError, match="restored"):
        adopt(world.store, plan, COMMIT_TABLE)

    assert COMMIT_TABLE_ATTRIBUTE not in world.store.schema("java").attributes


@pytest.mark.parametrize("count", [1, 2])
def test_a_table_that_is_restored_right_before_it_is_ours_is_in_doubt(
    world: Restoring, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """No look comes late enough, so that what is remembered is the state that was read."""
    plan, restore = java(world, "given")
    calls = iter(range(3))

    def restore_late() -> None:
        if next(calls) == count:
            restore()

    # The last family is marked behind the last look, and the table after that.
    for call in ("set_family_attributes", "set_table_attributes"):
        before_each(monkeypatch, world, call, restore_late)
    adopt(world.store, plan, COMMIT_TABLE)

    world.compact()
    assert world.doubts() == {"java": CEILING + 49}


# -- a repair that stands still --------------------------------------------------------------------


class Stalled(Check):
    """Stands still once, before its second look at a table or behind it."""

    def __init__(
        self, world: Restoring, meanwhile: Callable[[], None], *, is_before: bool = False
    ) -> None:
        super().__init__(world.store, REPAIR, sleep=world.clock.advance, clock=world.clock)
        self._meanwhile = meanwhile
        self._is_before = is_before

    def still_wrong(self, table: str, rows: Sequence[bytes]) -> list[Suspicion]:
        """Look again."""
        if self._is_before:
            self._meanwhile()
        wrong = super().still_wrong(table, rows)
        if not self._is_before:
            self._meanwhile()
        return wrong

    def repaired(self) -> dict[Kind, bool]:
        """Repair, and return by kind whether it was; what was not says why."""
        findings = self.run().findings
        assert all(one.repaired or ANOTHER in one.detail for one in findings)
        return {one.kind: one.repaired for one in findings}


def made_anew(world: Restoring, table: str, *cells: Cell) -> None:
    """Give a table's name to another one, which is plain, and has some of the same cells."""
    world.store.drop_table(table)
    world.store.create_table(TableSchema(table, [FamilySchema(b"cf")]))
    for cell in cells:
        world.store.write({table: [RowMutation(cell.row, (Put(*cell[1:]),))]})


@pytest.mark.parametrize("is_before", [True, False], ids=["before-the-look", "behind-it"])
def test_a_repair_heals_nothing_in_a_table_that_took_the_name(
    world: Restoring,
    is_before: bool,  # noqa: FBT001 - a table
) -> None:
    """Its shadow cell would make one of it that holds the horizon."""
    cell = world.put(b"a", 500)
    world.enter(500, 550)
    check = Stalled(world, lambda: made_anew(world, "t", cell), is_before=is_before)

    # A broken claim, since the run before had seen nothing of it.
    assert check.repaired() == {Kind.BROKEN_CLAIM: False}
    assert world.cells() == [cell]


def test_a_repair_drops_no_shadow_cell_of_a_table_that_was_restored(world: Restoring) -> None:
    """It is no orphan any more, and all that tells of its commit."""
    cell = world.healed(b"a", 500, 550)
    snapshot = world.store.snapshot("t")
    world.remove(cell)
    check = Stalled(world, lambda: world.store.restore("t", snapshot))

    assert check.repaired() == {Kind.ORPHAN_SHADOW: False}
    assert world.visible(b"a", 2000) == {b"q": b"v"}


def test_what_a_repair_heals_is_not_taken_for_what_it_drops(world: Restoring) -> None:
    """The one was done before the table was restored, the other was not."""
    world.put(b"a", 500)
    world.enter(500, 550)
    orphan = world.healed(b"b", 600, 650)
    world.remove(orphan)
    write, is_restored = world.store.write, False

    def written(batch: Any, *, durable: bool = False) -> None:
        nonlocal is_restored
        write(batch, durable=durable)
        if "t" in batch and not is_restored:
            is_restored = True
            world.store.enable_again("t")

    world.store.write = written  # type: ignore[method-assign]
    check = Stalled(world, lambda: None)

    assert check.repaired() == {Kind.BROKEN_CLAIM: True, Kind.ORPHAN_SHADOW: False}


def test_a_malformed_cell_of_a_table_that_took_the_name_stays(world: Restoring) -> None:
    """There it means nothing of ours."""
    bad = world.put(b"a", 500, b"short", qualifier=shadow_qualifier(b"q"))
    check = Stalled(world, lambda: made_anew(world, "t", bad))

    assert check.repaired() == {Kind.MALFORMED_SHADOW: False}
    assert world.cells() == [bad]


def test_other_cells_of_a_malformed_ones_transaction_are_healed_in_tables_of_ours_alone(
    world: Restoring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were found by a search of every table, which may take long."""
    world.table("u", incarnation="u")
    world.healed(b"z", 500, 550)
    bad = world.put(b"a", 501, b"short", qualifier=shadow_qualifier(b"q"))
    world.put(b"a", 501)
    other = world.put(b"b", 502, table="u")
    look = Malformed._beside

    def look_and_stall(self: Malformed, table: str, shadow: Cell) -> Any:
        found = look(self, table, shadow)
        if table == "u":
            made_anew(world, "u", other)
        return found

    monkeypatch.setattr(Malformed, "_beside", look_and_stall)

    assert Stalled(world, lambda: None).run().repaired.get(Kind.MALFORMED_SHADOW) is None
    assert world.cells("u") == [other]
    assert bad in world.cells()
