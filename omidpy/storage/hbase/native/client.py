"""Rows of HBase, wherever their regions are: get, put, delete, check and mutate, increment.

Each call of many rows is one Multi for each server that has some of them, all sent before the first
answer comes; what failed in a region is looked up and sent again, and nothing else.

A put or delete that names its version may be made twice.  One that leaves that to the server's
clock may not: the second would be later, and hide what others have written since.  Nor may a change
on a condition.  Both are made again only after failures that say that nothing was done.  Increments
carry numbers by which HBase knows a repeated one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from omidpy.errors import OmidError, StorageUnavailable
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.calling.calls import Calls, Sent, forget
from omidpy.storage.hbase.native.calling.recognition import Recognition
from omidpy.storage.hbase.native.calling.steps import Step, in_order, was_processed
from omidpy.storage.hbase.native.connections.pool import until
from omidpy.storage.hbase.native.faults import CallFailed, Fault, Garbled, Kind
from omidpy.storage.hbase.native.values import (
    Action,
    Check,
    Found,
    Get,
    Region,
    RegionAction,
    RowChange,
    Selection,
    ServerName,
)
from omidpy.storage.hbase.native.wire import answers, messages
from omidpy.storage.hbase.native.wire.answers import Answer, PartAnswer

BATCH_ROWS: Final = 1000
"""Rows that one call writes."""
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one call writes, unless one row has more."""
GET_BATCH_ROWS: Final = 500
"""Rows that one call reads; the server stops before they come to 100 MB."""

_LACKS: Final = "an answer lacks a part"

NUMBER_BYTES: Final = 8
"""Of a number that increments add to."""

_nonces: Final = random.SystemRandom()


class _Failure(NamedTuple):
    """What became of some actions that were not done."""

    error: Exception
    region: Region | None


class _Going(NamedTuple):
    """Actions that have been sent, and what could not be."""

    actions: Sequence[Action]
    sent: list[tuple[Sent, list[_Part]]]
    failed: list[int]
    """The numbers of those that were not done."""
    failures: list[_Failure]


class _Part(NamedTuple):
    """Actions in one region, by their numbers among all."""

    region: Region
    indexes: list[int]
    is_alone: bool


class NativeClient:
    """A client of one HBase.  Safe to share among threads, and after a fork."""

    def __init__(self, address: NativeAddress, *, calls: Calls | None = None) -> None:
        """Call no server yet.

        Raises:
            ConfigError: a package is missing.
        """
        self.calls = Calls(address) if calls is None else calls
        self._nonce_group = _nonces.randrange(1, 2**63)

    def close(self) -> None:
        """Close every connection; a second call does nothing."""
        self.calls.close()

    # -- one row -----------------------------------------------------------------------------------

    def get(self, table: str, get: Get) -> Found:
        """Read a row.  Cost: 1 RPC."""

        def read(answer: Answer) -> Found:
            found = answers.read_get(answer)
            if get.existence_only and found.exists is None:
                raise Garbled(_LACKS)
            return found

        return self.calls.at_row(
            table,
            get.row,
            lambda region: ("Get", messages.get_request(region.name, get), b""),
            read,
            what="get",
            is_repeatable=True,
        )

    def mutate(self, table: str, change: RowChange, *, durability: int = 0) -> None:
        """Change a row, in one.

        Raises:
            StorageUnavailable: where a cell leaves its version to the server's clock, also if the
                answer was lost; then the message says that it is not known whether the change was
                made.

        Cost: 1 RPC.
        """
        is_repeatable = change.names_versions
        if change.puts and change.deletes:
            self._multi_of_one(table, change, None, durability, is_repeatable=is_repeatable)
            return
        self.calls.at_row(
            table,
            change.row,
            lambda region: (
                "Mutate",
                *messages.mutate_request(region.name, change, None, durability),
            ),
            _read_made,
            what="put" if change.puts else "delete",
            is_repeatable=is_repeatable,
        )

    def check_and_mutate(
        self, table: str, check: Check, change: RowChange, *, durability: int = 0
    ) -> bool:
        """Change a row if a condition on it holds; return whether it did.

        Raises:
            StorageUnavailable: also if the answer was lost; the message says that it is not known
                whether the change was made.

        Cost: 1 RPC.
        """
        if change.puts and change.deletes:
            return self._multi_of_one(table, change, check, durability, is_repeatable=False)
        return self.calls.at_row(
            table,
            change.row,
            lambda region: (
                "Mutate",
                *messages.mutate_request(region.name, change, check, durability),
            ),
            answers.read_mutate,
            what="check-and-mutate",
            is_repeatable=False,
        )

    def _multi_of_one(
        self,
        table: str,
        change: RowChange,
        check: Check | None,
        durability: int,
        *,
        is_repeatable: bool,
    ) -> bool:
        def make(region: Region) -> tuple[str, bytes, bytes]:
            part = RegionAction(region, (change,), check)
            return ("Multi", *messages.multi_request((part,), durability))

        def read(answer: Answer) -> bool:
            (part,) = answers.read_multi(answer, 1, 1)
            if part.first_fault is not None:
                raise part.first_fault
            if check is not None:
                return was_processed(part)
            if not _says_done(part):
                raise Garbled(_LACKS)
            return True

        what = "change of a row" if check is None else "check-and-mutate"
        return self.calls.at_row(
            table, change.row, make, read, what=what, is_repeatable=is_repeatable
        )

    def increment(
        self,
        table: str,
        row: bytes,
        family: bytes,
        qualifier: bytes,
        amount: int,
        *,
        durability: int = 0,
    ) -> int:
        """Add to a number of 8 bytes, and return what it is then.  Cost: 1 RPC.

        Made again after a lost answer: HBase knows the call by its numbers and does it once.  To
        one that it knows it answers by a read of its own, whose cells it may have let go before
        they are sent: then they are missing, or bytes of something else.  It was done all the same,
        so the number is read as it is by now.  Cost then: 1 RPC more.

        Not made again where HBase may know it no more (`calling/recognition.py`).

        Raises:
            StorageUnavailable: also if the answer was lost; where it may have been done, the
                message says that this is not known.
        """
        nonces = (self._nonce_group, _nonces.randrange(1, 2**63))

        def make(region: Region) -> tuple[str, bytes, bytes]:
            names = (region.name, row, family, qualifier)
            return ("Mutate", *messages.increment_request(*names, amount, nonces, durability))

        found = self.calls.at_row(
            table,
            row,
            make,
            _number,
            what="increment",
            is_repeatable=True,
            recognition=Recognition(),
        )
        if found is None:
            selection = Selection([(family, qualifier)], max_versions=1)
            try:
                found = _number_in(self.get(table, Get(row, selection)))
            except StorageUnavailable as error:
                raise StorageUnavailable(
                    f"increment of table {table!r}: it was done, and what the number is by now "
                    f"could not be read: {error}"
                ) from error
        if found is None:
            raise StorageUnavailable(
                f"increment of table {table!r}: it was done, and no number of 8 bytes is there now"
            )
        return found

    # -- many rows ---------------------------------------------------------------------------------

    def get_many(self, table: str, gets: Sequence[Get]) -> list[Found]:
        """Read rows; one answer for each, in their order.

        Cost: 1 RPC for each server and `GET_BATCH_ROWS` rows, all of a batch sent at once.
        """
        if len(gets) == 1:
            return [self.get(table, gets[0])]
        found: list[Found] = []
        for first in range(0, len(gets), GET_BATCH_ROWS):
            batch = gets[first : first + GET_BATCH_ROWS]
            found += self._batch(table, batch, 0, "get")
        return found

    def exists(self, table: str, get: Get) -> bool:
        """Say whether a row has a cell that a get would find.  Cost: 1 RPC, without the cells."""
        return bool(self.get(table, get._replace(existence_only=True)).exists)

    def mutate_many(
        self,
        table: str,
        changes: Sequence[RowChange],
        *,
        durability: int = 0,
        made: list[RowChange] | None = None,
    ) -> None:
        """Change rows, each in one.

        After an exception any of them may have been changed.  Where cells leave their versions to
        the server's clock, no row is changed twice.

        Args:
            table: The table.
            changes: What to do.
            durability: Of all of them.
            made: Where those are added, also before an exception, that were acknowledged.

        Cost: 1 RPC for each server and batch (`BATCH_ROWS`, `BATCH_BYTES`), all of a batch sent at
        once.
        """
        if len(changes) == 1:
            self.mutate(table, changes[0], durability=durability)
            if made is not None:
                made.append(changes[0])
            return
        going: _Going | None = None
        begun: _Going | None = None
        try:
            for batch in batches(changes):
                # It is made while a server is at work on the one before.
                begun = self._begin(table, batch, range(len(batch)), durability)
                if going is not None:
                    self._end(table, going, durability, "put", made)
                going, begun = begun, None
            if going is not None:
                self._end(table, going, durability, "put", made)
        except BaseException:
            for one in (going, begun):
                if one is not None:
                    forget([sent for sent, _ in one.sent])
            raise

    def _batch(
        self, table: str, actions: Sequence[Action], durability: int, what: str
    ) -> list[Found]:
        """Do actions, and again those that failed for a while; return what was found."""
        going = self._begin(table, actions, range(len(actions)), durability)
        return self._end(table, going, durability, what)

    def _end(
        self,
        table: str,
        going: _Going,
        durability: int,
        what: str,
        made: list[RowChange] | None = None,
    ) -> list[Found]:
        """Wait for actions, and do those again that failed for a while; return what was found.

        Changes that were acknowledged are added to `made`.
        """
        done: list[Found | None] = [None] * len(going.actions)
        try:
            return self._done(table, going, durability, what, done)
        finally:
            if made is not None:
                for one, found in zip(going.actions, done, strict=True):
                    if found is not None and isinstance(one, RowChange):
                        made.append(one)

    def _done(
        self,
        table: str,
        going: _Going,
        durability: int,
        what: str,
        done: list[Found | None],
    ) -> list[Found]:
        """As `_end`; what was found is noted as it comes."""
        actions = going.actions
        attempts = None
        still_left = 0
        while True:
            left, failures = self._answers(going, done)
            if not left:
                found = [one for one in done if one is not None]
                assert len(found) == len(actions), "what has no answer was not done"
                return found
            if attempts is None:
                is_safe = all(one.names_versions for one in actions if isinstance(one, RowChange))
                attempts = self.calls.attempts(what, table, is_repeatable=is_safe)
            for failure in failures[1:]:
                if failure.region is not None:
                    self.calls.correct(failure.region, failure.error)
            # One that may have been made, and may not be again, ends the call.
            in_doubt = [] if attempts.is_repeatable else [*filter(_is_in_doubt, failures)]
            worst = max(in_doubt or failures, key=_weight)
            if attempts.count and len(left) < still_left and _weight(worst) == 0:
                # The rest did not fit into one answer.  As long as it gets less, nothing fails.
                is_safe = attempts.is_repeatable
                attempts = self.calls.attempts(what, table, is_repeatable=is_safe)
            still_left = len(left)
            if worst is not failures[0] and failures[0].region is not None:
                self.calls.correct(failures[0].region, failures[0].error)
            self.calls.after_failure(attempts, table, worst.region, worst.error)
            going = self._begin(table, actions, left, durability)

    def _begin(
        self, table: str, actions: Sequence[Action], left: Sequence[int], durability: int
    ) -> _Going:
        """Send some of the actions."""
        failed: list[int] = []
        failures: list[_Failure] = []
        until_s = until(self.calls.address.timeout_s)
        sent: list[tuple[Sent, list[_Part]]] = []
        try:
            for parts in self._by_server(table, actions, left, failed, failures, until_s):
                request = [
                    RegionAction(part.region, [actions[index] for index in part.indexes])
                    for part in parts
                ]
                try:
                    body, cells = messages.multi_request(request, durability)
                    one = self.calls.send(parts[0].region, "Multi", body, cells, until_s=until_s)
                    sent.append((one, parts))
                except CallFailed as error:
                    _fail(parts, error, failed, failures)
        except BaseException:
            forget([one for one, _ in sent])
            raise
        return _Going(actions, sent, failed, failures)

    def _answers(self, going: _Going, done: list[Found | None]) -> tuple[list[int], list[_Failure]]:
        """Wait for what was sent; return the numbers of what was not done, and why."""
        _, sent, failed, failures = going
        # From now on: nobody may have listened since it was sent.
        until_s = until(self.calls.address.timeout_s)
        try:
            for one, parts in sent:
                try:
                    answer = self.calls.wait(one, until_s)
                    count = sum(len(part.indexes) for part in parts)
                    told = answers.read_multi(answer, len(parts), count)
                except CallFailed as error:
                    _fail(parts, error, failed, failures)
                    continue
                for part, part_answer in zip(parts, told, strict=True):
                    _take(part, part_answer, done, failed, failures)
        except BaseException:
            forget([one for one, _ in sent])
            raise
        return failed, failures

    def _by_server(
        self,
        table: str,
        actions: Sequence[Action],
        left: Sequence[int],
        failed: list[int],
        failures: list[_Failure],
        until_s: float,
    ) -> list[list[_Part]]:
        """Return parts of actions, those for each server together."""
        servers: dict[ServerName, dict[bytes, _Part]] = {}
        alone: dict[ServerName, list[_Part]] = {}
        locate = self.calls.locate
        region: Region | None = None
        for place, index in enumerate(left):
            action = actions[index]
            try:
                # Mostly they are in order, and many in one region.
                if region is None or not region.holds(action.row):
                    region = locate(table, action.row, until_s=until_s)
            except (CallFailed, OmidError) as error:
                failed.append(index)
                failures.append(_Failure(error, None))
                is_late = time.monotonic() >= until_s
                if (
                    is_late
                    or isinstance(error, OmidError)
                    or not self.calls.connections.has_answered
                ):
                    # By place: what failed before comes in the order of servers, not of numbers.
                    failed.extend(left[place + 1 :])
                    break
                continue
            if isinstance(action, RowChange) and action.puts and action.deletes:
                alone.setdefault(region.server, []).append(_Part(region, [index], True))
                continue
            regions = servers.setdefault(region.server, {})
            part = regions.get(region.name)
            if part is None:
                part = regions[region.name] = _Part(region, [], False)
            part.indexes.append(index)
        return [
            [*servers.get(server, {}).values(), *alone.get(server, ())]
            for server in {**servers, **alone}
        ]

    def in_order(
        self, steps: Sequence[Step], *, patience_s: float, durability: int = 0
    ) -> list[list[PartAnswer]]:
        """Do steps one after another, each begun after the one before has ended; see `steps.py`."""
        return in_order(self.calls, steps, patience_s=patience_s, durability=durability)


def batches(changes: Sequence[RowChange]) -> Iterator[list[RowChange]]:
    """Cut changes into batches of `BATCH_ROWS`, and of `BATCH_BYTES` unless one row has more."""
    batch: list[RowChange] = []
    size_bytes = 0
    for change in changes:
        row, puts, deletes = change
        size = (40 + len(row)) * (len(puts) + len(deletes))
        for _, qualifier, _, value in puts:
            size += len(qualifier) + len(value)
        for _, qualifier, _, _ in deletes:
            size += len(qualifier)
        if batch and (len(batch) == BATCH_ROWS or size_bytes + size > BATCH_BYTES):
            yield batch
            batch, size_bytes = [], 0
        batch.append(change)
        size_bytes += size
    if batch:
        yield batch


def _fail(
    parts: Sequence[_Part], error: Exception, failed: list[int], failures: list[_Failure]
) -> None:
    for part in parts:
        failed.extend(part.indexes)
        failures.append(_Failure(error, part.region))


def _take(
    part: _Part,
    answer: PartAnswer,
    done: list[Found | None],
    failed: list[int],
    failures: list[_Failure],
) -> None:
    """Take what became of a part."""
    if answer.fault is not None:
        _fail((part,), answer.fault, failed, failures)
        return
    if part.is_alone:
        if (fault := answer.first_fault) is not None:
            _fail((part,), fault, failed, failures)
        elif not _says_done(answer):
            _fail((part,), Garbled(_LACKS), failed, failures)
        else:
            done[part.indexes[0]] = Found([])
        return
    for number, index in enumerate(part.indexes):
        found = answer.results.get(number)
        if isinstance(found, Found):
            done[index] = found
            continue
        failed.append(index)
        if found is None:
            # Without a word about it, it may not have been done, and a row that was asked for is
            # not known to be empty.
            failures.append(_Failure(Garbled(_LACKS), part.region))
        else:
            is_alone = len(part.indexes) == 1
            failures.append(_Failure(found if is_alone else found.of_many(), part.region))


def _says_done(answer: PartAnswer) -> bool:
    """Say whether an answer without a fault says that a change of a row was made in one."""
    return bool(answer.processed or answer.results)


def _read_made(answer: Answer) -> None:
    """Read the answer to a change without a condition: it says that it was made."""
    if not answers.read_mutate(answer):
        raise Garbled(_LACKS)


def _is_in_doubt(failure: _Failure) -> bool:
    """Say whether what failed may have been done all the same."""
    return isinstance(failure.error, CallFailed) and not failure.error.is_certain


def _weight(failure: _Failure) -> int:
    """Return how much a failure says of what to do next; those that end the call say most."""
    error = failure.error
    if not isinstance(error, Fault):
        return 3
    order = (Kind.LEFT, Kind.MISPLACED, Kind.UNKNOWN, Kind.BUSY)
    return order.index(error.kind) if error.kind in order else 4


def _number(answer: Answer) -> int | None:
    """Return the number that an increment made; None if the answer does not say."""
    try:
        return _number_in(answers.read_get(answer))
    except Garbled:
        return None


def _number_in(found: Found) -> int | None:
    if len(found.cells) != 1 or len(found.cells[0].value) != NUMBER_BYTES:
        return None
    return int.from_bytes(found.cells[0].value, signed=True)
