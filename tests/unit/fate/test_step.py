"""Steps: what is kept of them, what comes back, and what is refused before it is kept."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import FrozenInstanceError
from types import ModuleType
from typing import Any

import pytest

from omidpy.errors import CorruptCell, UsageError
from omidpy.fate.step import (
    Again,
    Answer,
    Done,
    Retry,
    Step,
    StepContext,
    UnknownStep,
    decode_step,
    encode_step,
    step,
)


class Base(Step):
    """A step that does nothing."""

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Be the end."""
        return Done()


@step(version=1, namespace="test-steps")
class Plain(Base):
    """A step with fields of many types."""

    name: str
    number: int = 0
    raw: bytes = b""
    names: tuple[str, ...] = ()
    chosen: dict[str, float] | None = None
    anything: Any = None


def test_a_step_comes_back_as_it_was() -> None:
    """Its fields are all that a process leaves to its successor."""
    for made in (
        Plain("a"),
        Plain("é", -(2**62), b"\x00\xff", ("x", "y"), {"half": 0.5}, [1, None, {"k": True}]),
    ):
        assert decode_step(encode_step(made)) == made


def test_what_is_kept_is_json_with_a_name_and_a_version() -> None:
    """An operator can read it, and no code comes out of it."""
    raw = encode_step(Plain("a", raw=b"\xff"))
    assert raw.startswith(b'{"step":"test-steps.Plain","version":1,"fields":{"name":"a"')
    assert b'"raw":"/w=="' in raw


def test_a_step_does_not_change() -> None:
    """What `call` did to its own fields would be lost with its process."""
    made = Plain("a")
    with pytest.raises(FrozenInstanceError):
        made.number = 1  # type: ignore[misc]  # that is the test
    assert made.again(number=2) == Again(Plain("a", 2))


def test_a_field_that_would_come_back_different_is_refused() -> None:
    """The first process would see a tuple, and its successor a list."""
    with pytest.raises(UsageError, match=r"'anything' of step test-steps\.Plain .* \[1, 2\]"):
        encode_step(Plain("a", anything=(1, 2)))
    with pytest.raises(UsageError, match=r"test-steps\.Plain cannot be kept as JSON"):
        encode_step(Plain("a", anything=object()))
    with pytest.raises(UsageError, match=r"test-steps\.Plain cannot be kept as JSON"):
        encode_step(Plain(7))  # type: ignore[arg-type]  # that is the test


def test_a_step_without_a_version_is_refused() -> None:
    """Nobody could say later which class was meant; a subclass is a step of its own."""

    class Undecorated(Plain):
        pass

    for made in (Undecorated("a"), Base()):
        with pytest.raises(UsageError, match=r"@step\(version=1\)"):
            encode_step(made)


def test_only_subclasses_of_step_with_a_version_can_be_registered() -> None:
    """The message says what to write."""
    with pytest.raises(UsageError, match="no subclass of Step"):
        step(version=1)(object)  # type: ignore[type-var]  # that is the test
    for version in (0, -1, True, "1"):
        with pytest.raises(UsageError, match="version="):
            step(version=version)(Base)  # type: ignore[arg-type]  # that is the test


def test_an_unknown_name_says_where_it_may_be_known() -> None:
    """Its operation waits for an executor of another program."""
    with pytest.raises(UnknownStep, match="omidpy fate run --module nobody"):
        decode_step(b'{"step":"nobody.Knows","version":1,"fields":{}}')


def test_an_unknown_version_says_which_are_known() -> None:
    """A store may be read by an older program, or a newer one."""
    with pytest.raises(UnknownStep, match="version 9, and here are only versions 1"):
        decode_step(b'{"step":"test-steps.Plain","version":9,"fields":{"name":"a"}}')


def test_fields_that_the_class_lacks_are_not_dropped_silently() -> None:
    """Somebody changed the class and forgot its version."""
    with pytest.raises(UnknownStep, match=r"field 'colour'.*next version="):
        decode_step(b'{"step":"test-steps.Plain","version":1,"fields":{"name":"a","colour":"red"}}')
    with pytest.raises(UnknownStep, match=r"missing required field `name`.*next version="):
        decode_step(b'{"step":"test-steps.Plain","version":1,"fields":{}}')
    with pytest.raises(UnknownStep, match=r"next version="):
        decode_step(b'{"step":"test-steps.Plain","version":1,"fields":{"name":3}}')


def test_bytes_that_are_no_step_say_where_they_are() -> None:
    """Somebody else has written there."""
    for raw in (b"", b"\x80\x04pickle", b"[]", b'{"step":1}', b'{"version":1}'):
        with pytest.raises(CorruptCell, match="here holds"):
            decode_step(raw, where="here")


def test_two_versions_of_a_step_live_side_by_side() -> None:
    """The old one as long as operations with it may be stored."""

    @step(version=1, name="Versioned", namespace="test-steps")
    class Old(Base):
        count: int

    @step(version=2, name="Versioned", namespace="test-steps")
    class New(Base):
        count: int
        unit: str

    assert decode_step(encode_step(Old(1))) == Old(1)
    assert decode_step(encode_step(New(1, "m"))) == New(1, "m")


def test_two_classes_under_one_name_are_refused() -> None:
    """A successor would run the wrong one."""
    with pytest.raises(UsageError, match=r"'test-steps\.Plain' version 1 is .*namespace="):

        @step(version=1, name="Plain", namespace="test-steps")
        class Other(Base):
            pass


def test_one_name_in_two_modules_is_refused() -> None:
    """Modules of one last name share a namespace, unless they say otherwise."""

    def twin(module: str) -> type[Base]:
        return type("Twin", (Base,), {"__module__": module, "__qualname__": "Twin"})

    made = step(version=1)(twin("a.jobs"))
    with pytest.raises(UsageError, match=r"a\.jobs\.Twin already"):
        step(version=1)(twin("b.jobs"))
    assert step(version=1, namespace="b-jobs")(twin("b.jobs")).spec.name == "b-jobs.Twin"
    with pytest.raises(UsageError, match="a class for each version"):
        step(version=2)(made)


def test_a_class_may_be_defined_again() -> None:
    """A notebook runs a cell twice, and a module is loaded anew."""
    for number in (1, 2):
        made = type(
            "Anew", (Base,), {"__module__": "m.anew", "__qualname__": "Anew", "number": number}
        )
        step(version=1)(made)
    found = decode_step(b'{"step":"anew.Anew","version":1,"fields":{}}')
    assert getattr(found, "number") == 2  # noqa: B009 - the base does not have it


def test_a_script_and_its_module_have_the_same_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python shop.py` submits what `omidpy fate run --module shop` goes on with."""
    main = ModuleType("__main__")
    main.__dict__["__file__"] = "/somewhere/shop.py"
    monkeypatch.setitem(sys.modules, "__main__", main)
    for module in ("__main__", "shop", "__main__"):
        made: type[Base] = step(version=1)(
            type("Pay", (Base,), {"__module__": module, "__qualname__": "Pay"})
        )
        assert made.spec.name == "shop.Pay"
    del main.__dict__["__file__"]
    typed: type[Base] = step(version=1)(type("Pay", (Base,), {"__module__": "__main__"}))
    assert typed.spec.name == "main.Pay"


@pytest.mark.parametrize(
    ("retry", "failures", "pause_s"),
    [
        (Retry(max=8), 1, 1.0),
        (Retry(max=8), 3, 4.0),
        (Retry(max=8), 100_000, 60.0),
        (Retry(max=8, backoff=1.0, first_s=5.0), 100_000, 5.0),
        (Retry(max=8, backoff=1e9, first_s=0.0), 9, 0.0),
    ],
)
def test_pauses_grow_up_to_the_longest(retry: Retry, failures: int, pause_s: float) -> None:
    """And no number is too large for it: behind a pivot there is no last try."""
    assert retry.pause_s(failures) == pause_s


def test_a_retry_that_makes_no_sense_is_refused() -> None:
    """Here, and not in the night."""
    for wrong in (
        {"max": 0},
        {"backoff": 0.5},
        {"first_s": -1.0},
        {"first_s": 9.0, "longest_s": 1.0},
        {"first_s": math.nan},
        {"longest_s": math.inf},
        {"backoff": math.inf},
        {"max": "3"},
        {"longest_s": None},
        {"on": "OSError"},
        {"on": None},
        {"on": (int,)},
    ):
        with pytest.raises(UsageError, match="makes no sense"):
            Retry(**wrong)


async def later(_step: Step, _tx: StepContext, _env: object) -> None:
    """Do nothing, as long as nobody awaits it."""


def piecemeal(_step: Step, _tx: StepContext, _env: object) -> Iterator[None]:
    """Do nothing, as long as nobody goes over it."""
    yield


async def piecemeal_later(_step: Step, _tx: StepContext, _env: object) -> AsyncIterator[None]:
    """Do nothing, as long as nobody does either."""
    yield


@pytest.mark.parametrize("phase", ["ready", "call", "undo"])
@pytest.mark.parametrize("method", [later, piecemeal, piecemeal_later])
def test_a_method_that_would_not_run_is_refused(phase: str, method: object) -> None:
    """An `undo` of asyncio's was called, and its operation told that all was undone."""
    methods = {"call": lambda _step, _tx, _env: Done(), phase: method}
    cls = type("Waits", (Step,), {"__module__": __name__, **methods})
    with pytest.raises(UsageError, match="does nothing; let it be a plain function"):
        step(version=1)(cls)


def test_a_retry_that_is_none_is_refused() -> None:
    """Each failure of the step would have been one of its executor."""
    cls = type("Tries", (Step,), {"__module__": __name__, "call": lambda *_: Done()})
    with pytest.raises(UsageError, match=r"retry=3 of Tries: use Retry\(max=...\)"):
        step(version=1, retry=3)(cls)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["spec", "ready", "call", "undo", "again"])
def test_no_field_hides_what_every_step_has(name: str) -> None:
    """Its operation could not be run, nor say why."""

    def make() -> type[Step]:
        return step(version=1, namespace="test-steps")(
            type("Hiding", (Base,), {"__annotations__": {name: str}, "__module__": __name__})
        )

    with pytest.raises(UsageError, match=f"the field '{name}' of Hiding hides what every step"):
        make()


@step(version=1, namespace="test-steps")
class Strict(Base):
    """A step whose release takes less than the one before."""

    number: int

    def __post_init__(self) -> None:
        """Refuse it in a way of its own."""
        assert self.number < 10, "too much"


def test_what_a_class_refuses_by_now_is_unknown_here() -> None:
    """Another executor may run it; whatever else it raised came out of the executor's threads."""
    raw = encode_step(Strict(3)).replace(b"3", b"30")
    with pytest.raises(UnknownStep, match=r"Strict refuses \(AssertionError: too much"):
        decode_step(raw)
