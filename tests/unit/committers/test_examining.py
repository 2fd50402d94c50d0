"""Stores without conditions on tags, and destinations that other tools keep: what is said of them.

A store may refuse `If-Match` (501), which a job notices, or take no notice of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Literal

import pytest
import typer

from omidpy.cli.files import doctor as committers_doctor
from omidpy.committers.contents import examining
from omidpy.committers.contents.examining import Conditions
from omidpy.committers.heads import listing, looking
from omidpy.committers.objects.store import ObjectStore
from omidpy.errors import CommitterError
from tests.machines.s3.pairs import (
    APPEND,
    DYNAMIC,
    OPERATORS,
    OUT,
    PARTITIONS,
    REPLACE,
    Kind,
    World,
)

LACKS = ("refused", "ignored")


# -- a store without If-Match ----------------------------------------------------------------------


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("kind", [APPEND, REPLACE, PARTITIONS, DYNAMIC], ids=lambda kind: kind.name)
@pytest.mark.parametrize("dies_at", [0, 1, 3, 99])
def test_jobs_are_ended_on_a_store_without_if_match(
    kind: Kind, operator: Kind, dies_at: int, lack: Any
) -> None:
    """No plan could be rolled back there, and none resumed that had to list anew what it replaces.

    One acts after the other, which is what is promised there.
    """
    world = World(has_old=True)
    world.objects.if_match = lack
    world._die(kind, dies_at)
    store, other = world.objects.store(), world.objects.store()
    assert world.act(other, APPEND, "b")
    assert world.act(store, operator, "")
    model = world.model.after(APPEND, "b")[1].after(operator, "")[1]
    assert world.visible() == model.state
    assert world.plans() == []


def test_who_ends_a_job_on_a_store_that_refuses_if_match_is_told_what_is_not_promised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Once, and not for every request; the tag is compared all the same."""
    world = World(has_old=True)
    world.objects.if_match = "refused"
    store = world.objects.store()
    for who in "ab":
        assert world.act(store, APPEND, who)
    (said,) = [one for one in caplog.records if "If-Match" in one.getMessage()]
    assert "may be lost; let one run at a time" in said.getMessage()
    assert not store.has_swaps("lake")
    _, etag = store.get("lake", OUT.key("_SUCCESS"))
    store.put("lake", OUT.key("_SUCCESS"), b"another")
    with pytest.raises(CommitterError, match="it is another now"):
        store.put("lake", OUT.key("_SUCCESS"), b"mine", expected_etag=etag)
    with pytest.raises(CommitterError, match="it is gone"):
        store.put("lake", OUT.key("nowhere"), b"mine", expected_etag=etag)


# -- doctor ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["kept", "refused", "ignored"])
def test_what_a_store_makes_of_conditions_is_found_by_trying(
    what: Literal["kept", "refused", "ignored"],
) -> None:
    """And nothing is left."""
    world = World(has_old=False)
    world.objects.if_match = what
    assert examining.try_conditions(world.objects.store(), OUT) == Conditions("kept", what)
    assert not world.objects.objects


def test_a_store_that_writes_over_what_is_there_is_found() -> None:
    """Jobs of one id could not be told from each other."""
    world = World(has_old=False)
    store = world.objects.store()
    put = store.client.put_object
    store.client.put_object = lambda **words: put(**{**words, "IfNoneMatch": ""})
    assert examining.try_conditions(store, OUT).creates == "ignored"
    assert not world.objects.objects


def _nothing(_: ObjectStore) -> None:
    return


def _no_head(store: ObjectStore) -> None:
    store.put("lake", OUT.key("_omidpy/head.json"), b'{"owner": "another tool"}')


def _others(store: ObjectStore) -> None:
    store.put("lake", OUT.key("p=1/theirs.parquet"), b"x")


def _delta(store: ObjectStore) -> None:
    store.put("lake", OUT.key("_delta_log/00000000000000000000.json"), b'{"commitInfo":{}}')


def _own_delta(store: ObjectStore) -> None:
    store.put(
        "lake",
        OUT.key("_delta_log/00000000000000000000.json"),
        b'{"txn":{"appId":"omidpy-job_00001-1"}}',
    )


def _hudi(store: ObjectStore) -> None:
    store.put("lake", OUT.key(".hoodie/hoodie.properties"), b"x")


def _iceberg(store: ObjectStore) -> None:
    store.put("lake", OUT.key("metadata/00000-1.metadata.json"), b"x")


@pytest.mark.parametrize(
    ("make", "verdict", "said"),
    [
        (_nothing, "ok", "1 jobs were committed"),
        (_no_head, "failed", "is no head of a destination"),
        (_others, "warning", "1 files that no job of omidpy has committed, out/p=1/theirs"),
        (_delta, "warning", "a Delta log is here, which no job of omidpy keeps"),
        (_own_delta, "ok", "1 jobs were committed"),
        (_hudi, "warning", "a Hudi timeline is here"),
        (_iceberg, "warning", "an Iceberg table's metadata is here"),
    ],
)
def test_who_else_keeps_a_destination_is_said(
    capsys: pytest.CaptureFixture[str],
    make: Callable[[ObjectStore], None],
    verdict: str,
    said: str,
) -> None:
    """And nothing is changed."""
    world = World(has_old=True)
    store = world.objects.store()
    make(store)
    before = dict(world.objects.objects)
    try:
        committers_doctor.examine(store, OUT, as_json=True)
        is_whole = True
    except typer.Exit as ended:
        is_whole = ended.exit_code == 0
    document = json.loads(capsys.readouterr().out)
    assert is_whole == document["ok"] == (verdict != "failed")
    worst = [one for one in document["checks"] if one["verdict"] == verdict]
    assert any(said in one["detail"] for one in worst), document
    if verdict == "ok":
        assert {one["verdict"] for one in document["checks"]} == {"ok"}
    assert world.objects.objects == before


@pytest.mark.parametrize("is_damaged", [False, True], ids=["replaced", "damaged"])
def test_a_list_that_a_commit_has_just_removed_is_no_damage(
    monkeypatch: pytest.MonkeyPatch,
    is_damaged: bool,  # noqa: FBT001 - a case
) -> None:
    """The head that named it was read before that commit: it is looked at again."""
    monkeypatch.setattr(listing, "INLINE_BYTES", 1)
    world = World(has_old=True)
    store = world.objects.store()
    files_of, waiting = listing.files_of, [True]

    def and_then(*what: Any) -> Any:
        if waiting:
            waiting.pop()
            if is_damaged:
                for one in looking.read(store, OUT).head.lists:
                    store.delete("lake", listing.list_key(OUT, one))
            else:
                assert world.act(world.objects.store(), REPLACE, "b")
        return files_of(*what)

    assert world.act(store, APPEND, "a")
    assert looking.read(store, OUT).head.lists
    epoch = looking.read(store, OUT).head.epoch
    monkeypatch.setattr(listing, "files_of", and_then)
    place = examining.look(store, OUT)
    assert ("the head names this list" in place.problem) == is_damaged
    assert place.epoch == (0 if is_damaged else epoch + 1)
    assert place.others == ()


@pytest.mark.parametrize("lack", LACKS)
def test_a_store_without_if_match_is_said_to_lack_it(
    capsys: pytest.CaptureFixture[str], lack: Any
) -> None:
    """With what is not promised, and what to do."""
    world = World(has_old=True, dead=REPLACE, dies_at=2)
    world.objects.if_match = lack
    committers_doctor.examine(world.objects.store(), OUT, as_json=False)
    said = capsys.readouterr().out
    assert "warning  writes over what was read: the store" in said
    assert "let one run at a time" in said
    assert "1 jobs have begun to commit and not ended" in said


# -- the job ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"), [(_delta, "a Delta log"), (_iceberg, "Iceberg"), (_nothing, "")]
)
def test_a_job_that_replaces_files_that_another_tool_names_says_so(
    caplog: pytest.LogCaptureFixture, make: Callable[[ObjectStore], None], said: str
) -> None:
    """It removed them and said nothing; who only reads is not told."""
    world = World(has_old=True)
    store = world.objects.store()
    make(store)
    world.look()
    with caplog.at_level(logging.WARNING):
        assert world.act(store, REPLACE, "a")
    found = [one.getMessage() for one in caplog.records if "who reads by it" in one.getMessage()]
    assert [said in one for one in found] == ([True] if said else [])
    assert looking.read(store, OUT).head.epoch == 2
