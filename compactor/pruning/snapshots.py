"""Which snapshots of HBase's are there, and of which tables?  Read from the folder of HBase itself.

The gateway has no word for snapshots.  But a process that can read HBase's root folder finds them
there:

    <root>/hbase.version                                 there is an HBase here
    <root>/.hbase-snapshot/<name>/.snapshotinfo          name, table, when it was asked for, and how
    <root>/.hbase-snapshot/<name>/data.manifest          among others, the table's attributes
    <root>/.hbase-snapshot/.tmp/<name>/...               one that is being taken

Both files are messages of protobuf, of which a few fields are read here.  A snapshot that is being
taken and has no `.snapshotinfo` yet has not begun to look at the table.

Where the folder is, `Folder` hides: on this machine, or wherever Spark's driver reaches
(`hadoop.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote, urlsplit

from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE
from omidpy.errors import ConfigError, StorageError

ROOT_MARK: Final = "hbase.version"
SNAPSHOTS: Final = ".hbase-snapshot"
UNDER_WAY: Final = ".tmp"
DESCRIPTION: Final = ".snapshotinfo"
MANIFEST: Final = "data.manifest"

PAUSES_S: Final = (0.1, 0.4)
"""Before a snapshot without a description is looked at again."""

SKIPS_FLUSH: Final = 2
"""The type of a snapshot without what servers have in memory alone."""


class Folder(Protocol):
    """A folder of files; paths below it are relative."""

    def names(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder; None if there is no such folder."""
        ...

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if there is none."""
        ...


OpenFolder: TypeAlias = Callable[[str], Folder]
"""Returns the folder at an address; ConfigError where this process cannot read such a one."""


class TableSnapshot(NamedTuple):
    """A snapshot of a table."""

    name: str
    table: str
    created_ms: int
    """When it was asked for, by the clock of HBase's master."""
    is_flushed: bool = True
    """Whether it has all that had been written by then."""
    commit_table: str | None = None
    """Whose transactions the table had; None if it says nothing of that."""


class SnapshotRoot(NamedTuple):
    """The root folder of the HBase whose tables a store has."""

    address: str
    folder: Folder


class LocalFolder:
    """A folder that this machine has."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def names(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder; None if there is no such folder."""
        try:
            return sorted(one.name for one in (self._root / path).iterdir() if one.is_dir())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self._root / path}: {error.strerror}") from error

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if there is none."""
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError(f"{self._root / path}: {error.strerror}") from error


def local_folder(root: str) -> Folder:
    """Return the folder at a path or a `file:` URL.

    Raises:
        ConfigError: it is on another file system.
    """
    url = urlsplit(root)
    if url.scheme in ("", "file"):
        if "\0" in (path := unquote(url.path)):
            raise ConfigError(f"--hbase-root {root}: no folder has a NUL in its name")
        return LocalFolder(path)
    raise ConfigError(
        f"--hbase-root {root}: only the Spark job can read {url.scheme}: folders; run it in place "
        "of `omidpy compact`, or give a path at which this machine has that folder"
    )


def list_snapshots(root: Folder) -> list[TableSnapshot]:
    """Return every snapshot that is there, or is being taken.

    Raises:
        StorageError: it cannot be known which there are.
    """
    if root.read(ROOT_MARK) is None:
        raise StorageError(f"it has no file {ROOT_MARK}, so that it is not the root of an HBase")
    for pause_s in (*PAUSES_S, None):
        try:
            return _listed(root)
        except _NoDescription:
            # HBase removes the folder of one that is deleted file by file.
            if pause_s is None:
                raise
            time.sleep(pause_s)
    raise AssertionError("unreachable: the last try returns or raises")


class _NoDescription(StorageError):
    """A snapshot lacks its description: it is damaged, or being deleted."""


def _listed(root: Folder) -> list[TableSnapshot]:
    found: dict[str, TableSnapshot] = {}
    # In this order: one that comes to its end meanwhile is seen in both places, or in the second.
    for parent in (f"{SNAPSHOTS}/{UNDER_WAY}", SNAPSHOTS):
        for name in root.names(parent) or ():
            if name == UNDER_WAY:
                continue
            path = f"{parent}/{name}"
            description = root.read(f"{path}/{DESCRIPTION}")
            if description is not None:
                manifest = root.read(f"{path}/{MANIFEST}")
                found[name] = read_snapshot(path, description, manifest)
            elif parent == SNAPSHOTS and root.names(path) is not None:
                raise _NoDescription(f"the snapshot {name} has no {DESCRIPTION}")
    return list(found.values())


def read_snapshot(path: str, description: bytes, manifest: bytes | None) -> TableSnapshot:
    """Return what the two files of a snapshot say.

    Raises:
        StorageError: naming `path`, if they are not what HBase writes.
    """
    try:
        fields = dict(_fields(description))
        name, table = _bytes(fields[1]).decode(), _bytes(fields[2]).decode()
        owner = None if manifest is None else _attribute(manifest, COMMIT_TABLE_ATTRIBUTE)
        return TableSnapshot(name, table, _number(fields[3]), fields.get(4) != SKIPS_FLUSH, owner)
    except (KeyError, IndexError, TypeError, UnicodeDecodeError) as error:
        raise StorageError(
            f"the files of {path} are none that HBase 2 writes: {error!r}"
        ) from error


# -- messages of protobuf --------------------------------------------------------------------------

Value: TypeAlias = int | bytes


def _attribute(manifest: bytes, name: str) -> str | None:
    """Return an attribute of the table that a manifest describes."""
    for number, schema in _fields(manifest):
        if number == 1:
            for field, pair in _fields(_bytes(schema)):
                if field == 2:
                    found = dict(_fields(_bytes(pair)))
                    if found[1] == name.encode():
                        return _bytes(found[2]).decode()
    return None


def _fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the numbers and values of a message's fields.

    Raises:
        IndexError: it ends too soon.
        TypeError: it has a field of a kind that none of these messages has.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
        elif kind == 2:
            length, at = _varint(message, at)
            if at + length > len(message):
                raise IndexError(at)
            yield number, message[at : at + length]
            at += length
        else:
            raise TypeError(kind)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _bytes(value: Value) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(value)
    return value


def _number(value: Value) -> int:
    if not isinstance(value, int):
        raise TypeError(value)
    return value
