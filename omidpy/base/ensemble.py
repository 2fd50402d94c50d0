"""What does an address say of TLS and SASL to ZooKeeper, and why is one not let in?

Addresses are text; what comes out of one is what kazoo's client takes.  The steps of SASL are those
of pure-sasl, which kazoo asks for them.

Clients are made here too, with what kazoo does not tell: how long a session may be silent, which
the ensemble decides.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError

if TYPE_CHECKING:
    from kazoo.client import KazooClient

_log: Final = logging.getLogger(__name__)

CLIENT_OPTIONS: Final = (
    *("tls", "ca", "cert", "key", "verify"),
    *("sasl", "service", "user", "password-file"),
)
FLAGS: Final = {
    **dict.fromkeys(("true", "on", "1"), True),
    **dict.fromkeys(("false", "off", "0"), False),
}
"""How an option of an address says yes or no."""

_LONGEST_PAUSE_S: Final = 1.0
"""Between two rounds of a client that looks for its servers."""

_MECHANISMS: Final = ("GSSAPI", "DIGEST-MD5")


def client_options(
    options: Mapping[str, str], *, where: str, spelt: Callable[[str], str] = str
) -> dict[str, Any]:
    """Return what kazoo's client takes.

    Args:
        options: By the names in `CLIENT_OPTIONS`; others are overlooked.
        where: The address, for messages.
        spelt: Returns a name as it stands in the address, for messages.

    Raises:
        ConfigError: naming what is wrong.
    """
    return {**_tls(options, where, spelt), **_sasl(options, where, spelt)}


def require_sasl(client_options: Mapping[str, Any], *, where: str) -> None:
    """Refuse SASL where what kazoo needs for it is not installed, which kazoo finds out late.

    Args:
        client_options: What kazoo's client takes.
        where: The address, for messages.

    Raises:
        ConfigError: naming the extra.
    """
    mechanism = client_options.get("sasl_options", {}).get("mechanism")
    needed = ("puresasl", "kerberos") if mechanism == "GSSAPI" else ("puresasl",)
    if mechanism is None or all(map(find_spec, needed)):
        return
    raise ConfigError(f"{where}: SASL to ZooKeeper needs {install_hint('sasl')}")


class NotLetIn(Exception):
    """ZooKeeper does not believe who we say we are, or nothing proves it."""

    def __init__(self) -> None:
        """Say so in one line; kazoo knows no more."""
        super().__init__(
            "it does not believe who we say we are, or nothing proves it; see the password's file, "
            "or `klist`"
        )


def new_client(hosts: str, client_options: Mapping[str, Any], *, timeout_s: float) -> KazooClient:
    """Return a client of kazoo's, not started, that notes how long its session may be silent.

    Left to itself kazoo waits for one host that is silent as long as for all, and longer and longer
    until it looks for them again, up to a minute.

    Raises:
        Exception: kazoo's.
    """
    from kazoo.client import KazooClient  # noqa: PLC0415 - an extra
    from kazoo.handlers.threading import SequentialThreadingHandler  # noqa: PLC0415 - see above

    class Sharing(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
        """Gives each host its share of the time."""

        def create_connection(self, *where: Any, **more: Any) -> Any:
            """Connect to one."""
            more["timeout"] = more.get("timeout", timeout_s) / len(client.hosts)
            return super().create_connection(*where, **more)

    retry = {"max_tries": -1, "max_delay": _LONGEST_PAUSE_S}
    client = KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        handler=Sharing(),
        connection_retry=retry,
        **client_options,
    )
    client.session_limit_s = timeout_s
    connection = client._connection  # noqa: SLF001 - told nowhere else
    invoke = connection._invoke  # noqa: SLF001 - see above

    def noting(*asked: Any, **more: Any) -> Any:
        answer = invoke(*asked, **more)
        if isinstance(answer, tuple):  # to the request that begins a session, and to no other
            client.session_limit_s = answer[0].time_out / 1000
        return answer

    # There kazoo has the answer last; it is noted before any listener hears of the session.
    connection._invoke = noting  # noqa: SLF001 - see above
    return client


def is_over(client: KazooClient) -> bool:
    """Say whether a client that was started and not stopped connects no more.

    kazoo begins a session anew when the last one has expired, and gives up for good when it was not
    let in once, if only because a server went while it said who it is.
    """
    return client.client_state in ("AUTH_FAILED", "CLOSED")


def start(client: Any, client_options: Mapping[str, Any], *, timeout_s: float) -> None:
    """Start a client of kazoo's; with SASL, make sure that it is let in.

    Kazoo says that it is connected before it has said who it is, and of a refusal nothing, or that
    a connection broke.

    Raises:
        NotLetIn: ZooKeeper ended the session.
        Exception: kazoo's.

    Cost: with SASL 1 round trip more.
    """
    if "sasl_options" not in client_options:
        client.start(timeout=timeout_s)
        return
    states: list[str] = []
    client.add_listener(states.append)
    try:
        client.start(timeout=timeout_s)
        client.exists_async("/").get(timeout=timeout_s)
    except Exception as error:
        # A connection that broke is SUSPENDED in between.
        if states[:2] == ["CONNECTED", "LOST"]:
            raise NotLetIn from error
        raise
    finally:
        client.remove_listener(states.append)


def end(client: Any) -> None:
    """Stop a client of kazoo's and let go of what it holds, whatever became of its start.

    kazoo raises where that failed, as for want of descriptors, and where a thread of its own does
    not end in time.  Neither is of use to one who has done with it, or knows what has failed.
    """
    for step in (client.stop, client.close):
        try:
            step()
        except Exception as error:  # noqa: BLE001 - kazoo's are of any kind
            _log.debug("a client of ZooKeeper ended badly: %r", error)


def refusal(error: Exception) -> str:
    """Return in one line why ZooKeeper does not let one in, from what was raised."""
    if type(error).__name__ == "SessionClosedRequireSaslError":
        return "it wants to know who calls"
    return str(error) or type(error).__name__


def _tls(options: Mapping[str, str], where: str, spelt: Callable[[str], str]) -> dict[str, Any]:
    flags = {}
    for name in ("tls", "verify"):
        value = options.get(name, "false" if name == "tls" else "true").lower()
        if value not in FLAGS:
            raise ConfigError(f"{where}: {spelt(name)}={value!r} is neither true nor false")
        flags[name] = FLAGS[value]
    if not flags["tls"]:
        if given := sorted({"ca", "cert", "key", "verify"} & set(options)):
            raise ConfigError(
                f"{where}: {spelt(given[0])}= says nothing without {spelt('tls')}=true"
            )
        return {}
    chosen = {
        "use_ssl": True,
        "verify_certs": flags["verify"],
        "check_hostname": flags["verify"],
        "ca": options.get("ca"),
        "certfile": options.get("cert"),
        "keyfile": options.get("key"),
    }
    return {name: value for name, value in chosen.items() if value is not None}


def _sasl(options: Mapping[str, str], where: str, spelt: Callable[[str], str]) -> dict[str, Any]:
    mechanism = options.get("sasl")
    if mechanism is None:
        if given := sorted({"service", "user", "password-file"} & set(options)):
            raise ConfigError(f"{where}: {spelt(given[0])}= says nothing without {spelt('sasl')}=")
        return {}
    if mechanism not in _MECHANISMS:
        known = ", ".join(_MECHANISMS)
        raise ConfigError(f"{where}: {spelt('sasl')}={mechanism!r} is none of {known}")
    chosen: dict[str, str] = {
        "mechanism": mechanism,
        "service": options.get("service", "zookeeper"),
    }
    if mechanism == "DIGEST-MD5":
        user, path = options.get("user"), options.get("password-file")
        if not user or not path:
            needed = f"{spelt('user')}= and {spelt('password-file')}="
            raise ConfigError(f"{where}: {spelt('sasl')}=DIGEST-MD5 needs {needed}")
        try:
            password = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigError(
                f"{where}: {spelt('password-file')}={path!r}: {error.strerror}"
            ) from error
        chosen |= {"username": user, "password": password}
    return {"sasl_options": chosen}
