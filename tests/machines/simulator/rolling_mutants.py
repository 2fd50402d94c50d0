"""What this tree would do otherwise than the release before does, by name.

Each is at one with itself: where there is no other release, nothing is wrong, and nothing is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType
from typing import Any, Final
from unittest import mock

from compactor.rows import clean, heal
from compactor.tables import ownership
from omidpy.base import cells
from omidpy.committers import s3
from omidpy.committers.contents import reading
from omidpy.committers.heads import deciding, head, looking
from omidpy.committers.heads.head import head_key
from omidpy.committers.places import Folder
from omidpy.errors import OracleUnavailable
from omidpy.facts import commit_table, leadership
from omidpy.facts.leadership import LEASE_FACT
from omidpy.facts.tables import layout
from omidpy.fate.table import rows, store
from omidpy.model import CellId, CellName, Column
from omidpy.reading import visibility
from omidpy.reading.changes import change
from omidpy.recipes.export_queue.entries import adding
from omidpy.recipes.export_queue.entries.stored import layout as queue_layout
from omidpy.recipes.export_queue.entries.stored.layout import bucket_of
from omidpy.recipes.export_queue.upkeep import handover
from omidpy.tx import keys, transaction
from omidpy.tx.keys import key_row
from tests.machines.simulator import committers, simulation
from tests.machines.simulator.mutants import BUSY, SLOW_TO_WRITE
from tests.machines.simulator.plan import ROLLING
from tests.machines.simulator.simulation import PRODUCT, Mutant, Parts, Patch
from tests.machines.simulator.store import Stall
from tso.core import writes
from tso.durable import ceiling, lease, omid_timestamps, persist


def otherwise(name: str, value: Any, *modules: ModuleType) -> Parts:
    """Return this tree with a constant that is another one wherever it is used."""
    return replace(PRODUCT, patches=tuple(Patch(module, name, value) for module in modules))


def _other_id(table: str, row: bytes, family: bytes, qualifier: bytes) -> CellId:
    return cells.cell_id(table, row, qualifier, family)


def _other_ids(table: str, names: Iterable[CellName]) -> set[CellId]:
    return {_other_id(table, row, family, qualifier) for _, row, family, qualifier in names}


def _held_either_way(store: Any) -> tuple[str, int]:
    try:
        return leadership.lease_address(store)
    except OracleUnavailable:
        return _held_as_before(store)


def _held_as_before(store: Any) -> tuple[str, int]:
    with mock.patch.object(leadership, "LEASE_FACT", LEASE_FACT):
        return leadership.lease_address(store)


def _other_bucket(key: bytes, bucket_count: int) -> int:
    return (bucket_of(key, bucket_count) + 1) % bucket_count


def _other_head(folder: Folder) -> str:
    return head_key(folder) + ".gz"


def _other_key_row(key: bytes, *, table_prefix: str) -> bytes:
    return key_row(key, table_prefix=table_prefix)[::-1]


HASHED: Final = replace(
    PRODUCT,
    patches=(Patch(layout, "cell_id", _other_id), Patch(layout, "cell_ids", _other_ids)),
)

_ELSEWHERE: Final = otherwise("LEASE_FACT", b"lease-of-oracle", leadership, lease)
LEASED: Final = replace(
    _ELSEWHERE,
    patches=(*_ELSEWHERE.patches, Patch(simulation, "lease_address", _held_either_way)),
)
"""Clients look for both: so nobody misses an oracle."""

_OPERATIONS: Final = otherwise("OPERATION_PREFIX", b"op_", rows, store)
OPERATED: Final = replace(
    _OPERATIONS,
    patches=(*_OPERATIONS.patches, *otherwise("DONE_PREFIX", b"was_", rows, store).patches),
)

EVEN: Final[dict[str, Any]] = {"before_shares": (0.5,), "pauses_s": (0.5,)}

ROLLING_MUTANTS: Final[dict[str, Mutant]] = {
    "lease kept elsewhere": Mutant(
        LEASED,
        "I1",
        ROLLING._replace(store_kinds=("cluster", "shared"), timestamps=("incremental",)),
    ),
    "ceiling kept elsewhere": Mutant(
        otherwise("TIMESTAMP_CEILING_ROW", b"CEILING", commit_table, ceiling),
        "operator",
        ROLLING._replace(timestamps=("incremental",)),
    ),
    "shadow cells under another prefix": Mutant(
        otherwise(
            "SHADOW_PREFIX",
            b"\x00\xc2\x81",
            *(cells, visibility, change, heal, clean, ownership, omid_timestamps, writes),
        ),
        "stale read|lost append|fractured read|non-repeatable read",
        ROLLING._replace(post_commits=(("sync",),)),
    ),
    "forbidden in another column": Mutant(
        otherwise("INVALIDATION", Column(b"F", b"IV"), commit_table, persist),
        "I9|I8",
        SLOW_TO_WRITE._replace(
            before_shares=(0.5,),
            oracle_leases_s=(2.0,),
            store_kinds=("cluster",),
            oracle_stalls=(Stall(0.1, 12.0, "COMMIT_TABLE"),),
            pauses_s=(0.1,),
        ),
    ),
    "cells hashed otherwise": Mutant(HASHED, "lost update", BUSY._replace(before_shares=(0.5,))),
    "keys in other buckets": Mutant(
        otherwise("bucket_of", _other_bucket, queue_layout, adding, handover),
        "E2",
        ROLLING._replace(**EVEN, exporters=(2,), keepers=(0,), adding_shares=(1.0,)),
    ),
    "operations kept elsewhere": Mutant(
        OPERATED, "E3", ROLLING._replace(**EVEN, operators=(3,), operator_pauses_s=(0.1,))
    ),
    "heads kept elsewhere": Mutant(
        otherwise("head_key", _other_head, head, looking, deciding, s3, reading, committers),
        "C4|C9",
        ROLLING._replace(**EVEN, committers=(3,), rescuers=(1,)),
    ),
    "used keys in other rows": Mutant(
        otherwise("key_row", _other_key_row, keys, transaction),
        "order",
        ROLLING._replace(**EVEN, retriers=(3,), retry_pauses_s=(0.3,)),
    ),
}
