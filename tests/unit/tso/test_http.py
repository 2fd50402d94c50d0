"""Health and metrics: who may ask, and how many at once."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from tests.machines.tls import client_hello, counted_steps, loopback_certificate
from tso.serving import http
from tso.serving.http import (
    MAX_PAGE_COUNT,
    MAX_REQUEST_BYTES,
    MAX_SILENT_COUNT,
    HttpEndpoint,
    PrometheusMetrics,
)
from tso.serving.numbers import COUNTERS, DISTRIBUTIONS, GAUGES
from tso.serving.tls import ServerTls, TlsSettings


async def _ask(port: int, path: str) -> bytes:
    return await _ask_on(await asyncio.open_connection("127.0.0.1", port), path)


async def _ask_on(
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], path: str
) -> bytes:
    reader, writer = connection
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    return answer


async def _leave(endpoint: HttpEndpoint, writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        writer.transport.abort()
    endpoint.close()
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    for _ in range(10):  # the last sockets are closed in the turns that follow
        await asyncio.sleep(0)


def test_those_who_say_nothing_keep_nobody_from_asking_for_health(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A supervisor that hears nothing kills a healthy oracle."""
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 1000.0)

    async def main() -> None:
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        silent = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_SILENT_COUNT + 5)
        ]
        assert (await _ask(port, "/healthz")).endswith(b"ok\n")
        first, _ = silent[0]
        assert await asyncio.wait_for(first.read(), 10) == b""
        await _leave(endpoint, [writer for _, writer in silent])

    asyncio.run(main())


def test_those_who_say_nothing_push_out_nobody_at_another_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However fast they come: a scraper that is still shaking hands stays."""
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 1000.0)

    async def main() -> None:
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        scraper = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        silent = [
            await asyncio.open_connection("127.0.0.1", port) for _ in range(MAX_SILENT_COUNT + 5)
        ]
        first, _ = silent[0]
        assert await asyncio.wait_for(first.read(), 10) == b""
        assert (await _ask_on(scraper, "/healthz")).endswith(b"ok\n")
        await _leave(endpoint, [writer for _, writer in silent])

    asyncio.run(main())


def test_who_speaks_tls_where_there_is_none_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """At once, in words that most clients recognise."""

    async def main() -> None:
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(bytes.fromhex("160301"))
        answer = await asyncio.wait_for(reader.read(), 30)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.endswith(b"ask http://\n")
        await _leave(endpoint, [writer])

    asyncio.run(main())
    assert "without TLS" in caplog.text


def test_metrics_shake_hands_with_one_in_a_turn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The loop is that of the oracle, whose clients would wait for each signature."""
    cert, key = loopback_certificate(tmp_path)
    steps = counted_steps(monkeypatch)
    hello = client_hello()

    async def main() -> None:
        tls = ServerTls(TlsSettings(str(cert), str(key)))
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True, tls)
        _, port = await endpoint.start("127.0.0.1", 0)
        knocking = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in knocking:
            writer.write(hello)
        answers = asyncio.gather(*(reader.readexactly(1) for reader, _ in knocking))
        while not answers.done():
            steps.append(0)
            await asyncio.sleep(0)
        assert set(answers.result()) == {b"\x16"}
        assert sum(steps) == len(knocking)
        assert max(steps) == 1
        await _leave(endpoint, [writer for _, writer in knocking])

    asyncio.run(main())


def test_health_waits_for_no_page_of_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that nobody reads are bounded, and health has its own way."""
    # A busy machine makes so many pages in more than the time that one is given.
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", 100.0)

    async def main() -> None:
        metrics = PrometheusMetrics()
        for number in range(5000):
            metrics.gauge(f"tso.{number}" + 200 * "x", number)
        endpoint = HttpEndpoint(metrics, lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        deaf = []
        for _ in range(MAX_PAGE_COUNT):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert await asyncio.wait_for(reader.readline(), 30) == b"HTTP/1.1 200 OK\r\n"
            deaf.append(writer)
        assert (await _ask(port, "/metrics")).startswith(b"HTTP/1.1 503 ")
        assert (await _ask(port, "/healthz")).endswith(b"ok\n")
        await _leave(endpoint, deaf)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("is_healthy", "is_ready", "expected"),
    [
        (True, True, (200, 200, 200)),
        (False, True, (503, 200, 200)),
        (False, False, (503, 503, 200)),
    ],
)
def test_a_standby_is_ready_and_answers_nothing(
    *, is_healthy: bool, is_ready: bool, expected: tuple[int, ...]
) -> None:
    """A rollout waits for readiness, and a process that is not alive is ended by force."""

    async def main() -> None:
        metrics = PrometheusMetrics()
        endpoint = HttpEndpoint(metrics, lambda: is_healthy, is_ready=lambda: is_ready)
        _, port = await endpoint.start("127.0.0.1", 0)
        answers = [await _ask(port, path) for path in ("/healthz", "/readyz", "/livez")]
        assert tuple(int(one.split()[1]) for one in answers) == expected
        assert f"tso_answering {float(is_healthy)}".encode() in await _ask(port, "/metrics")
        await _leave(endpoint, [])

    asyncio.run(main())


def test_what_is_counted_is_there_from_the_start() -> None:
    """From nothing to 1 is no increase, and the first refusal would ring no alarm."""
    page = generate_latest(PrometheusMetrics().registry).decode()
    assert "tso_connections_refused_total 0.0" in page
    assert 'tso_flush_seconds_bucket{le="+Inf"} 0.0' in page
    assert "# HELP tso_flush_seconds how long the store took for a batch" in page
    assert "tso_connections " not in page


def test_every_number_that_is_reported_has_a_meaning() -> None:
    """And every meaning a number that is reported."""
    root = Path(http.__file__).parents[1]
    reported: dict[str, set[str]] = {"count": set(), "observe": set(), "gauge": set()}
    for path in root.rglob("*.py"):
        call = r"metrics\.(count|observe|gauge)\(\s*\"([^\"]+)\""
        for kind, name in re.findall(call, path.read_text("utf-8")):
            reported[kind].add(name)
    assert reported["count"] == COUNTERS.keys()
    assert reported["observe"] == DISTRIBUTIONS.keys()
    assert reported["gauge"] == GAUGES.keys()


def test_a_page_that_was_read_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scraper comes every few seconds, for months."""
    monkeypatch.setattr(http, "MAX_PAGE_COUNT", 1)

    async def main() -> None:
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        for _ in range(3):
            assert (await _ask(port, "/metrics")).startswith(b"HTTP/1.1 200 ")
        await _leave(endpoint, [])

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_", "timeout_s"), [(b"G" * 2 * MAX_REQUEST_BYTES, 1000.0), (b"GET ", 0.05)]
)
def test_what_is_no_short_request_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, request_: bytes, timeout_s: float
) -> None:
    """Neither one that is too long, nor one that never ends."""
    monkeypatch.setattr(http, "REQUEST_TIMEOUT_S", timeout_s)

    async def main() -> None:
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        with contextlib.suppress(ConnectionResetError):  # more was sent than was read
            assert await asyncio.wait_for(reader.read(), 10) == b""
        await _leave(endpoint, [writer])

    asyncio.run(main())


def test_an_oracle_that_ends_makes_no_error_of_those_who_have_said_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Behind its last line there was a traceback for each of them, which rings an alarm."""
    told: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: told.append(about))
        endpoint = HttpEndpoint(PrometheusMetrics(), lambda: True)
        _, port = await endpoint.start("127.0.0.1", 0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await _ask(port, "/healthz")  # behind that one, which has its task by now
        endpoint.close()
        for one in asyncio.all_tasks() - {asyncio.current_task()}:
            one.cancel()  # as `asyncio.run` does
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writer.close()

    asyncio.run(main())
    assert told == []
    assert caplog.records == []
