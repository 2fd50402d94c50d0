"""Commits that are done in slices, with a guard of the engine taken out, by name."""

from __future__ import annotations

from typing import Final

from tests.machines.simulator.heavies import engine_patches
from tests.machines.simulator.mutants import BUSY
from tests.machines.simulator.simulation import Mutant, Parts, Patch

SLICING: Final = BUSY._replace(
    heavy_shares=(1.0,),
    heavy_at_once=((16, 4, 2, 2),),
    heavy_maps=(8192,),
    heavy_paces=(1 << 18,),
    slices_s=(0.01,),
    ages_ms=(900_000,),
    pauses_s=(0.2,),
    workloads=(("long fork",),),
)
"""Long commits, of which each slice takes a while, and little else."""

PUSHING: Final = SLICING._replace(heavy_maps=(100, 130), thinking_shares=(0.2,), thoughts_s=(3.0,))
"""Where each of them pushes others out."""


def _without(*change: str) -> Parts:
    """Return the product with one text of its engine replaced by another."""
    old, new = change
    return Parts(patches=tuple(engine_patches(Patch, (old, new))))


HEAVY_MUTANTS: Final[dict[str, Mutant]] = {
    "commits beside a long one unseen": Mutant(
        _without(
            "            left = min(commits.set_count - commit.set_count, commits.count)\n",
            "            left = 0\n",
        ),
        "lost update",
        SLICING,
    ),
    "long one not looked for beside the map": Mutant(
        _without(
            "        if place >= self._gap_filled:\n            found",
            "        if False:\n            found",
        ),
        "lost update",
        SLICING,
    ),
    "fence beside a long one unseen": Mutant(
        _without(
            "        if self._fences and self._is_fenced(start_ts, commit.tables):\n",
            "        if False:\n",
        ),
        "fence",
        SLICING._replace(fence_shares=(0.3,)),
    ),
    "watermark beside a long one unseen": Mutant(
        _without(
            "            return ABORT_LOW_WATERMARK\n        if self._fences and self._is_fenced",
            "            pass\n        if self._fences and self._is_fenced",
        ),
        "lost update|I4",
        PUSHING._replace(ages_ms=(5_000,), thoughts_s=(12.0,)),
    ),
    "pushed out by a long one, and not said": Mutant(
        _without(
            "            if forgotten_ts > self.low_watermark:\n",
            "            if False:\n",
        ),
        "lost update",
        PUSHING._replace(heavy_maps=(66,)),
    ),
}
"""By name."""
