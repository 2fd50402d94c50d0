"""A driver in a process of its own, to be killed: `python -m tests.machines.s3.driver ADDRESS`.

It begins once its standard input ends.  Its job has small files, which travel in the plan, and
large ones, which are uploads.
"""

from __future__ import annotations

import sys
from typing import Final

from omidpy import committers

SIZES: Final = {"small-0": 3, "large-1": 10, "small-2": 4, "large-3": 20}
"""Files of the job, and how many bytes each has."""

INLINE_BYTES: Final = 5


def content(name: str) -> bytes:
    """Return the bytes of a file."""
    return name[-1].encode() * SIZES[name]


def run(address: str, conflict: str, endpoint_url: str) -> None:
    """Run the job."""
    with committers.job(
        address,
        conflict=conflict,
        endpoint_url=endpoint_url,
        inline_bytes=INLINE_BYTES,
        threads=4,
    ) as job:
        for name in SIZES:
            with job.task() as task, task.open(name) as file:
                file.write(content(name))


if __name__ == "__main__":
    sys.stdin.read()
    run(*sys.argv[1:])
