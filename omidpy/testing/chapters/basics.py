"""What the chapters of the store contract share: a table, its cells, ways to write and read them.

Tests of single stores use the same names, by way of `omidpy.testing.contract`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest

from omidpy.model import Cell, Column, FamilySchema, KeyRange, TableSchema
from omidpy.storage.base import WHOLE_TABLE, DeleteVersion, Put, Row, RowMutation, Store

TABLE: Final = "things"
CF: Final = b"cf"
OTHER: Final = b"other"
Q: Final = b"q"
COLUMN: Final = Column(CF, Q)


def put(
    row: bytes,
    version: int,
    value: bytes = b"v",
    *,
    family: bytes = CF,
    qualifier: bytes = Q,
) -> RowMutation:
    """Return a mutation that writes one cell."""
    return RowMutation(row, [Put(family, qualifier, version, value)])


def delete(row: bytes, version: int, *, qualifier: bytes = Q) -> RowMutation:
    """Return a mutation that deletes one version of a column."""
    return RowMutation(row, deletes=[DeleteVersion(CF, qualifier, version)])


def scan(
    store: Store, table: str, key_range: KeyRange = WHOLE_TABLE, **options: Any
) -> Iterator[list[Row]]:
    """Scan all versions, or the newest where the store cannot scan more."""
    if not store.capabilities.multi_version_scan:
        options.setdefault("max_versions", 1)
    return store.scan(table, key_range, **options)


def seen_by_scan(store: Store, cells: list[Cell]) -> list[Cell]:
    """Return those of a row's cells that `scan` shows."""
    if store.capabilities.multi_version_scan:
        return cells
    newest: dict[tuple[bytes, bytes], Cell] = {}
    for cell in cells:
        newest.setdefault((cell.family, cell.qualifier), cell)
    return list(newest.values())


def rows_of(pages: Iterator[list[Row]]) -> list[Row]:
    """Return the rows of all pages of a scan."""
    return [row for page in pages for row in page]


def keys_of(pages: Iterator[list[Row]]) -> list[bytes]:
    """Return the row keys of all pages of a scan."""
    return [row[0].row for row in rows_of(pages)]


def in_threads(works: Sequence[Callable[[], None]], *, deadline_s: float = 60) -> None:
    """Run each of `works` in a thread of its own and raise the first error of any."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  raised again below, in the test's thread
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(deadline_s)
        assert not thread.is_alive(), f"a thread did not end within {deadline_s} s"
    if errors:
        raise errors[0]


class Chapter:
    """Tests of one side of a store, which a fixture `store` supplies fresh and empty."""

    def reopen(self, store: Store) -> Store | None:
        """Open the same store a second time, or return None if it does not outlive its object."""
        del store
        return None

    @pytest.fixture
    def things(self, store: Store) -> Store:
        """Return the store with the table `things`, families `cf` and `other`."""
        store.create_table(TableSchema(TABLE, [FamilySchema(OTHER), FamilySchema(CF)]))
        return store
