"""A row that is passed over part by part comes to what it comes to as a whole, however it is cut.

Rows are made as in `test_clean_rows.py`: of everything that writers of this format leave, and of
what nobody should have left.  They are passed over in portions from one cell on, at any horizon,
whole and in spans, with commit entries, invalidations and neither.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.ranges import range_reading
from compactor.ranges.range_pass import RangePass
from compactor.ranges.range_task import RangeResult, RangeTask
from compactor.ranges.spans import WHOLE, Span
from omidpy.base.cells import INVALIDATION_VALUE, commit_row, encode_commit
from omidpy.base.timing.clock import ManualClock
from omidpy.facts.commit_table import COMMIT, COMMIT_TABLE, INVALIDATION, create_system_tables
from omidpy.facts.tables.plain_versions import PlainVersions
from omidpy.model import TIMESTAMP_STEP, FamilySchema, KeyRange, TableSchema, base
from omidpy.storage.base import Put, Row, RowMutation, Store
from omidpy.storage.memory import MemoryStore
from omidpy.storage.options import Portion
from omidpy.storage.sqlite import SqliteStore
from tests.property.test_clean_rows import FAMILIES, MARKED, NEWEST, L, Written, row_of, rows

TASK: Final = RangeTask("t", KeyRange(), MARKED, L, 60, 0, COMMIT_TABLE, newest=NEWEST)
WHOLE_ROWS: Final = Portion(10**9, 10**9)

tasks: Final = st.builds(
    lambda horizon, span, plain, doubtful, collects_foreign, is_dry_run: replace(
        TASK,
        drop_horizon=horizon,
        span=span,
        plain=plain,
        doubtful=doubtful,
        collects_foreign=collects_foreign,
        is_dry_run=is_dry_run,
    ),
    st.sampled_from((0, 130, 300, 2000)),
    st.sampled_from((WHOLE, Span(100, is_collecting=False), Span(100))),
    st.sampled_from((PlainVersions(0, 60), PlainVersions(100, 160))),
    st.sampled_from((0, 120)),
    st.booleans(),
    st.booleans(),
)
entries: Final = st.dictionaries(
    st.sampled_from((50, 100, 150, 400, L)), st.sampled_from(("commit", "invalidation", "both"))
)


class Outcome(NamedTuple):
    """What a pass came to."""

    result: RangeResult
    tables: list[list[list[Row]]]


def passed(
    store: Store,
    written: Sequence[Sequence[Written]],
    entered: dict[int, str],
    task: RangeTask,
    most: Portion,
) -> Outcome:
    """Pass over rows in portions."""
    create_system_tables(store)
    store.create_table(TableSchema("t", [FamilySchema(family) for family in FAMILIES]))
    for number, one in enumerate(written):
        cells = row_of(one, b"%d" % number)
        store.write({"t": [RowMutation(b"%d" % number, [Put(*cell[1:]) for cell in cells])]})
    for start_ts, kind in entered.items():
        puts = [
            Put(*INVALIDATION, start_ts, INVALIDATION_VALUE),
            Put(*COMMIT, start_ts, encode_commit(base(start_ts), base(start_ts) + TIMESTAMP_STEP)),
        ]
        taken = {"commit": puts[1:], "invalidation": puts[:1], "both": puts}[kind]
        store.write({COMMIT_TABLE: [RowMutation(commit_row(base(start_ts)), taken)]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_reading, "PORTION", most)
        result = RangePass(store, task, clock=ManualClock()).run()
    # How often a cell was read, and by whom, is no part of what it came to, nor what is told first.
    reasons = sorted(result.obstacle.split("; "))
    named = [one for one in reasons if not re.fullmatch(r"and \d+ more", one)]
    told = "; ".join(reasons if named == reasons else {*reasons} - {*named})
    result = replace(result, cells_read=0, bytes_read=0, rows_sifted=0, obstacle=told)
    return Outcome(result, [list(store.scan(table)) for table in ("t", COMMIT_TABLE)])


@given(rows, entries, tasks, st.integers(1, 12))
def test_parts_come_to_what_the_whole_does(
    written: Sequence[Sequence[Written]], entered: dict[int, str], task: RangeTask, cells: int
) -> None:
    """What is counted, said and claimed, and what is left in the store."""
    whole = passed(MemoryStore(), written, entered, task, WHOLE_ROWS)
    assert passed(MemoryStore(), written, entered, task, Portion(cells, 10**9)) == whole


@settings(max_examples=50)
@given(rows, entries, tasks, st.integers(1, 60))
def test_bytes_cut_as_well(
    tmp_path_factory: pytest.TempPathFactory,
    written: Sequence[Sequence[Written]],
    entered: dict[int, str],
    task: RangeTask,
    size_bytes: int,
) -> None:
    """On a file, whose rows are read in portions indeed."""
    path: Path = tmp_path_factory.mktemp("store") / "db"
    store = SqliteStore(str(path))
    try:
        whole = passed(MemoryStore(), written, entered, task, WHOLE_ROWS)
        assert passed(store, written, entered, task, Portion(10**9, size_bytes)) == whole
    finally:
        store.close()
