"""Are Phoenix's clients and the region servers set up for this oracle?

Region servers open connections of Phoenix's, and stop compacting its tables while they cannot reach
the oracle.  What they see cannot be seen from here: looked at are the address that the oracle tells
others, and the files of a server's configuration, where a copy of its folder is at hand.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from omidpy.errors import ConfigError, OmidError, UsageError
from omidpy.facts.leadership import read_lease
from omidpy.opening import open_store
from omidpy.oracle.zookeeper import SCHEME
from omidpy.phoenix.settings import (
    CLIENT_CONFIGURATION,
    SERVER_SETTINGS,
    client_configuration,
    site_properties,
)
from omidpy.reports.health.findings import Finding, Health
from omidpy.storage.base import Store

CONNECT_S: Final = 5.0
_SITE: Final = "hbase-site.xml"
_TTL: Final = "phoenix.table.ttl.enabled"


@dataclass(frozen=True, slots=True)
class AddressFinding:
    """Whether region servers can reach the oracle at the address that it tells others."""

    address: str | None
    problem: str | None = None

    name = "phoenix"

    @property
    def health(self) -> Health:
        """Without it HBase stops compacting Phoenix's tables."""
        return Health.OK if self.problem is None else Health.FAILED

    @property
    def detail(self) -> str:
        """That they can, as far as is known here, or why not."""
        if self.problem is not None:
            return self.problem
        return f"the oracle tells others the address {self.address}, which answers from here"


@dataclass(frozen=True, slots=True)
class FileFinding:
    """The file that tells Omid's client where the oracle is."""

    wanted: str
    """What it has to hold."""
    problem: str | None = None
    is_known: bool = False
    """Whether a server's copy was looked at."""

    name = "phoenix"

    @property
    def health(self) -> Health:
        """A copy that differs leads to another oracle, or to none."""
        if self.problem is not None:
            return Health.FAILED
        return Health.OK if self.is_known else Health.WARNING

    @property
    def detail(self) -> str:
        """What it has to be, for whoever writes it."""
        if self.is_known and self.problem is None:
            return f"{CLIENT_CONFIGURATION} names this oracle"
        said = self.problem or (
            "not looked at (--hbase-conf); region servers and clients need it on their class path, "
            "and a restart"
        )
        return f"{CLIENT_CONFIGURATION}: {said}:\n{self.wanted.rstrip()}"


@dataclass(frozen=True, slots=True)
class SettingsFinding:
    """What `hbase-site.xml` says to Phoenix."""

    wrong: dict[str, str | None]
    """By setting, what it is instead; None: it is not set."""
    is_known: bool = False

    name = "phoenix"

    @property
    def health(self) -> Health:
        """Each has a price."""
        if self.wrong:
            return Health.FAILED
        return Health.OK if self.is_known else Health.WARNING

    @property
    def detail(self) -> str:
        """What differs, and what it costs; else what it has to be."""
        if self.is_known and not self.wrong:
            return f"{_SITE} is as it should be; HBase's major compactions free space"
        if not self.is_known:
            return (
                f"{_SITE} was not looked at (--hbase-conf); region servers and clients need:\n"
                f"{site_properties()}"
            )
        texts = [
            f"{name} is {'not set' if found is None else repr(found)}, and has to be "
            f"{SERVER_SETTINGS[name]!r}"
            for name, found in self.wrong.items()
        ]
        price = (
            "; HBase's major compactions free no space of Phoenix's tables so"
            if _TTL in self.wrong
            else ""
        )
        return f"{_SITE}: {'; '.join(texts)}{price}"


def check_phoenix(url: str, folder: Path | None, tso: str | None = None) -> Iterator[Finding]:
    """Check what Phoenix needs of an oracle of ours, and of HBase's configuration.

    Args:
        url: The store.
        folder: A copy of a region server's folder of configuration; None: there is none at hand.
        tso: How our own clients find the oracle.  Where it publishes itself in ZooKeeper, those of
            Omid are to look there, too: at its address nobody would find the next one.

    Raises:
        ConfigError: the store cannot be opened.
    """
    store = open_store(url, must_exist=True)
    try:
        found = _check_address(store)
    finally:
        store.close()
    yield found
    if found.address is not None:
        yield _check_file(tso if tso and tso.startswith(SCHEME) else found.address, folder)
    yield _check_settings(folder)


def _check_address(store: Store) -> AddressFinding:
    try:
        lease = read_lease(store)
    except OmidError as error:
        return AddressFinding(None, str(error))
    if lease is None or not lease.address:
        return AddressFinding(
            None,
            f"no oracle of ours has written down on {store.url} where it answers; start tso-server",
        )
    host, _, port = lease.address.rpartition(":")
    try:
        client_configuration(lease.address)
        found = ipaddress.ip_address(socket.gethostbyname(host))
        if found.is_unspecified or (found.is_loopback and not _is_here(store.url)):
            return AddressFinding(
                lease.address,
                f"the oracle tells others the address {lease.address}, which region servers on "
                "other machines cannot reach; start tso-server with --advertise HOST:PORT",
            )
        socket.create_connection((str(found), int(port)), timeout=CONNECT_S).close()
    except UsageError as error:
        return AddressFinding(None, str(error))
    except OSError as error:
        return AddressFinding(
            lease.address,
            f"the oracle's address {lease.address} does not answer from here: {error}",
        )
    return AddressFinding(lease.address)


def _is_here(url: str) -> bool:
    """Say whether a store is on this machine alone, as far as its address tells."""
    scheme, _, rest = url.partition("://")
    if not scheme.startswith("hbase"):
        return True
    places = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    hosts = {place.partition(":")[0] for place in places.split(",")}
    return all(host == "localhost" or host.startswith("127.") for host in hosts)


def _check_file(address: str, folder: Path | None) -> FileFinding:
    wanted = client_configuration(address)
    if folder is None:
        return FileFinding(wanted)
    path = folder / CLIENT_CONFIGURATION
    try:
        said = path.read_text()
    except FileNotFoundError:
        return FileFinding(wanted, f"{folder} has none; write it", is_known=True)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if _lines(said) != _lines(wanted):
        return FileFinding(wanted, "it says something else; make it", is_known=True)
    return FileFinding(wanted, is_known=True)


def _lines(text: str) -> set[str]:
    """Return what a file says, whatever its order, quotes and comments."""
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return {line.replace('"', "").replace("'", "") for line in lines} - {"", "---"}


def _check_settings(folder: Path | None) -> SettingsFinding:
    if folder is None:
        return SettingsFinding({})
    path = folder / _SITE
    try:
        root = ET.parse(path).getroot()  # noqa: S314 - a file of the operator's own
    except (OSError, ET.ParseError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    said = {one.findtext("name"): (one.findtext("value") or "").strip() for one in root}
    return SettingsFinding(
        {
            name: said.get(name)
            for name, value in SERVER_SETTINGS.items()
            if said.get(name) != value
        },
        is_known=True,
    )
