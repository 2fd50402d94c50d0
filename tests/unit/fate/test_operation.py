"""Operations: which changes are right, in which status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from omidpy.errors import FateError, UsageError
from omidpy.fate.operation import (
    CANCELLED,
    MAX_TEXT,
    Failure,
    Operation,
    Reservation,
    Status,
    cancelled,
    failed,
    failure_of,
    key_text,
    new_id,
    parse_id,
    pushed,
    released,
    replaced,
    reserved,
    seeded,
    started,
    succeeded,
    tried,
    undone,
)

HELD = Reservation("w", "a")
WHY = Failure("no")


def an_operation(status: Status, **changes: Any) -> Operation:
    """Return a reserved operation of two steps."""
    made = Operation(id=new_id(), name="T", status=status, stack=(b"1", b"2"), reservation=HELD)
    return replace(made, **changes)


CHANGES: dict[str, tuple[Callable[[Operation], Operation], set[Status]]] = {
    "seeded": (seeded, {Status.NEW}),
    "started": (
        lambda one: started(one, is_pivot=False),
        {Status.SUBMITTED, Status.IN_PROGRESS},
    ),
    "pushed": (lambda one: pushed(one, b"3"), {Status.IN_PROGRESS}),
    "replaced": (lambda one: replaced(one, b"3"), {Status.IN_PROGRESS}),
    "succeeded": (lambda one: succeeded(one, 1, now_ms=5), {Status.IN_PROGRESS}),
    "tried": (
        lambda one: tried(one, waiting="x"),
        {Status.SUBMITTED, Status.IN_PROGRESS, Status.FAILED_IN_PROGRESS},
    ),
    "failed": (
        lambda one: failed(one, WHY),
        {Status.NEW, Status.SUBMITTED, Status.IN_PROGRESS},
    ),
    "cancelled": (cancelled, {Status.NEW, Status.SUBMITTED}),
    "undone": (lambda one: undone(one, error=None, now_ms=5), {Status.FAILED_IN_PROGRESS}),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("status", [one for one in Status if one is not Status.UNKNOWN])
def test_a_change_is_refused_in_every_status_but_its_own(name: str, status: Status) -> None:
    """What is finished stays as it is, and what is undone is not called again."""
    change, allowed = CHANGES[name]
    operation = an_operation(status)
    if status in allowed:
        assert change(operation) != operation or name == "started"
    else:
        with pytest.raises(FateError, match=f"{operation.id} is {status}"):
            change(operation)


def test_the_end_is_one_change() -> None:
    """Nothing is left to do behind it that a crash could leave undone."""
    done = succeeded(an_operation(Status.IN_PROGRESS), {"n": 1}, now_ms=5)
    assert (done.status, done.result, done.stack) == (Status.SUCCESSFUL, {"n": 1}, ())
    assert (done.reservation, done.finished_ms) == (None, 5)
    assert done.is_finished


def test_turning_round_is_one_change() -> None:
    """With a reason and IN_PROGRESS an operation could still succeed, and have failed."""
    turned = failed(an_operation(Status.IN_PROGRESS, failures=3, waiting="x"), WHY)
    assert (turned.status, turned.exception) == (Status.FAILED_IN_PROGRESS, WHY)
    assert (turned.failures, turned.waiting) == (0, "")
    assert turned.stack == (b"1", b"2")
    assert turned.reservation == HELD


def test_steps_are_undone_from_the_top_and_the_last_one_ends_it() -> None:
    """One by one, the step that failed first, because it may have run in part."""
    turned = an_operation(Status.FAILED_IN_PROGRESS, exception=WHY)
    first = undone(turned, error=Failure("left"), now_ms=5)
    assert (first.stack, first.status) == ((b"1",), Status.FAILED_IN_PROGRESS)
    assert (first.reservation, first.finished_ms) == (HELD, None)
    last = undone(first, error=None, now_ms=6)
    assert (last.stack, last.status, last.finished_ms) == ((), Status.FAILED, 6)
    assert last.reservation is None
    assert last.exception == WHY
    assert last.undo_errors == (Failure("left"),)


def test_past_its_pivot_an_operation_cannot_be_failed() -> None:
    """What its steps have done since cannot be undone."""
    past = started(an_operation(Status.IN_PROGRESS, waiting="a key"), is_pivot=True)
    assert past.is_past_pivot
    assert started(past, is_pivot=False).is_past_pivot
    with pytest.raises(FateError, match="only rolls forward"):
        failed(past, WHY)


def test_a_cancel_needs_no_reservation() -> None:
    """Nothing was called yet, and the executor that was about to finds out by its next write."""
    turned = cancelled(an_operation(Status.SUBMITTED))
    assert turned.reservation is None
    assert turned.exception == Failure(CANCELLED)
    assert turned.status is Status.FAILED_IN_PROGRESS


def test_what_is_reserved_cannot_be_reserved() -> None:
    """Whoever holds it is named."""
    free = released(an_operation(Status.SUBMITTED), waiting="because")
    assert (free.reservation, free.waiting) == (None, "because")
    assert released(an_operation(Status.SUBMITTED, waiting="x")).waiting == "x"
    assert reserved(free, HELD).reservation == HELD
    with pytest.raises(FateError, match="reserved by w"):
        reserved(reserved(free, HELD), Reservation("v", "b"))


def test_a_stack_has_a_limit() -> None:
    """A loop that pushes would fill the store; the message names what loops should use."""
    operation = an_operation(Status.IN_PROGRESS, stack=(b"1",) * 99)
    full = pushed(operation, b"top")
    assert full.stack[-1] == b"top"
    with pytest.raises(FateError, match=r"100 is the limit.*again"):
        pushed(full, b"more")
    assert replaced(full, b"other").stack == (*full.stack[:-1], b"other")


def test_progress_and_tries_belong_to_one_step() -> None:
    """The next one begins afresh; the same one that goes on keeps its word."""
    tired = an_operation(Status.IN_PROGRESS, failures=2, waiting="x", progress="half")
    assert tried(tired, waiting="y").failures == 3
    following = pushed(tired, b"3")
    assert (following.failures, following.waiting, following.progress) == (0, "", "")
    same = replaced(tired, b"3")
    assert (same.failures, same.waiting, same.progress) == (0, "", "half")


@pytest.mark.parametrize(
    "text", ["0c143900c230c1df", "tx_0c143900c230c1df", "FATE[0c143900c230c1df]"]
)
def test_an_id_is_read_as_it_is_printed_anywhere(text: str) -> None:
    """Here, as a path in ZooKeeper, and by Accumulo's tools."""
    assert parse_id(text) == "0c143900c230c1df"


@pytest.mark.parametrize(
    "text", ["", "0c14", "0c143900c230c1dg", "0C143900C230C1DF", "0c143900c230c1df0", "tx_"]
)
def test_a_malformed_id_is_refused(text: str) -> None:
    """In the words of Accumulo's command, with the remedy."""
    with pytest.raises(UsageError, match=r"Invalid transaction ID: .*16 hex digits"):
        parse_id(text)


def test_ids_are_new() -> None:
    """One that came back would be taken for what it was."""
    made = {new_id() for _ in range(1000)}
    assert len(made) == 1000
    assert all(parse_id(one) == one for one in made)


def test_keys_are_equal_exactly_if_their_parts_are() -> None:
    """`("a", "b")` is not `"a,b"`, and 1 is not "1"."""
    keys = ["a", "b", "a,b", ("a", "b"), ("ab",), 1, "1", ("a", 1), ("a", "1"), True]
    assert len({key_text(key) for key in keys}) == len(keys)
    assert key_text(["a", 1]) == key_text(("a", 1))


@pytest.mark.parametrize("key", [(), 1.5, None, object(), ("a", None), {"a": 1}, b"a"])
def test_what_cannot_be_a_key_is_refused(key: object) -> None:
    """Its JSON might differ next time."""
    with pytest.raises(UsageError, match="cannot name an operation"):
        key_text(key)


def test_a_key_that_no_store_can_keep_is_refused_by_name() -> None:
    """Half of a surrogate pair comes of bytes that were read as text."""
    with pytest.raises(UsageError, match=r"a part of the key, .* cannot be written as UTF-8"):
        key_text(("prune", "\udc80"))


def test_a_key_that_is_too_long_is_refused() -> None:
    """It is kept in one piece, and shown whole."""
    assert len(key_text("x" * (MAX_TEXT - 4))) == MAX_TEXT
    with pytest.raises(UsageError, match=f"{MAX_TEXT + 1} characters.* use a digest"):
        key_text("x" * (MAX_TEXT - 3))


def test_a_failure_says_what_and_where() -> None:
    """As much as a listing can show, and no more."""

    def raise_it() -> None:
        raise ValueError("x" * (MAX_TEXT + 1))

    try:
        raise_it()
    except ValueError as error:
        found = failure_of(error, step="s.Pay", phase="call")
    assert found.at.endswith("in raise_it")
    assert len(found.message) == MAX_TEXT
    assert str(found).startswith("s.Pay.call: ValueError: xxx")
    assert str(Failure("why")) == "why"
