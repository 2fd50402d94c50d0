"""Do what a Containerfile says, without a container runtime: each stage in a root of its own.

Knows the instructions that ours has.  What a base image brings along, `debootstrap` makes; so it
takes root, and a system of Debian's kind.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]

RELEASE: Final = "trixie"
"""Its Python is that of the base image."""
BASE: Final = ("python3", "python3-venv", "python3-pip", "python3-dev")
"""What the base image has of Python; headers, and no compiler."""

PATHS: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OF_THE_NETWORK: Final = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf")


class Stage:
    """One stage: a root, and what is said of the processes in it."""

    def __init__(self, folder: Path) -> None:
        """Have a root in a folder."""
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.user = "0:0"
        self.volumes: list[str] = []
        self.directory = "/"
        self.command: list[str] = []
        self.health: list[str] = []

    def path(self, inside: str) -> Path:
        """Return where a path of the root is."""
        return self.folder / inside.lstrip("/")

    def run(self, script: str, *, variables: Mapping[str, str]) -> str:
        """Run a script in the root, as root; return what it printed."""
        return _run(["chroot", str(self.folder), *_words(script, variables)])

    def run_read_only(self, script: str, *, variables: Mapping[str, str]) -> str:
        """Run a script as the user of the image, who can write to volumes and /tmp alone.

        It has a network of its own, which leads nowhere.
        """
        places = [
            ("/tmp", ""),
            *((one, f",uid={self.user.partition(':')[0]}") for one in self.volumes),
        ]
        mounts = "".join(
            f"mount -t tmpfs -o mode=1777{more} none {self.path(place)}\n" for place, more in places
        )
        outside = (
            "set -e\nip link set lo up\n"
            f"mount --bind {self.folder} {self.folder}\n"
            f"mount -o remount,ro,bind {self.folder}\n"
            f"{mounts}mount -t proc none {self.path('/proc')}\n"
            'exec chroot --userspec="$1" "$2" "$3" "$4" "$5"'
        )
        inside = "".join(f"export {key}='{value}'\n" for key, value in variables.items())
        inside += f"cd {self.directory}\n{script}"
        clean = ["env", "-i", "unshare", "--mount", "--net", "sh", "-c", outside, "sh"]
        clean.insert(2, f"PATH={PATHS}")
        return _run([*clean, self.user, str(self.folder), "/bin/sh", "-c", inside])


def build(path: Path, folder: Path, reach: Mapping[str, str]) -> Stage:
    """Do what a Containerfile says; return its last stage.

    Args:
        path: The file; what it copies is the working tree that git tracks.
        folder: Where the roots go.
        reach: Variables that say how packages are reached, for each RUN.
    """
    base = folder / "base"
    words = ["debootstrap", "--variant=minbase", f"--include={','.join(BASE)}", RELEASE, str(base)]
    _run(words)
    certificates = reach.get("PIP_CERT") or reach.get("SSL_CERT_FILE")
    for one in (*_OF_THE_NETWORK, *filter(None, [certificates])):
        if Path(one).exists():
            (base / one.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(one, base / one.lstrip("/"))
    stages: dict[str, Stage] = {}
    stage = Stage(base)
    for instruction, rest in instructions(path.read_text("utf-8")):
        if instruction == "FROM":
            _, _, name = rest.partition(" AS ")
            stage = stages[name or "last"] = Stage(folder / (name or "last"))
            _run(["cp", "-a", str(base), str(stage.folder)])
        elif instruction == "RUN":
            bound = re.match(r"--mount=type=bind,from=(\w+),source=(\S+),target=(\S+) +", rest)
            if bound:
                source = stages[bound[1]].path(bound[2])
                shutil.copytree(source, stage.path(bound[3]))
            script = rest[bound.end() :] if bound else rest
            stage.run(script, variables={**reach, **stage.environment})
            if bound:
                shutil.rmtree(stage.path(bound[3]))
        elif instruction == "COPY":
            _copy(rest, stage, stages)
        elif instruction == "ENV":
            found = dict(re.findall(r"(\w+)=(\S+)", rest))
            stage.environment |= {
                key: value.replace("$PATH", PATHS) for key, value in found.items()
            }
        elif instruction == "USER":
            stage.user = rest
        elif instruction == "VOLUME":
            stage.volumes.append(rest)
        elif instruction == "WORKDIR":
            stage.directory = rest
        elif instruction == "CMD":
            stage.command = json.loads(rest)
        elif instruction == "HEALTHCHECK":
            stage.health = json.loads(rest.partition("CMD ")[2])
        else:
            assert instruction in {"EXPOSE", "STOPSIGNAL"}, f"{instruction} is not known here"
    return stage


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Yield each instruction of a Containerfile with what stands behind it."""
    lines = "".join(one for one in text.splitlines(keepends=True) if not one.startswith("#"))
    for line in re.sub(r"\\\n", " ", lines).splitlines():
        if line.strip():
            instruction, _, rest = line.partition(" ")
            yield instruction, rest.strip()


def _copy(rest: str, stage: Stage, stages: Mapping[str, Stage]) -> None:
    *sources, target = [one for one in rest.split() if not one.startswith("--")]
    stage.path(target).mkdir(parents=True, exist_ok=True)
    if (named := re.match(r"--from=(\w+) ", rest)) is not None:
        for one in sources:
            shutil.copy(stages[named[1]].path(one), stage.path(target))
        return
    assert sources == ["."], "of the working tree all is copied"
    tracked = _run(["git", "-C", str(ROOT), "ls-files"]).splitlines()
    for one in tracked:
        if (ROOT / one).is_file():
            stage.path(target).joinpath(one).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / one, stage.path(target) / one)


def _words(script: str, variables: Mapping[str, str]) -> list[str]:
    given = {"PATH": PATHS, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **variables}
    return ["env", "-i", *(f"{key}={value}" for key, value in given.items()), "sh", "-c", script]


def _run(words: list[str]) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=1800, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, f"{words[:2]}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout + done.stderr
