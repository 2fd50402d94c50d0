"""What a closed client of an oracle says of a commit that it was asked for."""

from __future__ import annotations

import pytest

from omidpy.errors import OracleUnavailable
from omidpy.model import CellId, TableId, Timestamp
from omidpy.oracle.tcp import TcpOracle


def test_a_commit_asked_of_a_closed_client_was_certainly_not_sent() -> None:
    """It was called open, and whoever asked looked for an outcome for ten seconds."""
    oracle = TcpOracle("127.0.0.1:1")
    oracle.close()
    with pytest.raises(OracleUnavailable, match="is closed") as refused:
        oracle.commit(Timestamp(50), [CellId(1)], [TableId(1)])
    assert not refused.value.was_sent
    assert not refused.value.retryable
