"""Four kinds of transactions, each of which would show a certain lack of isolation.

    appends     read lists, append to them, write them back
    registers   read, write and delete cells of the same and of different rows; with gets, scans,
                flushes, savepoints and looks at the past
    bank        move money between accounts, and read all of them
    long fork   write single cells without reading, and read all of a group

Each says which checkers judge its history.  No value is written twice to a cell; of an account the
last six digits are the balance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from omidpy.testing.anomalies import Anomaly
from omidpy.testing.append_checker import check_appends
from omidpy.testing.checkers import BALANCE_LIMIT, check_bank, check_long_fork, check_registers
from omidpy.testing.clients import Client, Steps, Workload
from omidpy.testing.history import Recorded, TransactionRecord
from omidpy.tx.table import TransactionalTable
from omidpy.tx.transaction import Transaction

FAMILY: Final = "cf"
COLUMN: Final = b"cf:v"
FLUSH_SHARE: Final = 0.2


def standard_workloads(prefix: str) -> list[Workload]:
    """Return one of each kind, on tables whose names start with `prefix`."""
    return [Appends(prefix), Registers(prefix), Bank(prefix), LongFork(prefix)]


class _Workload:
    """A table of one family."""

    name = ""

    def __init__(self, prefix: str = "verify") -> None:
        self.table = f"{prefix}_{self.name.replace(' ', '_')}"

    def prepare(self, client: Client) -> Steps:
        """Make the table, and leave it empty."""
        client.tm.create_table(self.table, [FAMILY])
        yield


# -- appends ---------------------------------------------------------------------------------------


class Appends(_Workload):
    """Lists in one cell each."""

    name = "appends"

    def __init__(self, prefix: str = "verify", *, list_count: int = 5, longest: int = 40) -> None:
        """Use so many lists at a time; one that is full gives way to the next."""
        super().__init__(prefix)
        self._longest = longest
        self._generations = [0] * list_count

    def transaction(self, client: Client) -> Steps:
        """Read one to three lists, and append to most of them; perhaps to one of them twice."""

        def body(tx: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            for _ in range(client.rng.randint(1, 3)):
                slot = client.rng.randrange(len(self._generations))
                key = f"{slot}-{self._generations[slot]}"
                values = _read_list(table, record, key)
                yield
                if len(values) >= self._longest:
                    self._generations[slot] += 1
                elif client.chance(0.7):
                    value = client.value()
                    record.append(key, value)
                    table.put(key.encode(), {COLUMN: _encoded_list((*values, value))})
                    yield
                if client.chance(FLUSH_SHARE):
                    tx.flush()
                    yield

        return client.transaction(self, body)

    def last_look(self, client: Client, keys: Iterable[str]) -> Steps:
        """Read every list, at the end of a run."""

        def body(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            for key in keys:
                _read_list(table, record, key)
                yield

        return client.transaction(self, body, rollback_share=0)

    def check(self, history: Sequence[Recorded]) -> list[Anomaly]:
        """Look for anomalies of appends: each list tells the order of its own."""
        return check_appends(history)


def _read_list(table: TransactionalTable, record: TransactionRecord, key: str) -> tuple[int, ...]:
    pair = table.row(key.encode(), include_timestamp=True).get(COLUMN)
    if pair is None:
        record.read(key, None)
        return ()
    values = tuple(int(number) for number in pair[0].split(b","))
    record.read(key, values, pair[1])
    return values


def _encoded_list(values: Sequence[int]) -> bytes:
    return b",".join(b"%d" % value for value in values)


# -- registers -------------------------------------------------------------------------------------


class _Undone(Exception):
    pass


class Registers(_Workload):
    """Cells with one number each, two in a row."""

    name = "registers"

    def __init__(self, prefix: str = "verify", *, row_count: int = 4) -> None:
        """Use so many rows of two columns."""
        super().__init__(prefix)
        self.keys = [f"r{row}/{column}" for row in range(row_count) for column in "ab"]
        self._past: list[int] = []

    def transaction(self, client: Client) -> Steps:
        """Do a few things to a few cells; or only read, now or in the past."""

        def reading(
            _tx: Transaction, table: TransactionalTable, record: TransactionRecord
        ) -> Steps:
            for _ in range(2):
                yield from self._read_some(client, table, record)

        def writing(tx: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            self._remember(client, tx.start_ts)
            for _ in range(client.rng.randint(1, 4)):
                yield from self._do_something(client, tx, table, record)

        if self._past and client.chance(0.1):
            return client.look_back(self, client.rng.choice(self._past), reading)
        return client.transaction(self, reading if client.chance(0.2) else writing)

    def last_look(self, client: Client, keys: Iterable[str]) -> Steps:
        """Scan the table, at the end of a run."""
        del keys

        def body(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            self._scan(table, record, reverse=False)
            yield

        return client.transaction(self, body, rollback_share=0)

    def check(self, history: Sequence[Recorded]) -> list[Anomaly]:
        """Return what reads of cells have shown that snapshot isolation forbids."""
        return check_registers(history)

    def _remember(self, client: Client, start_ts: int) -> None:
        if len(self._past) < 20:
            self._past.append(start_ts)
        else:
            self._past[client.rng.randrange(20)] = start_ts

    def _do_something(
        self,
        client: Client,
        tx: Transaction,
        table: TransactionalTable,
        record: TransactionRecord,
    ) -> Steps:
        if client.chance(FLUSH_SHARE):
            tx.flush()
            yield
        if client.chance(0.5):
            yield from self._read_some(client, table, record)
        if client.chance(0.1):
            self._undo(client, tx, table, record)
            yield
        chosen = client.rng.sample(self.keys, client.rng.randint(1, 3))
        for key in chosen:
            row, column = _split(key)
            if client.chance(0.2):
                record.write(key, None)
                table.delete(row, [column])
            else:
                value = client.value()
                record.write(key, value)
                table.put(row, {column: b"%d" % value})
        yield
        if client.chance(0.3):
            yield from self._read_some(client, table, record)

    def _undo(
        self,
        client: Client,
        tx: Transaction,
        table: TransactionalTable,
        record: TransactionRecord,
    ) -> None:
        # A client that changes its mind: what the block wrote must never be seen.
        with suppress(_Undone), tx.savepoint():
            key, value = client.rng.choice(self.keys), client.value()
            row, column = _split(key)
            record.undo(key, value)
            table.put(row, {column: b"%d" % value})
            raise _Undone

    def _read_some(
        self, client: Client, table: TransactionalTable, record: TransactionRecord
    ) -> Steps:
        if client.chance(0.3):
            self._scan(table, record, reverse=client.chance(0.3))
        else:
            for key in client.rng.sample(self.keys, 2):
                row, column = _split(key)
                found = table.row(row, [column], include_timestamp=True)
                _note_number(record, key, found.get(column))
                yield
        yield

    def _scan(self, table: TransactionalTable, record: TransactionRecord, *, reverse: bool) -> None:
        rows = dict(table.scan(include_timestamp=True, reverse=reverse))
        for key in self.keys:
            row, column = _split(key)
            _note_number(record, key, rows.get(row, {}).get(column))


def _split(key: str) -> tuple[bytes, bytes]:
    row, _, column = key.partition("/")
    return row.encode(), b"cf:" + column.encode()


def _note_number(record: TransactionRecord, key: str, pair: tuple[bytes, int] | None) -> int | None:
    if pair is None:
        record.read(key, None)
        return None
    value = int(pair[0])
    record.read(key, value, pair[1])
    return value


# -- bank ------------------------------------------------------------------------------------------


class Bank(_Workload):
    """Accounts whose sum never changes."""

    name = "bank"

    def __init__(
        self, prefix: str = "verify", *, account_count: int = 6, balance: int = 100
    ) -> None:
        """Open so many accounts with the same balance."""
        super().__init__(prefix)
        self._accounts = [f"a{number}" for number in range(account_count)]
        self._balance = balance

    def prepare(self, client: Client) -> Steps:
        """Make the table and open the accounts."""

        def body(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            for account in self._accounts:
                self._set(client, table, record, account, self._balance)
            yield

        yield from super().prepare(client)
        yield from client.transaction(self, body, rollback_share=0)

    def _set(
        self,
        client: Client,
        table: TransactionalTable,
        record: TransactionRecord,
        account: str,
        balance: int,
    ) -> None:
        value = client.value() * BALANCE_LIMIT + balance
        record.write(account, value)
        table.put(account.encode(), {COLUMN: b"%d" % value})

    def transaction(self, client: Client) -> Steps:
        """Move money, or read every account."""

        def transfer(
            tx: Transaction, table: TransactionalTable, record: TransactionRecord
        ) -> Steps:
            balances: dict[str, int] = {}
            source, target = client.rng.sample(self._accounts, 2)
            for account in (source, target):
                row = table.row(account.encode(), include_timestamp=True)
                value = _note_number(record, account, row.get(COLUMN)) or 0
                balances[account] = value % BALANCE_LIMIT
                yield
            amount = client.rng.randint(0, balances[source])
            for account, change in ((source, -amount), (target, amount)):
                self._set(client, table, record, account, balances[account] + change)
                yield
                if client.chance(FLUSH_SHARE):
                    tx.flush()
                    yield

        return client.transaction(self, self._read_all if client.chance(0.4) else transfer)

    def _read_all(
        self, _: Transaction, table: TransactionalTable, record: TransactionRecord
    ) -> Steps:
        # One request an account, so that others commit in between.
        for account in self._accounts:
            row: Mapping[bytes, tuple[bytes, int]] = table.row(
                account.encode(), include_timestamp=True
            )
            _note_number(record, account, row.get(COLUMN))
            yield

    def last_look(self, client: Client, keys: Iterable[str]) -> Steps:
        """Read every account, at the end of a run."""
        del keys
        return client.transaction(self, self._read_all, rollback_share=0)

    def check(self, history: Sequence[Recorded]) -> list[Anomaly]:
        """Judge the totals, and each account."""
        total = len(self._accounts) * self._balance
        return check_bank(history, accounts=self._accounts, total=total) + check_registers(history)


# -- long fork -------------------------------------------------------------------------------------


class LongFork(_Workload):
    """Groups of cells that are written without a look, and never deleted."""

    name = "long fork"

    def __init__(self, prefix: str = "verify", *, group_size: int = 4) -> None:
        """Use groups of so many cells."""
        super().__init__(prefix)
        self._group_size = group_size
        self._group = 0

    def transaction(self, client: Client) -> Steps:
        """Write one cell of the group, or read all of them."""

        def write(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            key = client.rng.choice(self._keys(self._group))
            value = client.value()
            record.write(key, value)
            table.put(key.encode(), {COLUMN: b"%d" % value})
            yield

        def read(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            group = self._group
            keys = self._keys(group)
            client.rng.shuffle(keys)
            values = []
            for key in keys:
                row = table.row(key.encode(), include_timestamp=True)
                values.append(_note_number(record, key, row.get(COLUMN)))
                yield
            if None not in values and self._group == group:
                self._group += 1

        return client.transaction(self, write if client.chance(0.4) else read)

    def _keys(self, group: int) -> list[str]:
        return [f"{group:06}-{number}" for number in range(self._group_size)]

    def last_look(self, client: Client, keys: Iterable[str]) -> Steps:
        """Read every cell that was ever written."""

        def body(_: Transaction, table: TransactionalTable, record: TransactionRecord) -> Steps:
            wanted = list(keys)
            rows = dict(table.rows([key.encode() for key in wanted], include_timestamp=True))
            for key in wanted:
                _note_number(record, key, rows.get(key.encode(), {}).get(COLUMN))
            yield

        return client.transaction(self, body, rollback_share=0)

    def check(self, history: Sequence[Recorded]) -> list[Anomaly]:
        """Judge the order in which the cells appeared, and each of them."""
        return check_long_fork(history) + check_registers(history)
