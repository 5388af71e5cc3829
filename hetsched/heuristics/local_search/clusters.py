"""Annealing of placements: clusters of units move between devices, and the tasks are scheduled by ranks."""

from __future__ import annotations

import math

import numpy as np

from hetsched.arrays import FloatArray, IntArray, row_starts
from hetsched.coarsening.coarse import mean_durations, mean_transfers
from hetsched.heuristics.local_search import cluster_kernels as kernels
from hetsched.heuristics.local_search.states import States
from hetsched.problem.problem import Problem, sums_by_unit
from hetsched.schedule.decision import Decision, sent_in_order

ROUNDS = 2
"""How far the neighbours of units alike are alike, in edges."""


class ClusterSearch:
    """A search over the devices of units within static memory; each task is one batch of all inputs.

    Parameters
    ----------
    problem : Problem
        The search supports every problem but those of limited ``peak`` memory.

    Attributes
    ----------
    least : float
        The makespan of the best placement so far in seconds; inf if none fits.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.data, self.state = _data(problem), _state(problem)
        self.best = self.state.device.copy()
        self.makespan = self.least = np.inf

    def start(self, device: IntArray) -> None:
        """Begin with the devices of tasks, [n], if the schedule is shorter than that of the best placement so far."""
        self.state.device[self.problem.unit] = device
        self.state.rank[:] = _ranks(self.problem, device)
        if self._load() < self.least:
            self.best[:], self.least = self.state.device, self.makespan
            self.rank = self.state.rank.copy()

    def _load(self) -> float:
        """Schedule the placement of the state; return its makespan, inf if it does not fit."""
        s = self.state
        s.used[:] = np.bincount(s.device, self.data.need, self.problem.n_devices)
        self.makespan = math.inf if (s.used > self.data.search.capacity).any() else kernels.decode(self.data, s, 0.0, np.inf)
        kernels.commit(s)
        return self.makespan

    def anneal(self, steps: int, temperature: float, rng: np.random.Generator) -> None:
        """Move random clusters at a temperature, in seconds."""
        course = kernels.Course(steps, temperature, self.makespan, self.least)
        self.makespan, self.least = kernels.anneal(self.data, self.state, self.best, rng, course)

    def return_to_best(self) -> None:
        self.state.device[:] = self.best
        self.state.rank[:] = self.rank
        self._load()

    def decision(self) -> Decision:
        """Return the decision of the current placement."""
        problem, times = self.problem, self.state.times
        graph, device = problem.graph, self.state.device[problem.unit]
        decision = Decision.whole(problem, device, np.lexsort((graph.rank, times.start)))
        if not problem.links.contended:
            return decision
        sent = np.lexsort((graph.rank[graph.source], times.sent))
        return sent_in_order(problem, decision, sent[device[graph.source[sent]] != device[graph.target[sent]]])


def _ranks(problem: Problem, device: IntArray) -> FloatArray:
    """Return the upward ranks with the durations and transfers of a placement, [n]."""
    from hetsched.analysis import ranking_kernels

    graph = problem.graph
    weight = problem.whole_durations[np.arange(problem.n_tasks), device]
    transfer = problem.transfer_times(np.arange(graph.n_edges), device[graph.source], device[graph.target], problem.inputs)
    ranks: FloatArray = ranking_kernels.upward(problem.arrays, graph.topological_order, weight, transfer)
    return ranks


def _data(problem: Problem) -> kernels.ClusterData:
    ends = problem.unit[problem.graph.edges].reshape(-1, 2)
    used = np.flatnonzero(ends[:, 0] != ends[:, 1])
    both = np.concatenate([ends[used], ends[used, ::-1]])
    pair, first = np.unique(both[:, 0] * problem.n_units + both[:, 1], return_inverse=True)
    seconds = np.bincount(first, np.tile(mean_transfers(problem)[used], 2), len(pair))
    search, work = States(problem).tables, sums_by_unit(problem, mean_durations(problem))
    kind = alike(problem)
    return kernels.ClusterData(
        search=search,
        near_ptr=row_starts(np.bincount(pair // max(1, problem.n_units), minlength=problem.n_units)),
        near=pair % max(1, problem.n_units),
        heavy=np.asarray(seconds, np.float64),
        work=work,
        need=search.weight + search.activation * problem.inputs,
        kind=kind,
        alike_ptr=row_starts(np.bincount(kind)),
        alike=np.argsort(kind, kind="stable"),
        largest=kernels.LARGEST * float(work.sum()),
    )


def alike(problem: Problem) -> IntArray:
    """Return a number for each unit, [units], equal for those whose tasks and neighbours have equal durations, bytes and edges."""
    graph = problem.graph
    columns = np.hstack([problem.whole_durations, problem.static_bytes])
    label = np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)
    edge = np.unique(graph.edge_bytes, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    for _ in range(ROUNDS):
        value = rng.random(label.max(initial=0) + 1)[label]
        factor = rng.random((2, edge.max(initial=0) + 1))[:, edge]
        into = np.bincount(graph.target, factor[0] * value[graph.source], problem.n_tasks)
        out = np.bincount(graph.source, factor[1] * value[graph.target], problem.n_tasks)
        label = np.unique(np.round(np.stack([value, into, out], axis=1), 9), axis=0, return_inverse=True)[1].reshape(-1)
    value = np.bincount(problem.unit, rng.random(label.max(initial=0) + 1)[label], problem.n_units)
    return np.asarray(np.unique(np.round(value, 9), return_inverse=True)[1])


def _state(problem: Problem) -> kernels.ClusterState:
    n, edges, K, units = problem.n_tasks, problem.graph.n_edges, problem.n_devices, problem.n_units

    def floats(size: int) -> FloatArray:
        return np.zeros(size)

    def integers(*size: int) -> IntArray:
        return np.zeros(size, np.int64)

    return kernels.ClusterState(
        device=integers(units),
        used=floats(K),
        rank=floats(n),
        times=kernels.Times(floats(n), floats(n), floats(edges), floats(edges)),
        trial=kernels.Times(floats(n), floats(n), floats(edges), floats(edges)),
        waiting=integers(n),
        ready_ptr=integers(K + 1),
        ready_size=integers(K),
        ready_keys=floats(n),
        ready_items=integers(n),
        link_ptr=integers(K * K + 1),
        link_size=integers(K * K),
        link_keys=floats(edges),
        link_items=integers(edges),
        event_keys=floats(n + edges),
        event_items=integers(n + edges),
        rest=floats(K),
        busy=np.zeros(K, np.bool_),
        in_use=np.zeros(problem.links.n_resources, np.bool_),
        events=integers(2),
        changed=integers(2 * units + 1, 2),
        moves=integers(1),
        grow_keys=floats(2 * edges + 1),
        grow_items=integers(2 * edges + 1),
    )
