"""Problems about graphs, given as lists of edges."""

from __future__ import annotations

import heapq
from collections import deque
from functools import cache
from itertools import permutations
from math import perm
from random import Random

from envgen.pipelines.interpreter.makers.exact import Matrix, determinant, subsets
from envgen.pipelines.interpreter.makers.maker import (
    Maker,
    Params,
    drawn,
    integer,
    number,
    program,
    rows,
    worded,
)
from envgen.verifiers.maths import MathAnswer


def _connected(rng: Random, size: int, extra: int) -> list[tuple[int, int]]:
    """Edges of a random connected graph with vertices 1..size: a spanning tree plus ``extra`` edges."""
    edges = {(rng.randint(1, v - 1), v) for v in range(2, size + 1)}
    others = [(a, b) for b in range(2, size + 1) for a in range(1, b) if (a, b) not in edges]
    return sorted(edges | set(rng.sample(others, min(extra, len(others)))))


def _graph(params: Params, most: int, width: int = 2, extra: int = 50) -> tuple[int, Matrix]:
    """The number of nodes, and the edges, all different."""
    size = number(params, "size", 2, most)
    edges = rows(params, "edges", size + extra, width, 1, 999)
    if any(a == b or max(a, b) > size for a, b, *_ in edges):
        raise ValueError("'edges' must join different nodes")
    if len({(a, b) for a, b, *_ in edges} | {(b, a) for a, b, *_ in edges}) != 2 * len(edges):
        raise ValueError("'edges' must differ")
    return size, edges


def _roads(rng: Random, level: int) -> Params:
    size = 6 + 2 * level
    edges = [[*edge, rng.randint(10, 99 + 50 * level)] for edge in _connected(rng, size, 2 * size)]
    return drawn(rng, size=size, edges=edges)


def _distances_by_dijkstra(params: Params) -> MathAnswer:
    size, edges = _graph(params, 22, 3)
    near: dict[int, list[tuple[int, int]]] = {v: [] for v in range(1, size + 1)}
    for a, b, length in edges:
        near[a].append((b, length))
        near[b].append((a, length))
    found: dict[int, int] = {}
    queue = [(0, 1)]
    while queue:
        far, node = heapq.heappop(queue)
        if node not in found:
            found[node] = far
            for other, length in near[node]:
                heapq.heappush(queue, (far + length, other))
    if len(found) != size:
        raise ValueError("'edges' must connect all nodes")
    return integer(sum(found.values()))


def _distances_by_relaxing(params: Params) -> MathAnswer:
    """Bellman and Ford's method."""
    size, edges = _graph(params, 22, 3)
    far = [0] + [10**9] * (size - 1)
    for _ in range(size):
        for a, b, length in edges:
            far[a - 1] = min(far[a - 1], far[b - 1] + length)
            far[b - 1] = min(far[b - 1], far[a - 1] + length)
    return integer(sum(far))


ROADS = Maker(
    name="shortest_paths",
    kind="math",
    area="graphs",
    draw=_roads,
    text=worded(
        "Towns 1 to {size} are joined by roads that can be used both ways; each is given as (town, "
        "town, length): {edges}. Add up the lengths of the shortest routes from town 1 to every other "
        "town. What is the sum?",
        "In the undirected weighted graph on the nodes 1..{size} with edges (node, node, weight) "
        "{edges}, what is the sum of the distances from node 1 to all other nodes?",
    ),
    solve=_distances_by_dijkstra,
    check=_distances_by_relaxing,
    code=program(
        "size edges",
        """
far = {v: 10 ** 9 for v in range(1, size + 1)}
far[1] = 0
for _ in range(size):
    for a, b, w in edges:
        far[a], far[b] = min(far[a], far[b] + w), min(far[b], far[a] + w)
print(sum(far.values()))
""",
    ),
)


def _trees(rng: Random, level: int) -> Params:
    size = 6 + level // 3
    edges = _connected(rng, size, rng.randint(4, 5) + level // 2)
    return drawn(rng, size=size, edges=[list(edge) for edge in edges])


def _trees_by_kirchhoff(params: Params) -> MathAnswer:
    size, edges = _graph(params, 9, extra=8)
    laplacian = [[0] * size for _ in range(size)]
    for a, b in edges:
        for i, j in ((a, b), (b, a)):
            laplacian[i - 1][i - 1] += 1
            laplacian[i - 1][j - 1] -= 1
    return integer(determinant([row[1:] for row in laplacian[1:]]))


def _trees_by_contraction(params: Params) -> MathAnswer:
    """Trees with a bundle of edges, where it is one node, and trees without it."""
    size, edges = _graph(params, 9, extra=8)

    @cache
    def trees(nodes: int, bundles: frozenset[tuple[int, int, int]]) -> int:
        if nodes == 1:
            return 1
        if len(bundles) < nodes - 1:
            return 0
        a, b, count = max(bundles)
        rest = bundles - {(a, b, count)}
        merged: dict[tuple[int, int], int] = {}
        for x, y, n in rest:
            low, high = sorted((a if x == b else x, a if y == b else y))
            merged[low, high] = merged.get((low, high), 0) + n
        contracted = frozenset((x, y, n) for (x, y), n in merged.items())
        return trees(nodes, rest) + count * trees(nodes - 1, contracted)

    return integer(trees(size, frozenset((min(e), max(e), 1) for e in edges)))


TREES = Maker(
    name="spanning_trees",
    kind="math",
    area="graphs",
    draw=_trees,
    text=worded(
        "How many spanning trees does the graph on the nodes 1 to {size} with the edges {edges} have?",
        "A network joins the places 1..{size} by the cables {edges}. In how many ways can cables be "
        "kept so that all places stay connected, but by no loop?",
    ),
    solve=_trees_by_kirchhoff,
    check=_trees_by_contraction,
    code=program(
        "size edges",
        """
from sympy import zeros
m = zeros(size, size)
for a, b in edges:
    m[a - 1, a - 1] += 1
    m[b - 1, b - 1] += 1
    m[a - 1, b - 1] -= 1
    m[b - 1, a - 1] -= 1
print(m[1:, 1:].det())
""",
    ),
)


def _colourings(rng: Random, level: int) -> Params:
    size = 6 + level // 3
    edges = [list(edge) for edge in _connected(rng, size, 3 + level // 2)]
    return drawn(rng, size=size, edges=edges, colours=rng.randint(3 + level // 3, 5 + level))


def _colourings_by_blocks(params: Params) -> MathAnswer:
    """Partitions of the nodes into independent sets, times the ways to give these colours."""
    size, edges = _graph(params, 9, extra=8)
    colours = number(params, "colours", 1, 20)
    apart = [0] * size
    for a, b in edges:
        apart[a - 1] |= 1 << b - 1
        apart[b - 1] |= 1 << a - 1

    def place(node: int, blocks: tuple[int, ...]) -> int:
        if node == size:
            return perm(colours, len(blocks))
        total = place(node + 1, (*blocks, 1 << node))
        for i, block in enumerate(blocks):
            if not block & apart[node]:
                total += place(node + 1, (*blocks[:i], block | 1 << node, *blocks[i + 1 :]))
        return total

    return integer(place(0, ()))


def _colourings_by_contraction(params: Params) -> MathAnswer:
    """P(G) = P(G - e) - P(G / e)."""
    size, edges = _graph(params, 9, extra=8)
    colours = number(params, "colours", 1, 20)

    @cache
    def ways(nodes: int, left: frozenset[tuple[int, int]]) -> int:
        if not left:
            return int(colours**nodes)
        a, b = max(left)
        rest = left - {(a, b)}
        merged = {(a if x == b else x, a if y == b else y) for x, y in rest}
        contracted = frozenset((min(e), max(e)) for e in merged)
        return ways(nodes, rest) - ways(nodes - 1, contracted)

    return integer(ways(size, frozenset((min(e), max(e)) for e in edges)))


COLOURINGS = Maker(
    name="graph_colourings",
    kind="math",
    area="graphs",
    draw=_colourings,
    text=worded(
        "In how many ways can the nodes 1 to {size} of the graph with the edges {edges} be coloured "
        "with {colours} colours, so that no edge joins two nodes of one colour? Not every colour has "
        "to be used.",
        "{size} exams, numbered from 1, go into {colours} different time slots; these pairs must not be "
        "in the same slot: {edges}. How many timetables are there? Slots may stay empty.",
    ),
    solve=_colourings_by_blocks,
    check=_colourings_by_contraction,
    code=program(
        "size edges colours",
        """
near = {v: [a + b - v for a, b in edges if v in (a, b)] for v in range(1, size + 1)}
def ways(v, blocks):
    if v > size:
        n = 1
        for i in range(len(blocks)):
            n *= colours - i
        return n
    total = ways(v + 1, blocks + [[v]])
    for i, block in enumerate(blocks):
        if not any(u in near[v] for u in block):
            total += ways(v + 1, blocks[:i] + [block + [v]] + blocks[i + 1:])
    return total
print(ways(1, []))
""",
    ),
)


def _jobs(rng: Random, level: int) -> Params:
    size = 4 + level // 2
    return drawn(
        rng, costs=[[rng.randint(10, 99 + 100 * level) for _ in range(size)] for _ in range(size)]
    )


def _jobs_by_sets(params: Params) -> MathAnswer:
    costs = rows(params, "costs", 8, low=0, high=2_000)
    least = {0: 0}
    for row in costs:
        after: dict[int, int] = {}
        for used, cost in least.items():
            for j, price in enumerate(row):
                if not used >> j & 1:
                    key = used | 1 << j
                    after[key] = min(after.get(key, 10**9), cost + price)
        least = after
    return integer(min(least.values()))


def _jobs_by_trying(params: Params) -> MathAnswer:
    costs = rows(params, "costs", 8, low=0, high=2_000)
    return integer(
        min(
            sum(row[j] for row, j in zip(costs, order, strict=True))
            for order in permutations(range(len(costs)))
        )
    )


JOBS = Maker(
    name="cheapest_matching",
    kind="math",
    area="graphs",
    draw=_jobs,
    text=worded(
        "Each worker gets one job, and each job one worker. The rows of costs, one for each worker, "
        "with a number for each job, are {costs}. What is the least possible total cost?",
        "In the complete bipartite graph with the weights {costs} (a row for each node on the left), "
        "how much does a perfect matching of minimum total weight weigh?",
    ),
    solve=_jobs_by_sets,
    check=_jobs_by_trying,
    code=program(
        "costs",
        "from itertools import permutations\n"
        "print(min(sum(row[j] for row, j in zip(costs, order))\n"
        "          for order in permutations(range(len(costs)))))",
    ),
)


def _independent(rng: Random, level: int) -> Params:
    size = 8 + level
    edges = _connected(rng, size, rng.randint(0, size // 2))
    return drawn(rng, size=size, edges=[list(edge) for edge in edges])


def _independent_by_branches(params: Params) -> MathAnswer:
    """Sets without a node, and sets with it and without its neighbours."""
    size, edges = _graph(params, 17)
    near = [1 << v for v in range(size)]
    for a, b in edges:
        near[a - 1] |= 1 << b - 1
        near[b - 1] |= 1 << a - 1

    @cache
    def count(left: int) -> int:
        if not left:
            return 1
        node = left.bit_length() - 1
        return count(left & ~(1 << node)) + count(left & ~near[node])

    return integer(count((1 << size) - 1))


def _independent_by_marks(params: Params) -> MathAnswer:
    """Strikes the sets that hold both ends of an edge, all at once: a bit for each set of nodes."""
    size, edges = _graph(params, 17)
    whole = (1 << (1 << size)) - 1
    holds = [
        whole // ((1 << (2 << v)) - 1) * ((1 << (1 << v)) - 1) << (1 << v) for v in range(size)
    ]
    bad = 0
    for a, b in edges:
        bad |= holds[a - 1] & holds[b - 1]
    return integer((whole & ~bad).bit_count())


INDEPENDENT = Maker(
    name="independent_sets",
    kind="math",
    area="graphs",
    draw=_independent,
    text=worded(
        "In the graph on the nodes 1 to {size} with the edges {edges}, how many sets of nodes have no "
        "two that an edge joins? The empty set counts.",
        "{size} guests, numbered from 1, may be invited, but these pairs must not both come: {edges}. "
        "How many guest lists are possible, the empty one included?",
    ),
    solve=_independent_by_branches,
    check=_independent_by_marks,
    code=program(
        "size edges",
        """
masks = [1 << a - 1 | 1 << b - 1 for a, b in edges]
print(sum(all(s & m != m for m in masks) for s in range(1 << size)))
""",
    ),
)


def _pipes(rng: Random, level: int) -> Params:
    size = 6 + level // 2
    edges = []
    for a, b in _connected(rng, size, 2 * size):
        ends = (b, a) if a > 1 and b < size and rng.random() < 0.3 else (a, b)
        edges.append([*ends, rng.randint(10, 60 + 30 * level)])
    return drawn(rng, size=size, edges=edges)


def _flow_by_paths(params: Params) -> MathAnswer:
    """Edmonds and Karp's method."""
    size, edges = _graph(params, 11, 3)
    room = [[0] * (size + 1) for _ in range(size + 1)]
    for a, b, capacity in edges:
        room[a][b] += capacity
    flow = 0
    while True:
        before, queue = {1: 0}, deque([1])
        while queue and size not in before:
            node = queue.popleft()
            for other in range(1, size + 1):
                if other not in before and room[node][other]:
                    before[other] = node
                    queue.append(other)
        if size not in before:
            return integer(flow)
        path = [size]
        while path[-1] != 1:
            path.append(before[path[-1]])
        steps = list(zip(path[1:], path[:-1], strict=True))
        more = min(room[a][b] for a, b in steps)
        for a, b in steps:
            room[a][b] -= more
            room[b][a] += more
        flow += more


def _flow_by_cuts(params: Params) -> MathAnswer:
    size, edges = _graph(params, 11, 3)
    cuts = ({1, *some} for some in subsets(range(2, size)))
    return integer(min(sum(c for a, b, c in edges if a in cut and b not in cut) for cut in cuts))


PIPES = Maker(
    name="maximum_flow",
    kind="math",
    area="graphs",
    draw=_pipes,
    text=worded(
        "Pipes, each in one direction, join the stations 1 to {size}: (from, to, litres a second at "
        "most) {edges}. How many litres a second can flow from station 1 to station {size} at most?",
        "What is the value of a maximum flow from node 1 to node {size} in the directed network with "
        "the arcs (tail, head, capacity) {edges}?",
    ),
    solve=_flow_by_paths,
    check=_flow_by_cuts,
    code=program(
        "size edges",
        """
from itertools import combinations
inner = range(2, size)
print(min(sum(c for a, b, c in edges if (a in s or a == 1) and b not in s and b != 1)
          for k in range(len(inner) + 1) for s in combinations(inner, k)))
""",
    ),
)

MAKERS = (ROADS, TREES, COLOURINGS, JOBS, INDEPENDENT, PIPES)
