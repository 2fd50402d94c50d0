"""`omidpy watermarks`: how far each table is healed, and what holds the horizon back."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import typer

from omidpy.base.clock import SystemClock
from omidpy.cli.common import (
    AsJson,
    StoreUrl,
    UnaskedTso,
    key_text,
    moment,
    opened,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.errors import UsageError
from omidpy.facts.commit_table import COMMIT_TABLE, FIRST_TIMESTAMP_FACT, read_low_watermark
from omidpy.facts.control import ControlTable
from omidpy.facts.questions import Questions
from omidpy.facts.sightings import NO_DOUBT
from omidpy.facts.watermarks import Watermarks
from omidpy.model import KeyRange
from omidpy.storage.base import Store

_IN_DOUBT: Final = (
    "it was disabled and enabled, or restored or cloned from a snapshot, so that what was claimed "
    "counts no more; `omidpy compact` says whether it holds cells without a proof"
)


def watermarks(
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    revoke_hold: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="End a hold, whose snapshot may then be too old to read."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how far each table is healed, the horizons, and who holds them back."""
    del tso
    if revoke_hold is not None:
        with opened(store) as open_store:
            revoke(open_store, revoke_hold)
    with opened(store, only_looks=True) as open_store:
        found = collect(open_store)
    if as_json:
        print_json(found)
        return
    from compactor.report import Held  # noqa: PLC0415 - application
    from compactor.shell.display import age_text, held_text  # noqa: PLC0415 - application

    numbers = ("low_watermark", "prune_horizon", "collection_horizon")
    print_facts({name.replace("_", " "): found[name] for name in numbers})
    say("")
    print_columns(
        ("table", "watermark", "standing"),
        [(one["table"], one["watermark"], one["standing"]) for one in found["tables"]],
    )
    for one in found["laggards"]:
        start = key_text(one["start"], empty="start")
        end = key_text(one["end"], empty="end")
        where = f"{one['table']} [{start}, {end}) at {one['watermark']}"
        age = "" if one["age_s"] is None else f", {age_text(one['age_s'])} old"
        say(f"held back by {where}{age}: {one['reason']}")
    for hold in found["holds"]:
        say(held_text(msgspec.convert(hold, Held)))
    for one in found["asked"]:
        said = one["answer"] or "nothing lies there"
        say(f"asked {one['table']} on {moment(one['asked_ms'])} UTC, {one['calls']} calls: {said}")
    age_s = found["low_watermark_age_s"]
    since = "" if age_s is None else f", which is {age_s:.0f} s old"
    say(f"open transactions may be as old as the low watermark{since}, and no older")


def revoke(store: Store, name: str) -> None:
    """End a hold: its versions may go once a compaction has published that for a grace.

    Raises:
        UsageError: there is none of this name.
    """
    facts = Watermarks(ControlTable(store))
    names = [known for known, _ in facts.named_holds(facts.ages(SystemClock()))]
    if name not in names:
        raise UsageError(
            f"--revoke-hold {name}: there is no such hold; there are {', '.join(names) or 'none'}"
        )
    facts.forget_hold(name)


def collect(store: Store) -> dict[str, Any]:
    """Return everything that is known about claims and horizons, as JSON values."""
    from compactor.horizon import HOLE, claims_by_table, minimum, relevant, uncovered  # noqa: PLC0415 - application
    from compactor.lag import TimestampAges, holds_of  # noqa: PLC0415 - application
    from compactor.pruning.laggards import NOT_SCANNED, known_reasons  # noqa: PLC0415 - application
    from compactor.pruning.snapshot_holds import recorded_holds  # noqa: PLC0415 - application
    from compactor.pruning.unvisited import holding_back  # noqa: PLC0415 - application
    from compactor.report import Laggard, RunLog  # noqa: PLC0415 - application
    from compactor.tables.ownership import Standing, owned, survey  # noqa: PLC0415 - application

    facts = Watermarks(ControlTable(store))
    claims = facts.claims()
    standings = survey(store, COMMIT_TABLE)
    by_table = claims_by_table(relevant(claims, owned(standings))[0])
    newest = max((claim.watermark for claim in claims), default=HOLE)
    tables: list[dict[str, Any]] = []
    laggards: list[Laggard] = []
    for one in standings:
        if one.reason:
            laggards.append(Laggard.of(one.name, KeyRange(), watermark=HOLE, reason=one.reason))
        if one.standing not in (Standing.OWNED, Standing.BLOCKING):
            continue
        is_ours = one.standing is Standing.OWNED
        of_table = by_table.get(one.name, []) if is_ours else []
        watermark = minimum([one.name], of_table) or HOLE
        tables.append({"table": one.name, "watermark": watermark, "standing": one.standing.value})
        laggards += [
            Laggard.of(
                one.name,
                segment.key_range,
                watermark=segment.watermark,
                reason=NOT_SCANNED if one.doubtful == NO_DOUBT else _IN_DOUBT,
            )
            for segment in (uncovered(of_table, below=max(newest, 1)) if is_ours else ())
        ]
    if not any(one.reason for one in standings):
        laggards += holding_back(store, COMMIT_TABLE, standings)
    laggards = known_reasons(RunLog(ControlTable(store)).runs(), laggards)
    laggards += recorded_holds(ControlTable(store), below=read_low_watermark(store))
    rest = {one.name for one in standings if one.rest}
    ages, stamps = facts.ages(SystemClock()), facts.stamps()
    dates = TimestampAges(facts.samples(), now_ms=SystemClock().wall_ms())
    low_watermark, horizon = read_low_watermark(store), facts.prune_horizon()
    first = ControlTable(store).read_number(FIRST_TIMESTAMP_FACT) or 0
    return {
        "low_watermark": low_watermark,
        "low_watermark_age_s": dates.age_s(low_watermark),
        "prune_horizon": horizon,
        "prune_horizon_age_s": dates.age_s(horizon),
        "collection_horizon": facts.collection_horizon(),
        "holds": msgspec.to_builtins(holds_of(facts, ages)),
        "tables": tables,
        "laggards": msgspec.to_builtins(
            [dates.dated(one, floor=max(horizon, first)) for one in laggards]
        ),
        "asked": [
            {
                "table": one.table,
                "families": [family.hex() for family in one.families],
                "versions": one.versions,
                "calls": one.calls,
                "cells": one.cells,
                "answer": one.answer,
                "asked_ms": one.asked_ms,
                "run": one.run,
            }
            for one in Questions(ControlTable(store)).last()
            if one.table in rest
        ],
        "claims": [
            {
                "table": claim.table,
                "start": claim.start.hex(),
                "end": claim.end.hex(),
                "families": [family.hex() for family in claim.families],
                "watermark": claim.watermark,
                "recorded_ms": claim.recorded_ms,
                "age_s": ages.age_ms(stamps.get(claim.run, ())) / 1000,
            }
            for claim in claims
        ],
    }
