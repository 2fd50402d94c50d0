"""`omidpy backup` and `omidpy restore`: copies of a store that is one file.

Progress goes to stderr, and only where somebody may be looking at it.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from omidpy import admin
from omidpy.cli.common import AsJson, StoreUrl, UnaskedTso, print_json, say
from omidpy.cli.progress import progress_bar
from omidpy.storage.sqlite.backup import Copied

File: TypeAlias = Annotated[str, typer.Argument(metavar="FILE", help="The backup.")]


def backup(
    target: File, *, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False
) -> None:
    """Copy the store to a new file while clients and oracle go on."""
    del tso  # the file is all there is to copy
    with progress_bar("backing up") as report:
        copied = admin.backup(store, target, progress=report)
    _print(copied, target, as_json=as_json)


def restore(
    source: File, *, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False
) -> None:
    """Make a store of a backup, at an address where there is none."""
    del tso  # an oracle can run on it afterwards
    with progress_bar("restoring") as report:
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
