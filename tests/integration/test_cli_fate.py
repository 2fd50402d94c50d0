"""`omidpy fate` on a real file: what it prints, what it changes, how it exits; and its daemon."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import textwrap
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from omidpy.admin.table_steps import Make, Renewal
from omidpy.base.timing.clock import SystemClock
from omidpy.cli import main
from omidpy.cli.operations.common import PERHAPS_DONE
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.catalog import Catalog
from omidpy.facts.tables.makers import Makers
from omidpy.fate import Fate, Locks, Operation, TableFateStore
from omidpy.fate.admin import Admin
from omidpy.fate.operation import Failure, FateId, Status
from omidpy.fate.step import encode_step
from omidpy.fate.table.rows import GUARD, row_of
from omidpy.fate.table.store import FATE_TABLE, FORMAT_ROW
from omidpy.model import Column
from omidpy.reports import operations as reports
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.fate.basics import an_operation
from tests.machines.documents import environment
from tests.machines.waiting import wait_for

LONGEST_S: Final = 60.0
UNKNOWN: Final = "f" * 16

Cli: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Return a store without operations."""
    made = SqliteStore(tmp_path / "s.db")
    yield made
    made.close()


@pytest.fixture
def fates(store: SqliteStore) -> TableFateStore:
    """Return its operations."""
    return TableFateStore(store)


@pytest.fixture
def cli(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Cli:
    """Return what runs a command on the store and returns its exit code, stdout and stderr."""
    monkeypatch.setenv("OMIDPY_STORE", store.url)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(("fate", *words))
        captured = capsys.readouterr()
        code = exit_info.value.code
        assert isinstance(code, int | None)
        return code or 0, captured.out, captured.err

    return run


def made(fates: TableFateStore, status: Status, **changes: Any) -> Operation:
    """Keep an operation in some status."""
    operation = an_operation(status=status, **changes)
    assert fates.insert(operation)
    return operation


def everything(fates: TableFateStore) -> list[object]:
    """Return all that there is, to see that nothing was changed."""
    return sorted(fates.scan(), key=str)


# -- looking ---------------------------------------------------------------------------------------


def test_a_store_without_operations_has_none(cli: Cli, store: SqliteStore) -> None:
    """And looking makes no table."""
    assert cli() == (0, " 0 transactions\n", "")
    assert cli("status")[:2] == (0, "nothing is under way\n")
    assert cli("dump")[:2] == (0, "[]\n")
    assert json.loads(cli("summary", "--json")[1])["statusCounts"] == {}
    assert cli("dump", "--json") == cli("--dump", "-j") == (0, "[]\n", "")
    assert store.tables() == []


def test_operations_are_listed_by_verb_and_by_flag(cli: Cli, fates: TableFateStore) -> None:
    """With their locks, filtered by id, state and kind, for people and for scripts."""
    first = made(fates, Status.IN_PROGRESS, name="PRUNE")
    second = made(fates, Status.NEW, created_ms=2_000)
    Locks(fates).write("t", first.id)
    code, out, _ = cli("list")
    assert code == 0
    assert out.splitlines()[0].startswith(f"PRUNE           txid: {first.id}  status: IN_PROGRESS ")
    assert " locked: [W:t] " in out
    assert out.endswith(" 2 transactions\n")
    assert cli("--print") == cli("-list") == cli("print") == (0, out, "")
    for words in ((second.id,), ("-s", "NEW"), ("--state", "NEW,FAILED"), ("-t", "TEST")):
        found = cli(*words)
        assert found[0] == 0
        assert second.id in found[1]
        assert found[1].endswith(" 1 transactions\n")
    assert "Transaction details: {" in cli("-i", first.id)[1]
    (document,) = json.loads(cli("list", first.id, "--json")[1])
    assert document["id"] == first.id
    assert document["locks_held"] == ["W:(t,t:t)"]


def test_a_summary_counts_and_a_dump_shows_the_steps(cli: Cli, fates: TableFateStore) -> None:
    """As Accumulo's."""
    operation = made(fates, Status.IN_PROGRESS)
    code, out, _ = cli("--summary")
    assert code == 0
    assert "  IN_PROGRESS: 1" in out.splitlines()
    assert f"\t{operation.id}\tIN_PROGRESS\tTEST\tomidpy-testing.Leaf\theld:[]" in out
    assert json.loads(cli("--summary", "-j")[1])["cmdCounts"] == {"TEST": 1}
    (dumped,) = json.loads(cli("-dump", operation.id)[1])
    assert dumped["stack"] == [{"omidpy-testing.Leaf": {"number": 0, "text": ""}, "version": 1}]


def test_the_status_says_what_is_waited_for_now(cli: Cli, fates: TableFateStore) -> None:
    """What is finished is left out, unless it was asked for."""
    holder = made(fates, Status.IN_PROGRESS, name="PRUNE", progress="half", is_past_pivot=True)
    waits = made(fates, Status.SUBMITTED, created_ms=2_000)
    ended = made(
        fates,
        Status.FAILED,
        finished_ms=1_500,
        exception=Failure("no more"),
        undo_errors=(Failure("left"),),
    )
    Locks(fates).write("t", holder.id)
    Locks(fates).read("t", waits.id)
    code, out, _ = cli("status")
    assert code == 0
    lines = [line.split(maxsplit=1) for line in out.splitlines()]
    assert ["waits", "for  an executor"] in lines
    assert ["progress", "half"] in lines
    assert ["holds", "W:(t,t:t)"] in lines
    assert ["pivot", "passed: it only rolls forward"] in lines
    assert f"a READ lock on t: WRITE is held or wanted before by {holder.id} (PRUNE)" in out
    assert ended.id not in out
    code, out, _ = cli("status", ended.id)
    assert "  failed     no more\n  not undone left\n" in out
    (document,) = json.loads(cli("status", waits.id, "--json")[1])
    assert document["waiting_for"].startswith("a READ lock on t")


def test_a_live_status_looks_again_and_again(
    cli: Cli, fates: TableFateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is interrupted."""
    operation = made(fates, Status.SUBMITTED)
    looks: list[str] = []

    def change_and_stop(_: float) -> None:
        (found,) = fates.scan()
        assert isinstance(found, Operation)
        looks.append(found.waiting)
        if len(looks) == 2:
            raise KeyboardInterrupt
        fates.write(found, replace(found, waiting="the moon"))

    monkeypatch.setattr(time, "sleep", change_and_stop)
    code, out, _ = cli("status", "--live")
    assert looks == ["", "the moon"]
    assert code == 130
    assert operation.id in out
    assert "the moon" in out


# -- changing --------------------------------------------------------------------------------------


def test_what_is_asked_for_is_done_and_told(cli: Cli, fates: TableFateStore) -> None:
    """Verb or flag, several at once."""
    new, going, old = (
        made(fates, status) for status in (Status.NEW, Status.IN_PROGRESS, Status.SUCCESSFUL)
    )
    done = f"FaTE transaction {new.id} was cancelled or already completed.\n"
    assert cli("--cancel", new.id) == (0, done, "")
    assert cli("fail", going.id) == (0, f"Failing transaction: {going.id} (IN_PROGRESS)\n", "")
    code, out, _ = cli("-d", old.id, new.id)
    assert code == 0
    assert out == (
        f"Deleting transaction: {old.id} (SUCCESSFUL)\n"
        f"Deleting transaction: {new.id} (FAILED_IN_PROGRESS)\n"
    )
    (left,) = fates.scan()
    assert left.id == going.id
    (told,) = json.loads(cli("cancel", going.id, "--json")[1])
    assert told["outcome"] == "refused"


def test_one_that_is_running_is_not_cancelled(cli: Cli, fates: TableFateStore) -> None:
    """Exit code 1, and nothing is changed."""
    going = made(fates, Status.IN_PROGRESS)
    code, out, _ = cli("cancel", going.id)
    assert code == 1
    assert "was not cancelled, status may have changed" in out
    assert fates.read(going.id) == going


def test_one_that_is_reserved_too_long_has_an_exit_code_of_its_own(
    cli: Cli, fates: TableFateStore
) -> None:
    """3, and nothing is changed; a script may try again."""
    going = made(fates, Status.IN_PROGRESS)
    with Fate(None, fates, {"NONE": 1}) as fate:
        assert fate._executor._worker is not None
        held = fates.try_reserve(going, fate._executor._worker)
        for verb in ("fail", "delete"):
            code, out, err = cli(verb, going.id, "--for", "60ms")
            assert code == 3
            assert f"Could not {verb} {going.id} in a reasonable time." in out
            assert f"process {os.getpid()} on " in out
            assert err == f"Could not {verb} transaction: {going.id}\n"
    assert fates.read(going.id) == held


# -- waiting ---------------------------------------------------------------------------------------


def test_the_exit_code_of_a_wait_says_how_it_ended(cli: Cli, fates: TableFateStore) -> None:
    """0 only if all succeeded, 4 if one failed, 1 if nobody knows yet."""
    good = made(fates, Status.SUCCESSFUL, result={"n": 1})
    bad = made(fates, Status.FAILED, exception=Failure("no more"), undo_errors=(Failure("left"),))
    going = made(fates, Status.SUBMITTED, waiting="the moon")
    assert cli("wait", good.id) == (0, f"{good.id} SUCCESSFUL {{'n': 1}}\n", "")
    code, out, _ = cli("wait", good.id, bad.id)
    assert code == 4
    assert f"{bad.id} FAILED no more; not undone: left\n" in out
    code, out, _ = cli("wait", going.id, "--timeout", "10ms")
    assert (code, out) == (1, f"{going.id} SUBMITTED, still waiting for the moon\n")
    documents = json.loads(cli("wait", good.id, bad.id, "--json")[1])
    assert [one["status"] for one in documents] == ["SUCCESSFUL", "FAILED"]


def test_a_wait_ends_with_the_operation(
    cli: Cli, fates: TableFateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if somebody deletes it meanwhile."""
    going, gone = made(fates, Status.SUBMITTED), made(fates, Status.SUBMITTED)
    wait_for = Fate.wait_for

    def end(self: Fate, operation_id: str, timeout: float | None) -> Operation | None:
        if operation_id == going.id:
            fates.write(going, replace(going, status=Status.SUCCESSFUL))
        else:
            fates.delete(gone)
        return wait_for(self, operation_id, timeout)

    monkeypatch.setattr(Fate, "wait_for", end)
    assert cli("wait", going.id)[:2] == (0, f"{going.id} SUCCESSFUL\n")
    code, _, err = cli("wait", gone.id)
    assert code == 1
    assert "is gone, and its outcome with it" in err


def test_a_wait_shows_a_bar_on_a_terminal_and_ends_with_an_interrupt(
    fates: TableFateStore, store: SqliteStore
) -> None:
    """A real ^C: exit code 130, a word of what goes on, and nothing is changed."""
    going = made(fates, Status.IN_PROGRESS, name="PRUNE", progress="half of it")
    ours, theirs = pty.openpty()
    command = ["omidpy", "fate", "wait", going.id, "--store", store.url]
    # What a shell started in the background ignores SIGINT, and so does what that starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.DEVNULL, stderr=theirs, env=environment()
    )
    signal.signal(signal.SIGINT, before)
    os.close(theirs)
    shown = ""
    try:
        while "half of it" not in shown:
            shown += os.read(ours, 4096).decode(errors="replace")
        assert f"PRUNE {going.id}" in shown
        process.send_signal(signal.SIGINT)
        with suppress(OSError):  # a terminal whose program has ended
            while more := os.read(ours, 4096):
                shown += more.decode(errors="replace")
        assert process.wait(LONGEST_S) == 130
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "interrupted; the operations go on as they are" in shown
    assert fates.read(going.id) == going


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["list", "summary", "status", "dump", "wait"])
def test_an_unknown_id_is_an_error(cli: Cli, fates: TableFateStore, verb: str) -> None:
    """A script that mistypes one must not go on."""
    made(fates, Status.NEW)
    code, _, err = cli(verb, UNKNOWN)
    assert code == 1
    assert f"there is no operation {UNKNOWN}" in err


@pytest.mark.parametrize("verb", ["cancel", "fail", "delete"])
def test_an_unknown_id_is_not_changed(cli: Cli, fates: TableFateStore, verb: str) -> None:
    """In Accumulo's words."""
    made(fates, Status.NEW)
    before = everything(fates)
    assert cli(verb, UNKNOWN)[:2] == (1, f"Invalid transaction ID: {UNKNOWN}\n")
    assert everything(fates) == before


@pytest.mark.parametrize("verb", ["list", "cancel", "fail", "delete", "wait"])
def test_of_several_ids_one_malformed_spoils_all(
    cli: Cli, fates: TableFateStore, verb: str
) -> None:
    """Nothing is changed, not even the first."""
    operation = made(fates, Status.NEW)
    before = everything(fates)
    code, out, err = cli(verb, operation.id, "0c14")
    assert (code, out) == (2, "")
    assert "Invalid transaction ID: '0c14'" in err
    assert everything(fates) == before


def test_two_changes_at_once_are_refused(cli: Cli, fates: TableFateStore) -> None:
    """Exit code 2, in Accumulo's words."""
    operation = made(fates, Status.NEW)
    before = everything(fates)
    code, _, err = cli("--cancel", "--delete", operation.id)
    assert code == 2
    assert "one of the following at a time: cancel, fail or delete." in err
    assert cli("--delete")[0] == 2
    assert everything(fates) == before


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("list", "-s", "ASLEEP"), "--state 'ASLEEP' is none of"),
        (("fail", UNKNOWN, "--for", "soon"), "--for='soon' is no duration"),
        (("wait", UNKNOWN, "--timeout", "7"), "--timeout='7' is no duration"),
        (("run", "--module", "no.such.module"), "there is no module 'no.such.module'"),
        (("run", "--env", "json"), "--env 'json' names no function"),
        (("run", "--env", "json:nothing"), "--env 'json:nothing' names no function"),
        (("run", "--pool", "PRUNE"), "--pool 'PRUNE' is none; write for instance PRUNE,HEAL=1"),
        (("run", "--pool", "PRUNE=²"), "--pool 'PRUNE=²' is none"),
        (("run", "--pool", "PRUNE=0"), "pool 'PRUNE' has 0 threads"),
        (("run", "--pool", "PRUNE=99999999"), "the threads of pool 'PRUNE' must be 1000 at most"),
        (("run", "--lease", "x"), "--lease='x' is no duration"),
        (("list", "--store", "zk://"), "is no address of ZooKeeper"),
        (("list", "--store", "sqlite:///no/such.db"), "no directory"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    cli: Cli, words: tuple[str, ...], complaint: str
) -> None:
    """Exit code 2, with what to write instead."""
    code, out, err = cli(*words)
    assert (code, out) == (2, "")
    assert complaint in err


def test_what_is_shown_to_prometheus_ends_with_the_command(cli: Cli) -> None:
    """A second one in the process has the names for itself, and none reads a store that is shut."""
    for _ in range(2):
        assert "is no HOST:PORT" in cli("run", "--metrics", "9")[2]
    assert b"omidpy_fate" not in generate_latest()


def test_what_does_not_parse_is_shown_and_not_touched(
    cli: Cli, fates: TableFateStore, store: SqliteStore
) -> None:
    """It hides no other operation; whoever asks for it is told the cell."""
    good, bad = made(fates, Status.SUBMITTED), made(fates, Status.SUBMITTED)
    put = Put(b"txadmin", b"status", 1, b"{")
    store.write({FATE_TABLE: [RowMutation(row_of(bad.id), [put])]})
    cells = store.get(FATE_TABLE, [row_of(bad.id)])
    code, out, _ = cli("list")
    assert code == 0
    assert good.id in out
    assert f"txid: {bad.id}  OMIDPY_FATE row" in out
    assert "cannot be read: " in cli("status")[1]
    for verb in ("cancel", "fail", "delete", "wait"):
        code, _, err = cli(verb, bad.id)
        assert code == 1
        assert "txadmin:status" in err
    assert store.get(FATE_TABLE, [row_of(bad.id)]) == cells


@pytest.mark.parametrize("verb", ["list", "summary", "status"])
def test_a_queue_that_does_not_parse_is_named(cli: Cli, fates: TableFateStore, verb: str) -> None:
    """And hides nothing else: it is an obstacle of its own table."""
    operation = made(fates, Status.FAILED)
    assert fates.swap_lock_queue("t", None, b"{")
    code, out, _ = cli(verb, operation.id)
    assert code == 0
    assert operation.id in out
    assert "the queue for locks on table 't' holds b'{'" in out
    assert "omidpy fate repair" in out
    assert cli("delete", operation.id)[0] == 0
    assert fates.read(operation.id) is None


def test_what_is_damaged_is_shown_and_repaired(
    cli: Cli, fates: TableFateStore, store: SqliteStore
) -> None:
    """First looked at, then done, then nothing is left to do."""
    good, bad = made(fates, Status.SUBMITTED), made(fates, Status.SUBMITTED)
    assert cli("repair") == (0, "nothing is damaged\n", "")
    put = Put(b"txadmin", b"status", 1, b'"ASLEEP"')
    store.write({FATE_TABLE: [RowMutation(row_of(bad.id), [put])]})
    assert fates.swap_lock_queue("t", None, b"{")
    for _ in range(2):
        code, out, _ = cli("repair")
        assert code == 0
        assert f"would: operation {bad.id} is removed with its key and its locks" in out
        assert "would: the queue for locks on t keeps nobody" in out
        assert out.endswith("nothing was changed; add --apply\n")
    assert cli("repair", good.id)[0] == 1
    assert cli("repair", "t", "--apply")[0] == 0
    assert [cells.id for cells in fates.scan()] != [good.id]
    code, out, _ = cli("repair", "--apply", "--json")
    assert (code, [one["what"] for one in json.loads(out)]) == (0, [bad.id])
    assert list(fates.scan()) == [good]
    assert cli("repair")[1] == "nothing is damaged\n"


def test_a_delete_past_the_pivot_must_be_asked_for(cli: Cli, fates: TableFateStore) -> None:
    """Nobody finishes it then, nor takes it back."""
    operation = made(fates, Status.IN_PROGRESS, is_past_pivot=True)
    code, out, _ = cli("delete", operation.id)
    assert code == 1
    assert "--past-pivot deletes it" in out
    assert fates.read(operation.id) == operation
    assert cli("delete", operation.id, "--past-pivot")[0] == 0
    assert fates.read(operation.id) is None


def test_a_deleted_operation_makes_no_table_any_more(
    cli: Cli, fates: TableFateStore, store: SqliteStore
) -> None:
    """Its executor may be stopped right before the call, and go on whenever it likes."""
    ControlTable(store).create()
    schema = (
        Catalog(store, SystemClock(), conflict_level="cell").plan("accounts", ["cf"], [], {}).schema
    )
    stack = (encode_step(Make("accounts", Renewal(schema, is_first=True))),)
    operation = made(fates, Status.IN_PROGRESS, stack=stack)
    assert cli("delete", operation.id)[0] == 0
    assert not Makers(store).make_table(schema, ())
    assert "accounts" not in [one.name for one in store.tables()]


def test_a_store_of_a_newer_format_is_refused(
    cli: Cli, fates: TableFateStore, store: SqliteStore
) -> None:
    """Exit code 2, and nothing is changed."""
    operation = made(fates, Status.NEW)
    put = Put(*Column(*GUARD), 1, b"3")
    store.write({FATE_TABLE: [RowMutation(FORMAT_ROW, [put])]})
    for words in (("list",), ("delete", operation.id), ("run",)):
        code, _, err = cli(*words)
        assert code == 2
        assert "reads up to 2; upgrade omidpy" in err
    assert fates.read(operation.id) == operation


def test_an_interrupted_command_changes_nothing(
    cli: Cli, fates: TableFateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says what goes on, or that nobody knows."""
    going = made(fates, Status.IN_PROGRESS)
    with Fate(None, fates, {"NONE": 1}) as fate:
        assert fate._executor._worker is not None
        held = fates.try_reserve(going, fate._executor._worker)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(reports, "Admin", partial(Admin, sleep=interrupt))
        monkeypatch.setattr(Fate, "wait_for", interrupt)
        for verb in ("fail", "delete", "wait"):
            code, _, err = cli(verb, going.id)
            assert code == 130
            goes_on = "the operations go on as they are" if verb == "wait" else PERHAPS_DONE
            assert err == f"interrupted; {goes_on}\n"
        assert list(fates.worker_names()) == [fate._executor._worker.id]
    assert fates.read(going.id) == held


# -- the daemon ------------------------------------------------------------------------------------

SHOP: Final = """
    import pathlib, time
    from omidpy.fate import Done, Step, step

    @step(version=1)
    class Pay(Step):
        who: str

        def call(self, tx, env):
            pathlib.Path("paying").touch()
            while not pathlib.Path("may-pay").exists():
                if tx.is_stopping:
                    return self.again()
                time.sleep(0.01)
            return Done([self.who, env if env == "entered" else "default"])

    class Env:
        def __enter__(self):
            return "entered"

        def __exit__(self, *_):
            pathlib.Path("left").touch()

    def make(fates):
        assert fates.url
        return Env()
"""


class Daemon:
    """`omidpy fate run` in a folder with a module `shop`."""

    def __init__(self, folder: Path, url: str, *options: str) -> None:
        """Start it, and wait until it runs."""
        (folder / "shop.py").write_text(textwrap.dedent(SHOP))
        options = ("--module", "shop", "--lease", "2s", "--poll", "20ms", *options)
        self.process = subprocess.Popen(
            ["omidpy", "fate", "run", "--store", url, *options],
            cwd=folder,
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.said: list[str] = []
        while (line := self.process.stderr.readline()) and not line.startswith("running oper"):
            self.said.append(line)
        assert line, self.said
        self._reader = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._reader.start()

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Return the exit code."""
        try:
            return self.process.wait(LONGEST_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join()
            assert self.process.stderr is not None
            self.process.stderr.close()


StartDaemon: TypeAlias = Callable[..., Daemon]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[StartDaemon]:
    """Return what starts a daemon on the store, with options; none outlives its test."""
    started: list[Daemon] = []

    def start(*options: str) -> Daemon:
        started.append(Daemon(tmp_path, f"sqlite:///{tmp_path}/s.db", *options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.wait()


PAY: Final = b'{"step":"shop.Pay","version":1,"fields":{"who":"ann"}}'


def test_the_daemon_runs_what_others_submit(
    fates: TableFateStore, tmp_path: Path, daemon: StartDaemon
) -> None:
    """With the module and the environment that it was given; SIGTERM ends both in good order."""
    submitted = fates.submit(an_operation(stack=(PAY,), name="PAY"))
    assert fates.read(FateId(submitted.id)) is not None
    (tmp_path / "may-pay").touch()
    running = daemon("--env", "shop:make", "--pool", "PAY=1")
    ended = Fate(None, fates, {}).get(submitted.id)
    assert ended.result(timeout=LONGEST_S) == ["ann", "entered"]
    assert running.end(signal.SIGTERM) == 0
    assert (tmp_path / "left").exists()
    assert fates.worker_names() == {}


def test_the_daemon_serves_the_numbers_of_all_operations(
    fates: TableFateStore, tmp_path: Path, daemon: StartDaemon
) -> None:
    """Those that a summary counts; an address that is none ends it."""
    made(fates, Status.FAILED, name="SHOP", finished_ms=2_000)
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    running = daemon("--metrics", f"127.0.0.1:{port}")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LONGEST_S) as answer:
        page = answer.read().decode()
    assert 'omidpy_fate_operations{kind="SHOP",status="FAILED"} 1.0' in page
    assert "omidpy_fate_unreadable 0.0" in page
    assert running.end(signal.SIGTERM) == 0


def test_a_daemon_that_is_told_to_stop_gives_its_operations_back(
    fates: TableFateStore, tmp_path: Path, daemon: StartDaemon
) -> None:
    """^C as SIGTERM; nothing has failed, and the next one goes on."""
    submitted = fates.submit(an_operation(stack=(PAY,), name="PAY"))
    running = daemon()
    wait_for((tmp_path / "paying").exists, LONGEST_S)
    assert running.end(signal.SIGINT) == 0
    found = fates.existing(submitted.id)
    assert (found.status, found.reservation) == (Status.IN_PROGRESS, None)
    (tmp_path / "may-pay").touch()
    again = daemon()
    result = Fate(None, fates, {}).get(submitted.id).result(timeout=LONGEST_S)
    assert result[0] == "ann"
    assert again.end(signal.SIGTERM) == 0


def test_a_daemon_that_is_killed_leaves_its_operations_to_the_next(
    fates: TableFateStore, tmp_path: Path, daemon: StartDaemon
) -> None:
    """At once on this machine: a lock tells that its process is gone."""
    submitted = fates.submit(an_operation(stack=(PAY,), name="PAY"))
    running = daemon()
    wait_for((tmp_path / "paying").exists, LONGEST_S)
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    assert fates.existing(submitted.id).reservation is not None
    (tmp_path / "may-pay").touch()
    again = daemon()
    assert Fate(None, fates, {}).get(submitted.id).result(timeout=LONGEST_S)[0] == "ann"
    assert again.end(signal.SIGTERM) == 0
