"""What the master tells of its cluster: its version, and what each server has to do.  No I/O.

Source: `ClusterStatus.proto` and `Master.proto` of HBase 2.6.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from omidpy.storage.hbase.native.values import ServerName
from omidpy.storage.hbase.native.wire.messages import B1, B2, B5, V1, V3, V4, message_fields
from omidpy.storage.hbase.native.wire.schema import server_name

_VERSION: Final = 0
_LIVE_SERVERS: Final = 2

SUPPORTED: Final = ("2.5", "2.6")
"""Lines of releases that are tested."""


class ServerLoad(NamedTuple):
    """What a region server last told the master, within some seconds."""

    regions: int
    requests_per_s: int
    heap_used_mib: int
    heap_most_mib: int

    def described(self) -> str:
        """Say it in a few words."""
        regions = f"{self.regions} region{'' if self.regions == 1 else 's'}"
        heap = f"{self.heap_used_mib} of {self.heap_most_mib} MiB of heap"
        return f"{regions}, {self.requests_per_s} requests a second, {heap}"


def loads_request() -> bytes:
    """Return the `GetClusterStatusRequest` that asks for the servers that live."""
    return bytes((V1, _LIVE_SERVERS))


def read_loads(body: bytes) -> dict[ServerName, ServerLoad]:
    """Read a `GetClusterStatusResponse`: what each server that lives has to do."""
    found: dict[ServerName, ServerLoad] = {}
    for key, status in message_fields(body):
        if key != B1 or not isinstance(status, bytes):
            continue
        for status_key, live in message_fields(status):
            if status_key != B2 or not isinstance(live, bytes):
                continue
            parts = {at: part for at, part in message_fields(live) if isinstance(part, bytes)}
            found[server_name(parts.get(B1, b""))] = _load(parts.get(B2, b""))
    return found


def version_request() -> bytes:
    """Return the `GetClusterStatusRequest` that asks for the release."""
    return bytes((V1, _VERSION))


def read_version(body: bytes) -> str:
    """Read a `GetClusterStatusResponse`: the release, empty if it is not told."""
    for key, status in message_fields(body):
        if key == B1 and isinstance(status, bytes):
            for status_key, content in message_fields(status):
                if status_key == B1 and isinstance(content, bytes):
                    return _text(content)
    return ""


def _text(content: bytes) -> str:
    found = (value for key, value in message_fields(content) if key == B1)
    return next((one.decode(errors="replace") for one in found if isinstance(one, bytes)), "")


def is_supported(version: str) -> bool:
    """Say whether a release is of a line that is tested; one that is not told may be."""
    return not version or version.startswith(tuple(f"{one}." for one in SUPPORTED))


def _load(data: bytes) -> ServerLoad:
    numbers = dict.fromkeys((V1, V3, V4), 0)
    regions = 0
    for key, value in message_fields(data):
        if key == B5:
            regions += 1
        elif isinstance(value, int) and key in numbers:
            numbers[key] = value
    return ServerLoad(regions, numbers[V1], numbers[V3], numbers[V4])
