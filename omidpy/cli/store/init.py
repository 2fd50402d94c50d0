"""`omidpy init`: create Omid's tables and our own in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from omidpy.base.tables import CONTROL_TABLE, is_system_table
from omidpy.cli.common import AsJson, StoreUrl, UnaskedTso, print_json, say
from omidpy.errors import ConfigError
from omidpy.facts.commit_table import COMMIT_TABLE, TIMESTAMP_TABLE, create_system_tables
from omidpy.facts.tables.listing import missing_of
from omidpy.opening import open_store


def init(
    *,
    store: StoreUrl,
    tso: UnaskedTso = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which tables are missing, and make none.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set a store up; tables that exist are left alone."""
    del tso  # an oracle needs the tables, not the other way round
    if store == "memory:":
        raise ConfigError("--store memory: is gone with this process; name a file or a cluster")
    opened = open_store(store, must_exist=dry_run)
    try:
        if dry_run:
            wanted = (CONTROL_TABLE, COMMIT_TABLE, TIMESTAMP_TABLE)
            missing = missing_of(wanted, opened, opened.tables())
            if as_json:
                print_json({"missing": missing})
            else:
                said = f"would make {', '.join(missing)}" if missing else "every table is there"
                say(f"{said}; nothing was changed")
            return
        create_system_tables(opened)
        tables = [schema.name for schema in opened.tables() if is_system_table(schema.name)]
        if as_json:
            print_json({"store_id": opened.store_id, "tables": tables})
        else:
            say(f"store {opened.store_id} has {', '.join(tables)}")
    finally:
        opened.close()
