"""A store of a newer form is refused by everybody, with one clear line, and nothing is changed."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import omidpy
from omidpy.cli import main
from omidpy.errors import ConfigError, CorruptCell
from omidpy.facts.control import ControlTable
from omidpy.facts.format import FORMAT, FORMAT_FACT, check_format, read_format
from omidpy.opening import _check_set_up
from omidpy.storage.memory import MemoryStore
from omidpy.storage.sqlite import SqliteStore
from tso.cli import main as serve

NEWER: Final = b"%d" % (FORMAT + 1)
REFUSED: Final = rf"has format {FORMAT + 1}, and this omidpy reads up to {FORMAT}; upgrade omidpy"


def url_of(path: Path) -> str:
    """Return the address of a file."""
    return f"sqlite:///{path}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file of a store that a newer omidpy has written."""
    found = tmp_path / "newer.db"
    with omidpy.connect(url_of(found)) as tm:
        tm.create_table("t", families=["cf"])
        with tm.begin() as tx:
            tx.table("t").put(b"a", {b"cf:x": b"1"})
        ControlTable(tm.store).write(FORMAT_FACT, NEWER)
    return found


def contents(path: Path) -> dict[str, list[object]]:
    """Return everything that a store holds."""
    with contextlib.closing(SqliteStore(str(path))) as store:
        return {
            schema.name: [row for page in store.scan(schema.name) for row in page]
            for schema in store.tables()
        }


def test_a_store_without_a_number_has_the_first_form() -> None:
    """Every store that was made before somebody looked."""
    store = MemoryStore()
    assert read_format(store) == 1
    ControlTable(store).create()
    assert read_format(store) == 1
    ControlTable(store).write(FORMAT_FACT, b"%d" % FORMAT)
    check_format(store)


@pytest.mark.parametrize("raw", [b"", b"two", b"-1", b"\xb2", b"1" * 10])
def test_what_is_no_number_stops_whoever_looks(raw: bytes) -> None:
    """It may have been any, and so a newer one."""
    store = MemoryStore()
    ControlTable(store).create()
    ControlTable(store).write(FORMAT_FACT, raw)
    with pytest.raises(CorruptCell, match="no number of a format"):
        check_format(store)


def test_an_embedded_oracle_refuses_it(path: Path) -> None:
    """It would issue timestamps beside whatever counts there now."""
    before = without_lease(path)
    with pytest.raises(ConfigError, match=REFUSED):
        omidpy.connect(url_of(path))
    assert without_lease(path) == before


def without_lease(path: Path) -> dict[str, list[object]]:
    """Return what a store holds but the lease, which whoever looks must have."""
    found = contents(path)
    found["OMIDPY_COMPACTION"] = [
        cells
        for cells in found["OMIDPY_COMPACTION"]
        if cells[0].row != b"lease"  # type: ignore[index] # rows are lists
    ]
    return found


def test_a_client_of_an_oracle_elsewhere_refuses_it(path: Path) -> None:
    """When it connects; what it has open by then its oracle decides."""
    with contextlib.closing(SqliteStore(str(path))) as store:
        with pytest.raises(ConfigError, match=REFUSED):
            _check_set_up(store)
        ControlTable(store).write(FORMAT_FACT, b"%d" % FORMAT)
        _check_set_up(store)


@pytest.fixture
def _own_logging() -> Iterator[None]:
    """Give the logging of the tests back, which a daemon takes over."""
    handlers, level = logging.root.handlers[:], logging.root.level
    interval_s = sys.getswitchinterval()
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)
    sys.setswitchinterval(interval_s)


@pytest.mark.usefixtures("_own_logging")
def test_a_server_refuses_it(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a mistake in the configuration, which starting again does not mend."""
    before = without_lease(path)
    assert serve(["--store", url_of(path), "--listen", "127.0.0.1:0"]) == 2
    assert f"has format {FORMAT + 1}" in capfd.readouterr().err
    assert without_lease(path) == before


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("compact",),
        ("fsck",),
        ("table", "list"),
        ("table", "adopt", "t", "--apply"),
        ("tx", "outcome", "100"),
    ],
    ids=" ".join,
)
def test_a_command_refuses_it(
    path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """A compaction is what could harm it most."""
    before = contents(path)
    with pytest.raises(SystemExit) as ended:
        main([*words, "--store", url_of(path)])
    assert ended.value.code == 2
    assert f"has format {FORMAT + 1}" in capsys.readouterr().err
    assert contents(path) == before
