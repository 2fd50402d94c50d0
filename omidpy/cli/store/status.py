"""`omidpy status`: is the store alive, who decides, and how much is left to clean?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer

from omidpy.base.clock import SystemClock
from omidpy.cli.common import AsJson, StoreUrl, TsoAddress, age_s, opened, print_facts, print_json
from omidpy.cli.compaction.commit_table import count_entries
from omidpy.errors import CorruptCell, OmidError
from omidpy.facts.commit_table import COMMIT_TABLE, read_leading_low_watermark
from omidpy.facts.control import ControlTable
from omidpy.facts.leadership import read_lease
from omidpy.facts.watermarks import Watermarks
from omidpy.opening import open_oracle
from omidpy.storage.base import Store

T = TypeVar("T")

EXIT_FAILED: Final = 1

_WANTED: Final = ("exact_delete", "multi_version_scan", "checked_changes", "table_admin")
"""Capabilities whose lack a user notices."""


def status(*, store: StoreUrl, tso: TsoAddress = None, as_json: AsJson = False) -> None:
    """Show the oracle, the watermarks, the tables and the size of the commit table.

    With --tso the oracle is asked, and an exit code of 1 says that it does not serve this store.
    """
    with opened(store, only_looks=True) as open_store:
        found = collect(open_store)
        if tso is not None:
            asked = {**ask_oracle(open_store, tso), "asked_at": tso}
            found["oracle"] = {**(found["oracle"] or {}), **asked}
    if as_json:
        print_json(found)
    else:
        print_facts(described(found))
    if tso is not None and not found["oracle"]["answers"]:
        raise typer.Exit(EXIT_FAILED)


def ask_oracle(store: Store, tso: str) -> dict[str, Any]:
    """Say whether the oracle at `tso` answers for this store."""
    try:
        open_oracle(store, tso).close()
    except OmidError as error:
        return {"answers": False, "problem": str(error)}
    return {"answers": True}


def collect(store: Store) -> dict[str, Any]:
    """Return the state of a store as JSON values."""
    from compactor.pruning.unvisited import holding_back  # noqa: PLC0415 - application
    from compactor.tables.ownership import survey  # noqa: PLC0415 - application

    facts = Watermarks(ControlTable(store))
    problems: list[str] = []

    def readable(read: Callable[[], T]) -> T | None:
        """Return what is read; None, and a problem more, if it cannot be."""
        try:
            return read()
        except CorruptCell as error:
            problems.append(str(error))
            return None

    low_watermark = readable(lambda: read_leading_low_watermark(store))
    lease = readable(lambda: read_lease(store))
    prune_horizon = readable(facts.prune_horizon)
    collection_horizon = readable(facts.collection_horizon)
    tables: dict[str, list[str]] = {}
    standings = readable(lambda: survey(store, COMMIT_TABLE)) or []
    for one in standings:
        tables.setdefault(one.standing.value, []).append(one.name)
    held_back_by = {one.name for one in standings if one.reason}
    holding = readable(lambda: holding_back(store, COMMIT_TABLE, standings)) or []
    held_back_by |= {one.table for one in holding}
    return {
        "store": store.url,
        "store_id": store.store_id,
        "lacks": [name for name in _WANTED if not getattr(store.capabilities, name)],
        "oracle": lease
        and {
            "address": lease.address or None,
            "epoch": lease.epoch,
            "pid": lease.pid,
            "host": lease.host,
        },
        "low_watermark": low_watermark and low_watermark.value,
        "low_watermark_of": "omid" if low_watermark and low_watermark.is_omids else "omidpy",
        "low_watermark_age_s": low_watermark
        and age_s(low_watermark.value, now_ms=SystemClock().wall_ms()),
        "prune_horizon": prune_horizon,
        "collection_horizon": collection_horizon,
        "problems": list(dict.fromkeys(problems)),
        "tables": {
            name: tables.get(name, []) for name in ("owned", "blocking", "ignored", "plain")
        },
        "held_back_by": sorted(held_back_by),
        "commit_table": count_entries(store),
    }


def described(found: dict[str, Any]) -> dict[str, object]:
    """Return the state as lines for a person."""
    oracle, counted = found["oracle"], found["commit_table"]
    if not oracle or "pid" not in oracle:
        decides = "none holds the lease"
    else:
        where = oracle["address"] or "inside a client's process"
        decides = f"{where} (pid {oracle['pid']} on {oracle['host']})"
    if oracle and "answers" in oracle:
        answer = "answers" if oracle["answers"] else f"does not answer: {oracle['problem']}"
        decides += f"; {oracle['asked_at']} {answer}"
    age = found["low_watermark_age_s"]
    held_back_by = ", ".join(found["held_back_by"])
    return {
        "store": f"{found['store']} (id {found['store_id']})",
        **({"store lacks": ", ".join(found["lacks"])} if found["lacks"] else {}),
        "oracle": decides,
        "low watermark": _told(found["low_watermark"])
        + ("" if age is None else f", {age:.0f} s old")
        + (", of Omid's oracle" if found["low_watermark_of"] == "omid" else ""),
        "prune horizon": _told(found["prune_horizon"]),
        "collection horizon": _told(found["collection_horizon"]),
        "commit entries": counted["entries"],
        "invalidations": counted["invalidations"],
        **{f"tables {name}": ", ".join(names) or "none" for name, names in found["tables"].items()},
        **({"held back by": f"{held_back_by}; see `omidpy watermarks`"} if held_back_by else {}),
        **({"cannot be read": "\n".join(found["problems"])} if found["problems"] else {}),
    }


def _told(number: int | None) -> str:
    return "unknown, see below" if number is None else str(number)
