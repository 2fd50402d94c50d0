"""What a `tso-server` may be asked: by a flag, by the environment, by a key of its file.

Pure.  The parser, the settings and the reference read it; `config.py` says what the words mean.
"""

from __future__ import annotations

from typing import Final, get_args

from omidpy.base.telemetry.events import FORMS, TEXT
from omidpy.base.words.choices import Choice
from omidpy.wire.messages import DEFAULT_PORT
from tso.core.engine import map_bytes
from tso.core.settings import (
    DEFAULT_MAP_SIZE,
    DEFAULT_TIMESTAMPS,
    LEAST_CELLS_PER_S,
    NO_LIMIT,
    PROTECTED_MS,
    TimestampMode,
)

DEFAULT_LISTEN: Final = f"127.0.0.1:{DEFAULT_PORT}"
STORE_LEASE: Final = "store"
"""The lease is kept in the store that is served."""
DEFAULT_MAP_MIB: Final = -(-map_bytes(DEFAULT_MAP_SIZE) // 2**20)
"""Rounded up: an oracle that is given so much has no less than the default."""
MODES: Final = get_args(TimestampMode)


def _asked(
    name: str, meaning: str, metavar: str | None = None, default: str | int | None = None
) -> Choice:
    variable = "TSO_" + name.upper().replace("-", "_")
    return Choice(name, meaning, metavar, default, envvar=variable)


CONFIG: Final = _asked("config", "a TOML file with these settings", "FILE")
CHECK_CONFIG: Final = Choice("check-config", "print the settings and exit")
"""A flag alone."""

ORACLE: Final = (
    _asked(
        "store",
        "the store: sqlite:////absolute.db, hbase://ZK/hbase, hbase+thrift2://H:P",
        "URL",
    ),
    _asked("listen", f"default {DEFAULT_LISTEN}; port 0 picks one", "HOST:PORT", DEFAULT_LISTEN),
    _asked("advertise", "the address in the lease, if it differs", "HOST:PORT"),
    CONFIG,
    _asked(
        "metrics",
        "serve /metrics and /healthz there: with the TLS of --listen where other machines reach "
        "that address",
        "HOST:PORT",
    ),
    _asked(
        "lease",
        f"where the lease is kept; default {STORE_LEASE}",
        f"{STORE_LEASE}|zk://HOSTS/ns",
        STORE_LEASE,
    ),
    _asked("timestamps", f"default {DEFAULT_TIMESTAMPS}", "|".join(MODES), DEFAULT_TIMESTAMPS),
    _asked(
        "conflict-map-size",
        "writes remembered, as a number or as the memory that they may take, at most 29 bytes "
        f"each; default {DEFAULT_MAP_SIZE}, which is {DEFAULT_MAP_MIB}MiB",
        "WRITES|MEMORY",
        DEFAULT_MAP_SIZE,
    ),
    _asked(
        "cells-per-s",
        "cells that one name, or without certificates one address, may write in a second; "
        f"{NO_LIMIT} is no limit; default, while others are there, half of the map in "
        f"{PROTECTED_MS // 60_000} minutes, and at least {LEAST_CELLS_PER_S}",
        "N",
    ),
    _asked("begins-per-s", f"begins of one name, the same; default {NO_LIMIT}", "N", NO_LIMIT),
    _asked("commits-per-s", f"commits of one name, the same; default {NO_LIMIT}", "N", NO_LIMIT),
    _asked("max-transaction-age", "older transactions cannot commit", "15m"),
    _asked("log-format", f"default {TEXT}; one event a line", "|".join(FORMS), TEXT),
    _asked("accept-clock", "believe a clock far above the last timestamp"),
    _asked(
        "initial-timestamp",
        "go on above N on a store that Omid served without durable timestamps",
        "N",
    ),
    _asked("tls-cert", "speak TLS with this certificate and nothing else", "FILE"),
    _asked("tls-key", "its key, unless the same file has it", "FILE"),
    _asked("tls-client-ca", "who signs the certificates that clients must show", "FILE"),
    _asked("tls-crl", "a PEM file: which of those the authority has revoked", "FILE"),
    _asked("tls-roles", "a TOML file: what the name in each may ask", "FILE"),
    _asked(
        "insecure",
        "without TLS, listen on an address that other machines reach, where whoever does may "
        "commit; with or without, serve --metrics there in the open",
    ),
    CHECK_CONFIG,
)
"""In the order in which they are listed."""
