"""Java's client and HBase's server still say what the golden frames have."""

from __future__ import annotations

from pathlib import Path

import pytest

from omidpy.storage.hbase.native.wire import answers
from tests.machines.golden_frames import Exchange, captured, read_exchanges
from tests.machines.hbase import HBase
from tests.machines.processes import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.java, pytest.mark.hbase, pytest.mark.nightly]

GOLDEN: Path = ROOT / "tests" / "unit" / "storage" / "hbase" / "native" / "golden.txt"


def outline(exchange: Exchange) -> tuple[str, str, str | None]:
    """Return what does not depend on the time: service, method, and the exception if it is one."""
    fault = answers.answer(exchange.answer).fault
    return exchange.service, exchange.method, None if fault is None else fault.class_name


def test_the_same_calls_are_made_and_answered_alike(hbase: HBase) -> None:
    """A newer release that speaks otherwise is noticed."""
    found = set(map(outline, captured(hbase)))
    assert found == set(map(outline, read_exchanges(GOLDEN)))
