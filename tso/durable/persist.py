"""Make the oracle's decisions durable, and find what the last instance left.

The thin effect under `machine.py`: one batch at a time, in one thread.  A batch that failed half
way is written again whole, so every write here may be repeated.

Where the store has guarded batches, a batch is one transaction: guarded by the lease record, each
commit on condition that no invalidation stands.  Elsewhere, on HBase, the commit entries are one
plain write, and what a condition would have said is read behind it.  First of all the lease record:
not ours, and nothing is answered.  An invalidation is only planted where no commit is, so that once
the entry is there, either one stands or none ever will; and above our epoch only these plant one:

- this oracle, which does not commit what it forbade;
- clients that know of a later epoch or low watermark.  They were published by an instance which has
  the lease or, if it is Omid's and knows no lease, moved the ceiling.  So where lease and ceiling
  are still ours behind the write, there were no such clients before it;
- Omid's clients of this very oracle, behind a fence or when they lost an answer.  Once one of them
  came (`Batch.may_be_invalidated`), the invalidations of the rows that were written are read as
  well, which takes longer than to write them.

A few commits are written on condition, one by one.  Where the store may be asked ahead, entries and
what is read behind them cost one round trip, unless their rows are read as well.  On HBase an entry
is synced no harder than the cells that it commits: they live in other logs, and an entry on disk
without its cells would protect nothing.

One batch is written at a time.  On HBase a second one in flight would gain nothing that a larger
batch does not: the gateway sends a batch to all region servers at once, and four writers for the
parts of one batch were no faster than one call (8 ms for 1,000 entries, two cores).

The low watermark is written with the commits or after them, never before: a reader of it must
find every commit that was decided earlier (L1 in docs/explanation/pruning.md).  Where that is no
part of a guarded batch it is written upward only, so that a deposed oracle cannot lower it.

Omid's own low watermark row is read and left as it is: Java's coprocessor drops versions by it, by
their starts alone (decision 81).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol

from omidpy.base.callers.pools import begun
from omidpy.base.cells import (
    commit_row,
    encode_long,
)
from omidpy.base.commit_facts import INVALID, CommitEntry
from omidpy.base.reach import reached
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import (
    ConfigError,
    CorruptCell,
    NoSuchFamily,
    StorageError,
    StorageUnavailable,
)
from omidpy.facts.commit_table import (
    ADOPTED_CEILING_FACT,
    COMMIT,
    COMMIT_TABLE,
    EPOCH_FACT,
    FIRST_TIMESTAMP_FACT,
    INVALIDATION,
    LOW_WATERMARK_FACT,
    TIMESTAMP_TABLE,
    CommitTable,
    read_java_low_watermark,
)
from omidpy.facts.control import ControlTable
from omidpy.facts.format import check_format
from omidpy.facts.watermarks import PRUNE_HORIZON, Watermarks
from omidpy.facts.witnesses import witness_state
from omidpy.facts.writers import make_writer_key
from omidpy.model import MAX_VERSION, TIMESTAMP_STEP, Cell, TableCells, Timestamp
from omidpy.storage.base import CellGroup, Entries, GuardedMutation, Store
from omidpy.storage.options import ChecksBehind
from tso.core.beginning import check_initial, first_candidate, step_from
from tso.core.events import NOTHING_FOUND, Batch, FlushResult, Now, Ticket
from tso.core.settings import TIMESTAMPS_PER_MS, Inherited, Settings
from tso.core.writes import (
    cell_group,
    commit_entries,
    commit_entry,
    facts_of,
    invalidation,
    needs_check,
)
from tso.durable.ceiling import StoredCeiling
from tso.durable.lease import AnyLease
from tso.durable.omid_timestamps import initial_ceiling, refuse_stale

logger = logging.getLogger(__name__)

MAX_AHEAD_COUNT: Final = 3
"""Entries that are written one by one, so that no commit waits between them and the lease's read.

The gateway does one after another, so that more of them are quicker as one call with two reads
behind it.  Measured at a gateway under load, one by one and together: 0.4 and 0.55 ms for one
entry, 0.67 and 0.98 ms for two, 0.83 and 1.04 ms for three; for four there is no difference.
"""


MAX_PUT_AHEAD_COUNT: Final = 10_000
"""Entries that are put at most without a wait for the answer: above, one may take its time."""


class Persistence(Protocol):
    """What a shell needs below the machine."""

    is_instant: bool
    """Whether `flush` never waits, so that it needs no thread of its own."""
    writer_key: bytes | None
    """What a client must show that brings the cells of a commit; None: they are not written."""

    def start(self, settings: Settings, now: Now, *, accept_clock: bool) -> Inherited:
        """Take over the store's timestamps and record that a new instance begins."""
        ...

    def flush(self, batch: Batch[Ticket]) -> FlushResult:
        """Make a batch durable; after an exception it may be flushed again."""
        ...


class StorePersistence:
    """Persists into a store whose lease is held.  One thread at a time."""

    is_instant = False

    def __init__(
        self,
        store: Store,
        lease: AnyLease,
        *,
        initial_timestamp: int | None = None,
        omid_ceiling: Callable[[], Timestamp | None] = lambda: None,
        reader: Executor | None = None,
    ) -> None:
        """Write into `store` while `lease` is held.

        Args:
            store: It has the system tables.
            lease: Held when `start` is called.
            initial_timestamp: Where to go on if no oracle recorded its last timestamp.
            omid_ceiling: Finds the ceiling that Omid kept elsewhere, if it did.
            reader: Where one read is done beside another; None makes a thread for it.
        """
        self._store = store
        self._lease = lease
        self._initial_timestamp = initial_timestamp
        self._omid_ceiling = omid_ceiling
        self._control = ControlTable(store)
        self._commit_table = CommitTable(store)
        self._is_guarded = store.capabilities.guarded_batches
        self._ahead = store if isinstance(store, ChecksBehind) else None
        # Its thread starts when it is first needed, which on a file it never is.
        self._reader = reader or ThreadPoolExecutor(1, thread_name_prefix="tso-reader")
        self.writer_key: bytes | None = None
        """What clients show that bring cells; None: none may."""
        self._ceiling = StoredCeiling(store)
        self._low_watermark = 0

    # -- start ---------------------------------------------------------------------------------

    def start(self, settings: Settings, now: Now, *, accept_clock: bool) -> Inherited:
        """Take over the store's timestamps and record that a new instance begins.

        Reads the stored ceiling and raises it, so that an instance before us that still runs can no
        longer do so; then epoch and low watermark are what the ceiling was.

        Raises:
            ConfigError: the wall clock is absurd, the store's timestamps were lost, or it has
                a newer form.
            LeaseLost: another oracle moved the ceiling meanwhile, or has the lease by now.
        """
        self._lease.check()
        try:
            return self._take_over(settings, now, accept_clock=accept_clock)
        except ConfigError:
            # An oracle that stood still since it took the lease finds what its successor has
            # written, and would ask the operator to mend a store that nothing ails (I1).
            self._lease.check()
            raise

    def _take_over(self, settings: Settings, now: Now, *, accept_clock: bool) -> Inherited:
        """Do it, with a lease that may be lost before the ceiling is raised."""
        check_format(self._store)
        omid_ceiling = self._omid_ceiling() or 0
        if omid_ceiling:
            logger.warning(
                "Omid kept its timestamps in ZooKeeper, where they end at %d; from now on they are "
                "kept in %s alone. An oracle of Omid's must not take over any more unless it keeps "
                "them there too: it would issue timestamps twice",
                omid_ceiling,
                TIMESTAMP_TABLE,
            )
        # The low watermark first: a predecessor that does not know yet that it is none raises its
        # ceiling ahead of it, so that a ceiling which is read behind it lies above.
        low_watermark = self._control.read_number(LOW_WATERMARK_FACT) or Timestamp(0)
        own = self._ceiling.read()
        # Whatever wrote it: clients believe no timestamp between two steps.
        stored = step_from(max(own, omid_ceiling))
        if not stored and (not low_watermark or self._initial_timestamp is not None):
            stored = self._initial_ceiling(settings, now, accept_clock=accept_clock)
        elif stored and self._may_be_stale(stored, is_omids=omid_ceiling > own):
            if self._initial_timestamp is not None:
                chosen = self._initial_ceiling(settings, now, accept_clock=accept_clock)
                stored = max(stored, chosen)
            refuse_stale(self._store, stored)
        if low_watermark > stored:
            raise ConfigError(
                f"the low watermark of {self._store.url} is {low_watermark}, above its timestamp "
                f"ceiling {stored}: {TIMESTAMP_TABLE} was lost or restored from an old copy. "
                "Restore the whole store, or timestamps would be issued twice; if that cannot be, "
                "start once with --initial-timestamp N, above every timestamp that was issued"
            )
        first = first_candidate(settings, now, stored, accept_clock=accept_clock)
        epoch: int = stored
        if not stored:
            # Recorded before the first ceiling, hence before any timestamp.  An instance that died
            # in between may have left a record, which then stands.
            self._control.replace(FIRST_TIMESTAMP_FACT, None, encode_long(first))
            recorded = self._control.read_number(FIRST_TIMESTAMP_FACT) or Timestamp(first)
            epoch = recorded - TIMESTAMP_STEP
        elif self._control.read(FIRST_TIMESTAMP_FACT) is None:
            # Omid issued timestamps here before us, and kept no note of the first: any may be its.
            self._control.replace(ADOPTED_CEILING_FACT, None, encode_long(stored))
            self._control.replace(FIRST_TIMESTAMP_FACT, None, encode_long(TIMESTAMP_STEP))
        ceiling = max(first, epoch + TIMESTAMP_STEP) + settings.lookahead
        self._ceiling.raise_to(ceiling)
        # Still ours, so what was read was no successor's ceiling, below which it goes on to commit.
        # A lease holder that comes after us finds a ceiling, and hence an epoch, above our epoch.
        self._lease.check()
        self._control.raise_number(EPOCH_FACT, epoch)
        self._low_watermark = self._control.raise_number(LOW_WATERMARK_FACT, epoch)
        if self._is_guarded and self._store.capabilities.readers_write:
            self.writer_key = make_writer_key(self._store)
        samples = Watermarks(self._control).samples()
        return Inherited(
            epoch=epoch,
            ceiling=ceiling,
            samples=tuple(sample.elapsed_ms for sample in samples),
            last_sample=samples[-1] if samples else None,
            follows_omid=self._control.read(ADOPTED_CEILING_FACT) is not None,
        )

    def _may_be_stale(self, ceiling: int, *, is_omids: bool) -> bool:
        """Say whether Omid may have issued timestamps above a ceiling, of which it is no bound.

        It is one of Omid's, or Omid has served the store since.  Its low watermark tells, which
        readers take before ours if it is greater (I4), and which lies below its true ceiling.
        """
        if is_omids or self._control.read(FIRST_TIMESTAMP_FACT) is None:
            return True
        return read_java_low_watermark(self._store) > ceiling

    def _initial_ceiling(self, settings: Settings, now: Now, *, accept_clock: bool) -> Timestamp:
        """Return where a store without a ceiling goes on; 0 if it is fresh."""
        now_ts = now.wall_ms * TIMESTAMPS_PER_MS
        ceiling = initial_ceiling(self._store, self._initial_timestamp, now_ts=now_ts)
        check_initial(settings, now, ceiling, accept_clock=accept_clock)
        return ceiling

    # -- batches -------------------------------------------------------------------------------

    def flush(self, batch: Batch[Ticket]) -> FlushResult:
        """Make a batch durable and read what it asks for.

        Raises:
            LeaseLost: the lease, or the ceiling, is another's; nothing may be answered.
            StorageUnavailable: anything may have been written; flush the batch again.

        Cost: 1 guarded write; or 1 round trip for a few commits and the lease; or 1 write of the
        commits, then at once 1 get of the lease and, for more than one commit, 1 of the ceiling or
        of their invalidations.  1 write for each other kind of thing, and 1 get for the lookups.
        """
        entries: dict[int, CommitEntry] = {}
        if self._is_guarded:
            self._lease.renew_if_due()
            refused = self._write_guarded(batch, entries)
        else:
            assert not batch.groups, "only a store with guarded batches is given cells"
            self._lease.renew_if_due(before_check=needs_check(batch))
            refused = self._write_plain(batch, entries)
        with _BEHIND_A_WRITE:
            return self._read_behind(batch, refused, entries)

    def _read_behind(
        self, batch: Batch[Ticket], refused: frozenset[int], entries: dict[int, CommitEntry]
    ) -> FlushResult:
        """Read what a batch that is durable asks for."""
        unread = [start_ts for start_ts in batch.invalidations if start_ts not in entries]
        prune_horizon = 0
        if wanted := [Timestamp(start_ts) for start_ts in [*unread, *batch.lookups]]:
            entries |= self._read_entries(wanted)
            prune_horizon = self._read_prune_horizon()
        unwritable = self._unwritable(refused, batch)
        return FlushResult(refused, entries, prune_horizon, unwritable)

    def _read_prune_horizon(self) -> int:
        """Return below what entries may be gone: all may, where that cannot be read."""
        try:
            return self._control.read_number(PRUNE_HORIZON) or 0
        except CorruptCell:
            logger.exception("an absent commit entry tells nothing; whoever asked gets no answer")
            return MAX_VERSION

    def _read_entries(self, start_timestamps: list[Timestamp]) -> dict[int, CommitEntry]:
        """Read commit entries; one that cannot be decoded counts as none, and nothing is said."""
        try:
            return dict(self._commit_table.read(start_timestamps).items())
        except CorruptCell:
            if len(start_timestamps) > 1:
                parts = [self._read_entries([start_ts]) for start_ts in start_timestamps]
                return {start_ts: entry for part in parts for start_ts, entry in part.items()}
            logger.exception("a commit entry cannot be read; whoever asked gets no answer")
            return {start_timestamps[0]: None}

    def _write_guarded(
        self, batch: Batch[Ticket], entries: dict[int, CommitEntry]
    ) -> frozenset[int]:
        """Write a batch as one transaction; return the commits that an invalidation forbade."""
        mutations: list[GuardedMutation | Entries | CellGroup] = []
        if batch.commits:
            mutations.append(commit_entries(batch.commits))
        mutations += [cell_group(*group) for group in batch.groups]
        mutations += [invalidation(start_ts) for start_ts in batch.invalidations]
        if batch.ceiling is not None:
            mutations.append(self._ceiling.mutation(batch.ceiling))
        mutations += [GuardedMutation(CONTROL_TABLE, mutation) for mutation in facts_of(batch)]
        if not mutations:
            if self._lease.needs_check:
                self._lease.check()
            return frozenset()
        # The lease is looked at in the write itself: an oracle that stood still until another one
        # served writes no ceiling and no entry any more (I1).
        applied = self._store.write_guarded(mutations, guard=self._lease.guard, durable=True)
        if applied is None:
            reached("oracle.guard_refused", "I1")
            raise self._lease.lost()
        with _BEHIND_A_WRITE:
            return self._check_guarded(batch, entries, applied)

    def _check_guarded(
        self, batch: Batch[Ticket], entries: dict[int, CommitEntry], applied: Sequence[bool]
    ) -> frozenset[int]:
        """Look at what became of a batch that was written as one transaction; as there."""
        if self._lease.needs_check:
            self._lease.check()
        count = len(batch.commits) + len(batch.groups)
        for start_ts, was_applied in zip(batch.invalidations, applied[count:], strict=False):
            if was_applied:
                entries[start_ts] = INVALID
        if batch.ceiling is not None:
            index = count + len(batch.invalidations)
            self._ceiling.note(batch.ceiling, was_applied=applied[index])
        self._low_watermark = max(self._low_watermark, batch.low_watermark or 0)
        refused = {
            start_ts
            for (start_ts, _), was_applied in zip(batch.commits, applied, strict=False)
            if not was_applied
        }
        written = applied[len(batch.commits) : count]
        for group, was_written in zip(batch.groups, written, strict=True):
            # An earlier attempt of this batch may have written it, and have seemed to fail.
            if not was_written and not self._has_shadow_cell(group[2]):
                refused.add(group[0])
        return frozenset(refused)

    def _has_shadow_cell(self, cells: TableCells) -> bool:
        """Say whether the cells of a transaction are there, as committed, in one table at least."""
        for table, records in cells.items():
            with suppress(NoSuchFamily):  # dropped since, as tables may be; the others tell
                shadow, _ = witness_state(self._store, table, Cell(*records[0]))
                if shadow is not None:
                    return True
        return False

    def _unwritable(self, refused: frozenset[int], batch: Batch[Ticket]) -> frozenset[int]:
        """Return those of the commits with cells that no invalidation forbade."""
        asked = [Timestamp(start_ts) for start_ts, _, _ in batch.groups if start_ts in refused]
        if not asked:
            return frozenset()
        return frozenset(
            start_ts
            for start_ts, entry in self._read_entries(asked).items()
            if entry is not INVALID
        )

    def _write_plain(self, batch: Batch[Ticket], entries: dict[int, CommitEntry]) -> frozenset[int]:
        """Write a batch without a transaction, and make sure that it was ours to write.

        Returns:
            The commits that an invalidation forbade.
        """
        with _BEHIND_A_WRITE:  # which of them was the first to write does not count here
            return self._write_one_by_one(batch, entries)

    def _write_one_by_one(
        self, batch: Batch[Ticket], entries: dict[int, CommitEntry]
    ) -> frozenset[int]:
        """Write the kinds of things in a batch, each by itself; as `_write_plain`."""
        # First: no timestamp above a ceiling is told before that is durable (I1).
        if batch.ceiling is not None:
            self._ceiling.raise_to(batch.ceiling)
        refused = self._write_ahead(batch)
        if refused is None:
            refused = self._write_in_steps(batch, entries)
        if facts := facts_of(batch, with_low_watermark=False):
            self._store.write({CONTROL_TABLE: facts}, durable=True)
        # Last: whoever reads it finds every decision at or below it (I4).
        if batch.low_watermark is not None:
            self._raise_low_watermark(batch.low_watermark)
            self._low_watermark = max(self._low_watermark, batch.low_watermark)
        return refused

    def _raise_low_watermark(self, to: int) -> None:
        """Raise the low watermark; what stands there and cannot be read is written over."""
        try:
            self._control.raise_number(LOW_WATERMARK_FACT, to)
        except CorruptCell:
            # A predecessor that writes here after its successor lowers nothing that counts: no
            # transaction at or below its own comes to commit either, and the successor's epoch is
            # a fact of its own.
            logger.exception("the low watermark is written anew, as %d", to)
            raw = self._control.read(LOW_WATERMARK_FACT)
            self._control.replace(LOW_WATERMARK_FACT, raw, encode_long(to))

    def _write_in_steps(
        self, batch: Batch[Ticket], entries: dict[int, CommitEntry]
    ) -> frozenset[int]:
        """Write entries and invalidations, then look at the lease; return the forbidden commits."""
        refused: frozenset[int] = frozenset()
        if len(batch.commits) == 1:
            refused = self._write_commit(*batch.commits[0])
        elif batch.commits:
            mutations = [commit_entry(*commit).mutation for commit in batch.commits]
            self._store.write({COMMIT_TABLE: mutations})
        for start_ts in batch.invalidations:
            if self._commit_table.invalidate(Timestamp(start_ts)):
                entries[start_ts] = INVALID
        if len(batch.commits) > 1:
            if batch.may_be_invalidated:
                refused = self._check_with_invalidations(batch)
            else:
                self._check_with_ceiling()
        elif needs_check(batch):
            self._lease.check()
        return refused

    def _write_ahead(self, batch: Batch[Ticket]) -> frozenset[int] | None:
        """Write entries and look at the lease, without a wait in between.

        A few are written on condition; more of them where no condition is needed.

        Returns:
            The commits that an invalidation forbade; None if it was not done, or not surely, so
            that the batch must be written step by step.

        Raises:
            LeaseLost: the entries may be written, and nothing may be answered.
        """
        proof = self._lease.proof
        if self._ahead is None or proof is None or batch.invalidations or not batch.commits:
            return None
        are_few = len(batch.commits) <= MAX_AHEAD_COUNT
        if not are_few and (batch.may_be_invalidated or len(batch.commits) > MAX_PUT_AHEAD_COUNT):
            return None
        try:
            if are_few:
                changes = [commit_entry(*commit) for commit in batch.commits]
                applied, is_ours = self._ahead.write_then_check(changes, proof)
                is_unmoved = True
            else:
                reached("oracle.put_then_check", "I2")
                applied = []
                is_ours, is_unmoved = self._ahead.put_then_check(
                    commit_entries(batch.commits), [proof, self._ceiling.unmoved]
                )
        except StorageUnavailable as error:
            # A broken connection, or a region that moves: the calls for one thing wait and repeat.
            reached("oracle.ahead_failed", "I2")
            logger.info("a batch is written step by step: %s", error)
            return None
        if not is_ours:
            reached("oracle.deposed_behind_its_write", "I1")
            raise self._lease.lost()
        if not is_unmoved:
            raise self._ceiling.lost(self._ceiling.find())
        return frozenset(
            start_ts
            for (start_ts, _), was_applied in zip(batch.commits, applied, strict=False)
            if not was_applied
        )

    def _write_commit(self, start_ts: int, commit_ts: int) -> frozenset[int]:
        """Write a lone commit entry, unless an invalidation stands."""
        commit = commit_entry(start_ts, commit_ts)
        was_applied = self._store.check_and_mutate(
            COMMIT_TABLE, commit.mutation.row, INVALIDATION, None, commit.mutation
        )
        return frozenset() if was_applied else frozenset((start_ts,))

    def _check_with_ceiling(self) -> None:
        """Check the lease, and at the same time that no instance of Omid's began without it."""
        reached("oracle.check_with_ceiling", "I2")
        reading = begun(self._reader.submit, self._ceiling.find)
        try:
            self._lease.check()
        finally:
            wait((reading,))
        found = reading.result()
        if not self._ceiling.is_ours(found):
            raise self._ceiling.lost(found)

    def _check_with_invalidations(self, batch: Batch[Ticket]) -> frozenset[int]:
        """Check the lease, and read at the same time which commits an invalidation forbade."""
        reached("oracle.check_with_invalidations", "I9")
        rows = [commit_row(start_ts) for start_ts, _ in batch.commits]
        # The entries come along, which are there for sure: of rows without cells a store on HBase
        # learns nothing about how many it may ask for at once, and asks for one by one.
        columns = COMMIT, INVALIDATION
        reading = begun(
            self._reader.submit,
            self._store.get,
            COMMIT_TABLE,
            rows,
            columns=columns,
            max_versions=1,
        )
        try:
            self._lease.check()
        finally:
            wait((reading,))
        found = zip(batch.commits, reading.result(), strict=True)
        return frozenset(
            start_ts
            for (start_ts, _), cells in found
            if any((cell.family, cell.qualifier) == INVALIDATION for cell in cells)
        )


class _BehindAWrite:
    """Lets no failure say that nothing was written, where something was, or may have been.

    A caller would take it for an abort that is certain, and the commit is in the store (I9).
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(exc, StorageError):
            exc.wrote_nothing = False


_BEHIND_A_WRITE: Final = _BehindAWrite()


class NoPersistence:
    """Persists nothing: for benchmarks on the loopback interface only.

    What it loses: after a restart timestamps may be issued twice and decided transactions decided
    again.
    """

    is_instant = True
    writer_key: bytes | None = None

    def start(self, settings: Settings, now: Now, *, accept_clock: bool) -> Inherited:
        """Begin as if the store were empty."""
        del accept_clock
        epoch = now.wall_ms * TIMESTAMPS_PER_MS if settings.timestamps == "world" else 0
        return Inherited(epoch=epoch, ceiling=epoch + settings.lookahead)

    def flush(self, batch: Batch[Ticket]) -> FlushResult:
        """Claim that the batch is durable."""
        if not batch.lookups and not batch.invalidations:
            return NOTHING_FOUND
        entries: dict[int, CommitEntry] = dict.fromkeys(batch.lookups)
        entries.update(dict.fromkeys(batch.invalidations, INVALID))
        return FlushResult(entries=entries)
