"""In which order are tasks begun, so that no server has to do with all of them at once?

Tasks come in the order of row keys, and neighbours are often served by one server: the first ones
would all be sent to it.  Here each server's tasks are spread over the whole list, in their own
order: however many run at a time, they are of as many servers as possible, and all servers are done
at about the same time.

It decides who waits for whom, and nothing else.  What is known of servers is of a moment; where
nothing is known, or one server has everything, the order stays as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from omidpy.errors import StorageError
from omidpy.storage.base import Store
from omidpy.storage.options import KnowsServers

T = TypeVar("T")


def spread(store: Store, tasks: Iterable[T], place: Callable[[T], tuple[str, bytes]]) -> list[T]:
    """Return tasks in an order in which those of one server are far from each other.

    Args:
        store: Where the tables are.
        tasks: Any, in their own order.
        place: Returns the table of a task, and a row of it: the one that it begins with.

    Cost: 1 RPC for each table with a task, where the store knows servers and there are two tasks.
    """
    found = list(tasks)
    if len(found) < 2 or not isinstance(store, KnowsServers):
        return found
    served: dict[str, tuple[list[bytes], list[str]]] = {}

    def server_of(task: T) -> str:
        table, row = place(task)
        if table not in served:
            served[table] = _served(store, table)
        starts, servers = served[table]
        return servers[bisect_right(starts, row) - 1] if servers else ""

    return by_turns(found, [server_of(one) for one in found])


def by_turns(tasks: Sequence[T], servers: Sequence[str]) -> list[T]:
    """Spread the tasks of each server evenly over all of them; `servers` says whose each is."""
    counts = Counter(servers)
    if len(counts) < 2:
        return list(tasks)
    seen: Counter[str] = Counter()
    places: list[tuple[float, int]] = []
    for number, server in enumerate(servers):
        places.append(((seen[server] + 0.5) / counts[server], number))
        seen[server] += 1
    return [tasks[number] for _, number in sorted(places)]


def _served(store: KnowsServers, table: str) -> tuple[list[bytes], list[str]]:
    """Return where regions begin, and who has each; nothing where it cannot be found out."""
    try:
        regions = store.region_servers(table)
    except StorageError:
        return [], []  # the task finds out what is wrong, and says so
    return [key_range.start for key_range, _ in regions], [server for _, server in regions]
