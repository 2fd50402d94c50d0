"""Tables that Phoenix makes are adopted by compactions, where an operator has said so."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

import pytest

import omidpy
from compactor.options import Options
from compactor.ranges.progress import NoProgress
from compactor.run.local import compact
from compactor.tables.following import NO_RULE, PHOENIX_FACT, Rule, read_rule, set_rule
from omidpy.base.schema.phoenix import schema_of
from omidpy.base.tables import COMMIT_TABLE_ATTRIBUTE, CONFLICT_LEVEL_ATTRIBUTE, OMID_ENABLED
from omidpy.cli import main
from omidpy.facts.control import ControlTable
from omidpy.facts.tables.plain_versions import plain_versions
from omidpy.model import FamilySchema, TableSchema
from omidpy.opening import open_store
from omidpy.storage.base import Put, RowMutation
from tests.machines.clients import Client
from tests.machines.ignoring import set_ignored

OMIDS: Final = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
OTHER: Final = "|org.apache.phoenix.coprocessor.ScanRegionObserver|805306366|"


def phoenixs(name: str, coprocessor: str = OMIDS, **attributes: str) -> TableSchema:
    """Return a table as Phoenix makes it, with no mark of Omid's."""
    return TableSchema(name, [FamilySchema(b"0")], {"coprocessor$1": coprocessor, **attributes})


@pytest.fixture
def client() -> Client:
    """Return a client whose store has tables of Phoenix's."""
    client = Client()
    for name in ("S.ORDERS", "S.BY_DAY", "OTHER", "_IDX_S.ORDERS"):
        client.store.create_table(phoenixs(name))
    client.store.create_table(phoenixs("S.LOGS", OTHER))
    client.store.create_table(phoenixs("SYSTEM.CATALOG", OTHER))
    return client


class Notes(NoProgress):
    """Keeps what is noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.notes.append(text)


def run(client: Client, *, is_dry_run: bool = False) -> list[str]:
    """Compact, and return what the run notes."""
    progress = Notes()
    options = Options(is_dry_run=is_dry_run)
    compact(client.store, options, clock=client.clock, progress=progress)
    return progress.notes


def ours(client: Client) -> set[str]:
    """Return which tables of Phoenix's are ours, each by row."""
    found = [one for one in client.store.tables() if "coprocessor$1" in one.attributes]
    adopted = [one for one in found if COMMIT_TABLE_ATTRIBUTE in one.attributes]
    assert all(one.attributes[CONFLICT_LEVEL_ATTRIBUTE] == "row" for one in adopted)
    return {one.name for one in adopted}


def test_without_a_rule_nothing_is_adopted(client: Client) -> None:
    """A table may be another's."""
    run(client)
    assert ours(client) == set()
    assert read_rule(ControlTable(client.store)) == NO_RULE


def test_what_phoenix_has_made_is_adopted_and_said(client: Client) -> None:
    """Indexes among it, also what it makes later; what knows no transactions is left alone."""
    control = ControlTable(client.store)
    set_rule(control, Rule(is_followed=True))
    planned = run(client, is_dry_run=True)
    assert "table OTHER would be adopted by row" in str(planned)
    assert ours(client) == set()
    report = run(client)
    assert ours(client) == {"S.ORDERS", "S.BY_DAY", "OTHER", "_IDX_S.ORDERS"}
    told = [note for note in report if "was adopted by row" in note]
    assert len(told) == 4
    client.store.create_table(phoenixs("S.LATER", DATA_TABLE_NAME="S.ORDERS"))
    assert [note for note in run(client) if "was adopted" in note] == [
        "table S.LATER was adopted by row, as is every transactional table that Phoenix makes"
    ]
    set_rule(control, Rule(is_followed=False))
    client.store.create_table(phoenixs("S.LATEST"))
    run(client)
    assert "S.LATEST" not in ours(client)


def test_a_rule_may_be_about_schemas(client: Client) -> None:
    """And what an operator ignores stays so."""
    control = ControlTable(client.store)
    set_rule(control, Rule(is_followed=True, schemas=("S",)))
    set_ignored(control, "S.BY_DAY", is_ignored=True)
    run(client)
    assert ours(client) == {"S.ORDERS", "_IDX_S.ORDERS"}


@pytest.mark.parametrize(
    ("table", "schema"),
    [("T", ""), ("S.T", "S"), ("S:T", "S"), ("_IDX_S.T", "S"), ("S:_IDX_T", "S"), ("_IDX_T", "")],
)
def test_the_schema_is_part_of_the_name(table: str, schema: str) -> None:
    """With namespaces and without."""
    assert schema_of(table) == schema


def test_cells_of_a_running_transaction_are_no_obstacle(client: Client) -> None:
    """Phoenix writes while we adopt, and commits afterwards."""
    set_rule(ControlTable(client.store), Rule(is_followed=True))
    tx = client.tm.begin()
    put = Put(b"0", b"_0", tx.start_ts, b"x")
    client.store.write({"OTHER": [RowMutation(b"r", puts=[put])]}, durable=True)
    run(client)
    assert "OTHER" in ours(client)
    (cells,) = client.store.get("OTHER", [b"r"])
    assert [cell.value for cell in cells] == [b"x"]
    tx.rollback()


def test_plain_data_is_a_persons_to_adopt(client: Client) -> None:
    """Somebody may still write it; the others do not wait."""
    set_rule(ControlTable(client.store), Rule(is_followed=True))
    versions = plain_versions(client.store)
    assert versions is not None
    put = Put(b"0", b"N", versions.low + 5, b"x")
    client.store.write({"OTHER": [RowMutation(b"r", puts=[put])]}, durable=True)
    report = run(client)
    assert "OTHER of Phoenix's was not adopted by itself: it has 1 cells" in str(report)
    assert ours(client) == {"S.ORDERS", "S.BY_DAY", "_IDX_S.ORDERS"}


def test_a_rule_that_cannot_be_read_is_said_and_not_followed(client: Client) -> None:
    """The run does the rest of its work."""
    ControlTable(client.store).write(PHOENIX_FACT, b"\xff")
    report = run(client)
    assert ours(client) == set()
    assert "`omidpy table adopt --phoenix --apply` sets the rule again" in str(report)


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Return what a command prints."""
    with pytest.raises(SystemExit) as ended:
        main(["table", "adopt", *words])
    assert int(str(ended.value.code or 0)) == code
    printed = capsys.readouterr()
    return printed.out + printed.err


def test_the_command_records_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And says what the next compaction will adopt; nothing is read before."""
    url = f"sqlite:///{tmp_path / 'one.db'}"
    omidpy.connect(url).close()
    with contextlib.closing(open_store(url)) as store:
        store.create_table(phoenixs("S.ORDERS"))
        control = ControlTable(store)
        at = ("--store", url)
        out = said(capsys, "--phoenix", "--schema", "S, T", *at)
        assert "would adopt every transactional table that Phoenix makes in S, T" in out
        assert "the next one: S.ORDERS" in out
        assert read_rule(control) == NO_RULE
        said(capsys, "--phoenix", "--schema", "S, T", "--apply", *at)
        assert read_rule(control) == Rule(is_followed=True, schemas=("S", "T"))
        assert '"waiting": ["S.ORDERS"]' in said(capsys, "--phoenix", "--apply", "--json", *at)
        assert read_rule(control) == Rule(is_followed=True)
        said(capsys, "--no-phoenix", "--apply", *at)
        assert read_rule(control) == NO_RULE
        for wrong in (
            (),
            ("T", "--phoenix"),
            ("T", "--schema", "S"),
            ("--no-phoenix", "--schema", "S"),
        ):
            assert "name a table, or say --phoenix" in said(capsys, *wrong, *at, code=2)
        assert OMID_ENABLED not in store.schema("S.ORDERS").families[0].attributes
