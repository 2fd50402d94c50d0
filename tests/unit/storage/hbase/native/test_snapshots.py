"""Snapshots of tables: the bytes as the protocol's own library has them, and when one is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from omidpy.errors import StorageUnavailable, UsageError
from omidpy.storage.hbase.native.admin import Admin
from omidpy.storage.hbase.native.faults import Garbled
from omidpy.storage.hbase.native.wire import snapshots
from omidpy.storage.hbase.native.wire.schema import Nonces
from omidpy.storage.hbase.native.wire.snapshots import TableSnapshot
from tests.machines.fake_hbase import Call, FakeHBase, Reply, client_of, fault
from tests.machines.hbase_messages import message


@pytest.mark.parametrize(("flushes", "kind"), [(True, 1), (False, 2)])
def test_a_snapshot_is_asked_for_by_name(*, flushes: bool, kind: int) -> None:
    """With numbers by which it is known again."""
    asked = message("SnapshotRequest")
    asked.ParseFromString(snapshots.snapshot_request("kept", "ns:t", Nonces(3, 4), flushes=flushes))
    assert (asked.snapshot.name, asked.snapshot.table) == ("kept", "ns:t")
    assert (asked.snapshot.type, asked.nonce_group, asked.nonce) == (kind, 3, 4)
    named = message("IsSnapshotDoneRequest")
    named.ParseFromString(snapshots.snapshot_named("kept"))
    assert (named.snapshot.name, named.snapshot.HasField("table")) == ("kept", False)


def test_what_is_there_is_read() -> None:
    """And what is no answer is refused."""
    found = message(
        "GetCompletedSnapshotsResponse",
        snapshots=[{"name": "b", "table": "t", "creation_time": 5}, {"name": "a", "owner": "me"}],
    )
    assert snapshots.read_snapshots(found.SerializeToString()) == [
        TableSnapshot("b", "t", 5),
        TableSnapshot("a", ""),
    ]
    with pytest.raises(Garbled):
        snapshots.read_snapshots(b"\x0a\x05a")


THERE: Reply = Reply(b"\x0a\x05\x0a\x03\x12\x01t")
"""There is such a table."""


def script_of(begun: bytes, *looks: Reply) -> Callable[[Call], Reply]:
    """Return a master that begins a snapshot, and then answers each look."""
    answers = iter(looks)

    def script(call: Call) -> Reply:
        if call.method == "GetTableDescriptors":
            return THERE
        return Reply(begun) if call.method == "Snapshot" else next(answers)

    return script


NOT_YET: dict[str, Reply] = {
    "getProcedureResult": Reply(b"\x08\x01"),
    "IsSnapshotDone": Reply(b"\x08\x00"),
}
DONE: dict[str, Reply] = {
    "getProcedureResult": Reply(b"\x08\x02"),
    "IsSnapshotDone": Reply(b"\x08\x01"),
}


@pytest.mark.parametrize(
    ("begun", "method"),
    [
        ({"expected_timeout": 9, "proc_id": 7}, "getProcedureResult"),
        ({"expected_timeout": 9, "proc_id": -1}, "IsSnapshotDone"),
        ({"expected_timeout": 9}, "IsSnapshotDone"),
    ],
)
def test_a_snapshot_is_waited_for(begun: dict[str, int], method: str) -> None:
    """By its procedure; in HBase 2.5, which has none for it, by its name."""
    body = message("SnapshotResponse", **begun).SerializeToString()
    with FakeHBase(script_of(body, NOT_YET[method], NOT_YET[method], DONE[method])) as fake:
        client = client_of(fake)
        Admin(client.calls, pause=lambda _: None).snapshot("kept", "t")
        assert fake.methods[1:] == ["Snapshot", method, method, method]
        client.close()


def test_a_snapshot_whose_answer_was_lost_is_asked_for_by_the_same_numbers() -> None:
    """So that HBase 2.6 makes one."""
    lost = Reply(body=b"\x08\x09\x10\x07", after_bytes=0)
    whole = Reply(b"\x08\x09\x10\x07")

    def script(call: Call) -> Reply:
        if call.method == "GetTableDescriptors":
            return THERE
        return DONE.get(call.method) or (lost if call.number == 1 else whole)

    with FakeHBase(script) as fake:
        client = client_of(fake)
        Admin(client.calls).snapshot("kept", "t")
        bodies = [call.body for call in fake.calls if call.method == "Snapshot"]
        assert len(bodies) == 2
        assert bodies[0] == bodies[1]
        client.close()


def there(*found: tuple[str, int]) -> Reply:
    """Return the answer of a master that has snapshots, by name and when they were made."""
    described = [{"name": name, "table": "t", "creation_time": when} for name, when in found]
    answer = message("GetCompletedSnapshotsResponse", snapshots=described)
    return Reply(answer.SerializeToString())


def deletions(*answers: Reply, looks: Sequence[Reply]) -> Callable[[Call], Reply]:
    """Return a master that answers looks, and calls to delete, one after the other."""
    told, seen = iter(answers), iter(looks)
    return lambda call: next(told if call.method == "DeleteSnapshot" else seen)


LOST: Reply = Reply(after_bytes=0)
ABSENT: Reply = fault("snapshot.SnapshotDoesNotExistException")


@pytest.mark.parametrize(
    ("answers", "looks", "calls"),
    [
        ((Reply(),), [there(("kept", 5))], 1),
        # It was done.
        ((LOST,), [there(("kept", 5)), there()], 1),
        # It was not.
        ((LOST, Reply()), [there(("kept", 5)), there(("other", 1), ("kept", 5))], 2),
        # It was done, and another has made one of its name since, which stays.
        ((LOST,), [there(("kept", 5)), there(("kept", 6))], 1),
    ],
)
def test_a_snapshot_is_deleted_once(
    answers: Sequence[Reply], looks: Sequence[Reply], calls: int
) -> None:
    """HBase knows no numbers of the call, and deletes whatever has the name when it comes."""
    with FakeHBase(deletions(*answers, looks=looks)) as fake:
        client = client_of(fake, options="retry_s=0")
        Admin(client.calls).delete_snapshot("kept")
        assert fake.methods.count("DeleteSnapshot") == calls
        client.close()


@pytest.mark.parametrize(
    "script",
    [
        deletions(LOST, ABSENT, looks=[there(("other", 5))]),
        deletions(ABSENT, looks=[there(("kept", 5))]),
    ],
)
def test_a_snapshot_that_is_not_there_is_not_deleted(script: Callable[[Call], Reply]) -> None:
    """It was never there, where a lost answer hid that; or another has deleted it just now."""
    with FakeHBase(script) as fake:
        client = client_of(fake, options="retry_s=0")
        with pytest.raises(UsageError, match="name one that is there"):
            Admin(client.calls).delete_snapshot("kept")
        client.close()


def test_a_deletion_that_is_never_answered_is_told() -> None:
    """It may be made yet."""
    script = deletions(*[LOST] * 3, looks=[there(("kept", 5))] * 3)
    with FakeHBase(script) as fake:
        client = client_of(fake, options="retry_s=0")
        with pytest.raises(StorageUnavailable, match="whether it was applied is not known"):
            Admin(client.calls).delete_snapshot("kept")
        assert fake.methods.count("DeleteSnapshot") == 3
        client.close()


@pytest.mark.parametrize(
    ("name", "kind", "remedy"),
    [
        ("snapshot.SnapshotExistsException", UsageError, "choose another name"),
        ("snapshot.SnapshotDoesNotExistException", UsageError, "name one that is there"),
        ("snapshot.CorruptedSnapshotException", StorageUnavailable, "see the logs"),
    ],
)
def test_what_hbase_refuses_is_told(name: str, kind: type[Exception], remedy: str) -> None:
    """With the remedy."""
    with FakeHBase(lambda _: fault(name)) as fake:
        client = client_of(fake, options="retry_s=0")
        with pytest.raises(kind, match=remedy):
            Admin(client.calls).delete_snapshot("kept")
        client.close()
