"""Two releases in one simulated world: seeds, what they reach, and what is between the two.

Which release the other one is, `tests/machines/two_versions.py` says.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any, Final

import pytest

from omidpy import errors
from omidpy.admin.table_steps import Close, TableTools
from omidpy.admin.tables import DROP
from omidpy.base.tables import INCARNATION_ATTRIBUTE
from omidpy.fate import Fate, Locks, Status, TableFateStore
from omidpy.fate.operation import FateId, Operation
from omidpy.fate.step import encode_step
from omidpy.model import Cell, CellName, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import Capabilities, CellGroup, Condition, Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.history import Event, Kind
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.naive_oracle import NaiveOracle
from tests.machines.simulator import __main__ as simulator
from tests.machines.simulator import before as loading
from tests.machines.simulator import rolling
from tests.machines.simulator.all_mutants import BY_DAY
from tests.machines.simulator.before import WITHOUT, Absent, Before
from tests.machines.simulator.border import Border
from tests.machines.simulator.plan import ROLLING, USUAL, drawn_plan
from tests.machines.simulator.rolling import RELEASES, NoReleaseBefore
from tests.machines.simulator.rolling_mutants import ROLLING_MUTANTS
from tests.machines.simulator.simulation import simulate
from tests.machines.simulator.store import Stall
from tests.simulation.test_simulator import _first_of_the_day
from tso.core.settings import Settings

RECORDED: Final = (3, 9, 10, 20, 22, 440_008)
"""Seeds in which both releases do much for each other, and one that once found something."""
NEW_BY_DAY: Final = 2
NEW_BY_NIGHT: Final = 10

COMPANY: Final = ROLLING._replace(
    before_shares=(0.5,),
    pauses_s=(0.5,),
    exporters=(2,),
    keepers=(2,),
    adding_shares=(1.0,),
    operators=(2,),
    committers=(2,),
    sharers=(2,),
    retriers=(3,),
    other_fault_counts=(3, 5),
    other_fault_kinds=("crash", "crash", "crash", "pause"),
    driver_death_shares=(0.01, 0.03),
    patiences_s=(0.0, 1.0),
    publish_shares=(0.0, 0.3),
    operator_stalls=(Stall(0.05, 12.0),),
    keeper_stalls=(Stall(0.03, 12.0),),
    keeper_pauses_s=(1.0,),
)
"""Everybody who can be of either release, and is soon started again as the other."""
IN_COMPANY: Final = (2, 3, 15, 63)
"""Seeds in which each release ends what the other has begun."""
IN_COMPANY_BY_DAY: Final = (3, 15)
"""Those in which of each kind of work some that one of the two has begun is ended by the other."""
BESIDE: Final = (
    *("exporter", "keeper", "operator", "committer"),
    *("rescuer", "sharer", "helper", "retrier"),
)

SHARED: Final = USUAL._replace(
    exporters=(1, 2),
    keepers=(1, 2),
    operators=(2, 3),
    committers=(1, 2, 3),
    sharers=(1, 2),
    retriers=(2,),
)
"""Worlds with many, all of them of this tree."""

DEEDS: Final = (
    "entries of {} delivered by {}",
    "changes of tables of {} ended by {}",
    "rebucketings of {} ended by {}",
    "jobs of {} ended by {}",
    "parts of {} merged by {}",
    "orders of {} tried again by {}",
)
"""What one process begins, and another may end."""


@pytest.fixture
def before() -> Before:
    """Return the release before."""
    if (loaded := loading.before()) is None:
        pytest.skip(WITHOUT)
    return loaded


@pytest.fixture
def border(before: Before) -> Border:
    """Return what is between it and this tree."""
    return Border(before)


# -- seeds -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize(
    "new_count", [NEW_BY_DAY, pytest.param(NEW_BY_NIGHT, marks=pytest.mark.nightly)]
)
def test_seeds_find_nothing_and_the_releases_meet(new_count: int) -> None:
    """Each commits at the other's oracles, takes leases over from it, and completes its commits."""
    first = _first_of_the_day(new_count)
    counts: Counter[str] = Counter()
    for seed in (*RECORDED, *range(first, first + new_count)):
        report = simulate(seed, focus=ROLLING)
        assert not report.findings, report
        counts += report.counts
    for one, other in product(RELEASES, repeat=2):
        assert counts[f"commits of {one} by an oracle of {other}"] > 0
        assert counts[f"commits of {one} completed by {other}"] > 0
        assert counts[f"oracles of {one} after one of {other}"] > 0
    for kind, one in product(("oracles", "clients", "compactors"), RELEASES):
        assert counts[f"{kind} of {one} that began"] > 0


@pytest.mark.usefixtures("before")
@pytest.mark.parametrize(
    "seeds",
    [IN_COMPANY_BY_DAY, pytest.param(IN_COMPANY, marks=pytest.mark.nightly)],
    ids=["some", "every"],
)
def test_each_release_ends_what_the_other_has_begun(seeds: tuple[int, ...]) -> None:
    """Whoever works beside oracles and clients is stopped and started again, as they are."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        report = simulate(seed, focus=COMPANY)
        assert not report.findings, report
        counts += report.counts
    needed = all if seeds == IN_COMPANY else any
    for deed in DEEDS:
        assert needed(counts[deed.format(*both)] > 0 for both in permutations(RELEASES))
    for kind, one in product(BESIDE, RELEASES):
        assert counts[f"{kind}s of {one} that began"] > 0


def test_what_ended_in_the_dark_is_not_open_again() -> None:
    """The row of a transaction with many writers was, behind its commit."""
    report = simulate(430_001, focus=SHARED)
    assert not report.findings, report


@pytest.mark.usefixtures("before")
def test_a_seed_gives_the_same_hash_in_another_process() -> None:
    """Whatever has been simulated there before, and whoever is the release before."""
    command = (
        "from tests.machines.simulator import plan, simulation; "
        "print(simulation.simulate(20, focus=plan.ROLLING).digest)"
    )
    elsewhere = subprocess.run(
        [sys.executable, "-c", command],
        env={"PYTHONHASHSEED": "20", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert simulate(20, focus=ROLLING).digest == elsewhere
    plan = drawn_plan(20, ROLLING)
    ours = simulate(20, focus=ROLLING, plan=plan._replace(before_share=0.0))
    assert ours.digest != elsewhere
    assert not any(RELEASES[1] in name for name in ours.counts)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly)
        for name in ROLLING_MUTANTS
    ],
)
def test_a_mutant_of_two_releases_is_at_one_with_itself(name: str) -> None:
    """What is found is found between the two: where only this tree is, nothing is."""
    mutant = ROLLING_MUTANTS[name]
    alone = mutant.focus._replace(before_shares=(0.0,))
    report = simulate(2, mutant.parts, alone)
    assert not report.findings, report


def test_without_history_it_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A source archive has no release before, and simulates everything else."""
    monkeypatch.setattr(loading, "revision_before", lambda: None)
    assert loading.before.__wrapped__() is None

    def no_git() -> str:
        raise subprocess.CalledProcessError(128, "git")

    monkeypatch.setattr(loading, "revision_before", no_git)
    assert loading.before.__wrapped__() is None
    for module in (rolling, simulator):
        monkeypatch.setattr(module, "before", lambda: None)
    with pytest.raises(NoReleaseBefore, match="git fetch --unshallow"):
        simulate(0, focus=ROLLING)
    monkeypatch.setattr(sys, "argv", ["simulator", "--focus", "rolling"])
    with pytest.raises(SystemExit):
        simulator.main()
    assert WITHOUT in capsys.readouterr().err.splitlines()[-1]


# -- the release before, in this process -----------------------------------------------------------


def test_every_module_of_it_has_its_own_packages(before: Before) -> None:
    """One that came to this tree's would be this tree, and show nothing."""
    actors = before.actor("simulation")
    assert actors.PRODUCT.manager.__module__ == "before.omidpy.manager"
    assert actors.PRODUCT.machine.__module__ == "before.tso.core.machine"
    assert actors.World.__module__ == "tests.machines.simulator.world"
    simulate(4, focus=ROLLING)  # what is imported within functions is there, too
    ours = ("omidpy.", "tso.", "compactor.")
    for name, module in list(sys.modules.items()):
        if name.startswith(("before.omidpy", "before.tso", "before.compactor")):
            for what, value in vars(module).items():
                where = str(getattr(value, "__module__", None) or "")
                assert not f"{where}.".startswith(ours), f"{name}.{what} is of this tree"


def test_an_import_within_a_function_comes_to_the_same(before: Before) -> None:
    """A function looks for what it imports when it is called."""
    manager = sys.modules[before.actor("simulation").PRODUCT.manager.__module__]
    place: dict[str, Any] = {
        "__name__": "before.omidpy.one",
        "__builtins__": vars(manager)["__builtins__"],
    }
    lines = (
        "def whole():\n import omidpy.errors\n return omidpy",
        "def leaf():\n import omidpy.storage.base as leaf\n return leaf",
        "def name():\n from omidpy.errors import OmidError\n return OmidError",
        "def module():\n from omidpy.storage import base\n return base",
        "def other():\n import json\n return json",
    )
    exec("\n".join(lines), place)
    assert place["whole"]().__name__ == "before.omidpy"
    assert place["leaf"]().__name__ == "before.omidpy.storage.base"
    assert place["name"]().__module__ == "before.omidpy.errors"
    assert place["module"]().__name__ == "before.omidpy.storage.base"
    assert place["other"]().__name__ == "json"


def test_what_has_moved_since_is_found_and_what_is_new_is_of_no_use(before: Before) -> None:
    """The actors name modules as this tree has them."""
    moved = before.get("omidpy.somewhere.else_", "TcpOracle")
    assert moved.__module__ == "before.omidpy.oracle.tcp"
    with pytest.raises(LookupError, match="no Nothing"):
        before.get("omidpy.errors", "Nothing")
    asking = {"__name__": f"before.{loading.ACTORS[0]}"}
    found = before._import("omidpy.errors", asking, {}, ("OmidError", "Nothing"))
    assert found.OmidError is before.get("omidpy.errors", "OmidError")
    assert isinstance(found.Nothing, Absent)
    with pytest.raises(AssertionError, match=r"has no omidpy\.errors\.Nothing"):
        found.Nothing(1)
    with pytest.raises(AssertionError, match="has no"):
        found.Nothing.value  # noqa: B018 - it is what fails


# -- between the two -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        RowMutation(b"r", (Put(b"cf", b"q", 7, b"v"),)),
        CellGroup({"t": [(b"r", b"cf", b"q", 7, b"v")]}, Condition("t", b"r", (b"a", b"b"), None)),  # type: ignore[arg-type]
        Capabilities(remote=True),
        KeyRange(b"a", b"b"),
        TableSchema("t", (FamilySchema(b"cf"),)),
        Settings(conflict_map_size=8),
        Event(Kind.READ, "1-1", 5, key="k", value=(1, 2)),
        {"t": [Cell(b"r", b"cf", b"q", 7, b"v")], "u": []},
        {1, 2},
        (None, True, 1.5, "text"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_crosses_and_comes_back_is_what_it_was(border: Border, value: object) -> None:
    """And is of the other one's classes in between."""
    there = border.out(value)
    module = type(value).__module__
    assert type(there).__module__ == (module if module == "builtins" else f"before.{module}")
    assert border.home(there) == value
    assert type(border.home(there)) is type(value)


def test_what_is_within_is_of_the_other_classes_too(border: Border) -> None:
    """An old client that finds a new class in an old one would take it for something else."""
    there = border.out({"t": [RowMutation(b"r", (Put(b"cf", b"q", 7, b"v"),))]})
    assert type(there["t"][0].puts[0]).__module__ == "before.omidpy.storage.base"
    event = border.out(Event(Kind.READ, "1-1", 5))
    assert type(event.kind).__module__ == "before.omidpy.testing.history"


def test_a_field_that_the_other_lacks_may_say_nothing(
    border: Border, before: Before, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does say would be lost on the way."""

    class Poorer:
        _fields = ("row", "puts")

        def __init__(self, row: bytes, puts: object) -> None:
            self.row, self.puts = row, puts

    monkeypatch.setattr(before.tree, "get", lambda *_: Poorer)
    assert border.out(RowMutation(b"r")).row == b"r"
    with pytest.raises(AssertionError, match="nobody there knows deletes"):
        border.out(RowMutation(b"r", deletes=[1]))  # type: ignore[list-item]


def test_what_has_no_known_shape_does_not_pass(border: Border) -> None:
    """Else a process would have something of the other release in its hands."""
    with pytest.raises(AssertionError, match="no shape that could pass"):
        border.out(MemoryStore())
    with pytest.raises(AssertionError, match="no shape that could pass"):
        border.out(object())


def test_an_error_is_of_the_class_that_is_caught_there(border: Border, before: Before) -> None:
    """With what it says and holds; a subclass that only one has is the nearest that both have."""
    error = errors.WriteConflict("twice", cells=[CellName("t", b"r", b"f", b"q")], advice="again")
    there = border.out.error(error)
    assert type(there) is before.get("omidpy.errors", "WriteConflict")
    assert (str(there), vars(there)) == (str(error), vars(error))
    assert type(border.home.error(there)) is errors.WriteConflict

    class Ours(errors.StorageUnavailable):
        pass

    assert type(border.out.error(Ours("gone"))) is before.get("omidpy.errors", "StorageUnavailable")
    nobodys = KeyError("k")
    assert border.out.error(nobodys) is nobodys


class _Store:
    """As much of one as is asked here."""

    number = 3

    def scan(self, table: str) -> Iterator[list[Cell]]:
        """Yield a page, and fail."""
        yield [Cell(table.encode(), b"cf", b"q", 7, b"v")]
        raise errors.StorageUnavailable("gone")

    def write(self, mutation: RowMutation) -> str:
        """Say what has come."""
        return str(_kind_of(mutation))

    def call(self, act: Any) -> str:
        """Call back."""
        try:
            return f"it says {act(RowMutation(b'r'))}"
        except errors.OmidError as error:
            return f"it fails: {error}"


def _kind_of(value: object) -> Any:
    return str(type(value).__module__)


def test_a_store_is_seen_in_the_classes_of_who_looks(border: Border, before: Before) -> None:
    """Calls, pages, errors in the middle of them, and what is called back."""
    seen = border.seen(_Store())
    assert seen.number == 3
    assert not hasattr(seen, "nothing")
    mutation = before.get("omidpy.storage.base", "RowMutation")(b"r")
    assert seen.write(mutation) == "omidpy.storage.base"
    assert seen.call(_kind_of) == "it says before.omidpy.storage.base"
    gone = before.get("omidpy.errors", "StorageUnavailable")

    def fails(_: object) -> None:
        raise gone("there")

    assert seen.call(fails) == "it fails: there"
    pages = seen.scan("t")
    assert [_kind_of(cell) for cell in next(pages)] == ["before.omidpy.model"]
    with pytest.raises(gone, match="gone"):
        next(pages)


# -- what the release before does not know ---------------------------------------------------------


def test_an_operation_waits_unhurt_whose_step_the_release_before_does_not_know(
    before: Before, border: Border
) -> None:
    """Its executors leave it as it is, and one of this tree ends it."""
    store = LikeThrift2()
    oracle = NaiveOracle(store)
    store.create_table(TableSchema("t", (FamilySchema(b"cf"),), {INCARNATION_ATTRIBUTE: "1"}))
    operations = TableFateStore(store)
    ours = Fate(TableTools(store, oracle, Locks(operations)), operations, {DROP: 1})
    step = Close("t", "1", None, "2")
    handle = ours.create(DROP, step)
    handle.seed()

    class_of = before.get
    seen = border.seen(store, lock=lambda _, name, *, purpose: store.lock(name, purpose=purpose))
    theirs = class_of("omidpy.fate.table.store", "TableFateStore")(seen)
    tools = class_of("omidpy.admin.table_steps", "TableTools")
    locks = class_of("omidpy.fate.locks", "Locks")(theirs)
    older = class_of("omidpy.fate.client", "Fate")(
        tools(seen, border.seen(oracle), locks), theirs, {DROP: 1}
    )
    for _ in range(3):
        older.run_pending()
    older.close()
    waits = operations.read(FateId(handle.id))
    assert isinstance(waits, Operation)
    assert (waits.status, waits.stack) == (Status.SUBMITTED, (encode_step(step),))
    assert waits.reservation is None
    assert "table.Close" in waits.waiting
    assert store.schema("t")

    ours.run_pending()
    ours.close()
    ended = operations.read(FateId(handle.id))
    assert isinstance(ended, Operation)
    assert ended.status is Status.SUCCESSFUL
    assert "t" not in {one.name for one in store.tables()}
