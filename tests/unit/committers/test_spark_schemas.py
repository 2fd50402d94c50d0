"""Which columns a session's settings refuse, which ids those have, and what options leave open."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from omidpy.committers.spark import session
from omidpy.committers.spark.schemas import FIELD_ID, check_settings, field_ids, timestamps_of
from omidpy.committers.spark.session import SessionSettings
from omidpy.committers.spark.source import _said, _settings
from omidpy.errors import UsageError


def of(kind: DataType) -> StructType:
    """Return a schema that has a type two levels down."""
    return StructType().add("a", LongType()).add("s", StructType().add("x", kind))


@pytest.mark.parametrize(
    ("said", "kind", "name"),
    [
        (SessionSettings(is_legacy=True), ArrayType(LongType()), session.LEGACY_FORMAT),
        (SessionSettings(is_legacy=True), MapType(LongType(), LongType()), session.LEGACY_FORMAT),
        (SessionSettings(rebases=True), DateType(), session.REBASE),
        (SessionSettings(rebases=True), TimestampType(), session.REBASE),
        (
            SessionSettings(rebases_int96=True, timestamps="INT96"),
            TimestampType(),
            session.REBASE_INT96,
        ),
    ],
)
def test_columns_that_would_be_stored_otherwise_are_refused(
    said: SessionSettings, kind: DataType, name: str
) -> None:
    """The setting and the column are named, wherever the column is."""
    with pytest.raises(UsageError, match=rf"{name}=.*'s\.x' of type {kind.typeName()}"):
        check_settings(said, of(kind))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (SessionSettings(), ArrayType(TimestampType())),
        (SessionSettings(is_legacy=True), DecimalType(9, 2)),
        (SessionSettings(is_legacy=True), TimestampType()),
        (SessionSettings(rebases=True), TimestampNTZType()),
        (SessionSettings(rebases=True), StringType()),
        (SessionSettings(rebases_int96=True), TimestampType()),
        (SessionSettings(rebases_int96=True, timestamps="INT96"), DateType()),
    ],
)
def test_columns_of_which_a_setting_does_not_speak_are_not(
    said: SessionSettings, kind: DataType
) -> None:
    """They are stored alike, whatever it says."""
    check_settings(said, of(kind))


@pytest.mark.parametrize("how", ["INT96", "TIMESTAMP_MILLIS"])
def test_times_without_a_zone_are_stored_as_they_are(how: str) -> None:
    """As INT96 they would be moments to every reader, which differ with its time zone."""
    said = SessionSettings(timestamps=how)
    assert timestamps_of(said, of(TimestampType())) == how
    assert timestamps_of(said, of(ArrayType(TimestampNTZType()))) == ""
    both = of(TimestampNTZType()).add("t", TimestampType())
    with pytest.raises(UsageError, match=rf"{session.TIMESTAMPS}={how} .* 't' of type timestamp"):
        timestamps_of(said, both)
    for other in ("", "TIMESTAMP_MICROS"):
        assert timestamps_of(SessionSettings(timestamps=other), both) == other


def test_ids_are_found_at_any_depth() -> None:
    """By the names that Parquet has for what is in a list or a map."""

    def field(name: str, kind: DataType, number: Any) -> StructField:
        return StructField(name, kind, metadata={FIELD_ID: number})

    inner = StructType([field("x", LongType(), 3)])
    schema = StructType([field("s", inner, 1), StructField("l", ArrayType(inner))])
    schema.add("m", MapType(StringType(), inner))
    assert field_ids(schema) == {
        ("s",): 1,
        ("s", "x"): 3,
        ("l", "element", "x"): 3,
        ("m", "value", "x"): 3,
    }
    assert field_ids(of(LongType())) == {}
    for wrong in ("1", True, 2**31):
        with pytest.raises(UsageError, match=rf"'b' has {FIELD_ID}={wrong!r}"):
            field_ids(StructType([field("b", LongType(), wrong)]))


@pytest.mark.parametrize(
    ("said", "options", "expected"),
    [
        ({session.CODEC: "lzo"}, {"compression": "zstd"}, SessionSettings(compression="zstd")),
        ({session.OVERWRITE_MODE: "other"}, {"scope": "folder"}, SessionSettings()),
        ({session.MARKS_SUCCESS: "false"}, {}, SessionSettings(marks_success=False)),
        ({session.MARKS_SUCCESS: "false"}, {"success": "true"}, SessionSettings()),
        ({f"spark.hadoop.{session.MARKS_SUCCESS}": "false"}, {"success": "true"}, None),
    ],
)
def test_an_option_wins_over_the_session(
    said: dict[str, str], options: dict[str, str], expected: SessionSettings | None
) -> None:
    """Also over what the session would be refused for."""
    given = {"path": "s3://b/f", **options}
    settings = _settings(given, of(LongType()), overwrite=False)
    context: Any = SimpleNamespace(getLocalProperty=said.get)
    assert _said(settings, settings.committer(), context) == (expected or SessionSettings())


def test_a_session_is_compared_with_the_columns() -> None:
    """Of the frame that is written."""
    settings = _settings({"path": "s3://b/f"}, of(ArrayType(LongType())), overwrite=False)
    context: Any = SimpleNamespace(getLocalProperty={session.LEGACY_FORMAT: "true"}.get)
    with pytest.raises(UsageError, match=session.LEGACY_FORMAT):
        _said(settings, settings.committer(), context)
