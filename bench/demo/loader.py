"""A process that loads flights, one transaction each, and may be killed at any instant.

It takes chunks of flights on standard input and says on standard output how far it is, both as JSON
lines, so that it needs to know neither the input nor the other loaders.  What a loader had not
reported when it died is simply done again: each transaction looks first if its flight is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

import omidpy
from bench.demo.flights import COUNT, COUNTERS, FLIGHT, FLIGHTS, Flight
from omidpy.errors import WriteConflict
from omidpy.manager import TransactionManager
from omidpy.tx.transaction import Transaction

REPORT_EVERY: Final = 10
"""Flights between two reports."""

RETRY_BUDGET_S: Final = 60.0


class Report(msgspec.Struct):
    """What a loader did since its last report."""

    loaded: int = 0
    found_loaded: int = 0
    """Flights that another loader had committed, but not reported, before it was killed."""
    conflicts: int = 0
    retries: int = 0


def write_flight(tx: Transaction, flight: Flight) -> bool:
    """Write a flight with its index rows and counters, unless it is there already."""
    flights = tx.table(FLIGHTS)
    if flights.row(flight.key):
        return False
    flights.put(flight.key, flight.row)
    for table, row in flight.index_rows():
        tx.table(table).put(row, {FLIGHT: flight.key})
    # Sent ahead of the commit: a kill from here on leaves cells whose transaction never commits.
    tx.flush()
    counters = tx.table(COUNTERS)
    rows = flight.counter_rows()
    counts = dict(counters.rows(rows))
    for row in rows:
        count = int(counts[row][COUNT]) if row in counts else 0
        counters.put(row, {COUNT: b"%d" % (count + 1)})
    return True


def load_flight(tm: TransactionManager, flight: Flight, report: Report) -> None:
    """Load one flight, again and again until a transaction commits."""
    for attempt in tm.attempts(budget_s=RETRY_BUDGET_S):
        with attempt as tx:
            is_new = write_flight(tx, flight)
        if attempt.error is not None:
            report.retries += 1
            report.conflicts += isinstance(attempt.error, WriteConflict)
    if is_new:
        report.loaded += 1
    else:
        report.found_loaded += 1


def load_chunks(tm: TransactionManager) -> None:
    """Load chunk after chunk until standard input ends."""
    for line in sys.stdin.buffer:
        chunk = msgspec.json.decode(line, type=list[Flight])
        report = Report()
        for number, flight in enumerate(chunk, start=1):
            load_flight(tm, flight, report)
            if number == len(chunk) or number % REPORT_EVERY == 0:
                say(report)
                report = Report()


def say(report: Report) -> None:
    """Report to the parent."""
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


def main(arguments: Sequence[str] | None = None) -> None:
    """Connect, and load until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m bench.demo.loader", description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--tso", required=True)
    options = parser.parse_args(arguments)
    with omidpy.connect(options.store, tso=options.tso) as tm:
        load_chunks(tm)


if __name__ == "__main__":
    main()
