"""What is a step, and how does it outlive the process that made it?

A step is a frozen dataclass.  Its fields are all that is kept of it: they are written as JSON
beside its name and version, and the executor that runs it later, here or elsewhere, makes it anew
from them.  So what is random or depends on the time is chosen in one step and carried in a field of
the next.

    @step(version=1)
    class Reserve(Step):
        order: str

        def call(self, tx, env):
            env.seats.reserve(self.order, owner=tx.id)      # may run again: must not reserve twice
            return Charge(self.order)

        def undo(self, tx, env):
            env.seats.release(owner=tx.id)                  # may run although `call` never did

`ready`, `call` and `undo` may each run any number of times, in any half-done world, and in the
worst case while a process that was paused is still at the same call.

A name is registered once for each version, under the module that defines it: `shop.Reserve`.  A
step whose name or version is not registered is no failure: its operation waits for an executor that
knows it.

Lacks everything of executors and stores.  Source: Accumulo's Repo, which is serialized by Java, so
that no upgrade is possible while one is stored.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, dataclass_transform

import msgspec

from omidpy.base.documents import UNREADABLE, prepared
from omidpy.base.words.arguments import runs_later
from omidpy.base.words.durations import MAX_DURATION_S
from omidpy.errors import CorruptCell, FateError, UsageError
from omidpy.fate.operation import failure_of

S = TypeVar("S", bound="Step")


# -- what a step may answer ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Defer:
    """Answer of `ready`: how long to wait, and why; `omidpy fate status` shows it."""

    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """Answer of `call`: the operation has succeeded, with a result that JSON can hold."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Again:
    """Answer of `call`: this step goes on as `step`, in its own place.  Made by `Step.again`."""

    step: Step


Answer: TypeAlias = "Step | Again | Done | None"
"""What `call` may return; None is `Done()`."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a step is tried before its operation rolls back, and when again.

    Args:
        max: Tries in all.  Behind a pivot there is no end: the longest pause is kept.
        backoff: By how much each pause is longer than the one before.
        first_s: The first pause in seconds.
        longest_s: The longest.
        on: What is worth another try; any other exception fails the operation at once.
    """

    max: int = 1
    backoff: float = 2.0
    first_s: float = 1.0
    longest_s: float = 60.0
    on: tuple[type[Exception], ...] = (Exception,)

    def __post_init__(self) -> None:
        """Refuse numbers that say nothing, and an `on` that no failure could be compared with."""
        numbers = (self.backoff, self.first_s, self.longest_s)
        are_numbers = isinstance(self.max, int) and all(isinstance(n, int | float) for n in numbers)
        is_in_order = are_numbers and self.max >= 1 and 1 <= self.backoff < math.inf
        if not (is_in_order and 0 <= self.first_s <= self.longest_s <= MAX_DURATION_S):
            raise UsageError(
                f"{self} makes no sense: max and backoff are at least 1, and first_s is between 0 "
                f"and longest_s, which is {MAX_DURATION_S:.0f} at most"
            )
        some = self.on if isinstance(self.on, tuple) else (self.on,)
        if not all(isinstance(one, type) and issubclass(one, BaseException) for one in some):
            raise UsageError(
                f"{self} makes no sense: on is a tuple of exceptions, such as (OSError,)"
            )

    def pause_s(self, failures: int) -> float:
        """Return how long to wait after so many failures."""
        # 2.0 ** 1024 does not exist.
        exponent = min(failures - 1, 64 / math.log2(self.backoff) if self.backoff > 1 else 0)
        return float(min(self.first_s * self.backoff**exponent, self.longest_s))


ONCE: Final = Retry()
"""The retry of a step that names none."""


class StepContext(Protocol):
    """What a step is told of the operation that it is part of."""

    @property
    def id(self) -> str:
        """16 hex digits, the same however often the operation changes hands: names what it owns."""
        ...

    @property
    def attempt(self) -> int:
        """1 for the first try of this step, as far as failures were recorded."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether the executor wants to stop: a long call may end with `self.again(...)`."""
        ...

    def confirm(self) -> None:
        """Make sure, right before what cannot be taken back, that the operation is still ours.

        A process may have been stopped since it was asked, for longer than its lease.  What
        happens behind this look is the business of whatever the step calls.

        Cost: 1 read.

        Raises:
            ReservationLost: another executor runs it now; let it pass.
            StorageUnavailable: that is not known.
        """
        ...

    def progress(self, text: str) -> None:
        """Say how far the step is; `omidpy fate status` shows the last word.

        Raises:
            ReservationLost: another executor runs the operation now; end the call.
        """
        ...


# -- steps -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What `@step` says of a class."""

    name: str
    version: int
    is_pivot: bool
    retry: Retry


class Step(ABC):
    """Base of every step; see `step`."""

    spec: ClassVar[StepSpec]

    def ready(self, tx: StepContext, env: Any) -> float | Defer | None:
        """Say how many seconds to wait before `call` may run; 0 or None: it may run now."""
        del tx, env
        return None

    @abstractmethod
    def call(self, tx: StepContext, env: Any) -> Answer:
        """Do it, and return the next step, `self.again(...)`, `Done(result)` or None."""

    def undo(self, tx: StepContext, env: Any) -> None:
        """Undo whatever of `call` may have happened, which may be nothing."""
        del tx, env

    def again(self, **changes: Any) -> Again:
        """Go on with this step with other fields, in its own place on the stack."""
        return Again(dataclasses.replace(self, **changes))  # type: ignore[type-var]  # @step makes it one

    @classmethod
    def needs_ready(cls) -> bool:
        """Say whether the class has a `ready` of its own."""
        return cls.ready is not Step.ready


@dataclass_transform(frozen_default=True)
def step(
    *,
    version: int,
    name: str | None = None,
    namespace: str | None = None,
    pivot: bool = False,
    retry: Retry = ONCE,
) -> Callable[[type[S]], type[S]]:
    """Make a subclass of `Step` a frozen dataclass that can be stored, and register it.

    Args:
        version: Of the fields and of what they mean.  A release that changes them takes the next
            one, and keeps the old class under its old version while operations with it may be
            stored.
        name: By default the name of the class.
        namespace: By default the last part of the module's name, or the name of the script.
        pivot: Once this step is about to be called the operation only rolls forward: it cannot be
            cancelled or failed any more, and is not undone.
        retry: How often it is tried; by default once.

    Raises:
        UsageError: another class is registered under this name and version, it is no `Step`, or a
            method of it is an `async def` or a generator.
    """

    def register(cls: type[S]) -> type[S]:
        if not (isinstance(cls, type) and issubclass(cls, Step)):
            raise UsageError(f"{cls!r} is no subclass of Step; write `class {cls!r}(Step)`")
        if type(version) is not int or version < 1:
            raise UsageError(f"version={version!r} of {cls.__name__}: use 1, 2, 3, ...")
        if "spec" in vars(cls):
            raise UsageError(f"{cls.__name__} has @step already; write a class for each version")
        if not isinstance(retry, Retry):
            raise UsageError(f"retry={retry!r} of {cls.__name__}: use Retry(max=...)")
        _check_methods(cls)
        made = dataclass(frozen=True)(cls)
        full_name = f"{namespace or _namespace(cls)}.{name or cls.__name__}"
        _check_fields(made)
        made.spec = StepSpec(full_name, version, pivot, retry)
        _register(made)
        return made

    return register


def _check_methods(cls: type[Step]) -> None:
    for method in (cls.ready, cls.call, cls.undo):
        if runs_later(method):
            raise UsageError(
                f"{method.__qualname__} is an `async def` or a generator, which nobody goes on "
                "with, so that it does nothing; let it be a plain function, which may call "
                "asyncio.run(...)"
            )


_TAKEN: Final = frozenset({"spec", "ready", "call", "undo", "again", "needs_ready"})
"""Names that every step has for something else than a field."""


def _check_fields(cls: type[Step]) -> None:
    for name in sorted(_field_names(cls) & _TAKEN):
        raise UsageError(
            f"the field {name!r} of {cls.__name__} hides what every step has under that name; give "
            "it another one"
        )


_steps: Final[dict[tuple[str, int], type[Step]]] = {}
"""Shared by threads without a lock, which an interrupt might leave locked: each use is one step."""


def _namespace(cls: type[Step]) -> str:
    """Return the module's own name; a script's is what it is called when it is imported."""
    if cls.__module__ != "__main__":
        return cls.__module__.rpartition(".")[2]
    file = getattr(sys.modules["__main__"], "__file__", None)
    return "main" if file is None else Path(file).stem


def _register(cls: type[Step]) -> None:
    key = (cls.spec.name, cls.spec.version)
    other = _steps.setdefault(key, cls)
    if not _is_same(cls, other):
        raise UsageError(
            f"step {cls.spec.name!r} version {cls.spec.version} is {other.__module__}."
            f"{other.__qualname__} already; give {cls.__module__}.{cls.__qualname__} another "
            "name= or namespace=, or its next version="
        )
    _steps[key] = cls


def _is_same(cls: type[Step], other: type[Step]) -> bool:
    """Say whether it is one class, loaded anew, or as a script and as a module."""
    modules = {cls.__module__, other.__module__}
    return cls.__qualname__ == other.__qualname__ and (len(modules) == 1 or "__main__" in modules)


# -- JSON ------------------------------------------------------------------------------------------


class StoredStep(msgspec.Struct, frozen=True):
    """What is kept of a step."""

    step: str
    version: int
    fields: dict[str, Any] = {}


class UnknownStep(FateError):
    """No class here fits a stored step; one of another executor may."""


def encode_step(step: Step) -> bytes:
    """Return what is kept of a step.

    Raises:
        UsageError: it would not come back as it is, naming the field.
    """
    cls = type(step)
    if "spec" not in vars(cls):
        raise UsageError(f"{cls.__qualname__} has no version; decorate it with @step(version=1)")
    try:
        fields = msgspec.to_builtins(step)
        raw = msgspec.json.encode(StoredStep(cls.spec.name, cls.spec.version, fields))
        copy = decode_step(raw)
    except (
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        msgspec.MsgspecError,
        UnknownStep,
    ) as error:
        raise UsageError(f"step {cls.spec.name} cannot be kept as JSON: {error}") from error
    for field in dataclasses.fields(step):  # type: ignore[arg-type]  # @step makes it a dataclass
        if (kept := getattr(copy, field.name)) != (given := getattr(step, field.name)):
            raise UsageError(
                f"the field {field.name!r} of step {cls.spec.name} would come back as {kept!r}, "
                f"and is {given!r}; give it a type that JSON can hold"
            )
    return raw


def stored_step(raw: bytes, *, where: str) -> StoredStep:
    """Read the name, version and fields of a stored step.

    Raises:
        CorruptCell: it is no stored step, naming `where` it is.
    """
    try:
        return msgspec.json.decode(raw, type=prepared(StoredStep))
    except UNREADABLE as error:
        raise CorruptCell(f"{where} holds {raw[:80]!r}, which is no step: {error}") from error


def decode_step(raw: bytes, *, where: str = "the step") -> Step:
    """Make a stored step anew.

    Raises:
        UnknownStep: its name, its version or its fields are not known here.
        CorruptCell: it is no stored step.
    """
    stored = stored_step(raw, where=where)
    cls = _steps.get((stored.step, stored.version))
    if cls is None:
        raise UnknownStep(_unknown(stored))
    if strangers := sorted(set(stored.fields) - _field_names(cls)):
        raise UnknownStep(
            f"step {stored.step!r} version {stored.version} was stored with the field "
            f"{strangers[0]!r}, which {cls.__module__}.{cls.__qualname__} lacks; a class with "
            "other fields needs its next version="
        )
    try:
        return msgspec.convert(stored.fields, prepared(cls))
    except msgspec.ValidationError as error:
        raise UnknownStep(
            f"step {stored.step!r} version {stored.version} was stored with fields that "
            f"{cls.__module__}.{cls.__qualname__} does not take ({error}); a class with other "
            "fields needs its next version="
        ) from error
    except Exception as error:  # of its `__post_init__`, which may raise anything
        raise UnknownStep(
            f"step {stored.step!r} version {stored.version} was stored with fields that "
            f"{cls.__module__}.{cls.__qualname__} refuses ({failure_of(error)}); a class that "
            "takes less needs its next version="
        ) from error


@functools.cache
def _field_names(cls: type[Step]) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]  # see above


def _unknown(stored: StoredStep) -> str:
    versions = sorted(version for name, version in list(_steps) if name == stored.step)
    if versions:
        known = ", ".join(map(str, versions))
        return (
            f"step {stored.step!r} has version {stored.version}, and here are only versions "
            f"{known}; run an executor of the program that stored it"
        )
    return (
        f"step {stored.step!r} is not known here; run an executor that imports the module that "
        f"defines it: omidpy fate run --module {stored.step.rpartition('.')[0] or 'MODULE'}"
    )
