"""`omidpy doctor`: what answers at an address, and is a store set up as it should be?

Looks and asks, and changes nothing.  Every check runs that can: one that failed hides only those
that need what it found.  A warning is something to know; a failure makes the exit code 1.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from omidpy.cli.common import AsJson, TsoAddress, print_json
from omidpy.clock import Clock, SystemClock
from omidpy.commit_table import COMMIT_TABLE, TIMESTAMP_TABLE
from omidpy.connect import open_oracle, open_store
from omidpy.control import (
    CONTROL_TABLE,
    TTL_ATTRIBUTE,
    ControlTable,
    forgetfulness,
    is_system_table,
    transactional_families,
)
from omidpy.errors import ConfigError, OmidError, UsageError
from omidpy.model import FIRST_WORLD_TIMESTAMP, TableSchema
from omidpy.oracle.discovery import read_lease
from omidpy.storage.base import Store
from omidpy.storage.hbase.address import (
    SCHEMES,
    Gateway,
    HBaseAddress,
    gateway_text,
    parse_address,
)

if TYPE_CHECKING:
    from omidpy.storage.hbase.cluster import OneCluster

EXIT_FAILED: Final = 1

LARGEST_SKEW_S: Final = 5.0
"""A snapshot may be asked for at a time at most so far above the oracle's."""

_SYSTEM_TABLES: Final = (COMMIT_TABLE, TIMESTAMP_TABLE, CONTROL_TABLE)


class Verdict(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


class Check(NamedTuple):
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    detail: str


def doctor(
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]",
            help="HOST, HOST:PORT or hbase+thrift2://... of a gateway: finds out how to speak to "
            "it.  Options for TLS and SASL in it are used.",
        ),
    ] = None,
    *,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", envvar="OMIDPY_STORE", metavar="URL", help="Check this store, too."
        ),
    ] = None,
    tso: TsoAddress = None,
    as_json: AsJson = False,
) -> None:
    """Find out what answers at a gateway's address, and check a store and its oracle.

    An exit code of 1 says that something failed.  Nothing is changed.
    """
    if address is None and store is None:
        raise UsageError("name the address of a gateway, or a store with --store, or both")
    checks: list[Check] = []
    if address is not None:
        checks.extend(check_gateways(_address(address)))
    if store is not None:
        checks.extend(check_store(store, tso, clock=SystemClock()))
    has_failed = any(check.verdict is Verdict.FAILED for check in checks)
    if as_json:
        print_json({"ok": not has_failed, "checks": [check._asdict() for check in checks]})
    else:
        for check in checks:
            typer.echo(f"{check.verdict:<7}  {check.name}: {check.detail}")
    if has_failed:
        raise typer.Exit(EXIT_FAILED)


def _address(text: str) -> HBaseAddress:
    """Return what to probe: a whole address, or `HOST:PORT` with the options that may follow."""
    return parse_address(text if "://" in text else f"hbase+thrift2://{text}")


def check_gateways(address: HBaseAddress) -> Iterator[Check]:
    """Find out how to speak to each gateway of an address."""
    # Loaded first, because it names the extra where that is not installed.
    importlib.import_module("omidpy.storage.hbase.idl")
    from omidpy.storage.hbase.probe import probe  # noqa: PLC0415

    for gateway in address.gateways:
        found = probe(address, gateway)
        name = f"gateway {gateway_text(gateway)}"
        if found.url is None:
            yield Check(name, Verdict.FAILED, found.problem or "")
        else:
            yield Check(name, Verdict.OK, f"use {found.url}")


def check_store(url: str, tso: str | None, *, clock: Clock) -> Iterator[Check]:
    """Check a store, its tables, who holds its lease, and its oracle if one is named.

    Raises:
        ConfigError: the address is no address of a store.
    """
    if url.partition("://")[0] in SCHEMES:
        yield from _check_spoken(parse_address(url))
    store = open_store(url, must_exist=True)
    with contextlib.closing(store):
        try:
            schemas = {schema.name: schema for schema in store.tables()}
        except OmidError as error:
            yield Check("store", Verdict.FAILED, str(error))
            return
        yield Check("store", Verdict.OK, f"{url} answers and has {len(schemas)} tables")
        missing = [name for name in _SYSTEM_TABLES if name not in schemas]
        if missing:
            yield Check(
                "system tables",
                Verdict.FAILED,
                f"{', '.join(missing)} missing; run `omidpy init --store {url}`",
            )
        yield from _check_tables(store, schemas)
        if not missing:
            yield _check_lease(store)
            if tso is not None:
                yield from _check_oracle(store, tso, clock)


def _check_spoken(address: HBaseAddress) -> Iterator[Check]:
    """Compare what the address says of the gateways with what they speak, and where they lead."""
    importlib.import_module("omidpy.storage.hbase.idl")
    from omidpy.storage.hbase.cluster import OneCluster  # noqa: PLC0415 - see `check_gateways`

    cluster = OneCluster(address)
    for gateway, check in zip(address.gateways, check_gateways(address), strict=True):
        alone = dataclasses.replace(address, url="", gateways=(gateway,))
        if check.verdict is not Verdict.OK:
            yield check
            continue
        found = parse_address(check.detail.removeprefix("use "))
        if dataclasses.replace(found, url="") == alone:
            problem = _cluster_problem(cluster, address, gateway)
            verdict = Verdict.FAILED if problem else Verdict.OK
            yield Check(check.name, verdict, problem or "answers as the address says")
        else:
            spoken = f"{found.api}, {found.transport} transport, {found.protocol} protocol"
            yield Check(check.name, Verdict.FAILED, f"speaks {spoken}; {check.detail}")


def _cluster_problem(cluster: OneCluster, address: HBaseAddress, gateway: Gateway) -> str | None:
    """Say how a gateway's HBase is not that of the gateways before it."""
    from thriftpy2.thrift import TException  # noqa: PLC0415 - of the extra

    from omidpy.storage.hbase.gateway import open_client  # noqa: PLC0415 - of the extra

    try:
        with contextlib.closing(open_client(address, *gateway)) as client:
            cluster.check(client, gateway)
    except ConfigError as error:
        return str(error)
    except (TException, OSError, EOFError):
        return None  # it answered a moment ago; the store's own calls say what is wrong
    return None


def _check_tables(store: Store, schemas: dict[str, TableSchema]) -> Iterator[Check]:
    """Check that no table forgets what transactions need, and say whose the tables are."""
    complaints = []
    for name in _SYSTEM_TABLES:
        if name in schemas:
            aging = [one.name for one in schemas[name].families if TTL_ATTRIBUTE in one.attributes]
            complaints += [
                f"family {family.decode()!r} of {name} has a TTL, so that commits are forgotten; "
                f"in the HBase shell: alter '{name}', {{NAME => '{family.decode()}', "
                "TTL => 'FOREVER'}"
                for family in aging
            ]
    for schema in schemas.values():
        families = transactional_families(schema)
        if is_system_table(schema.name) or not families:
            continue
        if (complaint := forgetfulness(schema, families)) is not None:
            complaints.append(complaint)
    for complaint in complaints:
        yield Check("tables", Verdict.FAILED, complaint)
    yield from _check_ownership(store, schemas, is_sound=not complaints)


def _check_ownership(
    store: Store, schemas: dict[str, TableSchema], *, is_sound: bool
) -> Iterator[Check]:
    """Count tables by their marks alone; their cells are read by `omidpy table list`."""
    from compactor.ownership import Standing, ignored_tables, judge  # noqa: PLC0415 - application

    try:
        ignored = ignored_tables(ControlTable(store)) if CONTROL_TABLE in schemas else frozenset()
    except OmidError as error:
        yield Check("tables", Verdict.FAILED, str(error))
        return
    standings = [
        judge(schema, COMMIT_TABLE, is_ignored=schema.name in ignored, witness=None)
        for schema in schemas.values()
    ]
    count = Counter(found.standing for found in standings)
    for found in standings:
        if found.standing is Standing.BLOCKING:
            yield Check("tables", Verdict.WARNING, f"{found.name} is {found.reason}")
    if not is_sound:
        return
    detail = f"{count[Standing.OWNED]} are ours"
    if count[Standing.OWNED]:
        detail += ", and forget no version that is needed"
    if count[Standing.IGNORED]:
        detail += f"; {count[Standing.IGNORED]} are ignored"
    if count[Standing.PLAIN]:
        detail += (
            f"; {count[Standing.PLAIN]} have no mark: `omidpy table list` reads them and says "
            "whether transactions wrote there"
        )
    yield Check("tables", Verdict.OK, detail)


def _check_lease(store: Store) -> Check:
    try:
        lease = read_lease(store)
    except OmidError as error:
        return Check("lease", Verdict.FAILED, str(error))
    if lease is None:
        return Check(
            "lease",
            Verdict.WARNING,
            f"no oracle holds it; start `tso-server --store {store.url}`",
        )
    where = lease.address or "inside a client's process"
    return Check("lease", Verdict.OK, f"held by {where} (pid {lease.pid} on {lease.host})")


def _check_oracle(store: Store, tso: str, clock: Clock) -> Iterator[Check]:
    try:
        oracle = open_oracle(store, tso)
    except OmidError as error:
        yield Check("oracle", Verdict.FAILED, str(error))
        return
    with contextlib.closing(oracle):
        before_ms = clock.wall_ms()
        try:
            start_ts = oracle.begin().start_ts
        except OmidError as error:
            yield Check("oracle", Verdict.FAILED, str(error))
            return
        after_ms = clock.wall_ms()
    yield Check("oracle", Verdict.OK, f"{tso} answers, and serves this store")
    yield clock_check(start_ts, before_ms=before_ms, after_ms=after_ms)


def clock_check(start_ts: int, *, before_ms: int, after_ms: int) -> Check:
    """Compare a timestamp with this machine's clock around the call that brought it."""
    if start_ts < FIRST_WORLD_TIMESTAMP:
        return Check("clocks", Verdict.OK, "timestamps of this oracle count, and tell no time")
    oracle_ms = start_ts // 1_000_000
    ahead_ms = max(before_ms - oracle_ms, 0) or min(after_ms - oracle_ms, 0)
    if abs(ahead_ms) <= LARGEST_SKEW_S * 1000:
        return Check("clocks", Verdict.OK, f"this machine and the oracle differ by {ahead_ms} ms")
    side = "ahead of" if ahead_ms > 0 else "behind"
    return Check(
        "clocks",
        Verdict.WARNING,
        f"this machine is {abs(ahead_ms) / 1000:.1f} s {side} the oracle, so that times given to "
        "snapshot(at=...) mean others; synchronise both (NTP)",
    )
