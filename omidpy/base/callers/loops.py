"""Will the `for` loop around a `with` block go on, once the block has ended?

An `__exit__` that swallows an error, so that its loop may try again, is called alike whether the
block ran to its end or was left by `return` or `break`.  In the latter case the loop does not go
on, no attempt follows, and no caller hears of the error.

So the code behind the block is followed, instruction by instruction: the loop goes on if each way
through it leads back to the loop's head, and to nowhere else.  This is a proof or nothing: what is
not understood counts as a way out.  That is a `yield` (the generator may never be resumed), an
exception that a handler outside of the loop would catch, a loop over something that wraps the
iterator (`islice`, `zip`), a helper that enters the block (`ExitStack`), and code that is no
bytecode, such as Cython's.

One question is understood, because it is how a loop may end in its own middle: `attempt.succeeded`
of the loop's own variable, and `attempt.error`.

It reads code objects by `dis`, of Python 3.11 and later.  Pure, apart from a cache.
"""

from __future__ import annotations

import dis
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import Final, NamedTuple, TypeVar
from weakref import ReferenceType, ref

T = TypeVar("T")

FALSE_AFTER_REFUSAL: Final = "succeeded"
"""An attribute of an object that swallows an error: false from then on."""
TRUE_AFTER_REFUSAL: Final = "error"
"""Another one: the error, which is no None."""

_MARKS: Final = frozenset({"CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "RESUME"})
"""Instructions that do nothing of their own."""
_SILENT: Final = _MARKS | {"POP_TOP", "POP_EXCEPT", "END_SEND", "SWAP", "COPY"}
"""Those that raise nothing."""
_ENDS: Final = ("RETURN", "INTERPRETER_EXIT")
"""What the names of instructions begin with that leave the frame without an exception."""
_RAISES: Final = ("RAISE", "RERAISE")
_RESUMED_AFTER_AWAIT: Final = 3
"""What the argument of RESUME is behind an `await`, in its two lowest bits."""


class Loop:
    """Where a `for` loop asked an object for its iterator.

    The same loop may run several times at once, where its function calls itself.  Which of them
    this is the number of its frame says, as long as the frame is there, which keeps the iterator.
    """

    __slots__ = ("_iterator", "code", "frame_id", "offset")

    def __init__(self, code: CodeType, offset: int, frame_id: int) -> None:
        """Note a place in a frame; nothing is kept of the frame itself."""
        self.code = code
        self.offset = offset
        self.frame_id = frame_id
        self._iterator: ReferenceType[object] | None = None

    @classmethod
    def around(cls, frame: FrameType) -> Loop:
        """Note the place from which `__iter__`, or `__aiter__`, is called, whatever stands there.

        `over` is to follow.
        """
        return cls(frame.f_code, frame.f_lasti, id(frame))

    def over(self, iterator: T) -> T:
        """Return the iterator that the loop gets; once that is gone, so is the loop."""
        self._iterator = ref(iterator)
        return iterator

    def runs_in(self, frame: FrameType) -> bool:
        """Say whether a frame is the one that the loop runs in."""
        is_there = self._iterator is not None and self._iterator() is not None
        return is_there and frame.f_code is self.code and id(frame) == self.frame_id


class Exit(NamedTuple):
    """Where an `__exit__`, or an `__aexit__`, was called from."""

    frame: FrameType
    offset: int

    @classmethod
    def of(cls, frame: FrameType) -> Exit:
        """Note where a frame is: at the call of an `__exit__`."""
        return cls(frame, frame.f_lasti)


def goes_on(loop: Loop, end: Exit, holder: object) -> bool:
    """Say whether a loop certainly goes on, if an `__exit__` that is under way returns true.

    Args:
        loop: The loop over the iterator that yielded `holder`.
        end: Where `__exit__` was called.
        holder: What was entered, with the attributes that are named above.
    """
    if not loop.runs_in(end.frame):
        return False
    flow = _flow(loop.code)
    start = flow.head_behind(loop.offset)
    if start is None:
        return False
    variable = flow.variable_of(start)
    # The variable may have been given to something else by now, or be no variable of this frame.
    if variable is not None and _value(end.frame, variable) is not holder:
        variable = None
    return flow.returns_to(start, loop.offset, end.offset, variable)


def _value(frame: FrameType, name: str) -> object:
    found = frame.f_locals.get(name)
    return frame.f_globals.get(name) if found is None else found


@lru_cache(maxsize=256)
def _flow(code: CodeType) -> _Flow:
    return _Flow(code)


class _Flow:
    """Which instruction of a function may follow which."""

    def __init__(self, code: CodeType) -> None:
        self._all: Sequence[dis.Instruction] = [
            one for one in dis.get_instructions(code) if one.opname != "CACHE"
        ]
        self._offsets = [one.offset for one in self._all]
        self._handlers = list(_handlers(code.co_exceptiontable))
        self._memory: dict[tuple[int, int, int, str | None], bool] = {}

    # -- the loop ------------------------------------------------------------------------------

    def head_behind(self, offset: int) -> int | None:
        """Return the index of the loop's head, if its iterator is asked for at an offset."""
        at = self._index(offset)
        if self._all[at].opname not in ("GET_ITER", "GET_AITER"):
            return None
        head = self._skip_marks(at + 1)
        return head if self._all[head].opname in ("FOR_ITER", "GET_ANEXT") else None

    def variable_of(self, head: int) -> str | None:
        """Return the name that the loop stores each item in; None if it is not so simple."""
        at = head + 1
        if self._all[head].opname == "GET_ANEXT":
            at = self._behind_await(at)
        at = self._skip_marks(at)
        name = self._all[at].argval
        if isinstance(name, tuple):  # it is stored, and something is loaded
            name = name[0]
        return name if self._all[at].opname.startswith("STORE_") and isinstance(name, str) else None

    # -- the way ---------------------------------------------------------------------------------

    def returns_to(self, head: int, loop_offset: int, offset: int, variable: str | None) -> bool:
        """Say whether every way from a call of `__exit__` leads back to the head of the loop."""
        key = (head, loop_offset, offset, variable)
        if (known := self._memory.get(key)) is None:
            known = self._memory[key] = self._follow(*key)
        return known

    def _follow(self, head: int, loop_offset: int, offset: int, variable: str | None) -> bool:
        start = self._behind_exit(offset)
        if start is None:
            return False
        before = self._index(loop_offset)
        sources: dict[int, set[int]] = {}
        """Instruction -> those from which it is reached."""
        raising: set[int] = set()
        todo = [start]
        seen = {start}
        while todo:
            at = todo.pop()
            if at == head:
                continue
            # The program that comes by here begins the loop anew, with another iterator.
            if at == before or (successors := self._successors(at, variable)) is None:
                return False
            if not successors:
                raising.add(at)
            for successor in successors:
                sources.setdefault(successor, set()).add(at)
                if successor not in seen:
                    seen.add(successor)
                    todo.append(successor)
        # A loop without an end is no way back either.
        return seen <= _reaching({head, *raising}, sources) and head in seen

    def _successors(self, at: int, variable: str | None) -> set[int] | None:
        """Return what may follow an instruction: nothing if it raises for all, None: not known."""
        one = self._all[at]
        name = one.opname
        if name.startswith(_ENDS) or self._is_yield(at):
            return None
        if variable is not None and name.startswith(("STORE_", "DELETE_")):
            names = one.argval if isinstance(one.argval, tuple) else (one.argval,)
            if variable in names:
                return None
        follows: set[int] = set()
        target = self._target(one)
        chosen = None if target is None else self._answer(at, variable)
        is_jump = name.startswith("JUMP") and "_IF_" not in name
        if target is not None and chosen is not False:
            follows.add(target)
        if not is_jump and not name.startswith(_RAISES) and chosen is not True:
            follows.add(at + 1)
        is_silent = is_jump or name in _SILENT or name.startswith("POP_JUMP")
        if not is_silent and (handler := self._handler(one.offset)) is not None:
            follows.add(handler)
        return follows

    def _is_yield(self, at: int) -> bool:
        """Say whether another caller may go on from here and never come back."""
        if self._all[at].opname != "YIELD_VALUE":
            return False
        # A function that can be resumed does not end here.
        after = self._all[at + 1]
        return after.opname != "RESUME" or (after.arg or 0) & 3 != _RESUMED_AFTER_AWAIT

    def _answer(self, at: int, variable: str | None) -> bool | None:
        """Say whether a conditional jump is taken that asks for the outcome of the attempt.

        None if it asks something else.
        """
        name = self._all[at].opname
        if variable is None or not name.startswith("POP_JUMP"):
            return None
        asked = self._skip_back(at - 1)
        if self._all[asked].opname == "TO_BOOL":
            asked = self._skip_back(asked - 1)
        loaded = self._skip_back(asked - 1)
        if self._all[asked].opname != "LOAD_ATTR" or self._all[loaded].argval != variable:
            return None
        if not self._all[loaded].opname.startswith("LOAD_"):
            return None
        attribute = self._all[asked].argval
        if attribute == FALSE_AFTER_REFUSAL:
            return {"FALSE": True, "TRUE": False}.get(name.rpartition("_")[2])
        if attribute == TRUE_AFTER_REFUSAL:
            return _of_true(name)
        return None

    def _behind_exit(self, offset: int) -> int | None:
        """Return what comes after a call of `__exit__` that returned true, or of nothing raised."""
        at = self._index(offset)
        name = self._all[at].opname
        is_raised = name == "WITH_EXCEPT_START"
        if not is_raised and not name.startswith("CALL"):
            return None
        at += 1
        if self._all[self._skip_marks(at)].opname == "GET_AWAITABLE":
            at = self._behind_await(at)
        if not is_raised:
            return at
        at = self._skip_marks(at)
        if self._all[at].opname == "TO_BOOL":
            at = self._skip_marks(at + 1)
        one = self._all[at]
        is_test = one.opname.startswith("POP_JUMP") and one.opname.endswith("IF_TRUE")
        return self._target(one) if is_test else None

    def _behind_await(self, at: int) -> int:
        """Return what comes when the `await` that begins here is done."""
        while self._all[at].opname != "SEND":
            at += 1
        target = self._target(self._all[at])
        assert target is not None, "SEND jumps to where there is nothing more to send"
        if self._all[target].opname == "END_SEND":
            target += 1
        return target

    # -- instructions ----------------------------------------------------------------------------

    def _index(self, offset: int) -> int:
        return min(bisect_left(self._offsets, offset), len(self._all) - 1)

    def _target(self, one: dis.Instruction) -> int | None:
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        # Where an asynchronous loop ends, the argument is there for monitors alone.
        if not is_jump or one.opname == "END_ASYNC_FOR":
            return None
        return self._index(one.argval)

    def _skip_marks(self, at: int) -> int:
        while self._all[at].opname in _MARKS and at + 1 < len(self._all):
            at += 1
        return at

    def _skip_back(self, at: int) -> int:
        while at > 0 and self._all[at].opname in _MARKS:
            at -= 1
        return at

    def _handler(self, offset: int) -> int | None:
        return next(
            (self._index(to) for start, end, to in self._handlers if start <= offset < end), None
        )


def _of_true(jump: str) -> bool | None:
    """Say whether a conditional jump is taken for a value that is true, and no None."""
    if jump.endswith("IF_NOT_NONE"):
        return True
    return {"TRUE": True, "FALSE": False, "NONE": False}.get(jump.rpartition("_")[2])


def _reaching(goals: set[int], sources: dict[int, set[int]]) -> set[int]:
    """Return all from which a goal is reached, and the goals."""
    found, todo = set(goals), list(goals)
    while todo:
        for source in sources.get(todo.pop(), ()):
            if source not in found:
                found.add(source)
                todo.append(source)
    return found


def _handlers(table: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield what an exception table says: from where to where which handler holds, in bytes.

    Each entry is four numbers of six bits a byte, the greatest first: start, length, handler and
    depth, the first three in code units of two bytes.
    """
    numbers: list[int] = []
    number = 0
    for byte in table:
        number = (number << 6) | (byte & 0x3F)
        if not byte & 0x40:
            numbers.append(number)
            number = 0
    for start, length, handler, _ in zip(*[iter(numbers)] * 4, strict=True):
        yield 2 * start, 2 * (start + length), 2 * handler
