"""Pytest's side of the real Phoenix: one for each module that asks for it.

Its HBase is none of the other tests': it has Phoenix's jars on its class path.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.machines.phoenix import Phoenix, running_phoenix


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """Give the Phoenix of this module; a test has tables of its own in it."""
    with running_phoenix(tmp_path_factory.mktemp("phoenix")) as running:
        yield running
