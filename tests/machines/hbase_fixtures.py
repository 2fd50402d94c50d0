"""Pytest's side of the real HBase: one for all tests, started when the first asks for it.

`hbase` is a standalone one, shared by every test of the session; a test has its own tables in it
and kills nothing.  `hbase_cluster` is another, with two region servers and two gateways, for tests
that do kill; before each test whatever the last one left dead is started again.  Where workers
share the tests (`make test`), each has its own of both.

A store reaches either without a gateway, or through one.  A module that says which is its
`ROAD_BY_DAY` takes `hbase.url`: each of its tests that asks for one of the two fixtures runs on
that road by day, and on the other one at night, unless the test says itself which it is for.

OMIDPY_TEST_HBASE=DIRECTORY takes, in place of the first, what
`python -m tests.machines.hbase DIRECTORY` runs there, so that a run need not start its own.  Tests
empty it, so it is for one process: workers start their own all the same.
Whoever asks for a fixture here has the marker `hbase`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.hbase import HBase, Mode, Road, RunningHBase

ENVIRONMENT = "OMIDPY_TEST_HBASE"


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a real HBase, so that `-m "not hbase"` leaves none of it."""
    for item in items:
        if {"hbase", "_hbase_cluster", "phoenix"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.hbase)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let the tests of a module that names its road of the day run on the other one at night."""
    by_day: Road | None = getattr(metafunc.module, "ROAD_BY_DAY", None)
    if by_day is None:
        return
    roads = [
        pytest.param(road, id=road, marks=() if road is by_day else pytest.mark.nightly)
        for road in (by_day, *(one for one in Road if one is not by_day))
    ]
    itself = {mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")}
    for name in ("hbase", "hbase_cluster"):
        if name in metafunc.fixturenames and name not in itself:
            metafunc.parametrize(name, roads, indirect=True)


@pytest.fixture(scope="session")
def _hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    directory = os.environ.get(ENVIRONMENT)
    if directory and "PYTEST_XDIST_WORKER" not in os.environ:
        attached = HBase.attach(Path(directory))
        try:
            yield attached
        finally:
            attached.stop()
        return
    running = HBase.start(tmp_path_factory.mktemp("hbase"), quick=True)
    try:
        yield running
    finally:
        running.stop(forget=True)


@pytest.fixture(scope="session")
def hbase(request: pytest.FixtureRequest, _hbase: HBase) -> HBase:
    """Give the HBase of this session, by the road of the test."""
    _hbase.road = getattr(request, "param", Road.THRIFT2)
    return _hbase


@pytest.fixture(scope="package")
def _hbase_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHBase]:
    running = HBase.start(
        tmp_path_factory.mktemp("hbase-cluster"),
        mode=Mode.CLUSTER,
        region_servers=2,
        gateways=2,
        quick=True,
    )
    try:
        yield running
    finally:
        running.stop(forget=True)


@pytest.fixture
def hbase_cluster(request: pytest.FixtureRequest, _hbase_cluster: RunningHBase) -> RunningHBase:
    """Give the session's cluster, all of it running, by the road of the test."""
    _hbase_cluster.road = getattr(request, "param", Road.THRIFT2)
    _hbase_cluster.start_all()
    return _hbase_cluster
