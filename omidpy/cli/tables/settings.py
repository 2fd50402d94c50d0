"""`omidpy table set` and `unset`: what a table asks of every compaction.

On HBase a changed attribute of a table has its regions opened anew, one after another, and none of
them answers meanwhile; so a change waits for `--apply`, as others do.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import typer

from omidpy.base.schema.table_settings import ATTRIBUTES, setting_attributes
from omidpy.base.tables import INCARNATION_ATTRIBUTE
from omidpy.base.words.arguments import check_table_name
from omidpy.cli.common import Apply, AsJson, StoreUrl, UnaskedTso, opened, print_json, say
from omidpy.errors import StorageError, UsageError
from omidpy.facts.tables.catalog import check_ours
from omidpy.reports.tables import table_settings

Name: TypeAlias = Annotated[str, typer.Argument(help="The table.")]

REOPENED: Final = "on HBase its regions are opened anew, one after another"


def set_settings(
    name: Name,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE...",
            help="priority=5: higher first.  retention=30d: how far back snapshots stay readable "
            "at least; the longest of any table holds for all.  every=1d: runs leave the table out "
            "that was passed over more lately.  max-rows-per-s=20000, max-bytes-per-s=50MB: runs "
            "read no more of the table a second.  until=4h or until=06:00Z: runs begin nothing "
            "more of it then.",
        ),
    ],
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Say when and how fast a table is compacted, and how long old snapshots stay readable."""
    del tso
    pairs = [word.partition("=") for word in settings]
    if bad := [word for word, (_, equals, value) in zip(settings, pairs, strict=True) if not value]:
        raise UsageError(f"{bad[0]!r} is no setting; write one as in priority=5, or run unset")
    changes = setting_attributes(name, {key.strip(): value for key, _, value in pairs})
    _change(name, dict(changes), store=store, apply=apply, as_json=as_json)


def unset_settings(
    name: Name,
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME...", help=f"Of {', '.join(ATTRIBUTES)}.")
    ],
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    apply: Apply = False,
    as_json: AsJson = False,
) -> None:
    """Take back what `set` said."""
    del tso
    if unknown := [word for word in settings if word not in ATTRIBUTES]:
        raise UsageError(f"there is no setting {unknown[0]!r}; there are {', '.join(ATTRIBUTES)}")
    changes = dict.fromkeys(ATTRIBUTES[word] for word in settings)
    _change(name, changes, store=store, apply=apply, as_json=as_json)


def settings_text(attributes: dict[str, str]) -> str:
    """Return the settings among a table's attributes, as `set` takes them."""
    return " ".join(f"{key}={value}" for key, value in table_settings(attributes).items())


def _change(
    name: str, changes: dict[str, str | None], *, store: str, apply: bool, as_json: bool
) -> None:
    with opened(store, only_looks=not apply) as open_store:
        schema = open_store.schema(check_table_name(name))
        check_ours(schema)
        if apply:
            seen = {INCARNATION_ATTRIBUTE: schema.attributes.get(INCARNATION_ATTRIBUTE)}
            if not open_store.set_table_attributes(name, changes, only=seen):
                raise StorageError(
                    f"table {name!r} was dropped and made again, or adopted, just now, and has its "
                    "own settings; look at it, and set them again"
                )
        is_remote = open_store.capabilities.remote
    changed = {**schema.attributes, **changes}
    after = {key: value for key, value in changed.items() if value is not None}
    if as_json:
        print_json({"table": name, "settings": table_settings(after), "applied": apply})
        return
    say(f"{name} {'has' if apply else 'would have'} {settings_text(after) or 'no settings'}")
    if not apply:
        say(f"nothing was changed; add --apply{f' ({REOPENED})' if is_remote else ''}")
