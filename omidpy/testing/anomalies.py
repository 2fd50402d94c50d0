"""The ground of the checkers: what an anomaly is called, and who is known to have committed.

Findings have names and are bounded in number; outcomes that no client knows are settled by what
others saw.  Pure.

    an unknown outcome may be either, but consistently: whoever was seen has committed, and at one
    timestamp
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

import msgspec

from omidpy.testing.history import Kind, Operation, Recorded, Told

DIRTY_READ: Final = "dirty read"
"""G1a: a value of a transaction, or of a savepoint, that was rolled back."""
INTERMEDIATE_READ: Final = "intermediate read"
"""G1b: a value that its own writer replaced before it committed."""
GARBAGE_READ: Final = "garbage read"
"""A value that nobody wrote."""
FUTURE_READ: Final = "future read"
"""A value that was committed at or after the reader's snapshot."""
STALE_READ: Final = "stale read"
"""An older value than the last one committed below the snapshot."""
FRACTURED_READ: Final = "fractured read"
"""Some writes of a transaction, and an older value in place of another."""
NON_REPEATABLE_READ: Final = "non-repeatable read"
"""Two reads of a key in one transaction differ."""
OWN_WRITE_IGNORED: Final = "own write ignored"
"""A transaction does not see what it wrote or deleted itself."""
LOST_APPEND: Final = "lost append"
"""An append that was committed below the snapshot is missing."""
DUPLICATE_APPEND: Final = "duplicate append"
"""One append is there twice."""
WRONG_ORDER: Final = "wrong order"
"""Appends are not in the order of their commit timestamps."""
INCOMPATIBLE_ORDERS: Final = "incompatible orders"
"""Of two reads of one list, neither is a beginning of the other."""
LOST_UPDATE: Final = "lost update"
"""P4: two transactions that ran at the same time both committed a write of one key."""
G0: Final = "G0 write cycle"
G1C: Final = "G1c cyclic information flow"
G_SINGLE: Final = "G-single cycle"
G_NONADJACENT: Final = "G-nonadjacent cycle"
LONG_FORK: Final = "long fork"
"""Two readers disagree on which of two independent writes came first."""
WRONG_TOTAL: Final = "wrong total"
"""Transfers created or destroyed money in some snapshot."""
TIMESTAMP_REUSED: Final = "timestamp reused"
"""Two transactions have one timestamp."""
COMMIT_BEFORE_BEGIN: Final = "commit before begin"
"""A commit timestamp at or below its transaction's own start."""
STALE_SNAPSHOT: Final = "stale snapshot"
"""Real time: a transaction began after a commit was acknowledged, and below its timestamp."""
INCONSISTENT_OUTCOME: Final = "inconsistent outcome"
"""Readers, or a reader and the writer, disagree on when a transaction committed."""

MAX_WITNESSES: Final = 5
"""Anomalies of one name that are kept; the rest is counted."""


class Anomaly(msgspec.Struct, frozen=True):
    """Something that snapshot isolation forbids, and who saw it."""

    name: str
    explanation: str
    transactions: tuple[str, ...]
    witnesses: tuple[str, ...] = ()
    """The operations that prove it, for a reader."""


class Findings:
    """Collects anomalies; keeps a few of each name and counts all."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.anomalies: list[Anomaly] = []

    def add(
        self,
        name: str,
        explanation: str,
        *involved: Recorded,
        operations: Sequence[tuple[Recorded, Operation]] = (),
    ) -> None:
        """Note an anomaly, and what was involved in it."""
        self.counts[name] += 1
        if self.counts[name] <= MAX_WITNESSES:
            self.anomalies.append(
                Anomaly(
                    name,
                    explanation,
                    tuple(dict.fromkeys(one.name for one in involved)),
                    tuple(described(*pair) for pair in operations),
                )
            )


def described(transaction: Recorded, operation: Operation) -> str:
    """Return an operation in words."""
    seen = "" if operation.seen_ts is None else f", committed at {operation.seen_ts}"
    return (
        f"{transaction.name} (start_ts {transaction.start_ts}, {transaction.told} "
        f"{transaction.commit_ts}) {operation.kind} {operation.key} = {operation.value}{seen}"
    )


class Written(msgspec.Struct, frozen=True):
    """Who wrote a value."""

    writer: Recorded
    is_undone: bool
    """In a savepoint that was undone."""


class Settled:
    """A history of one workload, in which everybody who was seen is known to have committed."""

    def __init__(self, history: Sequence[Recorded], findings: Findings | None = None) -> None:
        """Settle the unknown outcomes; contradictions go to `findings`."""
        self.findings = findings or Findings()
        writers = _writers(history)
        sightings = _sightings(history, writers)
        self.transactions = [self._settled(one, sightings.get(one.name, {})) for one in history]
        self._writers = _writers(self.transactions)

    @property
    def committed(self) -> list[Recorded]:
        """Every transaction that certainly committed; without a commit_ts if nobody knows it."""
        return [one for one in self.transactions if one.told is Told.COMMITTED]

    def writer(self, key: str, value: int) -> Written | None:
        """Return who wrote a value to a key; None if nobody did."""
        return self._writers.get((key, value))

    def _settled(self, one: Recorded, seen: dict[int | None, Recorded]) -> Recorded:
        known = {commit_ts: reader for commit_ts, reader in seen.items() if commit_ts is not None}
        if one.told is Told.COMMITTED and one.commit_ts is not None:
            known.setdefault(one.commit_ts, one)
        if len(known) > 1:
            self.findings.add(
                INCONSISTENT_OUTCOME,
                f"{one.name} is said to have committed at {sorted(known)}",
                one,
                *known.values(),
            )
        if one.told is not Told.UNKNOWN or not seen:
            return one
        commit_ts = min(known) if known else None
        return msgspec.structs.replace(one, told=Told.COMMITTED, commit_ts=commit_ts)


def _writers(history: Sequence[Recorded]) -> dict[tuple[str, int], Written]:
    found: dict[tuple[str, int], Written] = {}
    for one in history:
        for operation in one.operations:
            if operation.kind is not Kind.READ and isinstance(operation.value, int):
                found[operation.key, operation.value] = Written(one, operation.kind is Kind.UNDO)
    return found


def _sightings(
    history: Sequence[Recorded], writers: dict[tuple[str, int], Written]
) -> dict[str, dict[int | None, Recorded]]:
    """Return, by writer, the commit timestamps that readers saw with its values, and a reader."""
    found: dict[str, dict[int | None, Recorded]] = {}
    for reader in history:
        for operation in reader.operations:
            if operation.kind is not Kind.READ or operation.value is None:
                continue
            values = operation.value if isinstance(operation.value, tuple) else (operation.value,)
            for index, value in enumerate(values):
                written = writers.get((operation.key, value))
                if written is None or written.is_undone or written.writer.name == reader.name:
                    continue
                # A list was committed as a whole by whoever appended last.
                is_last = index == len(values) - 1
                seen_ts = operation.seen_ts if is_last else None
                found.setdefault(written.writer.name, {}).setdefault(seen_ts, reader)
    return found


# -- how much the history proves -------------------------------------------------------------------


class Overlap(msgspec.Struct):
    """How hard a history was on what it tested: without overlap it proves little."""

    transactions: int = 0
    committed: int = 0
    aborted: int = 0
    unknown: int = 0
    conflicts: int = 0
    concurrent_pairs: int = 0
    """Pairs of transactions that were open at the same time."""
    died: int = 0
    """Transactions whose client was killed before it asked for the commit."""


def overlap(history: Sequence[Recorded]) -> Overlap:
    """Count how much of a history ran at the same time."""
    told = Counter(one.told for one in history)
    reasons = Counter(one.reason for one in history if one.told is Told.ABORTED)
    moments: list[tuple[int, int]] = []
    for one in history:
        if one.ended_ns is not None:
            moments += [(one.began_ns, 1), (one.ended_ns, 0)]
    pairs = open_count = 0
    for _, is_begin in sorted(moments):
        pairs += open_count if is_begin else 0
        open_count += 1 if is_begin else -1
    return Overlap(
        transactions=len(history),
        committed=told[Told.COMMITTED],
        aborted=told[Told.ABORTED],
        unknown=told[Told.UNKNOWN],
        conflicts=reasons["WriteConflict"],
        concurrent_pairs=pairs,
        died=reasons["client died"],
    )
