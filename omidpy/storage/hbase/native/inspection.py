"""Can every server of an HBase be reached from here?  What `omidpy doctor` looks at.

A client calls each region server itself, by the name that the server gives itself; that a name does
not resolve outside a container or a private network is the usual failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from omidpy.errors import OmidError
from omidpy.storage.hbase.native.address import NativeAddress
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.calling.calls import Calls
from omidpy.storage.hbase.native.connections.pool import MASTER, REGIONS, until
from omidpy.storage.hbase.native.faults import CallFailed
from omidpy.storage.hbase.native.translate import translate
from omidpy.storage.hbase.native.values import Scan, Selection, ServerName
from omidpy.storage.hbase.native.wire.schema import CATALOGUE_FAMILY, region_of
from omidpy.storage.hbase.native.wire.status import SUPPORTED, ServerLoad, is_supported

MOST_REGIONS: Final = 10_000
"""Rows of the catalogue that are looked at for names of servers."""


RELEASE: Final = "HBase"
"""The role of what stands for all servers: their release, where it is none that is supported."""
NOT_SUPPORTED: Final = (
    f"omidpy is tested with {' and '.join(SUPPORTED)} alone, and this one may answer otherwise; "
    "go through a gateway, hbase+thrift2://HOST:PORT, or try it with `omidpy verify`"
)


class Seen(NamedTuple):
    """A server that was looked at."""

    role: str
    server: str
    problem: str | None = None
    """Why it cannot be used, with the remedy."""
    secured: str | None = None
    """What secures the connection, in a few words; None where there is none."""
    load: ServerLoad | None = None
    """What a region server has to do, where the master tells."""


def servers(address: NativeAddress) -> Iterator[Seen]:
    """Look for the catalogue, the active master and each region server, and connect to them.

    Raises:
        ConfigError: a package is missing.

    Cost: a connection to each server, a read of the catalogue, and 2 RPCs to the master.
    """
    calls = Calls(address)
    is_master_there = False
    try:
        for role, find, service in (
            ("catalogue", calls.registry.meta_server, REGIONS),
            ("master", calls.registry.master, MASTER),
        ):
            try:
                server = find()
            except OmidError as error:
                yield Seen(role, address.url, str(error))
                if role == "catalogue":
                    return
                continue
            seen = _seen(calls, role, server, service)
            yield seen
            is_master_there = role == "master" and seen.problem is None
        # One that cannot be reached would be tried for as long as a call may take.
        version, loads = _told(calls) if is_master_there else ("", {})
        if not is_supported(version):
            yield Seen(RELEASE, version, NOT_SUPPORTED)
        for server in sorted(_region_servers(calls)):
            seen = _seen(calls, "region server", server, REGIONS)
            yield seen._replace(load=loads.get(server))
    except (CallFailed, OmidError) as error:
        meant = translate(error, address=address, what="look", where=None, table=None)
        yield Seen("catalogue", address.url, str(meant))
    finally:
        calls.close()


def _seen(calls: Calls, role: str, server: ServerName, service: str) -> Seen:
    try:
        connection = calls.connections.get(server.host, server.port, service)
    except CallFailed as error:
        meant = translate(
            error, address=calls.address, what="connection", where=str(server), table=None
        )
        return Seen(role, str(server), str(meant))
    return Seen(role, str(server), secured=connection.secured)


def _told(calls: Calls) -> tuple[str, dict[ServerName, ServerLoad]]:
    """Return the release, and what each server has to do.

    Nothing where no master tells: it may have gone since it was looked at.
    """
    admin = Admin(calls)
    try:
        return admin.version(), admin.loads()
    except OmidError:
        return "", {}


def _region_servers(calls: Calls) -> set[ServerName]:
    """Return who serves regions, as the catalogue says."""
    everything = Scan(b"", b"", Selection(((CATALOGUE_FAMILY, None),), max_versions=1))
    limit = until(calls.address.timeout_s)
    rows = calls.read_catalogue(everything, MOST_REGIONS, until_s=limit)
    return {region.server for region in map(region_of, rows) if region is not None}
