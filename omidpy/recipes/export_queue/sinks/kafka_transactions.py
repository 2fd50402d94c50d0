"""One bucket's transactions in Kafka: messages and the mark, both or neither.

The transactional id is the name of the bucket, for every owner.  So `init_transactions` of an owner
fences every earlier one (X10), and waits until what that had under way is decided.

The mark (`marks.py`) goes with the transaction as the offset of a consumer group that has the same
name and no consumer: a number that only counts, with the mark as its metadata.  To read it is to
ask for that group's offset once everything before is decided.  It is no topic, so that nothing has
to be read to its end, and no open transaction of another bucket stands before it.

Kafka forgets offsets of a group without consumers, after a week unless it was told otherwise
(`offsets.retention.minutes`).  So the first transaction of a bucket keeps a mark alone: one that is
missing where there was one has been forgotten, and `delivery/exactly.py` goes no further if that
matters.  Only once it has seen that this does not is such a first mark kept: to fence and to read
are enough for a take-over, and what is missed once is missed whenever somebody looks.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from omidpy.base.timing.clock import SystemClock
from omidpy.errors import ConfigError, CorruptCell, ExportError
from omidpy.recipes.export_queue.exporter import Deposed, Refused, Retry
from omidpy.recipes.export_queue.marks import Mark, decode_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from omidpy.recipes.export_queue.marks import Share

PREFIX: Final = "omidpy."
INIT_S: Final = 60.0
ABORT_S: Final = 10.0
TIMEOUT: Final = "transaction.timeout.ms"
TIMEOUT_MS: Final = 60_000
"""How long a transaction of an owner that was stopped may hold readers up."""


class Transactions:
    """What one owner of a bucket sends.  One thread at a time."""

    def __init__(
        self, client: Any, settings: Mapping[str, Any], *, name: str, topic: str, share: Share
    ) -> None:
        """Fence every earlier owner.

        Args:
            client: The module of the client.
            settings: Of librdkafka.
            name: What errors begin with.
            topic: Where entries go.
            share: The bucket.

        Raises:
            Deposed, Retry, ConfigError: as the server says.
        """
        self._client = client
        self._name = name
        self._topic = topic
        self._id = PREFIX + share.name
        self.share = share
        self.fence = share.fence
        self._timeout_ms = max(TIMEOUT_MS, int(settings["message.timeout.ms"]))
        given = {TIMEOUT: self._timeout_ms, **settings, "transactional.id": self._id}
        self._timeout_ms = int(given[TIMEOUT])
        self._group_settings = {
            key: value for key, value in settings.items() if key in _OF_CONNECTIONS or _is_of(key)
        }
        self._group: Any = None
        self._count = 0
        """The offset of the mark."""
        self.may_have_committed = False
        """Whether the commit of the last transaction was asked for."""
        self.producer: Any = made(client, client.Producer, given, name=name)
        self._ask(lambda: self.producer.init_transactions(INIT_S))

    def read(self) -> Mark | None:
        """Return the mark; None: there is none.

        Raises:
            Deposed, Retry, ConfigError: as the server says.
        """
        given = {
            **self._group_settings,
            "group.id": self._id,
            "enable.auto.commit": False,
            # Or an offset could be told that the last transaction is about to replace.
            "isolation.level": "read_committed",
        }
        consumer = made(self._client, self._client.Consumer, given, name=self._name)
        try:
            place = self._client.TopicPartition(self._topic, 0)
            (found,) = self._ask(lambda: consumer.committed([place], INIT_S))
            self._group = self._ask(consumer.consumer_group_metadata)
        finally:
            consumer.close()
        if found.error is not None:
            raise self._said(found.error)
        if found.offset < 0:
            return None
        self._count = found.offset
        try:
            return decode_mark(found.metadata or "", where=f"the offset of the group {self._id}")
        except CorruptCell as error:
            raise Refused(f"{self._name}: {error}") from error

    def commit(self, produce: Callable[[Any], object], mark: Mark) -> None:
        """Let readers see what `produce(producer)` sends, and the mark, or neither.

        Raises:
            Deposed, Retry, ConfigError: as the server says; perhaps they see both.
            Exception: what `produce` has raised.
        """
        # The server counts on while this machine is suspended.
        began_s, is_done = SystemClock.monotonic_s(), False
        self.may_have_committed = False
        place = self._client.TopicPartition(self._topic, 0, self._count + 1, mark.encode())
        try:
            self._ask(self.producer.begin_transaction)
            self._ask(lambda: produce(self.producer))
            self._ask(
                lambda: self.producer.send_offsets_to_transaction([place], self._group, INIT_S)
            )
            self.may_have_committed = True
            self._ask(lambda: self.producer.commit_transaction(INIT_S))
            is_done = True
        except Deposed as error:
            if (SystemClock.monotonic_s() - began_s) * 1000 >= self._timeout_ms:
                raise Retry(
                    f"{self._name}: a transaction took longer than {TIMEOUT}={self._timeout_ms}, "
                    f"and the server has aborted it: {error}"
                ) from error
            raise
        finally:
            if not is_done:
                # Readers of what is committed wait behind it.  What has become of a commit that
                # was not answered the next take-over finds out.
                with contextlib.suppress(*raised_by(self._client)):
                    self.producer.abort_transaction(ABORT_S)
        self._count += 1

    def close(self) -> None:
        """Drop what was not sent yet, and send nothing more."""
        with contextlib.suppress(*raised_by(self._client)):  # of one that was fenced
            self.producer.purge()
            self.producer.flush(0)

    def _ask(self, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except raised_by(self._client) as error:
            found = error_in(error)
        raise self._said(found)

    def _said(self, error: Any) -> Exception:
        known, what = self._client.KafkaError, f"{self._name}: {error.str()}"
        if error.code() in fenced(self._client):
            return Deposed(what)
        if error.code() in (
            known.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            known.GROUP_AUTHORIZATION_FAILED,
            known.CLUSTER_AUTHORIZATION_FAILED,
            known.TOPIC_AUTHORIZATION_FAILED,
        ):
            return ConfigError(
                f"{what}; exactly once needs WRITE and DESCRIBE for the transactional ids, and "
                f"READ for the groups, that begin with {PREFIX!r}; or deliver at least once "
                "(--at-least-once)"
            )
        return Retry(what)


def made(client: Any, kind: Callable[[dict[str, Any]], Any], given: Any, *, name: str) -> Any:
    """Return a producer or consumer.

    Raises:
        ConfigError: it does not know a setting.
        ExportError: there is no thread or descriptor for it now, which says nothing of the settings
            and may pass.
    """
    try:
        return kind(dict(given))
    except client.KafkaException as error:
        found = error.args[0]
        what = f"{name}: {found.str()}"
        if found.code() == client.KafkaError._CRIT_SYS_RESOURCE:  # noqa: SLF001 - see `fenced`
            advice = "allow more threads and open files (ulimit -u, -n), or end what has them"
            raise ExportError(f"{what}; {advice}", retryable=True) from error
        raise ConfigError(what) from error


def raised_by(client: Any) -> tuple[type[Any], ...]:
    """Return what a call of the client may raise.

    A fatal error, such as that a later producer has fenced this one, may also come out of a call
    that looks at what the client has to tell (`flush`, `poll`).  Then the error itself is raised,
    which is no `Exception`, so that nothing else catches it.
    """
    return client.KafkaException, client.KafkaError


def error_in(raised: Any) -> Any:
    """Return the error in what was raised."""
    return raised.args[0] if isinstance(raised, Exception) else raised


def fenced(client: Any) -> tuple[int, ...]:
    """Return the codes by which a producer is told that there is a later one of its id."""
    known = client.KafkaError
    return (
        known._FENCED,  # noqa: SLF001 - librdkafka's own codes are named so
        known.PRODUCER_FENCED,
        known.INVALID_PRODUCER_EPOCH,
        known.INVALID_PRODUCER_ID_MAPPING,
    )


_OF_CONNECTIONS: Final = ("bootstrap.servers", "client.id", "logger", "log_level", "error_cb")


def _is_of(setting: str) -> bool:
    """Say whether a setting is one of connections, and not of producers."""
    return setting.startswith(("security.", "sasl.", "ssl.", "socket.", "broker.", "metadata."))
