"""The tree of commands, or as much of it as one run needs.

A module of verbs brings what it looks after: all of them together take most of a second to import,
which scripts that call one verb after the other would wait for each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Final, NamedTuple

import typer

from omidpy.base.installation import versions, versions_text
from omidpy.cli.common import say


class Noun(NamedTuple):
    """The first word of a command."""

    module: str
    """Where it is, in `omidpy.cli`."""
    name: str = "app"
    """What it is there: a command, or an app with verbs of its own."""


NOUNS: Final[Mapping[str, Noun]] = {
    "init": Noun("store.init", "init"),
    "backup": Noun("store.backup", "backup"),
    "restore": Noun("store.backup", "restore"),
    "doctor": Noun("store.doctor", "doctor"),
    "status": Noun("store.status", "status"),
    "watermarks": Noun("compaction.watermarks", "watermarks"),
    "verify": Noun("store.verify", "verify"),
    "export-snapshot": Noun("files.export_snapshot", "export_snapshot"),
    "console": Noun("console", "console"),
    "completion": Noun("completion", "completion"),
    "fsck": Noun("store.fsck"),
    "table": Noun("tables.table"),
    "commit-table": Noun("compaction.commit_table"),
    "tx": Noun("tx"),
    "compact": Noun("compaction.compact"),
    "fate": Noun("operations.fate"),
    "export": Noun("queues.export"),
    "committers": Noun("files.committers"),
}
"""In the order in which they are listed: commands, then apps."""


def tree(word: str | None = None) -> typer.Typer:
    """Return the tree of commands, or its branch that begins with a word; None for all of it."""
    app = typer.Typer(
        help="Transactions for HBase and for one file: look after a store.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
    )
    app.callback()(omidpy)
    for noun, (module, name) in NOUNS.items():
        if word in (None, noun):
            found = getattr(import_module(f"omidpy.cli.{module}"), name)
            if isinstance(found, typer.Typer):
                app.add_typer(found, name=noun)
            else:
                app.command(noun)(found)
    return app


def _print_version(is_asked: bool) -> None:  # noqa: FBT001 - typer calls it so
    if is_asked:
        from tso.core.engine import is_compiled  # noqa: PLC0415 - only here

        say(versions_text(versions(engine_is_compiled=is_compiled())))
        raise typer.Exit


def omidpy(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            is_eager=True,
            callback=_print_version,
            help="Show the versions of omidpy and of what it runs on.",
        ),
    ] = False,
) -> None:
    """Transactions for HBase and for one file: look after a store."""
    del version
