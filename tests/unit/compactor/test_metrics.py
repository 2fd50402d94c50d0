"""What is exported for whoever is called at night, and the alarms of the runbook on it."""

from __future__ import annotations

import operator
import os
import re
import socket
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from compactor.lag import TimestampAges, is_late
from compactor.report import Laggard, Report
from compactor.shell.metrics import GAUGES, JOB, check_target, export, registry_of
from omidpy.base.timing.ages import Sample
from omidpy.errors import UsageError
from omidpy.model import FIRST_WORLD_TIMESTAMP, KeyRange

DAY_S: Final = 86_400.0
NOW_S: Final = 1_700_000_000.0
RUNBOOK: Final = Path(__file__).parents[3] / "docs/guide/oncall.md"


def laggard(age_s: float | None, *, table: str = "t", watermark: int = 0) -> Laggard:
    """Return rows that are behind."""
    return Laggard(table, "", "", watermark, "disabled", age_s)


# -- ages ------------------------------------------------------------------------------------------


def test_world_time_tells_its_own_age() -> None:
    """Nanoseconds, of which the oracle issues multiples of fifty."""
    ages = TimestampAges((), now_ms=2_000_000_000)
    assert ages.age_s(1_999_000 * 10**9) == 1000.0
    assert ages.age_s(2_000_001 * 10**9) == 0.0
    assert ages.age_s(FIRST_WORLD_TIMESTAMP) == 1_000_000.0


def test_timestamps_that_count_are_dated_by_the_samples() -> None:
    """By the first one that knows of it, so that the age is one that it has at least."""
    samples = [Sample(0, 10_000, 100), Sample(60_000, 70_000, 500)]
    ages = TimestampAges(samples, now_ms=100_000)
    assert [ages.age_s(one) for one in (0, 50, 100, 150, 500, 550)] == [
        None,
        90.0,
        90.0,
        30.0,
        30.0,
        None,
    ]


def test_laggard_is_as_old_as_what_it_keeps_from_going() -> None:
    """A table that was found today holds nothing that went before it was found."""
    ages = TimestampAges((), now_ms=2_000_000_000)
    behind = Laggard.of("t", KeyRange(), watermark=0, reason="")
    assert ages.dated(behind, floor=1_999_000 * 10**9).age_s == 1000.0
    newer = Laggard.of("t", KeyRange(), watermark=1_999_500 * 10**9, reason="")
    assert ages.dated(newer, floor=1_999_000 * 10**9).age_s == 500.0
    assert ages.dated(behind, floor=0).age_s is None


@pytest.mark.parametrize(
    ("age_s", "max_lag_s", "late"),
    [
        (100.0, None, False),
        (None, None, False),
        (100.0, 100.0, False),
        (100.1, 100.0, True),
        (None, 100.0, True),
    ],
)
def test_late_is_older_than_the_limit(
    age_s: float | None, max_lag_s: float | None, *, late: bool
) -> None:
    """What nobody can date has been behind for as long as anybody knows."""
    assert is_late([laggard(1.0), laggard(age_s)], max_lag_s=max_lag_s) is late
    assert not is_late([], max_lag_s=0.0)


# -- the export ------------------------------------------------------------------------------------

GOOD: Final = Report(
    entries_pruned=3,
    invalidations_pruned=2,
    bytes_dropped=77,
    low_watermark_age_s=900.0,
    horizon_age_s=DAY_S,
    entries_left=5,
    entries_growth_a_day=-1.5,
    seconds=2.5,
)


def exported(report: Report, *, exit_code: int = 0, now_s: float = NOW_S) -> dict[str, float]:
    """Return what is exported, by name without labels."""
    registry = registry_of(report, exit_code=exit_code, now_s=now_s)
    return {one.name: one.value for family in registry.collect() for one in family.samples}


def test_every_number_has_its_name() -> None:
    """And those that nobody knows are left out, since 0 would be a claim."""
    found = exported(GOOD)
    assert found.keys() == {f"{JOB}_{name}" for name in GAUGES}
    assert found[f"{JOB}_entries_pruned"] == 5
    assert found[f"{JOB}_commit_entries_growth_per_day"] == -1.5
    assert found[f"{JOB}_oldest_laggard_age_seconds"] == 0
    assert f"{JOB}_commit_entries" not in exported(Report())


def test_laggards_are_told_by_table() -> None:
    """The oldest of each; one that nobody can date is infinitely old."""
    report = Report(laggards=[laggard(5.0), laggard(7.0), laggard(None, table="u")])
    registry = registry_of(report, exit_code=3, now_s=NOW_S)

    def value(table: str) -> float | None:
        return registry.get_sample_value(f"{JOB}_laggard_age_seconds", {"table": table})

    assert (value("t"), value("u")) == (7.0, float("inf"))
    assert exported(report)[f"{JOB}_oldest_laggard_age_seconds"] == float("inf")


def test_text_file_is_one_that_prometheus_reads(tmp_path: Path) -> None:
    """For the node exporter's collector, replaced as a whole."""
    path = tmp_path / "omidpy.prom"
    for seconds in (1.0, 2.0):
        export(str(path), Report(seconds=seconds), exit_code=0, now_s=NOW_S)
    families = {one.name: one for one in text_string_to_metric_families(path.read_text())}
    assert families[f"{JOB}_duration_seconds"].samples[0].value == 2.0
    assert [one.name for one in tmp_path.iterdir()] == ["omidpy.prom"]


def test_what_is_no_file_is_written_to_and_stays(tmp_path: Path) -> None:
    """`--metrics /dev/stdout` of a user who may do so gave that name to a file, for everybody."""
    device, behind, path = tmp_path / "device", tmp_path / "behind.prom", tmp_path / "omidpy.prom"
    device.symlink_to("/dev/null")
    behind.write_text("")
    path.symlink_to(behind)
    for target in (device, path):
        export(str(target), Report(seconds=2.0), exit_code=0, now_s=NOW_S)
        assert target.is_symlink()
    assert device.is_char_device()
    assert f"{JOB}_duration_seconds 2.0" in behind.read_text()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    thread = Thread(target=lambda: read.append(pipe.read_bytes()))
    thread.start()
    export(str(pipe), Report(seconds=3.0), exit_code=0, now_s=NOW_S)
    thread.join()
    assert f"{JOB}_duration_seconds 3.0".encode() in read[0]


@pytest.fixture
def gateway() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """Return the address of a Pushgateway, and what it was sent."""
    sent: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", sent
    server.shutdown()
    thread.join()
    server.server_close()


def test_gateway_is_pushed_to(gateway: tuple[str, list[tuple[str, bytes]]]) -> None:
    """Under one job, so that each run replaces what the last one said."""
    url, sent = gateway
    export(url, GOOD, exit_code=0, now_s=NOW_S)
    ((path, body),) = sent
    assert path == f"/metrics/job/{JOB}"
    assert b"omidpy_compaction_bytes_dropped 77.0" in body


def test_run_is_done_though_nobody_takes_its_numbers(
    gateway: tuple[str, list[tuple[str, bytes]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A line on stderr says so."""
    for target in ("http://127.0.0.1:1", str(tmp_path / "gone" / "x.prom")):
        export(target, GOOD, exit_code=0, now_s=NOW_S)
        assert f"no metrics in {target}" in capsys.readouterr().err


def test_run_is_done_though_something_else_answers(capsys: pytest.CaptureFixture[str]) -> None:
    """What speaks no HTTP there is no failure of the run either."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        thread = Thread(target=answer)
        thread.start()
        target = f"http://127.0.0.1:{server.getsockname()[1]}"
        export(target, GOOD, exit_code=0, now_s=NOW_S)
        thread.join()
    assert "what answers there is no gateway: BadStatusLine" in capsys.readouterr().err


def test_place_that_cannot_be_is_refused_before_the_run(tmp_path: Path) -> None:
    """A directory, a directory that is not there, another protocol."""
    too_long = str(tmp_path / ("x" * 300))
    for target in (str(tmp_path), str(tmp_path / "gone" / "x"), "ftp://x/y", too_long):
        with pytest.raises(UsageError, match=re.escape(target)):
            check_target(target)
    for fine in (None, str(tmp_path / "x"), "http://gw:9091", "https://gw"):
        check_target(fine)


# -- the alarms of the runbook ---------------------------------------------------------------------

Rule = dict[str, Any]
COMPARED: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "==": operator.eq,
}

SINCE: Final = r"(time\(\) - )?(\w+) (>|==) ([\d.e]+)(?: or absent\((\w+)\))?"
RULES: Final = RUNBOOK.parents[2] / "deploy/prometheus/compaction.rules.yml"

FIRING: Final[dict[str, dict[str, Any]]] = {
    "OmidpyCompactionMissing": {"now_s": NOW_S - 27 * 3600},
    "OmidpyCompactionLate": {"exit_code": 4},
    "OmidpyCompactionHeldBack": {"report": Report(laggards=[laggard(5.0)])},
    "OmidpySnapshotsUnknown": {"report": Report(knows_snapshots=False)},
    "OmidpyHorizonOld": {"report": Report(horizon_age_s=4 * DAY_S)},
    "OmidpyLowWatermarkOld": {"report": Report(low_watermark_age_s=3 * DAY_S)},
    "OmidpyCommitTableGrows": {"report": Report(entries_left=1, entries_growth_a_day=2e7)},
}


def rules() -> list[Rule]:
    """Return the alert rules of the runbook."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install --group docs")
    (block,) = re.findall(r"```yaml\n(.*?)```", RUNBOOK.read_text(), re.DOTALL)
    (group,) = yaml.safe_load(block)["groups"]
    found: list[Rule] = group["rules"]
    return found


def fires(rule: Rule, **run: Any) -> bool:
    """Say whether a rule fires, after a run that ended at `now_s` and is looked at `NOW_S`."""
    found = exported(
        run.get("report", GOOD),
        exit_code=run.get("exit_code", 0),
        now_s=run.get("now_s", NOW_S),
    )
    parsed = re.fullmatch(SINCE, rule["expr"])
    assert parsed, f"{rule['expr']} is more than this understands"
    since, name, compared, limit, absent = parsed.groups()
    if name not in found:
        return bool(absent == name)
    value = NOW_S - found[name] if since else found[name]
    return COMPARED[compared](value, float(limit))


def test_every_alarm_fires_when_it_should_and_only_then() -> None:
    """An alarm on a number that nobody exports would never be heard."""
    assert {rule["alert"] for rule in rules()} == FIRING.keys()
    for rule in rules():
        assert not fires(rule), rule
        assert fires(rule, **FIRING[rule["alert"]]), rule
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]


def test_an_alarm_that_asks_for_a_time_asks_for_its_absence() -> None:
    """A series that is gone is never old: the run that is missing would be missed for ever."""
    for rule in rules():
        if rule["expr"].startswith("time()"):
            *_, name, absent = re.fullmatch(SINCE, rule["expr"]).group(2, 5)  # type: ignore[union-attr]  # `fires` has matched it
            assert absent == name


def test_the_runbook_shows_the_rules_of_the_file() -> None:
    """Whoever copies from the page gets what is tested."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install --group docs")
    groups = yaml.safe_load(RULES.read_text())["groups"]
    (shipped,) = [one["rules"] for one in groups if one["name"] == "omidpy-compaction"]
    assert rules() == shipped


def test_runbook_names_every_number() -> None:
    """Those that are exported, and no others."""
    text = RUNBOOK.read_text()
    table = text[text.index("## The numbers") : text.index("## Alarms")]
    named = set(re.findall(r"`(\w+?)(?:\{table\})?`", table)) - {"omidpy_compaction_"}
    assert named == {*GAUGES, "laggard_age_seconds"}


def test_registry_is_its_own() -> None:
    """Two runs in one process do not meet."""
    first, second = (registry_of(GOOD, exit_code=0, now_s=NOW_S) for _ in range(2))
    assert first is not second
    assert isinstance(first, CollectorRegistry)
