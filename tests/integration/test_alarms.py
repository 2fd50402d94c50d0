"""Every alarm rings on the numbers of a real trouble, and is silent before it.

The numbers are those of real processes, or of the real functions behind them; whether a rule rings
on them says promtool, and in one case a real Prometheus that scrapes a real oracle.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from compactor.report import Laggard, Report
from compactor.shell.metrics import registry_of
from omidpy.errors import ExportError
from omidpy.fate.operation import Status
from omidpy.fate.table.rows import GUARD, row_of
from omidpy.fate.table.store import FATE_TABLE, TableFateStore
from omidpy.model import CellId, Column, Timestamp
from omidpy.oracle.tcp import TcpOracle
from omidpy.prometheus import register_export, register_fate, show_plans
from omidpy.recipes.export_queue import Poison
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.entries import counting
from omidpy.recipes.export_queue.entries.adding import NS_PER_S
from omidpy.recipes.export_queue.upkeep import lag
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.memory import MemoryStore
from omidpy.testing.fate.basics import an_operation
from tests.machines.export_queues import Scene
from tests.machines.processes import ServerProcess, tso_server
from tests.machines.waiting import wait_for
from tests.machines.watching.oracles import Watched, asked, watch
from tests.machines.watching.promtool import (
    ROOT,
    RULES,
    Case,
    Stage,
    alarms,
    check,
    needs_promtool,
    rule_alone,
    run_promtool,
)
from tso.core.age import MAX_HOLDS_OF_ONE, MAX_WORLD_LEAD_MS
from tso.core.settings import Settings

pytestmark = [pytest.mark.integration, needs_promtool]

DAY_S: Final = 86_400.0
SMALL: Final = Settings(timestamps="world", conflict_map_size=2**8)
GUIDES: Final = ROOT / "docs" / "guide"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a store that no oracle has served yet."""
    return f"sqlite:///{tmp_path}/s.db"


def before_and_behind(alarm: str, pages: list[str], minutes: float = 1, **more: Any) -> Case:
    """Return the case of an alarm that rings so many minutes behind a trouble."""
    before, behind = pages
    return Case(alarm, (Stage(before, 30), Stage(behind, minutes, **more)))


# -- the oracle ------------------------------------------------------------------------------------


@contextmanager
def oracle_process(url: str) -> Iterator[ServerProcess]:
    """Run an oracle that serves metrics."""
    with tso_server(url, "--metrics", "127.0.0.1:0") as server:
        yield server


@pytest.fixture(scope="module")
def led(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the page of an instance that stands by, then of four that lead, one after another."""
    url = f"sqlite:///{tmp_path_factory.mktemp('led')}/s.db"
    with ExitStack() as stack:
        instances = [stack.enter_context(oracle_process(url))]
        assert instances[0].address
        instances += [stack.enter_context(oracle_process(url)) for _ in range(3)]
        for one in instances[1:]:
            one.wait_for("^standby ")
        pages = [asked(instances[-1])[1]]
        while instances:
            leads = answering(instances)
            pages.append(asked(leads)[1])
            leads.kill()
            instances.remove(leads)
        return pages


def answering(instances: list[ServerProcess]) -> ServerProcess:
    """Return the one that leads, as soon as one does."""
    found: list[ServerProcess] = []

    def is_found() -> bool:
        found[:] = [one for one in instances if "listening on " in one.log]
        return bool(found)

    wait_for(is_found, 60)
    return found[0]


def test_it_rings_when_no_oracle_leads(led: list[str], tmp_path: Path) -> None:
    """Where all have gone, and where one is left that only stands by."""
    waits, well, *_ = led
    assert "tso_answering 1.0" in well
    check(Case("OmidpyNoLeader", (Stage(well, 30), Stage("", 3))), tmp_path)
    check(Case("OmidpyNoLeader", (Stage(well, 30), Stage(waits, 3))), tmp_path)


def test_it_rings_when_the_lease_changes_hands_again_and_again(
    led: list[str], tmp_path: Path
) -> None:
    """Each instance begins above the last one."""
    _, *pages = led
    epochs = [float(re.findall(r"^tso_epoch (\S+)", page, re.MULTILINE)[0]) for page in pages]
    assert all(one < other for one, other in pairwise(epochs))
    first, *others = pages
    once = Case("OmidpyLeaseFlaps", (Stage(first, 30), Stage(others[0], 10), Stage("", 1)))
    with pytest.raises(AssertionError):
        check(once, tmp_path)
    flaps = (Stage(others[0], 2), Stage(others[1], 2), Stage(others[2], 2))
    story = Stage(first, 30), *flaps
    check(Case("OmidpyLeaseFlaps", story), tmp_path)


def test_it_rings_when_the_store_is_slow(tmp_path: Path) -> None:
    """A commit waits for a flush."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        watched.store.pause_s = 0.4
        assert commit(oracle, 1)

    pages = watch(SMALL, story)
    check(before_and_behind("OmidpyFlushSlow", pages, 15, grows=True), tmp_path)


def test_it_rings_when_the_store_does_not_take_a_batch(tmp_path: Path) -> None:
    """Which is tried until it does."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        watched.store.failures = 2
        assert commit(oracle, 1)

    check(before_and_behind("OmidpyFlushFails", watch(SMALL, story)), tmp_path)


def commit(oracle: TcpOracle, *cells: int, start_ts: Timestamp | None = None) -> bool:
    """Commit a transaction that wrote these cells; say whether it was granted."""
    start_ts = oracle.begin().start_ts if start_ts is None else start_ts
    verdict = oracle.commit(start_ts, [CellId(cell) for cell in cells], [])
    return hasattr(verdict, "commit_ts")


def test_it_rings_when_the_map_is_turned_over_too_soon(tmp_path: Path) -> None:
    """More cells are written within the age of a transaction than the map holds."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        for number in range(8):
            watched.clock.advance(60.0)
            assert commit(oracle, *range(60 * number, 60 * number + 60))

    pages = watch(SMALL, story)
    check(before_and_behind("OmidpyMapTurnsOver", pages, 10), tmp_path)


def test_it_rings_when_somebody_is_refused(tmp_path: Path) -> None:
    """Here it holds too many snapshots."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        del watched
        for _ in range(MAX_HOLDS_OF_ONE + 1):
            oracle.begin(hold_s=60.0)

    check(before_and_behind("OmidpyOracleRefuses", watch(SMALL, story)), tmp_path)


def test_it_rings_when_most_commits_are_refused(tmp_path: Path) -> None:
    """Two write the same cell, and a third one."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        del watched
        begun = [oracle.begin().start_ts for _ in range(3)]
        granted = [commit(oracle, 7, start_ts=start_ts) for start_ts in begun]
        assert granted == [True, False, False]

    check(before_and_behind("OmidpyManyAborts", watch(SMALL, story), 30, grows=True), tmp_path)


def test_it_rings_when_the_clock_leaps(tmp_path: Path) -> None:
    """And the oracle does not believe it."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        watched.clock.step_wall(milliseconds=MAX_WORLD_LEAD_MS + 60_000)
        oracle.begin()

    check(before_and_behind("OmidpyClockNotBelieved", watch(SMALL, story)), tmp_path)


def test_it_rings_when_one_transaction_is_waited_for(tmp_path: Path) -> None:
    """One that asked to be held, and is older than others may be."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        oracle.begin(hold_s=7200.0)
        for _ in range(3):
            watched.clock.advance(600.0)
            watched.page_from_elsewhere()

    check(before_and_behind("OmidpyLowWatermarkHeld", watch(SMALL, story), 90), tmp_path)


def test_it_rings_when_there_is_no_place_left(tmp_path: Path) -> None:
    """Those that say nothing have few."""

    def story(watched: Watched, oracle: TcpOracle) -> None:
        host, port = watched.address.rsplit(":", 1)
        silent = [socket.create_connection((host, int(port))) for _ in range(6)]
        oracle.begin()
        wait_for(
            lambda: "tso_connections_refused_total 0.0" not in watched.page_from_elsewhere(), 10
        )
        for one in silent:
            one.close()

    check(before_and_behind("OmidpyPlacesUsedUp", watch(SMALL, story)), tmp_path)


# -- the compaction --------------------------------------------------------------------------------


def ended(report: Report, *, exit_code: int = 0, now_s: float = 0.0) -> str:
    """Return what a run leaves, which came to its end at `now_s`."""
    page: bytes = generate_latest(registry_of(report, exit_code=exit_code, now_s=now_s))
    return page.decode()


GOOD: Final = Report(
    low_watermark_age_s=900.0, horizon_age_s=DAY_S, entries_left=5, entries_growth_a_day=-1.5
)
LAGS: Final = Report(laggards=[Laggard("t", "", "", 0, "disabled", 5.0)])
BAD_RUNS: Final[dict[str, tuple[str, float]]] = {
    "OmidpyCompactionLate": (ended(LAGS, exit_code=4), 1),
    "OmidpyCompactionHeldBack": (ended(LAGS, exit_code=3), 3.5 * 1440),
    "OmidpySnapshotsUnknown": (ended(Report(knows_snapshots=False)), 1),
    "OmidpyHorizonOld": (ended(Report(horizon_age_s=4 * DAY_S)), 1),
    "OmidpyLowWatermarkOld": (ended(Report(low_watermark_age_s=3 * DAY_S)), 1),
    "OmidpyCommitTableGrows": (ended(Report(entries_left=1, entries_growth_a_day=2e7)), 1),
}


@pytest.mark.parametrize("alarm", BAD_RUNS)
def test_it_rings_behind_a_run_that_is_not_well(alarm: str, tmp_path: Path) -> None:
    """And not behind one that is."""
    page, minutes = BAD_RUNS[alarm]
    # Within 26 hours, behind which one that is missing has another alarm.
    step_s = 900 if minutes > 60 else 15
    stages = Stage(ended(GOOD), 30), Stage(page, max(minutes, step_s / 60))
    check(Case(alarm, stages, "node", step_s), tmp_path)


def test_it_rings_when_no_run_has_ended_for_a_day(tmp_path: Path) -> None:
    """And when its numbers are gone: of those that nobody has no age can be told."""
    good = ended(GOOD)
    old = Case("OmidpyCompactionMissing", (Stage(good, 25 * 60), Stage(good, 2 * 60)), "node", 900)
    check(old, tmp_path)
    gone = Case("OmidpyCompactionMissing", (Stage(good, 60), Stage("", 60)), "node", 300)
    check(gone, tmp_path)


# -- export queues ---------------------------------------------------------------------------------


class Exported:
    """A queue, an exporter of it, and the page of both."""

    def __init__(self, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        patch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)
        patch.setattr(counting, "FIRST_WORLD_TIMESTAMP", 1)
        patch.setattr(lag, "FIRST_WORLD_TIMESTAMP", 1)
        self.scene = Scene()
        self.runner = self.scene.runner(**settings)
        self._registry = CollectorRegistry()
        register_export(self.scene.queue, self.runner, self._registry)

    def page(self) -> str:
        """Return what is reported now."""
        found: bytes = generate_latest(self._registry)
        return found.decode()

    def own(self) -> None:
        """Take the bucket, and pass over it."""
        self.runner._crew.join(takes_all=True)
        self.runner._crew.look()


def refuse(batch: Any) -> None:
    """Say that the first entry can never be delivered."""
    raise Poison(batch[0], "no")


def export_case(alarm: str, before: str, behind: str, minutes: float = 1) -> Case:
    """Return the case of an alarm about a queue."""
    return Case(alarm, (Stage(before, 30), Stage(behind, minutes)), "exporter")


def test_it_rings_when_no_exporter_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """None that is scraped."""
    exported = Exported(monkeypatch)
    check(export_case("OmidpyExportMissing", exported.page(), "", 10), tmp_path)


def test_it_rings_when_nobody_owns_a_bucket(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here the exporter has given it back."""
    exported = Exported(monkeypatch)
    exported.own()
    before = exported.page()
    exported.runner._crew.leave()
    check(export_case("OmidpyExportUnowned", before, exported.page(), 10), tmp_path)


def test_it_rings_when_an_entry_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For more than five minutes."""
    exported = Exported(monkeypatch)
    before = exported.page()
    exported.scene.add("one")
    real = exported.scene.client.oracle.begin

    def later(**words: Any) -> Any:
        begun = real(**words)
        return type(begun)(Timestamp(begun.start_ts + 400 * NS_PER_S))

    monkeypatch.setattr(exported.scene.client.oracle, "begin", later)
    check(export_case("OmidpyExportLag", before, exported.page(), 10), tmp_path)


@pytest.mark.parametrize(
    ("alarm", "poison"),
    [("OmidpyExportStopped", "stop"), ("OmidpyExportDeadLetters", "skip")],
)
def test_it_rings_when_an_entry_cannot_be_delivered(
    alarm: str, poison: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whether the bucket then stops, or goes on."""
    exported = Exported(monkeypatch, poison=poison, max_attempts=1)
    before = exported.page()
    exported.scene.add("one")
    exported.scene.sink.on_batch = refuse
    with contextlib.suppress(ExportError):  # one that stops says so
        exported.runner.run_once(wait_s=0)
    check(export_case(alarm, before, exported.page()), tmp_path)


# -- operations, and jobs --------------------------------------------------------------------------


class Operations:
    """A store of operations, and its page."""

    def __init__(self) -> None:
        self.cells = MemoryStore()
        self.fates = TableFateStore(self.cells)
        self._registry = CollectorRegistry()
        register_fate(self.fates, self._registry)

    def page(self) -> str:
        """Return what is reported now."""
        found: bytes = generate_latest(self._registry)
        return found.decode()

    def keep(self, **changes: Any) -> None:
        """Keep an operation; what was made in 1970 is old."""
        assert self.fates.insert(an_operation(**changes))

    def spoil(self) -> None:
        """Keep one that nobody can read."""
        broken = an_operation()
        assert self.fates.insert(broken)
        put = Put(*Column(*GUARD), 1, b"?")
        self.cells.write({FATE_TABLE: [RowMutation(row_of(broken.id), [put])]})


TROUBLES: Final[dict[str, Callable[[Operations], None]]] = {
    "OmidpyFateStuck": lambda found: found.keep(status=Status.IN_PROGRESS, name="RENEW"),
    "OmidpyFateFailed": lambda found: found.keep(status=Status.FAILED, finished_ms=2_000),
    "OmidpyHalfPublished": lambda found: found.keep(status=Status.IN_PROGRESS, name="PUBLISH"),
}


@pytest.mark.parametrize("alarm", TROUBLES)
def test_it_rings_when_operations_are_not_well(alarm: str, tmp_path: Path) -> None:
    """What is under way and young, or has succeeded, rings nothing."""
    found = Operations()
    found.keep(status=Status.SUCCESSFUL, finished_ms=2_000)
    for name in ("RENEW", "PUBLISH"):
        found.keep(status=Status.IN_PROGRESS, name=name, created_ms=2**53)
    before = found.page()
    TROUBLES[alarm](found)
    check(export_case(alarm, before, found.page(), 20), tmp_path)


def test_it_rings_when_no_executor_runs(tmp_path: Path) -> None:
    """None that is scraped."""
    check(export_case("OmidpyFateMissing", Operations().page(), "", 10), tmp_path)


def test_it_rings_when_an_operation_cannot_be_read(tmp_path: Path) -> None:
    """Nobody runs it then."""
    found = Operations()
    before = found.page()
    found.spoil()
    check(export_case("OmidpyFateUnreadable", before, found.page()), tmp_path)


def test_it_rings_when_a_plan_is_left(tmp_path: Path) -> None:
    """Where jobs have no store of operations: by `omidpy committers plan list --metrics`."""

    def page(count: int) -> str:
        registry = CollectorRegistry()
        show_plans("s3://b/out", count, registry, now_s=0.0)
        found: bytes = generate_latest(registry)
        return found.decode()

    check(export_case("OmidpyHalfPublished", page(0), page(1), 20), tmp_path)


# -- the file --------------------------------------------------------------------------------------


def test_promtool_accepts_the_rules() -> None:
    """Expressions, durations and templates."""
    done = run_promtool("check", "rules", *map(str, RULES))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alarm_is_made_to_ring_here() -> None:
    """A rule that nobody saw ring may have a name wrong."""
    text = Path(__file__).read_text("utf-8")
    assert [one for one in alarms() if f'"{one}"' not in text] == []


def test_every_alarm_has_a_paragraph_that_says_what_to_do() -> None:
    """Under a heading of its own, which a link can lead to, or in the table of the nightly job."""
    page = (GUIDES / "alarms.md").read_text("utf-8")
    headings = re.findall(r"^### (Omidpy\w+)$", page, re.MULTILINE)
    table = (GUIDES / "oncall.md").read_text("utf-8").split("## What to do")[1]
    rows = [
        name
        for row in re.findall(r"^\| (Omidpy[\w, ]+) \|", table, re.MULTILINE)
        for name in row.split(", ")
    ]
    assert sorted([*headings, *rows]) == sorted(alarms())


# -- the whole way ---------------------------------------------------------------------------------


def test_a_real_prometheus_rings_when_a_real_oracle_is_killed(url: str, tmp_path: Path) -> None:
    """Scraped from the process, by the rule of the file, but for how long it waits."""
    rules = tmp_path / "rules.yml"
    rules.write_text(rule_alone("OmidpyNoLeader").replace("for: 1m", "for: 0s"))
    target = f"127.0.0.1:{free_port()}"
    (tmp_path / "prometheus.yml").write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "200ms", "evaluation_interval": "200ms"},
                "rule_files": [str(rules)],
                "scrape_configs": [
                    {
                        "job_name": "omidpy-oracle",
                        "scrape_timeout": "200ms",
                        "static_configs": [{"targets": [target]}],
                    }
                ],
            }
        )
    )
    # Prometheus first: it looks for targets when it has run for five seconds, and no sooner.
    with prometheus(tmp_path) as base, tso_server(url, "--metrics", target) as server:
        wait_for(lambda: query(base, "tso_answering") == ["1"], 30)
        wait_for(lambda: not rings(base, "OmidpyNoLeader"), 30)  # before the first page it does
        server.kill()
        wait_for(lambda: rings(base, "OmidpyNoLeader"), 30)


def free_port() -> int:
    """Return a port that nobody has."""
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        return int(free.getsockname()[1])


@contextmanager
def prometheus(folder: Path) -> Iterator[str]:
    """Run Prometheus on a free port, by the configuration in a folder; yield its address."""
    port = free_port()
    words = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            base = f"http://127.0.0.1:{port}"
            wait_for(lambda: is_ready(base), 60)
            yield base
        finally:
            process.kill()
            process.wait(60)


def is_ready(base: str) -> bool:
    """Say whether Prometheus answers."""
    try:
        with urllib.request.urlopen(f"{base}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def api(base: str, path: str) -> Any:
    """Return what Prometheus says of something."""
    with urllib.request.urlopen(f"{base}/api/v1/{path}", timeout=30) as answer:
        return json.load(answer)["data"]


def query(base: str, name: str) -> list[str]:
    """Return the values of a metric."""
    return [one["value"][1] for one in api(base, f"query?query={name}")["result"]]


def rings(base: str, alarm: str) -> bool:
    """Say whether an alarm rings."""
    return any(
        one["labels"]["alertname"] == alarm and one["state"] == "firing"
        for one in api(base, "alerts")["alerts"]
    )
