"""Processes of tests that are forked find what they need: they import nothing themselves."""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection

import pytest

from tests.machines.forks import IMPORTED, PROCESSES

pytestmark = pytest.mark.integration


def tell(there: Connection) -> None:
    """Tell which modules this process was given."""
    there.send(set(sys.modules))


def test_the_server_has_imported_what_is_named() -> None:
    """It passes over what it cannot import, such as a module that was renamed."""
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=tell, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    assert ours.poll(60.0)
    missing = set(IMPORTED) - ours.recv()
    process.join(60.0)
    ours.close()
    assert missing == set()
