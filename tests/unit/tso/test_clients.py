"""What counts against a client, and until when."""

from __future__ import annotations

from tso.core.clients import UntilOld


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
