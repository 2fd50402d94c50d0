"""Two that act on one destination, one in the middle of the other, and what may come of it.

What they do is done for real, over a store in memory.  What may come of it a model says, which does
one after the other, in either order: a destination is a set of names, and a job either adds its
own, whole, or does nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from omidpy.committers.contents import reading
from omidpy.committers.heads import looking
from omidpy.committers.jobs import Job
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending
from omidpy.committers.s3 import S3Committer
from omidpy.errors import CommitterError
from tests.machines.s3.crashing import Died
from tests.machines.s3.fake import FakeStore, Objects

OUT: Final = Folder("lake", "out/")

State = frozenset[str]


@dataclass(frozen=True)
class Kind:
    """What somebody does."""

    name: str
    parts: tuple[int, ...] = ()
    """Which partitions a job writes; none for who ends another's job."""
    conflict: Any = "append"
    scope: Any = "folder"

    def files(self, who: str) -> list[str]:
        """Return the names of a job's files, the second of which is an upload."""
        return [f"p={part}/{who}{size}" for part in self.parts for size in "sl"]


APPEND: Final = Kind("append", (1, 2))
REPLACE: Final = Kind("replace", (1, 2), "replace")
FAIL: Final = Kind("fail", (1, 2), "fail")
PARTITIONS: Final = Kind("partitions", (1,), "replace", "partitions")
DYNAMIC: Final = Kind("dynamic overwrite", (2, 3), "replace", "partitions")
FAIL_PARTITIONS: Final = Kind("fail in partitions", (1,), "fail", "partitions")
RESUME: Final = Kind("resume")
ROLL_BACK: Final = Kind("roll back")

JOBS: Final = (APPEND, REPLACE, FAIL, PARTITIONS, DYNAMIC, FAIL_PARTITIONS)
OPERATORS: Final = (RESUME, ROLL_BACK)


# -- the model -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A destination, and a job whose driver is dead, or stopped."""

    state: State
    waiting: tuple[Kind, str] | None = None
    """Whom an operator ends: what the job does, and its name; None if nobody waits (any more)."""
    ended_by: Kind | None = None
    """Which operator has ended it."""

    def after(self, kind: Kind, who: str) -> tuple[bool, Model]:
        """Let somebody do the whole of something; return whether it succeeds, and what is then."""
        if kind in OPERATORS:
            if self.waiting is None:
                return (
                    self.ended_by is kind,
                    self,
                )  # who is second may say the same, or find no plan
            if kind is ROLL_BACK:
                return True, Model(self.state, None, kind)
            job, name = self.waiting
            if job.conflict == "fail" and _is_taken(self.state, job):
                return False, self
            return True, Model(_with(self.state, job, name), None, kind)
        if kind.conflict == "fail" and _is_taken(self.state, kind):
            return False, self
        return True, replace(self, state=_with(self.state, kind, who))


def _with(state: State, kind: Kind, who: str) -> State:
    kept = state
    if kind.conflict == "replace":
        kept = frozenset(one for one in state if not _is_replaced(one, kind))
    return kept | set(kind.files(who))


def _is_replaced(path: str, kind: Kind) -> bool:
    return kind.scope == "folder" or any(path.startswith(f"p={part}/") for part in kind.parts)


def _is_taken(state: State, kind: Kind) -> bool:
    return any(_is_replaced(one, kind) for one in state)


# -- the world -------------------------------------------------------------------------------------


class World:
    """A destination, in which a job was committed or not, and one has died or not."""

    committer: type[S3Committer] = S3Committer
    """Of all jobs."""

    def __init__(self, *, has_old: bool, dead: Kind | None = None, dies_at: int = 0) -> None:
        """Make it.

        Args:
            has_old: Whether a job was committed there.
            dead: What a job does whose driver has died; None for no such job.
            dies_at: At which of its requests, from 0 behind its plan; before its decision at last.
        """
        self.objects = Objects()
        self.model = Model(frozenset())
        self.waiting = ""
        """The id of the job whose driver is dead."""
        self.seen: set[State] = set()
        """What a reader saw who asked at every request."""
        self._looker = self.objects.store()
        if has_old:
            assert self.act(self.objects.store(), APPEND, "old")
            self.model = self.model.after(APPEND, "old")[1]
        if dead is not None:
            self._die(dead, dies_at)

    def _die(self, kind: Kind, dies_at: int) -> None:
        store = self.objects.store()
        job = self.begin(store, kind, "dead")
        self.waiting = job.id
        first: list[int] = []

        def die(number: int, operation: str) -> None:
            if not first and OUT.plan_key(job.id) in self.objects.objects:
                first.append(number)
            is_whole = sum(job.id in key for key in self.objects.objects) > len(kind.files(""))
            # Of the files all are complete: what is written next is the head.
            is_decided_next = is_whole and operation == "PutObject"
            if first and (number >= first[0] + dies_at or is_decided_next):
                raise Died

        store.at_request = die
        with pytest.raises(Died):
            job.commit()
        is_committed = looking.read(self._looker, OUT).head.is_committed(job.id)
        assert not is_committed, "choose an earlier death"
        self.model = Model(self.model.state, (kind, "dead"))

    def begin(self, store: FakeStore, kind: Kind, who: str) -> Job:
        """Begin a job that has written its files."""
        made = self.committer(
            OUT, store, conflict=kind.conflict, scope=kind.scope, inline_bytes=1, sweep="auto"
        )
        job = Job(made).__enter__()
        with job.task() as task:
            for path in kind.files(who):
                with task.open(path) as file:
                    file.write(b"x" if path.endswith("s") else b"xx")
        return job

    def act(self, store: FakeStore, kind: Kind, who: str) -> bool:
        """Do something for real; say whether it succeeded."""
        try:
            if kind in OPERATORS:
                key = OUT.plan_key(self.waiting)
                plan, etag = ending.load(store, f"s3://lake/{key}", "lake", key)
                if kind is RESUME:
                    ending.resume(store, plan)
                else:
                    ending.take_back(store, plan, etag)
                return True
            job = self.begin(store, kind, who)
            job.commit()
        except CommitterError as error:
            if kind not in OPERATORS and error.plan:
                self._end_later(store, error)
            return False
        return True

    def _end_later(self, store: FakeStore, error: CommitterError) -> None:
        """Take a job back as an operator does half an hour after an answer was lost."""
        if store.twice_at is None or "may have had no answer" not in str(error):
            raise AssertionError(f"a job has not ended: {error}") from error
        key = error.plan.removeprefix("s3://lake/")
        other = self.objects.store()
        ending.take_back(other, *ending.load(other, error.plan, "lake", key))

    def look(self) -> None:
        """Ask what is published."""
        self.seen.add(names(one.path for one in reading.state_of(self._looker, OUT)))

    def visible(self) -> State:
        """Return what is in the folder."""
        keys = [OUT.below(key) for key in self.objects.objects]
        return names(key for key in keys if not key.startswith("_"))

    def plans(self) -> list[str]:
        """Return the jobs that have not ended."""
        return looking.planned_jobs(self._looker, OUT)


def names(paths: Iterator[str] | Any) -> State:
    """Return names without the ids of jobs."""
    return frozenset(path.partition("-")[0] for path in paths)


# -- one in the middle of the other ----------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Who acts in the middle of whom, and where."""

    first: Kind
    second: Kind
    has_old: bool
    dead: Kind | None
    dies_at: int
    at: int
    """Before which request of the first the second acts."""
    is_twice: bool = False
    """Whether that request was carried out before, its answer is lost, and it is sent again."""


def check(pair: Pair) -> bool:
    """Run a pair; say whether the first has so many requests.

    Raises:
        AssertionError: What came of it comes of no order of the two.
    """
    world = World(has_old=pair.has_old, dead=pair.dead, dies_at=pair.dies_at)
    before = world.model
    store, other = world.objects.store(), world.objects.store()
    done: list[bool] = []

    def act() -> None:
        world.look()
        other.at_request = lambda _, __: world.look()
        done.append(world.act(other, pair.second, "b"))
        world.look()

    def at_request(number: int, _: str) -> None:
        world.look()
        if number == pair.at and not pair.is_twice:
            act()

    store.at_request = at_request
    if pair.is_twice:
        store.twice_at, store.between = pair.at, act
    first = world.act(store, pair.first, "a")
    if not done:
        return False
    world.look()
    _judge(world, before, pair, first=first, second=done[0])
    return True


def _judge(world: World, before: Model, pair: Pair, *, first: bool, second: bool) -> None:
    steps = [(pair.first, "a", first), (pair.second, "b", second)]
    found = world.visible()
    wanted = []
    for order in itertools.permutations(steps):
        model, states, is_this = before, {before.state}, True
        for kind, who, has_succeeded in order:
            would, then = model.after(kind, who)
            if has_succeeded:
                is_this = is_this and would
                model = then
            elif would and kind.conflict != "fail" and kind not in OPERATORS:
                is_this = False  # only who must be the first is refused because of the unfinished
            states.add(model.state)
        wanted.append((is_this, model, states))
    fits = [
        (model, states)
        for is_this, model, states in wanted
        if is_this and _is_end(world, model, found) and world.seen <= states
    ]
    assert fits, (
        f"{pair}: {first=} {second=}\n visible {sorted(found)}\n"
        f" published {[sorted(one) for one in world.seen]}\n"
        f" in no order: {[(is_this, sorted(one.state)) for is_this, one, _ in wanted]}"
    )
    kept = set(world.plans()) - {world.waiting}
    assert kept == set(), f"{pair}: plans of {kept} are left"
    left = {one.key for one in world.objects.uploads.values() if world.waiting not in one.key}
    assert not left or not world.waiting, f"{pair}: uploads {left} are left"


def _is_end(world: World, model: Model, found: State) -> bool:
    """Say whether a folder shows a state, and of a job that still waits any part besides."""
    published = names(one.path for one in reading.state_of(world._looker, OUT))
    if published != model.state:
        return False
    if model.waiting is None:
        return found == model.state
    return model.state <= found <= model.state | set(model.waiting[0].files("dead"))


def everywhere(make: Callable[[int], Pair], *, every: int = 1, start: int = 0) -> int:
    """Check a pair at each request of the first, or at some; return at how many."""
    count = 0
    for at in itertools.chain([0] if start else [], itertools.count(start, every)):
        if not check(make(at)):
            break
        count += 1
    return count


def end_while_it_lives(kind: Kind, operator: Kind, at: int, *, is_twice: bool) -> bool | None:
    """Let an operator end a job before, or between two tries of, a request of its driver's.

    Returns:
        Whether the job was committed; None if its driver has not so many requests.

    Raises:
        AssertionError: It is neither committed whole nor gone, or its driver says otherwise.
    """
    world = World(has_old=True)
    before, store = world.model.state, world.objects.store()
    has_acted = False

    def act() -> None:
        nonlocal has_acted
        has_acted = True
        if (found := world.plans()) and operator in OPERATORS:
            world.waiting = found[0]
            world.act(world.objects.store(), operator, "")

    store.at_request = lambda number, _: act() if number == at and not is_twice else None
    if is_twice:
        store.twice_at, store.between = at, act
    is_committed = world.act(store, kind, "a")
    if not has_acted:
        return None
    world.waiting = ""
    world.look()
    wanted = _with(before, kind, "a") if is_committed else before
    assert world.seen == {wanted}, (kind, operator, at, is_twice, is_committed)
    assert world.visible() == wanted, (kind, operator, at, is_twice, is_committed)
    assert world.plans() == []
    return is_committed
