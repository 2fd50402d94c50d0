"""Addresses of stores: those that are files, and what is typed into a shell with any of them."""

from __future__ import annotations

from urllib.parse import unquote

from omidpy.errors import ConfigError


def sqlite_path(url: str) -> str:
    """Return the path in `sqlite:///relative.db` or `sqlite:////absolute.db`.

    Raises:
        ConfigError: it is no such address.
    """
    scheme, _, rest = url.partition(":")
    path, question_mark, _ = rest.removeprefix("///").partition("?")
    if scheme != "sqlite" or not rest.startswith("///") or not path or question_mark:
        raise ConfigError(
            f"store address {url!r}: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    if "\0" in (found := unquote(path)):
        raise ConfigError(f"store address {url!r}: no file has a NUL in its name; leave it out")
    return found


def server_command(url: str) -> str:
    """Return the command that starts an oracle of a store, as it is typed into a shell."""
    import shlex  # noqa: PLC0415 - `import omidpy` stays light

    return f"`tso-server --store {shlex.quote(url)}`"


def init_command(url: str) -> str:
    """Return the command that sets a store up, as it is typed into a shell."""
    import shlex  # noqa: PLC0415 - `import omidpy` stays light

    return f"`omidpy init --store {shlex.quote(url)}`"
