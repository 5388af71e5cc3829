"""Merging along edges: heavy ones, level by level, or all edges to an only child or from an only parent."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from hetsched.analysis.levels import unit_sums
from hetsched.arguments import check_array, checked
from hetsched.arrays import FloatArray, IntArray
from hetsched.coarsening.coarse import Coarsening, acyclic, components, contract, mean_durations, mean_transfers, memory_share, settled
from hetsched.coarsening.sequential import device_bits
from hetsched.errors import InvalidProblem, UnsupportedFeature
from hetsched.problem.problem import Problem

STALLED = 0.95
"""The hierarchy ends at a level with more than this share of the tasks of the one before."""
SPREAD = 0.5
"""Standard deviation of the logarithm of the random factor of a transfer in `joined`."""


@checked(UnsupportedFeature)
def heavy_edges(
    problem: Problem,
    *,
    largest: float = 0.05,
    memory: float = 0.25,
    within: npt.ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> Coarsening:
    """Merge tasks in pairs along heavy edges, then other tasks with tasks that have a common parent.

    This makes no cycle: a pair along an edge connects adjacent levels (longest paths from the sources, in edges), and no edge
    leads from the lower task of a pair to the upper one of another; other pairs are within a level. A cycle of clusters would
    have to descend a level in each of its clusters.

    Parameters
    ----------
    largest : float
        The most work of a pair, as a share of the graph's.
    memory : float
        The most static memory of a pair, as a share of the smallest device's.
    within : int array [n], optional
        Only tasks of the same number are merged, for instance those on the same device of a schedule.
    rng : numpy.random.Generator, optional
        Draws the order in which tasks are visited; default: by ascending work.

    References
    ----------
    Heavy edges: G. Karypis, V. Kumar, SIAM J. Sci. Comput. 1998. Levels: J. Herrmann et al., "Multilevel algorithms for acyclic
    partitioning of directed acyclic graphs", SIAM J. Sci. Comput. 2019, in a weaker form that allows more pairs.
    """
    for what, value in (("largest", largest), ("memory", memory)):
        if not value > 0:
            raise UnsupportedFeature(f"{what} is {value!r}; it must be a share, above 0")
    from hetsched.coarsening import matching_kernels

    work = mean_durations(problem)
    most = memory_share(problem, memory)
    tasks = matching_kernels.Tasks(
        part=np.zeros(problem.n_tasks, np.int64) if within is None else _parts(problem, within),
        level=matching_kernels.levels(problem.arrays, problem.graph.topological_order),
        work=work,
        claim=problem.static_bytes @ [1.0, problem.inputs],
        able=device_bits(problem),
    )
    order = np.argsort(work, kind="stable") if rng is None else rng.permutation(problem.n_tasks)
    limits = matching_kernels.Limits(work=largest * work.sum(), claim=most)
    partner = matching_kernels.match(problem.arrays, order, mean_transfers(problem), tasks, limits)
    every = np.arange(problem.n_tasks)
    return contract(problem, settled(problem, np.where(partner >= 0, np.minimum(every, partner), every), most))


@checked(UnsupportedFeature)
def degree_one(problem: Problem, *, memory: float = 0.25) -> Coarsening:
    """Merge along edges that are the only one out of a task, or the only one into it: Baechi's operator fusion.

    It is a baseline of `operation_fusion`: one such edge makes no cycle, but large graphs have few of them. Clusters on a cycle
    that several of them make are divided, and so are clusters of more than a share `memory` of the smallest device.

    References
    ----------
    B. Jeon et al., "Baechi: fast device placement of machine learning graphs", SoCC 2020.
    """
    if not memory > 0:
        raise UnsupportedFeature(f"memory is {memory!r}; it must be a share of a device's memory, above 0")
    graph = problem.graph
    alone = (np.diff(graph.succ_ptr)[graph.source] == 1) | (np.diff(graph.pred_ptr)[graph.target] == 1)
    cluster = components(graph.source[alone], graph.target[alone], problem.n_tasks, "weak")
    return contract(problem, settled(problem, acyclic(problem, cluster), memory_share(problem, memory)))


@checked(UnsupportedFeature)
def hierarchy(
    problem: Problem,
    *,
    tasks: int = 200,
    largest: float = 0.05,
    memory: float = 0.25,
    within: npt.ArrayLike | None = None,
    rng: np.random.Generator | None = None,
) -> Iterator[Coarsening]:
    """Yield coarsenings of the problem, of the first's coarse problem, and so on, until there are at most `tasks` tasks.

    It also ends if hardly any tasks can be merged. The other parameters are those of `heavy_edges`.
    """
    part = None if within is None else _parts(problem, within)
    while problem.n_tasks > tasks:
        level = heavy_edges(problem, largest=largest, memory=memory, within=part, rng=rng)
        if level.coarse.n_tasks > STALLED * problem.n_tasks:
            return
        yield level
        problem = level.coarse
        if part is not None:
            part = part[np.unique(level.cluster, return_index=True)[1]]


def joined(
    problem: Problem,
    *,
    largest: float,
    memory: float = 0.25,
    within: IntArray | None = None,
    along: IntArray | None = None,
    rng: np.random.Generator | None = None,
) -> IntArray:
    """Return a cluster for each task, [n]: units joined along edges, in descending order of their transfers, within limits.

    The parameters are those of `heavy_edges`, but `rng` draws a factor for each transfer, and with `along` [n] units are joined only along
    edges between tasks of the same number there; a unit may have tasks of several numbers. Paths may leave clusters and return, as in a
    layer of a network unrolled in time. So they cannot be contracted; they are to be co-located.
    """
    from hetsched.coarsening import matching_kernels

    ends = problem.unit[problem.graph.edges]
    used = ends[:, 0] != ends[:, 1]
    if along is not None:
        used &= along[problem.graph.source] == along[problem.graph.target]
    apart = np.flatnonzero(used)
    code, edge = np.unique(ends[apart].min(axis=1) * problem.n_units + ends[apart].max(axis=1), return_inverse=True)
    pairs = np.column_stack(np.divmod(code, max(1, problem.n_units)))
    weight: FloatArray = np.bincount(edge, mean_transfers(problem)[apart], len(pairs)).astype(float)
    if rng is not None:
        weight = weight * rng.lognormal(0.0, SPREAD, len(pairs))
    first = np.unique(problem.unit, return_index=True)[1]
    work, claim = unit_sums(problem, mean_durations(problem)), unit_sums(problem, problem.static_bytes @ [1.0, problem.inputs])
    able = np.full(problem.n_units, -1)
    np.bitwise_and.at(able, problem.unit, device_bits(problem))
    part = np.zeros(problem.n_units, np.int64) if within is None else within[first]
    units = matching_kernels.Tasks(part, np.zeros(problem.n_units, np.int64), work.copy(), claim.copy(), able)
    limits = matching_kernels.Limits(work=largest * work.sum(), claim=memory_share(problem, memory))
    return matching_kernels.join(np.argsort(-weight, kind="stable"), pairs, units, limits)[problem.unit]


def _parts(problem: Problem, within: npt.ArrayLike) -> IntArray:
    return check_array(within, "within", (problem.n_tasks,), np.int64, error=InvalidProblem)
