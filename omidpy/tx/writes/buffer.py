"""The writes of one transaction: what is buffered, what was sent, and at which version.

Pure bookkeeping, no I/O.  A request whose answer was lost is sent again, and the first copy of it
may still arrive, late.  Two rules make that harmless (docs/decisions/0007):

    a cell once sent is written again only at a higher version (a checkpoint), and
    only byte-identical cells are ever sent again.

So whatever may have reached the store is remembered as sent, acknowledged or not, with the value it
was sent with.  Of a cell that another process wrote, in its part of the transaction, this buffer
knows the version alone, and None stands for the value.

Savepoints are layers: each begins with a checkpoint of its own, writes go to the top one, and what
an undone layer had already sent is named, so that exactly those versions can be deleted.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Concatenate, Final, NamedTuple, NoReturn, ParamSpec, TypeVar

from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.base.collector import paused_collector
from omidpy.errors import OmidError, UsageError
from omidpy.model import TIMESTAMP_STEP, Cell, CellName, CellRecord, KeyRange, Timestamp
from omidpy.storage.base import DeleteVersion, Put, RowMutation
from omidpy.tx.writes.layers import Columns, Layer, Merge, Scope

P = ParamSpec("P")
T = TypeVar("T")

MAX_CHECKPOINTS: Final = TIMESTAMP_STEP - 1

FLUSH_LIMIT_BYTES: Final = 2 * 1024 * 1024
"""A transaction that has buffered more than this flushes before it commits."""

_new: Final = tuple.__new__
"""`_new(Put, fields)` is `Put(*fields)`, without the call of a Python function that this one is."""


class ContradictingPart(UsageError):
    """Two parts of a transaction cannot both be true."""


class DroppedSavepoint(NamedTuple):
    """What an undone savepoint had sent."""

    sent: Sequence[tuple[CellName, int]]
    was_acknowledged: bool
    """Whether the store has said that all of it arrived.

    If not, a put may still be on its way, and arrive behind the delete that takes it back.
    """

    @property
    def deletes(self) -> dict[str, list[RowMutation]]:
        """The exact deletes that take it back."""
        return _deletes(self.sent)


def _whole(
    change: Callable[Concatenate[WriteBuffer, P], T],
) -> Callable[Concatenate[WriteBuffer, P], T]:
    """Let a change that an exception of others cuts short be a flaw of the buffer for good."""

    @functools.wraps(change)
    def call(buffer: WriteBuffer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # Before the change: an exception at any line of it leaves a buffer that can only be rolled
        # back (I11).
        was_torn, buffer.is_torn = buffer.is_torn, True
        try:
            result = change(buffer, *args, **kwargs)
        except OmidError:
            buffer.is_torn = was_torn  # its own word that nothing is half done
            raise
        buffer.is_torn = was_torn
        return result

    return call


class WriteBuffer:
    """What one transaction has written so far."""

    def __init__(self, start_ts: Timestamp, *, fixed_version: int | None = None) -> None:
        """Start empty.

        Args:
            start_ts: The transaction.
            fixed_version: Send everything at this version, and refuse to send a cell twice.
        """
        self._start_ts = start_ts
        self._fixed_version = fixed_version
        self._merged: set[CellName] = set()
        self._conflict_free: set[CellName] = set()
        self._checkpoint = 0
        self._used_checkpoint = -1
        """Up to this checkpoint versions are not to be used: deleted at, or given to workers."""
        self._reserved_checkpoint: int | None = None
        self.is_torn = False
        """Whether a change of it is under way, or was interrupted."""
        self.sending = threading.Lock()
        """Held from `take` until `acknowledge`: a write beside that may be lost."""
        self.writing = threading.RLock()
        """Held while cells are put into the top layer, which is no work for two threads: who cannot
        have it at once calls `refuse_beside`.  A signal's handler, which writes in between, can."""
        self.is_closed = False
        """Whether the last of it is on its way."""
        self._dropped: list[DroppedSavepoint] = []
        """Layers whose sent cells may still be in the store."""
        self._past_put_count = 0
        """Of layers that are no more, and of parts."""
        self._layers = [Layer()]
        self._taken: list[Layer] = []
        self._sent: dict[CellName, Mapping[int, bytes | None]] = {}
        """Version -> value; replaced and never changed, because many cells may share one."""
        self._unacknowledged: dict[tuple[CellName, int], None] = {}
        self.on_unmerge: Callable[[str], object] | None = None
        """Is told of each worker whose merge is undone with a savepoint."""

    # -- writing and reading -------------------------------------------------------------------

    def put(
        self,
        table: str,
        row: bytes,
        family: bytes,
        qualifier: bytes,
        value: bytes,
        *,
        conflict_free: bool = False,
    ) -> None:
        """Buffer a value, or a tombstone.

        A cell is free of conflicts only if every write of it was asked to be.
        """
        self.put_cells(table, row, ((family, qualifier, value),), conflict_free=conflict_free)

    def put_cells(
        self,
        table: str,
        row: bytes,
        cells: Collection[tuple[bytes, bytes, bytes]],
        *,
        conflict_free: bool = False,
    ) -> None:
        """Buffer values, or tombstones, of a row: families, qualifiers and values; as `put`."""
        if conflict_free or self._conflict_free:
            for family, qualifier, _ in cells:
                name = CellName(table, row, family, qualifier)
                if not conflict_free:
                    self._conflict_free.discard(name)
                elif not self._is_written(name):
                    self._conflict_free.add(name)
        if cells:
            self._layers[-1].put_cells(table, row, cells)

    def put_rows(
        self,
        table: str,
        rows: Sequence[bytes],
        columns: Sequence[tuple[bytes, bytes]],
        values: Sequence[Sequence[bytes | None]],
    ) -> None:
        """Buffer values of the same columns of many rows, checked for conflicts.

        Args:
            table: The table.
            rows: Their keys.
            columns: Families and qualifiers.
            values: Of each column, in the order of the rows; None is none.
        """
        layer = self._layers[-1]
        if self._conflict_free or not layer.put_rows(table, rows, columns, values):
            for row, *cells in zip(rows, *values, strict=True):
                for (family, qualifier), value in zip(columns, cells, strict=True):
                    if value is not None:
                        self.put(table, row, family, qualifier, value)

    def _is_written(self, name: CellName) -> bool:
        column = (name.family, name.qualifier)
        return name in self._sent or any(
            column in layer.row(name.table, name.row) for layer in self._layers
        )

    def row(self, table: str, row: bytes) -> Columns:
        """Return what is buffered for a row.  Not to be changed."""
        if len(self._layers) == 1:
            return self._layers[0].row(table, row)
        merged: Columns = {}
        for layer in self._layers:
            merged.update(layer.row(table, row))
        return merged

    def rows_in(self, table: str, key_range: KeyRange) -> dict[bytes, Columns]:
        """Return a copy of what is buffered for the rows of a range."""
        merged: dict[bytes, Columns] = {}
        for layer in self._layers:
            rows = layer.tables.get(table)
            if rows is not None:
                for key in rows.keys_in(key_range):
                    merged.setdefault(key, {}).update(rows.by_key[key])
        return merged

    def newest(self) -> Iterator[tuple[CellName, bytes | None]]:
        """Yield each cell that the transaction has written, with its newest value or tombstone.

        None stands for the value of a cell that another process wrote.
        """
        found: dict[CellName, bytes | None] = {
            name: versions[max(versions)] for name, versions in self._sent.items()
        }
        for layer in self._layers:
            found.update(layer.cells())
        yield from found.items()

    @property
    def is_empty(self) -> bool:
        """Whether the transaction has written nothing at all."""
        return not self._sent and not any(layer.tables for layer in self._layers)

    @property
    def is_clear(self) -> bool:
        """Whether nothing is buffered now, whatever was sent."""
        layers = self._layers
        return len(layers) == 1 and not layers[0].tables

    @property
    def size_bytes(self) -> int:
        """About how much memory the buffered cells take."""
        layers = self._layers
        if len(layers) == 1:
            return layers[0].size_bytes
        return sum(layer.size_bytes for layer in layers)

    def put_count(self, *, with_savepoints: bool) -> int:
        """How many cells were ever put or merged, also those that were undone or put twice.

        Args:
            with_savepoints: Count those of open savepoints, too.
        """
        layers = self._layers if with_savepoints else self._layers[:1]
        return self._past_put_count + sum(layer.put_count for layer in layers)

    @property
    def savepoint_bytes(self) -> int:
        """How much of `size_bytes` belongs to open savepoints."""
        return sum(layer.size_bytes for layer in self._layers[1:])

    # -- savepoints ----------------------------------------------------------------------------

    @property
    def top(self) -> Layer:
        """What is written to now: the writes since the open savepoint, or all of them."""
        return self._layers[-1]

    def spoil(self, reason: str) -> None:
        """Note that the writes since the open savepoint, or all of them, are half of something."""
        top = self.top
        top.flaw = top.flaw or reason

    def begin_half(self, of: object, reason: str) -> None:
        """Note that the writes from now on are half of something, until `end_half`."""
        self.top.halves[of] = reason

    def end_half(self, of: object) -> None:
        """Note that something is whole; halves that were undone are none."""
        for layer in self._layers:
            layer.halves.pop(of, None)

    @property
    def flaw(self) -> str | None:
        """Why what the transaction has written may not be committed; None if it may."""
        if self.is_torn:
            return "an exception came in the middle of a savepoint, a flush or a merge"
        if self._dropped:
            return "the flushed cells of an undone savepoint were not all removed"
        lowest = self._layers[0]
        return lowest.flaw or next(iter(lowest.halves.values()), None)

    @property
    def savepoint_count(self) -> int:
        """How many savepoints are open."""
        return len(self._layers) - 1

    def scope_depth(self) -> int:
        """Return in how many of the open savepoints, from the outermost, the calling task is."""
        depth = 0
        for layer in self._layers[1:]:
            if layer.scope is not None and not layer.scope.is_inside():
                break
            depth += 1
        return depth

    def check_scope(self) -> None:
        """Raise `UsageError` if the open savepoint is that of another task."""
        scope = self._layers[-1].scope
        if scope is not None and not scope.is_inside():
            raise UsageError(
                f"a savepoint of another task is open in transaction {self._start_ts}, and would "
                "take this write back if it is undone; write before or after it, or in tasks that "
                "are started inside of it"
            )

    @property
    def has_savepoint(self) -> bool:
        """Whether a savepoint is open."""
        return len(self._layers) > 1

    @_whole
    def open_savepoint(self, scope: Scope | None = None) -> None:
        """Begin a layer, with a checkpoint of its own.

        Args:
            scope: Where its writes come from; None is anywhere.

        Raises:
            UsageError: the transaction has used all of its checkpoints.
        """
        self._take_checkpoint()
        self._layers.append(Layer(scope))

    @_whole
    def keep_savepoint(self) -> None:
        """Make the top layer part of the one below it."""
        top = self._layers.pop()
        self._past_put_count += top.put_count
        below = self._layers[-1]
        for name, value in top.cells():
            table, row, family, qualifier = name
            below.put_cells(table, row, ((family, qualifier, value),))
        below.sent.extend(top.sent)
        if self.has_savepoint:
            below.merges.extend(top.merges)
        below.flaw = below.flaw or top.flaw
        below.halves.update(top.halves)

    @_whole
    def drop_savepoint(self) -> DroppedSavepoint:
        """Forget the top layer; return what it had sent already, which counts until `forget`.

        Nothing is written again at a deleted version, because HBase's delete markers hide later
        puts: whatever is flushed next takes a higher one.
        """
        top = self._layers.pop()
        self._past_put_count += top.put_count
        dropped = DroppedSavepoint(
            top.sent, not any(sent in self._unacknowledged for sent in top.sent)
        )
        if top.sent:
            self._used_checkpoint = self._checkpoint
            self._dropped.append(dropped)
        for sent in top.sent:
            # Or the next flush would send again what is about to be deleted.
            self._unacknowledged.pop(sent, None)
        for merge in reversed(top.merges):
            self._unmerge(merge)
        return dropped

    def _unmerge(self, merge: Merge) -> None:
        """Let the cells of a part be none of the transaction's, as before it was merged.

        A cell that the part made subject to the check for conflicts stays so.
        """
        self._merged.difference_update(merge.names)
        self._conflict_free.difference_update(merge.conflict_free)
        self._unsend(merge.sent)
        if self.on_unmerge is not None:
            self.on_unmerge(merge.worker_id)

    @_whole
    def forget(self, dropped: DroppedSavepoint) -> None:
        """Note that what a dropped layer had sent is gone from the store."""
        self._unsend(dropped.sent)
        self._dropped.remove(dropped)

    def _unsend(self, sent: Iterable[tuple[CellName, int]]) -> None:
        """Let some cells be none that were sent."""
        for name, version in sent:
            versions = {at: value for at, value in self._sent[name].items() if at != version}
            if versions:
                self._sent[name] = versions
            else:
                del self._sent[name]

    def _take_checkpoint(self) -> None:
        if self._checkpoint == MAX_CHECKPOINTS:
            raise UsageError(
                f"transaction {self._start_ts} has used the {MAX_CHECKPOINTS} checkpoints that "
                "Omid's format has, one for each savepoint, token and flush that rewrites a cell; "
                "flush less often, use fewer savepoints, or commit and begin again"
            )
        self._checkpoint += 1

    # -- sending -------------------------------------------------------------------------------

    @_whole
    def take(self, *, with_savepoints: bool = False) -> dict[str, list[RowMutation]]:
        """Note the buffered cells as sent and return what must be written, rows in order.

        They stay readable here until `acknowledge`.  Cells of an earlier attempt without
        acknowledgement are included, byte for byte the same.

        Args:
            with_savepoints: Take the cells of open savepoints too, which undoing them must then
                delete; otherwise they stay.

        Raises:
            UsageError: a sent cell would have to be written again and no checkpoint is left;
                nothing is lost, the cells stay buffered.
        """
        self._taken = self._layers[:] if with_savepoints else self._layers[:1]
        for layer in self._taken:
            changed = dict(layer.cells())
            rewritten = None
            if not self._sent.keys().isdisjoint(changed):
                changed = {name: new for name, new in changed.items() if self._newest(name) != new}
                rewritten = next((name for name in changed if name in self._sent), None)
            if self._fixed_version is not None and rewritten is not None:
                raise UsageError(
                    f"{rewritten} was flushed already, and a worker of transaction "
                    f"{self._start_ts} cannot write it again; write each cell once, or less than "
                    "2 MiB in all"
                )
            if changed and (rewritten or self._checkpoint <= self._used_checkpoint):
                # Two values at one version: a late copy of the first would replace the second.
                # And a put at a version that was deleted is hidden by the marker of the delete.
                self._take_checkpoint()
            version = self._fixed_version or self._start_ts + self._checkpoint
            # Before it leaves: from here on it may be in the store, whatever is answered, so that
            # the transaction heals it or removes it (I8, I9).
            if rewritten is None:
                self._sent.update({name: {version: value} for name, value in changed.items()})
            else:
                for name, value in changed.items():
                    self._sent[name] = {**self._sent.get(name, {}), version: value}
            sent = [(name, version) for name in changed]
            self._unacknowledged.update(dict.fromkeys(sent))
            layer.sent += sent
        batch: dict[str, dict[bytes, list[Put]]] = {}
        for name, sent_version in self._unacknowledged:
            sent_value = self._sent[name][sent_version]
            assert sent_value is not None, "only cells of this buffer wait for an acknowledgement"
            table, row, family, qualifier = name
            put = _new(Put, (family, qualifier, sent_version, sent_value))
            rows = batch.get(table)
            if rows is None:
                rows = batch[table] = {}
            if row in rows:
                rows[row].append(put)
            else:
                rows[row] = [put]
        return {
            table: [_new(RowMutation, (row, rows[row], ())) for row in sorted(rows)]
            for table, rows in batch.items()
        }

    def refuse_beside(self) -> NoReturn:
        """Refuse a write while another thread is at one, and let nothing be committed.

        Raises:
            UsageError: one of the two would lose cells, and it would show in nothing.
        """
        reason = "two threads wrote in it at the same time, and it belongs to one"
        self.begin_half(object(), reason)
        raise UsageError(
            f"transaction {self._start_ts} cannot go on like this: {reason}; let one thread write "
            "what others have found, or give each a part of it: tm.resume(tx.token())"
        )

    def check_alone(self) -> None:
        """Refuse what comes while something is on its way, and let nothing be committed.

        A write beside it may be sent, or lost: who writes asks once it is buffered, and who sends
        says so first.

        Raises:
            UsageError: another thread uses the transaction, or what a signal calls.
        """
        if self.is_closed or self.sending.locked():
            reason = (
                "it was used while a flush or its commit was under way, by another thread or what "
                "a signal calls, and belongs to one at a time"
            )
            self.spoil(reason)
            raise UsageError(
                f"transaction {self._start_ts} cannot go on like this: {reason}; what was written "
                "last may be lost"
            )

    def waiting_tables(self) -> set[str]:
        """Return the tables of what is buffered."""
        return {table for layer in self._layers for table in layer.tables}

    @property
    def is_unsent(self) -> bool:
        """Whether nothing was ever sent, not even perhaps."""
        return not self._sent

    @_whole
    def take_cells(self) -> dict[str, list[CellRecord]]:
        """Note the buffered cells as sent and return them, if nothing was ever sent before.

        They are not readable here any more.
        """
        assert not self._sent, "what was sent is to be acknowledged, or sent again"
        (layer,) = self._layers
        if self._checkpoint <= self._used_checkpoint:
            self._take_checkpoint()
        version = self._start_ts + self._checkpoint
        found: dict[str, list[CellRecord]] = {}
        sent = self._sent
        for table, rows in layer.tables.items():
            records = found[table] = []
            for row, columns in rows.by_key.items():
                for (family, qualifier), value in columns.items():
                    sent[_new(CellName, (table, row, family, qualifier))] = {version: value}
                    records.append((row, family, qualifier, version, value))
        layer.clear()
        return found

    def can_rewrite(self) -> bool:
        """Whether a flush now would leave a checkpoint for the flush at commit."""
        if self._checkpoint < MAX_CHECKPOINTS - len(self._layers):
            return True
        if self._checkpoint <= self._used_checkpoint:
            return False
        return not any(name in self._sent for layer in self._layers for name, _ in layer.cells())

    def acknowledge(self) -> None:
        """Note that everything taken is in the store, and now read from there."""
        # In this order: an interrupt in between leaves cells to be read from here that are in the
        # store as well, and the next `take` finds them sent and unchanged (I11).
        self._unacknowledged = {}
        for layer in self._taken:
            layer.clear()
        self._taken = []

    def _newest(self, name: CellName) -> bytes | None:
        versions = self._sent.get(name)
        return None if versions is None else versions[max(versions)]

    # -- parts of other processes --------------------------------------------------------------

    @_whole
    def reserve_version(self) -> int:
        """Return a version for workers, at which this buffer has sent and will send nothing.

        Tokens share it until this buffer sends something again: what a worker writes must lie above
        what it reads.
        """
        if self._reserved_checkpoint != self._checkpoint:
            self._take_checkpoint()
            self._reserved_checkpoint = self._used_checkpoint = self._checkpoint
        return self._start_ts + self._checkpoint

    @_whole
    def merge(
        self,
        names: Sequence[CellName],
        version: int,
        *,
        conflict_free: Collection[CellName] = (),
        is_again: bool = False,
        worker_id: str = "",
    ) -> None:
        """Count the cells of a part as sent by this transaction.

        A savepoint that is open now undoes that, if it is undone.

        Args:
            names: The cells.
            version: That of all of them.
            conflict_free: Those that are not checked for conflicts.
            is_again: Another attempt wrote the same cells, and was merged already.
            worker_id: Whose part it is.

        Raises:
            ContradictingPart: another part holds one of the cells too.
        """
        is_new = self._merged.isdisjoint(names)
        if not is_again and not is_new:
            twice = next(name for name in names if name in self._merged)
            raise ContradictingPart(f"{twice} was written by two parts; give each cell to one task")
        self._past_put_count += len(names)
        free = {name for name in conflict_free if not self._is_written(name)}
        if self.has_savepoint:
            merge = Merge(
                worker_id,
                [name for name in names if name not in self._merged],
                [(name, version) for name in names if not self.has_sent(name, version)],
                free - self._conflict_free,
            )
            self._layers[-1].merges.append(merge)
        self._merged.update(names)
        self._conflict_free |= free
        if self._conflict_free:
            self._conflict_free.difference_update(set(names).difference(conflict_free))
        # Its value is the worker's: nothing here sends it, but it is healed or removed with the
        # rest.
        alone: Mapping[int, bytes | None] = {version: None}
        if self._sent.keys().isdisjoint(names):
            self._sent.update(dict.fromkeys(names, alone))
            return
        for name in names:
            versions = self._sent.get(name)
            self._sent[name] = {**versions, version: None} if versions else alone

    def has_sent(self, name: CellName, version: int) -> bool:
        """Say whether a cell is one of this transaction's, of its own or of a merged part."""
        return version in self._sent.get(name, ())

    def written(self) -> list[tuple[CellName, bytes]]:
        """Return every cell that this buffer itself sent, with its newest value."""
        return [
            (name, value)
            for name, versions in self._sent.items()
            if (value := versions[next(iter(versions)) if len(versions) == 1 else max(versions)])
            is not None
        ]

    # -- after the decision --------------------------------------------------------------------

    def names(self) -> list[CellName]:
        """Return every cell that was sent, once."""
        return list(self._sent)

    def checked_names(self) -> list[CellName]:
        """Return every cell that was sent and is checked for conflicts, once."""
        free = self._conflict_free
        return [name for name in self._sent if name not in free] if free else list(self._sent)

    def names_to_check(self, *, with_savepoints: bool) -> Iterator[CellName]:
        """Yield every cell that is checked for conflicts, sent or not, some of them twice.

        Args:
            with_savepoints: Also those of open savepoints that were not sent.
        """
        yield from self.checked_names()
        for layer in self._layers if with_savepoints else self._layers[:1]:
            yield from (name for name, _ in layer.cells() if name not in self._conflict_free)

    def conflict_free_names(self) -> list[CellName]:
        """Return every cell that was sent and is not checked for conflicts, sorted."""
        return sorted(self._conflict_free.intersection(self._sent))

    def tables(self) -> set[str]:
        """Return the tables that were written."""
        return {name.table for name in self._sent}

    def witness(self) -> tuple[str, Cell] | None:
        """Return one cell that was sent, with its table: its shadow cell proves a commit."""
        return next(iter(self.witnesses()), None)

    def witnesses(self) -> list[tuple[str, Cell]]:
        """Return one such cell of each table that was written, that of `witness` first."""
        found: dict[str, Cell] = {}
        for name, versions in self._sent.items():
            if name.table not in found:
                version = max(versions)
                value = versions[version] or b""
                found[name.table] = Cell(name.row, name.family, name.qualifier, version, value)
        return list(found.items())

    def shadow_cells(self, commit_ts: Timestamp) -> dict[str, list[RowMutation]]:
        """Return the shadow cells of every version sent, one mutation a row."""
        with paused_collector():
            return self._shadow_cells(commit_ts)

    def _shadow_cells(self, commit_ts: Timestamp) -> dict[str, list[RowMutation]]:
        value = encode_long(commit_ts)
        puts: dict[str, dict[bytes, list[Put]]] = {}
        for (table, row, family, qualifier), versions in self._sent.items():
            shadow = shadow_qualifier(qualifier)
            rows = puts.get(table)
            if rows is None:
                rows = puts[table] = {}
            cells = rows.get(row)
            if cells is None:
                cells = rows[row] = []
            for version in versions:
                cells.append(_new(Put, (family, shadow, version, value)))
        return {
            table: [_new(RowMutation, (row, cells, ())) for row, cells in rows.items()]
            for table, rows in puts.items()
        }

    def removals(self) -> dict[str, list[RowMutation]]:
        """Return the exact deletes that take back every cell sent."""
        return _deletes(
            [(name, version) for name, versions in self._sent.items() for version in versions]
        )


def _deletes(sent: Iterable[tuple[CellName, int]]) -> dict[str, list[RowMutation]]:
    deletes: dict[str, dict[bytes, list[DeleteVersion]]] = {}
    for name, version in sent:
        row = deletes.setdefault(name.table, {}).setdefault(name.row, [])
        row.append(DeleteVersion(name.family, name.qualifier, version))
    return {
        table: [RowMutation(row, deletes=cells) for row, cells in rows.items()]
        for table, rows in deletes.items()
    }
