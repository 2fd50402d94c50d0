"""Ctrl-C at any line of adding and of exporting: nothing is lost, and the next one goes on."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import pytest

import omidpy.recipes.export_queue
import omidpy.tx
from omidpy.model import Committed, TransactionStatus
from omidpy.tx.transaction import Transaction
from tests.machines.export_queues import Scene
from tests.machines.interrupts.lines import Interrupt, Interrupter

FOLDERS: Final = (Path(omidpy.recipes.export_queue.__file__).parent,)


def test_an_interrupted_addition_is_whole_or_absent() -> None:
    """And the transaction may go on with the next one."""
    scene = Scene()

    def add() -> None:
        scene.queue.add(scene.tm.begin(), b"k", "counted")

    interrupter = Interrupter(FOLDERS)
    numbers = interrupter.places(add)
    assert len(numbers) > 10
    for number in numbers:
        with scene.tm.begin() as tx:
            try:
                interrupter.interrupt(lambda: scene.queue.add(tx, b"k", "cut"), number, Interrupt())
            except Interrupt:
                scene.queue.add(tx, b"k", "next")
    found = scene.export()
    assert found.count("next") == len(numbers)
    assert set(found) <= {"next", "cut"}


def test_an_interrupted_recording_is_committed_with_what_it_records_or_not_at_all() -> None:
    """At any line of the call, of the commit, and of what the commit records."""
    scene = Scene(codec="msgpack")
    scene.tm.create_table("orders", ["cf"])

    def change(tx: Transaction, row: bytes) -> None:
        scene.queue.record(tx, tables=["orders"])
        tx.table("orders").put(row, {b"cf:a": row})
        tx.commit()

    interrupter = Interrupter((*FOLDERS, Path(omidpy.tx.__file__).parent))
    numbers = interrupter.places(lambda: change(scene.tm.begin(), b"warm"))
    assert len(numbers) > 100
    for number in numbers[::3]:
        tx, row = scene.tm.begin(), b"%d" % number
        with contextlib.suppress(Interrupt):
            interrupter.interrupt(lambda: change(tx, row), number, Interrupt())  # noqa: B023 - now
        if tx.status is TransactionStatus.RUNNING:
            tx.rollback()
        is_committed = isinstance(scene.tm.outcome(tx), Committed)
        scene.export()
        is_recorded = row in {entry.key for entry in scene.sink.entries}
        with scene.tm.begin(read_only=True) as reading:
            is_there = bool(reading.table("orders").row(row))
        assert is_committed == is_recorded == is_there, interrupter.where


def patient(runner: Any, scene: Scene) -> None:
    """Let time pass where a runner waits."""
    runner._stopping.wait = scene.clock.advance


@pytest.mark.parametrize(
    "every", [5, pytest.param(1, marks=[pytest.mark.nightly, pytest.mark.timeout(1800)])]
)
def test_an_interrupted_exporter_loses_nothing(every: int) -> None:
    """Wherever it comes: what was delivered may come once more, and the rest comes."""
    scene = Scene(buckets=2)

    def deliver() -> None:
        runner = scene.runner(lease_s=4.0)
        patient(runner, scene)
        runner.run_once()

    scene.add("warm")
    interrupter = Interrupter(FOLDERS)
    numbers = interrupter.places(deliver)
    assert len(numbers) > 100
    added = ["warm"]
    for number in numbers[::every]:
        for key in (b"a", b"b"):
            added.append(f"{number} {key.decode()}")
            scene.add(added[-1], key=key)
        with contextlib.suppress(Interrupt):
            interrupter.interrupt(deliver, number, Interrupt())
        deliver()
        assert scene.queue.lag().entries == 0, interrupter.where
    assert set(scene.sink.values) == set(added)
    for key in (b"a", b"b"):
        seqs = [entry.seq for entry in scene.sink.entries if entry.key == key]
        assert sorted(set(seqs)) == list(dict.fromkeys(seqs)), "the order is kept"


def test_an_interrupted_death_is_one_or_none() -> None:
    """Setting aside is a transaction, and the row it takes away is there or not."""
    scene = Scene()

    def fail(_: Any) -> None:
        raise ValueError

    scene.sink.on_batch = fail

    def bury() -> None:
        runner = scene.runner(max_attempts=1, lease_s=4.0)
        patient(runner, scene)
        runner.run_once()

    scene.add("warm")
    interrupter = Interrupter(FOLDERS)
    numbers = interrupter.places(bury)
    count = 1
    for number in numbers[::11]:
        scene.add(number)
        count += 1
        with contextlib.suppress(Interrupt):
            interrupter.interrupt(bury, number, Interrupt())
        bury()
        letters = [letter.seq for letter in scene.queue.dead_letters()]
        assert len(letters) == len(set(letters)) == count, interrupter.where
