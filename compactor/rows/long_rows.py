"""A row that is longer than a pass can hold: what is done to it, part by part?

The same as to any other row (`heal.py`, `old_versions.py`), in bounded memory whatever its width,
and however many versions a column has.  It is read once, in portions, into a spool on this
machine's disk, where each cell has its shadow cells beside it, and worked on from there:

    1   note which transactions the row's shadow cells speak for
    2   heal, and drop garbage, part by part
    3   drop what is old, part by part, and orphans; of each family its markers last

A part of 2 says as much about its cells as the whole row would, since it has all their shadow
cells, and what other cells tell of their transactions was noted.  3 begins when every cell of the
row is healed: a shadow cell that goes with an old version may be all that speaks for another cell.
In 3, what a cell's own shadow cell does not speak for stays, and so does what it hides.

Nothing here is less safe than in one piece.  What is put is true for ever, and what is deleted are
exact versions that no snapshot sees, so that a pass that dies between two parts has done a part of
the work, and the next one does the rest.  The order that readers rely upon, tombstones behind what
they hide, is one of columns, and of families, and is kept there.  No claim comes before the last
part.

The spool is older than the row, by minutes where a row is huge.  That is the same to it as to a
page that was read a moment ago: commits are for ever, versions up to L are not written any more but
as garbage, and whatever has no shadow cell in it is resolved afresh.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import NamedTuple, Protocol

from compactor.rows.heal import ExaminedRow, Orphan, RowPlan, Scope, examine, orphans_of, unresolved
from compactor.rows.old_versions import Column, Committed, Later, Markers, is_marker
from compactor.rows.spool import Part, Spool
from omidpy.base.cells import FAMILY_MARKER_QUALIFIER
from omidpy.model import MAX_VERSION, Cell, base
from omidpy.storage.base import Row
from omidpy.storage.options import Portion


class Judge(Protocol):
    """The pass over the range of a long row."""

    @property
    def scope(self) -> Scope:
        """Which cells may be judged."""
        ...

    def parts(self, row: bytes) -> Iterator[Row]:
        """Read a row, a portion at a time."""
        ...

    def settle(self, rows: Sequence[ExaminedRow], scope: Scope) -> list[RowPlan]:
        """Resolve what must be, decide what is to be done, and note what cannot be."""
        ...

    def carry_out(self, plans: Sequence[RowPlan]) -> None:
        """Do it, and return once it is acknowledged."""
        ...

    def check_window(self) -> None:
        """Raise an error that ends the pass, once its window is over."""
        ...


class Passed(NamedTuple):
    """What is to be remembered of a long row."""

    oldest: int | None
    """Its oldest version, of those that were read; None: the row was gone."""
    later: Later | None
    """Whether something may go at a higher horizon."""


def pass_long_row(judge: Judge, row: bytes, most: Portion) -> Passed:
    """Do everything that is to be done to a row.

    Args:
        judge: Who passes over it.
        row: Its key.
        most: What is in memory at a time, about.

    Cost: what its parts take to read, once, and their writes; on disk, the size of the row.
    """
    oldest: int | None = None
    with closing(Spool(row, most)) as spool:
        for cells in judge.parts(row):
            spool.add(cells)
            least = min(cell.version for cell in cells)
            oldest = least if oldest is None else min(oldest, least)
        work = LongRowWork(judge, spool)
        work.heal()
        return Passed(oldest, work.collect())


class _Told(NamedTuple):
    """The cells of a part, once all that could be healed is."""

    examined: ExaminedRow
    committed: list[Committed]
    staying: list[Cell]
    """Cells that nothing is known of, or that are not ours to judge."""
    orphans: list[Orphan]


class LongRowWork:
    """The work on one row."""

    def __init__(self, judge: Judge, spool: Spool) -> None:
        self._judge = judge
        self._spool = spool
        self._scope = judge.scope._replace(sees_whole_rows=False)
        self._horizon = judge.scope.drop_horizon
        self._loses_more = False
        self._newest_rest = 0
        self._least_commit = MAX_VERSION

    def heal(self) -> None:
        """Heal every committed cell, and drop those of transactions that never committed."""
        for part in self._spool.parts():
            self._spool.add_commits(examine(part.cells, self._scope).ours.commits)
        for part in self._spool.parts():
            self._judge.check_window()
            (plan,) = self._judge.settle([self._with_commits(part)], self._scope)
            self._judge.carry_out([plan._replace(orphans=())])
            # From here on the spool is the row as it is now, or would be but for a dry run.
            self._spool.add(Cell(self._spool.row, *put) for put in plan.heals)
            self._spool.remove(plan.garbage)

    def _with_commits(self, part: Part) -> ExaminedRow:
        """Examine a part, and add what the rest of the row tells of its transactions."""
        examined = examine(part.cells, self._scope)
        told = self._spool.commits(base(cell.version) for cell in unresolved(examined))
        ours = examined.ours
        return examined._replace(ours=ours._replace(commits={**ours.commits, **told}))

    def collect(self) -> Later | None:
        """Drop old versions and orphans; say what may go at a higher horizon."""
        if not self._judge.scope.sees_whole_rows:
            for part in self._spool.parts():
                self._drop(self._told(part))
            return None
        for family in self._spool.families():
            self._collect_family(family)
        if not self._loses_more:
            return None
        commit_ts = self._horizon if self._least_commit == MAX_VERSION else self._least_commit
        return Later(self._newest_rest, commit_ts)

    def _told(self, part: Part) -> _Told:
        examined = examine(part.cells, self._scope)
        committed: list[Committed] = []
        staying = [*examined.foreign, *examined.unreadable]
        for cell in examined.ours.data:
            commit_ts = examined.ours.shadows.get(cell[1:4])
            if commit_ts is None:
                staying.append(cell)
            else:
                committed.append((cell, commit_ts))
        return _Told(examined, committed, staying, orphans_of(examined))

    def _collect_family(self, family: bytes) -> None:
        now, then = Markers(self._horizon), Markers(MAX_VERSION)
        for told in self._column(family, FAMILY_MARKER_QUALIFIER):
            for one in told.committed:
                now.see(*one)
                then.see(*one)
        for unit in self._units(family):
            self._collect_unit(unit, now, then)
        self._collect_markers(family, now, then)

    def _units(self, family: bytes) -> Iterator[Callable[[], Iterable[_Told]]]:
        """Yield some columns at a time that are in memory, or one that is not, to be read twice."""
        long_column: tuple[bytes, bytes] | None = None
        for part in self._spool.parts(family):
            if part.column is None:
                yield partial(_once, self._told(part))
            elif part.column != long_column:
                long_column = part.column
                yield partial(self._column, *long_column)

    def _column(self, family: bytes, name: bytes) -> Iterator[_Told]:
        return (self._told(part) for part in self._spool.parts(family, name))

    def _collect_unit(
        self, unit: Callable[[], Iterable[_Told]], now: Markers, then: Markers
    ) -> None:
        """Drop what is old of whole columns, whose versions come twice: to be seen, and asked."""
        self._judge.check_window()
        columns: dict[bytes, Column] = {}
        for told in unit():
            for cell, commit_ts in told.committed:
                columns.setdefault(cell.qualifier, Column(self._horizon)).see(cell, commit_ts)
            for cell in told.staying:
                columns.setdefault(cell.qualifier, Column(self._horizon)).see_staying()
                now.see_staying()
                then.see_staying()
        tops = {name: column.going_top(now.newest) for name, column in columns.items()}
        rest: dict[bytes, Column] = {}
        last: list[RowPlan] = []
        for told in unit():
            superseded: list[Cell] = []
            going_tops: list[Cell] = []
            for cell, commit_ts in told.committed:
                if tops[cell.qualifier] == cell:
                    going_tops.append(cell)
                elif columns[cell.qualifier].is_superseded(cell, commit_ts, now.newest):
                    superseded.append(cell)
                else:
                    rest.setdefault(cell.qualifier, Column(MAX_VERSION)).see(cell, commit_ts)
                    if not is_marker(cell):
                        self._see_rest(cell)
                self._see_commit(commit_ts)
            for cell in told.staying:
                rest.setdefault(cell.qualifier, Column(MAX_VERSION)).see_staying()
            self._drop(told, superseded=superseded)
            # Behind all that it hides, which may lie in the parts to come.
            if going_tops:
                last.append(_plan(told, tops=going_tops))
        self._judge.carry_out(last)
        for column in columns.values():
            now.see_kept(column.kept(now.newest))
        for column in rest.values():
            then.see_kept(column.kept(then.newest))
            self._loses_more |= column.loses_any(then.newest)

    def _collect_markers(self, family: bytes, now: Markers, then: Markers) -> None:
        """Drop family markers, once all columns of their family were seen to."""
        rest = Markers(MAX_VERSION, is_needed=then.is_needed)
        last: list[RowPlan] = []
        for told in self._column(family, FAMILY_MARKER_QUALIFIER):
            markers = [one for one in told.committed if is_marker(one[0])]
            going = now.going(markers)
            gone = {cell.version for cell in (*going.tops, *going.markers)}
            for cell, commit_ts in markers:
                if cell.version not in gone:
                    rest.see(cell, commit_ts)
                    self._see_rest(cell)
            if going.tops:
                self._judge.carry_out([_plan(told, tops=going.tops)])
            if going.markers:
                last.append(_plan(told, markers=going.markers))
        self._judge.carry_out(last)
        self._loses_more |= rest.loses_any()

    def _see_rest(self, cell: Cell) -> None:
        self._newest_rest = max(self._newest_rest, cell.version)

    def _see_commit(self, commit_ts: int) -> None:
        if commit_ts >= self._horizon:
            self._least_commit = min(self._least_commit, commit_ts)

    def _drop(self, told: _Told, superseded: Sequence[Cell] = ()) -> None:
        """Drop superseded versions of a part, and its orphans."""
        if superseded or told.orphans:
            plan = _plan(told, superseded=superseded)
            self._judge.carry_out([plan._replace(orphans=told.orphans)])


def _once(told: _Told) -> Sequence[_Told]:
    return (told,)


def _plan(
    told: _Told,
    *,
    superseded: Sequence[Cell] = (),
    tops: Sequence[Cell] = (),
    markers: Sequence[Cell] = (),
) -> RowPlan:
    """Return a plan that drops committed cells of a part, with their shadow cells."""
    examined = told.examined
    return RowPlan(examined.row, (), (), superseded, tops, markers, (), examined.legacy_shadows)
