"""Commits so large that an oracle does them in slices, and transactions that come between these.

In the product a request of 128 KiB and more is read, told apart, examined and put into its places
slice by slice, between the turns of others.  Where such a commit begins, and how long a slice is,
changes nothing that anybody is told, as little as how many settings count as being at hand.  So a
seed draws them small, and a commit of forty cells meets begins, other commits, fences, the low
watermark and the end of its oracle between its slices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from omidpy.oracle import tcp
from omidpy.testing.clients import Client, Steps
from omidpy.testing.history import TransactionRecord
from omidpy.testing.workloads import COLUMN
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction
from tests.machines.engines import with_few_at_hand
from tests.machines.simulator.single_cells import SingleCells, read_into
from tso.core import engine, machine
from tso.core.shares import heavy, slices
from tso.serving import connection, conversation

FEW: Final = 5
"""So few settings may be at hand; as many as there are, where a compiled engine decides."""

RUN_CELLS: Final = 20

SIZES: Final = (30, 40, 60)
"""How many cells a heavy commit has, one of these."""
READ_SHARE: Final = 0.15
LIGHT_SHARE: Final = 0.5


class HeavyChoice(NamedTuple):
    """How an oracle does what is heavy."""

    map_size: int
    """How many commits of cells it remembers."""
    at_hand: int | None
    """How many of them count as being at hand; None: as in the product."""
    at_once: tuple[int, int, int, int]
    """What a slice reads, tells apart, examines, and puts into its place."""
    bytes_per_s: int
    """The pace of heavy requests while others ask."""
    slice_s: float
    """How long the turn of the loop takes in which a slice is done."""

    def patches(self, patch: Callable[[Any, str, Any], Any]) -> list[Any]:
        """Return what makes the product choose so."""
        reads, sorts, examines, fills = self.at_once
        least = conversation.MAX_SHORT_REQUEST_BYTES
        chosen = [
            # No other message is heavy, as in the product: whoever may bring cells brings none.
            patch(connection, "HEAVY_BYTES", least),
            patch(tcp, "MAX_SENT_CELLS_BYTES", 0),
            patch(heavy, "HEAVY_BYTES_PER_S", self.bytes_per_s),
            patch(slices, "READ_AT_ONCE", reads),
            patch(slices, "SORTED_AT_ONCE", sorts),
            patch(slices, "EXAMINED_AT_ONCE", examines),
            patch(machine, "FILLED_AT_ONCE", fills),
        ]
        return [*chosen, *engine_patches(patch, at_hand=self.at_hand)]


def engine_patches(
    patch: Callable[[Any, str, Any], Any], *changes: tuple[str, str], at_hand: int | None = FEW
) -> list[Any]:
    """Return what puts an engine in place that leaves what is heavy to slices.

    Args:
        patch: Makes one of them.
        changes: Texts of the engine that are replaced, and by what.
        at_hand: How many settings count as being at hand; None: the engine as it is.
    """

    def module() -> ModuleType:
        return engine if at_hand is None else _engine(at_hand, changes)

    def run(*arguments: Any, **options: Any) -> Any:
        # What has more cells than this is no part of a run, and comes to be done in slices.
        return module().Run(*arguments, **options | {"max_commit_cells": RUN_CELLS})

    return [
        patch(machine, "Engine", lambda **options: module().Engine(**options)),
        patch(machine, "Run", run),
    ]


@cache
def _engine(at_hand: int, changes: Sequence[tuple[str, str]]) -> ModuleType:
    with tempfile.TemporaryDirectory() as folder:
        return with_few_at_hand(Path(folder), at_hand, *changes)


class Heavies(SingleCells):
    """Cells of which many are written at one time, and few by others meanwhile."""

    name: Final = "heavy"

    def __init__(self, prefix: str) -> None:
        self.table = f"{prefix}_heavy"
        self._keys = [f"h{number:03}" for number in range(max(SIZES) + 30)]

    def transaction(self, client: Client) -> Steps:
        """Write many cells, or one or two, behind a look at some; or read all of them."""

        def writing(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            is_light = client.chance(LIGHT_SHARE)
            size = client.rng.choice((1, 2) if is_light else SIZES)
            chosen = client.rng.sample(self._keys, size)
            read_into(table, record, chosen[:2])
            yield
            for key in chosen:
                value = client.value()
                record.write(key, value)
                table.put(key.encode(), {COLUMN: b"%d" % value})
            yield

        def reading(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            read_into(table, record, self._keys)
            yield

        return client.transaction(self, reading if client.chance(READ_SHARE) else writing)
