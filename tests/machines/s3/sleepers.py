"""A driver that is stopped before one of its requests while others end its job, and act behind it.

    check(Sleep(APPEND, at=6, ended_by=RESUME, others=(PARTITIONS,)))

Pairs (`pairs.py`) let one act in the middle of another; here several do, one after the other, and
the first of them may end the very job that is stopped.  It then goes on as if nothing had happened:
the request that it was about to send is sent, since whatever it had looked at it has looked at.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pytest

from omidpy.committers.contents import reading
from omidpy.committers.hadoop.magic import MagicCommitter
from omidpy.committers.heads import looking, standing
from omidpy.committers.jobs import Job
from omidpy.committers.objects.pendings import MAGIC
from omidpy.committers.s3 import S3Committer
from tests.machines.s3.fake import FakeStore
from tests.machines.s3.pairs import OPERATORS, OUT, Kind, Model, State, World, names

HOUR_S: Final = 3600.0
SUCCESS: Final = OUT.key("_SUCCESS")


@dataclass(frozen=True)
class Sleep:
    """Who is stopped, where, and what happens then."""

    kind: Kind
    at: int
    """Before which of its requests it is stopped."""
    ended_by: Kind | None
    """Which operator ends its job, if that has a plan then."""
    others: tuple[Kind, ...]
    """What others do then, one after the other."""
    is_twice: bool = False
    """Whether that request was carried out before, its answer is lost, and it is sent again."""
    dead: Kind | None = None
    """For an operator that is stopped: what the job does that it ends."""
    is_shared: bool = False
    """Whether all jobs write files of the same names, which differ in their bytes."""
    is_magic: bool = False
    """Whether all jobs have a magic folder."""


class SharedWorld(World):
    """A destination of jobs whose files have the same names: a file is told by what is in it."""

    def begin(self, store: FakeStore, kind: Kind, who: str) -> Job:
        """Begin a job that has written its files, the second of which is an upload."""
        made = S3Committer(
            OUT,
            store,
            conflict=kind.conflict,
            scope=kind.scope,
            inline_bytes=8,
            unique_names=False,
            sweep="never",
        )
        job = Job(made).__enter__()
        with job.task() as task:
            for part, size in itertools.product(kind.parts, "sl"):
                with task.open(f"p={part}/{size}") as file:
                    file.write((who + size).ljust(8 if size == "s" else 16).encode())
        return job

    def visible(self) -> State:
        """Return what is in the folder, by the names that files have where each has its own."""
        found = {OUT.below(key): one.data for key, one in self.objects.objects.items()}
        return frozenset(
            f"{key.partition('/')[0]}/{data.decode().strip()}"
            for key, data in found.items()
            if not key.startswith("_")
        )


class MagicWorld(World):
    """A destination of jobs that leave files about files as they go."""

    committer = MagicCommitter


def check(sleep: Sleep, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Let somebody sleep; say whether there is such a request.

    Raises:
        AssertionError: What came of it comes of no order of those who acted.
    """
    now_s = 0.0
    monkeypatch.setattr(standing, "elapsed_s", lambda: now_s)
    is_first = sleep.kind.conflict == "fail" or (sleep.dead and sleep.dead.conflict == "fail")
    make = SharedWorld if sleep.is_shared else MagicWorld if sleep.is_magic else World
    world = make(has_old=not is_first, dead=sleep.dead, dies_at=2)
    models = [world.model]
    steps: list[tuple[Kind, str, bool]] = []
    store = world.objects.store()
    stopped_before: list[str] = []

    def happen() -> None:
        nonlocal now_s
        now_s += HOUR_S
        if sleep.ended_by is not None and (plans := world.plans()):
            waiting, world.waiting = world.waiting, world.waiting or plans[0]
            has_ended = world.act(world.objects.store(), sleep.ended_by, "")
            world.waiting = waiting
            if waiting:
                steps.append((sleep.ended_by, "", has_ended))
        for who, kind in zip("bcd", sleep.others, strict=False):
            steps.append((kind, who, world.act(world.objects.store(), kind, who)))

    def at_request(number: int, operation: str) -> None:
        if number == sleep.at:
            stopped_before.append(operation)
            if not sleep.is_twice:
                happen()

    store.at_request = at_request
    if sleep.is_twice:
        store.twice_at, store.between = sleep.at, happen
    first = world.act(store, sleep.kind, "a")
    if not stopped_before:
        return False
    for place in range(len(steps) + 1):
        order = [*steps[:place], (sleep.kind, "a", first), *steps[place:]]
        models.append(_after(models[0], order))
    _judge(world, models[1:], sleep, f"{first=}, {steps=}")
    if stopped_before[0] != "PutObject":
        _judge_success(world, sleep)
    return True


def _after(model: Model, order: list[tuple[Kind, str, bool]]) -> Model:
    for kind, who, has_succeeded in order:
        # Who was refused since another acted in between has done nothing.
        model = model.after(kind, who)[1] if has_succeeded else model
    return model


def _judge(world: World, models: list[Model], sleep: Sleep, what: str) -> None:
    found = world.visible()
    paths = [one.path for one in reading.state_of(world._looker, OUT)]
    wanted = [one.state for one in models if one.waiting is None or sleep.kind not in OPERATORS]
    assert found in wanted, f"{sleep}: {what}\n {sorted(found)}\n of {[*map(sorted, wanted)]}"
    there = {OUT.below(key) for key in world.objects.objects}
    assert set(paths) == {one for one in there if not one.startswith("_")}, f"{sleep}: {what}"
    assert not [one for one in there if one.startswith(MAGIC)], f"{sleep}: {what}"
    if not sleep.is_shared:
        assert names(paths) == found, f"{sleep}: {what}"
    assert world.plans() == [], f"{sleep}: {what}"
    if not (sleep.is_shared and sleep.is_twice):  # whose uploads are found by their age alone
        assert not world.objects.uploads, f"{sleep}: {what}"


def _judge_success(world: World, sleep: Sleep) -> None:
    """Ask whose `_SUCCESS` it is: the last commit's.

    Who is stopped at the very request that writes it still writes it, which nobody can prevent.
    """
    entries = looking.read(world._looker, OUT).head.entries
    committed = [one.job for one in entries if one.outcome == "committed"]
    last = committed[-1:]
    said = [
        json.loads(one.data)["jobId"]
        for key, one in world.objects.objects.items()
        if key == SUCCESS
    ]
    assert said == last, f"{sleep}: _SUCCESS is that of commit {committed.index(said[0]) + 1}"


def everywhere(make: Callable[[int], Sleep], monkeypatch: pytest.MonkeyPatch) -> int:
    """Let somebody sleep at each request; return at how many."""
    return next(at for at in itertools.count() if not check(make(at), monkeypatch))
