"""Sends each entry to a topic of Kafka, in order, exactly once.

| of the message | what |
|---|---|
| key | the entry's; all messages of a key are in one partition |
| value | bytes as they are, else JSON; null where it is None |
| header `omidpy-seq` | `<commit_ts>-<ordinal>`: grows for each key |
| header `omidpy-id` | `<queue>-<start_ts>-<ordinal>`: the same whenever this entry comes |
| header `omidpy-fence` | a number that grows with each owner of the bucket |
| other headers | the entry's |

A batch is a transaction that keeps a mark as well (`kafka_transactions.py`): a consumer that reads
with `isolation.level=read_committed`, which is not what Java's consumers do unless told to, sees
each entry once, whichever owner has died or slept.

A log refuses nothing: where at least once was asked for, what comes again is in the topic twice,
with one `omidpy-seq`.  A consumer keeps the largest one of each key, and passes over what is not
larger.

A batch counts as delivered when all replicas that are in sync have all of it.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError, ExportError, UsageError
from omidpy.recipes.export_queue.exporter import Deposed, ExactExporter, Poison, Retry
from omidpy.recipes.export_queue.sinks.documents import encoded_value
from omidpy.recipes.export_queue.sinks.kafka_transactions import (
    Transactions,
    error_in,
    fenced,
    made,
    raised_by,
)
from omidpy.recipes.export_queue.sinks.sql.pool import Pool

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch, Entry
    from omidpy.recipes.export_queue.marks import Mark, Share

log = logging.getLogger(__name__)

PROMISED: Final = {"enable.idempotence": True, "acks": "all"}
"""What is not for the user to set."""

USUAL: Final = {
    # The same as Java's for keys that are not empty, and one partition for all that are.
    "partitioner": "murmur2",
    "allow.auto.create.topics": False,
    # The server says what is too large.
    "message.max.bytes": 16 << 20,
    "message.timeout.ms": 30_000,
    # It says each failed connection, ten times a second; errors of batches say the last one.
    "log_level": 2,
}

OPEN_S: Final = 10.0


class KafkaSink(ExactExporter):
    """One message for each entry, exactly once for those who read what is committed.

    Each bucket has a producer of its own.  Needs `omidpy[kafka]`.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        settings: Mapping[str, Any] | None = None,
        at_least_once: bool = False,
    ) -> None:
        """Send to a topic, which must be there.

        Args:
            servers: `HOST:PORT`, or some, with commas between them.
            topic: Its name.
            settings: Of librdkafka, such as `security.protocol`; not those that make the producer
                idempotent.
            at_least_once: Without transactions: what was under way when an exporter died is in the
                topic twice.

        Raises:
            UsageError: a setting is not for you to set.
            ConfigError: the client is not installed, or does not know a setting.
            ExportError: there is no thread or descriptor for a producer now.
        """
        self._client = _confluent_kafka()
        if forbidden := sorted(set(settings or {}) & {*PROMISED, "transactional.id"}):
            raise UsageError(f"{forbidden[0]} is the exporter's own to set")
        self._topic = topic
        self._name = f"{servers}: topic {topic}"
        self._said = ""
        self._settings = {
            "bootstrap.servers": servers,
            **USUAL,
            **(settings or {}),
            **PROMISED,
            "logger": _Log(),
            "error_cb": self._hear,
        }
        self._is_exact = not at_least_once
        self._cluster = ""
        self._shares: dict[str, Transactions] = {}
        self._pool = self._new_pool()
        self._pool.use(lambda _: None)  # it knows its settings, or says so

    def open(self) -> None:
        """See that the topic is there.

        Raises:
            ConfigError: it is not, or this user may not see it.
            ExportError: no server can be reached, or there is no thread or descriptor for it.
        """
        self._pool = self._new_pool()
        self._pool.use(self._look)

    @property
    def is_exact(self) -> bool:
        """Whether messages go in transactions."""
        return self._is_exact

    @property
    def receiver(self) -> str:
        """The topic, and the cluster that it is in: it forgets marks."""
        return f"kafka:{self._cluster}/{self._topic}"

    def take_over(self, share: Share) -> Mark | None:
        """Fence the producers of earlier owners, and read the mark.

        Raises:
            Retry, ConfigError: as the server says.
        """
        old = self._shares.get(share.name)
        if old is not None:
            if old.fence > share.fence:
                raise Deposed(f"{self._name}: a later owner of {share.name} is in this process")
            del self._shares[share.name]
            old.close()
        self._end_earlier(share)
        new = Transactions(
            self._client, self._settings, name=self._name, topic=self._topic, share=share
        )
        mark = new.read()
        self._shares[share.name] = new
        return mark

    def _end_earlier(self, share: Share) -> None:
        """Close the producers of buckets that the queue had before it was given others."""
        for name, held in list(self._shares.items()):
            other = held.share
            is_of_queue = (other.queue, other.made) == (share.queue, share.made)
            if is_of_queue and other.incarnation != share.incarnation and other.fence < share.fence:
                self._shares.pop(name, None)
                held.close()

    def keep_first(self, share: Share, mark: Mark) -> bool:
        """Let a transaction keep the mark alone."""
        self._held(share).commit(lambda _: None, mark)
        return True

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Send a batch and the mark in one transaction."""
        self._held(share).commit(lambda producer: self._send(producer, batch), mark)

    def is_undone(self, share: Share) -> bool:
        """Say whether the commit of the last transaction was not even asked for."""
        held = self._shares.get(share.name)
        return held is not None and held.fence == share.fence and not held.may_have_committed

    def _held(self, share: Share) -> Transactions:
        held = self._shares.get(share.name)
        if held is None or held.fence != share.fence:
            raise Deposed(f"{self._name}: {share.name} has another owner in this process")
        return held

    def export(self, batch: Batch) -> None:
        """Send a batch without a transaction, and wait until all of it has arrived."""
        self._pool.use(lambda producer: self._send(producer, batch))

    def close(self) -> None:
        """Close the producers of every bucket."""
        self._pool.close()
        shares, self._shares = self._shares, {}
        for transactions in shares.values():
            transactions.close()

    def _new_pool(self) -> Pool[Any]:
        return Pool(self._producer, partial(_end, self._client))

    def _producer(self) -> Any:
        return made(self._client, self._client.Producer, self._settings, name=self._name)

    def _hear(self, error: Any) -> None:
        """Remember what the client says of its connections: its errors are mere time-outs."""
        self._said = f": {error.str()}"

    def _look(self, producer: Any) -> None:
        try:
            said = producer.list_topics(self._topic, timeout=OPEN_S)
        except self._client.KafkaException as error:
            with contextlib.suppress(*raised_by(self._client)):
                producer.poll(0)  # so that it says why
            raise ExportError(f"{self._name}: {error.args[0].str()}{self._said}") from error
        self._cluster = said.cluster_id or ""
        if (found := said.topics[self._topic].error) is not None:
            raise ConfigError(
                f"{self._name}: {found.str()}; the topic must be there, and this user may write to "
                "it"
            )

    def _send(self, producer: Any, batch: Batch) -> None:
        failed: list[Any] = []

        def told(error: Any, _: object) -> None:
            if error is not None:
                failed.append(error)

        left = 0
        try:
            for entry in batch:
                self._put(producer, batch, entry, told)
            left = producer.flush(float(self._settings["message.timeout.ms"]) / 1000 + OPEN_S)
        except raised_by(self._client) as error:
            # A fatal one, which explains those of the messages.
            failed[:0] = [error_in(error)]
        if failed:
            first = failed[0]
            what = f"{self._name}: {first.str()}{self._said}"
            if first.code() in fenced(self._client):
                raise Deposed(what)
            if first.code() in self._of_entries():
                # Of one of those that went together: the batch comes again in smaller pieces.
                raise ExportError(what)
            raise Retry(what)
        if left:
            raise Retry(f"{self._name}: {left} messages have not arrived{self._said}")

    def _put(self, producer: Any, batch: Batch, entry: Entry, told: Any) -> None:
        message = {
            "key": entry.key,
            "value": None if entry.value is None else encoded_value(entry.value),
            "headers": _headers(batch, entry),
            "on_delivery": told,
        }
        while True:
            try:
                producer.produce(self._topic, **message)
            except BufferError:
                producer.poll(1.0)  # until there is room; after their time messages give it back
            except self._client.KafkaException as error:
                what = f"{self._name}: {error.args[0].str()}"
                if error.args[0].code() in self._of_entries():
                    raise Poison(entry, what) from error
                raise Retry(what) from error
            else:
                return

    def _of_entries(self) -> tuple[int, ...]:
        known = self._client.KafkaError
        return known.MSG_SIZE_TOO_LARGE, known.INVALID_RECORD, known.INVALID_MSG_SIZE


def _headers(batch: Batch, entry: Entry) -> list[tuple[str, bytes]]:
    """Return the headers of a message: ours come last, where readers look."""
    commit_ts, ordinal = entry.seq
    ours = {
        "omidpy-seq": f"{commit_ts}-{ordinal}",
        "omidpy-id": f"{batch.queue}-{entry.id}",
        "omidpy-fence": str(batch.fence),
    }
    return [(name, text.encode()) for name, text in [*entry.headers.items(), *ours.items()]]


def _end(client: Any, producer: Any) -> None:
    """Send nothing more: what a batch has left behind comes again with the batch."""
    with contextlib.suppress(*raised_by(client)):
        producer.purge()
        producer.flush(0)


# Each request of a producer's has words of its own for it: "This instance has been fenced by a
# newer instance", "transactional producer fenced by newer producer instance", "(_FENCED)".
_IS_FENCED: Final = re.compile(r"fenced by (?:a )?new|\b_?(?:PRODUCER_)?FENCED\b")


class _Log:
    """What the client logs to.

    It calls it fatal that an owner was fenced, which is how a bucket changes hands: the exporter
    says so itself, and a program that configures no logging would have it on its stderr.
    """

    @staticmethod
    def log(level: int, text: str, *words: object) -> None:
        """Log what the client says; with less noise, what is no error."""
        is_usual = any(_IS_FENCED.search(str(word)) for word in (text, *words))
        log.log(logging.INFO if is_usual else level, text, *words)


def _confluent_kafka() -> Any:
    try:
        import confluent_kafka  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f"exports to Kafka need its client: {install_hint('kafka')}") from error
    return confluent_kafka
