"""What every verb shares: its options, an open store, and how results are printed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias, cast

import typer

from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.words.printable import printable
from omidpy.errors import ConfigError
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.facts.format import check_format
from omidpy.model import FIRST_WORLD_TIMESTAMP, KeyRange
from omidpy.opening import open_store
from omidpy.storage.address import init_command
from omidpy.storage.base import Row, Store

StoreUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="OMIDPY_STORE",
        metavar="URL",
        help="Address of the store: sqlite:///FILE, hbase://ZOOKEEPER/hbase or "
        "hbase+thrift2://HOST:PORT.",
    ),
]
TsoAddress: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--tso",
        envvar="OMIDPY_TSO",
        metavar="ADDR",
        help="Its oracle: HOST:PORT, store: or zk://HOSTS/NS.",
    ),
]
UnaskedTso: TypeAlias = Annotated[
    str | None, typer.Option("--tso", envvar="OMIDPY_TSO", metavar="ADDR", hidden=True)
]
"""Taken by verbs that ask no oracle, since scripts give every verb the same words; not offered."""
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Apply: TypeAlias = Annotated[
    bool, typer.Option("--apply", help="Do it; without this, only say what would be done.")
]


@contextmanager
def opened(store_url: str, *, only_looks: bool = False) -> Iterator[Store]:
    """Open a store.

    Args:
        store_url: Its address; an embedded store must exist.
        only_looks: The verb writes nothing, so that it need not have been set up: system tables
            that are missing read as empty, and a line on stderr says so.

    Raises:
        ConfigError: no oracle has ever run on it, and nobody ran `omidpy init`; or a newer omidpy
            has changed its form.
    """
    if store_url == "memory:":
        raise ConfigError("--store memory: is empty in every new process; name a file or a cluster")
    store = open_store(store_url, must_exist=True)
    try:
        existing = {schema.name for schema in store.tables()}
        missing = [name for name in (COMMIT_TABLE, CONTROL_TABLE) if name not in existing]
        remedy = f"run {init_command(store_url)}, or check the address"
        if missing and not only_looks:
            raise ConfigError(f"{store_url} has no table {missing[0]}; {remedy}")
        if missing:
            say(f"note: {store_url} has not been set up for omidpy; {remedy}", err=True)
        if CONTROL_TABLE in existing:
            check_format(store)
        yield cast("Store", _NotSetUp(store, missing)) if missing else store
    finally:
        store.close()


class _NotSetUp:
    """A store as it will be once it is set up: system tables that are missing read as empty."""

    def __init__(self, store: Store, missing: Collection[str]) -> None:
        self._store = store
        self._missing = missing

    def __getattr__(self, name: str) -> Any:
        """Return what the store has."""
        return getattr(self._store, name)

    @property
    def store_id(self) -> str:
        """On HBase it is made with the system tables."""
        return "none yet"

    def get(self, table: str, rows: Sequence[bytes], **options: Any) -> list[Row]:
        """Read rows."""
        if table in self._missing:
            return [[] for _ in rows]
        return self._store.get(table, rows, **options)

    def scan(self, table: str, *key_range: KeyRange, **options: Any) -> Iterator[list[Row]]:
        """Read pages."""
        if table in self._missing:
            return iter(())
        return self._store.scan(table, *key_range, **options)


def say(text: str, *, err: bool = False) -> None:
    """Print text, whoever wrote what is in it; `err` is for stderr."""
    typer.echo(printable(text), err=err)


def print_json(document: Any) -> None:
    """Print a document as one line of JSON."""
    say(json.dumps(document))


def print_facts(facts: Mapping[str, object]) -> None:
    """Print names and values in two columns."""
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        say(f"{name:<{width}}  {value}")


def print_columns(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows in aligned columns; the last column may be as long as it likes."""
    texts = [list(heads), *([str(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        cells = [f"{value:<{width}}" for value, width in zip(text, widths, strict=True)]
        say("  ".join(cells).rstrip())


def moment(milliseconds: int) -> str:
    """Return wall time as text, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def age_s(timestamp: int, *, now_ms: int) -> float | None:
    """Return how long ago a timestamp was issued; None if it does not tell the time."""
    if timestamp < FIRST_WORLD_TIMESTAMP:
        return None
    return round(max(now_ms - timestamp // 1_000_000, 0) / 1000, 3)


def key_text(key_hex: str, *, empty: str) -> str:
    """Return an end of a key range for a person: printable keys as they are, others in hex."""
    key = bytes.fromhex(key_hex)
    if not key:
        return empty
    text = key.decode("ascii", errors="replace")
    return text if text.isprintable() and "�" not in text else f"0x{key_hex}"
