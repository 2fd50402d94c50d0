"""The facts that a store has once: which cannot be read, and what may they be taken for?

Of claims, samples or holds one more or less is an obstacle of its own.  But there is one low
watermark and one ceiling of timestamps, and a process that needs such a number stops where it
cannot be read.  So a check looks at each of them first, and a repair sets it where a value is safe
whatever the true one was:

    epoch                the low watermark, which never lies below it; else what the lease says.
                         Readers forbid a commit below it, and the watermark forbids it already
    low-watermark        the greatest of what was relied on: the epoch, claims, horizons.  The true
                         one is no lower, so that nothing at or below that comes to commit.  Else
                         the ceiling, while no oracle lives: the next begins there
    prune-horizon        the low watermark: the true one is no higher, and nothing is deleted by
                         this number; the oracle only answers less about what lies below
    collection-intent    the low watermark: fewer snapshots may be held
    collection-horizon   the intent, else the low watermark: more snapshots are refused, and no
                         version is dropped by this number but by the log of horizons
    collection-log       no horizon: none is old enough to be acted upon
    Omid's low watermark 0: ours stands beside it, and Java's coprocessor drops nothing by that
    lease                given up, while no oracle lives
    ceiling              in world time, while no oracle lives: two minutes above the clock, and
                         above whatever the oracle has issued by the samples that it left each
                         minute, by entries and by cells, none of which may be ahead of the clock
    operations-format    ours, if every operation can be read: what a newer version wrote may not be
    first-timestamp      the first of all, where Omid's oracle served before, as ours writes it

Anything else an operator must say (`stated`): the first timestamp, and the ceiling that Omid left,
tell plain data from transactions, and both a higher and a lower one may lose some; of an oracle
that counts it is not known how far it had come, and where no lock speaks for an oracle not whether
one lives.  What he says must not contradict what can be read.

Each is written over the bytes that were copied, by a condition, and never removed.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from compactor.check.acts import Acts, left
from compactor.check.facts import (
    ADOPTED,
    CEILING,
    COLLECTED,
    EPOCH,
    FACTS,
    FIRST,
    INTENT,
    LEASE,
    LOG,
    LOW,
    OMIDS,
    OPERATIONS,
    PRUNED,
    ROOT,
    STATED,
    Fact,
    named,
    place,
    say,
)
from compactor.check.findings import Finding, Kind
from compactor.pruning.snapshot_holds import root_complaint
from omidpy.base.cells import decode_long, encode_long, is_shadow_qualifier
from omidpy.base.tables import is_system_table, transactional_families
from omidpy.base.timing.clock import Clock
from omidpy.errors import CorruptCell, NoSuchTable, StorageError, StorageUnavailable, UsageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.control import ControlTable, decode_bound, encode_document
from omidpy.facts.leadership import LEASE_FACT, LOCK_NAME, LeaseRecord, decode_lease
from omidpy.facts.tables.listing import all_tables
from omidpy.facts.watermarks import Watermarks
from omidpy.fate.store import FORMAT
from omidpy.fate.table.store import format_complaint, has_our_form
from omidpy.model import FIRST_WORLD_TIMESTAMP, TIMESTAMP_STEP, Cell
from omidpy.storage.base import Put, RowMutation, Store

NS_PER_S: Final = 1_000_000_000
CEILING_LEAD_S: Final = 120
"""A ceiling that is set lies so far above all that is known: the oracle leaves a sample a minute,
and issues no timestamp that is more than some seconds ahead of its own time."""
CLOCKS_DIFFER_S: Final = 10
"""A timestamp further ahead of the clock shows that the oracle does not follow this clock."""


class Remedy(NamedTuple):
    """What a fact is to become."""

    value: bytes
    ground: str


class _Unknown(Exception):
    """No value is known to be safe; its text says why, and what to do."""


class Singletons:
    """Looks at every single fact of a store, and mends what it can."""

    def __init__(self, store: Store, *, clock: Clock, stated: Mapping[str, int]) -> None:
        """Look at nothing yet.

        Args:
            store: Whose facts.
            clock: For the date.
            stated: What an operator says of facts that cannot be read, by name.

        Raises:
            UsageError: he says something of a fact of which only the store can tell.
        """
        self._store = store
        self._control = ControlTable(store)
        self._clock = clock
        self._stated = stated
        self._acts = Acts(store, now_ms=clock.wall_ms)
        self._numbers: dict[str, int | None] = {}
        """What can be read; None: it was never set."""
        known = [fact.name for fact in STATED]
        if unknown := sorted(stated.keys() - known):
            raise UsageError(
                f"--set {unknown[0]}=... says what nobody has to say; these can be said: "
                f"{', '.join(known)}"
            )

    def look(self) -> list[tuple[Fact, Cell, Finding]]:
        """Return the facts that cannot be read, with their bytes, in the order of `FACTS`.

        Raises:
            UsageError: an operator said what one is that can be read.

        Cost: 13 gets.
        """
        bad = []
        for fact in FACTS:
            cell = self._cell(fact)
            complaint = self._complaint(fact, cell)
            if complaint and cell is not None:
                detail = f"the fact {fact.name}: {complaint.split(';')[0]}; with it, {fact.stops}"
                bad.append((fact, cell, Finding(Kind.MALFORMED_FACT, *place(fact), detail=detail)))
        if said := sorted(self._stated.keys() - {fact.name for fact, _, _ in bad}):
            raise UsageError(f"--set {said[0]}=...: it can be read, and is not set by hand")
        return bad

    def mend(self, fact: Fact, cell: Cell, finding: Finding) -> Finding | None:
        """Mend one that cannot be read; None if it is not what it was any more.

        Call it in the order of `FACTS`.
        """
        with contextlib.ExitStack() as held:
            try:
                which = self._acts.which(fact.table)
                remedy = self._remedy(fact, held)
                put = Put(*cell[1:4], remedy.value)
                shown = int.from_bytes(remedy.value) if fact.holds_number else remedy.value.decode()
                intent = f"written over with {shown}: {remedy.ground}"
                change = RowMutation(cell.row, puts=(put,))
                found = self._acts.act(fact.table, which, [cell], change, intent, finding)
            except (_Unknown, StorageError) as error:
                return left(finding, str(error))
        if found is not None and found.repaired and fact.holds_number:
            self._numbers[fact.name] = int.from_bytes(remedy.value)
        return found

    # -- what can be read ----------------------------------------------------------------------

    def _cell(self, fact: Fact) -> Cell | None:
        try:
            (cells,) = self._store.get(
                fact.table, (fact.row,), columns=(fact.column,), max_versions=1
            )
        except NoSuchTable:
            return None
        return cells[0] if cells else None

    def _complaint(self, fact: Fact, cell: Cell | None) -> str:
        """Say why a fact cannot be read; empty if it can, or was never set.  Note a number."""
        try:
            if fact.holds_number:
                number = None if cell is None else decode_bound(cell.value, what=named(fact))
                self._numbers[fact.name] = number
            elif fact is LEASE and cell is not None:
                decode_lease(cell.value)
        except CorruptCell as error:
            return str(error)
        if fact is OPERATIONS:
            return "" if cell is None else format_complaint(cell.value)
        if fact is LOG:
            return Watermarks(self._control).log_complaint()
        return root_complaint(self._control) if fact is ROOT else ""

    def _known(self, fact: Fact) -> int:
        """Return a number that can be read, 0 if it was never set.

        Raises:
            _Unknown: it cannot be read.
        """
        if fact.name not in self._numbers:
            raise _Unknown(f"it would rest on the fact {fact.name}, which cannot be read either")
        return self._numbers[fact.name] or 0

    # -- what it may be taken for --------------------------------------------------------------

    def _remedy(self, fact: Fact, held: contextlib.ExitStack) -> Remedy:
        if fact.name in self._stated:
            return self._as_stated(fact, held)
        match fact.name:
            case EPOCH.name:
                return self._epoch()
            case LOW.name:
                return self._low_watermark(held)
            case PRUNED.name | INTENT.name:
                return self._no_lower()
            case COLLECTED.name:
                intent = self._known(INTENT)
                if intent:
                    return _number(intent, "the fact collection-intent, which is no lower")
                return self._no_lower()
            case OMIDS.name:
                return self._omids_low_watermark()
            case CEILING.name:
                return self._ceiling(held)
            case FIRST.name if self._cell(ADOPTED) is not None:
                return _number(TIMESTAMP_STEP, "Omid's oracle served before, so that any may be")
            case LEASE.name:
                self._keep_oracles_out(held)
                free = LeaseRecord("", "", None, 0, "", 0, uuid.uuid4().int % 2**48)
                return Remedy(encode_document(free), "given up, since no oracle lives")
            case LOG.name:
                return Remedy(encode_document([]), "no horizon counts as old enough")
            case OPERATIONS.name:
                if not has_our_form(self._store):
                    raise _Unknown(
                        "some operations cannot be read either, so that a newer omidpy may have "
                        "written them: upgrade, or see `omidpy fate list` for those that are left "
                        "once the table is restored from a backup"
                    )
                return Remedy(b"%d" % FORMAT, "the format in which every operation is read")
            case ROOT.name:
                raise _Unknown(
                    "`omidpy compact --hbase-root FOLDER` says where snapshots are, `--hbase-root "
                    "none` that they are of no account"
                )
        raise _Unknown(
            f"only you can know it: `--repair --set {fact.name}=NUMBER` sets it, see the guide to "
            "fsck; restoring the store from a backup brings it back"
        )

    def _epoch(self) -> Remedy:
        if self._numbers.get(LOW.name):
            return _number(self._known(LOW), "the low watermark, which is no lower")
        if (epoch := self._epoch_of_lease()) is not None:
            return _number(epoch, "the epoch in the lease")
        raise _Unknown("it would rest on the low watermark, or on the epoch in the lease")

    def _no_lower(self) -> Remedy:
        """Return what no horizon is above, nor any claim, which is what it came from."""
        claims = [claim.watermark for claim in Watermarks(self._control).claims()]
        number = max([self._known(LOW), *claims])
        return _number(number, "the low watermark and all claims, which are no lower")

    def _low_watermark(self, held: contextlib.ExitStack) -> Remedy:
        with contextlib.suppress(_Unknown):
            if (relied_on := self._relied_on()) and relied_on <= self._known(CEILING):
                return _number(relied_on, "what was relied on, which is no higher")
        ceiling = self._known(CEILING)
        if not ceiling:
            raise _Unknown(f"no ceiling of timestamps is recorded; {say(LOW)}")
        self._keep_oracles_out(held, instead=LOW)
        return _number(ceiling, "the ceiling, where the next oracle begins")

    def _relied_on(self) -> int:
        """Return the greatest number that the low watermark is known not to lie below.

        Raises:
            _Unknown: one of them cannot be read, so that the number might be lower than that one.
        """
        numbers = [self._known(fact) for fact in (EPOCH, PRUNED, INTENT, COLLECTED)]
        if not numbers[0]:
            raise _Unknown("the fact epoch was never set")
        return max(*numbers, *(one.watermark for one in Watermarks(self._control).claims()))

    def _omids_low_watermark(self) -> Remedy:
        if not self._known(LOW):
            raise _Unknown(
                "no oracle of ours has served here; Omid's writes it when its low watermark rises"
            )
        # The coprocessor drops by it what snapshots need, and more (decision 81).
        return _number(0, "our low watermark stands beside it")

    def _ceiling(self, held: contextlib.ExitStack) -> Remedy:
        self._keep_oracles_out(held, instead=CEILING)
        newest, now_ts = self._newest(), self._clock.wall_ms() * 1_000_000
        if newest < FIRST_WORLD_TIMESTAMP:
            raise _Unknown(
                f"the oracle counts, and {newest} is the newest that left a trace, but nobody "
                f"knows how far it had come; {say(CEILING)}, well above that"
            )
        if newest > now_ts + CLOCKS_DIFFER_S * NS_PER_S:
            raise _Unknown(
                f"{newest} was issued, which is ahead of the clock of this machine, {now_ts}; set "
                f"the clock, or {say(CEILING)}, well above both"
            )
        ceiling = max(newest, now_ts) + CEILING_LEAD_S * NS_PER_S
        ceiling = -(-ceiling // TIMESTAMP_STEP) * TIMESTAMP_STEP
        return _number(ceiling, f"{CEILING_LEAD_S} s above the clock and every trace")

    def _as_stated(self, fact: Fact, held: contextlib.ExitStack) -> Remedy:
        """Take an operator's word, if it does not contradict what can be read."""
        number, most = self._stated[fact.name], 2**62
        if fact is CEILING:
            least, most_of = self._newest() + 1, "what a timestamp can be"
        else:
            bound = CEILING if fact is LOW else LOW
            least, most_of = 1, f"the fact {bound.name}"
            most = self._numbers.get(bound.name) or most
        if fact is LOW:
            # Each that can be read: what was relied on is not undone by a lower one.
            readable = (EPOCH, PRUNED, INTENT, COLLECTED)
            least = max([1, *(self._numbers.get(one.name) or 0 for one in readable)])
            least = max([least, *(one.watermark for one in Watermarks(self._control).claims())])
        if fact is FIRST:
            rows = (row for page in CommitTable(self._store).scan() for row in page)
            entries = [row.start_ts for row in rows if not row.complaint]
            most, most_of = min([most, *entries]), "an entry of the commit table, or that"
        if not least <= number <= most:
            raise _Unknown(
                f"{number} was said, which lies below {least}, or above {most}, {most_of}"
            )
        if fact in (CEILING, LOW) and self._store.capabilities.process_locks:
            self._keep_oracles_out(held)
        return _number(number, "as an operator said")

    # -- evidence ------------------------------------------------------------------------------

    def _keep_oracles_out(self, held: contextlib.ExitStack, *, instead: Fact | None = None) -> None:
        """See to it that no oracle lives, until `held` is left.

        Raises:
            _Unknown: one does, or may.
        """
        if self._store.capabilities.process_locks:
            try:
                lock = self._store.lock(LOCK_NAME, purpose="mending facts of the store")
            except StorageUnavailable as error:
                raise _Unknown(f"stop the oracle, and run this again: {error}") from error
            held.callback(lock.release)
            return
        # No other begins meanwhile: it could not read the fact that is about to be mended.
        raw = self._control.read(LEASE_FACT)
        with contextlib.suppress(CorruptCell):
            if raw is not None and not decode_lease(raw).is_held:
                return
        if instead is None:
            raise _Unknown("the next `tso-server` takes it over: start one")
        raise _Unknown(
            "an oracle may live, since the lease was not given up; stop it, so that it gives it "
            f"up; or, if there certainly is none, {say(instead)}"
        )

    def _epoch_of_lease(self) -> int | None:
        raw = self._control.read(LEASE_FACT)
        with contextlib.suppress(CorruptCell):
            return None if raw is None else decode_lease(raw).epoch
        return None

    def _newest(self) -> int:
        """Return the newest timestamp that left a trace.

        Cost: reads the commit table and every transactional table.
        """
        watermarks = Watermarks(self._control)
        newest = max((0, *(number or 0 for number in self._numbers.values())))
        newest = max([newest, *(one.last_issued_ts for one in watermarks.samples())])
        newest = max([newest, *(one.watermark for one in watermarks.claims())])
        newest = max(newest, self._epoch_of_lease() or 0)
        for page in CommitTable(self._store).scan():
            for row in page:
                if not row.complaint:
                    commit_ts = row.entry if isinstance(row.entry, int) else 0
                    newest = max(newest, row.start_ts, commit_ts)
        for schema in all_tables(self._store):
            marked = transactional_families(schema)
            if marked and not is_system_table(schema.name):
                columns = [(family, None) for family in sorted(marked)]
                for rows in self._store.scan(schema.name, columns=columns):
                    newest = max([newest, *_timestamps(rows)])
        return newest


def _timestamps(rows: list[list[Cell]]) -> Iterator[int]:
    """Yield versions, and what shadow cells say that can be read."""
    for cells in rows:
        for cell in cells:
            yield cell.version
            if is_shadow_qualifier(cell.qualifier):
                with contextlib.suppress(CorruptCell):
                    yield decode_long(cell.value, what="a shadow cell")


def _number(number: int, ground: str) -> Remedy:
    return Remedy(encode_long(number), ground)
