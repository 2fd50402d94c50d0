"""The sink for PostgreSQL, on a real one: its contract, exporters that die, and what goes wrong."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from omidpy.base.installation import install_hint
from omidpy.connect import connect
from omidpy.errors import ConfigError, ExportError, UsageError
from omidpy.recipes.export_queue import (
    Batch,
    Deposed,
    Entry,
    ExportQueue,
    Mark,
    Refused,
    Retry,
    Share,
)
from omidpy.recipes.export_queue.delivery import patience
from omidpy.recipes.export_queue.sinks import PostgresqlSink
from tests.machines.export_processes import QUEUE, Work, run
from tests.machines.export_queues import Scene
from tests.machines.postgresql import Postgresql
from tests.machines.processes import tso_server
from tests.machines.sink_contract import NEWER, OLDER, Newest, Place, SinkContract, batch, in_use

pytestmark = pytest.mark.integration

ALL: Final = "commit_ts bigint, ordinal bytea, start_ts bigint"


class Table(Place):
    """A table that the sink makes."""

    def __init__(self, server: Postgresql, *, value: str = "jsonb") -> None:
        self._server = server
        self.sink = PostgresqlSink(server.url, value=value)

    def newest(self) -> Newest:
        """Read it over another connection."""
        with self._server.connect() as connection:
            found = connection.execute("SELECT key, value, commit_ts, ordinal FROM entries")
            return {
                key: (value, (commit_ts, int.from_bytes(ordinal)))
                for key, value, commit_ts, ordinal in found
            }


@pytest.fixture
def place(postgresql: Postgresql) -> Iterator[Table]:
    """Return an empty database."""
    with in_use(Table(postgresql)) as place:
        yield place


class TestContract(SinkContract):
    """What all sinks promise."""


@pytest.mark.parametrize("kind", ["text", "json", "bytea"])
def test_values_are_what_the_column_is(postgresql: Postgresql, kind: str) -> None:
    """JSON as text or bytes; bytes as they are, where the column can hold them."""
    place = Table(postgresql, value=kind)
    place.sink.open()
    place.deliver(batch((b"k", {"n": 1}, 100, 0)))
    value, _ = place.newest()[b"k"]
    assert value == {"text": '{"n":1}', "json": {"n": 1}, "bytea": b'{"n":1}'}[kind]
    unreadable = batch((b"k", b"\xff", 200, 0))
    if kind == "bytea":
        place.deliver(unreadable)
        assert place.newest()[b"k"] == (b"\xff", (200, 0))
    else:
        with pytest.raises(Retry, match="let it be bytea"):
            place.deliver(unreadable)
    place.sink.close()


def test_every_entry_may_have_a_row(postgresql: Postgresql) -> None:
    """Exactly once, and a table that keeps the newest of each key is refused for it."""
    sink = PostgresqlSink(postgresql.url, "log", append=True)
    sink.open()
    for one in (OLDER, NEWER, OLDER, NEWER):
        sink.export(one)
    sink.close()
    with postgresql.connect() as connection:
        found = connection.execute("SELECT value FROM log ORDER BY commit_ts, ordinal").fetchall()
    assert [value for (value,) in found] == [{"n": 1}, {"n": 2}, {"n": 3}, "y", "x"]
    with pytest.raises(ConfigError, match="ON CONFLICT"):
        PostgresqlSink(postgresql.url, "log").open()


def test_a_row_of_another_entry_takes_the_place_of_none(postgresql: Postgresql) -> None:
    """As in SQLite: the whole batch is refused, and what the table has itself is no stranger."""
    sink = PostgresqlSink(postgresql.url, append=True)
    sink.open()
    sink.export(batch((b"k", "theirs", 100, 0)))
    ours = batch((b"a", 1, 99, 0), (b"other", "ours", 100, 0), (b"z", 2, 101, 0))
    with pytest.raises(Refused, match="let each store have a table of its own"):
        sink.export(ours)
    later = Entry(b"k", "ours", 100, 0, 51, {})
    with pytest.raises(Refused, match="start_ts 51"):
        sink.export(Batch([later], queue="q", bucket=3, fence=1))
    sink.export(batch((b"k", "theirs", 100, 0), (b"k", "more", 100, 1)))
    sink.close()
    with postgresql.connect() as connection:
        found = connection.execute("SELECT value FROM entries ORDER BY commit_ts, ordinal")
        assert found.fetchall() == [("theirs",), ("more",)]


def test_a_batch_is_durable_where_the_server_would_answer_earlier(postgresql: Postgresql) -> None:
    """The server's `synchronous_commit` may be off; a table may have columns of its own."""
    with postgresql.connect() as connection:
        connection.execute(
            "CREATE TABLE entries (key bytea PRIMARY KEY, value text, commit_ts bigint, ordinal "
            "bytea, start_ts bigint, how text DEFAULT current_setting('synchronous_commit'))"
        )
    sink = PostgresqlSink(f"{postgresql.url}?options=-c%20synchronous_commit%3Doff")
    sink.open()
    sink.export(NEWER)
    sink.close()
    with postgresql.connect() as connection:
        assert connection.execute("SELECT DISTINCT how FROM entries").fetchall() == [("on",)]


# -- deaths ----------------------------------------------------------------------------------------


def test_an_exporter_killed_before_its_acknowledgement_changes_nothing_twice(
    postgresql: Postgresql, tmp_path: Path
) -> None:
    """SIGKILL behind the commit in PostgreSQL: the batch comes again, and each row is written once.

    A trigger counts: a repetition that was refused is no update.
    """
    with postgresql.connect() as connection:
        connection.execute("CREATE TABLE writes (key bytea, commit_ts bigint)")
        connection.execute(
            "CREATE FUNCTION note() RETURNS trigger AS $$ BEGIN INSERT INTO writes VALUES "
            "(NEW.key, NEW.commit_ts); RETURN NEW; END $$ LANGUAGE plpgsql"
        )
    sink = PostgresqlSink(postgresql.url)
    sink.open()
    sink.close()
    with postgresql.connect() as connection:
        connection.execute(
            "CREATE TRIGGER note AFTER INSERT OR UPDATE ON entries FOR EACH ROW "
            "EXECUTE FUNCTION note()"
        )
    url = f"sqlite:///{tmp_path / 'queue.db'}"
    with tso_server(url) as server, connect(url, server.address) as tm:
        queue = ExportQueue.create(tm, QUEUE, buckets=1)
        for number in range(3):
            with tm.begin() as tx:
                queue.add_all(tx, [(b"%d" % key, number) for key in range(5)])
        work = Work(url, server.address, tmp_path, to=postgresql.url, buffer_bytes=1 << 20)
        exported = 3  # "taken", "before-export", and this one
        assert run(replace(work, dies_at=exported))
        assert queue.lag().entries == 15, "nothing was acknowledged"
        first = Table(postgresql).newest()
        assert {key: value for key, (value, _) in first.items()} == {
            b"%d" % key: 2 for key in range(5)
        }
        assert not run(work)
        assert queue.lag().entries == 0
    assert Table(postgresql).newest() == first
    with postgresql.connect() as connection:
        written = connection.execute("SELECT count(*), count(DISTINCT key) FROM writes").fetchone()
    assert written == (5, 5)


MADE: Final = f"CREATE TABLE entries (key bytea PRIMARY KEY, value jsonb, {ALL})"
RAISING: Final = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.value = '2' THEN RAISE EXCEPTION 'no twos' {}; END IF; RETURN NEW; END $$;
CREATE TRIGGER refusing BEFORE INSERT ON entries FOR EACH ROW EXECUTE FUNCTION refuse();
"""
REFUSED: Final = {
    "an index": ("", os.urandom(4000), "exceeds btree"),
    "a trigger": (MADE + ";" + RAISING.format(""), b"bad", "no twos"),
    "a trigger's own state": (
        MADE + ";" + RAISING.format("USING ERRCODE = 'U0001'"),
        b"bad",
        "no twos",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_index_or_a_trigger_refuses_is_set_aside(
    postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The driver has these errors among those of a server that is away: all came again for ever."""
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.0)
    made, bad_key, reason = REFUSED[what]
    with postgresql.connect() as connection:
        connection.execute(made)
    scene = Scene()
    for value, key in ((1, b"a"), (2, bad_key), (3, b"z")):
        scene.add(value, key=key)
    scene.runner(PostgresqlSink(postgresql.url), max_attempts=2).run_once(wait_s=0)
    (letter,) = scene.queue.dead_letters()
    assert letter.value == 2
    assert re.search(reason, letter.reason)
    assert set(Table(postgresql).newest()) == {b"a", b"z"}
    assert scene.queue.lag().entries == 0


@pytest.mark.parametrize("append", [True, False])
def test_rows_that_were_taken_out_of_a_table_do_not_come_again(
    postgresql: Postgresql, *, append: bool
) -> None:
    """Its owner dies behind the commit in the table, and before the removal of the entries."""
    scene = Scene()
    sink: Any = PostgresqlSink(postgresql.url, append=append)
    scene.sink = sink
    scene.add(0, 1)
    scene.die_at("exported")
    with postgresql.connect() as connection:
        taken = connection.execute("DELETE FROM entries RETURNING value").fetchall()
    assert sorted(taken) == ([(0,), (1,)] if append else [(1,)])
    scene.add(2)
    scene.runner(PostgresqlSink(postgresql.url, append=append)).run_once(wait_s=0)
    with postgresql.connect() as connection:
        assert connection.execute("SELECT value FROM entries").fetchall() == [(2,)]
    assert scene.queue.lag().entries == 0


def test_an_owner_that_was_replaced_writes_no_row(postgresql: Postgresql) -> None:
    """Its fence is old, whether it begins now or was in the middle of a transaction."""
    sink = PostgresqlSink(postgresql.url, append=True)
    sink.open()
    old, new = (Share(QUEUE, "i.1", 3, fence) for fence in (1, 2))
    assert sink.take_over(old) is None
    assert sink.take_over(new) is None
    with pytest.raises(Deposed):
        sink.export_marked(old, NEWER, Mark(turn=7))
    with pytest.raises(Deposed):
        sink.take_over(old)
    sink.export_marked(new, NEWER, Mark(turn=8))
    assert sink.take_over(new) == Mark(turn=8)
    with postgresql.connect() as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)
    sink.close()


def test_a_server_that_goes_away_blames_no_entry(postgresql: Postgresql, place: Table) -> None:
    """The batch comes again until it is back."""
    place.deliver(NEWER)
    postgresql.stop()
    with pytest.raises(Retry, match=r"127\.0\.0\.1"):
        place.deliver(NEWER)
    with pytest.raises(ExportError, match=r"127\.0\.0\.1"):
        PostgresqlSink(postgresql.url).open()
    postgresql.start()
    place.deliver(batch((b"k", 4, 400, 0)))
    assert place.newest()[b"k"] == (4, (400, 0))


def test_a_server_that_stands_still_is_let_go(postgresql: Postgresql) -> None:
    """Its kernel answers for it, and the thread that waited had its bucket for as long."""
    sink = PostgresqlSink(postgresql.url, append=True, timeout_s=1.0)
    sink.open()
    sink.export(OLDER)
    with postgresql.connect() as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND client_port > 0"
        )
        (still,) = [pid for (pid,) in found]
    os.kill(still, signal.SIGSTOP)
    try:
        since_s = time.monotonic()
        with pytest.raises(Retry, match="no answer within 1 s, so the connection was cut"):
            sink.export(NEWER)
        assert time.monotonic() - since_s < 30
    finally:
        os.kill(still, signal.SIGCONT)
    sink.export(NEWER)
    sink.close()
    with postgresql.connect() as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (5,)


def test_a_table_that_somebody_keeps_locked_blames_no_entry(postgresql: Postgresql) -> None:
    """The batch comes again; what the server still waits for is the same, and counts once."""
    sink = PostgresqlSink(postgresql.url, timeout_s=1.0)
    sink.open()
    with postgresql.connect() as connection, connection.transaction():
        connection.execute("LOCK TABLE entries")
        with pytest.raises(Retry, match="no answer within 1 s"):
            sink.export(NEWER)
        with pytest.raises(ExportError, match="no answer within 1 s"):
            PostgresqlSink(postgresql.url, timeout_s=1.0).open()
    sink.export(NEWER)
    sink.close()


def test_the_kernel_looks_whether_the_server_is_there(postgresql: Postgresql) -> None:
    """One whose machine is gone was waited for up to two hours.  What an address says is used."""
    for more, expected in (("", 10), ("?keepalives_idle=77&connect_timeout=5", 77)):
        sink: Any = PostgresqlSink(postgresql.url + more)
        sink.open()
        (connection,) = sink._pool._idle
        with socket.socket(fileno=os.dup(connection.fileno())) as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            found = [sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
        assert found == [expected, 5, 3, 25_000]
        sink.close()


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value", "rest", "message"),
    [
        ("bytea PRIMARY KEY", "json", "start_ts int", "commit_ts missing, ordinal missing"),
        ("text PRIMARY KEY", "json", ALL, "key text"),
        ("bytea PRIMARY KEY", "int", ALL, "value integer"),
        ("bytea PRIMARY KEY", "json", ALL.replace("start_ts bigint", "start_ts int"), "start_ts i"),
        ("bytea", "json", ALL, "unique"),
    ],
)
def test_a_table_with_other_columns_is_refused_before_anything_is_delivered(
    postgresql: Postgresql, key: str, value: str, rest: str, message: str
) -> None:
    """With what it would need: no entry is to be blamed for it later."""
    with postgresql.connect() as connection:
        connection.execute(f"CREATE TABLE entries (key {key}, value {value}, {rest})")
    with pytest.raises(ConfigError, match=f"(?s){message}.*CREATE TABLE") as refused:
        PostgresqlSink(postgresql.url).open()
    assert "ordinal bytea NOT NULL" in str(refused.value)


def test_a_user_without_rights_is_told_so(postgresql: Postgresql) -> None:
    """Before the first batch where it can be, and without blame where rights are taken later."""
    with postgresql.connect() as connection:
        connection.execute("DROP ROLE IF EXISTS weak")
        connection.execute("CREATE ROLE weak LOGIN")
        connection.execute("GRANT USAGE ON SCHEMA public TO weak")
    weak = PostgresqlSink(postgresql.url_of("weak"))
    with pytest.raises(ConfigError, match="permission denied for schema public"):
        weak.open()
    strong = PostgresqlSink(postgresql.url)
    strong.open()
    strong.close()
    with pytest.raises(ConfigError, match="permission denied for table entries"):
        weak.open()
    with postgresql.connect() as connection:
        connection.execute("GRANT SELECT, INSERT, UPDATE ON entries TO weak")
        with pytest.raises(ConfigError, match=r"(?s)permission denied.*omidpy_marks"):
            weak.open()
        connection.execute("GRANT SELECT, INSERT, UPDATE ON omidpy_marks TO weak")
        weak.open()
        weak.export(NEWER)
        connection.execute("REVOKE UPDATE ON entries FROM weak")
        with pytest.raises(Retry, match="permission denied"):
            weak.export(NEWER)
        connection.execute("DROP TABLE entries")
        with pytest.raises(Retry, match="does not exist"):
            weak.export(NEWER)
    weak.close()


def test_an_entry_that_the_table_cannot_hold_is_set_aside_alone(postgresql: Postgresql) -> None:
    """JSON knows NUL, and jsonb does not."""
    scene = Scene()
    scene.add("good", key=b"a")
    scene.add("bad\x00", key=b"b")
    scene.add("good", key=b"c")
    sink: Any = PostgresqlSink(postgresql.url)
    scene.runner(sink, max_attempts=1).run_once(wait_s=0)
    (letter,) = scene.queue.dead_letters()
    assert (letter.key, letter.value) == (b"b", "bad\x00")
    assert set(Table(postgresql).newest()) == {b"a", b"c"}


def test_mistakes_are_named(postgresql: Postgresql, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a connection is opened."""
    with pytest.raises(UsageError, match="letters, digits"):
        PostgresqlSink(postgresql.url, "a; DROP TABLE b")
    with pytest.raises(ConfigError, match="none of jsonb"):
        PostgresqlSink(postgresql.url, value="xml")
    with pytest.raises(ConfigError, match="postgresql://user@host"):
        PostgresqlSink(f"{postgresql.url}?nonsense=1")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(ConfigError, match=re.escape(install_hint("postgresql"))):
        PostgresqlSink(postgresql.url)
