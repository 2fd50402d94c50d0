"""X1: whatever adders do, entries leave by commit, each once, and none is ever skipped.

The model is the naive truth: all entries that committed, sorted.  Adders begin, add and commit in
any interleaving; between their steps somebody looks, reads what one snapshot shows, by start
timestamp, and takes batches of any size; or stops half-way, as one who dies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from omidpy.recipes.export_queue.entries.ordering import BEGINNING, FoundEntry, Position, Window

Step = tuple[str, int, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("abort"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("look"), st.integers(1, 5), st.integers(0, 6)),
    ),
    max_size=60,
)


@dataclass
class World:
    """Transactions, the rows of those that committed, and one bucket's cursor."""

    keeps: bool
    now_ts: int = 0
    running: list[list[FoundEntry]] = field(default_factory=list)
    rows: list[FoundEntry] = field(default_factory=list)
    committed: list[Position] = field(default_factory=list)
    delivered: list[Position] = field(default_factory=list)
    cursor: Position = BEGINNING
    scan_from: int = 0

    def tick(self) -> int:
        """Return a fresh timestamp."""
        self.now_ts += 50
        return self.now_ts

    def begin(self, entry_count: int) -> None:
        """Let an adder begin, and add."""
        start_ts = self.tick()
        self.running.append(
            [
                FoundEntry(Position(0, bytes((n,))), start_ts, b"%d-%d" % (start_ts, n), b"v", 1)
                for n in range(entry_count)
            ]
        )

    def end(self, which: int, *, commits: bool) -> None:
        """Let one of those that run commit, or abort."""
        if not self.running:
            return
        added = self.running.pop(which % len(self.running))
        if commits:
            commit_ts = self.tick()
            done = [one._replace(position=Position(commit_ts, one.position[1])) for one in added]
            self.rows += done
            self.committed += [one.position for one in done]

    def look(self, batch_size: int, most_batches: int) -> None:
        """Deliver some of what one snapshot shows."""
        low_ts = min((added[0].start_ts for added in self.running), default=self.now_ts + 1) - 1
        seen = sorted(
            (one for one in self.rows if one.start_ts >= self.scan_from),
            key=lambda one: (one.start_ts, one.position.ordinal),
        )
        window = Window(iter(seen), after=self.cursor, hold_bytes=2)
        self.tick()
        for _ in range(most_batches):
            batch = window.take(buffer_bytes=10**6, max_entries=batch_size)
            if not batch:
                break
            self.delivered += [one.position for one in batch]
            if not self.keeps:
                self.rows = [one for one in self.rows if one.row not in {b.row for b in batch}]
            left_ts = window.low_ts()
            self.cursor = batch[-1].position
            self.scan_from = low_ts + 1 if left_ts is None else min(low_ts + 1, left_ts)


@given(steps=STEPS, keeps=st.booleans())
def test_nothing_is_skipped_and_the_order_is_that_of_commits(
    *, steps: list[Step], keeps: bool
) -> None:
    """Also where a transaction that began early commits late, and where it never does."""
    world = World(keeps)
    for name, first, second in steps:
        match name:
            case "begin":
                world.begin(first)
            case "commit":
                world.end(first, commits=True)
            case "abort":
                world.end(first, commits=False)
            case "look":
                world.look(first, second)
    world.look(1000, 1000)
    assert world.delivered == sorted(world.committed)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20)), max_size=30), st.integers(1, 50))
def test_a_window_holds_no_more_than_was_in_flight(
    spans: list[tuple[int, int]], buffer_bytes: int
) -> None:
    """A backlog of any length is read in the memory of its concurrency."""
    starts = sorted({start for start, _ in spans})
    found = [
        FoundEntry(Position(start * 100 + span, b""), start * 100, b"%d" % start, b"v", 10)
        for start, (_, span) in zip(starts, spans, strict=False)
    ]
    window = Window(iter(found))
    taken: list[FoundEntry] = []
    while batch := window.take(buffer_bytes=buffer_bytes):
        assert sum(one.size_bytes for one in batch) <= max(buffer_bytes, 10)
        assert len(window._waiting) <= 1, "none of these overlaps with another"
        taken += batch
    assert [one.position for one in taken] == sorted(one.position for one in found)
