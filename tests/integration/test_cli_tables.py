"""`omidpy table create`, `drop` and `truncate` on a real file, and a daemon that finishes them."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

import omidpy
from omidpy import admin
from omidpy.admin.table_steps import Fence
from omidpy.base.tables import incarnation
from omidpy.cli import main
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.facts.tables.catalog import check_ours
from omidpy.facts.tables.removal import close
from omidpy.fate import Fate, TableFateStore
from omidpy.fate.client import OperationHandle
from omidpy.model import TableSchema
from tests.machines.documents import environment
from tests.machines.processes import tso_server

LONGEST_S: Final = 60.0
ROW: Final = {b"cf:q": b"v"}

Cli: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store with one table and a row in it."""
    found = f"sqlite:///{tmp_path}/s.db"
    with omidpy.connect(found) as tm:
        tm.create_table("t", ["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"r", ROW)
    return found


@pytest.fixture
def cli(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs a verb on the store and returns its exit code, stdout and stderr."""
    monkeypatch.setenv("OMIDPY_STORE", url)
    monkeypatch.delenv("OMIDPY_TSO", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(("table", *words))
        captured = capsys.readouterr()
        code = exit_info.value.code
        assert isinstance(code, int | None)
        return code or 0, captured.out, captured.err

    return run


def rows(url: str, table: str = "t") -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Return what a table holds."""
    with omidpy.connect(url) as tm, tm.begin(read_only=True) as tx:
        return list(tx.table(table).scan())


def test_without_apply_nothing_is_changed(cli: Cli, url: str) -> None:
    """And the command says what it would do."""
    with omidpy.connect(url) as tm:
        which = incarnation(tm.store.schema("t"))
    for words, done in [
        (("create", "new", "--families", "cf"), "create new"),
        (("drop", "t"), f"drop t, incarnation {which}"),
        (("truncate", "t"), f"truncate t, incarnation {which}"),
    ]:
        expected = f"would {done}\nnothing was changed; add --apply\n"
        assert cli(*words) == (0, expected, "")
    assert rows(url) == [(b"r", ROW)]
    with omidpy.connect(url) as tm:
        assert tm.tables() == ["t"]


def test_a_table_is_made_emptied_and_dropped(cli: Cli, url: str) -> None:
    """Each verb says what it did, and which operation it was."""
    words = ("create", "new", "--families", "cf,note", "--splits", "m", "--conflict-level", "row")
    assert cli(*words, "--apply") == (0, "created new\n", "")
    with omidpy.connect(url, conflict_level="row") as tm:
        with tm.begin() as tx:
            tx.table("new").put(b"r", ROW)
        assert len(tm.store.regions("new")) == 2
    code, out, err = cli("truncate", "t", "--apply", "--json")
    told = json.loads(out)
    assert (code, told["table"], told["applied"], err) == (0, "t", True, "")
    assert rows(url) == []
    with omidpy.connect(url) as tm:
        finished = TableFateStore(tm.store).existing(told["operation"])
        assert (finished.name, finished.status) == (admin.TABLE_KINDS[2], "SUCCESSFUL")
    assert cli("drop", "t", "--apply") == (0, "dropped t\n", "")
    with omidpy.connect(url) as tm:
        assert tm.tables() == ["new"]


def test_a_table_that_an_interrupted_drop_has_closed_is_kept(cli: Cli, url: str) -> None:
    """The error of who writes it names this command."""
    with omidpy.connect(url) as tm:
        close(tm.store, tm.store.schema("t"), "who is gone")
        with tm.begin() as tx, pytest.raises(ConfigError, match="table adopt t --reopen --apply"):
            tx.table("t")
    code, out, _ = cli("adopt", "t", "--reopen", "--apply")
    assert (code, out.splitlines()[0]) == (0, "adopted t: families cf")
    with omidpy.connect(url) as tm, tm.begin() as tx:
        tx.table("t").put(b"r", ROW)


@pytest.mark.parametrize("apply", [(), ("--apply",)])
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("drop", "absent"), 1, "there is no table 'absent'"),
        (("truncate", "absent"), 1, "there is no table 'absent'"),
        (("truncate", "OMID_COMMIT_TABLE"), 2, "OMID_COMMIT_TABLE"),
        (("create", "t", "--families", "cf"), 1, "table 't' exists already"),
        (("create", "a/b", "--families", "cf"), 2, "table name 'a/b'"),
        (("create", "new", "--families", ","), 2, "--families is ','"),
        (("create", "new", "--families", "cf", "--conflict-level", "page"), 2, "'page'"),
    ],
)
def test_what_cannot_be_done_is_named(
    cli: Cli, words: tuple[str, ...], code: int, message: str, apply: tuple[str, ...]
) -> None:
    """One line, with and without --apply, and the exit code says which kind of error it is."""
    found, out, err = cli(*words, *apply)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert message in err


def test_an_interrupt_says_who_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operation is kept, and need not be begun again.

    Nor should it: others may have finished it, and written to the table that it has made.
    """

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(OperationHandle, "result", interrupt)
    code, out, err = cli("drop", "t", "--apply")
    assert (code, out) == (130, "")
    assert "goes on: `omidpy fate run` with --tso finishes it, and `omidpy fate wait" in err
    assert "the same command again would drop t as it is by then" in err


@pytest.mark.parametrize("verb", ["drop", "truncate"])
def test_a_command_that_names_the_incarnation_is_given_again_without_harm(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Its answer was lost, it was done all the same, and others have made the table anew since."""
    which = json.loads(cli(verb, "t", "--json")[1])["incarnation"]
    result = OperationHandle.result

    def lost(handle: OperationHandle, **options: Any) -> Any:
        result(handle, **options)
        raise StorageUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(OperationHandle, "result", lost)
        code, _, err = cli(verb, "t", "--incarnation", which, "--apply")
    assert code == 1
    assert f"and with --incarnation {which} this one alone\nerror: no answer\n" in err
    with omidpy.connect(url) as tm:
        if verb == "drop":
            tm.create_table("t", ["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"later", ROW)
    for apply in ((), ("--apply",)):
        code, out, err = cli(verb, "t", "--incarnation", which, *apply)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"the incarnation {which} of table 't' is gone" in err
        assert "was left as it is" in err
    assert rows(url) == [(b"later", ROW)]


def test_a_command_that_names_the_incarnation_goes_on_with_what_is_under_way(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the table is gone by then; and one that somebody has kept is left to him."""
    which = json.loads(cli("drop", "t", "--json")[1])["incarnation"]
    removed = threading.Event()

    def fails(*_: object) -> None:
        removed.set()
        raise StorageUnavailable("for a while")

    def interrupted(*_: object) -> None:
        assert removed.wait(LONGEST_S)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Fence, "do", fails)
        patched.setattr(Fate, "wait_for", interrupted)
        assert cli("drop", "t", "--incarnation", which, "--apply")[0] == 130
    assert cli("drop", "t", "--incarnation", which, "--apply") == (0, "dropped t\n", "")
    with omidpy.connect(url) as tm:
        tm.create_table("t", ["cf"])
        which = incarnation(tm.store.schema("t"))
        close(tm.store, tm.store.schema("t"), "who is gone")
    cli("adopt", "t", "--reopen", "--apply")
    code, _, err = cli("drop", "t", "--incarnation", which, "--apply")
    assert code == 1
    assert "somebody has kept it" in err


def test_a_change_that_waits_says_why(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past its pivot it waits for as long as that takes, and nobody knew for what."""
    monkeypatch.setattr(admin.tables, "LOOK_S", 0.02)
    do = Fence.do
    tries: list[int] = []

    def fails_once(step: Fence, tools: admin.TableTools) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise StorageUnavailable("a region is nowhere")
        return do(step, tools)

    monkeypatch.setattr(Fence, "do", fails_once)
    code, out, err = cli("drop", "t", "--apply")
    assert (code, out, err.count("\n")) == (0, "dropped t\n", 1)
    assert "waits: try 1 past the pivot failed" in err
    assert "a region is nowhere" in err


def test_a_daemon_finishes_what_others_have_left(url: str) -> None:
    """It has the tables and the oracle once it is given an oracle's address."""
    with tso_server(url) as server, omidpy.connect(url, tso=server.address) as tm:
        kind, step, key = admin.truncation(tm, "t")
        handle = Fate(None, TableFateStore(tm.store)).submit(kind, step, key=key)
        words = ("omidpy", "fate", "run", "--store", url, "--tso", server.address)
        daemon = subprocess.Popen(
            [*words, "--poll", "20ms"], env=environment(), stderr=subprocess.DEVNULL
        )
        try:
            assert handle.result(LONGEST_S) == {"table": "t"}
            with tm.begin(read_only=True) as tx:
                assert list(tx.table("t").scan()) == []
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(LONGEST_S) == 0
        finally:
            daemon.kill()
            daemon.wait()


def test_settings_are_set_shown_and_taken_back(url: str, cli: Cli) -> None:
    """What a table asks of compactions, at its creation or later."""
    words = ("--families", "cf", "--priority", "-1", "--retention", "30d", "--every", "12h")
    limits = ("--max-rows-per-s", "100", "--max-bytes-per-s", "5MB", "--until", "06:00Z")
    code, _out, err = cli("create", "u", *words, *limits, "--apply")
    assert code == 0, err
    assert (cli("set", "t", "priority=5", "every=1d")[1]) == (
        "t would have priority=5 every=1d\nnothing was changed; add --apply\n"
    )
    assert cli("set", "t", "priority=5", "every=1d", "--apply")[1] == "t has priority=5 every=1d\n"
    shown = {one["table"]: one["settings"] for one in json.loads(cli("list", "--json")[1])}
    assert shown["t"] == {"priority": "5", "every": "1d"}
    assert shown["u"] == {
        "priority": "-1",
        "retention": "30d",
        "every": "12h",
        "max-rows-per-s": "100",
        "max-bytes-per-s": "5MB",
        "until": "06:00Z",
    }
    assert shown["OMIDPY_COMPACTION"] == {}
    assert "priority=5 every=1d" in cli("list")[1]
    assert cli("unset", "t", "priority", "every", "--apply")[1] == "t has no settings\n"
    shown = {one["table"]: one["settings"] for one in json.loads(cli("list", "--json")[1])}
    assert shown["t"] == {}
    assert rows(url) == [(b"r", ROW)]


def test_settings_are_those_of_the_table_that_was_looked_at(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one of its name may be meant to keep its past, or not."""

    def make_anew(schema: TableSchema) -> frozenset[bytes]:
        with omidpy.connect(url) as tm:
            tm.drop_table("t")
            tm.create_table("t", ["cf"])
        return check_ours(schema)

    monkeypatch.setattr("omidpy.cli.tables.settings.check_ours", make_anew)
    code, out, err = cli("set", "t", "retention=1s", "--apply")
    assert (code, out) == (1, "")
    assert "was dropped and made again, or adopted, just now" in err
    shown = {one["table"]: one["settings"] for one in json.loads(cli("list", "--json")[1])}
    assert shown["t"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "t", "priority=high"), "priority='high' of table 't': write an integer"),
        (("set", "t", "every"), "'every' is no setting"),
        (("set", "t", "colour=red"), "no setting 'colour'"),
        (("unset", "t", "colour"), "no setting 'colour'"),
        (("set", "OMID_COMMIT_TABLE", "priority=1"), "is reserved for Omid"),
        (("create", "u", "--families", "cf", "--every", "daily"), "every='daily' of table 'u'"),
    ],
)
def test_bad_settings_change_nothing(cli: Cli, words: tuple[str, ...], said: str) -> None:
    """The line names the table and the remedy."""
    code, out, err = cli(*words, "--apply")
    assert (code != 0, out) == (True, "")
    assert said in err
    shown = {one["table"]: one["settings"] for one in json.loads(cli("list", "--json")[1])}
    assert not any(shown.values())
    assert "u" not in shown


def test_nothing_is_in_doubt_about_a_table_that_no_one_restores_alone(cli: Cli) -> None:
    """A file is restored as a whole."""
    assert cli("accept", "t", "--apply") == (0, "nothing is in doubt about t\n", "")
    code, out, _ = cli("accept", "t", "--json")
    assert code == 0
    found = json.loads(out)
    assert found.pop("incarnation")
    assert found == {
        "table": "t",
        "doubtful": 0,
        "cells": 0,
        "applied": False,
        "doubtful_after": 0,
    }
    code, _, error = cli("accept", "nix")
    assert (code, "there is no table nix" in error) == (2, True)
