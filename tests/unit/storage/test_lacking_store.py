"""A store that lacks what an oracle or a compaction needs is refused when it is opened for them."""

from __future__ import annotations

import json

import pytest

import omidpy
from compactor.shell import command
from omidpy import opening
from omidpy.cli import common, main
from omidpy.errors import ConfigError
from omidpy.facts.commit_table import COMMIT_TABLE, CommitTable, create_system_tables
from omidpy.model import Timestamp
from omidpy.storage.memory import MemoryStore
from tests.machines.like_thrift1 import LikeThrift1
from tests.machines.naive_oracle import NaiveOracle
from tso.embedded import EmbeddedOracle


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """Return a store that is set up, and whose poorer view every address opens."""
    store = MemoryStore()
    create_system_tables(store)

    def open_poorer(url: str, *, must_exist: bool = False) -> LikeThrift1:
        del url, must_exist
        return LikeThrift1(store)

    # Imported above: a module that is first imported in here would keep what stands here for good.
    for user in (opening, command):
        monkeypatch.setattr(user, "open_store", open_poorer)
    return store


def test_an_oracle_does_not_start_where_changes_cannot_be_checked(shared: MemoryStore) -> None:
    """Its lease and its ceiling are compare-and-set; a weaker one would let two oracles decide."""
    with pytest.raises(ConfigError, match="thrift2"):
        create_system_tables(LikeThrift1(shared))
    with pytest.raises(ConfigError, match="tso="):
        EmbeddedOracle(LikeThrift1(shared))
    with pytest.raises(ConfigError, match="tso="):
        omidpy.connect("sqlite:///unused.db")


def test_small_timestamps_are_refused_where_the_store_sets_versions(
    shared: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell at the store's clock, in ms, would lie above those of transactions and hide them."""
    oracle = NaiveOracle(shared)
    monkeypatch.setattr("omidpy.opening.open_oracle", lambda *_, **__: oracle)
    with pytest.raises(ConfigError, match="world time"):
        omidpy.connect("sqlite:///unused.db", tso="127.0.0.1:1")


def test_world_time_is_accepted_where_the_store_sets_versions(
    shared: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default of tso-server."""
    oracle = EmbeddedOracle(shared)
    monkeypatch.setattr("omidpy.opening.open_oracle", lambda *_, **__: oracle)
    with omidpy.connect("sqlite:///unused.db", tso="127.0.0.1:1") as tm:
        tm.create_table("t", ["f"])
        with tm.begin() as tx:
            tx.table("t").put(b"r", {b"f:q": b"v"})
        assert tm.begin().table("t").row(b"r") == {b"f:q": b"v"}


def test_a_compaction_is_refused_where_single_versions_cannot_be_deleted(
    shared: MemoryStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what the gateway lacks and which one to use."""
    del shared
    with pytest.raises(SystemExit) as ended:
        main(["compact", "--store", "sqlite:///unused.db"])
    assert ended.value.code == 2
    assert "Thrift2" in capsys.readouterr().err


def test_a_false_invalidation_is_undone_without_a_check(shared: MemoryStore) -> None:
    """A shadow cell proves it false for all time, so that nothing can be lost by removing it."""
    start_ts = Timestamp(2 * 10**18)
    table = CommitTable(LikeThrift1(shared), COMMIT_TABLE)
    assert table.invalidate(start_ts)
    assert table.undo_invalidation(start_ts)
    assert table.read([start_ts]) == {start_ts: None}
    assert table.undo_invalidation(start_ts)


def test_status_names_what_a_store_lacks(
    shared: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever wonders why cells of rolled-back transactions stay looks there."""
    monkeypatch.setattr(common, "open_store", lambda *_a, **_k: LikeThrift1(shared))
    with pytest.raises(SystemExit) as ended:
        main(["status", "--store", "sqlite:///unused.db", "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert found["lacks"] == ["exact_delete", "multi_version_scan", "checked_changes"]
