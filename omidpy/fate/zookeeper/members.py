"""Does this member still live?  As long as its session with ZooKeeper does.

The ensemble ends a session that has shown no life for its timeout, and deletes its ephemeral znodes
then; so all see one truth.  A member looks now and then whether its znode is there, and believes in
itself only while the session of that znode is known to go on.  Which one that is the ensemble says:
the client, asked while its connection begins anew, does not know, and a member that remembered that
lived for ever and was never trusted.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from omidpy.base.timing.clock import Clock
from omidpy.errors import StorageUnavailable
from omidpy.fate.zookeeper.session import Delete, ZooKeeperSession
from omidpy.life.base import TRUST
from omidpy.life.processes import here


class EphemeralMember:
    """A member that lives as long as its session."""

    def __init__(self, session: ZooKeeperSession, path: str, clock: Clock) -> None:
        """Register; returns once others can see it."""
        self._session = session
        self._clock = clock
        self._id = uuid.uuid4().hex
        self._path = f"{path}/{self._id}"
        self._is_dead = False
        self._seen_s = clock.monotonic_s()
        is_made = session.create(self._path, here().encode(), is_ephemeral=True)
        assert is_made, "nobody else has this id"
        owner = session.owner_of(self._path)
        if owner is None:
            raise StorageUnavailable(f"the session in which worker {self._id} registered has ended")
        self._session_id = owner

    @property
    def id(self) -> str:
        """The id under which it is registered."""
        return self._id

    def beat(self) -> bool:
        """Look whether it lives; see `Member`."""
        now_s = self._clock.monotonic_s()
        if not self._is_dead:
            owner = self._session.owner_of(self._path)
            going_on = self._session.session_id
            # Whatever other session goes on here: its znode goes when its own has ended, and then
            # another runner may have what it held (F4).
            self._is_dead = owner != self._session_id or going_on not in (None, owner)
            self._seen_s = now_s
        return not self._is_dead

    def is_trusted(self) -> bool:
        """Say whether no other member can have taken it for dead yet; see `Member`."""
        if self._is_dead or self._session.session_id != self._session_id:
            return False
        return self._clock.monotonic_s() - self._seen_s < TRUST * self._session.limit_s

    def retire(self) -> None:
        """Delete the member's znode, so that no judge waits for its session to end."""
        if not self._is_dead:
            self._is_dead = True
            self._session.change([Delete(self._path)])


class EphemeralJudge:
    """Judges members by their znodes."""

    def __init__(self, session: ZooKeeperSession, path: str) -> None:
        self._session = session
        self._path = path

    def dead(self, members: Collection[str]) -> frozenset[str]:
        """Return those that are dead; see `Judge`.  Cost: 1 request, if there are any."""
        if not members:
            return frozenset()
        return frozenset(members) - frozenset(self._session.children(self._path))
