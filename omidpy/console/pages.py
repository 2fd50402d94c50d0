"""Which pages there are, and of which parts each is made."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from omidpy.console.parts import Part
from omidpy.console.sources import Sources, Visit
from omidpy.errors import OmidError, UsageError
from omidpy.fate.table.store import TableFateStore
from omidpy.manager import TransactionManager
from omidpy.reports import (
    commit_table,
    operations,
    queues,
    runs,
    servers,
    store,
    tables,
    transactions,
)
from omidpy.reports.texts import moment
from omidpy.storage.address import server_command

MAX_LETTERS: Final = 50
"""Dead letters of a queue that are shown."""
MAX_OPERATIONS: Final = 200
MAX_RUNS: Final = 30
COUNT_MAY_BE_S: Final = 20.0
"""How old a count may be that reads a whole table: it is shown with its age."""


@dataclass(frozen=True, slots=True)
class Page:
    """What one address of the console shows."""

    name: str
    """Its path."""
    title: str
    parts: Callable[[Visit], list[Part]]


# -- the oracle ------------------------------------------------------------------------------------


def _oracle(visit: Visit) -> list[Part]:
    asked = visit.addresses.tso
    return [
        Part("deciding", "Who decides", partial(_deciding, visit)),
        Part("asked", f"The oracle at {asked}", partial(_asked, visit)),
        *(
            Part(
                f"server {one}",
                f"Server {one.partition('?')[0]}",
                partial(_server, visit.sources, one),
            )
            for one in visit.addresses.metrics
        ),
    ]


def _deciding(visit: Visit) -> dict[str, Any]:
    url = visit.addresses.store
    return {
        **store.deciding(visit.cells()),
        "store": url,
        "start": server_command(url),
        "has_metrics": bool(visit.addresses.metrics),
    }


def _asked(visit: Visit) -> dict[str, Any]:
    began_s = time.monotonic()
    found = store.ask_oracle(visit.cells(), visit.addresses.tso)
    return {**found, "took_ms": 1000 * (time.monotonic() - began_s)}


def _server(sources: Sources, address: str) -> dict[str, Any]:
    looks = sources.looks(address)
    answering = [one for one in looks if not one.problem]
    before = answering[-2] if len(answering) > 1 and answering[-1] is looks[-1] else None
    found = servers.figures(looks[-1], before)
    rates = [
        servers.figures(now, then)["rates"]["commits_per_s"] or 0.0
        for then, now in itertools.pairwise(answering)
    ]
    return {**found, "commits_per_s": rates, "span_s": looks[-1].at_s - looks[0].at_s}


# -- tables ----------------------------------------------------------------------------------------


def _tables(visit: Visit) -> list[Part]:
    return [
        Part("standings", "Tables", partial(_standings, visit)),
        Part("healed", "How far rows are healed", partial(_healed, visit)),
        Part("found", "Left over, at the last compaction", partial(_found, visit)),
    ]


def _standings(visit: Visit) -> dict[str, Any]:
    found = [one.document() for one in tables.list_standings(visit.cells(), visit.surveyed())]
    return {"tables": sorted(found, key=lambda one: one["standing"] == "system")}


def _healed(visit: Visit) -> dict[str, Any]:
    from compactor.pruning.standing import read_standing  # noqa: PLC0415 - application

    return {
        **read_standing(visit.cells(), with_ranges=True, surveyed=visit.surveyed()),
        "now_ms": time.time_ns() // 1_000_000,
        "store": visit.addresses.store,
        "tso": visit.addresses.tso,
    }


def _found(visit: Visit) -> dict[str, Any]:
    known, _ = runs.recorded(visit.cells())
    ended = [one for one in known if one.report is not None and not one.report.dry_run]
    if not ended:
        return {"run": None}
    last = ended[-1]
    return {"run": last.run_id, "started": moment(last.started_ms), "tables": last.report.tables}


# -- the commit table ------------------------------------------------------------------------------


def _commit_table(visit: Visit) -> list[Part]:
    return [
        Part("ages", "Entries by age", partial(_ages, visit), COUNT_MAY_BE_S),
        Part("runs", "Compactions", partial(_runs, visit)),
    ]


def _ages(visit: Visit) -> dict[str, Any]:
    found = commit_table.count_by_age(visit.cells(), now_ms=time.time_ns() // 1_000_000)
    spans = [(commit_table.span_text(one), one) for one in found["by_age"]]
    return {
        **found,
        "spans": [(name, one["entries"]) for name, one in spans],
        "spans_of_invalidations": [
            (name, one["invalidations"]) for name, one in spans if one["invalidations"]
        ],
    }


def _runs(visit: Visit) -> dict[str, Any]:
    known, unreadable = runs.recorded(visit.cells())
    newest = known[-MAX_RUNS:]
    reported = [one for one in newest if one.report is not None]
    return {
        "horizon": store.deciding(visit.cells())["prune_horizon"],
        "runs": [(one, moment(one.started_ms), one.state()) for one in reversed(newest)],
        "labels": [moment(one.started_ms)[5:16] for one in reported],
        "series": {
            "cells healed": [one.report.cells_healed for one in reported],
            "cells dropped": [one.report.cells_dropped for one in reported],
            "entries pruned": [one.report.entries_pruned for one in reported],
        },
        "lags_h": [one.report.horizon_age_s / 3600 for one in reported if one.report.horizon_age_s],
        "unreadable": unreadable,
    }


# -- operations ------------------------------------------------------------------------------------


def _operations(visit: Visit) -> list[Part]:
    return [Part("operations", "Operations", partial(_fates, visit))]


def _fates(visit: Visit) -> dict[str, Any]:
    from omidpy.fate.listing import dump_document  # noqa: PLC0415 - only for this page
    from omidpy.fate.view import Filter, named, operation_document  # noqa: PLC0415 - the same

    found = operations.read(TableFateStore(visit.cells()))
    # Those that go on, then those that have ended, the newest of each first.
    views = sorted(
        found.views, key=lambda one: (one.operation.is_finished, -one.operation.created_ms)
    )
    chosen = views[:MAX_OPERATIONS]
    stacks = {one["txIdString"]: one["stack"] for one in dump_document(found, Filter())}
    return {
        "count": len(views),
        "operations": [
            {**operation_document(one, found), "stack": stacks[one.operation.id]} for one in chosen
        ],
        "unreadable": [(f"operation {one.id}", one.reason) for one in found.unreadable]
        + [(f"locks on {one.table}", one.reason) for one in found.unreadable_queues],
        "dangling": [
            (operation, ", ".join(named(one) for one in states))
            for operation, states in found.dangling.items()
        ],
    }


# -- export queues ---------------------------------------------------------------------------------


def _queues(visit: Visit) -> list[Part]:
    return [Part("queues", "Export queues", partial(_lags, visit.sources))]


def _lags(sources: Sources) -> dict[str, Any]:
    from omidpy.recipes.export_queue import ExportQueue  # noqa: PLC0415 - only for this page

    tm = sources.manager()
    found = [
        _or_problem({"queue": name}, partial(_queue, tm, name)) for name in ExportQueue.names(tm)
    ]
    found += [
        {"queue": name, "problem": problem} for name, problem in ExportQueue.malformed(tm).items()
    ]
    return {"queues": found}


def _queue(tm: TransactionManager, name: str) -> dict[str, Any]:
    from omidpy.recipes.export_queue import ExportQueue  # noqa: PLC0415 - only for this page

    opened = ExportQueue.open(tm, name)
    found = queues.lag_document(name, opened.counted())
    if found["dead_letters"]:
        letters = itertools.islice(opened.dead_letters(), MAX_LETTERS)
        found["letters"] = [queues.letter_document(one) for one in letters]
    return found


def _or_problem(named: dict[str, Any], load: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what is known of one among others; what cannot be read is its own affair."""
    try:
        return {**named, **load()}
    except OmidError as error:
        return {**named, "problem": str(error)}


# -- jobs ------------------------------------------------------------------------------------------

_JOB: Final = re.compile(r"t\d+_[0-9a-f]{12}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The id of a job in the name of a file: of a transaction's, or of any other."""


def _jobs(visit: Visit) -> list[Part]:
    return [
        Part(f"jobs {one}", one, partial(_folder, visit.sources, one))
        for one in visit.addresses.folders
    ]


def _folder(sources: Sources, url: str) -> dict[str, Any]:
    from omidpy.committers.places import parse_folder  # noqa: PLC0415 - of an extra
    from omidpy.reports import jobs  # noqa: PLC0415 - the same

    objects, folder = sources.objects(), parse_folder(url)
    plans = [
        _or_problem({"plan": one}, partial(jobs.document, objects, one))
        for one in jobs.half_published(objects, folder)
    ]
    begun = {str(one.get("job", "")) for one in plans}
    running: dict[str, list[int]] = {}
    for upload in objects.uploads(folder):
        job = (_JOB.search(upload.key) or [folder.below(upload.key)])[0]
        if job not in begun:
            running.setdefault(job, []).append(upload.started_ms)
    return {
        "plans": plans,
        "running": [
            {
                "job": job,
                "uploads": len(times),
                "first": moment(min(times)),
                "last": moment(max(times)),
            }
            for job, times in sorted(running.items())
        ],
    }


# -- a transaction ---------------------------------------------------------------------------------


def _transaction(visit: Visit) -> list[Part]:
    text = visit.query.get("start_ts", "").strip()
    if not text:
        return []

    def start_ts() -> int:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0
        if not number:
            raise UsageError(f"{text[:80]!r} is no start_ts; give the one of a transaction")
        transactions.check_start_ts(number)
        return number

    def outcome() -> dict[str, Any]:
        found, never = transactions.outcome_document(visit.cells(), start_ts())
        return {**found, "never": never}

    def cells() -> dict[str, Any]:
        return transactions.inspected(visit.cells(), start_ts())

    def who() -> dict[str, Any]:
        found = transactions.began_by(visit.cells(), start_ts(), visit.addresses.metrics)
        return {**found, "text": transactions.began_text(found)}

    key = text[:20]
    return [
        Part(f"outcome {key}", "Outcome", outcome),
        Part(f"who {key}", "Who began it", who),
        Part(f"cells {key}", "Cells", cells, COUNT_MAY_BE_S),
    ]


PAGES: Final = {
    page.name: page
    for page in (
        Page("oracle", "Oracle", _oracle),
        Page("tables", "Tables", _tables),
        Page("commit-table", "Commit table", _commit_table),
        Page("operations", "Operations", _operations),
        Page("queues", "Export queues", _queues),
        Page("jobs", "Jobs", _jobs),
        Page("transaction", "Transaction", _transaction),
    )
}
