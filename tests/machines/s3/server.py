"""A versitygw that runs for a session of tests, on the loopback, on a folder of its own.

    with S3Server(folder) as server:
        server.endpoint, server.environment
        server.bucket()         # a new one

`python -m tests.machines.s3.server FOLDER` runs one until it is interrupted.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self

from tests.machines.hbase.ports import PortBlock, answers
from tests.machines.keeper import Kept
from tests.machines.s3.building import versitygw

ACCESS: Final = "omidpy-test"
SECRET: Final = "omidpy-test-secret"
REGION: Final = "us-east-1"
LONGEST_START_S: Final = 60.0
LOOK_EVERY_S: Final = 0.02

_numbers = itertools.count()


class S3Server:
    """One server; its buckets are folders below `folder`."""

    def __init__(self, folder: Path) -> None:
        """Start it."""
        root = folder / "buckets"
        root.mkdir(parents=True, exist_ok=True)
        self._ports = PortBlock()
        self.port = self._ports.port("s3")
        self.log = folder / "versitygw.log"
        self._kept = Kept(
            [
                str(versitygw()),
                "--port",
                f"127.0.0.1:{self.port}",
                "--access",
                ACCESS,
                "--secret",
                SECRET,
                "--region",
                REGION,
                "--quiet",
                "--keep-alive",
                "posix",
                str(root),
            ],
            log=self.log,
        )
        deadline_s = time.monotonic() + LONGEST_START_S
        while not answers(self.port):
            if not self._kept.is_running or time.monotonic() > deadline_s:
                raise AssertionError(f"versitygw did not start:\n{self.log.read_text()}")
            time.sleep(LOOK_EVERY_S)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What boto3's chain of credentials finds."""
        return {
            "AWS_ACCESS_KEY_ID": ACCESS,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @cached_property
    def client(self) -> Any:
        """A client of boto3 that goes there straight."""
        import boto3
        from botocore.config import Config

        return boto3.session.Session(ACCESS, SECRET, region_name=REGION).client(
            "s3",
            endpoint_url=self.endpoint,
            config=Config(s3={"addressing_style": "path"}),
        )

    def bucket(self) -> str:
        """Make a bucket that nobody else has."""
        name = f"b{os.getpid()}-{next(_numbers)}"
        self.client.create_bucket(Bucket=name)
        return name

    def close(self) -> None:
        """End it."""
        self._kept.kill()
        self._ports.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()


def main(folder: str) -> None:
    """Run a server in the foreground."""
    with S3Server(Path(folder)) as server:
        print(server.endpoint, flush=True)
        server._kept.wait(None)


if __name__ == "__main__":
    main(sys.argv[1])
