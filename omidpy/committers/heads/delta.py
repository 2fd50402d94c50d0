"""The last step of a job whose destination is a Delta table: one commit of its log.

    omidpy.committers.job("s3://lake/flights", table_format="delta")

Readers of Delta (Spark, DuckDB, Trino, pandas) see what the log says, and so the whole job or
nothing of it.  The job is decided before, in its destination's head, and its plan stays until the
log has it; so a process that resumes the plan of a dead driver ends this step, too.

    T1 (logged-once)    the commit names the run of the job as a transaction of an application, and
                        who finds that in the log adds nothing
    T2 (in-order)       jobs are in the log in the order of the head: who commits looks first for
                        jobs before it that have a plan and are not in the log, and commits those
    T3 (as-seen)        a commit is of exactly the version that was looked at, or is refused, and
                        its writer looks again

What a job replaces is removed from the log, and not from the store: readers of older versions have
the files until `VACUUM`.  It is what was in the log when the job was decided, and what jobs before
it have added since; what other writers of Delta add behind that decision stays.

Lacks how a log is written: that is `deltalake`'s.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from omidpy.base.installation import install_hint
from omidpy.committers.heads import looking
from omidpy.committers.heads import plan as plans
from omidpy.committers.heads.head import Head, Replaces
from omidpy.committers.heads.plan import OldFile, Plan
from omidpy.committers.objects.answers import Gone
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import NULL_PARTITION, Folder, folder_of, is_hidden, owner
from omidpy.committers.values import PendingFile, TaskMessage
from omidpy.errors import CommitterError, ConfigError

FORMAT: Final = "delta"
TRIES: Final = 100
"""How often a log is looked at again that others write; each time one of them has got on."""


@dataclass(frozen=True, slots=True)
class _Log:
    """A log as it was read."""

    table: Any
    """A `DeltaTable`; None where there is none yet."""

    def has(self, plan: Plan) -> bool:
        """Say whether a run of a job is in it (T1)."""
        return self.table is not None and self.table.transaction_version(_app(plan)) is not None

    def paths(self) -> list[str]:
        """Return the files of the newest version, by their paths below the table."""
        if self.table is None:
            return []
        found = self.table.get_add_actions()["path"]
        return [unquote(str(one)) for one in found.to_pylist()]


def described(
    store: ObjectStore, folder: Folder, files: Sequence[PendingFile], messages: list[TaskMessage]
) -> dict[str, Any]:
    """Say what a job's files are to the log; nothing is written.

    Raises:
        CommitterError: The log cannot take them: they are no Parquet files, or the table's columns
            are others.
        ConfigError: `deltalake` is not installed.
    """
    deltalake = _deltalake()
    names = _partition_names(folder, files)
    for one in files:
        if not one.key.endswith(".parquet"):
            raise CommitterError(f"{one.key} is no Parquet file, and a Delta table has no others")
    table = _read(store, folder).table
    schema = _schema_of(deltalake, messages)
    if schema is None and table is None:
        raise CommitterError(f"nobody has written to {folder.url}, so that a table has no columns")
    schema = schema or table.schema()
    if table is not None:
        kept = table.metadata().partition_columns
        if files and list(kept) != names:
            raise CommitterError(
                f"the table {folder.url} is partitioned by {kept}, and this job by {names}"
            )
        there = {one.name: one.type for one in table.schema().fields}
        for one in schema.fields:
            if one.name in there and there[one.name] != one.type:
                raise CommitterError(
                    f"the column {one.name!r} of {folder.url} is of type {there[one.name]}, and "
                    f"this job's of type {one.type}; cast it"
                )
    return {"format": FORMAT, "schema": schema.to_json(), "partition_by": names}


def old_files(store: ObjectStore, plan: Plan, scope: Replaces) -> list[OldFile]:
    """Return what is in the log now of what a job replaces."""
    paths = _in_scope(plan, scope, _read(store, plan.folder).paths())
    return [OldFile(plan.folder.key(path), "") for path in paths]


def publish(store: ObjectStore, plan: Plan) -> None:
    """Bring a job that is decided into the log, behind those before it.

    Raises:
        CommitterError: The log could not be written; another call goes on.
    """
    deltalake = _deltalake()
    for _ in range(TRIES):
        log = _read(store, plan.folder)
        if log.has(plan):
            return
        # Behind the look at the log: what it lacks of jobs before has a plan still (T2).
        todo = next((one for one in _before(store, plan) if not log.has(one)), plan)
        if _commit(deltalake, store, todo, log) and todo is plan:
            return
    raise CommitterError(f"the log of {plan.folder.url} was written by others {TRIES} times")


def _before(store: ObjectStore, plan: Plan) -> Iterator[Plan]:
    """Yield the plans of jobs that were committed before one, and have not ended; oldest first."""
    head = looking.read(store, plan.folder).head
    mine = _epoch(head, plan)
    found: list[tuple[int, Plan]] = []
    for job_id in looking.planned_jobs(store, plan.folder):
        key = plan.folder.plan_key(job_id)
        try:
            data, _ = store.get(plan.folder.bucket, key)
        except Gone:
            continue
        one = plans.decode(data, f"s3://{plan.folder.bucket}/{key}")
        epoch = _epoch(head, one)
        if one.table and 0 < epoch < mine:
            found.append((epoch, one))
    yield from (one for _, one in sorted(found, key=lambda pair: pair[0]))


def _epoch(head: Head, plan: Plan) -> int:
    """Return a job's place in the order; 0 if it is not known to be committed."""
    entry = head.of(plan.job_id, plan.run, plan.created_ms)
    return entry.epoch if entry is not None and entry.outcome == "committed" else 0


def _commit(deltalake: Any, store: ObjectStore, plan: Plan, log: _Log) -> bool:
    """Write a version of the log behind the one that was read; say whether it was written (T3)."""
    assert plan.table is not None, "asked by the caller"
    now_ms = int(time.time() * 1000)
    schema = deltalake.Schema.from_json(plan.table["schema"])
    names = list(plan.table["partition_by"])
    adds = [_add(deltalake, plan, one, now_ms) for one in plan.files]
    properties = deltalake.CommitProperties(
        custom_metadata={"omidpy.job": plan.job_id},
        app_transactions=[deltalake.Transaction(_app(plan), 1, now_ms)],
        max_commit_retries=0,
    )
    where, options = _where(store, plan.folder)
    try:
        if log.table is None:
            deltalake.transaction.create_table_with_add_actions(
                where,
                schema,
                adds,
                partition_by=names,
                storage_options=options,
                commit_properties=properties,
            )
            return True
        there = {one.name for one in log.table.schema().fields}
        if more := [one for one in schema.fields if one.name not in there]:
            # A version of its own: columns that are null everywhere change what is not read.
            log.table.alter.add_columns(more)
            return False
        removes = [
            deltalake.transaction.RemoveAction(path, True, now_ms)
            for path in _replaced(store, plan, log.paths())
        ]
        log.table.create_write_transaction(
            [*removes, *adds], "append", log.table.schema(), names, commit_properties=properties
        )
    except deltalake.exceptions.CommitFailedError:
        return False  # another was quicker, or its answer was lost: the next look says which
    except deltalake.exceptions.DeltaError as error:
        if log.table is None and _read(store, plan.folder).table is not None:
            return False
        raise CommitterError(f"the log of {plan.folder.url} was not written: {error}") from error
    except OSError as error:
        raise CommitterError(f"the log of {plan.folder.url} was not written: {error}") from error
    return True


def _replaced(store: ObjectStore, plan: Plan, paths: Sequence[str]) -> list[str]:
    """Return what a job removes: what it saw, and what jobs before it have added since."""
    if not plan.replaces:
        return []
    head = looking.read(store, plan.folder).head
    mine = _epoch(head, plan)
    before = {
        one.job for one in head.entries if one.outcome == "committed" and one.epoch < mine
    } - {plan.job_id}
    seen = {plan.folder.below(one.key) for one in plan.old}
    found = _in_scope(plan, plan.replaces, paths)
    return [path for path in found if path in seen or owner(path) in before]


def _in_scope(plan: Plan, scope: Replaces, paths: Sequence[str]) -> list[str]:
    """Return the paths of a table that are in what a job replaces, but for its own files."""
    own = {plan.folder.below(one.key) for one in plan.files}
    folders = {folder_of(path) for path in own}
    return [
        path
        for path in paths
        if path not in own
        and "://" not in path  # of another table, which has lent it
        and not is_hidden(path)
        and (scope == "folder" or folder_of(path) in folders)
    ]


def _add(deltalake: Any, plan: Plan, one: PendingFile, now_ms: int) -> Any:
    path = plan.folder.below(one.key)
    stats = "{}" if one.rows is None else json.dumps({"numRecords": one.rows})
    values = dict(_partition(path))
    return deltalake.transaction.AddAction(path, one.length, values, now_ms, True, stats)


def _partition(path: str) -> Iterator[tuple[str, str | None]]:
    for part in path.split("/")[:-1]:
        name, _, text = part.partition("=")
        yield unquote(name), None if text == NULL_PARTITION else unquote(text)


def _partition_names(folder: Folder, files: Sequence[PendingFile]) -> list[str]:
    """Return the columns that are folders.

    Raises:
        CommitterError: Not every file has the same.
    """
    found = {tuple(name for name, _ in _partition(folder.below(one.key))) for one in files}
    if len(found) > 1:
        raise CommitterError(
            f"files of one job are partitioned by {sorted(found)}, and a table is by one of these"
        )
    return list(next(iter(found), ()))


def _schema_of(deltalake: Any, messages: list[TaskMessage]) -> Any:
    """Return the columns of a job's tables, as a table of Delta has them; None if it wrote none."""
    import pyarrow as pa  # noqa: PLC0415 - an extra

    try:
        found = [pa.ipc.read_schema(pa.py_buffer(one.columns)) for one in messages if one.columns]
        if not found:
            return None
        return deltalake.Schema.from_arrow(pa.unify_schemas(found).remove_metadata())
    except Exception as error:  # what `deltalake` refuses has no class of its own
        raise CommitterError(
            f"tables of one job have columns that are no table's: {error}"
        ) from error


def _app(plan: Plan) -> str:
    return f"omidpy-{plan.job_id}-{plan.run}"


def _read(store: ObjectStore, folder: Folder) -> _Log:
    deltalake = _deltalake()
    where, options = _where(store, folder)
    try:
        return _Log(deltalake.DeltaTable(where, storage_options=options))
    except deltalake.exceptions.TableNotFoundError:
        return _Log(None)
    except (deltalake.exceptions.DeltaError, OSError) as error:
        raise CommitterError(f"the log of {folder.url} cannot be read: {error}") from error


def _where(store: ObjectStore, folder: Folder) -> tuple[str, dict[str, str]]:
    """Return the address of a table, and how its store is reached, with boto3's credentials."""
    import boto3  # noqa: PLC0415 - an extra

    meta = store.client.meta
    options = {"AWS_REGION": str(meta.region_name), "aws_conditional_put": "etag"}
    endpoint = urlsplit(meta.endpoint_url)
    if not endpoint.netloc.endswith(".amazonaws.com"):
        options["AWS_ENDPOINT_URL"] = str(meta.endpoint_url)
        options["AWS_ALLOW_HTTP"] = str(endpoint.scheme == "http").lower()
    found = boto3.session.Session(profile_name=store.options.profile).get_credentials()
    if found is not None:
        keys = found.get_frozen_credentials()
        options["AWS_ACCESS_KEY_ID"] = keys.access_key
        options["AWS_SECRET_ACCESS_KEY"] = keys.secret_key
        if keys.token:
            options["AWS_SESSION_TOKEN"] = keys.token
    return folder.url, options


def _deltalake() -> Any:
    try:
        import deltalake  # noqa: PLC0415 - an extra
        import deltalake.exceptions  # noqa: PLC0415 - see above
        import deltalake.transaction  # noqa: PLC0415 - see above
    except ImportError as error:
        raise ConfigError(
            f"table_format='delta' needs deltalake; run `{install_hint('delta')}`"
        ) from error
    return deltalake
