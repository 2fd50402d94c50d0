"""What is printed of operations: Accumulo's lines and names, letter by letter."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from omidpy.fate.listing import (
    dump_document,
    iso,
    list_lines,
    summary_document,
    summary_lines,
)
from omidpy.fate.locks import Entry, LockState, Mode
from omidpy.fate.operation import Failure, FateId, Operation, Reservation, Status, Unreadable
from omidpy.fate.view import Filter, Snapshot, operation_document, snapshot, waiting_for
from omidpy.testing.fate.basics import leaf

NOW_MS = 1_657_194_122_000  # 2022-07-07T11:42:02Z
ALL = Filter()


def an_operation(number: int, **changes: Any) -> Operation:
    """Return an operation of the sample."""
    made = Operation(
        id=FateId(f"{number:016x}"),
        name="CompactRange",
        status=Status.IN_PROGRESS,
        created_ms=NOW_MS - 4_000 + 1_000 * number,
        stack=(leaf(), b'{"step":"t.CompactionDriver","version":2,"fields":{"n":1}}'),
    )
    return replace(made, **changes)


def lock(number: int, mode: Mode, table: str, *before: Entry, key: bytes = b"") -> LockState:
    """Return a lock that waits for others, if there are any."""
    return LockState(table, Entry(FateId(f"{number:016x}"), mode, b"", key), before)


def two(**changes: Any) -> Snapshot:
    """Return the sample of Accumulo's manual."""
    operations = [an_operation(1, **changes), an_operation(0)]
    locks = [lock(number, Mode.READ, table) for number in (0, 1) for table in ("ns1", "ns1.table1")]
    return snapshot(operations, locks, {}, now_ms=NOW_MS)


def test_the_summary_is_that_of_the_manual() -> None:
    """The sample of Accumulo's manual, with our steps and names of tables."""
    assert summary_lines(two(), ALL) == [
        "Report Time: 2022-07-07T11:42:02Z",
        "Status counts:",
        "  IN_PROGRESS: 2",
        "Command counts:",
        "  CompactRange: 2",
        "Step counts:",
        "  t.CompactionDriver: 2",
        "",
        "Fate transactions (oldest first):",
        "Status Filters: [NONE]",
        "Fate ID Filters: [NONE]",
        "",
        (
            "Running\ttxn_id\t\t\t\tStatus\t\tCommand\t\tStep (top)\t\tlocks held:(table id, name)"
            "\tlocks waiting:(table id, name)"
        ),
        (
            "0:00:04\t0000000000000000\tIN_PROGRESS\tCompactRange\tt.CompactionDriver\t"
            "held:[R:(ns1,t:ns1), R:(ns1.table1,t:ns1.table1)]\twaiting:[]"
        ),
        (
            "0:00:03\t0000000000000001\tIN_PROGRESS\tCompactRange\tt.CompactionDriver\t"
            "held:[R:(ns1,t:ns1), R:(ns1.table1,t:ns1.table1)]\twaiting:[]"
        ),
    ]


def test_filters_narrow_the_rows_and_not_the_counts() -> None:
    """As in Accumulo; and the filters are named."""
    asked = Filter(frozenset(), frozenset({"FAILED", "NEW"}))
    lines = summary_lines(two(status=Status.FAILED, stack=(), finished_ms=NOW_MS), asked)
    assert lines[1:4] == ["Status counts:", "  FAILED: 1", "  IN_PROGRESS: 1"]
    assert "Status Filters: [FAILED, NEW]" in lines
    rows = lines[lines.index(next(line for line in lines if line.startswith("Running"))) + 1 :]
    assert rows == [
        (
            "0:00:03\t0000000000000001\tFAILED\tCompactRange\t?\t"
            "held:[R:(ns1,t:ns1), R:(ns1.table1,t:ns1.table1)]\twaiting:[]"
        )
    ]
    by_kind = Filter(kinds=frozenset({"Other"}))
    assert summary_document(two(), by_kind)["fateDetails"] == []
    assert summary_document(two(), by_kind)["commandFilterNames"] == ["Other"]


def test_the_summary_in_json_has_the_names_of_both_versions() -> None:
    """2.1 says txnId and txName, main fateId and fateOp."""
    document = summary_document(two(), Filter(frozenset({"0" * 16})))
    assert document == {
        "statusCounts": {"IN_PROGRESS": 2},
        "cmdCounts": {"CompactRange": 2},
        "stepCounts": {"t.CompactionDriver": 2},
        "fateDetails": [
            {
                "running": 4000,
                "status": "IN_PROGRESS",
                "fateOp": "CompactRange",
                "txName": "CompactRange",
                "step": "t.CompactionDriver",
                "fateId": "0" * 16,
                "txnId": "0" * 16,
                "locksHeld": ["R:(ns1,t:ns1)", "R:(ns1.table1,t:ns1.table1)"],
                "locksWaiting": [],
            }
        ],
        "unreadable": [],
        "reportTime": NOW_MS,
        "fateIdFilter": ["0" * 16],
        "statusFilterNames": [],
        "commandFilterNames": [],
    }


def test_a_line_of_the_list_is_that_of_accumulo() -> None:
    """Columns padded, and a range of keys only where there is one."""
    held = lock(0, Mode.WRITE, "a", key=b"m")
    waits = lock(1, Mode.READ, "a", held.entry)
    found = snapshot([an_operation(0), an_operation(1)], [held, waits], {}, now_ms=NOW_MS)
    assert list_lines(found, ALL, has_details=False) == [
        (
            "CompactRange    txid: 0000000000000000  status: IN_PROGRESS        locked: [W:a]"
            "           locking: []              op: t.CompactionDriver"
            " created: 2022-07-07T11:41:58.000Z lock range: a [-inf, 'm')"
        ),
        (
            "CompactRange    txid: 0000000000000001  status: IN_PROGRESS        locked: []"
            "              locking: [R:a]           op: t.CompactionDriver"
            " created: 2022-07-07T11:41:59.000Z"
        ),
        " 2 transactions",
    ]
    detailed = list_lines(found, Filter(frozenset({"0" * 16})), has_details=True)
    assert detailed[1].startswith('\t Transaction details: {"id":"0000000000000000",')
    assert detailed[2] == " 1 transactions"


def test_locks_without_an_operation_are_listed() -> None:
    """Those that it holds and those that it wants."""
    held = lock(7, Mode.WRITE, "a")
    waits = lock(7, Mode.READ, "b", lock(8, Mode.WRITE, "b").entry)
    found = snapshot([], [held, waits], {}, now_ms=NOW_MS)
    assert list_lines(found, ALL, has_details=False) == [
        " 0 transactions",
        "The following locks did not have an associated FATE operation",
        "txid: 0000000000000007  locked: [W:a]",
        "txid: 0000000000000007  locking: [R:b]",
    ]


def test_what_cannot_be_read_is_listed_with_the_reason() -> None:
    """And its locks are not called dangling."""
    bad = Unreadable(FateId("f" * 16), "the cell is broken")
    found = snapshot([bad], [lock(int("f" * 16, 16), Mode.READ, "a")], {}, now_ms=NOW_MS)
    assert list_lines(found, ALL, has_details=False) == [
        f"?               txid: {'f' * 16}  the cell is broken",
        " 0 transactions",
    ]
    assert summary_lines(found, ALL)[-1] == f"?\t{'f' * 16}\tthe cell is broken"
    assert summary_document(found, ALL)["unreadable"] == [
        {"txnId": "f" * 16, "reason": "the cell is broken"}
    ]


def test_a_step_that_cannot_be_read_is_a_question_mark() -> None:
    """The operation is listed all the same."""
    found = snapshot([an_operation(0, stack=(b"\xff",))], [], {}, now_ms=NOW_MS)
    assert " op: ? " in list_lines(found, ALL, has_details=False)[0]
    ((dumped,),) = (one["stack"] for one in dump_document(found, ALL))
    assert "which is no step" in dumped["?"]


def test_a_dump_shows_the_stack_with_the_top_first() -> None:
    """Names and fields, as Accumulo's."""
    assert dump_document(two(), Filter(frozenset({"0" * 16}))) == [
        {
            "txIdString": "0" * 16,
            "stack": [
                {"t.CompactionDriver": {"n": 1}, "version": 2},
                {"omidpy-testing.Leaf": {"number": 0, "text": ""}, "version": 1},
            ],
        }
    ]


def test_a_date_that_is_none_is_an_error() -> None:
    """In Accumulo's word, and no other line is lost."""
    assert iso(2**62) == "ERROR"
    assert iso(0) == "1970-01-01T00:00:00.000Z"


HELD = Reservation("w", "a")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"status": Status.SUCCESSFUL}, ""),
        ({"status": Status.NEW}, "its submission"),
        ({}, "an executor"),
        ({"waiting": "the moon"}, "the moon"),
        ({"reservation": HELD}, "t.CompactionDriver, run by process 7 on h"),
        (
            {"reservation": HELD, "status": Status.FAILED_IN_PROGRESS},
            "t.CompactionDriver, undone by process 7 on h",
        ),
        (
            {"reservation": Reservation("v", "a")},
            "another executor: the one that ran it is gone",
        ),
    ],
)
def test_what_it_waits_for_now(changes: dict[str, Any], expected: str) -> None:
    """The question that an operator has."""
    operations = [an_operation(0, **changes)]
    found = snapshot(operations, [], {"w": "process 7 on h"}, now_ms=NOW_MS)
    assert waiting_for(found.views[0], found) == expected


def test_who_waits_for_a_lock_is_told_whose() -> None:
    """By kind and id, so that it can be looked at next."""
    first, second = lock(1, Mode.WRITE, "a"), lock(2, Mode.READ, "a")
    waits = lock(0, Mode.WRITE, "a", first.entry, second.entry)
    operations = [an_operation(0, waiting="old news"), an_operation(1, name="PRUNE")]
    found = snapshot(operations, [first, second, waits], {}, now_ms=NOW_MS)
    assert waiting_for(found.views[0], found) == (
        "a WRITE lock on a: WRITE is held or wanted before by 0000000000000001 (PRUNE) and 1 more"
    )


def test_an_operation_as_json_has_all_of_it() -> None:
    """For scripts; and running time ends with the operation."""
    ended = an_operation(
        0,
        status=Status.FAILED,
        finished_ms=NOW_MS - 3_000,
        exception=Failure("no", "ValueError", "s", "call"),
        undo_errors=(Failure("left"),),
        key='["a",1]',
        stack=(),
    )
    document = operation_document(
        (found := snapshot([ended], [], {}, now_ms=NOW_MS)).views[0], found
    )
    assert document["running_s"] == 1.0
    assert document["exception"] == "s.call: ValueError: no"
    assert document["undo_errors"] == ["left"]
    assert document["key"] == ["a", 1]
    assert document["stack_depth"] == 0
