"""`omidpy doctor`: what answers at an address, and is a store set up as it should be?

What is looked at, and how, is `omidpy/reports/health`.  A warning is something to know; a failure
makes the exit code 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from omidpy.base.timing.clock import SystemClock
from omidpy.cli.common import AsJson, TsoAddress, print_json, say
from omidpy.errors import UsageError
from omidpy.reports.health.checks import check_address, check_installation, check_store
from omidpy.reports.health.findings import Finding, Health, document
from omidpy.reports.health.phoenix import check_phoenix

EXIT_FAILED: Final = 1


def doctor(
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]",
            help="hbase://ZOOKEEPER/hbase or hbase+rpc://MASTER: finds out whether each server "
            "can be reached.  Or HOST, HOST:PORT or hbase+thrift2://... of a gateway: finds out "
            "how to speak to it.  Options for TLS and SASL in it are used.",
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
    phoenix: Annotated[
        bool,
        typer.Option(
            "--phoenix",
            help="Check, too, what Apache Phoenix needs of the oracle, and print the file that its "
            "clients and the region servers need.",
        ),
    ] = False,
    hbase_conf: Annotated[
        Path | None,
        typer.Option(
            "--hbase-conf",
            metavar="FOLDER",
            help="With --phoenix: a copy of the folder of configuration of a region server, to be "
            "compared.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find out what answers at an address of HBase, and check a store and its oracle.

    With a store it also says what is installed here, and whether the oracle's engine is compiled.
    An exit code of 1 says that something failed.  Nothing is changed.
    """
    if address is None and store is None:
        raise UsageError("name an address of HBase, or a store with --store, or both")
    findings: list[Finding] = []
    if address is not None:
        findings.extend(check_address(address))
    if store is not None:
        findings.extend(check_store(store, tso, clock=SystemClock()))
        findings.append(check_installation())
    if phoenix:
        if store is None:
            raise UsageError("--phoenix needs the store, with --store")
        findings.extend(check_phoenix(store, hbase_conf, tso))
    elif hbase_conf is not None:
        raise UsageError("--hbase-conf belongs to --phoenix")
    has_failed = any(found.health is Health.FAILED for found in findings)
    if as_json:
        print_json({"ok": not has_failed, "checks": [document(found) for found in findings]})
    else:
        for found in findings:
            say(f"{found.health:<7}  {found.name}: {found.detail}")
    if has_failed:
        raise typer.Exit(EXIT_FAILED)
