"""When are idempotency keys forgotten?  After their time, as the oracle counts it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from compactor.options import options_from_words
from compactor.pruning import keys
from omidpy.base.tables import KEYS_TABLE
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import AlreadyCommitted
from omidpy.facts.watermarks import Watermarks
from omidpy.manager import TransactionManager
from omidpy.model import Timestamp
from omidpy.reading.visibility import sort_row
from omidpy.storage.memory import MemoryStore
from omidpy.tx.keys import STREAM_MARK
from tests.machines.cells import ALL_AT_ONCE, World
from tests.machines.naive_oracle import NaiveOracle

KEEP_S: Final = 60.0
OPTIONS: Final = replace(ALL_AT_ONCE, keep_keys_s=KEEP_S, should_wait=True)


class Keys:
    """A store in which keys were used at commit timestamps 100, 200 and 300."""

    def __init__(self) -> None:
        self.world = World(MemoryStore(), low_watermark=0)
        self.world.table(KEYS_TABLE, families=[b"k"])
        for start_ts in (50, 150, 250):
            self.use(start_ts)
        self.world.set_low_watermark(1000)
        self.issued(200, seconds_ago=KEEP_S)
        self.issued(1000, seconds_ago=0)

    def use(
        self,
        start_ts: int,
        *,
        commit_ts: int | None = None,
        row: bytes = b"",
        value: bytes = b"1",
    ) -> None:
        """Use a key: its row is the number, or `row`."""
        cell = self.world.put(
            row or b"%d" % start_ts, start_ts, value, table=KEYS_TABLE, family=b"k", qualifier=b"t"
        )
        self.world.heal(cell, commit_ts or start_ts + 50, table=KEYS_TABLE)

    def issued(self, last_issued_ts: int, *, seconds_ago: float) -> None:
        """Record a sample of the oracle's time."""
        elapsed_ms = round((1000 - seconds_ago) * 1000)
        document = b'{"elapsed_ms":%d,"wall_ms":0,"last_issued_ts":%d}'
        row = b"sample/%020d" % elapsed_ms
        self.world.control.write(row, document % (elapsed_ms, last_issued_ts))

    def left(self) -> list[bytes]:
        """Return the rows of the keys that are left, each with its shadow cell."""
        row = sort_row(self.world.cells(KEYS_TABLE))
        assert set(row.shadows) == {cell[1:4] for cell in row.data}, "they go together"
        return sorted(cell.row for cell in row.data)


def test_a_key_goes_after_its_time_and_not_before() -> None:
    """What committed below the timestamp that was issued so long ago: 200 itself was not."""
    kept = Keys()
    kept.world.compact(OPTIONS)
    assert kept.left() == [b"150", b"250"]


def test_the_row_of_a_stream_stays() -> None:
    """Its newest batch may be repeated whenever its query goes on."""
    kept = Keys()
    kept.use(40, row=b"stream", value=STREAM_MARK + b"7 q")
    kept.world.compact(OPTIONS)
    assert kept.left() == [b"150", b"250", b"stream"]


@pytest.mark.parametrize("keep_s", [None, KEEP_S * 1.01])
def test_keys_are_kept_for_as_long_as_was_said(keep_s: float | None) -> None:
    """None is for ever."""
    kept = Keys()
    kept.world.compact(replace(OPTIONS, keep_keys_s=keep_s))
    assert kept.left() == [b"150", b"250", b"50"]


def test_words_say_how_long() -> None:
    """A week, unless something else is asked for."""
    assert options_from_words().keep_keys_s == 7 * 86_400
    assert options_from_words(keep_keys="30d").keep_keys_s == 30 * 86_400
    assert options_from_words(keep_keys="never").keep_keys_s is None


def test_a_clock_that_is_set_forward_forgets_nothing() -> None:
    """The oracle's samples alone tell how long ago that was."""
    kept = Keys()
    kept.world.clock.step_wall(milliseconds=10**12)
    kept.world.control.forget([b"sample/%020d" % round((1000 - KEEP_S) * 1000)])
    kept.world.compact(OPTIONS)
    assert kept.left() == [b"150", b"250", b"50"]


def test_no_key_goes_whose_commit_is_above_the_low_watermark() -> None:
    """One who began below it, and has not seen it, would use it again and commit."""
    watermarks = Watermarks(Keys().world.control)
    assert keys.keys_horizon(watermarks, Timestamp(1000), keep_s=KEEP_S) == 0
    watermarks.publish_collection_horizon(Timestamp(900), ManualClock())
    assert keys.keys_horizon(watermarks, Timestamp(1000), keep_s=KEEP_S) == 200
    assert keys.keys_horizon(watermarks, Timestamp(150), keep_s=KEEP_S) == 150


def test_no_key_goes_that_a_readable_snapshot_sees() -> None:
    """A hold keeps it, as it keeps everything."""
    kept = Keys()
    kept.world.compact(replace(OPTIONS, retention_s=10 * KEEP_S))
    assert kept.left() == [b"150", b"250", b"50"]


def test_a_dry_run_forgets_nothing() -> None:
    """It writes nothing."""
    kept = Keys()
    kept.world.compact(replace(OPTIONS, is_dry_run=True))
    assert kept.left() == [b"150", b"250", b"50"]


@pytest.mark.parametrize(
    "options",
    [replace(OPTIONS, exclude=frozenset({KEYS_TABLE})), replace(OPTIONS, tables=frozenset({"t"}))],
)
def test_a_table_that_is_left_out_is_left_alone(options: object) -> None:
    """As by passes."""
    kept = Keys()
    kept.world.table("t")
    kept.world.compact(options)  # type: ignore[arg-type]
    assert kept.left() == [b"150", b"250", b"50"]


def test_a_key_that_was_used_again_keeps_its_new_use() -> None:
    """The old version alone goes, whoever comes in between."""
    kept = Keys()
    kept.use(500, row=b"50")
    keys.forget_keys(kept.world.store, Timestamp(200))
    row = sort_row(kept.world.cells(KEYS_TABLE)).data
    assert [cell.version for cell in row if cell.row == b"50"] == [500]


def test_what_was_freed_goes_with_what_it_hides() -> None:
    """Else the key would be used again, by nobody."""
    kept = Keys()
    cell = kept.world.put(b"50", 60, b"", table=KEYS_TABLE, family=b"k", qualifier=b"t")
    keys.forget_keys(kept.world.store, Timestamp(200))
    assert len([one for one in kept.world.cells(KEYS_TABLE) if one.row == b"50"]) == 3
    kept.world.heal(cell, 110, table=KEYS_TABLE)
    keys.forget_keys(kept.world.store, Timestamp(200))
    assert b"50" not in kept.left()


def test_a_key_that_is_not_healed_stays_for_a_pass() -> None:
    """Its commit entry must not outlive nothing, nor it the entry."""
    kept = Keys()
    kept.world.put(b"new", 100, table=KEYS_TABLE, family=b"k", qualifier=b"t")
    kept.world.enter(100, 120)
    assert keys.forget_keys(kept.world.store, Timestamp(200)) == 1
    assert b"new" in [cell.row for cell in kept.world.cells(KEYS_TABLE)]
    kept.world.compact(OPTIONS)
    assert kept.left() == [b"150", b"250"]


def test_who_uses_a_key_while_it_is_forgotten_uses_it_once() -> None:
    """Between any two steps: a user finds the old commit, or makes the one that counts."""

    class Racing(MemoryStore):
        """A store in which a key is used again right before it is removed."""

        race: object = None

        def write(self, batch: object, **options: object) -> None:
            """Let the user come first."""
            rows = batch.get(KEYS_TABLE, ()) if isinstance(batch, dict) else ()
            if callable(self.race) and any(one.deletes for one in rows):
                race, self.race = self.race, None
                race()
            super().write(batch, **options)  # type: ignore[arg-type]

    store = Racing()
    oracle = NaiveOracle(store)
    tm = TransactionManager(store, oracle, post_commit="sync", clock=ManualClock())
    tm.begin(idempotency_key=b"k").commit()
    horizon = oracle.raise_low_watermark()
    found: list[str] = []

    def use() -> None:
        try:
            tm.begin(idempotency_key=b"k").commit()
        except AlreadyCommitted:
            found.append("found")
        else:
            found.append("used")

    store.race = use
    assert keys.forget_keys(store, Timestamp(horizon + 50)) == 1
    use()
    use()
    assert found == ["found", "used", "found"]


def test_a_store_without_keys_has_none_to_forget() -> None:
    """The table is made by the first that uses one."""
    world = World(MemoryStore())
    assert keys.forget_keys(world.store, Timestamp(1000)) == 0
