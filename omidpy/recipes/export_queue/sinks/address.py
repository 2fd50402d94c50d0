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

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

from omidpy.errors import UsageError
from omidpy.recipes.export_queue.sinks.files import JsonLinesSink
from omidpy.recipes.export_queue.sinks.kafka import KafkaSink
from omidpy.recipes.export_queue.sinks.parquet import ParquetSink
from omidpy.recipes.export_queue.sinks.sql.postgresql import PostgresqlSink
from omidpy.recipes.export_queue.sinks.sql.sqlite import SqliteSink
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


def sink_at(
    where: str,
    *,
    append: bool = False,
    at_least_once: bool = False,
    taken: Collection[int] = (),
) -> Exporter:
    """Return the sink that an address names.

    Args:
        where: The address.
        append: A table of SQL has a row for every entry, not only for the newest of each key.
        at_least_once: Without the transactions of Kafka.
        taken: Answers by which a webhook says that it has an entry, see `WebhookSink`.

    Raises:
        UsageError: it names none; or `append`, `at_least_once` or `taken` was asked of one that
            knows no such thing.
        ConfigError: what the sink needs is not installed, or the address is wrong in itself.
    """
    scheme, _, rest = where.partition(":")
    if taken:
        if append or at_least_once or scheme not in ("http", "https"):
            raise UsageError(f"--taken is for webhooks (http:, https:), not for {where!r}")
        return WebhookSink(where, taken=taken)
    if at_least_once:
        if append or scheme != "kafka":
            raise UsageError(
                f"--at-least-once is for topics of Kafka (kafka:), not for {where!r}, where "
                "nothing that comes again shows, or that knows nothing better"
            )
        return _kafka(where, at_least_once=True)
    if append:
        return _appending(where, scheme, rest)
    if rest and scheme in _OF_REST:
        return _OF_REST[scheme](rest)
    if rest and scheme in _OF_ALL:
        return _OF_ALL[scheme](where)
    raise UsageError(f"{where!r} is none of {', '.join(FORMS)}")


def _appending(where: str, scheme: str, rest: str) -> Exporter:
    if rest and scheme == "sqlite":
        return SqliteSink(rest, append=True)
    if rest and scheme in ("postgresql", "postgres"):
        return _postgresql(where, append=True)
    raise UsageError(
        f"--append is for tables of SQL (sqlite:, postgresql:), not for {where!r}: files, topics "
        "and webhooks get every entry, and the tables of a store keep the newest of each key"
    )


def _postgresql(where: str, *, append: bool = False) -> Exporter:
    server, _, table = where.partition("#")
    return PostgresqlSink(server, table or "entries", append=append)


def _kafka(where: str, *, at_least_once: bool = False) -> Exporter:
    parts = urlsplit(where)
    topic = parts.path.removeprefix("/")
    if not parts.netloc or not topic:
        raise UsageError(f"{where!r} is no kafka://HOST:PORT/TOPIC")
    return KafkaSink(
        parts.netloc, topic, settings=dict(parse_qsl(parts.query)), at_least_once=at_least_once
    )


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
