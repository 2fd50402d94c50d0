"""How a frame of all versions is opened: at a snapshot, from which no version may be missing."""

from __future__ import annotations

from omidpy.model import Timestamp
from omidpy.reading.histories import HistoryReader
from omidpy.tx.session import Session


def open_histories(session: Session, at: int) -> HistoryReader:
    """Return what reads all versions that the snapshot at a timestamp can tell of.

    Raises:
        SnapshotTooOld: versions of that moment may have been collected.
        ConfigError: the store shows one version of a cell alone.

    Cost: 1 oracle round trip, 1 get.
    """
    snapshot = session.reader.open(session.oracle.begin(), asked_s=None, at=Timestamp(at))
    snapshot.check_horizon()
    return HistoryReader(session.reader, snapshot)
