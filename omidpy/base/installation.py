"""What is installed here, and how is what is missing installed?

Versions of what matters to a report of a defect, and the one hint that errors give where an extra
is missing.  A hint names what exists: where omidpy came from is what pip noted when it installed it
(`direct_url.json`, PEP 610), and nothing is noted of what came from an index.

Reads the metadata of what is installed, and imports none of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import Distribution

VERSION: Final = "0.1.0"

DISTRIBUTION: Final = "omidpy"

ABSENT: Final = "absent"
"""The version of what is not installed."""

MATTERS: Final = (
    "cachetools",
    "mmh3",
    "msgspec",
    "prometheus-client",
    "typer",
    "uvloop",
    "thriftpy2",
    "happybase",
    "kazoo",
    "pyspark",
    "pyarrow",
    "boto3",
    "deltalake",
    "confluent-kafka",
    "psycopg",
    "gssapi",
    "starlette",
    "uvicorn",
    "opentelemetry-api",
)
"""Distributions whose behaviour reaches ours."""

_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")


def versions(*, engine_is_compiled: bool) -> dict[str, str]:
    """Return what is installed by its name, omidpy first; `ABSENT` where something is not.

    Args:
        engine_is_compiled: What `tso.core.engine` says, which this level does not know.
    """
    import platform  # noqa: PLC0415 - `import omidpy` stays light
    import sqlite3  # noqa: PLC0415 - see above
    import ssl  # noqa: PLC0415 - see above

    return {
        DISTRIBUTION: VERSION,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "platform": f"{platform.system()} {platform.machine()}",
        "engine": engine_text(is_compiled=engine_is_compiled),
        "sqlite": sqlite3.sqlite_version,
        "openssl": ssl.OPENSSL_VERSION.removeprefix("OpenSSL "),
        **{name: _version(name) for name in MATTERS},
    }


def engine_text(*, is_compiled: bool) -> str:
    """Say in one word in which form the oracle's engine is here."""
    return "compiled" if is_compiled else "interpreted"


def versions_text(found: Mapping[str, str]) -> str:
    """Return versions for a person, one a line: `omidpy 0.1.0`."""
    return "\n".join(f"{name} {version}" for name, version in found.items())


def install_hint(*extras: str) -> str:
    """Return the command that installs these extras of this very omidpy, as a shell reads it.

    Names the wheel, the folder or the address that omidpy was installed from; `omidpy[...]` where
    it came from an index; and the extras' own packages where what it came from is gone.
    """
    import shlex  # noqa: PLC0415 - `import omidpy` stays light
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - see above

    try:
        found = distribution(DISTRIBUTION)
    except PackageNotFoundError:
        return f"pip install {shlex.quote(_in_folder(_source(), extras))}"
    wanted = _wanted(found, extras)
    return f"pip install {' '.join(map(shlex.quote, wanted))}"


def _wanted(found: Distribution, extras: tuple[str, ...]) -> list[str]:
    import json  # noqa: PLC0415 - see above
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415 - see above

    noted = found.read_text("direct_url.json")
    if noted is None:
        return [f"{DISTRIBUTION}[{','.join(extras)}]"]
    origin = json.loads(noted)
    url = urlsplit(origin["url"])
    if url.scheme != "file":
        kind = f"{vcs}+" if (vcs := origin.get("vcs_info", {}).get("vcs")) else ""
        return [f"{DISTRIBUTION}[{','.join(extras)}] @ {kind}{origin['url']}"]
    path = Path(unquote(url.path))
    if path.exists():
        return [_in_folder(path, extras)]
    return [
        requirement.partition(";")[0].strip()
        for requirement in found.requires or ()
        if (extra := _EXTRA.search(requirement)) is not None and extra[1] in extras
    ]


def _source() -> Path:
    return Path(__file__).parents[2]


def _in_folder(path: Path, extras: tuple[str, ...]) -> str:
    return f"{path}[{','.join(extras)}]"


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - is heavy

    try:
        return version(name)
    except PackageNotFoundError:
        return ABSENT
