"""The documentation's pages: their form, and whether their lists are those of the code."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tests.machines.documents import ROOT, pages

DOCS: Final = ROOT / "docs"
SOURCES: Final = [
    path for package in ("omidpy", "tso", "compactor") for path in (ROOT / package).rglob("*.py")
]


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page that are neither code nor table nor directive, with numbers."""
    is_code = False
    for number, line in enumerate(page.read_text("utf-8").splitlines(), start=1):
        if line.startswith("```"):
            is_code = not is_code
        elif not is_code and not line.startswith(("|", "    ", "<!--")):
            yield number, line


def test_each_sentence_has_a_line() -> None:
    """A change of one sentence is then a change of one line."""
    numbered = r"(?<!^\d)(?<!# \d)(?<!# \d\d)"
    two_in_a_line = re.compile(rf"(?<!\be\.g)(?<!\bi\.e){numbered}[.!?][*)]? +[A-Z]")
    found = [
        f"{page.relative_to(ROOT)}:{number}: {line}"
        for page in pages()
        for number, line in prose(page)
        if two_in_a_line.search(re.sub(r"`[^`]*`", "", line))
    ]
    assert found == []


def test_the_page_of_metrics_lists_those_of_the_code() -> None:
    """An alert on a metric that nobody reports never rings."""
    from prometheus_client import CollectorRegistry

    import omidpy
    from omidpy import prometheus
    from omidpy.fate.table.store import TableFateStore
    from omidpy.recipes.export_queue import ExportQueue
    from tso.serving.http import PrometheusMetrics

    client = CollectorRegistry()
    with omidpy.connect("memory:") as tm:
        prometheus.register(tm, client)
        queue = ExportQueue.create(tm, "q", buckets=1)
        prometheus.register_export(queue, queue.runner(print), client)
        prometheus.register_fate(TableFateStore(tm.store), client)
        prometheus.show_plans("s3://b/f", 0, client, now_s=0.0)
        found = list(client.collect())
    metrics = PrometheusMetrics()
    for path in SOURCES:
        for kind, name in re.findall(
            r"metrics\.(count|observe|gauge)\(\"([^\"]+)\"", path.read_text("utf-8")
        ):
            report = getattr(metrics, kind)
            report(name) if kind == "count" else report(name, 1)
    kinds = {"counter": "_total", "gauge": "", "histogram": "", "summary": ""}
    real = {
        (family.name + kinds[family.type], family.type)
        for family in (*metrics.registry.collect(), *found)
    }
    text = (DOCS / "reference" / "metrics.md").read_text("utf-8")
    shown = set(re.findall(r"^\| `(\w+)` \| (\w+) \|", text, flags=re.MULTILINE))
    assert shown == real


def test_the_page_of_the_control_table_lists_the_rows_of_the_code() -> None:
    """Whoever looks into the table of a live cluster must find every row explained."""
    constant = re.compile(
        r"^\w+(?:_FACT|_PREFIX|_HORIZON|_LOG): Final = b\"([a-z/-]+)\"", re.MULTILINE
    )
    real = {name for path in SOURCES for name in constant.findall(path.read_text("utf-8"))}
    text = (DOCS / "reference" / "control-table.md").read_text("utf-8")
    rows = re.findall(r"^\| `([a-z-]+/?)", text, flags=re.MULTILINE)
    assert sorted(rows) == sorted(real)


def test_the_page_of_settings_lists_the_options_of_addresses_with_their_defaults() -> None:
    """A default that changed in the code alone would mislead whoever sizes by the page."""
    from omidpy.storage.hbase.addresses import gateways as address

    text = (DOCS / "reference" / "config.md").read_text("utf-8")
    section = text.partition("## Addresses of HBase")[2].partition("\n## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section, flags=re.MULTILINE))
    assert sorted(shown) == sorted(address.OPTIONS)
    real = address.parse_address("hbase+thrift2://gateway")
    for name, default in shown.items():
        value = "off" if (found := getattr(real, name)) is False else found
        if value is not None:
            printed = f"{value:g}" if isinstance(value, float) else value
            assert default == f"`{printed}`"


def test_the_page_of_settings_lists_the_options_of_hbase_itself_with_their_defaults() -> None:
    """And the form of each of its two addresses."""
    from omidpy.storage.hbase.native import address

    shown = _address_options("Addresses of HBase without a gateway")
    assert sorted(shown) == sorted(address.OPTIONS)
    real = address.parse_native("hbase+rpc://master")
    for name, default in shown.items():
        if (value := getattr(real, name)) is not None:
            assert default == f"`{value:g}`" if isinstance(value, float) else f"`{value}`"
    text = (DOCS / "reference" / "config.md").read_text("utf-8")
    assert all(f"| `{scheme}://" in text for scheme in address.SCHEMES)


def _address_options(heading: str) -> dict[str, str]:
    """Return the options below a heading of the page of settings, with their defaults."""
    text = (DOCS / "reference" / "config.md").read_text("utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[a-z`, _-]+`) \| ([^|]+) \|", section, flags=re.MULTILINE)
    return {name: default for names, default in rows for name in re.findall(r"`([^`]+)`", names)}


def test_the_page_of_settings_lists_the_options_of_addresses_of_oracles() -> None:
    """Both sorts: of TLS, and of ZooKeeper."""
    from omidpy.oracle import tls, zookeeper

    assert sorted(_address_options("Addresses of oracles")) == sorted(tls.OPTIONS)
    shown = _address_options("Addresses in ZooKeeper")
    assert sorted(shown) == sorted(zookeeper._OPTIONS)
    assert shown["period"] == f"`{zookeeper.DEFAULT_PERIOD_S:g}s`"
    assert shown["timeout"] == f"`{zookeeper.DEFAULT_TIMEOUT_S:g}s`"


def test_the_pages_tell_the_defaults_of_the_oracle() -> None:
    """Whoever sizes a machine, or a transaction, reads the numbers there."""
    from tso.choices import DEFAULT_MAP_MIB
    from tso.core.settings import (
        AGE_BESIDE_OMID_MS,
        DEFAULT_AGE_MS,
        DEFAULT_MAP_SIZE,
        LEAST_CELLS_PER_S,
        PROTECTED_MS,
    )

    minutes, hours = DEFAULT_AGE_MS // 60_000, AGE_BESIDE_OMID_MS // 3_600_000
    told = {
        "guide/tso-server.md": [
            f"({DEFAULT_MAP_SIZE:,} by default, which take {DEFAULT_MAP_MIB} MiB",
            f"half of it in {PROTECTED_MS // 60_000} minutes",
            f"at least {LEAST_CELLS_PER_S:,} cells a second",
            f"`--max-transaction-age` ({minutes} minutes; {hours} hours where Omid's",
        ],
        "guide/compaction.md": [f"`--max-transaction-age`, {minutes} minutes by default"],
        "guide/export-queue.md": [f"({minutes} minutes unless the oracle is told otherwise)"],
    }
    for page, sentences in told.items():
        text = (DOCS / page).read_text("utf-8")
        assert [one for one in sentences if one not in text] == []


def test_the_pages_list_what_a_table_may_ask() -> None:
    """By the names of the settings, and of the attributes that keep them."""
    from omidpy.base.schema.table_settings import ATTRIBUTES

    text = (DOCS / "guide" / "compaction.md").read_text("utf-8")
    rows = re.findall(r"^\| (`[^|]+`) \| (`OMIDPY_[^|]+`) \|", text, flags=re.MULTILINE)
    columns = [
        [word for cell in column for word in re.findall(r"`([^`]+)`", cell)]
        for column in zip(*rows, strict=True)
    ]
    assert dict(zip(*columns, strict=True)) == ATTRIBUTES
    marks = (DOCS / "reference" / "cells.md").read_text("utf-8").partition("## Marks of a table")[2]
    cells = re.findall(r"^\| (.*) \| table \|", marks, flags=re.MULTILINE)
    listed = [word for cell in cells for word in re.findall(r"`(OMIDPY_\w+)`", cell)]
    assert [one for one in listed if one in ATTRIBUTES.values()] == list(ATTRIBUTES.values())


def test_the_guide_lists_what_may_be_asked_of_a_family() -> None:
    """Each option with what it may be: HBase's own words, which nobody guesses."""
    from omidpy.base.schema import family_options

    text = (DOCS / "guide" / "transactions.md").read_text("utf-8")
    section = text.partition("## How HBase stores a family")[2].partition("\n## ")[0]
    rows = {
        name: meaning
        for names, meaning in re.findall(r"^\| (`[^|]+`) \| (.+) \|", section, flags=re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", names)
    }
    assert sorted(rows) == sorted(family_options._READERS)
    for name, choices in (
        ("compression", family_options.COMPRESSIONS),
        ("bloom_filter_type", family_options.BLOOM_FILTERS),
        ("data_block_encoding", family_options.ENCODINGS),
    ):
        assert re.findall(r"`(\w+)`", rows[name]) == list(choices)
    usual = family_options.happybase_settings(b"f", {})
    assert f"`{usual['bloom_filter_type'].decode()}` (the default)" in rows["bloom_filter_type"]
    assert f"{usual['max_versions']}: all" in rows["max_versions"]


def test_messages_that_the_guide_to_hbase_explains_are_those_of_the_code() -> None:
    """Somebody who meets one searches the page for its words."""
    text = (DOCS / "guide" / "hbase-messages.md").read_text("utf-8")
    quoted = re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE)
    assert len(quoted) > 10
    # Literals over several lines, put together.
    sources = [re.sub(r'"\s*f?"', "", path.read_text("utf-8")) for path in SOURCES]
    sources = [re.sub(r"\{[^{}]*\}", "{}", source) for source in sources]
    for words in quoted:
        pattern = re.sub(r"thrift[12]", "{}", words)
        assert any(pattern in source for source in sources), words


TROUBLES: Final = DOCS / "guide" / "troubleshooting.md"


def _troubles() -> dict[str, str]:
    """Return what the page says of each error: its class, and what its message says."""
    text = TROUBLES.read_text("utf-8").partition("\n## Errors")[2]
    return dict(re.findall(r"^\| `([A-Z]\w+)` \|([^|]*)\|", text, flags=re.MULTILINE))


def test_every_error_is_on_the_page_of_troubles() -> None:
    """Whoever meets one types its name into the search."""
    from omidpy import errors

    classes = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.OmidError)
    ]
    assert sorted(_troubles()) == sorted(classes)


def test_the_messages_on_the_page_of_troubles_are_those_of_the_code() -> None:
    """They are what somebody searches for, letter by letter."""
    quoted = [
        words
        for said in _troubles().values()
        for message in re.findall(r"`([^`]+)`", said)
        # What the message fills in, and what the page leaves out.
        for words in re.split(r"\s*(?:\.\.\.|\b[NTQ]\b|\bADDR\b)\s*", message)
        if len(words) > 3
    ]
    assert len(quoted) > 25
    # Literals over several lines, put together; what they fill in is left out here, too.
    sources = [re.sub(r'"\s*f?"', "", path.read_text("utf-8")) for path in SOURCES]
    missing = [words for words in quoted if not any(words in source for source in sources)]
    assert missing == []


# -- what the site adds ----------------------------------------------------------------------------


def _extension(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_reference_of_commands_shows_every_verb_and_option() -> None:
    """It is generated, and could come out empty without anybody looking."""
    text = _extension("reference").cli()
    for verb in (
        "init",
        "status",
        "watermarks",
        "table list",
        "table adopt NAME",
        "commit-table stats",
        "compact run",
        "compact show RUN",
    ):
        assert f"## `omidpy {verb}`" in text
    grace = "Age of a claim before entries below it go. Default: 1h, 24h where"
    assert f"| `--grace TIME` | {grace}" in text
    assert "How far back snapshots stay readable. Default: `24h`. |" in text
    store = (
        "Address of the store: sqlite:///FILE, hbase://ZOOKEEPER/hbase or "
        "hbase+thrift2://HOST:PORT. Or `OMIDPY_STORE`."
    )
    assert f"| `--store URL` | {store} |" in text


def test_the_reference_of_settings_shows_all_three_names() -> None:
    """Flag, variable and key are one setting, and the page is where they are told."""
    text = _extension("reference").tso_server()
    row = "| `--max-transaction-age 15m` | `TSO_MAX_TRANSACTION_AGE` | `max-transaction-age` | "
    assert row in text
    assert "Default 127.0.0.1:24758" in text


def test_the_reference_of_errors_is_the_tree() -> None:
    """A class that is missing there would not be looked for in code that catches errors."""
    from omidpy import errors

    text = _extension("reference").error_classes()
    classes = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.OmidError)
    ]
    assert all(f"| `{name}` |" in text for name in classes)
    assert "| `WriteConflict` | `TransactionAborted` | yes |" in text
    assert "| `CommitOutcomeUnknown` | `OmidError` | no |" in text


@pytest.mark.parametrize(
    ("docstring", "shown"),
    [
        (["Text.", "", "    code", "    code", "", "More."], "Text.|::||    code|    code||More."),
        (["Text.", "", "Args:", "    x: It."], "Text.||Args:|    x: It."),
        (["Text.", "", "    one", "", "    two"], "Text.|::||    one||    two"),
        (["* item", "", "  goes on"], "* item||  goes on"),
        (["Text.", "    no blank line before"], "Text.|    no blank line before"),
    ],
)
def test_an_indented_block_of_a_docstring_is_literal(docstring: list[str], shown: str) -> None:
    """Trees and tables in docstrings would be reflowed otherwise."""
    lines = _extension("docstrings").with_literal_blocks(docstring)
    assert [line for line in lines if line] == [line for line in shown.split("|") if line]
