"""The right to export one bucket, as those see it who change its entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.entries.stored.state import BucketState
    from omidpy.storage.base import RowMutation


class BucketLost(Exception):
    """The bucket is another worker's now, or may be."""


class OwnedBucket(Protocol):
    """The right to export one bucket."""

    is_in_doubt: bool
    """Whether the receiver may have more than the state says."""
    is_torn: bool
    """Whether a transaction of its owner, by which entries are set aside, may still commit."""

    @property
    def bucket(self) -> int:
        """The number of the bucket."""
        ...

    @property
    def state(self) -> BucketState:
        """How far it has come."""
        ...

    @property
    def fence(self) -> int:
        """What is greater than that of every earlier owner."""
        ...

    def check(self) -> None:
        """Raise `BucketLost` where another worker may have the bucket by now."""
        ...

    def confirm(self) -> None:
        """Raise `BucketLost` where another worker has the bucket."""
        ...

    @property
    def removes_at_once(self) -> bool:
        """Whether what `update` removes goes in one change with the state."""
        ...

    def update(self, *, removing: Sequence[RowMutation] = (), **changes: object) -> None:
        """Change its state, and with it remove rows; raise `BucketLost` where another has (X2)."""
        ...
