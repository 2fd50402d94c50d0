"""What does somebody who reads a bucket see?"""

from __future__ import annotations

import json
from typing import Any

from omidpy.committers.places import is_hidden
from tests.machines.s3.server import S3Server


class Bucket:
    """A bucket of a server, seen from outside the product."""

    def __init__(self, server: S3Server, name: str | None = None) -> None:
        """Look at a bucket; a new one by default."""
        self.name = name or server.bucket()
        self.client = server.client

    def keys(self, prefix: str = "") -> list[str]:
        """Return every key but those of heads, which stay wherever a job has ended."""
        found: list[str] = []
        pages = self.client.get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.name, Prefix=prefix):
            found += [one["Key"] for one in page.get("Contents", ())]
        return [key for key in found if not key.endswith(("/", "_omidpy/head.json"))]

    def visible(self, folder: str) -> list[str]:
        """Return the paths below a folder that readers of datasets see."""
        paths = (key.removeprefix(f"{folder}/") for key in self.keys(f"{folder}/"))
        return [path for path in paths if not is_hidden(path)]

    def uploads(self) -> list[str]:
        """Return the keys of all uploads that are neither completed nor aborted."""
        answer = self.client.list_multipart_uploads(Bucket=self.name)
        assert not answer.get("IsTruncated")
        return [one["Key"] for one in answer.get("Uploads", ())]

    def get(self, key: str) -> bytes:
        """Return an object's bytes."""
        return bytes(self.client.get_object(Bucket=self.name, Key=key)["Body"].read())

    def put(self, key: str, data: bytes = b"theirs") -> None:
        """Write an object as somebody else."""
        self.client.put_object(Bucket=self.name, Key=key, Body=data)

    def success(self, folder: str) -> dict[str, Any]:
        """Return what `_SUCCESS` says."""
        document: dict[str, Any] = json.loads(self.get(f"{folder}/_SUCCESS"))
        return document
