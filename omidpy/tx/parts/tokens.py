"""One transaction, written by several processes.

The owner hands out a token.  A worker resumes it elsewhere, reads the owner's snapshot and what was
flushed in the transaction, and writes tentative cells at a version that the owner leaves alone.
What it wrote comes back as a part, which the owner merges, so that the one commit covers it.

A worker can neither commit nor roll back.  It announces what it is about to write
(`registration.py`), and the owner answers for it, merged or not (`status.py`).

Tokens and parts are JSON.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.errors import UsageError
from omidpy.model import Cell, CellName, Timestamp, base

TOKEN_FORMAT: Final = "omidpy-token-3"  # noqa: S105 - no secret
PART_FORMAT: Final = "omidpy-part-4"
"""Workers that only know an earlier format of tokens do not announce all that the owner compares
with.

Those of the first announce nothing, those of the second no digest of their part: they must not read
a token.
"""

_new: Final = tuple.__new__
"""Makes a named tuple of its fields, without the call of a Python function; see `buffer.py`."""
_HEAD: Final = struct.Struct(">5Q")
"""The lengths of a cell's parts."""
_HASHED_CELLS: Final = 4096
_HASHED_BYTES: Final = 2**20
"""Cells, and bytes of their values, that are put together before they are hashed."""


class Witness(msgspec.Struct, frozen=True):
    """A cell that the owner has flushed: its shadow cell proves the commit."""

    table: str
    row: bytes
    family: bytes
    qualifier: bytes
    version: int

    def cell(self) -> tuple[str, Cell]:
        """Return it as the outcome finder takes it."""
        return self.table, Cell(self.row, self.family, self.qualifier, self.version, b"")


class Token(msgspec.Struct, frozen=True):
    """What a worker must know of a transaction."""

    store_id: str
    start_ts: int
    version: int
    """The version that workers write at."""
    epoch: int
    """No transaction that began below it could be decided a commit when this one began."""
    witness: Witness | None = None
    format: str = TOKEN_FORMAT
    fenced: int | None = None
    """The owner's `Begun.fenced_ts`."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one worker wrote."""

    store_id: str
    start_ts: int
    worker_id: str
    version: int
    task: str | None
    digest: str
    """Of the names and values of all cells."""
    cells: Sequence[CellName]
    conflict_free: Sequence[CellName] = ()
    """Those of `cells` that the oracle is not to check."""

    def tables(self) -> set[str]:
        """Return the tables that were written."""
        return {cell.table for cell in self.cells}


class _Rows(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a table, each of which has the same columns."""

    table: str
    columns: tuple[tuple[bytes, bytes], ...]
    rows: list[bytes]


class _PackedPart(msgspec.Struct, frozen=True):
    """A part as it travels: the names of its cells have much in common."""

    store_id: str
    start_ts: int
    worker_id: str
    version: int
    task: str | None
    digest: str
    cells: list[_Rows]
    conflict_free: list[_Rows] = []
    format: str = PART_FORMAT


def encode_token(
    *,
    store_id: str,
    start_ts: Timestamp,
    version: int,
    epoch: Timestamp,
    witness: tuple[str, Cell] | None,
    fenced: Timestamp | None = None,
) -> bytes:
    """Return the token of a transaction, for workers that write at `version`."""
    cell = None if witness is None else Witness(witness[0], *witness[1][:4])
    return msgspec.json.encode(Token(store_id, start_ts, version, epoch, cell, fenced=fenced))


def decode_token(token: object, *, store_id: str) -> Token:
    """Return a token of this store.

    Raises:
        UsageError: it is none, one of another store, or names versions of another transaction.
    """
    decoded = _decoded(token, Token, what="token", source="tx.token()", version=TOKEN_FORMAT)
    if decoded.store_id != store_id:
        raise UsageError(
            f"the token belongs to the store {decoded.store_id}, this manager is connected to "
            f"{store_id}; connect to the store where the transaction began"
        )
    witnessed = decoded.version if decoded.witness is None else decoded.witness.version
    _check_versions("token", decoded.start_ts, decoded.version, witnessed)
    return decoded


def encode_part(part: Part) -> bytes:
    """Return a part as its worker hands it to the owner."""
    return msgspec.json.encode(
        _PackedPart(
            part.store_id,
            part.start_ts,
            part.worker_id,
            part.version,
            part.task,
            part.digest,
            _packed(part.cells),
            _packed(part.conflict_free),
        )
    )


def _packed(cells: Iterable[CellName]) -> list[_Rows]:
    rows: dict[tuple[str, bytes], list[tuple[bytes, bytes]]] = {}
    for table, row, family, qualifier in cells:
        key = table, row
        if key in rows:
            rows[key].append((family, qualifier))
        else:
            rows[key] = [(family, qualifier)]
    packed: dict[tuple[str, tuple[tuple[bytes, bytes], ...]], list[bytes]] = {}
    for (table, row), columns in rows.items():
        packed.setdefault((table, tuple(columns)), []).append(row)
    return [_Rows(table, columns, keys) for (table, columns), keys in packed.items()]


def _unpacked(packed: Iterable[_Rows]) -> list[CellName]:
    return [
        _new(CellName, (one.table, row, family, qualifier))
        for one in packed
        for row in one.rows
        for family, qualifier in one.columns
    ]


def part_digest(part: bytes) -> str:
    """Return what a worker announces of its part, so that the owner knows it again."""
    return hashlib.sha256(part).hexdigest()


def decode_part(part: object, *, store_id: str, start_ts: Timestamp) -> Part:
    """Return a part of this transaction.

    Raises:
        UsageError: it is none, one of another transaction, or names a version of another one.
    """
    decoded = _decoded(
        part, _PackedPart, what="part", source="worker.finish()", version=PART_FORMAT
    )
    if decoded.start_ts != start_ts or decoded.store_id != store_id:
        raise UsageError(
            f"the part belongs to transaction {decoded.start_ts} of the store {decoded.store_id}, "
            f"not to transaction {start_ts} of the store {store_id}"
        )
    _check_versions("part", start_ts, decoded.version)
    return Part(
        decoded.store_id,
        decoded.start_ts,
        decoded.worker_id,
        decoded.version,
        decoded.task,
        decoded.digest,
        _unpacked(decoded.cells),
        _unpacked(decoded.conflict_free),
    )


def rows_of(part: bytes) -> list[bytes]:
    """Return the rows of a part, each once for each table, without the names of its cells.

    Raises:
        UsageError: it is none.
    """
    decoded = _decoded(
        part, _PackedPart, what="part", source="worker.finish()", version=PART_FORMAT
    )
    return [row for one in decoded.cells for row in one.rows]


def _check_versions(what: str, start_ts: int, *versions: int) -> None:
    """Refuse versions of another transaction, whose cells would be taken for this one's."""
    for version in versions:
        if base(version) != start_ts:
            raise UsageError(
                f"the {what} of transaction {start_ts} names the version {version}, which belongs "
                f"to transaction {base(version)}; pass it on unchanged"
            )


D = TypeVar("D", Token, _PackedPart)


def _decoded(raw: object, type_: type[D], *, what: str, source: str, version: str) -> D:
    """Decode what `source` made, and refuse what it cannot have made."""
    if not isinstance(raw, bytes):
        raise TypeError(f"a {what} is bytes from {source}, not {type(raw).__name__}")
    try:
        decoded = msgspec.json.decode(raw, type=prepared(type_))
    except UNREADABLE as error:
        raise UsageError(f"{raw[:40]!r} is no {what} of {source}: {error}") from error
    if decoded.format != version:
        raise UsageError(
            f"the {what} has the format {decoded.format!r}; this version reads {version}"
        )
    return decoded


def digest_of(written: Iterable[tuple[CellName, bytes]]) -> str:
    """Hash names and values, each with its length, so that no two write sets look alike."""
    digest = hashlib.sha256()
    pack, tables = _HEAD.pack, dict[str, bytes]()
    cells = iter(sorted(written))
    while some := list(islice(cells, _HASHED_CELLS)):
        parts: list[bytes] = []
        size_bytes = 0
        for (table, row, family, qualifier), value in some:
            encoded = tables.get(table)
            if encoded is None:
                encoded = tables[table] = table.encode()
            sizes = len(encoded), len(row), len(family), len(qualifier), len(value)
            parts += (pack(*sizes), encoded, row, family, qualifier, value)
            size_bytes += len(value)
            if size_bytes > _HASHED_BYTES:
                digest.update(b"".join(parts))
                parts, size_bytes = [], 0
        digest.update(b"".join(parts))
    return digest.hexdigest()
