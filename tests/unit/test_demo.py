"""The demonstration's parts: what a flight writes, and a checker that notices what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

import omidpy
from bench.demo import check, flights
from bench.demo.compaction import Laggard, Report
from bench.demo.flights import COUNT, COUNTERS, FLIGHTS, Flight
from bench.demo.loader import Report as LoaderReport
from bench.demo.loader import load_flight
from omidpy.manager import TransactionManager

INPUT: Final = [
    Flight(b"2013-01-01|UA|1545|EWR", b"N14228", b"EWR-IAH", {b"f:dest": b"IAH"}),
    Flight(b"2013-01-01|UA|1714|LGA", b"N24211", b"LGA-IAH", {b"f:dest": b"IAH"}),
    Flight(b"2013-01-02|UA|1545|EWR", b"N14228", b"EWR-IAH", {b"f:dest": b"IAH"}),
    Flight(b"2013-01-02|AA|791|LGA", None, b"LGA-DFW", {b"f:dest": b"DFW"}),
]


@pytest.fixture(name="tm")
def manager() -> Iterator[TransactionManager]:
    """Return an empty store with the demonstration's tables."""
    with omidpy.connect("memory:", post_commit="sync") as tm:
        for table in check.TABLES:
            tm.create_table(table, families=["f"])
        yield tm


def load(tm: TransactionManager, chosen: list[Flight]) -> LoaderReport:
    """Load flights the way a loader does."""
    report = LoaderReport()
    for flight in chosen:
        load_flight(tm, flight, report)
    return report


def contradictions(tm: TransactionManager) -> list[str]:
    """Return everything that the checker finds wrong."""
    expected = flights.expected_tables(INPUT)
    return [text for found in check.check_tables(tm, expected) for text in found.contradictions]


def test_a_loaded_input_passes_every_check(tm: TransactionManager) -> None:
    """Otherwise the checks below would prove nothing."""
    assert load(tm, INPUT).loaded == len(INPUT)
    assert contradictions(tm) == []


def test_a_chunk_done_twice_counts_its_flights_once(tm: TransactionManager) -> None:
    """A killed loader's chunk is done again from its beginning."""
    load(tm, INPUT[:3])
    again = load(tm, INPUT)
    assert (again.loaded, again.found_loaded) == (1, 3)
    assert contradictions(tm) == []


def test_the_checker_notices_a_flight_that_is_missing(tm: TransactionManager) -> None:
    """An acknowledged commit that vanished would look like this."""
    load(tm, INPUT[1:])
    assert any("is missing" in text for text in contradictions(tm))


def test_the_checker_notices_half_a_transaction(tm: TransactionManager) -> None:
    """A flight without its index rows and counters is a torn commit."""
    load(tm, INPUT[1:])
    with tm.begin() as tx:
        tx.table(FLIGHTS).put(INPUT[0].key, INPUT[0].row)
    assert len(contradictions(tm)) == 4


def test_the_checker_notices_a_lost_update(tm: TransactionManager) -> None:
    """Two loaders that read the same count and both wrote it back would leave it one too low."""
    load(tm, INPUT)
    with tm.begin() as tx:
        tx.table(COUNTERS).put(b"route|EWR-IAH", {COUNT: b"1"})
    assert contradictions(tm) == [
        "b'route|EWR-IAH' holds {b'f:count': b'1'} instead of {b'f:count': b'2'}"
    ]


def test_the_checker_notices_a_flight_too_many(tm: TransactionManager) -> None:
    """What no input explains was not rolled back."""
    load(tm, INPUT)
    with tm.begin() as tx:
        tx.table(FLIGHTS).put(b"2014", {b"f:dest": b"XXX"})
    assert contradictions(tm) == ["b'2014' is there, but should not be"]


def test_loose_ends_tell_unhealed_cells_from_orphans(tm: TransactionManager) -> None:
    """The first were committed and must stay; the second must go."""
    load(tm, INPUT[:1])
    orphan = tm.begin()
    orphan.table(COUNTERS).put(b"plane|N14228", {COUNT: b"9"})
    orphan.flush()
    ends = check.loose_ends(tm.store, up_to=orphan.start_ts)
    assert ends == check.LooseEnds(
        committed=0, orphans=1, orphan_transactions=1, lone_shadow_cells=0
    )
    assert check.loose_ends(tm.store, up_to=orphan.start_ts - 50).orphans == 0


def test_entries_of_dead_clients_are_counted_and_their_cells_wait_for_healing() -> None:
    """A loader killed between its commit and its shadow cells leaves exactly these behind."""
    with omidpy.connect("memory:", post_commit="none") as tm:
        for table in check.TABLES:
            tm.create_table(table, families=["f"])
        load(tm, INPUT[:1])
        assert check.commit_entries(tm.store) == 1
        ends = check.loose_ends(tm.store, up_to=2**62)
        assert ends.committed == 5
        assert ends.orphans == 0


def test_the_checker_notices_a_compaction_that_did_not_finish(tm: TransactionManager) -> None:
    """A horizon that stopped short is no success, however green the tables are."""
    load(tm, INPUT)
    report = Report(
        rows_read=0,
        cells_read=0,
        cells_healed=0,
        transactions_invalidated=0,
        cells_dropped=0,
        entries_pruned=0,
        invalidations_pruned=0,
        low_watermark=100,
        horizon=50,
        laggards=[Laggard("flights", "never scanned")],
        seconds=0.0,
    )
    horizon, *_ = check.check_compaction(tm.store, report, newest=100)
    assert horizon.contradictions == ["flights: never scanned", "the horizon is 50, below 100"]


def test_split_points_cut_the_keys_into_equal_parts() -> None:
    """Each part becomes one task of the Spark job."""
    assert flights.quantiles([b"%02d" % number for number in range(40)], 4) == [b"10", b"20", b"30"]
    assert flights.quantiles([b"a"], 4) == []


def test_the_input_begins_with_the_year() -> None:
    """Each flight has a key of its own and no empty value, and an unknown plane is None."""
    found = flights.read_flights(flights.find_input(), 2000)
    assert len({flight.key for flight in found}) == len(found) == 2000
    assert found[0].key == b"2013-01-01|UA|1545|EWR"
    assert found[0].row[b"f:dest"] == b"IAH"
    assert all(value for flight in found for value in flight.row.values())
    assert sum(flight.plane is None for flight in found) == 2


@pytest.mark.nightly
@pytest.mark.integration
def test_the_input_is_the_whole_year() -> None:
    """All flights are there, each under a key of its own, and an unknown plane is None."""
    found = flights.read_flights(flights.find_input())
    assert len(found) == flights.ALL_FLIGHTS
    assert len({flight.key for flight in found}) == flights.ALL_FLIGHTS
    assert sum(flight.plane is None for flight in found) == 2512
    assert found[0].key == b"2013-01-01|UA|1545|EWR"
    assert found[0].row[b"f:dest"] == b"IAH"
    assert all(value for flight in found for value in flight.row.values())
