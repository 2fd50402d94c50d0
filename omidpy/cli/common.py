"""What every verb shares: its options, an open store, and how results are printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer

from omidpy.base.telemetry.events import FORMS
from omidpy.base.words.hosts import is_host
from omidpy.cli.saying import print_json, say
from omidpy.errors import ConfigError, UsageError
from omidpy.opening import open_store
from omidpy.reports.opened import as_set_up, missing_tables
from omidpy.storage.address import init_command
from omidpy.storage.base import Store

__all__ = [
    "Apply",
    "AsJson",
    "LogFormat",
    "Metrics",
    "MetricsAddress",
    "StoreUrl",
    "TsoAddress",
    "UnaskedTso",
    "opened",
    "print_columns",
    "print_facts",
    "print_json",
    "say",
    "serve_metrics",
]

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
Metrics: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="HOST:PORT",
        help="Where a `tso-server` shows its metrics; again for each that stands by.  Behind it "
        "?tls=true&ca=FILE&cert=FILE&key=FILE as behind --tso.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogFormat: TypeAlias = Annotated[
    str,
    typer.Option(
        "--log-format",
        envvar="OMIDPY_LOG_FORMAT",
        metavar="|".join(FORMS),
        help="How what is logged on stderr is written, one event a line.",
    ),
]
MetricsAddress: TypeAlias = Annotated[
    str | None,
    typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus' metrics there."),
]
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
        missing = missing_tables(store)
        remedy = f"run {init_command(store_url)}, or check the address"
        if missing and not only_looks:
            raise ConfigError(f"{store_url} has no table {missing[0]}; {remedy}")
        if missing:
            say(f"note: {store_url} has not been set up for omidpy; {remedy}", err=True)
        yield as_set_up(store, missing)
    finally:
        store.close()


def serve_metrics(address: str) -> None:
    """Serve what is registered with prometheus_client, in a thread, until the process ends.

    Raises:
        UsageError: the address is no HOST:PORT.
        ConfigError: it cannot be listened on.
    """
    from omidpy.cli.serving import serve  # noqa: PLC0415 - only where it is asked for

    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 2**16
    if not separator or not is_host(host) or not is_port:
        raise UsageError(f"--metrics {address!r} is no HOST:PORT")
    try:
        serve(host, int(port))
    except OSError as error:
        raise ConfigError(f"--metrics {address}: {error}") from error


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
