"""The same calls through happybase and through us, on one real Thrift1 gateway.

happybase has a plain table, we have a transactional one; both begin with the same rows.  What they
return must have the same shape, and where they differ the guide says so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import happybase
import pytest
from thriftpy2.thrift import TException

import omidpy
from omidpy import errors
from omidpy.manager import TransactionManager
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.tx.transaction import Transaction
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import tso_server

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

Use = Callable[[Any], Any]

ALL: Final = 2**31 - 1
FAMILIES: Final = {"cf": {"max_versions": ALL}, "other": {"max_versions": ALL}}
ROWS: Final = {
    b"a": {b"cf:q": b"1", b"cf:w": b"2", b"other:x": b"3"},
    b"b": {b"cf:q": b"4"},
    b"b\x00": {b"cf:\xff": b"\x00\xff"},
    b"c": {b"other:": b"5"},
    b"d": {b"cf:q": b"6", b"cf:z:z": b"7"},
}


class World(NamedTuple):
    """Both clients of one gateway, and the one that makes tables."""

    pool: Any
    """A `happybase.ConnectionPool`."""
    theirs: Any
    """A `happybase.Connection`."""
    ours: TransactionManager
    """Connected with the pool."""
    admin: TransactionManager
    """Through Thrift2, which makes transactional tables."""


@pytest.fixture(scope="module")
def world(hbase: HBase) -> Iterator[World]:
    """Return the clients."""
    ((host, port),) = parse_address(hbase.thrift1_url).gateways
    with (
        empty_hbase(hbase) as url,
        tso_server(url) as server,
        omidpy.connect(url, tso=server.address, post_commit="sync") as admin,
    ):
        pool = happybase.ConnectionPool(2, host=host, port=port, timeout=30_000)
        with (
            pool.connection() as theirs,
            omidpy.connect(pool, tso=server.address, post_commit="sync") as ours,
        ):
            yield World(pool, theirs, ours, admin)


_names = itertools.count()


def fresh(world: World) -> str:
    """Make a table in both worlds, and return what its two names begin with."""
    name = f"t{next(_names)}"
    world.theirs.create_table(f"{name}_plain", FAMILIES)
    world.admin.create_table(f"{name}_ours", {"cf": {}, "other": {}})
    return name


def fill(table: Any) -> None:
    """Write the rows."""
    with table.batch() as batch:
        for row, data in ROWS.items():
            batch.put(row, data)


@pytest.fixture(scope="module")
def filled(world: World) -> str:
    """Return the name of tables with the rows, which tests do not change."""
    name = fresh(world)
    fill(world.theirs.table(f"{name}_plain"))
    with world.ours.begin() as tx:
        fill(tx.table(f"{name}_ours"))
    return name


@pytest.fixture(scope="module")
def scratch(world: World) -> str:
    """Return the name of tables that several tests write to, each to rows of its own."""
    return fresh(world)


@pytest.fixture(params=["committed", "own"])
def table(request: pytest.FixtureRequest, world: World, filled: str) -> Iterator[Any]:
    """Return our table: its rows were committed, or written by the transaction that reads them."""
    tx = world.ours.begin()
    if request.param == "committed":
        yield tx.table(f"{filled}_ours")
    else:
        name = f"{filled}_own"
        if name not in world.ours.tables():
            world.admin.create_table(name, ["cf", "other"])
        fill(tx.table(name))
        yield tx.table(name)
    tx.rollback()


# -- reads -----------------------------------------------------------------------------------------

READS: list[tuple[str, Use]] = [
    ("row", lambda t: t.row(b"a")),
    ("row-absent", lambda t: t.row(b"none")),
    ("row-column", lambda t: t.row(b"a", [b"cf:q"])),
    ("row-columns", lambda t: t.row(b"a", columns=(b"cf:w", b"other:x"))),
    ("row-family", lambda t: t.row(b"a", [b"cf"])),
    ("row-family-and-column", lambda t: t.row(b"a", [b"other", b"cf:q"])),
    ("row-colon", lambda t: t.row(b"c", [b"other:"])),
    ("row-colon-is-no-family", lambda t: t.row(b"a", [b"other:"])),
    ("scan-colon", lambda t: list(t.scan(columns=[b"other:"]))),
    ("row-missing-column", lambda t: t.row(b"a", [b"cf:none"])),
    ("row-empty-qualifier", lambda t: t.row(b"c")),
    ("rows", lambda t: t.rows([b"d", b"a", b"none", b"b"])),
    ("rows-columns", lambda t: t.rows([b"a", b"c", b"d"], columns=[b"cf:q"])),
    ("rows-tuple", lambda t: t.rows((b"a",))),
    ("scan", lambda t: list(t.scan())),
    ("scan-range", lambda t: list(t.scan(row_start=b"b", row_stop=b"d"))),
    ("scan-positional", lambda t: list(t.scan(b"b", b"c"))),
    ("scan-prefix", lambda t: list(t.scan(row_prefix=b"b"))),
    ("scan-prefix-of-nothing", lambda t: list(t.scan(row_prefix=b"x"))),
    ("scan-columns", lambda t: list(t.scan(columns=[b"cf:q", b"other"]))),
    ("scan-limit", lambda t: list(t.scan(limit=2))),
    ("scan-small-batches", lambda t: list(t.scan(batch_size=1))),
    ("scan-reverse", lambda t: list(t.scan(reverse=True))),
    ("scan-reverse-range", lambda t: list(t.scan(row_start=b"c", row_stop=b"a", reverse=True))),
    ("scan-sorted", lambda t: [list(data) for _, data in t.scan(sorted_columns=True)]),
    ("scan-nothing", lambda t: list(t.scan(row_start=b"x"))),
    ("cells", lambda t: t.cells(b"a", b"cf:q")),
    ("cells-one", lambda t: t.cells(b"a", b"cf:q", versions=1)),
    ("cells-absent", lambda t: t.cells(b"a", b"cf:none")),
    ("families", lambda t: sorted(t.families())),
    ("family-keys", lambda t: sorted(t.families()[b"cf"])),
    ("regions", lambda t: [(one["start_key"], one["end_key"]) for one in t.regions()]),
    ("counter-absent", lambda t: t.row(b"none", [b"cf:n"])),
]


@pytest.mark.parametrize("use", [case[1] for case in READS], ids=[case[0] for case in READS])
def test_reads_return_the_same(world: World, filled: str, table: Any, use: Use) -> None:
    """Values, types, order and what is left out."""
    theirs = use(world.theirs.table(f"{filled}_plain"))
    ours = use(table)
    assert ours == theirs
    assert type(ours) is type(theirs)


TIMED: list[tuple[str, Use]] = [
    ("row", lambda t: t.row(b"a", include_timestamp=True)),
    ("rows", lambda t: dict(t.rows([b"a"], include_timestamp=True))[b"a"]),
    ("scan", lambda t: dict(t.scan(include_timestamp=True))[b"a"]),
    ("cells", lambda t: dict(enumerate(t.cells(b"a", b"cf:q", include_timestamp=True)))),
]


@pytest.mark.parametrize("use", [case[1] for case in TIMED], ids=[case[0] for case in TIMED])
def test_timestamps_come_in_the_same_shape(world: World, filled: str, table: Any, use: Use) -> None:
    """Pairs of a value and a number, which here is the commit's."""
    theirs = use(world.theirs.table(f"{filled}_plain"))
    ours = use(table)
    assert {key: pair[0] for key, pair in ours.items()} == {
        key: pair[0] for key, pair in theirs.items()
    }
    for pair in (*ours.values(), *theirs.values()):
        assert [type(one) for one in pair] == [bytes, int]


# -- writes ----------------------------------------------------------------------------------------


def rewrite(table: Any) -> None:
    """Put, overwrite, delete columns, a family, a row, what is not there."""
    table.put(b"e", {b"cf:q": b"8", b"other:y": b"9"})
    table.put(b"a", {b"cf:q": b"changed"})
    table.delete(b"a", columns=[b"cf:w"])
    table.delete(b"d", [b"cf"])
    table.delete(b"b")
    table.delete(b"none")
    table.delete(b"c", [b"cf:none"])


def in_batches(table: Any) -> None:
    """Collect the same, in one batch and in small ones."""
    with table.batch() as batch:
        batch.put(b"e", {b"cf:q": b"8"})
        batch.delete(b"b")
        batch.delete(b"a", [b"cf:w"])
    with table.batch(batch_size=2) as batch:
        for number in range(5):
            batch.put(b"n%d" % number, {b"cf:q": b"%d" % number})
    batch = table.batch()
    batch.put(b"sent", {b"other:q": b"1"})
    batch.send()
    batch.put(b"not sent", {b"other:q": b"1"})


def in_a_batch_that_fails(table: Any) -> None:
    """Raise in a block that asked for nothing or all."""
    with table.batch(transaction=True) as batch:
        batch.put(b"e", {b"cf:q": b"8"})
        raise ZeroDivisionError


def count(table: Any) -> list[int]:
    """Use counters; what they return is compared, too."""
    return [
        table.counter_inc(b"n", b"cf:n"),
        table.counter_inc(b"n", b"cf:n", 41),
        table.counter_dec(b"n", b"cf:n", value=2),
        table.counter_get(b"n", b"cf:n"),
        table.counter_set(b"n", b"cf:n", 7) or table.counter_get(b"n", b"cf:n"),
        table.counter_dec(b"n", b"cf:n", 10),
    ]


@pytest.mark.parametrize("write", [rewrite, in_batches, in_a_batch_that_fails, count])
def test_writes_leave_the_same_behind(world: World, write: Use) -> None:
    """And raise or return the same."""
    name = fresh(world)

    def run(table: Any) -> object:
        try:
            return write(table)
        except ZeroDivisionError as error:
            return str(error)

    theirs = world.theirs.table(f"{name}_plain")
    fill(theirs)
    with world.ours.begin() as tx:
        fill(tx.table(f"{name}_ours"))
    returned = run(theirs)
    with world.ours.begin() as tx:
        assert run(tx.table(f"{name}_ours")) == returned
        in_the_transaction = list(tx.table(f"{name}_ours").scan())
    with world.ours.begin() as tx:
        assert list(tx.table(f"{name}_ours").scan()) == in_the_transaction == list(theirs.scan())


def test_values_of_a_column_come_as_many_as_were_written(world: World, scratch: str) -> None:
    """Newest first, as far back as the last delete."""
    theirs = world.theirs.table(f"{scratch}_plain")

    def both(use: Use) -> tuple[Any, Any]:
        with world.ours.begin() as tx:
            mine = use(tx.table(f"{scratch}_ours"))
        return mine, use(theirs)

    for number in range(3):
        data = {b"cf:q": b"%d" % number}
        both(partial(_put, row=b"r", data=data))
    for versions in (None, 1, 2, 5):
        mine, their = both(partial(_cells, versions=versions))
        assert mine == their
    assert len(mine) == 3
    both(lambda t: t.delete(b"r"))
    assert both(lambda t: t.cells(b"r", b"cf:q")) == ([], [])
    both(lambda t: t.put(b"r", {b"cf:q": b"new"}))
    assert both(lambda t: t.cells(b"r", b"cf:q")) == ([b"new"], [b"new"])


def _put(table: Any, *, row: bytes, data: dict[bytes, bytes]) -> None:
    table.put(row, data)


def _cells(table: Any, *, versions: int | None) -> list[bytes]:
    found: list[bytes] = table.cells(b"r", b"cf:q", versions=versions)
    return found


# -- errors ----------------------------------------------------------------------------------------

SERVER: Final = TException
"""What happybase lets through of the gateway's: an exception of Thrift with Java's words."""

WRONG: list[tuple[str, Use, type[Exception], type[Exception]]] = [
    ("family-row", lambda t: t.row(b"a", [b"none:q"]), SERVER, errors.NoSuchFamily),
    ("family-put", lambda t: t.put(b"a", {b"none:q": b"v"}), SERVER, errors.NoSuchFamily),
    ("family-scan", lambda t: list(t.scan(columns=[b"none"])), SERVER, errors.NoSuchFamily),
    ("no-family", lambda t: t.put(b"a", {b"q": b"v"}), SERVER, errors.UsageError),
    ("empty-row", lambda t: t.put(b"", {b"cf:q": b"v"}), SERVER, errors.UsageError),
    ("columns-of-bytes", lambda t: t.row(b"a", b"cf:q"), TypeError, TypeError),
    ("no-batch-size", lambda t: list(t.scan(batch_size=0)), ValueError, ValueError),
    ("no-limit", lambda t: list(t.scan(limit=0)), ValueError, ValueError),
    ("no-versions", lambda t: t.cells(b"a", b"cf:q", versions=0), ValueError, ValueError),
    ("batch-size", lambda t: t.batch(batch_size=0), ValueError, ValueError),
    ("batch-both", lambda t: t.batch(batch_size=1, transaction=True), TypeError, ValueError),
    ("ranges", lambda t: list(t.scan(row_prefix=b"a", row_start=b"a")), TypeError, ValueError),
    ("timestamp", lambda t: t.row(b"a", timestamp=b"5"), TypeError, ValueError),
]


@pytest.mark.parametrize(
    ("use", "their_error", "our_error"),
    [case[1:] for case in WRONG],
    ids=[case[0] for case in WRONG],
)
def test_what_they_refuse_we_refuse(
    world: World,
    filled: str,
    table: Any,
    use: Use,
    their_error: type[Exception],
    our_error: type[Exception],
) -> None:
    """Each by its own error: theirs come in part from the server, ours name the input."""
    with pytest.raises(their_error):
        use(world.theirs.table(f"{filled}_plain"))
    with pytest.raises(our_error):
        use(table)


REFUSED_HERE: list[tuple[str, Use]] = [
    ("empty-value", lambda t: t.put(b"x", {b"cf:q": b""})),
    ("timestamp", lambda t: t.put(b"x", {b"cf:q": b"v"}, timestamp=5)),
    ("no-log", lambda t: t.put(b"x", {b"cf:q": b"v"}, wal=False)),
    ("filter", lambda t: list(t.scan(filter=b"KeyOnlyFilter()"))),
    ("read-at", lambda t: t.row(b"a", timestamp=5)),
]


@pytest.mark.parametrize(
    "use", [case[1] for case in REFUSED_HERE], ids=[case[0] for case in REFUSED_HERE]
)
def test_what_a_transaction_cannot_do_is_refused(world: World, use: Use) -> None:
    """Happybase does it; the guide's table has each of them."""
    name = fresh(world)
    use(world.theirs.table(f"{name}_plain"))
    with pytest.raises(errors.UsageError), world.ours.begin() as tx:
        use(tx.table(f"{name}_ours"))


# -- tables ----------------------------------------------------------------------------------------


def test_options_of_families_reach_hbase(world: World) -> None:
    """Happybase and we see the same settings, and those are what was asked for."""
    options = {
        "compression": "GZ",
        "bloom_filter_type": "ROWCOL",
        "block_cache_enabled": False,
        "in_memory": True,
        "max_versions": ALL,
        "time_to_live": ALL,
    }
    name = f"t{next(_names)}"
    world.theirs.create_table(f"{name}_plain", {"cf": options, "other": {"max_versions": ALL}})
    world.admin.create_table(f"{name}_ours", {"cf": options, "other": {}})
    theirs = world.theirs.table(f"{name}_ours").families()
    asked = world.theirs.table(f"{name}_plain").families()
    assert theirs[b"cf"] == asked[b"cf"]
    assert theirs[b"cf"]["compression"] in ("GZ", b"GZ")
    for manager in (world.ours, world.admin):
        with manager.begin() as tx:
            assert tx.table(f"{name}_ours").families() == theirs


def test_a_codec_that_hbase_lacks_is_its_error(world: World) -> None:
    """Which ones it has is known to it alone."""
    with pytest.raises(errors.UsageError, match=r"(?i)lzo"):
        world.admin.create_table("lacks", {"cf": {"compression": "LZO"}})
    assert "lacks" not in world.admin.tables()


def test_a_prefix_of_happybases_is_ours(world: World) -> None:
    """A program that uses one finds its tables."""
    theirs = happybase.Connection(
        world.theirs.host, world.theirs.port, autoconnect=False, table_prefix="app"
    )
    world.admin.create_table("app_people", ["cf"])
    with omidpy.connect(theirs, tso="store:") as tm:
        assert tm.tables() == ["people"]
        with tm.begin() as tx:
            tx.table("people").put(b"r", {b"cf:q": b"v"})
    with world.admin.begin() as tx:
        assert tx.table("app_people").row(b"r") == {b"cf:q": b"v"}


def test_both_work_at_the_same_time_through_one_pool(world: World, filled: str) -> None:
    """Theirs are not ours: a call of ours in between answers nobody else."""
    with world.pool.connection() as theirs:
        scanning = theirs.table(f"{filled}_plain").scan(batch_size=1)
        first = next(scanning)
        with world.ours.begin() as tx:
            ours = list(tx.table(f"{filled}_ours").scan())
        assert [first, *scanning] == ours


def test_an_oracle_cannot_run_behind_it(world: World) -> None:
    """Thrift1 is for clients; the message says what to give."""
    with pytest.raises(errors.ConfigError, match="tso="):
        omidpy.connect(world.pool)


def test_a_transaction_is_a_transaction(world: World, scratch: str) -> None:
    """The point of it all: nobody sees half of it, and of two that conflict one is refused."""
    first, second = world.ours.begin(), world.ours.begin()

    def write(tx: Transaction) -> None:
        for row in (b"conflict a", b"conflict b"):
            tx.table(f"{scratch}_ours").put(row, {b"cf:q": b"%d" % tx.start_ts})

    for tx in (first, second):
        write(tx)
        tx.flush()
    first.commit()
    with pytest.raises(errors.WriteConflict):
        second.commit()
    with world.ours.begin() as tx:
        found = dict(tx.table(f"{scratch}_ours").scan(row_prefix=b"conflict"))
    assert {data[b"cf:q"] for data in found.values()} == {b"%d" % first.start_ts}
