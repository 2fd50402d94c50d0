"""What is installed, and the hint by which what is missing is: it names what exists."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from omidpy.base.installation import ABSENT, MATTERS, install_hint, versions, versions_text
from tests.machines.documents import ROOT


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of metadata of an omidpy that pip installed; nothing is noted in it yet."""
    folder = tmp_path / "omidpy-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.4\nName: omidpy\nVersion: 0.1.0\n"
        "Requires-Dist: msgspec>=0.19\n"
        'Requires-Dist: kazoo>=2.10; extra == "zk"\n'
        'Requires-Dist: boto3>=1.36; extra == "s3"\n'
        'Requires-Dist: pyarrow>=15; extra == "s3"\n'
    )
    found = metadata.PathDistribution(folder)
    monkeypatch.setattr(metadata, "distribution", lambda _: found)
    return folder


def note(folder: Path, **noted: object) -> None:
    """Write down where it came from, as pip does."""
    (folder / "direct_url.json").write_text(json.dumps(noted))


@pytest.mark.usefixtures("noted")
def test_what_came_from_an_index_is_named_by_its_name() -> None:
    """Pip notes no address then, and the name is what it will find again."""
    assert install_hint("zk") == "pip install 'omidpy[zk]'"
    assert install_hint("spark", "s3") == "pip install 'omidpy[spark,s3]'"


@pytest.mark.parametrize("name", ["omidpy-0.1.0-py3-none-any.whl", "a folder's"])
def test_what_came_from_a_wheel_or_a_folder_is_named_by_its_path(
    noted: Path, tmp_path: Path, name: str
) -> None:
    """Until omidpy is on an index the bare name would be a stranger's package, or none."""
    origin = tmp_path / name
    origin.touch()
    note(noted, url=origin.as_uri(), archive_info={})
    words = shlex.split(install_hint("zk"))
    assert words == ["pip", "install", f"{origin}[zk]"]


def test_a_source_that_is_gone_is_not_named(noted: Path, tmp_path: Path) -> None:
    """The wheel was in somebody's downloads; what the extra brings has names of its own."""
    note(noted, url=(tmp_path / "gone.whl").as_uri(), archive_info={})
    assert install_hint("s3") == "pip install 'boto3>=1.36' 'pyarrow>=15'"
    assert install_hint("zk") == "pip install 'kazoo>=2.10'"


def test_an_address_is_named_as_pip_takes_it(noted: Path) -> None:
    """A wheel of a server, and a repository."""
    note(noted, url="https://wheels.example/omidpy.whl", archive_info={})
    assert install_hint("zk") == "pip install 'omidpy[zk] @ https://wheels.example/omidpy.whl'"
    note(noted, url="https://git.example/omidpy", vcs_info={"vcs": "git", "commit_id": "a"})
    assert install_hint("zk") == "pip install 'omidpy[zk] @ git+https://git.example/omidpy'"


def test_what_was_never_installed_is_named_by_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout on PYTHONPATH has no metadata, and a `pyproject.toml`."""

    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    folder = shlex.split(install_hint("zk"))[-1].removesuffix("[zk]")
    assert (Path(folder) / "pyproject.toml").is_file()


def test_each_extra_has_a_package_that_matters() -> None:
    """But for that of the examples, which reaches nothing of ours."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "optional-dependencies"
    ]
    forgotten = {
        extra
        for extra, wanted in extras.items()
        if not {re.split(r"[\[>=]", one)[0] for one in wanted} & set(MATTERS)
    }
    assert forgotten == {"demo"}
    assert {"starlette", "uvicorn"} <= set(MATTERS)


def test_versions_name_what_is_absent() -> None:
    """A report of a defect that leaves a driver out would not say whether it was there."""
    found = versions(engine_is_compiled=False)
    assert next(iter(found)) == "omidpy"
    assert found["engine"] == "interpreted"
    assert found["msgspec"] == metadata.version("msgspec")
    assert set(MATTERS) <= set(found)
    assert all(version for version in found.values())
    assert versions_text({"a": "1", "b": ABSENT}) == "a 1\nb absent"
