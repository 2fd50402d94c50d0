"""`omidpy status`: is the store alive, who decides, and how much is left to clean?"""

from __future__ import annotations

from typing import Any, Final

import typer

from omidpy.cli.common import AsJson, Metrics, StoreUrl, TsoAddress, opened, print_facts, print_json
from omidpy.reports import servers
from omidpy.reports.health.findings import BY_RECORD_ALONE
from omidpy.reports.store import ask_oracle, collect
from omidpy.reports.texts import brief

EXIT_FAILED: Final = 1


def status(
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    metrics: Metrics = None,
    as_json: AsJson = False,
) -> None:
    """Show the oracle, the watermarks, the tables and the size of the commit table.

    With --tso the oracle is asked, and an exit code of 1 says that it does not serve this store.
    """
    for address in metrics or ():
        servers.parts_of(address)
    with opened(store, only_looks=True) as open_store:
        found = collect(open_store)
        if tso is not None:
            asked = {**ask_oracle(open_store, tso), "asked_at": tso}
            found["oracle"] = {**(found["oracle"] or {}), **asked}
    if metrics:
        found["servers"] = [servers.figures(servers.look_at(address)) for address in metrics]
    if as_json:
        print_json(found)
    else:
        print_facts(described(found))
    if tso is not None and not found["oracle"]["answers"]:
        raise typer.Exit(EXIT_FAILED)


def described(found: dict[str, Any]) -> dict[str, object]:
    """Return the state as lines for a person."""
    oracle, counted = found["oracle"], found["commit_table"]
    if not oracle or "pid" not in oracle:
        decides = "none holds the lease"
    else:
        where = oracle["address"] or "inside a client's process"
        decides = f"{where} (pid {oracle['pid']} on {oracle['host']})"
        if oracle["seems_gone"]:
            decides += f" {BY_RECORD_ALONE}"
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
        **{f"server {one['address']}": server_text(one) for one in found.get("servers", ())},
    }


def server_text(one: dict[str, Any]) -> str:
    """Return what a server says of itself as a line."""
    if one["problem"]:
        return f"cannot be asked: {one['problem']}"
    if not one["answers"]:
        return "stands by"
    age = one["oldest_that_can_commit_s"]
    flush = one["flush_s"]
    return (
        f"answers {one['connections']} connections; {one['commits']} commits, "
        f"{one['refused']} refused"
        + ("" if flush is None else f"; a flush takes {1000 * flush['p50']:.3g} ms, p99 ")
        + ("" if flush is None else f"{1000 * flush['p99']:.3g} ms")
        + ("" if age is None else f"; the oldest that can commit is {brief(age)} old")
    )


def _told(number: int | None) -> str:
    return "unknown, see below" if number is None else str(number)
