"""What Apache Fluo tries its export queue with, tried with ours.

Documents refer to other documents, and change; an exporter keeps who refers to whom, by what it is
told alone.  Whatever happens on the way, it ends with the references that the documents have.

Source: the integration tests of Fluo's recipes, in their scenarios and sizes.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import omidpy
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import Batch, Exporter, ExportQueue
from tests.machines.export_queues import Collector

pytestmark = pytest.mark.integration

DOCUMENTS = "documents"
COLUMN = b"cf:references"
THREADS = 20
LOADS = 4


class References(Exporter):
    """Who refers to a document, and since when that is known; deleted references are kept.

    Without what is deleted an older addition that comes late would revive it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, dict[str, tuple[tuple[int, int], bool]]] = {}
        self.largest = 0

    def export(self, batch: Batch) -> None:
        """Note additions and deletions, unless newer ones are known."""
        with self._lock:
            self.largest = max(self.largest, len(batch))
            for entry in batch:
                known = self._known.setdefault(entry.key, {})
                source = entry.value["source"]
                if entry.seq > known.get(source, ((0, 0), False))[0]:
                    known[source] = entry.seq, entry.value["is_deleted"]

    def found(self) -> dict[bytes, set[str]]:
        """Return the references that are there."""
        sources = {
            key: {source for source, (_, is_deleted) in known.items() if not is_deleted}
            for key, known in self._known.items()
        }
        return {key: some for key, some in sources.items() if some}


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Return a manager with a table of documents."""
    with omidpy.connect("memory:") as manager:
        manager.create_table(DOCUMENTS, ["cf"])
        yield manager


def load(tm: TransactionManager, queue: ExportQueue, name: str, references: set[str]) -> None:
    """Replace what a document refers to, and add entries for what has changed."""
    for attempt in tm.attempts(budget_s=60):
        with attempt as tx:
            table = tx.table(DOCUMENTS)
            old = set(json.loads(table.row(name.encode()).get(COLUMN, b"[]")))
            table.put(name.encode(), {COLUMN: json.dumps(sorted(references)).encode()})
            for target in sorted(old ^ references):
                value = {"source": name, "is_deleted": target in old}
                queue.add(tx, target.encode(), value)


def actual(tm: TransactionManager) -> dict[bytes, set[str]]:
    """Return the references that the documents have."""
    found: dict[bytes, set[str]] = {}
    with tm.begin(read_only=True) as tx:
        for name, row in tx.table(DOCUMENTS).scan():
            for target in json.loads(row[COLUMN]):
                found.setdefault(target.encode(), set()).add(name.decode())
    return found


def test_references_follow_documents_that_change(tm: TransactionManager) -> None:
    """Added, kept, removed and added again."""
    queue, sink = ExportQueue.create(tm, "refs", buckets=3), References()
    for name, references in (
        ("a", {"b", "c"}),
        ("b", {"c"}),
        ("a", {"c", "d"}),
        ("b", set()),
        ("a", {"b"}),
        ("b", {"c"}),
    ):
        load(tm, queue, name, references)
        queue.run_once(sink)
        assert sink.found() == actual(tm)
    assert sink.found() == {b"b": {"a"}, b"c": {"b"}}


@pytest.mark.parametrize(
    "documents", [60, pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
)
def test_four_loads_by_twenty_threads_end_with_the_references_there_are(
    tm: TransactionManager, documents: int
) -> None:
    """While exporters are at it; documents conflict with each other, entries never do."""
    queue, sink = ExportQueue.create(tm, "refs", buckets=13), References()
    runner = queue.runner(sink, workers=2, max_poll_s=0.05)
    exporting = threading.Thread(target=runner.run)
    exporting.start()

    def add(seed: int, load_number: int) -> None:
        chance = random.Random(1000 * load_number + seed)
        for _ in range(documents // THREADS):
            name = f"{chance.randrange(documents):06d}"
            targets = {f"{chance.randrange(documents):06d}" for _ in range(chance.randrange(9))}
            load(tm, queue, name, targets)

    for load_number in range(LOADS):
        threads = [
            threading.Thread(target=add, args=(seed, load_number)) for seed in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    runner.stop()
    exporting.join()
    queue.run_once(sink)
    expected = actual(tm)
    assert len(expected) > documents / 2
    assert sink.found() == expected
    assert queue.lag().entries == 0


def test_one_transaction_of_a_thousand_entries_passes_a_small_buffer(
    tm: TransactionManager,
) -> None:
    """In many batches, each once, and each key in its order."""
    queue, sink = ExportQueue.create(tm, "refs", buckets=1), Collector()
    with tm.begin() as tx:
        queue.add_all(tx, ((b"%02d" % (number % 10), number) for number in range(1000)))
    assert queue.run_once(sink, buffer_bytes=1024) == 1000
    assert sink.values == list(range(1000))
    assert len(sink.batches) > 20
    assert all(sum(map(_size, batch)) <= 1024 or len(batch) == 1 for batch in sink.batches)


def _size(entry: Any) -> int:
    return len(entry.key) + len(json.dumps(entry.value))


def test_what_is_loaded_in_bulk_is_exported_in_bulk(tm: TransactionManager) -> None:
    """Four thousand entries in one transaction, past what it buffers, in a few large batches."""
    queue, sink = ExportQueue.create(tm, "refs", buckets=4, codec="bytes"), Collector()
    with tm.begin() as tx:
        queue.add_all(tx, ((b"%06d" % number, b"v" * 300) for number in range(4000)))
    assert queue.run_once(sink) == 4000
    assert len({entry.key for entry in sink.entries}) == 4000
    assert len(sink.batches) < 20
