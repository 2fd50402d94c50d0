"""Which committed versions of a row can no snapshot at or above a horizon see any more?

Pure, and told version by version, so that a row may come in parts (`long_rows.py`) or whole:
`Column` and `Markers` keep what the decision needs of a column, and of a family, which is a few
versions however many there are; then each version is asked about.  `collect` does both for a row
that is there.

Per column the newest version committed below H stays, and also the newest by commit, because
conflict-free writes overlap: the two may be different cells.  For the same reason a top stays while
a version *below* it committed at or above H: readers pick the newest version, and would come to see
that one.  A tombstone goes later than what it hides, or a run that died between the two would
bring deleted cells back to life.

Source: Omid's CompactorScanner, which compares *start* timestamps and so takes versions away from
live snapshots; here everything is compared by commit (I10).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from omidpy.base.cells import FAMILY_MARKER_QUALIFIER, is_family_marker, is_tombstone
from omidpy.model import MAX_VERSION, Cell
from omidpy.reading.visibility import is_hidden

Committed: TypeAlias = tuple[Cell, int]
"""A cell and when its transaction was committed."""


class Later(NamedTuple):
    """Something may go from a row at a higher horizon than this one."""

    version: int
    """A version of the row, by which it is found again."""
    commit_ts: int
    """Not at a horizon up to this one."""


class Collected(NamedTuple):
    """Committed cells that may go, by the write that may take them."""

    superseded: Sequence[Cell] = ()
    tops: Sequence[Cell] = ()
    markers: Sequence[Cell] = ()


NOTHING: Final = Collected()


@dataclass(slots=True)
class Column:
    """What decides which versions of one column go: all of them are shown to it, in any order."""

    horizon: int
    """H.  What committed at or above it stays: a snapshot exists that sees it, or that does not see
    it and needs an older one."""
    top: Committed | None = None
    """The newest version below the horizon."""
    latest: Committed | None = None
    """The one that committed last."""
    lowest_staying: int = MAX_VERSION
    """The least version that stays, whatever the others say."""
    count: int = 0
    """Versions below the horizon, family markers left out."""

    def see(self, cell: Cell, commit_ts: int) -> None:
        """Take a committed version into account."""
        if commit_ts >= self.horizon:
            self.lowest_staying = min(self.lowest_staying, cell.version)
            return
        self.count += not is_marker(cell)
        if self.top is None or cell.version > self.top[0].version:
            self.top = cell, commit_ts
        if self.latest is None or _by_commit((cell, commit_ts)) > _by_commit(self.latest):
            self.latest = cell, commit_ts

    def see_staying(self) -> None:
        """Take a cell into account that stays although it is not known what became of it.

        It may be visible, by a shadow cell of its own, or by one that it is given some day, so that
        what lies above it must stay too.
        """
        self.lowest_staying = -1

    def is_superseded(self, cell: Cell, commit_ts: int, marker: Committed | None) -> bool:
        """Say whether a version goes that is not the top of its column.

        Args:
            cell: A version that was shown.
            commit_ts: When it was committed.
            marker: The newest family marker below the horizon.
        """
        return (
            commit_ts < self.horizon
            and not is_marker(cell)
            and not _is(self.top, cell)
            and (not _is(self.latest, cell) or self._shows_nothing(marker))
        )

    def going_top(self, marker: Committed | None) -> Cell | None:
        """Return the top if it goes: after all others, since it hides them."""
        if self.top is None or is_marker(self.top[0]):
            return None
        goes = self._shows_nothing(marker) and self.top[0].version < self.lowest_staying
        return self.top[0] if goes else None

    def kept(self, marker: Committed | None) -> list[Committed]:
        """Return the versions below the horizon that stay, at most two, family markers left out."""
        kept: list[Committed] = []
        if self.top is None or self.latest is None:
            return kept
        if not is_marker(self.top[0]) and self.going_top(marker) is None:
            kept.append(self.top)
        is_second = not is_marker(self.latest[0]) and not _is(self.top, self.latest[0])
        if is_second and not self._shows_nothing(marker):
            kept.append(self.latest)
        return kept

    def loses_any(self, marker: Committed | None) -> bool:
        """Say whether any version goes, family markers left out."""
        return self.count > len(self.kept(marker))

    def _shows_nothing(self, marker: Committed | None) -> bool:
        assert self.top is not None, "a version below the horizon was shown"
        return is_tombstone(self.top[0].value) or (
            marker is not None and is_hidden(*self.top, *marker)
        )


@dataclass(slots=True)
class Markers:
    """What decides which markers of one family go: all of its cells are shown to it."""

    horizon: int
    newest: Committed | None = None
    """The newest marker below the horizon: it alone hides anything."""
    latest: Committed | None = None
    """The one that committed last."""
    lowest_staying: int = MAX_VERSION
    """The least version of the markers' column that stays."""
    is_needed: bool = False
    """Something stays that the newest hides, or may hide."""
    count: int = 0
    """Markers below the horizon."""

    def see(self, cell: Cell, commit_ts: int) -> None:
        """Take a committed version of the markers' column into account."""
        if commit_ts >= self.horizon:
            self.lowest_staying = min(self.lowest_staying, cell.version)
        elif is_marker(cell):
            self.count += 1
            if self.newest is None or cell.version > self.newest[0].version:
                self.newest = cell, commit_ts
            if self.latest is None or _by_commit((cell, commit_ts)) > _by_commit(self.latest):
                self.latest = cell, commit_ts

    def see_kept(self, kept: Iterable[Committed]) -> None:
        """Take what stays of a column below the horizon into account."""
        newest = self.newest
        if newest is not None and any(is_hidden(*one, *newest) for one in kept):
            self.is_needed = True

    def see_staying(self) -> None:
        """Take a cell of the family into account that stays for another reason."""
        self.is_needed = True

    def going(self, markers: Iterable[Committed]) -> Collected:
        """Choose among markers of the family, once all of its cells were shown."""
        if self.newest is None:
            return NOTHING
        stays = self._stays(self.newest)
        tops: list[Cell] = []
        last: list[Cell] = []
        for cell, commit_ts in markers:
            if commit_ts >= self.horizon:
                continue
            if _is(self.newest, cell):
                # An older marker may have committed later; without the newest above it, it would
                # come to hide what is visible now.  So the older ones go first.
                last += [] if stays else [cell]
            elif not stays or not _is(self.latest, cell):
                tops.append(cell)
        return Collected(tops=tops, markers=last)

    def loses_any(self) -> bool:
        """Say whether any marker goes."""
        if self.newest is None or self.latest is None:
            return False
        kept = {self.newest[0].version, self.latest[0].version}
        return not self._stays(self.newest) or self.count > len(kept)

    def _stays(self, newest: Committed) -> bool:
        return self.is_needed or newest[0].version > self.lowest_staying


def is_marker(cell: Cell) -> bool:
    """Say whether a cell is a family marker."""
    return is_family_marker(cell.qualifier, cell.value)


def is_single(committed: Sequence[Committed]) -> bool:
    """Say whether every column has one version, and shows it: nothing of that ever goes."""
    column: tuple[bytes, bytes] | None = None
    for cell, _ in committed:
        if cell[1:3] == column or is_tombstone(cell[4]) or cell[2] == FAMILY_MARKER_QUALIFIER:
            return False
        column = cell[1:3]
    return True


def later(
    committed: Sequence[Committed], staying: Sequence[Cell], going: Iterable[Cell], horizon: int
) -> Later | None:
    """Say whether more of a row goes at a higher horizon, once what goes now has gone."""
    gone = set(going)
    rest = [one for one in committed if one[0] not in gone]
    if not any(collect(rest, staying, MAX_VERSION)):
        return None
    # What goes depends on which versions were committed below the horizon, and on nothing else.
    commits = [commit_ts for _, commit_ts in committed if commit_ts >= horizon]
    return Later(max(cell[3] for cell, _ in rest), min(commits, default=horizon))


def collect(committed: Sequence[Committed], staying: Sequence[Cell], horizon: int) -> Collected:
    """Choose the committed versions of a row that no snapshot at or above `horizon` can see.

    Args:
        committed: The row's committed cells with their commit_ts.
        staying: Cells that will stay although it is not known what became of them.
        horizon: H; 0 collects nothing.
    """
    if horizon <= 0:
        return NOTHING
    columns: dict[tuple[bytes, bytes], Column] = {}
    families: dict[bytes, Markers] = {}
    for cell, commit_ts in committed:
        columns.setdefault(cell[1:3], Column(horizon)).see(cell, commit_ts)
        if cell.qualifier == FAMILY_MARKER_QUALIFIER:
            families.setdefault(cell.family, Markers(horizon)).see(cell, commit_ts)
    for cell in staying:
        if cell[1:3] in columns:
            columns[cell[1:3]].see_staying()
        if cell.family in families:
            families[cell.family].see_staying()
    newest = {family: markers.newest for family, markers in families.items()}
    tops: list[Cell] = []
    for (family, _), column in columns.items():
        marker = newest.get(family)
        if (top := column.going_top(marker)) is not None:
            tops.append(top)
        if family in families:
            families[family].see_kept(column.kept(marker))
    superseded = [
        cell
        for cell, commit_ts in committed
        if columns[cell[1:3]].is_superseded(cell, commit_ts, newest.get(cell.family))
    ]
    last: list[Cell] = []
    for family, markers in families.items():
        going = markers.going(
            one for one in committed if one[0].family == family and is_marker(one[0])
        )
        tops += going.tops
        last += going.markers
    return Collected(superseded, tops, last)


def _is(one: Committed | None, cell: Cell) -> bool:
    """Say whether this is that version of their column."""
    return one is not None and one[0].version == cell.version


def _by_commit(version: Committed) -> tuple[int, int]:
    cell, commit_ts = version
    return commit_ts, cell.version
