"""What does `hbase://zk1,zk2:2181/hbase` say?  Addresses of an HBase without a gateway.

`hbase://` names ZooKeeper's servers and the znode below which HBase keeps its own; the znode must
be there, so that an address of a gateway, which has none, is never taken for one of ZooKeeper.
`hbase+rpc://` names masters or region servers, which tell the same without ZooKeeper.

Only reads text.  An unknown option is refused, and so is one that only a gateway's address has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from omidpy.base.ensemble import CLIENT_OPTIONS, client_options
from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses import spelling
from omidpy.storage.hbase.addresses.gateways import Protection

BY_ZOOKEEPER: Final = "hbase"
BY_RPC: Final = "hbase+rpc"
SCHEMES: Final = (BY_ZOOKEEPER, BY_RPC)
EXAMPLE: Final = "hbase://zk1:2181,zk2:2181/hbase"
RPC_EXAMPLE: Final = "hbase+rpc://master1:16000,master2:16000"

ZOOKEEPER_PORT: Final = 2181
MASTER_PORT: Final = 16000

_SECONDS: Final = ("timeout_s", "connect_timeout_s", "retry_s")
_CHOICES: Final = {
    "durability": ("default", "fsync"),
    "sasl": ("gssapi",),
    "sasl_qop": ("auth", "auth-int", "auth-conf"),
}
_TEXTS: Final = ("user", "tls_ca", "tls_cert", "tls_key", "tls_name", "principal")


def _of_zookeeper(name: str) -> str:
    """Return how an option of an address in ZooKeeper stands in one of HBase."""
    return f"zk_{name}".replace("-", "_")


_ENSEMBLES: Final = {_of_zookeeper(name): name for name in CLIENT_OPTIONS}
"""Of ZooKeeper, as an address in it has them, behind `zk_`."""
OPTIONS: Final = (*_SECONDS, *_CHOICES, "tls", *_TEXTS)
_ELSEWHERE: Final = {
    "keytab": "name it in the environment, KRB5_CLIENT_KTNAME=FILE",
    "sasl_host": "write principal=SERVICE/HOST@REALM",
    "sasl_service": "write principal=SERVICE/_HOST@REALM",
    "token": "omidpy hands tokens on by itself",
}
"""Options that one might look for here, and what to do instead."""
_GATEWAYS_OWN: Final = ("transport", "protocol", "pool_size", "max_idle_s")


@dataclass(frozen=True, slots=True)
class NativeAddress:
    """Where an HBase is found, and how long its servers are waited for."""

    url: str
    registry: Literal["zookeeper", "rpc"]
    places: tuple[tuple[str, int], ...]
    """Hosts and ports of ZooKeeper's servers, or of HBase's own."""
    znode: str = ""
    """Below which HBase keeps its own in ZooKeeper, without a slash at the end."""
    timeout_s: float = 60.0
    """How long a call is waited for.  HBase moves a dead server's regions in less."""
    connect_timeout_s: float = 5.0
    retry_s: float = 30.0
    """How long a call that may be repeated is repeated, once a server has answered at all."""
    durability: Literal["default", "fsync"] = "default"
    """`fsync`: every write reaches the disks of HBase's log before it is acknowledged."""
    user: str | None = None
    """Who calls, where HBase has no authentication; None is the user of this process."""
    tls: bool = False
    tls_ca: str | None = None
    """PEM file of certificates to trust instead of the system's."""
    tls_cert: str | None = None
    """PEM file of the client's own certificate, and of its key unless `tls_key` names another."""
    tls_key: str | None = None
    tls_name: str | None = None
    """Name in the certificates of all servers, where it is not the host that is connected to."""
    sasl: Literal["gssapi"] | None = None
    sasl_qop: Protection = "auth"
    """What HBase's `hbase.rpc.protection` has to allow."""
    principal: str | None = None
    """The servers' in Kerberos, with `_HOST` for the name of each; None: hbase/_HOST."""
    zookeeper: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """What kazoo's client takes for TLS and SASL to ZooKeeper; a password may be among it."""


def parse_native(url: str) -> NativeAddress:
    """Return what an address says.

    Raises:
        ConfigError: it is none; the message names the wrong part and says what to write.
    """
    scheme, separator, rest = url.partition("://")
    if scheme not in SCHEMES or not separator:
        raise ConfigError(f"store address {url!r}: write it like {EXAMPLE} or {RPC_EXAMPLE}")
    named, _, query = rest.partition("?")
    if "@" in named:
        raise ConfigError(
            f"store address {scheme}://...: it holds a user name before an @; write "
            "user=NAME behind a question mark, and no password, which HBase does not take"
        )
    hosts, slash, path = named.partition("/")
    options = spelling.options(url, query, _value)
    ensemble = {name: options.pop(here) for here, name in _ENSEMBLES.items() if here in options}
    if scheme == BY_RPC and ensemble:
        name = _of_zookeeper(min(ensemble))
        raise ConfigError(
            f"store address {spelling.without_options(url)}: {name} is about ZooKeeper, which "
            "nobody asks there; leave it out"
        )
    if ensemble:
        where = f"store address {spelling.without_options(url)}"
        options["zookeeper"] = client_options(ensemble, where=where, spelt=_of_zookeeper)
    if scheme == BY_RPC:
        if path:
            raise ConfigError(
                f"store address {url!r}: masters have no znode; leave /{path} out, or name "
                f"ZooKeeper's servers, {EXAMPLE}"
            )
        places = _places(url, hosts, MASTER_PORT)
        return _checked(NativeAddress(url, "rpc", places, **options))
    znode = path.strip("/")
    if not slash or not znode:
        raise ConfigError(
            f"store address {url!r} is no address of a store: {scheme}:// names ZooKeeper's "
            f"servers and HBase's znode, {EXAMPLE}; for a Thrift gateway write "
            f"hbase+thrift2://{hosts or 'HOST:9090'}"
        )
    if any(part in ("", ".", "..") for part in znode.split("/")):
        raise ConfigError(f"store address {url!r}: /{path} is no znode; write for instance /hbase")
    places = _places(url, hosts, ZOOKEEPER_PORT)
    return _checked(NativeAddress(url, "zookeeper", places, f"/{znode}", **options))


def _places(url: str, hosts: str, default_port: int) -> tuple[tuple[str, int], ...]:
    """Return hosts and ports; as in Java's configuration, the last port is for those without."""
    found = [spelling.place(url, text, kind="server") for text in hosts.split(",")]
    last_port = found[-1][1] or default_port
    return tuple((host, port or last_port) for host, port in found)


def _value(url: str, name: str, text: str) -> object:
    if name in _ELSEWHERE:
        raise ConfigError(
            f"store address {spelling.without_options(url)}: {name} does not stand there; "
            f"{_ELSEWHERE[name]}"
        )
    if name in _GATEWAYS_OWN:
        raise ConfigError(f"store address {url!r}: {name} is for gateways alone; leave it out")
    if name in _CHOICES:
        if text not in _CHOICES[name]:
            choices = " or ".join(_CHOICES[name])
            raise ConfigError(f"store address {url!r}: {name}={text!r} must be {choices}")
        return text
    if name == "tls":
        if text not in spelling.FLAGS:
            raise ConfigError(f"store address {url!r}: tls={text!r} must be on or off")
        return spelling.FLAGS[text]
    if name in _TEXTS or name in _ENSEMBLES:
        if not text:
            what = "who" if name == "user" else "what"
            raise ConfigError(
                f"store address {url!r}: {name} is empty; leave it out, or say {what}"
            )
        return text
    if name in _SECONDS:
        return spelling.seconds(url, name, text)
    raise ConfigError(
        f"store address {url!r}: no option {name!r}; there are {', '.join(OPTIONS)}, and those of "
        "ZooKeeper behind zk_"
    )


def _checked(address: NativeAddress) -> NativeAddress:
    """Refuse options that say nothing, or contradict each other."""
    for name in ("tls_ca", "tls_cert", "tls_key", "tls_name"):
        if getattr(address, name) is not None and not address.tls:
            raise ConfigError(f"store address {address.url!r}: {name} has no effect without tls=on")
    if address.tls_key is not None and address.tls_cert is None:
        raise ConfigError(f"store address {address.url!r}: tls_key needs tls_cert, its certificate")
    if address.sasl is None:
        for name, usual in (("principal", None), ("sasl_qop", "auth")):
            if getattr(address, name) != usual:
                raise ConfigError(
                    f"store address {address.url!r}: {name} has no effect without sasl=gssapi"
                )
    elif address.user is not None:
        raise ConfigError(
            f"store address {address.url!r}: user has no effect with sasl, by which the ticket "
            "says who calls"
        )
    return address
