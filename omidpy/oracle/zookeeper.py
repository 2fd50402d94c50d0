"""Omid's znodes in ZooKeeper: who may answer as the oracle, and where it answers.

Below a namespace, `omid` by default, Omid keeps `tso-lease` (HOST:PORT of the lease holder, which
is taken by writing over the version that was seen) and `current-tso` (HOST:PORT#EPOCH, what clients
look for).  This module knows the address of an ensemble, these bytes, and the few operations that
both sides need; taking the lease is `tso/durable/zk_lease.py`'s business.

A read is preceded by ZooKeeper's `sync` on the same session: without it a server that lags behind
may answer with what was true some seconds ago.

What it lacks: watches.  A client looks when it connects, and it connects again when its oracle is
gone; an oracle that lost its lease answers nothing, so that no client stays with it.

Source: Omid; the znodes are in docs/reference/cells.md.  Its clients keep a session and a watch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import parse_qsl, urlsplit

from omidpy.base.cells import decode_long
from omidpy.base.ensemble import (
    CLIENT_OPTIONS,
    NotLetIn,
    client_options,
    end,
    is_over,
    new_client,
    refusal,
    require_sasl,
    start,
)
from omidpy.base.installation import install_hint
from omidpy.base.within import within
from omidpy.base.words.durations import duration_ms
from omidpy.errors import ConfigError, OmidError, OracleUnavailable, StorageUnavailable
from omidpy.model import Timestamp
from omidpy.oracle.address import Place, address_text, parse_address

if TYPE_CHECKING:
    from kazoo.client import KazooClient

SCHEME: Final = "zk://"
DEFAULT_NAMESPACE: Final = "omid"
DEFAULT_PORT: Final = 2181
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_PERIOD_S: Final = 10.0

_TOO_MANY_DIGITS: Final = 20
"""No epoch has so many."""

_OPTIONS: Final = ("period", "timeout", *CLIENT_OPTIONS)


class Znode(NamedTuple):
    """What a znode holds, and how often it was written since it was created."""

    data: bytes
    version: int


class ZooKeeper(Protocol):
    """What is asked of an ensemble.  Every method may raise `StorageUnavailable`."""

    def read(self, path: str) -> Znode | None:
        """Return a znode as it is now; None if there is none.

        Cost: 1 round trip, over TLS 2.
        """
        ...

    def read_later(self, path: str) -> Callable[[], Znode | None]:
        """Send what `read` sends, and return the function that waits for the answer."""
        ...

    def create(self, path: str) -> None:
        """Create an empty znode and its parents; those that exist are left alone."""
        ...

    def replace(self, path: str, data: bytes, *, version: int) -> int | None:
        """Write a znode if it still has the version `version`.

        Returns:
            The version that it has now, None if it had another one.  After an exception it may
            have been written, or still be.
        """
        ...

    def close(self) -> None:
        """End the session; a second call does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """Where an ensemble is, how to speak with it, and which namespace is meant."""

    hosts: str
    namespace: str = DEFAULT_NAMESPACE
    timeout_s: float = DEFAULT_TIMEOUT_S
    period_s: float = DEFAULT_PERIOD_S
    """How long the lease must stand still before it is taken over: `leasePeriodInMs` of Omid."""
    client_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What kazoo's client takes for TLS and SASL."""
    oracle_options: Mapping[str, str] = field(default_factory=dict)
    """What is said of TLS to the oracle that is found there; the names begin with `oracle-`."""

    def with_timeout(self, timeout_s: float) -> ZooKeeperAddress:
        """Return the address with another timeout."""
        return replace(self, timeout_s=timeout_s)

    @property
    def is_pipelined(self) -> bool:
        """Whether several requests may be under way at once.

        Over TLS kazoo overlooks an answer that came in one record with the one before, until the
        next ping some seconds later.
        """
        return not self.client_options.get("use_ssl", False)

    @property
    def lease_path(self) -> str:
        """The znode of the lease."""
        return f"/{self.namespace}/tso-lease"

    @property
    def current_path(self) -> str:
        """The znode that says where the oracle answers."""
        return f"/{self.namespace}/current-tso"

    @property
    def ceiling_path(self) -> str:
        """The znode of Omid's own timestamp storage in ZooKeeper, of the same namespace."""
        return f"/{self.namespace}/omid/timestamp"

    @property
    def text(self) -> str:
        """The address without its options, for messages."""
        return f"{SCHEME}{self.hosts}/{self.namespace}"


def parse_zookeeper(text: str) -> ZooKeeperAddress:
    """Read `zk://host1:2181,host2:2181/namespace?option=value&...`.

    Raises:
        ConfigError: naming what is wrong.
    """
    # urlsplit would take the commas of the hosts for a part of one name, which is what we want.
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that hold no address of IPv6
        parts = urlsplit("")
    if not text.startswith(SCHEME) or not parts.netloc:
        raise ConfigError(
            f"{text[:200]!r} is no address of ZooKeeper; expected {SCHEME}host1:{DEFAULT_PORT},"
            f"host2:{DEFAULT_PORT}/{DEFAULT_NAMESPACE}"
        )
    if "@" in parts.netloc or parts.fragment:
        raise ConfigError(
            f"{SCHEME}...: write neither user@ nor #: a user is named by the options sasl=, user= "
            "and password-file="
        )
    hosts = []
    for host in parts.netloc.split(","):
        named = host if ":" in host.rpartition("]")[2] else f"{host}:{DEFAULT_PORT}"
        hosts.append(address_text(parse_address(named)))
    namespace = parts.path.strip("/") or DEFAULT_NAMESPACE
    if any(part in ("", ".", "..") for part in namespace.split("/")):
        raise ConfigError(f"{text!r}: {parts.path!r} is no namespace; write for instance /omid")
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    oracle_options = {
        name: options.pop(name) for name in sorted(options) if name.startswith("oracle-")
    }
    if unknown := sorted(set(options) - set(_OPTIONS)):
        raise ConfigError(
            f"{SCHEME}{','.join(hosts)}: unknown option {unknown[0]!r}; known: "
            f"{', '.join(_OPTIONS)}, and those of TLS to the oracle, as oracle-tls"
        )
    return ZooKeeperAddress(
        hosts=",".join(hosts),
        namespace=namespace,
        timeout_s=_seconds("timeout", options.get("timeout", f"{DEFAULT_TIMEOUT_S:g}s")),
        period_s=_seconds("period", options.get("period", f"{DEFAULT_PERIOD_S:g}s")),
        client_options=client_options(options, where=f"{SCHEME}..."),
        oracle_options=oracle_options,
    )


def _seconds(name: str, text: str) -> float:
    milliseconds = duration_ms(text) or 0.0
    if milliseconds <= 0:
        raise ConfigError(f"{SCHEME}...: {name}={text!r} is no duration above 0; write 10s")
    return milliseconds / 1000


# -- the bytes of current-tso ----------------------------------------------------------------------


def encode_current(address: str, epoch: int) -> bytes:
    """Return what `current-tso` holds: HOST:PORT#EPOCH."""
    return f"{address}#{epoch}".encode()


def decode_current(data: bytes, *, where: str) -> Place:
    """Read what `current-tso` holds.

    Raises:
        ConfigError: if it is no HOST:PORT#EPOCH, naming the znode.
    """
    cause: ConfigError | None = None
    address, _, epoch = data.decode("latin-1").partition("#")
    if data.isascii() and epoch.isdigit() and len(epoch) < _TOO_MANY_DIGITS:
        try:
            return Place(*parse_address(address), Timestamp(int(epoch)))
        except ConfigError as error:
            cause = error
    raise ConfigError(
        f"{where} holds {data[:80]!r}, which is no HOST:PORT#EPOCH; is the namespace right?"
    ) from cause


def find_oracle(zookeeper: ZooKeeper, address: ZooKeeperAddress) -> Place:
    """Return where the oracle answers, and its epoch.

    Raises:
        OracleUnavailable: none has published itself yet.
        ConfigError: the znode holds something else.
    """
    where = f"{address.current_path} of {SCHEME}{address.hosts}"
    node = zookeeper.read(address.current_path)
    if node is None or not node.data:
        state = "does not exist" if node is None else "is empty"
        raise OracleUnavailable(
            f"no oracle can be found: {where} {state}; start `tso-server --store URL --lease "
            f"{address.text}`, or correct the namespace {address.namespace!r}"
        )
    return decode_current(node.data, where=where)


def read_omid_ceiling(zookeeper: ZooKeeper, address: ZooKeeperAddress) -> Timestamp | None:
    """Return the ceiling that Omid's timestamp storage in ZooKeeper left; None if it has none."""
    node = zookeeper.read(address.ceiling_path)
    if node is None or not node.data:
        return None
    return decode_long(node.data, what=f"{address.ceiling_path} of {address.text}") or None


def resolver(address: ZooKeeperAddress) -> Callable[[], Place]:
    """Return the function by which a client finds its oracle each time it connects.

    No session is kept between two looks: nothing is left behind in a client that is closed, or in
    the child of a fork.

    Raises:
        ConfigError: kazoo is not installed.
    """
    require_kazoo()

    def resolve() -> Place:
        try:
            with connected(address) as zookeeper:
                return find_oracle(zookeeper, address)
        except StorageUnavailable as error:
            raise OracleUnavailable(f"no oracle can be found: {error}") from error

    return resolve


# -- the client ------------------------------------------------------------------------------------


def require_kazoo() -> None:
    """Refuse an address in ZooKeeper where its client is not installed."""
    try:
        import kazoo.client  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            f"addresses {SCHEME}... need the ZooKeeper client: {install_hint('zk')}"
        ) from error


@contextlib.contextmanager
def connected(address: ZooKeeperAddress) -> Iterator[ZooKeeper]:
    """Open a session for the length of a block."""
    zookeeper = KazooZooKeeper(address)
    try:
        yield zookeeper
    finally:
        zookeeper.close()


def start_client(
    address: ZooKeeperAddress,
) -> tuple[KazooClient, tuple[type[Exception], ...]]:
    """Open a session of kazoo's; return it and what its calls raise when no server answers.

    Raises:
        ConfigError: kazoo is not installed, or TLS or SASL is not set up as asked.
        StorageUnavailable: nobody answers within the timeout.
    """
    require_kazoo()
    from kazoo.exceptions import (  # noqa: PLC0415 - an extra
        AuthFailedError,
        KazooException,
        SASLException,
    )

    where = f"ZooKeeper at {address.hosts}"
    require_sasl(address.client_options, where=where)
    try:
        client = new_client(address.hosts, address.client_options, timeout_s=address.timeout_s)
    except (SASLException, ImportError) as error:
        raise ConfigError(_not_let_in(where, error)) from error
    failures = (KazooException, client.handler.timeout_exception, OSError)
    try:
        start(client, address.client_options, timeout_s=address.timeout_s)
    except BaseException as error:
        end(client)
        if isinstance(error, AuthFailedError | SASLException | NotLetIn | ImportError):
            raise ConfigError(_not_let_in(where, error)) from error
        if isinstance(error, failures):
            raise StorageUnavailable(
                f"{where} does not answer within {address.timeout_s:g} s ({error}); check the "
                "addresses, and whether it wants tls=true"
            ) from error
        raise
    # What an answer that nobody asked for leads to is a RuntimeError of kazoo's.
    return client, (*failures, RuntimeError)


def begun_anew(
    address: ZooKeeperAddress, old: KazooClient
) -> tuple[KazooClient, tuple[type[Exception], ...]]:
    """Return what takes the place of a client that has given up; see `start_client`.

    Raises:
        StorageUnavailable: not yet; it was let in once, so that it may be again.
    """
    end(old)
    try:
        return start_client(address)
    except ConfigError as error:
        raise StorageUnavailable(str(error)) from error


def in_our_words(error: Exception, *, where: str) -> OmidError:
    """Return what says that a call of kazoo's has failed.

    Args:
        error: What was raised.
        where: The ensemble, for the message.
    """
    from kazoo.exceptions import (  # noqa: PLC0415 - an extra
        NoAuthError,
        SessionClosedRequireSaslError,
    )

    if isinstance(error, SessionClosedRequireSaslError):
        return ConfigError(_not_let_in(where, error))
    if isinstance(error, NoAuthError):
        return ConfigError(
            f"{where} does not let us do that: the access list of a znode names others; let them "
            "give us all rights below it (`setAcl -R` of zkCli), or say by sasl= in the address "
            "who we are"
        )
    return StorageUnavailable(f"{where} gave no answer: {str(error) or type(error).__name__}")


def _not_let_in(where: str, error: Exception) -> str:
    return (
        f"{where} does not let us in: {refusal(error)}; sasl= and what belongs to it in the "
        "address say who we are"
    )


class KazooZooKeeper:
    """A session with a real ensemble, kept alive by kazoo's threads.  Safe to share."""

    def __init__(self, address: ZooKeeperAddress) -> None:
        """Connect.

        Raises:
            ConfigError: kazoo is not installed, or TLS or SASL is not set up as asked.
            StorageUnavailable: nobody answers within the timeout.
        """
        self._address = address
        self._timeout_s = address.timeout_s
        self._is_pipelined = address.is_pipelined
        self._where = f"ZooKeeper at {address.hosts}"
        self._mutex = threading.Lock()
        self._is_closed = False
        self._client, self._failures = start_client(address)

    def read(self, path: str) -> Znode | None:
        """Return a znode as it is now; see `ZooKeeper.read`."""
        return self.read_later(path)()

    def read_later(self, path: str) -> Callable[[], Znode | None]:
        """Send a sync and a read, in one go where we may; see `ZooKeeper.read_later`."""
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - an extra

        client = self._current()
        with self._translated():
            synced = client.sync_async(path)
            # Answered in the order in which they were sent, so one round trip for both.
            early = client.get_async(path) if self._is_pipelined else None

        def finish() -> Znode | None:
            with self._translated():
                try:
                    synced.get(timeout=self._timeout_s)
                    found = early or client.get_async(path)
                    data, stat = found.get(timeout=self._timeout_s)
                except NoNodeError:
                    return None
                return Znode(data, stat.version)

        return finish

    def create(self, path: str) -> None:
        """Create an empty znode; see `ZooKeeper.create`."""
        from kazoo.exceptions import NodeExistsError  # noqa: PLC0415 - an extra

        client = self._current()
        with self._translated(), contextlib.suppress(NodeExistsError):
            client.create_async(path, b"", makepath=True).get(timeout=self._timeout_s)

    def replace(self, path: str, data: bytes, *, version: int) -> int | None:
        """Write a znode that has not changed; see `ZooKeeper.replace`."""
        from kazoo.exceptions import BadVersionError, NoNodeError  # noqa: PLC0415 - an extra

        client = self._current()
        with self._translated():
            try:
                stat = client.set_async(path, data, version).get(timeout=self._timeout_s)
            except (BadVersionError, NoNodeError):
                return None
            new_version: int = stat.version
            return new_version

    def close(self) -> None:
        """End the session; see `ZooKeeper.close`."""
        self._is_closed = True
        within(self._mutex, self._close)

    def _close(self) -> None:
        end(self._client)

    def _current(self) -> KazooClient:
        """Return the client, or another if it has given up: who stands by would do so for ever."""
        if is_over(self._client):
            within(self._mutex, self._begin_anew)
        return self._client

    def _begin_anew(self) -> None:
        if is_over(self._client) and not self._is_closed:
            self._client, self._failures = begun_anew(self._address, self._client)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            raise in_our_words(error, where=self._where) from error
