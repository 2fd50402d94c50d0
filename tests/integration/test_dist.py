"""What is shipped: a wheel and a source distribution of what is committed, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from release.archives import COMPILED, complaints, contents
from release.dist import ROOT, DistError, build, environment, found_pythons, main, tracked

pytest.importorskip("build", reason="build is missing: pip install --group release")

pytestmark = pytest.mark.integration

Pair = tuple[Path, Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Build both once, without the compiler, which would take most of a minute."""
    folder = tmp_path_factory.mktemp("dist")
    (wheel,), source = build(ROOT, folder, compiled=False, isolated=False)
    return wheel, source


def test_the_wheel_runs_from_elsewhere(built: Pair, tmp_path: Path) -> None:
    """Its files alone, without the checkout: a module that was left out is missed here."""
    wheel, _ = built
    place = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "import omidpy, tso, compactor\n"
        "assert omidpy.__file__.startswith(sys.path[0]), omidpy.__file__\n"
        "from omidpy.cli import main; main()"
    )
    words = ["doctor", "--store", "sqlite:///shop.db"]
    command = [sys.executable, "-c", script, str(place)]
    variables = environment(Path(sys.executable).parent.parent)
    for arguments in (["init", *words[1:]], words):
        done = subprocess.run(
            [*command, *arguments],
            cwd=tmp_path,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
    assert "engine interpreted" in done.stdout


def test_what_was_built_holds_what_belongs_there(built: Pair) -> None:
    """Types, interfaces of HBase, the units of a service, the licence; no tests and no caches."""
    wheel, source = built
    held = set(contents(wheel))
    for name in (
        "omidpy/py.typed",
        "omidpy/storage/hbase/idl/hbase2.thrift",
        "tso/deploy/tso-server.service",
        "omidpy-0.1.0.dist-info/licenses/LICENSE",
    ):
        assert name in held
    assert not [name for name in held if name.startswith(("tests/", "bench/", "release/"))]
    types = {f"{name}.pxd" for name in COMPILED}
    assert {"setup.py", "LICENSE", *types} <= set(contents(source))


def _add(name: str) -> Callable[[Path], None]:
    def add(wheel: Path) -> None:
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.writestr(name, b"")

    return add


def _drop(name: str) -> Callable[[Path], None]:
    def drop(wheel: Path) -> None:
        copy = wheel.with_suffix(".copy")
        with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(copy, "w") as kept:
            for one in archive.infolist():
                if one.filename != name:
                    kept.writestr(one, archive.read(one))
        copy.replace(wheel)

    return drop


@pytest.mark.parametrize(
    ("harm", "complaint"),
    [
        (_add("tests/test_it.py"), "holds tests/test_it.py, which is not shipped"),
        (_add("omidpy/__pycache__/x.pyc"), "holds omidpy/__pycache__/x.pyc, which is not shipped"),
        (_add("tso/core/engine.cpython-311.so"), "has 1 compiled modules and not 0"),
        (_drop("omidpy/py.typed"), "lacks omidpy/py.typed"),
        (_drop("omidpy/storage/hbase/idl/hbase1.thrift"), "lacks omidpy/storage/hbase/idl/hbase1"),
        (_drop("omidpy-0.1.0.dist-info/licenses/NOTICE"), "lacks licenses/NOTICE"),
    ],
)
def test_what_is_wrong_with_a_wheel_is_told(
    built: Pair, tmp_path: Path, harm: Callable[[Path], None], complaint: str
) -> None:
    """The inspection is a guard too."""
    wheel = Path(shutil.copy(built[0], tmp_path))
    assert complaints(wheel, tracked(ROOT), compiled=False) == []
    harm(wheel)
    (found,) = complaints(wheel, tracked(ROOT), compiled=False)
    assert found.startswith(complaint)


def test_what_is_wrong_with_a_source_distribution_is_told(built: Pair, tmp_path: Path) -> None:
    """Without the types of what is compiled it would build something else than the wheel has."""
    cut = tmp_path / "omidpy-0.1.0.tar.gz"
    with tarfile.open(built[1]) as whole, tarfile.open(cut, "w:gz") as kept:
        for member in whole:
            if not member.name.endswith(".pxd"):
                kept.addfile(member, whole.extractfile(member) if member.isfile() else None)
    assert complaints(built[1], tracked(ROOT), compiled=False) == []
    assert complaints(cut, tracked(ROOT), compiled=False) == [
        f"lacks {name}.pxd" for name in sorted(COMPILED)
    ]


IDENTIFIERS: Final = {
    f"cp3{minor}-manylinux_{machine}"
    for minor in (11, 12, 13, 14)
    for machine in ("x86_64", "aarch64")
}


def test_wheels_are_configured_for_all_pythons_and_processors() -> None:
    """What is misspelt there is left out without a word."""
    pytest.importorskip("cibuildwheel", reason="it is missing: pip install --group release")
    command = [sys.executable, "-m", "cibuildwheel", "--platform", "linux"]
    found = subprocess.run(
        [*command, "--print-build-identifiers", str(ROOT)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(found.stdout.split()) == IDENTIFIERS


@pytest.mark.nightly
@pytest.mark.parametrize("python", found_pythons())
def test_what_was_built_is_used_on_a_python(
    python: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `make dist` does: installed from the archive alone, README, verify, doctor."""
    assert main(["--output", str(tmp_path), "--python", python]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" works on Python ") == 2
    assert "engine compiled" in printed
    assert "engine interpreted" in printed


def test_a_build_that_fails_says_why(tmp_path: Path) -> None:
    """With what the tool printed."""
    for words in (["init", "-q"], ["add", "-A"]):
        (tmp_path / "pyproject.toml").write_text("[build-system]\nrequires = 1\n")
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commit = ["-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x"]
    subprocess.run(["git", *commit], cwd=tmp_path, check=True)
    with pytest.raises(DistError, match="build-system"):
        build(tmp_path, tmp_path / "dist", isolated=False)
