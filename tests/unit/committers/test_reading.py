"""What `omidpy.committers.published` reads while others publish, and what the head keeps for it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from omidpy import committers
from omidpy.cli import main
from omidpy.committers.heads import changes, listing, looking
from omidpy.committers.heads import head as heads
from omidpy.committers.heads.changes import Change, ListedFile
from omidpy.committers.heads.head import Head, head_key
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder
from omidpy.errors import CommitterError, UsageError
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.jobs import OUT, before_put, begun, resume, run, store_of, take_back


@pytest.fixture
def store(moto_bucket: str) -> ObjectStore:
    """Give what somebody outside sees."""
    del moto_bucket
    return ObjectStore()


def names() -> list[str]:
    """Return the names of files that are published, without the ids of jobs."""
    found = committers.published("s3://lake/out")
    return sorted(one.path.partition("-")[0] for one in found)


def lists(store: ObjectStore) -> list[str]:
    """Return the keys of lists, which a head names or not."""
    return [one.key for one in store.objects(Folder("lake", "out/_omidpy/lists/"))]


def test_files_are_those_of_committed_jobs(store: ObjectStore) -> None:
    """Each with its address, bytes and tag, so that whoever reads knows what it must find."""
    del store
    assert names() == []
    first = run("a", content=b"first")
    run("p=1/b", "p=2/b")
    found = committers.published("s3://lake/out/", threads=2)
    assert (found.epoch, len(found), found.size_bytes) == (2, 3, 7)
    assert found.urls[0] == f"s3://lake/out/a-{first.id}"
    assert found.read(found.files[0]) == b"first"
    assert names() == ["a", "p=1/b", "p=2/b"]


def test_a_reader_never_sees_a_part_of_a_job(store: ObjectStore) -> None:
    """Asked before each request of a job that replaces: all old files, or all new ones."""
    run("old", "older")
    job = begun("a", "b", "c", conflict="replace", inline_bytes=0)
    seen: list[list[str]] = []
    store_of(job).before_request = lambda _: seen.append(names())
    job.commit()
    kept = [found for found, _ in itertools.groupby(seen)]
    assert kept == [["old", "older"], ["a", "b", "c"]]
    assert len(seen) > 8
    del store


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("conflict", ["append", "replace"])
def test_a_driver_that_dies_anywhere_shows_all_or_nothing(
    store: ObjectStore, conflict: str, every: int
) -> None:
    """And whoever ends its plan changes nothing that was decided."""
    count = 0
    for at in itertools.count(0, every):
        for one in list(store.objects(OUT)):
            store.delete("lake", one.key)
        run("old")
        job = begun("a", "b", conflict=conflict)
        Death(at, is_answered=at % 2 == 0).watch(store_of(job))
        try:
            job.commit()
        except Died:
            count += 1
        else:
            break
        after = ["a", "b"] if conflict == "replace" else ["a", "b", "old"]
        is_committed = looking.read(store, OUT).head.is_committed(job.id)
        assert names() == (after if is_committed else ["old"])
        if any(one.key == OUT.plan_key(job.id) for one in store.objects(OUT)):
            (resume if is_committed or count % 3 else take_back)(store, job)
        is_committed = looking.read(store, OUT).head.is_committed(job.id)
        assert names() == (after if is_committed else ["old"])
    assert count * every > 6


def test_what_replaces_partitions_leaves_the_others(store: ObjectStore) -> None:
    """Also folders below them, and no folder whose name begins alike."""
    del store
    run("p=1/a", "p=1/q=2/a", "p=10/a", "top")
    run("p=1/b", conflict="replace", scope="partitions")
    assert names() == ["p=1/b", "p=10/a", "top"]
    run("new", conflict="replace")
    assert names() == ["new"]


def test_what_was_removed_by_hand_is_no_part_of_a_job_that_found_nothing(
    store: ObjectStore,
) -> None:
    """A destination that somebody emptied begins anew, whatever its head had listed."""
    job = run("a")
    store.delete_many("lake", [f"out/a-{job.id}", "out/_SUCCESS"])
    found = committers.published("s3://lake/out")
    with pytest.raises(CommitterError, match="is gone: a job has replaced it since commit 1"):
        found.read(found.files[0])
    run("b", conflict="fail")
    assert names() == ["b"]


def test_other_bytes_under_a_name_are_not_read_as_published(store: ObjectStore) -> None:
    """Equal length is not equal content."""
    job = run("a", content=b"ours")
    store.put("lake", f"out/a-{job.id}", b"evil")
    found = committers.published("s3://lake/out")
    with pytest.raises(CommitterError, match="other bytes than were published"):
        found.read(found.files[0])


# -- other tools -----------------------------------------------------------------------------------


def test_files_of_other_tools_are_said_to_be_no_part(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a head nobody knows which files belong together, and an empty list would be a lie."""
    store.put("lake", "out/theirs.parquet", b"x")
    with pytest.raises(CommitterError, match=r"has no head, and 1 files, out/theirs\.parquet"):
        names()
    job = run("a")
    assert names() == ["a"]
    with pytest.raises(SystemExit) as ended:
        main(["committers", "published", "s3://lake/out"])
    said = capsys.readouterr()
    assert ended.value.code in {0, None}
    assert f"s3://lake/out/a-{job.id}" in said.out
    assert "1 files are not part of it, out/theirs.parquet for one" in said.err
    with pytest.raises(SystemExit):
        main(["committers", "published", "s3://lake/out", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [one["path"] for one in document["files"]] == [f"a-{job.id}"]
    assert (document["epoch"], document["others"]) == (1, ["out/theirs.parquet"])


def test_files_of_a_job_that_is_not_decided_are_nobodys(
    store: ObjectStore, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is the first of its destination: there is no head, and nothing is published."""
    del store
    job = begun("a", "b")
    before_put(job, "head.json", lambda: main_shows(capsys, {"files": [], "others": []}))
    job.commit()
    job = begun("c", conflict="replace")
    before_put(job, "_SUCCESS", lambda: main_shows(capsys, {"others": []}))
    job.commit()
    assert names() == ["c"]


def main_shows(capsys: pytest.CaptureFixture[str], wanted: dict[str, Any]) -> None:
    """Ask the command, and compare what it says."""
    with pytest.raises(SystemExit):
        main(["committers", "published", "show", "s3://lake/out", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {key: found[key] for key in wanted} == wanted


def test_a_head_of_before_files_were_listed_says_so(store: ObjectStore) -> None:
    """Its files are there, and nobody has listed them; a job that replaces lists all."""
    run("a")
    document = json.loads(store.get("lake", head_key(OUT))[0])
    kept = {key: document[key] for key in ("format", "write", "epoch", "forgotten_ms", "entries")}
    store.put("lake", head_key(OUT), json.dumps({**kept, "version": 1}).encode())
    run("b")
    with pytest.raises(CommitterError, match="which files commits up to 1 have left"):
        names()
    run("c", conflict="replace")
    assert names() == ["c"]


def test_addresses_and_options_that_are_wrong_are_named(store: ObjectStore) -> None:
    """A folder of a file system has no head."""
    del store
    with pytest.raises(UsageError, match="is no address of S3"):
        committers.published("/tmp/out")
    with pytest.raises(UsageError, match="'scope' is none of"):
        committers.published("s3://lake/out", scope="folder")


# -- how long a head is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "inline_bytes"), [(15, 1000), pytest.param(40, 2000, marks=pytest.mark.nightly)]
)
def test_a_head_stays_short_and_lists_few(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, jobs: int, inline_bytes: int
) -> None:
    """Jobs of ten files: what no longer fits is listed elsewhere, and lists become one."""
    monkeypatch.setattr(listing, "INLINE_BYTES", inline_bytes)
    most = 0
    for job in range(jobs):
        run(*(f"f{job:02}x{at}" for at in range(10)))
        head = looking.read(store, OUT).head
        most = max(most, len(head.lists))
        assert len(heads.encode(replace(head, entries=()))) < inline_bytes + 600
        assert len(lists(store)) == len(head.lists)
    assert 1 < most < 7
    assert len(names()) == jobs * 10


@pytest.mark.parametrize("inline_bytes", [0, 300, 10**6])
def test_where_files_are_listed_changes_nothing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, inline_bytes: int
) -> None:
    """Jobs that append, and replace everything or partitions, in one order and three lengths."""
    monkeypatch.setattr(listing, "INLINE_BYTES", inline_bytes)
    del store
    run("p=1/a", "p=2/a", "p=3/a")
    run("p=1/b", "top")
    run("p=1/c", "p=4/c", conflict="replace", scope="partitions")
    assert names() == ["p=1/c", "p=2/a", "p=3/a", "p=4/c", "top"]
    run("p=3/d", conflict="replace", scope="partitions")
    run("p=5/e")
    assert names() == ["p=1/c", "p=2/a", "p=3/d", "p=4/c", "p=5/e", "top"]
    run("f", conflict="replace")
    run("p=1/g")
    assert names() == ["f", "p=1/g"]


def test_lists_that_nobody_names_go(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a driver that died behind its list, and of what was replaced."""
    monkeypatch.setattr(listing, "INLINE_BYTES", 0)
    run("a")
    job = begun("b")
    before_put(job, "head.json", _die)
    with pytest.raises(Died):
        job.commit()
    assert len(lists(store)) == 2
    run("c")
    assert len(lists(store)) == len(looking.read(store, OUT).head.lists)
    run("d", conflict="replace")
    assert len(lists(store)) == 1
    assert names() == ["d"]


def _die() -> None:
    raise Died


@pytest.mark.parametrize("options", [{}, {"conflict": "replace"}])
def test_a_list_is_there_that_the_next_head_names(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """One job stops with its list written, and others fill the head and sweep meanwhile (C13)."""
    monkeypatch.setattr(listing, "INLINE_BYTES", 0)
    run("a")
    job = begun("b", **options)
    before_put(job, "head.json", lambda: [run("c"), run("d")])
    job.commit()
    assert names() == (["b"] if options else ["a", "b", "c", "d"])
    assert len(lists(store)) == len(looking.read(store, OUT).head.lists)


def test_who_reads_while_lists_become_one_looks_again(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of the head that was read is gone; the newest head names another."""
    monkeypatch.setattr(listing, "INLINE_BYTES", 0)
    run("a")
    once: list[Callable[[], object]] = [lambda: run("b")]
    after_head(monkeypatch, once)
    assert names() == ["a", "b"]
    assert once == []
    for key in lists(store):
        store.delete("lake", key)
    with pytest.raises(CommitterError, match="names this list, and somebody has removed it"):
        names()
    run("c")
    run("d", conflict="replace")
    assert names() == ["d"]


def after_head(monkeypatch: pytest.MonkeyPatch, once: list[Callable[[], object]]) -> None:
    """Let others act once, when a head was read."""
    read = looking.read

    def and_then(store: ObjectStore, folder: Folder) -> looking.Seen:
        found = read(store, folder)
        while once:
            once.pop()()
        return found

    monkeypatch.setattr(looking, "read", and_then)


def test_a_list_of_a_newer_version_is_named(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And so is one that is none."""
    monkeypatch.setattr(listing, "INLINE_BYTES", 0)
    run("a")
    (key,) = lists(store)
    data = store.get("lake", key)[0]
    store.put("lake", key, data.replace(b'"version":1', b'"version":2'))
    with pytest.raises(CommitterError, match="of version 2, and this omidpy knows"):
        names()
    store.put("lake", key, b"[" * 100_000)
    with pytest.raises(CommitterError, match="cannot be read as a list"):
        names()


def test_what_is_decided_elsewhere_is_not_listed_here(store: ObjectStore) -> None:
    """A job that is rolled back leaves the list alone."""
    run("a")
    job = begun("b")
    before_put(job, "head.json", lambda: take_back(store, job))
    with pytest.raises(CommitterError, match="rolled back"):
        job.commit()
    assert names() == ["a"]


def test_requests_for_a_list_are_few(store: ObjectStore) -> None:
    """One read; a job has none more than before."""
    job = run("a", "b")
    assert store_of(job).request_count == 2 + 5
    found = committers.published("s3://lake/out")
    assert found.store.request_count == 1
    del store


# -- changes ---------------------------------------------------------------------------------------


def test_changes_that_follow_each_other_are_one() -> None:
    """In whichever pairs they are taken together."""
    steps = [
        Change((), (ListedFile("a=1/x", 1), ListedFile("b", 1))),
        Change(("a=1/",), (ListedFile("a=1/y", 1),)),
        Change((), (ListedFile("b", 2), ListedFile("a=1/z/w", 3))),
        Change(("a=1/z/",), ()),
    ]
    left = steps[0]
    for one in steps[1:]:
        left = changes.then(left, one)
    right = steps[-1]
    for one in reversed(steps[:-1]):
        right = changes.then(one, right)
    assert sorted(one.path for one in left.files) == ["a=1/y", "b"]
    assert sorted(left.files, key=str) == sorted(right.files, key=str)
    assert set(left.drops) == set(right.drops) == {"a=1/", "a=1/z/"}


def test_a_head_without_lists_has_nothing_to_drop(store: ObjectStore) -> None:
    """Else the names of partitions that were replaced would stay for ever."""
    run("p=1/a")
    run("p=1/b", conflict="replace", scope="partitions")
    assert looking.read(store, OUT).head.recent.drops == ()
    assert Head().recent == Change()
