"""Every kind of row that the product keeps, with bytes in it that nobody of this format writes.

Whatever they are: each verb says so in an error of ours, or goes on without the one thing that the
row is about; nobody believes them, no transaction is lost or comes back, and no entry of a queue.
Then the verbs that repair do so, or leave to an operator what only he knows.

The kinds are read off the source: one that nobody garbles here fails the first test.
By day each column meets some of the bytes, and each sort of bytes some columns; by night all do.
"""

from __future__ import annotations

import ast
import contextlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import omidpy
from compactor.check.fsck import Check, CheckOptions
from compactor.options import Options
from compactor.run.local import compact
from omidpy import admin
from omidpy.base.tables import CONTROL_TABLE
from omidpy.base.timing.clock import SystemClock
from omidpy.errors import OmidError
from omidpy.facts.commit_table import COMMIT_TABLE, TIMESTAMP_TABLE
from omidpy.fate import Done, Fate, Locks, Step, TableFateStore, step
from omidpy.fate.admin import Admin
from omidpy.fate.operation import Unreadable
from omidpy.fate.step import Answer, StepContext
from omidpy.fate.table.store import FATE_TABLE
from omidpy.model import Cell
from omidpy.recipes.export_queue import Batch, Exporter, ExportQueue, Poison
from omidpy.storage.base import Put, RowMutation, Store
from omidpy.storage.sqlite import SqliteStore
from tests.machines.memory_folder import memory_folder

pytestmark = pytest.mark.in_memory

ROOT: Final = Path(__file__).parents[2]
AT_ONCE: Final = Options(grace_s=0.0, invalidation_grace_s=0.0, retention_s=0.0)
SPENT: Final = {b"alice": b"-10", b"bob": b"10"}
MANY: Final = 6
WAITING: Final = [6, 7, 8]
"""What nobody has exported yet; 3 is a dead letter."""


class Kind(NamedTuple):
    """A kind of row: where it is, and who names it once it is garbled."""

    table: str
    prefix: bytes
    told_by: str = ""
    """`fsck`, `fate` or `export`; empty: it counts for nothing then, as the sign of life of a
    process, keeps everything, as a hold, or whoever needs it says so in an error."""
    is_left: bool = False
    """Whether only an operator knows what to make of it."""


KINDS: Final = {
    "ADOPTED_CEILING_FACT": Kind(CONTROL_TABLE, b"adopted-ceiling", "fsck", is_left=True),
    "CLAIM_PREFIX": Kind(CONTROL_TABLE, b"claim/", "fsck"),
    "COLLECTION_HORIZON": Kind(CONTROL_TABLE, b"collection-horizon", "fsck"),
    "COLLECTION_LOG": Kind(CONTROL_TABLE, b"collection-log", "fsck"),
    "DONE_PREFIX": Kind(FATE_TABLE, b"done_", "fate"),
    "EPOCH_FACT": Kind(CONTROL_TABLE, b"epoch", "fsck"),
    "FIRST_TIMESTAMP_FACT": Kind(CONTROL_TABLE, b"first-timestamp", "fsck", is_left=True),
    "FORMAT_ROW": Kind(FATE_TABLE, b"format", "fsck"),
    "HOLD_PREFIX": Kind(CONTROL_TABLE, b"hold/", is_left=True),
    "INTENDED_HORIZON": Kind(CONTROL_TABLE, b"collection-intent", "fsck"),
    "KEY_PREFIX": Kind(FATE_TABLE, b"key_"),
    "LEASE_FACT": Kind(CONTROL_TABLE, b"lease", "fsck"),
    "LOCK_PREFIX": Kind(FATE_TABLE, b"lock_", "fate"),
    "LOW_WATERMARK_FACT": Kind(CONTROL_TABLE, b"low-watermark", "fsck"),
    "OPERATION_PREFIX": Kind(FATE_TABLE, b"tx_", "fate"),
    "PARTS_PREFIX": Kind(CONTROL_TABLE, b"parts/"),
    "PRUNE_HORIZON": Kind(CONTROL_TABLE, b"prune-horizon", "fsck"),
    "PRUNE_LEASE": Kind(CONTROL_TABLE, b"prune-horizon"),
    "ROW_PREFIX": Kind(CONTROL_TABLE, b"export/", "export", is_left=True),
    "RUN_PREFIX": Kind(CONTROL_TABLE, b"run/"),
    "SAMPLE_PREFIX": Kind(CONTROL_TABLE, b"sample/", "fsck"),
    "STAMP_PREFIX": Kind(CONTROL_TABLE, b"stamp/", "fsck"),
    "TIMESTAMP_CEILING_ROW": Kind(TIMESTAMP_TABLE, b"MAX_TIMESTAMP_R", "fsck"),
    "WORKER_PREFIX": Kind(FATE_TABLE, b"worker_"),
    "": Kind(COMMIT_TABLE, b"\x00", is_left=True),
}
"""By the name of the constant in the source; the commit table's rows have none."""

ELSEWHERE: Final = {
    "ASKED_PREFIX": "for people, written anew by each run; tests/unit/compactor/test_pruning*",
    "CLOSED_PREFIX": "that it is there is all it says; tests/unit/facts/test_removal.py",
    "DESCRIBED_PREFIX": "on HBase alone; tests/unit/storage",
    "FORMAT_FACT": "nobody writes it yet; tests/unit/facts/test_format.py",
    "IGNORED_PREFIX": "tests/contract/test_compaction_obstacles.py",
    "KEYS_PREFIX": "that it is there is all it says; tests/unit/tx/test_idempotency_keys.py",
    "LOW_WATERMARK_ROW": "beside Omid alone; tests/unit/compactor/test_singletons.py",
    "MADE_PREFIX": "is believed on HBase alone; tests/unit/facts/test_makers.py",
    "PHOENIX_FACT": "each run says so; tests/unit/compactor/test_following.py",
    "PROGRESS_PREFIX": "shown to people, and judged by nobody",
    "QUARANTINE_PREFIX": "tests/unit/compactor/test_malformed.py",
    "REMOVED_PREFIX": "one that is garbled says nothing; tests/unit/facts/test_removed.py",
    "ROOT_FACT": "on HBase alone; tests/unit/compactor/test_singletons.py",
    "SHADOW_PREFIX": "a qualifier of cells; tests/unit/compactor/test_malformed.py",
    "SIGHTED_PREFIX": "on HBase alone; tests/unit/compactor/test_restored.py",
    "SNAPSHOT_PREFIX": "on HBase alone; tests/unit/compactor/test_snapshots.py",
    "STORE_ID_FACT": "on HBase alone",
    "WRITER_KEY_FACT": "clients write cells themselves then; tests/unit/facts/test_writers.py",
}
"""Kinds that this store never has, or that nobody believes, and why."""


def names_of_rows() -> set[str]:
    """Return the constants of the source that name a row, or what the rows of a kind begin with."""
    found = set()
    for folder in ("omidpy", "tso", "compactor"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.parse(path.read_text()).body:
                if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
                    continue
                name, value = node.target.id, node.value
                is_bytes = isinstance(value, ast.Constant) and isinstance(value.value, bytes)
                ends = ("_PREFIX", "_FACT", "_ROW", "_HORIZON", "_LOG")
                if is_bytes and name.endswith(ends) and not name.startswith("_"):
                    found.add(name)
    return found


def test_every_kind_of_row_is_garbled() -> None:
    """A new one is somebody's to think about."""
    assert names_of_rows() <= KINDS.keys() | ELSEWHERE.keys()
    assert not KINDS.keys() & ELSEWHERE.keys()


# -- a store that has a row of each kind -----------------------------------------------------------


@step(version=1, namespace="test-garbled-rows")
class Counts(Step):
    """A step with a field."""

    number: int = 0

    def call(self, tx: StepContext, env: Any) -> Answer:
        """Be the end."""
        del tx, env
        return Done(self.number)


class Sink(Exporter):
    """Keeps what it is given, and refuses one for good."""

    def __init__(self, refused: int = -1) -> None:
        self.values: list[Any] = []
        self._refused = refused

    def export(self, batch: Batch) -> None:
        """Take a batch."""
        for entry in batch:
            if entry.value == self._refused:
                raise Poison(entry, "it is refused")
        self.values += [entry.value for entry in batch]


def transfer(tm: omidpy.TransactionManager, amount: int) -> None:
    """Move money."""
    with tm.begin() as tx:
        accounts = tx.table("accounts")
        for name, change in ((b"alice", -amount), (b"bob", amount)):
            held = int(accounts.row(name).get(b"cf:balance", b"0"))
            accounts.put(name, {b"cf:balance": b"%d" % (held + change)})


def balances(tm: omidpy.TransactionManager) -> dict[bytes, bytes]:
    """Return what everybody has."""
    with tm.begin(read_only=True) as tx:
        return {row: data[b"cf:balance"] for row, data in tx.table("accounts").scan()}


def live(folder: Path) -> None:
    """Let oracle, clients, a compaction, operations and an exporter leave something behind."""
    url = f"sqlite:///{folder}/s.db"
    tm = omidpy.connect(url, post_commit="none")
    admin.create_table(tm, "accounts", ["cf"])
    for amount in (1, 2, 3):
        transfer(tm, amount)
    queue = ExportQueue.create(tm, "q", buckets=2, keep_s=3600.0)
    for number in range(6):
        with tm.begin() as tx:
            queue.add(tx, b"k%d" % number, number)
    sink = Sink(refused=3)
    queue.runner(sink).run_once(wait_s=0)
    assert sorted(sink.values) == [0, 1, 2, 4, 5]
    for number in WAITING:
        with tm.begin() as tx:
            queue.add(tx, b"k%d" % number, number)
    tm.close()
    tm = omidpy.connect(url, post_commit="none")
    compact(tm.store, AT_ONCE, sleep=lambda _: None)
    transfer(tm, 4)
    operations = TableFateStore(tm.store)
    waits = Fate(None, operations, {"general": 1}).submit("TEST", Counts(5), key=("a",))
    Locks(operations).write("accounts", waits.id)
    operations.new_worker(lease_s=10.0, clock=SystemClock())
    tm.hold(tm.snapshot(), for_s=3600)
    tm.begin().token()
    shutil.copytree(folder, folder / "left")  # as a process leaves it that is killed here
    tm.close()


@pytest.fixture(scope="module")
def lived() -> Iterator[Path]:
    """Return the folder of a store that has been lived in."""
    with memory_folder() as folder:
        live(folder)
        yield folder / "left"


def cells_of(store: Store, kind: Kind) -> list[Cell]:
    """Return the cells of a kind, one of each column of each sort of row."""
    found: dict[tuple[bytes, bytes, int], Cell] = {}
    for page in store.scan(kind.table):
        for cells in page:
            for cell in cells:
                if cell.row.startswith(kind.prefix):
                    found.setdefault((cell.family, cell.qualifier, cell.row.count(b"/")), cell)
    return list(found.values())


def garblings(value: bytes, numbers: int = 2) -> Iterator[bytes]:
    """Yield bytes that something may have made of a value.

    Args:
        value: What it was.
        numbers: How many wrong numbers each field of a document is given in turn: both, or one.
    """
    yield b""
    yield value[: len(value) // 2]
    yield bytes([value[0] ^ 0x80]) + value[1:] if value else b"\x80"
    yield random.Random(len(value)).randbytes(len(value) + 1)
    yield b"[" * 20_000
    with contextlib.suppress(ValueError):
        document = json.loads(value)
        if isinstance(document, dict):
            fields = [name for name, held in document.items() if type(held) is int]
            for at, name in enumerate(fields):
                wrong = (-7, 2**63 + 5) if numbers == 2 else ((-7, 2**63 + 5)[at % 2],)
                yield from (json.dumps({**document, name: one}).encode() for one in wrong)


# -- what everybody makes of it --------------------------------------------------------------------


class Told:
    """What was told by whoever came by."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.texts: dict[str, str] = {}
        self.exported: list[Any] = []

    def do(self, name: str, work: Callable[[], object]) -> bool:
        """Do something that must end well, or in an error of ours."""
        try:
            text = work()
        except OmidError as error:
            self.texts[name] = f"{type(error).__name__}: {error}"
            return False
        self.texts[name] = "" if text is None else str(text)
        return True

    def check(self, *, is_repair: bool = False) -> None:
        """Let `fsck` look."""
        with contextlib.closing(SqliteStore(str(self._path))) as store:
            options = CheckOptions(settle_s=0.0, is_repair=is_repair)
            check = Check(store, options, sleep=lambda _: None, clock=SystemClock())
            self.do("fsck", lambda: [str(one) for one in check.run().findings])

    def live(self, expected: dict[bytes, bytes]) -> bool:
        """Let a client come by, and everybody else; say whether all of them could."""
        tm: omidpy.TransactionManager
        try:
            tm = omidpy.connect(f"sqlite:///{self._path}", post_commit="none")
        except OmidError as error:
            self.texts["connect"] = str(error)
            return False
        with contextlib.closing(tm):
            read: list[dict[bytes, bytes]] = []
            steps: list[tuple[str, Callable[[], object]]] = [
                ("read", lambda: read.append(balances(tm))),
                ("fate", lambda: self._run_operations(tm)),
                ("tables", lambda: admin.create_table(tm, "other", ["cf"])),
                ("drop", lambda: admin.drop_table(tm, "other")),
                ("export", lambda: self._export(tm)),
                ("compact", lambda: compact(tm.store, AT_ONCE, sleep=lambda _: None)),
                ("read again", lambda: read.append(balances(tm))),
            ]
            is_done = [self.do(*one) for one in steps]
            assert all(one == expected for one in read)
        return all(is_done)

    def _run_operations(self, tm: omidpy.TransactionManager) -> list[str]:
        operations = TableFateStore(tm.store)
        fate = Fate(None, operations, {"general": 1})
        for _ in range(3):
            fate.run_pending()
        _, queues = Locks(operations).read_queues()
        found = [
            one.reason if isinstance(one, Unreadable) else one.waiting for one in operations.scan()
        ]
        return [text for text in (*found, *(one.reason for one in queues)) if text]

    def _export(self, tm: omidpy.TransactionManager) -> None:
        sink = Sink()
        try:
            ExportQueue.open(tm, "q").runner(sink).run_once(wait_s=0)
        finally:
            self.exported += sink.values

    def repair(self) -> None:
        """Let each verb that repairs do what it can without a word of an operator's."""
        self.check(is_repair=True)
        with (
            contextlib.closing(SqliteStore(str(self._path))) as store,
            contextlib.suppress(OmidError),
        ):
            operations = TableFateStore(store)
            admin_of = Admin(operations)
            for one in list(operations.scan()):
                if isinstance(one, Unreadable):
                    admin_of.repair(one)
            for queue in Locks(operations).read_queues()[1]:
                admin_of.repair(queue)
        with contextlib.suppress(OmidError):
            tm = omidpy.connect(f"sqlite:///{self._path}", post_commit="none")
            with contextlib.closing(tm), contextlib.suppress(OmidError):
                ExportQueue.open(tm, "q").repair()


def copied(lived: Path, tmp_path: Path, number: int) -> Path:
    """Return the file of a copy of the store."""
    folder = tmp_path / str(number)
    shutil.copytree(lived, folder)
    return folder / "s.db"


def test_nothing_is_wrong_where_nothing_is_garbled(lived: Path, tmp_path: Path) -> None:
    """Else the tests below would pass whatever happens."""
    path = copied(lived, tmp_path, 0)
    with contextlib.closing(SqliteStore(str(path))) as store:
        missing = [name for name, kind in KINDS.items() if not cells_of(store, kind)]
    assert missing == ["ADOPTED_CEILING_FACT"]
    told = Told(path)
    told.check()
    assert told.live(SPENT), told.texts
    assert "MALFORMED" not in told.texts["fsck"]
    assert sorted(told.exported) == WAITING


def is_named(kind: Kind, cell: Cell, value: bytes, told: Told) -> bool:
    """Say whether it was found by whom it should be, where the bytes show that they are wrong."""
    match kind.told_by:
        case "fsck":
            return cell.row.hex() in told.texts["fsck"]
        case "fate":
            with contextlib.suppress(ValueError, RecursionError):
                if json.loads(value) != -7:
                    return True  # a shorter number, for instance
            return told.texts.get("fate", "[]") != "[]"
        case "export":
            return "cannot be read" in told.texts["export"] or "holds" in told.texts["export"]
    return True


def by_day(cells: list[Cell], first: int) -> Iterator[tuple[Cell, bytes]]:
    """Yield some of what may become of some cells: of each cell, and of each sort of bytes.

    Columns of one kind are read by the same few lines, so that they share the sorts among them, and
    so are the numbers of one document: each of its fields is too small, or too large.  Kinds share
    the sorts, too: each begins with another one than the kind before it.
    """
    step = 3 if len(cells) == 1 else 4 if len(cells) <= MANY else 5
    for index, cell in enumerate(cells, first):
        yield from ((cell, value) for value in [*garblings(cell.value, 1)][index % step :: step])


def by_night(cells: list[Cell], first: int) -> Iterator[tuple[Cell, bytes]]:
    """Yield all that may become of some cells."""
    del first
    for cell in cells:
        yield from ((cell, value) for value in garblings(cell.value))


@pytest.mark.parametrize(
    "chosen", [by_day, pytest.param(by_night, marks=pytest.mark.nightly)], ids=["some", "every"]
)
@pytest.mark.parametrize("name", KINDS)
def test_a_garbled_row_is_an_obstacle_of_its_own(
    lived: Path,
    tmp_path: Path,
    name: str,
    chosen: Callable[[list[Cell], int], Iterator[tuple[Cell, bytes]]],
) -> None:
    """No traceback, no wrong answer; then it is repaired, or left to who knows what it was."""
    kind = KINDS[name]
    with contextlib.closing(SqliteStore(str(lived / "s.db"))) as store:
        cells = cells_of(store, kind)
    if kind.prefix == b"prune-horizon":
        cells = [one for one in cells if (one.qualifier == b"lease") == (name == "PRUNE_LEASE")]
    for count, (cell, value) in enumerate(chosen(cells, [*KINDS].index(name)), 1):
        path = copied(lived, tmp_path, count)
        with contextlib.closing(SqliteStore(str(path))) as store:
            put = Put(cell.family, cell.qualifier, cell.version, value)
            store.write({kind.table: [RowMutation(cell.row, (put,))]})
        told = Told(path)
        told.check()
        where = f"{cell.row!r} {cell.qualifier!r} {value[:90]!r}"
        told.live(SPENT)
        assert is_named(kind, cell, value, told), (where, told.texts)
        assert not set(told.exported) - set(WAITING) or name == "ROW_PREFIX", where
        told.repair()
        is_well = told.live(SPENT)
        assert is_well or kind.is_left, (where, told.texts)
        if is_well and name != "ROW_PREFIX":
            assert set(WAITING) <= set(told.exported), (where, told.texts)
        shutil.rmtree(path.parent)
