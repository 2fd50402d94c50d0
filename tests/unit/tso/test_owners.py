"""Who began what the engine has forgotten, and whose memory that takes."""

from __future__ import annotations

from array import array
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tso.core.past.owners import CLIENT_WEIGHT, Owners, fair_limit
from tso.core.shares.clients import numbered


def begun(*start_timestamps: int) -> array[int]:
    """Return timestamps as the engine tells them."""
    return array("q", start_timestamps)


def keep(owners: Owners, client: int, stamps: array[int]) -> None:
    """Note what one client began."""
    owners.keep({client: stamps.tobytes()})


def test_each_client_has_what_it_began_and_nothing_else() -> None:
    """Also what another one began between two of its own."""
    owners = Owners(1000)
    keep(owners, 7, begun(50, 150))
    keep(owners, 8, begun(200))
    keep(owners, 7, begun(250))
    assert [ts for ts in range(0, 350, 50) if owners.has(7, ts)] == [50, 150, 250]
    assert [ts for ts in range(0, 350, 50) if owners.has(8, ts)] == [200]
    assert not owners.has(9, 50)


def test_whoever_keeps_most_pays() -> None:
    """Its oldest go; of others nothing does."""
    owners = Owners(1000)
    keep(owners, 7, begun(50))
    keep(owners, 8, begun(*range(100, 100 + 50 * 1000, 50)))
    assert owners.room < 0
    owners.make_room(0)
    assert owners.room >= 0
    assert owners.has(7, 50)
    assert not owners.has(8, 100)
    kept = sum(owners.has(8, ts) for ts in range(100, 100 + 50 * 1000, 50))
    assert kept == 750 - 2 * CLIENT_WEIGHT - 1
    assert owners.has(8, 50 + 50 * 1000)


def test_many_numbers_are_one_share() -> None:
    """Whoever draws a number for each begin pushes out its own alone, the oldest first."""
    owners = Owners(1000)
    victim = numbered(1, 7, is_connection=False)
    keep(owners, victim, begun(50))
    flood = [numbered(2, number, is_connection=False) for number in range(100)]
    for number, client in enumerate(flood):
        keep(owners, client, begun(100 + 50 * number))
    owners.make_room(0)
    assert owners.has(victim, 50)
    kept = [number for number, client in enumerate(flood) if owners.has(client, 100 + 50 * number)]
    assert kept == list(range(100 - len(kept), 100))
    assert 10 < len(kept) < 30


def test_within_a_share_the_largest_pays_first() -> None:
    """A name's own quiet clients do not suffer from its loud one."""
    owners = Owners(1000)
    quiet, loud = (numbered(1, number, is_connection=False) for number in (1, 2))
    keep(owners, quiet, begun(50, 100))
    keep(owners, loud, begun(*range(150, 150 + 50 * 2000, 50)))
    owners.make_room(0)
    assert owners.has(quiet, 50)
    assert not owners.has(loud, 150)


def test_what_is_old_takes_no_room() -> None:
    """It is refused whosever it is; then nothing else need go."""
    owners = Owners(100)
    keep(owners, 7, begun(50, 100, 150))
    keep(owners, 8, begun(*range(200, 200 + 50 * 60, 50)))
    assert owners.room < 0
    owners.make_room(200 + 50 * 58)
    assert owners.room >= 0
    assert not owners.has(7, 150)
    assert owners.has(8, 200 + 50 * 59)
    owners.make_room(10**9)
    assert owners._weight == 0


@given(st.lists(st.integers(0, 100)), st.integers(0, 1000))
def test_a_fair_limit_is_the_highest_that_fits(amounts: list[int], room: int) -> None:
    """Whoever has less than that keeps all of it."""
    limit = fair_limit(amounts, room)
    taken = [sum(min(amount, most) for amount in amounts) for most in (limit, limit + 1)]
    assert taken[0] <= room
    assert taken[1] > room or taken[1] == sum(amounts)


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 60), st.integers(0, 50)),
        max_size=40,
    )
)
def test_what_is_kept_is_the_newest_and_fits(steps: list[tuple[int, int, int, int]]) -> None:
    """Whatever clients do, nobody has what another began."""
    owners = Owners(300)
    truth: dict[int, list[int]] = {}
    newest = watermark = 0
    for share, number, count, age in steps:
        client = numbered(share, number, is_connection=False)
        stamps = [newest + 50 * place for place in range(1, count + 1)]
        newest = stamps[-1]
        truth.setdefault(client, []).extend(stamps)
        keep(owners, client, begun(*stamps))
        watermark = max(watermark, newest - 50 * age)
        if owners.room < 0:
            owners.make_room(watermark)
            assert owners._weight <= 225
    for client, stamps in truth.items():
        known = [owners.has(client, stamp) for stamp in stamps]
        assert all(later or not earlier for earlier, later in pairwise(known))
        assert not any(owners.has(other, stamps[0]) for other in truth if other != client)
