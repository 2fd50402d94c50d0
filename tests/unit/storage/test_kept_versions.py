"""Tables keep every version that a snapshot may need, or are refused; system tables keep one."""

from __future__ import annotations

import subprocess
import sys

import pytest

import omidpy
from compactor.tables.adoption import plan_adoption
from omidpy.base.installation import install_hint
from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import ConfigError, NotTransactional, UsageError
from omidpy.facts.commit_table import COMMIT_TABLE, TIMESTAMP_TABLE, create_system_tables
from omidpy.model import FamilySchema, KeyRange, TableSchema
from omidpy.opening import open_store
from omidpy.storage.base import Capabilities
from omidpy.storage.hbase import identity
from omidpy.storage.memory import MemoryStore

REMEDY = r"alter 't', \{NAME => 'cf', VERSIONS => 2147483647, TTL => 'FOREVER'\}"


class SharedStore(MemoryStore):
    """A store of many machines."""

    @property
    def capabilities(self) -> Capabilities:
        """As far as it matters here."""
        return Capabilities(remote=True)


@pytest.mark.parametrize("attributes", [{"VERSIONS": "1"}, {"VERSIONS": "1000"}, {"TTL": "86400"}])
def test_a_table_that_forgets_is_refused_with_the_remedy(attributes: dict[str, str]) -> None:
    """A snapshot would miss what HBase dropped, and nobody would notice."""
    with omidpy.connect("memory:") as tm:
        tm.create_table("t", families=["cf"])
        tm.store.set_family_attributes("t", b"cf", attributes)
        with pytest.raises(NotTransactional, match=REMEDY), tm.begin() as tx:
            tx.table("t").row(b"r")
        tm.drop_table("t")


def test_a_plain_family_may_forget() -> None:
    """Only transactional families are read at snapshots."""
    with omidpy.connect("memory:") as tm:
        tm.create_table("t", families=["cf", "plain"])
        attributes = {"OMID_ENABLED": None, "VERSIONS": "1"}
        tm.store.set_family_attributes("t", b"plain", attributes)
        with tm.begin() as tx:
            assert tx.table("t").row(b"r") == {}


def test_a_table_that_forgets_is_not_adopted() -> None:
    """Not even as a plan: the remedy comes first."""
    store = MemoryStore()
    create_system_tables(store)
    store.create_table(TableSchema("t", [FamilySchema(b"cf", {"VERSIONS": "1"})]))
    with pytest.raises(UsageError, match=REMEDY):
        plan_adoption(store, "t", COMMIT_TABLE)


def test_system_tables_are_as_omids_tool_makes_them() -> None:
    """16 regions with borders of nine bytes, one version; a table that exists is left alone."""
    store = SharedStore()
    create_system_tables(store)
    create_system_tables(store)
    regions = store.regions(COMMIT_TABLE)
    assert len(regions) == 16
    assert [region.start.hex() for region in regions] == [
        "",
        *(prefix + "00" * 7 for prefix in ("00f8", "01f0", "02e8", "03e0", "04d8", "05d0")),
        *(prefix + "00" * 7 for prefix in ("06c8", "07c0", "08b8", "09b0", "0aa8")),
        *(prefix + "00" * 7 for prefix in ("0ba0", "0c98", "0d90", "0e88")),
    ]
    for name in (TIMESTAMP_TABLE, CONTROL_TABLE):
        assert store.regions(name) == [KeyRange()]
    for schema in store.tables():
        assert [family.attributes for family in schema.families] == [{"VERSIONS": "1"}] * len(
            schema.families
        )


def test_a_store_has_one_identity_from_its_set_up_on() -> None:
    """Two clients of one cluster must agree on which store they share."""
    store = MemoryStore()
    with pytest.raises(ConfigError, match="omidpy init --store memory:"):
        identity.store_id(store)
    create_system_tables(store)
    made = identity.store_id(store)
    assert len(made) == 32
    assert identity.store_id(store) == made


def test_opening_hbase_calls_nobody() -> None:
    """The first use connects; an address is checked at once."""
    store = open_store("hbase+thrift2://127.0.0.1:1")
    assert store.capabilities.remote
    store.close()
    with pytest.raises(ConfigError, match="hbase"):
        open_store("hbase+thrift2://127.0.0.1:1?durablity=fsync")


def test_hbase_without_its_extra_says_what_to_install() -> None:
    """Not that some module has no attribute."""
    script = (
        "import sys\n"
        "sys.modules['thriftpy2'] = None\n"
        "from omidpy.connect import open_store\n"
        "from omidpy.errors import ConfigError\n"
        "try:\n"
        "    open_store('hbase+thrift2://127.0.0.1:9090')\n"
        "except ConfigError as error:\n"
        "    print(error)\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert install_hint("hbase") in output
