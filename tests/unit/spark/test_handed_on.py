"""What proves to the store who they are travels with the tasks of Spark, whoever sends them.

A context that runs tasks here, and a manager over memory, stand in for those of a cluster.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark.sql.streaming.datasource", reason="needs Spark 4.2")

from pyspark import TaskContext

from omidpy.committers.spark import settling
from omidpy.committers.spark.settling import TASKS_END_S
from omidpy.errors import ConfigError
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import Batch, Exporter, ExportQueue
from omidpy.spark import changes_stream, export_stream, exporting, snapshot_export
from omidpy.storage.handed import HandedStore
from omidpy.storage.hbase.native.security import tokens
from omidpy.storage.hbase.native.security.tokens import Token
from omidpy.storage.memory import MemoryStore
from tests.machines.clients import Client

URL = "as-executors-reach-it"
QUEUE = "queue"
TOKEN = Token(b"identifier", b"hidden word")


class Rdd:
    """Data whose tasks run here, each with what it was sent."""

    def __init__(self, parts: Iterable[Any]) -> None:
        self._parts = [pickle.loads(pickle.dumps(one)) for one in parts]

    def mapPartitions(self, run: Callable[[Iterator[Any]], Iterator[Any]]) -> Rdd:  # noqa: N802 - Spark's name
        """Run a function over each part."""
        return Rdd(one for part in self._parts for one in run(iter([part])))

    def foreachPartition(self, run: Callable[[Iterator[Any]], None]) -> None:  # noqa: N802 - Spark's name
        """Run a function over each part, for its effect."""
        for part in self._parts:
            run(iter([part]))

    def collect(self) -> list[Any]:
        """Return all."""
        return self._parts


class Count:
    """An accumulator."""

    value = 0

    def add(self, number: int) -> None:
        """Add."""
        self.value += number


def session() -> Any:
    """Return a session whose tasks run here."""
    context = SimpleNamespace(
        parallelize=lambda parts, _: Rdd(parts),
        accumulator=lambda _: Count(),
        getLocalProperty=lambda _: None,
        setLocalProperty=lambda *_: None,
    )
    return SimpleNamespace(sparkContext=context)


class Lent:
    """A manager that stays open."""

    def __init__(self, tm: TransactionManager) -> None:
        self._tm = tm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tm, name)

    def __enter__(self) -> TransactionManager:
        return self._tm

    def __exit__(self, *_: object) -> None:
        """Leave it open."""

    def close(self) -> None:
        """Leave it open."""


@pytest.fixture(name="tm")
def secured(monkeypatch: pytest.MonkeyPatch) -> Iterator[TransactionManager]:
    """Return a manager of a store that wants a proof, and without it lets no task in."""
    tm = Client(table=None).tm
    monkeypatch.setattr(tm.store, "token_to_hand_on", lambda: TOKEN, raising=False)
    opened: list[str] = []

    def connect(url: str, tso: str) -> Lent:
        assert tso == "tso"
        opened.append(url)
        # The driver has a ticket, and opens the store first.
        assert len(opened) == 1 or tokens.held(url) == TOKEN, "a task proves nothing"
        return Lent(tm)

    for module in (exporting, export_stream):
        monkeypatch.setattr(module, "connect", connect)
    yield tm
    assert len(opened) > 1, "a task has run"
    tokens._held.clear()


class Sink(Exporter):
    """Counts."""

    count = 0

    def export(self, batch: Batch) -> None:
        """Count them."""
        Sink.count += len(batch)


def test_tasks_that_deliver_a_queue(tm: TransactionManager) -> None:
    """Each into an exporter of its own."""
    queue = ExportQueue.create(tm, QUEUE, buckets=4)
    with tm.begin() as tx:
        for number in range(9):
            queue.add(tx, b"%d" % number, number)
    count = exporting.export_once(session(), Sink, store=URL, tso="tso", queue=QUEUE)
    assert (count, Sink.count) == (9, 9)


def test_tasks_that_read_a_queue_as_a_stream(tm: TransactionManager) -> None:
    """Their partitions show nothing of it."""
    queue = ExportQueue.create(tm, QUEUE, buckets=4)
    with tm.begin() as tx:
        for number in range(9):
            queue.add(tx, b"%d" % number, number)
    options = {"store": URL, "tso": "tso", "queue": QUEUE}
    reader = export_stream.ExportSource(options).streamReader(None)
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert "hidden" not in repr(tasks)
    sent = pickle.loads(pickle.dumps((reader, list(tasks))))
    assert sum(len(list(sent[0].read(task))) for task in sent[1]) == 9
    reader.stop()


def test_a_task_that_comes_to_another_store_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has the address where the task runs: what it has is none of the job's rows."""
    there: Any = Lent(SimpleNamespace(store=MemoryStore()))  # type: ignore[arg-type] # all asked
    for module in (changes_stream, export_stream, exporting, snapshot_export):
        monkeypatch.setattr(module, "connect", lambda *_, **__: there)
    sent = HandedStore(URL).of(MemoryStore())
    options = {"store": URL, "tso": "tso", "table": "t", "queue": QUEUE}
    queue = export_stream.ExportOptions(options)
    del options["queue"]
    table = changes_stream.ChangesOptions(options)
    monkeypatch.setattr(snapshot_export, "open_store", lambda url, must_exist: MemoryStore())
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(taskAttemptId=int))
    work: Any = SimpleNamespace(
        portions=(1,), made=SimpleNamespace(sweep="", folder=SimpleNamespace(url="s3://b/f"))
    )
    run: Any = snapshot_export.run_on(session(), store=URL, tso="tso")
    calls: list[Callable[[], object]] = [
        lambda: queue.connect(sent),
        lambda: table.connect(sent),
        lambda: exporting._deliver([], Sink, sent, "tso", "json", 1),
        lambda: run(work, lambda *_: None),
    ]
    for call in calls:
        with pytest.raises(ConfigError, match=r"is the store .* where the job was planned"):
            call()


def test_an_export_that_fails_waits_for_its_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they begin to upload behind the sweep of its end nobody would find."""
    waited: list[float] = []
    monkeypatch.setattr(snapshot_export, "open_store", lambda url, must_exist: MemoryStore())
    monkeypatch.setattr(settling, "_never", SimpleNamespace(wait=waited.append))

    def fail(self: Rdd) -> list[Any]:
        raise OSError("a task failed for good")

    monkeypatch.setattr(Rdd, "collect", fail)
    monkeypatch.setattr(Rdd, "mapPartitions", lambda self, run: self)
    work: Any = SimpleNamespace(
        portions=(1, 2), made=SimpleNamespace(sweep="", folder=SimpleNamespace(url="s3://b/f"))
    )
    run: Any = snapshot_export.run_on(session(), store=URL, tso="tso")
    with pytest.raises(OSError, match="for good"):
        run(work, lambda *_: None)
    assert waited == [TASKS_END_S]


def test_tasks_that_export_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver opens the store for it, as executors reach it."""
    store = MemoryStore()
    monkeypatch.setattr(store, "token_to_hand_on", lambda: TOKEN, raising=False)
    monkeypatch.setattr(snapshot_export, "open_store", lambda url, must_exist: store)
    found: list[object] = []

    def connect(url: str, tso: str) -> Lent:
        found.append((url, tso, tokens.held(url)))
        return Lent(SimpleNamespace(store=store))  # type: ignore[arg-type] # all that is asked

    monkeypatch.setattr(snapshot_export, "connect", connect)
    monkeypatch.setattr(snapshot_export, "write_portion", lambda *_, **__: "written")
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(taskAttemptId=int))
    work: Any = SimpleNamespace(
        portions=(1, 2), made=SimpleNamespace(sweep="", folder=SimpleNamespace(url="s3://b/f"))
    )
    run: Any = snapshot_export.run_on(session(), store=URL, tso="tso")
    assert run(work, lambda *_: None) == ["written", "written"]
    assert found == [(URL, "tso", TOKEN)] * 2
    tokens._held.clear()
