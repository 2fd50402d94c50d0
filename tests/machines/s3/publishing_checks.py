"""What must hold of files that are published with transactions; mutants are tried on the same."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pytest

from omidpy.connect import make_publisher
from omidpy.errors import WriteConflict
from omidpy.manager import TransactionManager
from tests.machines.s3.publishing import Mortal, World

ONE: Final = pa.table({"v": [1]})
TWO: Final = pa.table({"v": [2, 2]})
BOTH: Final = (b"1", [1, 100_000])
NEITHER: Final[tuple[None, list[int]]] = (None, [])


def cells_and_files_appear_at_one_instant(world: World) -> None:
    """Before the commit others see neither, afterwards both."""
    with world.tm.begin() as tx:
        tx.table("orders").put(b"first", {b"cf:value": b"1"})
        tx.publish([ONE, TWO], world.address)
        assert world.seen() == NEITHER
    assert world.seen() == (b"1", [1, 2])


def of_two_who_want_to_be_alone_one_is_aborted(world: World, conflict: str = "replace") -> None:
    """Else both would be there."""
    first, second = world.tm.begin(), world.tm.begin()
    first.publish(ONE, world.address, conflict=conflict)
    second.publish(TWO, world.address, conflict=conflict)
    first.commit()
    with pytest.raises(WriteConflict):
        second.commit()
    assert world.seen() == (None, [1])


def both_who_append_keep_their_files(world: World) -> None:
    """At the same time, to one destination."""
    first, second = world.tm.begin(), world.tm.begin()
    first.publish(ONE, world.address)
    second.publish(TWO, world.address)
    first.commit()
    second.commit()
    assert world.seen() == (None, [1, 2])


def older_snapshots_see_the_older_state(world: World) -> None:
    """Also after what they see was replaced and swept, for as long as they can be read."""
    world.publish(Mortal())
    before = world.tm.begin().start_ts
    world.publish(Mortal(), b"2", conflict="replace")
    world.oracle.raise_low_watermark()
    world.sweep()
    assert world.seen() == (b"2", [1, 100_000])
    assert world.seen(at=before) == BOTH


def files_of_running_transactions_are_not_swept(world: World) -> None:
    """However long they take, until they cannot commit any more."""
    tx = world.tm.begin()
    tx.publish(ONE, world.address, inline_bytes=0)
    world.sweep()
    tx.commit()
    assert world.seen() == (None, [1])


def a_commit_that_only_its_entry_tells_of_is_kept(world: World) -> None:
    """Its publisher died before it wrote a shadow cell."""

    class Killed(BaseException):
        pass

    def die(step: str) -> None:
        if step == "decided":
            raise Killed

    tm = TransactionManager(
        world.store, world.oracle, post_commit="sync", on_step=die, make_publisher=make_publisher
    )
    tx = tm.begin()
    tx.publish(ONE, world.address)
    with pytest.raises(Killed):
        tx.commit()
    world.oracle.raise_low_watermark()
    world.sweep()
    assert world.seen() == (None, [1])
