"""A Kerberos of our own on the loopback: one key centre, its principals, and tickets from it.

    with running_kerberos(directory) as kerberos:
        kerberos.keytab("hbase/localhost")        # a file with the key of a principal
        kerberos.ticket("alice", lifetime_s=60)   # a cache with a ticket of another

MIT's programs do the work (Debian: krb5-kdc, krb5-admin-server, krb5-user).  Their settings, their
database and every cache lie in the directory, and nothing of the machine's own is read.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.machines.hbase.ports import answers
from tests.machines.keeper import Kept
from tests.machines.waiting import wait_for

REALM: Final = "OMIDPY.TEST"
PATIENCE_S: Final = 30.0
_PLACES: Final = "/usr/sbin:/usr/local/sbin"


def missing() -> str | None:
    """Return what to install, in one line; None: nothing."""
    path = f"{os.environ.get('PATH', '')}:{_PLACES}"
    if all(shutil.which(name, path=path) for name in ("krb5kdc", "kdb5_util", "kadmin.local")) and (
        shutil.which("kinit", path=path)
    ):
        return None
    return "no key centre is installed (Debian: krb5-kdc krb5-admin-server krb5-user)"


class Kerberos:
    """A key centre that runs."""

    def __init__(self, directory: Path) -> None:
        """Make a realm in a directory; `start` serves it."""
        self.directory = directory
        self.config = directory / "krb5.conf"
        """What clients, Java's among them, have to read in place of the machine's own."""
        self._kdc: Kept | None = None
        directory.mkdir(parents=True, exist_ok=True)
        with socket.socket() as claim:
            claim.bind(("127.0.0.1", 0))
            self.port: int = claim.getsockname()[1]
        (directory / "kdc.conf").write_text(
            f"""[kdcdefaults]
 kdc_listen = 127.0.0.1:{self.port}
 kdc_tcp_listen = 127.0.0.1:{self.port}
[realms]
 {REALM} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  max_life = 1h
  max_renewable_life = 1h
 }}
"""
        )
        self.config.write_text(
            f"""[libdefaults]
 default_realm = {REALM}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {REALM} = {{
  kdc = 127.0.0.1:{self.port}
 }}
[domain_realm]
 localhost = {REALM}
"""
        )
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "omidpy")

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs around it to be in this realm, without a ticket yet."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5RCACHEDIR": str(self.directory),
            "KRB5CCNAME": f"FILE:{self.directory}/no-tickets",
        }

    def start(self) -> None:
        """Serve; returns when it does."""
        if self._kdc is None:
            program = shutil.which("krb5kdc", path=_PLACES)
            assert program is not None, missing()
            log = self.directory / "kdc.log"
            self._kdc = Kept([program, "-n"], log=log, environment=os.environ | self.environment)
            wait_for(lambda: answers(self.port), PATIENCE_S)

    def stop(self) -> None:
        """Kill it; a second call does nothing."""
        if self._kdc is not None:
            self._kdc.kill()
            self._kdc = None

    def keytab(self, *names: str) -> Path:
        """Return a file with the keys of principals, which are made if need be."""
        file = self.directory / f"{'-'.join(names).replace('/', '_')}.keytab"
        if not file.exists():
            for name in names:
                self._run("kadmin.local", "-q", f"addprinc -randkey {name}@{REALM}")
            every = " ".join(f"{name}@{REALM}" for name in names)
            self._run("kadmin.local", "-q", f"ktadd -norandkey -k {file} {every}")
        return file

    def ticket(self, name: str, *, lifetime_s: int = 3000) -> str:
        """Return the name of a cache with a ticket of a principal, for KRB5CCNAME."""
        cache = f"FILE:{self.directory}/{name.replace('/', '_')}-{lifetime_s}.cache"
        keytab = str(self.keytab(name))
        self._run("kinit", "-c", cache, "-l", f"{lifetime_s}s", "-k", "-t", keytab, name)
        return cache

    def _run(self, program: str, *arguments: str) -> None:
        path = f"{os.environ.get('PATH', '')}:{_PLACES}"
        found = shutil.which(program, path=path)
        assert found is not None, missing()
        done = subprocess.run(
            [found, *arguments],
            env=os.environ | self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout} {done.stderr}"


@contextlib.contextmanager
def running_kerberos(directory: Path) -> Iterator[Kerberos]:
    """Run a key centre for the length of a block."""
    kerberos = Kerberos(directory)
    try:
        kerberos.start()
        yield kerberos
    finally:
        kerberos.stop()
