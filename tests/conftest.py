"""What every folder of tests has: the fixtures of the real HBase, and the profiles of Hypothesis.

Of those, `dev` takes seconds and `nightly` hours; OMIDPY_HYPOTHESIS_PROFILE chooses.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from compactor.ranges import range_pass
from omidpy.base.collector import paused_collector
from tests.machines.memory_folder import memory_folder

pytest_plugins = [
    "tests.machines.hbase_fixtures",
    "tests.machines.phoenix_fixtures",
    "tests.machines.server_fixtures",
    "tests.machines.s3.fixtures",
]

# Every Java of Spark's, of whichever process, finds there what makes its jobs of some rows quick.
os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "machines" / "spark_conf"))

settings.register_profile("dev", max_examples=40, deadline=None)
settings.register_profile(
    "nightly",
    max_examples=20_000,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile(os.environ.get("OMIDPY_HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Give a folder of its own to a test: to one that is marked so, a folder in memory."""
    if request.node.get_closest_marker("in_memory") is None:
        yield tmp_path
        return
    with memory_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def spans_however_small() -> Iterator[None]:
    """Let passes read spans of ranges of few cells, too, which are read whole otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(range_pass, "SMALL_CELLS", -1)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the collector of cycles wait while the tests are found: none of what is made is garbage.

    Each worker finds all of them, and a fifth of that time went into looking at them again.
    """
    with paused_collector():
        found = yield
    gc.freeze()  # the items stay to the end: no later look at everything need pass over them
    return found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """Let those tests meet in one worker that share servers, which nobody else needs then."""
    from tests.machines.shares import FoldersAndFiles

    return FoldersAndFiles(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Let a run fail whose worker died.

    To pytest-xdist only a test can fail: where a worker dies between two, or while it collects, the
    rest is never run, and what is left may be a success.
    """
    if error is not None:
        node.config.pluginmanager.getplugin("session").testsfailed += 1
