"""Jobs any of whose requests meets with trouble between them and a real server.

By day each kind of trouble at a sample of the requests of each kind of job, and by night at every
one; what may come of it is judged as it is in memory (`tests/unit/committers/test_troubles.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

import pytest

from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from tests.machines.s3.pairs import (
    APPEND,
    FAIL,
    JOBS,
    REPLACE,
    RESUME,
    ROLL_BACK,
    Kind,
)
from tests.machines.s3.proxy import S3Proxy
from tests.machines.s3.server import S3Server
from tests.machines.s3.troubles import TROUBLES, Scene, Trouble, check, quietly

pytestmark = pytest.mark.integration
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


@pytest.mark.parametrize("trouble", TROUBLES, ids=str)
@pytest.mark.parametrize("kind", [REPLACE, FAIL], ids=lambda kind: kind.name)
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
