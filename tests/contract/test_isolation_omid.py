"""The anomaly cases that Apache Omid holds itself to, on ours.

Seven that must not happen and one that may, with what to do about it.  Beside the Hermitage list
they look through gets and through scans, and at deletes.

Source: the anomalies are those of Bailis and others, "Highly Available Transactions".
"""

from __future__ import annotations

from tests.machines.isolation import Bench


def test_dirty_write_is_refused(bench: Bench) -> None:
    """The later of two writers of one row, by its commit, leaves nothing behind."""
    first, second = bench.begin(), bench.begin()
    second.set("1", 12)
    first.set("1", 11)
    second.commit()
    first.conflicts()
    assert bench.state()["1"] == 12


def test_dirty_read_does_not_happen(bench: Bench) -> None:
    """A write that is not committed is nobody else's to see, in gets and in scans."""
    writer, reader = bench.begin(), bench.begin()
    writer.set("1", 11)
    writer.delete("2")
    assert (reader.get("1"), reader.get("2")) == (10, 20)
    assert reader.all() == bench.state() == {"1": 10, "2": 20}


def test_non_repeatable_read_does_not_happen(bench: Bench) -> None:
    """A row stays what it was, over an update and a delete of others."""
    reader = bench.begin()
    assert reader.get("1") == 10
    writer = bench.begin()
    writer.set("1", 11)
    writer.commit()
    assert reader.get("1") == 10
    writer = bench.begin()
    writer.delete("1")
    writer.commit()
    assert reader.get("1") == 10
    assert bench.state() == {"2": 20}


def test_phantom_does_not_appear(bench: Bench) -> None:
    """A scan finds the rows of its snapshot: no later ones, and all earlier ones."""
    reader = bench.begin()
    assert reader.all() == {"1": 10, "2": 20}
    writer = bench.begin()
    writer.set("15", 15)
    writer.delete("2")
    writer.commit()
    assert reader.all() == {"1": 10, "2": 20}
    assert bench.state() == {"1": 10, "15": 15}


def test_lost_update_is_refused(bench: Bench) -> None:
    """Also where the first has committed before the second writes."""
    first, second = bench.begin(), bench.begin()
    value = second.get("1")
    assert value == 10
    first.set("1", 11)
    first.commit()
    second.set("1", value + 5)
    second.conflicts()
    assert bench.state()["1"] == 11


def test_read_skew_does_not_happen(bench: Bench) -> None:
    """Two rows that change together are seen together."""
    reader = bench.begin()
    assert reader.get("1") == 10
    writer = bench.begin()
    writer.set("1", 12)
    writer.set("2", 18)
    writer.commit()
    assert reader.get("2") == 20
    assert reader.all() == {"1": 10, "2": 20}


def test_predicate_with_many_preceders_does_not_happen(bench: Bench) -> None:
    """What a delete by predicate finds is fixed by its snapshot; the update it missed wins."""
    updater, deleter = bench.begin(), bench.begin()
    for row, value in updater.all().items():
        updater.set(row, value + 10)
    doomed = deleter.where(lambda value: value == 20)
    assert doomed == {"2": 20}
    for row in doomed:
        deleter.delete(row)
    assert deleter.all() == {"1": 10}
    updater.commit()
    deleter.conflicts()
    assert bench.state() == {"1": 20, "2": 30}


def test_write_skew_is_not_prevented(bench: Bench) -> None:
    """Snapshot isolation compares writes with writes; both commit."""
    first, second = bench.begin(), bench.begin()
    assert first.all() == second.all()
    first.set("1", 11)
    second.set("2", 21)
    second.commit()
    first.commit()
    assert bench.state() == {"1": 11, "2": 21}


def test_a_row_that_both_write_makes_write_skew_impossible(bench: Bench) -> None:
    """What an application can do about it: materialise the conflict."""
    first, second = bench.begin(), bench.begin()
    for one, row in ((first, "1"), (second, "2")):
        assert sum(one.all().values()) == 30
        one.set(row, 0)
        one.set("guard", 0)
    first.commit()
    second.conflicts()
    assert bench.state() == {"1": 0, "2": 20, "guard": 0}
