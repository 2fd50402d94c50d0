"""The tree of commands."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from omidpy import __version__
from omidpy.cli import tx
from omidpy.cli.common import say
from omidpy.cli.compaction import commit_table, compact, watermarks
from omidpy.cli.files import committers, export_snapshot, published
from omidpy.cli.operations import fate
from omidpy.cli.queues import export
from omidpy.cli.store import backup, doctor, fsck, init, status, verify
from omidpy.cli.tables import table

app: Final = typer.Typer(
    help="Transactions for HBase and for one file: look after a store.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_asked:
        say(f"omidpy {__version__}")
        raise typer.Exit


@app.callback()
def omidpy(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version."),
    ] = False,
) -> None:
    """Transactions for HBase and for one file: look after a store."""
    del version


app.command("init")(init.init)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.add_typer(fsck.app, name="fsck")
app.command("watermarks")(watermarks.watermarks)
app.command("verify")(verify.verify)
app.add_typer(table.app, name="table")
app.add_typer(commit_table.app, name="commit-table")
app.add_typer(tx.app, name="tx")
app.add_typer(compact.app, name="compact")
app.add_typer(fate.app, name="fate")
app.add_typer(export.app, name="export")
app.command("export-snapshot")(export_snapshot.export_snapshot)
app.add_typer(committers.app, name="committers")
committers.app.add_typer(published.app, name="published")
