"""Who runs which tests: a worker takes one file, or all files of a folder that shares servers."""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling

_SHARING = "tests/integration/"
"""The files of a folder below it use one set of servers, which each worker would start anew."""


class FoldersAndFiles(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Hands out files, and such folders whole."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        folder, _, _ = file.removeprefix(_SHARING).rpartition("/")
        return _SHARING + folder if file.startswith(_SHARING) and folder else file
