"""What is seen of clients that ended at every moment: before, afterwards, and after a compaction.

Everybody lives once to the end, so that the moments are known.  Then, for each of them:

* a client is killed there, and whoever comes next looks at its rows and asks for its outcome;
* another one is killed there, and nobody looks before the compactor does; what it had held up
  arrives behind that, and before another compaction;
* a third one is told there that what it did failed, and says how it ended.

An `Observer` only looks; `tests/integration/test_crashes.py` judges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import omidpy
from omidpy.base.cells import is_shadow_qualifier
from omidpy.errors import CommitOutcomeUnknown, OracleUnavailable
from omidpy.model import Cell, Outcome, base
from omidpy.opening import open_store
from omidpy.oracle.base import CommitVerdict
from omidpy.oracle.tcp import TcpOracle
from omidpy.tx.transaction import Transaction
from tests.machines.crashes.client import Task, Testament, live_and_die, live_on
from tests.machines.crashes.mortal import (
    COMMIT,
    Ending,
    LateCommit,
    Moment,
    Part,
    deliver,
    moments,
)
from tests.machines.crashes.scenarios import (
    BEFORE,
    FAMILIES,
    LEVELS,
    REGIONS_MEET_AT,
    SCENARIOS,
    SIDES,
    A,
    Image,
    Place,
    Scenario,
)
from tests.machines.processes import ServerProcess
from tests.machines.workload import check_clean

HOLD_S: Final = 3600.0


@dataclass
class Seen:
    """What one reader saw of the rows of one client."""

    image: Image = field(default_factory=dict)
    times: dict[Place, dict[bytes, int]] = field(default_factory=dict)
    """When each cell was committed."""


@dataclass
class Case:
    """One client, and everything that was seen of it."""

    task: Task
    is_left: bool = False
    """Nobody looks at it before the compactor."""
    effect: str = "the end"
    """What it was about to do, or in the middle of."""
    is_decided: bool | None = None
    """Whether it ended after the decision, in its favour; None where that depends on who is faster.
    """
    told: Testament = field(default_factory=Testament)
    before: list[Seen] = field(default_factory=list)
    """By one reader that began before it, after its end and after the compaction."""
    after: list[Seen] = field(default_factory=list)
    """By readers that began after its end: two at once, one of the next epoch, and one behind each
    of two compactions.
    """
    recorded: Outcome | None = None
    """What the commit table alone said after its end."""
    outcomes: list[Outcome] = field(default_factory=list)
    """After its end and after the compaction."""
    late: CommitVerdict | OracleUnavailable | None = None
    """The answer to a commit that arrived when nobody waited for it any more."""
    rest: list[Cell] = field(default_factory=list)
    """Every cell of its own that is left in the end."""

    @property
    def scenario(self) -> Scenario:
        """What it did."""
        return SCENARIOS[self.task.scenario]

    def __str__(self) -> str:
        moment = self.task.moment
        where = "at the end" if moment is None else f"after {moment.count} effects"
        part = "" if moment is None or moment.part is None else f", {moment.part} of the next"
        left = ", looked at late" if self.is_left else ""
        return f"{self.task.scenario} {self.task.ending} {where}{part} ({self.effect}){left}"


class Observer:
    """Lets clients end in one store, and looks."""

    def __init__(self, url: str, *, clients_url: str | None = None) -> None:
        """Make the tables of an empty store whose oracle is ours to run.

        Args:
            url: The store.
            clients_url: By which the clients know it, if that is another address.
        """
        self.url = url
        self._clients_url = clients_url or url
        self.cases: list[Case] = []
        self._stack = ExitStack()
        try:
            self._server = ServerProcess(url)
            self._stack.callback(self._stop)
            self.address = self._server.address
            self._managers = {
                level: self._stack.enter_context(
                    omidpy.connect(url, self.address, conflict_level=level)
                )
                for level in set(LEVELS.values())
            }
            self.store = open_store(url)
            self._stack.callback(self.store.close)
            for table, level in LEVELS.items():
                self._managers[level].create_table(table, FAMILIES, splits=[REGIONS_MEET_AT])
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Stop the oracle."""
        self._stack.close()

    def _stop(self) -> None:
        self._server.close()

    def observe(self, names: Iterable[str]) -> list[Case]:
        """Let clients of these scenarios live and end; return what was seen."""
        healthy = [self._case(name, None, Ending.KILLED) for name in names]
        self._fill(healthy)
        for case in healthy:
            case.told = live_and_die(case.task)
            case.is_decided = case.told.status == "committed"
        doomed = [one for case in healthy for one in self._doomed(case)]
        self._fill(doomed)
        by_key = {case.task.key: case for case in self.cases}
        readers = {level: tm.begin(read_only=True) for level, tm in self._managers.items()}
        holds = [self._managers[level].hold(tx, for_s=HOLD_S) for level, tx in readers.items()]
        for case in doomed:
            case.told = (live_on if case.task.ending is Ending.FAILED else live_and_die)(case.task)
        self._look_early()
        self._look(readers, doomed, is_before=True)
        self._deliver(early(self.cases))
        self._begin_an_epoch()
        self._look_afresh(early(self.cases))
        check_clean(self.store, LEVELS)
        self._deliver(case for case in self.cases if case.is_left)
        self._look_afresh(self.cases)
        check_clean(self.store, LEVELS)
        self._look_afresh(self.cases)
        self._look(readers, doomed, is_before=True)
        self._ask(self.cases)
        for key, cells in self._own_cells(self.cases).items():
            by_key[key].rest = [cell for _, cell in cells]
        for hold in holds:
            hold.release()
        return self.cases

    # -- clients -------------------------------------------------------------------------------

    def _case(self, name: str, moment: Moment | None, ending: Ending) -> Case:
        key = b"%04d" % len(self.cases)
        case = Case(Task(self._clients_url, self.address, name, key, moment, ending))
        self.cases.append(case)
        return case

    def _doomed(self, healthy: Case) -> Iterator[Case]:
        """Return the clients that end where a healthy one went on."""
        effects, name = healthy.told.effects, healthy.task.scenario
        assert effects, f"{healthy} did nothing"
        names = [effect.name for effect in effects]
        decision = names.index(COMMIT) if COMMIT in names else len(names)
        undecided = (Moment(decision), Moment(decision, Part.HELD_UP))
        for ending in Ending:
            for moment in moments(effects, ending):
                for is_left in (False, True) if ending is Ending.KILLED else (False,):
                    case = self._case(name, moment, ending)
                    case.is_left = is_left
                    case.effect, case.is_decided = names[moment.count], healthy.is_decided
                    if moment == Moment(decision, Part.SENT) and healthy.is_decided:
                        case.is_decided = None
                    elif moment.count < decision or moment in undecided:
                        goes_on = ending is Ending.FAILED and case.scenario.is_forgiving
                        case.is_decided = None if goes_on else False
                    yield case

    def _fill(self, cases: Iterable[Case]) -> None:
        """Write what is there before them."""
        for level, tm in self._managers.items():
            with tm.begin() as tx:
                for case in cases:
                    for (table, side), columns in BEFORE.items():
                        if LEVELS[table] == level == case.scenario.level:
                            tx.table(table).put(side + case.task.key, columns)

    def _deliver(self, cases: Iterable[Case]) -> None:
        """Let arrive what was held up."""
        for case in cases:
            sent = case.told.held_up
            if isinstance(sent, LateCommit):
                late = sent.request
                oracle = TcpOracle(self.address, client=sent.client)
                try:
                    case.late = oracle.commit(late.start_ts, late.cell_ids, late.table_ids)
                except OracleUnavailable as error:
                    case.late = error
                finally:
                    oracle.close()
            elif sent is not None:
                deliver(self.store, sent)

    def _begin_an_epoch(self) -> None:
        """Start the oracle anew, above everything that was ever begun."""
        assert self._server.terminate() == 0
        self._server.close()
        self._server = ServerProcess(self.url, listen=self.address)
        assert self._server.address == self.address

    # -- looking -------------------------------------------------------------------------------

    def _look_early(self) -> None:
        cases = early(self.cases)
        self._look_afresh(cases)
        for case in cases:
            case.recorded = self._managers[case.scenario.level].outcome(case.told.start_ts)
        self._ask(cases)
        self._look_afresh(cases)

    def _look_afresh(self, cases: Sequence[Case]) -> None:
        readers = {level: tm.begin(read_only=True) for level, tm in self._managers.items()}
        self._look(readers, cases, is_before=False)

    def _look(
        self, readers: dict[str, Transaction], cases: Sequence[Case], *, is_before: bool
    ) -> None:
        seen = {case.task.key: Seen() for case in cases}
        for table, level in LEVELS.items():
            rows = [side + case.task.key for case in cases for side in SIDES]
            for row, columns in readers[level].table(table).rows(rows, include_timestamp=True):
                side, key = row[:2], row[2:]
                seen[key].image[table, side] = {name: value for name, (value, _) in columns.items()}
                seen[key].times[table, side] = {name: time for name, (_, time) in columns.items()}
        for case in cases:
            (case.before if is_before else case.after).append(seen[case.task.key])

    def _ask(self, cases: Sequence[Case]) -> None:
        """Ask for outcomes, as somebody does who was told of a transaction and a cell of it."""
        found = self._own_cells(cases)
        for case in cases:
            table, side = next(iter(case.scenario.changes), A)
            never_written = Cell(side + case.task.key, b"cf", b"q", case.told.start_ts, b"")
            witness = next(iter(found[case.task.key]), (table, never_written))
            error = CommitOutcomeUnknown(start_ts=case.told.start_ts, witness=witness)
            case.outcomes.append(self._managers[case.scenario.level].outcome(error))

    def _own_cells(self, cases: Sequence[Case]) -> dict[bytes, list[tuple[str, Cell]]]:
        """Return the cells that each of them wrote, and their shadow cells after them."""
        found: dict[bytes, list[tuple[str, Cell]]] = {case.task.key: [] for case in cases}
        for table in LEVELS:
            for case_of_row, cells in zip(
                (case for case in cases for _ in SIDES),
                self.store.get(table, [side + case.task.key for case in cases for side in SIDES]),
                strict=True,
            ):
                found[case_of_row.task.key] += [
                    (table, cell)
                    for cell in cells
                    if base(cell.version) == case_of_row.told.start_ts
                ]
        for own in found.values():
            own.sort(key=lambda place: is_shadow_qualifier(place[1].qualifier))
        return found


def early(cases: Iterable[Case]) -> list[Case]:
    """Return those that somebody looks at before the compactor."""
    return [case for case in cases if not case.is_left]
