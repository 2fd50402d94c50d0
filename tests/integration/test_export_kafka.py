"""The sink for Kafka, on a real one: its contract, exporters that die, and what goes wrong."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.base.installation import install_hint
from omidpy.connect import connect
from omidpy.errors import ConfigError, ExportError, UsageError
from omidpy.recipes.export_queue import Batch, Entry, ExportQueue, Retry
from omidpy.recipes.export_queue.sinks import KafkaSink
from omidpy.recipes.export_queue.sinks.address import sink_at
from tests.machines.export_processes import QUEUE, Work, run
from tests.machines.export_queues import Scene
from tests.machines.kafka import Kafka
from tests.machines.processes import tso_server
from tests.machines.sink_contract import (
    NEWER,
    Newest,
    Place,
    SinkContract,
    batch,
    from_json,
    in_use,
    of_seqs,
)

pytestmark = [pytest.mark.integration, pytest.mark.java]

SOON: Final = {"message.timeout.ms": 2000}


class Topic(Place):
    """A topic, read as a receiver does that follows the rule."""

    def __init__(self, server: Kafka, name: str) -> None:
        self.server = server
        self.name = name
        self.sink = KafkaSink(server.bootstrap, name)

    def messages(self) -> list[tuple[bytes, Any, tuple[int, int]]]:
        """Return key, value and `seq` of each message, in the order of each partition."""
        return [
            (message.key(), from_json(message.value()), seq_of(message))
            for message in self.server.messages(self.name)
        ]

    def newest(self) -> Newest:
        """Keep what is newest of each key."""
        return of_seqs(self.messages())


def seq_of(message: Any) -> tuple[int, int]:
    """Return the `seq` that is in the headers of a message."""
    commit_ts, ordinal = dict(message.headers())["omidpy-seq"].decode().split("-")
    return int(commit_ts), int(ordinal)


@pytest.fixture
def topic(kafka: Kafka, request: pytest.FixtureRequest) -> Iterator[Topic]:
    """Return an empty topic."""
    name = request.node.name[:200]
    kafka.make_topic(name)
    with in_use(Topic(kafka, name)) as place:
        yield place


class TestContract(SinkContract):
    """What all sinks promise."""

    @pytest.fixture
    def place(self, topic: Topic) -> Place:
        """Return it."""
        return topic


def test_a_message_says_which_entry_it_is(topic: Topic) -> None:
    """Bytes go as they are; a deletion is a null; one key is in one partition, also the empty."""
    deletion = Entry(b"", None, 150, 2**100, 50, {"type": "t", "omidpy-seq": "forged"})
    topic.deliver(batch(*((b"", b"\xff%d" % n, 100, n) for n in range(20))))
    topic.deliver(Batch([deletion], queue="q", bucket=3, fence=7))
    found = topic.server.messages(topic.name)
    assert {message.partition() for message in found} == {found[0].partition()}
    assert [message.value() for message in found] == [*(b"\xff%d" % n for n in range(20)), None]
    assert found[-1].key() in (b"", None)
    assert dict(found[-1].headers()) == {
        "type": b"t",
        "omidpy-seq": b"150-%d" % 2**100,
        "omidpy-id": b"q-50-%d" % 2**100,
        "omidpy-fence": b"7",
    }


# -- deaths ----------------------------------------------------------------------------------------


def test_an_exporter_killed_before_its_acknowledgement_sends_the_same_again(
    topic: Topic, tmp_path: Path
) -> None:
    """At least once was asked for; SIGKILL behind the flush: every message twice.

    With one `seq`, and in the order of each key.
    """
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    with tso_server(url) as server, connect(url, server.address) as tm:
        queue = ExportQueue.create(tm, QUEUE, buckets=1)
        for number in range(3):
            with tm.begin() as tx:
                queue.add_all(tx, [(b"%d" % key, number) for key in range(5)])
        to = f"kafka://{topic.server.bootstrap}/{topic.name}"
        work = Work(url, server.address, tmp_path, to=to, at_least_once=True, buffer_bytes=1 << 20)
        exported = 3  # "taken", "before-export", and this one
        assert run(replace(work, dies_at=exported))
        assert queue.lag().entries == 15, "nothing was acknowledged"
        first = topic.messages()
        assert len(first) == 15
        assert not run(work)
        assert queue.lag().entries == 0
    found = topic.messages()
    for key in {key for key, *_ in first}:
        once = [(value, seq) for one, value, seq in first if one == key]
        twice = [(value, seq) for one, value, seq in found if one == key]
        assert [value for value, _ in once] == [0, 1, 2]
        assert twice == once + once
    assert topic.newest() == of_seqs(first)


def test_a_server_that_goes_away_blames_no_entry(topic: Topic) -> None:
    """The batch comes again until it is back, and is not sent later behind our back."""
    kafka = topic.server
    sink = KafkaSink(kafka.bootstrap, topic.name, settings=SOON)
    sink.open()
    kafka.stop()
    with pytest.raises(Retry, match=r"127\.0\.0\.1"):
        sink.export(NEWER)
    kafka.start()
    assert topic.messages() == []
    sink.export(batch((b"k", 4, 400, 0)))
    sink.close()
    assert topic.messages() == [(b"k", 4, (400, 0))]


# -- bad input -------------------------------------------------------------------------------------


def test_a_topic_that_is_missing_is_not_made(kafka: Kafka) -> None:
    """Though the server would: with one partition, perhaps, and one replica."""
    with pytest.raises(ConfigError, match=r"topic nowhere: .*must be there"):
        KafkaSink(kafka.bootstrap, "nowhere").open()
    assert "nowhere" not in kafka.admin().list_topics(timeout=60).topics


def test_a_user_without_rights_is_told_so(topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one that the server does not know."""
    users = topic.server.bootstrap_of_users
    settings = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
    weak = {**settings, "sasl.username": "weak", "sasl.password": "weak"}
    with pytest.raises(ConfigError, match=r"(?i)authorization failed"):
        KafkaSink(users, topic.name, settings=weak).open()
    monkeypatch.setattr("omidpy.recipes.export_queue.sinks.kafka.OPEN_S", 3.0)
    stranger = {**weak, "sasl.password": "wrong"}
    with pytest.raises(ExportError, match=r"(?i)authentication failed"):
        KafkaSink(users, topic.name, settings=stranger).open()


def test_a_server_that_is_not_there_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An exporter does not start and then wait for ever, nor fill a screen."""
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr("omidpy.recipes.export_queue.sinks.kafka.OPEN_S", 1.0)
    with pytest.raises(ExportError, match=r"127\.0\.0\.1:1: topic t: .*Connection refused"):
        KafkaSink("127.0.0.1:1", "t").open()
    assert not caplog.records


def test_an_entry_that_is_too_large_is_set_aside_alone(topic: Topic) -> None:
    """Larger than the server takes, or than the client sends."""
    scene = Scene()
    scene.add("good", key=b"a")
    scene.add("x" * (9 << 20), key=b"b")
    scene.add("good", key=b"c")
    scene.runner(topic.sink, max_attempts=1).run_once(wait_s=0)
    (letter,) = scene.queue.dead_letters()
    assert letter.key == b"b"
    assert "size" in letter.reason.lower()
    assert set(topic.newest()) == {b"a", b"c"}
    small = KafkaSink(topic.server.bootstrap, topic.name, settings={"message.max.bytes": 2000})
    scene.add("x" * 3000, key=b"d")
    scene.runner(small).run_once(wait_s=0)
    assert {letter.key for letter in scene.queue.dead_letters()} == {b"b", b"d"}


def test_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is sent."""
    pytest.importorskip("confluent_kafka")
    with pytest.raises(UsageError, match="acks is the exporter's own"):
        KafkaSink("h:1", "t", settings={"acks": "1"})
    with pytest.raises(ConfigError, match="nonsense"):
        sink_at("kafka://h:1/t?nonsense=1")
    for where in ("kafka://h:1", "kafka:///t", "kafka:h"):
        with pytest.raises(UsageError, match="kafka://HOST:PORT/TOPIC"):
            sink_at(where)
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ConfigError, match=re.escape(install_hint("kafka"))):
        KafkaSink("h:1", "t")
