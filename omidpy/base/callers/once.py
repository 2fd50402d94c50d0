"""Was this iterator gone over before?  Then it gives nothing, and who asks it again believes that.

A transaction that is refused is run again, with the arguments that it was called with.  A reader or
a generator among them is used up by then: the second try would write none of its rows, and commit.

Those that can be referred to weakly are known from their first item on.  Of others, such as `map`,
the last ones that came to their end are kept, which hold little by then.  Each is known by itself:
it may have no hash, or be equal to another.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from omidpy.errors import UsageError

T = TypeVar("T")

MOST_KEPT: Final = 64

_begun: Final[WeakValueDictionary[int, object]] = WeakValueDictionary()
_ended: Final[deque[object]] = deque(maxlen=MOST_KEPT)


def gone_over_once(source: Iterable[T], *, what: str) -> Iterator[T]:
    """Go over something; what is an iterator itself, only the first time.

    Args:
        source: What to go over.
        what: What it is to its user, for the error.

    Raises:
        UsageError: in place of the first item: it was gone over here before.
    """
    if not isinstance(source, Iterator):
        yield from source
        return
    if _begun.get(id(source)) is source or any(one is source for one in list(_ended)):
        raise UsageError(
            f"{what} were read before, from the same {type(source).__name__}, which gives nothing "
            "more: a transaction that is tried again needs them anew; make it inside of the "
            "function, or hand over a list or a table"
        )
    try:
        _begun[id(source)] = source
    except TypeError:  # it takes no weak reference
        yield from source
        _ended.append(source)
        return
    yield from source
