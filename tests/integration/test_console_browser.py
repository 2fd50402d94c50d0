"""The console in a browser: what a person sees, at two sizes, in the dark, and by the keyboard.

The pictures of the guide are made here: OMIDPY_IMAGES=docs/images.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.console.app import Console
from omidpy.console.deeds import Journal
from omidpy.console.pages import PAGES
from omidpy.console.people import Tokens
from omidpy.console.sources import Addresses, Sources
from omidpy.errors import WriteConflict
from omidpy.opening import open_store
from tests.machines.browser import Browser, chromium
from tests.machines.console import REGIONS, fill, running
from tests.machines.processes import tso_server
from tests.machines.waiting import wait_for

pytestmark = pytest.mark.integration

TOKEN: Final = "t" * 24
LOADED_WITHIN_S: Final = 2.0
ANSWERED_WITHIN_S: Final = 20.0
TAB: Final = "\ue004"
ENTER: Final = "\ue007"


class World:
    """A console over a store of a thousand regions, and a browser."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.browser = stack.enter_context(chromium())
        url = f"sqlite:///{folder}/bank.db"
        with omidpy.connect(url, post_commit="sync") as tm:
            self.made = fill(tm, regions=REGIONS)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            metrics = f"127.0.0.1:{free.getsockname()[1]}"
        tso = stack.enter_context(tso_server(url, "--metrics", metrics)).address
        self.tm = tm = stack.enter_context(omidpy.connect(url, tso=tso))
        for number in range(20):
            first, second = tm.begin(), tm.begin()
            for tx in (first, second):
                tx.table("accounts").put(b"customer-0001", {b"cf:balance": b"%d" % number})
            first.commit()
            if number % 5:
                second.rollback()
            else:
                with pytest.raises(WriteConflict):
                    second.commit()
        self.sources = Sources(
            Addresses("sqlite:///bank.db", tso, (metrics,)),
            open_cells=lambda: open_store(url),
            open_manager=lambda: omidpy.connect(url, tso=tso),
        )
        stack.callback(self.sources.close)
        journal = Journal(str(folder / "journal"))
        stack.callback(journal.close)
        self.console = Console(self.sources, journal=journal, tokens=Tokens({"alice": TOKEN}))
        self.at = stack.enter_context(running(self.console))
        self.words = {
            tso: "oracle-1:24758",
            metrics: "oracle-1:24759",
            socket.gethostname(): "oracle-1",
        }

    def be_watched(self) -> None:
        """Let some commits come between looks at the server, as in ten minutes."""
        (metrics,) = self.sources.addresses.metrics
        for count in (2, 5, 3, 8, 13, 9, 11, 6, 7, 4, 9, 12):
            for number in range(count):
                with self.tm.begin() as tx:
                    tx.table("accounts").put(b"customer-0002", {b"cf:balance": b"%d" % number})
            self.sources.look(metrics)

    def address(self, name: str) -> str:
        """Return the address of a page."""
        query = f"?start_ts={self.made['start_ts']}" if name == "transaction" else ""
        return f"{self.at}/{name}{query}"

    def sign_in(self) -> None:
        """Type the token in, and be known by the page that follows."""
        self.browser.open(f"{self.at}/sign-in")
        self.browser.driver.find_element("id", "token").send_keys(TOKEN + ENTER)
        wait_for(self.browser.driver.get_cookies, ANSWERED_WITHIN_S)  # a key waits for no page
        wait_for(lambda: "/sign-in" not in self.browser.driver.current_url, ANSWERED_WITHIN_S)

    def sign_out(self) -> None:
        """Be nobody again."""
        self.browser.driver.delete_all_cookies()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Give one that the tests of this file share; what they change, others do not look at."""
    with ExitStack() as stack:
        yield World(tmp_path_factory.mktemp("console"), stack)


@pytest.fixture
def browser(world: World) -> Browser:
    """Give a browser that nobody has signed in with, and that has nothing to say yet."""
    world.sign_out()
    world.browser.complaints()
    return world.browser


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_there_soon_and_legible_wherever_it_is_read(
    world: World, browser: Browser, name: str
) -> None:
    """On a wide screen and a telephone, by day and by night, over a thousand regions."""
    for width in (1280, 390):
        for scheme in ("light", "dark"):
            browser.open(world.address(name), width=width, scheme=scheme)
            assert browser.took_s() < LOADED_WITHIN_S, (width, scheme)
            assert browser.complaints() == [], (width, scheme)
            assert not browser.overflows(), (width, scheme)
            assert browser.faint() == [], (width, scheme)
            assert PAGES[name].title in browser.text()


def test_the_keyboard_goes_through_a_page_in_its_order(world: World, browser: Browser) -> None:
    """And one sees where one is."""
    browser.open(world.address("operations"))
    seen = []
    for _ in range(12):
        browser.press(TAB)
        text, is_seen = browser.focused()
        assert is_seen, text
        seen.append(text)
    titles = [page.title for page in PAGES.values()]
    assert seen[:10] == ["Skip to the page", "omidpy", *titles, "Watch it live"]
    assert seen[10].startswith("SUBMITTED DROP_TABLE")


def test_the_first_key_leads_past_the_pages(world: World, browser: Browser) -> None:
    """Whoever reads by ear need not hear their names each time."""
    browser.open(world.address("operations"))
    for key in (TAB, ENTER, TAB):
        browser.press(key)
    assert browser.focused()[0] == "Watch it live"


def test_an_operation_is_cancelled_by_the_keyboard(world: World, browser: Browser) -> None:
    """Signed in, found, asked for, and told."""
    world.sign_in()
    browser.open(world.address("operations"))
    for _ in range(30):
        browser.press(TAB)
        if browser.focused()[0] == "Cancel":
            break
    browser.press(ENTER)
    waiting = world.made["operations"]["waiting"]
    told = f"FaTE transaction {waiting} was cancelled"
    wait_for(lambda: told in browser.text(), ANSWERED_WITHIN_S)  # a key waits for no page
    assert "alice, by token" in browser.text()
    assert browser.complaints() == []


def test_what_cannot_be_taken_back_asks_once_more(world: World, browser: Browser) -> None:
    """A delete is behind a word of warning, which is closed."""
    world.sign_in()
    browser.open(world.address("operations"))
    graves = browser.driver.find_elements("css selector", "button.grave")
    assert graves
    assert not any(one.is_displayed() for one in graves)


def test_a_page_that_is_watched_comes_anew(world: World, browser: Browser) -> None:
    """Without script: the browser itself asks again."""
    browser.open(world.address("oracle"))
    browser.driver.find_element("link text", "Watch it live").click()
    refresh = browser.driver.find_element("css selector", "meta[http-equiv=refresh]")
    assert refresh.get_attribute("content") == "5"
    browser.driver.get("about:blank")


def test_the_pictures_of_the_guide(world: World, browser: Browser, tmp_path: Path) -> None:
    """They are small, and show nothing of the machine that they were made on."""
    folder = Path(os.environ.get("OMIDPY_IMAGES", tmp_path))
    world.be_watched()
    for name, height in (("oracle", 860), ("tables", 900), ("commit-table", 980), ("queues", 700)):
        browser.open(world.address(name), width=1080)
        assert str(tmp_path.parent) not in browser.text()
        path = folder / f"console-{name}.png"
        browser.photograph(path, height=height, words=world.words)
        assert 5_000 < path.stat().st_size < 60_000
        for word in world.words:
            assert word not in browser.text()
