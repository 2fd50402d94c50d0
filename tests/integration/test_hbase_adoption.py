"""`omidpy table adopt` on HBase: an ordinary table, written without us, becomes transactional."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import omidpy
from omidpy.base.schema import phoenix
from omidpy.base.tables import (
    COMMIT_TABLE_ATTRIBUTE,
    CONFLICT_LEVEL_ATTRIBUTE,
    INCARNATION_ATTRIBUTE,
    OMID_ENABLED,
)
from omidpy.cli import main
from omidpy.facts.commit_table import COMMIT_TABLE
from omidpy.model import Cell, FamilySchema, TableSchema
from omidpy.storage.hbase.thrift1 import Thrift1Store
from omidpy.storage.hbase.thrift2 import Thrift2Store
from tests.machines.hbase import HBase
from tests.machines.hbase.bare import bare_client, gateway_idl
from tests.machines.hbase_store import empty_hbase
from tests.machines.processes import ServerProcess, tso_server

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

Cli = Callable[..., tuple[int, str, str]]
ROWS = [b"user%03d" % number for number in range(200)]


@pytest.fixture(scope="module")
def server(hbase: HBase) -> Iterator[ServerProcess]:
    """Run an oracle on an HBase that held no table."""
    with empty_hbase(hbase) as url, tso_server(url) as running:
        yield running


@pytest.fixture
def cli(hbase: HBase, server: ServerProcess, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Return what runs an `omidpy` command on this HBase."""
    assert server.address

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*words, "--store", hbase.thrift2_url])
        printed = capsys.readouterr()
        return int(str(ended.value.code or 0)), printed.out, printed.err

    return run


@pytest.fixture
def plain(hbase: HBase, server: ServerProcess) -> Iterator[str]:
    """Return a table as HBase makes it: one version, and HBase's own clock for versions."""
    assert server.address
    store = Thrift2Store(hbase.thrift2_url)
    families = [FamilySchema(b"info", {"VERSIONS": "1"}), FamilySchema(b"log", {"TTL": "864000"})]
    store.create_table(TableSchema("users", families), splits=[ROWS[100]])
    idl = gateway_idl(hbase)
    with bare_client(hbase) as client:
        for start in range(0, len(ROWS), 50):
            client.putMultiple(
                b"users",
                [
                    idl.TPut(
                        row=row,
                        columnValues=[
                            idl.TColumnValue(family=b"info", qualifier=b"name", value=row),
                            idl.TColumnValue(family=b"log", qualifier=b"", value=b"seen"),
                        ],
                    )
                    for row in ROWS[start : start + 50]
                ],
            )
        # A row that was deleted and written anew: a marker of HBase's own lies between.
        client.deleteSingle(b"users", idl.TDelete(row=ROWS[0]))
        value = idl.TColumnValue(family=b"info", qualifier=b"name", value=b"again")
        # A put in the marker's own millisecond stays hidden behind it.
        while not client.get(b"users", idl.TGet(row=ROWS[0])).columnValues:
            client.put(b"users", idl.TPut(row=ROWS[0], columnValues=[value]))
    yield "users"
    store.drop_table("users")
    store.close()


def everything(hbase: HBase) -> tuple[list[TableSchema], dict[str, list[Cell]]]:
    """Return every table's schema and cells, but what the oracle itself writes all the time."""
    store = Thrift2Store(hbase.thrift2_url)
    try:
        schemas = store.tables()
        names = [schema.name for schema in schemas if not schema.name.startswith("OMID")]
        return schemas, {
            name: [cell for page in store.scan(name) for row in page for cell in row]
            for name in names
        }
    finally:
        store.close()


def unnamed(
    found: tuple[list[TableSchema], dict[str, list[Cell]]],
) -> tuple[list[TableSchema], dict[str, list[Cell]]]:
    """Return the same without the incarnations, which an adoption gives before it reads."""
    schemas, cells = found
    return [
        replace(
            schema,
            attributes={
                name: value
                for name, value in schema.attributes.items()
                if name != INCARNATION_ATTRIBUTE
            },
        )
        for schema in schemas
    ], cells


def expected() -> list[tuple[bytes, dict[bytes, Any]]]:
    """Return what everybody must see of the table."""
    rest = [(row, {b"info:name": row, b"log:": b"seen"}) for row in ROWS[1:]]
    return [(ROWS[0], {b"info:name": b"again"}), *rest]


def test_an_ordinary_table_becomes_transactional(
    hbase: HBase, server: ServerProcess, plain: str, cli: Cli
) -> None:
    """Dry runs change nothing at all; afterwards every client sees every row, by both gateways."""
    before = everything(hbase)
    code, _, err = cli("table", "adopt", plain)
    assert (code, "--alter-families" in err, "VERSIONS => 2147483647" in err) == (2, True, True)
    code, out, _ = cli("table", "adopt", plain, "--alter-families")
    assert code == 0
    assert "399 cells of plain data would get shadow cells" in out
    assert "nothing was changed; add --apply" in out
    assert everything(hbase) == before

    code, out, _ = cli("table", "adopt", plain, "--alter-families", "--apply", "--json")
    assert code == 0
    done = json.loads(out)
    assert (done["cells_converted"], done["families_altered"]) == (399, ["info", "log"])
    for url in (hbase.thrift2_url, hbase.thrift1_url):
        with omidpy.connect(url, tso=server.address) as tm:
            with tm.begin() as tx:
                assert list(tx.table(plain).scan()) == expected()
            with tm.begin() as tx, tm.begin() as later:
                tx.table(plain).put(ROWS[5], {b"info:name": b"new"})
                tx.flush()
                assert later.table(plain).row(ROWS[5]) == {b"info:name": ROWS[5], b"log:": b"seen"}
                tx.rollback()

    _, cells = everything(hbase)
    plain_cells = set(before[1][plain])
    assert plain_cells <= set(cells[plain])

    # Once more: it is ours, and there is nothing left to do.
    code, out, _ = cli("table", "adopt", plain, "--apply", "--json")
    assert (code, json.loads(out)["cells_converted"]) == (0, 0)

    # Somebody goes on without transactions; nobody sees that until the table is adopted again.
    idl = gateway_idl(hbase)
    value = idl.TColumnValue(family=b"info", qualifier=b"name", value=b"late")
    with bare_client(hbase) as client:
        client.put(b"users", idl.TPut(row=ROWS[7], columnValues=[value]))
    with omidpy.connect(hbase.thrift2_url, tso=server.address) as tm:
        with tm.begin() as tx:
            assert tx.table(plain).row(ROWS[7])[b"info:name"] == ROWS[7]
        code, out, _ = cli("table", "adopt", plain)
        assert "1 cells of plain data would get shadow cells" in out
        code, out, _ = cli("table", "adopt", plain, "--apply")
        assert "1 cells of plain data got shadow cells" in out
        with tm.begin() as tx:
            assert tx.table(plain).row(ROWS[7])[b"info:name"] == b"late"


def test_an_ordinary_table_with_empty_values_is_refused(hbase: HBase, plain: str, cli: Cli) -> None:
    """They would read as deletes, so that data would vanish without a word."""
    idl = gateway_idl(hbase)
    with bare_client(hbase) as client:
        value = idl.TColumnValue(family=b"info", qualifier=b"flag", value=b"")
        client.put(b"users", idl.TPut(row=b"flagged", columnValues=[value]))
    before = everything(hbase)
    code, _, err = cli("table", "adopt", plain, "--alter-families", "--apply")
    assert code == 2
    assert "1 cells" in err
    assert "flagged" in err
    assert unnamed(everything(hbase)) == unnamed(before)


@pytest.fixture
def phoenixs(hbase: HBase, server: ServerProcess) -> Iterator[Thrift2Store]:
    """Return the store of a table as Phoenix makes it.

    It is disabled: this HBase does not have the class, and no region opens without it.
    """
    assert server.address
    store = Thrift2Store(hbase.thrift2_url)
    store.create_table(TableSchema("ORDERS", [FamilySchema(b"0", {OMID_ENABLED: "true"})]))
    with bare_client(hbase) as client:
        client.disableTable(gateway_idl(hbase).TTableName(ns=b"default", qualifier=b"ORDERS"))
    omids = "|org.apache.phoenix.coprocessor.OmidTransactionalProcessor|805306356|"
    store.set_table_attributes(
        "ORDERS", {"hbase.table.sanity.checks": "false", "coprocessor$1": omids}
    )
    yield store
    store.drop_table("ORDERS")
    store.close()


def test_a_table_of_phoenixs_is_told_by_its_coprocessor(
    hbase: HBase, phoenixs: Thrift2Store, cli: Cli
) -> None:
    """Through both gateways; it is refused by cell, and reported where that was done before."""
    assert phoenix.is_transactional(phoenixs.schema("ORDERS"))
    code, _, err = cli("table", "adopt", "ORDERS", "--conflict-level", "cell")
    assert code == 2
    assert "ORDERS is Phoenix's, which detects conflicts by row" in err
    wrongly = {COMMIT_TABLE_ATTRIBUTE: COMMIT_TABLE, CONFLICT_LEVEL_ATTRIBUTE: "cell"}
    phoenixs.set_table_attributes("ORDERS", wrongly)
    code, out, _ = cli("doctor")
    assert code == 1
    assert "failed   tables: table ORDERS was adopted with level cell" in out
    assert "`omidpy table adopt ORDERS --conflict-level row --apply`" in out
    with closing(Thrift1Store(hbase.thrift1_url)) as other:
        assert phoenix.misadoption(other.schema("ORDERS")) is not None
