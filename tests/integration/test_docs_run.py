"""The documentation's code, run as printed."""

from __future__ import annotations

import codeop
from pathlib import Path

import pytest

from tests.machines.documents import ROOT, PageRun, blocks, looks_like, pages
from tests.machines.s3.server import S3Server

PAGES_WITH_CODE = [page for page in pages() if any(blocks(page))]

NEED_A_CLUSTER = {"hbase.md", "happybase.md", "omid.md", "phoenix.md"}
"""Pages that `test_docs_hbase.py` and `test_phoenix.py` run."""

NEED_A_BUCKET = (
    "tutorial-s3.md",
    "guide/committers.md",
    "guide/publishing.md",
)
"""Pages that are run with a real S3 server; one of them starts Spark, too."""

MARKS = {
    "tutorial-spark.md": [pytest.mark.spark],
    "dataframes.md": [pytest.mark.spark, pytest.mark.nightly],
    "committers.md": [pytest.mark.spark, pytest.mark.nightly],
}
"""Of pages that start Spark, by their names: by day one does, and the parts' own tests."""


@pytest.mark.integration
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=MARKS.get(page.name, []))
        for page in PAGES_WITH_CODE
        if page.name not in NEED_A_CLUSTER
        and str(page.relative_to(ROOT / "docs")) not in NEED_A_BUCKET
    ],
    ids=lambda page: str(page.relative_to(ROOT / "docs")),
)
def test_the_code_of_a_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    """A reader copies it from top to bottom, and compares what comes out."""
    if page.name == "pandas.md":
        pytest.importorskip("pandas")
    with PageRun(page, tmp_path) as run:
        run.run()


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=MARKS.get(Path(name).name, [])) for name in NEED_A_BUCKET],
)
def test_the_code_of_a_page_about_s3_runs_as_printed(
    name: str, s3: S3Server, tmp_path: Path
) -> None:
    """The server is where the page says."""
    addresses = {"127.0.0.1:9000": f"127.0.0.1:{s3.port}"}
    with PageRun(ROOT / "docs" / name, tmp_path, addresses=addresses) as run:
        run.run()


@pytest.mark.integration
def test_the_page_about_tls_runs_on_the_newest_python(tmp_path: Path) -> None:
    """From 3.13 on Python looks more closely at certificates, so that old recipes fail there."""
    newest = ROOT / ".venv-newest" / "bin" / "python"
    if not newest.exists():
        pytest.skip("there is no newer Python: install one and run make setup")
    with PageRun(ROOT / "docs" / "guide" / "tls.md", tmp_path, python=str(newest)) as run:
        run.run()


@pytest.mark.integration
def test_a_server_that_cannot_read_its_files_again_is_told(tmp_path: Path) -> None:
    """Certificates would stay the old ones, and a page go on as if they were new."""
    (tmp_path / "x.pem").write_text("nonsense")
    lines = [
        "$ openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=a -keyout k.pem -out c.pem",
        "$ cat c.pem k.pem > s.pem",
        "$ tso-server --store sqlite:///s.db --listen 127.0.0.1:24758 --tls-cert s.pem &",
        "$ kill -HUP %1",
        "$ cp x.pem s.pem",
        "$ kill -HUP %1",
    ]
    page = tmp_path / "planted.md"
    page.write_text("```console\n" + "\n".join(lines) + "\n```\n")
    with PageRun(page, tmp_path) as run, pytest.raises(AssertionError, match="tls-not-reloaded"):
        run.run()


def test_there_are_pages_that_run() -> None:
    """The test above passes for a page without blocks, and for no page at all."""
    names = {str(page.relative_to(ROOT / "docs")) for page in PAGES_WITH_CODE}
    assert {"tutorial.md", "guide/transactions.md", "guide/tso-server.md"} <= names


@pytest.mark.parametrize("name", ["tutorial.md", "tutorial-s3.md", "tutorial-spark.md"])
def test_python_of_a_first_page_can_be_pasted_into_an_interpreter(name: str) -> None:
    """It takes one statement at a time, and a blank line ends what is indented."""
    for block in blocks(ROOT / "docs" / name):
        if block.language != "python" or block.note.startswith("file:"):
            continue
        statement: list[str] = []
        for line in [*block.text.splitlines(), ""]:
            statement.append(line)
            try:
                code = codeop.compile_command("\n".join(statement), symbol="single")
            except SyntaxError as error:
                pytest.fail(f"{name}:{block.line}: {error} after {statement}")
            if code is not None:
                statement = []
        assert statement == [], f"{name}:{block.line}: goes on behind its end"


def test_a_block_that_is_not_run_says_why() -> None:
    """Code that nobody runs goes stale."""
    unexplained = [
        f"{page.name}:{block.line}"
        for page in PAGES_WITH_CODE
        for block in blocks(page)
        if block.note.startswith("not run") and len(block.note) < len("not run: ") + 10
    ]
    assert unexplained == []


@pytest.mark.parametrize(
    ("printed", "expected", "is_alike"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\nc\n", False),
        ("a  \n", "a\n", True),
        ("12 cells", "13 cells", False),
        ("at 1795221672722000000", "at 1700000000000000000", True),
        ("took 1.25 s\ndone", "took ... s\ndone", True),
        ("took 1.25 s\nfailed", "took ... s\ndone", False),
        ("a (b)", "a (b)", True),
        ("a", "", False),
    ],
)
def test_output_is_compared_loosely_but_compared(
    printed: str, expected: str, *, is_alike: bool
) -> None:
    """Timestamps differ from run to run; everything else is what the page promises."""
    assert looks_like(printed, expected) is is_alike


@pytest.mark.integration
@pytest.mark.parametrize(
    "text",
    [
        "```python\nprint(1)\n```\n\n```text\n2\n```\n",
        "```python\nraise ValueError\n```\n",
        "```console\n$ false\n```\n",
        "```console\n$ echo one\ntwo\n```\n",
        "```console\n$ tso-server --store nonsense: &\n```\n",
        "```fortran\nEND\n```\n",
    ],
)
def test_a_page_that_promises_something_else_is_caught(text: str, tmp_path: Path) -> None:
    """The runner itself must notice."""
    page = tmp_path / "planted.md"
    page.write_text(text)
    with PageRun(page, tmp_path) as run, pytest.raises(AssertionError, match=r"planted\.md:\d+:"):
        run.run()
