"""Keeps the newest value of each key in a table of PostgreSQL, or every entry.

    key bytea PRIMARY KEY, value, commit_ts bigint, ordinal bytea, start_ts bigint

`value` is jsonb in a table that the sink makes, and whatever one that is there has: json, jsonb or
text, or bytea, which queues of bytes need.  Such a table may have more columns.

A row is replaced only by what is newer; the server locks it while it compares.  Or each entry has a
row of its own, by the primary key (commit_ts, ordinal), that is never replaced.  A batch is one
transaction, and durable once that has committed, also where the server is set to answer earlier.

It keeps a mark as well, in the table `omidpy_marks` of the same schema (`sql_marks.py`): rows that
a reader has taken out of the table do not come again.  A session that sleeps in a transaction, and
so keeps the row of its mark locked, is ended by the server after a while, unless that has been set.

A server whose machine is gone is let go after 25 seconds, and one that stands still, or whose table
somebody keeps locked, after a batch's time: the batch comes again, and its bucket can be given up.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from omidpy.base.installation import install_hint
from omidpy.base.words.durations import check_seconds
from omidpy.errors import ConfigError, ExportError
from omidpy.recipes.export_queue.exporter import ExactExporter, Retry
from omidpy.recipes.export_queue.sinks.sql.deadline import Deadline
from omidpy.recipes.export_queue.sinks.sql.marks import Marks
from omidpy.recipes.export_queue.sinks.sql.pool import Pool
from omidpy.recipes.export_queue.sinks.sql.statements import (
    Appending,
    checked_name,
    made_of,
    newest,
    row,
    upsert,
)
from omidpy.wire.peers import LIVENESS_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from omidpy.recipes.export_queue.exporter import Batch
    from omidpy.recipes.export_queue.marks import Mark, Share

BYTES: Final = "bytea"
VALUES: Final = ("jsonb", "json", "text", BYTES)
"""What the column `value` may be."""

CONNECT_S: Final = 10

TIMEOUT_S: Final = 60.0

LIVENESS: Final = {
    "keepalives_idle": LIVENESS_OPTIONS["TCP_KEEPIDLE"],
    "keepalives_interval": LIVENESS_OPTIONS["TCP_KEEPINTVL"],
    "keepalives_count": LIVENESS_OPTIONS["TCP_KEEPCNT"],
    "tcp_user_timeout": LIVENESS_OPTIONS["TCP_USER_TIMEOUT"],
}
"""What libpq calls them; without them a machine that is gone is waited for up to two hours."""

OF_MARKS: Final = {"share": "text", "fence": "bigint", "mark": "text"}
NEEDED: Final = {"key": BYTES, "commit_ts": "bigint", "ordinal": BYTES, "start_ts": "bigint"}

OF_ENTRIES: Final = frozenset({"21", "22", "23", "2F", "38", "39", "44", "54", "P0"})
"""Classes of SQLSTATE that speak of what is written: a value, a constraint, something that is too
large for an index, and what functions, triggers and views have to say of a row.  The driver has
some of them among the errors of a server that is away."""

_COLUMNS: Final = """
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped
"""

_DURABLE: Final = """
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off'
"""

_AWAKE: Final = """
SELECT set_config('idle_in_transaction_session_timeout', '30s', false)
WHERE current_setting('idle_in_transaction_session_timeout') = '0'
"""

T = TypeVar("T")


class PostgresqlSink(ExactExporter):
    """One row for each key: its newest value, and the `seq` of that.  Or one for each entry.

    Needs `omidpy[postgresql]`.
    """

    def __init__(
        self,
        server: str,
        table: str = "entries",
        *,
        value: str = "jsonb",
        append: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Write to a table, which is made if it is not there.

        Args:
            server: As libpq takes it: `postgresql://user@host:5432/database`, or `host=... dbname=
                ...`.  A password is best left to a password file, or to `PGPASSWORD`.
            table: Letters, digits and `_`, perhaps behind a schema and a dot.
            value: What the column `value` is in a table that is made: `jsonb`, `json`, `text` or
                `bytea`.  An entry whose value is None leaves NULL, and its `seq`.
            append: Every entry has a row, exactly once, and none is replaced.  Such a table is for
                the queues of one store.
            timeout_s: How long a batch may take; then it comes again, by another connection.

        Raises:
            UsageError: the name is none that may go into a statement, or nobody can wait so long.
            ConfigError: the driver is not installed, or `value` or `server` is unknown.
        """
        check_seconds(timeout_s=timeout_s)
        self._driver = _psycopg()
        self._table = ".".join(checked_name(part) for part in table.split(".", 1))
        if value not in VALUES:
            raise ConfigError(f"value={value!r} is none of {', '.join(VALUES)}")
        try:
            found = self._driver.conninfo.conninfo_to_dict(server)
        except self._driver.ProgrammingError as error:
            said = str(error).strip()
            raise ConfigError(f"{said:.200}; write postgresql://user@host/database") from error
        self._server = self._driver.conninfo.make_conninfo(
            server, **{"connect_timeout": CONNECT_S, **LIVENESS, **found}
        )
        self._timeout_s = timeout_s
        self._name = f"{found.get('host', 'PostgreSQL')}: table {self._table}"
        self._appends = append
        self._make = made_of(
            self._table, key=BYTES, value=f"value {value}", number="bigint", appends=append
        )
        self._upsert = upsert(self._table, "%s")
        self._appending = Appending(self._table, "%s")
        self._marks = Marks(self._table, "%s")
        self._value = value
        self._pool = self._new_pool()

    def open(self) -> None:
        """Make the table if it is not there, and see that entries could be written.

        Raises:
            ConfigError: the table has other columns, or this user may not write to it.
            ExportError: the server cannot be reached.
        """
        self._pool = self._new_pool()
        try:
            self._value = self._pool.use(lambda made: self._in_time(made, self._prepare))
        except self._driver.OperationalError as error:
            raise ExportError(f"{self._name}: {error}") from error
        except self._driver.Error as error:
            raise ConfigError(f"{self._name}: {error}; it needs {self._make}") from error

    @property
    def needs_marks(self) -> bool:
        """Say no: the table refuses what it has."""
        return False

    def take_over(self, share: Share) -> Mark | None:
        """Raise the fence of a bucket, and read its mark."""
        return self._run(lambda cursor: self._marks.take_over(cursor, share))

    def export_marked(self, share: Share, batch: Batch, mark: Mark) -> None:
        """Write a batch and its mark, whole."""
        rows = self._rows(batch)

        def write(cursor: Any) -> None:
            self._marks.advance(cursor, share, mark)
            self._write(cursor, rows)

        self._run(write)

    def export(self, batch: Batch) -> None:
        """Write a batch, whole."""
        rows = self._rows(batch)
        self._run(lambda cursor: self._write(cursor, rows))

    def _write(self, cursor: Any, rows: list[tuple[Any, ...]]) -> None:
        if self._appends:
            self._appending.append(
                rows, insert=partial(_inserted, cursor), look=partial(_found, cursor)
            )
        else:
            cursor.executemany(self._upsert, rows)

    def _rows(self, batch: Batch) -> list[tuple[Any, ...]]:
        entries = batch if self._appends else newest(batch)
        return [self._row(*row(entry)) for entry in entries]

    def _run(self, work: Callable[[Any], T]) -> T:
        """Return what `work` returns, called with a cursor in one transaction."""
        driver = self._driver

        def within(connection: Any) -> T:
            with connection.transaction(), connection.cursor() as cursor:
                return work(cursor)

        try:
            return self._pool.use(lambda made: self._in_time(made, within))
        except driver.Error as error:
            if self._is_of_an_entry(error):
                raise  # one that is alone with it is poison, if others are taken
            # Gone, full, locked, dropped, forbidden: no entry is at fault.
            raise Retry(f"{self._name}: {error}") from error

    def _is_of_an_entry(self, error: Any) -> bool:
        """Say whether an error speaks of what is written, perhaps, and not of the server's state.

        One whose state no class of the server has was raised by a function of the user's.
        """
        state = error.diag.sqlstate or error.sqlstate or ""
        driver = self._driver
        is_of_value = isinstance(error, driver.DataError | driver.IntegrityError)
        return is_of_value or state[:2] in OF_ENTRIES or type(error) is driver.DatabaseError

    def close(self) -> None:
        """Close the connections of every thread."""
        self._pool.close()

    def _new_pool(self) -> Pool[Any]:
        return Pool(self._connect, lambda connection: connection.close())

    def _connect(self) -> Any:
        made = self._driver.connect(self._server, autocommit=True)
        self._in_time(made, self._set_up)
        return made

    def _set_up(self, connection: Any) -> None:
        connection.execute(_DURABLE)
        connection.execute(_AWAKE)

    def _in_time(self, connection: Any, work: Callable[[Any], T]) -> T:
        """Return what `work` returns, or cut the connection."""
        try:
            deadline = Deadline(connection.fileno(), self._timeout_s)
        except OSError as error:
            raise self._driver.OperationalError(str(error)) from error
        with deadline:
            try:
                return work(connection)
            except self._driver.Error as error:
                if not deadline.has_passed:
                    raise
                # What it was doing is unknown: it may have committed.
                raise self._driver.OperationalError(
                    f"no answer within {self._timeout_s:g} s, so the connection was cut"
                ) from error

    def _prepare(self, connection: Any) -> str:
        """Return what the column `value` is."""
        columns = self._made(connection, self._table, self._make)
        wrong = [
            f"{name} {columns.get(name, 'missing')}"
            for name, kind in NEEDED.items()
            if columns.get(name) != kind
        ]
        if columns.get("value") not in VALUES:
            wrong.append(f"value {columns.get('value', 'missing')}")
        if wrong:
            raise ConfigError(f"{self._name} has {', '.join(wrong)}; it needs {self._make}")
        # The server judges the rest: the unique key, and what this user may do.
        statement = self._appending.insert if self._appends else self._upsert
        connection.execute(f"EXPLAIN {statement}", (b"", None, 2**62, b"", 2**62))
        if self._appends:
            connection.execute(f"EXPLAIN {self._appending.look}", (2**62, b"", 2**62, b""))
        self._prepare_marks(connection)
        return columns["value"]

    def _prepare_marks(self, connection: Any) -> None:
        marks = self._marks
        try:
            found = self._made(connection, marks.table, marks.make)
            for statement, values in (
                (marks.take, ("", 0, "")),
                (marks.read, ("",)),
                (marks.keep, ("", "", 0)),
            ):
                connection.execute(f"EXPLAIN {statement}", values)
        except self._driver.errors.OperationalError:
            raise
        except self._driver.Error as error:
            raise ConfigError(
                f"{self._name}: {error}; entries come exactly once by a table beside theirs, which "
                f"this user may SELECT, INSERT and UPDATE: {marks.make}"
            ) from error
        if any(found.get(name) != kind for name, kind in OF_MARKS.items()):
            raise ConfigError(f"{marks.table} has {found}; it needs {marks.make}")

    def _made(self, connection: Any, table: str, make: str) -> dict[str, str]:
        """Return the columns of a table, made if it was not there, and what they are."""
        columns = self._columns(connection, table)
        if not columns:
            # Another process may be making it; the one that comes second is told so.
            with contextlib.suppress(self._driver.errors.UniqueViolation):
                connection.execute(make)
            columns = self._columns(connection, table)
        return columns

    def _columns(self, connection: Any, table: str) -> dict[str, str]:
        return dict(connection.execute(_COLUMNS, [table]).fetchall())

    def _row(self, key: bytes, value: Any, *rest: Any) -> tuple[Any, ...]:
        if self._value == BYTES and isinstance(value, str):
            value = value.encode()
        elif self._value != BYTES and isinstance(value, bytes):
            raise Retry(
                f"{self._name}: values of this queue are bytes, and the column value is "
                f"{self._value}; let it be bytea"
            )
        return key, value, *rest


def _inserted(cursor: Any, statement: str, rows: Sequence[tuple[Any, ...]]) -> int:
    """Run a statement for each of some rows; return how many it has added."""
    cursor.executemany(statement, rows)
    return int(cursor.rowcount)


def _found(
    cursor: Any, statement: str, rows: Sequence[tuple[Any, ...]]
) -> list[tuple[Any, ...] | None]:
    """Run a query for each of some rows, together; return what each finds."""
    cursor.executemany(statement, rows, returning=True)
    found = [cursor.fetchone()]
    while cursor.nextset():
        found.append(cursor.fetchone())
    return found


def _psycopg() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - an extra
        import psycopg.conninfo  # noqa: PLC0415 - see above
        import psycopg.errors  # noqa: PLC0415 - see above
    except ImportError as error:
        raise ConfigError(
            f"exports to PostgreSQL need its driver: {install_hint('postgresql')}"
        ) from error
    return psycopg
