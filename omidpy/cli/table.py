"""`omidpy table`: which tables are ours, and how they become ours or stop to matter."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
import typer

from omidpy.cli.common import (
    Apply,
    AsJson,
    StoreUrl,
    UnaskedTso,
    opened,
    print_columns,
    print_json,
)
from omidpy.commit_table import COMMIT_TABLE
from omidpy.control import ControlTable
from omidpy.errors import UsageError

app: Final = typer.Typer(help="Tables and whose they are.", no_args_is_help=True)

Name: TypeAlias = Annotated[str, typer.Argument(help="The table.")]


@app.callback()
def table() -> None:
    """Tables and whose they are."""


@app.command("list")
def list_tables(*, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False) -> None:
    """List every table and what a compaction may do with it."""
    del tso
    from compactor.ownership import survey  # noqa: PLC0415 - application

    with opened(store) as open_store:
        standings = survey(open_store, COMMIT_TABLE)
    if as_json:
        print_json(
            [
                {
                    "table": one.name,
                    "standing": one.standing.value,
                    "families": sorted(family.decode(errors="replace") for family in one.families),
                    "reason": one.reason,
                }
                for one in standings
            ]
        )
    else:
        print_columns(
            ("table", "standing", ""),
            [(one.name, one.standing.value, one.reason) for one in standings],
        )


@app.command()
def adopt(
    name: Name,
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    apply: Apply = False,
    accept_undecided: Annotated[
        bool,
        typer.Option(
            "--accept-undecided",
            help="Adopt although some cells have neither a shadow cell nor a commit entry: the "
            "next compaction drops those at or below the low watermark.",
        ),
    ] = False,
    alter_families: Annotated[
        bool,
        typer.Option(
            "--alter-families",
            help="Let HBase keep all versions, for ever, in families that have VERSIONS or a TTL.",
        ),
    ] = False,
    conflict_level: Annotated[
        str | None,
        typer.Option(
            "--conflict-level",
            metavar="cell|row",
            help="What every client of the table detects conflicts by: `conflict_level` of ours, "
            "`conflictAnalysisLevel` of Omid's.  Default: what the table says, else cell.  Stop "
            "its clients before changing it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a table of Java's, or one of plain data, for ours.  Reads it whole first.

    Cells of plain data get shadow cells of their own version, so that every transaction sees them.
    Stop whoever writes to such a table without transactions before; cells that were written so
    nevertheless are found when the table is adopted once more.
    """
    del tso
    from compactor.adoption import adopt as adopt_table  # noqa: PLC0415 - application
    from compactor.adoption import plan_adoption  # noqa: PLC0415 - application

    with opened(store) as open_store:
        plan = plan_adoption(
            open_store,
            name,
            COMMIT_TABLE,
            may_alter=alter_families,
            conflict_level=conflict_level,
        )
        undecided, converted = plan.undecided_cells(), plan.plain_cells()
        warning = ""
        if undecided and not (accept_undecided or plan.is_owned):
            warning = (
                f"{undecided} cells of {name} have neither a shadow cell nor a commit entry: "
                "nobody would see them, and the next compaction drops them; add "
                "--accept-undecided if dead clients left them"
            )
        if apply:
            if warning:
                raise UsageError(warning)
            converted = adopt_table(open_store, plan, COMMIT_TABLE)
    families = sorted(family.decode(errors="replace") for family in plan.families)
    if as_json:
        census = {
            family.decode(errors="replace"): msgspec.to_builtins(found)
            for family, found in plan.census.items()
        }
        print_json(
            {
                "table": name,
                "families": families,
                "applied": apply,
                "cells_converted": converted,
                "families_altered": sorted(one.decode(errors="replace") for one in plan.altered),
                "cells_by_family": census,
                "conflict_level": plan.conflict_level,
            }
        )
        return
    typer.echo(f"{'adopted' if apply else 'would adopt'} {name}: families {', '.join(families)}")
    for family, found in sorted(plan.census.items()):
        note = "" if family in plan.families else "; left out: holds no shadow cell"
        if family in plan.altered:
            note += "; keeps all versions, for ever, " + ("now" if apply else "then")
        typer.echo(
            f"  {family.decode(errors='replace')}: {found.data_cells} cells, "
            f"{found.shadow_cells} shadow cells, {found.undecided_cells} undecided{note}"
        )
    if plan.plain or plan.late:
        typer.echo(
            f"{converted} cells of plain data {'got' if apply else 'would get'} shadow cells of "
            "their own version"
        )
    hint = ""
    if not (apply or plan.is_level_chosen):
        hint = "; add --conflict-level row if its clients in Java have conflictAnalysisLevel ROW"
    typer.echo(f"conflicts are detected by {plan.conflict_level}{hint}")
    if warning:
        typer.echo(warning)
    if not apply:
        typer.echo("nothing was changed; add --apply")


@app.command()
def ignore(
    name: Name,
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Say that a table's transactions are not ours, so that it no longer holds the horizon."""
    del tso
    from compactor.adoption import check_ignorable  # noqa: PLC0415 - application
    from compactor.ownership import set_ignored  # noqa: PLC0415 - application

    with opened(store) as open_store:
        check_ignorable(open_store, name, COMMIT_TABLE)
        if apply:
            set_ignored(ControlTable(open_store), name, is_ignored=True)
    if as_json:
        print_json({"table": name, "applied": apply})
        return
    typer.echo(f"{'ignored' if apply else 'would ignore'} {name}")
    if not apply:
        typer.echo("nothing was changed; add --apply")
