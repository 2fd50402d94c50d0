"""Is the store alive, who decides, and how much is left to clean?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import CorruptCell, OmidError
from omidpy.facts.commit_table import COMMIT_TABLE, read_leading_low_watermark
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import read_lease, seems_gone
from omidpy.facts.watermarks import Watermarks
from omidpy.opening import open_oracle
from omidpy.reports.commit_table import count_entries
from omidpy.reports.texts import age_s
from omidpy.storage.base import Store

T = TypeVar("T")

_WANTED: Final = ("exact_delete", "multi_version_scan", "checked_changes", "table_admin")
"""Capabilities whose lack a user notices."""


def ask_oracle(store: Store, tso: str) -> dict[str, Any]:
    """Say whether the oracle at `tso` answers for this store."""
    try:
        open_oracle(store, tso).close()
    except OmidError as error:
        return {"answers": False, "problem": str(error)}
    return {"answers": True}


def _readable(read: Callable[[], T], problems: list[str]) -> T | None:
    """Return what is read; None, and a problem more, if it cannot be."""
    try:
        return read()
    except CorruptCell as error:
        problems.append(str(error))
        return None


def deciding(store: Store) -> dict[str, Any]:
    """Return who decides, and the horizons, as JSON values; `problems` has what cannot be read.

    Cost: a few gets.
    """
    facts = Watermarks(ControlTable(store))
    problems: list[str] = []
    low_watermark = _readable(lambda: read_leading_low_watermark(store), problems)
    lease = _readable(lambda: read_lease(store), problems)
    prune_horizon = _readable(facts.prune_horizon, problems)
    collection_horizon = _readable(facts.collection_horizon, problems)
    return {
        "oracle": lease
        and {
            "address": lease.address or None,
            "epoch": lease.epoch,
            "pid": lease.pid,
            "host": lease.host,
            "seems_gone": seems_gone(store, lease),
        },
        "low_watermark": low_watermark and low_watermark.value,
        "low_watermark_of": "omid" if low_watermark and low_watermark.is_omids else "omidpy",
        "low_watermark_age_s": low_watermark
        and age_s(low_watermark.value, now_ms=SystemClock().wall_ms()),
        "prune_horizon": prune_horizon,
        "collection_horizon": collection_horizon,
        "problems": problems,
    }


def collect(store: Store) -> dict[str, Any]:
    """Return the state of a store as JSON values.  Cost: reads the whole commit table."""
    from compactor.pruning.unvisited import holding_back  # noqa: PLC0415 - application
    from compactor.tables.ownership import survey  # noqa: PLC0415 - application

    decides = deciding(store)
    problems = decides["problems"]
    tables: dict[str, list[str]] = {}
    standings = _readable(lambda: survey(store, COMMIT_TABLE), problems) or []
    for one in standings:
        tables.setdefault(one.standing.value, []).append(one.name)
    held_back_by = {one.name for one in standings if one.reason}
    holding = _readable(lambda: holding_back(store, COMMIT_TABLE, standings), problems) or []
    held_back_by |= {one.table for one in holding}
    return {
        "store": store.url,
        "store_id": store.store_id,
        "lacks": [name for name in _WANTED if not getattr(store.capabilities, name)],
        **decides,
        "problems": list(dict.fromkeys(problems)),
        "tables": {
            name: tables.get(name, []) for name in ("owned", "blocking", "ignored", "plain")
        },
        "held_back_by": sorted(held_back_by),
        "commit_table": count_entries(store),
    }
