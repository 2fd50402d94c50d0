"""What does an address say of TLS and SASL to ZooKeeper?

Only reads text, and the password's file.  What comes out is what kazoo's client takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from omidpy.errors import ConfigError

CLIENT_OPTIONS: Final = (
    *("tls", "ca", "cert", "key", "verify"),
    *("sasl", "service", "user", "password-file"),
)
FLAGS: Final = {
    **dict.fromkeys(("true", "on", "1"), True),
    **dict.fromkeys(("false", "off", "0"), False),
}
"""How an option of an address says yes or no."""

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
