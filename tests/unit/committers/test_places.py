"""Addresses, names and folders."""

from __future__ import annotations

import pytest

from omidpy.committers.places import (
    Folder,
    check_job_id,
    check_path,
    is_hidden,
    is_object_store,
    names_job,
    owner,
    parse_folder,
    parse_object,
    partition_folder,
    unique_name,
)
from omidpy.errors import UsageError


@pytest.mark.parametrize(
    ("address", "bucket", "prefix"),
    [
        ("s3://b", "b", ""),
        ("s3://b/", "b", ""),
        ("s3://b/dataset1", "b", "dataset1/"),
        ("s3a://b/dataset1/", "b", "dataset1/"),
        ("s3n://b/a/b c/d", "b", "a/b c/d/"),
    ],
)
def test_a_prefix_is_a_folder(address: str, bucket: str, prefix: str) -> None:
    """Without its last slash `dataset1` is the beginning of `dataset10`, another's data."""
    assert parse_folder(address) == Folder(bucket, prefix)


@pytest.mark.parametrize(
    "address",
    ["", "b/out", "http://b/out", "s3:///out", "s3://b/a//b", "s3://b/../c", "s3://b/./c"],
)
def test_what_is_no_folder_is_refused(address: str) -> None:
    """A slip in an address would write where nobody looks."""
    with pytest.raises(UsageError, match=r"s3://BUCKET|'\.'"):
        parse_folder(address)


def test_an_object_has_a_key() -> None:
    """A plan is one object, never a bucket."""
    assert parse_object("s3://b/a/plan.json") == ("b", "a/plan.json")
    with pytest.raises(UsageError, match="no object"):
        parse_object("s3://b/")


def test_only_schemes_of_s3_are_stores_of_objects() -> None:
    """Paths of file systems go to committers that rename."""
    assert is_object_store("S3A://b/x")
    assert not any(map(is_object_store, ("file:///x", "s3", "/s3://x", "hdfs://n/x")))


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "../a", "a/./b"])
def test_a_path_stays_below_its_destination(path: str) -> None:
    """What a task names must not reach another's folder."""
    with pytest.raises(UsageError, match="no path of a file below"):
        check_path(path)


@pytest.mark.parametrize("path", ["a\nb", "p=1/a\x00", "\x1fa", "a\x7f"])
def test_a_name_that_no_listing_can_say_is_refused(path: str) -> None:
    """It was committed, and then not found: XML has no such characters."""
    with pytest.raises(UsageError, match="control character"):
        check_path(path)


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        ("a.parquet", False),
        ("_a.parquet", True),
        (".a.parquet", True),
        ("p=1/a", False),
        ("_p=1/a", False),
        ("_temporary/0/a", True),
        (".x=1/a", True),
        ("p=1/_a", True),
    ],
)
def test_hidden_is_what_readers_of_datasets_skip(path: str, *, hidden: bool) -> None:
    """Spark and Hadoop skip `_` and `.`, but for a column's folder."""
    assert is_hidden(path) is hidden
    if hidden:
        with pytest.raises(UsageError, match="begins with '_'"):
            check_path(path)


def test_a_job_id_can_be_told_from_other_text() -> None:
    """Uploads are swept by it: `1` is in half of all names."""
    for good in (UUID, f"{UUID}-b0000000001", "nightly_2026"):
        assert check_job_id(good) == good
    for bad in ("1", "", "a" * 129, "with/slash-in", "begins-with", "has.dots", f"{UUID}-1"):
        with pytest.raises(UsageError, match="job id"):
            check_job_id(bad)


UUID = "0b7f6a3e-1111-4222-8333-446655440000"


@pytest.mark.parametrize(
    ("name", "job_id"),
    [
        (f"p=1/part-0-{UUID}.snappy.parquet", UUID),
        (f"part-0-{UUID}-b0000000001.parquet", f"{UUID}-b0000000001"),
        ("part-0-nightly_2026.csv", "nightly_2026"),
        ("part-0-nightly_2026", "nightly_2026"),
        (f"{UUID}/part", ""),
        ("part-0.x-nightly_2026", ""),
    ],
)
def test_a_file_belongs_to_one_job(name: str, job_id: str) -> None:
    """A job that is swept must not cost the uploads of one whose id has the same end."""
    assert owner(name) == job_id
    for other in ("446655440000", UUID, f"{UUID}-b0000000001", f"{UUID}-b0000000010", "2026_x_y"):
        assert (owner(unique_name("part.csv", other)) == job_id) is (other == job_id)
        assert names_job(unique_name("part.csv", other), job_id or "nobody_at_all") is (
            other == job_id
        )


def test_files_that_spark_names_speak_of_their_job() -> None:
    """It puts the UUID in the middle."""
    assert names_job(f"out/part-00000-{UUID}-c000.snappy.parquet", UUID)
    assert names_job(f"out/__magic_job-{UUID}/x", UUID)
    assert not names_job(f"out/part-00000-{UUID}-c000.snappy.parquet", "446655440000")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("part-00000.snappy.parquet", "part-00000-nightly_26.snappy.parquet"),
        ("p=1.5/part", "p=1.5/part-nightly_26"),
        ("part-nightly_26.csv", "part-nightly_26.csv"),
        ("a/b.c/d.e.f", "a/b.c/d-nightly_26.e.f"),
    ],
)
def test_the_id_goes_before_the_first_dot_of_the_name(path: str, expected: str) -> None:
    """It is Hadoop's rule, so that both give a file the same name."""
    assert unique_name(path, "nightly_26") == expected


def test_folders_of_partitions_are_escaped_as_spark_escapes_them() -> None:
    """Letters beyond ASCII stay, since Spark reads each escape as one character."""
    assert partition_folder(("a", "b=c"), ("x/y%", "ü 1")) == "a=x%2Fy%25/b%3Dc=ü 1"
    assert partition_folder(("a",), (None,)) == "a=__HIVE_DEFAULT_PARTITION__"
    assert partition_folder(("a",), ("",)) == "a=__HIVE_DEFAULT_PARTITION__"
