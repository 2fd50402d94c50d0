"""Who lives, and who is taken for dead?  What is asked of both sides, wherever signs of life are.

Processes that share work are *members*: each shows that it lives, and what it has taken is others'
once it does not.  That decides only who may take it.  Whether a member that was taken for dead, and
woke up, changes anything is the business of what it changes: a version, an epoch, a guard.

Operations and what they store call a member a worker.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

TRUST: Final = 0.8
"""The part of its lease for which a member believes that no observer has buried it."""


class Member(Protocol):
    """The right of one process to hold what is shared out, as long as it shows that it lives."""

    @property
    def id(self) -> str:
        """Part of whatever names it as the holder; no other member ever had it."""
        ...

    def beat(self) -> bool:
        """Show that it lives; False if others have seen it dead, and then it stays so.

        Raises:
            StorageUnavailable: no observer saw it, perhaps.
        """
        ...

    def is_trusted(self) -> bool:
        """Say whether no observer can have taken it for dead yet, by our own clock."""
        ...

    def retire(self) -> None:
        """Show that it ends; what it holds can be taken at once."""
        ...


class Judge(Protocol):
    """Says which members are dead.  One thread at a time."""

    def dead(self, members: Collection[str]) -> frozenset[str]:
        """Return those that have ended, or have shown no life for their whole lease."""
        ...
