"""Is a history strongly snapshot isolated?  Pure checkers, each for one kind of workload.

    order       timestamps are unique, a snapshot holds every commit acknowledged before it began,
                and of two transactions at the same time one alone commits a write of a key
    registers   every read, of whoever, returns the last value committed below its snapshot
    appends     the same for lists, see `append_checker.py`
    bank        every snapshot has the same total
    long fork   all readers agree on the order of independent writes

Reads of transactions that were aborted later are held to the same: what they saw led their client.
Of one key, every value was written once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import combinations, pairwise
from typing import Final, NamedTuple

from omidpy.testing.anomalies import (
    COMMIT_BEFORE_BEGIN,
    DIRTY_READ,
    FRACTURED_READ,
    FUTURE_READ,
    GARBAGE_READ,
    INTERMEDIATE_READ,
    LONG_FORK,
    LOST_UPDATE,
    NON_REPEATABLE_READ,
    OWN_WRITE_IGNORED,
    STALE_READ,
    STALE_SNAPSHOT,
    TIMESTAMP_REUSED,
    WRONG_TOTAL,
    Anomaly,
    Findings,
    Settled,
)
from omidpy.testing.history import Kind, Operation, Recorded, Told, Value

# -- order -----------------------------------------------------------------------------------------


def check_order(history: Sequence[Recorded]) -> list[Anomaly]:
    """Check what timestamps and real time promise, whatever was read or written."""
    by_workload: dict[str, list[Recorded]] = {}
    for one in history:
        by_workload.setdefault(one.workload, []).append(one)
    findings = Findings()
    every: list[Recorded] = []
    for group in by_workload.values():
        settled = Settled(group, findings)
        _check_updates(settled.committed, findings)
        every += settled.transactions
    _check_unique(every, findings)
    _check_real_time(every, findings)
    return findings.anomalies


def _check_unique(transactions: Iterable[Recorded], findings: Findings) -> None:
    owners: dict[int, Recorded] = {}

    def claim(number: int, one: Recorded) -> None:
        other = owners.setdefault(number, one)
        if other is not one:
            findings.add(
                TIMESTAMP_REUSED, f"{one.name} and {other.name} both have {number}", one, other
            )

    for one in transactions:
        if not one.is_historical:
            claim(one.start_ts, one)
        if one.commit_ts is not None:
            claim(one.commit_ts, one)
            if one.commit_ts <= one.start_ts:
                findings.add(
                    COMMIT_BEFORE_BEGIN,
                    f"{one.name} began at {one.start_ts} and committed at {one.commit_ts}",
                    one,
                )


def _check_real_time(transactions: Iterable[Recorded], findings: Findings) -> None:
    acknowledged = sorted(
        (one for one in transactions if one.commit_ts is not None and one.ended_ns is not None),
        key=lambda one: one.ended_ns or 0,
    )
    waiting = iter(acknowledged)
    following = next(waiting, None)
    newest: Recorded | None = None
    for one in sorted(transactions, key=lambda one: one.began_ns):
        while following is not None and (following.ended_ns or 0) < one.began_ns:
            if newest is None or (following.commit_ts or 0) > (newest.commit_ts or 0):
                newest = following
            following = next(waiting, None)
        if newest is None or one.is_historical:
            continue
        if one.start_ts <= (newest.commit_ts or 0):
            findings.add(
                STALE_SNAPSHOT,
                f"{one.name} began at {one.start_ts}, after {newest.name} had been told that it "
                f"committed at {newest.commit_ts}",
                one,
                newest,
            )


def _check_updates(committed: Iterable[Recorded], findings: Findings) -> None:
    by_key: dict[str, list[Recorded]] = {}
    for one in committed:
        if one.commit_ts is not None:
            for key in one.written_keys():
                by_key.setdefault(key, []).append(one)
    for key, writers in by_key.items():
        writers.sort(key=lambda one: one.commit_ts or 0)
        for first, second in pairwise(writers):
            # Neighbours are enough: a commit that overlaps an earlier one overlaps the last.
            if second.start_ts < (first.commit_ts or 0):
                findings.add(
                    LOST_UPDATE,
                    f"{first.name} committed {key} at {first.commit_ts}, and {second.name}, which "
                    f"began at {second.start_ts}, at {second.commit_ts}",
                    first,
                    second,
                )


# -- registers -------------------------------------------------------------------------------------


class _Version(NamedTuple):
    commit_ts: int
    value: Value
    writer: Recorded | None


_NEVER_WRITTEN = _Version(0, None, None)


def check_registers(history: Sequence[Recorded]) -> list[Anomaly]:
    """Check that every read returns the last value committed below its reader's snapshot."""
    return _RegisterCheck(history).run()


class _RegisterCheck:
    def __init__(self, history: Sequence[Recorded]) -> None:
        self.settled = Settled(history)
        self.findings = Findings()
        self.versions: dict[str, list[_Version]] = {}
        self.undated: dict[str, list[Recorded]] = {}
        for one in self.settled.transactions:
            if one.told is Told.ABORTED:
                continue
            for key, value in one.writes().items():
                if one.commit_ts is not None:
                    version = _Version(one.commit_ts, value, one)
                    self.versions.setdefault(key, []).append(version)
                else:
                    self.undated.setdefault(key, []).append(one)
        for versions in self.versions.values():
            versions.sort(key=lambda version: version.commit_ts)

    def run(self) -> list[Anomaly]:
        for one in self.settled.transactions:
            self._check(one)
        return self.findings.anomalies

    def expected(self, key: str, start_ts: int) -> _Version:
        versions = self.versions.get(key, [])
        index = bisect_left(versions, start_ts, key=lambda version: version.commit_ts)
        return versions[index - 1] if index else _NEVER_WRITTEN

    def _check(self, reader: Recorded) -> None:
        own: dict[str, Value] = {}
        first_reads: dict[str, Operation] = {}
        seen_writers = self._writers_seen_by(reader)
        for operation in reader.operations:
            key, value = operation.key, operation.value
            if operation.kind is Kind.WRITE:
                own[key] = value
            if operation.kind is not Kind.READ:
                continue
            if key in own:
                if value != own[key]:
                    self._add(
                        OWN_WRITE_IGNORED,
                        f"it had written {own[key]}",
                        reader,
                        operation,
                    )
                continue
            first = first_reads.setdefault(key, operation)
            if first.value != value:
                self._add(NON_REPEATABLE_READ, f"it had read {first.value}", reader, operation)
            expected = self.expected(key, reader.start_ts)
            if value != expected.value:
                self._judge(reader, operation, expected, seen_writers)

    def _writers_seen_by(self, reader: Recorded) -> set[str]:
        seen: set[str] = set()
        for operation in reader.operations:
            if operation.kind is Kind.READ and isinstance(operation.value, int):
                written = self.settled.writer(operation.key, operation.value)
                if written is not None and written.writer is not reader:
                    seen.add(written.writer.name)
        return seen

    def _judge(
        self,
        reader: Recorded,
        operation: Operation,
        expected: _Version,
        seen_writers: set[str],
    ) -> None:
        key, value = operation.key, operation.value
        if any(
            one.writes()[key] == value and one.start_ts < reader.start_ts
            for one in self.undated.get(key, ())
        ):
            return  # Whoever wrote it has committed, and nobody knows when.
        written = self.settled.writer(key, value) if isinstance(value, int) else None
        if isinstance(value, int):
            if written is None:
                self._add(GARBAGE_READ, "nobody wrote it", reader, operation)
                return
            writer = written.writer
            if written.is_undone or writer.told is Told.ABORTED:
                self._add(DIRTY_READ, f"{writer.name} took it back", reader, operation, writer)
                return
            if writer.writes().get(key) != value:
                self._add(
                    INTERMEDIATE_READ,
                    f"{writer.name} wrote {writer.writes().get(key)} after it",
                    reader,
                    operation,
                    writer,
                )
                return
            if writer.commit_ts is not None and writer.commit_ts >= reader.start_ts:
                self._add(
                    FUTURE_READ,
                    f"{writer.name} committed it at {writer.commit_ts}",
                    reader,
                    operation,
                    writer,
                )
                return
        newer = expected.writer
        explanation = f"expected {expected.value}, committed at {expected.commit_ts}"
        if newer is None:
            self._add(STALE_READ, explanation, reader, operation)
        elif newer.name in seen_writers:
            self._add(
                FRACTURED_READ,
                f"{explanation} by {newer.name}, another of whose writes it read",
                reader,
                operation,
                newer,
            )
        else:
            self._add(STALE_READ, f"{explanation} by {newer.name}", reader, operation, newer)

    def _add(
        self, name: str, why: str, reader: Recorded, operation: Operation, *others: Recorded
    ) -> None:
        explanation = (
            f"{reader.name}, whose snapshot is {reader.start_ts}, read {operation.value} from "
            f"{operation.key}: {why}"
        )
        self.findings.add(name, explanation, reader, *others, operations=((reader, operation),))


# -- bank ------------------------------------------------------------------------------------------


BALANCE_LIMIT: Final = 1_000_000
"""The value of an account is a unique number times this, plus the balance."""


def check_bank(
    history: Sequence[Recorded], *, accounts: Sequence[str], total: int
) -> list[Anomaly]:
    """Check that the accounts hold `total` in every snapshot in which all of them were read."""
    findings = Findings()
    for reader in history:
        balances: dict[str, int] = {}
        written: set[str] = set()
        for operation in reader.operations:
            if operation.kind is Kind.WRITE:
                written.add(operation.key)
            elif operation.kind is Kind.READ and operation.key not in written:
                balances.setdefault(operation.key, _balance(operation.value))
        if all(account in balances for account in accounts):
            found = sum(balances[account] for account in accounts)
            if found != total:
                findings.add(
                    WRONG_TOTAL,
                    f"{reader.name}, whose snapshot is {reader.start_ts}, found {found} in all "
                    f"accounts together instead of {total}",
                    reader,
                    operations=[
                        (reader, one) for one in reader.operations if one.kind is Kind.READ
                    ],
                )
    return findings.anomalies


def _balance(value: Value) -> int:
    return value % BALANCE_LIMIT if isinstance(value, int) else 0


# -- long fork -------------------------------------------------------------------------------------


def check_long_fork(history: Sequence[Recorded]) -> list[Anomaly]:
    """Check that readers agree on the order in which keys were written first; none is deleted."""
    findings = Findings()
    first_with: dict[tuple[str, str], Recorded] = {}
    for reader in history:
        seen = {one.key: one.value for one in reader.operations if one.kind is Kind.READ}
        own = reader.written_keys()
        for left, right in combinations(sorted(key for key in seen if key not in own), 2):
            if (seen[left] is None) == (seen[right] is None):
                continue
            with_, without = (right, left) if seen[left] is None else (left, right)
            first_with.setdefault((with_, without), reader)
            other = first_with.get((without, with_))
            if other is not None:
                findings.add(
                    LONG_FORK,
                    f"{reader.name} saw {with_} and not {without}, {other.name} saw {without} and "
                    f"not {with_}",
                    reader,
                    other,
                )
    return findings.anomalies
