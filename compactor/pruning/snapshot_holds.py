"""How far may be forgotten while there are snapshots?

A snapshot may be restored, and then cells return as they were when it was taken: healed up to what
had been claimed of the table by then, and no further.  The entries above that are needed again, so
nothing above it is forgotten while the snapshot exists.

What had been claimed by then is found by the dates of the claims and of the snapshot, which are
those of several machines: a claim counts if it is older by more than dates may differ.  It is
found once and remembered, because claims of long ago are thinned out, and void after a restore.

Where the snapshots are is remembered too, once they were found there: a run that is not told looks
where the last one did, and keeps everything if it cannot.  Only where no run was ever told does one
go on without knowing.

Neither does that prove what clients were doing at the moment of the snapshot, whose entries they
have removed themselves since: see `docs/guide/backup.md`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import urlsplit

import msgspec

from compactor.horizon import HOLE, minimum, relevant
from compactor.options import NO_SNAPSHOTS
from compactor.pruning.prune import PruneLimits
from compactor.pruning.snapshots import OpenFolder, SnapshotRoot, TableSnapshot, list_snapshots
from compactor.report import Laggard
from compactor.tables.ownership import Standing, TableStanding, owned
from omidpy.errors import ConfigError, CorruptCell, StorageError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.watermarks import DATES_DIFFER_S, Claim
from omidpy.model import KeyRange, Timestamp
from omidpy.storage.base import Store
from omidpy.storage.options import RestoresTables

SNAPSHOT_PREFIX: Final = b"snapshot/"
ROOT_FACT: Final = b"snapshot-root"

DATES_DIFFER_MS: Final = round(DATES_DIFFER_S * 1000)
"""By how much the dates of a worker and of HBase's master may differ."""


class _Held(msgspec.Struct, frozen=True):
    """What a snapshot was found to hold when it was first seen."""

    horizon: int
    is_flushed: bool = True


class _Root(msgspec.Struct, frozen=True):
    """Where snapshots were found last."""

    address: str
    """Empty: an operator said that they are of no account."""


class _OutOfReach:
    """A folder of which an earlier run was told, and that this process cannot read."""

    def __init__(self, why: str) -> None:
        self._why = why

    def names(self, path: str) -> NoReturn:
        """Raise why the folder cannot be read."""
        raise StorageError(f"{self._why} (for {path})")

    def read(self, path: str) -> NoReturn:
        """Raise why the folder cannot be read."""
        self.names(path)


def find_root(
    store: Store, given: str | None, open_folder: OpenFolder, *, is_dry_run: bool
) -> SnapshotRoot | None:
    """Return where the snapshots are; None: that was never said.

    Args:
        store: It remembers.
        given: What this run was told; None for nothing.
        open_folder: Opens what it is told.
        is_dry_run: Remember nothing.

    Raises:
        ConfigError: this process cannot read what it was given.

    Cost: 1 get where tables may be restored one by one, 1 write to forget.
    """
    if given is not None and given != NO_SNAPSHOTS:
        address = _address(given)
        return SnapshotRoot(address, open_folder(address))
    if not isinstance(store, RestoresTables):
        return None
    control = ControlTable(store)
    known = _remembered(control)
    if given == NO_SNAPSHOTS:
        if known and not is_dry_run:
            control.write(ROOT_FACT, encode_document(_Root("")))
        return None
    if not known:
        return None
    try:
        return SnapshotRoot(known, open_folder(known))
    except ConfigError as error:
        return SnapshotRoot(known, _OutOfReach(str(error)))


def _address(given: str) -> str:
    """Return what was given as a later run understands it, which may stand elsewhere.

    Raises:
        ConfigError: it is no address, or cannot be written down.
    """
    try:
        given.encode()
        return given if urlsplit(given).scheme else str(Path(given).absolute())
    except ValueError as error:
        raise ConfigError(f"--hbase-root {given!r:.200} is no address: {error}") from error


def _remembered(control: ControlTable) -> str | None:
    """Return the address of which a run was told; empty if that was taken back, None if never."""
    raw = control.read(ROOT_FACT)
    with contextlib.suppress(CorruptCell):
        return None if raw is None else decode_document(raw, _Root, row=ROOT_FACT).address
    # A run was told, and nothing is certain but that.
    return "(unreadable)"


def root_complaint(control: ControlTable) -> str:
    """Say why the fact that names the folder cannot be read; empty if it can, or is not there."""
    try:
        raw = control.read(ROOT_FACT)
        if raw is not None:
            decode_document(raw, _Root, row=ROOT_FACT)
    except CorruptCell as error:
        return str(error)
    return ""


class SnapshotHolds:
    """Keeps what existing snapshots may need."""

    def __init__(
        self,
        control: ControlTable,
        root: SnapshotRoot,
        *,
        commit_table: str,
        is_dry_run: bool,
    ) -> None:
        """Look at nothing yet.

        Args:
            control: Where it is remembered what they hold.
            root: Where the snapshots are.
            commit_table: Whose transactions matter.
            is_dry_run: Remember nothing.
        """
        self._control = control
        self._root = root
        self._commit_table = commit_table
        self._is_dry_run = is_dry_run

    def limit(
        self, limits: PruneLimits, standings: Sequence[TableStanding], claims: Iterable[Claim]
    ) -> tuple[PruneLimits, list[Laggard]]:
        """Lower what may be forgotten to what no snapshot needs.

        The snapshots are listed after the claims were read: one that is begun later has all that
        they speak of.  And after what is remembered of them: a run that stood still in between
        would forget what a faster one has found out about a later one.

        Args:
            limits: What the claims allow to forget.
            standings: The tables, as listed last.
            claims: All that is recorded.

        Returns:
            The lower limits, and which snapshots made them so.
        """
        known, malformed = self._control.documents(SNAPSHOT_PREFIX, _Held)
        try:
            found = self._counting(standings)
        except StorageError as error:
            reason = (
                f"the snapshots in {self._root.address} could not be listed, so that nobody knows "
                f"what they need: {error}; the next run looks again, `--hbase-root FOLDER` says "
                f"where they are, `--hbase-root {NO_SNAPSHOTS}` that they are of no account"
            )
            nothing = Laggard.of(self._commit_table, KeyRange(), watermark=HOLE, reason=reason)
            return _lowered(limits, HOLE), [nothing]
        self._remember_root()
        held = self._held(found, standings, list(claims), known, malformed)
        gone = (known.keys() | malformed.keys()) - {_row(one) for one in found}
        if gone and not self._is_dry_run:
            self._control.forget(sorted(gone))
        binding = [one for one in found if held[one] < limits.horizon]
        least = min((held[one] for one in found), default=limits.horizon)
        laggards = [
            Laggard.of(one.table, KeyRange(), watermark=held[one], reason=_reason(one))
            for one in sorted(binding, key=lambda one: held[one])
        ]
        return _lowered(limits, least), laggards

    def _remember_root(self) -> None:
        address = self._root.address
        if not self._is_dry_run and _remembered(self._control) != address:
            self._control.write(ROOT_FACT, encode_document(_Root(address)))

    def _counting(self, standings: Iterable[TableStanding]) -> list[TableSnapshot]:
        """Return the snapshots that could bring back cells of our transactions."""
        ours = {
            one.name for one in standings if one.standing in (Standing.OWNED, Standing.BLOCKING)
        }
        return [
            one
            for one in list_snapshots(self._root.folder)
            if one.table in ours or one.commit_table == self._commit_table
        ]

    def _held(
        self,
        snapshots: Sequence[TableSnapshot],
        standings: Iterable[TableStanding],
        claims: Sequence[Claim],
        known: Mapping[bytes, _Held],
        malformed: Container[bytes],
    ) -> dict[TableSnapshot, int]:
        """Return up to where each holds only cells that need no entry.

        Cost: 1 conditional write for each that is seen for the first time; 1 get more for one of
        which nothing can be read.
        """
        usable = relevant(claims, owned(standings))[0]
        held: dict[TableSnapshot, int] = {}
        for one in snapshots:
            row = _row(one)
            found = known.get(row)
            if found is None:
                new = _Held(_healed(one, usable), one.is_flushed)
                found = self._recorded(row, new, may_be_there=row in malformed)
            held[one] = found.horizon
        return held

    def _recorded(self, row: bytes, new: _Held, *, may_be_there: bool) -> _Held:
        """Record what a snapshot was found to hold, unless another run has; return what counts."""
        raw = self._control.read(row) if may_be_there else None
        if raw is not None:
            with contextlib.suppress(CorruptCell):
                # Of claims, perhaps, that a restore has made void since ours were read.
                known = decode_document(raw, _Held, row=row)
                return min(known, new, key=lambda one: one.horizon)
        if self._is_dry_run or self._control.replace(row, raw, encode_document(new)):
            return new
        return self._recorded(row, new, may_be_there=True)


def recorded_holds(control: ControlTable, *, below: int) -> list[Laggard]:
    """Return the snapshots that keep something below a watermark, as of the last run that looked.

    For a person that looks: no folder is read.
    """
    if _remembered(control) == "":
        return []
    found, _ = control.documents(SNAPSHOT_PREFIX, _Held)
    return [
        Laggard.of(one.table, KeyRange(), watermark=held.horizon, reason=_reason(one))
        for one, held in ((_snapshot_of(row, held), held) for row, held in found.items())
        if held.horizon < below
    ]


def _healed(snapshot: TableSnapshot, claims: Iterable[Claim]) -> int:
    if not snapshot.is_flushed:
        return HOLE
    before = snapshot.created_ms - DATES_DIFFER_MS
    as_of_then = (claim for claim in claims if claim.recorded_ms <= before)
    return minimum([snapshot.table], as_of_then) or HOLE


def _lowered(limits: PruneLimits, horizon: int) -> PruneLimits:
    # No invalidation goes above it either.
    return replace(limits, horizon=Timestamp(min(limits.horizon, horizon)))


def _reason(snapshot: TableSnapshot) -> str:
    created = datetime.fromtimestamp(snapshot.created_ms / 1000, UTC)
    flushed = "" if snapshot.is_flushed else " without a flush, so that it may lack any heal"
    return (
        f"the snapshot {snapshot.name}, taken {created:%Y-%m-%d %H:%M:%S} UTC{flushed}, would need "
        f"the later commits if it were restored; `delete_snapshot '{snapshot.name}'` in the HBase "
        "shell once it is not wanted"
    )


def _row(snapshot: TableSnapshot) -> bytes:
    # None of the names has a slash.
    return SNAPSHOT_PREFIX + f"{snapshot.table}/{snapshot.name}/{snapshot.created_ms}".encode()


def _snapshot_of(row: bytes, held: _Held) -> TableSnapshot:
    table, name, created_ms = row.removeprefix(SNAPSHOT_PREFIX).decode().split("/")
    return TableSnapshot(name, table, int(created_ms), held.is_flushed)
