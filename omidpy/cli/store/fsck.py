"""`omidpy fsck`: does the store hold what it should hold?  And what has a repair kept?

`omidpy fsck OPTIONS` is short for `omidpy fsck check OPTIONS`.

Exit codes of a check: 0 nothing is wrong that matters as much as `--fail-on` says, or all of it was
repaired; 3 there are such findings.
"""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import (
    AsJson,
    StoreUrl,
    UnaskedTso,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.errors import ConfigError, UsageError
from omidpy.reports.texts import moment

EXIT_FINDINGS: Final = 3

app: Final = typer.Typer(
    help="Check a store, and see what repairs have kept.  "
    "`omidpy fsck OPTIONS` is short for `fsck check OPTIONS`.",
    no_args_is_help=True,
)


class Assume(StrEnum):
    """What an operator may say."""

    COMMITTED = "committed"
    ABORTED = "aborted"


class FailOn(StrEnum):
    """From which severity on findings are a failure."""

    DANGER = "danger"
    SERIOUS = "serious"
    ROUTINE = "routine"


@app.callback()
def fsck() -> None:
    """Check a store, or see what repairs have kept."""


@app.command()
def check(
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair",
            help="Heal what is committed, drop lone shadow cells, withdraw false claims, and mend "
            "what is malformed, of which a copy is kept.",
        ),
    ] = False,
    assume: Annotated[
        Assume | None,
        typer.Option(
            help="With --repair: what malformed cells are taken for, and entries, of which nothing "
            "else tells whether they have committed. Without it they are left.",
        ),
    ] = None,
    set_facts: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FACT=NUMBER",
            help="With --repair: what a fact is that cannot be read, and that only you can know: "
            "ceiling, low-watermark, first-timestamp or adopted-ceiling. For the first two you say "
            "as well that no oracle runs. May be given more than once.",
        ),
    ] = None,
    settle: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="How long to wait before what looks wrong is looked at again."
        ),
    ] = "10s",
    tables: Annotated[
        str | None, typer.Option(metavar="A,B", help="Look at these tables alone.")
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How long an entry may wait that no cell needs. Default: as a compaction's.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit with 3 only for what matters as much, or more.")
    ] = FailOn.ROUTINE,
    limit: Annotated[int, typer.Option(metavar="N", help="Findings of each kind to name.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Look for cells, entries and claims that are not as they should be.

    Others may be at work.  Reads every table of ours, and changes nothing without --repair.

    An exit code of 3 says that there are findings that were not repaired.
    """
    del tso
    from compactor.check.findings import MEANING, SEVERITY, Severity  # noqa: PLC0415 - application
    from compactor.check.fsck import Check, CheckOptions  # noqa: PLC0415 - application
    from compactor.check.malformed import Assumption  # noqa: PLC0415 - application
    from compactor.options import parse_names  # noqa: PLC0415 - application

    if assume is not None and not repair:
        raise UsageError(
            f"--assume {assume} says what to do with what cannot be known; give --repair as well"
        )
    if set_facts and not repair:
        raise UsageError(f"--set {set_facts[0]} says what to write; give --repair as well")
    options = CheckOptions(
        stated=dict(map(_stated, set_facts or ())),
        settle_s=seconds_in(settle, name="--settle", may_be_zero=True),
        is_repair=repair,
        assume=None if assume is None else Assumption(assume),
        grace_s=None if grace is None else seconds_in(grace, name="--grace", may_be_zero=True),
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
        for kind, count in report.counts.items():
            repaired = report.repaired.get(kind, 0)
            done = f", {repaired} of them repaired" if repaired else ""
            meaning = f": {MEANING[kind]}" if MEANING[kind] else ""
            say(f"{SEVERITY[kind]}: {count} {kind}{done}{meaning}")
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
    if report.left_of(Severity(fail_on)):
        raise typer.Exit(EXIT_FINDINGS)


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="COPY", help="Its name, or the beginning of it.")
    ] = None,
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    as_json: AsJson = False,
) -> None:
    """List the cells of which repairs have kept copies, or show one with what it held."""
    del tso
    from compactor.check.quarantine import Quarantine  # noqa: PLC0415 - application

    with opened(store, only_looks=True) as open_store:
        quarantine = Quarantine(open_store)
        found = [
            {"name": copy, "value": _hex(quarantine.value(copy)), **_told(kept)}
            for copy, kept in quarantine.cells()
            if copy.startswith(name or "")
        ]
    if name is not None and len(found) != 1:
        problem = "no copy" if not found else f"{len(found)} copies"
        raise UsageError(f"{problem} with a name like {name!r}; `omidpy fsck show` lists them")
    if as_json:
        print_json(found)
    elif name is not None:
        print_facts({fact.replace("_", " "): text for fact, text in found[0].items()})
    elif found:
        print_columns(
            ("name", "kept (UTC)", "table", "row", "column", "version", "value", "why, and what"),
            [
                (
                    one["name"],
                    one["when"],
                    one["table"],
                    one["row"],
                    f"{one['family']}:{one['qualifier']}",
                    one["version"],
                    _short(one["value"]),
                    f"{one['intent']}; {one['why']}",
                )
                for one in found
            ],
        )
    else:
        say("no repair has kept anything")


def _stated(text: str) -> tuple[str, int]:
    """Return the fact and the number that `--set FACT=NUMBER` names."""
    name, _, number = text.partition("=")
    if not name or not (number.isascii() and number.isdecimal()):
        raise UsageError(f"--set {text!r}: expected FACT=NUMBER, as in --set ceiling=1700000000")
    return name, int(number)


_SHOWN_DIGITS: Final = 32


def _short(text: str) -> str:
    """Return the beginning of bytes in hexadecimal; the value as a whole shows `show COPY`."""
    if len(text) <= _SHOWN_DIGITS:
        return text or "(empty)"
    return f"{text[:_SHOWN_DIGITS]}... ({len(text) // 2} bytes)"


def _hex(value: bytes | None) -> str:
    return "" if value is None else value.hex()


def _told(kept: Any) -> dict[str, Any]:
    """Return what is said of a kept cell, bytes as hex; nothing is known of one that is None."""
    return {
        "when": "" if kept is None else moment(kept.when_ms),
        "table": "" if kept is None else kept.table,
        "incarnation": "" if kept is None else kept.incarnation,
        "row": "" if kept is None else kept.row.hex(),
        "family": "" if kept is None else kept.family.hex(),
        "qualifier": "" if kept is None else kept.qualifier.hex(),
        "version": 0 if kept is None else kept.version,
        "why": "what is said of it cannot be read" if kept is None else kept.why,
        "intent": "" if kept is None else kept.intent,
    }
