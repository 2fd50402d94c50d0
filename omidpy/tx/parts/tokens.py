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
from collections.abc import Iterable
from typing import Final, TypeVar

import msgspec

from omidpy.errors import UsageError
from omidpy.model import Cell, CellName, Timestamp, base

TOKEN_FORMAT: Final = "omidpy-token-3"  # noqa: S105 - no secret
PART_FORMAT: Final = "omidpy-part-3"
"""Workers that only know an earlier format do not announce all that the owner compares with.

Those of the first announce nothing, those of the second no digest of their part: they must not read
a token.
"""


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


class Part(msgspec.Struct, frozen=True):
    """What one worker wrote."""

    store_id: str
    start_ts: int
    worker_id: str
    version: int
    task: str | None
    digest: str
    """Of the names and values of all cells."""
    cells: list[CellName]
    conflict_free: list[CellName] = []
    """Those of `cells` that the oracle is not to check."""
    format: str = PART_FORMAT

    def tables(self) -> set[str]:
        """Return the tables that were written."""
        return {cell.table for cell in self.cells}


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
    return msgspec.json.encode(part)


def part_digest(part: bytes) -> str:
    """Return what a worker announces of its part, so that the owner knows it again."""
    return hashlib.sha256(part).hexdigest()


def decode_part(part: object, *, store_id: str, start_ts: Timestamp) -> Part:
    """Return a part of this transaction.

    Raises:
        UsageError: it is none, one of another transaction, or names a version of another one.
    """
    decoded = _decoded(part, Part, what="part", source="worker.finish()", version=PART_FORMAT)
    if decoded.start_ts != start_ts or decoded.store_id != store_id:
        raise UsageError(
            f"the part belongs to transaction {decoded.start_ts} of the store {decoded.store_id}, "
            f"not to transaction {start_ts} of the store {store_id}"
        )
    _check_versions("part", start_ts, decoded.version)
    return decoded


def _check_versions(what: str, start_ts: int, *versions: int) -> None:
    """Refuse versions of another transaction, whose cells would be taken for this one's."""
    for version in versions:
        if base(version) != start_ts:
            raise UsageError(
                f"the {what} of transaction {start_ts} names the version {version}, which belongs "
                f"to transaction {base(version)}; pass it on unchanged"
            )


D = TypeVar("D", Token, Part)


def _decoded(raw: object, type_: type[D], *, what: str, source: str, version: str) -> D:
    """Decode what `source` made, and refuse what it cannot have made."""
    if not isinstance(raw, bytes):
        raise TypeError(f"a {what} is bytes from {source}, not {type(raw).__name__}")
    try:
        decoded = msgspec.json.decode(raw, type=type_)
    except msgspec.DecodeError as error:
        raise UsageError(f"{raw[:40]!r} is no {what} of {source}: {error}") from error
    if decoded.format != version:
        raise UsageError(
            f"the {what} has the format {decoded.format!r}; this version reads {version}"
        )
    return decoded


def digest_of(written: Iterable[tuple[CellName, bytes]]) -> str:
    """Hash names and values, each with its length, so that no two write sets look alike."""
    digest = hashlib.sha256()
    for name, value in sorted(written):
        for field in (name.table.encode(), name.row, name.family, name.qualifier, value):
            digest.update(len(field).to_bytes(8, "big"))
            digest.update(field)
    return digest.hexdigest()
