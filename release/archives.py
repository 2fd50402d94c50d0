"""What is in a wheel or a source distribution that should not be, and what is missing?

Pure but for the reading of the archive.  The tree that git tracks says what belongs there.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

PACKAGES: Final = ("omidpy", "tso", "compactor")
"""What is shipped."""

COMPILED: Final = (
    "tso/core/engine",
    "omidpy/base/rows/simple",
    "omidpy/wire/protobuf",
    "omidpy/storage/hbase/native/cellblock",
    "omidpy/storage/hbase/native/wire/answers",
)
"""What is compiled, all or nothing: the engine, rows, messages, HBase's cells and answers."""
BUILT: Final = re.compile(rf"({'|'.join(COMPILED)})\.[\w.-]+\.so")

_METADATA: Final = frozenset({"METADATA", "WHEEL", "entry_points.txt", "top_level.txt", "RECORD"})
_LICENCES: Final = frozenset({"LICENSE", "NOTICE"})
_BESIDE: Final = frozenset(
    {"pyproject.toml", "setup.py", "setup.cfg", "MANIFEST.in", "README.md", "PKG-INFO"}
)


def complaints(archive: Path, tracked: AbstractSet[str], *, compiled: bool) -> list[str]:
    """Say what is wrong with what an archive holds; empty if nothing is.

    Args:
        archive: A wheel, or a source distribution.
        tracked: What git tracks, as paths from the root.
        compiled: Whether the wheel must have the compiled modules, or must not.
    """
    shipped = {name for name in tracked if name.partition("/")[0] in PACKAGES}
    held = set(contents(archive))
    if archive.suffix == ".whl":
        return list(_of_wheel(held, shipped, compiled=compiled))
    return list(_of_source(held, shipped))


def contents(archive: Path) -> Iterator[str]:
    """Yield the files of an archive; those of a source distribution without its own folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            yield from wheel.namelist()
        return
    with tarfile.open(archive) as source:
        for member in source:
            if member.isfile():
                yield member.name.partition("/")[2]


def _of_wheel(
    held: AbstractSet[str], shipped: AbstractSet[str], *, compiled: bool
) -> Iterator[str]:
    built = {name for name in held if BUILT.fullmatch(name)}
    expected_count = len(COMPILED) if compiled else 0
    if len(built) != expected_count:
        yield f"has {len(built)} compiled modules and not {expected_count}"
    described = {name for name in held if name.partition("/")[0].endswith(".dist-info")}
    inner = {name.partition("/")[2] for name in described}
    expected = _METADATA | {f"licenses/{name}" for name in _LICENCES}
    yield from _differences(inner, expected)
    yield from _differences(held - built - described, shipped)


def _of_source(held: AbstractSet[str], shipped: AbstractSet[str]) -> Iterator[str]:
    described = {name for name in held if name.startswith("omidpy.egg-info/")}
    yield from _differences(held - described, shipped | _LICENCES | _BESIDE)


def _differences(held: AbstractSet[str], expected: AbstractSet[str]) -> Iterator[str]:
    for name in sorted(expected - held):
        yield f"lacks {name}"
    for name in sorted(held - expected):
        yield f"holds {name}, which is not shipped"
