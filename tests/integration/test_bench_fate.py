"""The benchmark of operations still runs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.fate.__main__ import FateDocument, main


@pytest.mark.integration
@pytest.mark.nightly
@pytest.mark.java
def test_every_client_runs_chains(tmp_path: Path) -> None:
    """A benchmark that nobody runs between releases does not survive the first rename."""
    assert main(["--quick", "--output", str(tmp_path)]) == 0
    (path,) = tmp_path.glob("*-fate.json")
    document = msgspec.json.decode(path.read_bytes(), type=FateDocument)
    names = {result.name for result in document.results}
    for client in ("Accumulo 2.1.4", "omidpy on ZooKeeper", "omidpy on SQLite"):
        assert {f"durable steps, {client}", f"a lone chain, {client}"} <= names
    assert all(result.count for result in document.results)
    assert len([one for one in document.ratios if one.aim]) == 5
