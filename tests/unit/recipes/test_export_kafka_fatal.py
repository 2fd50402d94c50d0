"""What the client of Kafka raises from its callbacks is heard, though it is no exception."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from omidpy.base.timing.clock import ManualClock, SystemClock
from omidpy.errors import OmidError
from omidpy.recipes.export_queue.delivery.verdicts import Blame, blame
from omidpy.recipes.export_queue.exporter import Deposed, Retry
from omidpy.recipes.export_queue.marks import Mark, Share
from omidpy.recipes.export_queue.sinks.kafka import KafkaSink, _Log
from omidpy.recipes.export_queue.sinks.kafka_transactions import Transactions

confluent_kafka = pytest.importorskip("confluent_kafka", reason="an extra")
from tests.machines.kafka_client import Broker  # noqa: E402 - it imports the client

KafkaError = confluent_kafka.KafkaError

FENCED = KafkaError(KafkaError._FENCED, "fenced by a newer instance", True)
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "nobody is there", True)


class Producer:
    """Raises an error itself wherever the real one looks at what it has to tell."""

    def __init__(self, error: Any) -> None:
        self._error = error
        self.aborted = 0

    def flush(self, _: float) -> NoReturn:
        """Tell of it."""
        raise self._error

    def abort_transaction(self, _: float) -> NoReturn:
        """Note that it was called, and tell of it."""
        self.aborted += 1
        raise self._error

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def client(producer: Producer) -> Any:
    """Return a module that makes this producer."""
    return SimpleNamespace(
        Producer=lambda _: producer,
        KafkaError=KafkaError,
        KafkaException=confluent_kafka.KafkaException,
        TopicPartition=confluent_kafka.TopicPartition,
    )


def test_a_fatal_error_is_no_exception() -> None:
    """If it is one day, what is done about it here can go."""
    assert not issubclass(KafkaError, BaseException)


@pytest.mark.parametrize(("error", "heard"), [(FENCED, Deposed), (DOWN, Retry)])
def test_a_transaction_hears_a_fatal_error(error: Any, heard: type[Exception]) -> None:
    """An owner that was fenced stops, and does not end its process."""
    producer = Producer(error)
    share: Any = SimpleNamespace(name="q-0", fence=1)
    held = Transactions(
        client(producer), {"message.timeout.ms": 1000}, name="kafka", topic="t", share=share
    )
    with pytest.raises(heard, match=error.str()):
        held.commit(lambda one: one.flush(1.0), Mark())
    assert producer.aborted == 1
    held.close()


def test_a_transaction_that_a_suspended_machine_left_open_is_no_other_owners(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server has ended it meanwhile, and fences who comes back; nobody has the bucket."""
    clock = ManualClock()
    monkeypatch.setattr(SystemClock, "monotonic_s", clock.monotonic_s)
    share: Any = SimpleNamespace(name="q-0", fence=1)
    held = Transactions(
        client(Producer(FENCED)), {"message.timeout.ms": 1000}, name="kafka", topic="t", share=share
    )

    def sleep(one: Any) -> None:
        clock.advance(3600.0)
        one.flush(1.0)

    with pytest.raises(Retry, match=r"took longer than transaction\.timeout\.ms="):
        held.commit(sleep, Mark())
    held.close()


@pytest.mark.parametrize(("error", "heard"), [(FENCED, Deposed), (DOWN, Retry)])
def test_a_batch_without_a_transaction_hears_it_too(error: Any, heard: type[Exception]) -> None:
    """The batch comes again, or another owner sends it."""
    sink = KafkaSink("127.0.0.1:1", "t")
    sink._client = client(Producer(error))
    with pytest.raises(heard, match=error.str()):
        sink._send(Producer(error), [])  # type: ignore[arg-type]
    sink.close()


@pytest.mark.parametrize(
    ("code", "whose"),
    [
        (KafkaError._CRIT_SYS_RESOURCE, Blame.NOBODY),
        (KafkaError._INVALID_ARG, Blame.SETTINGS),
    ],
)
def test_settings_are_not_to_blame_for_a_lack_of_threads(code: int, whose: Blame) -> None:
    """Neither a producer nor a consumer can be made then, and the exporter ended for good."""

    def refuse(_: dict[str, Any]) -> NoReturn:
        raise confluent_kafka.KafkaException(KafkaError(code, "cannot be made"))

    held = client(Producer(DOWN))
    sink = KafkaSink("127.0.0.1:1", "t")
    given = {"message.timeout.ms": 1000}
    share: Any = SimpleNamespace(name="q-0", fence=1)
    reads = Transactions(held, given, name="kafka", topic="t", share=share)
    sink._client = held
    held.Producer = held.Consumer = refuse
    makes: list[Callable[[], Any]] = [
        sink._producer,
        lambda: Transactions(held, given, name="kafka", topic="t", share=share),
        reads.read,
    ]
    for make in makes:
        with pytest.raises(OmidError, match="cannot be made") as caught:
            make()
        assert blame(caught.value) is whose
    sink.close()


@pytest.mark.parametrize(
    "words",
    [
        "Fatal error: Local: This instance has been fenced by a newer instance: x (_FENCED)",
        (
            "ProduceRequest for t [2] with 3 message(s) failed: Broker: Producer attempted an"
            " operation with an old epoch (broker 1 PID{Id:1111,Epoch:1}, base seq 1):"
            " transactional producer fenced by newer producer instance (_FENCED)"
        ),
        "Producer fenced by newer instance: Broker: There is a newer producer",
    ],
)
def test_that_a_bucket_changed_hands_is_no_error_of_the_log(
    words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whichever request of the deposed owner's hears of it; all else is logged as it comes."""
    _Log.log(logging.CRITICAL, "%s [%s] %s", "TXNERR", "producer-1", words)
    assert [one.levelno for one in caplog.records if one.levelno > logging.INFO] == []
    _Log.log(logging.CRITICAL, "%s [%s] %s", "FATAL", "producer-1", "all brokers are down")
    assert [one.levelno for one in caplog.records if one.levelno > logging.INFO] == [50]


def test_producers_of_earlier_buckets_are_closed() -> None:
    """Each has threads and connections, and a queue may get other buckets any number of times."""
    sink = Broker().sink()
    shares = [Share("q", f"a.{table}", 0, table << 32) for table in (1, 2, 3)]
    others = [Share("q", "b.1", 0, 1), Share("p", "a.1", 0, 1), Share("q", "a.3", 1, 3 << 32)]
    for share in (*others[:2], *shares, others[2]):
        sink.take_over(share)
    assert set(sink._shares) == {share.name for share in (shares[-1], *others)}
    with pytest.raises(Deposed):
        sink.keep_first(shares[0], Mark())
    sink.close()
