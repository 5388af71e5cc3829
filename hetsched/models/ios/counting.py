"""The size of the stage problem of a graph: width, bounds, transitions, schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hetsched.analysis.chains import chains
from hetsched.analysis.ideals import Ideals
from hetsched.arguments import checked
from hetsched.arrays import IntArray
from hetsched.models.ios.block_states import lattice, within
from hetsched.problem.graph import TaskGraph, plural


class Counts:
    """The size of the stage problem of a graph, without limits on stages; each number is computed at its first use.

    Parameters
    ----------
    graph : TaskGraph
        One block; `blocks` divides a network.
    """

    @checked
    def __init__(self, graph: TaskGraph) -> None:
        self.graph = graph

    def __repr__(self) -> str:
        return f"<Counts of {plural(self.graph.n_tasks, 'task')}, width {self.width}>"

    @cached_property
    def _chains(self) -> list[int]:
        return np.bincount(chains(self.graph)).tolist() if self.graph.n_tasks else []

    @property
    def width(self) -> int:
        """The most tasks without a path between any two."""
        return len(self._chains)

    @property
    def bound(self) -> float:
        """The paper's bound on the transitions, C(n/d + 2, 2)^d with the real n/d, with empty endings; inf if it overflows."""
        n, d = self.graph.n_tasks, max(1, self.width)
        exact = (Fraction(n + 2 * d, d) * Fraction(n + d, d) / 2) ** d
        try:
            return float(exact)
        except OverflowError:
            return math.inf

    @property
    def chain_bound(self) -> int:
        """The product of C(c + 2, 2) over a partition into the fewest chains, of c tasks each, which is at most `bound`."""
        return math.prod((c + 2) * (c + 1) // 2 for c in self._chains)

    @cached_property
    def transitions(self) -> int:
        """Pairs of a state and a non-empty ending of it.

        Connected components are counted separately: the numbers of pairs of states, one a subset of the other, multiply.
        """
        pairs, states = 1, 1
        for tasks in _pieces(self.graph):
            ideals, own, _ = self._walk(tasks, 1)
            pairs, states = pairs * (own + ideals.number), states * ideals.number
        return pairs - states

    @cached_property
    def schedules(self) -> int:
        """Ordered partitions of the tasks into stages, without strategies."""
        n = self.graph.n_tasks
        bits = (math.lgamma(n + 1) - (n + 1) * math.log(math.log(2))) / math.log(2)  # ordered partitions without edges
        digits = self._walk(self.graph.topological_order, int(bits) // 32 + 2)[2]
        return sum(int(digit) << (32 * x) for x, digit in enumerate(digits))

    def _walk(self, tasks: IntArray, digits: int) -> tuple[Ideals, int, npt.NDArray[np.uint64]]:
        from hetsched.models.ios import kernels

        states = lattice(self.graph, tasks, within(self.graph, tasks)[2])
        pairs, ways = kernels.count(states, digits)
        return states, int(pairs), ways


@checked
def counts(graph: TaskGraph) -> Counts:
    """Return the size of the stage problem of a graph: width, bound, transitions, schedules.

    Transitions and schedules are exact whole numbers. Their times are proportional to the transitions of the largest
    connected component and of the graph; both raise `UnsupportedFeature` for more than 2^22 states.
    """
    return Counts(graph)


def _pieces(graph: TaskGraph) -> Iterator[IntArray]:
    """Yield the tasks of each connected component, in topological order."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = graph.n_tasks
    if not n:
        return
    links = coo_array((np.ones(graph.n_edges, np.int8), (graph.source, graph.target)), shape=(n, n))
    number, piece = connected_components(links, directed=False)
    order = graph.topological_order
    for x in range(number):
        yield order[piece[order] == x]
