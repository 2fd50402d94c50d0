"""Where is the catalogue, and where the active master?  Asked of ZooKeeper, or of HBase's servers.

No session and no watch is kept: a place is asked for when it is needed, and again when it proved
wrong.  So nothing of it needs care after a fork or at the end of a client.

Source: the znodes of HBase 2.6 and its `Registry.proto`.
"""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from omidpy.base.ensemble import NotLetIn, end, new_client, refusal, require_sasl, start
from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError, OmidError, RemoteProtocolError, StorageUnavailable
from omidpy.storage.hbase.addresses.spelling import place_text
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.calling.cluster import OneCluster
from omidpy.storage.hbase.native.connections.diagnosis import what_answers
from omidpy.storage.hbase.native.connections.pool import REGISTRY, Connections, until
from omidpy.storage.hbase.native.faults import CallFailed, Disagreed, Fault, Garbled, NoTicket
from omidpy.storage.hbase.native.translate import translate
from omidpy.storage.hbase.native.values import ServerName
from omidpy.storage.hbase.native.wire.schema import server_name
from omidpy.wire.protobuf import fields

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from kazoo.interfaces import IAsyncResult

T = TypeVar("T")

MOST_TOLD: Final = 100
"""Servers that are asked because others have named them; HBase names 10."""

MOST_TOLD_BYTES: Final = 1024 * 1024
"""Of an answer about HBase's parts; the longest names some servers."""

_LENGTH: Final = struct.Struct(">I")
_MAGIC: Final = 0xFF
_PBUF: Final = b"PBUF"
_BYTES_1: Final = 0x0A
_ID_NODE: Final = "hbaseid"
_CLUSTER_ID: Final = "GetClusterId"


class NoMaster(CallFailed):
    """No server is the active master, or none has told."""

    is_certain = True


class Registry(Protocol):
    """Says where HBase's own parts are.

    Every method may raise `StorageUnavailable` or `ConfigError`, with one line that names what was
    asked and the remedy.
    """

    def meta_server(self) -> ServerName:
        """Return the server that has the catalogue."""
        ...

    def master(self) -> ServerName:
        """Return the active master."""
        ...

    def cluster_id(self) -> str:
        """Return the id of this HBase."""
        ...


# -- ZooKeeper -------------------------------------------------------------------------------------


class ZooKeeperRegistry:
    """Asks ZooKeeper, by a session for each question."""

    def __init__(self, address: NativeAddress) -> None:
        """Ask the servers of an address.

        Raises:
            ConfigError: kazoo is not installed.
        """
        try:
            import kazoo.client  # noqa: F401, PLC0415 - an extra
        except ImportError as error:
            raise ConfigError(
                f"store address {address.url!r} needs the ZooKeeper client: "
                f"{install_hint('hbase')}; or name masters, hbase+rpc://HOST:16000"
            ) from error
        require_sasl(address.zookeeper, where=f"store address {address.url!r}")
        self._address = address
        self._cluster = OneCluster(address.url)
        self._has_told = False
        """Whether ZooKeeper has ever told where HBase is, so that the address is right."""

    def meta_server(self) -> ServerName:
        """Return the server that has the catalogue."""
        return self._server("meta-region-server", "no server has the catalogue (hbase:meta)")

    def master(self) -> ServerName:
        """Return the active master."""
        return self._server("master", "no master is active")

    def cluster_id(self) -> str:
        """Return the id of this HBase."""
        return _id_in(self._message(_ID_NODE, "this HBase has no id"))

    def _server(self, name: str, missing: str) -> ServerName:
        for key, value in self._message(name, missing):
            if key == _BYTES_1:
                return server_name(value)
        raise StorageUnavailable(f"{self._where(name)} names no server")

    def _where(self, name: str) -> str:
        return f"the znode {self._address.znode}/{name} of {self._address.url}"

    def _message(self, name: str, missing: str) -> list[tuple[int, bytes]]:
        """Return the fields of the message in a znode."""
        path = f"{self._address.znode}/{name}"
        with self._session() as client:
            data = self._read(client, path)
            if data is None:
                raise self._absent(client, name, missing)
            told: bytes | None = data
            if name != _ID_NODE:
                told = self._read(client, f"{self._address.znode}/{_ID_NODE}")
        try:
            if told is not None:
                # The servers of an address may be those of two ensembles.
                self._cluster.check(_id_in(_znode_fields(told)), self._where(_ID_NODE))
            found = _znode_fields(data)
        except (RemoteProtocolError, Garbled, struct.error) as error:
            raise ConfigError(
                f"{self._where(name)} holds {data[:40]!r}, which is not HBase's: {error}; correct "
                "the znode in the address (zookeeper.znode.parent of HBase)"
            ) from error
        self._has_told = True
        return found

    def _absent(self, client: KazooClient, name: str, missing: str) -> Exception:
        """Say why a znode is not there: HBase is down, or it keeps its own elsewhere."""
        if self._answer(client.exists_async(self._address.znode)) is not None:
            return StorageUnavailable(
                f"{missing}: {self._where(name)} is not there; start HBase, or wait until it has "
                "started",
                retryable=True,
            )
        names = self._answer(client.get_children_async("/"))
        roots = ", ".join(sorted("/" + one for one in names)) or "nothing"
        return self._mistake(
            f"{self._address.url}: ZooKeeper has no znode {self._address.znode}; it has {roots}; "
            "correct the address (zookeeper.znode.parent of HBase)"
        )

    def _mistake(self, message: str) -> OmidError:
        """Return the error for what is wrong in the address, unless all was right before.

        Then somebody is about to change HBase or ZooKeeper, and it may be right again.
        """
        if self._has_told:
            return StorageUnavailable(message, retryable=True)
        return ConfigError(message)

    def _read(self, client: KazooClient, path: str) -> bytes | None:
        """Return what a znode holds now, not what a server that lags behind has; None if absent."""
        from kazoo.exceptions import NoNodeError  # noqa: PLC0415 - an extra

        try:
            self._answer(client.sync_async(path))
            found: bytes = self._answer(client.get_async(path))[0]
        except NoNodeError:
            return None
        return found

    def _answer(self, asked: IAsyncResult) -> Any:
        """Wait for an answer, which kazoo does for ever while no server is there."""
        return asked.get(timeout=self._patience_s)

    @property
    def _patience_s(self) -> float:
        return max(self._address.connect_timeout_s, 1.0)

    @contextlib.contextmanager
    def _session(self) -> Iterator[KazooClient]:
        from kazoo.exceptions import (  # noqa: PLC0415 - an extra
            AuthFailedError,
            KazooException,
            NoAuthError,
            SASLException,
            SessionClosedRequireSaslError,
        )

        address = self._address
        hosts = ",".join(map(place_text, address.places))
        try:
            client = new_client(hosts, address.zookeeper, timeout_s=self._patience_s)
        except (SASLException, ImportError) as error:
            raise self._mistake(_not_let_in(address, error)) from error
        failures = (KazooException, client.handler.timeout_exception, OSError)
        try:
            start(client, address.zookeeper, timeout_s=self._patience_s)
            yield client
        except NoAuthError as error:
            raise self._mistake(
                f"{address.url}: ZooKeeper does not let strangers read below {address.znode}; name "
                "masters instead, hbase+rpc://HOST:16000"
            ) from error
        except (
            AuthFailedError,
            NotLetIn,
            SASLException,
            SessionClosedRequireSaslError,
            ImportError,
        ) as error:
            raise self._mistake(_not_let_in(address, error)) from error
        except failures as error:
            raise StorageUnavailable(
                _nobody("ZooKeeper", address),
                retryable=True,
            ) from error
        finally:
            end(client)


def _id_in(message: Iterable[tuple[int, bytes]]) -> str:
    """Return the id of an HBase that a message has; empty if there is none."""
    found = next((value for key, value in message if key == _BYTES_1), b"")
    return found.decode(errors="replace")


def _znode_fields(data: bytes) -> list[tuple[int, bytes]]:
    """Return the fields of bytes in HBase's form of a znode: ff, a skipped part, PBUF, message."""
    if not data or data[0] != _MAGIC:
        raise Garbled("it does not begin with ff")
    (skipped,) = _LENGTH.unpack_from(data, 1)
    message = data[1 + _LENGTH.size + skipped :]
    if not message.startswith(_PBUF):
        raise Garbled("there is no PBUF in it")
    return [(key, value) for key, value in fields(message[4:]) if isinstance(value, bytes)]


# -- RPC -------------------------------------------------------------------------------------------


class RpcRegistry:
    """Asks masters or region servers, one after another until one answers."""

    def __init__(self, address: NativeAddress, connections: Connections) -> None:
        """Ask the servers of an address."""
        self._address = address
        self._connections = connections
        self._cluster = OneCluster(address.url)
        self._told: tuple[tuple[str, int], ...] = ()
        """Servers that were named by others; asked where those of the address do not answer."""

    def meta_server(self) -> ServerName:
        """Return the server that has the catalogue."""
        return self._ask("GetMetaRegionLocations", _meta_server, "no server has the catalogue")

    def master(self) -> ServerName:
        """Return the active master."""
        return self._ask("GetActiveMaster", _named_server, "no master is active")

    def cluster_id(self) -> str:
        """Return the id of this HBase."""
        return self._ask(_CLUSTER_ID, _text, "this HBase has no id")

    def _ask(self, method: str, read: Callable[[bytes], T | None], missing: str) -> T:
        """Return the answer of the first server that has one."""
        problem: Exception | None = None
        refusal: tuple[CallFailed, tuple[str, int]] | None = None
        is_answered = False
        for place in self._in_turn():
            try:
                connection = self._connections.get(*place, REGISTRY)
                limit_s = min(self._address.timeout_s, 2 * self._address.connect_timeout_s)
                answer = connection.call(method, b"", until_s=until(limit_s))
                self._connections.note_answer()
                found = read(answer.body)
                if found:
                    if method != _CLUSTER_ID:
                        answer = connection.call(_CLUSTER_ID, b"", until_s=until(limit_s))
                    self._cluster.check(_text(answer.body), place_text(place))
            except Fault as error:
                self._connections.note_answer()
                if error.is_about_authentication:
                    refusal = error, place
                is_answered, problem = True, error
                continue
            except (Disagreed, NoTicket) as error:
                problem, refusal = error, (error, place)
                continue
            except (CallFailed, RemoteProtocolError) as error:
                problem = error
                continue
            is_answered = True
            if found:
                self._learn(place)
                return found
        if refusal is not None:
            raise translate(
                refusal[0],
                address=self._address,
                what="look for the catalogue and the master",
                where=place_text(refusal[1]),
                table=None,
                was_answered=self._connections.has_answered,
            ) from refusal[0]
        if is_answered:
            raise StorageUnavailable(
                f"{missing}, say the servers of {self._address.url}"
                + (f" ({problem})" if problem else "")
                + "; start HBase, or wait until it has started",
                retryable=True,
            ) from problem
        raise StorageUnavailable(
            _nobody("HBase", self._address),
            retryable=True,
        ) from problem

    def _in_turn(self) -> list[tuple[str, int]]:
        named = list(self._address.places)
        random.shuffle(named)  # else all clients would burden the first one
        return [*named, *(one for one in self._told if one not in named)]

    def _learn(self, place: tuple[str, int]) -> None:
        """Ask once for the region servers that may be asked as well."""
        if self._told:
            return
        with contextlib.suppress(CallFailed, RemoteProtocolError):
            connection = self._connections.get(*place, REGISTRY)
            limit = until(self._address.connect_timeout_s)
            answer = connection.call("GetBootstrapNodes", b"", until_s=limit)
            servers = map(server_name, islice(_messages(answer.body), MOST_TOLD))
            self._told = tuple((one.host, one.port) for one in servers)


def _messages(body: bytes) -> Iterator[bytes]:
    for key, value in fields(body):
        if key == _BYTES_1 and isinstance(value, bytes):
            yield value


def _meta_server(body: bytes) -> ServerName | None:
    """Read the first `RegionLocation`, which is that of the catalogue itself and no copy."""
    for location in _messages(body):
        for key, value in fields(location):
            if key == 0x12 and isinstance(value, bytes):
                return server_name(value)
    return None


def _named_server(body: bytes) -> ServerName | None:
    return next(map(server_name, _messages(body)), None)


def _text(body: bytes) -> str:
    return next((value.decode(errors="replace") for value in _messages(body)), "")


def _not_let_in(address: NativeAddress, error: Exception) -> str:
    return (
        f"{address.url}: ZooKeeper does not let us in: {refusal(error)}; zk_sasl and what belongs "
        "to it in the address say who we are"
    )


def _nobody(what: str, address: NativeAddress) -> str:
    """Say, in one line, that no server of an address answers as it should, and what does."""
    patience_s = min(2.0, address.connect_timeout_s)
    found = [
        f"at {place_text(place)} {what_answers(*place, patience_s=patience_s).told(what)}"
        for place in address.places
    ]
    return f"{what} of {address.url} does not answer: {'; '.join(found)}"
