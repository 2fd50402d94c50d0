"""`make release`: check that a release may be cut, build and try it, describe it, and tag it.

    python -m release.cut [--output dist] [--python PATH]...

Nothing is pushed and nothing is uploaded.  Before anything is built it refuses a tree that differs
from its commit, fragments that no chapter of the change log has taken yet, a version that its files
do not agree on, and one that has a tag or is not newer than all that have.  The tag comes last:
what fails on the way leaves none.

In the folder are then the wheels and the source distribution, what `deploy` holds for those who
have no clone, `SHA256SUMS`, what a wheel brings along as a CycloneDX document, and the notes that
the tag carries.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from release import changelog, dist

ROOT: Final = Path(__file__).parents[1]

SUMS: Final = "SHA256SUMS"

_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_IN_CODE: Final = re.compile(r'^VERSION: Final = "([^"]+)"$', flags=re.MULTILINE)
_OF_IMAGE: Final = re.compile(r'^ +newTag: "?([^"\s]+)"?$', flags=re.MULTILINE)

Maker = Callable[[Path, Path, Sequence[str]], tuple[list[Path], Path]]
"""Builds and tries what a checkout has: takes it, the folder for both, and the Pythons."""


class ReleaseError(Exception):
    """No release is cut; the message says what is in the way."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Cut the release that the checkout says it is; return an exit code."""
    parser = argparse.ArgumentParser(prog="release.cut", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", help="in place of all that are found")
    options = parser.parse_args(arguments)
    try:
        tag = cut(ROOT, options.output.resolve(), options.python or dist.found_pythons())
    except (ReleaseError, dist.DistError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"release: {tag} is tagged here and nowhere else; `git push origin {tag}` shows it")
    return 0


def cut(root: Path, output: Path, pythons: Sequence[str], make: Maker | None = None) -> str:
    """Cut a release; return its tag.

    Raises:
        ReleaseError: something is in the way, and there is no tag.
        DistError: what was built does not work, and there is no tag.
    """
    if found := list(obstacles(root)):
        raise ReleaseError("; ".join(found))
    version = changelog.project_version(root)
    wheels, source = (make or dist.make)(root, output, pythons)
    parts = output / f"omidpy-{version}.cdx.json"
    describe(root, wheels[0], pythons[0], parts)
    deployed = output / f"{_folder_of_deploy(version)}.tar.gz"
    pack_deploy(root, version, deployed)
    (output / SUMS).write_text(sums([*wheels, source, deployed, parts]), "utf-8")
    notes = output / f"omidpy-{version}.md"
    notes.write_text(notes_of(root, version, wheels, source), "utf-8")
    tag = tag_of(version)
    # With --cleanup=verbatim, since lines that begin with `#` are headings here.
    _git(root, "tag", "--annotate", "--cleanup=verbatim", "--file", str(notes), tag)
    return tag


def tag_of(version: str) -> str:
    """Return the name of a version's tag."""
    return f"v{version}"


def obstacles(root: Path) -> Iterator[str]:
    """Say what stands in the way of a release, each with its remedy."""
    version = changelog.project_version(root)
    if not _VERSION.fullmatch(version):
        yield f"{version!r} is no version of three numbers; see docs/guide/versions.md"
        return
    code = (root / "omidpy" / "base" / "installation.py").read_text("utf-8")
    if (told := _IN_CODE.findall(code)) != [version]:
        yield f"pyproject.toml says {version}, and omidpy/base/installation.py {', '.join(told)}"
    base = (root / "deploy" / "kubernetes" / "kustomization.yaml").read_text("utf-8")
    if (told := _OF_IMAGE.findall(base)) != [version]:
        yield (
            f"pyproject.toml says {version}, and the image's newTag in "
            f"deploy/kubernetes/kustomization.yaml {', '.join(told) or 'nothing'}"
        )
    if changed := _git(root, "status", "--porcelain").splitlines():
        yield f"{len(changed)} files are not as they were committed: {changed[0][3:]}; commit them"
    if fragments := changelog.fragment_paths(root):
        yield (
            f"{len(fragments)} fragments are in no chapter of CHANGELOG.md yet: "
            f"{fragments[0].name}; run `make changelog`, read what it made, and commit it"
        )
    text = (root / "CHANGELOG.md").read_text("utf-8")
    if not changelog.chapter(text, version):
        yield f"CHANGELOG.md has nothing on {version}"
    elif changelog.versions(text)[0] != version:
        yield f"the first chapter of CHANGELOG.md is on {changelog.versions(text)[0]}"
    tagged = {
        tuple(map(int, found.groups())): found[0]
        for name in _git(root, "tag", "--list", "v*").split()
        if (found := _VERSION.fullmatch(name.removeprefix("v")))
    }
    own = tuple(map(int, version.split(".")))
    if own in tagged:
        yield f"{version} has a tag; write the next version into its three files"
    elif tagged and max(tagged) > own:
        yield f"{version} is older than {tagged[max(tagged)]}, which has a tag"


def describe(root: Path, wheel: Path, python: str, path: Path) -> None:
    """Write down what a wheel brings along, with `dist.EXTRAS`, as a CycloneDX document."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        # Without pip, which is a tool of whoever installs, and no part of what is shipped.
        dist.run([python, "-m", "venv", "--without-pip", str(place)], directory=Path(folder))
        wanted = f"{wheel}[{','.join(dist.EXTRAS)}]"
        pip = [sys.executable, "-m", "pip", "--python", str(place)]
        dist.run([*pip, "install", "-q", wanted], directory=Path(folder))
        dist.run(
            [
                *(sys.executable, "-m", "cyclonedx_py", "environment"),
                *("--pyproject", str(root / "pyproject.toml"), "--mc-type", "library"),
                *("--output-reproducible", "--output-file", str(path)),
                str(place / "bin" / "python"),
            ],
            directory=Path(folder),
        )


def pack_deploy(root: Path, version: str, path: Path) -> None:
    """Write an archive of what is committed in `deploy`, for those who have no clone.

    Units of systemd are links into the package there, and files here.
    """
    with tempfile.TemporaryDirectory() as folder:
        tree, packed = Path(folder) / "tree", Path(folder) / "tree.tar"
        _git(root, "archive", "--output", str(packed), "HEAD", "deploy", "tso/deploy")
        shutil.unpack_archive(packed, tree, filter="data")
        with tarfile.open(path, "w:gz", dereference=True) as archive:
            archive.add(tree / "deploy", _folder_of_deploy(version), filter=_of_root)


def _folder_of_deploy(version: str) -> str:
    return f"omidpy-{version}-deploy"


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    return member.replace(uid=0, gid=0, uname="root", gname="root", deep=False)


def sums(paths: Sequence[Path]) -> str:
    """Return the digests of files as `sha256sum --check` reads them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths
    )


def notes_of(root: Path, version: str, wheels: Sequence[Path], source: Path) -> str:
    """Return the notes of a release: what it is, how it is installed, and what changed."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    text = (root / "CHANGELOG.md").read_text("utf-8")
    extras = ",".join(dist.EXTRAS)
    installs = "".join(f"    pip install './{wheel.name}[{extras}]'\n" for wheel in wheels)
    return (
        f"# omidpy {version}\n\n"
        f"{project['description']}.\n\n"
        f"{installs}\n"
        f"`{source.name}` is for other systems and Pythons from {project['requires-python'][2:]} "
        f"on.\n`{_folder_of_deploy(version)}.tar.gz` has rules for Prometheus, dashboards for "
        "Grafana, manifests for Kubernetes and units for systemd.\n"
        f"`{SUMS}` has the digests, `omidpy-{version}.cdx.json` what the wheel brings along.\n"
        "Before an upgrade read `docs/guide/upgrading.md`.\n\n"
        f"{changelog.chapter(text, version)}\n"
    )


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"git {' '.join(words)} failed: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
