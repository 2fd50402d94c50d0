"""The client of Kafka as far as an exporter uses it, over a broker in memory.

    broker = Broker()
    sink = broker.sink()

It keeps what `sinks/kafka_transactions.py` relies on: the last producer of a transactional id is
the one that counts, and messages and offsets of a transaction are there together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka

from omidpy.recipes.export_queue.sinks.kafka import KafkaSink

KafkaError = confluent_kafka.KafkaError
KafkaException = confluent_kafka.KafkaException


class Broker:
    """A topic, and the offsets of groups."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        """Of the messages that are committed, in their order."""
        self.offsets: dict[str, tuple[int, str]] = {}
        self.newest: dict[str, Producer] = {}
        self.on_call: Callable[[str], object] = lambda _: None
        """Called with the name of each call, before it has an effect."""

    def sink(self) -> KafkaSink:
        """Return an exporter into it, as of another process."""
        sink = KafkaSink("127.0.0.1:1", "t")
        sink._client = SimpleNamespace(
            Producer=lambda settings: Producer(self, settings),
            Consumer=lambda settings: Consumer(self, settings),
            KafkaError=KafkaError,
            KafkaException=KafkaException,
            TopicPartition=lambda *place: SimpleNamespace(offset=place[2:3], metadata=place[3:4]),
        )
        return sink


class Producer:
    """Sends in transactions; one that has a successor is fenced."""

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        self._broker = broker
        self._id = settings.get("transactional.id", "")
        self._values: list[bytes] = []
        self._offset: tuple[str, tuple[int, str]] | None = None
        self._untold: list[Callable[..., object]] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Say that the topic is there."""
        del timeout
        return SimpleNamespace(cluster_id="c", topics={topic: SimpleNamespace(error=None)})

    def init_transactions(self, _: float) -> None:
        """Fence every earlier producer of this id."""
        self._broker.on_call("init_transactions")
        self._broker.newest[self._id] = self

    def begin_transaction(self) -> None:
        """Begin with nothing sent."""
        self._check("begin_transaction")
        self._values, self._offset = [], None

    def produce(self, _: str, *, value: bytes, on_delivery: Any, **__: Any) -> None:
        """Send."""
        self._values.append(value)
        self._untold.append(on_delivery)

    def flush(self, _: float) -> int:
        """Tell that all has arrived."""
        for tell in self._untold:
            tell(None, None)
        self._untold.clear()
        return 0

    def send_offsets_to_transaction(self, places: list[Any], group: str, _: float) -> None:
        """Send an offset of a group."""
        self._check("send_offsets_to_transaction")
        self._offset = group, (places[0].offset[0], places[0].metadata[0])

    def commit_transaction(self, _: float) -> None:
        """Let all see both."""
        self._check("commit_transaction")
        self._broker.values += self._values
        if self._offset is not None:
            self._broker.offsets[self._offset[0]] = self._offset[1]

    def abort_transaction(self, _: float) -> None:
        """Let nobody see either."""
        self._values, self._offset = [], None

    def purge(self) -> None:
        """Send nothing more."""
        self._values, self._untold = [], []

    def _check(self, call: str) -> None:
        self._broker.on_call(call)
        if self._broker.newest.get(self._id) is not self:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", True))


class Consumer:
    """Reads the offset of its group."""

    def __init__(self, broker: Broker, settings: dict[str, Any]) -> None:
        self._broker = broker
        self._group = settings["group.id"]

    def committed(self, _: list[Any], __: float) -> list[Any]:
        """Return it; a negative one, where there is none."""
        self._broker.on_call("committed")
        offset, metadata = self._broker.offsets.get(self._group, (-1001, None))
        return [SimpleNamespace(error=None, offset=offset, metadata=metadata)]

    def consumer_group_metadata(self) -> str:
        """Return what a transaction names the group by."""
        return str(self._group)

    def close(self) -> None:
        """Hold nothing."""
