"""Jobs any of whose requests meets with trouble, over a store in memory; see the machine.

So do those of an operator who ends the job of a dead driver.
"""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from omidpy.committers.hadoop.magic import MagicCommitter
from omidpy.committers.hadoop.staging import DirectoryCommitter, PartitionedCommitter
from omidpy.committers.s3 import S3Committer
from tests.machines.by_day import some
from tests.machines.s3.fake import FakeStore, Objects
from tests.machines.s3.pairs import (
    APPEND,
    JOBS,
    OPERATORS,
    OUT,
    PARTITIONS,
    REPLACE,
    RESUME,
    ROLL_BACK,
    Kind,
    World,
)
from tests.machines.s3.troubles import TROUBLES, Scene, Trouble, check, quietly

pytestmark = pytest.mark.usefixtures("in_line")

ONCE: Final = [one for one in TROUBLES if one != "twice"]


def _troubled(objects: Objects, trouble: Trouble, at: int) -> FakeStore:
    store = objects.store()
    if trouble == "silent":
        store.silent_at = at
    elif isinstance(trouble, str):
        store.twice_at = at
    else:
        store.refuses = (at, trouble)
    return store


@pytest.mark.parametrize(
    ("kind", "trouble", "operators"), some(JOBS, ONCE, (OPERATORS, OPERATORS[::-1]))
)
def test_a_job_in_trouble_is_whole_or_nothing(
    kind: Kind, trouble: Trouble, operators: tuple[Kind, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every request, and whoever ends it then; 400 jobs by night."""
    quietly(monkeypatch)
    outcomes = set()
    for at in itertools.count():
        objects = Objects()
        scene = Scene(OUT, objects.store)
        if kind.conflict != "fail":
            scene.begin(scene.store(), APPEND, "old").commit()
        store = _troubled(objects, trouble, at)
        outcomes.add(check(scene, kind, store, operators, (kind.name, trouble, at)))
        if store.sent <= at:
            break
    assert at > 8
    assert True in outcomes


@pytest.mark.parametrize(
    ("committer", "trouble"), some((MagicCommitter, DirectoryCommitter, PartitionedCommitter), ONCE)
)
def test_a_job_of_hadoops_kind_in_trouble_is_whole_or_nothing(
    committer: type[S3Committer], trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A magic job has files about files, too; a staging one sends all at the end of its task."""
    quietly(monkeypatch)
    kind = PARTITIONS if committer is PartitionedCommitter else REPLACE
    outcomes = set()
    for at in itertools.count():
        objects = Objects()
        scene = Scene(OUT, objects.store, committer)
        scene.begin(scene.store(), APPEND, "old").commit()
        operators = (RESUME, ROLL_BACK) if at % 2 else (ROLL_BACK, RESUME)
        store = _troubled(objects, trouble, at)
        outcomes.add(check(scene, kind, store, operators, (committer.name, trouble, at)))
        if store.sent <= at:
            break
    assert at > 8
    assert True in outcomes


@pytest.mark.parametrize(("operator", "trouble"), some(OPERATORS, ONCE))
@pytest.mark.parametrize(
    "deaths",
    [
        pytest.param([(APPEND, 0), (REPLACE, 2), (PARTITIONS, 99)], id="some"),
        pytest.param(
            list(itertools.product((APPEND, REPLACE, PARTITIONS), (0, 1, 2, 3, 99))),
            id="many",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_an_operator_in_trouble_ends_a_job_whole_or_leaves_it_to_another(
    operator: Kind,
    trouble: Trouble,
    deaths: list[tuple[Kind, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every request, whatever the dead driver has done; what he says is true."""
    quietly(monkeypatch)
    for dead, dies_at in deaths:
        for at in itertools.count():
            world = World(has_old=True, dead=dead, dies_at=dies_at)
            before = world.model.state
            whole = world.model.after(RESUME, "")[1].state
            store = _troubled(world.objects, trouble, at)
            what = (operator.name, dead.name, dies_at, trouble, at)
            has_ended = world.act(store, operator, "")
            if has_ended:
                assert world.plans() == [], what
            elif world.plans():
                turn = OPERATORS if at % 2 else OPERATORS[::-1]
                any(world.act(world.objects.store(), one, "") for one in turn)
                assert world.plans() == [], what
            world.look()
            (found,) = world.seen
            said = whole if operator is RESUME else before
            assert found in ({said} if has_ended else {before, whole}), what
            there = world.visible()
            if (operator, trouble) == (ROLL_BACK, 404):
                # Of a small file there is no second witness: who says that it is not there is
                # believed, and readers through the head alone do not see it.
                there -= {one for one in there - found if one.endswith("s")}
            assert there == found, what
            left = [one.key for one in world.objects.uploads.values()]
            assert left == [], what
            if store.sent <= at:
                assert has_ended, what
                break
        assert at > 3
