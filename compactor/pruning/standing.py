"""How far is each table healed, and what holds the horizon back?  Read between two runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from compactor.horizon import (
    HOLE,
    claims_by_table,
    coverage,
    minimum,
    relevant,
    uncovered,
)
from compactor.lag import TimestampAges, holds_of
from compactor.pruning.laggards import NOT_SCANNED, known_reasons
from compactor.pruning.snapshot_holds import recorded_holds
from compactor.pruning.unvisited import Surveyed, holding_back
from compactor.report import Laggard, RunLog
from compactor.tables.ownership import Standing, TableStanding, owned, survey
from omidpy.base.timing.clock import Clock, SystemClock
from omidpy.facts.commit_table import COMMIT_TABLE, FIRST_TIMESTAMP_FACT, read_low_watermark
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.questions import Questions
from omidpy.facts.tables.sightings import NO_DOUBT
from omidpy.facts.watermarks import Claim, Watermarks
from omidpy.model import KeyRange
from omidpy.storage.base import Store

_IN_DOUBT: Final = (
    "it was disabled and enabled, restored or cloned from a snapshot, or adopted by a rule, so "
    "that no claim of it counts; `omidpy compact` says whether it holds cells without a proof"
)


def read_standing(
    store: Store,
    clock: Clock | None = None,
    *,
    with_ranges: bool = False,
    surveyed: Surveyed | None = None,
) -> dict[str, Any]:
    """Return everything that is known about claims and horizons, as JSON values.

    Args:
        store: Where.
        clock: Tells how old things are.
        with_ranges: Each of `tables` has its `ranges`, too: how far the rows of each are healed,
            without gap, neighbours differing.  `start` and `end` are hexadecimal, empty for an end
            of the table; `watermark` is 0 where no claim speaks of the rows.
        surveyed: What was seen just now; None: it is looked for.
    """
    clock = clock or SystemClock()
    control = ControlTable(store)
    facts = Watermarks(control)
    claims = facts.claims()
    standings = survey(store, COMMIT_TABLE) if surveyed is None else surveyed.standings
    by_table = claims_by_table(relevant(claims, owned(standings))[0])
    newest = max((claim.watermark for claim in claims), default=HOLE)
    laggards = list(_behind(standings, by_table, newest))
    if not any(one.reason for one in standings):
        laggards += (
            holding_back(store, COMMIT_TABLE, standings) if surveyed is None else surveyed.holding
        )
    laggards = known_reasons(RunLog(control, clock.wall_ms).runs(), laggards)
    low_watermark, horizon = read_low_watermark(store), facts.prune_horizon()
    laggards += recorded_holds(control, below=low_watermark)
    ages, stamps = facts.ages(clock), facts.stamps()
    dates = TimestampAges(facts.samples(), now_ms=clock.wall_ms())
    floor = max(horizon, control.read_number(FIRST_TIMESTAMP_FACT) or 0)
    return {
        "low_watermark": low_watermark,
        "low_watermark_age_s": dates.age_s(low_watermark),
        "prune_horizon": horizon,
        "prune_horizon_age_s": dates.age_s(horizon),
        "collection_horizon": facts.collection_horizon(),
        "holds": msgspec.to_builtins(holds_of(facts, ages)),
        "tables": [
            {
                "table": one.name,
                "watermark": minimum([one.name], _claims(one, by_table)) or HOLE,
                "standing": one.standing.value,
                **({"ranges": _ranges(_claims(one, by_table))} if with_ranges else {}),
            }
            for one in standings
            if one.standing in (Standing.OWNED, Standing.BLOCKING)
        ],
        "laggards": msgspec.to_builtins([dates.dated(one, floor=floor) for one in laggards]),
        "asked": _asked(control, standings),
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


def _ranges(claims: Sequence[Claim]) -> list[dict[str, Any]]:
    return [
        {
            "start": segment.key_range.start.hex(),
            "end": segment.key_range.end.hex(),
            "watermark": segment.watermark,
        }
        for segment in coverage(claims)
    ]


def _claims(one: TableStanding, by_table: dict[str, list[Claim]]) -> list[Claim]:
    return by_table.get(one.name, []) if one.standing is Standing.OWNED else []


def _behind(
    standings: Sequence[TableStanding], by_table: dict[str, list[Claim]], newest: int
) -> Iterator[Laggard]:
    """Yield the tables that cannot be passed over, and the parts of ours that no claim covers."""
    for one in standings:
        if one.reason:
            yield Laggard.of(one.name, KeyRange(), watermark=HOLE, reason=one.reason)
        if one.standing is not Standing.OWNED:
            continue
        for segment in uncovered(_claims(one, by_table), below=max(newest, 1)):
            yield Laggard.of(
                one.name,
                segment.key_range,
                watermark=segment.watermark,
                reason=NOT_SCANNED if one.doubtful == NO_DOUBT else _IN_DOUBT,
            )


def _asked(control: ControlTable, standings: Sequence[TableStanding]) -> list[dict[str, Any]]:
    """Return what places that no pass goes over have answered last."""
    rest = {one.name for one in standings if one.rest}
    return [
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
        for one in Questions(control).last()
        if one.table in rest
    ]
