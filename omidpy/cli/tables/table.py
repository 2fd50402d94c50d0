"""`omidpy table`: which tables are ours, and how they become ours or stop to matter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

import msgspec
import typer

from omidpy.cli.common import (
    Apply,
    AsJson,
    StoreUrl,
    TsoAddress,
    UnaskedTso,
    opened,
    print_columns,
    print_json,
    say,
)
from omidpy.cli.tables.change import create, drop, truncate
from omidpy.cli.tables.settings import (
    set_settings,
    settings_text,
    unset_settings,
)
from omidpy.connect import open_oracle
from omidpy.errors import UsageError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.catalog import CONFLICT_LEVELS
from omidpy.oracle.base import Oracle
from omidpy.reports.tables import list_standings
from omidpy.storage.base import Store

if TYPE_CHECKING:
    from compactor.tables.adoption import AdoptionPlan
    from compactor.tables.census import FamilyCensus

app: Final = typer.Typer(help="Tables and whose they are.", no_args_is_help=True)

Name: TypeAlias = Annotated[str, typer.Argument(help="The table.")]
Only: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--incarnation",
        metavar="ID",
        help="Which one of its name, as it is shown without --apply: another one, or one that was "
        "restored since, is left as it is.",
    ),
]


@app.callback()
def table() -> None:
    """Tables and whose they are."""


@app.command("list")
def list_tables(*, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False) -> None:
    """List every table and what a compaction may do with it."""
    del tso
    with opened(store, only_looks=True) as open_store:
        found = list_standings(open_store)
    if as_json:
        print_json([one.document() for one in found])
    else:
        print_columns(
            ("table", "standing", ""),
            [
                (
                    one.table,
                    one.standing,
                    "; ".join(
                        text
                        for text in (
                            settings_text(dict(one.attributes)),
                            one.reason or _without(one.families_left_out),
                        )
                        if text
                    ),
                )
                for one in found
            ],
        )


@app.command()
def adopt(
    name: Annotated[str | None, typer.Argument(help="The table.")] = None,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
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
    families: Annotated[
        str | None,
        typer.Option(
            "--families",
            metavar="A,B",
            help="Own these families alone.  Default: every family.",
        ),
    ] = None,
    conflict_level: Annotated[
        str | None,
        typer.Option(
            "--conflict-level",
            metavar="|".join(CONFLICT_LEVELS),
            help="What every client of the table detects conflicts by: `conflict_level` of ours, "
            "`conflictAnalysisLevel` of Omid's.  Default: row for tables of Phoenix's, else what "
            "the table says, else cell.  To change it in a table of ours, stop its clients in "
            "Java; ours are fenced off by the oracle at --tso.",
        ),
    ] = None,
    phoenix: Annotated[
        bool | None,
        typer.Option(
            "--phoenix/--no-phoenix",
            help="In place of a table: let each compaction adopt, before it begins, every "
            "transactional table that Apache Phoenix has made by then, indexes among them; or no "
            "longer.",
        ),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema", metavar="A,B", help="With --phoenix: those of these schemas alone."
        ),
    ] = None,
    reopen: Annotated[
        bool,
        typer.Option(
            "--reopen",
            help="Keep a table of ours that a `drop_table` which was interrupted has closed: let "
            "transactions write it again.",
        ),
    ] = False,
    only: Only = None,
    as_json: AsJson = False,
) -> None:
    """Take a table of Java's, or one of plain data, for ours.  Reads it whole first.

    Every family of it becomes ours, unless --families names fewer.  One that gets a family later is
    adopted once more.

    Cells of plain data get shadow cells of their own version, so that every transaction sees them.
    Stop whoever writes to such a family without transactions before, or leave it out; cells that
    were written so nevertheless are found when the table is adopted once more.

    The oracle is asked only where the conflict level of a table of ours changes.

    With --phoenix no table is read: a rule is recorded, which each compaction follows.
    """
    is_odd = (schema and not phoenix) or (only is not None and name is None)
    if (name is None) == (phoenix is None) or is_odd:
        raise UsageError("name a table, or say --phoenix, perhaps with --schema, or --no-phoenix")
    if phoenix is not None:
        _follow_phoenix(store, schema, is_followed=phoenix, apply=apply, as_json=as_json)
        return
    assert name is not None, "it was just looked at"
    from compactor.tables.adoption import adopt as adopt_table  # noqa: PLC0415 - application
    from compactor.tables.adoption import plan_adoption  # noqa: PLC0415 - application
    from omidpy.admin.tables import check_unchanged  # noqa: PLC0415 - few open tables

    with opened(store, only_looks=not apply) as open_store:
        if reopen:
            check_unchanged(open_store, name)
        plan = plan_adoption(
            open_store,
            name,
            COMMIT_TABLE,
            families=parse_families(families),
            may_alter=alter_families,
            conflict_level=conflict_level,
            names_it=apply,
            only=only,
        )
        undecided, plain, census = plan.undecided_cells(), plan.plain_cells(), plan.census
        warning = ""
        if undecided and not accept_undecided:
            warning = (
                f"{undecided} cells of {name} have neither a shadow cell nor a commit entry: "
                "nobody would see them, and the next compaction drops them; add "
                "--accept-undecided if dead clients left them"
            )
        if apply:
            if warning:
                raise UsageError(warning)
            with _oracle_for(plan, open_store, tso) as oracle:
                converted = adopt_table(
                    open_store, plan, COMMIT_TABLE, oracle=oracle, reopens=reopen
                )
            plain, census = converted.total(), plan.census_after(converted)
    if as_json:
        print_json(
            {
                "table": name,
                "families": _texts(sorted(plan.families)),
                "families_left_out": _texts(sorted(set(census) - plan.families)),
                "applied": apply,
                "cells_converted": plain,
                "families_altered": _texts(sorted(plan.altered)),
                "cells_by_family": {
                    _text(family): msgspec.to_builtins(found) for family, found in census.items()
                },
                "conflict_level": plan.conflict_level,
                "incarnation": plan.which or None,
            }
        )
        return
    names = ", ".join(_texts(sorted(plan.families)))
    which = "" if apply else _which(plan.which)
    say(f"{'adopted' if apply else 'would adopt'} {name}{which}: families {names}")
    for family, found in sorted(census.items()):
        note = ""
        if family not in plan.families:
            note = "; left out: a transaction's cell there would keep every commit"
        elif family in plan.altered:
            note = "; keeps all versions, for ever, " + ("now" if apply else "then")
        say(f"  {_text(family)}: {_counted(found)}{note}")
    if plan.plain:
        say(
            f"{plain} cells of plain data {'got' if apply else 'would get'} shadow cells of their "
            "own version"
        )
    hint = ""
    if not (apply or plan.is_level_chosen):
        hint = "; add --conflict-level row if its clients in Java have conflictAnalysisLevel ROW"
    say(f"conflicts are detected by {plan.conflict_level}{hint}")
    if warning:
        say(warning)
    if not apply:
        say("nothing was changed; add --apply")


def _follow_phoenix(
    store: str,
    schema: str | None,
    *,
    is_followed: bool,
    apply: bool,
    as_json: bool,
) -> None:
    """Record the rule by which compactions adopt tables of Phoenix's."""
    from compactor.tables.following import Rule, followed, set_rule  # noqa: PLC0415 - application

    schemas = sorted({word.strip() for word in schema.split(",")} - {""}) if schema else []
    rule = Rule(is_followed=is_followed, schemas=tuple(schemas))
    with opened(store, only_looks=not apply) as open_store:
        waiting = [one.name for one in followed(open_store, rule)]
        if apply:
            set_rule(ControlTable(open_store), rule)
    if as_json:
        print_json(
            {
                "phoenix": is_followed,
                "schemas": schemas or None,
                "waiting": waiting,
                "applied": apply,
            }
        )
        return
    if is_followed:
        verb = "adopts" if apply else "would adopt"
        say(f"each compaction {verb} {rule}")
        say(f"the next one: {', '.join(waiting) or 'none'}")
    else:
        say(f"no compaction {'adopts' if apply else 'would adopt'} tables of Phoenix's by itself")
    if not apply:
        say("nothing was changed; add --apply")


@app.command()
def ignore(
    name: Name,
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    families: Annotated[
        str | None,
        typer.Option(
            "--families",
            metavar="A,B",
            help="These families alone: of a table of ours, those that were not adopted.",
        ),
    ] = None,
    only: Only = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Say that a table's transactions are not ours, so that it no longer holds the horizon.

    Nobody looks there any more before commits are forgotten.  If a transaction of this commit table
    did write there, its committed values may be lost.
    """
    del tso
    from compactor.tables.adoption import ignore as ignore_table  # noqa: PLC0415 - application

    named = parse_families(families)
    with opened(store, only_looks=not apply) as open_store:
        which = ignore_table(
            open_store, name, COMMIT_TABLE, families=named, is_dry_run=not apply, only=only
        )
    texts = None if named is None else _texts(named)
    if as_json:
        document = {"table": name, "families": texts, "applied": apply}
        print_json({**document, "incarnation": which or None})
        return
    what = name if texts is None else f"families {', '.join(texts)} of {name}"
    say(f"{'ignored' if apply else 'would ignore'} {what}{'' if apply else _which(which)}")
    if not apply:
        say("nothing was changed; add --apply")


@app.command()
def accept(
    name: Name,
    *,
    only: Only = None,
    store: StoreUrl,
    tso: UnaskedTso = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Say that a table was not restored from a snapshot, or that what has no proof may go.

    A table that was disabled and enabled may have been restored: cells that have neither a shadow
    cell nor a commit entry stay then, and hold the prune horizon, because they may be committed
    data.  Once accepted, the next compaction drops them.

    Accepted is the table as it was when they were counted: one that was disabled and enabled
    meanwhile is refused.
    """
    del tso
    from compactor.check.acceptance import accept as accept_table  # noqa: PLC0415 - application
    from compactor.check.acceptance import find_doubt  # noqa: PLC0415 - application

    left = 0
    with opened(store, only_looks=not apply) as open_store:
        doubt = find_doubt(open_store, name, COMMIT_TABLE, only=only)
        if apply:
            left = accept_table(open_store, doubt, COMMIT_TABLE)
    if as_json:
        print_json(
            {
                "table": name,
                "doubtful": doubt.doubtful,
                "cells": doubt.cells,
                "applied": apply,
                "doubtful_after": left if apply else doubt.doubtful,
                "incarnation": doubt.seen or None,
            }
        )
        return
    if not doubt.doubtful:
        say(f"nothing is in doubt about {name}")
        return
    cells = "all" if doubt.cells is None else str(doubt.cells)
    say(
        f"{'accepted' if apply else 'would accept'} {name}{'' if apply else _which(doubt.seen)}: "
        f"{cells} cells without a proof, at "
        f"version {doubt.doubtful} and below, go with the first compaction whose low watermark "
        "has passed them, but for those of transactions that still commit"
    )
    if left:
        say(f"they stay as long as {COMMIT_TABLE} is in doubt; accept that, too")
    if not apply:
        say("nothing was changed; add --apply")


app.command("create")(create)
app.command("drop")(drop)
app.command("truncate")(truncate)
app.command("set")(set_settings)
app.command("unset")(unset_settings)


@contextlib.contextmanager
def _oracle_for(plan: AdoptionPlan, store: Store, tso: str | None) -> Iterator[Oracle | None]:
    """Open the oracle if a plan takes one: in this process where none is named and none can be.

    A cluster's is not run here: Omid's own may be at work, of which nothing is known.
    """
    if not plan.changes_level or (tso is None and store.capabilities.remote):
        yield None
        return
    with contextlib.closing(open_oracle(store, tso)) as oracle:
        yield oracle


def parse_families(text: str | None) -> list[bytes] | None:
    """Return the families in `A,B`; None if none are named.

    Raises:
        UsageError: the list is there and names nothing.
    """
    if text is None:
        return None
    names = sorted({part.strip().encode() for part in text.split(",") if part.strip()})
    if not names:
        raise UsageError(f"--families is {text!r}; name at least one family, as in A,B")
    return names


def _which(incarnation: str) -> str:
    return f", incarnation {incarnation}" if incarnation else ""


def _without(families: Sequence[bytes]) -> str:
    names = ", ".join(_texts(families))
    return f"without {names}: adopt it once more to own every family" if names else ""


def _counted(found: FamilyCensus) -> str:
    """Return what a family holds in words; nothing is said of what it lacks."""
    parts = [f"{found.data_cells} cells", f"{found.shadow_cells} shadow cells"]
    if found.undecided_cells:
        parts.append(f"{found.undecided_cells} undecided")
    if found.plain_cells:
        parts.append(f"{found.plain_cells} of plain data")
    return ", ".join(parts)


def _text(family: bytes) -> str:
    return family.decode(errors="replace")


def _texts(families: Iterable[bytes]) -> list[str]:
    return [_text(family) for family in families]
