"""Jobs any of whose requests meets with trouble, over a store in memory; see the machine."""

from __future__ import annotations

import itertools

import pytest

from tests.machines.s3.fake import FakeStore, Objects
from tests.machines.s3.pairs import APPEND, JOBS, OUT, RESUME, ROLL_BACK, Kind
from tests.machines.s3.troubles import TROUBLES, Scene, Trouble, check, quietly


def _troubled(objects: Objects, trouble: Trouble, at: int) -> FakeStore:
    store = objects.store()
    if trouble == "silent":
        store.silent_at = at
    elif isinstance(trouble, str):
        store.twice_at = at
    else:
        store.refuses = (at, trouble)
    return store


@pytest.mark.parametrize("trouble", [one for one in TROUBLES if one != "twice"], ids=str)
@pytest.mark.parametrize("kind", JOBS, ids=lambda kind: kind.name)
def test_a_job_in_trouble_is_whole_or_nothing(
    kind: Kind, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every request, and whoever ends it then; 400 jobs."""
    quietly(monkeypatch)
    outcomes = set()
    for operators in ((RESUME, ROLL_BACK), (ROLL_BACK, RESUME)):
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
