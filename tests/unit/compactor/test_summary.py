"""What a run tells while it works, and at its end: by table, and which ranges took the time."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from compactor.command import show
from compactor.display import LineProgress, age_text, details, size_text
from compactor.environment import Passed
from compactor.options import Options
from compactor.pacing import page_bytes
from compactor.range_task import RangeResult, RangeTask
from compactor.report import RangeReport, Report, TableReport
from omidpy.base.clock import ManualClock
from omidpy.model import KeyRange
from omidpy.storage.memory import MemoryStore
from tests.machines.cells import World


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
