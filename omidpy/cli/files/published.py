"""`omidpy committers published`: which files are part of a folder of S3.

    omidpy committers published [show] PATH         what jobs have published, as its head says
    omidpy committers published list PATH [--at TIME]   what transactions have
    omidpy committers published sweep PATH [--dry-run]

Unlike the other verbs of the noun the last two ask a store of cells, which says what transactions
have published.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from omidpy.cli.common import AsJson, StoreUrl, TsoAddress, print_columns, print_json, say
from omidpy.cli.files.objects import Path, with_objects
from omidpy.cli.progress import progress_bar
from omidpy.cli.queues.common import managed, moment
from omidpy.committers.contents import reading
from omidpy.committers.objects.store import ObjectStore
from omidpy.committers.places import parse_folder
from omidpy.committers.sweeping import sweep as sweep_folder
from omidpy.committers.transactional import Publisher
from omidpy.tx.publishing import PublishedFile

app: Final = typer.Typer(
    help="Which files are part of a folder.  `published PATH` is short for `published show PATH`.",
    no_args_is_help=True,
)


@app.command()
@with_objects
def show(objects: ObjectStore, path: Path, *, as_json: AsJson = False) -> None:
    """Show the files of the last committed state of a folder, also while a job publishes there.

    Files that other tools have written are no part of it, and are counted; without any job, and
    with such files, nobody knows what is part of the folder, which is an error.
    """
    folder = parse_folder(path)
    found = reading.state_of(objects, folder)
    strangers = reading.others(objects, found) if found.epoch else []
    if as_json:
        print_json(
            {
                "destination": found.destination,
                "epoch": found.epoch,
                "bytes": found.size_bytes,
                "rows": found.rows,
                "files": [_document(one) for one in found.files],
                "others": strangers,
            }
        )
        return
    if not found.files:
        say(f"nothing is published at {found.destination}, {found.when}")
    else:
        _print_files(found.files)
    if strangers:
        say(
            f"{len(strangers)} files are not part of it, {strangers[0]} for one: no job that the "
            "head knows has written them; --json lists them",
            err=True,
        )


@app.command("list")
def list_published(
    path: Path,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="What was visible then: a date, a timestamp, 1h ago."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the files that are part of a folder; asks the object store nothing."""
    folder = parse_folder(path)
    with managed(store, tso) as tm:
        found = tm.snapshot(None if at is None else moment("--at", at)).published(folder.url)
    if as_json:
        print_json(
            {
                "destination": found.destination,
                "snapshot_ts": found.snapshot_ts,
                "bytes": found.size_bytes,
                "rows": found.rows,
                "files": [_document(one) for one in found.files],
            }
        )
        return
    if not found.files:
        say(f"nothing was published to {found.destination} before {found.snapshot_ts}")
        return
    _print_files(found.files)


@app.command()
@with_objects
def sweep(
    objects: ObjectStore,
    path: Path,
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove files that no snapshot will see, of publishers that died and of what was replaced.

    Files of transactions that may still commit are kept, and so is what a snapshot can still read:
    what was replaced goes once a compaction has dropped the cells that named it.
    """
    folder = parse_folder(path)
    with managed(store, tso) as tm:
        with progress_bar("sweeping") as report:
            found = sweep_folder(tm, objects, folder, is_dry=dry_run, progress=report)
        if not dry_run and (found.named or found.removed):
            Publisher(tm).tell(objects, folder)
    if as_json:
        print_json(
            {
                "destination": folder.url,
                "dry_run": dry_run,
                "removed": found.removed,
                "objects": found.objects,
                "running": found.running,
                "undecided": found.undecided,
                "named": found.named,
            }
        )
        return
    verb = "would remove" if dry_run else "removed"
    say(
        f"{folder.url}: {verb} {len(found.removed)} publications with {found.objects} objects; "
        f"kept {found.named} that snapshots can read, and {len(found.running)} whose transactions "
        "may still commit"
    )
    for job_id in found.undecided:
        say(f"kept {job_id}: nobody can say whether its transaction has committed")


def _document(one: PublishedFile) -> dict[str, Any]:
    return {"url": one.url, "path": one.path, "bytes": one.length, "rows": one.rows}


def _print_files(files: Sequence[PublishedFile]) -> None:
    print_columns(
        ("bytes", "rows", "file"),
        [(one.length, "?" if one.rows is None else one.rows, one.url) for one in files],
    )
