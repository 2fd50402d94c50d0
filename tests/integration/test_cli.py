"""The `omidpy` command on a real file: what it prints, what it changes, and how it exits."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

import omidpy.cli.compaction.compact
from compactor.report import RunLog, RunRecord
from compactor.shell.job import parser
from omidpy.base.cells import encode_long, shadow_qualifier
from omidpy.base.timing.clock import SystemClock
from omidpy.cli import main
from omidpy.facts.commit_table import FIRST_TIMESTAMP_FACT
from omidpy.facts.control import ControlTable
from omidpy.facts.holds import HeldSnapshot
from omidpy.facts.watermarks import Watermarks
from omidpy.model import FamilySchema, TableSchema, Timestamp
from omidpy.opening import open_store
from omidpy.storage.base import Put, RowMutation
from omidpy.storage.sqlite.queries.reads import url_of
from omidpy.storage.sqlite.store import SqliteStore
from tests.machines.cells import World
from tests.machines.documents import environment

ROOT: Final = Path(__file__).parents[2]

Cli: TypeAlias = Callable[..., tuple[int, str, str]]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return the address of a store in the middle of its life."""
    path = tmp_path / "s.db"
    world = World(SqliteStore(str(path)))
    world.table(splits=[b"m"])
    world.put(b"a", 100)
    world.enter(100, 150)
    world.put(b"z", 200)
    world.table("java", owner=None)
    world.put(b"a", 300, table="java")
    world.enter(300, 350)
    world.store.close()
    return f"sqlite:///{path}"


@pytest.fixture
def cli(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs a command on the store and returns its exit code, stdout and stderr."""
    monkeypatch.setenv("OMIDPY_STORE", url)
    monkeypatch.delenv("OMIDPY_TSO", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_info:
            main(words)
        captured = capsys.readouterr()
        code = exit_info.value.code
        assert isinstance(code, int | None)
        return code or 0, captured.out, captured.err

    return run


def document(cli: Cli, *words: str, code: int = 0) -> Any:
    """Run a command with --json and return what it printed."""
    found, out, _ = cli(*words, "--json")
    assert found == code, out
    return json.loads(out)


def reopened(url: str) -> World:
    """Open the store again, to look at it."""
    return World(SqliteStore(url.removeprefix("sqlite:///")))


def test_compact_prints_the_report_and_nothing_else(cli: Cli, tmp_path: Path) -> None:
    """Scripts parse stdout; progress goes to stderr."""
    report = tmp_path / "report.json"
    found = document(cli, "compact", "--grace", "0s", "--report", str(report), code=3)
    assert (found["cells_healed"], found["cells_dropped"]) == (1, 1)
    assert [one["table"] for one in found["laggards"]] == ["java"]
    assert json.loads(report.read_text()) == found


def test_compact_without_json_is_for_a_person(cli: Cli) -> None:
    """It names what holds the horizon back, and the remedy."""
    code, out, _ = cli("compact", "run", "--grace", "0s")
    assert code == 3
    assert "healed       1 cells" in out
    assert "commits that began above 0 are kept:" in out
    assert "omidpy table adopt java" in out


def test_dry_run_changes_nothing(cli: Cli, url: str) -> None:
    """Not even the record of a run."""
    before = reopened(url).image()
    assert document(cli, "compact", "--dry-run", code=3)["dry_run"]
    assert reopened(url).image() == before


def test_options_are_those_of_the_spark_job() -> None:
    """One documentation serves both."""
    job = {action.dest for action in parser()._actions} - {"help"}
    here = set(inspect.signature(omidpy.cli.compaction.compact.run).parameters)
    assert here == (job - {"json"}) | {"as_json"}


def test_resume_goes_on_with_a_killed_run_or_begins_one(cli: Cli, url: str) -> None:
    """A script may always give it; the help of both commands says what it is."""
    assert document(cli, "compact", "--resume", code=3)["cells_healed"] == 1
    assert "no run to resume" in reopened_runs(url)[-1].notes[0]
    code, out, _ = cli("compact", "run", "--help")
    # Without the dashes: where colours are forced on, they come between.
    assert (code, "resume" in out) == (0, True)
    assert parser().parse_args(["--store", "s", "--resume"]).resume
    assert "--resume" in parser().format_help()


def reopened_runs(url: str) -> list[RunRecord]:
    """Return the recorded runs of a store."""
    return RunLog(reopened(url).control).runs()


def test_commit_table_stats(cli: Cli) -> None:
    """Entries, invalidations and the oldest row."""
    assert document(cli, "commit-table", "stats") == {
        "entries": 2,
        "invalidations": 0,
        "oldest_start_ts": 100,
    }
    code, out, _ = cli("commit-table", "stats")
    assert code == 0
    assert "entries          2" in out


def test_watermarks_name_what_holds_the_horizon_back(cli: Cli) -> None:
    """Before the first run everything does, after it only what is not ours."""
    before = document(cli, "watermarks")
    assert {one["table"] for one in before["laggards"]} == {"t", "java"}
    document(cli, "compact", code=3)
    after = document(cli, "watermarks")
    assert {one["table"]: one["watermark"] for one in after["tables"]} == {"t": 1000, "java": 0}
    assert [one["table"] for one in after["laggards"]] == ["java"]
    assert len(after["claims"]) == 2
    code, out, _ = cli("watermarks")
    assert code == 0
    assert "held back by java [start, end) at 0" in out


def test_status(cli: Cli) -> None:
    """One page: who decides, how far, whose tables, how many entries."""
    found = document(cli, "status")
    assert found["low_watermark"] == 1000
    assert found["oracle"] is None
    assert found["tables"]["owned"] == ["t"]
    assert found["tables"]["blocking"] == ["java"]
    assert found["commit_table"]["entries"] == 2
    code, out, _ = cli("status")
    assert code == 0
    assert "none holds the lease" in out


def test_status_fails_if_the_oracle_asked_for_does_not_answer(cli: Cli) -> None:
    """A health check needs the exit code, a person the reason; both get the rest."""
    code, out, _ = cli("status", "--tso", "127.0.0.1:1", "--json")
    assert code == 1
    assert json.loads(out)["oracle"]["answers"] is False
    code, out, _ = cli("status", "--tso", "127.0.0.1:1")
    assert code == 1
    assert "does not answer" in out


def test_a_lost_zookeeper_is_told_in_one_line(url: str) -> None:
    """In a process of its own: there the tries of the library would be on stderr as well."""
    asked = ("status", "--store", url, "--tso", "zk://127.0.0.1:1/omid?timeout=500ms")
    said = subprocess.run(
        [sys.executable, "-c", "from omidpy.cli import main; main()", *asked],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (1, "")
    assert "ZooKeeper at 127.0.0.1:1 does not answer" in said.stdout


def test_compact_checks_the_oracle_it_is_given(cli: Cli, url: str) -> None:
    """A wrong address is better found before the work than after."""
    before = reopened(url).image()
    code, out, err = cli("compact", "--tso", "127.0.0.1:1")
    assert (code, out) == (1, "")
    assert err.startswith("error: no oracle answers at 127.0.0.1:1")
    assert reopened(url).image() == before


def test_history_and_show(cli: Cli) -> None:
    """What happened last night."""
    document(cli, "compact", "--resume", code=3)
    document(cli, "compact", code=3)
    runs = document(cli, "compact", "history")
    assert [run["report"]["cells_healed"] for run in runs] == [1, 0]
    shown = document(cli, "compact", "show", runs[0]["run_id"])
    assert shown == runs[0]
    code, out, _ = cli("compact", "show", runs[0]["run_id"])
    assert code == 0
    assert f"run        {shown['run_id']}" in out
    assert "state      held back" in out
    assert "\nnote: there is no run to resume" in out
    assert "healed       1 cells" in out
    assert "held back by java" in out
    assert "\nt: 2 ranges" in out
    code, _, err = cli("compact", "show", "0")
    assert code == 2
    assert "2 runs" in err


def test_plot_of_the_runs(cli: Cli, tmp_path: Path) -> None:
    """A picture, or a clear word about why there is none."""
    picture = tmp_path / "runs.png"
    code, _, err = cli("compact", "plot", "--output", str(picture))
    assert code == 2
    assert "omidpy compact" in err
    document(cli, "compact", code=3)
    document(cli, "compact", "plot", "--output", str(picture))
    code, out, err = cli("compact", "plot", "--output", str(tmp_path))
    assert (code, out, "write .png, .svg or .pdf" in err) == (2, "", True)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_init_sets_a_store_up_and_leaves_one_alone(cli: Cli, tmp_path: Path) -> None:
    """The first command on a new store."""
    new = f"sqlite:///{tmp_path}/new.db"
    first = document(cli, "init", "--store", new)
    assert "OMID_COMMIT_TABLE" in first["tables"]
    assert document(cli, "init", "--store", new) == first
    assert document(cli, "commit-table", "stats", "--store", new)["entries"] == 0


def test_a_store_can_be_looked_at_before_it_is_set_up(cli: Cli, tmp_path: Path) -> None:
    """Nobody should have to write before they know what is there."""
    path = tmp_path / "a & b.db"
    store = SqliteStore(str(path))
    store.create_table(TableSchema("people", [FamilySchema(b"cf")]))
    shadow = Put(b"cf", shadow_qualifier(b"q"), 100, encode_long(150))
    store.create_table(TableSchema("java", [FamilySchema(b"cf")]))
    store.write({"java": [RowMutation(b"r", [shadow])]})
    store.close()
    at = ("--store", url_of(str(path)))
    looks: list[tuple[str, ...]] = [
        ("table", "list"),
        ("status",),
        ("commit-table", "stats"),
        ("watermarks",),
        ("compact", "history"),
        ("tx", "outcome", "100"),
        ("tx", "inspect", "100"),
        ("table", "adopt", "people"),
        ("table", "ignore", "java"),
        ("init", "--dry-run"),
    ]
    for words in looks:
        code, out, err = cli(*words, *at)
        assert (code, bool(out)) == (0, True) or words == ("compact", "history")
        if words[0] != "init":
            assert err.startswith("note: sqlite:///")
            assert f"run `omidpy init --store '{at[1]}'`, or check the address" in err
    assert {one["table"]: one["standing"] for one in document(cli, "table", "list", *at)} == {
        "java": "blocking",
        "people": "plain",
    }
    found = document(cli, "status", *at)
    assert (found["low_watermark"], found["commit_table"]["entries"]) == (0, 0)
    assert document(cli, "init", "--dry-run", *at)["missing"] == [
        "OMIDPY_COMPACTION",
        "OMID_COMMIT_TABLE",
        "OMID_TIMESTAMP_TABLE",
    ]
    for words in (("compact", "run"), ("table", "adopt", "people", "--apply")):
        assert cli(*words, *at)[0] == 2
    document(cli, "init", *at)
    assert document(cli, "init", "--dry-run", *at) == {"missing": []}
    assert cli("table", "list", *at)[2] == ""


def test_inspecting_a_large_transaction_shows_some_of_its_cells(cli: Cli, url: str) -> None:
    """A screen full, and how many more there are; all of them for whoever asks."""
    world = reopened(url)
    for number in range(25):
        world.put(b"row%02d" % number, 600)
    _, out, _ = cli("tx", "inspect", "600")
    assert (out.count("b'row"), out.splitlines()[-1]) == (20, "and 5 more cells; --all lists them")
    _, out, _ = cli("tx", "inspect", "600", "--all")
    assert (out.count("b'row"), "more cells" in out) == (25, False)
    assert len(document(cli, "tx", "inspect", "600")["cells"]) == 25


# -- tables ----------------------------------------------------------------------------------------


def standings(cli: Cli) -> dict[str, str]:
    """Return what `table list` says of each table."""
    return {one["table"]: one["standing"] for one in document(cli, "table", "list")}


def test_adopting_a_table_of_javas(cli: Cli, url: str) -> None:
    """A dry run first; then its cells are healed like ours and it no longer blocks."""
    before = reopened(url).image()
    plan = document(cli, "table", "adopt", "java")
    assert plan["families"] == ["cf"]
    assert not plan["applied"]
    assert reopened(url).image() == before
    assert standings(cli)["java"] == "blocking"
    assert document(cli, "table", "adopt", "java", "--apply")["applied"]
    assert standings(cli)["java"] == "owned"
    report = document(cli, "compact", "--grace", "0s")
    assert (report["laggards"], report["entries_pruned"]) == ([], 2)
    assert reopened(url).shadows("java") == {(b"a", 300): 350}


def test_adopting_refuses_cells_that_would_be_dropped(cli: Cli, url: str) -> None:
    """They may be plain data that somebody wrote beside the transactions."""
    reopened(url).put(b"b", 400, table="java")
    code, out, _ = cli("table", "adopt", "java")
    assert code == 0
    assert "1 cells of java have neither" in out
    assert "--accept-undecided" not in cli("table", "adopt", "java", "--accept-undecided")[1]
    code, _, err = cli("table", "adopt", "java", "--apply")
    assert code == 2
    assert "--accept-undecided" in err
    assert standings(cli)["java"] == "blocking"
    document(cli, "table", "adopt", "java", "--apply", "--accept-undecided")
    assert standings(cli)["java"] == "owned"


def test_adopting_takes_every_family_unless_fewer_are_named(cli: Cli, url: str) -> None:
    """What is left out is told, with what it means; the rest is never touched."""
    world = reopened(url)
    world.table("mixed", families=(), plain_families=(b"tx", b"log"), owner=None)
    cell = world.put(b"a", 100, table="mixed", family=b"tx")
    world.heal(cell, 150, table="mixed")
    world.put(b"a", 40, table="mixed", family=b"log")
    ControlTable(world.store).write(FIRST_TIMESTAMP_FACT, encode_long(50))
    code, out, _ = cli("table", "adopt", "mixed")
    assert code == 0
    assert "would adopt mixed: families log, tx" in out
    assert "  log: 1 cells, 0 shadow cells, 1 of plain data\n" in out
    assert "1 cells of plain data would get shadow cells" in out
    code, out, _ = cli("table", "adopt", "mixed", "--families", "tx", "--apply")
    assert code == 0
    assert "adopted mixed: families tx\n" in out
    assert "log: 1 cells, 0 shadow cells, 1 of plain data; left out: a transaction's" in out
    document(cli, "compact", code=3)
    assert (b"a", b"q", 40, b"v") in reopened(url).data("mixed")
    assert len(reopened(url).data("mixed")) == 2
    assert cli("table", "adopt", "mixed", "--families", "log")[0] == 2
    code, out, _ = cli("table", "adopt", "mixed", "--apply")
    assert "  log: 1 cells, 1 shadow cells\n" in out, "nothing is plain any more"
    found = document(cli, "table", "adopt", "mixed", "--apply")
    assert (found["families"], found["families_left_out"]) == (["log", "tx"], [])
    assert found["cells_by_family"]["log"]["shadow_cells"] == 1


def test_adopting_plain_data_gives_it_shadow_cells(cli: Cli, url: str) -> None:
    """Only below the first timestamp of an oracle: above it, a cell may be an aborted one's."""
    world = reopened(url)
    world.table("plain", families=(), plain_families=(b"cf",), owner=None)
    world.store.set_family_attributes("plain", b"cf", {"VERSIONS": "1"})
    world.put(b"a", 40, table="plain")
    code, _, err = cli("table", "adopt", "plain", "--apply", "--alter-families")
    assert (code, "no oracle has started" in err) == (2, True)
    ControlTable(world.store).write(FIRST_TIMESTAMP_FACT, encode_long(50))
    code, _, err = cli("table", "adopt", "plain")
    assert (code, "--alter-families" in err) == (2, True)
    before = world.image()
    code, out, _ = cli("table", "adopt", "plain", "--alter-families")
    assert code == 0
    assert "1 cells of plain data would get shadow cells" in out
    assert "keeps all versions, for ever, then" in out
    assert world.image() == before
    assert world.store.schema("plain").families[0].attributes == {"VERSIONS": "1"}
    found = document(cli, "table", "adopt", "plain", "--alter-families", "--apply")
    assert (found["cells_converted"], found["families_altered"]) == (1, ["cf"])
    assert world.shadows("plain") == {(b"a", 40): 40}
    assert standings(cli)["plain"] == "owned"


def test_ignoring_unblocks_the_horizon_and_adopting_takes_it_back(cli: Cli) -> None:
    """The operator's word, until the next one."""
    assert not document(cli, "table", "ignore", "java")["applied"]
    assert standings(cli)["java"] == "blocking"
    document(cli, "table", "ignore", "java", "--apply")
    assert standings(cli)["java"] == "ignored"
    assert document(cli, "compact", "--grace", "0s")["laggards"] == []
    document(cli, "table", "adopt", "java", "--apply", "--accept-undecided")
    assert standings(cli)["java"] == "owned"


def test_a_family_without_the_mark_is_listed_and_can_be_ignored(cli: Cli, url: str) -> None:
    """Of a table of ours; what was adopted cannot be given up."""
    world = reopened(url)
    world.table("mixed", plain_families=(b"late", b"log"))
    code, out, _ = cli("table", "list")
    assert "without late, log: adopt it once more to own every family" in out
    world.put(b"a", 100, table="mixed", family=b"late")
    document(cli, "table", "ignore", "java", "--apply")
    listed = {one["table"]: one for one in document(cli, "table", "list")}["mixed"]
    assert (listed["families"], listed["families_left_out"]) == (["cf"], ["late", "log"])
    assert "family late is not ours: row b'a' holds the cell" in listed["reason"]
    assert document(cli, "status")["held_back_by"] == ["mixed"]
    assert "held back by        mixed; see `omidpy watermarks`" in cli("status")[1]
    assert "mixed" in [one["table"] for one in document(cli, "watermarks")["laggards"]]
    assert document(cli, "compact", "--grace", "0s", code=3)["entries_pruned"] == 0

    words = ("table", "ignore", "mixed", "--families", "late")
    expected = {"table": "mixed", "families": ["late"], "applied": False, "incarnation": None}
    assert document(cli, *words) == expected
    assert document(cli, "status")["held_back_by"] == ["mixed"]
    code, out, _ = cli(*words, "--apply")
    assert (code, out) == (0, "ignored families late of mixed\n")
    assert document(cli, "status")["held_back_by"] == []
    assert "without log: adopt it once more" in cli("table", "list")[1]
    assert document(cli, "compact", "--grace", "0s")["entries_pruned"] == 2
    assert "held back by" not in cli("status")[1]


def test_history_says_which_runs_kept_commits(cli: Cli) -> None:
    """A run that pruned nothing for a reason is not one that had nothing to prune."""
    cli("compact")
    document(cli, "table", "ignore", "java", "--apply")
    cli("compact")
    _, out, _ = cli("compact", "history")
    assert [line.split("  ")[2] for line in out.splitlines()[1:]] == ["held back", "done"]


def test_a_run_is_limited_and_told_what_tables_want(cli: Cli) -> None:
    """What is written on the command line arrives at the run."""
    words = ["--max-rows-per-s", "100000", "--max-bytes-per-s", "50MB", "--until", "06:00"]
    words += ["--table-option", "t:priority=5,every=1d", "--ranges-per-region", "2"]
    first = document(cli, "compact", *words, code=3)
    assert [laggard["table"] for laggard in first["laggards"]] == ["java"]
    assert (first["tables"][0]["table"], first["tables"][0]["ranges"]) == ("t", 2 * 2)
    code, _, err = cli("compact", "--table-option", "u:priority=5")
    assert (code, "u" in err) == (2, True)
    code, _, err = cli("compact", "--until", "soon")
    assert (code, "--until is 'soon'" in err) == (2, True)


def test_dry_run_tells_a_person_which_tables_become_smaller(cli: Cli) -> None:
    """By cells and bytes; the run itself says the sum."""
    code, out, _ = cli("compact", "--dry-run")
    assert code == 3
    assert "  dropped      1 cells\n    of t  1 cells, 13 bytes of keys and values\n" in out
    assert "held back by java" in out


def test_run_that_is_late_has_an_exit_code_of_its_own(cli: Cli, tmp_path: Path) -> None:
    """What nobody can date, in a store whose timestamps count, has always been behind."""
    metrics = tmp_path / "omidpy.prom"
    words = ("compact", "--grace", "0s", "--metrics", str(metrics))
    first = document(cli, *words, code=3)
    assert first["entries_left"] == 3
    late = document(cli, *words, "--max-lag", "1h", code=4)
    assert late["entries_growth_a_day"] == 0
    assert "omidpy_compaction_exit_code 4.0" in metrics.read_text()
    cli("table", "adopt", "java", "--apply")
    document(cli, *words, "--max-lag", "1h")
    assert "omidpy_compaction_laggards 0.0" in metrics.read_text()
    code, _, err = cli("compact", "--metrics", str(tmp_path))
    assert (code, "--metrics" in err) == (2, True)


def test_holder_of_old_versions_is_named_and_can_be_sent_away(url: str, cli: Cli) -> None:
    """Whoever it is, and until when; a forgotten hold would keep versions for a month."""
    with closing(open_store(url)) as store:
        held = HeldSnapshot(Watermarks(ControlTable(store)), Timestamp(900))
        held.write(SystemClock(), for_s=3600)
    (found,) = document(cli, "watermarks")["holds"]
    assert found["start_ts"] == held.start_ts
    assert f"pid {os.getpid()}" in found["owner"]
    (told,) = document(cli, "compact", "--grace", "0s", code=3)["holds"]
    # Until when is told by the reader's clock, from what is left by the oracle's.
    assert abs(told.pop("expires_ms") - found["expires_ms"]) < 60_000
    assert told.items() < found.items()
    code, out, _ = cli("watermarks")
    assert code == 0
    assert f"versions since {held.start_ts} are held by {found['owner']} until" in out
    assert "open transactions may be as old as the low watermark" in out
    code, _, err = cli("watermarks", "--revoke-hold", "nobody")
    assert (code, found["name"] in err) == (2, True)
    assert document(cli, "watermarks", "--revoke-hold", found["name"])["holds"] == []


def test_fsck_finds_and_repairs_and_says_so(cli: Cli) -> None:
    """Exit code 3 while something is left: here a cell of nobody's, and an entry of a blocker."""
    found = document(cli, "fsck", "--settle", "0s", code=3)
    assert found["counts"] == {"unhealed": 1, "uncommitted": 1}
    assert (found["clean"], found["repaired"], found["low_watermark"]) == (False, {}, 1000)
    assert [one["row"] for one in found["findings"]] == [b"a".hex(), b"z".hex()]
    assert "java" in found["notes"][0]
    code, out, _ = cli("fsck", "--settle", "0s", "--repair")
    assert code == 3
    assert "unhealed: t row 61 column cf:71 at version 100 (repaired)" in out
    assert "1 unhealed, 1 of them repaired" in out
    assert document(cli, "fsck", "--settle", "0s", code=3)["counts"] == {"uncommitted": 1}
    cli("table", "adopt", "java", "--apply")
    cli("compact", "--grace", "0s")
    assert document(cli, "fsck")["clean"] is True


def test_compact_show_takes_the_newest_run(cli: Cli) -> None:
    """Its id has 53 characters."""
    code, _, err = cli("compact", "show")
    assert (code, "no compaction of" in err) == (2, True)
    cli("compact")
    cli("compact")
    newest = document(cli, "compact", "history")[-1]
    assert document(cli, "compact", "show") == newest


def test_a_run_that_cannot_be_read_is_left_out_and_named(cli: Cli, url: str) -> None:
    """With one such run alone, there was "none on record"."""
    cli("compact")
    row = b"run/" + document(cli, "compact", "show")["run_id"].encode()
    reopened(url).control.write(row, b"{")
    for words in (["show"], ["history"]):
        _, _, err = cli("compact", *words)
        assert f"the record of run {row[4:].decode()} cannot be read" in err
    cli("compact")
    assert document(cli, "compact", "show")["run_id"] != row[4:].decode()


def test_watermarks_gives_the_reason_that_the_last_run_has_found(cli: Cli, url: str) -> None:
    """It said "run `omidpy compact`" of what no run mends."""
    assert "run `omidpy compact`" in cli("watermarks")[1]
    world = reopened(url)
    cell = world.put(b"bad", 500)
    world.put(b"bad", 500, b"\x01short", qualifier=shadow_qualifier(cell.qualifier))
    world.store.close()
    cli("compact")
    (held,) = [one for one in document(cli, "watermarks")["laggards"] if one["table"] == "t"]
    assert (held["start"], held["end"]) == ("", b"m".hex())
    assert "holds a malformed shadow cell" in held["reason"]
    assert "omidpy fsck --repair" in held["reason"]
    assert "has found" in held["reason"]
    cli("fsck", "--settle", "0s", "--repair", "--assume", "committed")
    cli("compact")
    assert "malformed" not in cli("watermarks")[1]


def test_fsck_shows_what_a_repair_has_kept(cli: Cli, url: str) -> None:
    """Byte for byte, and what was done about it."""
    assert document(cli, "fsck", "show") == []
    world = reopened(url)
    cell = world.put(b"bad", 500)
    world.put(b"bad", 500, b"\x01short", qualifier=shadow_qualifier(cell.qualifier))
    world.store.close()
    left = document(cli, "fsck", "--settle", "0s", "--repair", code=3)
    assert left["severity"] == "serious"
    assert left["findings"][0]["severity"] == "serious"
    assert document(cli, "fsck", "show") == []
    words = ("fsck", "check", "--settle", "0s", "--repair", "--assume", "committed")
    assert "malformed-shadow" in document(cli, *words, code=3)["repaired"]
    (kept,) = document(cli, "fsck", "show")
    assert (kept["table"], kept["row"], kept["value"]) == ("t", b"bad".hex(), b"\x01short".hex())
    assert "assumed to be committed" in kept["intent"]
    code, out, _ = cli("fsck", "show", kept["name"][:6])
    assert (code, b"\x01short".hex() in out) == (0, True)
    assert kept["name"] in cli("fsck", "show")[1]
    assert cli("fsck", "--settle", "0s", "--fail-on", "serious")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("fsck", "--assume", "committed"), 2, "give --repair"),
        (("fsck", "show", "no"), 2, "no copy with a name like 'no'"),
        (("fsck", "--settle", "soon"), 2, "--settle='soon' is no duration"),
        (("fsck", "--tables", "java"), 2, "java is no table of ours"),
        (("table", "ignore", "t", "--families", "cf"), 2, "family cf of table t is ours"),
        (("table", "ignore", "t", "--families", "no"), 2, "no family no; it has cf"),
        (("table", "ignore", "java", "--families", ","), 2, "--families"),
        (("table", "ignore", "t", "--apply"), 2, "is ours"),
        (("table", "adopt", "OMID_COMMIT_TABLE"), 2, "system table"),
        (("table", "ignore", "OMIDPY_COMPACTION"), 2, "system table"),
        (("table", "adopt", "nowhere"), 2, "no table nowhere"),
        (("table", "ignore", "nowhere"), 2, "no table nowhere"),
        (("compact", "--tables", "nowhere"), 2, "nowhere"),
        (("compact", "--tables", "t", "--exclude", "java"), 2, "--exclude"),
        (("compact", "--tables", ","), 2, "--tables"),
        (("compact", "--grace", "soon"), 2, "--grace='soon' is no duration"),
        (("compact", "--retention", "-1h"), 2, "--retention"),
        (("compact", "--report", "/nowhere/at/all.json"), 2, "--report"),
        (("compact", "--store", "sqlite:///nowhere.db"), 2, "nowhere.db"),
        (("compact", "--store", "postgres://x"), 2, "postgres"),
        (("init", "--store", "memory:"), 2, "memory:"),
        (("status", "--store", "memory:"), 2, "memory:"),
    ],
)
def test_errors_are_one_line_with_the_input_and_an_exit_code(
    cli: Cli, words: tuple[str, ...], code: int, said: str
) -> None:
    """Never a traceback."""
    found, out, err = cli(*words)
    assert (found, out) == (code, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err


def test_store_is_required(monkeypatch: pytest.MonkeyPatch, cli: Cli) -> None:
    """Without --store and OMIDPY_STORE there is nothing to guess."""
    monkeypatch.delenv("OMIDPY_STORE")
    code, _, err = cli("status")
    assert code == 2
    assert "--store" in err


def test_command_runs_as_a_process(url: str) -> None:
    """As installed: the entry point, its stdout and its exit code."""
    code = "from omidpy.cli import main; main()"
    words = ["commit-table", "stats", "--json", "--store", url]
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert json.loads(ran.stdout)["entries"] == 2
    assert ran.stderr == ""
