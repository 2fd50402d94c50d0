"""Since when is a table what it is?  HBase's catalogue says when it was last enabled.

A snapshot is restored into a table that is disabled, or cloned into one that is made; either way
the table is enabled afterwards, and HBase's master writes that into `hbase:meta`, at the version of
its clock.  No move, split or merge of regions changes it, nor does an attribute of the table, nor a
restart of HBase.

So a table whose state has kept its version was not restored.  One with another version may have
been, or was disabled for another reason: the catalogue does not tell.
"""

from __future__ import annotations

from typing import Final

from omidpy.model import Column

CATALOGUE: Final = "hbase:meta"
STATE: Final = Column(b"table", b"state")
"""Its version is the state.  The row is the name of the table, with its namespace if it is not the
default one."""
