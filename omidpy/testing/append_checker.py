"""Checks lists that many clients append to: each read by itself, and all reads together.

By itself, a read must return what the timestamps say: every append committed below its snapshot, in
the order of the commits.  Together, and whatever the timestamps say, the reads must agree on one
order, and who read and appended what must not form a circle that snapshot isolation forbids
(`cycles.py`).  Pure.

Lists show more than registers do: a list that was read names all of its writers, in order.
Source: Kingsbury and Alvaro, "Elle".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from omidpy.testing.anomalies import (
    DIRTY_READ,
    DUPLICATE_APPEND,
    FUTURE_READ,
    GARBAGE_READ,
    INCOMPATIBLE_ORDERS,
    INTERMEDIATE_READ,
    LOST_APPEND,
    OWN_WRITE_IGNORED,
    WRONG_ORDER,
    Anomaly,
    Findings,
    Settled,
)
from omidpy.testing.cycles import RW, WR, WW, Edge, forbidden_cycles
from omidpy.testing.history import Kind, Operation, Recorded, Told, Value


class _Appended(NamedTuple):
    commit_ts: int
    values: tuple[int, ...]
    writer: Recorded


def check_appends(history: Sequence[Recorded]) -> list[Anomaly]:
    """Check lists that transactions read, append to, and write back."""
    check = _AppendCheck(history)
    check.check_reads()
    check.check_cycles()
    return check.findings.anomalies


class _AppendCheck:
    def __init__(self, history: Sequence[Recorded]) -> None:
        self.settled = Settled(history)
        self.findings = Findings()
        self.appends: dict[str, list[_Appended]] = {}
        for one in self.settled.committed:
            if one.commit_ts is not None:
                for key, values in _appended(one).items():
                    self.appends.setdefault(key, []).append(_Appended(one.commit_ts, values, one))
        for versions in self.appends.values():
            versions.sort(key=lambda version: version.commit_ts)

    # -- each read by itself -------------------------------------------------------------------

    def check_reads(self) -> None:
        for reader in self.settled.transactions:
            own: dict[str, list[int]] = {}
            for operation in reader.operations:
                if operation.kind is Kind.APPEND and isinstance(operation.value, int):
                    own.setdefault(operation.key, []).append(operation.value)
                elif operation.kind is Kind.READ:
                    self._check_read(reader, operation, own.get(operation.key, []))

    def _check_read(self, reader: Recorded, operation: Operation, own: list[int]) -> None:
        actual = _elements(operation.value)
        expected: list[int] = []
        for version in self.appends.get(operation.key, ()):
            if version.commit_ts >= reader.start_ts:
                break
            if version.writer is not reader:
                expected += version.values
        expected += own
        certain = [value for value in actual if not self._is_undated(operation.key, value)]
        if certain == expected and len(set(actual)) == len(actual):
            return
        problems = list(self._problems(reader, operation, actual, expected, own))
        if not problems:
            problems = [(WRONG_ORDER, f"by commit timestamps it is {expected}", ())]
        for name, why, others in problems:
            self._add(name, why, reader, operation, *others)

    def _is_undated(self, key: str, value: int) -> bool:
        written = self.settled.writer(key, value)
        return (
            written is not None
            and not written.is_undone
            and written.writer.told is Told.COMMITTED
            and written.writer.commit_ts is None
        )

    def _problems(
        self,
        reader: Recorded,
        operation: Operation,
        actual: list[int],
        expected: list[int],
        own: list[int],
    ) -> Iterator[tuple[str, str, tuple[Recorded, ...]]]:
        key = operation.key
        if own and actual[-len(own) :] != own:
            yield OWN_WRITE_IGNORED, f"it had appended {own}", ()
        if len(set(actual)) != len(actual):
            yield DUPLICATE_APPEND, "an element is there twice", ()
        seen = set(actual)
        partly: set[str] = set()
        for value in actual:
            written = self.settled.writer(key, value)
            if written is None:
                yield GARBAGE_READ, f"nobody appended {value}", ()
                continue
            writer = written.writer
            if written.is_undone or (writer.told is Told.ABORTED and writer is not reader):
                yield DIRTY_READ, f"{writer.name} took {value} back", (writer,)
            elif writer is reader:
                continue
            elif not seen.issuperset(_appended(writer).get(key, ())):
                partly.add(writer.name)
                why = f"{writer.name} appended {list(_appended(writer)[key])} as a whole"
                yield INTERMEDIATE_READ, why, (writer,)
            elif writer.commit_ts is not None and writer.commit_ts >= reader.start_ts:
                why = f"{writer.name} committed {value} at {writer.commit_ts}"
                yield FUTURE_READ, why, (writer,)
        for value in expected:
            if value not in seen and value not in own:
                written = self.settled.writer(key, value)
                assert written is not None, "what is expected was written"
                if written.writer.name not in partly:
                    why = (
                        f"{written.writer.name} appended {value} and committed at "
                        f"{written.writer.commit_ts}"
                    )
                    yield LOST_APPEND, why, (written.writer,)

    def _add(
        self, name: str, why: str, reader: Recorded, operation: Operation, *others: Recorded
    ) -> None:
        explanation = (
            f"{reader.name}, whose snapshot is {reader.start_ts}, read "
            f"{_elements(operation.value)} from {operation.key}: {why}"
        )
        self.findings.add(name, explanation, reader, *others, operations=((reader, operation),))

    # -- all reads together, whatever the timestamps say ---------------------------------------

    def check_cycles(self) -> None:
        by_name = {one.name: one for one in self.settled.transactions}
        edges: list[Edge] = []
        for key, reads in self._outside_reads().items():
            longest = max(reads, key=lambda read: len(read[1]))
            for reader, values in reads:
                if values != longest[1][: len(values)]:
                    self.findings.add(
                        INCOMPATIBLE_ORDERS,
                        f"{reader.name} read {values} from {key}, {longest[0].name} {longest[1]}",
                        reader,
                        longest[0],
                    )
                    break
            else:
                edges += self._edges(key, reads, longest[1])
        for cycle in forbidden_cycles(edges):
            path = ", ".join(f"{edge.before} -{edge.kind}-> {edge.after}" for edge in cycle.edges)
            self.findings.add(cycle.name, path, *(by_name[edge.before] for edge in cycle.edges))

    def _outside_reads(self) -> dict[str, list[tuple[Recorded, list[int]]]]:
        """Return, by key, what committed transactions read before they appended to it."""
        reads: dict[str, list[tuple[Recorded, list[int]]]] = {}
        for one in self.settled.committed:
            appended: set[str] = set()
            for operation in one.operations:
                if operation.kind is Kind.APPEND:
                    appended.add(operation.key)
                elif operation.kind is Kind.READ and operation.key not in appended:
                    read = (one, _elements(operation.value))
                    reads.setdefault(operation.key, []).append(read)
        return reads

    def _edges(
        self, key: str, reads: list[tuple[Recorded, list[int]]], order: list[int]
    ) -> Iterator[Edge]:
        writers = [self._writer_name(key, value) for value in order]
        for before, after in pairwise(writers):
            if before and after and before != after:
                yield Edge(before, after, WW)
        for reader, values in reads:
            count = len(values)
            if count and (writer := writers[count - 1]) and writer != reader.name:
                yield Edge(writer, reader.name, WR)
            if count < len(writers) and (writer := writers[count]) and writer != reader.name:
                yield Edge(reader.name, writer, RW)

    def _writer_name(self, key: str, value: int) -> str | None:
        written = self.settled.writer(key, value)
        if written is None or written.is_undone or written.writer.told is not Told.COMMITTED:
            return None
        return written.writer.name


def _elements(value: Value) -> list[int]:
    if value is None:
        return []
    return list(value) if isinstance(value, tuple) else [value]


def _appended(one: Recorded) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for operation in one.operations:
        if operation.kind is Kind.APPEND and isinstance(operation.value, int):
            found[operation.key] = (*found.get(operation.key, ()), operation.value)
    return found
