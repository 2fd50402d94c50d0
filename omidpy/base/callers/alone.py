"""What there is once: refuses `copy` and `pickle`, which would make a second one of it.

Two that share what one has written, and each of which believes that it alone ends it, end it twice:
a copy of a transaction committed, and its original then removed the cells (I8).
"""

from __future__ import annotations

from typing import ClassVar, NoReturn


class Alone:
    """Mixed into what must not be copied."""

    __slots__ = ()

    _instead: ClassVar[str]
    """What to do, for the error."""

    def __reduce__(self) -> NoReturn:
        """Refuse; `copy` and `pickle` both come by here.

        Raises:
            TypeError: always.
        """
        raise TypeError(f"{self!r} can be neither copied nor pickled: {self._instead}")
