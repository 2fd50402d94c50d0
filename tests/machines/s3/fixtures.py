"""The fixtures of stores of objects.

s3              a real server for the tests of a session, and its credentials
copied_clients  what makes clients of it cheap for a test that opens many stores
in_line         what makes jobs cheap over a store in the memory of this process
moto_bucket     a bucket in the memory of this process, for tests that need no server
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from omidpy.committers.objects.store import ObjectStore
from tests.machines.memory_folder import memory_folder
from tests.machines.s3.clients import Made, copy_clients
from tests.machines.s3.in_line import work_in_line
from tests.machines.s3.server import REGION, S3Server


@pytest.fixture(scope="session")
def _s3() -> Iterator[S3Server]:
    with memory_folder() as folder, S3Server(folder) as server:
        yield server


@pytest.fixture
def s3(_s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """Give the session's S3 server; boto3 finds its credentials."""
    for name, value in _s3.environment.items():
        monkeypatch.setenv(name, value)
    return _s3


@pytest.fixture
def copied_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the stores of a test have copies of one client, where no line of making it matters."""
    copy_clients(monkeypatch, {})


@pytest.fixture
def in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs on stores of one thread do all in the caller's; by night with that thread."""
    if os.environ.get("OMIDPY_HYPOTHESIS_PROFILE") != "nightly":
        work_in_line(monkeypatch)


@pytest.fixture(scope="session")
def _made_for_moto() -> Made:
    """Give the clients of all tests that ask moto: they hold no connection."""
    return {}


@pytest.fixture
def moto_bucket(monkeypatch: pytest.MonkeyPatch, _made_for_moto: Made) -> Iterator[str]:
    """Give a bucket of a store that moto plays in this process: no request leaves it.

    boto3 asks it wherever no endpoint is named.  It looks at an object and writes it in two steps,
    and serves one request at a time here, so that a condition holds among threads too.
    """
    from moto import mock_aws
    from moto.core.botocore_stubber import BotocoreStubber

    one_at_a_time = threading.RLock()
    process_request = BotocoreStubber.process_request

    def in_turn(stubber: BotocoreStubber, request: Any) -> Any:
        with one_at_a_time:
            return process_request(stubber, request)

    monkeypatch.setattr(BotocoreStubber, "process_request", in_turn)

    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    copy_clients(monkeypatch, _made_for_moto)
    with mock_aws():
        ObjectStore().client.create_bucket(Bucket="lake")
        yield "lake"
