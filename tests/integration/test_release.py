"""`make release` in a clone: what it refuses, what it leaves, and that it pushes nothing."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from release import changelog, cut
from release.cut import ROOT, ReleaseError
from release.dist import DistError

pytestmark = pytest.mark.integration

VERSION: Final = changelog.project_version(ROOT)


def git(folder: Path, *words: str) -> str:
    """Run git as somebody."""
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    return subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a clone of this checkout in which everything is ready to be released."""
    folder = tmp_path_factory.mktemp("release") / "clone"
    git(folder.parent, "clone", "-q", "--no-tags", str(ROOT), str(folder))
    for name, value in (("user.name", "t"), ("user.email", "t@example.org")):
        git(folder, "config", name, value)
    changelog.gather(folder, VERSION)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", f"release {VERSION}")
    return folder


@pytest.fixture
def clone(ready: Path) -> Iterator[Path]:
    """Return the clone, and put it back afterwards: to make one takes seconds."""
    before = git(ready, "rev-parse", "HEAD").strip()
    yield ready
    git(ready, "reset", "-q", "--hard", before)
    git(ready, "clean", "-qfd")
    for tag in git(ready, "tag").split():
        git(ready, "tag", "-d", tag)


def makes(root: Path, output: Path, pythons: Sequence[str]) -> tuple[list[Path], Path]:
    """Stand in for minutes of building and trying."""
    del root, pythons
    output.mkdir()
    wheel = output / f"omidpy-{VERSION}-py3-none-any.whl"
    source = output / f"omidpy-{VERSION}.tar.gz"
    wheel.write_bytes(b"wheel")
    source.write_bytes(b"source")
    return [wheel], source


@pytest.fixture(autouse=True)
def described(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Describe nothing, where what is built is nothing either."""
    if "nightly" not in request.keywords:
        monkeypatch.setattr(cut, "describe", lambda root, wheel, python, path: path.touch())


def test_a_release_is_tagged_with_its_notes_and_goes_nowhere(clone: Path, tmp_path: Path) -> None:
    """Whoever reads the tag reads what changed; whoever pushes does so knowingly."""
    output = tmp_path / "dist"
    elsewhere = git(clone, "ls-remote", "--tags", "origin")
    assert cut.cut(clone, output, ["python"], makes) == f"v{VERSION}"
    assert git(clone, "cat-file", "-t", f"v{VERSION}").strip() == "tag"
    told = git(clone, "tag", "--list", "--format=%(contents)", f"v{VERSION}")
    chapter = changelog.chapter((clone / "CHANGELOG.md").read_text(), VERSION)
    assert chapter.splitlines()[-1] in told
    assert "### Transactions" in told
    for line in (output / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((output / name).read_bytes()).hexdigest() == digest
    assert git(clone, "ls-remote", "--tags", "origin") == elsewhere
    assert not git(clone, "status", "--porcelain")
    (left,) = cut.obstacles(clone)
    assert left.startswith(f"{VERSION} has a tag")


def test_what_is_deployed_is_there_for_those_without_a_clone(clone: Path, tmp_path: Path) -> None:
    """Each file of `deploy` as it is committed, units too, which are links in the clone."""
    output, name = tmp_path / "dist", f"omidpy-{VERSION}-deploy"
    cut.cut(clone, output, ["python"], makes)
    with tarfile.open(output / f"{name}.tar.gz") as archive:
        members = archive.getmembers()
        assert all(one.isfile() or one.isdir() for one in members)
        assert {(one.uid, one.gid) for one in members} == {(0, 0)}
        archive.extractall(tmp_path, filter="data")
    found = {
        str(path.relative_to(tmp_path / name)): path.read_bytes()
        for path in (tmp_path / name).rglob("*")
        if path.is_file()
    }
    committed = git(clone, "ls-tree", "-r", "--name-only", "HEAD:deploy").splitlines()
    assert {"systemd/tso-server.service", "prometheus/oracle.rules.yml"} <= set(committed)
    assert found == {one: (clone / "deploy" / one).read_bytes() for one in committed}
    assert f"  {name}.tar.gz\n" in (output / "SHA256SUMS").read_text()
    assert f"`{name}.tar.gz` has rules" in (output / f"omidpy-{VERSION}.md").read_text()


def _dirty(clone: Path) -> None:
    (clone / "README.md").write_text("x")


def _fragment(clone: Path) -> None:
    (clone / "docs" / "changes" / "oracle.new.fix.md").write_text("It is mended.\n")
    git(clone, "add", "-A")
    git(clone, "commit", "-qm", "oracle: mend it")


def _tagged(version: str) -> Callable[[Path], None]:
    def tag(clone: Path) -> None:
        git(clone, "tag", f"v{version}")

    return tag


def _replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def replace(clone: Path) -> None:
        path = clone / name
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        git(clone, "commit", "-qam", "change it")

    return replace


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (_dirty, "1 files are not as they were committed: README.md"),
        (_fragment, "1 fragments are in no chapter .*oracle.new.fix.md; run `make changelog`"),
        (_tagged(VERSION), f"{VERSION} has a tag"),
        (_tagged("99.0.0"), f"{VERSION} is older than 99.0.0"),
        (_replaced("CHANGELOG.md", f"## {VERSION}\n", "## 99.0.0\n"), "nothing on"),
        (
            _replaced("CHANGELOG.md", "# Change log\n", "# Change log\n\n## 99.0.0\n"),
            "the first chapter of CHANGELOG.md is on 99.0.0",
        ),
        (
            _replaced(
                "omidpy/base/installation.py",
                f'VERSION: Final = "{VERSION}"',
                'VERSION: Final = "9.9.9"',
            ),
            f"pyproject.toml says {VERSION}, and .* 9.9.9",
        ),
        (
            _replaced(
                "deploy/kubernetes/kustomization.yaml",
                f'newTag: "{VERSION}"',
                'newTag: "9.9.9"',
            ),
            f"pyproject.toml says {VERSION}, and the image's newTag in .* 9.9.9",
        ),
        (
            _replaced("pyproject.toml", f'version = "{VERSION}"', 'version = "1.0rc1"'),
            "'1.0rc1' is no version of three numbers",
        ),
    ],
    ids=[
        "dirty",
        "fragment",
        "tagged",
        "older",
        "no chapter",
        "not first",
        "code",
        "image",
        "version",
    ],
)
def test_what_is_not_ready_is_refused_before_anything_is_built(
    clone: Path, tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    """A tag is for ever, once somebody has fetched it."""
    harm(clone)
    before = git(clone, "tag")
    with pytest.raises(ReleaseError, match=message):
        cut.cut(clone, tmp_path / "dist", ["python"], makes)
    assert git(clone, "tag") == before
    assert not (tmp_path / "dist").exists()


def test_what_does_not_work_gets_no_tag(clone: Path, tmp_path: Path) -> None:
    """The tag comes last."""

    def fails(root: Path, output: Path, pythons: Sequence[str]) -> tuple[list[Path], Path]:
        makes(root, output, pythons)
        raise DistError("README: it prints something else")

    with pytest.raises(DistError):
        cut.cut(clone, tmp_path / "dist", ["python"], fails)
    assert git(clone, "tag") == ""


@pytest.mark.nightly
def test_a_release_is_cut_from_beginning_to_end(clone: Path, tmp_path: Path) -> None:
    """With real archives, tried on this Python, and what they bring along written down."""
    output = tmp_path / "dist"
    cut.cut(clone, output, [sys.executable])
    parts = json.loads((output / f"omidpy-{VERSION}.cdx.json").read_text())
    assert parts["bomFormat"] == "CycloneDX"
    assert parts["metadata"]["component"]["name"] == "omidpy"
    names = {part["name"] for part in parts["components"]}
    assert {"msgspec", "thriftpy2", "kazoo"} <= names
    assert not {"pip", "pytest", "cyclonedx-bom"} & names
