"""Writes each batch into a Parquet file, as `files.py` says, for warehouses and data frames.

| column | type |
|---|---|
| `key` | binary |
| `value` | binary for values that are bytes, string (JSON) for others; NULL where it is None |
| `commit_ts`, `start_ts` | int64 |
| `ordinal` | binary, 21 bytes that order as the number does, which may exceed 64 bits |
| `headers` | map of string to string |

and `queue`, `bucket` and `fence` are in the metadata of the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError
from omidpy.recipes.export_queue.sinks.documents import ORDINAL_BYTES
from omidpy.recipes.export_queue.sinks.files import FileSink, Seqs
from omidpy.recipes.export_queue.sinks.sql.statements import row

if TYPE_CHECKING:
    from omidpy.recipes.export_queue.exporter import Batch


class ParquetSink(FileSink):
    """A Parquet file for each batch.

    Needs `omidpy[parquet]`.
    """

    suffix = "parquet"

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Write into a folder, which is made if it is not there.

        Raises:
            ConfigError: pyarrow is not installed.
        """
        super().__init__(folder)
        self._arrow = _pyarrow()

    def write(self, file: BinaryIO, batch: Batch) -> None:
        """Write a row for each entry."""
        arrow = self._arrow
        rows = [(*row(entry), list(entry.headers.items())) for entry in batch]
        is_bytes = any(isinstance(value, bytes) for _, value, *_ in rows)
        schema = arrow.schema(
            [
                arrow.field("key", arrow.binary(), nullable=False),
                # A queue of msgpack may have both: then all are bytes.
                arrow.field("value", arrow.binary() if is_bytes else arrow.string()),
                arrow.field("commit_ts", arrow.int64(), nullable=False),
                arrow.field("ordinal", arrow.binary(ORDINAL_BYTES), nullable=False),
                arrow.field("start_ts", arrow.int64(), nullable=False),
                arrow.field("headers", arrow.map_(arrow.string(), arrow.string()), nullable=False),
            ],
            metadata={"queue": batch.queue, "bucket": str(batch.bucket), "fence": str(batch.fence)},
        )
        columns = [
            arrow.array(values, type=field.type)
            for values, field in zip(zip(*rows, strict=True), schema, strict=True)
        ]
        table = arrow.table(columns, schema=schema)
        arrow.parquet.write_table(table, file)

    def seqs(self, path: Path) -> Seqs:
        """Return the `seq` of every row."""
        with path.open("rb") as file:
            found = self._arrow.parquet.read_table(file, columns=["commit_ts", "ordinal"])
        ordinals = (int.from_bytes(one) for one in found["ordinal"].to_pylist())
        return frozenset(zip(found["commit_ts"].to_pylist(), ordinals, strict=True))


def _pyarrow() -> Any:
    try:
        import pyarrow as arrow  # noqa: ICN001, PLC0415 - an extra
        import pyarrow.parquet  # noqa: PLC0415 - see above
    except ImportError as error:
        raise ConfigError(f"Parquet files need pyarrow: {install_hint('parquet')}") from error
    return arrow
