"""What committers ask of a store of objects, asked of each that tests run on."""

from __future__ import annotations

import pytest

from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from tests.machines.s3.server import S3Server
from tests.machines.s3.store_contract import ObjectStoreContract


@pytest.mark.integration
class TestVersitygw(ObjectStoreContract):
    """A real server, on a folder."""

    @pytest.fixture
    def store(self, s3: S3Server) -> ObjectStore:
        """Return the session's."""
        return ObjectStore(StoreOptions(endpoint_url=s3.endpoint))

    @pytest.fixture
    def bucket(self, s3: S3Server) -> str:
        """Return a new one."""
        return s3.bucket()


class TestMoto(ObjectStoreContract):
    """In memory and in this process: what quick tests of committers run on."""

    lacks = frozenset({"age", "key", "end"})

    @pytest.fixture
    def bucket(self, moto_bucket: str) -> str:
        """Return a new one."""
        return moto_bucket

    @pytest.fixture
    def store(self, bucket: str) -> ObjectStore:
        """Return an empty one."""
        return ObjectStore()
