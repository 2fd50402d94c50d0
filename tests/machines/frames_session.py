"""A session of Spark in this process, for tests of frames: its tasks are tried three times."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.machines.processes import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def frames_session() -> Iterator[SparkSession]:
    """Give a session that knows our formats."""
    from pyspark.sql import SparkSession

    import omidpy.spark

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[2,3]").config("spark.ui.enabled", "false")
        session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
        omidpy.spark.register(session)
        try:
            yield session
        finally:
            session.stop()
