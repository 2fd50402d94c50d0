"""Finds circles of dependent transactions that snapshot isolation forbids.

Pure.  Three kinds of edge: `ww` (the second replaced what the first wrote), `wr` (the second read
what the first wrote) and `rw` (the second replaced what the first read).  Timestamps play no part,
so that this notices an oracle whose timestamps agree with themselves and not with the data.

A history is snapshot isolated only if no circle remains once each `rw` edge is joined to the `ww`
or `wr` edge before it; write skew, two `rw` edges in a row, is no such circle.

Source: Adya's graphs (G0, G1c, G-single); Cerone and Gotsman, "Analysing Snapshot Isolation".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from omidpy.testing.anomalies import G0, G1C, G_NONADJACENT, G_SINGLE

WW: Final = "ww"
WR: Final = "wr"
RW: Final = "rw"

MAX_CYCLES: Final = 5


class Edge(NamedTuple):
    """`after` depends on `before`."""

    before: str
    after: str
    kind: str


class Cycle(NamedTuple):
    """A forbidden circle, by the name that is usual for its kind."""

    name: str
    edges: tuple[Edge, ...]


class _Hop(NamedTuple):
    """A dependency, perhaps followed by an `rw` edge."""

    after: str
    edges: tuple[Edge, ...]

    @property
    def weight(self) -> int:
        """Prefer circles with few `rw` edges, and among them those of writes alone."""
        return sum({WW: 1, WR: 1000, RW: 1_000_000}[edge.kind] for edge in self.edges)


def forbidden_cycles(edges: Iterable[Edge]) -> list[Cycle]:
    """Return some forbidden circles, at most one for each knot of transactions.

    Cost: O(edges + pairs of an edge and an `rw` edge after it), and more in a knot.
    """
    hops = _hops(edges)
    found: list[Cycle] = []
    for component in _knots(hops):
        found.append(_lightest_cycle(hops, component))
        if len(found) == MAX_CYCLES:
            break
    return found


def _hops(edges: Iterable[Edge]) -> dict[str, list[_Hop]]:
    dependencies: list[Edge] = []
    anti: dict[str, list[Edge]] = {}
    for edge in dict.fromkeys(edges):
        if edge.kind == RW:
            anti.setdefault(edge.before, []).append(edge)
        else:
            dependencies.append(edge)
    hops: dict[str, list[_Hop]] = {}
    for edge in dependencies:
        outgoing = hops.setdefault(edge.before, [])
        outgoing.append(_Hop(edge.after, (edge,)))
        outgoing.extend(_Hop(next_.after, (edge, next_)) for next_ in anti.get(edge.after, ()))
    return hops


def _knots(hops: Mapping[str, list[_Hop]]) -> Iterator[list[str]]:
    """Yield the strongly connected components that hold a circle.  Source: Tarjan, unrolled."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    for root in hops:
        if root in index:
            continue
        work = [(root, iter(hops.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, outgoing = work[-1]
            for hop in outgoing:
                if hop.after not in index:
                    index[hop.after] = low[hop.after] = len(index)
                    stack.append(hop.after)
                    on_stack.add(hop.after)
                    work.append((hop.after, iter(hops.get(hop.after, ()))))
                    break
                if hop.after in on_stack:
                    low[node] = min(low[node], index[hop.after])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component = [stack.pop()]
                    while component[-1] != node:
                        component.append(stack.pop())
                    on_stack.difference_update(component)
                    if len(component) > 1 or any(hop.after == node for hop in hops.get(node, ())):
                        yield component


def _lightest_cycle(hops: Mapping[str, list[_Hop]], component: list[str]) -> Cycle:
    members = set(component)
    best: tuple[int, tuple[Edge, ...]] | None = None
    for start in sorted(members)[:50]:
        found = _cycle_through(hops, start, members)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    assert best is not None, "a knot has a circle through each of its members"
    return Cycle(_name(best[1]), best[1])


def _cycle_through(
    hops: Mapping[str, list[_Hop]], start: str, members: set[str]
) -> tuple[int, tuple[Edge, ...]] | None:
    """Return the lightest circle through a node (Bellman and Ford, by a queue)."""
    paths: dict[str, tuple[int, tuple[Edge, ...]]] = {}
    best: tuple[int, tuple[Edge, ...]] | None = None
    queue: deque[tuple[str, int, tuple[Edge, ...]]] = deque([(start, 0, ())])
    while queue:
        node, weight, path = queue.popleft()
        if node in paths and paths[node][0] < weight:
            continue
        for hop in hops.get(node, ()):
            reached = (weight + hop.weight, path + hop.edges)
            if best is not None and reached[0] >= best[0]:
                continue
            if hop.after == start:
                best = reached
            elif hop.after in members and (
                hop.after not in paths or reached[0] < paths[hop.after][0]
            ):
                paths[hop.after] = reached
                queue.append((hop.after, *reached))
    return best


def _name(edges: tuple[Edge, ...]) -> str:
    anti_count = sum(edge.kind == RW for edge in edges)
    if anti_count == 0:
        return G0 if all(edge.kind == WW for edge in edges) else G1C
    return G_SINGLE if anti_count == 1 else G_NONADJACENT
