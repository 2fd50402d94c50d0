"""The tree of commands."""

from __future__ import annotations

from typing import Final

import typer

from omidpy.cli import (
    backup,
    commit_table,
    compact,
    doctor,
    init,
    status,
    table,
    tx,
    verify,
    watermarks,
)

app: Final = typer.Typer(
    help="Transactions for HBase and for one file: look after a store.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("init")(init.init)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("doctor")(doctor.doctor)
app.command("status")(status.status)
app.command("watermarks")(watermarks.watermarks)
app.command("verify")(verify.verify)
app.add_typer(table.app, name="table")
app.add_typer(commit_table.app, name="commit-table")
app.add_typer(tx.app, name="tx")
app.add_typer(compact.app, name="compact")
