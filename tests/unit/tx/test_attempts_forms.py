"""However a loop over attempts is written, a refused commit is tried again or raised."""

from __future__ import annotations

import asyncio
import functools
import sys
from typing import Any

import pytest

from omidpy import aio
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import WriteConflict
from omidpy.tx.transaction import Transaction
from tests.machines import loop_forms
from tests.machines.clients import TABLE, Client
from tests.machines.loop_forms import AsyncForm, Form

by_name = functools.partial(pytest.mark.parametrize, "form", ids=lambda form: form.__name__)


class Contended:
    """The body of a block: its first try meets another writer, or raises what it met."""

    def __init__(self, *, is_raising: bool = False) -> None:
        self.client = Client(clock=SystemClock())
        self.is_raising = is_raising
        self.tries: list[int] = []
        self.seen: dict[bytes, bytes] = {}
        """The row, once the loop has ended."""

    def __call__(self, tx: Transaction) -> int:
        """Write, and be overtaken the first time."""
        if tx.start_ts not in self.tries:
            self.tries.append(tx.start_ts)
        tx.table(TABLE).put(b"r", {b"cf:q": b"mine"})
        if len(self.tries) == 1:
            self._first()
        return len(self.tries)

    async def later(self, tx: aio.Transaction) -> int:
        """Do the same, awaited."""
        self.tries.append(tx.start_ts)
        await tx.table(TABLE).put(b"r", {b"cf:q": b"mine"})
        if len(self.tries) == 1:
            self._first()
        return len(self.tries)

    def _first(self) -> None:
        self.client.write(value=b"theirs")
        if self.is_raising:
            raise WriteConflict("seen early")

    def run(self, form: Form) -> None:
        """Let a form use the body."""
        try:
            form(self.client.tm.attempts(budget_s=60), self)
        finally:
            self.seen = self.client.read()

    def run_later(self, form: AsyncForm) -> None:
        """Let an asynchronous form use it."""

        async def main() -> None:
            async with aio.TransactionManager(self.client.tm) as tm:
                try:
                    await form(tm.attempts(budget_s=60), self.later)
                finally:
                    self.seen = self.client.read()

        asyncio.run(main())

    def check_kept(self) -> None:
        """Demand that the second try was made and committed."""
        assert len(self.tries) == 2
        assert self.seen == {b"cf:q": b"mine"}

    def check_left(self, raised: pytest.ExceptionInfo[WriteConflict]) -> None:
        """Demand that the caller heard of the refusal, and how to write the loop."""
        assert len(self.tries) == 1
        assert self.seen == {b"cf:q": b"theirs"}
        assert "it was not tried again" in str(raised.value)
        assert raised.value.attempts == 1


@by_name(loop_forms.KEPT)
@pytest.mark.parametrize("is_raising", [False, True], ids=["refused", "raised"])
def test_the_loop_tries_again(form: Form, *, is_raising: bool) -> None:
    """Whatever stands around the block and behind it, the loop comes round."""
    body = Contended(is_raising=is_raising)
    body.run(form)
    body.check_kept()


@by_name([*loop_forms.LEFT, *loop_forms.LEFT_INSIDE])
def test_a_refused_commit_is_raised_where_the_loop_may_not_go_on(form: Form) -> None:
    """It was dropped without a word: no error, and the write was gone."""
    body = Contended()
    with pytest.raises(WriteConflict) as raised:
        body.run(form)
    body.check_left(raised)


@by_name(loop_forms.LEFT)
def test_an_error_of_the_block_is_raised_where_the_loop_may_not_go_on(form: Form) -> None:
    """The code behind the block would have left the loop as if all was well."""
    body = Contended(is_raising=True)
    with pytest.raises(WriteConflict) as raised:
        body.run(form)
    body.check_left(raised)


@by_name(loop_forms.LEFT_INSIDE)
def test_an_error_that_comes_before_the_return_is_tried_again(form: Form) -> None:
    """The block raised before it came to its `return`."""
    body = Contended(is_raising=True)
    body.run(form)
    body.check_kept()


@by_name(loop_forms.ASYNC_KEPT)
@pytest.mark.parametrize("is_raising", [False, True], ids=["refused", "raised"])
def test_the_asynchronous_loop_tries_again(form: AsyncForm, *, is_raising: bool) -> None:
    """The twin."""
    body = Contended(is_raising=is_raising)
    body.run_later(form)
    body.check_kept()


@by_name([*loop_forms.ASYNC_LEFT, *loop_forms.ASYNC_LEFT_INSIDE])
def test_a_refused_commit_is_raised_by_the_asynchronous_loop(form: AsyncForm) -> None:
    """The twin."""
    body = Contended()
    with pytest.raises(WriteConflict) as raised:
        body.run_later(form)
    body.check_left(raised)


@by_name(loop_forms.ASYNC_LEFT_INSIDE)
def test_an_early_error_is_tried_again_by_the_asynchronous_loop(form: AsyncForm) -> None:
    """The twin."""
    body = Contended(is_raising=True)
    body.run_later(form)
    body.check_kept()


@pytest.mark.parametrize("form", [loop_forms.KEPT[0], loop_forms.LEFT_INSIDE[0]])
def test_a_debugger_and_coverage_change_nothing(form: Form) -> None:
    """They trace, and some rewrite the instructions that run."""
    body = Contended()

    def trace(*_: object) -> Any:
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        if form in loop_forms.KEPT:
            body.run(form)
            body.check_kept()
        else:
            with pytest.raises(WriteConflict):
                body.run(form)
    finally:
        sys.settrace(before)


def test_a_decorated_function_needs_no_look_at_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its loop is our own, so that it is for those whose code is no bytecode."""
    monkeypatch.setattr("omidpy.tx.retry.goes_on", lambda *_: pytest.fail("it looked"))
    body = Contended()
    assert body.client.tm.transactional(body)() == 2
    assert body.client.read() == {b"cf:q": b"mine"}


def test_a_block_that_commits_may_be_left_as_one_likes() -> None:
    """What was committed needs no second try."""
    client = Client()

    def first() -> object:
        for attempt in client.tm.attempts():
            with attempt as tx:
                tx.table(TABLE).put(b"r", {b"cf:q": b"v"})
                return attempt
        return None

    assert getattr(first(), "succeeded", None) is True
    assert client.read() == {b"cf:q": b"v"}
