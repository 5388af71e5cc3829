"""The size of the stage problem of a graph: width, bounds, transitions, schedules."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from hetsched.analysis.chains import chains
from hetsched.analysis.ideals import Ideals
from hetsched.arguments import COUNT, checked
from hetsched.arrays import IntArray
from hetsched.errors import UnsupportedFeature
from hetsched.models.ios.block_states import lattice, unlimited, within
from hetsched.problem.graph import TaskGraph, plural

Rule = Literal["all", "published"]


class Counts:
    """The size of the stage problem of a graph; each number is computed at its first use.

    Parameters
    ----------
    graph : TaskGraph
        One block; `blocks` divides a network.
    rule : "all" or "published"
        Which endings count, see `counts`.
    groups, group_size : int or None
        The limits of a stage, as in `hetsched.stages`.
    """

    @checked(UnsupportedFeature, groups=COUNT, group_size=COUNT)
    def __init__(self, graph: TaskGraph, *, rule: Rule = "all", groups: int | None = None, group_size: int | None = None) -> None:
        self.graph, self.rule, self.groups, self.group_size = graph, rule, groups, group_size

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
        """The paper's bound on transitions, C(n/d + 2, 2)^d with the real n/d, with empty endings, without limits; inf if it overflows."""
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
        """Pairs of a state and a non-empty ending of it that counts.

        Without a limit on groups, connected components are counted separately: the numbers of pairs of states that differ by an
        ending that counts, or not at all, multiply.
        """
        pairs, states = 1, 1
        for tasks in _pieces(self.graph) if self.groups is None else [self.graph.topological_order]:
            ideals, own, _ = self._walk(tasks, 1)
            pairs, states = pairs * (own + ideals.number), states * ideals.number
        return pairs - states

    @cached_property
    def schedules(self) -> int:
        """Ordered partitions of the tasks into stages that count, without strategies."""
        n = self.graph.n_tasks
        bits = (math.lgamma(n + 1) - (n + 1) * math.log(math.log(2))) / math.log(2)  # ordered partitions without edges
        digits = self._walk(self.graph.topological_order, int(bits) // 32 + 2)[2]
        return sum(int(digit) << (32 * x) for x, digit in enumerate(digits))

    def _walk(self, tasks: IntArray, digits: int) -> tuple[Ideals, int, npt.NDArray[np.uint64]]:
        from hetsched.models.ios import kernels

        ptr, pred, edges = within(self.graph, tasks)
        states = lattice(self.graph, tasks, edges)
        limits = kernels.Limits(unlimited(self.groups), unlimited(self.group_size))
        pairs, ways = kernels.count(states, kernels.Predecessors(ptr, pred), limits, self.rule == "published", digits)
        return states, int(pairs), ways


@checked(UnsupportedFeature, groups=COUNT, group_size=COUNT)
def counts(graph: TaskGraph, *, rule: Rule = "all", groups: int | None = None, group_size: int | None = None) -> Counts:
    """Return the size of the stage problem of a graph: width, bound, transitions, schedules.

    Transitions and schedules are exact whole numbers. Their times are proportional to the transitions of the largest
    connected component (with a limit on groups, of the graph) and of the graph; both raise `UnsupportedFeature` for more than
    2^22 states.

    Parameters
    ----------
    graph : TaskGraph
        One block; `blocks` divides a network.
    rule : "all" or "published"
        "all" counts every ending, as `hetsched.stages` searches and the paper defines. "published" counts the endings in which
        each group consists of one task and all its descendants in the ending, the only ones that the authors' program finds; the
        paper's Table 1 has these numbers.
    groups, group_size : int or None
        The most groups of a stage, and the most tasks of a group, as in `hetsched.stages`, whose search considers `transitions`
        with these limits. None, the default here, for no limit, as in the paper's table. `width` and `bound` are without limits.

    References
    ----------
    Y. Ding, L. Zhu, Z. Jia, G. Pekhimenko, S. Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021, section 4.2 and
    Table 1; issue 10 of github.com/mit-han-lab/inter-operator-scheduler, on the endings that its program leaves out.
    """
    return Counts(graph, rule=rule, groups=groups, group_size=group_size)


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
