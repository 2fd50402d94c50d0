"""The release before and this one share a store: each part is upgraded in every order, and back.

Which release that is, `tests/machines/two_versions.py` says.
"""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.facts.control import ControlTable
from omidpy.facts.format import FORMAT, FORMAT_FACT
from tests.machines.hbase import HBase
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import tso_server
from tests.machines.two_versions import (
    COMMAND,
    PARTS,
    PATIENCE_S,
    ROOT,
    Town,
    Version,
    revision_before,
    unpack,
)

pytestmark = pytest.mark.integration

RECOMMENDED: Final = ("oracle", "clients", "compactor")
"""The order of docs/guide/upgrading.md."""
ORDERS: Final = tuple(itertools.permutations(PARTS))


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Version:
    """Return the release before."""
    if (revision := revision_before()) is None:
        pytest.skip("this clone lacks the release before: git fetch --unshallow --tags")
    return Version("before", unpack(revision, tmp_path_factory.mktemp("before")))


NOW: Final = Version("now", ROOT)


def test_the_versions_are_two(before: Version, tmp_path: Path) -> None:
    """Both would otherwise be this one, and everything below would hold."""
    words = ["-c", "import omidpy, tso, compactor; print(omidpy.__file__, tso.__file__)"]
    files = []
    for process in [version.start(words, tmp_path) for version in (before, NOW)]:
        printed, _ = process.communicate(timeout=60)
        files.append({Path(one).parents[1] for one in printed.split()})
    assert files == [{before.folder}, {NOW.folder}]


def test_parts_are_upgraded_one_after_the_other_and_taken_back(
    before: Version, tmp_path: Path
) -> None:
    """In the order that the guide recommends, while clients of both versions are at work."""
    with Town(f"sqlite:///{tmp_path / 's.db'}", tmp_path, before) as town:
        for part in RECOMMENDED:
            town.turn(part, NOW, seconds=0.5)
            town.work(4)
        town.check(before, NOW)
        for part in reversed(RECOMMENDED):
            town.turn(part, before, seconds=0.5)
        town.work(4)
        town.check(before, NOW)


@pytest.mark.nightly
@pytest.mark.parametrize("back", ORDERS, ids=" ".join)
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_parts_are_upgraded_in_any_order(
    before: Version, tmp_path: Path, order: tuple[str, ...], back: tuple[str, ...]
) -> None:
    """Machines are upgraded when their owners find the time."""
    with Town(f"sqlite:///{tmp_path / 's.db'}", tmp_path, before) as town:
        for part, version in [*((one, NOW) for one in order), *((one, before) for one in back)]:
            town.turn(part, version)
            town.work(30)
            town.check(before, NOW)


@pytest.mark.nightly
@pytest.mark.hbase
@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_parts_are_upgraded_in_any_order_on_hbase(
    before: Version, tmp_path: Path, hbase: HBase, order: tuple[str, ...]
) -> None:
    """Where leases are kept by time, and nothing but the store is shared."""
    with empty_hbase(hbase) as url, Town(url, tmp_path, before) as town:
        for part, version in [*((one, NOW) for one in order), *((one, before) for one in order)]:
            town.turn(part, version, seconds=20)
            town.work(30)
            town.check(before, NOW)


def test_a_form_that_is_newer_is_refused_in_one_line_by_every_part(tmp_path: Path) -> None:
    """What this version will be to the next one: it says so, and does not guess."""
    url = f"sqlite:///{tmp_path / 's.db'}"
    commands = [
        ["-c", COMMAND, "compact", "--tso", "store:", "--store", url],
        ["-c", COMMAND, "verify", "--tso", "store:", "--store", url],
    ]
    with tso_server(url) as server:
        with omidpy.connect(url, tso=server.address) as tm:
            ControlTable(tm.store).write(FORMAT_FACT, b"%d" % (FORMAT + 1))
        refuses([NOW.start(words, tmp_path) for words in commands])
    oracle = ["-m", "tso.cli", "--store", url, "--listen", "127.0.0.1:0"]
    refuses([NOW.start(oracle, tmp_path)])


def refuses(parts: list[subprocess.Popen[str]]) -> None:
    """Assert that each process ends with both numbers."""
    for part in parts:
        said = "".join(part.communicate(timeout=PATIENCE_S))
        assert part.returncode != 0, said
        assert f"has format {FORMAT + 1}, and this omidpy reads up to {FORMAT}" in said


def test_the_revision_that_stands_for_a_release_gives_way_to_a_tag(tmp_path: Path) -> None:
    """From the first release on the newest one before this tree is what is compared with."""
    clone = tmp_path / "clone"

    def git(*words: str) -> None:
        subprocess.run(["git", *words], check=True, capture_output=True)

    git("clone", "-q", "--no-checkout", "--no-tags", str(ROOT), str(clone))
    untagged = revision_before(clone)
    assert untagged is None or len(untagged) == 40
    git("-C", str(clone), "tag", "v0.9.0", "HEAD~1")
    git("-C", str(clone), "tag", "v0.10.0", "HEAD~1")
    git("-C", str(clone), "tag", "v0.11.0", "HEAD")
    git("-C", str(clone), "tag", "v1.0.0-draft", "HEAD~1")
    assert revision_before(clone) == "v0.10.0"
