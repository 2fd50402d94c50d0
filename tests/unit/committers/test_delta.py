"""Jobs that end in a commit of a Delta log: in order, once, and whole, whoever dies where.

The log lies in a local folder, and the files on moto; both in one store, with readers, are in
`tests/integration/test_committers_delta.py`.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omidpy import committers
from omidpy.base.installation import install_hint
from omidpy.committers.heads import delta, looking
from omidpy.committers.heads import plan as plans
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.publishing import ending
from omidpy.errors import CommitterError, ConfigError, UsageError
from tests.machines.s3.crashing import Death, Died
from tests.machines.s3.jobs import OUT, before_put, resume, store_of, take_back

deltalake = pytest.importorskip("deltalake", reason="needs the extra `delta`")


@pytest.fixture
def store(moto_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Give what somebody outside sees; the log is local."""
    del moto_bucket
    monkeypatch.setattr(delta, "_where", lambda *_: (str(tmp_path / "table"), {}))
    (tmp_path / "table").mkdir()
    return ObjectStore()


def begun(*rows: tuple[int, str], **options: Any) -> committers.Job:
    """Begin a job that has written some rows, each with its partition."""
    options = {"threads": 1, "table_format": "delta", "partition_by": ["p"], **options}
    job = committers.job(OUT.url, **options).__enter__()
    job.task(pa.table({"v": [v for v, _ in rows], "p": [p for _, p in rows]}))
    return job


def run(*rows: tuple[int, str], **options: Any) -> committers.Job:
    """Run a job."""
    job = begun(*rows, **options)
    job.commit()
    return job


def table() -> Any:
    """Return the newest version of the table."""
    return deltalake.DeltaTable(delta._where(None, None)[0])  # type: ignore[arg-type]  # a test's


def logged(*jobs: committers.Job) -> list[str]:
    """Return the partitions of the newest version, each with the number of the job it is of."""
    names = {job.id: str(number) for number, job in enumerate(jobs)}
    return sorted(
        f"{path.partition('/')[0]} of {next(names[one] for one in names if one in path)}"
        for path in delta._Log(table()).paths()
    )


def test_a_job_is_one_version_of_the_log(store: ObjectStore) -> None:
    """With its rows counted, its partitions, and the run that readers of the log know it by."""
    job = run((1, "a"), (2, "b"), (3, "a"))
    found = pa.table(table().get_add_actions())
    counts = dict(zip(found["path"].to_pylist(), found["num_records"].to_pylist(), strict=True))
    assert {path[:3]: rows for path, rows in counts.items()} == {"p=a": 2, "p=b": 1}
    assert [one.name for one in table().schema().fields] == ["v", "p"]
    assert table().metadata().partition_columns == ["p"]
    assert table().version() == 0
    assert store.head("lake", OUT.plan_key(job.id)) is None
    run((4, "c"))
    assert table().version() == 1


def test_what_is_replaced_goes_from_the_log_and_stays_in_the_store(store: ObjectStore) -> None:
    """Readers of older versions have it."""
    jobs = [run((1, "a"), (2, "b")), run((3, "a:/ é"), (4, "b"))]
    jobs.append(run((5, "b"), (6, "a:/ é"), conflict="replace", scope="partitions"))
    assert logged(*jobs) == ["p=a of 0", "p=a%3A%2F é of 2", "p=b of 2"]
    jobs.append(run((7, "z"), conflict="replace"))
    assert logged(*jobs) == ["p=z of 3"]
    assert len([one for one in store.objects(OUT) if one.key.endswith(".parquet")]) == 7
    assert len(committers.published(OUT.url)) == 1


def test_a_driver_that_dies_anywhere_is_in_the_log_once(store: ObjectStore) -> None:
    """Whole once its plan was resumed, and not at all where it was taken back."""
    first = run((0, "a"))
    deaths = 0
    for at in itertools.count():
        before = table().version()
        job = begun((1, "a"), (2, "b"))
        Death(at, is_answered=at % 2 == 0).watch(store_of(job))
        try:
            job.commit()
        except Died:
            deaths += 1
        else:
            break
        if store.head("lake", OUT.plan_key(job.id)) is None:
            continue
        if is_committed := looking.read(store, OUT).head.is_committed(job.id):
            resume(store, job)
        else:
            take_back(store, job)
        is_logged = any(job.id in path for path in delta._Log(table()).paths())
        assert (is_logged, table().version() - before) == (is_committed, int(is_committed))
    assert deaths > 6
    assert any(first.id in path for path in delta._Log(table()).paths())


def test_an_answer_lost_to_ones_own_version_is_a_commit(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is found in the log (T1)."""
    del store
    run((0, "a"))
    commit = delta._commit
    lost = [1]

    def lose(*arguments: Any) -> bool:
        made = commit(*arguments)
        return made and not (lost and lost.pop())

    monkeypatch.setattr(delta, "_commit", lose)
    run((1, "a"))
    assert (table().version(), lost) == (1, [])


def test_whoever_comes_later_commits_those_before(store: ObjectStore) -> None:
    """Two died once they were decided, one of which replaces; the order is the head's (T2)."""
    jobs = [run((0, "a"))]
    for options in ({}, {"conflict": "replace"}):
        job = begun((1, "a"), **options)
        before_put(job, "_SUCCESS", _die)
        with pytest.raises(Died):
            job.commit()
        jobs.append(job)
    assert logged(*jobs) == ["p=a of 0"]
    jobs.append(run((2, "b")))
    assert logged(*jobs) == ["p=a of 2", "p=b of 3"]
    version = table().version()
    for job in jobs[1:3]:
        resume(store, job)
    assert logged(*jobs) == ["p=a of 2", "p=b of 3"]
    assert table().version() == version


def _die() -> None:
    raise Died


def test_who_comes_between_a_look_and_a_version_is_not_lost(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is written behind the one that was looked at, or not at all (T3)."""
    del store
    jobs = [run((0, "a"))]
    job = begun((1, "a"), conflict="replace")
    commit, left = delta._commit, [1]

    def after_another(*arguments: Any) -> bool:
        if left:
            left.clear()
            jobs.append(run((2, "b")))
        return commit(*arguments)

    monkeypatch.setattr(delta, "_commit", after_another)
    job.commit()
    # It was decided first, so that what came between is behind it.
    assert logged(*jobs, job) == ["p=a of 2", "p=b of 1"]


def test_what_another_writer_adds_behind_the_decision_stays(store: ObjectStore) -> None:
    """Weeks may pass until a dead driver's plan is resumed."""
    jobs = [run((0, "a"))]
    theirs("p=a/theirs-before.parquet")
    job = begun((1, "a"), conflict="replace")
    before_put(job, "_SUCCESS", _die)
    with pytest.raises(Died):
        job.commit()
    theirs("p=a/theirs-behind.parquet")
    resume(store, job)
    paths = delta._Log(table()).paths()
    assert "p=a/theirs-behind.parquet" in paths
    assert len(paths) == 2
    assert not any(jobs[0].id in path for path in paths)


def theirs(path: str) -> None:
    """Add a file as another writer of Delta."""
    one = table()
    added = deltalake.transaction.AddAction(path, 1, {"p": "a"}, 1, True, "{}")
    one.create_write_transaction([added], "append", one.schema(), ["p"])


def test_columns_are_added_and_others_types_are_refused(store: ObjectStore) -> None:
    """Before anything of the job is visible."""
    run((1, "a"))
    job = committers.job(OUT.url, table_format="delta", partition_by=["p"]).__enter__()
    job.task(pa.table({"v": [1], "w": ["x"], "p": ["a"]}))
    job.commit()
    assert [one.name for one in table().schema().fields] == ["v", "p", "w"]
    for columns, message in (
        ({"v": ["text"], "p": ["a"]}, "the column 'v' of .* is of type"),
        ({"v": [1], "q": ["a"], "p": [pa.scalar(1)]}, "the column 'p' of .* is of type"),
    ):
        job = committers.job(OUT.url, table_format="delta", partition_by=["p"]).__enter__()
        job.task(pa.table({name: pa.array(values) for name, values in columns.items()}))
        with pytest.raises(CommitterError, match=message):
            job.commit()
    job = committers.job(OUT.url, table_format="delta").__enter__()
    job.task(pa.table({"v": [1], "p": ["a"]}))
    with pytest.raises(CommitterError, match=r"is partitioned by \['p'\], and this job by \[\]"):
        job.commit()
    assert table().version() == 2
    assert looking.planned_jobs(store, OUT) == []


def test_what_is_no_table_is_refused(store: ObjectStore) -> None:
    """A file of another kind, two kinds of partitions, and a job that wrote nothing."""
    job = begun((1, "a"))
    with job.task() as task, task.open("p=a/notes.txt") as file:
        file.write(b"x")
    with pytest.raises(CommitterError, match=r"notes.* is no Parquet file"):
        job.commit()
    job = begun((1, "a"))
    job.task(pa.table({"v": [1], "q": ["a"]}), partition_by=["q"])
    with pytest.raises(CommitterError, match="files of one job are partitioned by"):
        job.commit()
    with pytest.raises(CommitterError, match="has no columns"):
        committers.job(OUT.url, table_format="delta").__enter__().commit()
    with pytest.raises(UsageError, match="table_format='iceberg' must be one of delta"):
        committers.job(OUT.url, table_format="iceberg")
    assert looking.planned_jobs(store, OUT) == []


def test_a_log_that_cannot_be_written_leaves_the_plan(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is decided: whoever resumes it brings it into the log."""
    run((0, "a"))
    job = begun((1, "a"))
    with monkeypatch.context() as patch:
        patch.setattr(delta, "_commit", lambda *_: False)
        patch.setattr(delta, "TRIES", 2)
        with pytest.raises(CommitterError, match="readers of its table do not see it") as raised:
            job.commit()
    assert raised.value.plan
    found, _ = ending.load(store, raised.value.plan, "lake", OUT.plan_key(job.id))
    assert found == plans.decode(plans.encode(found), found.address)
    resume(store, job)
    assert table().version() == 1


def test_without_the_extra_its_name_is_said(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything of the job is visible."""
    monkeypatch.setitem(__import__("sys").modules, "deltalake", None)
    job = begun((1, "a"))
    with pytest.raises(ConfigError, match=re.escape(install_hint("delta"))):
        job.commit()
    assert looking.planned_jobs(store, OUT) == []


def test_a_version_behind_another_than_was_looked_at_is_not_written(store: ObjectStore) -> None:
    """Whatever came between, its writer looks again before it says what it replaces (T3)."""
    run((0, "a"))
    job = begun((1, "a"))
    before_put(job, "_SUCCESS", _die)
    with pytest.raises(Died):
        job.commit()
    seen = delta._read(store, OUT)
    theirs("p=a/theirs.parquet")
    key = OUT.plan_key(job.id)
    plan, _ = ending.load(store, f"s3://lake/{key}", "lake", key)
    assert not delta._commit(deltalake, store, plan, seen)
    assert delta._commit(deltalake, store, plan, delta._read(store, OUT))
