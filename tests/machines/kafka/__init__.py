"""A real Kafka of one process on free ports of the loopback, for as long as its tests need it.

    with running_kafka(folder) as server:
        server.bootstrap                  # everybody's, and everything is allowed
        server.bootstrap_of_users         # SASL: the user `weak`, of the same password, may nothing

It is broker and controller in one; its jars come from `pom.xml`.  The process is kept by
`tests.machines.keeper`, so that it does not outlive this one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.machines import maven
from tests.machines.hbase.ports import PortBlock
from tests.machines.hbase.settings import UNVERIFIED
from tests.machines.keeper import Kept
from tests.machines.waiting import wait_for

PROJECT: Final = Path(__file__).parent
LONGEST_S: Final = 120.0
QUICK: Final = (
    *("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"),
    *UNVERIFIED,
)
CLUSTER: Final = "omidpyAAAAAAAAAAAAAAAA"
PARTITIONS: Final = 3

SETTINGS: Final = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{all},SASL_PLAINTEXT://127.0.0.1:{users},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{all},SASL_PLAINTEXT://127.0.0.1:{users}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.\
PlainLoginModule required user_weak="weak";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={data}
num.partitions={partitions}
auto.create.topics.enable=true
message.max.bytes=8388608
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.cleaner.enable=false
"""


class Kafka:
    """One server, whose process can be ended and started again."""

    def __init__(self, folder: Path) -> None:
        """Make its data; `start` starts it."""
        lib = maven.build(PROJECT) / "lib"
        self._java = [maven.java_tool("java"), *QUICK, "-cp", f"{lib}/*"]
        self._ports = PortBlock()
        self._log = folder / "server.log"
        self._settings = folder / "server.properties"
        self._kept: Kept | None = None
        ports = {name: self._ports.port(name) for name in ("all", "users", "controller")}
        text = SETTINGS.format(data=folder / "data", partitions=PARTITIONS, **ports)
        self._settings.write_text(text, "ascii")
        words = ("-t", CLUSTER, "-c", str(self._settings))
        done = subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", *words],
            capture_output=True,
            text=True,
            timeout=LONGEST_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, where everything is allowed."""
        return f"127.0.0.1:{self._ports.port('all')}"

    @property
    def bootstrap_of_users(self) -> str:
        """HOST:PORT, where users say who they are."""
        return f"127.0.0.1:{self._ports.port('users')}"

    def start(self) -> None:
        """Start it, unless it runs; returns when it serves."""
        if self._kept is not None:
            return
        from confluent_kafka import KafkaException

        kept = Kept([*self._java, "kafka.Kafka", str(self._settings)], log=self._log)
        self._kept = kept

        def serves() -> bool:
            assert kept.is_running, self._log.read_text("utf-8")
            try:
                return bool(self.admin().list_topics(timeout=1).brokers)
            except KafkaException:
                return False

        wait_for(serves, LONGEST_S)

    def stop(self) -> None:
        """End it at once."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.kill()

    def close(self) -> None:
        """End it for good."""
        self.stop()
        self._ports.close()

    def admin(self) -> Any:
        """Return a client that manages topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def make_topic(self, name: str) -> None:
        """Make a topic of some partitions."""
        from confluent_kafka import admin

        kinds: Any = admin
        client = self.admin()
        made = client.create_topics([kinds.NewTopic(name, PARTITIONS, 1)])
        made[name].result(LONGEST_S)
        # The controller has made it; the broker hears of that a little later.
        wait_for(lambda: client.list_topics(name, timeout=1).topics[name].error is None, LONGEST_S)

    def messages(self, topic: str, *, partitions: int = PARTITIONS) -> list[Any]:
        """Return what is committed in a topic, partition by partition, from first to last.

        An open transaction hides what is behind it.
        """
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "reader",
            "log_level": 0,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # Else each partition's end is told half a second late, as long as more may come.
            "fetch.wait.max.ms": 10,
        }
        consumer = Consumer(settings)
        try:
            found = []
            for number in range(partitions):
                consumer.assign([TopicPartition(topic, number, 0)])
                while True:
                    message = consumer.poll(LONGEST_S)
                    assert message is not None
                    error = message.error()
                    if error is None:
                        found.append(message)
                        continue
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
            return found
        finally:
            consumer.close()


@contextmanager
def running_kafka(folder: Path) -> Iterator[Kafka]:
    """Run a server of its own, without topics.

    Raises:
        maven.BuildFailed: Java or Maven is missing, or the jars could not be fetched.
    """
    server = Kafka(folder)
    try:
        server.start()
        yield server
    finally:
        server.close()
