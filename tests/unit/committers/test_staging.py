"""What is staged on a local disk that is full, or that fails."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from omidpy.committers.hadoop.staging import _StagedFile
from omidpy.committers.jobs import Job
from omidpy.committers.protocol import Attempt
from omidpy.errors import CommitterError


class Disk:
    """Makes temporary files that have room for so many bytes; none: no file is made."""

    def __init__(self, room: int | None) -> None:
        self.room = room
        self.made = tempfile.TemporaryFile

    def __call__(self, **options: Any) -> Any:
        """Make one."""
        if self.room is None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        file = self.made(**options)

        def write(data: memoryview) -> int:
            assert self.room is not None
            taken, self.room = data[: self.room], self.room - len(data[: self.room])
            if not taken:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(file.write(taken))

        return Mock(wraps=file, write=write)


def staging(upload: Mock) -> Mock:
    """Return a committer whose files are staged, to be sent to `upload`."""
    committer = Mock(commits_tasks_at_once=True, job_id="job")
    committer.recover_job.return_value = []
    committer.setup_task = lambda of: Attempt(of, "job", lambda path: _StagedFile(upload, path))
    return committer


@pytest.mark.parametrize(
    ("room", "why"), [(None, "Too many open files"), (0, "No space left"), (3, "No space left")]
)
def test_a_full_disk_is_told_as_what_it_is(
    room: int | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was told that the local file cannot be read that was to be published."""
    (tmp_path / "notes").write_bytes(b"notes")
    monkeypatch.setattr(tempfile, "TemporaryFile", Disk(room))
    said = rf"notes could not be staged .*temporary files: {why}.*TMPDIR"
    with pytest.raises(CommitterError, match=said), Job(staging(Mock())) as job:
        job.task(tmp_path / "notes")


def test_a_file_that_cannot_be_read_is_told_as_such(tmp_path: Path) -> None:
    """Its own error, and no other's."""
    with (
        pytest.raises(CommitterError, match=r"'.*absent' cannot be read"),
        Job(staging(Mock())) as job,
    ):
        job.task(tmp_path / "absent")


def test_a_file_of_which_a_write_has_failed_is_never_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of what was refused is there, and what came behind it is not whole."""
    disk, upload = Disk(3), Mock()
    monkeypatch.setattr(tempfile, "TemporaryFile", disk)
    file = _StagedFile(upload, "part")
    with pytest.raises(CommitterError, match="No space left"):
        file.write(b"notes")
    disk.room = 100
    file.write(b"notes")
    file.close()
    with pytest.raises(CommitterError, match="not written whole"):
        file.send()
    file.abort()
    upload.write.assert_not_called()
