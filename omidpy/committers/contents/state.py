"""What is published to a destination, as a snapshot sees it or a job left it, and how is it read?

The list of files of a snapshot never changes.  The files stay for as long as snapshots of
that age can be read: `tm.hold` keeps both for those who read for long.

That of a destination whose jobs are decided in a head is of its last commit (`reading.py`).  Its
files stay until a job replaces them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from omidpy.base.installation import install_hint
from omidpy.committers.contents.manifests import PublishedFile
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.client import missing_extra
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.values import md5
from omidpy.errors import CommitterError, ConfigError, UsageError

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem

PARQUET: Final = ".parquet"
_MD5: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Publication:
    """What one call of `tx.publish` has put into its transaction."""

    job_id: str
    """Of the job that has uploaded it, which its files' names hold."""
    destination: str
    """Where it belongs."""
    files: tuple[PublishedFile, ...]
    """The files."""


class Files:
    """A list of files of a destination that does not change, and how they are read."""

    __slots__ = ()

    if TYPE_CHECKING:
        destination: str
        files: tuple[PublishedFile, ...]
        store: ObjectStore

    @property
    def when(self) -> str:
        """Say of which moment the list is, behind a verb."""
        raise NotImplementedError

    @property
    def _when_gone(self) -> str:
        """Say why a file may be gone, and what to do."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[PublishedFile]:
        """Yield the files, by their addresses."""
        return iter(self.files)

    def __len__(self) -> int:
        """Return how many files there are."""
        return len(self.files)

    @property
    def urls(self) -> list[str]:
        """Return the addresses of the files."""
        return [one.url for one in self.files]

    @property
    def size_bytes(self) -> int:
        """How many they have together."""
        return sum(one.length for one in self.files)

    @property
    def rows(self) -> int | None:
        """How many they have together; None if a file's were not counted."""
        counts = [one.rows for one in self.files]
        return None if None in counts else sum(count for count in counts if count is not None)

    def read(self, file: PublishedFile) -> bytes:
        """Return what a file holds; 1 request.

        Raises:
            CommitterError: it is not what was published, or is not there any more.
        """
        try:
            data, _ = self.store.get(file.bucket, file.key)
        except Gone as error:
            raise CommitterError(f"{file.url} is gone: {self._when_gone}") from error
        if len(data) != file.length:
            raise CommitterError(
                f"{file.url} has {len(data)} bytes, and {file.length} were published: somebody "
                "has overwritten it"
            )
        # A tag of one part is a hash of the bytes, whatever the store's own tags are.
        if _MD5.fullmatch(file.etag) and file.etag != md5(data):
            raise CommitterError(
                f"{file.url} has other bytes than were published: somebody has overwritten it"
            )
        return data

    def dataset(self) -> Any:
        """Return the Parquet files as a dataset of pyarrow, with columns of partitions.

        Raises:
            UsageError: there is none, so that the columns are not known.
        """
        try:
            import pyarrow.dataset as ds  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError(
                f"reading tables needs pyarrow; run `{install_hint('s3')}`"
            ) from error
        paths = [f"{one.bucket}/{one.key}" for one in self.files if one.key.endswith(PARQUET)]
        if not paths:
            raise UsageError(
                f"no Parquet file of {self.destination} is visible {self.when}; "
                "`files` says which others are"
            )
        # INT96 in nanoseconds of 64 bits, as by default, wraps around before 1677 and behind 2262.
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        return ds.dataset(
            paths,
            format=ds.ParquetFileFormat(read_options=options),
            filesystem=file_system(self.store),
            partitioning=ds.partitioning(flavor="hive"),
        )

    def table(self, columns: Iterable[str] | None = None, filter: Any = None) -> Any:  # noqa: A002 - pyarrow's name
        """Read the Parquet files into a table of pyarrow.

        Args:
            columns: Which; None for all.
            filter: An expression of pyarrow.
        """
        wanted = None if columns is None else list(columns)
        return self.dataset().to_table(columns=wanted, filter=filter)


@dataclass(frozen=True, slots=True)
class Published(Files):
    """What a snapshot sees of a destination."""

    destination: str
    """The folder of the bucket, as it was given to `tx.published`."""
    snapshot_ts: int
    """It is what was committed before, and what the transaction itself has published."""
    files: tuple[PublishedFile, ...]
    """All of them, in the order of their addresses."""
    store: ObjectStore = field(repr=False, compare=False)

    @property
    def when(self) -> str:
        """Say of which moment the list is, behind a verb."""
        return f"at {self.snapshot_ts}"

    @property
    def _when_gone(self) -> str:
        return (
            "it was replaced, and no snapshot of its time can be read any more; read a younger "
            "one, or keep one with tm.hold(tx, for_s=...)"
        )


@dataclass(frozen=True, slots=True)
class PublishedState(Files):
    """What a destination has, as of the last commit of a job there."""

    destination: str
    """The folder of the bucket."""
    epoch: int
    """How many jobs were committed there; 0 if none was."""
    files: tuple[PublishedFile, ...]
    """Those of each committed job that no later one has replaced, in the order of their paths."""
    store: ObjectStore = field(repr=False, compare=False)

    @property
    def when(self) -> str:
        """Say of which moment the list is, behind a verb."""
        return f"as of commit {self.epoch}"

    @property
    def _when_gone(self) -> str:
        return (
            f"a job has replaced it since commit {self.epoch}, or somebody has removed it; ask for "
            "what is published anew"
        )


def file_system(store: ObjectStore) -> S3FileSystem:
    """Return pyarrow's file system for a store, with the credentials that boto3 finds."""
    try:
        import boto3  # noqa: PLC0415 - an extra
        from pyarrow.fs import S3FileSystem  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(missing_extra()) from error
    meta = store.client.meta
    endpoint = urlsplit(meta.endpoint_url)
    found = boto3.session.Session(profile_name=store.options.profile).get_credentials()
    keys = None if found is None else found.get_frozen_credentials()
    return S3FileSystem(
        access_key=None if keys is None else keys.access_key,
        secret_key=None if keys is None else keys.secret_key,
        session_token=None if keys is None else keys.token,
        region=meta.region_name,
        scheme=endpoint.scheme,
        endpoint_override=endpoint.netloc,
    )
