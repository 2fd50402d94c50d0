"""What an administrator does: copies of a store, and tables that are made, dropped and emptied.

    from omidpy import admin

    admin.truncate_table(tm, "accounts")

Changes of tables are operations of several steps (`omidpy.fate`): killed at any moment, the next
one on the store, or `omidpy fate run`, finishes them.
"""

from __future__ import annotations

from omidpy.admin.copies import backup, restore
from omidpy.admin.table_steps import TableTools
from omidpy.admin.tables import (
    TABLE_KINDS,
    TableChange,
    carry_out,
    create_table,
    creation,
    drop_table,
    removal,
    truncate_table,
    truncation,
)

__all__ = [
    "TABLE_KINDS",
    "TableChange",
    "TableTools",
    "backup",
    "carry_out",
    "create_table",
    "creation",
    "drop_table",
    "removal",
    "restore",
    "truncate_table",
    "truncation",
]
