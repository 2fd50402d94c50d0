"""The fixture `s3`: a real server for the tests of a session, and its credentials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.machines.s3.server import S3Server


@pytest.fixture(scope="session")
def _s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder: Path = tmp_path_factory.mktemp("s3")
    with S3Server(folder) as server:
        yield server


@pytest.fixture
def s3(_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Give the session's S3 server; boto3 finds its credentials."""
    for name, value in _s3.environment.items():
        monkeypatch.setenv(name, value)
    return _s3
