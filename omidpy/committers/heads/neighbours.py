"""Which other tool keeps a record of what is in a folder?  Told by the names that it uses.

Readers who go by such a record see nothing of a job that writes files beside it, and a job that
replaces removes files that the record names.

Pure.
"""

from __future__ import annotations

import re
from typing import Final

DELTA: Final = "a Delta log"

_RECORDS: Final = (
    (re.compile(r"_delta_log/"), DELTA),
    (re.compile(r"\.hoodie/"), "a Hudi timeline"),
    (re.compile(r"metadata/.*\.metadata\.json$"), "an Iceberg table's metadata"),
    (re.compile(r"_spark_metadata/"), "the log of a Spark stream"),
)


def record_of(path: str) -> str | None:
    """Name the record that a file is part of; None if it is of none that is known.

    Args:
        path: Of the file, below the folder.
    """
    return next((name for pattern, name in _RECORDS if pattern.match(path)), None)
