"""`omidpy committers doctor`: what is not promised to jobs that write to a folder of a store?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import typer

from omidpy.cli.common import print_json, say
from omidpy.committers.contents import examining
from omidpy.committers.contents.examining import Conditions, Place
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.reports.health.findings import Health

EXIT_FAILED = 1


@dataclass(frozen=True, slots=True)
class DestinationFinding:
    """One thing that was looked at."""

    name: str
    health: Health
    detail: str
    facts: dict[str, Any] = field(default_factory=dict)


def examine(objects: ObjectStore, folder: Folder, *, as_json: bool) -> None:
    """Print what was found; an exit code of 1 says that jobs cannot be committed there."""
    conditions = examining.try_conditions(objects, folder)
    place = examining.look(objects, folder)
    found = [*_of_store(conditions), *_of_place(place, folder)]
    has_failed = any(one.health is Health.FAILED for one in found)
    if as_json:
        checks = [
            {"name": one.name, "verdict": str(one.health), "detail": one.detail, **one.facts}
            for one in found
        ]
        print_json({"ok": not has_failed, "destination": folder.url, "checks": checks})
    else:
        for one in found:
            say(f"{one.health:<7}  {one.name}: {one.detail}")
    if has_failed:
        raise typer.Exit(EXIT_FAILED)


def _of_store(conditions: Conditions) -> Iterator[DestinationFinding]:
    creates, swaps = conditions.creates, conditions.swaps
    yield DestinationFinding(
        "writes where nothing is",
        Health.OK if creates == "kept" else Health.FAILED,
        "the store keeps If-None-Match"
        if creates == "kept"
        else f"If-None-Match is {creates}: jobs cannot be told from each other, and none must be "
        "committed here; use a store that keeps it",
        {"if_none_match": creates},
    )
    lacks = {
        "kept": "the store keeps If-Match: jobs of this folder are isolated",
        "refused": "the store refuses If-Match: of jobs and operators that end at the same time "
        "one may not see the other, and a job that was acknowledged may be lost; let one run at a "
        "time, which jobs say, too",
        "ignored": "the store takes no notice of If-Match: of jobs and operators that end at the "
        "same time one may not see the other, and a job that was acknowledged may be lost; let "
        "one run at a time, since jobs cannot notice",
    }
    health = Health.OK if swaps == "kept" else Health.WARNING
    yield DestinationFinding("writes over what was read", health, lacks[swaps], {"if_match": swaps})


def _of_place(place: Place, folder: Folder) -> Iterator[DestinationFinding]:
    facts = {"epoch": place.epoch, "unlisted": place.unlisted}
    if place.problem:
        yield DestinationFinding(
            "head", Health.FAILED, f"no job can be committed: {place.problem}", facts
        )
    elif place.unlisted:
        detail = (
            f"it does not list the files of commits up to {place.unlisted}, so that `omidpy "
            "committers published` refuses; a job with conflict='replace' begins a list"
        )
        yield DestinationFinding("head", Health.WARNING, detail, facts)
    else:
        yield DestinationFinding("head", Health.OK, f"{place.epoch} jobs were committed", facts)
    if place.others:
        detail = (
            f"{len(place.others)} files that no job of omidpy has committed, {place.others[0]} for "
            "one: another tool writes here, whose files `published` does not list, a job with "
            "conflict='replace' removes, and which it does not see come"
        )
        yield DestinationFinding("others", Health.WARNING, detail, {"files": len(place.others)})
    for record in place.records:
        detail = (
            f"{record} is here, which no job of omidpy keeps: who reads by it sees nothing of a "
            "job, and a job with conflict='replace' removes files that it names; write elsewhere, "
            "or a Delta table with table_format='delta'"
        )
        yield DestinationFinding("record", Health.WARNING, detail, {"record": record})
    if place.unfinished:
        detail = (
            f"{len(place.unfinished)} jobs have begun to commit and not ended: run `omidpy "
            f"committers plan list {folder.url}`"
        )
        yield DestinationFinding("plans", Health.WARNING, detail, {"jobs": list(place.unfinished)})
