"""What may be mended of what a check has found, by the rules by which a compaction heals.

    committed, without a shadow cell     the shadow cell is written: it is true for ever
    ... in rows that were claimed        the claims go first, since nothing may rest on them
    a shadow cell without its cell       goes, seen alone twice
    what is malformed                    is copied, then mended as far as its commit is known, or
                                         as an operator assumes (`malformed.py`)

Each write asks right before whether the table is the one that was listed.  A repair may stand still
for hours while another takes its name, or it is restored: what is in that one was never judged, and
its shadow cell need not be an orphan, nor the table ours.

Everything else is left.  A cell without any proof is not dropped: this has not asked anybody to
forbid its commit, and it may be all that is left of a lost one.  An entry is not removed: that
takes claims of every table that are older than a grace, which a compaction has and a check has not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from compactor.check.acts import ANOTHER, left
from compactor.check.findings import Finding, Kind
from compactor.check.malformed import Malformed
from compactor.horizon import overlaps
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.sameness import is_same
from omidpy.facts.watermarks import Claim, Watermarks
from omidpy.model import Cell, KeyRange, base
from omidpy.storage.base import RowMutation, Store


class Suspicion(NamedTuple):
    """What looks wrong with a cell, and what would mend it."""

    finding: Finding
    cell: Cell
    remedy: RowMutation | None = None
    """What is put or, of an orphan, deleted."""

    def heals(self) -> bool:
        """Say whether the remedy puts something."""
        return self.remedy is not None and bool(self.remedy.puts)


class Repair:
    """Mends in a store what a check has found."""

    def __init__(self, store: Store, malformed: Malformed, *, listed: Mapping[str, str]) -> None:
        """Mend nothing yet.

        Args:
            store: What is mended.
            malformed: Mends what is malformed there.
            listed: By name of the tables of ours, which one it was and since when.
        """
        self._store = store
        self._listed = listed
        self._malformed = malformed
        self._watermarks = Watermarks(ControlTable(store))

    def mend(self, table: str, wrong: Sequence[Suspicion]) -> list[Finding]:
        """Mend what can be mended in some rows of a table; return what is said of each.

        What is malformed comes last: what was healed before tells of other cells.

        Cost: 1 scan and 1 write where claims go, 1 look at the table and 1 durable write for all
        that is healed, and as much for all that is dropped.
        """
        false_claims = self._contradicted(table, wrong)
        if false_claims:
            self._watermarks.forget_claims(false_claims)
        heals = [one.remedy for one in wrong if one.remedy is not None and one.heals()]
        drops = [one.remedy for one in wrong if one.remedy is not None and not one.heals()]
        if may_heal := bool(heals) and self._is_as_listed(table):
            self._store.write({table: heals}, durable=True)
        if may_drop := bool(drops) and self._is_as_listed(table):
            self._store.write({table: drops})
        said: list[Finding] = []
        for one in wrong:
            if one.finding.kind is not Kind.MALFORMED_SHADOW:
                said.append(_told(one, is_mended=may_heal if one.heals() else may_drop))
            elif (found := self._malformed.mend_shadow(table, one.cell, one.finding)) is not None:
                said.append(found)
        return said

    def mend_entry(self, finding: Finding) -> list[Finding]:
        """Mend a malformed entry; return what is said of it, nothing if it is another by now."""
        found = self._malformed.mend_entry(finding)
        return [] if found is None else [found]

    def mend_fact(self, finding: Finding) -> list[Finding]:
        """Mend a malformed fact; return what is said of it, nothing if it is another by now."""
        found = self._malformed.mend_fact(finding)
        return [] if found is None else [found]

    def _is_as_listed(self, table: str) -> bool:
        return is_same(self._store, table, self._listed[table])

    def _contradicted(self, table: str, wrong: Iterable[Suspicion]) -> list[Claim]:
        """Return the claims, those of just now too, that a cell shows to be false."""
        cells = [one.cell for one in wrong if one.finding.kind is Kind.BROKEN_CLAIM]
        if not cells:
            return []
        return [
            claim
            for claim in self._watermarks.claims()
            if claim.table == table
            and any(
                base(cell.version) <= claim.watermark
                and cell.family in claim.families
                and overlaps(claim.key_range, KeyRange(cell.row, cell.row + b"\x00"))
                for cell in cells
            )
        ]


def _told(one: Suspicion, *, is_mended: bool) -> Finding:
    """Return what is said of what is not malformed."""
    if one.remedy is None:
        return msgspec.structs.replace(one.finding, repaired=False)
    if not is_mended:
        return left(one.finding, ANOTHER)
    return msgspec.structs.replace(one.finding, repaired=True)
