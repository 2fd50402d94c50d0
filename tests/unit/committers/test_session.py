"""What a session's settings mean to a write."""

from __future__ import annotations

import pytest

from omidpy.committers.spark import session
from omidpy.committers.spark.session import SessionSettings
from omidpy.errors import UsageError


def test_a_session_that_says_nothing_asks_for_nothing() -> None:
    """Then options and defaults decide."""
    assert session.read(lambda _: None) == SessionSettings()


def test_a_session_is_read() -> None:
    """In whatever case Spark takes its words."""
    said = {
        session.OVERWRITE_MODE: "DYNAMIC",
        session.CODEC: "lz4_raw",
        session.MOST_RECORDS: "7",
        session.TIMESTAMPS: "int96",
        session.SPECULATION: "true",
    }
    assert session.read(said.get) == SessionSettings(
        is_dynamic=True, compression="lz4", most_records=7, timestamps="INT96", speculates=True
    )
    assert session.read({session.MOST_RECORDS: "-1"}.get).most_records == 0


@pytest.mark.parametrize(
    "said",
    [
        {session.OVERWRITE_MODE: "other"},
        {session.CODEC: "lzo"},
        {session.TIMESTAMPS: "seconds"},
    ],
)
def test_what_a_session_asks_and_nobody_does_is_refused_by_name(said: dict[str, str]) -> None:
    """To ignore it would write something else than was asked."""
    (name,) = said
    with pytest.raises(UsageError, match=name):
        session.read(said.get)
