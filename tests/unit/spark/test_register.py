"""`omidpy.spark.register` makes every format known, each once, and whatever it cannot is named.

A session here notes what it is given; a real one writes and reads in `tests/integration`.
"""

from __future__ import annotations

import builtins
import importlib
import pkgutil
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.readwriter import DataFrameWriter

import omidpy
import omidpy.spark
from omidpy.base.installation import install_hint
from omidpy.committers.spark import writing as spark_writing
from omidpy.errors import ConfigError

KNOWN = {"omidpy", "omidpy-parquet", "omidpy-published", "omidpy-changes", "omidpy-export"}


class Sources:
    """What a session's `dataSource` has been told."""

    def __init__(self) -> None:
        """Know nothing."""
        self.known: dict[str, type[DataSource]] = {}

    def register(self, source: type[DataSource]) -> None:
        """Note a format, as Spark does: one of a name takes the place of another."""
        self.known[source.name()] = source


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Give the sources of a session; what writers are taught is forgotten behind the test."""
    taught = ("format", "mode", "partitionBy", "option", "options", "save")
    for method in (*taught, "saveAsTable", "insertInto"):
        monkeypatch.setattr(DataFrameWriter, method, getattr(DataFrameWriter, method))
    monkeypatch.setattr(DataFrameWriter, spark_writing._TAUGHT, False, raising=False)
    return Sources()


def register(sources: Sources) -> None:
    """Register all formats."""
    session: Any = SimpleNamespace(dataSource=sources)
    omidpy.spark.register(session)


def test_all_formats_are_registered(sources: Sources) -> None:
    """By the names that users type; a second time changes nothing."""
    register(sources)
    first = dict(sources.known)
    save = DataFrameWriter.save
    register(sources)
    assert first == sources.known
    assert set(first) == KNOWN
    assert DataFrameWriter.save is save, "writers are taught once"


def test_no_format_of_the_product_is_left_out(sources: Sources) -> None:
    """A source that somebody adds is to be found by the one call, too."""
    register(sources)
    for one in pkgutil.walk_packages(omidpy.__path__, "omidpy."):
        if one.name.startswith(("omidpy.spark.", "omidpy.committers.")):
            importlib.import_module(one.name)
    made = {one for one in _below(DataSource) if one.__module__.startswith("omidpy.")}
    assert made == set(sources.known.values())


@pytest.mark.parametrize(
    ("name", "can"),
    [
        ("omidpy", {"reader", "writer", "streamWriter"}),
        ("omidpy-parquet", {"reader", "writer", "streamWriter"}),
        ("omidpy-published", {"reader"}),
        ("omidpy-changes", {"reader", "streamReader"}),
        ("omidpy-export", {"streamReader"}),
    ],
)
def test_a_format_does_what_it_is_for(sources: Sources, name: str, can: set[str]) -> None:
    """Spark asks a source for what it needs, and one that it lacks is an error of its own."""
    register(sources)
    source = sources.known[name]
    asked = ("reader", "writer", "streamWriter", "streamReader")
    found = {one for one in asked if getattr(source, one) is not getattr(DataSource, one)}
    assert found >= can


def test_a_spark_that_is_too_old_for_one_format_knows_the_others(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what is missing and how to get it."""
    original = builtins.__import__

    def refuse(name: str, *rest: Any) -> Any:
        if name == "omidpy.spark.export_stream":
            raise ImportError("cannot import name 'StreamingQuery'")
        return original(name, *rest)

    monkeypatch.delitem(sys.modules, "omidpy.spark.export_stream", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(
        ConfigError, match=r"Spark 4\.2 or newer .*" + re.escape(install_hint("spark"))
    ):
        register(sources)
    assert set(sources.known) == KNOWN - {"omidpy-export"}


def _below(kind: type[Any]) -> set[type[Any]]:
    """Return the classes that are made of one."""
    return {found for one in kind.__subclasses__() for found in {one, *_below(one)}}
