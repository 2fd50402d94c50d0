"""`omidpy committers`: what jobs have left in an S3 store, and whether what they promised is there.

    omidpy committers uploads list|abort PATH [--older-than TIME] [--job ID]
    omidpy committers plan list PATH | show|resume|rollback PLAN
    omidpy committers verify PATH [--rows]
    omidpy committers doctor PATH

PATH is `s3://BUCKET/FOLDER`, and a folder is a folder: `dataset1` says nothing of `dataset10`.
Credentials come by boto3's own chain.  Progress goes to stderr, where somebody looks at it.
"""

from __future__ import annotations

import time
from typing import Annotated, Final, TypeAlias

import typer

from omidpy.base.words.durations import seconds_in
from omidpy.cli.common import (
    AsJson,
    print_columns,
    print_facts,
    print_json,
    say,
)
from omidpy.cli.files import published
from omidpy.cli.files.doctor import examine
from omidpy.cli.files.objects import Path, with_objects
from omidpy.cli.progress import progress_bar
from omidpy.committers.contents import verification
from omidpy.committers.hadoop import leftovers
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import Folder, parse_folder
from omidpy.errors import CommitterError
from omidpy.reports.jobs import (
    half_published,
    manifest_document,
    resume_job,
    roll_back_job,
    shown,
    upload_document,
)
from omidpy.reports.texts import moment

app: Final = typer.Typer(help="Look after the output of jobs in S3.", no_args_is_help=True)
uploads: Final = typer.Typer(help="Uploads that are neither completed nor aborted.")
plan: Final = typer.Typer(help="Jobs that have begun to commit, and have not ended.")
app.add_typer(uploads, name="uploads")
app.add_typer(plan, name="plan")
app.add_typer(published.app, name="published")

PlanAddress: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="s3://BUCKET/FOLDER/_omidpy/JOB/plan.json, or s3://BUCKET/FOLDER/__magic_job-JOB",
    ),
]
OlderThan: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what began at least this long ago.")
]
JobId: TypeAlias = Annotated[
    str | None, typer.Option("--job", metavar="ID", help="Only what has this job's id in its name.")
]


@uploads.command("list")
@with_objects
def list_uploads(
    objects: ObjectStore,
    path: Path,
    *,
    older_than: OlderThan = None,
    job: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Show uploads below a folder that are neither completed nor aborted."""
    folder = parse_folder(path)
    found = leftovers.matching(
        objects.uploads(folder),
        job_id=job,
        started_before_ms=_before_ms(objects, folder, older_than),
    )
    if as_json:
        print_json([upload_document(one) for one in found])
        return
    if not found:
        say(f"no uploads are left below {folder.url}")
        return
    print_columns(
        ("began", "upload", "key"),
        [(moment(one.started_ms), one.upload_id, one.key) for one in found],
    )


@uploads.command("abort")
@with_objects
def abort_uploads(
    objects: ObjectStore,
    path: Path,
    *,
    older_than: OlderThan = None,
    job: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Abort uploads below a folder; those of a plan are kept, since their job has begun to commit.

    A job that is running loses its uploads, and then fails with nothing visible: choose by
    `--job` or `--older-than` where others write.  So does one whose plan is written meanwhile,
    within seconds before the abort; it is named.
    """
    folder = parse_folder(path)
    chosen = leftovers.matching(
        objects.uploads(folder),
        job_id=job,
        started_before_ms=_before_ms(objects, folder, older_than),
    )
    with progress_bar("aborting uploads") as report:
        done = leftovers.abort(objects, folder, chosen, report)
    if as_json:
        print_json(
            {
                "aborted": [upload_document(one) for one in done.aborted],
                "gone": [upload_document(one) for one in done.gone],
                "planned": [
                    {**upload_document(one), "plan": address} for one, address in done.planned
                ],
                "hit": [{**upload_document(one), "plan": address} for one, address in done.hit],
            }
        )
        return
    say(f"aborted {len(done.aborted)} uploads below {folder.url}")
    for address in sorted({address for _, address in done.hit}):
        count = sum(one == address for _, one in done.hit)
        say(
            f"{count} of them are of {address}, which was written meanwhile: its job fails, and "
            "takes back what it has made visible; if its driver has died, run `omidpy committers "
            f"plan rollback {address}`"
        )
    for address in sorted({address for _, address in done.planned}):
        count = sum(one == address for _, one in done.planned)
        say(f"kept {count} uploads of {address}; run `omidpy committers plan resume {address}`")


@plan.command("list")
@with_objects
def list_plans(
    objects: ObjectStore,
    path: Path,
    *,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|URL",
            help="Also say how many they are, in a file for the node exporter or at a Pushgateway.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the plans below a folder."""
    from compactor.shell.metrics import check_target  # noqa: PLC0415 - application

    check_target(metrics)
    folder = parse_folder(path)
    found = half_published(objects, folder)
    if metrics is not None:
        _tell(metrics, folder, len(found))
    if as_json:
        print_json([{"plan": one} for one in found])
        return
    for one in found or [f"no job has begun to commit and not ended below {folder.url}"]:
        say(one)


@plan.command()
@with_objects
def show(
    objects: ObjectStore,
    address: PlanAddress,
    *,
    as_json: AsJson = False,
) -> None:
    """Show what a job was about to publish."""
    found, document = shown(objects, address)
    if as_json:
        print_json(document)
        return
    print_facts({key: value for key, value in document.items() if not isinstance(value, list)})
    print_columns(
        ("bytes", "rows", "how", "key"),
        [
            (
                one.length,
                "?" if one.rows is None else one.rows,
                "in the plan" if one.data is not None else f"upload {one.upload_id}",
                one.key,
            )
            for one in found.files
        ],
    )
    for old in found.old:
        say(f"removes {old.key}")


@plan.command()
@with_objects
def resume(
    objects: ObjectStore,
    address: PlanAddress,
    *,
    as_json: AsJson = False,
) -> None:
    """Finish a job whose driver has died: afterwards everything of it is visible."""
    with progress_bar("completing files") as report:
        manifest = resume_job(objects, address, report)
    if as_json:
        print_json(manifest_document(manifest))
    else:
        say(
            f"job {manifest.job_id} is committed: {len(manifest.files)} files, "
            f"{manifest.bytes_written:,} bytes at {manifest.destination}"
        )


@plan.command()
@with_objects
def rollback(
    objects: ObjectStore,
    address: PlanAddress,
    *,
    as_json: AsJson = False,
) -> None:
    """Take back a job whose driver has died: afterwards nothing of it is visible."""
    with progress_bar("taking files back") as report:
        found = roll_back_job(objects, address, report)
    if as_json:
        print_json({"job": found.job_id, "destination": found.folder.url, "rolled_back": True})
    else:
        say(f"job {found.job_id} is rolled back: nothing of it is left at {found.folder.url}")


@app.command()
@with_objects
def verify(
    objects: ObjectStore,
    path: Path,
    *,
    rows: Annotated[
        bool, typer.Option(help="Count the rows of Parquet files, too, which reads them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a folder with its `_SUCCESS`; exit code 1 if anything is missing or another."""
    folder = parse_folder(path)
    with progress_bar("comparing files") as report:
        found = verification.verify(objects, folder, reads_rows=rows, progress=report)
    if as_json:
        print_json(
            {
                "whole": found.is_whole,
                "job": found.job_id,
                "committer": found.committer,
                "files": found.files,
                "bytes": found.bytes,
                "rows": found.rows,
                "missing": found.missing,
                "different": found.different,
                "others": found.others,
            }
        )
    else:
        for key in found.missing:
            say(f"missing: {key}")
        for one in found.different:
            say(f"another: {one}")
        say(
            f"{folder.url}: {found.files} files, {found.bytes:,} bytes of job {found.job_id}; "
            f"{len(found.missing)} missing, {len(found.different)} others in their place, "
            f"{len(found.others)} of other jobs"
        )
    if not found.is_whole:
        raise typer.Exit(1)


@app.command()
@with_objects
def doctor(objects: ObjectStore, path: Path, *, as_json: AsJson = False) -> None:
    """Say what a store does not promise to jobs of a folder, and who else writes there.

    Tries conditional writes on an object of its own below `_omidpy/`, which it removes again.  Exit
    code 1 if no job can be committed there.
    """
    examine(objects, parse_folder(path), as_json=as_json)


def _tell(metrics: str, folder: Folder, plan_count: int) -> None:
    """Say how many jobs are half published."""
    from prometheus_client import CollectorRegistry  # noqa: PLC0415 - only where it is asked for

    from compactor.shell.metrics import send  # noqa: PLC0415 - application
    from omidpy.prometheus import show_plans  # noqa: PLC0415 - see above

    registry = CollectorRegistry()
    show_plans(folder.url, plan_count, registry, now_s=time.time())
    try:
        send(metrics, registry, job="omidpy_committers")
    except OSError as error:
        raise CommitterError(f"no metrics in {metrics}: {error}") from error


def _before_ms(objects: ObjectStore, folder: Folder, older_than: str | None) -> int | None:
    if older_than is None:
        return None
    age_s = seconds_in(older_than, name="--older-than", may_be_zero=True)
    # A store tells the date in whole seconds, and all uploads have begun by now.
    return leftovers.moment_ms(objects, folder, age_s=age_s) if age_s else None
