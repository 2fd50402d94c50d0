"""The links to one oracle, one after the other: where it is, connecting, and whether it fits.

A link (`oracle/link.py`) ends and stays ended; here the next is opened, for all the threads that
want one, by one of them.  What the oracle told about itself in the last handshake is kept.

It lacks any idea of what is asked, and of trying again: `oracle/tcp.py` knows what may be repeated.

Invariants:

* A link was found to lead to our oracle before it is handed out.
* The next is opened once the descriptor of the one before is closed, so that what was sent by that
  one arrives before a repetition; or once the time for it has passed.
* Start timestamps grow from link to link: each is told the last one of the link before (I1).
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import Final

from omidpy.base.timing.clock import Clock
from omidpy.base.within import within
from omidpy.errors import ConfigError, OracleUnavailable, RemoteProtocolError, StorageError
from omidpy.model import Timestamp
from omidpy.oracle.address import Place, address_text
from omidpy.oracle.link import Link, LinkDown, open_link
from omidpy.oracle.network import Network
from omidpy.oracle.tls import ClientTls, Refused
from omidpy.wire.messages import Feature

_PLAIN: Final = "is it the address of a tso-server?  One with TLS needs ?tls=true behind it"
_SECURE: Final = "is it the address of a tso-server with --tls-cert?"

_OR_ENDED: Final = (
    "; or the oracle that was published there has ended, another program listens there by now, and "
    "the next oracle has published no other place yet"
)


class Links:
    """The links of one client to its oracle.  Safe to share among threads."""

    def __init__(
        self,
        resolve: Callable[[], Place | tuple[str, int]],
        *,
        where: str,
        is_published: bool,
        tells_store: bool,
        recorded_epoch: Callable[[], Timestamp] | None,
        store_id: str | None,
        connect_timeout_s: float,
        handshake_timeout_s: float,
        client: int | None,
        hands_on: bool,
        tls: ClientTls | None,
        clock: Clock,
        network: Network,
    ) -> None:
        """Remember where the oracle is; nothing is opened yet.  `TcpOracle` explains the rest.

        Args:
            resolve: Asked at each connect where the oracle is now.
            where: What to call that place before the first connect.
            is_published: Whether it may be another place the next time.
            tells_store: Whether what is published there tells which store it serves.
            recorded_epoch: Asked behind the handshake of an oracle that tells no epoch.
            store_id: Id of the store that the oracle must serve; None takes the first.
            connect_timeout_s: For the TCP connection alone.
            handshake_timeout_s: For the oracle's first answer.
            client: Who we are to the oracle; None draws a number.
            hands_on: Whether another process goes on as this client.
            tls: Whom to trust and what to show; None speaks no TLS.
            clock: What time limits are measured by.
            network: How the oracle is reached.
        """
        self._resolve = resolve
        self._is_published = is_published
        self._tells_store = tells_store
        self._recorded_epoch = recorded_epoch
        self._expected_store_id = store_id
        self._connect_timeout_s = connect_timeout_s
        self._handshake_timeout_s = handshake_timeout_s
        self._hands_on = hands_on
        self._tls = tls
        self._clock = clock
        self._network = network
        self._last_start_ts = Timestamp(0)
        self.current: Link | None = None
        """The newest link, which may have ended."""
        self.is_closed = False
        """Whether no further link is wanted."""
        self.where = where
        """The oracle's address, for messages."""
        self.client = client or _drawn_client()
        """Who we are to the oracle."""
        self.is_known = False
        """Whether an oracle has told what follows."""
        self.store_id: str | None = None
        self.epoch = Timestamp(0)
        self.max_transaction_age_s: float | None = None
        self.max_commit_cells: int | None = None
        self.can_invalidate = False
        self.writes_cells = False
        self._make_lock()

    def _make_lock(self) -> None:
        self._lock = threading.Lock()
        """Held by the thread that connects."""
        self._attempts = 0
        self._failed_attempt: tuple[int, str] = (0, "")

    def close(self) -> None:
        """End the link in use, and open no other."""
        self.is_closed = True
        # A thread that connects right now publishes its link first and looks after whether we are
        # closed, so one of the two of us kills it.
        if self.current is not None:
            self.current.kill("this client was closed")

    def start_over_after_fork(self) -> None:
        """Leave the connection to the parent; the lock may be held by a thread that is not here.

        The descriptor is closed without a shutdown, which would end the parent's conversation.
        """
        link, self.current = self.current, None
        self.client = _drawn_client()
        self._make_lock()
        if link is not None:
            self._last_start_ts = max(self._last_start_ts, link.last_start_ts)
            link.forget()

    def open(self) -> Link:
        """Return the link in use, or one attempt's new one.

        Raises:
            OracleUnavailable: if no oracle answers there, or another one than was published there;
                the message says how to start an oracle.
            ConfigError: if the oracle is of another kind, or serves another store.
            RemoteProtocolError: if it breaks the protocol, or is no oracle.

        The last two are `retryable` where the oracle is looked for at a published place and no
        oracle was found: it has ended, or moved, and another program listens there by now.
        """
        link = self.current
        if link is not None and link.is_open and link.is_fit:
            return link
        return within(self._lock, self._open_alone, self._attempts)

    def _open_alone(self, seen_attempts: int) -> Link:
        if self.current is not None and self.current.is_open and self.current.is_fit:
            return self.current
        failed_attempt, reason = self._failed_attempt
        if failed_attempt > seen_attempts:
            # Another thread tried and failed since we came, so we need not wait for the same again:
            # a hundred threads would do it one after the other.
            raise OracleUnavailable(reason)
        self._attempts += 1
        try:
            link = self._connect()
        except OracleUnavailable as error:
            self._failed_attempt = (self._attempts, str(error))
            raise
        if self.is_closed:
            link.kill("this client was closed")
        return link

    def _connect(self) -> Link:
        """Open a link, known here from the moment at which it is open."""
        if self.is_closed:
            raise OracleUnavailable(
                f"this client of the oracle at {self.where} is closed", retryable=False
            )
        if self.current is not None:
            self.current.kill("nobody found out whether the oracle fits")  # unless it has ended
            self._last_start_ts = max(self._last_start_ts, self.current.last_start_ts)
            self.current.wait_gone(self._connect_timeout_s)
        place = Place(*self._resolve())
        address = (place.host, place.port)
        self.where = address_text(address)
        try:
            self.current = link = open_link(
                address,
                connect_timeout_s=self._connect_timeout_s,
                handshake_timeout_s=self._handshake_timeout_s,
                after_ts=self._last_start_ts,
                client=self.client,
                hands_on=self._hands_on,
                tls=self._tls,
                clock=self._clock,
                network=self._network,
            )
        except Refused as error:
            raise self._unfit(str(error)) from error
        except OSError as error:
            raise self._nobody_there(str(error)) from error
        except LinkDown as down:
            if isinstance(down.cause, ConfigError):
                raise self._unfit(str(down.cause)) from down.cause
            if down.cause is not None:
                raise RemoteProtocolError(
                    f"{self.where} does not speak the oracle's protocol ({down.cause}); "
                    f"{_PLAIN if self._tls is None else _SECURE}{self._or_ended}",
                    retryable=self._is_published,
                ) from down.cause
            raise self._nobody_there(f"during the handshake, {down.reason}") from down
        try:
            link.published_epoch = place.epoch
            self._accept(link)
            if self._recorded_epoch is not None and not link.capabilities.epoch:
                # It has answered, so that what it wrote before it listened is there.
                link.recorded_epoch = self._read_epoch(self._recorded_epoch)
            self.epoch = link.epoch
            link.is_fit = True
            return link
        except BaseException:
            link.kill("the oracle does not fit, or nobody found out")
            raise

    def _read_epoch(self, recorded_epoch: Callable[[], Timestamp]) -> Timestamp:
        try:
            return recorded_epoch()
        except StorageError as error:
            # Nothing was asked yet: a commit that waits for this link is certainly none (I9).
            raise OracleUnavailable(
                f"the epoch of the oracle at {self.where} could not be read: {error}"
            ) from error

    def _accept(self, link: Link) -> None:
        """Check that this is our oracle, and keep what it told."""
        if link.is_refused:
            raise ConfigError(
                f"the oracle at {self.where} declares this client incompatible; "
                "use versions of client and oracle that belong together"
            )
        if link.is_low_latency:
            raise ConfigError(
                f"the oracle at {self.where} runs with lowLatency: true, where clients write the "
                "commit table themselves; set lowLatency: false in its configuration"
            )
        told = link.capabilities
        store_id = None if told.store_id is None else told.store_id.decode("utf-8", "replace")
        expected = self._expected_store_id
        if store_id is not None and expected is not None and store_id != expected:
            if link.published_epoch not in (0, told.epoch):
                # Ours has ended, and what is published of it stands until its successor begins:
                # its place is another one's by now, as the port of a machine with many stores.
                raise OracleUnavailable(
                    f"the oracle that was published at {self.where} has ended: that of another "
                    f"store, {store_id}, answers there by now"
                )
            raise ConfigError(
                f"the oracle at {self.where} serves the store {store_id}, and this client uses "
                f"the store {expected}; connect to that store's oracle, or start one with "
                f"`tso-server --store URL --listen {self.where}`"
            )
        if store_id is None and expected is not None and self._tells_store:
            # Java's tells none, and would decide by what it knows of other tables (I1).
            raise OracleUnavailable(
                f"the oracle that was published at {self.where} has ended: one that tells of no "
                "store, such as Omid's in Java, answers there by now"
            )
        age_ms = told.max_transaction_age_ms
        self.store_id = store_id
        # Transactions that run now hold timestamps of this store's oracle and no other's.
        self._expected_store_id = store_id or expected
        self.max_transaction_age_s = None if age_ms is None else age_ms / 1000
        self.max_commit_cells = told.max_commit_cells
        self.can_invalidate = link.has_feature(Feature.INVALIDATE)
        self.writes_cells = link.writes_cells
        self.is_known = True

    @property
    def _or_ended(self) -> str:
        return _OR_ENDED if self._is_published else ""

    def _unfit(self, why: str) -> ConfigError:
        """Return the error of who cannot agree on TLS with what answers."""
        return ConfigError(
            f"the oracle at {self.where}: {why}{self._or_ended}", retryable=self._is_published
        )

    def _nobody_there(self, reason: str) -> OracleUnavailable:
        return OracleUnavailable(
            f"no oracle answers at {self.where}: {reason}; start one with "
            f"`tso-server --store URL --listen {self.where}`, or correct the address"
        )


def _drawn_client() -> int:
    """Return who we are: a positive number that cannot be guessed."""
    return secrets.randbits(62) + 1
