"""What a session's settings mean to a write."""

from __future__ import annotations

import pytest

from omidpy.committers.heads.standing import AWAITED_BESIDE_S
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
        is_dynamic=True,
        compression="lz4",
        most_records=7,
        timestamps="INT96",
        speculates=True,
        awaited_s=AWAITED_BESIDE_S,
    )
    assert session.read({session.MOST_RECORDS: "-1"}.get).most_records == 0


def test_what_parquet_is_asked_for_is_read() -> None:
    """What these mean depends on the columns."""
    said = {
        session.LEGACY_FORMAT: "TRUE",
        session.FIELD_IDS: "False",
        session.REBASE: "legacy",
        session.REBASE_INT96: "LEGACY",
    }
    assert session.read(said.get) == SessionSettings(
        is_legacy=True, writes_field_ids=False, rebases=True, rebases_int96=True
    )
    said = dict.fromkeys(said, "CORRECTED") | {session.LEGACY_FORMAT: "false"}
    assert session.read(said.get) == SessionSettings()


@pytest.mark.parametrize("prefix", ["", "spark.hadoop."])
def test_settings_of_hadoop_have_two_names(prefix: str) -> None:
    """Spark takes them behind `spark.hadoop.`, and keeps them without."""
    said = {prefix + session.MARKS_SUCCESS: " False", prefix + session.GROUP_BYTES: "1048576 "}
    assert session.read(said.get) == SessionSettings(marks_success=False, group_bytes=2**20)
    assert session.read({prefix + session.MARKS_SUCCESS: "true"}.get) == SessionSettings()
    for name in session.KEYS:
        with pytest.raises(UsageError, match=f"{name} asks for encrypted files"):
            session.read({prefix + name: "k1"}.get)


def test_what_hadoop_itself_has_wins_over_what_the_session_began_with() -> None:
    """The first is what Spark's own formats go by."""
    said = {session.GROUP_BYTES: "7", f"spark.hadoop.{session.GROUP_BYTES}": "8"}
    assert session.read(said.get).group_bytes == 7


@pytest.mark.parametrize(
    "said",
    [
        {session.OVERWRITE_MODE: "other"},
        {session.CODEC: "lzo"},
        {session.TIMESTAMPS: "seconds"},
        {session.GROUP_BYTES: "128m"},
        {session.GROUP_BYTES: "0"},
    ],
)
def test_what_a_session_asks_and_nobody_does_is_refused_by_name(said: dict[str, str]) -> None:
    """To ignore it would write something else than was asked."""
    (name,) = said
    with pytest.raises(UsageError, match=name):
        session.read(said.get)


@pytest.mark.parametrize(
    ("lost", "awaited_s"),
    [(None, 60.0), ("120s", 60.0), ("8s", 4.0), ("8000ms", 4.0), ("10", 5.0), ("1min", 30.0)],
)
def test_an_attempt_is_waited_for_half_as_long_as_its_executor(
    lost: str | None, awaited_s: float
) -> None:
    """One that stood still for longer may be late; of a time in other words nothing is known."""
    said = {session.LOST: lost}
    assert session.read(said.get).awaited_s == awaited_s
    assert session.read({session.LOST: "for ever"}.get).awaited_s == 60.0
