"""Which sink does `omidpy export run --to WHERE` mean?

| WHERE | what |
|---|---|
| `sqlite:FILE` | the table `entries` of a file |
| `jsonl:FOLDER`, `parquet:FOLDER` | a file for each batch |
| `table:NAME` | a table of the same store |
| `http://...`, `https://...` | a webhook |
| `postgresql://USER@HOST:PORT/DATABASE#TABLE` | a table, `entries` unless it says so |
| `kafka://HOST:PORT,HOST:PORT/TOPIC?SETTING=VALUE&...` | a topic; settings of librdkafka |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from omidpy.errors import UsageError
from omidpy.recipes.export_queue.sinks.files import JsonLinesSink
from omidpy.recipes.export_queue.sinks.kafka import KafkaSink
from omidpy.recipes.export_queue.sinks.parquet import ParquetSink
from omidpy.recipes.export_queue.sinks.postgresql import PostgresqlSink
from omidpy.recipes.export_queue.sinks.sqlite import SqliteSink
from omidpy.recipes.export_queue.sinks.tables import TableSink
from omidpy.recipes.export_queue.sinks.webhook import WebhookSink

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Exporter

FORMS: Final = (
    "sqlite:FILE",
    "jsonl:FOLDER",
    "parquet:FOLDER",
    "table:NAME",
    "http(s)://HOST/PATH",
    "postgresql://USER@HOST/DATABASE#TABLE",
    "kafka://HOST:PORT/TOPIC",
)


def sink_at(where: str) -> Exporter:
    """Return the sink that an address names.

    Raises:
        UsageError: it names none.
        ConfigError: what the sink needs is not installed, or the address is wrong in itself.
    """
    scheme, _, rest = where.partition(":")
    if rest and scheme in _OF_REST:
        return _OF_REST[scheme](rest)
    if rest and scheme in _OF_ALL:
        return _OF_ALL[scheme](where)
    raise UsageError(f"{where!r} is none of {', '.join(FORMS)}")


def _postgresql(where: str) -> Exporter:
    server, _, table = where.partition("#")
    return PostgresqlSink(server, table) if table else PostgresqlSink(server)


def _kafka(where: str) -> Exporter:
    parts = urlsplit(where)
    topic = parts.path.removeprefix("/")
    if not parts.netloc or not topic:
        raise UsageError(f"{where!r} is no kafka://HOST:PORT/TOPIC")
    return KafkaSink(parts.netloc, topic, settings=dict(parse_qsl(parts.query)))


_OF_REST: Final[Mapping[str, Callable[[str], Exporter]]] = {
    "sqlite": SqliteSink,
    "jsonl": JsonLinesSink,
    "parquet": ParquetSink,
    "table": TableSink,
}
_OF_ALL: Final[Mapping[str, Callable[[str], Exporter]]] = {
    "http": WebhookSink,
    "https": WebhookSink,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    "kafka": _kafka,
}
