"""Ways to write a loop over attempts, and whether a refused one may be tried again there.

Each is a function of something to iterate over, whose items are entered, and of what their blocks
do.  It lacks all imports but the standard library's, so that any Python can run it.
"""

# ruff: noqa: B012, D103, PLW0120, RET504, TRY301, UP028 - each form is what its name says

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

Body = Callable[[Any], Any]
Form = Callable[[Any, Body], Any]
AsyncForm = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]

KEPT: Final[list[Form]] = []
"""Here the loop goes on."""
LEFT: Final[list[Form]] = []
"""Here it does not, or nobody can know."""
LEFT_INSIDE: Final[list[Form]] = []
"""Here it does not if the block comes to what leaves it."""
ASYNC_KEPT: Final[list[AsyncForm]] = []
ASYNC_LEFT: Final[list[AsyncForm]] = []
ASYNC_LEFT_INSIDE: Final[list[AsyncForm]] = []


def kept(form: Form) -> Form:
    """Collect a form whose loop goes on."""
    KEPT.append(form)
    return form


def left(form: Form) -> Form:
    """Collect a form whose loop may not go on."""
    LEFT.append(form)
    return form


def left_inside(form: Form) -> Form:
    """Collect a form whose block leaves the loop, unless it raises before."""
    LEFT_INSIDE.append(form)
    return form


def async_kept(form: AsyncForm) -> AsyncForm:
    """Collect a form whose loop goes on."""
    ASYNC_KEPT.append(form)
    return form


def async_left(form: AsyncForm) -> AsyncForm:
    """Collect a form whose loop may not go on."""
    ASYNC_LEFT.append(form)
    return form


def async_left_inside(form: AsyncForm) -> AsyncForm:
    """Collect a form whose block leaves the loop, unless it raises before."""
    ASYNC_LEFT_INSIDE.append(form)
    return form


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextlib.asynccontextmanager
async def _async_nothing() -> AsyncIterator[None]:
    yield


# -- the loop goes on ------------------------------------------------------------------------------


@kept
def the_plain_form(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)


@kept
def a_value_for_after_the_loop(attempts: Any, body: Body) -> object:
    result = None
    for attempt in attempts:
        with attempt as tx:
            result = body(tx)
    return result


@kept
def code_behind_the_block(attempts: Any, body: Body) -> list[int]:
    numbers: list[int] = []
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        numbers.append(len(numbers))
        for number in numbers:
            if number > 1:
                numbers.clear()
                break
    return numbers


@kept
def continue_in_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
            if tx is not body:
                continue
            body(tx)


@kept
def continue_behind_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if body is None:
            continue
        str(tx)


@kept
def an_inner_loop_that_is_left(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            for _ in range(3):
                body(tx)
                break


@kept
def other_blocks_around(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with _nothing(), _nothing(), attempt as tx, _nothing():
            body(tx)


@kept
def finally_around_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        try:
            with attempt as tx:
                body(tx)
        finally:
            str(attempt)


@kept
def a_handler_around_the_block(attempts: Any, body: Body) -> str | None:
    for attempt in attempts:
        try:
            with attempt as tx:
                body(tx)
        except ZeroDivisionError:
            return "divided"
    return None


@kept
def a_handler_around_the_loop(attempts: Any, body: Body) -> str | None:
    try:
        for attempt in attempts:
            with attempt as tx:
                body(tx)
    except ZeroDivisionError:
        return "divided"
    else:
        return None


@kept
def return_if_it_succeeded(attempts: Any, body: Body) -> object:
    for attempt in attempts:
        with attempt as tx:
            result = body(tx)
        if attempt.succeeded:
            return result
    raise AssertionError("the loop raises")


@kept
def break_unless_it_failed(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if not attempt.succeeded:
            continue
        break


@kept
def break_without_an_error(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if attempt.error is None:
            break


@kept
def break_with_no_true_error(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if not attempt.error:
            break


@kept
def something_at_the_end_of_the_loop(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
    else:
        str(body)


@kept
def the_iterator_by_name(attempts: Any, body: Body) -> None:
    tries = attempts
    for attempt in tries:
        with attempt as tx:
            body(tx)


@kept
def a_variable_of_an_inner_function(attempts: Any, body: Body) -> None:
    def number() -> object:
        return attempt

    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if attempt.succeeded:
            break
    number()


@kept
def an_endless_service(attempts: Any, body: Body) -> None:
    """Its loop is begun anew for each job; here there is only one."""
    jobs = [attempts]
    while True:
        if not jobs:
            return
        for attempt in jobs.pop():
            with attempt as tx:
                body(tx)


_LONG = "\n".join(f"        body(tx) if {n} < 0 else None; x{n} = {n}" for n in range(300))
_long: dict[str, Any] = {}
# Its jumps are longer than one byte tells, and so are the numbers of its variables.
exec(  # from the lines above
    f"def a_long_function(attempts, body):\n"
    f"    for attempt in attempts:\n{_LONG}\n"
    f"        with attempt as tx:\n            body(tx)\n"
    f"        str(tx)\n        if attempt.succeeded:\n            return x299\n{_LONG}\n",
    _long,
)
kept(_long["a_long_function"])


# -- it does not ---------------------------------------------------------------------------------


@left_inside
def return_in_the_block(attempts: Any, body: Body) -> object:
    for attempt in attempts:
        with attempt as tx:
            return body(tx)
    return None


@left_inside
def return_nothing_in_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
            return


@left_inside
def break_in_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
            break


@left_inside
def break_in_one_branch(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
            if tx is not body:
                break
            body(tx)


@left_inside
def return_from_an_inner_loop(attempts: Any, body: Body) -> object:
    for attempt in attempts:
        with attempt as tx:
            for _ in range(3):
                return body(tx)
    return None


@left
def return_behind_the_block(attempts: Any, body: Body) -> object:
    for attempt in attempts:
        with attempt as tx:
            result = body(tx)
        return result
    return None


@left
def break_behind_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if tx is not body:
            break


@left
def break_if_it_did_not_succeed(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        if not attempt.succeeded:
            break


@left
def another_one_is_asked(attempts: Any, body: Body) -> None:
    class Other:
        succeeded = True

    for attempt in attempts:
        with attempt as tx:
            body(tx)
        attempt = Other()  # noqa: PLW2901 - that is the case
        if attempt.succeeded:
            break


@left
def the_variable_is_another_one(attempts: Any, body: Body) -> None:
    class Other:
        succeeded = True

    for attempt in attempts:
        entered, attempt = attempt, Other()  # noqa: PLW2901 - that is the case
        with entered as tx:
            body(tx)
        if attempt.succeeded:
            break


@left_inside
def return_through_other_blocks(attempts: Any, body: Body) -> object:
    for attempt in attempts:
        with _nothing(), attempt as tx, _nothing():
            return body(tx)
    return None


@left_inside
def return_through_finally(attempts: Any, body: Body) -> object:
    for attempt in attempts:
        try:
            with attempt as tx:
                return body(tx)
        finally:
            str(attempt)
    return None


@left
def break_in_finally(attempts: Any, body: Body) -> None:
    tries = 0
    for attempt in attempts:
        with _nothing():
            with attempt as tx:
                body(tx)
            try:
                tries += 1
            finally:
                if tries:
                    break


@left
def a_handler_that_leaves(attempts: Any, body: Body) -> None:
    try:
        for attempt in attempts:
            with attempt as tx:
                body(tx)
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


@left_inside
def return_where_the_loop_is_begun_anew(attempts: Any, body: Body) -> None:
    jobs = [attempts]
    while jobs:
        for attempt in jobs.pop():
            with attempt as tx:
                body(tx)
                break


@left
def an_endless_loop_behind_the_block(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with attempt as tx:
            body(tx)
        while True:
            next(iter([]))


@left
def yield_in_the_loop(attempts: Any, body: Body) -> None:
    def values() -> Iterator[object]:
        for attempt in attempts:
            with attempt as tx:
                result = body(tx)
            yield result

    for _ in values():
        break


@left
def yield_in_a_helper(attempts: Any, body: Body) -> None:
    def helper() -> Iterator[Any]:
        for attempt in attempts:
            yield attempt

    for attempt in helper():
        with attempt as tx:
            body(tx)
            break


@left
def a_slice(attempts: Any, body: Body) -> None:
    for attempt in itertools.islice(attempts, 1):
        with attempt as tx:
            body(tx)


@left
def one_try(attempts: Any, body: Body) -> None:
    with next(iter(attempts)) as tx:
        body(tx)


@left
def a_stack(attempts: Any, body: Body) -> None:
    for attempt in attempts:
        with contextlib.ExitStack() as stack:
            body(stack.enter_context(attempt))
            break


@left
def a_helper(attempts: Any, body: Body) -> None:
    def enter(attempt: Any) -> None:
        with attempt as tx:
            body(tx)

    for attempt in attempts:
        enter(attempt)
        break


@left
def the_same_loop_further_in(attempts: Any, body: Body) -> None:
    def run(given: Any) -> None:
        for attempt in given:
            if given is attempts:
                run([attempt])
                break
            with attempt as tx:
                body(tx)

    run(attempts)


@left
def the_same_loop_once_more(attempts: Any, body: Body) -> None:
    def run(given: Any) -> Any:
        for attempt in given:
            if given is attempts:
                return attempt
            with attempt as tx:
                body(tx)
        return None

    # Its frame is likely to be where that of the first call was.
    run([run(attempts)])


# -- asyncio -----------------------------------------------------------------------------------


@async_kept
async def the_plain_async_form(attempts: Any, body: Any) -> None:
    async for attempt in attempts:
        async with attempt as tx:
            await body(tx)


@async_kept
async def code_behind_the_async_block(attempts: Any, body: Any) -> object:
    async for attempt in attempts:
        async with _async_nothing(), attempt as tx:
            result = await body(tx)
        async with _async_nothing():
            str(tx)
        if attempt.succeeded:
            return result
    raise AssertionError("the loop raises")


@async_kept
async def handlers_around_async_blocks(attempts: Any, body: Any) -> str | None:
    try:
        async for attempt in attempts:
            try:
                async with attempt as tx:
                    await body(tx)
                    if tx is not body:
                        continue
                    await body(tx)
            except ZeroDivisionError:
                return "divided"
    except ZeroDivisionError:
        return "divided"
    else:
        return None


@async_left_inside
async def return_in_the_async_block(attempts: Any, body: Any) -> object:
    async for attempt in attempts:
        async with attempt as tx:
            return await body(tx)
    return None


@async_left_inside
async def break_in_the_async_block(attempts: Any, body: Any) -> None:
    async for attempt in attempts:
        async with attempt as tx:
            await body(tx)
            break


@async_left
async def return_behind_the_async_block(attempts: Any, body: Any) -> object:
    async for attempt in attempts:
        async with attempt as tx:
            result = await body(tx)
        return result
    return None


@async_left
async def yield_in_the_async_loop(attempts: Any, body: Any) -> None:
    async def values() -> AsyncIterator[object]:
        async for attempt in attempts:
            async with attempt as tx:
                result = await body(tx)
            yield result

    async for _ in values():
        break


@async_left
async def an_async_stack(attempts: Any, body: Any) -> None:
    async for attempt in attempts:
        async with contextlib.AsyncExitStack() as stack:
            await body(await stack.enter_async_context(attempt))
            break
