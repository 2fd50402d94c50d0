"""What may be asked of a frame, for those who only pass it on: how columns are named, and defaults.

Everything else of frames is imported when one is read or written, which few programs do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from omidpy.codec import Codec

TypeName: TypeAlias = "str | Codec[Any]"
Columns: TypeAlias = "Mapping[str, tuple[str | bytes, TypeName]]"
KeyColumns: TypeAlias = "str | Mapping[str, TypeName]"

DEFAULT_KEY: Final = "row"
DEFAULT_BATCH_ROWS: Final = 10_000
