"""Which facts does a store have once, where is each, and who cannot go on without it?

What they may be taken for where they cannot be read: `singletons.py`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from compactor.pruning.snapshot_holds import ROOT_FACT
from omidpy.base.cells import LOW_WATERMARK_ROW
from omidpy.base.tables import CONTROL_TABLE, VALUE
from omidpy.facts.commit_table import (
    ADOPTED_CEILING_FACT,
    COMMIT_TABLE,
    EPOCH_FACT,
    FIRST_TIMESTAMP_FACT,
    LOW_WATERMARK,
    LOW_WATERMARK_FACT,
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
)
from omidpy.facts.leadership import LEASE_FACT
from omidpy.facts.watermarks import (
    COLLECTION_HORIZON,
    COLLECTION_LOG,
    INTENDED_HORIZON,
    PRUNE_HORIZON,
)
from omidpy.fate.table.rows import GUARD
from omidpy.fate.table.store import FATE_TABLE, FORMAT_ROW
from omidpy.model import Column


class Fact(NamedTuple):
    """Where a fact is, and who cannot go on where it cannot be read."""

    name: str
    row: bytes
    stops: str
    table: str = CONTROL_TABLE
    column: Column = VALUE
    holds_number: bool = True
    is_needed: bool = False
    """Whether cells cannot be judged without it."""


_STARTS: Final = "no oracle starts"

CEILING: Final = Fact(
    "ceiling",
    TIMESTAMP_CEILING_ROW,
    f"{_STARTS}, and nothing is compacted",
    TIMESTAMP_TABLE,
    TIMESTAMP_CEILING,
    is_needed=True,
)
EPOCH: Final = Fact("epoch", EPOCH_FACT, _STARTS)
LOW: Final = Fact(
    "low-watermark",
    LOW_WATERMARK_FACT,
    f"{_STARTS}, no snapshot is read once it has grown old, and nothing is compacted",
    is_needed=True,
)
PRUNED: Final = Fact(
    "prune-horizon",
    PRUNE_HORIZON,
    "the oracle looks up no outcome, and nothing is compacted",
    is_needed=True,
)
INTENT: Final = Fact(
    "collection-intent",
    INTENDED_HORIZON,
    "no snapshot can be held, and no horizon is published",
)
COLLECTED: Final = Fact(
    "collection-horizon",
    COLLECTION_HORIZON,
    "no snapshot is read once it has grown old, and nothing is compacted",
)
FIRST: Final = Fact(
    "first-timestamp",
    FIRST_TIMESTAMP_FACT,
    "nobody can tell plain data from what dead clients left: some reads fail, and nothing is "
    "compacted",
    is_needed=True,
)
ADOPTED: Final = Fact(
    "adopted-ceiling",
    ADOPTED_CEILING_FACT,
    "nobody can tell plain data from what dead clients left: some reads fail, and nothing is "
    "compacted or adopted",
    is_needed=True,
)
OMIDS: Final = Fact(
    "omid-low-watermark",
    LOW_WATERMARK_ROW,
    f"{_STARTS}, and nothing is compacted",
    COMMIT_TABLE,
    LOW_WATERMARK,
    is_needed=True,
)
LEASE: Final = Fact(
    "lease",
    LEASE_FACT,
    "an oracle that had it has lost it, and no client finds one by `--tso store:`",
    holds_number=False,
)
LOG: Final = Fact(
    "collection-log", COLLECTION_LOG, "old versions are dropped later", holds_number=False
)
ROOT: Final = Fact("snapshot-root", ROOT_FACT, "nothing is pruned", holds_number=False)
OPERATIONS: Final = Fact(
    "operations-format",
    FORMAT_ROW,
    "no operation begins or goes on, and no exporter starts",
    FATE_TABLE,
    GUARD,
    holds_number=False,
)

FACTS: Final = (
    *(EPOCH, CEILING, LOW, PRUNED, INTENT, COLLECTED, FIRST, ADOPTED, OMIDS),
    *(LEASE, LOG, ROOT, OPERATIONS),
)
"""In the order in which they are mended: what the value of another rests on comes before it."""

STATED: Final = (CEILING, LOW, FIRST, ADOPTED)
"""What an operator may say, who knows what the store does not."""


def say(fact: Fact) -> str:
    """Return what an operator does who knows a fact."""
    return f"say what it is with `--repair --set {fact.name}=NUMBER`"


def named(fact: Fact) -> str:
    """Return where a fact is, for people."""
    return f"{fact.table} row {fact.row!r}"


def place(fact: Fact) -> tuple[str, str, str, str]:
    """Return where the cell of a fact is, as findings have it: table, row, family, qualifier."""
    family, qualifier = fact.column
    return fact.table, fact.row.hex(), family.hex(), qualifier.hex()
