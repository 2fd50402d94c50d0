"""Pytest's side of the servers that sinks write to: one of each, started when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines.kafka import Kafka, running_kafka
from tests.machines.postgresql import Postgresql, running_postgresql


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[Postgresql]:
    pytest.importorskip("psycopg", reason="the driver psycopg is not installed")
    with running_postgresql() as server:
        yield server


@pytest.fixture
def postgresql(_postgresql: Postgresql) -> Postgresql:
    """Give the server of this session, running, and without tables."""
    _postgresql.start()
    with _postgresql.connect() as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return _postgresql


@pytest.fixture(scope="session")
def _kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    pytest.importorskip("confluent_kafka", reason="the client confluent-kafka is not installed")
    with running_kafka(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture
def kafka(_kafka: Kafka) -> Kafka:
    """Give the server of this session, running."""
    _kafka.start()
    return _kafka
