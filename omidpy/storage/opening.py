"""Opens stores for those who stand below what knows every backend by name.

Whoever assembles (`omidpy.connect`) hands its function down; nobody here imports a backend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from omidpy.storage.base import Store

_openers: Final[list[Callable[[str], Store]]] = []


def open_with(opener: Callable[[str], Store]) -> None:
    """Say what opens a store that exists, by its address."""
    _openers[:] = [opener]


def open_existing(url: str) -> Store:
    """Open the store at an address.

    Raises:
        ConfigError: it is none.
        StorageUnavailable: it cannot be opened.
    """
    assert _openers, "importing any part of omidpy has imported omidpy.connect"
    return _openers[-1](url)
