"""`omidpy export` on a real file, and as a daemon that is told to stop."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partialmethod
from pathlib import Path
from typing import Any, Final, TypeAlias
from unittest.mock import Mock

import pytest
from prometheus_client import generate_latest

import omidpy
from omidpy.cli import main
from omidpy.errors import StorageUnavailable
from omidpy.recipes.export_queue import ExportQueue, Lag
from omidpy.recipes.export_queue.delivery import patience
from omidpy.recipes.export_queue.entries.stored.state import Places
from omidpy.recipes.export_queue.upkeep import making, rebucketing
from tests.machines.documents import environment
from tests.machines.processes import tso_server
from tests.machines.waiting import wait_for

LONGEST_S: Final = 60.0

Cli: TypeAlias = Callable[..., tuple[int, str, str]]

MODULE: Final = """
def bad(batch):
    raise ValueError("no")

from omidpy.recipes.export_queue import Deposed, Exporter, Refused

def no_topic(batch):
    raise Refused("no such topic")

def no_column(batch):
    raise KeyError("no such column")

def old_fence(batch):
    raise Deposed("a later owner was here")

class Keeps(Exporter):
    def export(self, batch):
        print(*(entry.value for entry in batch))
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store."""
    found = f"sqlite:///{tmp_path}/s.db"
    omidpy.connect(found).close()
    return found


@pytest.fixture
def cli(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """Return what runs a verb on the store and returns its exit code, stdout and stderr."""
    monkeypatch.setenv("OMIDPY_STORE", url)
    monkeypatch.delenv("OMIDPY_TSO", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "exporters_of_a_test.py").write_text(MODULE, "utf-8")

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(("export", *words))
        captured = capsys.readouterr()
        code = exit_info.value.code
        assert isinstance(code, int | None)
        return code or 0, captured.out, captured.err

    return run


def add(url: str, *pairs: tuple[bytes, object], tso: str | None = None) -> None:
    """Add entries in one transaction."""
    with omidpy.connect(url, tso) as tm, tm.begin() as tx:
        tx.queue("q").add_all(pairs)


def test_a_queue_is_made_looked_at_delivered_and_dropped(cli: Cli, url: str) -> None:
    """Every verb says what it did."""
    assert cli("create", "q", "--buckets", "2") == (0, "the queue q has 2 buckets, json\n", "")
    assert cli("create", "q", "--buckets", "2")[0] == 0
    add(url, (b"a", {"n": 1}), (b"\xff", 2))
    code, out, _ = cli("peek", "q", "--json")
    assert code == 0
    assert [one.get("key", one.get("key_hex")) for one in json.loads(out)] == ["a", "ff"]
    assert "{'n': 1}" in cli("peek", "q")[1]
    assert "2 entries wait" in cli("lag", "q")[1]
    assert json.loads(cli("lag", "q", "--json")[1])["entries"] == 2
    assert "q      2" in cli("status")[1]
    assert cli("once", "q", "--to", "sqlite:out.db")[1] == "delivered 2 entries of q\n"
    with closing(sqlite3.connect("out.db")) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)
    assert json.loads(cli("status", "q", "--json")[1])[0]["entries"] == 0
    assert cli("drop", "q")[1].endswith("nothing was changed; add --apply\n")
    assert cli("drop", "q", "--apply")[1] == "dropped q, and 0 entries that wait\n"
    code, _, err = cli("lag", "q")
    assert code == 1
    assert "was dropped" in err


def test_a_drop_that_was_interrupted_is_finished_by_the_next(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table held the horizon of every compaction, and no verb removed it."""
    cli("create", "q")
    add(url, (b"a", 1))
    which = json.loads(cli("drop", "q", "--json")[1])["incarnation"]
    with monkeypatch.context() as patched:
        patched.setattr(making, "_remove", Mock(side_effect=StorageUnavailable("no answer")))
        assert cli("drop", "q", "--apply", "--incarnation", which)[0] == 1
    code, out, err = cli("drop", "q")
    expected = (
        f"would drop q ({which}), and 0 entries that wait\nnothing was changed; add --apply\n"
    )
    assert (code, out, err) == (0, expected, "")
    code, out, err = cli("drop", "q", "--apply", "--incarnation", which)
    assert (code, out, err) == (0, "dropped q, and 0 entries that wait\n", "")
    with omidpy.connect(url) as tm:
        assert not [one.name for one in tm.store.tables() if "EXPORT" in one.name]
    code, _, err = cli("drop", "q", "--apply", "--incarnation", which)
    assert code == 1
    assert "was dropped" in err


def test_a_queue_that_cannot_be_read_hides_no_other_one_and_can_be_dropped(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator of HBase's has disabled its table."""
    for queue in ("bad", "good"):
        cli("create", queue)

    def fails(queue: ExportQueue, read: Callable[[ExportQueue], Lag]) -> Lag:
        if queue.id == "bad":
            raise StorageUnavailable("it is disabled")
        return read(queue)

    for name in ("lag", "counted"):
        read = getattr(ExportQueue, name)
        monkeypatch.setattr(ExportQueue, name, partialmethod(fails, read))
    code, out, _ = cli("status")
    assert (code, "good   0" in out) == (0, True)
    assert "bad cannot be read, by exporters neither: it is disabled" in out
    assert json.loads(cli("status", "--json")[1])[1] == {
        "queue": "bad",
        "problem": "it is disabled",
    }
    expected = "dropped bad, and nobody can say how many entries that wait\n"
    assert cli("drop", "bad", "--apply") == (0, expected, "")
    assert "bad" not in cli("status")[1]


def test_a_drop_that_names_the_incarnation_leaves_the_next_queue_alone(cli: Cli, url: str) -> None:
    """Its answer was lost, and the queue was made anew since."""
    cli("create", "q")
    which = json.loads(cli("drop", "q", "--json")[1])["incarnation"]
    assert cli("drop", "q", "--incarnation", which, "--apply")[0] == 0
    cli("create", "q")
    add(url, (b"a", 1))
    code, out, err = cli("drop", "q", "--incarnation", which, "--apply")
    assert (code, out) == (1, "")
    assert f"the incarnation {which} of the export queue 'q' is gone" in err
    assert "1 entries wait" in cli("lag", "q")[1]


def test_an_exporter_of_the_users_is_named_by_its_module(cli: Cli, url: str) -> None:
    """A class is made, a function is called."""
    cli("create", "q", "--buckets", "1")
    add(url, (b"a", 1), (b"a", 2))
    code, out, _ = cli("once", "q", "--exporter", "exporters_of_a_test:Keeps")
    assert (code, out) == (0, "1 2\ndelivered 2 entries of q\n")
    code, out, _ = cli("once", "q", "--exporter", "exporters_of_a_test:Keeps", "--json")
    assert json.loads(out) == {"queue": "q", "exported": 0, "dead_letters": 0}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("once", "q"), "one of them alone"),
        (("once", "q", "--to", "sqlite:x", "--exporter", "a:b"), "one of them alone"),
        (("once", "q", "--to", "oracle:x"), "is none of sqlite:FILE"),
        (("once", "q", "--to", "sqlite:"), "is none of sqlite:FILE"),
        (("once", "q", "--to", "postgresql://h/d?nonsense=1"), "write postgresql://user@host"),
        (("once", "q", "--to", "postgresql://h/d#a b"), "letters, digits"),
        (("once", "q", "--exporter", "nowhere_at_all:b"), "there is no module"),
        (("once", "q", "--exporter", "exporters_of_a_test:none"), "names nothing"),
        (("once", "q", "--exporter", "exporters_of_a_test"), "names nothing"),
        (("create", "a:b"), "the id of a queue"),
        (("create", "q2", "--buckets", "0"), "at least 1"),
        (("create", "q2", "--codec", "pickle"), "could run code"),
        (("replay", "q", "--since", "yesterday"), "is no moment"),
        (("dlq", "retry", "q", "--key-hex", "xy"), "is not hexadecimal"),
        (("dlq", "retry", "q", "--key", "a", "--key-hex", "61"), "give one of them"),
        (("run", "q", "--to", "jsonl:x", "--metrics", "9"), "is no HOST:PORT"),
    ],
)
def test_mistakes_are_named(cli: Cli, words: tuple[str, ...], message: str) -> None:
    """With exit code 2, and nothing changed."""
    cli("create", "q")
    code, _, err = cli(*words)
    assert code == 2
    assert message in err


def test_what_is_shown_to_prometheus_ends_with_the_command(cli: Cli) -> None:
    """A second one in the process has the names for itself, and none reads a store that is shut."""
    cli("create", "q")
    for _ in range(2):
        assert "is no HOST:PORT" in cli("run", "q", "--to", "jsonl:x", "--metrics", "9")[2]
    assert b"omidpy_export" not in generate_latest()


@pytest.mark.parametrize("name", ["no_topic", "no_column", "old_fence"])
def test_a_receiver_that_refuses_everything_ends_the_exporter(
    cli: Cli, url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exit code 1, and nothing removed or set aside: it was poison, entry by entry, and 0."""
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.0)
    cli("create", "q", "--buckets", "1")
    add(url, *((b"%d" % number, number) for number in range(4)))
    code, _, err = cli("once", "q", "--exporter", f"exporters_of_a_test:{name}")
    assert code == 1
    assert "refuses everything" in err or "gets nowhere after" in err
    (found,) = json.loads(cli("status", "q", "--json")[1])
    assert (found["entries"], found["dead_letters"]) == (4, 0)
    assert cli("once", "q", "--exporter", "exporters_of_a_test:Keeps")[1].startswith("0 1 2 3\n")


def test_dead_letters_are_shown_tried_again_and_given_up(cli: Cli, url: str) -> None:
    """A queue whose key is parked goes on when its poison is given up."""
    cli("create", "q", "--buckets", "1")
    add(url, (b"a", 1), (b"a", 2))
    code, out, _ = cli("once", "q", "--exporter", "exporters_of_a_test:bad", "--max-attempts", "1")
    told = "delivered 0 entries of q; 2 are set aside: `omidpy export dlq list q`\n"
    assert (code, out) == (0, told)
    _, out, _ = cli("dlq", "list", "q", "--json")
    states = [(one["key"], one["value"], one["state"]) for one in json.loads(out)]
    assert states == [("a", 1, "poison"), ("a", 2, "waits")]
    assert "ValueError: no" in cli("dlq", "list", "q")[1]
    assert cli("dlq", "retry", "q", "--key", "b")[1] == "0 dead letters of q are tried again\n"
    assert cli("dlq", "retry", "q", "--key", "a")[1] == "1 dead letters of q are tried again\n"
    cli("once", "q", "--exporter", "exporters_of_a_test:bad", "--max-attempts", "1")
    assert cli("dlq", "drop", "q")[1].startswith("would give up 1 dead letters of q, as of ")
    assert cli("dlq", "drop", "q", "--apply")[1] == "gave up 1 dead letters of q\n"
    assert cli("once", "q", "--exporter", "exporters_of_a_test:Keeps")[1].startswith("2\n")


def test_what_nobody_has_looked_at_is_neither_given_up_nor_tried_again(cli: Cli, url: str) -> None:
    """A command that is given again, or late, gave up for ever what had been set aside since."""
    once = ("once", "q", "--exporter", "exporters_of_a_test:bad", "--max-attempts", "1")
    cli("create", "q", "--buckets", "1")
    add(url, (b"a", 1), (b"b", 2))
    cli(*once)
    as_of = json.loads(cli("dlq", "drop", "q", "--json")[1])["as_of"]
    assert cli("dlq", "list", "q")[1].endswith(f"as of {as_of}\n")
    assert cli("dlq", "retry", "q", "--key", "b")[1].startswith("1 ")
    add(url, (b"c", 3))
    cli(*once)
    shown = cli("dlq", "drop", "q", "--as-of", str(as_of))[1]
    assert shown.startswith(f"would give up 1 dead letters of q, as of {as_of}\n")
    for count in (1, 0):
        dropped = cli("dlq", "drop", "q", "--as-of", str(as_of), "--apply")[1]
        assert dropped == f"gave up {count} dead letters of q\n"
    assert cli("dlq", "retry", "q", "--as-of", str(as_of))[1].startswith("0 ")
    letters = json.loads(cli("dlq", "list", "q", "--json")[1])
    assert [one["key"] for one in letters] == ["b", "c"]
    assert all(one["changed_ts"] > as_of for one in letters)


def test_what_is_kept_is_delivered_again(cli: Cli, url: str) -> None:
    """Since ten minutes ago, say."""
    cli("create", "q", "--buckets", "1", "--keep", "1h")
    add(url, (b"a", 1))
    cli("once", "q", "--to", "jsonl:out")
    assert cli("replay", "q", "--since", "10m")[1] == "1 entries of q are to be delivered\n"
    assert cli("once", "q", "--to", "jsonl:out")[1] == "delivered 1 entries of q\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_delivers_until_it_is_told_to_stop(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    """And gives its buckets back."""

    def delivered() -> int:
        return sum(
            len(file.read_text("utf-8").splitlines()) for file in (tmp_path / "out").glob("*.jsonl")
        )

    with tso_server(url) as server:
        with omidpy.connect(url, server.address) as tm:
            ExportQueue.create(tm, "q", buckets=2)
        words = ["export", "run", "q", "--store", url, "--tso", server.address]
        words += ["--to", f"jsonl:{tmp_path / 'out'}", "--poll", "50ms", "--workers", "2"]
        daemon: Any = subprocess.Popen(
            ["omidpy", *words],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            add(url, *((b"%d" % n, n) for n in range(20)), tso=server.address)
            wait_for(lambda: delivered() == 20, LONGEST_S)
            daemon.send_signal(number)
            assert daemon.wait(LONGEST_S) == 0, daemon.stderr.read()
        finally:
            daemon.kill()
            daemon.wait()
            daemon.stderr.close()
        with omidpy.connect(url, server.address) as tm:
            assert {one.owner for one in ExportQueue.open(tm, "q").lag().buckets} == {None}


def test_a_queue_gets_other_buckets_and_says_how_many(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits in the old ones leaves first; without exporters the verb waits no longer."""
    monkeypatch.setattr(rebucketing, "SETTLE_S", 0.1)  # nobody else adds to this queue
    cli("create", "q", "--buckets", "2")
    assert cli("rebucket", "q", "--buckets", "2")[1] == "the queue q has 2 buckets\n"
    add(url, (b"a", 1))
    code, _, err = cli("rebucket", "q", "--buckets", "3", "--wait", "10ms")
    assert code == 1
    assert "has not got 3 buckets yet" in err
    cli("once", "q", "--to", "jsonl:out")
    out = cli("rebucket", "q", "--buckets", "3", "--json")[1]
    assert json.loads(out) == {"queue": "q", "buckets": 3}
    add(url, (b"a", 2))
    assert cli("once", "q", "--exporter", "exporters_of_a_test:Keeps")[1].startswith("2\n")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ExportQueue, "rebucket", interrupt)
    code, out, err = cli("rebucket", "q", "--buckets", "4")
    assert (code, out) == (130, "")
    assert "goes on with any exporter of this store" in err


def test_a_bucket_whose_state_cannot_be_read_is_repaired(cli: Cli, url: str) -> None:
    """It is shown, and holds up neither the others nor the verbs."""
    cli("create", "q", "--buckets", "2")
    add(url, *((b"%d" % number, number) for number in range(8)))
    with omidpy.connect(url) as tm:
        places = Places.of(tm.session.catalog, "q")
        tm.session.control.write(places.bucket(1, 0), b"{")
    code, _, err = cli("once", "q", "--to", "sqlite:out.db")
    assert code == 1
    assert "omidpy export repair q" in err
    assert "cannot be read" in cli("lag", "q")[1]
    assert cli("status")[0] == 0
    assert cli("repair", "q")[1].startswith("would repair 1 buckets of q\n")
    assert cli("drop", "q")[0] == 0
    assert json.loads(cli("repair", "q", "--apply", "--json")[1])["buckets"] == [0]
    assert cli("once", "q", "--to", "sqlite:out.db")[0] == 0
    assert json.loads(cli("lag", "q", "--json")[1])["entries"] == 0


def test_a_queue_that_cannot_be_read_does_not_hide_the_others(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it vanish; and one that is dropped just now is none."""
    for name in ("q", "bad", "other"):
        cli("create", name, "--buckets", "1")
    with omidpy.connect(url) as tm:
        tm.session.control.write(Places.of(tm.session.catalog, "bad").row(), b"{")
    names = ExportQueue.names

    def and_drop(tm: Any) -> list[str]:
        found = names(tm)
        ExportQueue.open(tm, "other").drop()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(ExportQueue, "names", and_drop)
        code, out, _ = cli("status")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["q", "bad"]
    assert "bad cannot be read" in out
    found = json.loads(cli("status", "--json")[1])
    assert [one["queue"] for one in found] == ["q", "bad"]
    assert "OMIDPY_EXPORT_bad" in found[1]["problem"]
    assert "--restate" in cli("lag", "bad")[2]
    assert cli("create", "bad", "--buckets", "1", "--restate")[0] == 0
    assert len(json.loads(cli("status", "--json")[1])) == 2
    code, _, err = cli("create", "bad", "--buckets", "1", "--restate")
    assert (code, "can be read" in err) == (1, True)


def test_entries_that_were_brought_by_hand_are_acknowledged(cli: Cli, url: str) -> None:
    """All of a transaction, or one of them; others stay."""
    cli("create", "q", "--buckets", "1")
    add(url, (b"a", 1), (b"b", 2), (b"c", 3))
    add(url, (b"a", 4))
    commit_ts = str(json.loads(cli("peek", "q", "--json")[1])[0]["commit_ts"])
    out = cli("ack", "q", "--commit-ts", commit_ts, "--ordinal", "1")[1]
    assert out == "1 entries of q count as delivered\n"
    assert [one["value"] for one in json.loads(cli("peek", "q", "--json")[1])] == [1, 3, 4]
    out = cli("ack", "q", "--commit-ts", commit_ts, "--json")[1]
    assert json.loads(out) == {"queue": "q", "acknowledged": 2}
    assert cli("ack", "q", "--commit-ts", commit_ts)[1].startswith("0 entries")
    assert cli("once", "q", "--exporter", "exporters_of_a_test:Keeps")[1].startswith("4\n")
