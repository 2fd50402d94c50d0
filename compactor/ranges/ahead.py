"""How is the next page read while the last one is still worked on?

A page of a store that lies behind a network is awaited for about as long as it takes to write what
became of the one before it, and the two need nothing of each other.  So a thread reads one page
ahead, and never more: what is read stays as young as without it, by one page.

Only reading goes to the thread.  The caller works on the pages in his own, so that an interrupt
meets no write under way that is not waited for, and gives no lease back before one.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from omidpy.base.callers.pools import begun

PageT = TypeVar("PageT")


@contextmanager
def read_ahead(pages: Iterator[PageT]) -> Iterator[Iterator[PageT]]:
    """Give the same pages, each of which comes when the read of the next one has begun.

    What a read raises is raised in its page's place, behind the pages before it.  On leaving, the
    read that is under way is waited for, so that no thread uses the store behind its caller's back.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="compaction-ahead") as reader:

        def following() -> Iterator[PageT]:
            coming = begun(reader.submit, next, pages, None)
            while (page := coming.result()) is not None:
                coming = begun(reader.submit, next, pages, None)
                yield page

        yield following()
