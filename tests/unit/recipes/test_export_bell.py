"""Exporters hear of what their own process commits, and rest on where something has failed."""

from __future__ import annotations

import threading
from contextlib import suppress

import pytest

from omidpy.recipes.export_queue.delivery.runner import FIRST_POLL_S, Runner
from omidpy.recipes.export_queue.entries.bell import BELL, Bell, Queue
from omidpy.recipes.export_queue.entries.stored.layout import bucket_of
from tests.machines.export_queues import TABLE, Scene
from tests.machines.waiting import wait_for


class Ear:
    """Notes what it hears."""

    def __init__(self) -> None:
        self.buckets: list[set[int]] = []

    def heard(self, buckets: object) -> None:
        """Note some buckets."""
        assert isinstance(buckets, set)
        self.buckets.append(set(buckets))


def place(scene: Scene) -> Queue:
    """Return what the queue of a scene is known by."""
    return Queue(scene.tm.store.store_id, TABLE)


def test_a_commit_names_its_buckets_to_those_who_listen() -> None:
    """Once, behind the commit, and only what this transaction has added to."""
    scene, ear = Scene(buckets=8), Ear()
    BELL.listen(place(scene), ear)
    with scene.tm.begin() as tx:
        scene.queue.add_all(tx, [(b"a", 1), (b"b", 2), (b"a", 3)])
        assert ear.buckets == []
    assert ear.buckets == [{bucket_of(b"a", 8), bucket_of(b"b", 8)}]


def test_what_aborts_rings_no_bell() -> None:
    """There is nothing to look for."""
    scene, ear = Scene(), Ear()
    BELL.listen(place(scene), ear)
    tx = scene.tm.begin()
    scene.queue.add(tx, b"a", 1)
    tx.rollback()
    assert ear.buckets == []


def test_an_undone_savepoint_rings_no_bell_and_mutes_none() -> None:
    """Its entries are not there; those that one object adds behind it are."""
    scene, ear = Scene(buckets=8), Ear()
    BELL.listen(place(scene), ear)
    with scene.tm.begin() as tx:
        queue = tx.queue("q")
        with suppress(ZeroDivisionError), tx.savepoint():
            queue.add(b"a", 1)
            raise ZeroDivisionError
        queue.add(b"b", 2)
    assert ear.buckets == [{bucket_of(b"b", 8)}]
    with scene.tm.begin() as tx, suppress(ZeroDivisionError), tx.savepoint():
        tx.queue("q").add(b"a", 1)
        raise ZeroDivisionError
    assert len(ear.buckets) == 1


def test_nobody_hears_of_other_queues_or_for_longer_than_he_lives() -> None:
    """One bell serves all queues of a process, whose exporters come and go."""
    bell, ear = Bell(), Ear()
    assert not bell.is_heard
    bell.listen(Queue("store", "one"), ear)
    assert bell.is_heard
    bell.ring(Queue("store", "two"), {1})
    bell.ring(Queue("other", "one"), {1})
    assert ear.buckets == []
    gone = Ear()
    kept = gone.buckets
    bell.listen(Queue("store", "one"), gone)
    del gone
    bell.ring(Queue("store", "one"), {1})
    assert (ear.buckets, kept) == ([{1}], [])


def due(runner: Runner, bucket: int = 0) -> float:
    """Return in how many seconds a bucket is looked into again."""
    return runner._due_s[bucket] - runner._clock.monotonic_s()


def test_a_bucket_that_rests_is_looked_into_at_once() -> None:
    """Whether the bell rings while it rests or while a pass that has not seen the entry ends."""
    scene = Scene()
    runner = scene.runner()
    runner._rest(0, 30.0, is_paused=False)
    runner.heard({0})
    assert due(runner) == pytest.approx(FIRST_POLL_S)
    runner._rest(0, 30.0, is_paused=False)
    assert due(runner) == pytest.approx(FIRST_POLL_S)


def test_an_addition_cuts_no_pause_short_that_a_failure_asks_for() -> None:
    """A receiver that asks for a minute is left alone for a minute, however much is added."""
    scene = Scene()
    runner = scene.runner()
    runner._rest(0, 30.0, is_paused=True)
    runner.heard({0})
    assert due(runner) == pytest.approx(30.0)
    runner.heard({0})
    runner._rest(0, 30.0, is_paused=True)
    assert due(runner) == pytest.approx(30.0)
    runner._rest(0, 30.0, is_paused=False)
    assert due(runner) == pytest.approx(FIRST_POLL_S)


def test_an_exporter_listens_as_long_as_it_runs() -> None:
    """From before its first look on, so that nothing falls between the two."""
    scene = Scene()
    runner = scene.runner()
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        wait_for(lambda: runner in BELL._listening(place(scene)), 60)
    finally:
        runner.stop()
        thread.join()
