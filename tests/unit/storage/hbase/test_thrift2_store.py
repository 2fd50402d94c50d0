"""What a store on HBase asks of its gateways: which calls, how often, and which may be repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from omidpy.errors import NoSuchFamily, NoSuchTable, StorageUnavailable
from omidpy.model import Column
from omidpy.storage.base import Condition, DeleteVersion, Entries, GuardedMutation, Put, RowMutation
from omidpy.storage.hbase.addresses.gateways import parse_address
from omidpy.storage.hbase.idl import thrift2 as idl
from omidpy.storage.hbase.rpc.pool import GatewayPool
from omidpy.storage.hbase.rpc.translate import translate
from omidpy.storage.hbase.thrift2 import Thrift2Store
from omidpy.storage.options import Portion, Wanted

URL = "hbase+thrift2://127.0.0.1:1"
DEADLINE_S = 30.0
PUT = Put(b"cf", b"q", 7, b"v")
DELETE = DeleteVersion(b"cf", b"q", 9)


class Called(NamedTuple):
    """A call that reached the pool."""

    method: str
    args: tuple[Any, ...]
    is_idempotent: bool


class ScriptedPool(GatewayPool):
    """Answers from a script; every table has the families `cf` and `m`, until told otherwise."""

    def __init__(self) -> None:
        self.calls: list[Called] = []
        self.families: list[bytes] = [b"cf", b"m"]
        self.attributes: dict[bytes, bytes] = {}
        self.answers: dict[str, Any] = {}

    def call(
        self,
        method: str,
        *args: Any,
        is_idempotent: bool,
        table: str | None = None,
        what: str = "",
        patience_s: float | None = None,
    ) -> Any:
        """Note the call and answer it."""
        self.calls.append(Called(method, args, is_idempotent))
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        if method == "getTableDescriptor":
            columns = [idl.TColumnFamilyDescriptor(name=name) for name in self.families]
            return idl.TTableDescriptor(
                tableName=args[0], columns=columns, attributes=self.attributes
            )
        return answer() if callable(answer) else answer

    def close(self) -> None:
        """Have nothing to close."""

    def named(self, method: str) -> list[Called]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.method == method]


@pytest.fixture
def pool() -> ScriptedPool:
    """Return a pool without gateways."""
    return ScriptedPool()


def store_on(pool: ScriptedPool, options: str = "") -> Thrift2Store:
    """Return a store that calls `pool`."""
    return Thrift2Store(parse_address(URL + options), pool=pool)


def write_all(store: Thrift2Store, *, durable: bool) -> None:
    """Put and delete in every way: alone, in batches, together, and on a condition."""
    puts = [RowMutation(row, [PUT]) for row in (b"a", b"b")]
    deletes = [RowMutation(row, deletes=[DELETE]) for row in (b"c", b"d")]
    both = RowMutation(b"e", [PUT], [DELETE])
    store.write({"t": [*puts, *deletes, both]}, durable=durable)
    store.write({"t": [puts[0], deletes[0]]}, durable=durable)
    column = Column(b"cf", b"q")
    for change in (both, puts[0]):
        store.check_and_mutate("t", change.row, column, None, change, durable=durable)


def durabilities(pool: ScriptedPool) -> set[int | None]:
    """Return the durability of every put and delete that was sent."""
    operations: list[Any] = []
    for call in pool.calls:
        match call.method:
            case "put" | "deleteSingle" | "checkAndPut":
                operations.append(call.args[-1])
            case "putMultiple" | "deleteMultiple":
                operations += call.args[-1]
            case "mutateRow" | "checkAndMutate":
                operations += [one.put or one.deleteSingle for one in call.args[-1].mutations]
            case other:
                assert other == "getTableDescriptor"
    assert len(operations) == 11
    return {operation.durability for operation in operations}


@pytest.mark.parametrize(
    ("options", "durable", "expected"),
    [
        ("", False, None),
        ("", True, idl.TDurability.FSYNC_WAL),
        ("?durability=fsync", False, idl.TDurability.FSYNC_WAL),
    ],
)
def test_a_durable_write_is_synced_whatever_call_carries_it(
    pool: ScriptedPool, options: str, *, durable: bool, expected: int | None
) -> None:
    """The oracle's word rests on it."""
    write_all(store_on(pool, options), durable=durable)
    assert durabilities(pool) == {expected}


def test_only_what_names_its_versions_may_be_repeated(pool: ScriptedPool) -> None:
    """A repeated check could fail on its own first success, and so lie."""
    store = store_on(pool)
    write_all(store, durable=False)
    store.set_table_attributes("t", {"A": "1"})
    repeatable = {call.method: call.is_idempotent for call in pool.calls}
    assert repeatable == {
        "getTableDescriptor": True,
        "put": True,
        "putMultiple": True,
        "deleteSingle": True,
        "deleteMultiple": True,
        "mutateRow": True,
        "checkAndMutate": False,
        "checkAndPut": False,
        "modifyTable": False,
    }


def test_rows_that_only_put_share_a_call(pool: ScriptedPool) -> None:
    """So do rows that only delete; mutations of one row become one."""
    store = store_on(pool)
    puts = [RowMutation(row, [PUT]) for row in (b"a", b"b", b"a")]
    deletes = [RowMutation(row, deletes=[DELETE]) for row in (b"c", b"d")]
    store.write({"t": [*puts, *deletes]})
    (put,), (delete,) = pool.named("putMultiple"), pool.named("deleteMultiple")
    assert [one.row for one in put.args[1]] == [b"a", b"b"]
    assert [one.row for one in delete.args[1]] == [b"c", b"d"]
    assert pool.named("mutateRow") == []


def test_deletes_that_failed_are_not_passed_over(pool: ScriptedPool) -> None:
    """The gateway does not raise for them; it returns what is left."""
    pool.answers["deleteMultiple"] = [idl.TDelete(row=b"b")]
    deletes = [RowMutation(row, deletes=[DELETE]) for row in (b"a", b"b")]
    with pytest.raises(StorageUnavailable, match="1 of 2 rows failed, the first is b'b'"):
        store_on(pool).write({"t": deletes})


def test_families_are_asked_for_once_and_again_before_a_refusal(pool: ScriptedPool) -> None:
    """Another process may have added one."""
    store = store_on(pool)
    for _ in range(3):
        store.write({"t": [RowMutation(b"a", [PUT])]})
    assert len(pool.named("getTableDescriptor")) == 1
    new = RowMutation(b"a", [PUT._replace(family=b"new")])
    with pytest.raises(NoSuchFamily):
        store.write({"t": [new]})
    pool.families = [b"cf", b"new"]
    store.write({"t": [new]})
    assert len(pool.named("put")) == 4


@pytest.mark.parametrize("error", [NoSuchTable("gone"), NoSuchFamily("gone")])
def test_a_refusal_by_hbase_makes_the_store_forget(pool: ScriptedPool, error: Exception) -> None:
    """What it remembers of the table is of another one."""
    store = store_on(pool)
    store.write({"t": [RowMutation(b"a", [PUT])]})
    pool.answers["put"] = error
    with pytest.raises(type(error)):
        store.write({"t": [RowMutation(b"a", [PUT])]})
    del pool.answers["put"]
    store.write({"t": [RowMutation(b"a", [PUT])]})
    assert len(pool.named("getTableDescriptor")) == 2


def test_a_drop_that_was_interrupted_goes_on(pool: ScriptedPool) -> None:
    """A table that is disabled already cannot be disabled again."""
    pool.answers["isTableEnabled"] = False
    store_on(pool).drop_table("t")
    assert pool.named("disableTable") == []
    assert len(pool.named("deleteTable")) == 1


def test_a_table_that_took_the_place_of_another_is_given_back(pool: ScriptedPool) -> None:
    """Only a look behind the disabling tells which table it is that can be removed now."""
    pool.attributes = {b"which": b"1"}
    pool.answers["isTableEnabled"] = True
    pool.answers["disableTable"] = lambda: pool.attributes.update({b"which": b"2"})
    assert not store_on(pool).drop_table("t", only={"which": "1"})
    assert len(pool.named("disableTable")) == len(pool.named("enableTable")) == 1
    assert pool.named("deleteTable") == []


def test_a_table_that_somebody_else_has_disabled_is_looked_at_again(pool: ScriptedPool) -> None:
    """It may be the next one of its name, which he is about to give back."""

    def replaced() -> bool:
        pool.attributes.update({b"which": b"2"})
        return False

    pool.attributes = {b"which": b"1"}
    pool.answers["isTableEnabled"] = replaced
    assert not store_on(pool).drop_table("t", only={"which": "1"})
    assert pool.named("enableTable") == pool.named("deleteTable") == []


def test_an_empty_change_on_a_condition_only_looks(pool: ScriptedPool) -> None:
    """The gateway refuses a change of nothing."""
    column = Column(b"cf", b"q")
    value = [idl.TColumnValue(b"cf", b"q", b"v", 7)]
    pool.answers["getMultiple"] = [idl.TResult(row=b"r", columnValues=value)]
    store = store_on(pool)
    assert store.check_and_mutate("t", b"r", column, b"v", RowMutation(b"r"))
    assert not store.check_and_mutate("t", b"r", column, None, RowMutation(b"r"))
    assert pool.named("checkAndMutate") == []


def test_puts_of_threads_share_a_call_that_is_made_once(pool: ScriptedPool) -> None:
    """Where it fails each thread makes its own, which is repeated like any other."""
    first_came, go_on = threading.Event(), threading.Event()
    plain_call = pool.call

    def call(method: str, *args: Any, **options: Any) -> Any:
        if method == "put" and not first_came.is_set():
            first_came.set()
            assert go_on.wait(DEADLINE_S)
        return plain_call(method, *args, **options)

    pool.call = call  # type: ignore[method-assign]  # holds the first one up
    pool.answers["putMultiple"] = StorageUnavailable("somebody's region is gone")
    store = store_on(pool)
    store.schema("t")
    with ThreadPoolExecutor(3) as threads:
        written = [threads.submit(store.write, {"t": [RowMutation(b"a", [PUT])]})]
        assert first_came.wait(DEADLINE_S)
        for count, row in ((1, b"b"), (2, b"c")):
            written.append(threads.submit(store.write, {"t": [RowMutation(row, [PUT])]}))
            _until_in_line(store, count)
        go_on.set()
        for one in written:
            one.result(DEADLINE_S)
    (shared,) = pool.named("putMultiple")
    assert [put.row for put in shared.args[1]] == [b"b", b"c"]
    assert not shared.is_idempotent
    alone = pool.named("put")
    assert sorted(call.args[1].row for call in alone) == [b"a", b"b", b"c"]
    assert all(call.is_idempotent for call in alone)


def test_a_durable_put_shares_nothing(pool: ScriptedPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts are: one written late, by a shared call given up, would bring an old value back."""
    store = store_on(pool)
    shared: list[str] = []
    monkeypatch.setattr(store._joined, "write", lambda table, _: shared.append(table))
    store.write({"t": [RowMutation(b"a", [PUT])]}, durable=True)
    assert shared == []
    (alone,) = pool.named("put")
    assert alone.is_idempotent
    store.write({"t": [RowMutation(b"a", [PUT])]})
    assert shared == ["t"]


def _until_in_line(store: Thrift2Store, count: int) -> None:
    """Wait until so many threads wait for a call that is under way."""
    deadline_s = time.monotonic() + DEADLINE_S
    while len(store._joined._lines["t"].waiting) < count:
        assert time.monotonic() < deadline_s, "they never came"
        threading.Event().wait(0.002)


def test_a_search_by_version_is_one_call_a_region_with_a_time_range(pool: ScriptedPool) -> None:
    """HBase leaves out the files beyond it, so that such a call reads nothing of plain data.

    Without a landmark: that would read rows of every version.
    """
    pool.answers["getAllRegionLocations"] = [
        idl.THRegionLocation(regionInfo=idl.THRegionInfo(startKey=start, endKey=end))
        for start, end in ((b"", b"h"), (b"h", b"p"), (b"p", b""))
    ]
    pool.answers["getScannerResults"] = []
    store = store_on(pool)
    found = store.find_cell("t", columns=[(b"cf", None)], min_version=100, max_version=200)
    assert found is None
    scans = [call.args[1] for call in pool.named("getScannerResults")]
    assert [(scan.startRow, scan.stopRow) for scan in scans] == [
        (b"", b"h"),
        (b"h", b"p"),
        (b"p", b""),
    ]
    for scan in scans:
        assert (scan.timeRange.minStamp, scan.timeRange.maxStamp) == (100, 200)
        assert [(one.family, one.qualifier) for one in scan.columns] == [(b"cf", None)]
        assert (scan.limit, scan.filterBytes, scan.attributes) == (1, None, None)
    # No columns, and no versions: HBase would take that for all of them.
    assert store.find_cell("t", columns=[]) is None
    assert store.find_cell("t", min_version=100, max_version=100) is None
    assert len(pool.named("getScannerResults")) == len(scans)


@pytest.mark.parametrize("row_count", [0, 1, 3])
def test_an_answer_with_other_rows_than_were_asked_for_is_none(
    pool: ScriptedPool, row_count: int
) -> None:
    """A row that is missing would shift those behind it, and none at all be asked for for ever."""
    store = Thrift2Store(URL, pool=pool)
    cell = idl.TColumnValue(family=b"cf", qualifier=b"q", value=b"v", timestamp=7)
    row = idl.TResult(row=b"b", columnValues=[cell])
    pool.answers["getMultiple"] = [row] * row_count
    store._sizes._row_bytes["t"] = 100
    with pytest.raises(StorageUnavailable, match=f"has {row_count} rows where 2 were asked for"):
        store.get("t", [b"a", b"b"])
    assert len(pool.named("getMultiple")) == 1
    with pytest.raises(StorageUnavailable, match="were asked for"):
        store.get_portion("t", [b"a", b"b"], Wanted((b"cf",), 0, 9), most=Portion(100, 1000))


@pytest.mark.parametrize("name", ["TableNotFoundException", "security.AccessDeniedException"])
def test_a_call_that_is_refused_behind_others_tells_nothing_of_those(
    pool: ScriptedPool, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The change was applied, and the look behind it refused; that is no refusal of the change."""

    class Ahead:
        def call_ahead(self, calls: object, *, patience_s: float) -> list[Any]:
            raise idl.TIOError(message=f"org.apache.hadoop.hbase.{name}: t", canRetry=False)

    @contextmanager
    def owned(**_options: Any) -> Iterator[Ahead]:
        try:
            yield Ahead()
        except idl.TIOError as error:
            raise translate(error, address=parse_address(URL), table="t", what="call") from error

    monkeypatch.setattr(pool, "owned", owned)
    store = Thrift2Store(URL, pool=pool)
    condition = Condition("t", b"r", Column(b"cf", b"q"), None)
    change = GuardedMutation("t", RowMutation(b"r", (PUT,)), condition)
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known") as raised:
        store.write_then_check([change], condition)
    assert raised.value.retryable
    entries = Entries("t", Column(b"cf", b"q"), Column(b"cf", b"x"), [(b"r", 7, b"v")])
    with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
        store.put_then_check(entries, [condition])


@pytest.mark.parametrize("is_enabled_still", [False, True])
def test_a_table_that_another_has_disabled_just_now_is_dropped(
    pool: ScriptedPool, *, is_enabled_still: bool
) -> None:
    """Of two who drop it one was told to enable it."""
    looks = iter([True, is_enabled_still])
    pool.answers["isTableEnabled"] = lambda: next(looks)
    pool.answers["disableTable"] = StorageUnavailable("it is disabled; enable it")
    if is_enabled_still:
        with pytest.raises(StorageUnavailable):
            store_on(pool).drop_table("t")
    else:
        assert store_on(pool).drop_table("t")
    assert len(pool.named("deleteTable")) == (not is_enabled_still)
