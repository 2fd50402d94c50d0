"""What people do with dead letters: look, try again, give up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from omidpy.base.words.arguments import check_bytes, check_count
from omidpy.errors import CorruptCell
from omidpy.recipes.export_queue.entries.acknowledgement import in_portions
from omidpy.recipes.export_queue.entries.dead import (
    POISON,
    RETRY,
    DeadLetter,
    Grave,
    Note,
    graves_of,
    rewrite_within,
)
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.stored.layout import decode_content
from omidpy.recipes.export_queue.entries.stored.state import table_name
from omidpy.recipes.export_queue.entries.view import View, table_of_queue

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.stored.state import Definition, Places

AT_ONCE = 1000
"""So many change in one transaction."""


class DeadLetters:
    """The entries of a queue that were set aside."""

    def __init__(self, tm: TransactionManager, places: Places, definition: Definition) -> None:
        """Look at those of one queue; each call looks anew."""
        self._tm = tm
        self._definition = definition
        self._table = table_name(places.queue_id, definition.number)

    def __iter__(self) -> Iterator[DeadLetter]:
        """Yield them, bucket by bucket, by `seq`."""
        for bucket, grave in self._graves():
            commit_ts, ordinal = grave.found.position
            yield DeadLetter(
                grave.key,
                bucket,
                (commit_ts, int.from_bytes(ordinal, "big")),
                grave.found.start_ts,
                grave.note.state,
                grave.note.reason,
                self._value(grave),
                grave.changed_ts,
            )

    def retry(self, key: bytes | None = None, *, as_of: int | None = None) -> int:
        """Let poison be tried again, and what waits behind it in the old order.

        Args:
            key: Of this key alone; None: of all.
            as_of: Only what is as it is since that timestamp (`DeadLetter.changed_ts`): of those
                who look first, or ask again, all that they have seen and nothing that came later.

        Returns:
            How many that is; the exporter delivers them in its next pass.
        """
        return self._rewritten(
            [
                (grave, msgspec.structs.replace(grave.note, state=RETRY))
                for grave in self._poison(key, as_of)
            ]
        )

    def drop(self, key: bytes | None = None, *, as_of: int | None = None) -> int:
        """Give poison up for ever; what waits behind it is delivered.

        Args:
            key: Of this key alone; None: of all.
            as_of: As for `retry`.

        Returns:
            How many that is.
        """
        return self._rewritten([(grave, None) for grave in self._poison(key, as_of)])

    def _rewritten(self, wanted: list[tuple[Grave, Note | None]]) -> int:
        with table_of_queue():
            return in_portions(wanted, AT_ONCE, self._rewrite, what="dead letters")

    def _rewrite(self, wanted: Sequence[tuple[Grave, Note | None]]) -> int:
        count = 0
        # Where another operator was faster, the next try leaves alone what he has changed.
        for attempt in self._tm.attempts():
            with attempt as tx:
                count = rewrite_within(tx.table(self._table), wanted)
        return count

    def _poison(self, key: bytes | None, as_of: int | None) -> list[Grave]:
        if key is not None:
            check_bytes("the key of a dead letter", key)
        check_count("as_of", as_of)
        return [
            grave
            for _, grave in self._graves()
            if grave.note.state == POISON
            and (key is None or grave.key == key)
            and (as_of is None or grave.changed_ts <= as_of)
        ]

    def _graves(self) -> Iterator[tuple[int, Grave]]:
        view = View(self._tm, self._table)
        for bucket in range(self._definition.buckets):
            for grave in graves_of(view, bucket):
                yield bucket, grave

    def _value(self, grave: Grave) -> object:
        try:
            content = decode_content(grave.found.content or b"")
            return codec_named(self._definition.codec).decode(content.value)
        except CorruptCell:
            return None
