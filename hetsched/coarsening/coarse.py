"""Contraction of clusters of tasks to the tasks of a smaller problem, and the lift of its decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt

from hetsched.analysis.levels import unit_sums
from hetsched.arguments import check_array, check_indices, checked
from hetsched.arrays import BoolArray, FloatArray, Frozen, IntArray, readonly, row_starts
from hetsched.errors import InvalidProblem
from hetsched.problem.graph import TaskGraph
from hetsched.problem.problem import Problem
from hetsched.schedule.decision import Decision


class Coarsening(Frozen):
    """A problem and a smaller one whose tasks are clusters of its tasks.

    Attributes
    ----------
    problem, coarse : Problem
    cluster : int64 array [n]
        The task of `coarse` that contains each task of `problem`.
    """

    problem: Problem
    coarse: Problem
    cluster: IntArray

    @checked
    def __init__(self, problem: Problem, coarse: Problem, cluster: npt.ArrayLike) -> None:
        self._set(problem=problem, coarse=coarse, cluster=readonly(check_indices(cluster, "cluster", coarse.n_tasks)))

    @classmethod
    @checked
    def through(cls, problem: Problem, levels: Iterable[Coarsening]) -> Coarsening:
        """Return the composition of coarsenings of the problem, of the first's coarse problem, and so on; `levels` may be empty."""
        return reduce(cls.then, levels, cls(problem, problem, np.arange(problem.n_tasks)))

    def __repr__(self) -> str:
        before, after = ccr(self.problem), ccr(self.coarse)
        return f"<Coarsening of {self.problem.n_tasks} tasks (CCR {before:.3g}) to {self.coarse.n_tasks} (CCR {after:.3g})>"

    @checked
    def then(self, further: Coarsening) -> Coarsening:
        """Return the composition of this coarsening and one of its coarse problem."""
        return Coarsening(self.problem, further.coarse, further.cluster[self.cluster])

    @property
    def colocated(self) -> Problem:
        """The fine problem with the tasks of each cluster co-located, and units that share one; its decisions are decisions on it."""
        return colocated(self.problem, self.coarse.unit[self.cluster])

    @checked
    def lift(self, decision: Decision) -> Decision:
        """Return a decision on the coarse problem as one on the fine, with the members of each cluster in topological order.

        The order of transfers is dropped, for the fine problem has others.
        """
        members = np.lexsort((self.problem.graph.rank, self.cluster))
        size = np.bincount(self.cluster, minlength=self.coarse.n_tasks)
        batch, place = _repeated(size[decision.task])
        first = np.cumsum(size) - size
        counts = np.diff(decision.item_ptr)
        item_batch, item_place = _repeated(counts[batch])
        return Decision(
            members[first[decision.task[batch]] + place],
            decision.device[batch],
            row_starts(counts[batch]),
            decision.items[decision.item_ptr[batch[item_batch]] + item_place],
        )


def colocated(problem: Problem, cluster: IntArray) -> Problem:
    """Return the problem with the tasks of each cluster co-located; units must not be divided."""
    return problem.replace(graph=problem.graph._colocated(cluster))


def _repeated(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return each index repeated `counts` times, and the number of each repetition."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


@checked
def ccr(problem: Problem) -> float:
    """Return the communication-to-computation ratio: mean transfer time of all edges divided by mean duration of all tasks.

    It is 0 without communication, inf without work. Celeritas (Xu et al. 2022), (1); means are over pairs of different devices
    and over devices.
    """
    moved, work = mean_transfers(problem).sum(), mean_durations(problem).sum()
    return float(moved / work) if work > 0 else (np.inf if moved > 0 else 0.0)


def mean_transfers(problem: Problem) -> FloatArray:
    """Return the mean seconds of each edge between different devices, [E], for all inputs."""
    from hetsched.analysis import ranking_kernels

    seconds: FloatArray = ranking_kernels.mean_transfers(problem.arrays, ranking_kernels.TIMES)
    return seconds


def mean_durations(problem: Problem) -> FloatArray:
    """Return the mean seconds of each task over its devices, [n], for all inputs in the cheapest batches."""
    per_input = np.where(problem.pinned[:, :, None], problem.durations, np.nan) / problem.batch_sizes
    best = np.fmin.reduce(np.where(problem.batch_sizes <= problem.inputs, per_input, np.nan), axis=2) * problem.inputs
    return np.asarray(np.nansum(best, axis=1) / np.maximum(1, np.isfinite(best).sum(axis=1)))


def memory_share(problem: Problem, share: float) -> float:
    """Return a share, in bytes, of the smallest memory among devices that can run any task."""
    used = problem.cluster.memory_bytes[problem.eligible.any(axis=0)]
    return float(share * used.min(initial=np.inf)) if share < np.inf else np.inf


@checked
def contract(problem: Problem, cluster: npt.ArrayLike, names: Sequence[str] | None = None) -> Coarsening:
    """Return the problem whose tasks are clusters.

    Durations, weights, inputs, outputs, flops and bytes of the members are summed, and so are the bytes (or explicit times) of
    edges between the same two clusters; edges within a cluster are dropped. A cluster has the operator type of its members if
    they share one, else the type "cluster". It can run only where all its members can.
    Clusters whose members share a co-location label share one.

    Parameters
    ----------
    cluster : int array [n]
        A number for each task; tasks of the same number become one task.
    names : sequence of str [n], optional
        A name for each task; a cluster has that of its first task in topological order, and clusters of the same name are ``name/1``,
        ``name/2``. Default: the name of the first task, with the number of others.

    Raises
    ------
    InvalidProblem
        The clusters have a cycle (see `acyclic`), or one has no device (see `settled`).
    """
    graph, order = problem.graph, problem.graph.topological_order
    given = check_array(cluster, "cluster", None, np.int64, error=InvalidProblem)
    if given.shape != (problem.n_tasks,):
        raise InvalidProblem(f"cluster has shape {given.shape} but the graph has {problem.n_tasks} tasks; give one number per task")
    if names is not None and len(names) != problem.n_tasks:
        raise InvalidProblem(f"names has {len(names)} names but the graph has {problem.n_tasks} tasks; give one for each task")
    _, first_places, inverse = np.unique(given[order], return_index=True, return_inverse=True)
    number = np.empty(problem.n_tasks, np.int64)
    number[order] = np.argsort(np.argsort(first_places))[inverse]  # by their first tasks
    members = order[np.argsort(number[order], kind="stable")]
    size = np.bincount(number, minlength=len(first_places))
    start = np.cumsum(size) - size
    first = members[start]
    count = len(first_places)

    ends = number[graph.edges]
    crossing = np.flatnonzero(ends[:, 0] != ends[:, 1])
    pair, edge = np.unique(ends[crossing, 0] * count + ends[crossing, 1], return_inverse=True)
    transfers = None
    if problem.transfers is not None:
        transfers = np.zeros((len(pair), problem.n_devices, problem.n_devices))
        np.add.at(transfers, edge, problem.transfers[crossing])

    def total(column: FloatArray) -> FloatArray:
        return np.add.reduceat(column[members], start, axis=0) if count else column

    coarse = TaskGraph(
        [graph.names[i] if size[c] == 1 else f"{graph.names[i]} (+{size[c] - 1})" for c, i in enumerate(first.tolist())]
        if names is None
        else _numbered([names[i] for i in first.tolist()]),
        np.stack([pair // max(1, count), pair % max(1, count)], axis=1),
        edge_bytes=np.bincount(edge, graph.edge_bytes[crossing], len(pair)),
        op=_operators(graph, members, start),
        weight_bytes=total(graph.weight_bytes),
        input_bytes=total(graph.input_bytes),
        output_bytes=total(graph.output_bytes),
        flops=total(graph.flops),
        bytes_accessed=total(graph.bytes_accessed),
        shape=[graph.shape[i] if size[c] == 1 else None for c, i in enumerate(first.tolist())],
        colocation=_labels(problem, number, count),
        devices=_pins(problem, number, count),
    )
    durations = total(np.where(problem.pinned[:, :, None], problem.durations, np.nan))
    changed = problem.replace(graph=coarse, durations=durations, transfers=transfers)
    return Coarsening(problem, changed, number)


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the names, with a number behind those that are not the only ones."""
    count, seen = Counter(names), Counter[str]()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if count[name] == 1 else f"{name}/{seen[name]}")
    return result


def _operators(graph: TaskGraph, members: IntArray, start: IntArray) -> list[str]:
    if not len(start):
        return []
    numbers: dict[str, int] = {}
    codes = np.array([numbers.setdefault(name, len(numbers)) for name in graph.op])[members]
    alike = np.minimum.reduceat(codes, start) == np.maximum.reduceat(codes, start)
    names = list(numbers)
    return [names[codes[s]] if same else "cluster" for s, same in zip(start.tolist(), alike.tolist(), strict=True)]


def _pins(problem: Problem, number: IntArray, count: int) -> list[list[str] | None] | None:
    """Return the devices that the pins of all members of each cluster permit; without one, durations exclude all devices."""
    if problem.pinned.all():
        return None
    names = problem.cluster.names
    common = _common(problem.pinned, number, count)
    free = np.asarray(common.all(axis=1) | ~common.any(axis=1))
    return [None if any_device else [names[k] for k in np.flatnonzero(row)] for any_device, row in zip(free.tolist(), common, strict=True)]


def _labels(problem: Problem, number: IntArray, count: int) -> list[str | None] | None:
    """Return a label for each cluster that must share its device with another."""
    if problem.n_units == problem.n_tasks:
        return None
    component = united(problem, number, count)
    names: dict[int, str] = {}
    for i, label in enumerate(problem.graph.colocation):
        if label is not None:
            names.setdefault(int(component[number[i]]), label)
    shared = np.bincount(component)[component] > 1
    return [names[c] if several else None for c, several in zip(component.tolist(), shared.tolist(), strict=True)]


def united(problem: Problem, number: IntArray, count: int) -> IntArray:
    """Return a number for each cluster, equal for co-located ones."""
    ends = number, count + problem.unit
    return components(*ends, count + problem.n_units, "weak")[:count]


def components(source: IntArray, target: IntArray, size: int, kind: Literal["weak", "strong"]) -> IntArray:
    """Return the component of each node of a directed graph, [size]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links = coo_array((np.ones(len(source), np.int8), (source, target)), shape=(size, size))
    return np.asarray(connected_components(links, connection=kind)[1], np.int64)


@checked
def acyclic(problem: Problem, cluster: npt.ArrayLike) -> IntArray:
    """Return clusters without a cycle: clusters on one are divided where a path returns to them.

    Parameters
    ----------
    cluster : int array [n]

    Returns
    -------
    int64 array [n]
        Clusters that are on no cycle are unchanged.
    """
    from hetsched.coarsening import kernels

    graph = problem.graph
    given = check_array(cluster, "cluster", (problem.n_tasks,), np.int64, error=InvalidProblem)
    number = np.unique(given, return_inverse=True)[1]
    count = int(number.max(initial=-1)) + 1
    ends = number[graph.edges].reshape(-1, 2)
    ring = components(ends[:, 0], ends[:, 1], count, "strong")
    if len(np.unique(ring)) == count:
        return np.asarray(number)
    # On a cycle of clusters a path enters a later phase whenever it changes its cluster, so that phases only increase.
    phase = kernels.phases(graph.topological_order, graph.pred_ptr, graph.pred, number, ring[number])
    return np.asarray(np.unique(number * (phase.max() + 1) + phase, return_inverse=True)[1])


@checked
def settled(problem: Problem, cluster: npt.ArrayLike, most_claim: float = np.inf) -> IntArray:
    """Return clusters that each have a device, also with co-location, if required for a batch of all inputs.

    A cluster is divided, along its tasks in topological order, where no device can run the tasks before and the next one, where
    these differ in the batch sizes of a device, and where its tasks, with all co-located tasks, would need more than
    `most_claim` bytes of static memory. Clusters that still have no device because of co-location are divided into their tasks.
    """
    from hetsched.coarsening import kernels

    order = problem.graph.topological_order
    given = check_array(cluster, "cluster", (problem.n_tasks,), np.int64, error=InvalidProblem)
    number = np.unique(given, return_inverse=True)[1]
    able = np.isfinite(problem.durations) & problem.eligible[:, :, None]
    usable = np.isfinite(problem.whole_durations)[:, :, None]
    if not usable.any(axis=1).all():  # then batches of all inputs are not required
        usable = able
    one, other = (flags.reshape(len(order), flags.shape[1] * flags.shape[2]) for flags in (usable, able))
    number = kernels.cut_by_ability(order, number, one, other, problem.n_sizes > 1)
    if most_claim < np.inf:
        claim = unit_sums(problem, problem.static_bytes @ [1.0, problem.inputs])
        number = kernels.cut_by_claims(order, number, problem.unit, claim, most_claim)
    while problem.n_units < problem.n_tasks:
        count = int(number.max(initial=-1)) + 1
        component = united(problem, number, count)
        together = _common(_common(usable, number, count), component, int(component.max(initial=-1)) + 1)[component]
        bad: BoolArray = np.asarray(~together.any(axis=(1, 2))) & (np.bincount(number, minlength=count) > 1)
        if not bad.any():
            break
        number = np.unique(np.where(bad[number], count + np.arange(len(number)), number), return_inverse=True)[1]
    return np.asarray(number)


def _common(able: BoolArray, number: IntArray, count: int) -> BoolArray:
    """Return the conjunction over all rows of the same number, [count, ...]."""
    lacking = np.zeros((count, *able.shape[1:]), np.bool_)
    missing = np.nonzero(~able)
    lacking[(number[missing[0]], *missing[1:])] = True
    return ~lacking
