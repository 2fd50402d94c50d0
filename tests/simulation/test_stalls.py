"""Executors and compactors that are stopped before any change, deposed, and go on; or that die.

Every verb of an operator on one table is stopped, or killed, at each of its changes; others take
over, finish, drop, empty, make again, fence and compact meanwhile.  By day each place in the code
meets a few of them where a verb first comes to it, at night every change meets all, on a file, too,
and where a store changes rows one by one.  How: `tests/machines/stalls`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from omidpy.storage import base, options
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tests.machines.like_thrift2 import LikeThrift2
from tests.machines.stalls.changes import READS, STORE_WRITES, Place, places
from tests.machines.stalls.lives import Ending, Life, Moment, moments_of
from tests.machines.stalls.tables import BEGINNINGS, VERBS, Beginning, Scene

Others = tuple[str, ...]

PAIRS: Final[tuple[Others, ...]] = tuple((verb, "put") for verb in VERBS)
"""Two verbs; what is written behind them must be there."""
WORLDS: Final[tuple[Others, ...]] = (
    ("run", "put"),
    ("run", "drop", "create", "put"),
    ("drop", "make", "put"),
    ("make", "put", "drop"),
    ("run", "drop", "create", "put", "drop"),
    ("truncate", "put", "compact", "sweep"),
    ("compact", "drop", "create", "put", "compact"),
    ("run", "sweep", "put", "truncate"),
    ("replace by Java's", "adopt", "put"),
)
"""Somebody takes over, and somebody changes the world."""
MEETINGS: Final = (*PAIRS, *WORLDS)

OPERATORS: Final = "verbs on operations write by their version: tests/unit/fate/test_admin.py"
NO_CHANGE: Final = "changes nothing that others see"
CLIENTS: Final = "a client's own, whose deaths tests/integration/test_crashes.py tries"
BEGINS: Final = "makes what is there already; who finds it goes on: tests/unit/fate/test_flaky.py"
SNAPSHOTS: Final = "on HBase alone: tests/unit/compactor/test_snapshots.py"
ADOPTION: Final = (
    "plain data, ignored tables: tests/unit/compactor/test_conversion.py, test_adopting_the_read.py"
)
REPAIRS: Final = "fsck writes what is true whoever writes it: tests/contract/test_fsck.py"
ZOOKEEPER: Final = "tests/integration/test_stalled_sessions.py"
QUEUES: Final = "export queues alone: tests/unit/recipes/test_export_deposed.py"
SHOWN: Final = "rows that only people look at: tests/unit/compactor/test_advances.py"
FILES: Final = "a file that only people look at: tests/unit/compactor/test_files.py"
KEYS: Final = "exact versions, whoever uses one meanwhile: tests/unit/compactor/test_keys.py"
GHOSTS: Final = "one that was made too late goes with the next: tests/unit/facts/test_makers.py"
GARBLED: Final = (
    "behind bytes that nobody writes: tests/unit/compactor/test_singletons.py, "
    "tests/unit/fate/test_table_store.py"
)
RARE: Final = (
    "behind an error that no change of the world brings: tests/contract/test_compaction.py"
)

MAKES: Final = "omidpy/facts/tables/makers.py Makers.make_table create_table"
"""Where an operation makes its table."""

ELSEWHERE: Final[dict[str, tuple[str, ...]]] = {
    OPERATORS: (
        "omidpy/fate/admin.py Admin.cancel write",
        "omidpy/fate/admin.py Admin.fail.act write",
        "omidpy/fate/admin.py Admin.delete.act delete",
        "omidpy/fate/client.py OperationHandle.cancel write",
        "omidpy/fate/client.py OperationHandle.delete delete",
        "omidpy/fate/store.py FateStore.try_reserve write",
    ),
    NO_CHANGE: (
        "omidpy/admin/tables.py carry_out forget",
        "omidpy/fate/table/joined.py JoinedChanges._leave remove",
        "omidpy/fate/listing.py iso replace",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore.off_news remove",
        "omidpy/facts/tables/catalog.py Catalog.create forget",
        "compactor/compactor.py  insert",
        "compactor/options.py options_from_words.seconds replace",
        "compactor/shell/display.py summary insert",
        "compactor/rows/long_rows.py LongRowWork.heal remove",
    ),
    CLIENTS: (
        "omidpy/facts/tables/catalog.py Catalog.create create_table",
        "omidpy/facts/commit_table.py CommitTable.complete write",
        "omidpy/facts/commit_table.py CommitTable.undo_invalidation check_and_mutate",
        "omidpy/facts/commit_table.py CommitTable.undo_invalidation write",
        "omidpy/facts/holds.py hold write",
        "omidpy/facts/tables/removal.py remove_table fence",
        "omidpy/facts/tables/removal.py reopen forget",
        "omidpy/facts/registration.py PartsRow._put write",
        "omidpy/facts/registration.py WorkerRow._announce check_and_mutate",
        "omidpy/facts/registration.py WorkerRow._announce write",
        "omidpy/facts/registration.py WorkerRow._send_at_once write_guarded",
        "omidpy/facts/registration.py WorkerRow.send write",
        "omidpy/facts/watermarks.py Watermarks.forget_hold forget",
        "omidpy/facts/watermarks.py Watermarks.write_hold write",
        "compactor/rows/invalidations.py InvalidationCounter.undo_invalidation undo_invalidation",
    ),
    BEGINS: (
        "omidpy/admin/table_steps.py Make.do set_table_attributes",
        "omidpy/facts/writers.py make_writer_key replace",
        "omidpy/facts/control.py create_absent create_table",
        "omidpy/fate/table/store.py TableFateStore.claim_key delete",
    ),
    SNAPSHOTS: (
        "omidpy/facts/tables/removal.py remove_closed drop_table_if",
        "omidpy/facts/tables/sightings.py _Remembered.replace replace",
        "omidpy/facts/tables/sightings.py _sight replace",
        "omidpy/facts/tables/sightings.py accept replace",
        "omidpy/facts/tables/sightings.py sight_adopted replace",
        "compactor/pruning/snapshot_holds.py SnapshotHolds._recorded replace",
        "compactor/pruning/snapshot_holds.py SnapshotHolds._remember_root write",
        "compactor/pruning/snapshot_holds.py SnapshotHolds.limit forget",
        "compactor/pruning/snapshot_holds.py find_root write",
    ),
    ADOPTION: (
        "compactor/tables/adoption.py adopt fence",
        "compactor/tables/adoption.py adopt set_family_attributes",
        "omidpy/facts/tables/removed.py forget_removal replace",
        "compactor/tables/adoption.py ignore set_table_attributes",
        "compactor/tables/conversion.py _pass_over write",
        "compactor/tables/following.py set_rule write",
        "compactor/tables/ownership.py change_ignored replace",
        "compactor/tables/ownership.py change_ignored write",
    ),
    REPAIRS: (
        "compactor/check/repair.py Repair.mend forget_claims",
        "compactor/check/repair.py Repair.mend write",
        "compactor/check/acts.py Acts._change check_and_mutate",
        "compactor/check/acts.py Acts._change write",
        "compactor/check/malformed.py Malformed._heal write",
        "compactor/check/malformed.py Malformed.mend_shadow invalidate",
        "compactor/check/quarantine.py Quarantine.keep check_and_mutate",
    ),
    ZOOKEEPER: (
        "omidpy/fate/zookeeper/queues.py ZooKeeperQueues.swap change",
        "omidpy/fate/zookeeper/session.py ZooKeeperSession._change delete",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore._make_path change",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore._make_path make",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore._change change",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore.remove change",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore.remove_unreadable change",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore.swap change",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore._move change",
        "omidpy/fate/zookeeper/store.py ZooKeeperFateStore.swap_lock_queue swap",
        "omidpy/fate/zookeeper/members.py EphemeralMember.retire change",
    ),
    QUEUES: (
        "omidpy/facts/control.py ControlTable.replace_and replace_own",
        "omidpy/facts/control.py ControlTable.replace_and write",
        "omidpy/facts/control.py ControlTable.replace_and write_guarded",
    ),
    SHOWN: (
        "compactor/ranges/advances.py Teller.tell write",
        "compactor/ranges/advances.py _forget forget",
    ),
    FILES: (
        "compactor/shell/files.py put_file write",
        "compactor/shell/files.py _replace write",
        "compactor/shell/files.py _replace replace",
    ),
    KEYS: ("compactor/pruning/keys.py forget_keys write",),
    GHOSTS: ("omidpy/facts/tables/makers.py Makers.remove_ghost drop_table",),
    GARBLED: (
        "omidpy/facts/control.py ControlTable._replace_empty check_and_mutate",
        "omidpy/facts/control.py ControlTable._replace_empty write",
        "omidpy/fate/table/store.py TableFateStore._take_key write",
    ),
    RARE: (
        "omidpy/facts/tables/questions.py Questions.record write",
        "omidpy/facts/watermarks.py Watermarks.forget_expired_holds forget",
        "omidpy/facts/watermarks.py Watermarks.record_claim replace",
        "compactor/run/driver.py Driver._clear_away delete",
        "compactor/run/driver.py Driver._drop_if_unnamed delete",
        "compactor/run/driver.py Driver._thin delete",
        "compactor/run/driver.py _carry_out write",
        "compactor/run/steps.py CompactionParts.thin forget_claims",
    ),
}
"""What is stopped by no verb here, and why not, by reason."""

PROTOCOLS: Final[tuple[type, ...]] = (
    *(
        base.Store,
        options.ChecksBehind,
        options.ClosesTables,
        options.CutsRows,
        options.HidesTables,
        options.KnowsServers,
    ),
    *(
        options.PairsCells,
        options.RestoresTables,
        options.ShapesChanges,
        options.ShapesRows,
        options.SiftsRows,
        options.TellsLocks,
    ),
)
"""What a store may be asked."""
MOST_TOLD: Final = 3
"""Cases that are told in full when some went wrong."""

_spared: dict[tuple[Beginning, type[Store]], Life] = {}


def spared(beginning: Beginning, store: type[Store] = MemoryStore) -> Life:
    """Return the life of a verb that is let be."""
    if (beginning, store) not in _spared:
        scene = Scene.after(beginning, store)
        life = scene.play(beginning.verb, None, [])
        scene.judge()
        _spared[beginning, store] = life
    return _spared[beginning, store]


def check(
    beginning: Beginning,
    cases: Iterator[tuple[Moment | None, Others]],
    make_store: Callable[[], Store] = MemoryStore,
) -> int:
    """Play cases; return how many there were, or tell the first few that went wrong."""
    count = 0
    wrong: list[str] = []
    for moment, others in cases:
        count += 1
        scene = Scene.after(beginning, make_store)
        try:
            scene.play(beginning.verb, moment, others)
            scene.judge()
        except AssertionError as error:
            where = "" if moment is None else f" at {_places_of(beginning, moment)}"
            wrong.append(f"{beginning}: {moment}{where}, then {others}\n{error}")
    assert not wrong, "\n\n".join([f"{len(wrong)} of {count} went wrong", *wrong[:MOST_TOLD]])
    return count


def _places_of(beginning: Beginning, moment: Moment) -> str:
    """Say where in the code the change is, on a store in memory."""
    made = spared(beginning).made
    found = made[moment.number - 1] if moment.number <= len(made) else ()
    return str(found[0]) if found else "a place in clients"


def moments(
    beginning: Beginning,
    store: type[Store] = MemoryStore,
    endings: Sequence[Ending] = tuple(Ending),
    *,
    is_every: bool = False,
) -> list[Moment]:
    """Return at which moments a verb is stopped, or dies."""
    return moments_of(spared(beginning, store), endings, is_every=is_every)


@functools.cache
def newcomers() -> dict[tuple[str, ...], Beginning]:
    """Return the first of the verbs that change something from a place in the code, by the place.

    A place is where the call is, and who calls it.
    """
    found: dict[tuple[str, ...], Beginning] = {}
    for beginning in BEGINNINGS:
        for where in spared(beginning).made:
            found.setdefault(tuple(place.name for place in where), beginning)
    return found


def some(beginning: Beginning) -> Iterator[tuple[Moment, Others]]:
    """Let the first change from each place meet a few others, some of them if the place is known.

    It is known where a verb before comes to it, too.
    """
    first = BEGINNINGS.index(beginning)
    for index, (number, _) in enumerate(moments(beginning, endings=[Ending.STALLS]), start=first):
        chain = tuple(place.name for place in spared(beginning).made[number - 1])
        if newcomers()[chain] == beginning:
            yield Moment(number, Ending.STALLS), WORLDS[index % len(WORLDS)]
            yield Moment(number, Ending.STALLS), MEETINGS[index % len(MEETINGS)]
            yield Moment(number, Ending.DIES_BEFORE), MEETINGS[(index + 3) % len(MEETINGS)]
            yield Moment(number, Ending.DIES_AFTER), MEETINGS[(index + 8) % len(MEETINGS)]
        elif index % 3 == 0:
            ending = Ending.STALLS if index % 2 else Ending.DIES_AFTER
            yield Moment(number, ending), MEETINGS[index % len(MEETINGS)]


def test_every_method_of_a_store_reads_or_writes() -> None:
    """A new one of its protocols must be told which, or no harness would notice its calls."""
    found = {name for protocol in PROTOCOLS for name in vars(protocol) if not name.startswith("_")}
    assert found == READS | STORE_WRITES


def test_every_change_is_stopped_or_named() -> None:
    """A new one that no verb here comes to fails, with its line; so does a name without a call."""
    known: dict[str, list[Place]] = {}
    for place in places():
        known.setdefault(place.name, []).append(place)
    stopped = {
        place
        for store in (MemoryStore, LikeThrift2)
        for beginning in BEGINNINGS
        for made in spared(beginning, store).made
        for place in made
    }
    named = {name for names in ELSEWHERE.values() for name in names}
    missing = [place for place in places() if place not in stopped and place.name not in named]
    assert not missing, "\n".join(["neither stopped nor named:", *map(str, missing)])
    assert named <= known.keys(), f"gone: {sorted(named - known.keys())}"
    needless = [name for name in named if stopped >= set(known[name])]
    assert not needless, f"these are stopped: {needless}"


@pytest.mark.parametrize(
    "nth", [2, pytest.param(1, marks=pytest.mark.nightly)], ids=["some", "every"]
)
@pytest.mark.parametrize("beginning", BEGINNINGS, ids=str)
def test_two_verbs_one_after_the_other(beginning: Beginning, nth: int) -> None:
    """The second finds what the first has left, and what it says is true."""
    seconds = PAIRS[BEGINNINGS.index(beginning) % nth :: nth]
    assert check(beginning, ((None, others) for others in seconds)) >= len(VERBS) // nth


@pytest.mark.parametrize("beginning", BEGINNINGS, ids=str)
def test_whoever_is_stopped_or_dies_loses_nothing_and_brings_nothing_back(
    beginning: Beginning,
) -> None:
    """At the first change from each place in the code."""
    check(beginning, some(beginning))


def test_each_place_in_the_code_meets_some_by_day() -> None:
    """Whichever verb comes to it: those that are left out have been met elsewhere."""
    met = {
        tuple(place.name for place in spared(beginning).made[moment.number - 1])
        for beginning in BEGINNINGS
        for moment, _ in some(beginning)
    }
    assert met == newcomers().keys()


def test_whoever_is_stopped_where_rows_change_one_by_one_loses_nothing() -> None:
    """As on HBase: nothing looks at a lease in the same change."""
    count = 0
    for number, beginning in enumerate(BEGINNINGS):
        at = moments(beginning, LikeThrift2, (Ending.STALLS,))[number % 6 :: 6]
        others = itertools.islice(itertools.cycle(MEETINGS), 3 * number, None)
        count += check(beginning, zip(at, others, strict=False), LikeThrift2)
    assert count > 2 * len(BEGINNINGS)


@pytest.mark.nightly
@pytest.mark.parametrize("store", ["memory", "like HBase", "sqlite"])
@pytest.mark.parametrize("beginning", BEGINNINGS, ids=str)
def test_every_change_meets_everybody(beginning: Beginning, store: str, tmp_path: Path) -> None:
    """Every change, every ending, every other verb, every change of the world."""
    files = (tmp_path / f"{number}.db" for number in itertools.count())
    makers: dict[str, Callable[[], Store]] = {
        "memory": MemoryStore,
        "like HBase": LikeThrift2,
        "sqlite": lambda: SqliteStore(next(files)),
    }
    kind = LikeThrift2 if store == "like HBase" else MemoryStore
    at = moments(beginning, kind, is_every=store != "sqlite")
    cases = ((moment, others) for moment in at for others in MEETINGS)
    assert check(beginning, cases, makers[store]) == len(at) * len(MEETINGS)


@pytest.mark.parametrize("store", [MemoryStore, LikeThrift2])
def test_whoever_is_stopped_before_he_makes_a_table_makes_none_that_was_dropped(
    store: type[Store],
) -> None:
    """His lease is over, his successor made it, or failed, and somebody dropped it by then."""
    count = 0
    for beginning in BEGINNINGS:
        made = spared(beginning, store).made
        at = [
            moment
            for moment in moments(beginning, store, (Ending.STALLS,))
            if any(one.name == MAKES for one in made[moment.number - 1])
        ]
        count += check(beginning, ((moment, others) for moment in at for others in WORLDS), store)
    assert count == 5 * len(WORLDS)
