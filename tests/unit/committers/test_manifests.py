"""How publications are named, and what their cells hold."""

from __future__ import annotations

import pytest

from omidpy.base.tables import PUBLISHED_TABLE, is_system_table
from omidpy.committers.contents import manifests
from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.places import check_job_id, is_hidden, owner, parse_folder, unique_name
from omidpy.errors import CommitterError, CorruptCell, UsageError

LAKE = parse_folder("s3://b/lake")
JOB = manifests.job_name(1_795_381_748_831_000_050, "2c2f09143fc9")


def test_no_destination_begins_with_the_rows_of_another() -> None:
    """`lake` and `lake/a` and `lake2` are three."""
    rows = [
        manifests.portion_row(parse_folder(f"s3://b/{name}"), JOB, 0)
        for name in ("lake", "lake/a", "lake2")
    ]
    for row in rows[1:]:
        assert not row.startswith(manifests.prefix(LAKE))
    assert rows[0].startswith(manifests.portions_prefix(LAKE))
    assert not manifests.head_row(LAKE).startswith(manifests.portions_prefix(LAKE))
    with pytest.raises(UsageError, match="zero byte"):
        manifests.prefix(parse_folder("s3://b/a\0b"))


def test_a_row_says_which_job_and_a_job_which_transaction() -> None:
    """So a file leads to its transaction."""
    row = manifests.portion_row(LAKE, JOB, 7)
    assert manifests.parse_portion_row(LAKE, row) == (JOB, 7)
    assert manifests.start_ts_of(JOB) == 1_795_381_748_831_000_050
    assert manifests.start_ts_of("somebody") is None
    assert owner(unique_name("part-0.parquet", check_job_id(JOB))) == JOB
    for wrong in (row[:-10], row[:-1] + b"x", manifests.portions_prefix(LAKE) + b"j\x001"):
        with pytest.raises(CorruptCell, match="names no files"):
            manifests.parse_portion_row(LAKE, wrong)


def test_folders_of_jobs_are_hidden_from_readers_of_folders() -> None:
    """Else they would see what was not committed."""
    place = manifests.job_folder(LAKE, manifests.owner_name("store", "T"), JOB)
    assert is_hidden(LAKE.below(place.key("month=1/part-0.parquet")))
    assert manifests.owner_name("a b", "c") != manifests.owner_name("a", "b c")


def test_cells_name_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as fit."""
    monkeypatch.setattr(manifests, "PORTION_FILES", 2)
    place = manifests.job_folder(LAKE, "0" * 16, JOB)
    files = [
        PublishedFile("b", place.key(f"m={at}/f"), f"m={at}/f", at, at or None, "e")
        for at in range(5)
    ]
    cells = list(manifests.portions("0" * 16, files))
    assert len(cells) == 3
    found = [one for cell in cells for one in manifests.decode_portion(LAKE, JOB, cell)]
    assert found == files
    assert found[1].url == f"s3://b/lake/_omidpy/published/{'0' * 16}/{JOB}/m=1/f"
    assert len(list(manifests.portions("0" * 16, []))) == 1


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"version":1,"owner":"o","files":[1]}'])
def test_a_cell_that_names_nothing_is_an_error(data: bytes) -> None:
    """No dataset is short of files in silence."""
    with pytest.raises(CorruptCell, match=f"cell of job {JOB} at s3://b/lake holds"):
        manifests.decode_portion(LAKE, JOB, data)
    with pytest.raises(CommitterError, match="in format 2, and this omidpy knows format 1"):
        manifests.decode_portion(LAKE, JOB, b'{"version":2,"owner":"o","files":[]}')


def test_the_table_is_one_of_the_users() -> None:
    """A compaction heals it before it forgets commits, and drops what snapshots cannot read."""
    assert not is_system_table(PUBLISHED_TABLE)
    assert is_system_table("OMIDPY_PUBLISHED2")
