"""Bad arguments to the client: each refusal names the input and says what to do instead."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from enum import Enum
from pathlib import Path
from typing import Any, cast

import pytest

from compactor.shell.job import worker_url
from compactor.tables.adoption import ignore, plan_adoption
from omidpy import errors
from omidpy.base.cells import MAX_QUALIFIER_BYTES
from omidpy.base.tables import OMID_ENABLED
from omidpy.base.words.arguments import MAX_ROW_BYTES, MAX_VALUE_BYTES, prefix_end, scan_range
from omidpy.connect import connect
from omidpy.errors import (
    ConfigError,
    NoSuchFamily,
    NoSuchTable,
    NotTransactional,
    TransactionClosed,
    UsageError,
)
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.opening import open_store
from omidpy.oracle.base import hold_ms
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from omidpy.tx.table import TransactionalTable
from tests.machines.clients import TABLE, Client


@pytest.fixture
def client() -> Client:
    """Return a client with a table of the families `cf` and `other`."""
    return Client()


@pytest.fixture
def table(client: Client) -> TransactionalTable:
    """Return that table in a transaction."""
    return client.tm.begin().table(TABLE)


Use = Callable[[Any], object]

USAGE: list[tuple[str, Use, str]] = [
    ("empty-value", lambda t: t.put(b"r", {b"cf:q": b""}), r"b'q' is empty.*delete\(\)"),
    (
        "tombstone-value",
        lambda t: t.put(b"r", {b"cf:q": b"__OMID_TOMBSTONE__"}),
        r"__OMID_TOMBSTONE__.*delete\(\)",
    ),
    (
        "reserved-qualifier",
        lambda t: t.put(b"r", {b"cf:q\xc2\x80": b"v"}),
        r"b'q\\xc2\\x80' ends with the bytes C2 80.*another qualifier",
    ),
    (
        "delete-reserved-qualifier",
        lambda t: t.delete(b"r", [b"cf:\x00\xc2\x80q\xc2\x80"]),
        "C2 80.*another qualifier",
    ),
    ("no-family", lambda t: t.put(b"r", {b"q": b"v"}), r"b'q' must be written b'family:qual"),
    ("empty-family", lambda t: t.put(b"r", {b":q": b"v"}), r"b':q' must be written b'family:qual"),
    ("empty-row", lambda t: t.put(b"", {b"cf:q": b"v"}), "has 0 bytes; a row key has 1 to"),
    ("long-row", lambda t: t.row(b"x" * (MAX_ROW_BYTES + 1)), "32768 bytes; a row key has 1 to"),
    (
        "huge-value",
        lambda t: t.put(b"r", {b"cf:q": b"x" * (MAX_VALUE_BYTES + 1)}),
        "b'cf:q' has .* bytes, more than .*split it",
    ),
    ("put-timestamp", lambda t: t.put(b"r", {b"cf:q": b"v"}, timestamp=5), "timestamp=5.*leave it"),
    ("put-wal", lambda t: t.put(b"r", {b"cf:q": b"v"}, wal=False), "wal=False.*leave it out"),
    ("row-timestamp", lambda t: t.row(b"r", timestamp=5), "timestamp=5.*leave it out"),
    ("scan-filter", lambda t: t.scan(filter=b"X()"), r"filter=b'X\(\)'.*leave it out"),
    ("scan-batching", lambda t: t.scan(scan_batching=5), "scan_batching=5.*leave it out"),
    ("delete-timestamp", lambda t: t.delete(b"r", timestamp=5), "timestamp=5.*leave it out"),
    ("batch-timestamp", lambda t: t.batch(timestamp=5), "timestamp=5.*leave it out"),
    ("no-columns", lambda t: t.row(b"r", []), "columns is empty; pass None"),
    ("zero-limit", lambda t: t.scan(limit=0), "limit must be at least 1, not 0"),
    ("zero-batch", lambda t: t.scan(batch_size=0), "batch_size must be at least 1, not 0"),
    (
        "prefix-and-start",
        lambda t: t.scan(row_prefix=b"a", row_start=b"b"),
        "row_prefix cannot be combined",
    ),
    (
        "batch-size-in-transaction",
        lambda t: t.batch(batch_size=3, transaction=True),
        "transaction=True cannot be combined",
    ),
]

TYPES: list[tuple[str, Use, str]] = [
    ("text-row", lambda t: t.row("alice"), "row key must be bytes, not str: 'alice'; encode"),
    ("text-column", lambda t: t.put(b"r", {"cf:q": b"v"}), "column must be bytes, not str: 'cf:q'"),
    ("text-value", lambda t: t.put(b"r", {b"cf:q": "v"}), "value of column b'cf:q' must be bytes"),
    ("number-value", lambda t: t.put(b"r", {b"cf:q": 5}), "must be bytes, not int: 5"),
    ("text-columns", lambda t: t.row(b"r", "cf:q"), r"list of columns, not str: \['cf:q'\]"),
    ("bytes-columns", lambda t: t.row(b"r", b"cf:q"), r"list of columns, not bytes: \[b'cf:q'\]"),
    ("text-in-columns", lambda t: t.row(b"r", ["cf:q"]), "column must be bytes, not str: 'cf:q'"),
    ("text-bound", lambda t: t.scan(row_start="a"), "row_start must be bytes, not str: 'a'"),
    ("text-prefix", lambda t: t.scan(row_prefix="a"), "row_prefix must be bytes, not str"),
    ("rows-of-bytes", lambda t: t.rows(b"abc"), "sequence of row keys, not bytes"),
    ("text-limit", lambda t: t.scan(limit="3"), "limit must be a whole number, not '3'"),
    ("true-limit", lambda t: t.scan(limit=True), "limit must be a whole number, not True"),
    ("text-delete", lambda t: t.delete("r"), "row key must be bytes, not str: 'r'"),
]


@pytest.mark.parametrize(
    ("use", "message"), [case[1:] for case in USAGE], ids=[case[0] for case in USAGE]
)
def test_a_wrong_value_is_a_usage_error(table: TransactionalTable, use: Use, message: str) -> None:
    """Silently taken, each would be lost data or a delete that nobody asked for."""
    with pytest.raises(UsageError, match=message):
        use(table)


@pytest.mark.parametrize(
    ("use", "message"), [case[1:] for case in TYPES], ids=[case[0] for case in TYPES]
)
def test_a_wrong_type_is_a_type_error(table: TransactionalTable, use: Use, message: str) -> None:
    """Text has no bytes of its own; the caller chooses the encoding."""
    with pytest.raises(TypeError, match=message):
        use(table)


def test_usage_errors_are_value_errors() -> None:
    """Callers who know Python and not omidpy catch them too."""
    assert issubclass(UsageError, ValueError)


def test_a_refused_put_writes_none_of_its_columns(client: Client) -> None:
    """Half a row is worse than none."""
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
        with pytest.raises(UsageError):
            table.put(b"r", {b"cf:good": b"v", b"cf:bad": b""})
        assert table.row(b"r") == {}
    assert client.raw() == []


# -- tables and families ---------------------------------------------------------------------------


def test_an_unknown_table_is_named(client: Client) -> None:
    """Before anything is read or written."""
    with pytest.raises(NoSuchTable, match="'missing'"):
        client.tm.begin().table("missing")


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.put(b"r", {b"missing:q": b"v"}),
        lambda t: t.row(b"r", [b"missing:q"]),
        lambda t: t.scan(columns=[b"missing"]),
        lambda t: t.delete(b"r", [b"missing"]),
    ],
    ids=["put", "row", "scan", "delete"],
)
def test_an_unknown_family_is_named_with_those_there_are(
    table: TransactionalTable, use: Use
) -> None:
    """A typing mistake is seen at a glance."""
    with pytest.raises(NoSuchFamily, match=r"'t' has no .* b'missing'; it has b'cf', b'other'"):
        use(table)


def test_a_plain_table_is_refused_with_the_way_to_take_it_over(client: Client) -> None:
    """Its cells have no transactions; reading them would find nothing committed."""
    client.store.create_table(TableSchema("plain", [FamilySchema(b"cf")]))
    with pytest.raises(NotTransactional, match=r"'plain' is not marked.*omidpy table adopt plain"):
        client.tm.begin().table("plain")


def test_a_table_of_another_commit_table_is_refused(client: Client) -> None:
    """Another Omid decides about it."""
    families = [FamilySchema(b"cf", {OMID_ENABLED: "true"})]
    schema = TableSchema("theirs", families, {"OMIDPY_COMMIT_TABLE": "OTHER"})
    client.store.create_table(schema)
    with pytest.raises(NotTransactional, match="belongs to the commit table 'OTHER'"):
        client.tm.begin().table("theirs")


@pytest.mark.parametrize(
    ("families", "says"),
    [({}, "is not marked"), ({OMID_ENABLED: "true"}, "has not been adopted")],
    ids=["plain", "theirs"],
)
def test_a_table_that_is_not_ours_is_not_dropped(
    client: Client, families: dict[str, str], says: str
) -> None:
    """Plain data and the tables of other clients are gone for good when a name was mistyped."""
    client.store.create_table(TableSchema("precious", [FamilySchema(b"cf", families)]))
    with pytest.raises(NotTransactional, match=f"'precious' .*{says}"):
        client.tm.drop_table("precious")
    assert client.store.schema("precious").name == "precious"


def test_unmarked_families_of_a_table_are_not_ours(client: Client) -> None:
    """A plain family beside ours is neither read nor written."""
    families = [FamilySchema(b"cf", {OMID_ENABLED: "true"}), FamilySchema(b"plain")]
    attributes = {"OMIDPY_COMMIT_TABLE": "OMID_COMMIT_TABLE"}
    client.store.create_table(TableSchema("mixed", families, attributes))
    table = client.tm.begin().table("mixed")
    with pytest.raises(NoSuchFamily, match="no transactional family b'plain'; it has b'cf'"):
        table.put(b"r", {b"plain:q": b"v"})


def test_a_table_goes_by_one_name(client: Client) -> None:
    """HBase takes a second one; conflicts and fences, which go by the name, would not meet."""
    uses: list[Use] = [client.tm.begin().table, client.tm.fence, client.tm.drop_table]
    for use in uses:
        with pytest.raises(UsageError, match="second name of 't'; use that one"):
            use("default:t")


def test_a_table_is_adopted_by_the_name_that_the_store_gives_it() -> None:
    """What a compaction records goes by that one."""

    class TwoNames(MemoryStore):
        """A store that knows the default namespace, as HBase does."""

        def schema(self, table: str) -> TableSchema:
            return super().schema(table.removeprefix("default:"))

    store = TwoNames()
    store.create_table(TableSchema("people", (FamilySchema(b"cf"),)))
    commands: list[Callable[..., object]] = [plan_adoption, ignore]
    for command in commands:
        with pytest.raises(UsageError, match="second name of the table people"):
            command(store, "default:people", COMMIT_TABLE)


@pytest.mark.parametrize(
    ("name", "families", "message"),
    [
        ("-bad", ["cf"], "'-bad' must be letters"),
        ("", ["cf"], "'' must be letters"),
        ("OMID_COMMIT_TABLE", ["cf"], "OMID_COMMIT_TABLE' is reserved"),
        ("OMIDPY_X", ["cf"], "OMIDPY_X' is reserved"),
        ("default:OMIDPY_X", ["cf"], "second name of 'OMIDPY_X'"),
        ("t2", [], "needs at least one column family"),
        ("t2", ["a:b"], "'a:b' must be printable"),
        ("t2", [b""], "b'' must be printable"),
    ],
)
def test_names_that_no_table_can_have_are_refused(
    client: Client, name: str, families: list[str], message: str
) -> None:
    """Here, and not in one backend or another."""
    with pytest.raises(UsageError, match=message):
        client.tm.create_table(name, families)


def test_families_given_as_one_word_are_refused(client: Client) -> None:
    """`families="cf"` would be two families, `c` and `f`."""
    with pytest.raises(TypeError, match="families must be a list of names, not 'cf'"):
        client.tm.create_table("t2", "cf")


NOT_TOLD: list[tuple[str, Use, str]] = [
    ("families", lambda tm: tm.create_table("n", None), "families must be a list of names"),
    ("splits", lambda tm: tm.create_table("n", ["cf"], splits=None), "splits must be a list"),
    ("split text", lambda tm: tm.create_table("n", ["cf"], splits=b"m"), "splits must be a list"),
    ("table", lambda tm: tm.begin().table([TABLE]), r"a table name must be str, not list"),
    ("changes", lambda tm: tm.changes([TABLE]), "a table name must be str, not list"),
    ("fence", lambda tm: tm.fence({}), "a table name must be str, not dict"),
    ("watch", lambda tm: tm.watch([TABLE], b"r"), "a table name must be str, not list"),
    ("queue", lambda tm: tm.begin().queue([]), "the id of a queue must be str, not list"),
    ("free", lambda tm: tm.begin().table(TABLE, conflict_free="no"), "conflict_free must be True"),
    ("hold_s", lambda _: hold_ms(cast("Any", "9")), "hold_s must be a number, not '9'"),
    ("for_s", lambda tm: tm.hold(tm.begin(), for_s=None), "for_s must be a number, not None"),
    ("timeout", lambda tm: tm.watch(TABLE, b"r", timeout_s="9"), "timeout_s must be a number"),
    ("budget", lambda tm: tm.attempts(budget_s=None), "a retry budget must be a number"),
    ("retries", lambda tm: tm.transactional(retry_budget_s="9"), "retry_budget_s must be a number"),
    ("rows", lambda tm: tm.begin().table(TABLE).rows(None), "rows must be a sequence of row keys"),
    ("columns", lambda tm: tm.begin().table(TABLE).row(b"r", 5), "columns must be a list"),
    (
        "arrow",
        lambda tm: tm.scan_arrow(TABLE, batch_rows=None),
        "batch_rows must be a whole number",
    ),
    ("inc", lambda tm: tm.begin().table(TABLE).counter_inc(b"r", b"cf:q", "1"), "a whole number"),
    ("dec", lambda tm: tm.begin().table(TABLE).counter_dec(b"r", b"cf:q", None), "a whole number"),
    ("flag", lambda tm: tm.begin().table(TABLE).counter_add(b"r", b"cf:q", True), "a whole number"),
]


@pytest.mark.parametrize(
    ("use", "message"), [case[1:] for case in NOT_TOLD], ids=[case[0] for case in NOT_TOLD]
)
def test_an_argument_of_another_type_is_named(client: Client, use: Use, message: str) -> None:
    """`'<' not supported between 'int' and 'str'` says neither which nor what to give."""
    with pytest.raises(TypeError, match=message):
        use(client.tm)


def test_a_table_name_is_text(client: Client) -> None:
    """The one place where bytes are wrong."""
    with pytest.raises(TypeError, match="table name must be str, not bytes: b't'"):
        client.tm.begin().table(b"t")  # type: ignore[arg-type]  # that is the point


class Tables(str, Enum):  # noqa: UP042 - as programs have them
    """Names that call themselves otherwise where they are written."""

    PEOPLE = "people"


def test_a_member_of_an_enumeration_that_is_text_is_that_text(client: Client) -> None:
    """`create_table` made a table `Tables.PEOPLE`, and `table` found none."""
    client.tm.create_table(Tables.PEOPLE, ["cf"])
    assert "people" in client.tm.tables()
    with client.tm.begin() as tx:
        tx.table(Tables.PEOPLE).put(b"r", {b"cf:q": b"1"})
        assert tx.table("people").name == tx.table(Tables.PEOPLE).name == "people"
        worker = client.tm.resume(tx.token())
        assert worker.table(Tables.PEOPLE).name == "people"
    client.tm.drop_table(Tables.PEOPLE)
    assert "people" not in client.tm.tables()


def test_split_points_that_come_once_are_not_lost(client: Client) -> None:
    """They were looked at, and none was left for the table."""
    client.tm.create_table("t2", ["cf"], splits=cast("Any", iter([b"m", b"f"])))
    assert [one.start for one in client.store.regions("t2")] == [b"", b"f", b"m"]


@pytest.mark.parametrize("length", [MAX_QUALIFIER_BYTES + 1, 10 * 1024 * 1024 - 24])
def test_a_qualifier_without_room_for_its_shadow_cell_is_refused(
    table: TransactionalTable, length: int
) -> None:
    """The cell was committed, and no read of its row, nor any compaction, went well after that."""
    column = b"cf:" + b"q" * length
    uses: list[Use] = [
        lambda t: t.put(b"r", {column: b"v"}),
        lambda t: t.batch().put(b"r", {column: b"v"}),
        lambda t: t.delete(b"r", [column]),
    ]
    for use in uses:
        with pytest.raises(UsageError, match=f"has {length} bytes, more than .* shadow cell"):
            use(table)


def test_the_longest_qualifier_is_read_and_healed_in_the_row_of_the_longest_key() -> None:
    """What is taken is healed, also where the whole key is as long as it can be."""
    client = Client(post_commit="sync")
    row, column = b"r" * MAX_ROW_BYTES, b"cf:" + b"q" * MAX_QUALIFIER_BYTES
    with client.tm.begin() as tx:
        tx.table(TABLE).put(row, {column: b"v"})
    assert len(client.raw()) == 2, "the cell, and its shadow cell"
    with client.tm.begin() as tx:
        assert tx.table(TABLE).row(row) == {column: b"v"}


def test_an_empty_split_point_is_refused(client: Client) -> None:
    """It is where the first region starts anyway."""
    with pytest.raises(UsageError, match="split point must not be empty"):
        client.tm.create_table("t2", ["cf"], splits=[b""])


# -- transactions ----------------------------------------------------------------------------------

ENDINGS: list[tuple[str, Use]] = [
    ("committed", lambda tx: tx.commit()),
    ("rolled_back", lambda tx: tx.rollback()),
]
USES: list[tuple[str, Use]] = [
    ("commit", lambda tx: tx.commit()),
    ("rollback", lambda tx: tx.rollback()),
    ("flush", lambda tx: tx.flush()),
    ("table", lambda tx: tx.table(TABLE)),
    ("set_rollback_only", lambda tx: tx.set_rollback_only()),
    ("after_commit", lambda tx: tx.after_commit(print)),
    ("publish", lambda tx: tx.publish([], "s3://bucket/folder")),
    ("published", lambda tx: tx.published("s3://bucket/folder")),
    ("with", lambda tx: tx.__enter__()),
]


@pytest.mark.parametrize(("status", "end"), ENDINGS, ids=[case[0] for case in ENDINGS])
@pytest.mark.parametrize("use", [case[1] for case in USES], ids=[case[0] for case in USES])
def test_an_ended_transaction_cannot_be_used(
    client: Client, status: str, end: Use, use: Use
) -> None:
    """Its snapshot may be collected, and its write set has been decided."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    end(tx)
    with pytest.raises(TransactionClosed, match=rf"{tx.start_ts} is {status}; begin another"):
        use(tx)


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t.row(b"r"),
        lambda t: t.rows([b"r"]),
        lambda t: t.put(b"r", {b"cf:q": b"v"}),
        lambda t: t.delete(b"r"),
        lambda t: t.batch(),
        lambda t: t.scan(),
    ],
    ids=["row", "rows", "put", "delete", "batch", "scan"],
)
def test_a_table_of_an_ended_transaction_cannot_be_used(client: Client, use: Use) -> None:
    """It is the transaction's, not the manager's."""
    with client.tm.begin() as tx:
        table = tx.table(TABLE)
    with pytest.raises(TransactionClosed, match="begin another"):
        use(table)


def test_a_scan_ends_with_its_transaction(client: Client) -> None:
    """An iterator that outlives its `with` block would read an unguarded snapshot."""
    for row in (b"a", b"b"):
        client.write(row)
    with client.tm.begin() as tx:
        rows = tx.table(TABLE).scan(batch_size=1)
        next(rows)
    with pytest.raises(TransactionClosed):
        next(rows)


def test_with_twice_on_one_transaction_is_an_error(client: Client) -> None:
    """The inner block's end would commit under the outer one."""
    with client.tm.begin() as tx:
        with pytest.raises(TransactionClosed, match=f"{tx.start_ts} was entered twice"):
            tx.__enter__()
        tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
    assert client.read() == {b"cf:q": b"v"}


def test_a_read_only_transaction_refuses_writes(client: Client) -> None:
    """And says which begin would take them."""
    table = client.tm.begin(read_only=True).table(TABLE)
    with pytest.raises(UsageError, match=r"is read-only; use tm.begin\(\) to write"):
        table.put(b"r", {b"cf:q": b"v"})
    with pytest.raises(UsageError, match="is read-only"):
        table.delete(b"r", [b"cf:q"])


@pytest.mark.parametrize(
    "use",
    [
        lambda tm: tm.begin(),
        lambda tm: tm.attempts(),
        lambda tm: tm.create_table("x", ["cf"]),
        lambda tm: tm.tables(),
        lambda tm: tm.outcome(50),
        lambda tm: tm.fence(TABLE),
        lambda tm: tm.low_watermark(),
        lambda tm: tm.drop_table(TABLE),
    ],
)
def test_a_closed_manager_cannot_be_used(client: Client, use: Use) -> None:
    """Instead of an error from deep inside a closed store."""
    client.tm.close()
    with pytest.raises(UsageError, match="manager is closed; connect again"):
        use(client.tm)


def test_a_number_that_no_transaction_has_is_refused(client: Client) -> None:
    """Beyond 63 bits, or not positive: asked for by mistake, and not to be called forgotten."""
    for number in (-50, 0, 2**63, 2**70):
        with pytest.raises(UsageError, match=f"{number} is no start_ts"):
            client.tm.outcome(number)


def test_a_scan_that_starts_after_the_end_is_refused(client: Client) -> None:
    """A scan is lazy: an empty answer would say that there are no rows, unasked."""
    with client.tm.begin() as tx:
        scan = tx.table(TABLE).scan(row_prefix=b"nothing")
    with pytest.raises(TransactionClosed):
        list(scan)


# -- connect ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("rel.db", "'rel.db' is none of: sqlite:///"),
        ("sqlite:rel.db", "write sqlite:///relative.db or sqlite:////absolute.db"),
        ("sqlite:///", "write sqlite:///relative.db"),
        ("sqlite:///x.db?mode=ro", "write sqlite:///relative.db"),
        ("memory:name", "memory: takes nothing after the colon"),
        ("postgres://x", "is none of: sqlite:///"),
    ],
)
def test_an_address_of_no_store_is_refused(url: str, message: str) -> None:
    """Nothing is created by a typing mistake."""
    with pytest.raises(ConfigError, match=message):
        open_store(url)


def test_an_address_is_text() -> None:
    """A path object, or None from a missing setting, is named as what it is."""
    with pytest.raises(TypeError, match="the address of a store must be str, not None"):
        connect(None)  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(TypeError, match="tso must be str, not 24758"):
        connect("memory:", tso=24758)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize("name", ["a b.db", "a%41.db", "100%.db", "why?.db", "ä.db"])
def test_a_store_says_an_address_that_leads_back_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A Spark worker, and whoever copies an address from a message, opens the same file."""
    folder = tmp_path / "%41"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with closing(SqliteStore(name)) as made:
        for url in (made.url, worker_url(made.url)):
            with closing(open_store(url, must_exist=True)) as found:
                assert found.store_id == made.store_id


def test_memory_cannot_have_a_server() -> None:
    """The two would never see the same cells."""
    with pytest.raises(ConfigError, match="memory: lives in this process"):
        connect("memory:", tso="127.0.0.1:1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conflict_level": "table"}, r"conflict_level='table' is none of \('cell', 'row'\)"),
        ({"post_commit": "later"}, r"post_commit='later' is none of \('async', 'sync', 'none'\)"),
    ],
)
def test_an_unknown_option_names_the_known_ones(options: dict[str, str], message: str) -> None:
    """At the door, not at the first commit."""
    with pytest.raises(UsageError, match=message):
        connect("memory:", **options)


def test_a_refused_connect_leaves_the_store_free(tmp_path: Path) -> None:
    """The oracle had its lease and a thread already; nobody but a restart could have ended it."""
    url = f"sqlite:///{tmp_path}/x.db"
    running = threading.active_count()
    with pytest.raises(UsageError):
        connect(url, conflict_level="table")
    assert threading.active_count() == running
    connect(url).close()


# -- ranges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\xff", b""), (b"\xff\xff", b""), (b"", b"")],
)
def test_a_prefix_ends_before_the_next_one(prefix: bytes, end: bytes) -> None:
    """Trailing FF bytes have no successor."""
    assert prefix_end(prefix) == end


def test_a_reverse_range_swaps_which_end_is_inclusive() -> None:
    """As in HBase: it starts at the upper end and stops before the lower."""
    assert scan_range(b"m", b"c", None, reverse=True) == KeyRange(b"c\x00", b"m\x00")
    assert scan_range(None, None, None, reverse=True) == KeyRange()
    assert scan_range(b"c", b"m", None, reverse=False) == KeyRange(b"c", b"m")


# -- the tree of errors ----------------------------------------------------------------------------


def test_every_error_is_drawn_in_the_tree() -> None:
    """The drawing at the top of the module is what people read."""
    drawing = errors.__doc__ or ""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.OmidError):
            assert name in drawing, name
            assert value is errors.OmidError or issubclass(value, errors.OmidError)


def test_only_certain_aborts_full_queues_and_an_absent_oracle_are_retryable() -> None:
    """Everything else run again blindly could apply a transaction twice.

    A full queue is said before the commit, to a transaction that rolls back.
    """
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.OmidError)
    ]
    retryable = {value.__name__ for value in classes if value.retryable}
    aborts = {value.__name__ for value in classes if issubclass(value, errors.TransactionAborted)}
    assert retryable == aborts | {"OracleUnavailable", "QueueFull"}
