"""The documentation site: built as `make docs` builds it, and read without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from tests.machines.documents import ROOT, environment, pages
from tests.machines.site_search import SiteSearch

pytest.importorskip("sphinx", reason="Sphinx is missing: pip install --group docs")

pytestmark = pytest.mark.integration

RECORD: Final = "decisions/0023-three-workers-share-the-tests"
FETCHED: Final = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning, such as a broken link, fails."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", *flags(), str(ROOT / "docs"), str(folder)]
    result = subprocess.run(
        [*command, "-d", str(tmp_path_factory.mktemp("doctrees"))],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


@pytest.fixture(scope="module")
def search(site: Path) -> SiteSearch:
    """Give what the site's search answers."""
    return SiteSearch(site)


def flags() -> list[str]:
    """Return the flags that `make docs` gives."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = re.search(r"-m sphinx (.*) -d \S+ docs site$", makefile, flags=re.MULTILINE)
    assert recipe is not None
    return recipe[1].split()


class _Fetches(HTMLParser):
    """Collects what a browser fetches for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(FETCHED.get(tag, ""))
        if address:
            self.addresses.append(address)


def test_warnings_fail_the_build() -> None:
    """Otherwise a broken link is a line that scrolls by."""
    assert "-W" in flags()


def test_every_page_is_in_the_site(site: Path) -> None:
    """A page that no contents list names cannot be found."""
    missing = [
        page
        for page in pages()
        if page.relative_to(ROOT / "docs") != Path("explanation/README.md")
        and not (site / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    ]
    assert missing == []


def test_a_reader_needs_no_network(site: Path) -> None:
    """Fonts and scripts from elsewhere break behind a firewall, and tell others who reads."""
    found = set()
    for page in site.rglob("*.html"):
        fetches = _Fetches()
        fetches.feed(page.read_text("utf-8"))
        found |= {
            address
            for address in fetches.addresses
            if address.startswith(("http:", "https:", "//"))
        }
    for sheet in site.rglob("*.css"):
        found |= set(re.findall(r"url\([\"']?((?:https?:)?//[^)]+)", sheet.read_text("utf-8")))
    assert found == set()


@pytest.mark.parametrize("name", ["index", "guide/hbase", "decisions/README", RECORD])
def test_the_list_at_the_side_has_all_pages_but_the_records(site: Path, name: str) -> None:
    """Of titles alone, and the same wherever a reader is; the records are on their own page."""
    page = site / f"{name}.html"
    aside = page.read_text("utf-8").partition('class="sidebar-tree"')[2].partition("</aside>")[0]
    links = re.findall(r'<a class="[^"]*internal" href="([^"]*)"', aside)
    listed = [page if one == "#" else (page.parent / one).resolve() for one in links]
    docs = ROOT / "docs"
    assert sorted(str(one.relative_to(site).with_suffix("")) for one in listed) == sorted(
        str(one.relative_to(docs).with_suffix(""))
        for one in pages()
        if one.parent.name != "decisions" or one.name == "README.md"
        if one not in {docs / "index.md", docs / "explanation" / "README.md"}
    )
    assert ("current-page" in aside) == (name not in {"index", RECORD})
    assert re.search(r'class="next-page" href="[^"]*"', page.read_text("utf-8")) is not None


def test_the_records_are_on_their_page(site: Path) -> None:
    """Each with its title."""
    html = (site / "decisions" / "README.html").read_text("utf-8")
    links = re.findall(r'<li class="toctree-l1"><a [^>]*href="(\d{4}-[^"]*)\.html">', html)
    records = (ROOT / "docs" / "decisions").glob("[0-9]*.md")
    assert links == sorted(one.stem for one in records)


def test_drawings_are_in_their_pages(site: Path) -> None:
    """As pictures they would have no text to select, and no idea of the page's light and dark."""
    for page in pages():
        count = len(re.findall(r"!\[[^\]]*\]\([^)]*\.svg\)", page.read_text("utf-8")))
        html = site / page.relative_to(ROOT / "docs").with_suffix(".html")
        if count:
            assert html.read_text("utf-8").count('class="drawing"') == count
    assert list(site.rglob("*.svg")) == []
    assert 'class="drawing"' in (site / "explanation" / "commit-path.html").read_text("utf-8")


def test_the_reference_is_filled(site: Path) -> None:
    """It comes from docstrings and parsers, and could come out empty."""
    api = (site / "reference" / "api.html").read_text("utf-8")
    for name in (
        "omidpy.connect",
        "omidpy.TransactionManager.begin",
        "omidpy.Transaction.commit",
        "omidpy.tx.table.TransactionalTable.scan",
        "omidpy.tx.parts.worker.Worker.finish",
    ):
        assert f'id="{name}"' in api
    assert "<code" in (site / "reference" / "cli.html").read_text("utf-8")
    assert "InvalidateRequest" in (site / "reference" / "wire.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("Docker", "guide/deploy"),
        ("upgrade", "guide/upgrading"),
        ("pandas", "guide/pandas"),
        ("TLS", "guide/tls"),
        ("happybase", "guide/happybase"),
        ("monitor", "guide/monitoring"),
        ("slow commits", "guide/troubleshooting"),
        ("stuck compaction", "guide/troubleshooting"),
        ("lost client", "guide/troubleshooting"),
        ("backup", "guide/backup"),
        # The same in other words, and what comes next.
        ("deploy", "guide/deploy"),
        ("kubernetes", "guide/deploy"),
        ("upgrading", "guide/upgrading"),
        ("migrate", "guide/upgrading"),
        ("dataframe", "guide/pandas"),
        ("certificates", "guide/tls"),
        ("kerberos", "guide/security"),
        ("prometheus", "guide/monitoring"),
        ("monitoring", "guide/monitoring"),
        ("performance", "guide/troubleshooting"),
        ("troubleshooting", "guide/troubleshooting"),
        ("restore", "guide/backup"),
        ("glossary", "reference/glossary"),
        ("watermark", "reference/glossary"),
        ("WriteConflict", "guide/troubleshooting"),
        # A word that an answer above has as well goes to the page of its own.
        ("compaction", "guide/compaction"),
        ("commit", "guide/transactions"),
        ("conflict", "guide/transactions"),
        ("client", "explanation/architecture"),
        ("retry", "guide/retries"),
        ("snapshot", "guide/time-travel"),
        ("low watermark", "guide/compaction"),
        ("tokens", "guide/tokens"),
        ("Kafka", "guide/export-queue"),
        ("S3", "guide/committers"),
        ("oracle", "guide/tso-server"),
        ("omid", "guide/omid"),
    ],
)
def test_the_first_hit_answers_a_newcomer(search: SiteSearch, query: str, page: str) -> None:
    """Who finds the right page on the second look has read a wrong one before."""
    hit = search.first(query)
    assert hit is not None
    assert hit.page == page, hit


def test_every_page_is_two_steps_from_the_first_one() -> None:
    """By what a page shows: the list at the side is folded away on a narrow screen."""
    docs = ROOT / "docs"
    first = _links(docs / "index.md")
    reached = {docs / "index.md"} | first | {page for one in first for page in _links(one)}
    far = set(pages()) - reached - {docs / "explanation" / "README.md"}
    assert sorted(str(page.relative_to(docs)) for page in far) == []


def _links(page: Path) -> set[Path]:
    """Return the pages that a page links to in its text, and those of the lists that it shows."""
    text = page.read_text("utf-8")
    found = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", text)
    for shown in re.findall(r"^```\{toctree\}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
        if ":hidden:" not in shown:
            found += [f"{name}.md" for name in shown.splitlines() if name and name[0] != ":"]
    return {
        match.resolve()
        for name in found
        for match in (page.parent / name).parent.glob(Path(name).name)
    }
