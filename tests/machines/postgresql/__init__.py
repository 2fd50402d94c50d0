"""A real PostgreSQL on a free port of the loopback, for as long as its tests need it.

    with running_postgresql() as server:
        psycopg.connect(server.url)

Its programs come in a jar (`pom.xml`).  It refuses to run as root, so that where we are root it is
run as `nobody`, in a folder that is open to all; hence the programs are unpacked there, too.

The server is kept by `tests.machines.keeper`, so that it does not outlive this process.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.machines import maven
from tests.machines.hbase.ports import PortBlock
from tests.machines.keeper import Kept
from tests.machines.waiting import wait_for

PROJECT: Final = Path(__file__).parent
USER: Final = "nobody"
LONGEST_S: Final = 60.0
QUICK: Final = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=40")
"""What is lost by them only a power failure could tell; no test brings one about."""


class Postgresql:
    """One server, whose process can be ended and started again."""

    def __init__(self, folder: Path) -> None:
        """Make its data; `start` starts it."""
        self._folder = folder
        self._ports = PortBlock()
        self._log = folder / "server.log"
        self._kept: Kept | None = None
        folder.chmod(0o755)
        _unpack(folder)
        (folder / "data").mkdir(mode=0o700)
        if os.geteuid() == 0:
            found = pwd.getpwnam(USER)
            os.chown(folder / "data", found.pw_uid, found.pw_gid)
        words = ("--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale", "--username=omidpy")
        subprocess.run(
            self._command("initdb", *words, "-D", str(folder / "data")),
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=LONGEST_S,
        )

    @property
    def url(self) -> str:
        """How a client connects, as the owner of everything."""
        return self.url_of("omidpy")

    def url_of(self, user: str) -> str:
        """How a client connects as another user."""
        return f"postgresql://{user}@127.0.0.1:{self._ports.port('server')}/postgres"

    def connect(self) -> Any:
        """Return a connection that commits each statement."""
        import psycopg

        return psycopg.connect(self.url, autocommit=True)

    def start(self) -> None:
        """Start it, unless it runs; returns when it serves."""
        if self._kept is not None:
            return
        import psycopg

        settings = [word for setting in QUICK for word in ("-c", setting)]
        address = ("-h", "127.0.0.1", "-p", str(self._ports.port("server")), "-k", "")
        data = str(self._folder / "data")
        kept = Kept(self._command("postgres", "-D", data, *address, *settings), log=self._log)
        self._kept = kept

        def serves() -> bool:
            assert kept.is_running, self._log.read_text("utf-8")
            try:
                self.connect().close()
            except psycopg.OperationalError:
                return False
            return True

        wait_for(serves, LONGEST_S)

    def stop(self) -> None:
        """End it at once, with all of its processes."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        try:
            kept.send(signal.SIGQUIT)
            kept.wait(LONGEST_S)
        finally:
            kept.kill()

    def close(self) -> None:
        """End it for good."""
        self.stop()
        self._ports.close()

    def _command(self, program: str, *words: str) -> list[str]:
        """Return how one of its programs is called by a user that it is willing to serve."""
        called = [str(self._folder / "bin" / program), *words]
        if os.geteuid() != 0:
            return called
        group = str(pwd.getpwnam(USER).pw_gid)
        # Of a process that changes its user the kernel forgets what it does when its parent dies.
        ending = ("--pdeathsig", "SIGKILL")
        return ["setpriv", "--reuid", USER, "--regid", group, "--clear-groups", *ending, *called]


@contextmanager
def running_postgresql() -> Iterator[Postgresql]:
    """Run a server of its own, with a database that is empty.

    Raises:
        maven.BuildFailed: Maven is missing, or the programs could not be fetched.
    """
    # Not below the folder of the tests, which is closed to all users but ours.
    folder = Path(tempfile.mkdtemp(prefix="omidpy-postgresql-"))
    try:
        server = Postgresql(folder)
        try:
            server.start()
            yield server
        finally:
            server.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(folder: Path) -> None:
    (jar,) = (maven.build(PROJECT) / "lib").glob("embedded-postgres-binaries-*.jar")
    with zipfile.ZipFile(jar) as files:
        (name,) = (one for one in files.namelist() if one.endswith(".txz"))
        with files.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as tar:
            tar.extractall(folder, filter="data")
