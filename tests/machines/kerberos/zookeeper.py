"""A real ZooKeeper that lets nobody in who does not say who he is: by Kerberos, or by a password.

    with running_zookeeper(directory, login) as port: ...

It is the one in HBase's jars, alone in a process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.machines import maven
from tests.machines.hbase.ports import PortBlock, answers
from tests.machines.hbase.server import jars
from tests.machines.hbase.settings import JVM_OPTIONS, QUICK_START
from tests.machines.keeper import Kept
from tests.machines.kerberos import REALM, Kerberos
from tests.machines.waiting import wait_for

LONGEST_START_S: Final = 60.0
_PROVIDER: Final = "org.apache.zookeeper.server.auth"


def by_kerberos(kerberos: Kerberos) -> tuple[str, Sequence[str]]:
    """Return how a server logs in, and options of its JVM."""
    name = "zookeeper/localhost"
    login = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'useTicketCache=false keyTab="{kerberos.keytab(name)}" principal="{name}@{REALM}";'
    )
    return login, (f"-Djava.security.krb5.conf={kerberos.config}",)


def by_password(user: str, password: str) -> tuple[str, Sequence[str]]:
    """Return the same for one who knows a user by a password."""
    return f'{_PROVIDER}.DigestLoginModule required user_{user}="{password}";', ()


@contextlib.contextmanager
def running_zookeeper(directory: Path, login: tuple[str, Sequence[str]]) -> Iterator[int]:
    """Run one for the length of a block, on `localhost`; yield its port."""
    directory.mkdir()
    ports = PortBlock()
    port = ports.port("zookeeper")
    (directory / "jaas.conf").write_text(f"Server {{\n {login[0]}\n}};\n")
    settings = {
        "tickTime": "1000",
        "dataDir": str(directory / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "authProvider.sasl": f"{_PROVIDER}.SASLAuthenticationProvider",
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "sasl",
    }
    lines = (f"{name}={value}\n" for name, value in settings.items())
    (directory / "zoo.cfg").write_text("".join(lines))
    java = [maven.java_tool("java"), "-Xmx96m", *JVM_OPTIONS, *QUICK_START, *login[1]]
    java.append(f"-Djava.security.auth.login.config={directory / 'jaas.conf'}")
    main = ("org.apache.zookeeper.server.ZooKeeperServerMain", str(directory / "zoo.cfg"))
    log = directory / "log"
    kept = Kept([*java, "-cp", f"{jars() / 'lib'}/*", *main], log=log)
    try:
        wait_for(lambda: answers(port) or not kept.is_running, LONGEST_START_S)
        assert kept.is_running, log.read_text()[-3000:]
        yield port
    finally:
        kept.kill()
        ports.close()
