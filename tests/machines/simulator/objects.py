"""Amazon's S3, and stores like it, as a process reaches them: late, silent, busy, and strict.

Beneath is the store of objects of the tests of committers, which answers 404, 412 and NoSuchUpload
as S3 does.  In between a request takes time on its way there and back.  It may get lost, or be
carried out without an answer, or long after its sender gave it up; it may be answered 503, or 409
where it has a condition.  The sender tries four times, as boto3 does, and notes what had no answer.

What is deleted is not deleted late: S3 knows no conditions there, so that nothing could be said of
what a later run of a job has written under the same name.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from unittest import mock

from botocore.exceptions import ClientError, ConnectionClosedError, ReadTimeoutError

from omidpy.committers import choice, s3, transactional
from omidpy.committers.heads import deciding, standing
from omidpy.committers.objects import answers
from omidpy.committers.objects import store as stores
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.publishing import completing, ending, success
from tests.machines.s3.fake import FakeStore, Objects, _Client, _code, _refused
from tests.machines.simulator.compactors import NoPool
from tests.machines.simulator.network import Weather
from tests.machines.simulator.store import PATIENCE_S, STORE, Stall
from tests.machines.simulator.world import Process, Program, World

TRIES: Final = 4
"""As boto3 does in its standard mode."""
LATEST_S: Final = 20.0
"""What was sent has come by then, or never will.  For S3 itself it is half an hour."""

WRITES: Final = frozenset(
    {
        *("PutObject", "CreateMultipartUpload", "UploadPart"),
        *("CompleteMultipartUpload", "AbortMultipartUpload"),
    }
)
"""What may be carried out late."""
CHANGES: Final = WRITES | {"DeleteObject", "DeleteObjects"}


@dataclass(frozen=True, slots=True)
class ObjectChances:
    """How likely it is that a try of a request goes wrong."""

    lost: float = 0.0
    """Not carried out."""
    unheard: float = 0.0
    """Carried out, and the answer is lost."""
    late: float = 0.0
    """Carried out after the sender has given it up, if at all."""
    busy: float = 0.0
    """Answered 503."""
    conflicting: float = 0.0
    """Answered 409, where it has a condition."""


class Asked(NamedTuple):
    """A request of one process."""

    operation: str
    key: str
    is_conditional: bool

    @property
    def title(self) -> str:
        """Name it as stalls and stories do."""
        return f"{self.operation} {self.key.rpartition('/')[2]}"


class SharedObjects:
    """One bucket, which all processes share."""

    def __init__(self, world: World, weather: Weather, *, is_strict: bool) -> None:
        self.world = world
        self.weather = weather
        self.is_strict = is_strict
        """Whether it keeps all conditions and says so, as Amazon's does."""
        self.has_late_plans = True
        """Whether a plan may come when the outcome of its job is forgotten: not in half an hour."""
        self.objects = Objects()
        self.chances = ObjectChances()
        self.stalls: dict[str, Stall] = {}
        """Before which requests a process stands still, by its name."""
        self.changed: Callable[[Process], object] = lambda _: None
        """Called whenever anything has changed, with who has asked for it."""
        self.arrived_late: set[str] = set()
        """What was written by a request that nobody waited for any more."""
        self.was_late: set[str] = set()
        """Keys of objects that were written after their senders gave up, or may yet be."""
        self._late_until_s: dict[str, float] = {}
        self._stores: dict[Process, SimObjectStore] = {}

    def of(
        self, process: Process, on_change: Callable[[], object] = lambda: None
    ) -> SimObjectStore:
        """Return the store as one process sees it: always the same."""
        if process not in self._stores:
            self._stores[process] = SimObjectStore(self, process, on_change)
        return self._stores[process]

    def of_running(self, options: StoreOptions | None = None) -> SimObjectStore:
        """Return that of the process that asks."""
        del options
        return self.of(self.world.program.process)

    def looker(self) -> FakeStore:
        """Return the store as nobody sees it: at once, and without trouble."""
        return self.objects.store()

    def is_on_its_way(self, part: str) -> bool:
        """Say whether a write of an object may still be carried out that has this in its name."""
        now_s = self.world.now_s
        return any(part in key and now_s <= until for key, until in self._late_until_s.items())

    def come_late(
        self, process: Process, asked: Asked, work: Callable[[], object], delay_s: float
    ) -> None:
        """Carry a request out when nobody waits for it any more."""
        if asked.operation == "PutObject":
            self.was_late.add(asked.key)
            self._late_until_s[asked.key] = self.world.now_s + LATEST_S + PATIENCE_S

        def arrive() -> None:
            with contextlib.suppress(ClientError):
                work()
                self.arrived_late.add(asked.key)
                self.changed(process)

        self.world.at(delay_s, None, arrive)


class SimObjectStore(FakeStore):
    """The requests of one simulated process."""

    def __init__(
        self, shared: SharedObjects, process: Process, on_change: Callable[[], object]
    ) -> None:
        super().__init__(shared.objects)
        self._shared = shared
        self._process = process
        self._on_change = on_change
        self._pool: Any = NoPool()
        self._client = _Named(_Client(shared.objects, self), self, is_strict=shared.is_strict)
        self.asked = Asked("", "", is_conditional=False)

    @property
    def is_strict(self) -> bool:
        """Whether it is known to keep all conditions."""
        return self._shared.is_strict

    @property
    def background(self) -> Any:
        """Do at once what threads would do."""
        return self._pool

    def call(self, operation: str, work: Callable[[], Any]) -> Any:
        """Send a request until it has an answer, or has been tried too often."""
        world = self._shared.world
        asked = self.asked._replace(operation=operation)
        for number in range(TRIES):
            world.program.check_alive()
            if operation in CHANGES:
                self._on_change()
            self.requests[operation] += 1
            try:
                return self._tried(asked, work)
            except (ConnectionClosedError, ReadTimeoutError):
                if operation == "PutObject":
                    self._calling.is_unanswered = True
                self.has_lost_upload |= operation == "CreateMultipartUpload"
                if number == TRIES - 1:
                    raise
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] < 500:
                    raise
                if number == TRIES - 1:
                    raise
            world.program.sleep(self._process.dice("pauses of boto3").uniform(0, 2.0**number / 10))
        raise AssertionError("the last try has ended")

    def _tried(self, asked: Asked, work: Callable[[], Any]) -> Any:
        shared, process, operation = self._shared, self._process, asked.operation
        world, weather, chances = shared.world, shared.weather, shared.chances
        program = world.program
        self._perhaps_stand_still(asked, program)
        world.note(f"{process.name} {asked.title}")
        world.counts["requests to objects"] += 1
        if weather.held_up_s(process.name, STORE):
            program.sleep(PATIENCE_S)
            raise ConnectionClosedError(endpoint_url="a partition")
        if process.dice("lost requests").random() < chances.lost:
            world.counts["requests lost"] += 1
            program.sleep(PATIENCE_S)
            raise ConnectionClosedError(endpoint_url="a request was lost")
        late = process.dice("late requests")
        is_plan = asked.key.endswith("/plan.json") and not shared.has_late_plans
        if operation in WRITES and not is_plan and late.random() < chances.late:
            world.counts["requests late"] += 1
            shared.come_late(process, asked, work, PATIENCE_S + late.uniform(0, LATEST_S))
            program.sleep(PATIENCE_S)
            raise ReadTimeoutError(endpoint_url="a request is late")
        if process.dice("busy").random() < chances.busy:
            world.counts["requests refused: 503"] += 1
            program.sleep(0.01)
            raise _refused(503, "SlowDown")
        if asked.is_conditional and process.dice("conflicts").random() < chances.conflicting:
            world.counts["requests refused: 409"] += 1
            program.sleep(0.01)
            raise _refused(409, _code(409, operation))
        outcome: list[Any] = []

        def arrive() -> None:
            try:
                outcome.append(work())
            except ClientError as error:
                outcome.append(error)
            else:
                if operation in CHANGES:
                    shared.changed(process)

        ways = process.dice("ways to objects")
        there_s = weather.delay_s(ways)
        world.at(there_s, None, arrive)
        program.sleep(there_s + weather.delay_s(ways))
        unheard = process.dice("lost answers of objects")
        if weather.held_up_s(STORE, process.name) or unheard.random() < chances.unheard:
            world.counts["answers of objects lost"] += 1
            program.sleep(PATIENCE_S)
            raise ReadTimeoutError(endpoint_url="an answer was lost")
        (result,) = outcome
        if isinstance(result, ClientError):
            raise result
        return result

    def _perhaps_stand_still(self, asked: Asked, program: Program) -> None:
        shared, process = self._shared, self._process
        stall, dice = shared.stalls.get(process.name), process.dice("stalls before objects")
        if stall is not None and stall.is_before(asked.title) and dice.random() < stall.share:
            shared.world.counts["stalls before a request"] += 1
            seconds = dice.uniform(0.1, 1.0) * stall.longest_s
            shared.world.note(
                f"{process.name} stands still for {seconds:.1f} s before {asked.title}"
            )
            process.pause(seconds)
            program.sleep(0)


class _Named:
    """A client that says what it is about to ask for."""

    def __init__(self, client: _Client, store: SimObjectStore, *, is_strict: bool) -> None:
        self._client = client
        self._store = store
        self._is_strict = is_strict

    def __getattr__(self, name: str) -> Any:
        """Say it, and ask."""
        method = getattr(self._client, name)

        def ask(**arguments: Any) -> Any:
            key = arguments.get("Key") or arguments.get("Prefix", "")
            is_conditional = "IfNoneMatch" in arguments or "IfMatch" in arguments
            self._store.asked = Asked("", key, is_conditional)
            if "Delete" in arguments and not self._is_strict:
                # Other stores than Amazon's take no notice of these tags.
                keys = [{"Key": one["Key"]} for one in arguments["Delete"]["Objects"]]
                arguments["Delete"] = {"Objects": keys}
            return method(**arguments)

        return ask


class SimTime:
    """The module `time`, as the process sees it that asks."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        """Have what needs no clock."""
        return getattr(time, name)

    def time(self) -> float:
        """Return the date of its host."""
        return self._world.program.process.clock.wall_ms() / 1000

    def monotonic(self) -> float:
        """Return seconds that only go on."""
        return self._world.program.process.clock.monotonic_s()


@contextlib.contextmanager
def objects_of(shared: SharedObjects) -> Iterator[None]:
    """Let committers reach simulated objects, in simulated time, and without threads."""
    world = shared.world
    clocks: Any = SimTime(world)
    with contextlib.ExitStack() as stack:
        for module in (answers, stores, s3, deciding, ending, success):
            stack.enter_context(mock.patch.object(module, "time", clocks))
        for owner, name, value in (
            (standing, "elapsed_s", clocks.monotonic),
            (transactional, "SystemClock", lambda: world.program.process.clock),
            (completing, "ThreadPoolExecutor", NoPool),
            (choice, "ObjectStore", shared.of_running),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
