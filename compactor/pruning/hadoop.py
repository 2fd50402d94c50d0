"""HBase's root folder, read through Hadoop's file systems, which Spark's driver brings along."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from compactor.pruning.snapshots import Folder, local_folder
from omidpy.errors import StorageError

if TYPE_CHECKING:
    from pyspark import SparkContext

_GONE: Final = "java.io.FileNotFoundException"


class HadoopFolder:
    """A folder that Hadoop can read: `hdfs:`, `s3a:`, `file:` and others."""

    def __init__(self, context: SparkContext, root: str) -> None:
        """Name it; nothing is read yet."""
        java: Any = context._jvm  # noqa: SLF001 - the way to Java
        self._hadoop = java.org.apache.hadoop
        self._configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001 - see above
        self._root = root.rstrip("/")

    def names(self, path: str) -> list[str] | None:
        """Return the names of the folders in a folder; None if there is no such folder."""
        found = self._try(path, lambda files, place: list(files.listStatus(place)))
        if found is None:
            return None
        return sorted(str(one.getPath().getName()) for one in found if one.isDirectory())

    def read(self, path: str) -> bytes | None:
        """Return what a file holds; None if there is none."""

        def read(files: Any, place: Any) -> bytes:
            opened = files.open(place)
            try:
                return bytes(opened.readAllBytes())
            finally:
                opened.close()

        found: bytes | None = self._try(path, read)
        return found

    def _try(self, path: str, work: Any) -> Any:
        from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with pyspark

        place = self._hadoop.fs.Path(f"{self._root}/{path}")
        try:
            return work(place.getFileSystem(self._configuration), place)
        except Py4JJavaError as error:
            cause: Any = error.java_exception
            if cause.getClass().getName() == _GONE:
                return None
            raise StorageError(f"{place.toString()}: {cause.toString()}") from error


def folder_of_spark(context: SparkContext, root: str) -> Folder:
    """Return the folder at an address that Hadoop knows, or at a path of this machine."""
    return HadoopFolder(context, root) if "://" in root else local_folder(root)
