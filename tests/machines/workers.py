"""Owners, and workers that write in their transactions, finish, or die at it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from unittest import mock

import pytest

from compactor.run.local import compact
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import StorageUnavailable
from omidpy.facts.registration import PARTS_PREFIX
from omidpy.model import KeyRange, Timestamp
from omidpy.storage.base import Store
from omidpy.testing.faults import FaultyStore, on
from omidpy.tx.parts import worker as worker_module
from omidpy.tx.parts.worker import Worker
from omidpy.tx.transaction import Transaction
from tests.machines.cells import ALL_AT_ONCE
from tests.machines.clients import TABLE, Client

COLUMN: Final = b"cf:q"


def begun(client: Client) -> tuple[Transaction, bytes]:
    """Return a transaction that has written row a, and its token."""
    tx = client.tm.begin()
    tx.table(TABLE).put(b"a", {COLUMN: b"owner's"})
    return tx, tx.token()


def put(writer: Transaction | Worker, **values: bytes) -> None:
    """Write some rows."""
    for row, value in values.items():
        writer.table(TABLE).put(row.encode(), {COLUMN: value})


def flushed(client: Client, token: bytes, *, task: str | None = None, **values: bytes) -> Worker:
    """Return a worker that has flushed some rows, and then died."""
    worker = client.tm.resume(token, task=task)
    with mock.patch.object(worker_module, "FLUSH_LIMIT_BYTES", 1):
        put(worker, **values)
    return worker


def finished(client: Client, token: bytes, *, task: str | None = None, **values: bytes) -> bytes:
    """Return the part of a worker that wrote some rows."""
    worker = client.tm.resume(token, task=task)
    put(worker, **values)
    return worker.finish()


def interrupted(client: Client, token: bytes, *, task: str | None, **values: bytes) -> Worker:
    """Return a worker that died when it had sent its cells and had no answer."""
    worker = client.tm.resume(token, task=task)
    put(worker, **values)
    with dying(client):
        worker.finish()
    return worker


@contextmanager
def dying(client: Client) -> Iterator[None]:
    """Let the next cells be written, and the answer be lost."""
    assert isinstance(client.store, FaultyStore)
    lost = on("write.after", StorageUnavailable("died"), nth=1, table=TABLE)
    client.store.plans.append(lost)
    with pytest.raises(StorageUnavailable):
        yield
    client.store.plans.remove(lost)


def seen(client: Client) -> dict[str, bytes]:
    """Return what is committed."""
    with client.tm.begin() as tx:
        return {key.decode(): data[COLUMN] for key, data in tx.table(TABLE).scan()}


def rows_of_parts(store: Store) -> list[bytes]:
    """Return the rows of transactions with workers."""
    end = PARTS_PREFIX[:-1] + b"0"
    pages = store.scan(CONTROL_TABLE, KeyRange(PARTS_PREFIX, end))
    return [cells[0].row for page in pages for cells in page]


def compacted(
    client: Client, *, up_to: Timestamp | None = None, is_dry_run: bool = False
) -> Client:
    """Compact when nothing that began up to a moment, by default now, can commit any more."""
    client.naive.raise_low_watermark(up_to or client.naive.begin().start_ts)
    options = replace(ALL_AT_ONCE, is_dry_run=is_dry_run)
    compact(client.store, options, clock=client.clock, sleep=lambda _: None)
    return client
