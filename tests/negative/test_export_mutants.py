"""Export queues broken on purpose: each variant must be caught, by the check that is named for it.

The same checks run on queues as they are and pass (`tests/unit/recipes/test_export_delivery.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from compactor.tables import ownership
from omidpy.base.tables import OWN_TABLE_PREFIX
from omidpy.facts.control import ControlTable, encode_document
from omidpy.manager import TransactionManager
from omidpy.model import KeyRange
from omidpy.recipes.export_queue import queue
from omidpy.recipes.export_queue.delivery import bucket as delivery
from omidpy.recipes.export_queue.delivery.bucket import Delivery
from omidpy.recipes.export_queue.delivery.crew import Crew
from omidpy.recipes.export_queue.entries import acknowledgement, ordering
from omidpy.recipes.export_queue.entries.ordering import FoundEntry, Position, Window
from omidpy.recipes.export_queue.entries.stored.state import (
    BucketRows,
    BucketState,
    Definition,
    Raw,
)
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.exporter import Batch
from omidpy.recipes.export_queue.upkeep import rebucketing
from omidpy.storage.base import DeleteVersion, RowMutation
from omidpy.tx.writes.ordinals import Ordinals
from tests.machines import export_checks
from tests.machines.naive_oracle import NaiveOracle

Variant = Callable[[pytest.MonkeyPatch], None]


def removes_by_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X5: all rows between the first and the last one that was delivered."""

    def removals(self: Delivery, found: Sequence[FoundEntry]) -> list[RowMutation]:
        rows = [one.row for one in found]
        between = KeyRange(min(rows), max(rows) + b"\0")
        return [
            RowMutation(cells[0].row, deletes=[DeleteVersion(*cell[1:4]) for cell in cells])
            for page in self._tm.store.scan(self._in_store, between)
            for cells in page
        ]

    monkeypatch.setattr(Delivery, "_removals", removals)


def snapshot_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X4: the watermark is read once the snapshot has been begun."""
    begin = View.__init__

    def look(self: View, tm: TransactionManager, table: str, **more: Any) -> None:
        low_watermark = tm.low_watermark
        tm.low_watermark = lambda: 0  # type: ignore[method-assign]  # it is read below
        begin(self, tm, table, **more)
        tm.low_watermark = low_watermark  # type: ignore[method-assign]
        self.low_ts = low_watermark()

    monkeypatch.setattr(View, "__init__", look)


def cursor_on_start_timestamps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the order: that of beginnings, as in Fluo and in outboxes with ascending ids."""
    log = View.log

    def by_start(self: View, bucket: int, **bounds: Any) -> Iterator[FoundEntry]:
        for found in log(self, bucket, **bounds):
            yield found._replace(position=Position(found.start_ts, found.position.ordinal))

    monkeypatch.setattr(View, "log", by_start)


def scans_from_the_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin the next scan where this one has looked, watermark or not."""
    monkeypatch.setattr(delivery, "_scan_from", lambda view, _: view.start_ts)


def removes_before_it_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X6."""
    whole = Delivery._with_contents

    def taken_out(self: Delivery, batch: Sequence[FoundEntry], view: View) -> list[FoundEntry]:
        found = whole(self, batch, view)
        acknowledgement.remove(self._tm.store, self._in_store, found)
        return found

    monkeypatch.setattr(Delivery, "_with_contents", taken_out)


def moves_the_cursor_before_it_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X6 for what is kept."""
    send = Delivery._send

    def moved(self: Delivery, lease: Any, patience: Any, good: Any, *more: Any) -> int:
        position = good[-1][0].position
        lease.update(cursor_ts=position.commit_ts, cursor_ordinal=position.ordinal.hex())
        return send(self, lease, patience, good, *more)

    monkeypatch.setattr(Delivery, "_send", moved)


def changes_buckets_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X2."""

    def write(
        self: BucketRows, old: Raw, state: BucketState, removing: Sequence[RowMutation] = ()
    ) -> Raw:
        del removing
        control: ControlTable = self._control
        new = encode_document(state)
        control.write(self._places.bucket(self.number, old.bucket), new)
        return Raw(old.bucket, new, state)

    monkeypatch.setattr(BucketRows, "replace", write)


def removes_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X9: removes what the receiver has taken, and then looks whether it is the owner."""
    send = Delivery._send

    def and_remove(self: Delivery, lease: Any, patience: Any, good: Any, *more: Any) -> int:
        count = send(self, lease, patience, good, *more)
        acknowledgement.remove(self._tm.store, self._in_store, [found for found, _ in good])
        return count

    monkeypatch.setattr(Delivery, "_send", and_remove)


def leaves_claims_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X11: takes what is in the hands of somebody who may sleep in a transaction."""
    monkeypatch.setattr(Crew, "_spoil", lambda *_: None)


def delivers_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an exporter into the same store commit without taking the entry out."""

    def export(self: Delivery, lease: Any, good: Any, *_: Any) -> int:
        exporter: Any = self._exporter
        with self._tm.begin() as tx:
            entries = [entry for _, entry in good]
            exporter.export_within(tx, Batch(entries, queue="q", bucket=0, fence=0))
        return len(entries)

    monkeypatch.setattr(Delivery, "_export", export)


def takes_its_table_for_a_system_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the compactor pass it by."""
    monkeypatch.setattr(
        ownership, "is_system_table", lambda name: name.startswith((OWN_TABLE_PREFIX, "OMID_"))
    )


def takes_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X1: does not look whether something else must leave before."""

    def has_first(self: Window) -> bool:
        if not self._waiting and self._next is not None:
            self._push(self._next)
            self._next = next(self._found, None)
        return bool(self._waiting)

    monkeypatch.setattr(Window, "_has_first", has_first)


def gives_out_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X3."""
    monkeypatch.setattr(Ordinals, "take", lambda _: bytes(4))


def opens_the_new_buckets_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X7: adders go on without a pause, some to the old buckets and some to the new."""
    of_adders = Definition.of_adders

    def at_once(self: Definition) -> Definition | None:
        new = self.successor
        opened = None if new is None else msgspec.structs.replace(new, is_open=True)
        return of_adders(msgspec.structs.replace(self, successor=opened))

    monkeypatch.setattr(Definition, "of_adders", at_once)


def changes_buckets_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X7: whoever is slow still commits into the old buckets."""
    monkeypatch.setattr(TransactionManager, "fence", lambda _, table: len(table))


def undoes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X8: takes whatever buckets come next for its own."""

    def undo(self: rebucketing.Prepare, tx: Any, env: rebucketing.RebucketTools) -> None:
        del tx
        env.remove_table(self.queue_id, self.old + 1)

    monkeypatch.setattr(rebucketing.Prepare, "undo", undo)


def forgets_what_waits_in_the_old_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X7: switches as soon as the new buckets are open."""
    monkeypatch.setattr(rebucketing, "waiting", lambda *_: "")


def adds_by_what_it_once_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break X7: an adder never looks again which buckets there are."""
    monkeypatch.setattr(queue, "DEFINITION_AGE_S", math.inf)


def takes_keys_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break the order of the layout `fluo`: that of beginnings, as Fluo has it."""
    monkeypatch.setattr(ordering, "sorted", list, raising=False)


def takes_a_bucket_for_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break what keeps keys apart in it."""
    monkeypatch.setattr(delivery, "key_prefix", lambda row: row[:4])


def answers_before_commits_are_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break I2: the oracle goes on answering while a commit is being written."""

    def commit(self: NaiveOracle, start_ts: Any, cells: Any, tables: Any, **_: Any) -> Any:
        return self._decide(start_ts, cells, tables)

    monkeypatch.setattr(NaiveOracle, "commit", commit)


@pytest.mark.parametrize(
    ("variant", "check"),
    [
        (
            answers_before_commits_are_durable,
            export_checks.no_start_is_answered_before_earlier_commits_are_durable,
        ),
        (takes_keys_as_they_come, export_checks.keys_leave_whole_and_in_order),
        (takes_a_bucket_for_one_key, export_checks.keys_leave_whole_and_in_order),
        (opens_the_new_buckets_at_once, export_checks.new_buckets_keep_the_order_of_each_key),
        (changes_buckets_without_a_fence, export_checks.new_buckets_keep_the_order_of_each_key),
        (
            forgets_what_waits_in_the_old_buckets,
            export_checks.new_buckets_keep_the_order_of_each_key,
        ),
        (adds_by_what_it_once_read, export_checks.new_buckets_keep_the_order_of_each_key),
        (undoes_by_name, export_checks.an_undo_removes_its_own_buckets_alone),
        (gives_out_one_number, export_checks.two_additions_are_two_entries),
        (removes_by_range, export_checks.an_entry_under_way_survives_what_is_removed_around_it),
        (snapshot_first, export_checks.a_commit_between_watermark_and_snapshot_is_not_lost),
        (cursor_on_start_timestamps, export_checks.a_late_commit_is_delivered),
        (scans_from_the_snapshot, export_checks.a_late_commit_is_delivered),
        (removes_before_it_delivers, export_checks.who_dies_loses_nothing),
        (moves_the_cursor_before_it_delivers, export_checks.who_dies_loses_nothing),
        (changes_buckets_blindly, export_checks.two_owners_move_one_cursor),
        (removes_without_asking, export_checks.who_was_replaced_removes_nothing),
        (leaves_claims_as_they_are, export_checks.who_was_replaced_sets_nothing_aside),
        (delivers_what_is_gone, export_checks.into_the_same_store_exactly_once),
        (
            takes_its_table_for_a_system_table,
            export_checks.an_entry_outlives_the_pruning_of_its_commit,
        ),
        (takes_what_it_reads, export_checks.a_window_waits_for_what_overlaps),
    ],
)
def test_broken_export_queues_are_caught(
    variant: Variant, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a thing that somebody would write."""
    variant(monkeypatch)
    with pytest.raises(AssertionError):
        check()
