"""What does `hbase+thrift2://gw1:9090,gw2:9090?transport=framed` say?  Addresses of gateways.

Only reads text: whether anything answers there, and how, is the pool's and `omidpy doctor`'s to
find out.  Every option has its default here, and an unknown one is refused, because a misspelt
`durablity=fsync` that went unnoticed would be found after the power loss.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from omidpy.errors import ConfigError
from omidpy.storage.hbase.addresses import spelling

Api: TypeAlias = Literal["thrift1", "thrift2"]
Transport: TypeAlias = Literal["buffered", "framed"]
Protocol: TypeAlias = Literal["binary", "compact"]
Durability: TypeAlias = Literal["default", "fsync"]
Protection: TypeAlias = Literal["auth", "auth-int", "auth-conf"]
Gateway: TypeAlias = tuple[str, int]
"""Host and port of a gateway."""

DEFAULT_PORT: Final = 9090
SCHEMES: Final[Mapping[str, Api]] = MappingProxyType(
    {"hbase+thrift1": "thrift1", "hbase+thrift2": "thrift2"}
)
EXAMPLE: Final = "hbase+thrift2://gateway1:9090,gateway2:9090?transport=framed"

LONGEST_PATIENCE_S: Final = 5.0
"""How long a page of a scan is waited for, before it is read in shorter stretches."""

FRAMED_BATCH_BYTES: Final = 1024 * 1024
"""Bytes of one write over the framed transport, unless one row has more.

A gateway hangs up on a frame of more than `hbase.regionserver.thrift.framed.max_frame_size_in_mb`,
which is 2 MiB as shipped.
"""


@dataclass(frozen=True, slots=True)
class HBaseAddress:
    """The gateways of one HBase, and how to talk to them."""

    url: str
    api: Api
    gateways: tuple[Gateway, ...]
    transport: Transport = "buffered"
    protocol: Protocol = "binary"
    timeout_s: float = 60.0
    """How long to wait for bytes of an answer.  HBase moves a dead server's regions in less."""
    connect_timeout_s: float = 5.0
    retry_s: float = 30.0
    """How long a call that may be repeated is repeated, once a gateway has answered at all.

    Once in any case: the first attempt of a call that met a dying server took as long as that.
    """
    pool_size: int = 32
    """Connections at most, of all threads of a process together."""
    max_idle_s: float = 50.0
    """A connection unused for longer is replaced; a gateway closes it after 60 s, as shipped."""
    durability: Durability = "default"
    """`fsync`: every write reaches the disks of HBase's log before it is acknowledged."""
    tls: bool = False
    tls_ca: str | None = None
    """File of certificates to trust instead of the system's."""
    tls_cert: str | None = None
    """File with the client's own certificate, and its key unless `tls_key` names another."""
    tls_key: str | None = None
    tls_name: str | None = None
    """Name in the gateway's certificate, where it is not the host that is connected to."""
    sasl: Literal["gssapi"] | None = None
    sasl_service: str = "hbase"
    """First part of the gateway's Kerberos principal."""
    sasl_host: str | None = None
    """Second part, where it is not the host that is connected to."""
    sasl_qop: Protection = "auth"
    """The gateway's `hbase.thrift.security.qop`."""

    @property
    def patience_s(self) -> float:
        """How long to wait for an answer that can be had in smaller parts."""
        return min(LONGEST_PATIENCE_S, self.timeout_s / 4)


def parse_address(url: str) -> HBaseAddress:
    """Return what an address says.

    Raises:
        ConfigError: it is none; the message names the wrong part and says what to write.
    """
    scheme, separator, rest = url.partition("://")
    api = SCHEMES.get(scheme)
    if api is None or not separator:
        raise ConfigError(f"store address {url!r}: write it like {EXAMPLE}")
    hosts, _, query = rest.partition("?")
    if "@" in hosts:
        raise ConfigError(
            f"store address {scheme}://...: it holds a user name, which gateways do not take; "
            "leave out what stands before the @, and write sasl=gssapi for Kerberos"
        )
    gateways = tuple(_gateway(url, part) for part in hosts.removesuffix("/").split(","))
    address = HBaseAddress(url, api, gateways, **spelling.options(url, query, _value))
    _check_together(address)
    return address


def _gateway(url: str, text: str) -> Gateway:
    host, port = spelling.place(url, text, kind="gateway")
    return host, port or DEFAULT_PORT


_CHOICES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "transport": ("buffered", "framed"),
        "protocol": ("binary", "compact"),
        "durability": ("default", "fsync"),
        "tls": ("on", "off"),
        "sasl": ("gssapi",),
        "sasl_qop": ("auth", "auth-int", "auth-conf"),
    }
)
_SWITCHES: Final[Mapping[str, str]] = MappingProxyType({"true": "on", "false": "off"})
"""The words of ZooKeeper's addresses, so that nobody has to remember which has which."""
_SECONDS: Final = ("timeout_s", "connect_timeout_s", "retry_s", "max_idle_s")
_COUNTS: Final = ("pool_size",)
_TEXTS: Final = ("tls_ca", "tls_cert", "tls_key", "tls_name", "sasl_service", "sasl_host")
OPTIONS: Final = (*_CHOICES, *_SECONDS, *_COUNTS, *_TEXTS)


def _value(url: str, name: str, text: str) -> object:
    if name in _CHOICES:
        if name == "tls":
            text = _SWITCHES.get(text, text)
        if text not in _CHOICES[name]:
            choices = " or ".join(_CHOICES[name])
            raise ConfigError(f"store address {url!r}: {name}={text!r} must be {choices}")
        return text == "on" if name == "tls" else text
    if name in _SECONDS:
        return spelling.seconds(url, name, text)
    if name in _COUNTS:
        if not re.fullmatch(r"[1-9][0-9]{0,5}", text):
            raise ConfigError(f"store address {url!r}: {name}={text!r} must be 1 or more")
        return int(text)
    if name in _TEXTS:
        if not text:
            raise ConfigError(f"store address {url!r}: {name} is empty; leave it out, or say what")
        return text
    raise ConfigError(f"store address {url!r}: no option {name!r}; there are {', '.join(OPTIONS)}")


def _check_together(address: HBaseAddress) -> None:
    """Refuse options that contradict each other."""
    url = address.url
    for name in ("tls_ca", "tls_cert", "tls_key", "tls_name"):
        if getattr(address, name) is not None and not address.tls:
            raise ConfigError(f"store address {url!r}: {name} has no effect without tls=on")
    if address.tls_key is not None and address.tls_cert is None:
        raise ConfigError(f"store address {url!r}: tls_key needs tls_cert, its certificate")
    if address.sasl is not None and address.transport == "framed":
        raise ConfigError(
            f"store address {url!r}: HBase's gateway has no SASL over the framed transport; leave "
            "one of sasl and transport=framed out"
        )
    defaults = HBaseAddress(url, address.api, address.gateways)
    for name in ("sasl_service", "sasl_host", "sasl_qop"):
        if address.sasl is None and getattr(address, name) != getattr(defaults, name):
            raise ConfigError(f"store address {url!r}: {name} has no effect without sasl=gssapi")
