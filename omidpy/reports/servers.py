"""What each `tso-server` says of itself where it shows metrics: does it lead, and how fast is it?

A figure that is a rate, or a time, is of what went on between two looks; of one look alone, since
the server began.
"""

from __future__ import annotations

import http.client
import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypedDict

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.base.timing.answers import TimelyAnswer
from omidpy.errors import ConfigError
from omidpy.oracle.address import parse_address
from omidpy.oracle.tls import client_tls, context_of, options_of
from omidpy.reports.texts import age_s

LOOK_TIMEOUT_S: Final = 2.0
MAX_PAGE_BYTES: Final = 4 * 2**20

RATES: Final = {
    "begins_per_s": "tso_timestamp_allocation_total",
    "commits_per_s": "tso_commits_total",
    "refusals_per_s": "tso_aborts_total",
    "invalidations_per_s": "tso_invalidations_total",
    "fences_per_s": "tso_fences_total",
    "flush_failures_per_s": "tso_flush_failures_total",
}
REFUSALS: Final = {
    "conflict": "tso_aborts_conflict_total",
    "low watermark": "tso_aborts_low_watermark_total",
    "fence": "tso_aborts_fence_total",
    "too large": "tso_aborts_too_large_total",
    "rate": "tso_rates_refused_total",
}
UNTOLD: Final = "not asked for"
"""The reason of refusals of clients that do not want to know it, as Omid's own."""


class _Client(TypedDict):
    name: str
    connections: int


class _Company(TypedDict):
    """The page `/clients`."""

    count: int
    clients: list[_Client]


class _Began(TypedDict):
    """The page of a transaction."""

    start_ts: int
    connected: list[str] | None


@dataclass(frozen=True, slots=True)
class Look:
    """What a server said at one moment."""

    address: str
    at_s: float
    """By the monotonic clock."""
    wall_ms: int
    """By that of this machine."""
    answers: bool
    """Whether it leads and can write; else it stands by, or `problem` says what is wrong."""
    problem: str = ""
    samples: Mapping[str, float] = field(default_factory=dict)
    """By name; of a bucket of a histogram by its name and upper bound."""
    clients: Mapping[str, Any] | None = None


def look_at(address: str) -> Look:
    """Ask a server for its health, its metrics and its clients.

    Args:
        address: `HOST:PORT` of its `--metrics`; behind it the options of an oracle's address.

    Cost: 3 requests, each of at most `LOOK_TIMEOUT_S`.

    Raises:
        ConfigError: it is no such address.
    """
    parts_of(address)  # a mistake is not a server that does not answer
    try:
        status, _ = _get(address, "/healthz")
        _, page = _get(address, "/metrics")
        code, named = _get(address, "/clients")
        clients = _read(named, _Company) if code == http.client.OK else None
        return Look(
            address,
            time.monotonic(),
            time.time_ns() // 1_000_000,
            answers=status == http.client.OK,
            samples=_samples(page),
            clients=clients,
        )
    except (OSError, http.client.HTTPException, ValueError) as error:
        problem = str(error) or type(error).__name__
        now_s, now_ms = time.monotonic(), time.time_ns() // 1_000_000
        return Look(address, now_s, now_ms, answers=False, problem=problem)


def who_began(address: str, start_ts: int) -> dict[str, Any] | None:
    """Return what a leading server knows of who began a transaction; None if it does not lead.

    Returns:
        `start_ts`, and `connected`: the names of the clients that began it and are connected, or
        null where the server remembers nothing of it.
    """
    try:
        status, page = _get(address, f"/transactions/{start_ts}")
        found: dict[str, Any] = _read(page, _Began)
    except (OSError, http.client.HTTPException, ValueError):
        return None
    return found if status == http.client.OK else None


def _read(page: bytes, kind: Any) -> Any:
    """Return what a page says as JSON.

    Raises:
        ValueError: it says something else.
    """
    try:
        return msgspec.json.decode(page, type=prepared(kind))
    except UNREADABLE as error:
        raise ValueError(f"what answers there is no `tso-server`: {error}") from error


def figures(now: Look, before: Look | None = None) -> dict[str, Any]:
    """Return what a server has done as JSON values.

    Args:
        now: The newest look.
        before: An earlier one, for rates and times between the two; one of before the server began
            anew is not used.
    """
    if before is not None and _began_between(before, now):
        before = None
    seconds = None if before is None else now.at_s - before.at_s
    grown = {
        name: value - (0.0 if before is None else before.samples.get(name, 0.0))
        for name, value in now.samples.items()
    }
    refusals = {reason: int(now.samples.get(name, 0)) for reason, name in REFUSALS.items()}
    refused = int(now.samples.get("tso_aborts_total", 0))
    refusals[UNTOLD] = max(refused - sum(refusals.values()), 0)
    return {
        "address": parts_of(now.address)[2],
        "answers": now.answers,
        "problem": now.problem or None,
        "rates": {
            name: round(grown.get(sample, 0.0) / seconds, 3) if seconds else None
            for name, sample in RATES.items()
        },
        "commits": int(now.samples.get("tso_commits_total", 0)),
        "refusals": {reason: count for reason, count in refusals.items() if count},
        "refused": refused,
        "batch_answers": _distribution(grown, "tso_batch_answers"),
        "flush_s": _distribution(grown, "tso_flush_seconds"),
        "connections": int(now.samples.get("tso_connections", 0)),
        "queue_length": int(now.samples.get("tso_queue_length", 0)),
        "oldest_that_can_commit_s": _oldest_s(now),
        "held_back_by": int(now.samples.get("tso_held_back_by", 0)) or None,
        "clients": now.clients,
    }


def parts_of(address: str) -> tuple[str, int, str]:
    """Return the host, the port, and both as text.

    Raises:
        ConfigError: it is no address.
    """
    place, _, query = address.partition("?")
    try:
        host, port = parse_address(place)
        client_tls(options_of(query, address=place), address=place)
    except ConfigError as error:
        raise ConfigError(f"--metrics: {error}") from error
    return host, port, place


def _get(address: str, path: str) -> tuple[int, bytes]:
    host, port, place = parts_of(address)
    tls = client_tls(options_of(address.partition("?")[2], address=place), address=place)
    connection: http.client.HTTPConnection
    if tls is None:
        connection = http.client.HTTPConnection(host, port, timeout=LOOK_TIMEOUT_S)
    else:
        connection = http.client.HTTPSConnection(
            host, port, timeout=LOOK_TIMEOUT_S, context=context_of(tls)
        )
    made: Any = connection
    made.response_class = partial(TimelyAnswer, timeout_s=LOOK_TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_PAGE_BYTES)
    finally:
        connection.close()


def _samples(page: bytes) -> dict[str, float]:
    from prometheus_client.parser import (  # noqa: PLC0415 - only where a page is read
        text_string_to_metric_families,
    )

    found = {}
    try:
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                bound = sample.labels.get("le")
                name = sample.name if bound is None else f"{sample.name} {bound}"
                if math.isfinite(sample.value):
                    found[name] = sample.value
    except IndexError as error:  # of the parser's, on what is no such page
        raise ValueError(f"what answers there shows no metrics: {error}") from error
    return found


def _began_between(before: Look, now: Look) -> bool:
    """Say whether a counter went back, as it does where the server was started anew."""
    return any(
        now.samples.get(name, 0.0) < value
        for name, value in before.samples.items()
        if name.endswith("_total")
    )


def _oldest_s(now: Look) -> float | None:
    """Return how old a transaction may be that can still commit; None where that is not told."""
    return age_s(int(now.samples.get("tso_low_watermark", 0.0)), now_ms=now.wall_ms)


def _distribution(grown: Mapping[str, float], name: str) -> dict[str, float] | None:
    """Return count, mean, median and 99th percentile; None if there is nothing of it."""
    count = grown.get(f"{name}_count", 0.0)
    if count <= 0:
        return None
    prefix = f"{name}_bucket "
    buckets = sorted(
        (float(sample.removeprefix(prefix)), value)
        for sample, value in grown.items()
        if sample.startswith(prefix)
    )
    return {
        "count": int(count),
        "mean": grown.get(f"{name}_sum", 0.0) / count,
        "p50": quantile(buckets, 0.5),
        "p99": quantile(buckets, 0.99),
    }


def quantile(buckets: list[tuple[float, float]], part: float) -> float:
    """Return a quantile of a histogram, as Prometheus' `histogram_quantile` does.

    Args:
        buckets: Upper bounds, the last infinite, and how many are at or below each.
        part: From 0 to 1.
    """
    wanted = part * buckets[-1][1]
    for (low, below), (high, up_to) in itertools.pairwise([(0.0, 0.0), *buckets]):
        if up_to >= wanted:
            if high == float("inf") or up_to == below:
                return low
            return low + (high - low) * (wanted - below) / (up_to - below)
    return buckets[-1][0]
