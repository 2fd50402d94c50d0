"""Ready sinks: each keeps what is newest, and repetitions change nothing."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from pyarrow import parquet

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError, ExportError, UsageError
from omidpy.model import FamilySchema, TableSchema
from omidpy.prometheus import register_export
from omidpy.recipes.export_queue import Batch, Entry, Exporter, Mark, Refused, Retry, Share
from omidpy.recipes.export_queue.delivery import patience as patience_module
from omidpy.recipes.export_queue.sinks import (
    JsonLinesSink,
    ParquetSink,
    PlainTableSink,
    SqliteSink,
    TableSink,
    WebhookSink,
)
from omidpy.recipes.export_queue.sinks.address import sink_at
from omidpy.recipes.export_queue.sinks.documents import encoded_value
from omidpy.recipes.export_queue.sinks.sql.statements import Appending
from omidpy.storage.memory import MemoryStore
from omidpy.tx.writes.ordinals import WORKER_MARK
from tests.machines.clients import TABLE as USERS_TABLE
from tests.machines.export_queues import STEPS, Scene
from tests.machines.sink_contract import (
    NEWER,
    OLDER,
    Newest,
    Place,
    SinkContract,
    batch,
    from_json,
    in_use,
    of_seqs,
)
from tests.machines.speaker import Speaker


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait between tries."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)


# -- what all promise ------------------------------------------------------------------------------


class SqliteTable(Place):
    """A table of a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.sink = SqliteSink(file)

    def newest(self) -> Newest:
        """Read it over another connection."""
        with closing(sqlite3.connect(self._file)) as connection:
            found = connection.execute("SELECT key, value, commit_ts, ordinal FROM entries")
            return {
                key: (from_json(value), (commit_ts, int.from_bytes(ordinal)))
                for key, value, commit_ts, ordinal in found
            }


class SameStore(Place):
    """A table of the same store."""

    def __init__(self) -> None:
        self._scene = Scene()
        self._sink = TableSink(USERS_TABLE)

    def deliver(self, one: Batch) -> None:
        """Do it within a transaction."""
        with self._scene.tm.begin() as tx:
            self._sink.export_within(tx, one)

    def newest(self) -> Newest:
        """Read it in another one."""
        with self._scene.tm.begin(read_only=True) as tx:
            rows = dict(tx.table(USERS_TABLE).scan())
        return {
            key: (
                from_json(row.get(b"cf:value")),
                (int.from_bytes(row[b"cf:seq"][:8]), int.from_bytes(row[b"cf:seq"][8:])),
            )
            for key, row in rows.items()
        }


class JsonFiles(Place):
    """Files of JSON lines, read as a receiver does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sink = JsonLinesSink(folder)

    def newest(self) -> Newest:
        """Read all of them."""
        texts = [file.read_text("utf-8") for file in self._folder.iterdir()]
        found = [json.loads(line) for text in texts for line in text.splitlines()]
        return of_seqs(
            [
                (
                    one["key"].encode() if "key" in one else bytes.fromhex(one["key_hex"]),
                    one["value"],
                    (one["commit_ts"], one["ordinal"]),
                )
                for one in found
            ]
        )


class ParquetFiles(Place):
    """Files of Parquet, read as a receiver does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.sink = ParquetSink(folder)

    def newest(self) -> Newest:
        """Read the folder as one table."""
        return of_seqs(
            [
                (
                    one["key"],
                    from_json(one["value"]),
                    (one["commit_ts"], int.from_bytes(one["ordinal"])),
                )
                for one in parquet.read_table(self._folder).to_pylist()
            ]
        )


FILES: Final = (JsonFiles, ParquetFiles)


@pytest.fixture(params=FILES)
def files(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Return a folder of each kind."""
    place = request.param(tmp_path / "out")
    place.sink.open()
    return place


class TestFiles(SinkContract):
    """Files, of each kind."""

    @pytest.fixture
    def place(self, files: Place) -> Place:
        """Return it."""
        return files


@pytest.fixture
def sqlite_table(tmp_path: Path) -> Iterator[SqliteTable]:
    """Return a file."""
    with in_use(SqliteTable(tmp_path / "s.db")) as place:
        yield place


class TestSqlite(SinkContract):
    """A table of a file."""

    @pytest.fixture
    def place(self, sqlite_table: SqliteTable) -> Place:
        """Return it."""
        return sqlite_table


class TestSameStore(SinkContract):
    """A table of the same store, whose rows have keys."""

    empty_keys = False

    @pytest.fixture
    def place(self) -> Place:
        """Return it."""
        return SameStore()


# -- SQLite ----------------------------------------------------------------------------------------


def test_bytes_are_kept_as_they_are(tmp_path: Path) -> None:
    """In a table of another name."""
    sink = SqliteSink(tmp_path / "s.db", "t")
    sink.open()
    sink.export(batch((b"k", b"\xff", 100, 0)))
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT value, commit_ts FROM t").fetchall() == [(b"\xff", 100)]
    sink.close()


def test_every_entry_may_have_a_row(tmp_path: Path) -> None:
    """Exactly once: what comes again, from whoever was paused, changes nothing."""
    sink = sink_at(f"sqlite:{tmp_path / 's.db'}", append=True)
    sink.open()
    for one in (OLDER, NEWER, OLDER, NEWER):
        sink.export(one)
    sink.close()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        found = connection.execute("SELECT key, value FROM entries ORDER BY commit_ts, ordinal")
        assert [(key, json.loads(value)) for key, value in found] == [
            (b"k", {"n": 1}),
            (b"k", {"n": 2}),
            (b"k", {"n": 3}),
            (b"other", "y"),
            (b"other", "x"),
        ]


def test_a_row_of_another_entry_takes_the_place_of_none(tmp_path: Path) -> None:
    """Timestamps of two stores lie on one grid: the whole batch is refused, with what to do."""
    sink = SqliteSink(tmp_path / "s.db", append=True)
    sink.open()
    sink.export(batch((b"k", "theirs", 100, 0)))
    other_key = batch((b"a", 1, 99, 0), (b"other", "ours", 100, 0), (b"z", 2, 101, 0))
    of_later_start = [Entry(b"k", "ours", 100, 0, 51, {})]
    for one in (other_key, Batch(of_later_start, queue="q", bucket=3, fence=1)):
        with pytest.raises(Refused, match="let each store have a table of its own"):
            sink.export(one)
    sink.export(batch((b"k", "theirs", 100, 0), (b"k", "more", 100, 1)))
    sink.close()
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        found = connection.execute("SELECT value FROM entries ORDER BY commit_ts, ordinal")
        assert found.fetchall() == [('"theirs"',), ('"more"',)]


def test_a_table_of_other_types_compares_as_its_columns_do(tmp_path: Path) -> None:
    """SQLite takes a number into a column of text, and gives text back."""
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.execute(
            "CREATE TABLE entries (key TEXT, value, commit_ts TEXT, ordinal TEXT, start_ts TEXT, "
            "UNIQUE (commit_ts, ordinal))"
        )
    sink = SqliteSink(tmp_path / "s.db", append=True)
    sink.open()
    for _ in range(2):
        sink.export(batch((b"k", 1, 100, 0)))
    sink.close()


def test_a_row_that_a_reader_takes_out_meanwhile_is_added() -> None:
    """What he took, ours or another one, is not known; what is not there is not lost."""
    statements: list[tuple[str, int]] = []
    appending = Appending("t", "?")
    ours = [(b"k", None, 100 + number, b"", 50) for number in range(3)]

    def insert(statement: str, rows: Sequence[Any]) -> int:
        statements.append((statement, rows[-1][2]))
        return len(rows) - 2 if len(rows) > 2 else len(rows)

    def look(statement: str, rows: Sequence[Any]) -> list[Any]:
        statements.append((statement, len(rows)))
        return [(1,), None, (True,)]

    appending.append(ours, insert=insert, look=look)
    assert statements == [(appending.insert, 102), (appending.look, 3), (appending.insert, 101)]


@pytest.mark.parametrize("where", ["jsonl:out", "table:t", "kafka://k:1/t", "https://x/y"])
def test_others_are_not_asked_to_append(where: str) -> None:
    """They do, or they cannot."""
    with pytest.raises(UsageError, match="--append is for tables of SQL"):
        sink_at(where, append=True)


def test_a_file_that_is_locked_is_tried_again(tmp_path: Path) -> None:
    """No entry is at fault, and the sink goes on once the file is free."""
    sink = SqliteSink(tmp_path / "s.db")
    sink.open()
    assert sink._connection is not None
    sink._connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Retry, match="locked"):
            sink.export(NEWER)
    sink.export(NEWER)
    sink.close()
    with pytest.raises(Retry, match="not open"):
        sink.export(NEWER)


def test_a_table_of_another_name_than_letters_is_refused(tmp_path: Path) -> None:
    """It goes into a statement."""
    with pytest.raises(UsageError, match="letters, digits"):
        SqliteSink(tmp_path / "s.db", "a; DROP TABLE b")


# -- files -----------------------------------------------------------------------------------------


A, B, C = (b"a", 1, 100, 0), (b"b", 2, 100, 1), (b"c", 3, 150, 0)


def names(folder: Path) -> list[str]:
    """Return what is in a folder: the first entry of each file, and the last."""
    return sorted(file.name.rpartition("-")[0] for file in folder.iterdir())


AB: Final = "q-00003-0000000000000000100.00000000-0000000000000000100.00000001"
ABC: Final = "q-00003-0000000000000000100.00000000-0000000000000000150.00000000"


def test_a_batch_that_comes_again_is_in_one_file(files: Any, tmp_path: Path) -> None:
    """As it was, or with more behind it; the smaller file goes, whichever of them is the later."""
    files.deliver(batch(A, B))
    files.deliver(batch(A, B))
    assert names(tmp_path / "out") == [AB]
    files.deliver(batch(A, B, C, fence=2))
    assert names(tmp_path / "out") == [ABC]
    files.deliver(batch(A, B))  # of a process that was paused for long
    assert names(tmp_path / "out") == [ABC]
    assert files.newest() == {b"a": (1, (100, 0)), b"b": (2, (100, 1)), b"c": (3, (150, 0))}


def test_what_another_file_does_not_hold_stays(files: Any, tmp_path: Path) -> None:
    """Two tries whose first and last entries are the same may have set others aside."""
    files.deliver(batch(A, C))
    files.deliver(batch(A, B))
    (stranger,) = (tmp_path / "out").glob(f"{AB}-*")
    stranger.write_text("{}\n", "utf-8")
    files.deliver(batch(A, B, (b"d", 4, 200, 0)))
    assert len(names(tmp_path / "out")) == 3
    assert stranger.read_text("utf-8") == "{}\n"
    stranger.unlink()
    assert set(files.newest()) == {b"a", b"b", b"c", b"d"}


def test_a_line_says_what_is_no_text_in_hexadecimal(tmp_path: Path) -> None:
    """JSON has no bytes."""
    place = JsonFiles(tmp_path / "out")
    place.sink.open()
    place.deliver(batch((b"\xff", b"\xfe", 100, 1)))
    (file,) = (tmp_path / "out").iterdir()
    found = json.loads(file.read_text("utf-8"))
    assert (found["queue"], found["key_hex"], found["value_hex"]) == ("q", "ff", "fe")
    assert (found["commit_ts"], found["ordinal"], found["start_ts"]) == (100, 1, 50)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "sqlite", "table"])
def test_a_recorded_row_comes_to_every_sink(tmp_path: Path, kind: str) -> None:
    """Its columns are bytes, of which JSON knows nothing: each such entry was set aside."""
    scene = Scene(codec="msgpack")
    scene.tm.create_table("out", families=["cf"])
    with scene.tm.begin() as tx:
        scene.queue.record(tx, tables=[USERS_TABLE])
        tx.table(USERS_TABLE).put(b"r", {b"cf:a": b"1", b"cf:\xff": b"2"})
        tx.table(USERS_TABLE).delete(b"r", [b"cf:gone"])
    expected = {"cf:a": "31", "cf:gone": None, r"cf:\xff": "32"}
    where = {"table": "table:out"}.get(kind, f"{kind}:{tmp_path / 'out'}")
    export_to(sink_at(where), scene)
    assert scene.queue.lag().dead_letters == 0
    found: Any
    match kind:
        case "jsonl":
            (file,) = (tmp_path / "out").glob("*.jsonl")
            found = json.loads(file.read_text("utf-8"))["value"]
        case "parquet":
            (file,) = (tmp_path / "out").glob("*.parquet")
            found = json.loads(parquet.read_table(file)["value"][0].as_py())
        case "sqlite":
            with closing(sqlite3.connect(tmp_path / "out")) as connection:
                ((text,),) = connection.execute("SELECT value FROM entries")
            found = json.loads(text)
        case _:
            with scene.tm.begin(read_only=True) as tx:
                found = json.loads(tx.table("out").row(b"r")[b"cf:value"])
    assert found == expected


def test_no_two_names_of_a_map_become_one() -> None:
    """What stood under one of them would be lost without a word."""
    assert json.loads(encoded_value({b"a": {b"\xff": 1, b"\\xff": [{b"b": 2}]}, "c": 3})) == {
        "a": {r"\xff": 1, r"\x5cxff": [{"b": 2}]},
        "c": 3,
    }
    with pytest.raises(ValueError, match="two names"):
        encoded_value({b"a": 1, "a": 2})


def test_bytes_are_bytes_in_parquet(tmp_path: Path) -> None:
    """Headers, and what is known of the batch, go with them."""
    sink = ParquetSink(tmp_path / "out")
    sink.open()
    one = Entry(b"k", b"\xff", 100, 2**100, 50, {"type": "t"})
    sink.export(Batch([one], queue="q", bucket=3, fence=7))
    (file,) = (tmp_path / "out").iterdir()
    table = parquet.read_table(file)
    (found,) = table.to_pylist()
    assert found == {
        "key": b"k",
        "value": b"\xff",
        "commit_ts": 100,
        "ordinal": (2**100).to_bytes(21),
        "start_ts": 50,
        "headers": [("type", "t")],
    }
    assert table.schema.metadata == {b"queue": b"q", b"bucket": b"3", b"fence": b"7"}


def test_parquet_without_pyarrow_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is delivered."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=re.escape(install_hint("parquet"))):
        ParquetSink(tmp_path)


def test_a_file_that_cannot_be_written_leaves_nothing_half_done(files: Any, tmp_path: Path) -> None:
    """The error is one of the system, which blames no entry."""
    (tmp_path / "out").rmdir()
    with pytest.raises(OSError, match="No such file"):
        files.deliver(NEWER)
    files.sink.open()
    files.deliver(NEWER)
    assert len(list((tmp_path / "out").iterdir())) == 1


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_a_table_of_the_same_store_is_written_exactly_once(step: str) -> None:
    """Its row appears in the transaction that takes the entry out of the queue."""
    scene = Scene()
    scene.add({"n": 1}, key=b"a")
    scene.add(None, key=b"b")
    scene.add({"n": 2}, key=b"a")
    sink: Any = TableSink(USERS_TABLE)
    scene.sink = sink
    scene.die_at(step, buffer_bytes=1)
    scene.runner().run_once(wait_s=0)
    assert scene.client.read(b"a")[b"cf:value"] == b'{"n":2}'
    assert set(scene.client.read(b"b")) == {b"cf:seq"}
    assert scene.queue.lag().entries == 0


def test_a_plain_table_shows_the_newest() -> None:
    """By the version of its cells; what is older lies below."""
    store = MemoryStore()
    store.create_table(TableSchema("out", (FamilySchema(b"cf", {"VERSIONS": "1"}),)))
    sink = PlainTableSink(store, "out")
    sink.export(batch((b"k", "first", 300, 0), (b"k", "second", 300, 1), (b"k", "z", 300, 99)))
    sink.export(batch((b"k", "old", 250, 0)))
    (cells,) = store.get("out", [b"k"], max_versions=1)
    assert {cell.qualifier: cell.value for cell in cells}[b"value"] == b'"z"'


def test_the_many_entries_of_one_transaction_keep_their_order_in_a_plain_table() -> None:
    """Those that share a version, too, whoever comes late, and whoever comes in between."""
    store = MemoryStore()
    store.create_table(TableSchema("out", (FamilySchema(b"cf", {"VERSIONS": "1"}),)))
    sink = PlainTableSink(store, "out")

    def value() -> bytes:
        (cells,) = store.get("out", [b"k"], max_versions=1)
        return {cell.qualifier: cell.value for cell in cells}[b"value"]

    sink.export(batch((b"k", "a", 300, 48), (b"k", "b", 300, 49), (b"k", "c", 300, 2**100)))
    assert value() == b'"c"'
    sink.export(batch((b"k", "late", 300, 50)))
    assert value() == b'"c"'
    sink.export(batch((b"k", "d", 350, 60), (b"k", "e", 400, 0)))
    assert value() == b'"e"'
    rivals = [batch((b"k", "rival", 450, 70))]

    class Interleaved(MemoryStore):
        def check_and_mutate(self, *args: Any, **options: Any) -> bool:
            if rivals:
                PlainTableSink(store, "out").export(rivals.pop())
            return store.check_and_mutate(*args, **options)

    beside = Interleaved()
    beside.get = store.get  # type: ignore[method-assign]
    PlainTableSink(beside, "out").export(batch((b"k", "slower", 450, 60)))
    assert value() == b'"rival"'


# -- what cannot be written to ---------------------------------------------------------------------


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize(
    "kind", ["missing", "folder", "text", "other table", "of the other kind", "other marks"]
)
def test_a_file_that_is_no_table_of_entries_is_refused_by_name(
    tmp_path: Path, kind: str, *, append: bool
) -> None:
    """It ended in a traceback, or each batch came again and again."""
    file = tmp_path / "out.db"
    match kind:
        case "missing":
            file = tmp_path / "nowhere" / "out.db"
        case "folder":
            file.mkdir()
        case "text":
            file.write_text("a letter to a friend\n" * 100)
        case "of the other kind":
            other = SqliteSink(file, append=not append)
            other.open()
            other.close()
        case _:
            with closing(sqlite3.connect(file)) as connection:
                table = "entries" if kind == "other table" else "omidpy_marks"
                connection.execute(f"CREATE TABLE {table} (a)")
    with pytest.raises(ConfigError, match=r"out\.db.*it needs CREATE TABLE"):
        SqliteSink(file, append=append).open()


def test_a_file_that_is_locked_is_no_wrong_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever starts the exporter again later finds it open."""
    file = tmp_path / "out.db"

    opened: Any = sqlite3.connect

    def connect(*args: Any, **options: Any) -> Any:
        return opened(*args, timeout=0.0, **options)

    with closing(opened(file, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", connect)
        with pytest.raises(ExportError, match="locked"):
            SqliteSink(file).open()


def test_what_counts_as_delivered_to_a_file_outlives_a_power_loss(tmp_path: Path) -> None:
    """A commit is the removal of a journal: FULL does not sync it, and SQLite would roll back."""
    sink = SqliteSink(tmp_path / "out.db")
    sink.open()
    assert sink._connection is not None
    (extra,) = sink._connection.execute("PRAGMA synchronous").fetchone()
    sink.close()
    assert extra == 3


@pytest.mark.parametrize("sink", [JsonLinesSink, ParquetSink])
def test_a_folder_that_cannot_be_made_is_refused_by_name(
    tmp_path: Path, sink: type[JsonLinesSink | ParquetSink]
) -> None:
    """A file has its name, or that of one above it."""
    (tmp_path / "out").write_text("x")
    for place in (tmp_path / "out", tmp_path / "out" / "in"):
        with pytest.raises(ConfigError, match="no folder for files can be made"):
            sink(place).open()


# -- webhook ---------------------------------------------------------------------------------------


class Receiver:
    """A server that answers as it is told, and remembers."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((self.path, dict(self.headers), json.loads(body)))
                status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
                self.send_response(status)
                for name, text in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, text)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?a=b"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        """End it."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Return a server on a free port."""
    made = Receiver()
    yield made
    made.close()


def export_to(sink: Exporter, scene: Scene) -> None:
    """Deliver what a queue has to a sink."""
    scene.runner(sink).run_once(wait_s=0)


@pytest.mark.parametrize("said", ["99999999999", "9" * 400])
def test_a_webhook_sends_no_exporter_to_sleep_for_ever(receiver: Receiver, said: str) -> None:
    """Whatever it says, it is asked again within the hour."""
    scene = Scene()
    scene.add(1)
    receiver.answers = [(503, {"Retry-After": said})]
    batch = Batch(scene.queue.peek(), queue="q", bucket=0, fence=1)
    with pytest.raises(Retry) as told:
        WebhookSink(receiver.url).export(batch)
    assert told.value.after_s == 3600


def test_a_webhook_gets_each_entry_with_a_key_that_never_changes(receiver: Receiver) -> None:
    """So that the receiver can tell repetitions, and what is older."""
    scene = Scene()
    scene.add({"n": 1}, 2)
    receiver.answers = [(200, {}), (503, {"Retry-After": "0"})]
    export_to(WebhookSink(receiver.url, headers={"Authorization": "Bearer x"}), scene)
    bodies = [body["value"] for _, _, body in receiver.requests]
    assert bodies == [{"n": 1}, 2, {"n": 1}, 2], "the batch came again, from its first entry"
    path, headers, body = receiver.requests[0]
    assert path == "/hook?a=b"
    assert headers["Authorization"] == "Bearer x"
    assert headers["X-Omidpy-Fence"] == "1700000000"
    assert headers["X-Omidpy-Seq"] == f"{body['commit_ts']}-0"
    keys = [headers["Idempotency-Key"] for _, headers, _ in receiver.requests]
    assert keys[:2] == keys[2:]
    assert keys[0] == f"q-{body['start_ts']}-0"


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_an_answer_that_drips_has_its_time_as_a_whole(beginning: bytes) -> None:
    """Each byte came in time, so that a thread of the exporter waited for as long as they came."""

    def drip(connection: socket.socket) -> None:
        connection.sendall(beginning)
        for _ in range(60):
            connection.sendall(b"a")
            time.sleep(0.05)
        connection.shutdown(socket.SHUT_WR)

    speaker = Speaker(drip)
    try:
        with pytest.raises(TimeoutError):
            WebhookSink(speaker.url, timeout_s=0.5).export(batch((b"k", 1, 100, 0)))
    finally:
        speaker.close()


def test_of_a_long_answer_no_more_is_read_than_a_page() -> None:
    """It would be held in memory as a whole; and the next entry is asked of a new connection."""
    sent = 0

    def flood(connection: socket.socket) -> None:
        nonlocal sent
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
        for _ in range(99):
            connection.sendall(bytes(1_000_000))
            sent += 1

    speaker = Speaker(flood)
    try:
        WebhookSink(speaker.url).export(batch((b"k", 1, 100, 0), (b"k", 2, 200, 0)))
        assert speaker.served == 2
    finally:
        speaker.close()
    assert sent < 99


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://h:port/", "no URL"),
        ("http://[::1/", "no URL"),
        ("http://a..b/", "no name of a host"),
        ("http://user:word@h/", "has a user in it"),
        ("http://h/a b", "%XX"),
        ("http://h/ä", "%XX"),
    ],
)
def test_a_url_that_nothing_can_be_sent_to_is_refused_by_name(url: str, said: str) -> None:
    """Else each entry would fail, or what it says of a user be left out."""
    with pytest.raises(UsageError, match=said) as told:
        sink_at(url)
    assert "word" not in str(told.value)


@pytest.mark.parametrize("status", [409, 412])
def test_what_a_webhook_has_already_is_delivered_where_it_says_so(
    receiver: Receiver, status: int
) -> None:
    """It has it, or something newer, and whoever set it up knows that its answer means that."""
    scene = Scene()
    scene.add(1)
    receiver.answers = [(status, {})]
    export_to(WebhookSink(receiver.url, taken=[status]), scene)
    assert len(receiver.requests) == 1
    assert scene.queue.lag().entries == 0
    assert scene.queue.lag().dead_letters == 0


@pytest.mark.parametrize("status", [409, 412])
def test_a_fence_that_a_webhook_refuses_delivers_nothing(
    receiver: Receiver, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket is ours, so that its entries come again; and if that is all, the exporter ends."""
    monkeypatch.setattr(patience_module, "FIRST_PAUSE_S", 0.0)
    scene = Scene()
    scene.add(1)
    receiver.answers = [(status, {})]
    export_to(WebhookSink(receiver.url), scene)
    assert [body["value"] for _, _, body in receiver.requests] == [1, 1]
    scene.add(2)
    receiver.answers = [(status, {})] * 100
    with pytest.raises(ExportError, match=rf"refuses everything.*--taken {status}"):
        export_to(WebhookSink(receiver.url), scene)
    assert scene.queue.lag().entries == 1
    assert scene.queue.lag().dead_letters == 0


def test_the_answers_taken_may_come_from_an_iterator(receiver: Receiver) -> None:
    """It gives them once: they were looked at, and none was taken."""
    scene = Scene()
    scene.add(1)
    receiver.answers = [(409, {})]
    export_to(WebhookSink(receiver.url, taken=(one for one in (409,))), scene)  # type: ignore[arg-type]  # the point of the test
    assert len(receiver.requests) == 1
    assert scene.queue.lag().entries == 0


@pytest.mark.parametrize(
    ("headers", "error"),
    [
        ({"Authorization": "Bearer secret\n"}, UsageError),
        ({"Authorization": "secret \u2026"}, UsageError),
        ({"a b": "secret"}, UsageError),
        ({"": "secret"}, UsageError),
        ({"n": 5}, TypeError),
        (["n"], TypeError),
    ],
)
def test_a_header_that_cannot_be_sent_is_refused_and_not_shown(
    headers: Any, error: type[Exception]
) -> None:
    """Every entry failed by it, and was set aside as if it were poison."""
    with pytest.raises(error, match="header") as caught:
        WebhookSink("http://h/", headers=headers)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("timeout_s", [0, -1.0, float("nan"), float("inf")])
def test_a_webhook_has_some_time(timeout_s: float) -> None:
    """Not none, and not for ever."""
    with pytest.raises(UsageError, match="timeout_s"):
        WebhookSink("http://h/", timeout_s=timeout_s)


def test_only_what_may_speak_of_a_fence_is_said_to_be_taken() -> None:
    """A 500 that counts as delivered loses entries."""
    with pytest.raises(UsageError, match="500"):
        WebhookSink("http://h/", taken=[409, 500])
    with pytest.raises(UsageError, match="--taken is for webhooks"):
        sink_at("sqlite:f.db", taken=[409])
    assert isinstance(sink_at("http://h/", taken=[409]), WebhookSink)


@pytest.mark.parametrize("status", [400, 413, 415, 422])
def test_what_a_webhook_will_never_take_is_poison(receiver: Receiver, status: int) -> None:
    """At once, with what it said."""
    scene = Scene()
    scene.add("bad", key=b"bad")
    scene.add("good", key=b"good")
    receiver.answers = [(status, {})]
    export_to(WebhookSink(receiver.url), scene)
    (letter,) = scene.queue.dead_letters()
    assert letter.value == "bad"
    assert f"answers {status}" in letter.reason
    assert [body["value"] for _, _, body in receiver.requests] == ["bad", "good"]


@pytest.mark.parametrize("status", [301, 401, 403, 404, 429, 500])
def test_any_other_answer_of_a_webhook_blames_no_entry(receiver: Receiver, status: int) -> None:
    """A key that has expired must not set a night's entries aside."""
    scene = Scene()
    scene.add(1)
    receiver.answers = [(status, {"Retry-After": "0"})] * 10
    export_to(WebhookSink(receiver.url), scene)
    assert len(receiver.requests) == 11
    assert scene.queue.lag().dead_letters == 0


def test_a_webhook_that_is_not_there_is_tried_again(receiver: Receiver) -> None:
    """The connection is refused, which is an error of the system."""
    receiver.close()
    with pytest.raises(ConnectionError):
        WebhookSink(receiver.url, timeout_s=5).export(NEWER)
    receiver.__init__()  # type: ignore[misc]  # so that the fixture can close one


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "hook"])
def test_what_is_no_url_of_a_webhook_is_refused(url: str) -> None:
    """Before anything is delivered."""
    with pytest.raises(UsageError, match="http:// or https://"):
        WebhookSink(url)


# -- metrics ---------------------------------------------------------------------------------------


def test_prometheus_reads_what_waits_and_what_was_done() -> None:
    """By queue and bucket; a second one of the same names is refused."""
    scene = Scene()
    scene.add(1, 2)
    registry = CollectorRegistry()
    runner = scene.runner()
    register_export(scene.queue, runner, registry)
    runner.run_once(wait_s=0)
    idle = generate_latest(registry).decode()
    assert 'omidpy_export_lag_seconds{bucket="0",queue="q"} 0.0' in idle
    scene.add(3)
    page = generate_latest(registry).decode()
    for line in (
        'omidpy_export_entries{bucket="0",queue="q"} 1.0',
        'omidpy_export_dead_letters{bucket="0",queue="q"} 0.0',
        'omidpy_export_lease_epoch{bucket="0",queue="q"} 1.7e+09',
        'omidpy_export_exported_total{bucket="0",queue="q"} 2.0',
        'omidpy_export_attempts_total{bucket="0",queue="q"} 1.0',
        'omidpy_export_batch_seconds_count{bucket="0",queue="q"} 1.0',
    ):
        assert line in page
    with pytest.raises(UsageError, match="another prefix"):
        register_export(scene.queue, runner, registry)


@pytest.mark.parametrize("kind", [JsonLinesSink, ParquetSink])
def test_the_longest_name_of_a_file_is_short_enough_while_it_is_written(
    tmp_path: Path, kind: type[JsonLinesSink | ParquetSink]
) -> None:
    """A queue of 64 letters, and ordinals of workers: no file system has longer names."""
    ordinal = int.from_bytes(WORKER_MARK + bytes(range(16, 36)))
    entries = [Entry(b"k", 1, 2**62 + at, ordinal + at, 2**62, {}) for at in range(2)]
    share = Share("q" * 64, f"{'f' * 32}.{2**21}", 65_535, 2**53)
    sink = kind(tmp_path)
    sink.open()
    sink.take_over(share)
    whole = Batch(entries, queue=share.queue, bucket=share.bucket, fence=share.fence)
    sink.export_marked(share, whole, Mark())
    (found,) = [one for one in tmp_path.iterdir() if not one.name.startswith(".")]
    assert sink.seqs(found) == {entry.seq for entry in entries}
