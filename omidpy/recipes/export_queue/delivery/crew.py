"""Which buckets are this process's to export?  Shared out between all that are alive.

A process that exports is a worker (`life/members.py`): it shows signs of life, a judge sees by its
own monotonic clock when they end, and on one file its death shows at once.  The row of a bucket
names its owner.  What no living worker owns may be taken, by compare-and-set and with the next
epoch; a worker that has more than its share gives some back.

A worker that was paused for longer than its lease finds its buckets in other hands.  It notices
before the next batch, because it trusts itself for less than its lease, and at the latest when the
cursor does not move (X2), so that it removes nothing (X9).  What it was handing to its receiver at
that time still arrives: the receiver refuses it by `seq`, or by the fence, and what it answers then
says nothing of whether those entries were ever delivered.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from omidpy.base.reach import reached
from omidpy.errors import OmidError
from omidpy.fate.table.store import TableFateStore
from omidpy.life.heart import BEATS_PER_LEASE, beat_until
from omidpy.recipes.export_queue.entries.dead import spoil_claims
from omidpy.recipes.export_queue.entries.possession import BucketLost
from omidpy.recipes.export_queue.entries.stored.state import (
    BucketRows,
    BucketState,
    Raw,
    fence_of,
    next_epoch,
    table_name,
)

if TYPE_CHECKING:
    from omidpy.base.timing.clock import Clock
    from omidpy.life.base import Member
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places
    from omidpy.storage.base import RowMutation

log = logging.getLogger(__name__)

LEASE_S: Final = 10.0


class BucketLease:
    """The right of this process to export one bucket."""

    def __init__(self, rows: BucketRows, raw: Raw, worker: Member) -> None:
        self._rows = rows
        self._raw = raw
        self._worker = worker
        self._is_lost = False
        self.is_in_doubt = False
        """Whether the receiver may have more than the state says."""
        self.is_torn = False
        """Whether a transaction of ours, by which entries are set aside, may still commit."""

    @property
    def bucket(self) -> int:
        """The number of the bucket."""
        return self._raw.bucket

    @property
    def state(self) -> BucketState:
        """How far it has come."""
        return self._raw.state

    @property
    def fence(self) -> int:
        """What is greater than that of every earlier owner, of earlier queues of this id too."""
        return fence_of(self._rows.number, self._raw.state.epoch)

    @property
    def is_lost(self) -> bool:
        """Whether another worker was seen to have it."""
        return self._is_lost

    def check(self) -> None:
        """Raise `BucketLost` where another worker may have it by now."""
        if self._is_lost or not self._worker.is_trusted():
            reached("export.showed_no_life", "X2")
            raise BucketLost(f"bucket {self.bucket}: this process has shown no life for too long")

    @property
    def removes_at_once(self) -> bool:
        """Whether what `update` removes goes in one change with the state."""
        return self._rows.is_atomic

    def confirm(self) -> None:
        """Raise `BucketLost` where another worker has it.  Cost: 1 get."""
        if self._is_lost or not self._rows.is_as(self._raw):
            self._is_lost = True
            raise BucketLost(f"bucket {self.bucket} is in other hands")

    def update(self, *, removing: Sequence[RowMutation] = (), **changes: Any) -> None:
        """Change its state, and remove what was delivered with that (X9).

        Raises:
            BucketLost: it is another worker's; nothing was changed.
        """
        state = msgspec.structs.replace(self._raw.state, **changes)
        if state == self._raw.state and not removing:
            return
        raw = self._rows.replace(self._raw, state, removing)
        if raw is None:
            reached("export.deposed", "X9")
            self._is_lost = True
            raise BucketLost(f"bucket {self.bucket} is in other hands")
        self._raw = raw
        # Only what says so ends a doubt: counts and the like are noted in the midst of one, too.
        self.is_in_doubt = self.is_in_doubt and changes.get("is_unsure") is not False

    def give_back(self) -> None:
        """Let any worker take it; nothing happens where one has."""
        if not self._is_lost:
            state = msgspec.structs.replace(
                self._raw.state,
                owner=None,
                is_unsure=self._raw.state.is_unsure or self.is_in_doubt,
                # Our burial may commit once the next owner has delivered what it sets aside.
                is_torn=self._raw.state.is_torn or self.is_torn,
            )
            self._rows.replace(self._raw, state)
        self._is_lost = True


class Sight(NamedTuple):
    """What a look at the buckets has shown."""

    excess: int
    """How many of ours are more than our share."""
    of_others: list[int]
    """Buckets in the hands of others who live, or seem to."""
    problems: list[str]
    """Why there are buckets that no worker can take."""


class Crew:
    """A process among those that export one queue.  One thread at a time, but for its heart."""

    def __init__(
        self,
        tm: TransactionManager,
        places: Places,
        definition: Definition,
        *,
        lease_s: float = LEASE_S,
        clock: Clock | None = None,
    ) -> None:
        """Prepare to join; nothing is written."""
        self._tm = tm
        self._table = table_name(places.queue_id, definition.number)
        self._control = tm.session.control
        self._prefix = places.runners(definition.number)
        self._rows = BucketRows(tm.session.control, places, definition)
        self._count = definition.buckets
        self._clock = clock or tm.session.clock
        self._lease_s = lease_s
        self._store = TableFateStore(tm.store)
        self._judge = self._store.new_judge(self._clock)
        self.worker: Member | None = None
        self._heart: threading.Thread | None = None
        self._is_over = threading.Event()
        self._takes_all = False
        self._problems: list[str] = []
        self.leases: dict[int, BucketLease] = {}

    def join(self, *, takes_all: bool = False, with_heart: bool = True) -> None:
        """Become a worker, which shows life until it leaves.

        Args:
            takes_all: Whatever is free is ours, and no worker shares with us: for a short while.
            with_heart: By a thread of its own; else only `look` shows it.
        """
        self._takes_all = takes_all
        self.worker = self._store.new_worker(lease_s=self._lease_s, clock=self._clock)
        if not takes_all:
            self._control.write(self._prefix + self.worker.id.encode(), b"{}")
        if with_heart and self._heart is None:
            self._heart = threading.Thread(
                target=_beat,
                args=(weakref.ref(self), self._is_over, self._lease_s / BEATS_PER_LEASE),
                name="export-heart",
                daemon=True,
            )
            self._heart.start()

    def look(self) -> Sight:
        """Take what no living worker has, up to our share, and forget what is lost.

        Cost: 2 RPCs and a scan, 1 for each bucket that is taken, and a transaction for each that
        was not given back.
        """
        worker = self._living()
        states = self._rows.read()
        runners = [row.removeprefix(self._prefix).decode() for row, _ in self._runners()]
        owners = {raw.state.owner for raw in states if raw.state.owner is not None}
        dead = self._judge.dead({*owners, *runners} - {worker.id})
        for runner in dead.intersection(runners):
            self._control.forget([self._prefix + runner.encode()])
        living = {*runners, worker.id} - dead
        # Rounded up: every bucket has an owner, also where the shares do not come out even.
        fair = self._count if self._takes_all else -(-self._count // len(living))
        self._drop_lost(states, worker.id)
        others = []
        for raw in states:
            owner = raw.state.owner
            if raw.bucket in self.leases or raw.problem:
                continue
            if owner is not None and owner != worker.id and owner not in dead:
                others.append(raw.bucket)
            elif len(self.leases) < fair:
                self._take(raw, worker)
            elif owner == worker.id:
                # Given up when the store could not be reached: to all others we have it still.
                self._let_go(raw)
        problems = [raw.problem for raw in states if raw.problem]
        if problems and problems != self._problems:
            log.warning("%s", "; ".join(problems))
        self._problems = problems
        return Sight(len(self.leases) - fair, others, problems)

    def leave(self) -> None:
        """Give every bucket back, so that other exporters need not wait."""
        self._is_over.set()
        if self._heart is not None and self._heart.ident is not None:
            self._heart.join()
        worker, self.worker = self.worker, None
        if worker is None:
            return
        try:
            # Before the worker retires: of a row that still names it the next owner cannot tell
            # whether a batch is under way.
            for lease in self.leases.values():
                lease.give_back()
            if not self._takes_all:
                self._control.forget([self._prefix + worker.id.encode()])
        except OmidError as error:
            log.info("buckets are free when the lease of this process ends: %s", error)
        finally:
            self.leases.clear()
            worker.retire()

    def _living(self) -> Member:
        """Return our worker, or a new one in place of one that was taken for dead."""
        worker = self.worker
        assert worker is not None, "joined before"
        if self._heart is None:
            worker.beat()
        if worker.is_trusted():
            return worker
        # Others may have the buckets by now, and none of ours is used before it is looked at anew.
        self.leases.clear()
        if not worker.beat():
            reached("export.joined_anew", "X2")
            log.warning("this process was taken for dead, and joins anew")
            worker.retire()
            self.join(takes_all=self._takes_all, with_heart=False)
            worker = self.worker
            assert worker is not None, "joined just now"
        return worker

    def _runners(self) -> list[tuple[bytes, bytes]]:
        return list(self._control.scan(self._prefix))

    def _take(self, raw: Raw, worker: Member) -> None:
        state = msgspec.structs.replace(
            raw.state,
            owner=worker.id,
            epoch=next_epoch(raw.state.epoch, wall_ms=self._clock.wall_ms()),
            stopped="",
            is_torn=False,
            # An owner that ends gives its buckets back; from another one a batch may be under way.
            is_unsure=raw.state.is_unsure or raw.state.owner is not None,
        )
        # A compare-and-set of the row as it was read: of two that want the bucket one has it (X2).
        taken = self._rows.replace(raw, state)
        if taken is None:
            reached("export.another_was_faster", "X2")
            return
        # Behind the change, which says that there is a worker whose transactions must not commit:
        # who dies in between, or cannot reach the oracle, leaves a row that names an owner.
        self._spoil(raw)
        self.leases[raw.bucket] = BucketLease(self._rows, taken, worker)

    def _spoil(self, raw: Raw) -> None:
        if raw.state.owner is not None or raw.state.is_torn:
            reached("export.taken_over", "X11")
            spoil_claims(self._tm, self._table, raw.bucket)

    def _let_go(self, raw: Raw) -> None:
        self._spoil(raw)
        self._rows.replace(raw, msgspec.structs.replace(raw.state, owner=None, is_unsure=True))

    def _drop_lost(self, states: list[Raw], worker_id: str) -> None:
        for raw in states:
            lease = self.leases.get(raw.bucket)
            if lease is not None and (
                lease.is_lost
                or raw.state.owner != worker_id
                or raw.state.epoch != lease.state.epoch
            ):
                del self.leases[raw.bucket]


def _beat(crew: weakref.ref[Crew], is_over: threading.Event, every_s: float) -> None:
    """Show life until that is over, or the crew is referred to no more.

    An interrupt may come before `leave` is through: the leases must end then all the same.
    """

    def worker() -> Member | None:
        living = crew()
        return None if living is None else living.worker

    def beat() -> None:
        if (living := worker()) is not None:
            living.beat()

    beat_until(
        lambda pause_s: is_over.wait(pause_s) or worker() is None,
        beat,
        every_s=every_s,
        who="this process",
        log=log,
    )
