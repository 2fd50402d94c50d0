"""`omidpy backup` and `omidpy restore`: copies of a store that is one file.

Progress goes to stderr, and only where somebody may be looking at it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.progress import Progress

from omidpy import admin
from omidpy.cli.common import AsJson, StoreUrl, UnaskedTso, print_json, say
from omidpy.storage.sqlite.backup import Copied
from omidpy.storage.sqlite.backup import Progress as Report

File: TypeAlias = Annotated[str, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    target: File, *, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False
) -> None:
    """Copy the store to a new file while clients and oracle go on."""
    del tso  # the file is all there is to copy
    with _progress("backing up") as report:
        copied = admin.backup(store, target, progress=report)
    _print(copied, target, as_json=as_json)


def restore(
    source: File, *, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False
) -> None:
    """Make a store of a backup, at an address where there is none."""
    del tso  # an oracle can run on it afterwards
    with _progress("restoring") as report:
        copied = admin.restore(source, store, progress=report)
    _print(copied, store, as_json=as_json)


def _print(copied: Copied, made: str, *, as_json: bool) -> None:
    if as_json:
        print_json(copied._asdict())
    else:
        say(
            f"{made} is store {copied.store_id}, a copy of {copied.copied_from}, "
            f"{copied.size_bytes:,} bytes"
        )


@contextmanager
def _progress(what: str) -> Iterator[Report]:
    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
