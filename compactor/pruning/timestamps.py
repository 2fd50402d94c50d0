"""Are the oracle's timestamps durable?  Without that, the low watermark promises nothing.

A transaction at or below L can no longer commit, because every instance of the oracle begins above
all that was issued before it (I4).  Omid keeps its timestamps in memory unless it is told
otherwise, and then a new instance knows nothing of them: what was passed over may commit after all.
So such a store is refused, before anything is written.

What tells: a timestamp above the recorded ceiling, or one where no ceiling is recorded.  It may be
the low watermark, the newest entry of the commit table, or one that the oracle has just issued.
Each is read before the ceiling, which ours raises before it issues anything.

Omid's may keep them in ZooKeeper, where `--tso zk://...` finds them.  It raises that ceiling every
few seconds, so that it is read anew each time, behind what tells, as the one in the store is.  But
once ours has served, its own ceiling is in the store, and an instance of Omid's that goes on from
another knows nothing of what ours has issued.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, NamedTuple

from omidpy.errors import ConfigError, StorageError
from omidpy.facts.commit_table import (
    LOW_WATERMARK_FACT,
    CommitTable,
    buckets,
    read_timestamp_ceiling,
)
from omidpy.facts.control import ControlTable
from omidpy.model import MAX_VERSION
from omidpy.storage.address import server_command
from omidpy.storage.base import Store


class Asked(NamedTuple):
    """What the oracle itself said, and where else than in the store its ceiling is recorded."""

    drawn_ts: int = 0
    """A timestamp that it issued before the run; 0 if it was not asked."""
    ceiling_elsewhere: Callable[[], int] = lambda: 0
    """Reads the ceiling that Omid keeps in ZooKeeper; 0 if there is none, or nobody said where."""


NOBODY: Final = Asked()
"""The oracle was not asked."""


def recorded_ceiling(
    store: Store, commit_table: CommitTable, *, low_watermark: int, asked: Asked
) -> int | None:
    """Return what no timestamp issued so far is above; None if a store of ours does not say.

    Raises:
        ConfigError: the issuer of timestamps does not record them.

    Cost: 2 gets, and 17 scans of one row; where ours has never served, 1 session with ZooKeeper if
    that was named.
    """
    newest_entry = _newest_entry(commit_table)
    evidence = max(
        (low_watermark, f"its low watermark is {low_watermark}"),
        (newest_entry, f"a transaction that began at {newest_entry} has an entry"),
        (asked.drawn_ts, f"the oracle has just issued {asked.drawn_ts}"),
    )
    # Before what would explain it: an oracle of ours may begin meanwhile, its ceiling first.
    is_in_use = bool(evidence[0] or commit_table.has_rows())
    ours_has_served = ControlTable(store).read(LOW_WATERMARK_FACT) is not None
    ceiling: int | None = read_timestamp_ceiling(store)
    if not ours_has_served:
        ceiling = max(ceiling or 0, asked.ceiling_elsewhere()) or None
    if ceiling is None:
        if ours_has_served or not is_in_use:
            return None
        reason = f"{evidence[1]}, and no ceiling of timestamps is recorded"
    elif evidence[0] > ceiling:
        reason = f"{evidence[1]}, above the recorded ceiling {ceiling}"
    else:
        return ceiling
    raise ConfigError(
        f"the oracle of {store.url} does not keep its timestamps there: {reason}.  If it keeps "
        "them in memory, as Omid's does by default, what is at or below its low watermark may "
        "commit after its next restart, so that nothing can be healed, dropped or pruned; nothing "
        f"was written.  Stop it for good and start {server_command(store.url)}, which says "
        "what to add.  If Omid's keeps them in ZooKeeper, and ours has never served, give --tso "
        "zk://HOSTS/NAMESPACE, where they are found"
    )


def _newest_entry(commit_table: CommitTable) -> int:
    """Return the highest start_ts that has an entry, as far as the commit table answers."""
    newest = 0
    for bucket in buckets(MAX_VERSION):
        with contextlib.suppress(StorageError):
            row = commit_table.newest_in(bucket)
            # A malformed one is no transaction's, and proves nothing.
            newest = max(newest, 0 if row is None or row.complaint else row.start_ts)
    return newest
