"""Pytest's side of the real HBase: one for all tests, started when the first asks for it.

Where workers share the tests (`make test`), all files of a folder that need HBase or Java go to one
of them, which starts an HBase for itself; the others go file by file.

`hbase` is a standalone one, shared by every test of the session; a test has its own tables in it
and kills nothing.  `hbase_cluster` is a module's own, with two region servers and two gateways, for
tests that do kill; before each test whatever the last one left dead is started again.

OMIDPY_TEST_HBASE=DIRECTORY takes, in place of the shared one, what
`python -m tests.machines.hbase DIRECTORY` runs there, so that a run need not start its own.
Whoever asks for a fixture here has the marker `hbase`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests.machines.hbase import HBase, Mode, RunningHBase

ENVIRONMENT = "OMIDPY_TEST_HBASE"
_DEAD: Final = pytest.StashKey[bool]()
_ASKS_FOR_SERVERS: Final = re.compile(
    r"mark\.(?:hbase|java)\b|\bhbase(?:_cluster)?: |getfixturevalue\(.hbase"
)


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a real HBase, so that `-m "not hbase"` leaves none of it."""
    for item in items:
        if {"hbase", "_hbase_cluster"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.hbase)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Keep the tests of a file together, and the files of a folder that need HBase or Java.

    The groups of pytest-xdist are not used: with pytest 9.2 those of its version 3.8 are lost on
    their way to what shares the tests out, and every test goes to whichever worker is free.
    """
    # It has no types, and whoever runs the tests one after another can do without it.
    from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]  # for the same reason
        def _split_scope(self, nodeid: str) -> str:
            file = Path(nodeid.partition("::")[0])
            if not _needs_servers(config.rootpath / file):
                return str(file)
            # One that runs elsewhere is for one session at a time: tests empty it.
            return "servers" if ENVIRONMENT in os.environ else f"servers of {file.parent}"

    return ByFile(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Remember that a worker died."""
    if error is not None:
        node.config.stash[_DEAD] = True


@pytest.hookimpl(tryfirst=True)  # before the summary is written
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let a run fail whose worker died, whatever it was doing.

    To pytest-xdist only a test can fail: where all tests are lost with a worker it has none to run,
    and is content.
    """
    if session.config.stash.get(_DEAD, False):
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@cache
def _needs_servers(file: Path) -> bool:
    """Say whether a file of tests, or what its folder shares, asks for HBase or for Java."""
    sources = (one for one in (file, file.with_name("conftest.py")) if one.exists())
    return any(_ASKS_FOR_SERVERS.search(source.read_text()) for source in sources)


@pytest.fixture(scope="session")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBase]:
    """Give the HBase of this session."""
    if directory := os.environ.get(ENVIRONMENT):
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


@pytest.fixture(scope="module")
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
def hbase_cluster(_hbase_cluster: RunningHBase) -> RunningHBase:
    """Give the module's cluster, all of it running."""
    _hbase_cluster.start_all()
    return _hbase_cluster
