"""`omidpy watermarks`: how far each table is healed, and what holds the horizon back."""

from __future__ import annotations

from typing import Any

import msgspec
import typer

from omidpy.base.clock import SystemClock
from omidpy.cli.common import (
    AsJson,
    StoreUrl,
    UnaskedTso,
    key_text,
    opened,
    print_columns,
    print_facts,
    print_json,
)
from omidpy.facts.commit_table import COMMIT_TABLE, read_low_watermark
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Watermarks
from omidpy.model import KeyRange
from omidpy.storage.base import Store


def watermarks(*, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False) -> None:
    """Show the claims of the compactor, the least watermark of each table, and the horizons."""
    del tso
    with opened(store, only_looks=True) as open_store:
        found = collect(open_store)
    if as_json:
        print_json(found)
        return
    numbers = ("low_watermark", "prune_horizon", "collection_horizon")
    print_facts({name.replace("_", " "): found[name] for name in numbers})
    typer.echo("")
    print_columns(
        ("table", "watermark", "standing"),
        [(one["table"], one["watermark"], one["standing"]) for one in found["tables"]],
    )
    for one in found["laggards"]:
        start = key_text(one["start"], empty="start")
        end = key_text(one["end"], empty="end")
        where = f"{one['table']} [{start}, {end}) at {one['watermark']}"
        typer.echo(f"held back by {where}: {one['reason']}")


def collect(store: Store) -> dict[str, Any]:
    """Return everything that is known about claims and horizons, as JSON values."""
    from compactor.horizon import HOLE, claims_by_table, minimum, relevant, uncovered  # noqa: PLC0415 - application
    from compactor.ownership import Standing, owned, survey  # noqa: PLC0415 - application
    from compactor.report import Laggard  # noqa: PLC0415 - application
    from compactor.unvisited import holding_back  # noqa: PLC0415 - application

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
                reason="not scanned since; run `omidpy compact`",
            )
            for segment in (uncovered(of_table, below=max(newest, 1)) if is_ours else ())
        ]
    if not any(one.reason for one in standings):
        laggards += holding_back(store, COMMIT_TABLE, standings)
    ages, stamps = facts.ages(SystemClock()), facts.stamps()
    return {
        "low_watermark": read_low_watermark(store),
        "prune_horizon": facts.prune_horizon(),
        "collection_horizon": facts.collection_horizon(),
        "holds": [
            {"start_ts": hold.start_ts, "expires_ms": hold.expires_ms} for hold in facts.holds(ages)
        ],
        "tables": tables,
        "laggards": msgspec.to_builtins(laggards),
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
