"""Exporters that are ready to use, each of which refuses what is older than what it has.

from omidpy.recipes.export_queue.sinks import SqliteSink

queue.run(SqliteSink("index.db"))
"""

from __future__ import annotations

from omidpy.recipes.export_queue.sinks.files import JsonLinesSink
from omidpy.recipes.export_queue.sinks.kafka import KafkaSink
from omidpy.recipes.export_queue.sinks.parquet import ParquetSink
from omidpy.recipes.export_queue.sinks.sql.postgresql import PostgresqlSink
from omidpy.recipes.export_queue.sinks.sql.sqlite import SqliteSink
from omidpy.recipes.export_queue.sinks.tables import PlainTableSink, TableSink
from omidpy.recipes.export_queue.sinks.webhook import WebhookSink

__all__ = [
    "JsonLinesSink",
    "KafkaSink",
    "ParquetSink",
    "PlainTableSink",
    "PostgresqlSink",
    "SqliteSink",
    "TableSink",
    "WebhookSink",
]
