"""`make dist`: build wheels and a source distribution, and use each as a stranger would.

    python -m release.dist [--output dist] [--python PATH]...

What is built is what is committed, in a folder of its own: a wheel for each Python that this
machine has.  Each is then installed into an empty environment of its Python, and so is the source
distribution, without a compiler; there the README's examples run, and `omidpy verify`, in another
folder, so that nothing of the checkout can stand in for what was forgotten.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from release.archives import complaints
from tests.machines.readme import run_readme

ROOT: Final = Path(__file__).parents[1]

EXTRAS: Final = ("hbase", "zk")
"""What is installed beside; no example needs more."""

VERIFY_S: Final = 4

_NO_COMPILER: Final = {"CC": "false", "CXX": "false"}
_OF_THE_CHECKOUT: Final = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "OMIDPY_STORE", "OMIDPY_TSO")


class DistError(Exception):
    """What was built is not fit to be shipped; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Build and try; return an exit code."""
    parser = argparse.ArgumentParser(prog="release.dist", description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--python", action="append", help="in place of all that are found")
    options = parser.parse_args(arguments)
    try:
        make(ROOT, options.output.resolve(), options.python or found_pythons())
    except DistError as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    return 0


def make(root: Path, output: Path, pythons: Sequence[str]) -> tuple[list[Path], Path]:
    """Build a wheel for each Python and the source distribution, and use all of them.

    Raises:
        DistError: one cannot be built, or does not work.
    """
    wheels, source = build(root, output, pythons)
    for python, wheel in zip(pythons, wheels, strict=True):
        use(wheel, python, has_compiler=True)
        use(source, python, has_compiler=False)
    return wheels, source


def found_pythons() -> list[str]:
    """Return the Pythons of this machine, the newest first."""
    found = subprocess.run(
        ["sh", str(ROOT / ".ci" / "pythons")], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def tracked(root: Path) -> set[str]:
    """Return what the newest commit holds, as paths from the root."""
    return set(_git(root, "ls-tree", "-r", "-z", "--name-only", "HEAD").split("\0")) - {""}


def build(
    root: Path,
    output: Path,
    pythons: Sequence[str] = (sys.executable,),
    *,
    compiled: bool = True,
    isolated: bool = True,
) -> tuple[list[Path], Path]:
    """Build what is committed; return the wheel of each Python, and the source distribution.

    Args:
        root: A checkout.
        output: Where all go.
        pythons: Whom wheels are built for.
        compiled: Whether the wheels get the compiled engine.
        isolated: Whether the tools that build come from an index and not from this environment.

    Raises:
        DistError: it cannot be built, or something is in it that should not be, or is missing.
    """
    if changed := _git(root, "status", "--porcelain").splitlines():
        _say(f"{len(changed)} files differ from the last commit, which is what is built")
    output.mkdir(parents=True, exist_ok=True)
    more = {} if compiled else {"OMIDPY_NO_COMPILE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        tree, built = Path(folder) / "tree", Path(folder) / "built"
        tree.mkdir()
        packed = Path(folder) / "tree.tar"
        _git(root, "archive", "--output", str(packed), "HEAD")
        shutil.unpack_archive(packed, tree, filter="data")
        command = [sys.executable, "-m", "build", "--outdir", str(built), str(tree)]
        run([*command, *(() if isolated else ("--no-isolation",))], directory=tree, more=more)
        (source,) = built.glob("*.tar.gz")
        by_minor = {minor_of(sys.executable): next(built.glob("*.whl"))}
        for python in pythons:
            if (minor := minor_of(python)) not in by_minor:
                by_minor[minor] = _wheel(source, python, Path(folder) / minor, more)
        files = tracked(root)
        for archive in (*by_minor.values(), source):
            if found := complaints(archive, files, compiled=compiled):
                raise DistError(f"{archive.name} {'; '.join(found)}")
        wheels = [Path(shutil.copy2(by_minor[minor_of(one)], output)) for one in pythons]
        source = Path(shutil.copy2(source, output))
        for archive in (*wheels, source):
            _say(f"built {archive.name}")
    return wheels, source


def minor_of(python: str) -> str:
    """Return which Python it is: `3.13`."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    return run([python, "-c", script], directory=Path.cwd()).strip()


def _wheel(source: Path, python: str, folder: Path, more: Mapping[str, str]) -> Path:
    """Build the wheel of another Python than this one, from the source distribution."""
    folder.mkdir()
    run([python, "-m", "venv", str(folder / "environment")], directory=folder)
    pip = [str(folder / "environment" / "bin" / "python"), "-m", "pip", "wheel", "-q", "--no-deps"]
    run([*pip, "--wheel-dir", str(folder), str(source)], directory=folder, more=more)
    (wheel,) = folder.glob("*.whl")
    return wheel


def use(archive: Path, python: str, *, has_compiler: bool) -> None:
    """Install an archive into an empty environment, and do with it what a new user does.

    Raises:
        DistError: something failed, or what ran was not what was installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "environment"
        directory = Path(folder) / "elsewhere"
        directory.mkdir()
        run([python, "-m", "venv", str(place)], directory=directory)
        own = place / "bin" / "python"
        run(
            [str(own), "-m", "pip", "install", "-q", f"{archive}[{','.join(EXTRAS)}]"],
            directory=directory,
            more={} if has_compiler else _NO_COMPILER,
        )
        versions = run([str(place / "bin" / "omidpy"), "--version"], directory=directory)
        found = dict(line.split(" ", 1) for line in versions.splitlines())
        wanted = "compiled" if has_compiler else "interpreted"
        if found["engine"] != wanted:
            raise DistError(f"{archive.name} on {python}: the engine is {found['engine']}")
        where = run([str(own), "-c", "import omidpy; print(omidpy.__file__)"], directory=directory)
        if not Path(where.strip()).is_relative_to(place):
            raise DistError(f"{archive.name} on {python}: what ran is {where.strip()}")
        try:
            # Without making errors of warnings: Python 3.12.1 warns of its own SQLite in vain.
            run_readme(own, directory, environment(place), flags=())
        except AssertionError as error:
            raise DistError(f"{archive.name} on {python}: README: {error}") from error
        command = [str(place / "bin" / "omidpy"), "verify", "--store", "sqlite:///verified.db"]
        run([*command, "--duration", f"{VERIFY_S}s"], directory=directory)
        doctor = run(
            [str(place / "bin" / "omidpy"), "doctor", "--store", "sqlite:///verified.db"],
            directory=directory,
        )
        if f"engine {wanted}" not in doctor:
            raise DistError(f"{archive.name} on {python}: doctor says {doctor}")
        _say(f"{archive.name} works on Python {found['python']}, engine {wanted}")


def environment(place: Path) -> dict[str, str]:
    """Return an environment of commands in which nothing leads to the checkout."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_CHECKOUT}
    path = os.pathsep.join((str(place / "bin"), kept.get("PATH", os.defpath)))
    return {**kept, "PATH": path, "PYTHONNOUSERSITE": "1"}


def run(words: list[str], *, directory: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a command without anything of the checkout; return what it printed.

    Raises:
        DistError: it failed.
    """
    done = subprocess.run(
        words,
        cwd=directory,
        env={**environment(Path(words[0]).parent.parent), **(more or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DistError(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    ).stdout


def _say(line: str) -> None:
    print(f"dist: {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
