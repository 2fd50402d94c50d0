"""A folder of a file system that renames: few verbs, each counted, errors that name the path.

Any file system of pyarrow will do whose rename is one step: the local one, HDFS, and what others
have made for pyarrow.  Stores of objects are refused, since they copy where one renames.

Paths are below the folder, with "/" between their parts.  Objects of this class can be pickled.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from omidpy.base.installation import install_hint
from omidpy.base.within import within
from omidpy.committers.places import is_object_store
from omidpy.errors import CommitterError, ConfigError, UsageError

_SCHEMES: Final = ("file", "hdfs", "viewfs")
_COPYING: Final = ("s3", "gcs", "gs", "abfs", "abfss")
"""Types of file systems that are stores of objects."""


class FileTree:
    """A folder, and what committers do below it."""

    def __init__(self, filesystem: Any, root: str, url: str) -> None:
        """Keep where it is; nothing is looked at."""
        self.filesystem = filesystem
        self.root = root
        self.url = url
        """How the folder is called in messages, without "/" at its end."""
        self.operations: Counter[str] = Counter()
        """How many operations of each kind were done, by Hadoop's names of them."""
        self.before_operation: Callable[[str], None] | None = None
        """Called with the name of each operation before it is done: what a test fails."""
        self.id = uuid.uuid4().hex
        """Of this object in this process: a copy has another."""
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process."""
        return {"filesystem": self.filesystem, "root": self.root, "url": self.url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Begin anew at the same place."""
        self.__init__(**state)  # type: ignore[misc]  # the whole state is the arguments

    def make_folder(self, path: str) -> None:
        """Make a folder, and those above it; it is no error if it is there."""
        with self._operation("op_mkdirs", path):
            self.filesystem.create_dir(self._at(path), recursive=True)

    def make_inner(self, folder: str, inner: str) -> None:
        """Make the folders of a path in a folder that is there; none if that is gone."""
        for part in inner.split("/"):
            folder = f"{folder}/{part}"
            with self._operation("op_mkdirs", folder):
                self.filesystem.create_dir(self._at(folder), recursive=False)

    def create(self, path: str) -> Any:
        """Begin a file in a folder that is there; return what takes its bytes."""
        with self._operation("op_create", path):
            return self.filesystem.open_output_stream(self._at(path))

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes; None if there is none."""
        with self._operation("op_open", path):
            try:
                with self.filesystem.open_input_stream(self._at(path)) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def rename(self, source: str, target: str, *, is_over: bool = False) -> None:
        """Move a file or folder in one step; `is_over` says that the target is a file, to go."""
        if is_over and self.filesystem.type_name != "local":
            self.delete_file(target)  # HDFS renames to what is not there alone
        with self._operation("op_rename", target):
            self.filesystem.move(self._at(source), self._at(target))

    def delete_file(self, path: str) -> None:
        """Remove a file; it is no error if there is none."""
        with self._operation("op_delete", path):
            try:
                self.filesystem.delete_file(self._at(path))
            except FileNotFoundError:
                return

    def delete_folder(self, path: str) -> None:
        """Remove a folder and all in it; it is no error if there is none."""
        with self._operation("op_delete", path):
            try:
                self.filesystem.delete_dir(self._at(path))
            except FileNotFoundError:
                return

    def files(self, path: str = "") -> dict[str, int]:
        """Return the bytes of every file below a folder, by path; nothing if it is not there."""
        return {name: size for name, size in self._listed(path, is_deep=True) if size is not None}

    def folders(self, path: str = "", *, is_deep: bool = False) -> list[str]:
        """Return the paths of the folders in a folder, or of all below it."""
        return [name for name, size in self._listed(path, is_deep=is_deep) if size is None]

    def is_file(self, path: str = "") -> bool:
        """Say whether there is a file, and no folder."""
        from pyarrow.fs import FileType  # noqa: PLC0415 - an extra

        with self._operation("op_get_file_status", path):
            return bool(self.filesystem.get_file_info(self._at(path)).type == FileType.File)

    @contextmanager
    def telling(self, action: str, path: str) -> Iterator[None]:
        """Turn errors of the file system into ours."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise CommitterError(f"{action} failed at {self.url}/{path}: {error}") from error

    @contextmanager
    def _operation(self, name: str, path: str) -> Iterator[None]:
        if self.before_operation is not None:
            self.before_operation(name)
        within(self._lock, self.operations.update, (name,))
        with self.telling(name, path):
            yield

    def _listed(self, path: str, *, is_deep: bool) -> list[tuple[str, int | None]]:
        """Return all that is in a folder: the size of a file, None for a folder."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415 - an extra

        with self._operation("op_list_status", path):
            place = FileSelector(self._at(path), allow_not_found=True, recursive=is_deep)
            found = self.filesystem.get_file_info(place)
        above = self.root.rstrip("/") + "/"
        return [
            (one.path.removeprefix(above), None if one.type == FileType.Directory else one.size)
            for one in found
        ]

    def _at(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}" if path else self.root


def open_tree(address: str, filesystem: Any = None) -> FileTree:
    """Return the folder of an address.

    Args:
        address: `file:///folder`, `hdfs://host/folder` or a local path; with `filesystem`, a path
            in it.
        filesystem: A file system of pyarrow.

    Raises:
        UsageError: It is no address of a file system that renames.
        ConfigError: pyarrow, or what it needs for this file system, is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import fs  # noqa: PLC0415 - see above
    except ImportError as error:
        raise ConfigError(
            "writing to file systems needs pyarrow, which is not installed; run "
            f"`{install_hint('s3')}`"
        ) from error
    if is_object_store(address):
        raise UsageError(_no_renames(address))
    scheme, separator, rest = address.partition("://")
    if filesystem is not None:
        if not isinstance(filesystem, fs.FileSystem):
            raise UsageError(f"filesystem={filesystem!r} is no pyarrow.fs.FileSystem")
        if separator:
            raise UsageError(
                f"{address!r} has a scheme beside filesystem=...; give a path of that file system"
            )
        if (kind := _kind(filesystem)) in _COPYING:
            raise UsageError(_no_renames(f"{address} of a file system of type {kind!r}"))
        path = filesystem.normalize_path(address)
        return FileTree(filesystem, path.rstrip("/") or "/", address.rstrip("/"))
    if not separator:
        if not address:
            raise UsageError("'' is no folder; give a path, or file:///FOLDER")
        path = os.path.abspath(address)  # noqa: PTH100 - a text, as pyarrow takes it
        return FileTree(fs.LocalFileSystem(), path, f"file://{path}")
    if scheme.lower() not in _SCHEMES:
        raise UsageError(
            f"{address!r} is none of {', '.join(f'{one}://' for one in _SCHEMES)} nor a path; for "
            "another file system that renames give its path and filesystem=, one of pyarrow.fs"
        )
    if not rest.partition("/")[2].strip("/"):
        raise UsageError(f"{address!r} names no folder; write {scheme}://.../FOLDER")
    try:
        found, path = fs.FileSystem.from_uri(address)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{address!r} is no address: {error}") from error
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f"no client for {address} could be made: {reason}; pyarrow needs JAVA_HOME, HADOOP_HOME"
            " and CLASSPATH for HDFS"
        ) from error
    return FileTree(found, path.rstrip("/"), address.rstrip("/"))


def _kind(filesystem: Any) -> str:
    """Return the type of a file system, or of the one that it is a part of."""
    while filesystem.type_name == "subtree":
        filesystem = filesystem.base_fs
    return str(filesystem.type_name).rpartition("+")[2]


def _no_renames(what: str) -> str:
    return (
        f"committer='file' renames, and {what} is a store of objects, which copies file by file "
        "instead: readers would see parts of a job; choose committer='omidpy' and s3://..."
    )
