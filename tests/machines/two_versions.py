"""Two versions of omidpy on one store: the release before, out of the history, and this tree.

The release before is what git keeps: the newest tag of a release, or, in a clone without tags, the
revision of 0.1.0.  Its files go into a folder of their own, and its processes are started
there; they share this Python and what is installed in it.  Its engine runs interpreted.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from tests.machines.documents import Server

ROOT: Final = Path(__file__).parents[2]

BEFORE: Final = "b660f43bdc27d1819075f92f7fae94c33039f47d"
"""The revision of 0.1.0, for clones in which its tag is not."""

PACKAGES: Final = ("omidpy", "tso", "compactor")

PATIENCE_S: Final = 90.0
ACCOUNTS: Final = 8
STAKE: Final = 1000

PARTS: Final = ("oracle", "clients", "compactor")
"""What is upgraded by itself."""

# Speaks only of what both versions have, and prints what was acknowledged.
_CLIENT: Final = f"""
import json, random, sys, time
import omidpy
store, tso, name, count, post_commit = sys.argv[1:]
dice = random.Random(name)
acknowledged = []
def connected():
    patient_until_s = time.monotonic() + 60
    while True:
        try:
            return omidpy.connect(store, tso=tso, post_commit=post_commit)
        except omidpy.OracleUnavailable:  # one may be starting at this moment
            if time.monotonic() > patient_until_s:
                raise
            time.sleep(0.2)
with connected() as tm:
    @tm.transactional(retry_budget_s=60)
    def transfer(tx, key):
        accounts = tx.table("accounts")
        source, target = (b"%d" % one for one in dice.sample(range({ACCOUNTS}), 2))
        amount = dice.randrange(1, 9)
        for row, change in ((source, -amount), (target, amount)):
            balance = int(accounts.row(row)[b"cf:balance"]) + change
            accounts.put(row, {{b"cf:balance": b"%d" % balance}})
        tx.table("done").put(key, {{b"cf:by": name.encode()}})
    number = 0
    until_s = time.monotonic() + float(count[:-1]) if count.endswith("s") else None
    while time.monotonic() < until_s if until_s else number < int(count):
        key = f"{{name}}-{{number}}"
        try:
            transfer(key.encode())
        except omidpy.CommitOutcomeUnknown as error:
            if tm.outcome(error).status is not omidpy.TransactionStatus.COMMITTED:
                continue
        acknowledged.append(key)
        number += 1
print(json.dumps(acknowledged))
"""

_SEEN: Final = """
import json, sys
import omidpy
store, tso = sys.argv[1:]
with omidpy.connect(store, tso=tso) as tm, tm.begin(read_only=True) as tx:
    balances = [int(row[b"cf:balance"]) for _, row in tx.table("accounts").scan()]
    done = [key.decode() for key, _ in tx.table("done").scan()]
print(json.dumps([balances, done]))
"""

_PREPARE: Final = f"""
import sys
import omidpy
store, tso = sys.argv[1:]
with omidpy.connect(store, tso=tso) as tm:
    for table in ("accounts", "done"):
        tm.create_table(table, families=["cf"])
    with tm.begin() as tx:
        for number in range({ACCOUNTS}):
            tx.table("accounts").put(b"%d" % number, {{b"cf:balance": b"{STAKE}"}})
"""

COMMAND: Final = "from omidpy.cli import main; main()"


def revision_before(root: Path = ROOT) -> str | None:
    """Return what stands for the release before; None if this clone does not reach that far.

    The tag of what is checked out does not count, since that is no release before it.
    """
    tags = _git(root, "tag", "--list", "v*", "--sort=-version:refname", "--no-contains", "HEAD")
    for tag in tags.split():
        if re.fullmatch(r"v\d+\.\d+\.\d+", tag):
            return tag
    command = ["git", "cat-file", "-e", f"{BEFORE}^{{commit}}"]
    known = subprocess.run(command, cwd=root, capture_output=True, check=False)
    return BEFORE if known.returncode == 0 else None


def unpack(revision: str, folder: Path, root: Path = ROOT) -> Path:
    """Write the packages of a revision into a folder; return it."""
    with packed(revision, root) as archive:
        archive.extractall(folder, filter="data")
    return folder


def packed(revision: str, root: Path = ROOT) -> tarfile.TarFile:
    """Return the packages of a revision."""
    command = ["git", "archive", revision, *PACKAGES]
    done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    return tarfile.open(fileobj=io.BytesIO(done.stdout))


class Version(NamedTuple):
    """A version whose processes can be started."""

    name: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """In which its packages are found, and no others."""
        kept = {name: value for name, value in os.environ.items() if name[:6] != "OMIDPY"}
        return {**kept, "PYTHONPATH": str(self.folder)}

    def start(self, words: Sequence[str], directory: Path) -> subprocess.Popen[str]:
        """Start a process."""
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


class Town:
    """A store, and who works on it: each part of one of two versions."""

    def __init__(self, store: str, directory: Path, version: Version) -> None:
        """Set everything up by one version."""
        self.store = store
        self.acknowledged: list[str] = []
        self.versions = dict.fromkeys(PARTS, version)
        self._directory = directory
        self._names = iter(range(10**6))
        self._stack = ExitStack()
        self._oracle = self._start_oracle()

    def __enter__(self) -> Self:
        """Prepare the tables, by the version that set it up."""
        try:
            self._python("clients", _PREPARE, self.store, "store:")
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """End every process."""
        self._stack.close()

    def turn(self, part: str, version: Version, *, seconds: float = 1.0) -> None:
        """Let another version take a part over; the oracle while clients of both are at work."""
        if part == "oracle":
            clients = [
                self._client(one, f"{seconds}s", "async")
                for one in {self.versions["clients"], version}
            ]
            before = self._oracle
            self.versions[part] = version
            self._oracle = self._start_oracle(stops=before)
            for client in clients:
                self._take(client)
        self.versions[part] = version

    def work(self, count: int = 10) -> None:
        """Let a client work, another one leave its cells unfinished, and a compaction mend them."""
        version = self.versions["clients"]
        clients = [self._client(version, str(count), mode) for mode in ("sync", "none")]
        for client in clients:
            self._take(client)
        words = ["compact", "--store", self.store, "--tso", "store:"]
        self._python("compactor", COMMAND, *words)

    def check(self, *versions: Version) -> None:
        """Let each version see: no money came or went, and all that was acknowledged is there."""
        words = ["-c", _SEEN, self.store, "store:"]
        looking = [(one, one.start(words, self._directory)) for one in versions]
        seen = [(version, _ended(process)) for version, process in looking]
        for version, printed in seen:
            balances, done = json.loads(printed)
            assert sum(balances) == ACCOUNTS * STAKE, f"{version.name} sees {balances}"
            lost = set(self.acknowledged) - set(done)
            assert not lost, f"{version.name} does not see {sorted(lost)[:5]}"

    def _client(self, version: Version, count: str, post_commit: str) -> subprocess.Popen[str]:
        name = f"{version.name}{next(self._names)}"
        words = ["-c", _CLIENT, self.store, "store:", name, count, post_commit]
        return version.start(words, self._directory)

    def _take(self, client: subprocess.Popen[str]) -> None:
        found: list[str] = json.loads(_ended(client))
        assert found, "a client that committed nothing shows nothing"
        self.acknowledged += found

    def _python(self, part: str, script: str, *words: str) -> str:
        version = self.versions[part]
        return _ended(version.start(["-c", script, *words], self._directory))

    def _start_oracle(self, stops: Server | None = None) -> Server:
        version = self.versions["oracle"]
        words = [sys.executable, "-m", "tso.cli", "--store", self.store, "--listen", "127.0.0.1:0"]
        server = Server(words, self._directory, version.environment)
        self._stack.callback(server.end)
        assert server.is_ready(), server.said()
        if stops is not None:
            stops.kill("TERM")
            assert server.is_ready(), server.said()
        return server


def _ended(process: subprocess.Popen[str]) -> str:
    try:
        printed, errors = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == 0, f"{process.args!r}\n{printed}{errors}"
    return printed


def _git(root: Path, *words: str) -> str:
    done: Any = subprocess.run(
        ["git", *words], cwd=root, capture_output=True, text=True, check=True
    )
    return str(done.stdout)
