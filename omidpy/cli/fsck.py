"""`omidpy fsck`: does the store hold what it should hold?

Exit codes: 0 nothing is wrong, or all of it was repaired; 3 there are findings.
"""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from omidpy.cli.common import AsJson, StoreUrl, UnaskedTso, opened, print_facts, print_json, say
from omidpy.errors import ConfigError

EXIT_FINDINGS: Final = 3


def fsck(
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Heal what is committed, drop lone shadow cells, withdraw false claims.",
        ),
    ] = False,
    settle: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long to wait before what looks wrong is looked at again."
        ),
    ] = "10s",
    tables: Annotated[
        str | None, typer.Option(metavar="A,B", help="Look at these tables alone.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Findings of each kind to name.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Look for cells, entries and claims that are not as they should be.

    Others may be at work.  Reads every table of ours, and changes nothing without --repair.

    An exit code of 3 says that there are findings that were not repaired.
    """
    del tso
    from compactor.findings import MEANING  # noqa: PLC0415 - application
    from compactor.fsck import Check, CheckOptions  # noqa: PLC0415 - application
    from compactor.options import parse_duration, parse_names  # noqa: PLC0415 - application

    options = CheckOptions(
        settle_s=parse_duration(settle, name="--settle"),
        is_repair=repair,
        most_named=limit,
        tables=None if tables is None else parse_names(tables, name="--tables"),
    )
    with opened(store) as open_store:
        if not open_store.capabilities.multi_version_scan:
            raise ConfigError(
                f"{store} cannot scan every version, which a check needs; open the store through "
                "Thrift2"
            )
        report = Check(open_store, options, sleep=time.sleep).run()
    if as_json:
        print_json(report.document())
    else:
        for finding in report.findings:
            say(finding.text())
        for kind, count in sorted(report.counts.items()):
            repaired = report.repaired.get(kind, 0)
            done = f", {repaired} of them repaired" if repaired else ""
            meaning = f": {MEANING[kind]}" if MEANING[kind] else ""
            say(f"{count} {kind}{done}{meaning}")
        for note in report.notes:
            say(f"note: {note}")
        print_facts(
            {
                "findings": report.left or "none",
                "read": f"{report.rows_read:,} rows, {report.cells_read:,} cells, "
                f"{report.entries_read:,} entries, {report.invalidations:,} of them invalidations",
                "judged up to": report.low_watermark,
            }
        )
    if report.left:
        raise typer.Exit(EXIT_FINDINGS)
