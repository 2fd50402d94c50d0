"""`omidpy init`: create Omid's tables and our own in a store."""

from __future__ import annotations

import typer

from omidpy.cli.common import AsJson, StoreUrl, UnaskedTso, print_json
from omidpy.commit_table import create_system_tables
from omidpy.connect import open_store
from omidpy.control import is_system_table
from omidpy.errors import ConfigError


def init(*, store: StoreUrl, tso: UnaskedTso = None, as_json: AsJson = False) -> None:
    """Set a store up; tables that exist are left alone."""
    del tso  # an oracle needs the tables, not the other way round
    if store == "memory:":
        raise ConfigError("--store memory: is gone with this process; name a file or a cluster")
    opened = open_store(store)
    try:
        create_system_tables(opened)
        tables = [schema.name for schema in opened.tables() if is_system_table(schema.name)]
        if as_json:
            print_json({"store_id": opened.store_id, "tables": tables})
        else:
            typer.echo(f"store {opened.store_id} has {', '.join(tables)}")
    finally:
        opened.close()
