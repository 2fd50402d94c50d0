"""What can be wrong with a store, as `omidpy fsck` says it: values, and a sentence for each kind.

Everything here lies at or below the low watermark that the check began with, so that no client that
is at work can still come to make it right by himself, but for what he is about to finish.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec

from compactor.obstacles import shown
from omidpy.model import Cell, base


class Kind(StrEnum):
    """What is wrong with a cell, an entry or a fact."""

    UNHEALED = "unhealed"
    BROKEN_CLAIM = "broken-claim"
    MISADOPTED = "misadopted"
    UNCOMMITTED = "uncommitted"
    UNPROVEN = "unproven"
    ORPHAN_SHADOW = "orphan-shadow"
    LEAKED_ENTRY = "leaked-entry"
    WAITING_ENTRY = "waiting-entry"
    ENTRY_WITHOUT_CELLS = "entry-without-cells"
    MALFORMED_SHADOW = "malformed-shadow"
    MALFORMED_ENTRY = "malformed-entry"
    MALFORMED_FACT = "malformed-fact"
    UNREADABLE = "unreadable"
    WATERMARK_REGRESSED = "watermark-regressed"


class Severity(StrEnum):
    """How much it matters, the worst first."""

    DANGER = "danger"
    """Commits may be lost, or are: stop what prunes, and find out how it came about."""
    SERIOUS = "serious"
    """No release of this format leaves that behind: it stays, and holds the horizon, until it is
    mended or decided about."""
    ROUTINE = "routine"
    """What dead clients leave: the next compaction mends it."""
    WAITING = "waiting"
    """As it should be, for a while still."""

    @property
    def rank(self) -> int:
        """Its place among all, 0 for the worst."""
        return list(Severity).index(self)

    def is_at_least(self, other: Severity) -> bool:
        """Say whether it matters as much as another one, or more."""
        return self.rank <= other.rank


SEVERITY: Final[Mapping[Kind, Severity]] = {
    Kind.BROKEN_CLAIM: Severity.DANGER,
    Kind.MISADOPTED: Severity.DANGER,
    Kind.WATERMARK_REGRESSED: Severity.DANGER,
    Kind.UNPROVEN: Severity.SERIOUS,
    Kind.MALFORMED_SHADOW: Severity.SERIOUS,
    Kind.MALFORMED_ENTRY: Severity.SERIOUS,
    Kind.MALFORMED_FACT: Severity.SERIOUS,
    Kind.UNREADABLE: Severity.SERIOUS,
    Kind.UNHEALED: Severity.ROUTINE,
    Kind.UNCOMMITTED: Severity.ROUTINE,
    Kind.ORPHAN_SHADOW: Severity.ROUTINE,
    Kind.LEAKED_ENTRY: Severity.ROUTINE,
    Kind.ENTRY_WITHOUT_CELLS: Severity.ROUTINE,
    Kind.WAITING_ENTRY: Severity.WAITING,
}
"""How much each kind matters."""

COMPACT: Final = "`omidpy compact` does so, and `omidpy fsck --repair`"

MEANING: Final[Mapping[Kind, str]] = {
    Kind.UNHEALED: f"committed, and without a shadow cell: its client died; {COMPACT}",
    Kind.BROKEN_CLAIM: (
        "committed, and without a shadow cell, in rows that a compaction has claimed to be healed: "
        "its entry may go while it is needed; --repair heals it and withdraws the claim; find out "
        "whether the table was restored, copied into, or written past its transactions"
    ),
    Kind.UNCOMMITTED: (
        "of a transaction that did not commit and no longer can; nobody sees it, and `omidpy "
        "compact` drops it"
    ),
    Kind.UNPROVEN: (
        "without a shadow cell, and without an entry where entries have been forgotten: either it "
        "came late, from a client that could not commit any more, or it was committed and its "
        "proof is lost; nobody sees it; --repair leaves it; `omidpy compact` drops it, unless the "
        "table may have been restored, see `omidpy table accept`"
    ),
    Kind.ORPHAN_SHADOW: f"a shadow cell whose data cell is gone; it can be dropped: {COMPACT}",
    Kind.LEAKED_ENTRY: (
        "an entry that no cell needs any more: its client died before it removed it; `omidpy "
        "compact` prunes it, once what it rests on is as old as the grace"
    ),
    Kind.ENTRY_WITHOUT_CELLS: (
        "an entry of which no table holds a cell: its tables were dropped, or its versions "
        "collected; `omidpy compact` prunes it, once what it rests on is as old as the grace"
    ),
    Kind.WAITING_ENTRY: (
        "an entry that no cell needs any more and that waits for its grace, since a client that "
        "lost its reply may still look for it; a compaction prunes it after that, and nothing is "
        "to be done"
    ),
    Kind.MISADOPTED: "",
    Kind.MALFORMED_SHADOW: "",
    Kind.MALFORMED_ENTRY: "",
    Kind.MALFORMED_FACT: "",
    Kind.UNREADABLE: "",
    Kind.WATERMARK_REGRESSED: "",
}
"""What each kind means and who mends it; empty where the finding says so itself."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: Kind
    table: str
    row: str = ""
    """In hexadecimal, as are family and qualifier."""
    family: str = ""
    qualifier: str = ""
    version: int = 0
    start_ts: int = 0
    """The transaction that it is about; 0 for none."""
    detail: str = ""
    """What is known beside its kind."""
    repaired: bool = False

    @classmethod
    def of(cls, kind: Kind, table: str, cell: Cell, detail: str = "") -> Finding:
        """Describe what is wrong with a cell."""
        return cls(
            kind,
            table,
            cell.row.hex(),
            cell.family.hex(),
            cell.qualifier.hex(),
            cell.version,
            base(cell.version),
            detail,
        )

    def text(self) -> str:
        """Return the finding as a person reads it."""
        what = f"{SEVERITY[self.kind]} {self.kind}: {self.table}"
        if self.row:
            what += f" row {shown(bytes.fromhex(self.row))}"
        if self.qualifier or self.family:
            family = bytes.fromhex(self.family).decode(errors="backslashreplace")
            what += f" column {family}:{shown(bytes.fromhex(self.qualifier))}"
        if self.version:
            what += f" at version {self.version}"
        elif self.start_ts:
            what += f" start_ts {self.start_ts}"
        if self.detail:
            what += f": {self.detail}"
        return what + (" (repaired)" if self.repaired else "")


class CheckReport(msgspec.Struct, frozen=True):
    """What a check found."""

    findings: Sequence[Finding]
    """The first of each kind, the worst kinds first."""
    counts: Mapping[Kind, int]
    """Of all that were found."""
    repaired: Mapping[Kind, int]
    low_watermark: int
    """Nothing above it was judged."""
    rows_read: int = 0
    cells_read: int = 0
    entries_read: int = 0
    invalidations: int = 0
    """Invalidations at or below the low watermark, which wait for their grace."""
    notes: Sequence[str] = ()

    @property
    def left(self) -> int:
        """How many findings are not repaired; what only waits is none."""
        return self.left_of(Severity.ROUTINE)

    def left_of(self, least: Severity) -> int:
        """Return how many findings that matter so much or more are not repaired."""
        return sum(
            count - self.repaired.get(kind, 0)
            for kind, count in self.counts.items()
            if SEVERITY[kind].is_at_least(least)
        )

    @property
    def worst(self) -> Severity | None:
        """How much the worst of them matters that is not repaired; None if there is none."""
        return next((one for one in Severity if self.left_of(one)), None)

    def document(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        for found, finding in zip(document["findings"], self.findings, strict=True):
            found["severity"] = str(SEVERITY[finding.kind])
        worst = None if self.worst is None else str(self.worst)
        return {"clean": not self.left, "severity": worst, **document}


def by_severity(kinds: Iterable[Kind]) -> list[Kind]:
    """Return kinds, the worst first, and those that matter as much in the order they have here."""
    order = list(Kind)
    return sorted(kinds, key=lambda kind: (SEVERITY[kind].rank, order.index(kind)))


class FindingTally:
    """Findings as they come: all are counted, and the first of each kind are kept."""

    def __init__(self, most: int) -> None:
        """Keep `most` of each kind."""
        self._most = most
        self.kept: list[Finding] = []
        self.counts: Counter[Kind] = Counter()
        self.repaired: Counter[Kind] = Counter()

    def add(self, findings: Iterable[Finding]) -> None:
        """Count so many findings of a kind, and keep the first ones."""
        for one in findings:
            self.counts[one.kind] += 1
            self.repaired[one.kind] += one.repaired
            if self.counts[one.kind] <= self._most:
                self.kept.append(one)

    def findings(self) -> list[Finding]:
        """Return those that are kept, the worst kinds first."""
        place = {kind: place for place, kind in enumerate(by_severity(self.counts))}
        return sorted(self.kept, key=lambda one: place[one.kind])


def of_kinds(counts: Mapping[Kind, int]) -> dict[Kind, int]:
    """Return how many there are of each kind that there is, the worst kinds first."""
    return {kind: counts[kind] for kind in by_severity(counts) if counts[kind]}
