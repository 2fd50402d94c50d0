"""Addresses of stores that are files."""

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
    return unquote(path)
