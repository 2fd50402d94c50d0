"""What becomes of kazoo's client behind a session of operations."""

from __future__ import annotations

from typing import Final

import pytest

from omidpy.base.ensemble import is_over
from omidpy.base.timing.clock import ManualClock
from omidpy.errors import ConfigError, StorageUnavailable
from omidpy.fate.zookeeper.members import EphemeralMember
from omidpy.fate.zookeeper.session import ZooKeeperSession
from omidpy.life.base import TRUST
from omidpy.oracle.zookeeper import KazooZooKeeper, resolver
from tests.machines.speaking_zookeeper import NO_AUTH, SpeakingZooKeeper
from tests.machines.waiting import wait_for

pytest.importorskip("kazoo")

DEADLINE_S: Final = 20.0
with_a_thread_that_ends = pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)


@pytest.mark.parametrize(("asked_s", "granted_s"), [(5.0, 2.0), (5.0, 60.0)])
def test_a_member_believes_no_longer_than_the_ensemble_lets_its_session_live(
    asked_s: float, granted_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cuts what is asked for; then others take what a process held that believes still (F4)."""
    with SpeakingZooKeeper(session_s=granted_s) as server:
        session = ZooKeeperSession(server.address(timeout_s=asked_s))
        try:
            monkeypatch.setattr(session, "create", lambda *_, **__: True)
            monkeypatch.setattr(session, "owner_of", lambda path: session.session_id)
            clock = ManualClock()
            member = EphemeralMember(session, "/workers", clock)
            lease_s = min(asked_s, granted_s)
            clock.advance(0.99 * TRUST * lease_s)
            assert member.is_trusted()
            clock.advance(0.02 * TRUST * lease_s)
            assert not member.is_trusted()
        finally:
            session.close()


@with_a_thread_that_ends
@pytest.mark.parametrize("kind", [KazooZooKeeper, ZooKeeperSession])
def test_a_session_outlives_a_client_that_has_given_up(
    kind: type[KazooZooKeeper | ZooKeeperSession],
) -> None:
    """A standby would stand by for ever, and an executor run nothing any more."""
    with SpeakingZooKeeper() as server:
        session = kind(server.address())
        given_up = session._client
        assert session.read("/a") is None
        server.is_confused = True
        with pytest.raises(StorageUnavailable, match="gave no answer"):
            session.read("/a")
        wait_for(lambda: is_over(given_up), DEADLINE_S)
        server.is_confused = False
        assert session.read("/a") is None
        assert session._client is not given_up
        assert server.sessions == 2
        session.close()
        with pytest.raises(StorageUnavailable, match=r"closed"):
            session.read("/a")
        assert server.sessions == 2


@with_a_thread_that_ends
def test_a_session_that_is_not_let_in_any_more_may_be_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was let in before, so that what ails it is no address: a ticket is renewed."""
    with SpeakingZooKeeper() as server:
        session = ZooKeeperSession(server.address())
        server.is_confused = True
        with pytest.raises(StorageUnavailable, match="gave no answer"):
            session.sync()
        wait_for(lambda: is_over(session._client), DEADLINE_S)
        server.is_confused = False

        def refuse(address: object) -> None:
            raise ConfigError("no ticket")

        with monkeypatch.context() as patched:
            patched.setattr("omidpy.oracle.zookeeper.start_client", refuse)
            with pytest.raises(StorageUnavailable, match="no ticket"):
                session.read("/a")
        assert session.read("/a") is None
        session.close()


@pytest.mark.parametrize("kind", [KazooZooKeeper, ZooKeeperSession])
def test_a_znode_that_is_others_is_no_silence(
    kind: type[KazooZooKeeper | ZooKeeperSession],
) -> None:
    """Nobody who waits and asks again gets more."""
    with SpeakingZooKeeper() as server:
        session = kind(server.address())
        server.error = NO_AUTH
        with pytest.raises(ConfigError, match="access list of a znode names others"):
            session.read("/a")
        session.close()


def test_a_client_looks_for_no_oracle_where_it_may_not_read() -> None:
    """It would look again until its time is over, and then blame the network."""
    with SpeakingZooKeeper() as server:
        server.error = NO_AUTH
        with pytest.raises(ConfigError, match="access list"):
            resolver(server.address())()
