"""What became of one transaction."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from omidpy.base.commit_facts import INVALID
from omidpy.base.timing.clock import SystemClock
from omidpy.commit.outcome import recorded_outcome, why_never_issued
from omidpy.errors import UsageError
from omidpy.facts.commit_table import CommitTable
from omidpy.facts.control import ControlTable
from omidpy.facts.inspection import Inspection, inspect
from omidpy.facts.watermarks import Watermarks
from omidpy.model import (
    FIRST_WORLD_TIMESTAMP,
    MAX_VERSION,
    Committed,
    Forgotten,
    Timestamp,
    Undecided,
    base,
)
from omidpy.reports import servers
from omidpy.reports.texts import age_s
from omidpy.storage.base import Store


def check_start_ts(start_ts: int) -> None:
    """Refuse what cannot be the timestamp of a transaction.

    Raises:
        UsageError: it cannot.
    """
    if not 0 < start_ts < MAX_VERSION:
        raise UsageError(f"{start_ts} is no start_ts; give the one of a transaction")


def outcome_document(store: Store, start_ts: int) -> tuple[dict[str, Any], str | None]:
    """Return what the commit table alone knows as JSON, and why it cannot have begun; or None.

    Cost: 1 to 5 gets.
    """
    found = recorded_outcome(store, CommitTable(store), Timestamp(start_ts))
    never = None
    if isinstance(found, Forgotten | Undecided):
        never = why_never_issued(store, Timestamp(start_ts))
    name = type(found).__name__.lower() if never is None else "never-issued"
    commit_ts = found.commit_ts if isinstance(found, Committed) else None
    return {"start_ts": start_ts, "outcome": name, "commit_ts": commit_ts}, never


def inspected(store: Store, start_ts: int, tables: Collection[str] | None = None) -> dict[str, Any]:
    """Return everything that a store knows of a transaction, as JSON values.

    Cost: 1 commit table get, and a scan of each table.
    """
    return as_document(inspect(store, start_ts, tables=tables), now_ms=SystemClock().wall_ms())


def began_by(store: Store, start_ts: int, metrics: Sequence[str] = ()) -> dict[str, Any]:
    """Return who began a transaction, as far as that is known, as JSON values.

    Args:
        store: Remembers holds, each with its owner.
        start_ts: The transaction.
        metrics: Where each `tso-server` shows its metrics: the one that leads knows whose the
            transaction is, as long as it may commit.

    Returns:
        `began_ms`: wall time, or null where timestamps tell none; `holds`: the holds of its
        snapshot, with `name` and `owner`; `connected`: those clients that began it and are
        connected to the oracle, or null where no oracle was asked, or it does not remember.
    """
    facts = Watermarks(ControlTable(store))
    holds = [
        {"name": name, "owner": hold.owner}
        for name, hold in facts.named_holds(facts.ages(SystemClock()))
        if hold.start_ts == base(start_ts)
    ]
    told = (servers.who_began(address, base(start_ts)) for address in metrics)
    found = next((one for one in told if one is not None), None)
    return {
        "start_ts": base(start_ts),
        "began_ms": start_ts // 1_000_000 if start_ts >= FIRST_WORLD_TIMESTAMP else None,
        "holds": holds,
        "connected": None if found is None else found["connected"],
        "was_asked": found is not None,
    }


def began_text(found: Mapping[str, Any]) -> str:
    """Return what `began_by` says as a line."""
    owners = [f"{one['owner'] or 'a client'}, by the hold {one['name']}" for one in found["holds"]]
    names = [*owners, *(found["connected"] or ())]
    if names:
        return "; ".join(names)
    if not found["was_asked"]:
        return "nobody knows: no oracle that leads was asked, and no hold names it"
    if found["connected"] is None:
        return "nobody knows: the oracle remembers nothing of it"
    return "a client that is not connected any more"


def as_document(found: Inspection, *, now_ms: int) -> dict[str, Any]:
    """Return an inspection as JSON values, bytes as hex."""
    entry: int | str | None = "invalidated" if found.entry is INVALID else None
    if isinstance(found.entry, int):
        entry = found.entry
    return {
        "start_ts": found.start_ts,
        "state": str(found.state),
        "commit_ts": found.commit_ts,
        "commit_entry": entry,
        "age_s": age_s(found.start_ts, now_ms=now_ms),
        "commit_age_s": None if found.commit_ts is None else age_s(found.commit_ts, now_ms=now_ms),
        "low_watermark": found.low_watermark,
        "cell_count": found.cell_count,
        "unhealed_count": found.unhealed_count,
        "orphan_shadow_count": found.orphan_shadow_count,
        **({"malformed": list(found.malformed)} if found.malformed else {}),
        **({"unseen": list(found.unseen)} if found.unseen else {}),
        "cells": [
            {
                "table": one.table,
                "row": one.cell.row.hex(),
                "family": one.cell.family.hex(),
                "qualifier": one.cell.qualifier.hex(),
                "version": one.cell.version,
                "kind": one.kind,
                "bytes": len(one.cell.value),
                "commit_ts": one.commit_ts,
            }
            for one in found.cells
        ],
    }
