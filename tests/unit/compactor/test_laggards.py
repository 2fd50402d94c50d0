"""What holds rows back, between two runs: what the last one has met there."""

from __future__ import annotations

from compactor.pruning.laggards import NOT_SCANNED, known_reasons
from compactor.report import Laggard, Report, RunRecord
from omidpy.model import KeyRange


def behind(start: bytes = b"", end: bytes = b"", reason: str = NOT_SCANNED) -> Laggard:
    """Return rows behind."""
    return Laggard.of("t", KeyRange(start, end), watermark=100, reason=reason)


def ran(*laggards: Laggard) -> RunRecord:
    """Return a run that has met something."""
    return RunRecord("1", 0, "host", 1, 1, report=Report(laggards=laggards))


def told(runs: list[RunRecord], *rows: Laggard) -> list[tuple[bytes, bytes, str]]:
    """Return rows and the beginning of what is said of them."""
    found = known_reasons(runs, rows)
    assert all(one.watermark == 100 for one in found)
    return [
        (bytes.fromhex(one.start), bytes.fromhex(one.end), one.reason.partition(" (")[0])
        for one in found
    ]


def test_rows_in_which_the_last_run_met_nothing_keep_their_reason() -> None:
    """No row behind goes unsaid."""
    met = [behind(b"b", b"c", "bad"), behind(b"e", b"", "worse")]
    assert told([ran(*met)], behind(b"a", b"f")) == [
        (b"b", b"c", "bad"),
        (b"e", b"f", "worse"),
        (b"a", b"b", NOT_SCANNED),
        (b"c", b"e", NOT_SCANNED),
    ]


def test_other_tables_and_known_reasons_are_left() -> None:
    """A doubt about a table is newer than the run."""
    other = Laggard.of("u", KeyRange(), watermark=0, reason="bad")
    assert told([ran(other)], behind(), behind(reason="in doubt")) == [
        (b"", b"", NOT_SCANNED),
        (b"", b"", "in doubt"),
    ]


def test_a_run_without_a_report_says_what_became_of_it() -> None:
    """Running it again may help, and going on with it is less work."""
    killed = RunRecord("2", 60_000, "host", 7)
    assert told([], behind()) == [(b"", b"", NOT_SCANNED)]
    ((_, _, reason),) = told([ran(), killed], behind())
    assert reason.startswith("not scanned since: the run of 1970-01-01 00:01 UTC is at work")
    (failed,) = known_reasons([RunRecord("2", 0, "h", 1, 1, "no memory")], [behind()])
    assert failed.reason.endswith("has failed: no memory")
