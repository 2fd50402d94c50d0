"""Who has a place at the server, and who must give up its own."""

from __future__ import annotations

import pytest

from tso.serving import admission
from tso.serving.admission import GREED, MAX_SILENT_COUNT, FairTurns, Places


def opened(places: Places[str], share: str, count: int, *, is_operator: bool = False) -> int:
    """Let so many connections of a share shake hands; return how many got a place."""
    found = 0
    for number in range(count):
        name = f"{share}-{number}"
        places.come(name, share)
        found += places.open(name, share, is_operator=is_operator) != name
    return found


def test_silent_connections_take_no_place_of_others() -> None:
    """4,200 of them took every place, and nobody else got in."""
    places: Places[str] = Places(4096)
    assert opened(places, "early", 10) == 10
    dropped = [places.come(f"mute-{number}", "mute") for number in range(4200)]
    assert dropped[:MAX_SILENT_COUNT] == [None] * MAX_SILENT_COUNT
    assert dropped[MAX_SILENT_COUNT:] == [
        f"mute-{number}" for number in range(4200 - MAX_SILENT_COUNT)
    ]
    assert opened(places, "late", 10) == 10


def test_the_oldest_of_the_worst_address_goes() -> None:
    """A newcomer from elsewhere keeps its place while it shakes hands."""
    places: Places[str] = Places(32)
    assert [places.come(name, "slow") for name in ("slow-1", "slow-2")] == [None, None]
    dropped = [places.come(f"mute-{number}", "mute") for number in range(10)]
    assert dropped == [None, None, *(f"mute-{number}" for number in range(8))]
    assert places.open("slow-1", "slow", is_operator=False) is None


def test_no_share_takes_all_places() -> None:
    """Each leaves room for another one, however many of them are greedy."""
    places: Places[str] = Places(4096)
    counts = [opened(places, f"greedy-{number}", 4200) for number in range(3)]
    assert counts == sorted(counts, reverse=True)
    assert 2500 < counts[0] < 4096 * GREED / (1 + GREED)
    assert opened(places, "modest", 3) == 3
    assert places.open("x", "greedy-0", is_operator=False) == "x"
    assert "connections, and" in places.standing("greedy-0")


def test_who_has_no_place_takes_one_of_a_share_that_has_far_more() -> None:
    """One host had 42 of 52, others the rest, and whoever came later was refused for ever."""
    heard_s = {f"greedy-{number}": -float(number) for number in range(42)}
    places: Places[str] = Places(64, lambda one: heard_s.get(one, 0.0))
    assert opened(places, "greedy", 100) == 42
    assert sum(opened(places, f"other-{number}", 1) for number in range(10)) == 10
    places.come("late-0", "late")
    assert places.open("late-0", "late", is_operator=False) == "greedy-41"  # silent for longest
    assert sum(opened(places, f"late-{number}", 1) for number in range(100)) == 37
    assert places._open_counts["greedy"] == GREED
    assert len(places._open) == 52


def test_a_share_takes_no_place_of_one_that_has_little_more() -> None:
    """Else two would take each other's in turns."""
    places: Places[str] = Places(64)
    assert opened(places, "one", 1000) == 42
    assert opened(places, "other", 1000) == 14
    assert places._open_counts == {"one": 42, "other": 14}
    for share in ("one", "other", "one"):
        assert places.open("new", share, is_operator=False) == "new"


def test_places_are_kept_for_those_who_were_here_and_for_operators() -> None:
    """However many strangers come, each with a share of its own."""
    places: Places[str] = Places(160)
    assert opened(places, "known", 1) == 1
    places.leave("known-0")
    strangers = sum(opened(places, f"stranger-{number}", 1) for number in range(200))
    assert strangers == 160 - 20 - 10
    assert opened(places, "known", 1) == 1
    assert opened(places, "operator", 1, is_operator=True) == 1
    assert opened(places, "another", 1) == 0


def test_no_reserve_is_larger_than_what_is_there() -> None:
    """Operators without number are refused in the end, and silent ones find no place at all."""
    places: Places[str] = Places(160)
    names = [f"operator-{number}" for number in range(200)]
    assert sum(opened(places, name, 1, is_operator=True) for name in names) == 160 - 20
    few: Places[str] = Places(4)
    assert sum(opened(few, f"share-{number}", 1, is_operator=True) for number in range(9)) == 4
    assert few.come("mute", "mute") == "mute"


def test_shares_that_were_here_are_remembered_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who comes first is kept: a stranger with many shares forgets nobody else's."""
    monkeypatch.setattr(admission, "MAX_KNOWN_COUNT", 2)
    places: Places[str] = Places(160)
    assert [opened(places, name, 1) for name in ("known", "stranger-1", "stranger-2")] == [1, 1, 1]
    assert places._known == {"known", "stranger-1"}


def test_whoever_leaves_makes_room() -> None:
    """Silent or not; and whoever is not known takes none away."""
    places: Places[str] = Places(8)
    for _ in range(100):
        assert places.come("one", "share") is None
        assert places.open("one", "share", is_operator=False) is None
        places.leave("one")
        assert places.come("mute", "share") is None
        places.leave("mute")
        places.leave("mute")
    assert not places._open_counts
    assert not places._silent_counts


def test_shares_take_turns_however_many_of_one_wait() -> None:
    """A stranger with hundreds of handshakes puts off nobody else's by more than one."""
    turns: FairTurns[str] = FairTurns()
    for name in ("flood 1", "flood 2", "flood 3", "gone", "other"):
        turns.wait(name, name.split()[0])
    turns.forget("gone", "gone")
    turns.forget("nobody", "nowhere")
    assert [turns.next() for _ in range(5)] == ["flood 1", "other", "flood 2", "flood 3", None]
