"""What counts against a client, and until when."""

from __future__ import annotations

from tso.core.shares.clients import UntilOld, is_connection, numbered, share_of
from tso.core.shares.hoards import Hoards, worst_of


def test_a_name_that_is_added_again_counts_once_until_its_newest_timestamp_is_old() -> None:
    """A fence that was set again still refuses."""
    places = UntilOld(count=10, count_of_one=2)
    for timestamp in (50, 100, 150):
        places.add(7, timestamp, "client")
    places.add(8, 60, "client")
    assert not places.has_room(9, "client")
    assert places.has_room(9, "another")
    assert places.forget(100) == [8]
    assert 7 in places
    assert places.has_room(9, "client")
    assert places.forget(150) == [7]
    assert len(places) == 0


def test_places_are_limited_in_all() -> None:
    """However many clients there are; what has a place keeps it."""
    places = UntilOld(count=2, count_of_one=2)
    places.add(7, 50, "first")
    places.add(8, 50, "second")
    assert not places.has_room(9, "third")
    assert places.has_room(7, "third")


def test_a_name_that_draws_many_numbers_leaves_room_for_others() -> None:
    """One certificate with seventeen numbers filled all places."""
    places = UntilOld(count=100, count_of_one=10)
    taken = 0
    for number in range(17):
        client = numbered(3, number, is_connection=False)
        for _ in range(10):
            if places.has_room(taken, client):
                places.add(taken, 50, client)
                taken += 1
    assert taken == 25
    assert not places.has_room(1000, numbered(3, 99, is_connection=False))
    assert places.has_room(1000, numbered(4, 1, is_connection=False))
    places.forget(50)
    assert places.has_room(1000, numbered(3, 99, is_connection=False))
    assert not places._share_counts


def test_a_number_tells_whose_share_it_has_a_part_of() -> None:
    """And whether it is a client, or only a connection of one; others are by themselves."""
    client = numbered(3, 2**70 + 5, is_connection=False)
    connection = numbered(3, 5, is_connection=True)
    assert share_of(client) == share_of(connection) == 3
    assert (is_connection(client), is_connection(connection), is_connection(7)) == (0, 1, 0)
    assert share_of(7) == 7
    assert share_of("a thread") == "a thread"
    assert 0 < numbered(2**22 - 1, -1, is_connection=True) < 2**63


def test_the_worst_share_pays_first() -> None:
    """Whoever splits what it keeps over connections keeps no less."""
    hoards: Hoards[str] = Hoards(10)
    for number in range(4):
        hoards.add(f"split-{number}", 2, share="split")
    hoards.add("one", 3, share="one")
    worst = hoards.worst()
    assert worst == "split-0"
    hoards.give_back(worst, 2)
    assert hoards.worst() is None
    assert worst_of({"a": 3, "b": 2, "c": 2}, lambda one: one == "a") in ("b", "c")
