"""Who may write the store?  A key that lies in it, and that an oracle is shown.

An oracle that writes cells for its clients lends them its right to write.  A client that brings
cells shows that he could have written them himself: he knows what only those know who reach the
store.  The key is drawn once for a store, and never changes.
"""

from __future__ import annotations

import secrets
from typing import Final

from omidpy.errors import NoSuchTable
from omidpy.facts.control import ControlTable
from omidpy.storage.base import Store

WRITER_KEY_FACT: Final = b"writer-key"
_KEY_BYTES: Final = 16


def make_writer_key(store: Store) -> bytes | None:
    """Return the key of a store, drawn now if it has none; None: it is no key.

    Cost: 1 get, and 1 durable write for the first oracle of a store.
    """
    control = ControlTable(store)
    if control.read(WRITER_KEY_FACT) is None:
        control.replace(WRITER_KEY_FACT, None, secrets.token_bytes(_KEY_BYTES))
    return read_writer_key(store)


def read_writer_key(store: Store) -> bytes | None:
    """Return the key of a store; None: there is none, or it is no key.

    Cost: 1 get.
    """
    try:
        found = ControlTable(store).read(WRITER_KEY_FACT)
    except NoSuchTable:
        return None
    return found if isinstance(found, bytes) and len(found) == _KEY_BYTES else None
