"""Jobs any of whose requests meets with trouble between them and a real server.

By day each kind of trouble at a sample of the requests of each kind of job, and by night at every
one; what may come of it is judged as it is in memory (`tests/unit/committers/test_troubles.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pytest

from omidpy.committers.heads import looking
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.committers.publishing import ending
from omidpy.errors import CommitterError
from tests.machines.by_day import some
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.pairs import (
    APPEND,
    FAIL,
    JOBS,
    REPLACE,
    RESUME,
    ROLL_BACK,
    Kind,
    Model,
)
from tests.machines.s3.proxy import S3Proxy
from tests.machines.s3.server import S3Server
from tests.machines.s3.troubles import TROUBLES, Scene, Trouble, check, quietly

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("copied_clients")]
STEP: Final = 4
"""By day every so many-th request meets with trouble, beginning at another for each kind of it."""


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[S3Proxy]:
    """Give a network that gets a request into trouble."""
    with S3Proxy(s3.port) as made:
        yield made


def _everywhere(
    s3: S3Server, proxy: S3Proxy, kind: Kind, trouble: Trouble, start: int, step: int
) -> int:
    """Run jobs until one has no such request; return how many met with trouble."""
    clean = ObjectStore(StoreOptions(s3.endpoint, threads=1))
    bucket = s3.bucket()
    for count in itertools.count():
        at = start + count * step
        scene = Scene(Folder(bucket, f"at{at}/"), lambda: clean)
        if kind.conflict != "fail":
            scene.begin(clean, APPEND, "old").commit()
        store = ObjectStore(StoreOptions(proxy.endpoint, threads=1))
        proxy.trouble(at, trouble)
        operators = (RESUME, ROLL_BACK) if at % 2 else (ROLL_BACK, RESUME)
        what, is_twice = (kind.name, trouble, at), trouble == "twice"
        check(scene, kind, store, operators, what, begins_twice=is_twice)
        if proxy.arrived < at:
            return count
    raise AssertionError


@pytest.mark.parametrize(("kind", "trouble"), some((REPLACE, FAIL), TROUBLES))
def test_a_job_in_trouble_is_whole_or_nothing(
    s3: S3Server,
    proxy: S3Proxy,
    kind: Kind,
    trouble: Trouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At a sample of its requests."""
    quietly(monkeypatch)
    assert _everywhere(s3, proxy, kind, trouble, 1 + TROUBLES.index(trouble) % STEP, STEP) >= 2


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
@pytest.mark.parametrize("kind", JOBS, ids=lambda kind: kind.name)
def test_a_job_in_trouble_is_whole_or_nothing_everywhere(
    s3: S3Server,
    proxy: S3Proxy,
    kind: Kind,
    trouble: Trouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every request."""
    quietly(monkeypatch)
    assert _everywhere(s3, proxy, kind, trouble, 1, 1) > 8


PLANNED: Final = 5
"""Requests of a job up to its plan: two uploads of one part each come before it."""
FILES: Final = 4


def _end(scene: Scene, operator: Kind, store: ObjectStore) -> bool:
    """Let an operator end whatever job has a plan; say whether it says that this is done."""
    try:
        for job_id in looking.planned_jobs(store, scene.folder):
            key = scene.folder.plan_key(job_id)
            address = f"s3://{scene.folder.bucket}/{key}"
            plan, etag = ending.load(store, address, scene.folder.bucket, key)
            if operator is RESUME:
                ending.resume(store, plan)
            else:
                ending.take_back(store, plan, etag)
    except CommitterError:
        return False
    return True


@pytest.mark.nightly
@pytest.mark.parametrize("trouble", [one for one in TROUBLES if one != "twice"], ids=str)
@pytest.mark.parametrize("operator", [RESUME, ROLL_BACK], ids=lambda kind: kind.name)
@pytest.mark.parametrize("kind", [APPEND, REPLACE], ids=lambda kind: kind.name)
def test_an_operator_in_trouble_ends_a_job_whole_or_leaves_it_to_another(
    s3: S3Server,
    proxy: S3Proxy,
    kind: Kind,
    operator: Kind,
    trouble: Trouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At every request, with none, some or all files of the dead driver's complete."""
    quietly(monkeypatch)
    clean = ObjectStore(StoreOptions(s3.endpoint, threads=1))
    bucket = s3.bucket()
    for completed in (0, 2, FILES):
        for at in itertools.count(2):  # behind its own look for plans
            scene = Scene(Folder(bucket, f"{completed}-{at}/"), lambda: clean)
            scene.begin(clean, APPEND, "old").commit()
            before = scene.visible()
            mortal = ObjectStore(StoreOptions(s3.endpoint, threads=1))
            death = Death(PLANNED - 1 + completed + 2 * (kind is REPLACE), is_answered=True)
            death.watch(mortal)
            with pytest.raises(Died):
                scene.begin(mortal, kind, "a").commit()
            whole = Model(before).after(kind, "a")[1].state
            assert len(scene.plans()) == 1, "its driver died behind its plan"
            proxy.trouble(at, trouble)
            store = ObjectStore(StoreOptions(proxy.endpoint, threads=1))
            has_ended = _end(scene, operator, store)
            what = (kind.name, operator.name, trouble, completed, at)
            if plans := scene.plans():
                assert not has_ended, f"{what}: {plans} are left"
                turn = (RESUME, ROLL_BACK) if at % 2 else (ROLL_BACK, RESUME)
                any(_end(scene, one, clean) for one in turn)
                assert scene.plans() == [], what
            said = whole if operator is RESUME else before
            found = scene.published()
            assert found in ({said} if has_ended else {before, whole}), what
            there = scene.visible()
            if (operator, trouble) == (ROLL_BACK, 404):
                # A small file that is said not to be there is believed to be nowhere.
                there -= {one for one in there - found if one.endswith("s")}
            assert there == found, what
            assert list(clean.uploads(scene.folder)) == [], what
            if proxy.arrived < at:
                break
        assert at > 4
