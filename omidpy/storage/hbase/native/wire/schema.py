"""Tables and regions in the messages of HBase's master and of its catalogue.  No I/O.

Source: `HBase.proto`, `Master.proto` and `Admin.proto` of HBase 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from omidpy.errors import RemoteProtocolError
from omidpy.model import Cell
from omidpy.storage.hbase.native.faults import Fault, Garbled
from omidpy.storage.hbase.native.values import (
    FamilyDescriptor,
    Region,
    ServerName,
    TableDescriptor,
)
from omidpy.storage.hbase.native.wire.messages import ENCODED_REGION_NAME, region_specifier
from omidpy.wire.protobuf import fields, put_bool, put_bytes, put_uint64

_V1, _V2, _V3, _V4, _V5, _V6, _V7 = (number << 3 for number in range(1, 8))
_B1, _B2, _B3, _B4, _B5 = (number << 3 | 2 for number in range(1, 6))

FINISHED: Final = 2
RUNNING: Final = 1
NOT_FOUND: Final = 0

TABLE_STATES: Final = ("enabled", "disabled", "disabling", "enabling")

CATALOGUE_FAMILY: Final = b"info"
_REGION_INFO, _SERVER, _START_CODE = b"regioninfo", b"server", b"serverstartcode"
_PBUF: Final = b"PBUF"
_PORT: Final = re.compile(r"\d{1,5}", re.ASCII)


class Nonces(NamedTuple):
    """Two numbers by which the master knows a repeated request."""

    group: int
    nonce: int


def _parts(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    try:
        yield from fields(data)
    except RemoteProtocolError as error:
        raise Garbled(f"an answer cannot be read: {error}") from error


def _text(data: bytes) -> str:
    """Return text; what is none stays different from what is, and raises nothing."""
    return data.decode(errors="backslashreplace")


def _byte_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    for key, value in _parts(data):
        if isinstance(value, bytes):
            yield key, value


# -- names -----------------------------------------------------------------------------------------


def server_name(data: bytes) -> ServerName:
    """Read a `ServerName`."""
    host, port, start_code = "", 0, 0
    for key, value in _parts(data):
        if isinstance(value, bytes):
            if key == _B1:
                host = value.decode(errors="replace")
        elif key == _V2:
            port = value
        elif key == _V3:
            start_code = value
    return ServerName(host, port, start_code)


def _server_message(server: ServerName) -> bytes:
    out = bytearray()
    put_bytes(out, _B1, server.host.encode())
    put_uint64(out, _V2, server.port)
    put_uint64(out, _V3, server.start_code)
    return bytes(out)


def table_name(table: str) -> bytes:
    """Return a `TableName`."""
    namespace, _, qualifier = table.rpartition(":")
    out = bytearray()
    put_bytes(out, _B1, (namespace or "default").encode())
    put_bytes(out, _B2, qualifier.encode())
    return bytes(out)


def _table_text(data: bytes) -> str:
    names = dict(_byte_fields(data))
    namespace, qualifier = _text(names.get(_B1, b"default")), _text(names.get(_B2, b""))
    return qualifier if namespace == "default" else f"{namespace}:{qualifier}"


# -- descriptors -----------------------------------------------------------------------------------


def _put_pairs(out: bytearray, key: int, pairs: Mapping[bytes, bytes]) -> None:
    for name, value in pairs.items():
        pair = bytearray()
        put_bytes(pair, _B1, name)
        put_bytes(pair, _B2, value)
        put_bytes(out, key, pair)


def _pair(data: bytes) -> tuple[bytes, bytes]:
    found = dict(_byte_fields(data))
    return found.get(_B1, b""), found.get(_B2, b"")


def family_message(family: FamilyDescriptor) -> bytes:
    """Return a `ColumnFamilySchema`."""
    out = bytearray()
    put_bytes(out, _B1, family.name)
    _put_pairs(out, _B2, family.attributes)
    _put_pairs(out, _B3, _encoded(family.configuration))
    return bytes(out)


def table_message(descriptor: TableDescriptor) -> bytes:
    """Return a `TableSchema`."""
    out = bytearray()
    put_bytes(out, _B1, table_name(descriptor.table))
    _put_pairs(out, _B2, descriptor.attributes)
    for family in descriptor.families:
        put_bytes(out, _B3, family_message(family))
    _put_pairs(out, _B4, _encoded(descriptor.configuration))
    return bytes(out)


def _encoded(pairs: Mapping[str, str]) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in pairs.items()}


def _family(data: bytes) -> FamilyDescriptor:
    family = FamilyDescriptor(b"", {}, {})
    for key, value in _byte_fields(data):
        if key == _B1:
            family = family._replace(name=value)
        elif key == _B2:
            family.attributes.update((_pair(value),))
        elif key == _B3:
            name, text = _pair(value)
            family.configuration[_text(name)] = _text(text)
    return family


def _table(data: bytes) -> TableDescriptor:
    table, families = "", []
    attributes: dict[bytes, bytes] = {}
    configuration: dict[str, str] = {}
    for key, value in _byte_fields(data):
        if key == _B1:
            table = _table_text(value)
        elif key == _B2:
            attributes.update((_pair(value),))
        elif key == _B3:
            families.append(_family(value))
        elif key == _B4:
            name, text = _pair(value)
            configuration[_text(name)] = _text(text)
    if not table:
        raise Garbled("a table has no name")  # nor would very many of them take many bytes
    return TableDescriptor(table, tuple(families), attributes, configuration)


def descriptors_request(tables: Sequence[str] = (), *, with_system_tables: bool = False) -> bytes:
    """Return a `GetTableDescriptorsRequest`; no table is all of them."""
    out = bytearray()
    for table in tables:
        put_bytes(out, _B1, table_name(table))
    put_bool(out, _V3, value=with_system_tables)
    return bytes(out)


def read_descriptors(body: bytes) -> list[TableDescriptor]:
    """Read a `GetTableDescriptorsResponse`; a table that is missing is not in it."""
    return [_table(value) for key, value in _byte_fields(body) if key == _B1]


def read_state(body: bytes) -> str:
    """Read a `GetTableStateResponse`: one of `TABLE_STATES`."""
    for key, value in _byte_fields(body):
        if key == _B1:
            number = next((one for name, one in _parts(value) if name == _V1), None)
            if isinstance(number, int) and number < len(TABLE_STATES):
                return TABLE_STATES[number]
    raise Garbled("the state of a table is none that is known")


# -- changes ---------------------------------------------------------------------------------------


def create_request(descriptor: TableDescriptor, splits: Sequence[bytes], nonces: Nonces) -> bytes:
    """Return a `CreateTableRequest`."""
    out = bytearray()
    put_bytes(out, _B1, table_message(descriptor))
    for split in splits:
        put_bytes(out, _B2, split)
    _put_nonces(out, _V3, nonces)
    return bytes(out)


def table_request(table: str, nonces: Nonces) -> bytes:
    """Return what drops, enables or disables a table."""
    out = bytearray()
    put_bytes(out, _B1, table_name(table))
    _put_nonces(out, _V2, nonces)
    return bytes(out)


def state_request(table: str) -> bytes:
    """Return a `GetTableStateRequest`."""
    out = bytearray()
    put_bytes(out, _B1, table_name(table))
    return bytes(out)


def truncate_request(table: str, nonces: Nonces, *, keeps_splits: bool) -> bytes:
    """Return a `TruncateTableRequest`."""
    out = bytearray()
    put_bytes(out, _B1, table_name(table))
    put_bool(out, _V2, value=keeps_splits)
    _put_nonces(out, _V3, nonces)
    return bytes(out)


def modify_request(descriptor: TableDescriptor, nonces: Nonces) -> bytes:
    """Return a `ModifyTableRequest`, which names the whole table."""
    out = bytearray()
    put_bytes(out, _B1, table_name(descriptor.table))
    put_bytes(out, _B2, table_message(descriptor))
    _put_nonces(out, _V3, nonces)
    return bytes(out)


def modify_family_request(table: str, family: FamilyDescriptor, nonces: Nonces) -> bytes:
    """Return a `ModifyColumnRequest`."""
    out = bytearray()
    put_bytes(out, _B1, table_name(table))
    put_bytes(out, _B2, family_message(family))
    _put_nonces(out, _V3, nonces)
    return bytes(out)


def split_request(region: Region, at: bytes, nonces: Nonces) -> bytes:
    """Return a `SplitTableRegionRequest`."""
    out = bytearray()
    put_bytes(out, _B1, region_message(region))
    put_bytes(out, _B2, at)
    _put_nonces(out, _V3, nonces)
    return bytes(out)


def merge_request(regions: Sequence[Region], nonces: Nonces) -> bytes:
    """Return a `MergeTableRegionsRequest`."""
    out = bytearray()
    for region in regions:
        put_bytes(out, _B1, region_specifier(region.encoded_name, ENCODED_REGION_NAME))
    _put_nonces(out, _V4, nonces)
    return bytes(out)


def balance_request(*, is_on: bool) -> bytes:
    """Return a `SetBalancerRunningRequest`; a balancing that is under way is waited for."""
    out = bytearray()
    put_bool(out, _V1, value=is_on)
    put_bool(out, _V2, value=True)
    return bytes(out)


def read_balance(data: bytes) -> bool:
    """Read a `SetBalancerRunningResponse`: whether HBase balanced before."""
    return any(key == _V1 and bool(value) for key, value in _parts(data))


def move_request(region: Region, to: ServerName | None) -> bytes:
    """Return a `MoveRegionRequest`; None lets the master choose."""
    out = bytearray()
    put_bytes(out, _B1, region_specifier(region.encoded_name, ENCODED_REGION_NAME))
    if to is not None:
        put_bytes(out, _B2, _server_message(to))
    return bytes(out)


def flush_request(region: Region) -> bytes:
    """Return a `FlushRegionRequest`."""
    out = bytearray()
    put_bytes(out, _B1, region_specifier(region.name))
    return bytes(out)


def compact_request(region: Region, *, is_major: bool) -> bytes:
    """Return a `CompactRegionRequest`."""
    out = bytearray()
    put_bytes(out, _B1, region_specifier(region.name))
    put_bool(out, _V2, value=is_major)
    return bytes(out)


def _put_nonces(out: bytearray, key: int, nonces: Nonces) -> None:
    put_uint64(out, key, nonces.group)
    put_uint64(out, key + 8, nonces.nonce)


def read_procedure_id(body: bytes) -> int | None:
    """Return the number of the procedure that an answer names."""
    return next(
        (value for key, value in _parts(body) if key == _V1 and isinstance(value, int)), None
    )


def procedure_request(number: int) -> bytes:
    """Return a `GetProcedureResultRequest`."""
    out = bytearray()
    put_uint64(out, _V1, number)
    return bytes(out)


def read_procedure(body: bytes) -> tuple[int, Fault | None]:
    """Read a `GetProcedureResultResponse`: its state, and what it failed by."""
    state, fault = NOT_FOUND, None
    for key, value in _parts(body):
        if key == _V1 and isinstance(value, int):
            state = value
        elif key == _B5 and isinstance(value, bytes):
            fault = _foreign_fault(value)
    return state, fault


def _foreign_fault(data: bytes) -> Fault:
    name = text = ""
    for key, value in _byte_fields(data):
        if key == _B2:
            found = dict(_byte_fields(value))
            name = found.get(_B1, b"").decode(errors="replace")
            text = found.get(_B2, b"").decode(errors="replace")
    return Fault(name, text)


# -- the catalogue ---------------------------------------------------------------------------------


def region_message(region: Region) -> bytes:
    """Return a `RegionInfo`."""
    out = bytearray()
    put_uint64(out, _V1, region.region_id)
    put_bytes(out, _B2, table_name(region.table))
    put_bytes(out, _B3, region.start)
    put_bytes(out, _B4, region.end)
    return bytes(out)


def region_of(cells: Sequence[Cell]) -> Region | None:
    """Return the region that a row of the catalogue is about.

    None where no server has it any more, as after a split, or does not yet.
    """
    info: bytes | None = None
    server, start_code = "", 0
    for cell in cells:
        if cell.family != CATALOGUE_FAMILY:
            continue
        if cell.qualifier == _REGION_INFO:
            info = cell.value
        elif cell.qualifier == _SERVER:
            server = cell.value.decode(errors="replace")
        elif cell.qualifier == _START_CODE:
            start_code = int.from_bytes(cell.value)
    if info is None or not info.startswith(_PBUF) or not server:
        return None
    region_id, table, start, end, is_gone = 0, "", b"", b"", False
    for key, value in _parts(info[len(_PBUF) :]):
        if isinstance(value, bytes):
            if key == _B2:
                table = _table_text(value)
            elif key == _B3:
                start = value
            elif key == _B4:
                end = value
        elif key == _V1:
            region_id = value
        elif key in (_V5, _V6, _V7):  # offline, split, or a copy
            is_gone = is_gone or bool(value)
    if is_gone:
        return None
    host, _, port = server.rpartition(":")
    if _PORT.fullmatch(port) is None:
        raise Garbled(f"the catalogue names the server {server!r}")
    name = ServerName(host.strip("[]"), int(port), start_code)
    return Region(table, cells[0].row, start, end, name, region_id)
