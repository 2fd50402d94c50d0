"""What becomes of kazoo's client behind a session of operations."""

from __future__ import annotations

import pytest

from omidpy.base.timing.clock import ManualClock
from omidpy.fate.zookeeper.members import EphemeralMember
from omidpy.fate.zookeeper.session import ZooKeeperSession
from omidpy.life.base import TRUST
from tests.machines.speaking_zookeeper import SpeakingZooKeeper

pytest.importorskip("kazoo")


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
