"""The oracle on the other end of a TCP connection, ours or Omid's in Java, for blocking callers.

Adds to `oracle/links.py`, which connects, the questions and asking them again: which requests may
be repeated, and for how long.  It lacks any idea of transactions.

What is repeated, and why that is right: `begin` gives a fresh timestamp each time, `fence` a later
fence, `invalidate` the same verdict.  A commit is never sent twice by this module; only the caller
knows that it asks again, and says so with `is_retry`.

Errors tell whether a commit request may have been read: only an `OracleUnavailable` that `was_sent`
leaves that open.  After every other error of `commit` nothing was sent.

Source of the rules against mismatched answers: Omid's client, see `wire/connection.py`.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Callable, Collection
from typing import Final

from omidpy.base.reach import reached
from omidpy.base.timing import pauses
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.base.within import within
from omidpy.errors import (
    ConfigError,
    LocalProtocolError,
    OmidError,
    OracleUnavailable,
    RemoteProtocolError,
)
from omidpy.model import CellId, TableCells, TableId, Timestamp
from omidpy.oracle.address import Place, parse_address
from omidpy.oracle.base import (
    AbortReason,
    Begun,
    CommitGranted,
    CommitRefused,
    CommitVerdict,
    InvalidationVerdict,
    hold_ms,
)
from omidpy.oracle.link import Link, LinkDown
from omidpy.oracle.links import Links
from omidpy.oracle.network import SYSTEM_NETWORK, Network
from omidpy.oracle.tls import ClientTls
from omidpy.wire.connection import Answer, Question
from omidpy.wire.frames import PACKED_COUNT
from omidpy.wire.messages import (
    ALL_ROLES,
    CommitRequest,
    CommitResponse,
    Feature,
    FenceRequest,
    FenceResponse,
    InvalidateRequest,
    InvalidateResponse,
    InvalidateVerdict,
    Role,
    TimestampRequest,
    TimestampResponse,
)

TURN_COUNT: Final = 64
"""So many fences and invalidations are in flight at most; more than that seldom are."""

_FIRST_PAUSE_S: Final = 0.04
_LONGEST_PAUSE_S: Final = 0.5

_BEGIN: Final = TimestampRequest()
_HOLD_NAME_BITS: Final = 63


MAX_SENT_CELLS_BYTES: Final = 32 * 1024
"""How much a transaction may have buffered that is handed to the oracle.

With the names of its tables and its conflict ids it is far below what one request may take.
"""


class TcpOracle:
    """An `Oracle` behind a socket.  Connects when first asked; safe to share among threads."""

    def __init__(
        self,
        address: str | None = None,
        *,
        resolve: Callable[[], Place | tuple[str, int]] | None = None,
        tells_store: bool = False,
        recorded_epoch: Callable[[], Timestamp] | None = None,
        store_id: str | None = None,
        request_timeout_s: float = 5.0,
        connect_timeout_s: float = 2.0,
        reconnect_budget_s: float = 5.0,
        packed: bool = False,
        client: int | None = None,
        hands_on: bool = False,
        tls: ClientTls | None = None,
        writer_key: bytes | None = None,
        clock: Clock | None = None,
        network: Network = SYSTEM_NETWORK,
    ) -> None:
        """Remember where the oracle is; nothing is opened yet.

        Args:
            address: `host:port`, `host`, or `[ipv6]:port`; or else give `resolve`.
            resolve: Asked at each connect where the oracle is now.  It raises `OracleUnavailable`
                if there is none at the moment.  An epoch that it knows counts where the oracle
                itself tells none, as Java's does not.
            tells_store: Whether what `resolve` finds are oracles of omidpy's alone, which tell what
                store they serve: who tells none is another one, and waited past.
            recorded_epoch: Reads from the store what Java's oracle wrote there when it began, which
                tells no epoch itself: what began at or below that it never commits.
            store_id: Id of the store that the oracle must serve; None takes whichever the first
                answer names.  Java's oracle names none and is believed.
            request_timeout_s: For one answer.  When it passes, the connection is given up.
            connect_timeout_s: For the TCP connection alone.
            reconnect_budget_s: How long to go on connecting and repeating after the first failure,
                for requests that are harmless to repeat; 0 gives up at once.
            packed: Send commit requests in the shorter form of Omid's main branch.
            client: Who we are to the oracle, a number above 0: only the same client may commit what
                it began.  None draws one.
            hands_on: Another process goes on as this client when we are gone: what was begun with
                `hold_s` is held as long as if we had stayed.
            tls: Whom to trust and what to show; None speaks no TLS.
            writer_key: What the store has for those who write it (`facts/writers.py`); None: the
                oracle is given no cells.
            clock: What time limits are measured by.
            network: How the oracle is reached.

        Raises:
            ConfigError: if the address cannot be read, or is given twice or not at all.
        """
        if (address is None) == (resolve is None):
            raise ConfigError("give TcpOracle either an address or resolve=, and not both")
        self._request_timeout_s = request_timeout_s
        self._reconnect_budget_s = reconnect_budget_s
        self._packed = packed
        self.writer_key = writer_key
        self._clock: Clock = SystemClock() if clock is None else clock
        self._network = network
        self._links = Links(
            _fixed(address) if resolve is None else resolve,
            where=address or "an address not found yet",
            is_published=resolve is not None,
            tells_store=tells_store,
            recorded_epoch=recorded_epoch,
            store_id=store_id,
            connect_timeout_s=connect_timeout_s,
            handshake_timeout_s=request_timeout_s,
            client=client,
            hands_on=hands_on,
            tls=tls,
            clock=self._clock,
            network=network,
        )
        self._make_locks()
        _instances.add(self)

    def __repr__(self) -> str:
        return f"<TcpOracle at {self._links.where}>"

    def _make_locks(self) -> None:
        self._still_open = threading.Lock()
        """Held until `close`."""
        self._still_open.acquire()
        self._turns = tuple(threading.Lock() for _ in range(TURN_COUNT))

    # -- what the oracle told ----------------------------------------------------------------------

    @property
    def store_id(self) -> str | None:
        """Id of the store the oracle serves; None before the first answer and from Java's."""
        return self._links.store_id

    @property
    def can_invalidate(self) -> bool:
        """Whether the oracle knows `invalidate`; connects to find out, if nothing has yet."""
        if not self._links.is_known:
            self.ping()
        return self._links.can_invalidate

    @property
    def epoch(self) -> Timestamp:
        """The oracle's epoch as of the last connect; 0 before, and where it is not told."""
        return self._links.epoch

    @property
    def max_transaction_age_s(self) -> float | None:
        """Age at which the oracle stops committing a transaction; None if it does not tell."""
        return self._links.max_transaction_age_s

    @property
    def max_commit_cells(self) -> int | None:
        """How many cells and tables one commit may name; None if the oracle does not tell."""
        return self._links.max_commit_cells

    @property
    def client(self) -> int:
        """Who we are to the oracle: only the same client may commit what it began."""
        return self._links.client

    # -- the questions -----------------------------------------------------------------------------

    def ping(self) -> None:
        """Connect now, with one attempt; the handshake is the answer, and an open connection one.

        Raises:
            OracleUnavailable: if no oracle answers there; the message says how to start an oracle.
            ConfigError: if the oracle is of another kind, or serves another store.
        """
        self._links.open()

    def begin(self, *, hold_s: float | None = None) -> Begun:
        """Return a fresh start timestamp; see `Oracle.begin`."""
        asked_ms = None if hold_s is None else hold_ms(hold_s)
        name = None if asked_ms is None else pauses.dice.getrandbits(_HOLD_NAME_BITS)
        repetitions = itertools.count()

        def question(link: Link) -> TimestampRequest:
            # Java's oracle does not age its low watermark: there is nothing to hold.
            if asked_ms is None or not link.has_feature(Feature.BEGIN_EXTRAS):
                return _BEGIN
            # The hold of a begin whose answer is lost would last, and nobody could use it.
            return TimestampRequest(asked_ms, name, next(repetitions))

        link, answer = self._ask(question)
        assert isinstance(answer, TimestampResponse), "answers are matched by kind"
        epoch = link.epoch
        if answer.start_ts <= epoch:
            # An oracle answers there that is older than what was published; its timestamps are no
            # snapshots of what its successor commits.
            link.kill("the oracle issued a timestamp below the published epoch")
            raise OracleUnavailable(
                f"the oracle at {self._links.where} issued {answer.start_ts}, which is not above "
                f"the published epoch {epoch}: it is not the one that was published"
            )
        newest_fence = answer.newest_fence
        if newest_fence is None and link.tells_fences:
            newest_fence = Timestamp(0)
        return Begun(answer.start_ts, epoch, answer.low_watermark or Timestamp(0), newest_fence)

    def commit(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        *,
        is_retry: bool = False,
    ) -> CommitVerdict:
        """Decide a transaction; see `Oracle.commit`.

        Raises:
            OracleUnavailable: `was_sent` unless the request certainly was not; then the outcome is
                open.
            UsageError: if the write set is too large for one request; nothing was sent.
        """
        request = CommitRequest(start_ts, tuple(cell_ids), tuple(table_ids), is_retry)
        link, answer = self._ask(lambda _: request, is_repeatable=False)
        assert isinstance(answer, CommitResponse), "answers are matched by kind"
        is_refused = answer.commit_ts is None
        if is_refused and is_retry and not link.has_feature(Feature.INVALIDATE):
            self._wait_for_earlier_decisions(link)
        return _verdict(answer)

    @property
    def most_cells_bytes(self) -> int:
        """What fits into one request by far, where the oracle writes cells and we may."""
        return MAX_SENT_CELLS_BYTES if self.writer_key and self._links.writes_cells else 0

    def commit_cells(
        self,
        start_ts: Timestamp,
        cell_ids: Collection[CellId],
        table_ids: Collection[TableId],
        cells: TableCells,
    ) -> CommitVerdict:
        """Decide a transaction and write it; see `WritesCells.commit_cells`.

        Raises:
            OracleUnavailable: `was_sent` unless the request certainly was not; then the outcome is
                open.
            LocalProtocolError: an oracle that writes no cells has taken over; nothing was sent.
        """
        request = CommitRequest(
            start_ts,
            tuple(cell_ids),
            tuple(table_ids),
            cells=cells,
            writer_key=self.writer_key or b"",
        )

        def question(link: Link) -> CommitRequest:
            if not link.writes_cells:
                # An older version has taken over; it would hang up on what it does not know.
                raise LocalProtocolError(
                    f"the oracle at {self._links.where} writes no cells any more", retryable=True
                )
            return request

        _, answer = self._ask(question, is_repeatable=False)
        assert isinstance(answer, CommitResponse), "answers are matched by kind"
        return _verdict(answer)

    def _wait_for_earlier_decisions(self, link: Link) -> None:
        """Return once everything that Java's oracle decided before is in the commit table.

        It looks a retry up beside its batches, so that `abort` may be said of a commit that is not
        written yet.  A start timestamp leaves in the order of the batches, and by the same
        connection it comes from the same instance.
        """
        try:
            link.call(_BEGIN, timeout_s=self._request_timeout_s)
        except LinkDown as down:
            error = self._unavailable(down, is_repeatable=False)
            error.retryable, error.was_sent = False, True
            raise error from down.cause

    def fence(self, table_id: TableId) -> Timestamp:
        """Set a fence on a table; see `Oracle.fence`."""
        answer = self._ask_in_turn(FenceRequest(table_id), table_id, Role.FENCES)
        assert isinstance(answer, FenceResponse), "answers are matched by kind"
        return answer.fence_ts

    def invalidate(self, start_ts: Timestamp) -> CommitGranted | InvalidationVerdict:
        """Forbid a commit, or say that it has happened; see `Oracle.invalidate`."""
        answer = self._ask_in_turn(InvalidateRequest(start_ts), start_ts, Role.INVALIDATION)
        assert isinstance(answer, InvalidateResponse), "answers are matched by kind"
        if answer.commit_ts is not None:
            return CommitGranted(answer.commit_ts)
        if answer.verdict is InvalidateVerdict.INVALIDATED:
            return InvalidationVerdict.INVALIDATED
        return InvalidationVerdict.UNKNOWN

    def close(self) -> None:
        """Close the connection; requests in flight raise `OracleUnavailable`."""
        self._links.close()
        if self._still_open.locked():
            self._still_open.release()

    # -- asking, and asking again ------------------------------------------------------------------

    def _ask(
        self,
        question: Callable[[Link], Question],
        *,
        role: Role = Role.TRANSACTIONS,
        is_repeatable: bool = True,
    ) -> tuple[Link, Answer]:
        """Return the answer and the link that it came by, connecting and repeating as allowed."""
        give_up_s: float | None = None
        error: OmidError
        for failure_count in itertools.count(1):
            try:
                link = self._links.open()
                self._check_role(link, role)
                asked = question(link)
                answer = link.call(
                    asked,
                    timeout_s=self._request_timeout_s,
                    packed=self._packed or self._is_long(asked),
                )
                return link, answer
            except LinkDown as down:
                error = self._unavailable(down, is_repeatable=is_repeatable)
                if down.was_sent and not is_repeatable:
                    raise error from down.cause
                if down.was_sent and down.cause is not None:
                    raise RemoteProtocolError(f"{self._links.where}: {down.cause}") from down.cause
            except OracleUnavailable as unavailable:
                error = unavailable
                error.was_sent = False  # there was no link yet
            except (RemoteProtocolError, ConfigError) as misfit:
                if not misfit.retryable:
                    raise
                # No oracle is where one was published: the next look may find another place.
                error = misfit
                if isinstance(error, RemoteProtocolError):
                    error.was_sent = False
            now_s = self._clock.monotonic_s()
            if give_up_s is None:
                give_up_s = now_s + self._reconnect_budget_s
            # The first repetition comes at once: most often a restarted oracle is there already.
            pause_s = (
                0.0
                if failure_count == 1
                else pauses.pause_after(failure_count, _FIRST_PAUSE_S, _LONGEST_PAUSE_S)
            )
            if self._links.is_closed or now_s + pause_s >= give_up_s:
                raise error
            reached("oracle_client.asks_again", "I8")
            self._pause(pause_s)
        raise AssertionError("unreachable: the loop has no end")

    def _is_long(self, question: Question) -> bool:
        """Say whether a commit may need the shorter form to fit, and the oracle surely reads it."""
        return (
            self._links.max_commit_cells is not None
            and isinstance(question, CommitRequest)
            and len(question.cell_ids) > PACKED_COUNT
        )

    def _pause(self, seconds: float) -> None:
        """Wait, no longer than until `close`."""
        self._network.pause(seconds, until_free=self._still_open)

    def _ask_in_turn(
        self, question: FenceRequest | InvalidateRequest, number: int, role: Role
    ) -> Answer:
        """Let one request of a name out at a time; two equal answers cannot be told apart."""
        turn = self._turns[hash((type(question), number)) % TURN_COUNT]
        return within(turn, self._ask, lambda _: question, role=role)[1]

    def _check_role(self, link: Link, role: Role) -> None:
        """Refuse here what the oracle would hang up on, and say what is missing."""
        roles = link.roles
        if roles is ALL_ROLES or role & roles:  # the operators of flags are slow
            return
        held = [one.name.lower() for one in roles if one.name]
        raise ConfigError(
            f"the oracle at {self._links.where} gives this client's certificate the roles "
            f"{', '.join(held) or 'none'}, and this needs {(role.name or '').lower()}: add it in "
            "the file of --tls-roles, or use another certificate"
        )

    def _unavailable(self, down: LinkDown, *, is_repeatable: bool) -> OracleUnavailable:
        if self._links.is_closed:
            message = f"this client of the oracle at {self._links.where} is closed"
        else:
            message = f"no answer from the oracle at {self._links.where}: {down.reason}"
        is_retryable = (is_repeatable or not down.was_sent) and not self._links.is_closed
        error = OracleUnavailable(message, retryable=is_retryable)
        error.was_sent = down.was_sent
        return error

    def _start_over_after_fork(self) -> None:
        """Let go of what threads hold that are not here; the connection is the parent's."""
        self._make_locks()
        if self._links.is_closed:
            self._still_open.release()
        self._links.start_over_after_fork()


def _verdict(answer: CommitResponse) -> CommitVerdict:
    if answer.commit_ts is not None:
        return CommitGranted(answer.commit_ts)
    return CommitRefused(_abort_reason(answer.reason), answer.conflicts, answer.wait_ms / 1000)


def _abort_reason(number: int) -> AbortReason:
    try:
        return AbortReason(number)
    except ValueError:
        return AbortReason.UNSTATED


def _fixed(address: str | None) -> Callable[[], tuple[str, int]]:
    place = parse_address(address or "")
    return lambda: place


_instances: weakref.WeakSet[TcpOracle] = weakref.WeakSet()


def _start_over_after_fork() -> None:
    for oracle in list(_instances):
        oracle._start_over_after_fork()  # noqa: SLF001  the hook is this module's, and so is the class


os.register_at_fork(after_in_child=_start_over_after_fork)
