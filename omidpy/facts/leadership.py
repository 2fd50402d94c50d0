"""Find the oracle of a store through the store itself: its lease record.

The lease holder writes here who it is and where it listens.  The record says who *may* answer;
whether anybody does is found out by connecting.  Taking and keeping the lease is the oracle's own
business (`tso/durable/lease.py`).
"""

from __future__ import annotations

import os
import socket
from typing import Final

import msgspec

from omidpy.base.documents import Natural
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import ConfigError, CorruptCell, NoSuchTable, OracleUnavailable
from omidpy.facts.control import ControlTable, decode_document
from omidpy.model import Timestamp
from omidpy.oracle.address import parse_address
from omidpy.storage.address import server_command
from omidpy.storage.base import Store
from omidpy.storage.options import TellsLocks

LEASE_FACT: Final = b"lease"
LOCK_NAME: Final = "oracle"
"""The lock that an oracle holds for as long as it lives, where a store has such."""


_LOST: Final = (
    "whose lease that was has lost it, and the next `tso-server` takes it over: start one"
)


class LeaseRecord(msgspec.Struct, frozen=True):
    """Who may answer as the oracle of a store."""

    holder: str
    """A random id of the instance; empty once it gave the lease up."""
    address: str
    """HOST:PORT that clients connect to; empty if the oracle lives inside a client's process."""
    epoch: Natural | None
    """Its epoch; None until it is ready to answer."""
    pid: Natural
    host: str
    period_ms: Natural
    """A record that stays unchanged for so long may be taken over, where no lock decides."""
    sequence: Natural
    """Counts the renewals."""

    @property
    def is_held(self) -> bool:
        """Say whether an oracle holds the lease, or died holding it."""
        return bool(self.holder)


def decode_lease(raw: bytes) -> LeaseRecord:
    """Decode the lease record.

    Raises:
        CorruptCell: naming it, and who takes it over.
    """
    try:
        record = decode_document(raw, LeaseRecord, row=LEASE_FACT)
    except CorruptCell as error:
        raise CorruptCell(f"{error}; {_LOST}") from error
    if record.is_held and not record.period_ms:
        raise CorruptCell(f"{CONTROL_TABLE} row {LEASE_FACT!r} is held for no time at all; {_LOST}")
    return record


def read_lease(store: Store) -> LeaseRecord | None:
    """Return the lease record; None if no oracle ever ran on the store, or it gave the lease up.

    Raises:
        CorruptCell: it cannot be read; the next oracle takes it over.
    """
    try:
        raw = ControlTable(store).read(LEASE_FACT)
    except NoSuchTable:
        return None
    if raw is None:
        return None
    record = decode_lease(raw)
    return record if record.is_held else None


def seems_gone(store: Store, record: LeaseRecord) -> bool:
    """Say whether a holder ran on this machine, by its record, and is not here.

    It was killed, or runs in another container that has the name of this machine.  Where the store
    is locked by the system that tells; a number of a process may be another's by now.
    """
    if record.host != socket.gethostname():
        return False
    if isinstance(store, TellsLocks) and (held := store.is_locked_here(LOCK_NAME)) is not None:
        return not held
    try:
        os.kill(record.pid, 0)  # which sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # it is another user's
        return False
    return False


def lease_address(store: Store) -> tuple[str, int]:
    """Return where the oracle of a store answers, as (host, port); see `lease_place`."""
    host, port, _ = lease_place(store)
    return host, port


def lease_place(store: Store) -> tuple[str, int, Timestamp]:
    """Return where the oracle of a store answers, as (host, port), and its epoch.

    Raises:
        OracleUnavailable: no oracle holds the lease, or its holder cannot answer yet.
        ConfigError: the oracle lives inside a client's process.
        CorruptCell: the record cannot be read, or names no place.
    """
    record = read_lease(store)
    if record is None:
        raise OracleUnavailable(f"no oracle runs on {store.url}; start {server_command(store.url)}")
    if record.epoch is None:
        raise OracleUnavailable(f"the oracle of {store.url}, process {record.pid}, is starting")
    if not record.address:
        raise ConfigError(
            f"the oracle of {store.url} lives inside a client's process, where no other can reach "
            f"it: process {record.pid} on {record.host} by its record, which stands also where it "
            "was killed, and its number is another's by now.  Let the program end that uses the "
            f"store so, if it still runs, and start {server_command(store.url)}"
        )
    try:
        host, port = parse_address(record.address)
    except ConfigError as error:
        raise CorruptCell(f"{CONTROL_TABLE} row {LEASE_FACT!r}: {error}; {_LOST}") from error
    return host, port, Timestamp(record.epoch)
