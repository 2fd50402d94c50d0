"""What a `tso-server` says of itself, as figures."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from omidpy.errors import ConfigError
from omidpy.reports.servers import UNTOLD, Look, figures, look_at, parts_of, quantile, who_began
from tests.machines.speaker import Speaker
from tso.serving.http import HttpEndpoint, PrometheusMetrics

WORLD = 1_800_000_000_000_000_000


def look(at_s: float, *, answers: bool = True, **samples: float) -> Look:
    """Return what was seen at a moment."""
    named = {name.replace("__le_", " "): value for name, value in samples.items()}
    return Look("h:1", at_s, WORLD // 1_000_000, answers=answers, samples=named)


def test_a_rate_is_of_what_went_on_between_two_looks() -> None:
    """Of one look alone nobody can tell."""
    before, now = look(10, tso_commits_total=100), look(14, tso_commits_total=160)
    assert figures(now, before)["rates"]["commits_per_s"] == 15
    assert figures(now)["rates"]["commits_per_s"] is None
    assert figures(now)["commits"] == 160


def test_a_server_that_began_anew_has_no_rate_yet() -> None:
    """Its counters went back, and the difference would be negative."""
    found = figures(look(14, tso_commits_total=5), look(10, tso_commits_total=100))
    assert found["rates"]["commits_per_s"] is None


def test_refusals_have_reasons_and_the_rest_is_said_to_be_untold() -> None:
    """Omid's clients do not ask why."""
    found = figures(
        look(1, tso_aborts_total=10, tso_aborts_conflict_total=6, tso_rates_refused_total=1)
    )
    assert found["refusals"] == {"conflict": 6, "rate": 1, UNTOLD: 3}
    assert figures(look(1))["refusals"] == {}


def test_the_oldest_that_can_commit_is_told_by_time() -> None:
    """And by nobody where timestamps count."""
    found = figures(look(1, tso_low_watermark=float(WORLD - 900_000_000_000)))
    assert found["oldest_that_can_commit_s"] == pytest.approx(900, abs=0.01)
    assert figures(look(1, tso_low_watermark=700))["oldest_that_can_commit_s"] is None


def test_times_are_of_what_went_on_between_two_looks() -> None:
    """What was slow last week is no news."""

    def at(at_s: float, count: int, total_s: float, fast: int) -> Look:
        name = "tso_flush_seconds"
        samples = {
            f"{name}_count": float(count),
            f"{name}_sum": total_s,
            f"{name}_bucket 0.01": float(fast),
            f"{name}_bucket +Inf": float(count),
        }
        return Look("h:1", at_s, 0, answers=True, samples=samples)

    before, now = at(1, 10, 50, 0), at(2, 20, 50.05, 10)
    found = figures(now, before)["flush_s"]
    assert found == {"count": 10, "mean": pytest.approx(0.005), "p50": 0.005, "p99": 0.0099}
    assert figures(now, now)["flush_s"] is None


@pytest.mark.parametrize(("part", "expected"), [(0.25, 0.5), (0.5, 1.0), (0.75, 2.0), (0.99, 3.0)])
def test_a_quantile_lies_within_its_bucket(part: float, expected: float) -> None:
    """In the last one, which has no end, it is where that begins."""
    buckets = [(1.0, 4.0), (3.0, 8.0), (float("inf"), 8.0)]
    assert quantile(buckets, part) == pytest.approx(expected, abs=0.05)
    assert quantile([(1.0, 0.0), (float("inf"), 5.0)], 0.5) == 1.0


class Company:
    """A server with two clients, one of which is hostile."""

    def connected(self) -> dict[str, int]:
        """Return them."""
        return {"etl": 3, "<b>": 1}

    def who_began(self, start_ts: int) -> list[str] | None:
        """Know one transaction."""
        return {50: ["etl@10.0.0.7:5000"], 100: []}.get(start_ts)


@contextlib.contextmanager
def endpoint(company: Company | None) -> Iterator[str]:
    """Serve metrics in a thread; give the address."""
    loop = asyncio.new_event_loop()
    metrics = PrometheusMetrics()
    metrics.count("tso.commits", 7)
    metrics.observe("tso.flush.seconds", 0.002)
    made = HttpEndpoint(metrics, lambda: company is not None, company=lambda: company)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        listening = asyncio.run_coroutine_threadsafe(made.start("127.0.0.1", 0), loop)
        yield f"127.0.0.1:{listening.result(30)[1]}"
    finally:
        loop.call_soon_threadsafe(made.close)
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
        loop.close()


def test_a_server_that_leads_is_looked_at() -> None:
    """Its health, its numbers and its clients."""
    with endpoint(Company()) as address:
        found = figures(look_at(address))
        assert (found["answers"], found["problem"], found["commits"]) == (True, None, 7)
        assert found["flush_s"]["count"] == 1
        named = found["clients"]
        assert named == {
            "count": 2,
            "clients": [{"name": "etl", "connections": 3}, {"name": "<b>", "connections": 1}],
        }
        assert who_began(address, 50) == {"start_ts": 50, "connected": ["etl@10.0.0.7:5000"]}
        assert who_began(address, 100) == {"start_ts": 100, "connected": []}
        assert who_began(address, 150) == {"start_ts": 150, "connected": None}
        assert who_began(address, 10**19 - 1) == {"start_ts": 10**19 - 1, "connected": None}


def test_one_that_stands_by_says_so_and_knows_nobody() -> None:
    """It has no clients."""
    with endpoint(None) as address:
        found = figures(look_at(address))
        assert (found["answers"], found["problem"], found["clients"]) == (False, None, None)
        assert who_began(address, 50) is None


def test_one_that_is_not_there_is_a_problem_and_no_error() -> None:
    """Of this server: the others are looked at."""
    found = figures(look_at("127.0.0.1:1"))
    assert found["answers"] is False
    assert "refused" in found["problem"]


@pytest.mark.parametrize("address", ["", "h:0", "h:1?ca=x", "h:1?tls=maybe"])
def test_what_is_no_address_is_refused(address: str) -> None:
    """Before anything is watched."""
    with pytest.raises(ConfigError, match="--metrics"):
        parts_of(address)


def test_one_that_drips_is_a_problem_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte came in time, so that `omidpy status` and a page of the console never came."""
    monkeypatch.setattr("omidpy.reports.servers.LOOK_TIMEOUT_S", 0.3)

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(50):
            connection.sendall(b"a")
            time.sleep(0.05)
        connection.sendall(b"\r\nContent-Length: 0\r\n\r\n")

    speaker = Speaker(drip)
    try:
        found = look_at(speaker.address)
    finally:
        speaker.close()
    assert not found.answers
    assert "timed out" in found.problem or "in time" in found.problem


@pytest.mark.parametrize(
    "page", [b'a{le="1", ="x"} 3 1 2\n', b'a{le="1", ="\\n"} 3 1 2\n', b"\xff"]
)
def test_what_shows_no_metrics_is_a_problem(page: bytes) -> None:
    """Another program listens there."""

    def speak(connection: socket.socket) -> None:
        connection.sendall(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(page)
        )
        connection.sendall(page)
        connection.shutdown(socket.SHUT_WR)

    speaker = Speaker(speak)
    try:
        assert not look_at(speaker.address).answers
    finally:
        speaker.close()


@pytest.mark.parametrize(
    "page", [b"[" * 100_000, b"[]", b'{"count": "x", "clients": []}', b'{"count": 1}', b'"\xff"']
)
def test_a_page_of_another_program_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, page: bytes
) -> None:
    """The command ended with an error that named no server."""
    pages = {"/metrics": (200, b"tso_queue_length 3\n"), "/healthz": (200, b"")}
    monkeypatch.setattr("omidpy.reports.servers._get", lambda _, path: pages.get(path, (200, page)))
    found = look_at("h:1")
    assert not found.answers
    assert "no `tso-server`" in found.problem
    assert who_began("h:1", 1) is None


def test_a_number_that_is_none_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the figures of it would be an error."""
    page = b"tso_commits_total NaN\ntso_connections +Inf\ntso_queue_length 3\n"
    monkeypatch.setattr("omidpy.reports.servers._get", lambda _, path: (404, page))
    found = figures(look_at("h:1"))
    assert (found["commits"], found["connections"], found["queue_length"]) == (0, 0, 3)
