"""Which form do the facts of a store have, and does this version know it?

The control table says it by a number.  None has ever been written: where the row is absent the form
is 1, the one that `control.py` describes.  A version that changes what earlier ones read, or may
write, raises the number before it writes anything in another form, and every earlier one that looks
refuses the store then: clients of an oracle elsewhere when they connect, oracles when they begin,
compactions, checks and commands before they change anything.

What is only added needs no new number: earlier versions leave facts alone that they do not know.
"""

from __future__ import annotations

from typing import Final

from omidpy.base.tables import CONTROL_TABLE
from omidpy.errors import ConfigError, CorruptCell, NoSuchTable
from omidpy.facts.control import ControlTable
from omidpy.storage.base import Store

FORMAT: Final = 1
"""The greatest number that this version knows."""

FORMAT_FACT: Final = b"format"


def read_format(store: Store) -> int:
    """Return the number of the form that a store's facts have.

    Raises:
        CorruptCell: what stands there is no number.

    Cost: 1 get.
    """
    try:
        raw = ControlTable(store).read(FORMAT_FACT)
    except NoSuchTable:
        return FORMAT  # the maker of the table makes it in this form
    if raw is None:
        return 1
    if not isinstance(raw, bytes) or not raw.isdigit() or len(raw) > 9:
        shown = raw[:80] if isinstance(raw, bytes) else raw
        raise CorruptCell(
            f"{CONTROL_TABLE} row {FORMAT_FACT!r} holds {shown!r}, which is no number of a format"
        )
    return int(raw)


def check_format(store: Store) -> None:
    """Refuse a store whose facts are of a newer form than this version knows.

    Raises:
        ConfigError: naming both numbers; nothing was changed.
        CorruptCell: which form they have cannot be read.

    Cost: 1 get.
    """
    if (found := read_format(store)) > FORMAT:
        raise ConfigError(
            f"{store.url} has format {found}, and this omidpy reads up to {FORMAT}; upgrade omidpy "
            "to the version that wrote it"
        )
