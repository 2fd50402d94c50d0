"""What answers at an address, and is a store set up as it should be?

Looks and asks, and changes nothing.  Every check runs that can: one that failed hides only those
that need what it found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from omidpy.base.installation import versions
from omidpy.base.schema.phoenix import index_objection, indexes, misadoption
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    CONTROL_TABLE,
    TTL_ATTRIBUTE,
    forgetfulness,
    is_system_table,
    transactional_families,
)
from omidpy.base.timing.clock import Clock
from omidpy.errors import ConfigError, NoSuchTable, OmidError
from omidpy.facts.commit_table import COMMIT_TABLE, TIMESTAMP_TABLE, read_leading_low_watermark
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import read_lease, seems_gone
from omidpy.facts.tables.listing import closed_among, missing_of
from omidpy.facts.tables.makers import Makers
from omidpy.model import FIRST_WORLD_TIMESTAMP, TableSchema
from omidpy.opening import open_oracle, open_store
from omidpy.reports.health.findings import (
    BlockingFinding,
    ClockFinding,
    ClosedFinding,
    Finding,
    ForgetfulFinding,
    GatewayFinding,
    GhostFinding,
    IndexedFinding,
    InstallationFinding,
    LeaseFinding,
    MisadoptedFinding,
    MissingTablesFinding,
    OracleFinding,
    OwnershipFinding,
    RoadFinding,
    ServerFinding,
    StoreFinding,
    UnreadableFinding,
)
from omidpy.storage.base import Store
from omidpy.storage.hbase.addresses.gateways import (
    SCHEMES,
    Gateway,
    HBaseAddress,
    parse_address,
)
from omidpy.storage.hbase.addresses.spelling import place_text
from omidpy.storage.hbase.native import address as direct

if TYPE_CHECKING:
    from omidpy.storage.hbase.rpc.cluster import OneCluster

_SYSTEM_TABLES: Final = (COMMIT_TABLE, TIMESTAMP_TABLE, CONTROL_TABLE)


def check_installation() -> InstallationFinding:
    """Say what is installed here."""
    from tso.core.engine import is_compiled  # noqa: PLC0415 - of the application

    found = versions(engine_is_compiled=is_compiled())
    return InstallationFinding(found["omidpy"], found["python"], found["engine"])


def check_address(text: str) -> Iterator[Finding]:
    """Find out what answers at an address of HBase, with a gateway or without."""
    if text.partition("://")[0] in direct.SCHEMES:
        return check_servers(direct.parse_native(text))
    found = check_gateways(_address(text))
    return found if "://" in text else map(_told_of_others, found)


def _told_of_others(found: GatewayFinding) -> GatewayFinding:
    """Say where ZooKeeper or HBase itself answers, in place of a gateway, what to write instead."""
    from omidpy.storage.hbase.native.connections.diagnosis import Speaker, what_answers  # noqa: PLC0415 - see above

    if found.url is not None:
        return found
    ((host, port),) = parse_address(f"hbase+thrift2://{found.gateway}").gateways
    other = what_answers(host, port)
    if other.speaker not in (Speaker.ZOOKEEPER, Speaker.HBASE):
        return found
    wanted = "HBase" if other.speaker is Speaker.ZOOKEEPER else "ZooKeeper"
    return dataclasses.replace(found, problem=f"{other.told(wanted)}, which needs no gateway")


def _address(text: str) -> HBaseAddress:
    """Return what to probe: a whole address, or `HOST:PORT` with the options that may follow."""
    return parse_address(text if "://" in text else f"hbase+thrift2://{text}")


def check_gateways(address: HBaseAddress) -> Iterator[GatewayFinding]:
    """Find out how to speak to each gateway of an address."""
    # Loaded first, because it names the extra where that is not installed.
    importlib.import_module("omidpy.storage.hbase.idl")
    from omidpy.storage.hbase.rpc.probe import probe  # noqa: PLC0415

    for gateway in address.gateways:
        found = probe(address, gateway)
        yield GatewayFinding(place_text(gateway), found.url, found.problem)


def check_servers(address: direct.NativeAddress) -> Iterator[ServerFinding | RoadFinding]:
    """Find out whether each server of an HBase can be reached from here, and so whether all can."""
    from omidpy.storage.hbase.native.inspection import RELEASE, servers  # noqa: PLC0415 - only for its address

    names: set[str] = set()
    closed: list[str] = []
    for seen in servers(address):
        load = None if seen.load is None else seen.load.described()
        yield ServerFinding(seen.role, seen.server, seen.problem, seen.secured, load)
        if seen.role == RELEASE:
            continue  # no server
        names.add(seen.server)
        if seen.problem is not None:
            closed.append(seen.server)
    if names != {address.url}:  # which stands for the servers where none was found
        yield RoadFinding(address.url, len(names), tuple(dict.fromkeys(closed)))


def check_store(url: str, tso: str | None, *, clock: Clock) -> Iterator[Finding]:
    """Check a store, its tables, who holds its lease, and its oracle if one is named.

    Raises:
        ConfigError: the address is no address of a store.
    """
    scheme = url.partition("://")[0]
    if scheme in SCHEMES:
        yield from _check_spoken(parse_address(url))
    elif scheme in direct.SCHEMES:
        yield from check_servers(direct.parse_native(url))
    store = open_store(url, must_exist=True)
    with contextlib.closing(store):
        try:
            schemas = {schema.name: schema for schema in store.tables()}
        except OmidError as error:
            yield StoreFinding(url, None, str(error))
            return
        yield StoreFinding(url, len(schemas))
        try:
            missing = missing_of(_SYSTEM_TABLES, store, schemas.values())
        except OmidError as error:
            yield UnreadableFinding("system tables", str(error))
            return
        if missing:
            yield MissingTablesFinding(url, missing)
        yield from _check_tables(store, schemas)
        if not missing:
            yield _check_lease(store)
            if tso is not None:
                yield from _check_oracle(store, tso, clock)


def _check_spoken(address: HBaseAddress) -> Iterator[GatewayFinding]:
    """Compare what the address says of the gateways with what they speak, and where they lead."""
    importlib.import_module("omidpy.storage.hbase.idl")
    from omidpy.storage.hbase.rpc.cluster import OneCluster  # noqa: PLC0415 - see `check_gateways`

    cluster = OneCluster(address)
    for gateway, found in zip(address.gateways, check_gateways(address), strict=True):
        if found.url is None:
            yield found
            continue
        alone = dataclasses.replace(address, url="", gateways=(gateway,))
        is_as_addressed = dataclasses.replace(parse_address(found.url), url="") == alone
        problem = _cluster_problem(cluster, address, gateway) if is_as_addressed else None
        yield dataclasses.replace(found, is_as_addressed=is_as_addressed, problem=problem)


def _cluster_problem(cluster: OneCluster, address: HBaseAddress, gateway: Gateway) -> str | None:
    """Say how a gateway's HBase is not that of the gateways before it."""
    from thriftpy2.thrift import TException  # noqa: PLC0415 - of the extra

    from omidpy.storage.hbase.rpc.gateway import open_client  # noqa: PLC0415 - of the extra

    try:
        with contextlib.closing(open_client(address, *gateway)) as client:
            cluster.check(client, gateway)
    except ConfigError as error:
        return str(error)
    except (TException, OSError, EOFError):
        return None  # it answered a moment ago; the store's own calls say what is wrong
    return None


def _check_tables(store: Store, schemas: dict[str, TableSchema]) -> Iterator[Finding]:
    """Check that tables are open and forget nothing that is needed, and say whose they are."""
    ours = [one for one in schemas.values() if is_system_table(one.name) or _is_ours(one)]
    try:
        for name, state in sorted(closed_among(store, ours).items()):
            yield ClosedFinding(name, state)
    except OmidError as error:
        yield UnreadableFinding("tables", str(error))
    forgetful: list[ForgetfulFinding] = []
    for name in _SYSTEM_TABLES:
        if name in schemas:
            aging = [one.name for one in schemas[name].families if TTL_ATTRIBUTE in one.attributes]
            forgetful += [
                ForgetfulFinding(
                    name,
                    f"family {family.decode()!r} of {name} has a TTL, so that commits are "
                    f"forgotten; in the HBase shell: alter '{name}', "
                    f"{{NAME => '{family.decode()}', TTL => 'FOREVER'}}",
                )
                for family in aging
            ]
    for schema in schemas.values():
        families = transactional_families(schema)
        if is_system_table(schema.name) or not families:
            continue
        if (complaint := forgetfulness(schema, families)) is not None:
            forgetful.append(ForgetfulFinding(schema.name, complaint))
    yield from forgetful
    phoenixs = indexes(schemas.values())
    for schema in filter(_is_ours, schemas.values()):
        if (complaint := misadoption(schema)) is not None:
            yield MisadoptedFinding(schema.name, complaint)
        elif (why := index_objection(schema.name, phoenixs)) is not None:
            yield IndexedFinding(schema.name, why)
    if CONTROL_TABLE in schemas:
        yield from check_ghosts(store, schemas)
    yield from _check_ownership(store, schemas, is_sound=not forgetful)


def _is_ours(schema: TableSchema) -> bool:
    return COMMIT_TABLE_ATTRIBUTE in schema.attributes


def check_ghosts(store: Store, schemas: dict[str, TableSchema]) -> Iterator[Finding]:
    """Name the tables that are there for nobody."""
    try:
        makers = Makers(store)
        for name in sorted(makers.ghosts(schemas.values())):
            with contextlib.suppress(NoSuchTable):  # it is gone since
                yield GhostFinding(name, makers.is_written(schemas[name]))
    except OmidError as error:
        yield UnreadableFinding("tables", str(error))


def _check_ownership(
    store: Store, schemas: dict[str, TableSchema], *, is_sound: bool
) -> Iterator[Finding]:
    """Count tables by their marks alone; their cells are read by `omidpy table list`."""
    from compactor.tables.ownership import (  # noqa: PLC0415 - application
        Standing,
        hidden_tables,
        judge,
        read_ignored,
        said_of,
    )

    try:
        words = read_ignored(ControlTable(store)) if CONTROL_TABLE in schemas else {}
        hidden = list(hidden_tables(store, list(schemas.values())))
    except OmidError as error:
        yield UnreadableFinding("tables", str(error))
        return
    standings = [
        judge(schema, COMMIT_TABLE, is_ignored=said_of(schema, words).is_ignored, witness=None)
        for schema in schemas.values()
    ]
    count = Counter(found.standing for found in standings)
    for found in (*standings, *hidden):
        if found.standing is Standing.BLOCKING:
            yield BlockingFinding(found.name, found.reason)
    if is_sound:
        yield OwnershipFinding(
            owned=count[Standing.OWNED],
            ignored=count[Standing.IGNORED],
            plain=count[Standing.PLAIN],
        )


def _check_lease(store: Store) -> Finding:
    try:
        lease = read_lease(store)
        if lease is None:
            is_omids = read_leading_low_watermark(store).is_omids
            return LeaseFinding(store.url, is_held=False, is_omid_leading=is_omids)
    except OmidError as error:
        return UnreadableFinding("lease", str(error))
    return LeaseFinding(
        store.url, True, lease.address, lease.pid, lease.host, seems_gone=seems_gone(store, lease)
    )


def _check_oracle(store: Store, tso: str, clock: Clock) -> Iterator[Finding]:
    try:
        with contextlib.closing(open_oracle(store, tso)) as oracle:
            before_ms = clock.wall_ms()
            start_ts = oracle.begin().start_ts
            after_ms = clock.wall_ms()
    except OmidError as error:
        yield OracleFinding(tso, str(error))
        return
    yield OracleFinding(tso)
    yield clock_finding(start_ts, before_ms=before_ms, after_ms=after_ms)


def clock_finding(start_ts: int, *, before_ms: int, after_ms: int) -> ClockFinding:
    """Compare a timestamp with this machine's clock around the call that brought it."""
    if start_ts < FIRST_WORLD_TIMESTAMP:
        return ClockFinding(None)
    oracle_ms = start_ts // 1_000_000
    return ClockFinding(max(before_ms - oracle_ms, 0) or min(after_ms - oracle_ms, 0))
