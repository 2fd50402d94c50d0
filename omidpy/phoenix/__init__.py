"""Apache Phoenix's tables, from Python: typed rows, beside its own clients in SQL.

from omidpy import phoenix

people = phoenix.table(tm, "S.PEOPLE")
with tm.begin() as tx:
    people.put(tx, {"ID": 7, "NAME": "Ann"})

types.py      its types as codecs
keys.py       primary keys, composite and salted, as row keys
catalogue.py  what SYSTEM.CATALOG says of a table
tables.py     rows as dictionaries
settings.py   what Phoenix's clients and HBase's region servers have to be set to
"""

from __future__ import annotations

from omidpy.phoenix.tables import PhoenixTable, table
from omidpy.phoenix.types import codec

__all__ = ["PhoenixTable", "codec", "table"]
