"""Changes of tables that the master takes whole: what others change meanwhile stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from omidpy.base.tables import CONTROL_TABLE
from omidpy.storage.hbase.direct import NativeStore
from omidpy.storage.hbase.native.cellblock import encode
from omidpy.storage.hbase.native.values import FamilyDescriptor, TableDescriptor
from omidpy.storage.hbase.native.wire.schema import family_message, table_message
from omidpy.storage.hbase.states import STATE
from omidpy.wire.protobuf import fields, put_bytes
from tests.machines.fake_hbase import Call, FakeHBase, Reply, client_of, fault
from tests.machines.hbase_messages import message

STARTED = Reply(b"\x08\x07")
"""The number of a procedure."""
DONE = Reply(b"\x08\x02")
LOST = Reply(after_bytes=0)
HOLD = fault("PleaseHoldException")


def table(*families: bytes, **attributes: str) -> TableDescriptor:
    """Return what a table is."""
    return TableDescriptor(
        "t",
        tuple(FamilyDescriptor(name, {}, {}) for name in families),
        {name.encode(): value.encode() for name, value in attributes.items()},
        {},
    )


@dataclass
class Master:
    """Answers looks at a table, and its changes, one after the other."""

    looks: Sequence[TableDescriptor]
    answers: Sequence[Reply]
    asked: list[bytes] = field(default_factory=list)
    """Each change."""
    looked: int = 0

    def __call__(self, call: Call) -> Reply:
        """Answer."""
        if call.method == "GetTableDescriptors":
            if CONTROL_TABLE.encode() in call.body:
                return Reply()  # the store was never set up
            found = self.looks[min(self.looked, len(self.looks) - 1)]
            self.looked += 1
            out = bytearray()
            put_bytes(out, 0x0A, table_message(found))
            return Reply(bytes(out))
        if call.method == "getProcedureResult":
            return DONE
        if call.method in ("ModifyTable", "ModifyColumn"):
            self.asked.append(call.body)
            return self.answers[len(self.asked) - 1]
        raise AssertionError(call.method)


def changed(master: Master, change: Callable[[NativeStore], object]) -> tuple[object, list[bytes]]:
    """Return what a change says, and what the master was asked."""
    with FakeHBase(master) as fake:
        client = client_of(fake, options="retry_s=9")
        store = NativeStore(client.calls.address, client=client)
        found = change(store)
        store.close()
    return found, master.asked


def asked_table(body: bytes) -> tuple[set[bytes], dict[bytes, bytes], int]:
    """Return families, attributes and number of a change."""
    asked = message("ModifyTableRequest")
    asked.ParseFromString(body)
    families = {one.name for one in asked.table_schema.column_families}
    attributes = {one.first: one.second for one in asked.table_schema.attributes}
    return families, attributes, asked.nonce


@pytest.mark.parametrize("first", [LOST, HOLD])
def test_a_family_that_was_added_meanwhile_stays(first: Reply) -> None:
    """The master failed over; the repeated call took it away, with all that was in it."""
    master = Master([table(b"cf"), table(b"cf", b"added", B="2")], [first, STARTED])
    found, asked = changed(master, lambda store: store.set_table_attributes("t", {"A": "1"}))
    assert found is True
    (before, _, number), (after, attributes, again) = map(asked_table, asked)
    assert (before, after) == ({b"cf"}, {b"cf", b"added"})
    assert attributes == {b"A": b"1", b"B": b"2"}
    assert number == again  # known by it, if the first was executed after all


def test_a_condition_holds_for_each_attempt() -> None:
    """It is another table by the time that the call is made again."""
    master = Master([table(b"cf", I="1"), table(b"cf", I="2")], [LOST])
    found, asked = changed(
        master, lambda store: store.set_table_attributes("t", {"A": "1"}, only={"I": "1"})
    )
    assert found is False
    assert len(asked) == 1


def test_a_change_whose_answer_was_lost_is_waited_for() -> None:
    """It has changed what its condition speaks of, and regions are being opened anew."""
    master = Master([table(b"cf"), table(b"cf", I="1")], [LOST, STARTED])
    found, asked = changed(
        master, lambda store: store.set_table_attributes("t", {"I": "1"}, only={"I": None})
    )
    assert found is True
    assert len(asked) == 2


def test_nothing_is_asked_for_where_nothing_changes() -> None:
    """HBase would open every region anew."""
    master = Master([table(b"cf", A="1")], [])
    assert changed(master, lambda store: store.set_table_attributes("t", {"A": "1"})) == (True, [])


def test_attributes_of_a_family_that_were_set_meanwhile_stay() -> None:
    """Likewise."""
    before, after = table(b"cf"), table(b"cf")
    after.families[0].attributes[b"B"] = b"2"
    master = Master([before, after], [HOLD, STARTED])
    _, asked = changed(master, lambda store: store.set_family_attributes("t", b"cf", {"A": "1"}))
    wanted = FamilyDescriptor(b"cf", {b"A": b"1", b"B": b"2"}, {})
    sent = [value for _, value in fields(asked[1]) if isinstance(value, bytes)]
    assert sorted(map(sorted, map(_pairs, sent[1:]))) == [sorted(_pairs(family_message(wanted)))]


def _pairs(family: bytes) -> list[bytes]:
    """Return the parts of a family, whose order does not matter."""
    return [value for _, value in fields(family) if isinstance(value, bytes)]


def test_a_table_that_another_has_disabled_just_now_is_dropped() -> None:
    """Of two who drop it one was told to enable it."""
    states = iter([b"\x0a\x02\x08\x00", b"\x0a\x02\x08\x01"])
    asked: list[str] = []

    def script(call: Call) -> Reply:
        asked.append(call.method)
        match call.method:
            case "GetTableState":
                return Reply(next(states))
            case "DisableTable":
                return fault("TableNotEnabledException", "t")
            case "DeleteTable":
                return STARTED
        return Master([table(b"cf")], [])(call)

    with FakeHBase(script) as fake:
        client = client_of(fake)
        store = NativeStore(client.calls.address, client=client)
        assert store.drop_table("t")
        store.close()
    assert "DeleteTable" in asked


def test_a_copy_of_a_table_that_came_back_is_given_back() -> None:
    """It has all that its table had; once it is disabled, it is looked at for the last time."""
    asked: list[str] = []

    def script(call: Call) -> Reply:
        asked.append(call.method)
        match call.method:
            case "GetTableState":
                return Reply(b"\x0a\x02\x08\x00")
            case "DisableTable" | "EnableTable":
                return STARTED
        return Master([table(b"cf", I="1")], [])(call)

    with FakeHBase(script) as fake:
        client = client_of(fake)
        store = NativeStore(client.calls.address, client=client)
        assert not store.drop_table_if("t", only={"I": "1"}, still=lambda: False)
        store.close()
    changes = [one for one in asked if one.endswith("Table")]
    assert changes == ["DisableTable", "EnableTable"]


def test_tables_that_the_list_leaves_out_are_found_in_the_catalogue() -> None:
    """Everybody may read that, and this user may look at the schema of no table there."""
    names = [b"hbase:acl", b"java", b"t"]

    def script(call: Call) -> Reply:
        assert call.method in ("Scan", "GetTableDescriptors", "Get")
        if call.method == "GetTableDescriptors":
            return fault("security.AccessDeniedException", "action=CREATE")
        if call.method == "Get":
            body = message("GetResponse", result={"associated_cell_count": 1})
            return Reply(body.SerializeToString(), encode(b"t", *STATE, 7, b"\x08\x01"))
        body = message(
            "ScanResponse", cells_per_result=[1] * len(names), more_results_in_region=False
        )
        cells = b"".join(encode(name, *STATE, 7, b"") for name in names)
        return Reply(body.SerializeToString(), cells)

    with FakeHBase(script) as fake:
        client = client_of(fake)
        store = NativeStore(client.calls.address, client=client)
        ((name, why),) = store.hidden_tables(["t"]).items()
        assert store.table_states(["t"]) == {"t": 7}
        assert store.closed_tables(["t"]) == {"t": "disabled"}
        store.close()
    assert name == "java"
    assert "grant the user the right" in why
    assert "action=CREATE" in why
