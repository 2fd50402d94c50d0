"""What a run tells while it works, and at its end: by table, and which ranges took the time."""

from __future__ import annotations

import io
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from compactor.options import Options
from compactor.pacing import page_bytes
from compactor.pruning import slices
from compactor.ranges import range_reading
from compactor.ranges.progress import NoProgress, Passed
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.report import RangeReport, Report, TableReport
from compactor.run.environment import Executors
from compactor.run.local import compact, executors_here
from compactor.shell.command import EXIT_FAILED, compact_address, show
from compactor.shell.display import LineProgress, age_text, details, size_text, summary
from omidpy.base.timing.clock import Clock, ManualClock
from omidpy.model import KeyRange
from omidpy.storage.base import Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import Portion
from omidpy.storage.sqlite import SqliteStore
from tests.machines.cells import ALL_AT_ONCE, World


def test_report_says_what_was_done_to_each_table() -> None:
    """And how long each range took, those of the slowest first."""
    world = World(MemoryStore())
    world.table(splits=[b"d", b"h", b"p"])
    world.table("u")
    for row, start_ts in ((b"a", 100), (b"k", 200), (b"l", 300)):
        world.put(row, start_ts)
        world.enter(start_ts, start_ts + 5)
    size = sum(map(page_bytes, world.store.scan("t")))
    pages = iter([3.0, 7.0])

    def turn(name: str) -> None:
        if name == "page-read":
            world.clock.advance(next(pages))

    report = world.compact(on_step=turn)
    of_t, of_u = report.tables
    assert (of_t.ranges, of_t.rows_read, of_t.cells_read, of_t.bytes_read) == (4, 3, 3, size)
    assert (of_t.cells_healed, of_t.seconds) == (3, 10.0)
    assert of_t.slowest[:2] == [
        RangeReport(b"h".hex(), b"p".hex(), 7.0, 2),
        RangeReport("", b"d".hex(), 3.0, 1),
    ]
    assert len(of_t.slowest) == 3
    assert of_u == TableReport("u", ranges=1, slowest=[])


def test_what_passes_came_to_adds_up() -> None:
    """One after another as all at once, each count by itself."""
    task = RangeTask("t", KeyRange(), frozenset(), 0, 0, 0, "c")
    results = [RangeResult(task, n, 10 * n, 100 * n, 0.0, 1000 * n) for n in (1, 2)]
    one = Passed().with_result(results[0])
    assert one == Passed(1, 10, 100, 1000)
    assert one.with_result(results[1]) == Passed.by(results) == Passed(3, 30, 300, 3000)
    assert Passed.by([]) == Passed()


def test_details_are_read_by_people() -> None:
    """One line a table, and one for each slow range."""
    table = TableReport(
        "t", 1200, 3, 4, 5_000, 2, 2400, 1_234_567, 12.34, [RangeReport("", "68", 11.0, 1000)]
    )
    assert list(details(Report(tables=[table]))) == [
        (
            "t: 2 ranges, 1,200 rows, 2,400 cells and 1.2 MB read, 3 cells healed, 4 cells and "
            "5.0 kB dropped, 12.3 s of tasks"
        ),
        "  [start, 68) took 11.0 s for 1,000 rows",
    ]
    assert [size_text(size) for size in (0, 999, 1000, 2 * 10**9, 3 * 10**15)] == [
        *("0 bytes", "999 bytes", "1.0 kB", "2.0 GB", "3,000.0 TB")
    ]


@pytest.mark.parametrize(
    ("seconds", "asked", "shown"), [(9.9, False, False), (10.0, False, True), (0.1, True, True)]
)
def test_details_of_long_runs_go_to_stderr(
    *, seconds: float, asked: bool, shown: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Beside a document on stdout, which stays one."""
    report = Report(tables=[TableReport("t", ranges=1)], seconds=seconds)
    path = str(tmp_path / "r.json")
    show(report, Options(), report_path=path, as_json=True, is_detailed=asked)
    out, err = capsys.readouterr()
    assert out == report.json() + "\n"
    assert ("compaction: t: 1 ranges" in err) == shown


def test_a_report_that_cannot_be_kept_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """The run is done, and is told on stdout all the same; the disk of its file is full."""
    report = Report(seconds=1.0)
    code = show(report, Options(), report_path="/dev/full", as_json=True)
    out, err = capsys.readouterr()
    assert (code, out) == (EXIT_FAILED, report.json() + "\n")
    assert err.startswith("compaction: done, and no report in /dev/full: ")


def test_a_log_gets_a_line_now_and_then() -> None:
    """With all that was passed over so far."""
    clock, log = ManualClock(), io.StringIO()
    progress = LineProgress(clock, log)
    progress.update(0, 4, Passed())
    clock.advance(10)
    progress.update(1, 4, Passed(500, 1500, 30_000, 7))
    clock.advance(1)
    progress.update(2, 4, Passed(600, 1800, 36_000, 7))
    progress.update(4, 4, Passed(1100, 3300, 66_000, 8))
    assert log.getvalue() == (
        "compaction: 1 of 4 ranges, 500 rows, 1,500 cells, 30.0 kB, 7 healed, 50 rows/s\n"
        "compaction: 4 of 4 ranges, 1,100 rows, 3,300 cells, 66.0 kB, 8 healed, 100 rows/s\n"
    )


@pytest.mark.parametrize(
    ("age_s", "text"),
    [(0.4, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2.0 h")],
)
def test_an_age_is_said_in_its_own_unit(age_s: float, text: str) -> None:
    """A laggard of a minute was 0.0 h old."""
    assert age_text(age_s) == text


class Told(NoProgress):
    """Keeps what a run tells."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def update(self, done: int, total: int, passed: Passed) -> None:
        """Keep how many ranges and rows there were."""
        del total
        self.rows.append((done, passed.rows))


def test_rows_are_told_as_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region that takes minutes was "0 rows" for as long."""
    monkeypatch.setattr(range_reading, "PAGE_ROWS", 2)
    world = World(MemoryStore())
    world.table(splits=[b"m"])
    for number in range(5):
        world.put(b"a%d" % number, 100)
    world.put(b"z", 100)
    told = Told()
    compact(world.store, ALL_AT_ONCE, clock=world.clock, sleep=world.clock.advance, progress=told)
    assert told.rows == [(0, 0), (0, 2), (0, 4), (0, 5), (1, 5), (1, 6), (2, 6)]


def test_the_rows_of_a_long_row_are_told_portion_by_portion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may take as long as a region."""
    monkeypatch.setattr(range_reading, "PORTION", Portion(cells=10, size_bytes=10**6))
    world = World(MemoryStore())
    world.table()
    for number in range(95):
        world.put(b"a", 100, qualifier=b"%02d" % number)
    cells: list[int] = []
    told = Told()
    monkeypatch.setattr(told, "update", lambda _done, _total, passed: cells.append(passed.cells))
    compact(world.store, ALL_AT_ONCE, clock=world.clock, sleep=world.clock.advance, progress=told)
    assert len(set(cells)) > 5
    assert cells == sorted(cells)


def test_the_summary_says_what_is_left() -> None:
    """Entries that stay are no fault of the run's."""
    world = World(MemoryStore())
    world.table()
    world.enter(100, 150)
    world.enter(1050, 1100)
    report = world.compact()
    assert (report.horizon, report.entries_left) == (1000, 1)
    assert "  1 entries are left: of transactions that began above the watermark" in summary(report)
    world.set_low_watermark(2000)
    assert "are left" not in summary(world.compact())


def test_more_entries_than_are_quickly_counted_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a thousand million; `--metrics` counts them."""
    monkeypatch.setattr(slices, "FEW_ENTRIES", 2)
    world = World(MemoryStore())
    world.table()
    for start_ts in (1050, 1100, 1150):
        world.enter(start_ts, start_ts + 5)
    assert world.compact().entries_left is None


def test_an_interrupt_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing but the guide spoke of --resume."""
    path = tmp_path / "s.db"
    with closing(SqliteStore(str(path))) as store:
        World(store).table()

    def executors(store: Store, clock: Clock) -> Executors:
        def interrupt(tasks: object, on_progress: object) -> list[RangeResult]:
            raise KeyboardInterrupt

        return replace(executors_here(store, clock), ranges=interrupt)

    with pytest.raises(KeyboardInterrupt):
        compact_address(f"sqlite:///{path}", None, ALL_AT_ONCE, executors)
    said = capsys.readouterr().err
    assert f"omidpy compact --store sqlite:///{path} --resume" in said
    with pytest.raises(KeyboardInterrupt):
        compact_address(f"sqlite:///{path}", None, replace(ALL_AT_ONCE, is_dry_run=True), executors)
    assert "nothing was written" in capsys.readouterr().err
