"""The Hermitage list: what snapshot isolation stops, and the two things that it allows.

Each test is one interleaving of two or three transactions on rows 1 -> 10 and 2 -> 20.  Where a
lock-based database would wait, ours lets both go on, and the second to commit is told.

Source: Kleppmann, "Hermitage"; the names are Adya's.
"""

from __future__ import annotations

from tests.machines.isolation import Bench


def test_g0_write_cycles_are_stopped(bench: Bench) -> None:
    """Two transactions write both rows; the result is all of one of them."""
    first, second = bench.begin(), bench.begin()
    first.set("1", 11)
    second.set("1", 12)
    first.set("2", 21)
    first.commit()
    second.set("2", 22)
    second.conflicts()
    assert bench.state() == {"1": 11, "2": 21}


def test_g1a_aborted_reads_are_stopped(bench: Bench) -> None:
    """What is rolled back was never seen."""
    first, second = bench.begin(), bench.begin()
    first.set("1", 101)
    assert second.all() == {"1": 10, "2": 20}
    first.rollback()
    assert second.all() == {"1": 10, "2": 20}
    second.commit()
    assert bench.state() == {"1": 10, "2": 20}


def test_g1b_intermediate_reads_are_stopped(bench: Bench) -> None:
    """What a transaction replaces before its commit was never seen."""
    first, second = bench.begin(), bench.begin()
    first.set("1", 101)
    assert second.all() == {"1": 10, "2": 20}
    first.set("1", 11)
    first.commit()
    assert second.all() == {"1": 10, "2": 20}
    assert bench.state() == {"1": 11, "2": 20}


def test_g1c_circular_information_flow_is_stopped(bench: Bench) -> None:
    """Neither of two transactions sees what the other writes."""
    first, second = bench.begin(), bench.begin()
    first.set("1", 11)
    second.set("2", 22)
    assert first.get("2") == 20
    assert second.get("1") == 10
    first.commit()
    second.commit()
    assert bench.state() == {"1": 11, "2": 22}


def test_otv_observed_transactions_do_not_vanish(bench: Bench) -> None:
    """A reader that sees a transaction in one row sees it, or a later one, in the other."""
    first, second = bench.begin(), bench.begin()
    first.set("1", 11)
    first.set("2", 19)
    second.set("1", 12)
    first.commit()
    reader = bench.begin()
    assert reader.get("1") == 11
    second.set("2", 18)
    assert reader.get("2") == 19
    second.conflicts()
    assert reader.all() == {"1": 11, "2": 19}


def test_pmp_predicate_many_preceders_are_stopped_for_reads(bench: Bench) -> None:
    """A predicate read again finds the same rows, whoever inserted meanwhile."""
    first, second = bench.begin(), bench.begin()
    assert first.where(lambda value: value == 30) == {}
    second.set("3", 30)
    second.commit()
    assert first.where(lambda value: value % 3 == 0) == {}
    assert bench.state() == {"1": 10, "2": 20, "3": 30}


def test_pmp_predicate_many_preceders_are_stopped_for_writes(bench: Bench) -> None:
    """A delete by predicate judges the snapshot, and conflicts with whoever changed those rows."""
    first, second = bench.begin(), bench.begin()
    for row, value in first.all().items():
        first.set(row, value + 10)
    first.commit()
    for row in second.where(lambda value: value == 20):
        assert row == "2"
        second.delete(row)
    second.conflicts()
    assert bench.state() == {"1": 20, "2": 30}


def test_p4_lost_updates_are_stopped(bench: Bench) -> None:
    """Of two that read and write the same row, the second to commit is told."""
    first, second = bench.begin(), bench.begin()
    assert first.get("1") == second.get("1") == 10
    first.set("1", 11)
    second.set("1", 11)
    first.commit()
    second.conflicts()


def test_g_single_read_skew_is_stopped(bench: Bench) -> None:
    """Both rows are read at one moment, however long it takes."""
    first, second = bench.begin(), bench.begin()
    assert first.get("1") == 10
    second.set("1", 12)
    second.set("2", 18)
    second.commit()
    assert first.get("2") == 20


def test_g_single_read_skew_is_stopped_for_predicates(bench: Bench) -> None:
    """A row that comes to satisfy a predicate later does not."""
    first, second = bench.begin(), bench.begin()
    assert first.where(lambda value: value % 5 == 0) == {"1": 10, "2": 20}
    second.set("1", 12)
    second.commit()
    assert first.where(lambda value: value % 3 == 0) == {}


def test_g_single_read_skew_is_stopped_for_writes_by_predicate(bench: Bench) -> None:
    """A delete that its snapshot asks for conflicts with the update that it did not see."""
    first, second = bench.begin(), bench.begin()
    assert first.get("1") == 10
    assert second.all() == {"1": 10, "2": 20}
    second.set("1", 12)
    second.set("2", 18)
    second.commit()
    for row in first.where(lambda value: value == 20):
        first.delete(row)
    first.conflicts()
    assert bench.state() == {"1": 12, "2": 18}


def test_g_single_is_stopped_where_the_writer_is_seen_first(bench: Bench) -> None:
    """A writer's own snapshot stays what it was, also once it has written."""
    first, second = bench.begin(), bench.begin()
    assert first.get("1") == 10
    second.set("1", 12)
    first.set("2", 25)
    second.commit()
    assert first.all() == {"1": 10, "2": 25}
    first.commit()
    assert bench.state() == {"1": 12, "2": 25}


def test_g2_item_write_skew_is_allowed(bench: Bench) -> None:
    """Two read both rows and write one each: both commit.  Serializability would stop it."""
    first, second = bench.begin(), bench.begin()
    assert first.all() == second.all() == {"1": 10, "2": 20}
    first.set("1", 11)
    second.set("2", 21)
    first.commit()
    second.commit()
    assert bench.state() == {"1": 11, "2": 21}


def test_g2_anti_dependency_cycles_are_allowed(bench: Bench) -> None:
    """Two look for rows by a predicate, find none, and insert one each: both commit."""
    first, second = bench.begin(), bench.begin()
    assert first.where(lambda value: value % 3 == 0) == {}
    assert second.where(lambda value: value % 3 == 0) == {}
    first.set("3", 30)
    second.set("4", 42)
    first.commit()
    second.commit()
    assert bench.begin().where(lambda value: value % 3 == 0) == {"3": 30, "4": 42}


def test_g2_with_two_edges_is_allowed_and_its_reader_sees_one_order(bench: Bench) -> None:
    """The read-only transaction between two writers sees the first of them alone."""
    first = bench.begin()
    assert first.all() == {"1": 10, "2": 20}
    second = bench.begin()
    second.set("2", 25)
    second.commit()
    third = bench.begin()
    assert third.all() == {"1": 10, "2": 25}
    third.commit()
    first.set("1", 0)
    first.commit()
    assert bench.state() == {"1": 0, "2": 25}
