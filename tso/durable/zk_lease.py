"""Hold the right to answer where Omid's own oracles and clients look for it: in ZooKeeper.

Two rights in one.  The record in the store (`lease.py`) decides among oracles of ours, whichever
way they were started, and the znode `tso-lease` between them and Omid's oracles, which know nothing
of the record.  The oracle that has both may answer; both are looked at after every batch, at the
same time.

The znode is taken as Omid takes it: by writing over the version that was seen, once that version
has stood still for a whole period.  Data is HOST:PORT for people to read; the version is what
counts.  The read behind a batch follows a `sync`, and once a quarter of the period has passed a
write takes its place, which ZooKeeper decides with a quorum.  So neither a server that lags nor an
oracle that was stopped for a while can make us believe in a lease that has gone.

Then `current-tso` is written, for clients, also by version; one whose epoch is above ours is left
alone, because the timestamps of this store must have been lost then.

Source: Omid's LeaseManager; the znodes are in docs/reference/cells.md.  Unlike it we believe no
clock of ours for longer than the record, end the process when the lease is lost, and give it up on
a clean stop, by emptying the znode: Omid's standby does not look at that and waits its period.
"""

from __future__ import annotations

import logging
from typing import Final

from omidpy.base.timing.clock import Clock
from omidpy.errors import ConfigError, LeaseLost, StorageUnavailable
from omidpy.oracle.zookeeper import (
    Znode,
    ZooKeeper,
    ZooKeeperAddress,
    decode_current,
    encode_current,
)
from omidpy.storage.base import Condition
from tso.durable.lease import Lease

logger = logging.getLogger(__name__)

_RENEWALS_PER_PERIOD: Final = 4


class ZooKeeperLease:
    """The store's lease and Omid's, held together.  Not safe to share among threads."""

    def __init__(
        self,
        own: Lease,
        zookeeper: ZooKeeper,
        address: ZooKeeperAddress,
        *,
        holder_address: str,
        clock: Clock,
    ) -> None:
        """Claim nothing yet.

        Args:
            own: The claim to the record in the store.
            zookeeper: Closed when the lease is released.
            address: Names the znodes and the period.
            holder_address: HOST:PORT that the lease shows until `publish` knows better.
            clock: Measures how long another's znode stays unchanged.
        """
        self._own = own
        self._zookeeper = zookeeper
        self._address = address
        self._clock = clock
        self._period_s = address.period_s
        self._data = holder_address.encode()
        self._version: int | None = None
        """The version of the znode that is ours; None while it is not."""
        self._may_be_newer = False
        """Whether a write of ours got no answer, so that one more version may be ours."""
        self._renewed_s = 0.0
        self._seen: Znode | None = None
        self._seen_s = 0.0

    @property
    def guard(self) -> Condition:
        """The condition that the record in the store is ours."""
        return self._own.guard

    @property
    def needs_check(self) -> bool:
        """Always: no store can guard a batch by a znode."""
        return True

    @property
    def proof(self) -> None:
        """None: the store knows nothing of the znode."""
        return None

    @property
    def needs_renewal(self) -> bool:
        """Always: ZooKeeper knows nothing of our process."""
        return True

    @property
    def vouched_until_s(self) -> float:
        """Monotonic time until which no other oracle can have taken either over."""
        return min(self._own.vouched_until_s, self._renewed_s + self._period_s)

    # -- taking it -----------------------------------------------------------------------------

    def try_acquire(self) -> str | None:
        """Take both leases if they are free.

        Both are watched from the start, so that the periods do not add up; the one in the store is
        taken first and renewed while Omid's oracle still holds the other.

        Returns:
            None if they are ours now, else who holds one, for a message.
        """
        node = self._lease_node()
        holder = self._other_holder(node)
        if self._own.is_held:
            self._own.renew_if_due()
        elif (record_holder := self._own.try_acquire()) is not None:
            return record_holder
        if holder is not None:
            return holder
        now_s = self._clock.monotonic_s()  # before the write: see `_renew`
        # Over the version that stood still: where the holder has renewed it since, or another
        # standby was faster, this write changes nothing.
        version = self._zookeeper.replace(
            self._address.lease_path, self._data, version=node.version
        )
        if version is None:
            return "another instance, which was faster"
        self._version, self._renewed_s = version, now_s
        return None

    def publish(self, *, address: str, epoch: int) -> None:
        """Say where we answer and since when, in the store and in ZooKeeper.

        Raises:
            LeaseLost: if one of the leases is another's.
            ConfigError: the znode belongs to a later epoch, or holds what Omid would refuse too.
        """
        where = f"{self._address.current_path} of {self._address.text}"
        path = self._address.current_path
        self._zookeeper.create(path)
        node = self._zookeeper.read(path)
        if node is None:
            raise StorageUnavailable(f"{where} disappeared while it was read")
        if node.data:
            published = decode_current(node.data, where=where)
            if published.epoch > epoch:
                # It may be a successor's, of this store: we may have stood still since we took
                # the leases.  Looked at behind the znode: who publishes has taken both before.
                self.check()
                raise ConfigError(
                    f"{where} names the oracle {node.data.decode()!r}, whose epoch is above "
                    f"{epoch}, the epoch of this store: the namespace belongs to another store, or "
                    "this store was restored from an old copy. Name another namespace in --lease; "
                    "or, if that oracle is gone for good and this is its store, restore its "
                    "timestamps, or delete the znode and start with --initial-timestamp"
                )
        self._own.publish(address=address, epoch=epoch)
        self._data = address.encode()
        self._renew()
        data = encode_current(address, epoch)
        # Over the version that was read: what a later leader has published since stays.
        if self._zookeeper.replace(path, data, version=node.version) is None:
            raise LeaseLost(
                f"{where} was changed by another oracle while this one took over; start it again "
                "to stand by"
            )

    # -- keeping it ----------------------------------------------------------------------------

    def renew_if_due(self, *, before_check: bool = False) -> None:
        """Renew both before their periods are over; see `Lease.renew_if_due`.

        Raises:
            LeaseLost: if one of them is another's.
        """
        self._own.renew_if_due(before_check=before_check)
        if self._is_due(periods=0.5 if before_check else 1 / _RENEWALS_PER_PERIOD):
            self._renew()

    def check(self) -> None:
        """Read both, or renew them where that is due, which tells as much.

        Raises:
            LeaseLost: if one of them is another's.

        Cost: 1 get of the store and 1 round trip to ZooKeeper at the same time.
        """
        if self._is_due(periods=1 / _RENEWALS_PER_PERIOD):
            self._own.check()
            self._renew()
            return
        # Both are looked at behind the batch, so that their order does not matter: of a deposed
        # leader one of them says so, and nothing of the batch is answered (I2, I8).
        answer = self._zookeeper.read_later(self._address.lease_path)
        self._own.check()
        node = answer()
        if not self._is_ours(node):
            raise self._lost_to(node)

    def lost(self) -> LeaseLost:
        """Return the error that says who has the lease now."""
        return self._own.lost()

    def release(self) -> None:
        """Give both up, so that a successor need not wait; harmless where they are not ours."""
        # First of all: whatever becomes of the write, no renewal of ours follows it.
        version, self._version = self._version, None
        try:
            if version is not None:
                self._zookeeper.replace(self._address.lease_path, b"", version=version)
        except StorageUnavailable as error:
            logger.warning("the lease in ZooKeeper could not be given up: %s", error)
        finally:
            self._own.release()
            self._zookeeper.close()

    # -- the znode -----------------------------------------------------------------------------

    def _lease_node(self) -> Znode:
        path = self._address.lease_path
        node = self._zookeeper.read(path)
        if node is None:
            self._zookeeper.create(path)
            node = self._zookeeper.read(path)
        if node is None:
            raise StorageUnavailable(f"{path} of {self._address.text} disappeared again")
        return node

    def _other_holder(self, node: Znode) -> str | None:
        """Return who holds the znode; None if it was given up or has stood still long enough."""
        if not node.data:
            return None
        now_s = self._clock.monotonic_s()
        if node != self._seen:  # one that was made anew begins its versions anew
            self._seen, self._seen_s = node, now_s
        if now_s - self._seen_s > self._period_s:
            return None
        return self._described(node)

    def _described(self, node: Znode | None) -> str:
        if node is None or not node.data:
            holder = "nobody"
        else:
            holder = f"the oracle at {node.data.decode('utf-8', 'replace')}"
        return f"{holder}, by {self._address.lease_path} of {self._address.text}"

    def _is_due(self, *, periods: float) -> bool:
        if self._version is None:
            return False
        return self._clock.monotonic_s() - self._renewed_s >= periods * self._period_s

    def _is_ours(self, node: Znode | None) -> bool:
        """Say whether the znode is ours, by its version; a write without an answer may count."""
        if self._version is None or node is None or node.data != self._data:
            return False
        # The data is ours, and one version above: no other oracle writes this address, so that it
        # was our write whose answer was lost.
        if self._may_be_newer and node.version == self._version + 1:
            self._version, self._may_be_newer = node.version, False
        return node.version == self._version

    def _renew(self) -> None:
        """Write the znode over the version that is ours."""
        if self._version is None:
            raise self._lost_to(None)
        # The clock is read before the write: our own idea of its age is never too young.
        now_s = self._clock.monotonic_s()
        version = self._replace(self._version)
        if version is None:
            node = self._zookeeper.read(self._address.lease_path)
            if not self._is_ours(node):
                raise self._lost_to(node)
            version = self._replace(self._version)
            if version is None:
                raise self._lost_to(node)
        self._version, self._may_be_newer, self._renewed_s = version, False, now_s

    def _replace(self, version: int) -> int | None:
        try:
            return self._zookeeper.replace(self._address.lease_path, self._data, version=version)
        except StorageUnavailable:
            self._may_be_newer = True
            raise

    def _lost_to(self, node: Znode | None) -> LeaseLost:
        return LeaseLost(
            f"the lease in ZooKeeper is no longer ours: it belongs to {self._described(node)}. "
            "Nothing that was not yet answered is answered; start the oracle again to stand by"
        )
