"""What a client and the oracle may say to each other.

Frozen values, one per message; no bytes and no sockets here.  `frames.py` knows the encoding.

Field numbers up to 4 are Apache Omid's.  Those from 1001 up are ours: Java skips them as unknown
fields, and we use one only where the other side announced its feature in the handshake.

    message             field  type            meaning
    Request                 1  message         TimestampRequest
                            2  message         CommitRequest
                            3  message         HandshakeRequest
                            4  message         FenceRequest
                         1001  message         InvalidateRequest              (INVALIDATE)
                         1002  message         CommitRequest with its cells   (COMMIT_CELLS)
    Response                1  message         TimestampResponse
                            2  message         CommitResponse
                            3  message         HandshakeResponse
                            4  message         FenceResponse
                         1001  message         InvalidateResponse             (INVALIDATE)
    HandshakeRequest        1  message         Capabilities of the client
    HandshakeResponse       1  bool            the client is compatible
                            2  message         Capabilities of the server
                            3  bool            low latency: clients write the commit table
    Capabilities         1001  uint64          features, a bit each, see `Feature`
                         1002  bytes           store id, from the server       (any feature)
                         1003  int64           epoch, from the server          (any feature)
                         1004  int64           max transaction age in ms, from the server (same)
                         1005  int64           who the client is, see `PeerCapabilities`
                         1006  uint64          roles of the client, from the server  (same)
                         1007  int64           cells and tables of one commit at most, from the
                                               server                                (same)
    TimestampRequest     1001  int64           hold in ms                     (BEGIN_EXTRAS)
                         1002  int64           name of the hold, the same for each repetition
                         1003  int64           which repetition it is; absent in the first
    TimestampResponse       1  int64           start_ts
                         1001  int64           low watermark                  (BEGIN_EXTRAS)
                         1002  int64           newest fence, if it is above   (BEGIN_EXTRAS)
    CommitRequest           1  int64           start_ts
                            2  bool            retry; absent means false
                            3  repeated int64  cell ids
                            4  repeated int64  table ids
      with its cells        1  int64           start_ts
                            2  bytes           writer key, cell ids, table ids and cells, in
                                               MessagePack, see `frames.py`
    CommitResponse          1  bool            aborted
                            2  int64           start_ts
                            3  int64           commit_ts, absent when aborted
                         1001  repeated int64  conflicting cell ids, packed   (ABORT_DETAILS)
                         1002  enum            `omidpy.oracle.base.AbortReason` (ABORT_DETAILS)
                         1003  int64           ms until the client may write again  (same)
    FenceRequest            1  int64           table id
    FenceResponse           1  int64           table id
                            2  int64           fence timestamp
    InvalidateRequest       1  int64           start_ts
    InvalidateResponse      1  int64           start_ts
                            2  int32           verdict: 1 invalidated, 2 unknown, 3 committed
                            3  int64           commit_ts, only with verdict 3

Source: Omid 1.1.3's TSOProto (proto2) and its main branch (proto3 with `optional`).
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Final, TypeAlias

import msgspec

from omidpy.model import CellId, TableCells, TableId, Timestamp

DEFAULT_PORT: Final = 24758
"""Where Omid's oracle and ours listen unless told otherwise."""

MAX_CONFLICTS: Final = 64
"""Cell ids that one refusal may name: far below the 8 KiB that a Java client reads."""


class Feature(IntFlag):
    """Extensions of the protocol that one side announces to the other."""

    NONE = 0
    ABORT_DETAILS = 1
    """A refusal names conflicting cells and its reason."""
    BEGIN_EXTRAS = 2
    """A start timestamp comes with the low watermark, and may be asked to be held."""
    INVALIDATE = 4
    """The oracle can be asked to forbid a commit."""
    NEWEST_FENCE = 8
    """A start timestamp comes with the newest fence of any table; without one there is none above
    the low watermark.  The server's word: who reads the extras without it skips the field."""

    COMMIT_CELLS = 16
    """A commit may bring its cells, which the oracle writes.  The server's word, given where it
    can; a client announces nothing."""

    HANDS_ON = 32
    """Another process goes on with what this one begins, under its number: holds last as agreed
    when it goes.  The client's word; the server announces nothing."""


ALL_FEATURES: Final = (
    Feature.ABORT_DETAILS | Feature.BEGIN_EXTRAS | Feature.INVALIDATE | Feature.NEWEST_FENCE
)


class Role(IntFlag):
    """What a client may ask of an oracle that tells clients apart by their certificates."""

    NONE = 0
    TRANSACTIONS = 1
    """To begin and to commit."""
    FENCES = 2
    """To set a fence on a table."""
    INVALIDATION = 4
    """To forbid a commit."""


ALL_ROLES: Final = Role.TRANSACTIONS | Role.FENCES | Role.INVALIDATION


class PeerCapabilities(msgspec.Struct, frozen=True):
    """What one side can do.  Java's are empty.

    Bits of `features` and of `roles` that this version does not know are kept: they mean nothing to
    it.

    A client of ours says who it is, in `client`, with a positive number that it drew at random and
    keeps to itself and over its connections: only it may commit what it began.  All the rest is
    filled in by servers.
    """

    features: int = 0
    store_id: bytes | None = None
    epoch: Timestamp | None = None
    max_transaction_age_ms: int | None = None
    client: int | None = None
    roles: int | None = None
    """What the client may ask, see `Role`; None: everything."""
    max_commit_cells: int | None = None
    """How many cells and tables one commit may name together; None: not known."""


class HandshakeRequest(msgspec.Struct, frozen=True):
    """The first message of a connection.  Without capabilities the server refuses."""

    capabilities: PeerCapabilities | None = PeerCapabilities()


class TimestampRequest(msgspec.Struct, frozen=True):
    """Ask for a start timestamp."""

    hold_ms: int | None = None
    hold_name: int | None = None
    """The same each time that it is asked for again: one of those timestamps is used, and held."""
    repetition: int = 0
    """How often it was asked for before.  Of an oracle's answers the last one asked for is used."""


class CommitRequest(msgspec.Struct, frozen=True):
    """Ask for a commit; `is_retry` if an earlier request of the transaction got no answer."""

    start_ts: Timestamp
    cell_ids: tuple[CellId, ...] = ()
    table_ids: tuple[TableId, ...] = ()
    is_retry: bool = False
    cells: TableCells | None = None
    """The cells themselves, where the oracle is to write them; None: they are in the store."""
    writer_key: bytes = b""
    """What shows that the client may write the store, where it brings cells over the wire."""
    size_bytes: int = 0
    """How long the cells were on the wire."""


class FenceRequest(msgspec.Struct, frozen=True):
    """Ask for a fence on a table."""

    table_id: TableId


class InvalidateRequest(msgspec.Struct, frozen=True):
    """Ask that a transaction never commit."""

    start_ts: Timestamp


class HandshakeResponse(msgspec.Struct, frozen=True):
    """Whether the client may go on.  A refusal carries no capabilities."""

    is_compatible: bool
    capabilities: PeerCapabilities | None = PeerCapabilities()
    is_low_latency: bool = False


class TimestampResponse(msgspec.Struct, frozen=True):
    """A start timestamp.

    `newest_fence` is that of any table, left out where the low watermark has passed it.
    """

    start_ts: Timestamp
    low_watermark: Timestamp | None = None
    newest_fence: Timestamp | None = None


class CommitResponse(msgspec.Struct, frozen=True):
    """The verdict on a transaction: committed at `commit_ts`, or aborted if that is None.

    `reason` is the number of an `AbortReason`; one that this version does not know is kept.
    `wait_ms` comes with `AbortReason.RATE`: how long until as much is granted again.
    """

    start_ts: Timestamp
    commit_ts: Timestamp | None
    conflicts: tuple[CellId, ...] = ()
    reason: int = 0
    wait_ms: int = 0


class FenceResponse(msgspec.Struct, frozen=True):
    """The fence of a table is set at `fence_ts`."""

    table_id: TableId
    fence_ts: Timestamp


class InvalidateVerdict(IntEnum):
    """What became of a request to forbid a commit."""

    INVALIDATED = 1
    UNKNOWN = 2
    COMMITTED = 3


class InvalidateResponse(msgspec.Struct, frozen=True):
    """What became of a transaction; `commit_ts` is set exactly if it had committed."""

    start_ts: Timestamp
    verdict: InvalidateVerdict
    commit_ts: Timestamp | None = None


Request: TypeAlias = (
    TimestampRequest | CommitRequest | HandshakeRequest | FenceRequest | InvalidateRequest
)

Response: TypeAlias = (
    TimestampResponse | CommitResponse | HandshakeResponse | FenceResponse | InvalidateResponse
)
