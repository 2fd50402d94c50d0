"""The stored ceiling of timestamps: up to which they are issued, and whose turn it is.

A compare-and-set of the number as this oracle wrote it.  A successor raises it before anything
else, so that an oracle which finds another number has been replaced: it issues nothing above what
it raised itself (I1), and nothing that it wrote since is answered (I2).
"""

from __future__ import annotations

from omidpy.base.cells import encode_long
from omidpy.base.reach import reached
from omidpy.base.tables import FIXED_VERSION
from omidpy.errors import LeaseLost
from omidpy.facts.commit_table import (
    TIMESTAMP_CEILING,
    TIMESTAMP_CEILING_ROW,
    TIMESTAMP_TABLE,
    decode_ceiling,
)
from omidpy.model import Cell, Timestamp
from omidpy.storage.base import Condition, GuardedMutation, Put, RowMutation, Store


class StoredCeiling:
    """The ceiling of one store, as one oracle has read and raised it.  One thread at a time."""

    def __init__(self, store: Store) -> None:
        """Know nothing of it before it is `read`."""
        self.value: bytes | None = None
        """As this oracle read or wrote it; None: there is none."""
        self._version = FIXED_VERSION
        self._store = store

    def read(self) -> Timestamp:
        """Remember the stored ceiling as it is, and return it; 0 if there is none."""
        found = self.find()
        if found is None:
            return Timestamp(0)
        self.value = found.value
        # Written again at the version it has: Java's tables keep one version, ours keep all.
        self._version = found.version
        return _ceiling_in(found)

    def find(self) -> Cell | None:
        """Return the cell as it is now, and remember nothing; any thread."""
        row = self._store.get(
            TIMESTAMP_TABLE, (TIMESTAMP_CEILING_ROW,), columns=(TIMESTAMP_CEILING,), max_versions=1
        )[0]
        return row[0] if row else None

    def is_ours(self, found: Cell | None) -> bool:
        """Say whether a cell that was found is what this oracle wrote."""
        return (found.value if found else None) == self.value

    @property
    def unmoved(self) -> Condition:
        """That the ceiling is what this oracle wrote."""
        return Condition(TIMESTAMP_TABLE, TIMESTAMP_CEILING_ROW, TIMESTAMP_CEILING, self.value)

    def mutation(self, ceiling: int) -> GuardedMutation:
        """Return what raises it, if it is unmoved; `note` is to be told whether it was."""
        put = Put(*TIMESTAMP_CEILING, self._version, encode_long(ceiling))
        mutation = RowMutation(TIMESTAMP_CEILING_ROW, puts=(put,))
        return GuardedMutation(TIMESTAMP_TABLE, mutation, self.unmoved)

    def raise_to(self, ceiling: int) -> None:
        """Raise it, durably.

        Raises:
            LeaseLost: another oracle has moved it.
        """
        self.note(ceiling, was_applied=self.replace(self.value, ceiling))

    def replace(self, expected: bytes | None, ceiling: int) -> bool:
        """Set it durably if it is as expected; return whether it was."""
        return self._store.check_and_mutate(
            TIMESTAMP_TABLE,
            TIMESTAMP_CEILING_ROW,
            TIMESTAMP_CEILING,
            expected,
            self.mutation(ceiling).mutation,
            durable=True,
        )

    def note(self, ceiling: int, *, was_applied: bool) -> None:
        """Note that it was raised.

        Raises:
            LeaseLost: it was not, since another oracle has moved it.
        """
        encoded = encode_long(ceiling)
        if not was_applied:
            # Ours, if the answer to an earlier attempt was lost; else another oracle is at work.
            # It is written once more: that attempt may have failed at its sync, and then a loss of
            # power would take the ceiling away from above timestamps that were issued (I1).
            if not self.replace(encoded, ceiling):
                raise self.lost(self.find())
            reached("oracle.own_ceiling_found", "I1")
        self.value = encoded

    def lost(self, found: Cell | None) -> LeaseLost:
        """Return the error for a ceiling that is not what this oracle wrote."""
        ceiling = _ceiling_in(found) if found else 0
        return LeaseLost(
            f"the timestamp ceiling of {self._store.url} is {ceiling}, which this oracle did not "
            "write: another oracle serves the same store"
        )


def _ceiling_in(cell: Cell) -> Timestamp:
    return decode_ceiling(cell.value)
