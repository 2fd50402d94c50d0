"""What an operator may choose about a `tso-server`, and where each choice comes from.

Flags over environment variables (`TSO_...`) over a TOML file over defaults.  A setting has one
name: `--max-transaction-age`, `TSO_MAX_TRANSACTION_AGE`, `max-transaction-age`.  Nothing is opened
here.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from omidpy.base.installation import versions, versions_text
from omidpy.base.telemetry.events import TEXT, check_format
from omidpy.base.words.choices import words_of
from omidpy.base.words.durations import EXAMPLES, duration_ms
from omidpy.base.words.sizes import EXAMPLES as EXAMPLE_SIZES
from omidpy.base.words.sizes import size_bytes
from omidpy.errors import ConfigError
from omidpy.model import MAX_VERSION
from omidpy.oracle.address import address_text, parse_address
from omidpy.oracle.zookeeper import SCHEME, parse_zookeeper
from omidpy.storage.address import sqlite_path
from omidpy.storage.hbase.addresses import gateways as hbase
from omidpy.storage.hbase.native import address as direct
from tso.choices import CHECK_CONFIG, DEFAULT_LISTEN, MODES, ORACLE, STORE_LEASE
from tso.core.engine import is_compiled, map_capacity
from tso.core.settings import (
    DEFAULT_MAP_SIZE,
    DEFAULT_TIMESTAMPS,
    MAX_AGE_MS,
    NO_LIMIT,
    TimestampMode,
)
from tso.serving.tls import TlsSettings

Address: TypeAlias = tuple[str, int]

NULL_STORE: Final = "null:"
_LISTEN: Final = parse_address(DEFAULT_LISTEN)


@dataclass(frozen=True, slots=True)
class Config:
    """Every setting of a `tso-server`, checked."""

    store: str
    listen: Address = _LISTEN
    advertise: Address | None = None
    """Where clients of `tso="store:"` connect to; None: where we listen."""
    metrics: Address | None = None
    lease: str = STORE_LEASE
    timestamps: TimestampMode = DEFAULT_TIMESTAMPS
    conflict_map_size: int = DEFAULT_MAP_SIZE
    cells_per_s: int | None = None
    """Cells of the conflict map that one name, or one address, may write in a second; 0: as many as
    it likes; None: so many that none turns the map over, while others are there."""
    begins_per_s: int = NO_LIMIT
    commits_per_s: int = NO_LIMIT
    max_transaction_age_ms: int | None = None
    """None: as the history of the store has it, see `Inherited.transaction_age_ms`."""
    log_format: str = TEXT
    accept_clock: bool = False
    initial_timestamp: int | None = None
    """Where to go on on a store that records no last timestamp."""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    tls_crl: str | None = None
    tls_roles: str | None = None
    insecure: bool = False
    """Listen without TLS on an address that other machines reach, or serve metrics there so."""
    check_config: bool = False

    @property
    def tls(self) -> TlsSettings | None:
        """The files of TLS; None where there is none."""
        if self.tls_cert is None:
            return None
        return TlsSettings(
            self.tls_cert, self.tls_key, self.tls_client_ca, self.tls_crl, self.tls_roles
        )

    @property
    def has_secure_metrics(self) -> bool:
        """Say whether metrics are served with TLS: where others reach them and may not hear."""
        return (
            self.tls_cert is not None
            and self.metrics is not None
            and not self.insecure
            and not is_loopback(self.metrics[0])
        )

    def as_toml(self) -> str:
        """Return the settings as a file that says the same."""
        lines = []
        for field in fields(self):
            value = getattr(self, field.name)
            name = field.name.replace("_", "-").removesuffix("-ms")
            if value is None or name == "check-config":
                continue
            if isinstance(value, tuple):
                value = address_text(value)
            if field.name == "max_transaction_age_ms":
                value = f"{value}ms"
            text = json.dumps(value)
            lines.append(f"{name} = {text}")
        return "\n".join(lines)


def age_ms(text: str, *, name: str) -> int:
    """Return the milliseconds in a duration above 0.

    Raises:
        ConfigError: naming the setting.
    """
    value = round(duration_ms(text) or 0)
    if not 0 < value <= MAX_AGE_MS:
        raise ConfigError(
            f"{name}: {text[:80]!r} is no duration; write a number above 0 and a unit, for "
            f"instance {EXAMPLES}, and nothing longer than 36500d, a hundred years"
        )
    return value


def load_config(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """Collect and check the settings.

    Raises:
        ConfigError: naming the setting and what it may be.
        SystemExit: argparse's own, for unknown flags and `--help`.
    """
    flags = {name: value for name, value in vars(_parser().parse_args(arguments)).items() if value}
    from_environment = {
        one.key: environment[one.envvar]
        for one in _KEYS
        if one.envvar is not None and one.envvar in environment
    }
    path = flags.get("config") or from_environment.get("config")
    chosen: dict[str, Any] = _read_file(Path(path)) if path else {}
    return _checked(words_of(ORACLE, chosen | from_environment | flags))


_KEYS: Final = tuple(one for one in ORACLE if one is not CHECK_CONFIG)
"""What the environment and the file may say."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tso-server",
        description="The timestamp oracle of an omidpy store.",
        epilog="Every flag is also a TSO_... environment variable and a key of the --config file.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version",
        action=_ShowVersions,
        nargs=0,
        default=argparse.SUPPRESS,
        help="show the versions of tso-server and of what it runs on, and exit",
    )
    for one in ORACLE:
        # Without defaults: what a flag does not say the environment or the file may.
        if one.metavar is None:
            parser.add_argument(f"--{one.name}", action="store_true", help=one.help)
        else:
            parser.add_argument(f"--{one.name}", metavar=one.metavar, help=one.help)
    return parser


class _ShowVersions(argparse.Action):
    """Prints what is installed; argparse's own joins the lines."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(versions_text(versions(engine_is_compiled=is_compiled())))
        parser.exit()


def _read_file(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            found = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:  # bytes that are no UTF-8 among them
        raise ConfigError(f"--config {str(path)!r} is no readable TOML: {error}") from error
    keys = {one.name: one.key for one in _KEYS}
    if unknown := sorted(set(found) - set(keys)):
        raise ConfigError(f"{path}: unknown setting {unknown[0]!r}; known: {', '.join(keys)}")
    return {keys[name]: value for name, value in found.items()}


def _checked(words: Mapping[str, Any]) -> Config:
    store = _text(words, "store")
    if not store:
        raise ConfigError(
            "--store is missing: name the store to serve, as in sqlite:////data/a.db, "
            "hbase://zk1:2181/hbase or hbase+thrift2://gateway:9090"
        )
    if store == "memory:":
        raise ConfigError(
            "--store memory: lives in one process, and no client could open it; use "
            "sqlite:////data/a.db, or null: for a benchmark"
        )
    listen = _listen_address(_text(words, "listen"), name="--listen")
    is_reached = not is_loopback(listen[0])
    if store == NULL_STORE and is_reached:
        raise ConfigError(
            f"--store null: persists nothing and is for benchmarks; listen on 127.0.0.1, not on "
            f"{listen[0]}"
        )
    _check_store(store)
    files = {
        one.name: _text(words, one.name) or None for one in ORACLE if one.name.startswith("tls-")
    }
    check_tls(files)
    insecure = _flag("insecure", words["insecure"])
    if is_reached and not files["tls-cert"] and not insecure:
        raise ConfigError(
            f"--listen {address_text(listen)}: other machines reach this address, and whoever does "
            "may begin, commit and forbid; give --tls-cert and --tls-client-ca, or, in a network "
            "that you trust, say --insecure"
        )
    advertise = _text(words, "advertise")
    metrics = watching_address(
        _text(words, "metrics"),
        name="--metrics",
        has_tls=bool(files["tls-cert"]),
        insecure=insecure,
    )
    age = _text(words, "max-transaction-age")
    timestamps = _text(words, "timestamps")
    if timestamps not in MODES:
        raise ConfigError(f"--timestamps {timestamps!r} is neither {' nor '.join(MODES)}")
    return Config(
        store=store,
        listen=listen,
        advertise=parse_address(advertise) if advertise else None,
        metrics=metrics,
        lease=_lease(_text(words, "lease"), store=store),
        timestamps=cast("TimestampMode", timestamps),
        conflict_map_size=_size(words["conflict_map_size"]),
        cells_per_s=_rate("cells-per-s", words["cells_per_s"]),
        begins_per_s=_rate("begins-per-s", words["begins_per_s"]) or NO_LIMIT,
        commits_per_s=_rate("commits-per-s", words["commits_per_s"]) or NO_LIMIT,
        max_transaction_age_ms=age_ms(age, name="--max-transaction-age") if age else None,
        log_format=check_format(_text(words, "log-format")),
        accept_clock=_flag("accept-clock", words["accept_clock"]),
        initial_timestamp=_timestamp(words["initial_timestamp"]),
        tls_cert=files["tls-cert"],
        tls_key=files["tls-key"],
        tls_client_ca=files["tls-client-ca"],
        tls_crl=files["tls-crl"],
        tls_roles=files["tls-roles"],
        insecure=insecure,
        check_config=words["check_config"],
    )


def _check_store(url: str) -> None:
    """Refuse an address of a store that cannot be one, before anything is started."""
    scheme = url.partition(":")[0]
    if scheme in hbase.SCHEMES:
        hbase.parse_address(url)
    elif scheme in direct.SCHEMES:
        direct.parse_native(url)
    elif scheme == "sqlite":
        sqlite_path(url)
    elif url != NULL_STORE:
        raise ConfigError(
            f"--store {url!r} is no address of a store: write sqlite:////absolute.db, "
            f"{direct.EXAMPLE} or {hbase.EXAMPLE}"
        )


def is_loopback(host: str) -> bool:
    """Say whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_tls(files: Mapping[str, str | None]) -> None:
    """Refuse settings that say nothing without another one."""
    needs = {
        "tls-key": "tls-cert",
        "tls-client-ca": "tls-cert",
        "tls-crl": "tls-client-ca",
        "tls-roles": "tls-client-ca",
    }
    for name, needed in needs.items():
        if files[name] and not files[needed]:
            raise ConfigError(f"--{name} says nothing without --{needed}")


def _text(words: Mapping[str, Any], name: str) -> str:
    value = words[name.replace("-", "_")]
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"--{name}: {_shown(value)} is no text; put it in quotes")
    return value


def _shown(value: object) -> str:
    """Return a value for a message; Python writes no number of thousands of digits."""
    if isinstance(value, int) and abs(value) >= 2**64:
        return "a number of more than 64 bits"
    return f"{value!r:.80}" if not isinstance(value, list | dict) else "a table or a list"


def _listen_address(text: str, *, name: str) -> Address:
    host, _, port = text.rpartition(":")
    try:
        if host and port == "0":
            return parse_address(f"{host}:1")[0], 0
        return parse_address(text)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def watching_address(text: str, *, name: str, has_tls: bool, insecure: bool) -> Address | None:
    """Return where a scraper may ask; None where the text is empty.

    Args:
        text: `HOST:PORT`; port 0 picks one.
        name: What asked for it, as a flag.
        has_tls: Whether it would be served with TLS where others reach it.
        insecure: Whether others may read there without.

    Raises:
        ConfigError: it is none, or others could read there.
    """
    if not text:
        return None
    address = _listen_address(text, name=name)
    if not is_loopback(address[0]) and not has_tls and not insecure:
        raise ConfigError(
            f"{name} {text}: other machines reach this address, and whoever does may read what "
            "goes on here; give --tls-cert and --tls-client-ca, with which it speaks TLS, or, in a "
            "network that you trust, say --insecure"
        )
    return address


def _lease(text: str, *, store: str) -> str:
    if text == STORE_LEASE:
        return text
    if not text.startswith(SCHEME):
        raise ConfigError(f"--lease {text!r} is neither {STORE_LEASE} nor zk://HOSTS/ns")
    parse_zookeeper(text)
    if store == NULL_STORE:
        raise ConfigError("--store null: has no lease, since nobody else can serve it")
    return text


def _timestamp(value: object) -> int | None:
    if value is None:
        return None
    number = _number(value)
    if number is None or not 0 < number < MAX_VERSION:
        raise ConfigError(
            f"--initial-timestamp {_shown(value)} is no timestamp; write a number above every "
            "timestamp that was ever issued here"
        )
    return number


def _number(value: object) -> int | None:
    """Return a number, or what digits say; None if it is neither, or too long to be meant."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
    return int(cast("str", value)) if is_number else None


def _size(value: object) -> int:
    size = _number(value)
    if size is None and isinstance(value, str) and not value.isdigit():
        size = map_capacity(size_bytes(value[:80]) or 0)
    if size is None or not 1 <= size < 2**30:
        raise ConfigError(
            f"--conflict-map-size {_shown(value)} is no number from 1 to {2**30 - 1}, nor a size "
            f"of memory that holds so many, for instance {EXAMPLE_SIZES}"
        )
    return size


def _rate(name: str, value: object) -> int | None:
    if value is None:
        return None
    number = _number(value)
    if number is None or not 0 <= number < 2**40:
        raise ConfigError(
            f"--{name} {_shown(value)} is no number a second; write a whole one, or 0 for no limit"
        )
    return number


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    meaning = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    text = _shown(value).strip("'").lower()
    if text not in meaning:
        raise ConfigError(f"--{name}: {_shown(value)} is neither true nor false")
    return meaning[text]
