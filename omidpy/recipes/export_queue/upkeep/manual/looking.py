"""What an operator sees of a queue's entries, and does to them by hand."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import TYPE_CHECKING

from omidpy.errors import CorruptCell
from omidpy.recipes.export_queue.entries.stored.codecs import codec_named
from omidpy.recipes.export_queue.entries.stored.layout import decode_content
from omidpy.recipes.export_queue.entries.stored.state import (
    BucketRows,
    Definition,
    Places,
    table_name,
)
from omidpy.recipes.export_queue.entries.view import View
from omidpy.recipes.export_queue.exporter import Entry

if TYPE_CHECKING:
    from omidpy.manager import TransactionManager
    from omidpy.recipes.export_queue.entries.ordering import FoundEntry


def peek(tm: TransactionManager, places: Places, definition: Definition, count: int) -> list[Entry]:
    """Return the next entries of all buckets; see `ExportQueue.peek`."""
    table = table_name(places.queue_id, definition.number)
    view = View(tm, table, layout=definition.layout)
    states = BucketRows(tm.session.control, places, definition).read()

    def waiting() -> Iterator[FoundEntry]:
        for raw in states:
            state = raw.state
            for found in view.entries(
                raw.bucket,
                from_ts=state.scan_from,
                after=state.cursor,
                replay_to=state.replay_to,
            ):
                if found.position > state.cursor:
                    yield found

    first = heapq.nsmallest(count, waiting())
    read = view.contents([found.row for found in first if found.content is None])
    return [
        _shown(definition, found._replace(content=found.content or read.get(found.row)))
        for found in first
    ]


def _shown(definition: Definition, found: FoundEntry) -> Entry:
    key, headers, value = b"", {}, None
    try:
        content = decode_content(found.content or b"")
        key, headers = content.key, dict(content.headers)
        value = codec_named(definition.codec).decode(content.value)
    except CorruptCell:
        pass
    commit_ts, ordinal = found.position
    return Entry(key, value, commit_ts, int.from_bytes(ordinal, "big"), found.start_ts, headers)
