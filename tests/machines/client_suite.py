"""What a transaction promises, whatever store and oracle it runs on: a mixin of tests.

A class that inherits `ClientSuite` supplies a fixture `tm`.  Managers may be shared among tests:
every test makes tables of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from omidpy.manager import TransactionManager
from tests.machines.client_chapters.isolation import Isolation
from tests.machines.client_chapters.parts import Parts
from tests.machines.client_chapters.reads import Reads
from tests.machines.client_chapters.writes import Writes


class ClientSuite(Reads, Isolation, Writes, Parts):
    """Snapshot isolation with happybase's tables."""


def closing(tm: TransactionManager) -> Iterator[TransactionManager]:
    """Yield a manager and close it."""
    with tm:
        yield tm
