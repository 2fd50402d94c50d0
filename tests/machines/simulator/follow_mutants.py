"""The change feed with a guard taken out, by name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from omidpy.base.cells import encode_long
from omidpy.model import Change
from omidpy.reading.changes import window
from omidpy.reading.changes.change import changes_of, simple_changes
from omidpy.reading.changes.feed import ChangeFeed
from omidpy.reading.changes.window import Window, WindowReader
from omidpy.tx import feeds
from tests.machines.simulator.mutants import BUSY
from tests.machines.simulator.simulation import Mutant, Parts, Patch
from tests.machines.simulator.store import Stall

FOLLOWING: Final = BUSY._replace(
    followers=(2,),
    follow_pauses_s=(0.5,),
    follow_page_shares=(0.0,),
    pauses_s=(0.1,),
    ages_ms=(900_000,),
    conflict_maps=(4096,),
    workloads=(("registers", "bank"),),
)
"""Changes that are followed while others commit."""


def reads_from_its_offset(name: str, since: int, until: int, _: int, *more: Any) -> Window:
    """Read what has begun above the offset alone."""
    return Window(name, since, until, since, *more)


def leaves_the_unhealed_out(
    self: WindowReader, page: Any, window: Window, found: list[Change], _: object
) -> list[Change]:
    """Tell of changes that have their shadow cells, and of no others."""
    del self
    after, upto = encode_long(window.since), encode_long(window.until)
    for cells in page:
        found += simple_changes(cells, after=after, upto=upto, columns=window.columns) or []
    return found


def tells_what_comes_later(committed: Any, *, since: int, until: int, columns: Any) -> Any:
    """Tell what commits while it is read, too."""
    del until
    return changes_of(committed, since=since, until=2**63 - 1, columns=columns)


def none_is_simple(*_: Any, **__: Any) -> None:
    """Leave every row to `changes_of`."""


def comes_too_far(self: ChangeFeed) -> Iterator[Change]:
    """Say of a commit that it was told as soon as its first change is."""
    for page in self._ordered():
        for change in page:
            self._offset = change.commit_ts
            yield change
    self._offset = self.until


FOLLOW_MUTANTS: Final[dict[str, Mutant]] = {
    "read from the offset on": Mutant(
        Parts(patches=(Patch(feeds, "Window", reads_from_its_offset),)),
        "feed",
        FOLLOWING._replace(thinking_shares=(0.1,), thoughts_s=(3.0,)),
    ),
    "unhealed changes left out": Mutant(
        Parts(patches=(Patch(WindowReader, "_changes", leaves_the_unhealed_out),)),
        "feed",
        FOLLOWING._replace(store_kinds=("cluster",), post_commits=(("none",),)),
    ),
    "told what comes later": Mutant(
        Parts(
            patches=(
                Patch(window, "changes_of", tells_what_comes_later),
                Patch(window, "simple_changes", none_is_simple),
            )
        ),
        "feed",
        FOLLOWING._replace(
            calm_share=0.0,
            undisturbed_share=1.0,
            fault_counts=(0,),
            other_fault_counts=(0,),
            pages_rows=(1,),
            follower_stalls=(Stall(0.5, 1.0, "scan v_"),),
        ),
    ),
    "offset of half a commit": Mutant(
        Parts(patches=(Patch(ChangeFeed, "_one_by_one", comes_too_far),)),
        "feed",
        FOLLOWING._replace(
            calm_share=0.0,
            undisturbed_share=1.0,
            fault_counts=(0,),
            other_fault_counts=(20,),
            other_fault_kinds=("crash",),
            follow_dawdling_shares=(0.5,),
        ),
    ),
}
"""By name."""
