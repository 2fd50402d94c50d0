"""What became durable, and what did oracles say on the wire?  Checks both against each other.

It sees every write at the moment at which it happens and every answer at the moment at which it is
sent, whichever instance sends it, so that it finds what no client may notice in time.  The names of
what it finds are those of the invariants:

    I1  every timestamp is issued once, and is above whatever was sent before it was asked for
    I2  a commit entry is durable when the answer leaves, and before any later timestamp does
    I4  a commit was durable before its own instance's low watermark passed its start_ts
    I8  a transaction is committed once, at one timestamp, and nobody is told otherwise
    I9  nobody who was told "aborted" is found committed
    fence           no transaction that began before a fence commits after it was told
    lost update     of two transactions that overlap, one alone commits a cell that both wrote
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final, TypeAlias

from omidpy.base.cells import (
    data_qualifier,
    decode_long,
    is_shadow_qualifier,
    start_ts_of_commit_row,
)
from omidpy.base.commit_facts import CommitEntry
from omidpy.base.tables import CONTROL_TABLE
from omidpy.facts.commit_table import COMMIT_TABLE, LOW_WATERMARK_FACT, CommitTable
from omidpy.facts.control import ControlTable
from omidpy.model import Timestamp, base
from omidpy.storage.base import CellGroup
from omidpy.storage.memory import MemoryStore
from omidpy.testing.history import Recorded, Told
from omidpy.wire.frames import FrameReader, decode_request, decode_response
from omidpy.wire.messages import (
    CommitRequest,
    CommitResponse,
    FenceResponse,
    InvalidateResponse,
    InvalidateVerdict,
    TimestampRequest,
    TimestampResponse,
)
from tests.machines.simulator.world import World

MAX_FRAME_BYTES: Final = 1024 * 1024
MAX_FINDINGS: Final = 20

CommittedIn: TypeAlias = Callable[[Sequence[int]], Mapping[int, set[int]]]
"""Says where transactions committed."""


class Sought(Exception):
    """What was looked for is found."""


def name_of(finding: str) -> str:
    """Return what is before the colon."""
    return finding.partition(":")[0]


class Watch:
    """Everything that is known of one store, over all instances of its oracle."""

    def __init__(
        self, world: World, *, forgets_decisions: bool = False, until_found: str | None = None
    ) -> None:
        """Begin with nothing.

        Args:
            world: Where it is.
            forgets_decisions: Oracles remember so few that a commit which is asked for anew, by who
                does not say that he asks again, may be refused though it was done.
            until_found: End the world once this is found, or one of these between `|`.
        """
        self._until_found = (until_found or "").split("|")
        self.world = world
        self._forgets_decisions = forgets_decisions
        self.findings: list[str] = []
        self.is_on_disk: Callable[[int], bool] = lambda _: True
        """Whether the commit of a transaction would outlive a loss of power."""
        self.another_leads_since_s: Callable[[], float | None] = lambda: None
        """Since when an oracle that is none of ours has the lease in ZooKeeper; None: none has."""
        self.newest_ts = 0
        """The highest timestamp that was sent."""
        self.begun_by_others: deque[int] = deque(maxlen=32)
        """The newest transactions that strangers hear of: none of their own, none of crowds."""
        self.settled: dict[int, set[int]] = {}
        """Where transactions are committed of which nobody knew before the end; empty: nowhere."""
        self._durable: dict[int, int] = {}
        """commit_ts by start_ts, from when the entry was first durable."""
        self._late: set[int] = set()
        """Transactions whose entry came after the low watermark had passed them."""
        self._low_watermark = 0
        self._begun: dict[int, str] = {}
        self._newest_of: dict[str, int] = defaultdict(int)
        """The newest start_ts that an instance sent."""
        self._owners: dict[int, int] = {}
        """start_ts by commit_ts."""
        self.committed_by: dict[int, str] = {}
        """Which instance first told that a transaction committed, by start_ts."""
        self._told: dict[int, int | None] = {}
        """What was said of a commit; None is an abort."""
        self._asked: dict[int, CommitRequest] = {}
        self._fences: dict[int, int] = {}

    def found(self, what: str) -> None:
        """Note a violation."""
        self.world.note(f"FOUND {what}")
        # The first of each name is kept, however many others came before it.
        if len(self.findings) < MAX_FINDINGS or name_of(what) not in map(name_of, self.findings):
            self.findings.append(what)
        if name_of(what) in self._until_found:
            self.world.error = self.world.error or Sought()

    def commit_of(self, start_ts: int) -> int | None:
        """Return when a transaction was committed, once that is durable."""
        return self._durable.get(start_ts)

    # -- what becomes durable --------------------------------------------------------------------

    def written(self, store: MemoryStore, table: str, rows: Sequence[bytes]) -> list[int]:
        """Look at rows that have just changed; return whose commit is new in them."""
        new = []
        if table == CONTROL_TABLE and LOW_WATERMARK_FACT in rows:
            self._low_watermark = max(
                self._low_watermark, ControlTable(store).read_number(LOW_WATERMARK_FACT) or 0
            )
        if table == COMMIT_TABLE:
            changed = [start_ts_of_commit_row(row) for row in rows]
            for start_ts, entry in entries(store, [one for one in changed if one]).items():
                if isinstance(entry, int):
                    new += self._committed(start_ts, entry)
        return new

    def completed(self, group: CellGroup) -> list[int]:
        """Look at cells that have just been written with their shadow cells, and no entry.

        Returns:
            Whose commit is new in them.
        """
        cells = [cell for records in group.cells.values() for cell in records]
        data = {cell[:4] for cell in cells if not is_shadow_qualifier(cell[2])}
        shadows = {
            (row, family, data_qualifier(qualifier), version): decode_long(value, what="a shadow")
            for row, family, qualifier, version, value in cells
            if is_shadow_qualifier(qualifier)
        }
        commits = set(shadows.values())
        if set(shadows) != data or len(commits) != 1 or not data:
            self.found(f"I5: cells were written together that are no whole commit: {commits}")
            return []
        return self._committed(base(next(iter(data))[3]), commits.pop())

    def lost(self, commits: Sequence[int]) -> None:
        """Forget transactions whose commit went with the power."""
        for start_ts in commits:
            if self._told.get(start_ts) is not None:
                self.found(f"I2: {start_ts} was told {self._told[start_ts]}, and is lost")
            self._durable.pop(start_ts, None)

    def _committed(self, start_ts: int, commit_ts: int) -> list[int]:
        is_new = start_ts not in self._durable
        if is_new:
            if start_ts <= self._low_watermark:
                self._late.add(start_ts)
            instance = self._begun.get(start_ts, "")
            if (sent := self._newest_of[instance]) > commit_ts:
                self.found(f"I2: {instance} sent {sent}, and commits {start_ts} at {commit_ts}")
        if (before := self._durable.setdefault(start_ts, commit_ts)) != commit_ts:
            self.found(f"I8: {start_ts} committed at {before} and at {commit_ts}")
        return [start_ts] if is_new else []

    # -- what is asked and answered --------------------------------------------------------------

    def asked(self, request: CommitRequest) -> bool:
        """Keep what a transaction wrote; say whether this is a copy that does not say so."""
        is_copy = request.start_ts in self._asked and not request.is_retry
        self._asked[request.start_ts] = request
        return is_copy

    def begun(self, instance: str, start_ts: int, *, newest_before: int) -> None:
        """Look at a start timestamp as it leaves."""
        if start_ts in self._begun or start_ts in self._owners:
            self.found(f"I1: {start_ts} was issued twice, now by {instance}")
        if start_ts <= newest_before:
            self.found(f"I1: {instance} issued {start_ts}, and {newest_before} was sent before")
        self._begun[start_ts] = instance
        self._newest_of[instance] = start_ts
        self.newest_ts = max(self.newest_ts, start_ts)

    def fenced(self, table_id: int, fence_ts: int) -> None:
        """Look at a fence as it leaves."""
        self._fences[table_id] = max(self._fences.get(table_id, 0), fence_ts)
        self.newest_ts = max(self.newest_ts, fence_ts)

    def told(
        self,
        instance: str,
        start_ts: int,
        commit_ts: int | None,
        *,
        is_verdict: bool,
        is_copy: bool = False,
    ) -> None:
        """Look at what is said of a commit; a verdict is the answer to a request for it."""
        if is_copy and commit_ts is None and self._forgets_decisions:
            self.world.counts["copies refused"] += 1
            return
        before = self._told.setdefault(start_ts, commit_ts)
        if before != commit_ts:
            self.found(f"I8: of {start_ts} was said {before}, and then {commit_ts}")
        if commit_ts is None:
            return
        self.newest_ts = max(self.newest_ts, commit_ts)
        if self._durable.get(start_ts) != commit_ts:
            self.found(f"I2: {start_ts} is told {commit_ts}, which is not there")
        elif not self.is_on_disk(start_ts):
            self.found(f"I2: {start_ts} is told {commit_ts}, which is not durable")
        if self._owners.setdefault(commit_ts, start_ts) != start_ts:
            self.found(f"I1: {commit_ts} is the commit of two transactions")
        if not is_verdict:
            return
        self.committed_by.setdefault(start_ts, instance)
        # What an instance finds that its predecessor wrote late, it may tell.
        if start_ts in self._late and self._begun.get(start_ts) == instance:
            self.found(f"I4: the entry of {start_ts} came after the low watermark had passed it")
        for table_id in self._asked[start_ts].table_ids if start_ts in self._asked else ():
            if start_ts < self._fences.get(table_id, 0) < commit_ts:
                self.found(f"fence: {start_ts} committed past the one of its table")

    # -- the end ---------------------------------------------------------------------------------

    def check_end(
        self, store: MemoryStore, history: Sequence[Recorded], committed_in: CommittedIn
    ) -> None:
        """Hold what clients were told against what the tables say in the end."""
        final = committed_in([one.start_ts for one in history])
        # One that looked back has the start_ts of another, and wrote nothing.
        for one in (one for one in history if not one.is_historical):
            at = final.get(one.start_ts, set())
            if len(at) > 1:
                self.found(f"I8: the cells of {one.name} are committed at {sorted(at)}")
            if one.told is Told.ABORTED and at:
                self.found(f"I9: {one.name}, told {one.reason!r}, is committed at {sorted(at)}")
            if (outcome := self.settled.get(one.start_ts)) is not None and at != outcome:
                self.found(f"I8: {one.name}, found out {outcome}, is committed at {sorted(at)}")
            told = {one.commit_ts} if one.told is Told.COMMITTED and one.commit_ts else at
            if at != told:
                self.found(f"I8: {one.name}, told {one.commit_ts}, is committed at {sorted(at)}")
        self._check_updates(store)

    def _check_updates(self, store: MemoryStore) -> None:
        forbidden = {
            start_ts
            for start_ts, entry in entries(store, list(self._durable)).items()
            if entry is not None and not isinstance(entry, int)
        }
        writers: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for start_ts, commit_ts in self._durable.items():
            if start_ts in self._asked and start_ts not in forbidden:
                for cell_id in self._asked[start_ts].cell_ids:
                    writers[cell_id].append((commit_ts, start_ts))
        for commits in writers.values():
            commits.sort()
            for (earlier, _), (_, start_ts) in pairwise(commits):
                if start_ts < earlier:
                    self.found(f"lost update: {start_ts} overwrites a commit at {earlier}")


class Wiretap:
    """Reads both directions of one connection."""

    def __init__(self, watch: Watch, instance: str, peer: str) -> None:
        self._watch = watch
        self._is_strange = peer.startswith("stranger")
        """Whether what is asked is asked by nobody whose it is."""
        self._is_heard_of = not peer.startswith(("stranger", "crowd"))
        self._instance = instance
        self._requests = FrameReader(max_frame_bytes=MAX_FRAME_BYTES)
        self._responses = FrameReader(max_frame_bytes=MAX_FRAME_BYTES)
        self._newest_at_begin: deque[int] = deque()
        self._copies: Counter[int] = Counter()
        """Commits that were asked for again by who did not say so, and not answered yet."""
        self._begin_asked_s: deque[float] = deque()
        self._commit_asked_s: dict[int, float] = {}

    def asked(self, data: bytes) -> None:
        """Read what reaches the oracle."""
        if self._is_strange:
            return  # what he says need not make sense
        for payload in self._requests.feed(data):
            request = decode_request(payload)
            if isinstance(request, CommitRequest):
                self._copies[request.start_ts] += self._watch.asked(request)
                self._commit_asked_s[request.start_ts] = self._watch.world.now_s
            elif isinstance(request, TimestampRequest):
                self._newest_at_begin.append(self._watch.newest_ts)
                self._begin_asked_s.append(self._watch.world.now_s)

    def answered(self, data: bytes) -> None:
        """Read what the oracle sends."""
        watch = self._watch
        for payload in self._responses.feed(data):
            response = decode_response(payload)
            match response:
                case TimestampResponse():
                    newest_before = self._newest_at_begin.popleft() if not self._is_strange else 0
                    if not self._is_strange:
                        self._check_leader(self._begin_asked_s.popleft())
                    if self._is_heard_of:
                        watch.begun_by_others.append(response.start_ts)
                    watch.begun(self._instance, response.start_ts, newest_before=newest_before)
                case CommitResponse() if self._is_strange and response.commit_ts is None:
                    # He is refused what is not his, and for its owner that says nothing.
                    watch.world.counts["strangers refused"] += 1
                case CommitResponse():
                    self._check_leader(self._commit_asked_s.get(response.start_ts, 0.0))
                    is_copy = self._copies[response.start_ts] > 0
                    self._copies[response.start_ts] -= is_copy
                    watch.told(
                        self._instance,
                        response.start_ts,
                        response.commit_ts,
                        is_verdict=True,
                        is_copy=is_copy,
                    )
                case FenceResponse():
                    watch.fenced(response.table_id, response.fence_ts)
                case InvalidateResponse():
                    if response.verdict is not InvalidateVerdict.UNKNOWN:
                        watch.told(
                            self._instance, response.start_ts, response.commit_ts, is_verdict=False
                        )
                case _:
                    continue
            watch.world.counts["answers"] += 1
            watch.world.note(f"{self._instance} says {response}")

    def _check_leader(self, asked_s: float) -> None:
        """Let nothing be answered that was asked since another has the lease (I8).

        What was asked before, and decided before, may be told later: who asked cannot know more.
        """
        since_s = self._watch.another_leads_since_s()
        if since_s is not None and asked_s > since_s:
            self._watch.found(f"I8: {self._instance} answers while Omid's oracle has the lease")


def entries(store: MemoryStore, starts: Sequence[int]) -> dict[Timestamp, CommitEntry]:
    """Return commit entries as they are."""
    return dict(CommitTable(store).read([Timestamp(one) for one in starts])) if starts else {}


def committed_in(
    store: MemoryStore, collected: Mapping[int, set[int]], starts: Sequence[int]
) -> dict[int, set[int]]:
    """Return where transactions committed, as the tables say by entry or by shadow cells.

    Args:
        store: Their store.
        collected: The same of those whose cells were rightly taken away.
        starts: Which.
    """
    found: dict[int, set[int]] = defaultdict(set)
    for start_ts, commits in collected.items():
        found[start_ts] |= commits
    for schema in store.tables():
        if schema.name.startswith("v_"):
            for page in store.scan(schema.name):
                for cell in (cell for row in page for cell in row):
                    if is_shadow_qualifier(cell.qualifier):
                        commit_ts = decode_long(cell.value, what="a shadow cell")
                        found[base(cell.version)].add(commit_ts)
    for start_ts, entry in entries(store, starts).items():
        if isinstance(entry, int) and start_ts not in found:
            found[start_ts].add(entry)
    return found
