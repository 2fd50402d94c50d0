"""What Java do the tests need?  Maven projects, each built once and kept outside the checkout.

    lib = maven.build(ROOT / "tests" / "java") / "lib"

A project is a folder with a `pom.xml`, perhaps with sources, whose `package` phase writes only
below the property `out`.  What it makes lies in the cache under a hash of every file of the
project, so a change of one builds again, and nobody else waits:

    $XDG_CACHE_HOME or ~/.cache / omidpy / maven / NAME-HASH / lib/*.jar

A build goes into a folder of its own that is renamed when it is whole: whoever is killed halfway
leaves nothing that looks like a result.  Where the jars come from is Maven's business.

`python -m tests.machines.maven FOLDER...` builds ahead, as the set-up does, so that no test's time
is spent on downloads.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A first build fetches about 170 jars; a mirror that is slow today is still worth the wait.
LONGEST_BUILD_S = 1200.0
ATTEMPTS = 2


class BuildFailed(Exception):
    """Maven is missing, or it failed; the message ends with what it said."""


def build(project: Path) -> Path:
    """Return the folder of what `project` makes, and make it first if it is not there.

    Safe to call from many processes at once: one builds, the others wait for it.
    """
    result = _cache() / f"{project.name}-{fingerprint(project)}"
    if not result.is_dir():
        with only_one(result.parent / f"{project.name}.lock"):
            if not result.is_dir():
                _build(project, result)
    return result


def fingerprint(project: Path) -> str:
    """Name the state of a project: 16 hex digits of the hash of its files' names and contents."""
    sources = [project / "pom.xml", *(path for path in (project / "src").rglob("*"))]
    digest = hashlib.sha256()
    for path in sorted(path for path in sources if path.is_file()):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(project).as_posix()}\n{len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def java_tool(name: str) -> str:
    """Return the path of `java`, `javac` or `mvn`, of JAVA_HOME before the search path."""
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / name).exists():
        return str(Path(home) / "bin" / name)
    if (found := shutil.which(name)) is None:
        raise BuildFailed(
            f"the tests with a real HBase need `{name}`: install a JDK 17 and Maven "
            "(Debian: openjdk-17-jdk-headless maven), or run `make setup`"
        )
    return found


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "omidpy" / "maven"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _build(project: Path, result: Path) -> None:
    java_tool("javac")
    command = [java_tool("mvn"), "-q", "-B", "-f", str(project / "pom.xml"), "package"]
    for left in reversed(range(ATTEMPTS)):
        out = Path(tempfile.mkdtemp(prefix=f"{project.name}-", suffix=".part", dir=result.parent))
        try:
            done = subprocess.run(
                [*command, f"-Dout={out}"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LONGEST_BUILD_S,
                check=False,
            )
            if done.returncode == 0:
                shutil.rmtree(out / "target", ignore_errors=True)
                out.chmod(0o755)  # made private, but the cache may be shared by users
                out.rename(result)
                return
            # What a first attempt has fetched stays with Maven, so a second one asks for the rest.
            if not left:
                said = "\n".join(done.stdout.splitlines()[-30:])
                raise BuildFailed(f"`{' '.join(command)}` failed:\n{said}")
        finally:
            shutil.rmtree(out, ignore_errors=True)


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Let one process at a time be in the block, of all that name a file."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(folders: list[str]) -> int:
    """Build each folder; print where the results are."""
    try:
        for folder in folders:
            print(build(Path(folder).resolve()))
    except BuildFailed as failure:
        print(f"maven: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
