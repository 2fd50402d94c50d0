"""Options of column families: taken where they are harmless, refused elsewhere, never ignored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omidpy
from omidpy.base.schema.family_options import ALL_VERSIONS, family_attributes
from omidpy.base.tables import OMID_ENABLED
from omidpy.errors import NoSuchTable, NotTransactional, UsageError
from omidpy.manager import TransactionManager
from omidpy.model import FamilySchema, TableSchema

TAKEN: list[tuple[dict[str, Any], dict[str, str]]] = [
    ({}, {}),
    ({"compression": "gz"}, {"COMPRESSION": "GZ"}),
    ({"compression": b"SNAPPY"}, {"COMPRESSION": "SNAPPY"}),
    ({"bloom_filter_type": "ROWCOL"}, {"BLOOMFILTER": "ROWCOL"}),
    ({"block_cache_enabled": False}, {"BLOCKCACHE": "false"}),
    ({"in_memory": True}, {"IN_MEMORY": "true"}),
    ({"block_size": 1024}, {"BLOCKSIZE": "1024"}),
    ({"data_block_encoding": "FAST_DIFF"}, {"DATA_BLOCK_ENCODING": "FAST_DIFF"}),
    ({"max_versions": ALL_VERSIONS, "time_to_live": ALL_VERSIONS}, {}),
    ({"keep_deleted_cells": False, "max_versions": None}, {}),
    ({"compression": "NONE", "in_memory": False}, {"COMPRESSION": "NONE", "IN_MEMORY": "false"}),
]

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_versions": 3}, "max_versions=3 of family b'cf' would lose committed data: snapshots"),
    ({"max_versions": 1}, "would lose committed data"),
    ({"time_to_live": 86400}, "time_to_live=86400 of family b'cf' would lose committed data"),
    ({"keep_deleted_cells": True}, "keep_deleted_cells=True of .* would show deleted cells"),
    ({"bloom_filter_vector_size": 5}, "has no effect on HBase.*bloom_filter_type"),
    ({"bloom_filter_nb_hashes": 5}, "has no effect on HBase"),
    ({"compression": "ZIP"}, "compression='ZIP' of family b'cf' is none of NONE, GZ"),
    ({"bloom_filter_type": "ROWPREFIX"}, "is none of NONE, ROW, ROWCOL"),
    ({"block_size": 0}, "block_size=0 of family b'cf' must be from 1"),
    ({"max_version": 3}, "unknown option 'max_version'; there are .*max_versions"),
    ({"maxVersions": 3}, "unknown option 'maxVersions'"),
    ({"VERSIONS": "1"}, "unknown option 'VERSIONS'"),
]

WRONG_TYPES: list[dict[str, Any]] = [
    {"compression": 5},
    {"in_memory": "yes"},
    {"block_cache_enabled": 0},
    {"block_size": "64k"},
    {"block_size": True},
]


@pytest.mark.parametrize(("options", "attributes"), TAKEN)
def test_harmless_options_become_attributes(
    options: dict[str, Any], attributes: dict[str, str]
) -> None:
    """By HBase's names, with which they reach it."""
    assert family_attributes(b"cf", options) == attributes


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_options_that_lose_snapshots_or_do_nothing_are_refused(
    options: dict[str, Any], message: str
) -> None:
    """An option that is ignored is found out when the data is gone."""
    with pytest.raises(UsageError, match=message):
        family_attributes(b"cf", options)


@pytest.mark.parametrize("options", WRONG_TYPES)
def test_a_value_of_another_type_is_a_type_error(options: dict[str, Any]) -> None:
    """HBase would read "yes" as false."""
    with pytest.raises(TypeError, match="of family b'cf' must be"):
        family_attributes(b"cf", options)


# -- through a manager -----------------------------------------------------------------------------


@pytest.fixture(params=["memory", "sqlite"])
def tm(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TransactionManager]:
    """Return a manager over each embedded store."""
    url = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path / 'store.db'}"
    with omidpy.connect(url) as manager:
        yield manager


def test_embedded_stores_remember_the_options(tm: TransactionManager) -> None:
    """They change nothing there, and a program may look at what it asked for."""
    tm.create_table("t", {"cf": {"compression": "GZ", "in_memory": True}, b"plain": None})
    schema = tm.store.schema("t")
    assert [dict(family.attributes) for family in schema.families] == [
        {OMID_ENABLED: "true", "COMPRESSION": "GZ", "IN_MEMORY": "true"},
        {OMID_ENABLED: "true"},
    ]
    with tm.begin() as tx:
        found = tx.table("t").families()
        tx.table("t").put(b"r", {b"cf:q": b"v"})
    usual = {"bloom_filter_vector_size": 0, "bloom_filter_nb_hashes": 0}
    kept = {"max_versions": ALL_VERSIONS, "time_to_live": ALL_VERSIONS}
    assert found[b"cf"] == usual | kept | {
        "name": b"cf:",
        "compression": b"GZ",
        "in_memory": True,
        "bloom_filter_type": b"ROW",
        "block_cache_enabled": True,
    }
    assert found[b"plain"]["compression"] == b"NONE"


@pytest.mark.parametrize(
    ("families", "error"),
    [
        ({"cf": {"max_versions": 1}}, UsageError),
        ({"good": {}, "cf": {"versions": 1}}, UsageError),
        ({"cf": {}, b"cf": {}}, UsageError),
        ({"cf": 3}, TypeError),
        ({"cf": "GZ"}, TypeError),
    ],
)
def test_a_refused_table_is_not_made(
    tm: TransactionManager, families: Any, error: type[Exception]
) -> None:
    """Nor any part of it."""
    with pytest.raises(error):
        tm.create_table("t", families)
    with pytest.raises(NoSuchTable):
        tm.store.schema("t")


def test_families_may_be_written_as_happybase_has_them(tm: TransactionManager) -> None:
    """With the colon that begins a qualifier."""
    tm.create_table("t", {"a:": {}, b"b:": None})
    tm.create_table("u", ["a:", "a"])
    assert tm.store.schema("t").family_names() == [b"a", b"b"]
    assert tm.store.schema("u").family_names() == [b"a"]


def test_families_that_are_not_ours_are_not_told(tm: TransactionManager) -> None:
    """Their cells are no transaction's."""
    tm.create_table("t", ["cf"])
    attributes = dict(tm.store.schema("t").attributes)
    ours = FamilySchema(b"cf", {OMID_ENABLED: "true"})
    tm.store.create_table(TableSchema("u", [ours, FamilySchema(b"plain")], attributes))
    with tm.begin() as tx:
        assert list(tx.table("u").families()) == [b"cf"]


def test_a_table_is_deleted_by_either_name(tm: TransactionManager) -> None:
    """`delete_table` is happybase's; it disables what must be disabled, whatever it is told."""
    for disable in (False, True):
        tm.create_table("t", ["cf"])
        tm.delete_table("t", disable=disable)
        assert tm.tables() == []
    tm.store.create_table(TableSchema("plain", [FamilySchema(b"cf")]))
    with pytest.raises(NotTransactional):
        tm.delete_table("plain", disable=True)
