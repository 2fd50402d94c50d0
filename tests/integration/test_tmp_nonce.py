from __future__ import annotations
import pytest
from omidpy.model import FamilySchema, TableSchema
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.connections.pool import until
from omidpy.storage.hbase.native.wire import messages, answers
from omidpy.storage.hbase.native.client import _number
from tests.machines.hbase import RunningHBase
from tests.machines.hbase_store import drop_tables
pytestmark = [pytest.mark.integration, pytest.mark.hbase]

def test_nonce(hbase_cluster: RunningHBase) -> None:
    drop_tables(hbase_cluster)
    store = NativeStore(hbase_cluster.direct_url + "?retry_s=60&timeout_s=20")
    store.create_table(TableSchema("t", [FamilySchema(b"cf")]))
    client = store._client
    admin = Admin(client.calls)
    nonces = (77, 88)
    def once() -> int | None:
        return client.calls.at_row("t", b"r", lambda region: ("Mutate", *messages.increment_request(region.name, b"r", b"cf", b"q", 1, nonces)), _number, what="i", is_repeatable=True)
    print("first", once()); print("same server", once())
    (region,) = admin.regions("t")
    admin.move(region)
    (after,) = admin.regions("t")
    print(region.server, after.server)
    print("elsewhere", once())
    store.close()
    assert 0
