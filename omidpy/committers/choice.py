"""Which committer?  By its name, with options as calls and as Spark write them.

Options that are unknown are refused, since one that is misspelt would otherwise change nothing, and
no driver would know.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from omidpy.base.words.sizes import EXAMPLES, size_bytes
from omidpy.committers.hadoop.file_output import FileOutputCommitter
from omidpy.committers.hadoop.filesystem import open_tree
from omidpy.committers.hadoop.magic import MagicCommitter
from omidpy.committers.hadoop.staging import DirectoryCommitter, PartitionedCommitter
from omidpy.committers.jobs import Job
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import is_object_store, parse_folder
from omidpy.committers.protocol import Committer
from omidpy.committers.s3 import S3Committer
from omidpy.errors import UsageError

if TYPE_CHECKING:
    from omidpy.committers.publishing.operation import Operations

CONFLICTS: Final = ("fail", "append", "replace")
STORE_OPTIONS: Final = ("endpoint_url", "region", "profile", "path_style", "threads")


def _truth(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in {"true", "false"}:
        return str(value).lower() == "true"
    raise ValueError("true or false")


def _size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        found: float | None = value
    else:
        found = size_bytes(str(value))
    if found is None or found < 0:
        raise ValueError(f"a size such as {EXAMPLES}")
    return int(found)


def _count(value: object) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or int(str(value)) < 1:
        raise ValueError("a whole number from 1 up")
    return int(str(value))


def _whole(value: object) -> int:
    if isinstance(value, bool) or not str(value).isdecimal():
        raise ValueError("a whole number from 0 up")
    return int(str(value))


def _version(value: object) -> int:
    if isinstance(value, bool) or str(value) not in {"1", "2"}:
        raise ValueError("1 or 2")
    return int(str(value))


def _itself(value: object) -> object:
    return value


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return str(value)

    return read


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def _operations(value: object) -> Operations:
    from omidpy.committers.publishing.operation import Operations  # noqa: PLC0415 - for those who ask

    return Operations(value)


@dataclass(frozen=True, slots=True)
class _Option:
    """An option: who takes it, under which name, and how it is read."""

    owner: Literal["any", "s3", "store", "file", "tree"]
    """Every committer, those for S3, their store, the one for files, or its file system."""
    name: str
    read: Callable[[object], Any]


_OPTIONS: Final[Mapping[str, _Option]] = {
    "endpoint_url": _Option("store", "endpoint_url", _text),
    "region": _Option("store", "region", _text),
    "profile": _Option("store", "profile", _text),
    "path_style": _Option("store", "path_style", _truth),
    "threads": _Option("store", "threads", _count),
    "conflict": _Option("any", "conflict", _one_of(*CONFLICTS)),
    "job_id": _Option("any", "job_id", _text),
    "scope": _Option("s3", "scope", _one_of("folder", "partitions")),
    "unique_names": _Option("any", "unique_names", _truth),
    "inline_bytes": _Option("s3", "inline_bytes", _size),
    "inline_task_bytes": _Option("s3", "inline_task_bytes", _size),
    "inline_job_bytes": _Option("s3", "inline_job_bytes", _size),
    "part_bytes": _Option("s3", "first_part_bytes", _size),
    "success": _Option("any", "marks_success", _truth),
    "sweep": _Option("s3", "sweep", _one_of("auto", "always", "never")),
    "table_format": _Option("s3", "table_format", _one_of("delta")),
    "store": _Option("s3", "operations", _operations),
    "algorithm_version": _Option("file", "algorithm_version", _version),
    "app_attempt": _Option("file", "app_attempt", _whole),
    "filesystem": _Option("tree", "filesystem", _itself),
}

OPTION_NAMES: Final = tuple(_OPTIONS)
"""Options of every committer."""

_KINDS: Final[Mapping[str, type[S3Committer]]] = {
    "omidpy": S3Committer,
    "directory": DirectoryCommitter,
    "partitioned": PartitionedCommitter,
    "magic": MagicCommitter,
}

FILE: Final = "file"
"""The committer for file systems."""

NAMES: Final = (*_KINDS, FILE)
"""The committers that there are."""


def committer(destination: str, name: str = "omidpy", **options: object) -> Committer:
    """Make the committer of a new job.

    Args:
        destination: `s3://BUCKET/FOLDER`; for the committer `file` a local path,
            `file:///FOLDER` or `hdfs://HOST/FOLDER`.
        name: Which one: one of `NAMES`.
        options: As the page of the reference lists them.

    Raises:
        UsageError: A name, an option or the address is wrong.
    """
    if name not in NAMES:
        raise UsageError(f"committer={name!r} is none of {', '.join(NAMES)}{_nearest(name, NAMES)}")
    if name != FILE and not is_object_store(destination):
        raise UsageError(
            f"{destination!r} is no address of S3; write s3://BUCKET/FOLDER, or choose "
            f"committer={FILE!r} for a folder of a file system"
        )
    taken: dict[str, dict[str, Any]] = {one: {} for one in ("any", "s3", "store", "file", "tree")}
    for key, value in options.items():
        if key not in _OPTIONS:
            raise UsageError(f"there is no option {key!r}{_nearest(key, _OPTIONS)}")
        if value is None:
            continue
        option = _OPTIONS[key]
        if option.owner not in (
            ("any", "file", "tree") if name == FILE else ("any", "s3", "store")
        ):
            raise UsageError(f"committer={name!r} has no option {key!r}")
        try:
            taken[option.owner][option.name] = option.read(value)
        except ValueError as error:
            raise UsageError(f"{key}={value!r} must be {error}") from None
    if name == FILE:
        tree = open_tree(destination, **taken["tree"])
        return FileOutputCommitter(tree, **taken["any"], **taken["file"])
    store = ObjectStore(StoreOptions(**taken["store"]))
    return _KINDS[name](parse_folder(destination), store, **taken["any"], **taken["s3"])


def job(
    destination: str,
    *,
    committer: str = "omidpy",
    partition_by: Iterable[str] = (),
    **options: object,
) -> Job:
    """Make a job that writes below `destination`; `with` begins it.

    Args:
        destination: `s3://BUCKET/FOLDER`, or of a file system, as for `committer`.
        committer: Which one.
        partition_by: Columns of tables that become folders.
        options: As `omidpy.committers.committer` takes them.

    Raises:
        UsageError: A name, an option or the address is wrong.
    """
    if isinstance(partition_by, str):
        raise UsageError(f"partition_by must be a list of columns: [{partition_by!r}]")
    made = _make(destination, committer, options)
    return Job(made, partition_by=tuple(partition_by))


def _make(destination: str, name: str, options: Mapping[str, object]) -> Committer:
    return committer(destination, name, **options)


def _nearest(word: str, words: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(words), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def object_store(url: str, options: Mapping[str, Any]) -> ObjectStore:
    """Return the store of a reader.

    Raises:
        UsageError: an option is none of a reader's.
    """
    for name in options:
        if name not in STORE_OPTIONS:
            raise UsageError(f"{name!r} is none of {', '.join(STORE_OPTIONS)}")
    made = committer(url, **options)
    assert isinstance(made, S3Committer), "the default is one"
    return made.store
