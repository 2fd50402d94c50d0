"""Oracles that die at every step of writing commits down, one after the other; clients live on.

Each has a standby, which takes over when it is dead and dies at the next moment.  The dead one was
asked for a commit alone, by a client that waits for the answer, or for several in one batch, whose
clients are gone when it is.  Then somebody looks, asks for the outcomes, and looks again: at once,
when what was held up has arrived, and behind a compaction.

`observe` only looks; `tests/integration/test_oracle_crashes.py` judges.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import msgspec

import omidpy
from omidpy.base.cells import cell_id, table_id
from omidpy.errors import CommitOutcomeUnknown, OmidError
from omidpy.facts.control import ControlTable, decode_document, encode_document
from omidpy.facts.leadership import LEASE_FACT, LeaseRecord
from omidpy.manager import TransactionManager
from omidpy.model import Outcome, Undecided
from omidpy.opening import open_store
from omidpy.oracle.tcp import TcpOracle
from omidpy.storage.base import Store
from omidpy.tx.transaction import Transaction
from omidpy.wire.messages import CommitRequest
from tests.machines.crashes.mortal import (
    Effect,
    Ending,
    Moment,
    Part,
    deliver,
    moments,
    send_commits,
)
from tests.machines.crashes.server import MortalServer
from tests.machines.workload import check_clean

TABLES: Final = ("ledger", "journal")
COLUMN: Final = b"cf:q"
PLACES: Final = (("ledger", b"a/"), ("ledger", b"z/"), ("journal", b"a/"))
"""Where every transaction writes its key."""
BATCHES: Final = (1, 2, 4)
"""Numbers of commits in a batch: on HBase each of them is written in another way."""
DEADLINE_S: Final = 120.0
KILLED: Final = -9


@dataclass
class Deed:
    """One transaction, and what was seen of it."""

    key: bytes
    is_committed: bool
    """Whether its entry was written, or was to be."""
    tx: Transaction
    error: OmidError | None = None
    """What its client was told, if it waited."""
    seen: list[dict[tuple[str, bytes], int]] = field(default_factory=list)
    """Place -> commit timestamp, by reader: at once, after everything that was held up, after the
    compaction.
    """
    outcomes: list[Outcome] = field(default_factory=list)
    """The same; at once of the last one of a batch only."""


@dataclass
class Death:
    """One oracle's."""

    moment: Moment
    effects: Sequence[Effect]
    deeds: list[Deed] = field(default_factory=list)

    @property
    def is_together(self) -> bool:
        """Whether it had two commits in the batch."""
        return len(self.deeds) > 1

    def __str__(self) -> str:
        names = [*(effect.name for effect in self.effects), "the end"]
        where = f"{names[self.moment.count]}, {self.moment}"
        return f"the oracle of {len(self.deeds)} commits, killed at {where}"


def deaths_of(effects: Sequence[Effect], *, is_alone: bool) -> list[Moment]:
    """Return the moments of a flush at which its oracle can die.

    Before all of it and behind all of it a batch is as one commit is, and left out.
    """
    end = Moment(len(effects))
    inner = [moment for moment in moments(effects, Ending.KILLED) if moment != Moment(0)]
    return [Moment(0), *inner, end] if is_alone or not inner else inner


class OracleObserver:
    """Lets oracles die in one store, and looks."""

    def __init__(self, url: str, *options: str) -> None:
        """Make the tables of an empty store; `options` are those of its servers."""
        self._url = url
        self._options = options
        self._count = 0
        self.deaths: list[Death] = []
        self._stack = ExitStack()
        self._server = self._start(None)
        try:
            assert self._server.address
            self._tm: TransactionManager = self._stack.enter_context(omidpy.connect(url, "store:"))
            self._store: Store = open_store(url)
            self._stack.callback(self._store.close)
            for table in TABLES:
                self._tm.create_table(table, ["cf"], splits=[b"m"])
        except BaseException:
            self._stack.close()
            raise

    def close(self) -> None:
        """Stop everything."""
        self._stack.close()

    def observe(self) -> list[Death]:
        """Let oracles die; return what was seen."""
        plans = [
            (moment, effects, count)
            for count, effects in zip(BATCHES, self._effects(), strict=True)
            for moment in deaths_of(effects, is_alone=count == 1)
        ]
        self._replace(plans[0][0])
        for number, (moment, effects, count) in enumerate(plans):
            death = Death(moment, effects)
            death.deeds = self._deeds(moment, count)
            self.deaths.append(death)
            following = plans[number + 1][0] if number + 1 < len(plans) else None
            self._die(death, self._start(following))
        self._replace(None)
        check_clean(self._store, TABLES)
        for death in self.deaths:
            self._look(death)
            self._ask(death.deeds)
        return self.deaths

    # -- servers -------------------------------------------------------------------------------

    def _start(self, moment: Moment | None) -> MortalServer:
        server = MortalServer(self._url, *self._options, moment=moment)
        self._stack.callback(server.close)
        return server

    def _replace(self, moment: Moment | None) -> None:
        """End the server as it ends when it is told to, and start the next."""
        assert self._server.terminate() == 0
        self._server = self._start(moment)
        assert self._server.address

    def _effects(self) -> list[list[Effect]]:
        """Return what a flush of each number of commits does to the commit table."""
        found = []
        for number, count in enumerate(BATCHES, 1):
            requests = [self._request(deed) for deed in self._deeds(Moment(0), count)]
            with send_commits(self._server.address, requests, client=self._client):
                found.append(self._server.effects(number))
        return found

    def _die(self, death: Death, standby: MortalServer) -> None:
        """Let the server die of what it is asked, and the standby take over."""
        standby.wait_for("^standby ")
        burial = threading.Thread(target=self._bury, args=(self._server,))
        burial.start()
        if death.is_together:
            requests = [self._request(deed) for deed in death.deeds]
            with send_commits(self._server.address, requests, client=self._client):
                code = self._server.wait()
        else:
            (deed,) = death.deeds
            try:
                deed.tx.commit()
            except OmidError as error:
                deed.error = error
            code = self._server.wait()
        burial.join()
        assert code == KILLED, f"{death}: {self._server.log}"
        held_up = self._server.held_up()
        self._server = standby
        assert standby.address
        self._look(death)
        self._ask(death.deeds[-1:])  # of the others a reader has to do the same
        deliver(self._store, held_up)
        self._look(death)
        self._ask(death.deeds)

    def _bury(self, server: MortalServer) -> None:
        """Give a server's lease up once it is dead, so that its standby need not wait ten seconds.

        That it would get it without us is tested in `test_hbase_oracle.py`.
        """
        server.process.wait()
        control = ControlTable(self._store)
        raw = control.read(LEASE_FACT)
        if raw is not None and not self._store.capabilities.process_locks:
            record = decode_document(raw, LeaseRecord, row=LEASE_FACT)
            if record.pid == server.pid:
                given_up = msgspec.structs.replace(record, holder="", sequence=record.sequence + 1)
                control.replace(LEASE_FACT, raw, encode_document(given_up))

    @property
    def _client(self) -> int:
        """Who the manager is to the oracle."""
        oracle = self._tm.oracle
        assert isinstance(oracle, TcpOracle)
        return oracle.client

    # -- transactions --------------------------------------------------------------------------

    def _deeds(self, moment: Moment, count: int) -> list[Deed]:
        """Begin transactions and write their cells, of which all are in the store."""
        deeds = []
        for nth in range(count):
            key = b"%04d" % self._count
            self._count += 1
            tx = self._tm.begin()
            for table, side in PLACES:
                tx.table(table).put(side + key, {COLUMN: key})
            tx.flush()
            half = Part.ONE_HALF if nth < count // 2 else Part.OTHER_HALF
            deeds.append(Deed(key, moment.count > 0 or moment.part is half, tx))
        return deeds

    def _request(self, deed: Deed) -> CommitRequest:
        cells = tuple(cell_id(table, side + deed.key, b"cf", b"q") for table, side in PLACES)
        return CommitRequest(deed.tx.start_ts, cells, tuple(map(table_id, TABLES)))

    # -- looking -------------------------------------------------------------------------------

    def _look(self, death: Death) -> None:
        with self._tm.begin(read_only=True) as reader:
            for deed in death.deeds:
                seen = {}
                for table, side in PLACES:
                    row = reader.table(table).row(side + deed.key, include_timestamp=True)
                    for value, commit_ts in row.values():
                        assert value == deed.key
                        seen[table, side] = commit_ts
                deed.seen.append(seen)

    def _ask(self, deeds: Sequence[Deed]) -> None:
        for deed in deeds:
            error = CommitOutcomeUnknown(start_ts=deed.tx.start_ts, witness=deed.tx.witness())
            deadline_s = time.monotonic() + DEADLINE_S
            outcome: Outcome = Undecided()
            while isinstance(outcome, Undecided) and time.monotonic() < deadline_s:
                outcome = self._tm.outcome(error)
            deed.outcomes.append(outcome)
