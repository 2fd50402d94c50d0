"""The pages of the console: what they show, what they hide, and what they never do."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import omidpy
from compactor.pruning import unvisited
from compactor.pruning.unvisited import holding_back
from compactor.report import Laggard
from omidpy.console import sources
from omidpy.console.app import HERE, Console
from omidpy.console.pages import PAGES
from omidpy.console.sources import Addresses
from omidpy.errors import OracleUnavailable, StorageUnavailable
from omidpy.facts.control import ControlTable
from omidpy.facts.format import FORMAT, FORMAT_FACT
from omidpy.fate.operation import Status
from omidpy.fate.table.rows import row_of
from omidpy.fate.table.store import FATE_TABLE, TableFateStore
from omidpy.manager import TransactionManager
from omidpy.recipes.export_queue import ExportQueue
from omidpy.reports.opened import missing_tables
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.sqlite import SqliteStore
from omidpy.testing.fate.basics import an_operation
from tests.machines.console import HOSTILE, ask, fill, over


class World:
    """A store with something of everything, and a console that changes nothing."""

    def __init__(self, tm: TransactionManager) -> None:
        self.tm = tm
        self.made = fill(tm, regions=60)
        self.console = over(tm)

    def page(self, name: str) -> str:
        """Return a page."""
        answered = ask(self.console, f"/{name}")
        assert answered.status == 200, answered.text
        return answered.text


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """Give a store that the tests of this file only look at."""
    path = tmp_path_factory.mktemp("console") / "store.db"
    url = "memory:" if request.param == "memory" else f"sqlite:///{path}"
    with omidpy.connect(url, post_commit="sync") as tm:
        yield World(tm)


@pytest.fixture
def tm() -> Iterator[TransactionManager]:
    """Give an empty store."""
    with omidpy.connect("memory:", post_commit="sync") as tm:
        yield tm


class Outline(HTMLParser):
    """The elements of a page, and which of its attributes browsers would run or fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]


def test_the_first_page_is_that_of_the_oracle(world: World) -> None:
    """Whoever types the address alone wants to see something."""
    answered = ask(world.console, "/")
    assert (answered.status, answered.headers["location"]) == (303, "/oracle")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_holds_nothing_that_runs_and_nothing_from_elsewhere(world: World, name: str) -> None:
    """A row key is as hostile as a stranger's page."""
    answered = ask(world.console, f"/{name}?start_ts={world.made['start_ts']}")
    outline = Outline(answered.text)
    assert not {"script", "iframe", "object", "embed", "base", "style"} & set(outline.tags)
    for tag, attribute, value in outline.attributes:
        assert not attribute.startswith("on"), (tag, attribute)
        assert attribute != "style", (tag, value)
        if attribute in ("href", "src", "action"):
            assert value.startswith(("/", "#")), (tag, value)
            assert not value.startswith("//"), (tag, value)


@pytest.mark.parametrize("path", ["/oracle", "/static/console.css", "/nowhere", "/deeds/fail"])
def test_every_answer_says_what_browsers_may_do_with_it(world: World, path: str) -> None:
    """Also one that is a refusal."""
    headers = ask(world.console, path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "script-src" not in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8080", 200),
        ("localhost", 200),
        ("stranger.example:8080", 421),
        ("127.0.0.1.stranger.example", 421),
        ("", 421),
    ],
)
def test_a_name_that_is_not_ours_is_not_answered(world: World, host: str, status: int) -> None:
    """A stranger's page whose name was made to lead here would read all that a browser here may."""
    assert ask(world.console, "/jobs", host=host).status == status


def test_where_others_reach_it_any_name_is_ours(tm: TransactionManager) -> None:
    """Nobody knows by which names they do."""
    assert ask(over(tm, is_local=False), "/jobs", host="console.example").status == 200


def test_tables_are_shown_with_their_ranges_and_what_holds_them_back(world: World) -> None:
    """And the command that helps."""
    text = world.page("tables")
    assert re.search(r'<th scope="row">accounts</th>\s*<td><span class="state done">owned', text)
    assert "cf, lines" in text
    accounts = text[text.index("<b>accounts</b>") :]
    drawing = accounts[: accounts.index("</figure>")]
    assert drawing.count("<rect") == 60
    assert drawing.count('class="behind"') == 1
    assert "[customer-0050, customer-0051): healed up to 3 d ago" in drawing
    assert "<code>omidpy compact</code>" in text
    assert "91,000" in text


def test_the_drawing_is_of_claims_that_count(tm: TransactionManager) -> None:
    """A table that was dropped and made anew is not healed because an older one was."""
    made = World(tm)
    assert "healed up to" in made.page("tables")
    tm.drop_table("accounts")
    tm.create_table("accounts", families=["cf"])
    text = made.page("tables")
    accounts = text[text.index("<b>accounts</b>") :]
    assert "no compaction has passed here" in accounts[: accounts.index("</figure>")]


def test_the_commit_table_is_counted_by_age_with_its_compactions(world: World) -> None:
    """What `compact plot` draws, and the ends of the runs that drew nothing."""
    text = world.page("commit-table")
    assert re.search(r'6 h to 1 d ago</th>.*?<td class="n">40</td>', text)
    assert "<dt>invalidations</dt><dd>11</dd>" in text
    assert text.count('class="series-2"') == 13 + 1
    assert "the cluster was restarted" in text
    assert "held back" in text


def test_operations_are_shown_with_steps_and_locks_and_no_buttons(world: World) -> None:
    """Nothing can be changed by a console that was not told so."""
    text = world.page("operations")
    going = world.made["operations"]["going"]
    assert f"<code>{going}</code>" in text
    assert text.index("example.PlanRanges</b> <code>table=orders") < text.index(
        "example.HealRanges</b> <code>table=&lt;b&gt;orders&lt;/b&gt;"
    )
    assert "W:(orders,t:orders)" in text
    assert "412 of 1,000 ranges" in text
    assert "<button" not in text
    assert "<form" not in text


def test_queues_are_shown_by_bucket_with_their_dead_letters(world: World) -> None:
    """The lag of each, and why an entry was set aside."""
    text = world.page("queues")
    assert "<dt>dead letters</dt><dd>4</dd>" in text
    assert "<dt>waiting</dt><dd>7 <small>entries</small></dd>" in text
    assert text.count("422, no such customer") == 4
    assert "bad-13" in text
    assert "<form" not in text


def test_a_transaction_is_shown_by_its_start(world: World) -> None:
    """Cells of hostile rows, and both judgements: of the commit table, and of everything."""
    text = world.page(f"transaction?start_ts={world.made['start_ts']}")
    assert f"0x{HOSTILE.hex()}" in text
    assert '<span class="state done">committed</span>' in text
    assert "The commit table alone says" in text
    assert "no oracle that leads was asked" in text
    assert "alert(1)" not in text


@pytest.mark.parametrize("start_ts", ["nonsense", "0", "-5", "9" * 19, "9" * 400, "<b>", "١٢"])
def test_what_is_no_timestamp_is_said_to_be_none(world: World, start_ts: str) -> None:
    """Whatever is pasted, an answer comes."""
    text = world.page(f"transaction?start_ts={start_ts}")
    assert "no start_ts" in text
    assert "<b>&" not in text


@pytest.mark.parametrize(
    "name", ["<img src=x>", "\x1b[2Jgone", "\u202etxt.exe", "a`b`c", "{{ 7*7 }}"]
)
def test_hostile_words_are_shown_as_such(tm: TransactionManager, name: str) -> None:
    """What a record says is neither markup nor a template, and moves nothing."""
    from compactor.report import RunLog, RunRecord

    tm.create_table("t", families=["cf"])
    run = RunRecord("1" * 20 + "-x", 1_000, "host", 1, ended_ms=2_000, error=f"it said {name}")
    RunLog(ControlTable(tm.store)).write(run)
    operation = an_operation(status=Status.IN_PROGRESS, name=name, progress=f"it said {name}")
    assert TableFateStore(tm.store).insert(operation)
    text = ask(over(tm), "/commit-table").text + ask(over(tm), "/operations").text
    assert text.count("it said ") == 2
    assert "<img" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "49" not in text.partition("it said")[2][:20]


def test_a_queue_that_cannot_be_read_hides_no_other(tm: TransactionManager) -> None:
    """Nor does an operation."""
    for name in ("good", "torn"):
        ExportQueue.create(tm, name, buckets=1)
    control = ControlTable(tm.store)
    (row,) = [row for row, _ in control.scan(b"export/torn/") if row.endswith(b"/definition")] or [
        row for row, _ in control.scan(b"export") if b"torn" in row
    ][:1]
    control.write(row, b"\xc1 no document")
    text = ask(over(tm), "/queues").text
    assert "<h3>good</h3>" in text
    assert re.search(r'<h3>torn</h3>\s*<p class="problem">It cannot be read', text)


def test_an_operation_that_cannot_be_read_hides_no_other(world: World) -> None:
    """It is named, with what repairs it."""
    with omidpy.connect("memory:") as tm:
        made = World(tm)
        fates = TableFateStore(tm.store)
        (broken, *_) = [one.id for one in fates.scan()]
        (cells,) = tm.store.get(FATE_TABLE, [row_of(broken)])
        puts = tuple(Put(one.family, one.qualifier, one.version, b"\xc1") for one in cells)
        tm.store.write({FATE_TABLE: [RowMutation(row_of(broken), puts)]})
        text = made.page("operations")
    assert f"operation {broken} cannot be read" in text
    assert text.count('<details class="operation"') == 2


def test_a_part_that_fails_is_an_obstacle_of_its_own(tm: TransactionManager) -> None:
    """The store answers nothing; the page comes, and says so with each part."""

    def gone() -> Any:
        raise StorageUnavailable("the disk is gone; mount it again")

    console = over(tm, open_cells=gone)
    for name in ("oracle", "tables", "commit-table", "operations"):
        answered = ask(console, f"/{name}")
        assert answered.status == 200
        assert answered.text.count("the disk is gone") >= 1
        assert f'<a href="/{name}" aria-current="page">' in answered.text


def test_the_parts_of_a_page_look_at_the_store_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster of thousands of tables each list is one; the next page looks again."""
    looked: list[str] = []

    def missing(store: Store) -> list[str]:
        looked.append("list")
        return missing_tables(store)

    def holding(*asked: Any) -> list[Laggard]:
        looked.append("ends of the commit table")
        return holding_back(*asked)

    monkeypatch.setattr(sources, "missing_tables", missing)
    monkeypatch.setattr(unvisited, "holding_back", holding)
    for count in (1, 2):
        world.page("tables")
        assert sorted(looked) == ["ends of the commit table"] * count + ["list"] * count


def test_a_form_that_is_newer_is_seen_by_the_next_page(tm: TransactionManager) -> None:
    """Whoever upgrades while the console runs must not have his store read as it was."""
    console = over(tm)
    assert "has format" not in ask(console, "/tables").text
    ControlTable(tm.store).write(FORMAT_FACT, b"%d" % (FORMAT + 1))
    assert ask(console, "/tables").text.count(f"has format {FORMAT + 1}") == 3


def test_an_oracle_that_is_silent_keeps_no_page(tm: TransactionManager) -> None:
    """The page says so within its time, and what does not need the oracle is shown."""
    never = threading.Event()

    def silent() -> Any:
        never.wait(60)
        raise OracleUnavailable("nobody answers")

    console = over(tm, open_manager=silent, deadline_s=0.2)
    began_s = time.monotonic()
    text = ask(console, "/queues").text
    assert time.monotonic() - began_s < 5
    assert "is still asked" in text
    assert ask(console, "/operations").status == 200
    never.set()


def test_a_folder_without_a_store_of_objects_is_an_obstacle(
    tm: TransactionManager, moto_bucket: str
) -> None:
    """Of that folder: the other one is shown, with what is half published there."""
    from tests.machines.s3.jobs import begun

    job = begun("a", inline_bytes=0)
    folders = (f"s3://{moto_bucket}/out", "s3://nowhere-at-all/out")
    text = ask(over(tm, addresses=Addresses("memory:", folders=folders)), "/jobs").text
    assert f'<td class="keys">{job.id}</td>' in text
    assert text.count('<p class="problem">') == 1
    job.abort()


def test_live_comes_anew_and_otherwise_not(world: World) -> None:
    """A page that moves under somebody who reads is a nuisance."""
    assert "http-equiv" not in world.page("oracle")
    live = world.page("transaction?start_ts=5&live=1")
    assert '<meta http-equiv="refresh" content="5">' in live
    assert 'href="/transaction?start_ts=5"' in live


def test_there_is_no_other_file(world: World) -> None:
    """Nothing but what belongs to the pages is given out."""
    assert ask(world.console, "/static/console.css").status == 200
    for path in ("/static/../app.py", "/static/app.py", "/static/%2e%2e/app.py", "/etc/passwd"):
        assert ask(world.console, path).status == 404


def test_a_store_that_is_not_set_up_is_shown_empty(tmp_path: Path) -> None:
    """Who looks first sees what to do, and makes nothing."""
    store = SqliteStore(tmp_path / "new.db")
    with omidpy.connect("memory:") as tm:
        console: Console = over(tm, open_cells=lambda: store)
        text = ask(console, "/oracle").text
        assert "No oracle holds the lease" in text
        assert "tso-server" in text
        assert ask(console, "/commit-table").status == 200
    assert store.tables() == []
    store.close()


def test_no_figure_is_worked_out_by_the_console() -> None:
    """It shows what `--json` prints: all that reads a store is in rooms that the commands use."""
    said = re.compile(r"^ *from (omidpy\.[\w.]+|compactor[\w.]*) import", re.MULTILINE)
    imported = {
        module
        for name in ("pages", "app", "drawing", "parts")
        for module in said.findall((HERE / f"{name}.py").read_text("utf-8"))
    }
    figures = {one for one in imported if not one.startswith(("omidpy.base", "omidpy.console"))}
    values = {"omidpy.errors", "omidpy.model", "omidpy.manager", "omidpy.storage.address"}
    assert figures - values == {
        "omidpy.reports",
        "omidpy.reports.texts",
        "omidpy.recipes.export_queue",
        "omidpy.committers.places",
        "omidpy.fate.listing",
        "omidpy.fate.table.store",
        "omidpy.fate.view",
        "compactor.pruning.standing",
    }
    for name in ("dump_document", "operation_document", "read_standing", "lag_document"):
        users = [path for path in (HERE.parent / "cli").rglob("*.py") if name in path.read_text()]
        assert users, f"no command prints what {name} returns"


def test_every_template_is_shipped() -> None:
    """A part whose template is missing is found by whoever installs, not by whoever writes."""
    import tomllib

    root = HERE.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["omidpy"]
    shipped = {path for pattern in patterns for path in (root / "omidpy").glob(pattern)}
    here = [
        path for path in HERE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert len(here) > 15
    assert set(here) <= shipped
