"""What is there in a moment, and what no client may ever see?

Transactions are numbered by their start timestamps, 1 and 2; the low watermark, claims and horizons
are such numbers too, 0 below them all.  Each transaction writes the same row of two tables: its
`x` at its start timestamp, its `y` at its first checkpoint, one version above.  A reader sees of
each column the newest version that is visible.
"""

from __future__ import annotations

from typing import Final, NamedTuple

TABLES: Final = (0, 1)
COLUMNS: Final = ("x", "y")
"""The column that each table holds."""


class Transaction(NamedTuple):
    """One transaction: its cells, its entry, its client."""

    x: str = "absent"
    """A cell: absent, tentative, shadowed, misdated (shadowed by another's commit) or gone."""
    y: str = "absent"
    has_commit: bool = False
    has_invalidation: bool = False
    oracle: str = "idle"
    """idle, decided (its entry is under way), durable, silent (durable, but may not answer) or
    refused."""
    client: str = "write x"
    is_later: bool = False
    """Whether it began when the first one's commit was decided."""
    told: str = ""
    """What its client, or a reader, was told of it: committed, aborted, or nothing yet."""

    def is_visible(self, column: str) -> bool:
        """Say whether a reader sees a cell of it now."""
        cell: str = getattr(self, column)
        if cell in ("absent", "gone"):
            return False
        return cell != "tentative" or (self.has_commit and not self.has_invalidation)

    def is_decided(self) -> bool:
        """Say whether it has a commit timestamp, whoever knows."""
        return self.oracle in ("decided", "durable", "silent")


class Pass(NamedTuple):
    """A healer of one table, in the middle of a pass or between two."""

    step: str = "idle"
    low: int = 0
    """It reads versions above this claim only."""
    top: int = 0
    """Its L."""
    todo: tuple[int, ...] = ()
    """Transactions, by index, whose cells it found without a shadow cell."""


class Reader(NamedTuple):
    """One reading of one column by a reader of its own process."""

    step: str = "idle"
    column: str = "x"
    may_invalidate: bool = False
    is_later: bool = False
    """Whether its snapshot is above the first transaction's commit."""


class Snapshot(NamedTuple):
    """A snapshot of the first table."""

    cells: tuple[str, ...]
    claim: int
    """The table's claim when it was begun."""
    is_listed: bool


class State(NamedTuple):
    """Everything that any step may depend on."""

    transactions: tuple[Transaction, ...]
    low_watermark: int = 0
    passes: tuple[Pass, Pass] = (Pass(), Pass())
    claims: tuple[int, int] = (0, 0)
    """How far each table is healed; of one that is not ours, about whom it was asked."""
    void_claim: int = 0
    """What was claimed of the first table before it went back, where somebody remembers that."""
    horizon: int = 0
    """What a run has found to be prunable and is about to prune; 0 between runs."""
    deposed: int = 0
    """The same of a run that lost its lease, and went on."""
    going: tuple[str, ...] = ()
    """Of each transaction, what was read and judged and is about to be deleted unasked: commit,
    invalidation or nothing."""
    reader: Reader = Reader()
    snapshot: Snapshot | None = None
    has_lost_state: bool = False
    is_published: bool = False
    """Whether readers between the two transactions are warned that versions may be missing."""

    def with_transaction(self, index: int, **changes: object) -> State:
        """Return the state after one transaction has changed."""
        old = self.transactions
        new = old[index]._replace(**changes)  # type: ignore[arg-type]  # fields by name
        return self._replace(transactions=(*old[:index], new, *old[index + 1 :]))

    def with_pass(self, table: int, new: Pass) -> State:
        """Return the state after one healer's step."""
        passes = self.passes
        return self._replace(passes=(new, passes[1]) if table == 0 else (passes[0], new))

    def with_claim(self, table: int, claim: int) -> State:
        """Return the state after a claim; an older one changes nothing."""
        first, second = self.claims
        claims = (max(first, claim), second) if table == 0 else (first, max(second, claim))
        return self._replace(claims=claims)

    def broken_promise(self) -> str:
        """Say what no client may ever see; empty if all is well.

        torn      half of a transaction is visible
        lost      committed, as somebody was told, and not visible
        risen     aborted, as somebody was told, and visible
        misdated  a shadow cell says another's commit timestamp
        missing   a reader found nothing where its snapshot has a version
        """
        if self.reader.step == "missing":
            return "missing"
        for index, one in enumerate(self.transactions):
            if one.x == "misdated" or one.y == "misdated":
                return "misdated"
            x, y = one.is_visible("x"), one.is_visible("y")
            if one.told == "aborted":
                if x or y:
                    return "risen"
                continue
            if x and y:
                continue
            later = self.transactions[index + 1 :]
            is_shown_x = x or any(other.is_visible("x") for other in later)
            is_shown_y = y or any(other.is_visible("y") for other in later)
            if one.told == "committed" and not (is_shown_x and is_shown_y):
                return "lost"
            if (x and not is_shown_y) or (y and not is_shown_x):
                return "torn"
        return ""


def shadowed(cell: str) -> str:
    """Return a cell after its shadow cell was put; alone, a shadow cell shows nothing."""
    return "shadowed" if cell == "tentative" else cell
