"""`omidpy committers published`: what transactions have published to a folder of S3.

    omidpy committers published list PATH [--at TIME]
    omidpy committers published sweep PATH [--dry-run]

Unlike the other verbs of the noun these ask a store, since it says which files are part of a
folder.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer

from omidpy.cli.committers import Path
from omidpy.cli.common import AsJson, StoreUrl, TsoAddress, print_columns, print_json, say
from omidpy.cli.export_common import managed, moment
from omidpy.cli.objects import with_objects
from omidpy.cli.progress import progress_bar
from omidpy.committers.places import parse_folder
from omidpy.committers.store import ObjectStore
from omidpy.committers.sweeping import sweep as sweep_folder
from omidpy.committers.transactional import Publisher

app: Final = typer.Typer(help="What transactions have published.", no_args_is_help=True)


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
                "files": [
                    {"url": one.url, "path": one.path, "bytes": one.length, "rows": one.rows}
                    for one in found.files
                ],
            }
        )
        return
    if not found.files:
        say(f"nothing was published to {found.destination} before {found.snapshot_ts}")
        return
    print_columns(
        ("bytes", "rows", "file"),
        [(one.length, "?" if one.rows is None else one.rows, one.url) for one in found.files],
    )


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
