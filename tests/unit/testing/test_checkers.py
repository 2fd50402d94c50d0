"""Each checker on histories written by hand: it names every planted anomaly, and passes clean ones.

A checker that notices nothing would make every run of `omidpy verify` look good, so each name of
`anomalies.py` is planted at least once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from omidpy.testing import anomalies
from omidpy.testing.anomalies import (
    COMMIT_BEFORE_BEGIN,
    DIRTY_READ,
    DUPLICATE_APPEND,
    FRACTURED_READ,
    FUTURE_READ,
    G0,
    G1C,
    G_NONADJACENT,
    G_SINGLE,
    GARBAGE_READ,
    INCOMPATIBLE_ORDERS,
    INCONSISTENT_OUTCOME,
    INTERMEDIATE_READ,
    LONG_FORK,
    LOST_APPEND,
    LOST_UPDATE,
    MAX_WITNESSES,
    NON_REPEATABLE_READ,
    OWN_WRITE_IGNORED,
    STALE_READ,
    STALE_SNAPSHOT,
    TIMESTAMP_REUSED,
    WRONG_ORDER,
    WRONG_TOTAL,
    Anomaly,
    overlap,
)
from omidpy.testing.append_checker import check_appends
from omidpy.testing.checkers import (
    BALANCE_LIMIT,
    check_bank,
    check_long_fork,
    check_order,
    check_registers,
)
from omidpy.testing.cycles import RW, WR, WW, Edge, forbidden_cycles
from omidpy.testing.history import Kind, Operation, Recorded, Told, Value


def read(key: str, value: Value, seen_ts: int | None = None) -> Operation:
    """Return a read."""
    return Operation(Kind.READ, key, value, seen_ts)


def write(key: str, value: int | None) -> Operation:
    """Return a write."""
    return Operation(Kind.WRITE, key, value)


def append(key: str, value: int) -> Operation:
    """Return an append."""
    return Operation(Kind.APPEND, key, value)


def undo(key: str, value: int) -> Operation:
    """Return a write in a savepoint that was undone."""
    return Operation(Kind.UNDO, key, value)


def committed(start_ts: int, commit_ts: int | None, *operations: Operation) -> Recorded:
    """Return a transaction that committed; `commit_ts` None: it only read."""
    return Recorded(
        f"t{start_ts}",
        start_ts,
        operations,
        commit_ts=commit_ts,
        began_ns=start_ts,
        ended_ns=(commit_ts or start_ts) + 1,
    )


def aborted(start_ts: int, *operations: Operation) -> Recorded:
    """Return a transaction that was rolled back."""
    return Recorded(f"t{start_ts}", start_ts, operations, Told.ABORTED, began_ns=start_ts)


def unknown(start_ts: int, *operations: Operation) -> Recorded:
    """Return a transaction whose client heard nothing."""
    return Recorded(f"t{start_ts}", start_ts, operations, Told.UNKNOWN, began_ns=start_ts)


def names(found: Sequence[Anomaly]) -> set[str]:
    """Return the names of some anomalies."""
    return {anomaly.name for anomaly in found}


W100 = committed(100, 150, write("x", 1), write("y", 1))


# -- registers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "history"),
    [
        (STALE_READ, [W100, committed(200, None, read("x", None))]),
        (
            STALE_READ,
            [W100, committed(200, 250, write("x", 2)), committed(300, None, read("x", 1))],
        ),
        (
            STALE_READ,
            [W100, committed(200, 250, write("x", None)), committed(300, None, read("x", 1))],
        ),
        (FUTURE_READ, [W100, committed(140, None, read("x", 1))]),
        (FUTURE_READ, [W100, committed(150, None, read("x", 1))]),
        (FRACTURED_READ, [W100, committed(200, None, read("x", 1), read("y", None))]),
        (FRACTURED_READ, [W100, committed(200, None, read("x", None), read("y", 1))]),
        (DIRTY_READ, [aborted(100, write("x", 1)), committed(200, None, read("x", 1))]),
        (DIRTY_READ, [aborted(100, write("x", 1)), aborted(200, read("x", 1))]),
        (
            DIRTY_READ,
            [committed(100, 150, undo("x", 7), write("x", 1)), aborted(200, read("x", 7))],
        ),
        (
            INTERMEDIATE_READ,
            [committed(100, 150, write("x", 1), write("x", 2)), aborted(200, read("x", 1))],
        ),
        (GARBAGE_READ, [W100, committed(200, None, read("x", 9))]),
        (
            NON_REPEATABLE_READ,
            [
                W100,
                committed(200, 250, write("x", 2)),
                committed(210, None, read("x", 1), read("x", 2)),
            ],
        ),
        (OWN_WRITE_IGNORED, [W100, committed(200, 250, write("x", 2), read("x", 1))]),
        (OWN_WRITE_IGNORED, [W100, committed(200, 250, write("x", None), read("x", 1))]),
    ],
)
def test_a_planted_anomaly_of_registers_is_named(name: str, history: list[Recorded]) -> None:
    """Every kind of wrong read has its own name, which says where to look."""
    assert name in names(check_registers(history))


@pytest.mark.parametrize(
    "history",
    [
        [W100, committed(140, None, read("x", None)), committed(151, None, read("x", 1))],
        [W100, committed(200, 250, read("x", 1), write("x", 2), read("x", 2))],
        [W100, committed(200, 250, write("x", None)), committed(300, None, read("x", None))],
        [W100, committed(200, 250, undo("x", 7), read("x", 1))],
        [aborted(100, write("x", 1)), committed(200, None, read("x", None))],
        [unknown(100, write("x", 1)), committed(200, None, read("x", None))],
        [unknown(100, write("x", 1)), committed(200, None, read("x", 1, 150))],
        [unknown(100, write("x", 1)), committed(200, None, read("x", 1))],
        [W100, unknown(200, write("x", None)), committed(300, None, read("x", None))],
        [
            unknown(100, write("x", 1)),
            committed(120, None, read("x", None)),
            committed(200, None, read("x", 1, 150)),
        ],
    ],
)
def test_a_clean_history_of_registers_passes(history: list[Recorded]) -> None:
    """Write below, at and above the snapshot, deletes, and outcomes that may be either."""
    assert check_registers(history) == []
    assert check_order(history) == []


def test_an_unknown_transaction_that_was_seen_has_committed_for_everybody() -> None:
    """Either outcome is fine, but it is one outcome: seen in `x`, it must be seen in `y`."""
    writer = unknown(100, write("x", 1), write("y", 1))
    seen = committed(200, None, read("x", 1, 150))
    before = committed(140, None, read("y", None))
    assert check_registers([writer, seen, before]) == []
    after = committed(160, None, read("y", None))
    assert names(check_registers([writer, seen, after])) == {STALE_READ}
    both = committed(160, None, read("x", 1, 150), read("y", None))
    assert names(check_registers([writer, both])) == {FRACTURED_READ}


def test_readers_must_agree_on_when_a_transaction_committed() -> None:
    """The timestamp that comes with a value is the writer's, for every reader."""
    readers = [committed(200, None, read("x", 1, 150)), committed(300, None, read("x", 1, 160))]
    assert names(check_order([unknown(100, write("x", 1)), *readers])) == {INCONSISTENT_OUTCOME}
    assert names(check_order([W100, readers[1]])) == {INCONSISTENT_OUTCOME}
    assert check_order([W100, readers[0]]) == []


# -- order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "history"),
    [
        (LOST_UPDATE, [W100, committed(140, 200, write("x", 2))]),
        (LOST_UPDATE, [committed(100, 150, append("l", 1)), committed(140, 200, append("l", 2))]),
        (TIMESTAMP_REUSED, [W100, committed(150, None)]),
        (TIMESTAMP_REUSED, [W100, committed(140, 150, write("z", 2))]),
        (COMMIT_BEFORE_BEGIN, [committed(100, 100, write("x", 1))]),
        (COMMIT_BEFORE_BEGIN, [committed(100, 50, write("x", 1))]),
    ],
)
def test_a_planted_anomaly_of_the_order_is_named(name: str, history: list[Recorded]) -> None:
    """What timestamps alone give away."""
    assert name in names(check_order(history))


def test_a_snapshot_begun_after_an_acknowledged_commit_must_hold_it() -> None:
    """Strong snapshot isolation: real time counts, to the moment of the acknowledgement."""
    late = Recorded("late", 140, began_ns=200)
    assert names(check_order([W100, late])) == {STALE_SNAPSHOT}
    assert check_order([W100, Recorded("early", 140, began_ns=151)]) == []
    assert check_order([W100, Recorded("past", 140, began_ns=200, is_historical=True)]) == []


def test_a_slow_acknowledgement_does_not_hide_a_faster_one() -> None:
    """The newest commit acknowledged so far counts, not the last one to be acknowledged."""
    newer = Recorded("n", 160, (write("y", 1),), commit_ts=250, began_ns=1, ended_ns=10)
    older = Recorded("o", 100, (write("x", 1),), commit_ts=150, began_ns=1, ended_ns=20)
    reader = Recorded("r", 200, began_ns=30)
    assert names(check_order([newer, older, reader])) == {STALE_SNAPSHOT}


def test_transactions_one_after_the_other_are_in_order() -> None:
    """Equality too: a snapshot may be the very next timestamp."""
    history = [W100, committed(200, 250, write("x", 2)), committed(251, 300, write("x", 3))]
    assert check_order(history) == []


# -- appends ---------------------------------------------------------------------------------------

A100 = committed(100, 150, append("l", 1))
A200 = committed(200, 250, read("l", (1,)), append("l", 2))


@pytest.mark.parametrize(
    ("name", "history"),
    [
        (LOST_APPEND, [A100, A200, committed(300, None, read("l", (2,)))]),
        (LOST_APPEND, [A100, A200, committed(300, None, read("l", (1,)))]),
        (LOST_APPEND, [A100, committed(300, None, read("l", None))]),
        (DUPLICATE_APPEND, [A100, A200, committed(300, None, read("l", (1, 2, 1)))]),
        (WRONG_ORDER, [A100, A200, committed(300, None, read("l", (2, 1)))]),
        (FUTURE_READ, [A100, A200, committed(240, None, read("l", (1, 2)))]),
        (FUTURE_READ, [A100, A200, committed(250, None, read("l", (1, 2)))]),
        (DIRTY_READ, [aborted(100, append("l", 1)), committed(300, None, read("l", (1,)))]),
        (DIRTY_READ, [committed(100, 150, undo("l", 1)), aborted(300, read("l", (1,)))]),
        (GARBAGE_READ, [A100, committed(300, None, read("l", (1, 9)))]),
        (
            INTERMEDIATE_READ,
            [committed(100, 150, append("l", 1), append("l", 2)), aborted(300, read("l", (1,)))],
        ),
        (OWN_WRITE_IGNORED, [A100, committed(200, 250, append("l", 2), read("l", (1,)))]),
        (
            INCOMPATIBLE_ORDERS,
            [
                A100,
                A200,
                committed(300, None, read("l", (1, 2))),
                committed(301, None, read("l", (2, 1))),
            ],
        ),
    ],
)
def test_a_planted_anomaly_of_appends_is_named(name: str, history: list[Recorded]) -> None:
    """A list that was read tells who was lost, doubled or moved."""
    assert name in names(check_appends(history))


def test_a_clean_history_of_appends_passes() -> None:
    """Own appends follow what the snapshot holds; an unknown outcome may be either."""
    history = [
        A100,
        A200,
        committed(240, None, read("l", (1,))),
        unknown(260, append("l", 3)),
        committed(300, 350, read("l", (1, 2)), append("l", 4), read("l", (1, 2, 4))),
        aborted(310, append("l", 5), read("l", (1, 2, 5))),
        committed(400, None, read("l", (1, 2, 4), 350)),
    ]
    assert check_appends(history) == []
    assert check_order(history) == []
    sometime = [A100, unknown(260, append("l", 3)), committed(400, None, read("l", (1, 3)))]
    assert check_appends(sometime) == []


def test_two_lists_read_in_opposite_states_make_a_circle() -> None:
    """G-single without any timestamp: the reader is before and after the same writer."""
    writer = committed(100, 150, append("l", 1), append("m", 1))
    skewed = committed(200, None, read("l", (1,)), read("m", None))
    witness = committed(300, None, read("l", (1,)), read("m", (1,)))
    assert G_SINGLE in names(check_appends([writer, skewed, witness]))


def test_information_that_flows_in_a_circle_is_named() -> None:
    """G1c: each of the two read what the other appended."""
    history = [
        committed(100, 150, append("l", 1), read("m", (2,))),
        committed(110, 160, append("m", 2), read("l", (1,))),
    ]
    assert G1C in names(check_appends(history))


def test_writes_in_opposite_orders_are_named() -> None:
    """G0: the first on one list is the second on the other."""
    history = [
        committed(100, 150, append("l", 1), append("m", 1)),
        committed(110, 160, append("l", 2), append("m", 2)),
        committed(300, None, read("l", (1, 2)), read("m", (2, 1))),
    ]
    assert G0 in names(check_appends(history))


def test_write_skew_is_allowed() -> None:
    """G2-item: snapshot isolation permits two anti-dependencies in a row."""
    history = [
        committed(100, 150, read("l", None), append("m", 1)),
        committed(110, 160, read("m", None), append("l", 2)),
        committed(300, None, read("l", (2,)), read("m", (1,))),
    ]
    assert check_appends(history) == []
    assert check_order(history) == []


@pytest.mark.parametrize(
    ("kinds", "name"),
    [
        ([WW, WW], G0),
        ([WW, WR], G1C),
        ([WR, RW], G_SINGLE),
        ([WR, RW, WR, RW], G_NONADJACENT),
        ([WR, RW, RW], None),
        ([RW, RW], None),
    ],
)
def test_a_circle_is_named_by_its_edges(kinds: list[str], name: str | None) -> None:
    """Only two adjacent anti-dependencies make a circle harmless."""
    edges = [
        Edge(str(number), str((number + 1) % len(kinds)), kind) for number, kind in enumerate(kinds)
    ]
    assert [cycle.name for cycle in forbidden_cycles(edges)] == ([name] if name else [])


def test_long_chains_do_not_exhaust_the_stack() -> None:
    """A real history is one long chain of dependencies."""
    chain = [Edge(str(number), str(number + 1), WW) for number in range(20_000)]
    assert forbidden_cycles(chain) == []
    (cycle,) = forbidden_cycles([*chain[:2000], Edge("2000", "0", WR)])
    assert (cycle.name, len(cycle.edges)) == (G1C, 2001)


# -- bank and long fork ----------------------------------------------------------------------------


def test_money_that_appears_or_vanishes_is_named() -> None:
    """Every reader is judged, whatever became of it."""

    def check(*history: Recorded) -> set[str]:
        return names(check_bank(history, accounts=("a", "b"), total=100))

    assert check(committed(100, None, read("a", 60), read("b", 40))) == set()
    assert check(committed(100, None, read("a", 60), read("b", 50))) == {WRONG_TOTAL}
    assert check(aborted(100, read("a", 60), read("b", None))) == {WRONG_TOTAL}
    assert check(committed(100, None, read("a", 60))) == set()
    unique = 7 * BALANCE_LIMIT
    assert check(committed(100, None, read("a", unique + 60), read("b", 40))) == set()
    moved = (read("a", 60), write("a", 10), read("a", 10), read("b", 40))
    assert check(committed(100, 150, *moved)) == set()


def test_readers_that_disagree_on_the_order_of_writes_are_named() -> None:
    """Each of the two saw one write and missed the other."""
    left = committed(300, None, read("a", 1), read("b", None), read("c", None))
    right = committed(310, None, read("a", None), read("b", 2))
    agreeing = committed(320, None, read("a", 1), read("b", 2))
    assert check_long_fork([left, agreeing]) == []
    (found,) = check_long_fork([left, agreeing, right])
    assert (found.name, set(found.transactions)) == (LONG_FORK, {"t300", "t310"})


# -- what a finding says ---------------------------------------------------------------------------


def test_an_anomaly_shows_its_transactions_and_operations() -> None:
    """Whoever reads it must find the lines of the history."""
    (found,) = check_registers([W100, committed(200, None, read("x", 9, 160))])
    assert found.transactions == ("t200",)
    assert found.explanation == "t200, whose snapshot is 200, read 9 from x: nobody wrote it"
    assert found.witnesses == ("t200 (start_ts 200, committed None) read x = 9, committed at 160",)


def test_anomalies_of_one_name_are_bounded() -> None:
    """A broken system fails every read; the report stays readable."""
    history = [W100, *(committed(200 + n, None, read("x", 9)) for n in range(100))]
    assert len(check_registers(history)) == MAX_WITNESSES


def test_overlap_counts_what_ran_at_the_same_time() -> None:
    """A history without overlap proves little, so the report says how much there was."""
    history = [
        Recorded("a", 100, commit_ts=150, began_ns=0, ended_ns=10),
        Recorded("b", 110, told=Told.ABORTED, reason="WriteConflict", began_ns=5, ended_ns=12),
        Recorded("c", 120, told=Told.UNKNOWN, began_ns=6),
        Recorded("d", 130, told=Told.ABORTED, reason="client died", began_ns=11, ended_ns=13),
    ]
    found = overlap(history)
    assert (found.transactions, found.committed, found.aborted, found.unknown) == (4, 1, 2, 1)
    assert (found.concurrent_pairs, found.conflicts, found.died) == (2, 1, 1)


def test_every_name_is_planted_somewhere() -> None:
    """A name without a planted anomaly would be a promise that nobody has tried."""
    source = test_every_name_is_planted_somewhere.__globals__
    known = {name for name, value in vars(anomalies).items() if isinstance(value, str)}
    known -= {name for name in known if name.startswith("_")}
    assert known <= set(source)


@pytest.mark.parametrize("check", [check_order, check_registers, check_appends, check_long_fork])
def test_an_empty_history_has_no_anomaly(
    check: Callable[[Sequence[Recorded]], list[Anomaly]],
) -> None:
    """Nothing happened; whether that is enough is for the caller to say."""
    assert check([]) == []
