"""`omidpy watermarks`: how far each table is healed, and what holds the horizon back."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from omidpy.base.documents import prepared
from omidpy.base.timing.clock import SystemClock
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
from omidpy.errors import UsageError
from omidpy.facts.control import ControlTable
from omidpy.facts.watermarks import Watermarks
from omidpy.reports.texts import key_text, moment
from omidpy.storage.base import Store


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
    from compactor.pruning.standing import read_standing  # noqa: PLC0415 - application

    with opened(store, only_looks=True) as open_store:
        found = read_standing(open_store)
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
        say(held_text(msgspec.convert(hold, prepared(Held))))
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
