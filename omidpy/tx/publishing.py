"""Files of an object store in a transaction, as the transaction sees those who publish them.

It stands here so that a transaction can say what it returns; all else is in `omidpy.committers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class PublishedFile(Protocol):
    """A file that was published."""

    @property
    def url(self) -> str:
        """The address of the file."""
        ...

    @property
    def path(self) -> str:
        """As its publisher has named it below the destination: `month=1/part-0.parquet`."""
        ...

    @property
    def length(self) -> int:
        """How many bytes it has."""
        ...

    @property
    def rows(self) -> int | None:
        """None if its rows were not counted."""
        ...


class Published(Protocol):
    """What a snapshot sees of a destination."""

    @property
    def destination(self) -> str:
        """`s3://BUCKET/FOLDER`."""
        ...

    @property
    def snapshot_ts(self) -> int:
        """It is what was committed before, and what the transaction itself has published."""
        ...

    @property
    def files(self) -> Sequence[PublishedFile]:
        """All of them, in the order of their addresses."""
        ...

    @property
    def urls(self) -> list[str]:
        """Return the addresses of the files."""
        ...

    @property
    def size_bytes(self) -> int:
        """How many they have together."""
        ...

    @property
    def rows(self) -> int | None:
        """How many they have together; None if a file's were not counted."""
        ...

    def read(self, file: Any) -> bytes:
        """Return what one of the files holds."""
        ...

    def dataset(self) -> Any:
        """Return them as a dataset of pyarrow, with columns of partitions."""
        ...

    def table(self, columns: Iterable[str] | None = None, filter: Any = None) -> Any:  # noqa: A002 - pyarrow's name
        """Read them into a table of pyarrow."""
        ...


class Publication(Protocol):
    """What one call of `tx.publish` has put into its transaction."""

    @property
    def job_id(self) -> str:
        """Of the job that has uploaded it, which its files' names hold."""
        ...

    @property
    def destination(self) -> str:
        """The folder that its files belong to."""
        ...

    @property
    def files(self) -> Sequence[PublishedFile]:
        """The files that it adds to the destination, in the order of their addresses."""
        ...


class Publishing(Protocol):
    """What puts files into transactions."""

    def publish(
        self,
        tx: Any,
        what: object,
        destination: str,
        *,
        conflict: str,
        partition_by: Iterable[str],
        **options: Any,
    ) -> Publication:
        """Upload, and name the files in cells of the transaction."""
        ...

    def published(self, tx: Any, destination: str, **options: Any) -> Published:
        """Return what the transaction sees of a destination."""
        ...
